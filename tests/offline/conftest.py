"""Fixtures of the offline model's tests."""

from __future__ import annotations

import pytest

from agent_runtime.tools.workspace import listing
from agent_runtime.tools.workspace.searching import search


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no listing and no search end early on a busy machine."""
    monkeypatch.setattr(listing, "LIST_SECONDS", 1000.0)
    monkeypatch.setattr(search, "SECONDS", 1000.0)
    monkeypatch.setattr(search, "LINE_SECONDS", 1000.0)
