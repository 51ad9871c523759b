"""What must hold for a run after any number of kills, from its database and journal."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from agent_runtime.messages import (
    AssistantMessage,
    Note,
    ToolResult,
    call_id,
    decode_message,
    decode_result,
)
from agent_runtime_storage import Node, Run, Store, Thread, UserStore, open_store
from benchmarks.proof.chaos_worker import CHILD_PLAN, IDEMPOTENT, PLAN, THREAD, Life
from tests.support.prompt_judge import Judge, Sent, claim_all, read_left
from tests.support.stores import driver_of, expire

Fact = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a run: its violations, and how many calls were left uncertain."""

    violations: tuple[str, ...]
    interrupted: int
    repeated: int
    """Idempotent calls that ran more than once."""


def journal(folder: Path) -> list[Fact]:
    """Return the lines of a journal in the order written."""
    return [orjson.loads(line) for line in (folder / "journal").read_bytes().splitlines()]


async def check(life: Life) -> Verdict:
    """Read what the lives of a run left, and judge it.

    Args:
        life: any of them; it names the journal, the database and the owner.
    """
    facts = journal(Path(life.folder))
    store = await open_store(life.database_url)
    try:
        own = store.of(life.user)
        violations: list[str] = []
        effects = Effects(facts)
        root = (await own.runs.list(thread_id=THREAD))[0]
        for run in await own.runs.list(root_run_id=root.id):
            violations += await _check_run(own, run, effects)
        violations += effects.unknown()
        violations += await _check_prompts(own, facts)
        if life.memory:
            violations += await _check_memory(store, own, facts)
        violations += await _check_money(own, root, facts)
        violations += await _check_posts(own, facts)
        return Verdict(tuple(violations), effects.interrupted, effects.repeated)
    finally:
        await store.close()


class Effects:
    """The effects and records of calls according to the journal, to compare with the log."""

    def __init__(self, facts: Iterable[Fact]) -> None:
        self._runs: Counter[tuple[str, str]] = Counter()
        self._late: list[str] = []
        self._in_log: set[tuple[str, str]] = set()
        self.interrupted = 0
        self.repeated = 0
        done: set[tuple[str, str]] = set()
        for fact in facts:
            if fact["what"] == "effect":
                call = fact["thread"], fact["call"]
                self._runs[call] += 1
                if call in done:
                    self._late.append(f"{fact['tool']} {call} ran again after it was done")
            elif fact["what"] == "done":
                done.add((fact["thread"], call_id(fact["node"], fact["index"])))

    def judge(self, thread: str, handle: str, tool: str, result: ToolResult) -> Iterator[str]:
        """Compare one call's result with its effects."""
        call = thread, handle
        self._in_log.add(call)
        times = self._runs[call]
        self.interrupted += result.outcome == "interrupted"
        self.repeated += times > 1
        if times > 1 and tool not in IDEMPOTENT:
            yield f"{tool} {call} ran {times} times"
        if times == 0 and result.outcome == "ok":
            yield f"{tool} {call} is recorded as done and never ran"
        if times > 0 and result.outcome in ("cancelled", "refused"):
            yield f"{tool} {call} ran and is recorded as {result.outcome}"
        if result.outcome == "interrupted" and tool in IDEMPOTENT and thread == THREAD:
            yield f"{tool} {call} is idempotent and was not run again"

    def unknown(self) -> Iterator[str]:
        """Yield effects that belong to no call of the log, or that came too late."""
        yield from self._late
        for call in self._runs.keys() - self._in_log:
            yield f"an effect of {call}, which is no call of the log"


async def _check_run(store: UserStore, run: Run, effects: Effects) -> list[str]:
    faults: list[str] = []
    thread = await store.threads.get(run.thread_id)
    expected = "succeeded" if run.parent_run_id is None else run.status
    if run.status != expected or run.status not in ("succeeded", "cancelled"):
        faults.append(f"run {run.agent} is {run.status}: {run.detail}")
    if thread.active_run is not None or run.open_node is not None:
        faults.append(f"run {run.agent} left its thread occupied or its exchange open")
    if run.reserved.tokens:
        faults.append(f"run {run.agent} left {run.reserved.tokens} tokens reserved")
    faults += await _check_events(store, thread)
    nodes = await store.log.branch(thread.id, thread.head) if thread.head else []
    if [node.seq for node in nodes] != list(range(1, thread.last_seq + 1)):
        faults.append(f"thread of {run.agent}: its history is not one chain without gaps")
    plan = PLAN if run.parent_run_id is None else CHILD_PLAN
    exchanges = [node for node in nodes if node.kind == "exchange"]
    if run.status == "succeeded" and len(exchanges) != len(plan):
        faults.append(f"run {run.agent} has {len(exchanges)} exchanges for {len(plan)} steps")
    shown: list[ToolResult] = []
    for step, node in enumerate(exchanges):
        wanted = plan[step] if step < len(plan) else ()
        results, wrong = _check_exchange(thread.id, node, wanted, effects)
        faults += wrong
        shown += results
    if run.status == "succeeded":
        faults += _check_answer(run, nodes, shown)
    return faults


