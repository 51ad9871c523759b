"""Set every polling interval of the runtime, to find tests that depend on one.

`TEST_POLL=0 pytest` runs the tests with all intervals at 0 seconds.
"""

from __future__ import annotations

from typing import Any

from agent_runtime.delegation import tasks_tool
from agent_runtime.log import lease_keeper
from agent_runtime_storage.drivers.libsql import remote
from agent_runtime_storage.drivers.postgres import notifications
from agent_runtime_storage.drivers.signals import Signals
from agent_runtime_storage.drivers.sqlite import database_file, file_signals

INTERVALS: tuple[tuple[Any, str], ...] = (
    (tasks_tool, "POLL_SECONDS"),
    (lease_keeper, "POLL_SECONDS"),
    (remote, "_POLL_SECONDS"),
    (notifications, "_POLL_SECONDS"),
    (database_file, "_LOOK_SECONDS"),
    (file_signals, "LOOK_SECONDS"),
    (file_signals, "_POLL_SECONDS"),
)


QUIET_POLLS = 1000
"""Polls without a new task after which a wait ends: the default of ten leaves no time at 0 s."""


def poll_every(seconds: float) -> None:
    """Set the intervals of this process.

    Raises:
        AttributeError: a module no longer has such an interval.
    """
    for module, name in INTERVALS:
        getattr(module, name)
        setattr(module, name, seconds)
    tasks_tool.QUIET_POLLS = max(tasks_tool.QUIET_POLLS, QUIET_POLLS)
    defaults = Signals.__init__.__kwdefaults__ or {}
    if "poll_seconds" not in defaults:
        raise AttributeError("Signals no longer have an interval.")
    defaults["poll_seconds"] = seconds
