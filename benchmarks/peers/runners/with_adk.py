"""Google's ADK with its SQLite sessions, by litellm; it can resume."""

from __future__ import annotations

import protocol
from google.adk.agents import LlmAgent, RunConfig
from google.adk.apps import App, ResumabilityConfig
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types


class Adk(protocol.Peer):
    async def open(self) -> None:
        self.sessions = SqliteSessionService(str(protocol.FOLDER / "data" / "sessions.db"))
        self.place = {"app_name": "reader", "user_id": "user"}
        found = await self.sessions.get_session(**self.place, session_id=protocol.THREAD)
        if found is None:
            await self.sessions.create_session(**self.place, session_id=protocol.THREAD)

    def runner(self, url: str) -> Runner:
        model = LiteLlm(
            model=f"openai/{protocol.MODEL}", api_base=url, api_key=protocol.KEY, max_retries=0
        )
        agent = LlmAgent(
            name="reader",
            model=model,
            instruction=protocol.INSTRUCTIONS,
            tools=[protocol.read_page],
        )
        app = App(
            name="reader",
            root_agent=agent,
            resumability_config=ResumabilityConfig(is_resumable=True),
        )
        return Runner(app=app, session_service=self.sessions)

    async def run(self, task: str, url: str) -> str:
        message = types.Content(role="user", parts=[types.Part(text=task)])
        return await self.follow(url, new_message=message)

    async def resume(self, url: str) -> str:
        session = await self.sessions.get_session(**self.place, session_id=protocol.THREAD)
        return await self.follow(url, invocation_id=session.events[-1].invocation_id)

    async def follow(self, url: str, **given) -> str:
        runner = self.runner(url)
        text = ""
        config = RunConfig(max_llm_calls=0)
        async for event in runner.run_async(
            user_id="user", session_id=protocol.THREAD, run_config=config, **given
        ):
            if event.content and event.content.parts:
                text = event.content.parts[-1].text or text
        return text


protocol.main(Adk())
