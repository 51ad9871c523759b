"""Set every interval at which the runtime polls, to show that no test depends on one.

`AGENT_RUNTIME_TEST_POLL=0 pytest` runs the tests with all of them at 0 seconds.
"""

from __future__ import annotations

from typing import Any

from agent_runtime.delegation import tasks_tool
from agent_runtime.run import lifecycle
from agent_runtime_storage.drivers.libsql import remote
from agent_runtime_storage.drivers.postgres import notifications
from agent_runtime_storage.drivers.signals import Signals
from agent_runtime_storage.drivers.sqlite import database_file

INTERVALS: tuple[tuple[Any, str], ...] = (
    (tasks_tool, "POLL_SECONDS"),
    (lifecycle, "POLL_SECONDS"),
    (remote, "_POLL_SECONDS"),
    (notifications, "_POLL_SECONDS"),
    (database_file, "_LOOK_SECONDS"),
)


QUIET_POLLS = 1000
"""A wait for tasks ends after this many polls without one: ten at 0 seconds give no time to end."""


def poll_every(seconds: float) -> None:
    """Set the intervals of this process.

    Raises:
        AttributeError: a module has no such interval any more.
    """
    for module, name in INTERVALS:
        getattr(module, name)
        setattr(module, name, seconds)
    tasks_tool.QUIET_POLLS = max(tasks_tool.QUIET_POLLS, QUIET_POLLS)
    defaults = Signals.__init__.__kwdefaults__ or {}
    if "poll_seconds" not in defaults:
        raise AttributeError("Signals have no interval any more.")
    defaults["poll_seconds"] = seconds
