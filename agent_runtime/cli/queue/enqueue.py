"""`agent-runtime run --queue`: leave a task to a worker."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agent_runtime.cli.runtime_calls import with_runtime
from agent_runtime.cli.terminal import write_json, write_row

if TYPE_CHECKING:
    from agent_runtime.cli.agents import Spec
    from agent_runtime.cli.parameters.points import QueueTurn
    from agent_runtime_config import Settings


def enqueue(
    settings: Settings,
    spec: Spec,
    task: str,
    thread: str | None,
    files: Sequence[str],
    turn: QueueTurn,
    *,
    as_json: bool,
) -> None:
    """Enqueue a run of the command line's agent, and print its id."""
    from agent_runtime.cli.service.applications import CommandApp

    # People answer by `agent-runtime answer`; a worker has no terminal.
    app = CommandApp(dataclasses.replace(spec, asking=bool(spec.model)))
    queued = with_runtime(
        lambda runtime: runtime.enqueue(
            app.named(None), task, app=app, thread=thread, files=files, spec=app.spec(None),
            at=turn.at, priority=turn.priority,
        ),
        settings,
    )  # fmt: skip
    if as_json:
        write_json(dataclasses.asdict(queued))
    else:
        write_row(queued.run_id)
