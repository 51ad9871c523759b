"""The outcome of a delegated task: what was observed, not what the sub-agent says of itself."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import orjson

from agent_runtime.errors import AgentRuntimeError, InvalidFile, StoreError
from agent_runtime.files.attach import File, store_file
from agent_runtime.files.references import ref_of
from agent_runtime.human.waiting import AwaitingHuman
from agent_runtime.messages import (
    AssistantMessage,
    ToolResult,
    decode_message,
    decode_result,
    encodable,
)
from agent_runtime.models.cost import NANO
from agent_runtime.prompt.text import one_line, shorten
from agent_runtime_storage.contract.records.log import ACTIVE, CallOutcome, Node, Run
from agent_runtime_storage.contract.records.usage import UsageTotal
from agent_runtime_storage.contract.store import UserStore

OutcomeStatus = Literal["succeeded", "failed", "cancelled", "running", "waiting"]
"""`running`: a background task has begun.

`waiting`: the sub-agent waits for a person, or is paused with its root.  Only calls that can wait
with it get this.
"""

RESULT_CHARS = 8_000
"""A longer result is stored as a file."""
HEAD_CHARS = 2_000
"""How much of a stored result the outcome repeats."""
MOST_ERRORS = 10
MOST_FILES = 20
ERROR_CHARS = 300

_OUTCOMES: Mapping[str, CallOutcome] = {"succeeded": "ok", "running": "ok", "failed": "error"}


_DATA = re.compile(r"(?:\w+: *)?[{\[].*[}\]]\Z", re.DOTALL)
"""A paragraph of data for programs, which may have a label."""


@dataclass(frozen=True, slots=True)
class ToolFailure:
    """A call of the sub-agent that failed."""

    tool: str
    error: str


@dataclass(frozen=True, slots=True)
class DelegationUsage:
    """Usage of a sub-agent and of those below it.

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
    """How a delegated task ended; the same shape for every ending.

    Attributes:
        result: the answer, or the value of the wanted type.  If the task did not succeed, the
            sub-agent's last words, or empty.
        stop_reason: why the run stopped; `refused` if none began.
        tool_calls: how often each tool was called.
        tool_errors: the calls that failed, oldest first.
        blockers: what stopped the sub-agent, as observed.
        duration: seconds from the run's start to its end.
        artifacts: references to files that its tools made, and to its result if that was too long
            to repeat.
        attempt: the number of the attempt at this task, from 1; 0 if no run began.
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
        """Return the outcome as a model reads it: JSON that always has all keys."""
        text = orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2).decode()
        outcome = "refused" if self.stop_reason == "refused" else _OUTCOMES.get(self.status)
        return ToolResult(text, outcome or "cancelled")


def waiting_result(outcome: Outcome) -> AwaitingHuman:
    """Return what a call returns instead of its result while its sub-agent waits."""
    return AwaitingHuman("", run_id=outcome.run_id, stop_reason=outcome.stop_reason)


def refused_outcome(why: str, key: str = "") -> Outcome:
    """Return the outcome of a task for which no run began."""
    return Outcome("failed", stop_reason="refused", blockers=(encodable(why),), task_key=key)


def failed_outcome(error: Exception, key: str = "") -> Outcome:
    """Return the outcome of a task whose run could not begin or could not be read."""
    return Outcome("failed", stop_reason="error", blockers=(safe_error_text(error),), task_key=key)


def safe_error_text(error: Exception) -> str:
    """Return an error's text if it is ours, else only its type: its text could hold anything."""
    ours = isinstance(error, AgentRuntimeError)
    return encodable(str(error)) if ours else f"Unexpected {type(error).__name__}"


def summary_of(result: Any) -> str:
    """Return what a plan shows of a result: its text, without paragraphs that are JSON."""
    if not isinstance(result, str):
        return orjson.dumps(result).decode()
    paragraphs = (paragraph.strip() for paragraph in result.split("\n\n"))
    return "\n\n".join(one for one in paragraphs if one and not _DATA.match(one)) or result


