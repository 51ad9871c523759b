"""How a delegated task ended: what was observed of the sub-agent, not what it says of itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import orjson

from agent_runtime.delegation.record import shortened
from agent_runtime.errors import AgentRuntimeError, InvalidFile, StoreError
from agent_runtime.files.attach import File, store_file
from agent_runtime.files.references import ref_of
from agent_runtime.messages import (
    AssistantMessage,
    ToolResult,
    decode_message,
    decode_result,
    encodable,
)
from agent_runtime.models.cost import NANO
from agent_runtime_storage.contract.records import ACTIVE, CallOutcome, Node, Run, UsageTotal
from agent_runtime_storage.contract.store import UserStore

OutcomeStatus = Literal["succeeded", "failed", "cancelled", "running", "waiting"]
"""`running` is that of a task in the background, which has only begun.

`waiting` is that of one whose sub-agent waits for a person, or is paused with its root: only a call
that can wait with it gets that.
"""

RESULT_CHARS = 8_000
"""The longest result that is told whole; of a longer one a file is kept."""
HEAD_CHARS = 2_000
"""How much of such a result is told beside its reference."""
MOST_ERRORS = 10
MOST_FILES = 20
ERROR_CHARS = 300

_OUTCOMES: Mapping[str, CallOutcome] = {"succeeded": "ok", "running": "ok", "failed": "error"}


@dataclass(frozen=True, slots=True)
class ToolFailure:
    """A call of the sub-agent that went wrong."""

    tool: str
    error: str


@dataclass(frozen=True, slots=True)
class DelegationUsage:
    """What the sub-agent and those below it used.

    Attributes:
        cost_usd: None where a price is unknown.
    """

    steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float | None = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a delegated task ended; the same shape however it did.

    Attributes:
        result: the answer, or the value of the wanted type; of a task that did not succeed the
            last that the sub-agent said, empty if it said nothing.
        stop_reason: why the run stopped; `refused_outcome` if none began.
        tool_calls: how often each tool was called.
        tool_errors: what calls went wrong, the newest last.
        blockers: what stood in the way, as it was observed.
        duration: seconds from the run's begin to its end.
        artifacts: references to what the sub-agent left: files that its tools made, and its
            result where that is too long to be told.
        attempt: which one it was at this task, from 1; 0 if no run began.
    """

    status: OutcomeStatus
    result: Any = ""
    stop_reason: str = ""
    tool_calls: Mapping[str, int] = field(default_factory=dict[str, int])
    tool_errors: tuple[ToolFailure, ...] = ()
    blockers: tuple[str, ...] = ()
    duration: float = 0.0
    usage: DelegationUsage = field(default_factory=DelegationUsage)
    artifacts: tuple[str, ...] = ()
    task_key: str = ""
    attempt: int = 0
    run_id: str = ""

    @property
    def ok(self) -> bool:
        """Whether the task was completed."""
        return self.status == "succeeded"

    def tool_result(self) -> ToolResult:
        """Return the outcome as a tool tells it to a model: JSON, all keys always there."""
        text = orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2).decode()
        outcome = "refused" if self.stop_reason == "refused" else _OUTCOMES.get(self.status)
        return ToolResult(text, outcome or "cancelled")


def refused_outcome(why: str, key: str = "") -> Outcome:
    """Return the outcome of a task that no run was begun for."""
    return Outcome("failed", stop_reason="refused", blockers=(encodable(why),), task_key=key)


def failed_outcome(error: Exception, key: str = "") -> Outcome:
    """Return the outcome of a task whose run could not begin, or could not be looked at."""
    return Outcome("failed", stop_reason="error", blockers=(safe_error_text(error),), task_key=key)


def safe_error_text(error: Exception) -> str:
    """Return what may be said of an error: ours name the cause, others could name anything."""
    ours = isinstance(error, AgentRuntimeError)
    return encodable(str(error)) if ours else f"Unexpected {type(error).__name__}"


