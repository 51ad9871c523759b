"""Fixtures of the correctness proofs' tests."""

from __future__ import annotations

from tests.storage.conftest import store as store
from tests.storage.conftest import user as user