async def outcome_of_run(
    store: UserStore, run: Run, *, key: str = "", attempt: int = 0, failure: Exception | None = None
) -> Outcome:
    """Return the outcome of a run, from its row and its log.

    Args:
        failure: the error of a run whose end could not be written.

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
        text = shorten(one_line(result.text), ERROR_CHARS)
        errors.append(ToolFailure(tool, text))
        # Errors are normal work; what was refused, timed out or interrupted stops a sub-agent.
        if result.outcome != "error":
            blockers.append(f"{tool} ({result.outcome}): {text}")
    files = [
        f"{ref_of(row).uri} ({row.name or row.kind})"
        for row in await store.files.list(run.thread_id)
        if row.origin == "tool"
    ]
    return Outcome(
        status,
        result=_result(run, nodes),
        # A run that is not over has no reason yet; its caller failed to end it.
        stop_reason=run.stop_reason or "error",
        tool_calls=dict(calls),
        tool_errors=tuple(errors[-MOST_ERRORS:]),
        blockers=tuple(dict.fromkeys(blockers))[-MOST_ERRORS:],
        duration=round((run.finished_at or run.updated_at) - run.created_at, 3),
        usage=await _usage(store, run),
        artifacts=tuple(files[-MOST_FILES:]),
        task_key=key,
        attempt=attempt,
        run_id=run.id,
    )


async def by_reference(
    outcome: Outcome, store: UserStore, thread_id: str, max_bytes: int
) -> Outcome:
    """Return the outcome with a short result: store a long one as a file of the thread.

    If it cannot be stored, the outcome says why; the sub-agent's thread has the whole result.
    """
    plain = isinstance(outcome.result, str)
    text = outcome.result if plain else orjson.dumps(outcome.result).decode()
    if len(text) <= RESULT_CHARS:
        return outcome
    name = f"{outcome.task_key[:60]}-{outcome.attempt}.{'md' if plain else 'json'}"
    media_type = "text/markdown" if plain else "application/json"
    file = File(text.encode(), name, media_type, "document")
    head = f"{text[:HEAD_CHARS]}\n[... {len(text):,} characters in all"
    try:
        ref = await store_file(store, thread_id, file, max_bytes, origin="tool")
    except (InvalidFile, StoreError) as error:
        why = f"The whole result cannot be stored: {safe_error_text(error)}"
        return replace(outcome, result=f"{head} ...]", blockers=(*outcome.blockers, why))
    return replace(
        outcome,
        result=f"{head}: open_artifact {ref.uri} ...]",
        artifacts=(f"{ref.uri} ({ref.name})", *outcome.artifacts),
    )


async def _own_nodes(store: UserStore, run: Run) -> list[Node]:
    """Return the nodes that the run wrote after its task; an open exchange comes last."""
    if run.task_id is None:
        return []
    head = (await store.threads.get(run.thread_id)).head
    if head is None:
        return []
    nodes = await store.log.branch(run.thread_id, head, first=run.task_id)
    # A run that was stopped in an exchange: what its calls did counts too.
    if run.open_node is not None:
        nodes.append(await store.log.node(run.thread_id, run.open_node))
    # Without the task itself.
    return nodes[1:]


def _results(nodes: list[Node]) -> list[tuple[str, ToolResult | None]]:
    return [
        (call.tool, decode_result(call.body) if call.status == "done" else None)
        for node in nodes
        for call in node.calls
    ]


def _result(run: Run, nodes: list[Node]) -> Any:
    """Return the run's output, or its last words."""
    if run.status == "succeeded":
        output = orjson.loads(run.output) if run.output else None
        return "" if output is None else output
    for node in reversed(nodes):
        message = decode_message(node.body)
        if isinstance(message, AssistantMessage) and message.text.strip():
            return message.text
    return ""


async def _usage(store: UserStore, run: Run) -> DelegationUsage:
    """Sum the usage of a run and of those below it."""
    tree, steps = [run.id], run.steps
    # The list grows while it is read: each run adds its children.
    for one in tree:
        for child in await store.runs.list(parent_run_id=one, limit=10_000):
            tree.append(child.id)
            steps += child.steps
    total = UsageTotal.of([await store.spending.usage_total(run_id=one) for one in tree])
    return DelegationUsage(
        steps=steps,
        prompt_tokens=total.prompt_tokens,
        cached_tokens=total.cached_tokens,
        completion_tokens=total.completion_tokens,
        cost_usd=None if total.unpriced_calls else total.cost / NANO,
    )
