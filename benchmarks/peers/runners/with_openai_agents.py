"""The OpenAI Agents SDK with `SQLiteSession`."""

from __future__ import annotations

import protocol
from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    Runner,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

set_tracing_disabled(True)


class OpenAIAgents(protocol.Peer):
    async def open(self) -> None:
        self.session = SQLiteSession(protocol.THREAD, protocol.FOLDER / "data" / "session.db")

    async def run(self, task: str, url: str) -> str:
        client = AsyncOpenAI(base_url=url, api_key=protocol.KEY, max_retries=0)
        agent = Agent(
            name="Reader",
            instructions=protocol.INSTRUCTIONS,
            model=OpenAIChatCompletionsModel(protocol.MODEL, client),
            tools=[function_tool(protocol.read_page)],
        )
        result = await Runner.run(
            agent, task, session=self.session, max_turns=protocol.STEPS * 2 + 50
        )
        return str(result.final_output)

    async def close(self) -> None:
        self.session.close()


protocol.main(OpenAIAgents())
