"""What all tests share."""

from __future__ import annotations

import os

import pytest

# No test may ever call a model that is not on this machine, whatever keys its user has set.
os.environ["AGENT_RUNTIME_FORBID_REAL_MODELS"] = "1"


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The runtime runs on asyncio only."""
    return "asyncio"
