"""The loop of a workflow: return the recorded values of its nodes; run and record the others.

A workflow's log has the form of an agent's: the task is a user message, nodes that run at the same
time are one exchange (one call each, the value as its result), and the output is the answer.  So
nodes get the guarantees of an agent's calls: they are written ahead, start at most once unless they
are idempotent, and end with their run.  A node that is an agent or a workflow has a child run.

After a crash the function is called again.  Its nodes are matched by name and iteration (as steps
are in DBOS) and by their arguments; if these differ from the record, the run ends with
`WorkflowDiverged` instead of mixing two histories.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
from anyio.abc import TaskGroup

from agent_runtime.concurrency import carried, single_error
from agent_runtime.errors import NodeFailed, PromptTooLarge, WorkflowDiverged
from agent_runtime.human.gate import GateResult
from agent_runtime.human.interruptions import Accept, Fail, resolved_result
from agent_runtime.log.branch import load_view, node_row
from agent_runtime.log.exchange import Exchange
from agent_runtime.log.run_log import CLOSED, cancelled_finish
from agent_runtime.log.run_spec import RunSpec
from agent_runtime.messages import (
    AssistantMessage,
    ToolCall,
    ToolResult,
    UserMessage,
    call_id,
    decode_message,
    decode_result,
)
from agent_runtime.run.state import RunState
from agent_runtime.run.tool_calls import abandoned_results, run_calls
from agent_runtime.tools.toolset import Toolset
from agent_runtime.workflow.approvals import NodeGate
from agent_runtime.workflow.history import HistoryLimits, HistoryMessage, read_history
from agent_runtime.workflow.steps import Key, NodeIteration, WorkflowNodeTool
from agent_runtime.workflow.values import (
    describe_value,
    encode_output,
    node_tool_result,
    typed,
)
from agent_runtime_storage.contract.records.log import Commit, Finish, Run
from agent_runtime_storage.contract.records.log import Node as LogNode

T = TypeVar("T")

MAX_PARALLEL = 128
"""The most nodes in one exchange; more nodes take several exchanges."""

_path: ContextVar[tuple[int, ...]] = ContextVar("agent_runtime_workflow_path", default=())


@dataclass(frozen=True, slots=True)
class RecordedIteration:
    """An iteration of a node in the log, and its exchange.

    Attributes:
        call: the last call of it, at `index` of its exchange.
        began: the call that began it: the first of those whose end was not recorded.
    """

    asked: dict[str, Any]
    result: ToolResult
    exchange: int
    index: int
    call: ToolCall
    began: str

    @property
    def unseen(self) -> bool:
        """Whether it was started without a recorded end."""
        return self.result.outcome == "interrupted"


class WorkflowLoop:
    """Drives one run of a workflow to its end.

    Args:
        flow: calls the workflow's function with this loop.
        name: of the workflow.
        limits: of what is loaded of the thread's history; None where observations come to stand
            for older messages.
        retry: whether nodes that failed last run again, because the run had ended by an error.

    Attributes:
        resume: resumes a child run that stopped.
        messages: the shared state: the history, the task, and one message for each node that was
            an agent or a workflow.
        outputs: the values of each node's iterations.
    """

    def __init__(
        self,
        state: RunState,
        flow: Callable[[WorkflowLoop], Awaitable[Any]],
        *,
        name: str,
        limits: HistoryLimits | None,
        retry: bool,
    ) -> None:
        self.state = state
        self.log = state.log
        self.resume = state.context.resume_child
        self._flow = flow
        self._name = name
        self._limits = limits
        self._retry = retry
        self.run: Run
        self.task = UserMessage("")
        self.history: tuple[HistoryMessage, ...] = ()
        self.messages: list[HistoryMessage] = []
        self.outputs: dict[str, list[Any]] = {}
        self.depth = 0
        self._recorded: dict[Key, RecordedIteration] = {}
        self._last = 0
        self._iterations: Counter[str] = Counter()
        self._waiting: list[NodeIteration] = []
        # Branches that may still ask for nodes: the function itself, and those of `gather`.
        self._branches = 1
        self._running = False
        self._end: Finish | None = None
        self._scope = anyio.CancelScope()
        self._group: TaskGroup

    # The run

    async def drive(self) -> Finish:
        """Call the workflow's function, record the run's end, and return it.

        Raises:
            WorkflowDiverged: the function asks for other nodes than the log has.
            StoreError: the store failed.

        Errors of the function are raised as they are.
        """
        if self.log.exchange is not None:
            await self._close(abandoned_results(self.log.exchange))
        await self._load()
        output: Any = None
        try:
            with self._scope:
                async with single_error(), anyio.create_task_group() as self._group:
                    output = await self._flow(self)
                    self._check_used()
        except NodeFailed as failed:
            # A child's exhausted budget is the run's own, shared by the tree; resuming needs a
            # higher one.
            if failed.stop_reason != "budget":
                raise
            self._end = Finish("failed", "budget", failed.message)
        if self._end is not None:
            return self._end if self.log.ended else await self.finish(self._end)
        return await self._answer(output)

    async def finish(self, finish: Finish) -> Finish:
        """End the run; close nodes in progress with what is known of each."""
        if self.log.exchange is not None:
            await self._close(abandoned_results(self.log.exchange), finish)
        else:
            await self.log.append([], finish=finish)
        return finish

    async def _answer(self, output: Any) -> Finish:
        # In a thread, as it may be of any size.
        stored, shown = await anyio.to_thread.run_sync(encode_output, output)
        finish = Finish("succeeded", "completed", output=stored)
        await self.log.append([AssistantMessage(shown)], finish=finish)
        return finish

    async def _load(self) -> None:
        """Read the run's task, the history before it, and the records of its nodes."""
        store, thread = self.log.store, self.log.lease.thread_id
        self.run = await store.runs.get(self.log.lease.run_id)
        assert self.log.head is not None and self.run.task_id is not None
        first, *nodes = await store.log.branch(thread, self.log.head, first=self.run.task_id)
        task = decode_message(first.body)
        assert isinstance(task, UserMessage)
        if not nodes:
            await self._activate()
        # As it was when the run began, also after a resume: an activation of a later run must not
        # change what this one's nodes were asked.
        view = await load_view(store, thread, first.seq)
        before = await read_history(store, view, thread, first.parent_id, self._limits)
        self.task, self.history, self.messages = task, tuple(before), [*before, task]
        for node in nodes:
            self._remember(node)
        parent = self.run.parent_run_id
        while parent is not None:
            self.depth, parent = self.depth + 1, (await store.runs.get(parent)).parent_run_id

    async def _activate(self) -> None:
        """Let observations take effect that are due, before the history is read."""
        memory = self.state.memory
        # Without memory an agent's observations on the thread stay as they are.
        if memory is not None or not self.log.view.start.remembers:
            # No prompt is sent by this run; the next agent on the thread reports it if it still
            # holds.
            with suppress(PromptTooLarge):
                if (cause := self.state.due(self.log.view)) is not None:
                    await self.state.activate(cause)
        if memory is not None:
            memory.wake()

    def _remember(self, node: LogNode) -> None:
        message = decode_message(node.body)
        if not isinstance(message, AssistantMessage) or not message.calls:
            return
        self._last = node.seq
        for index, (call, row) in enumerate(zip(message.calls, node.calls, strict=True)):
            key = call.name, int(call.arguments["iteration"])
            before = self._recorded.get(key)
            # An interrupted iteration runs again under a new call, but its sub-agent names the
            # first one.
            began = before.began if before and before.unseen else call.id
            result = decode_result(row.body)
            self._recorded[key] = RecordedIteration(
                call.arguments, result, node.seq, index, call, began
            )

    # What the function asks for

    async def ask(self, step: NodeIteration) -> Any:
        """Run a node; return its value, of its type, once all nodes of its exchange have ended.

        Raises:
            NodeFailed: it did not succeed.
            ConfigError: its value does not fit its type.

        Cancelling the call does not stop a node that has started.
        """
        # A context variable follows the branch's task through the user's own functions.
        step.path = _path.get()
        self._waiting.append(step)
        self._begin()
        try:
            await step.done.wait()
        finally:
            # Cancelled before it began: it must not run, nor hold up the other branches.
            if step in self._waiting:
                self._waiting.remove(step)
        return typed(step.value(), step.kind)

    async def gather(self, work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        """Run branches in parallel; see `WorkflowContext.gather`."""
        results: dict[int, T] = {}
        own, alive = _path.get(), len(work)

        async def branch(index: int, one: Coroutine[Any, Any, T]) -> None:
            nonlocal alive
            _path.set((*own, index))
            try:
                results[index] = await one
            finally:
                # The last branch to end hands its place to the branch that waits for all.
                alive -= 1
                self._branches -= alive > 0
                self._begin()

        # Less one, because the branch that waits here asks for nothing meanwhile.
        self._branches += max(0, alive - 1)
        async with single_error(), anyio.create_task_group() as group:
            for index, one in enumerate(work):
                group.start_soon(carried, branch, index, one)
        return [results[index] for index in range(len(work))]

    def _begin(self) -> None:
        """Run the requested nodes once every branch waits, so a resume makes the same exchanges."""
        if self._running or not self._waiting or len(self._waiting) < self._branches:
            return
        # By branch, because the order in which tasks are scheduled differs from run to run.
        ordered = sorted(self._waiting, key=lambda step: step.path)
        batch, self._waiting = ordered[:MAX_PARALLEL], ordered[MAX_PARALLEL:]
        self._running = True
        self._group.start_soon(carried, self._exchange, batch)

    async def _exchange(self, batch: Sequence[NodeIteration]) -> None:
        """Give each node of a batch its recorded result, or run it."""
        fresh: list[NodeIteration] = []
        gated = GateResult([], {})
        for step in batch:
            self._iterations[step.name] += 1
            step.iteration = self._iterations[step.name]
            step.asked = {**step.asked, "iteration": step.iteration}
            # Popped, so that what is left was not asked for: `_check_used` reports it.
            recorded = self._recorded.pop(step.key, None)
            if recorded is None:
                fresh.append(step)
                continue
            self._check_same(step, recorded)
            step.result, step.again = recorded.result, self._runs_again(step, recorded)
            step.began = recorded.began if recorded.unseen else ""
            decided = recorded.unseen and await self._decided(step, recorded, gated)
            if decided or step.again:
                fresh.append(step)
        if gated.new:
            self._check_used()
            self._end = await self.state.gate.suspend(gated)
            self._scope.cancel()
            return
        if fresh:
            self._check_used()
            # The function is stopped where it waits, and `drive` writes the end.
            if await self._stops() or not await self._run(fresh):
                self._scope.cancel()
                return
        for step in batch:
            self._settle(step)
        self._running = False
        self._begin()

    def _runs_again(self, step: NodeIteration, recorded: RecordedIteration) -> bool:
        match recorded.result.outcome:
            case "ok":
                return False
            case "interrupted":
                return step.repeatable
            case "cancelled":
                # It was never started.
                return True
            case _:
                # Only what ended the run is tried again: the function has handled earlier failures.
                return self._retry and recorded.exchange == self._last

    async def _decided(
        self, step: NodeIteration, recorded: RecordedIteration, gated: GateResult
    ) -> bool:
        """Apply what a person decided about an interrupted iteration, or ask.

        Returns whether a person decided: it runs again, or its result goes into an exchange.
        """
        gate, key = self.state.gate, (recorded.exchange, recorded.index)
        resolution = self.state.decided.get(recorded.call.id)
        if resolution is None and not step.again:
            answers = await gate.resolutions()
            resolution = answers.get(key)
            if key not in answers and await gate.may_ask():
                gate.ask_about(gated, *key, recorded.call)
        if isinstance(resolution, Accept):
            # A value that does not fit would fail on every resume, once it is recorded.
            typed(resolution.value, step.kind)
            step.decided = node_tool_result(resolution.value)
        elif isinstance(resolution, Fail):
            step.decided = resolved_result(resolution)
        return resolution is not None

    def _settle(self, step: NodeIteration) -> None:
        if step.result is not None and step.result.outcome == "ok":
            value = step.value()
            self.outputs.setdefault(step.name, []).append(value)
            if step.speaks:
                self.messages.append(AssistantMessage(describe_value(value)))
        step.done.set()

    # Running nodes

    async def _stops(self) -> bool:
        requested, _ = await self.log.asked()
        if requested:
            self._end = cancelled_finish()
        elif self.log.closing:
            self._end = CLOSED
        elif self.log.steps >= self.state.step_limit:
            detail = f"It used up its {self.state.step_limit} nodes."
            self._end = Finish("failed", "max_steps", detail)
        return self._end is not None

    async def _run(self, steps: Sequence[NodeIteration]) -> bool:
        """Run nodes as one exchange; return whether the run continues."""
        log = self.log
        seq = log.next_seq
        calls = [ToolCall(call_id(seq, i), one.name, one.asked) for i, one in enumerate(steps)]
        message = AssistantMessage(calls=tuple(calls))
        row = node_row(message, seq=seq, parent_id=log.head, activation_id=log.view.activation_id)

        def opened() -> None:
            log.exchange = Exchange(seq, message, time.time())

        commit = Commit(nodes=(row,), steps=log.steps + len(steps))
        await log.write(commit, then=opened)
        named: dict[str, dict[int, NodeIteration]] = {}
        for one in steps:
            named.setdefault(one.name, {})[one.iteration] = one
        tools = Toolset(WorkflowNodeTool(name, steps) for name, steps in named.items())

        async def close(done: dict[int, ToolResult]) -> None:
            # Read before `_close` ends the exchange.
            results = log.open_exchange().results | done
            await self._close(done)
            for index, one in enumerate(steps):
                one.result = results[index]

        decided = {i: one.decided for i, one in enumerate(steps) if one.decided is not None}
        gate = NodeGate(self.state.gate, self._name, steps)
        # Resuming runs the nodes again that wait; those with a run of their own resume it.
        self._end = await run_calls(log, tools, self.state.context, close, decided, gate)
        if self._end is not None:
            return False
        failed = any(one.result is None or one.result.outcome != "ok" for one in steps)
        if failed and (await log.asked())[0]:
            # The whole tree was cancelled, and the child noticed first.
            self._end = cancelled_finish()
        return self._end is None

    async def _close(self, done: dict[int, ToolResult], finish: Finish | None = None) -> None:
        exchange = self.log.open_exchange()
        results = exchange.results | done
        calls = exchange.message.calls
        texts = [results[index].text for index in range(len(calls))]
        shown_chars = await self.state.fit(calls, texts)
        await self.log.close(done, shown_chars, finish=finish)

    async def earlier(self, step: NodeIteration) -> Run | None:
        """Return the newest child run of this iteration; None if none began."""
        for run in await self.log.store.runs.list(parent_run_id=self.run.id, limit=10_000):
            spec = RunSpec.of(run)
            if (spec.node, spec.iteration) == step.key:
                return run
        return None

    # Comparing the function with the log

    def _check_same(self, step: NodeIteration, recorded: RecordedIteration) -> None:
        if step.asked != recorded.asked:
            raise WorkflowDiverged(
                f"The node {step.name!r} (iteration {step.iteration}) has other arguments than "
                f"when it first ran.",
                cure=_DIVERGED,
            )

    def _check_used(self) -> None:
        if self._recorded:
            name, iteration = next(iter(self._recorded))
            raise WorkflowDiverged(
                f"The log has the node {name!r} (iteration {iteration}) next, but the workflow "
                f"{self._name!r} did not ask for it.",
                cure=_DIVERGED,
            )


_DIVERGED = (
    "Resume the run with the code that began it, or start a new one. Outside of its nodes a "
    "workflow must be deterministic: get time, random values and external data from a node "
    "(`w.call`)."
)
