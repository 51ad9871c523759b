"""LangChain's agent on LangGraph with `AsyncSqliteSaver`.

The variant `summaries` adds its middleware as documented, which gives the model at most the last
4,000 tokens to summarize, from a user's message on: in a run with one user message, nothing.
`summaries of all` gives it everything.
"""

from __future__ import annotations

import protocol
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver


class LangGraph(protocol.Peer):
    async def open(self) -> None:
        database = str(protocol.FOLDER / "data" / "checkpoints.db")
        self.opened = AsyncSqliteSaver.from_conn_string(database)
        self.saver = await self.opened.__aenter__()
        self.config = {
            "configurable": {"thread_id": protocol.THREAD},
            "recursion_limit": protocol.STEPS * 4 + 100,
        }

    def graph(self, url: str):
        model = ChatOpenAI(model=protocol.MODEL, base_url=url, api_key=protocol.KEY, max_retries=0)
        middleware = []
        if protocol.VARIANT:
            shown = {"trim_tokens_to_summarize": None} if protocol.VARIANT.endswith("all") else {}
            trigger = ("tokens", protocol.SUMMARIZE_AT)
            middleware = [
                SummarizationMiddleware(model, trigger=trigger, keep=("messages", 20), **shown)
            ]
        return create_agent(
            model,
            [protocol.read_page],
            system_prompt=protocol.INSTRUCTIONS,
            middleware=middleware,
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


protocol.main(LangGraph())
