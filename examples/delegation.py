"""Sub-agents: two parts are read at the same time; one fails and is retried.

The agent delegates two tasks.  The outcome of each is observed by the runtime: its calls, their
errors, how it ended.  The retry of the failed task has the same key, so its sub-agent reads about
the first attempt.  No key is needed: the models follow a script.

Prints:

    The second sub-agent reads what the first met: The page is torn.
    the-sea: failed, attempt 1, errors: ['read: The page is torn.']
    the-sky: succeeded, attempt 1, result: The sky is blue.
    the-sea: succeeded, attempt 2, result: The sea is salt.
    The tree: [('boss', 'succeeded'), ('reader', 'failed'), ('reader', 'succeeded'), ('reader', 'succeeded')]
"""  # noqa: E501

from __future__ import annotations

import anyio
import orjson

from agent_runtime import Agent, Delegation, Runtime, ScriptedModel, Settings, ToolError, tool
from agent_runtime.messages import decode_result
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, calls, raw_call, say

TEXTS = {"sky.txt": "The sky is blue.", "sea-copy.txt": "The sea is salt."}


@tool
def read(path: str) -> str:
    """Read a file."""
    if path not in TEXTS:
        raise ToolError("The page is torn.")
    return TEXTS[path]


def order(key: str, path: str, **more: str) -> dict[str, object]:
    """Return the arguments of `delegate` for reading a file."""
    return {
        "role": "reader",
        "instructions": "Read the file and say what it says.",
        "briefing": f"The file is {path}.",
        "tools": ["read"],
        "task_key": key,
        "max_steps": 2,
        **more,
    }


def respond(request: ModelRequest) -> Scripted:
    """Answer for the agent, or for one of its sub-agents."""
    number = sum(message.role == "assistant" for message in request.messages)
    if not request.messages[0].text.startswith("You are a sub-agent"):
        again = order("the-sea", "sea-copy.txt", fix_applied="Read the copy.")
        both = order("the-sea", "sea.txt"), order("the-sky", "sky.txt")
        first = calls(*(raw_call("delegate", **one) for one in both))
        return [first, call("delegate", **again), say("Done.")][number]
    task = request.messages[1].text
    path = task.partition("The file is ")[2].partition(".\n")[0]
    if number == 0:
        if "<previous_attempts>" in task and "The page is torn." in task:
            print("The second sub-agent reads what the first met: The page is torn.")
        return call("read", path=path)
    text = request.messages[-1].text
    # A reader without a text keeps trying until its steps are used up.
    return say(text) if text in TEXTS.values() else call("read", path=path)


async def main() -> None:
    """Run the agent, and print the outcomes of its tasks."""
    policy = Delegation(tools=["read"])
    agent = Agent(ScriptedModel(respond), tools=[read], delegation=policy, name="boss")
    settings = Settings(database_url="file:delegation.db")
    async with Runtime.open(settings) as runtime:
        result = await runtime.run(agent, "What do the sea and the sky say?", thread="t")
        store = runtime.store.of(settings.user)
        head = (await store.threads.get("t")).head
        assert head is not None
        bodies = [one.body for node in await store.log.branch("t", head) for one in node.calls]
        tree = await runtime.tree(result.run_id)
    for body in bodies:
        outcome = orjson.loads(decode_result(body).text)
        errors = [f"{one['tool']}: {one['error']}" for one in outcome["tool_errors"]]
        how = f"result: {outcome['result']}" if outcome["result"] else f"errors: {errors[:1]}"
        print(f"{outcome['task_key']}: {outcome['status']}, attempt {outcome['attempt']}, {how}")
    print(f"The tree: {sorted((run.agent, run.status) for run in tree)}")


if __name__ == "__main__":
    anyio.run(main)
