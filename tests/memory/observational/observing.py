"""Runs with an Observer supplied by the test."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agent_runtime import Settings
from agent_runtime.log.run_log import RunLog
from agent_runtime.memory.observational.configure import MemorySetup
from agent_runtime.memory.observational.memory import ObservationalMemory
from agent_runtime.memory.observational.observer.base import Observer
from agent_runtime.run import state as run_state
from agent_runtime.run.state import memory_of


def observe_with(
    patch: pytest.MonkeyPatch, observer: Observer, *, deadline: float | None = None
) -> None:
    """Use this Observer in every run from here on.

    Args:
        deadline: seconds that it may take; None for the setting.
    """

    def observed(
        log: RunLog, found: MemorySetup, ratio: Callable[[], float], settings: Settings
    ) -> ObservationalMemory:
        memory = memory_of(log, found, ratio, settings)
        memory.observer = observer
        memory.deadline = memory.deadline if deadline is None else deadline
        return memory

    patch.setattr(run_state, "memory_of", observed)
