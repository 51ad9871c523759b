"""The databases that the store runs on."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_runtime_storage.urls import Backend

BACKENDS: tuple[Backend, ...] = ("file", "libsql-http", "libsql-ws", "postgres")
STORAGE = Path(__file__).parents[1] / "storage"
LONG = {STORAGE / "test_isolation.py"}
"""Tests of the store that take a minute on libSQL, which has the SQL of files."""


def _file_first(*others: str) -> pytest.MarkDecorator:
    return pytest.mark.backends(
        "file", *(pytest.param(one, marks=pytest.mark.slow) for one in others)
    )


FILE_FIRST = _file_first(*BACKENDS[1:])
FILE_THEN_POSTGRES = _file_first("postgres")
"""For tests that start and kill processes, which take a second or more on each database.

What a database decides about the dead, by leases and liveness, is tested on all of them without
other processes.
"""


def backends_for(path: Path) -> list[pytest.ParameterSet]:
    """Return the databases that the tests of a file run on, some among the slow tests only.

    The store hides which database it has.  Its own tests run on all but the second transport to
    libSQL, whose drivers have tests of their own; tests of what is above it on one of each dialect.
    """
    own = path.is_relative_to(STORAGE) and path not in LONG
    slow = {"libsql-ws"} if own else {"libsql-http", "libsql-ws"}
    return [pytest.param(one, marks=[pytest.mark.slow] * (one in slow)) for one in BACKENDS]
