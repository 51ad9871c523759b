"""deepagents, as it comes, with `AsyncSqliteSaver`."""

from __future__ import annotations

import protocol
from deepagents import create_deep_agent
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver


class DeepAgents(protocol.Peer):
    async def open(self) -> None:
        database = str(protocol.FOLDER / "data" / "checkpoints.db")
        self.opened = AsyncSqliteSaver.from_conn_string(database)
        self.saver = await self.opened.__aenter__()
        self.config = {
            "configurable": {"thread_id": protocol.THREAD},
            "recursion_limit": protocol.STEPS * 8 + 200,
        }

    def graph(self, url: str):
        # It takes the window from the model's profile.
        profile = {"profile": {"max_input_tokens": protocol.WINDOW}} if protocol.WINDOW else {}
        model = ChatOpenAI(
            model=protocol.MODEL, base_url=url, api_key=protocol.KEY, max_retries=0, **profile
        )
        return create_deep_agent(
            model,
            [protocol.read_page],
            system_prompt=protocol.INSTRUCTIONS,
            checkpointer=self.saver,
        )

    async def run(self, task: str, url: str) -> str:
        return await self.invoke({"messages": [{"role": "user", "content": task}]}, url)

    async def resume(self, url: str) -> str:
        return await self.invoke(None, url)

    async def invoke(self, given, url: str) -> str:
        state = await self.graph(url).ainvoke(given, self.config)
        return state["messages"][-1].content

    async def close(self) -> None:
        await self.opened.__aexit__(None, None, None)


protocol.main(DeepAgents())