async def _check_events(store: UserStore, thread: Thread) -> list[str]:
    events = await store.events.list(thread.id, limit=10_000)
    if [event.id for event in events] != list(range(1, thread.last_event + 1)):
        return [f"thread {thread.id}: its events are not without gaps"]
    ends = sum(event.kind == "run-finish" for event in events)
    return [] if ends == 1 else [f"thread {thread.id} has {ends} events of its run's end"]


def _check_exchange(
    thread: str, node: Node, wanted: tuple[str, ...], effects: Effects
) -> tuple[list[ToolResult], list[str]]:
    message = decode_message(node.body)
    if not isinstance(message, AssistantMessage):
        return [], [f"node {node.seq} is an exchange without an assistant message"]
    if node.status != "closed" or any(call.status != "done" for call in node.calls):
        return [], [f"node {node.seq} is not closed, or has calls without a result"]
    faults: list[str] = []
    if tuple(call.name for call in message.calls) != wanted:
        faults.append(f"node {node.seq} does not hold the calls of its step")
    results: list[ToolResult] = []
    for call, row in zip(message.calls, node.calls, strict=True):
        result = decode_result(row.body)
        results.append(result)
        if row.outcome != result.outcome or call.id != call_id(node.seq, row.index):
            faults.append(f"node {node.seq}: the row of call {row.index} is not that of its result")
        faults += effects.judge(thread, call.id, call.name, result)
    return results, faults


def _check_answer(run: Run, nodes: list[Node], results: list[ToolResult]) -> Iterator[str]:
    interrupted = sum(result.outcome == "interrupted" for result in results)
    wanted = f"{len(results)} results, {interrupted} interrupted"
    answer = decode_message(nodes[-1].body)
    if answer.text != wanted or orjson.loads(run.output) != wanted:
        yield f"run {run.agent} answered {answer.text!r} where its log says {wanted!r}"
    answers = sum(node.role == "assistant" for node in nodes)
    if run.steps != answers:
        yield f"run {run.agent} counts {run.steps} steps and has {answers} answers"


async def _check_prompts(store: UserStore, facts: Iterable[Fact]) -> list[str]:
    before: dict[str, list[str]] = {}
    rebuilt: Counter[str] = Counter()
    for fact in facts:
        if fact["what"] == "prompt":
            old, new = before.get(fact["thread"], []), fact["messages"]
            rebuilt[fact["thread"]] += new[: len(old)] != old
            before[fact["thread"]] = new
    faults: list[str] = []
    for thread, times in rebuilt.items():
        events = await store.events.list(thread, limit=10_000)
        # The first activation precedes the first prompt.
        activations = sum(event.kind == "activation" for event in events) - 1
        if times > activations:
            faults.append(
                f"{times} prompts of thread {thread} do not extend the one before, "
                f"and it has {activations} activations after the first"
            )
    return faults


async def _check_memory(store: Store, own: UserStore, facts: Iterable[Fact]) -> list[str]:
    """Judge the observations, and that every prompt shows each node once, by the rows alone."""
    driver = driver_of(store)
    await expire(store, own.user_id)
    sent: defaultdict[str, list[Sent]] = defaultdict(list)
    for fact in facts:
        if fact["what"] == "prompt":
            sent[fact["thread"]].append(Sent("a life", fact["sent"], ""))
    faults: list[str] = []
    for thread, prompts in sent.items():
        left = await read_left(store, driver, own.user_id, thread)
        claimed = frozenset(await claim_all(own, left, thread))
        faults += Judge(left, prompts, claimed).judge()
    return faults


async def _check_money(store: UserStore, root: Run, facts: Iterable[Fact]) -> list[str]:
    billed = sum(fact["tokens"] for fact in facts if fact["what"] == "billed")
    settled, bound = root.settled.tokens, root.settled.tokens + root.unsettled.tokens
    total = await store.spending.usage_total(root_run_id=root.id)
    faults: list[str] = []
    if not settled <= billed <= bound:
        faults.append(f"{billed} tokens were billed, {settled} are settled, {bound} at most")
    if total.prompt_tokens + total.completion_tokens != settled:
        faults.append("the sum of the usage is not what is settled")
    return faults


async def _check_posts(store: UserStore, facts: Iterable[Fact]) -> list[str]:
    thread = await store.threads.get(THREAD)
    if thread.head is None:
        return ["the thread is empty"]
    texts: list[str] = []
    for node in await store.log.branch(THREAD, thread.head):
        message = decode_message(node.body)
        if isinstance(message, Note):
            texts.append(message.text)
    faults: list[str] = []
    known = list(facts)
    for fact in known:
        if fact["what"] == "effect" and fact["tool"] == "tell":
            least = sum(
                other["what"] == "posted" for other in known if other.get("call") == fact["call"]
            )
            times = sum(f"posted by {fact['call']}" in text for text in texts)
            if not least <= times <= 1:
                faults.append(f"what was posted by {fact['call']} came {times} times")
    if await store.inbox.pending(THREAD):
        faults.append("the inbox still holds what was posted")
    return faults
