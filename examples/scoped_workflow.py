"""A workflow of named nodes: a loop, a scoped sub-workflow, a failure and its resume.

Every node that is an agent or a workflow has its own run and thread; only its answer is added to
the state that nodes share.  The run fails once, on purpose; when resumed, it repeats no finished
node.  The workflow's second turn, on this user's thread, begins with its first.  No key is needed:
the models follow a script.

Prints:

    review: 0.4
    review: 0.9
    The publisher is closed.
    -- resumed
    publish: The moon: far. (for Ada)
    The shared state: ['Write about the moon.', 'The moon is 384,400 km away.', 'The moon: 384,400 km.', 'The moon: far.', 'The moon: far. (for Ada)']
    The runs: ['publish', 'report', 'research', 'write', 'write']
    -- the next turn
    It begins with: ['Write about the moon.', 'The moon: far. (for Ada)']
"""  # noqa: E501

from __future__ import annotations

import anyio

from agent_runtime import (
    Agent,
    NodeFailed,
    Runtime,
    ScriptedModel,
    Settings,
    Workflow,
    WorkflowContext,
)
from agent_runtime.models.scripted import say

researcher = Agent(ScriptedModel([say("The moon is 384,400 km away.")]), name="researcher")
writer = Agent(ScriptedModel([say("The moon: 384,400 km."), say("The moon: far.")]), name="writer")

closed = True


def review(draft: str) -> float:
    """Score a draft; shorter is better."""
    score = 0.9 if len(draft) < 20 else 0.4
    print(f"review: {score}")
    return score


def press(text: str) -> str:
    """Print a text, unless the publisher is closed."""
    if closed:
        raise RuntimeError("The publisher is closed.")
    return text


@Workflow
async def publish(w: WorkflowContext) -> str:
    """Publish the input; it sees nothing else of the workflow around it."""
    return await w.call("press", press, f"{w.input} (for {w.user_context['name']})")


@Workflow
async def report(w: WorkflowContext) -> str:
    """Research, write until the review is satisfied, publish."""
    if w.history:
        print("It begins with:", [message.text for message in w.history])
        return "There is nothing to add."
    await w.agent("research", researcher)
    draft = await w.agent("write", writer, input_source="node_output", source_node_id="research")
    while await w.call("review", review, draft) < 0.8:
        draft = await w.agent("write", writer, f"Shorten: {draft}")
    text: str = await w.workflow(
        "publish", publish, input_source="node_output", source_node_id="write"
    )
    print("publish:", text)
    print("The shared state:", [message.text for message in w.messages])
    return text


async def main() -> None:
    global closed
    async with Runtime.open(Settings(database_url="file:example.db")) as runtime:
        store = runtime.store.of("local")
        try:
            await runtime.run(report, "Write about the moon.", user_context={"name": "Ada"})
        except NodeFailed:
            print("The publisher is closed.")
        closed = False
        print("-- resumed")
        [failed] = await store.runs.list(thread_id=report.thread)
        await runtime.resume(failed.id, report)
        runs = await store.runs.list(root_run_id=failed.id)
        print("The runs:", sorted(str((run.internal or {}).get("node", run.agent)) for run in runs))
        print("-- the next turn")
        await runtime.run(report, "Anything else?")


if __name__ == "__main__":
    anyio.run(main)
