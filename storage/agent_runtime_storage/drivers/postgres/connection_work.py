"""Work that a driver does on one of its connections."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from psycopg.pq.abc import PGresult

from agent_runtime_storage.drivers.postgres.pipeline import PipelineCommand, PipelineSession

_T = TypeVar("_T")


@dataclass(slots=True)
class ConnectionWork(Generic[_T]):
    """Work that needs a connection.

    Attributes:
        work: uses the connection.
        repeatable: whether running it twice has the same effect as once.
        begun: whether it runs, or ran with an unknown outcome.
        writes: whether it needs a server that can be written.
    """

    work: Callable[[PipelineSession], Awaitable[_T]]
    repeatable: bool
    begun: bool = False
    writes: bool = False


def run_commands(
    commands: Sequence[PipelineCommand],
    *,
    repeatable: bool,
    patient: bool = False,
    writes: bool = False,
) -> ConnectionWork[list[PGresult]]:
    """Return the work of some commands in one transaction."""
    return ConnectionWork(
        lambda session: session.run(commands, patient=patient), repeatable, writes=writes
    )
