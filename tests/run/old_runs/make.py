"""Write failed runs, one of each kind, as the installed version does.

    python -m tests.run.old_runs.make FILE WORKSPACE    # then `zstd FILE`

`runs.db.zst` was written at 7e61fb9, the last version whose rows hold the caller's spec and the
runtime's in one object. Each run fails once; resumed, it succeeds.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio

from agent_runtime import Agent, Runtime, ScriptedModel, Settings, Workflow, WorkflowContext, tool
from agent_runtime.agent import MemoryConfig, MemoryMode
from agent_runtime.errors import AgentRuntimeError, ModelUnavailable
from agent_runtime.models.scripted import call, say
from agent_runtime.tools.workspace.files import workspace_tools

FAILURE = ModelUnavailable("The provider is gone.")
WORKSPACE = "/the/workspace"
"""The folder that the database names; tests replace it by the workspace of the resuming run."""


@tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


def _agent(script: list[Any], **options: Any) -> Agent:
    return Agent(ScriptedModel(script), **options)


def _flow(script: list[Any]) -> Workflow:
    worker = _agent(script, name="worker")

    async def flow(w: WorkflowContext) -> str:
        first = await w.agent("first", worker, "Begin.")
        second = await w.agent("second", worker, "End.")
        return f"{first} {second} {w.user_context['name']}"

    return Workflow(flow, name="flow")


def agents(workspace: Path, *, again: bool) -> dict[str, Agent | Workflow]:
    """Return an agent of each kind: one that fails, or (`again`) one that completes the run."""

    def end(text: str) -> list[Any]:
        return [say(text)] if again else [FAILURE]

    def first(*answers: Any) -> list[Any]:
        return [] if again else list(answers)

    task = {"role": "Counter", "instructions": "Count."}
    remembering = MemoryConfig(MemoryMode.NODE, conversation_id="c1")
    return {
        "plain": _agent([*first(call("double", number=4)), *end("Plain.")], tools=[double]),
        "workflow": _flow([*first(say("One.")), *end("Two.")]),
        "delegation": _agent(
            [*first(call("delegate", task_key="k", **task), say("Four.")), *end("Delegated.")],
            delegation=True,
        ),
        "node_memory": _agent(end("Remembered."), name="node", memory=remembering),
        "command": _agent(
            [*first(call("read_file", path="a.txt")), *end("Commanded.")],
            tools=[*workspace_tools(workspace)],
        ),
    }


SPECS: dict[str, dict[str, Any]] = {
    "plain": {"color": "blue"},
    "command": {
        "model": "",
        "workspace": WORKSPACE,
        "allow_shell": False,
        "max_steps": None,
        "asking": False,
        "ask_shell": False,
    },
}


async def write(database: Path, workspace: Path) -> None:
    """Write the runs into a database."""
    settings = Settings(database_url=f"file:{database}", model_outage=0)
    (workspace / "a.txt").write_text("four")
    async with Runtime.open(settings) as runtime:
        for kind, agent in agents(workspace, again=False).items():
            with suppress(AgentRuntimeError):
                await runtime.run(
                    agent, "Work.", thread=kind, spec=SPECS.get(kind), user_context={"name": "Ada"}
                )


if __name__ == "__main__":
    anyio.run(write, Path(sys.argv[1]), Path(sys.argv[2]))
