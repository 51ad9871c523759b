"""This runtime, with its default settings."""

from __future__ import annotations

import protocol
from pydantic import SecretStr

from agent_runtime import Agent, Event, Runtime, Settings, model_from_name, tool

RUN = protocol.FOLDER / "run.txt"


class AgentRuntime(protocol.Peer):
    async def open(self) -> None:
        settings = Settings(
            database_url=f"file:{protocol.FOLDER / 'data' / 'runs.db'}",
            max_steps=protocol.STEPS + 10,
        )
        self.opened = Runtime.open(settings)
        self.runtime = await self.opened.__aenter__()

    def agent(self, url: str) -> Agent:
        name = f"openai/{protocol.MODEL}"
        settings = Settings(
            model=name,
            model_base_url=url,
            model_api_key=SecretStr(protocol.KEY),
            context_window=protocol.WINDOW or None,
        )
        model = model_from_name(name, settings)
        read_page = tool(protocol.read_page)
        return Agent(model, tools=[read_page], instructions=protocol.INSTRUCTIONS)

    async def run(self, task: str, url: str) -> str:
        result = await self.runtime.run(
            self.agent(url), task, thread=protocol.THREAD, on_event=self.note
        )
        return str(result.output)

    def note(self, event: Event) -> None:
        if event.kind == "run-start":
            RUN.write_text(event.run_id)

    async def resume(self, url: str) -> str:
        result = await self.runtime.resume(RUN.read_text(), self.agent(url))
        return str(result.output)

    async def close(self) -> None:
        await self.opened.__aexit__(None, None, None)


protocol.main(AgentRuntime())
