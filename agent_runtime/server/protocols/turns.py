"""Begin, continue and find the turns of clients; their runs outlive the connection."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import orjson
from starlette.requests import HTTPConnection

from agent_runtime.agent import Agent
from agent_runtime.concurrency import single_error
from agent_runtime.errors import Conflict, NotFound, RuntimeClosed
from agent_runtime.human.questions import Question
from agent_runtime.human.waiting import resumed_by_itself
from agent_runtime.log import branches
from agent_runtime.messages import UserMessage
from agent_runtime.run.process.detached import begun
from agent_runtime.run.process.listener import OnEvent
from agent_runtime.run.results import RunResult
from agent_runtime.runtime import Runtime
from agent_runtime.server.access import runtime_of, user_of
from agent_runtime.server.protocols.answers import answer_of
from agent_runtime.server.protocols.asked import asked_below
from agent_runtime.server.protocols.client_message import Message
from agent_runtime.server.protocols.live import LiveEvents, Place, live_of
from agent_runtime.server.protocols.turn_parts import Part, Turn, turn_parts
from agent_runtime.server.state import ServiceState, start_within_limits
from agent_runtime.workflow.definition import Workflow
from agent_runtime_config.counted import counted
from agent_runtime_storage import UserStore
from agent_runtime_storage.contract.ids import new_id
from agent_runtime_storage.contract.records.log import Run, Thread
from agent_runtime_storage.contract.records.usage import UsageTotal

_RECENT = 20
"""How many of a thread's newest runs are searched for a request that came before."""
TEXT = "#"
"""Stands between a client's id of a request and the digest of what the user says in it."""
_REQUEST, _AFTER, _AGENT = "request", "after", "served_as"
"""Keys of a run's spec: the client's id of the request, the cursor, the agent's name here."""


class ClientTurns:
    """The turns of an application's clients.

    Args:
        agents: what may run, by the names that clients use.
        spec: stored with each run; must not hold secrets.
        of_run: returns what continues a run, None for one of another program; by default the agent
            that has the name of the run's.
    """

    def __init__(
        self,
        agents: Mapping[str, Agent | Workflow],
        spec: Mapping[str, Any] | None = None,
        of_run: Callable[[Run], Agent | Workflow | None] | None = None,
    ) -> None:
        self.agents = agents
        self.spec = dict(spec or {})
        self.of_run = of_run
        self._locks: dict[Place, tuple[anyio.Lock, int]] = {}

    def of(self, connection: HTTPConnection, *, streaming: bool = False) -> UserTurns:
        """Return the turns of the user who sends a request.

        Raises `ServiceError` (429) if the request wants a stream, and the user has the most.
        """
        user = user_of(connection)
        # An application that mounts the routes by itself has its own limits.
        service: ServiceState | None = getattr(connection.app.state, "service", None)
        if service is not None and streaming:
            service.limits.check_stream(user)
        return UserTurns(self, runtime_of(connection), user, service)

    def agent(self, name: str) -> Agent | Workflow:
        """Return an agent. Raises `NotFound`."""
        if (agent := self.agents.get(name)) is None:
            raise NotFound(
                f"There is no agent {name!r}.", cure=f"Use one of: {', '.join(self.agents)}."
            )
        return agent

    @asynccontextmanager
    async def alone(self, place: Place) -> AsyncGenerator[None]:
        """Wait until no other request begins a turn on the thread."""
        lock, waiting = self._locks.get(place, (anyio.Lock(), 0))
        self._locks[place] = lock, waiting + 1
        try:
            async with lock:
                yield
        finally:
            lock, waiting = self._locks[place]
            self._locks[place] = lock, waiting - 1
            # Nobody else holds or awaits it; the locks of all threads would fill the memory.
            if waiting == 1:
                del self._locks[place]


