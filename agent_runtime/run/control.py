"""Act on runs from outside, from any process: cancel, steer, pause, answer, sweep."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from agent_runtime.agent import Runnable
from agent_runtime.concurrency import finished
from agent_runtime.delegation.background import BackgroundTask, tasks_of
from agent_runtime.errors import ConfigError, Conflict, QuestionClosed, QuestionsOpen
from agent_runtime.files.attach import Attachable, ThreadFiles
from agent_runtime.human.interruptions import InterruptedCall, interrupted_calls
from agent_runtime.human.pause import PAUSE, PAUSED
from agent_runtime.human.posting import post_message
from agent_runtime.human.questions import Answer, OnQuestion, Question, encode_answer
from agent_runtime.human.waiting import (
    AWAITING_CHILDREN,
    at_work_below,
    questions_of,
    questions_on,
    resumed_by_itself,
    waiting_below,
)
from agent_runtime.log import leases
from agent_runtime.log.run_spec import RunSpec
from agent_runtime.messages import UserMessage
from agent_runtime.plan.planner import ThreadPlans
from agent_runtime.run.budget import budget_of
from agent_runtime.run.inbox import inbox_limits
from agent_runtime.run.process.health import Health
from agent_runtime.run.process.host import RunHost
from agent_runtime.run.queue.control import RunQueue, cancel_tree
from agent_runtime.run.queue.enqueue import Agents, QueuedRun, QueueRequest, enqueue_run
from agent_runtime.run.queue.schedules import RunSchedules
from agent_runtime.run.results import RunResult
from agent_runtime.run.sweep import Sweep, sweep
from agent_runtime.run.takeover import (
    check_free,
    check_resumable,
    give_up,
    take_log,
)
from agent_runtime.run.threads.access import Threads
from agent_runtime.run.tree import TreeRun, tree_of
from agent_runtime_config import Settings
from agent_runtime_config.counted import counted
from agent_runtime_config.limits import MAX_DOLLARS, MAX_TOKENS
from agent_runtime_storage import Store, UserStore
from agent_runtime_storage.contract.ids import new_id
from agent_runtime_storage.contract.records.log import ACTIVE, Run
from agent_runtime_storage.contract.records.questions import (
    ApprovalRow,
    NewApproval,
    QuestionStatus,
)
from agent_runtime_storage.contract.records.spending import UNCHANGED, Unchanged


class RunControl:
    """The methods of `Runtime` that act on runs and threads from outside."""

    settings: Settings
    store: Store
    host: RunHost
    program: str

    @property
    def threads(self) -> Threads:
        """The threads: read, branch, follow and delete them."""
        return Threads(
            self.store, self.settings.user, lambda run, user: self.cancel(run, user=user)
        )

    @property
    def files(self) -> ThreadFiles:
        """The files of threads: upload, list and read them."""
        settings = self.settings
        return ThreadFiles(self.store, user=settings.user, max_bytes=settings.max_file_bytes)

    @property
    def plans(self) -> ThreadPlans:
        """The plans of threads, for reading."""
        return ThreadPlans(self.store, user=self.settings.user)

    @property
    def queue(self) -> RunQueue:
        """The queue: list it, retry and forget runs that failed."""
        return RunQueue(self.store, self.settings)

    @property
    def schedules(self) -> RunSchedules:
        """The schedules, by which runs are enqueued by the clock: add, list, pause, remove."""
        return RunSchedules(self.store, self.settings, self.program)

    async def enqueue(
        self,
        agent: Runnable[Any],
        task: str | UserMessage | None,
        *,
        app: Agents | None = None,
        thread: str | None = None,
        user: str | None = None,
        files: Sequence[Attachable] = (),
        at: datetime | None = None,
        priority: float = 1.0,
        share: str | None = None,
        spec: Mapping[str, Any] | None = None,
        user_context: Mapping[str, Any] | None = None,
        run_id: str | None = None,
        connection: Any = None,
    ) -> QueuedRun:
        """Enqueue a run for the workers of this database; the other arguments are those of `run`.

        Args:
            app: the application whose workers have the agent, under its name; None for those that
                work for this runtime's `program`.
            at: when it may begin, with a time zone.
            priority: how many turns it is worth; others of its share wait that much longer.
            share: the runs of one share take turns with those of others; by default the user's.
            connection: a psycopg `AsyncConnection` to the same database, whose transaction the run
                joins: it exists once that commits, and workers notice within a second.

        Raises:
            ConfigError: there is no task, or an argument is out of range.
            Conflict: a run has this `run_id` already.
            InvalidFile: a file is empty, too large, or cannot be read.
            StoreError: `connection` cannot be joined.
        """
        request = QueueRequest(
            agent=agent,
            task=task,
            program=self.program if app is None else app.program,
            version="" if app is None else app.versions[0],
            thread=thread,
            files=files,
            at=at,
            priority=priority,
            share=share,
            spec=spec or {},
            user_context=user_context,
            run_id=run_id,
        )
        return await enqueue_run(self.store_of(user), self.settings, request, connection)

    async def cancel(self, run_id: str, *, user: str | None = None) -> list[str]:
        """Cancel a run and all its descendants, in any process; return the ids of those reached.

        Idempotent.  Running processes see it within half a second; runs whose process is dead, and
        those that wait for a person, are ended here.
        """
        return await cancel_tree(self.store_of(user), run_id)

    async def set_budget(
        self,
        run_id: str,
        *,
        tokens: int | Unchanged | None = UNCHANGED,
        usd: float | Unchanged | None = UNCHANGED,
        user: str | None = None,
    ) -> None:
        """Set what a run and its sub-agents may spend, including what they have spent already.

        None lifts a limit; one that is not given stays.  A running run keeps to them from its next
        call on, in any process, and gets a note if there is room again; a run that its budget ended
        can be resumed.

        Raises:
            Conflict: it is a sub-agent's run, or has succeeded.
            ConfigError: a limit is not positive, or too large.
        """
        store = self.store_of(user)
        most_tokens = None if isinstance(tokens, Unchanged) else tokens
        most_dollars = None if isinstance(usd, Unchanged) else usd
        if (most_tokens is not None and not 0 < most_tokens <= MAX_TOKENS) or (
            most_dollars is not None and not 0 < most_dollars <= MAX_DOLLARS
        ):
            raise ConfigError(
                "This budget is out of range.",
                cure=f"Give 1 to {MAX_TOKENS:,} tokens, and up to ${MAX_DOLLARS:,.0f}.",
            )
        budget = budget_of(most_tokens, most_dollars)
        await store.spending.set_budget(
            run_id,
            tokens=tokens if isinstance(tokens, Unchanged) else budget.tokens,
            cost=usd if isinstance(usd, Unchanged) else budget.cost,
        )

    async def change_spec(
        self, run_id: str, spec: Mapping[str, Any], *, user: str | None = None
    ) -> None:
        """Replace the `spec` that is stored with a run, before it is resumed with another agent.

        Raises:
            ThreadBusy: it is running.
            Conflict: it has succeeded.
            LeaseLost: another process has taken it over.
        """
        store = self.store_of(user)
        run = await store.runs.get(run_id)
        check_resumable(run)
        check_free(run)
        if run.status == "succeeded":
            raise Conflict(f"Run {run_id} has succeeded.", cure="Start a new run on its thread.")
        internal = RunSpec.of(run).internal()
        await store.runs.replace_spec(run_id, spec, internal, replaces=run.epoch)

    async def drain(self, drain: float | None = None, pause: float | None = None) -> None:
        """Begin no more runs, and leave none at work; those that do not end can be resumed.

        Runs may end by themselves for `drain` seconds; then those at work are suspended at their
        next step, for `pause` seconds; what is left is stopped as it is.  Both are suspended as
        `interrupted`, for `resume` or a sweep.  `close` does this first.

        Args:
            drain: None for `AGENT_RUNTIME_DRAIN_TIMEOUT`.
            pause: None for `AGENT_RUNTIME_PAUSE_TIMEOUT`.
        """
        # No scope shields from `Task.cancel`, which `asyncio.timeout` uses.
        await finished(self.host.drain(drain, pause))

    def health(self) -> Health:
        """Return how the runs of this process are doing."""
        return self.host.health()

    async def sweep(self, *, user: str | None = None) -> Sweep:
        """Suspend the owner's runs whose process is dead, so that each can be resumed.

        Call it when a long-running program starts.  Runs in live processes and runs that wait for a
        person are not changed; several sweeps can run at once.
        """
        return await sweep(self.store_of(user))

    async def steer(self, run_id: str, text: str, *, user: str | None = None) -> None:
        """Send a message to a run; its model reads it at the next step.

        A long one is kept as a file of the thread, and its beginning is sent.

        Raises:
            Conflict: the run is over, or a workflow's.
            InboxFull: too many messages wait to be read.
            InvalidFile: it is larger than a file may be.
        """
        store = self.store_of(user)
        run = await store.runs.get(run_id)
        check_steerable(run)
        _check_active(run)
        await post_message(store, run, text, inbox_limits(self.settings))

    async def tree(self, run_id: str, *, user: str | None = None) -> TreeRun:
        """Return a run and all runs below it, as they are now. Raises `NotFound`."""
        return await tree_of(self.store_of(user), run_id)

    async def tasks(self, thread: str, *, user: str | None = None) -> list[BackgroundTask]:
        """Return the background tasks of a thread's agent, the newest first. Raises `NotFound`.

        Their runs are steered and cancelled as any others.  An interrupted one continues by
        `resume` with this agent, or when that delegates the same task again.
        """
        store = self.store_of(user)
        await store.threads.get(thread)
        return await tasks_of(store, thread)

    async def pause(self, run_id: str, *, user: str | None = None) -> None:
        """Suspend a run at its next step, in any process; `resume` continues it.

        A model call in progress ends first, with its tools.  Sub-agents that the run waits for
        pause too and begin nothing new; background tasks continue.  A run that gives its final
        answer meanwhile succeeds.  Idempotent; a run that waits for a person stays as it is.

        Raises:
            Conflict: the run is over, a workflow's, or a sub-agent's, which only its root's run
                can be paused with.
        """
        store = self.store_of(user)
        run = await store.runs.get(run_id)
        check_steerable(run)
        _check_active(run)
        if run.parent_run_id is not None:
            raise Conflict(
                f"Run {run_id} is a sub-agent's, and another run waits for it.",
                cure=f"Pause the run {run.root_run_id}, or cancel this one.",
            )
        if run.status == "suspended":
            if run.stop_reason == AWAITING_CHILDREN:
                raise Conflict(
                    f"Run {run_id} waits for sub-agents of the queue, and is at no step.",
                    cure="Pause it when they have ended, or cancel it.",
                )
            return
        if leases.is_dead(run):
            # Nobody would read the message.
            with leases.at_work(run.id):
                log, _ = await take_log(store, run, lambda event: None)
                await give_up(store, log.lease, PAUSED)
            return
        # The root comes first: a sub-agent that begins after that sees its pause.  The epoch voids
        # the message once the run has been resumed.
        for one in (run, *await at_work_below(store, run.id)):
            await store.inbox.post(one.thread_id, PAUSE, str(one.epoch).encode(), run_id=one.id)

    async def answer(self, question_id: str, answer: Answer, *, user: str | None = None) -> bool:
        """Answer a question that a run waits for; return whether that can be resumed now.

        The first answer counts.  It resumes nothing by itself: call `resume` in any process, for a
        sub-agent's question with the root of its tree.  A root that is still running, because
        other sub-agents are, continues by itself, and so does a background task whose process
        lives; where that is gone, resume the task's own run, with the agent that delegated it.

        Args:
            answer: for `single` the choice, for `multiple` the choices, for `text` the text; for
                `approval` and `continue` a `Decision`, or just True or False; for `interrupted`
                `Rerun()`, `Accept(value)` or `Fail(reason)`.

        Raises:
            InvalidAnswer: it is not what the question asks for; the question stays open.
            QuestionClosed: it was answered before, has expired, or its run is over.
            NotFound: this owner has no such question.
        """
        store = self.store_of(user)
        row = await store.questions.get(question_id)
        question = Question.of(row)
        encoded = encode_answer(question, answer, row.body.get("given"))
        pattern: Mapping[str, str] | None = encoded.get("remember")
        asking = await store.runs.get(question.run_id)
        root, remember = await store.runs.get(asking.root_run_id), None
        if pattern is not None:
            # An approval given to a sub-agent holds for the thread of its root.
            binding = str(row.body.get("binding", ""))
            agent = str(row.body.get("agent", ""))
            remember = NewApproval(new_id(), question.tool, pattern, root.thread_id, binding, agent)
        await store.questions.answer(question_id, encoded, remember=remember)
        waits = await resumed_by_itself(store, asking)
        at_work = waits.status in ACTIVE and not leases.is_dead(waits)
        return not at_work and not await questions_of(store, waits.id)

    async def questions(
        self,
        *,
        thread: str | None = None,
        run_id: str | None = None,
        status: QuestionStatus | None = "open",
        user: str | None = None,
        background: bool = True,
    ) -> list[Question]:
        """Return questions, by default those that are open, oldest first.

        Those of a run or of a thread's runs, including their sub-agents; or the newest 1,000 of
        the owner.

        Args:
            background: of a run, whether with those of its background tasks, for which it does not
                wait.
        """
        store = self.store_of(user)
        if run_id is not None:
            questions = await questions_of(store, run_id, status, apart=background)
            return [one for one in questions if thread in (None, one.thread_id)]
        if thread is not None:
            return await questions_on(store, thread, status)
        return [Question.of(row) for row in await store.questions.list(status=status, limit=1000)]

    async def interrupted(self, run_id: str, *, user: str | None = None) -> list[InterruptedCall]:
        """Return the calls whose end nobody recorded, of a run and of sub-agents below it.

        `resume` of the run takes decisions about them.  Of a run that is at work, these are the
        calls in progress.  Raises `NotFound`.
        """
        store = self.store_of(user)
        return await interrupted_calls(store, await store.runs.get(run_id))

    async def approvals(self, thread: str, *, user: str | None = None) -> list[ApprovalRow]:
        """Return the approvals that hold for the rest of a thread. Raises `NotFound`."""
        return await self.store_of(user).questions.approvals(thread)

    async def forget_approval(
        self, thread: str, approval_id: str, *, user: str | None = None
    ) -> None:
        """Withdraw an approval that holds for the rest of a thread. Raises `NotFound`."""
        await self.store_of(user).questions.revoke_approval(thread, approval_id)

    def store_of(self, user: str | None = None) -> UserStore:
        """Return the store of an owner, by default of the settings' user.

        `ConversationMemory` and `NodeMemory` take it.
        """
        self.host.admission.check_loop()
        return self.store.of(user or self.settings.user)

    async def _ask_and_resume(
        self,
        result: RunResult,
        on_question: OnQuestion | None,
        resume: Callable[[str], Awaitable[RunResult]],
        user: str | None,
    ) -> RunResult:
        """Ask what a suspended run waits for and resume it, until it waits for no answer.

        Each answer is stored before the next question is asked, so a crash loses none.
        """
        # Once it is answered, a sweep of this process would take it as well.
        with self.host.attended(result.run_id):
            while True:
                if result.questions and on_question is None:
                    return result
                for question in result.questions:
                    assert on_question is not None
                    answer = await on_question(question)
                    if answer is None:
                        return result
                    with suppress(QuestionClosed):
                        # It was answered elsewhere first, or it expired.
                        await self.answer(question.id, answer, user=user)
                if not result.questions and not await self._answered_meanwhile(result, user):
                    return result
                result = await resume(result.run_id)

    async def _answered_meanwhile(self, result: RunResult, user: str | None) -> bool:
        """Return whether a sub-agent's question was answered just before the run was suspended."""
        if result.status != "suspended" or result.stop_reason != "awaiting_user":
            return False
        return bool(await waiting_below(self.store_of(user), result.run_id))


async def check_answered(store: UserStore, run: Run) -> None:
    """Refuse to resume a run that still waits for a person. Raises `QuestionsOpen`."""
    if run.status != "suspended" or run.cancel_requested:
        return
    if questions := await questions_of(store, run.id):
        ids = tuple(question.id for question in questions)
        raise QuestionsOpen(
            f"Run {run.id} waits for answers to {counted(len(ids), 'question')}: {', '.join(ids)}.",
            questions=ids,
            cure=f"Answer (`agent-runtime answer {ids[0]}`), or cancel the run.",
        )


def _check_active(run: Run) -> None:
    if run.status not in ACTIVE:
        raise Conflict(
            f"Run {run.id} is over: {run.status}.", cure="Start a new run on its thread."
        )


def check_steerable(run: Run) -> None:
    """Refuse to steer a workflow: there is no model that would read it. Raises `Conflict`."""
    if RunSpec.of(run).workflow:
        raise Conflict(
            f"Run {run.id} is that of a workflow, which reads no messages while it runs.",
            cure="Steer the run of the agent at work: `runs(parent_run_id=...)` has it.",
        )
