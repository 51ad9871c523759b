"""One conversation in one context: written into a database, then questioned.

Each question is asked on a copy of the database from the end of the conversation, so no answer
knows of another.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import anyio
import anyio.to_thread

from agent_runtime import Agent, Event, Runtime, Settings
from agent_runtime.errors import ModelError, PromptTooLarge
from agent_runtime.models.base import Model
from agent_runtime_storage.contract.records.usage import UsageTotal
from benchmarks.memory.data import Conversation, Question, exchanges_of
from benchmarks.memory.judge import HOPELESS, Judge
from benchmarks.memory.kept import Kept
from benchmarks.memory.reader import scripted_reader
from benchmarks.memory.score import Answered, Tally
from benchmarks.memory.threads import log_only, remember

Context = Literal["full", "none", "memory", "memory+recall"]
WINDOW = 200_000
"""Window of the scripted reader, in tokens."""


@dataclass(slots=True)
class Unit:
    """A conversation with a context, a reader and a judge.

    Attributes:
        number: the number of the repetition, from 1.
        agent: the agent to ask, with the tools and window of the context, and no model yet.
        reader: its model; None for the scripted one.
        tally: what it has cost.
    """

    conversation: Conversation
    context: Context
    number: int
    settings: Settings
    agent: Agent
    reader: Model | None
    judge: Judge
    tally: Tally = field(default_factory=Tally)

    @property
    def thread(self) -> str:
        """The thread's id; unique, because providers cache prompts by thread."""
        return f"{self.conversation.id} {self.context} {self.number}"

    async def run(self, folder: Path) -> list[Answered]:
        """Return the judged answers to all questions; databases are put into the folder.

        Raises:
            ConfigError: a model of the memory cannot be called.
            ModelError: a model refuses every call.
        """
        await self.feed(folder)
        return [await self.answer(question, folder) for question in self.conversation.questions]

    async def resume(self, kept: Kept) -> list[Answered]:
        """Like `run`, without what was done before; each answer is kept as soon as it is judged."""
        name, known = self.thread, kept.unit(self.thread)
        self.tally = known.tally
        left = [one for one in self.conversation.questions if one.id not in known.answers]
        if left:
            folder = kept.databases(name)
            if not known.fed:
                await self.feed(folder)
                kept.fed(name, self.tally)
            for question in left:
                answered = await self.answer(question, folder)
                kept.answered(name, question, answered, self.tally)
            kept.ended(name)
        return [known.answers[one.id] for one in self.conversation.questions]

    async def answer(self, question: Question, folder: Path) -> Answered:
        """Return the judged answer to a question, asked on a copy of the folder's database."""
        copy = folder.with_name(f"{folder.name}-asked")
        await anyio.to_thread.run_sync(_copy, folder, copy)
        answered = await self.ask(question, copy)
        await anyio.to_thread.run_sync(shutil.rmtree, copy)
        return await self.judged(question, answered)

    async def feed(self, folder: Path) -> None:
        """Write the conversation into a new database."""
        await anyio.Path(folder).mkdir(parents=True, exist_ok=True)
        exchanges = exchanges_of(self.conversation)
        async with Runtime.open(self._settings(folder)) as runtime:
            store = runtime.store_of()
            if not runtime.settings.observational_memory:
                await log_only(store, self.thread, exchanges)
                return
            price = (await self.reader.info()).price if self.reader else None
            fed = await remember(runtime, self.thread, exchanges, self.agent, price)
            self._spent(await store.spending.usage_by_purpose(thread_id=self.thread), asking=False)
        self.tally.seconds += fed.seconds
        self.tally.observations += fed.observations
        self.tally.provisional += fed.provisional
        self.tally.late += fed.late
        if fed.why:
            self.tally.why.add(fed.why)

    async def ask(self, question: Question, folder: Path) -> Answered:
        """Return the answer, not judged yet; a failure of this question alone is part of it."""
        date = f"[{question.date}] " if question.date else ""
        window = self.agent.context_window or WINDOW
        model = self.reader or scripted_reader(self.conversation, question, window)
        prompts: list[int] = []
        answer = failed = ""

        def hear(event: Event) -> None:
            if event.kind == "answer":
                prompts.append(int(event.data["prompt_tokens"] or 0))

        async with Runtime.open(self._settings(folder)) as runtime:
            agent, task = replace(self.agent, model=model), date + question.text
            try:
                result = await runtime.run(agent, task, thread=self.thread, on_event=hear)
                answer = str(result.output or "")
                failed = "" if result.ok else result.detail or result.stop_reason
            except HOPELESS:
                raise
            except (ModelError, PromptTooLarge) as error:
                failed = error.message
            store = runtime.store_of()
            run = (await store.runs.list(thread_id=self.thread, limit=1))[0]
            self._spent(await store.spending.usage_by_purpose(run_id=run.id), asking=True)
        return Answered(
            context=self.context,
            run=self.number,
            question=question.id,
            kind=question.kind,
            score=0.0,
            answer=answer,
            failed=failed,
            prompt=prompts[0] if prompts else 0,
        )

    async def judged(self, question: Question, answered: Answered) -> Answered:
        """Return an answer with its score."""
        if answered.failed:
            return answered
        verdict = await self.judge.judge(question, answered.answer)
        self.tally.judge.add_calls(verdict.calls)
        judged = verdict.score is not None
        return replace(answered, score=verdict.score or 0.0, judged=judged)

    def _settings(self, folder: Path) -> Settings:
        memory = self.context in ("memory", "memory+recall")
        update = {"database_url": f"file:{folder}/run.db", "observational_memory": memory}
        return self.settings.model_copy(update=update)

    def _spent(self, by_purpose: dict[str, UsageTotal], *, asking: bool) -> None:
        """Add costs; the recorded answers of the conversation itself cost nothing."""
        for purpose, total in by_purpose.items():
            if purpose != "step":
                self.tally.observer.add_total(total)
            elif asking:
                self.tally.reader.add_total(total)


def _copy(folder: Path, copy: Path) -> None:
    # A kill may have left one.
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