async def _cancel_when(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


@dataclass(frozen=True, slots=True)
class UserTurns:
    """The turns of one user."""

    turns: ClientTurns
    runtime: Runtime
    user: str
    service: ServiceState | None = None

    @property
    def _store(self) -> UserStore:
        return self.runtime.store_of(self.user)

    @property
    def live(self) -> LiveEvents:
        """What the runs of this process tell while they work."""
        return live_of(self.runtime)

    @asynccontextmanager
    async def parts(self, turn: Turn) -> AsyncGenerator[AsyncIterator[Part]]:
        """Give the parts of a turn until it ends.

        Raises:
            ServiceError: the user has the most streams (429).
            RuntimeClosed: the service closes.
        """
        if self.service is None:
            async with turn_parts(self.runtime, self.live, turn) as given:
                yield given
            return
        done = False
        with self.service.limits.stream(self.user):
            async with single_error(), anyio.create_task_group() as group:
                group.start_soon(_cancel_when, self.service.closing, group.cancel_scope)
                async with turn_parts(self.runtime, self.live, turn) as given:
                    yield given
                done = True
                group.cancel_scope.cancel()
        if not done:
            raise RuntimeClosed(
                "The service closes.", cure="Send the request again: the run is in the log."
            )

    # Begin

    async def begin(
        self,
        agent: str,
        message: Message | None,
        thread: str = "",
        *,
        request: str = "",
        replaces: int = 0,
    ) -> Turn:
        """Begin a run, and return its turn once it has begun.

        Args:
            message: None answers the user's message at the thread's head again.
            thread: created if it does not exist; empty for a new one.
            request: the client's id of this request; if it began a run already, the turn of that
                run is returned.
            replaces: which of the user's messages it replaces, counted from 1; 0 for none.

        Raises:
            NotFound: there is no such agent, or no such message.
            ThreadBusy: another run is active on the thread.
        """
        runnable = self.turns.agent(agent)
        thread = thread or new_id()
        async with self.turns.alone((self.user, thread)):
            known = await self._thread(thread)
            if known is not None and request:
                # An edit may bring an earlier text back, which is not the request that came before.
                among = 1 if replaces else _RECENT
                if earlier := await self.find(thread, request, among=among):
                    return earlier
            if known is not None and replaces:
                await self._replace(thread, replaces)
            after = known.last_event if known else 0
            spec = {**self.turns.spec, _AFTER: after, _AGENT: agent}
            if request:
                spec[_REQUEST] = request

            async def run(listener: OnEvent) -> RunResult:
                task = UserMessage(message.text) if message else None
                return await self.runtime.run(
                    runnable,
                    task,
                    files=message.files if message else (),
                    thread=thread,
                    user=self.user,
                    spec=spec,
                    on_event=listener,
                )

            return await self._begun(thread, after, run)

    async def regenerate(self, agent: str, thread: str) -> Turn:
        """Answer the thread's newest user message again, and return the turn. As `begin`."""
        runnable = self.turns.agent(agent)
        async with self.turns.alone((self.user, thread)):
            known = await self.runtime.threads.get(thread, user=self.user)

            spec = {**self.turns.spec, _AFTER: known.last_event, _AGENT: agent}

            async def run(listener: OnEvent) -> RunResult:
                await branches.regenerate(self.runtime.store_of(self.user), thread)
                return await self.runtime.run(
                    runnable, None, thread=thread, user=self.user, spec=spec, on_event=listener
                )

            return await self._begun(thread, known.last_event, run)

    async def _replace(self, thread: str, number: int) -> None:
        """Let the next message replace one of the user's, counted from 1."""
        messages = await self.runtime.threads.messages(thread, user=self.user)
        said = [one for one in messages if isinstance(one.message, UserMessage)]
        if number == len(said) + 1:
            # It never came to be.
            return
        if not 0 < number <= len(said):
            raise NotFound(
                f"Thread {thread} has {counted(len(said), 'message')} of the user, not {number}.",
                cure="Load the thread's messages again.",
            )
        await self.runtime.threads.edit(thread, said[number - 1].node_id, user=self.user)

    async def find(
        self, thread: str, request: str, *, among: int = _RECENT, any_text: bool = False
    ) -> Turn | None:
        """Return the turn that a request began; None if none of the newest runs is its.

        Args:
            any_text: whatever of its message stands behind `TEXT`.
        """
        for run in (await self._runs(thread))[:among]:
            began = str(run.spec.get(_REQUEST, ""))
            if request == (began.partition(TEXT)[0] if any_text else began):
                return self._turn(run)
        return None

    async def active(self, thread: str) -> Turn | None:
        """Return the turn of the thread's active run, from the run's beginning.

        None if there is none, and if it waits for a person: then nothing happens.
        """
        known = await self._thread(thread)
        if known is None or known.active_run is None:
            return None
        run = await self.run(known.active_run)
        return None if run.status == "suspended" else self._turn(run)

    # Continue

    async def answer(self, thread: str, answers: Mapping[str, object]) -> Turn:
        """Answer questions of a thread's run, and resume it; return the turn that this begins.

        Answers that were given before count; the turn is then the one that they began.

        Args:
            answers: JSON, by the question's id or by the call that asks.

        Raises:
            NotFound: one is no question of this thread's runs.
            InvalidAnswer: one is not what its question asks for.
            QuestionClosed: one has expired, or its run is over.
        """
        async with self.turns.alone((self.user, thread)):
            found = [
                (await self._question_on(thread, key), value) for key, value in answers.items()
            ]
            if not found:
                raise Conflict(f"Thread {thread} got no answer.", cure="Name a question.")
            runs = {one.id: await self._continued_by(one) for one, _ in found}
            root = await self.root(found[0][0])
            for run in runs.values():
                if run.status == "suspended":
                    # Refuse before the answer is stored, if nothing here could continue the run.
                    self._agent_of(root)
            news = [
                (one.id, answer_of(one, value)) for one, value in found if one.status != "answered"
            ]
            for question, given in news:
                await self.runtime.answer(question, given, user=self.user)
            for run in runs.values():
                if run.id != root.id and run.status == "suspended":
                    # Should its process be gone, nobody else continues it.
                    self.runtime.executor.left_tasks.start(self._store, run, self._agent_of(root))
            asked = {one for one, run in runs.items() if run.id == root.id}
            if not asked:
                return await self.standing(root)
            if await self.waits_for(root.id):
                return Turn(self.user, root.thread_id, root.id, 0, waiting=True)
            if not news and root.status != "suspended":
                return await self._continued(root, asked)
            if root.status != "suspended":
                # It still works, and goes on by itself.
                return (await self.now(root.id))[1]
            return await self._resumed(root)

    async def abandon(self, thread: str, question: str) -> Turn:
        """Cancel the run that asks a question; return the turn that this begins.

        Raises:
            NotFound: it is no question of this thread's runs.
        """
        asked = await self._question_on(thread, question)
        run, root = await self._continued_by(asked), await self.root(asked)
        _, turn = await self.now(root.id)
        await self.runtime.cancel(run.id, user=self.user)
        return turn if run.id == root.id else await self.standing(root)

    # Look

    async def run(self, run_id: str) -> Run:
        """Return a run. Raises `NotFound`."""
        return await self.runtime.store_of(self.user).runs.get(run_id)

    async def now(self, run_id: str) -> tuple[Run, Turn]:
        """Return a run and the turn that begins now. Raises `NotFound`."""
        run = await self.run(run_id)
        # The cursor before the steps: an event in between is then given, and none is missed.
        thread = await self.runtime.threads.get(run.thread_id, user=self.user)
        run = await self.run(run_id)
        begun, after = run.status in ("queued", "running"), thread.last_event
        return run, Turn(self.user, run.thread_id, run.id, after, run.steps, begun=begun)

    async def question(self, question_id: str) -> Question:
        """Return a question. Raises `NotFound`."""
        return Question.of(await self._store.questions.get(question_id))

    async def standing(self, run: Run) -> Turn:
        """Return the turn of a run as it stands: what follows, if it is at work."""
        if run.status in ("queued", "running"):
            return (await self.now(run.id))[1]
        return Turn(self.user, run.thread_id, run.id, 0, waiting=True)

    async def asking(self, thread: str) -> Turn | None:
        """Return the turn of a thread's newest run as it stands, if runs below its runs ask.

        None if they ask nothing.  It is how a client that comes back is shown the questions of
        background tasks.
        """
        if await self._thread(thread) is None or not await asked_below(self._store, thread):
            return None
        runs = await self._runs(thread)
        return await self.standing(runs[0]) if runs else None

    async def asked(self, run: Run) -> list[Question]:
        """Return the open questions of a run and below it, and of its thread's background tasks."""
        found = await self.runtime.questions(run_id=run.id, user=self.user)
        ids = {one.id for one in found}
        others = await asked_below(self._store, run.thread_id)
        return [*found, *(one for one in others if one.id not in ids)]

    async def waits_for(self, run_id: str) -> list[Question]:
        """Return the questions whose answers a run waits for."""
        # A background task's is no question of the turn: to answer it continues no turn.
        return await self.runtime.questions(run_id=run_id, user=self.user, background=False)

    async def usage(self, run_id: str) -> UsageTotal:
        """Return what a run and its sub-agents used."""
        spending = self.runtime.store_of(self.user).spending
        return UsageTotal.of((await spending.usage_by_purpose(root_run_id=run_id)).values())

    @staticmethod
    def output(run: Run) -> object:
        """Return the output of a run, as JSON; None if there is none."""
        return orjson.loads(run.output) if run.output else None

    async def _continued(self, run: Run, questions: set[str]) -> Turn:
        """Return the turn that earlier answers to questions began."""
        after, steps = int(run.spec.get(_AFTER) or 0), 0
        answered = await self._answered_below(run, questions)
        found = asked = after
        while page := await self.runtime.threads.events(run.thread_id, after=after, user=self.user):
            for event in page:
                if event.run_id != run.id:
                    continue
                own = event.kind == "question" and event.data["id"] in questions
                # Of a sub-agent, only the end of the run's work shows when it had asked.
                below = event.kind == "run-suspend" and event.created_at < answered
                if own or below:
                    found = asked = event.id
                elif event.kind == "run-start" and found == asked and event.id > asked:
                    found = event.id - 1
                elif event.kind == "answer" and event.id <= found:
                    steps = int(event.data["step"])
            after = page[-1].id
        return Turn(self.user, run.thread_id, run.id, found, steps)

    async def _answered_below(self, run: Run, questions: set[str]) -> float:
        """Return when the last of the questions of runs below was answered; 0 if none was."""
        rows = [await self._store.questions.get(one) for one in questions]
        return max((row.answered_at or 0.0 for row in rows if row.run_id != run.id), default=0.0)

    async def _resumed(self, root: Run) -> Turn:
        thread = await self.runtime.threads.get(root.thread_id, user=self.user)
        agent = self._agent_of(root)

        async def resume(listener: OnEvent) -> RunResult:
            return await self.runtime.resume(root.id, agent, user=self.user, on_event=listener)

        return await self._begun(root.thread_id, thread.last_event, resume)

    def _agent_of(self, run: Run) -> Agent | Workflow:
        if self.turns.of_run is not None:
            if (own := self.turns.of_run(run)) is None:
                raise Conflict(
                    f"Run {run.id} is that of another program, whose agent is not served here.",
                    cure="Resume it where it was begun.",
                )
            return own
        if name := run.spec.get(_AGENT):
            return self.turns.agent(str(name))
        for agent in self.turns.agents.values():
            if agent.name == run.agent:
                return agent
        raise NotFound(
            f"Run {run.id} is of the agent {run.agent!r}, which is not served here.",
            cure="Resume it where it was begun.",
        )

    async def _question_on(self, thread: str, key: str) -> Question:
        questions = await self.runtime.questions(thread=thread, status=None, user=self.user)
        for one in reversed(questions):
            # A decision names what was shown; a call may have been asked about several times.
            by_call = one.thread_id == thread and one.kind in ("text", "single", "multiple")
            if key == one.id or (by_call and key == one.call_id):
                return one
        raise NotFound(f"Thread {thread} has no question {key!r}.", cure="Check the id.")

    async def _continued_by(self, question: Question) -> Run:
        """Return the run that has to be resumed after an answer: the root, or a background task."""
        return await resumed_by_itself(self._store, await self.run(question.run_id))

    async def root(self, question: Question) -> Run:
        """Return the root of the run that asks."""
        return await self.run((await self.run(question.run_id)).root_run_id)

    # From a run to its turn

    async def _begun(
        self,
        thread: str,
        after: int,
        work: Callable[[OnEvent], Awaitable[RunResult]],
    ) -> Turn:
        """Start the work detached from this request, and return its turn once the run has begun."""
        # From here on the run's events are watched, also if nobody has followed any before.
        _ = self.live

        start = partial(begun, self.runtime.host.background, work)
        started = await start_within_limits(self.service, self.user, start)
        # Node memory gives each run a thread of its own.
        cursor = after if started.thread_id == thread else 0
        return Turn(self.user, started.thread_id, started.run_id, cursor)

    def _turn(self, run: Run) -> Turn:
        return Turn(self.user, run.thread_id, run.id, int(run.spec.get(_AFTER) or 0))

    async def _thread(self, thread: str) -> Thread | None:
        try:
            return await self.runtime.threads.get(thread, user=self.user)
        except NotFound:
            return None

    async def _runs(self, thread: str) -> Sequence[Run]:
        runs = await self.runtime.store_of(self.user).runs.list(thread_id=thread, limit=_RECENT)
        return [run for run in runs if run.parent_run_id is None]
