"""Conversation memory: the newest turns of a thread, for your own prompt.

A customer's two questions are answered on one thread, the second one twice.  A router then sees as
much of the conversation as its prompt has room for.  No key is needed: the models follow a script.

Prints:

    Routed by 4 messages to: shipping
    Human: Where is my order 1042?
    Assistant: It left our warehouse on Monday.
    Human: Can I still change the address?
    Assistant: Yes, until it reaches you.
    With room for one turn: ['Can I still change the address?', 'Yes, until it reaches you.']
"""

from __future__ import annotations

import anyio

from agent_runtime import (
    Agent,
    ConversationMemory,
    Runtime,
    ScriptedModel,
    Settings,
)
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import say

PROMPT = """\
Name the department for the customer's last question: shipping, billing or returns.

{history}"""


def route(request: ModelRequest) -> str:
    """Play a small model that sees the conversation in its prompt."""
    return "shipping" if "address" in request.messages[-1].text else "billing"


async def main() -> None:
    support = Agent(
        ScriptedModel(
            [
                say("It left our warehouse on Monday."),
                say("No."),
                say("Yes, until it reaches you."),
            ]
        ),
        name="support",
    )
    router = Agent(ScriptedModel(route), name="router")
    async with Runtime.open(Settings(database_url="file:example.db")) as runtime:
        await runtime.run(support, "Where is my order 1042?", thread="customer-7")
        await runtime.run(support, "Can I still change the address?", thread="customer-7")
        # The second answer replaces the first; the memory follows the branch.
        await runtime.regenerate(support, "customer-7")

        memory = ConversationMemory(runtime.store.of("local"), "customer-7")
        history = await memory.history(max_token_limit=200)
        text = await memory.history_text(max_token_limit=200)
        routed = await runtime.run(router, PROMPT.format(history=text))
        print(f"Routed by {len(history)} messages to: {routed.output}")
        print(text)
        last = await memory.history(message_limit=2)
        print(f"With room for one turn: {[message.text for message in last]}")


if __name__ == "__main__":
    anyio.run(main)