async def outcome_of_run(
    store: UserStore, run: Run, *, key: str = "", attempt: int = 0, failure: Exception | None = None
) -> Outcome:
    """Return the outcome of a run, from its row and its log.

    Args:
        failure: what its execution raised, for a run whose end could not be written.

    Raises `StoreError`.
    """
    nodes = await _own_nodes(store, run)
    status: OutcomeStatus = "failed"
    if run.status in ("succeeded", "cancelled"):
        status = run.status
    blockers = [run.detail] if run.detail and status != "succeeded" else []
    if run.status in ACTIVE:
        blockers = [safe_error_text(failure) if failure else "The run is not over."]
    calls: Counter[str] = Counter()
    errors: list[ToolFailure] = []
    for tool, result in _results(nodes):
        calls[tool] += 1
        if result is None or result.outcome == "ok":
            continue
        errors.append(ToolFailure(tool, shortened(result.text, ERROR_CHARS)))
        if result.outcome != "error":
            blockers.append(f"{tool} ({result.outcome}): {shortened(result.text, ERROR_CHARS)}")
    files = [f"{ref_of(row).uri} ({row.name or row.kind})" for row in await _made(store, run)]
    return Outcome(
        status,
        result=_said(run, nodes),
        stop_reason=run.stop_reason or "error",
        tool_calls=dict(calls),
        tool_errors=tuple(errors[-MOST_ERRORS:]),
        blockers=tuple(dict.fromkeys(blockers))[-MOST_ERRORS:],
        duration=round((run.finished_at or run.updated_at) - run.created_at, 3),
        usage=await _spent(store, run),
        artifacts=tuple(files[-MOST_FILES:]),
        task_key=key,
        attempt=attempt,
        run_id=run.id,
    )


async def by_reference(
    outcome: Outcome, store: UserStore, thread_id: str, max_bytes: int
) -> Outcome:
    """Return an outcome whose result is short: one too long is kept as a file of the thread.

    Where it cannot be kept, the outcome says why; the sub-agent's thread has it whole.
    """
    text = outcome.result if isinstance(outcome.result, str) else _json(outcome.result)
    if len(text) <= RESULT_CHARS:
        return outcome
    plain = isinstance(outcome.result, str)
    name = f"{outcome.task_key[:60]}-{outcome.attempt}.{'md' if plain else 'json'}"
    made = "text/markdown" if plain else "application/json"
    file = File(text.encode(), name, made, "document")
    head = f"{text[:HEAD_CHARS]}\n[... {len(text):,} characters in all"
    try:
        ref = await store_file(store, thread_id, file, max_bytes, origin="tool")
    except (InvalidFile, StoreError) as error:
        why = f"The whole result cannot be kept: {safe_error_text(error)}"
        return replace(outcome, result=f"{head} ...]", blockers=(*outcome.blockers, why))
    return replace(
        outcome,
        result=f"{head}: open_artifact {ref.uri} ...]",
        artifacts=(f"{ref.uri} ({ref.name})", *outcome.artifacts),
    )


async def _own_nodes(store: UserStore, run: Run) -> list[Node]:
    """Return what the run wrote, its task first; an exchange that is still open comes last."""
    if run.task_id is None:
        return []
    head = (await store.thread(run.thread_id)).head
    if head is None:
        return []
    nodes = await store.branch(run.thread_id, head, first=run.task_id)
    if run.open_node is not None:
        nodes.append(await store.node(run.thread_id, run.open_node))
    return nodes[1:]


def _results(nodes: list[Node]) -> list[tuple[str, ToolResult | None]]:
    return [
        (call.tool, decode_result(call.body) if call.status == "done" else None)
        for node in nodes
        for call in node.calls
    ]


def _said(run: Run, nodes: list[Node]) -> Any:
    """Return the run's output, or the last words that it left."""
    if run.status == "succeeded":
        output = orjson.loads(run.output) if run.output else None
        return "" if output is None else output
    for node in reversed(nodes):
        message = decode_message(node.body)
        if isinstance(message, AssistantMessage) and message.text.strip():
            return message.text
    return ""


async def _made(store: UserStore, run: Run) -> list[Any]:
    return [row for row in await store.files(run.thread_id) if row.origin == "tool"]


async def _spent(store: UserStore, run: Run) -> DelegationUsage:
    """Sum what the run and those below it used."""
    tree, steps = [run.id], run.steps
    # It grows while it is read: each brings those below it.
    for one in tree:
        for child in await store.runs(parent_run_id=one, limit=10_000):
            tree.append(child.id)
            steps += child.steps
    total = UsageTotal.of([await store.usage_total(run_id=one) for one in tree])
    return DelegationUsage(
        steps=steps,
        prompt_tokens=total.prompt_tokens,
        cached_tokens=total.cached_tokens,
        completion_tokens=total.completion_tokens,
        cost_usd=None if total.unpriced_calls else total.cost / NANO,
    )


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
