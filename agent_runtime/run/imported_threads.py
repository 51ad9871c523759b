"""Check that the engine can read the rows of an imported thread, and let a person resume it."""

from __future__ import annotations

from typing import Literal

from agent_runtime.errors import Conflict
from agent_runtime.memory.node.document import read_node_document
from agent_runtime.messages import AssistantMessage, decode_message, decode_result
from agent_runtime.plan.model import decode_plan
from agent_runtime.prompt.observation import decode_body
from agent_runtime_storage.contract.records.log import Budget, Run
from agent_runtime_storage.contract.store import UserStore


def check_imported_body(
    kind: Literal["node", "call", "observation", "plan", "document"], body: bytes
) -> tuple[str, int]:
    """Decode a body as the engine does; for a node, return its role and the number of its calls.

    Raises:
        ValueError: the engine did not write it.
    """
    match kind:
        case "node":
            message = decode_message(body)
            calls = message.calls if isinstance(message, AssistantMessage) else ()
            return message.type, len(calls)
        case "call":
            decode_result(body)
        case "observation":
            # The columns are checked elsewhere; only the body has to be readable.
            decode_body(
                body, identity=1, level=0, parent_id=None, first=1, last=1, parts=(),
                provisional=False,
            )  # fmt: skip
        case "plan":
            decode_plan(body, version=1, node_id=1, created_at=0.0)
        case "document":
            read_node_document(body)
    return "", 0


async def vouch_for(store: UserStore, run: Run, budget: Budget) -> Run:
    """Make an imported run this owner's own, under this budget, so that it can be resumed.

    Other runs are returned unchanged.

    Raises:
        Conflict: it is a sub-agent's run, which only its root's run may continue.
    """
    if run.stop_reason != "imported":
        return run
    if run.parent_run_id is not None:
        raise Conflict(
            f"Run {run.id} is an imported sub-agent's run.",
            cure=f"Resume the run that it worked for, {run.root_run_id}.",
        )
    await store.runs.adopt(run.id, budget)
    return await store.runs.get(run.id)
