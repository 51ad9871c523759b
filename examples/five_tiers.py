"""The five tiers of an agent's memory, and what each puts into a prompt.

1. The log: everything, in the database that the URL selects (here a file; Postgres with
   `postgresql://...`, a libSQL server with `http://...`).
2. The last messages, unchanged.
3. Observations, which replace older messages.
4. Recall of earlier messages, if there is an embedder: `AGENT_RUNTIME_EMBEDDER_MODEL`, or the
   program's own, as here.
5. The plan: the program's own state, restated at each activation.

No key is needed: the model follows a script, the Observer works by rules, and the embedder hashes
letters.  The thresholds are small, so that a short conversation reaches them.

Prints:

    1. Log: 40 messages, the first of them whole: True
    2. Last messages: at least 4 unchanged: True
    3. Observations: the first day left the prompt, and is observed: True
    4. Recall: without an embedder False, with one True
    5. Plan: '1. Read the diary. 2. Answer.'
"""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from agent_runtime import (
    Agent,
    Runtime,
    ScriptedEmbedder,
    ScriptedModel,
    Settings,
    ToolContext,
)
from agent_runtime.messages import LoggedMessage, UserMessage, decode_message

FIRST = "Day 1: The bridge at Bergen was opened; it had cost 40,000 kroner."
PLAN = "1. Read the diary. 2. Answer."

model = ScriptedModel(lambda request: "Noted.")


def plan(context: ToolContext) -> str:
    """Return the current plan."""
    return PLAN


async def keep_diary(runtime: Runtime, agent: Agent) -> None:
    """Tell the agent what happened on each day, on one thread."""
    await runtime.run(agent, FIRST, thread="diary")
    for day in range(2, 19):
        walks = [f"Walked {day + hour} miles through fog in hour {hour}." for hour in range(16)]
        await runtime.run(agent, f"Day {day}: {' '.join(walks)}", thread="diary")
        # Observation runs in the background; here the next day waits for it.
        await runtime.memory.observe(agent, "diary")


def prompt() -> list[str]:
    """Return the texts of the last prompt after the system prompt."""
    return [message.text for message in model.requests[-1].messages[1:]]


async def main() -> None:
    agent = Agent(model, instructions="You keep a diary.", state=[plan])
    settings = Settings(
        database_url="file:example.db",
        last_messages=4,
        observer_model="extractive",
        observer_message_tokens=1000,
    )
    async with Runtime.open(settings) as runtime:
        await keep_diary(runtime, agent)
        await runtime.run(agent, "What did the bridge at Bergen cost?", thread="diary")
        plain = prompt()
    async with Runtime.open(settings, embedder=ScriptedEmbedder()) as runtime:
        await runtime.run(agent, "And when was the bridge at Bergen opened?", thread="diary")
        store = runtime.store.of("local")
        thread = await store.threads.get("diary")
        nodes = await store.log.branch("diary", thread.head or 0)
    said = [decode_message(node.body) for node in nodes]
    kept = [message for message in said if message.type != "note"]
    raw = [text for text in plain if not text.startswith("<")]
    observed = [text for text in plain if text.startswith("<observed")]
    recalled = [any("found by search" in text for text in one) for one in (plain, prompt())]
    print(f"1. Log: {len(kept)} messages, the first of them whole: {kept[0] == UserMessage(FIRST)}")
    print(f"2. Last messages: at least 4 unchanged: {raw[-4:] == _texts(kept)[-7:-3]}")
    gone = FIRST not in raw and any("40,000 kroner" in text for text in observed)
    print(f"3. Observations: the first day left the prompt, and is observed: {gone}")
    print(f"4. Recall: without an embedder {recalled[0]}, with one {recalled[1]}")
    print(f"5. Plan: {next(PLAN for text in plain if PLAN in text)!r}")


def _texts(messages: Sequence[LoggedMessage]) -> list[str]:
    return [message.text for message in messages]


if __name__ == "__main__":
    anyio.run(main)
