"""Agno with `SqliteDb`, and the history of its session in the context."""

from __future__ import annotations

import protocol
from agno.agent import Agent
from agno.db.sqlite import SqliteDb
from agno.models.openai.like import OpenAILike


class Agno(protocol.Peer):
    async def open(self) -> None:
        self.db = SqliteDb(db_file=str(protocol.FOLDER / "data" / "agno.db"))

    async def run(self, task: str, url: str) -> str:
        model = OpenAILike(id=protocol.MODEL, base_url=url, api_key=protocol.KEY, max_retries=0)
        agent = Agent(
            model=model,
            tools=[protocol.read_page],
            instructions=protocol.INSTRUCTIONS,
            db=self.db,
            session_id=protocol.THREAD,
            add_history_to_context=True,
            telemetry=False,
        )
        output = await agent.arun(task)
        return str(output.content)


protocol.main(Agno())
