"""Node memory: a function and an agent that continue from what they did before.

A function improves a text in a loop; each iteration gets what the previous ones said.  Then an
agent with the memory mode `node` runs twice in the same conversation; its second run begins with
its first.  No key is needed: the models follow a script.

Prints:

    Iteration 1 knows 0 messages: draft 1
    Iteration 2 knows 2 messages: draft 2
    Iteration 3 knows 4 messages: draft 3
    Another conversation knows 0 messages.
    The critic first saw: ['Judge draft 1']
    The critic then saw: ['Judge draft 1', 'Too short.', 'Judge draft 3']
"""

from __future__ import annotations

import anyio

from agent_runtime import (
    Agent,
    MemoryConfig,
    MemoryMode,
    NodeMemory,
    Runtime,
    ScriptedModel,
    Settings,
)
from agent_runtime.memory.node.memory import latest
from agent_runtime.messages import PromptMessage
from agent_runtime.models.scripted import say


def write(history: list[PromptMessage]) -> str:
    """Write the next draft; any function can be a node."""
    return f"draft {1 + sum(message.role == 'assistant' for message in history)}"


async def main() -> None:
    model = ScriptedModel([say("Too short."), say("Good.")])
    critic = Agent(model, name="critic", memory=MemoryConfig(MemoryMode.NODE, app_id="essay"))
    async with Runtime.open(Settings(database_url="file:example.db")) as runtime:
        store = runtime.store.of("local")
        memory = NodeMemory(store, "essay", "talk-1", "writer")
        for number in range(1, 4):
            # `latest` is the previous turn; a conversation with branches names the parent.
            history = await memory.history(latest)
            draft = write(history)
            await memory.add_messages(
                f"iteration-{number}", latest, user_content="Improve it.", assistant_content=draft
            )
            await memory.flush()
            print(f"Iteration {number} knows {len(history)} messages: {draft}")
        other = await NodeMemory(store, "essay", "talk-2", "writer").history(latest)
        print(f"Another conversation knows {len(other)} messages.")

        for number, when in ((1, "first"), (3, "then")):
            await runtime.run(critic, f"Judge draft {number}", thread="talk-1")
            seen = [
                message.text for message in model.requests[-1].messages if message.role != "system"
            ]
            print(f"The critic {when} saw: {seen}")


if __name__ == "__main__":
    anyio.run(main)
