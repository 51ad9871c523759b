"""pydantic-ai with its harness: `StepPersistence`, and with `compaction` its summaries, too."""

from __future__ import annotations

import contextlib

import protocol
from openai import AsyncOpenAI
from pydantic_ai import Agent, UsageLimits
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai_harness import StepPersistence, SummarizingCompaction
from pydantic_ai_harness.step_persistence import SqliteStepStore, continue_run


class PydanticAI(protocol.Peer):
    async def open(self) -> None:
        self.store = SqliteStepStore(database=str(protocol.FOLDER / "data" / "steps.db"))

    def agent(self, url: str) -> Agent:
        client = AsyncOpenAI(base_url=url, api_key=protocol.KEY, max_retries=0)
        model = OpenAIChatModel(protocol.MODEL, provider=OpenAIProvider(openai_client=client))
        capabilities = [StepPersistence(store=self.store, agent_name="reader")]
        if protocol.VARIANT == "compaction":
            summaries = SummarizingCompaction(max_tokens=protocol.SUMMARIZE_AT, keep_messages=20)
            capabilities.append(summaries)
        return Agent(
            model,
            instructions=protocol.INSTRUCTIONS,
            tools=[protocol.read_page],
            capabilities=capabilities,
        )

    async def run(self, task: str, url: str) -> str:
        records = await self.store.list_runs(conversation_id=protocol.THREAD)
        history = None
        if records:
            with contextlib.suppress(LookupError):  # Nothing was completed.
                history = await continue_run(self.store, run_id=records[-1].run_id)
        result = await self.agent(url).run(
            task,
            message_history=history,
            conversation_id=protocol.THREAD,
            usage_limits=UsageLimits(request_limit=None),
        )
        return str(result.output)


protocol.main(PydanticAI())
