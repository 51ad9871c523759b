"""Decide what was interrupted: calls that were started, and whose end nobody recorded.

Their effect is unverified, so none of them runs again by itself.  A person says what to do, by
arguments of `resume` or by the answer to a question; each such answer counts for one resume only,
because what it is about may be interrupted again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import orjson
from pydantic_core import PydanticSerializationError, from_json, to_json

from agent_runtime.errors import ConfigError
from agent_runtime.log.run_spec import RunSpec
from agent_runtime.messages import AssistantMessage, ToolResult, decode_message, encodable
from agent_runtime.tools.results import result_of_value
from agent_runtime_storage.contract.records.log import ACTIVE, CallRow, Lease, Node, Run
from agent_runtime_storage.contract.records.questions import QuestionRow
from agent_runtime_storage.contract.store import UserStore

KIND = "interrupted"
"""The kind of the questions."""
_FAILED = "A person decided that this counts as failed."


@dataclass(frozen=True, slots=True)
class Rerun:
    """Run the interrupted call again."""


@dataclass(frozen=True, slots=True)
class Accept:
    """Take this value, which JSON can hold, as the result of the interrupted call."""

    value: Any


@dataclass(frozen=True, slots=True)
class Fail:
    """Let the interrupted call count as failed; the model, or the workflow, gets the reason."""

    reason: str = ""


Resolution: TypeAlias = Rerun | Accept | Fail
"""What is to become of an interrupted call."""


@dataclass(frozen=True, slots=True)
class InterruptedCall:
    """A call of a tool, or an iteration of a workflow's node, that was interrupted.

    Attributes:
        name: of the tool or the node.
        call_id: of the call; it names one of several with the same name.
        arguments: as they were written; those of a node have its `iteration`.
        run_id: of the run that made the call: the run that was asked about, or a sub-agent's below
            it, which is resumed with it.
    """

    name: str
    call_id: str
    arguments: Mapping[str, Any]
    run_id: str = ""

    @property
    def id(self) -> str:
        """What names this call among those of all runs of a tree."""
        return f"{self.run_id}/{self.call_id}"


# By arguments of a resume


def resolutions_of(
    rerun: Collection[str], accept: Mapping[str, Any], fail: Mapping[str, str] | Collection[str]
) -> dict[str, Resolution]:
    """Return what to do with the interrupted calls that the arguments of a resume name.

    Args:
        fail: names, or a mapping from names to reasons.

    Raises:
        ConfigError: a name is there twice, or a value cannot be stored.
    """
    found: dict[str, Resolution] = {}
    for option, names in (("rerun", rerun), ("fail", fail)):
        if isinstance(names, str):
            raise ConfigError(
                f"{option}={names!r} is a text.", cure=f"Give names: {option}={{{names!r}}}."
            )
    reasons = (
        cast("Mapping[str, str]", fail) if isinstance(fail, Mapping) else dict.fromkeys(fail, "")
    )
    given: list[tuple[str, Resolution]] = [(name, Rerun()) for name in rerun]
    given += [(name, Accept(_plain(name, value))) for name, value in accept.items()]
    given += [(name, Fail(str(reason))) for name, reason in reasons.items()]
    for name, resolution in given:
        if name in found:
            raise ConfigError(
                f"There are two decisions about {name!r}.",
                cure="Name it in one of rerun, accept and fail.",
            )
        found[name] = resolution
    return found


def _plain(name: str, value: Any) -> Any:
    try:
        return plain_value(value)
    except ValueError as error:
        raise ConfigError(
            f"The value to accept for {name!r} cannot be stored as JSON: {error}",
            cure="Give text, numbers, lists, dicts, dataclasses or pydantic models.",
        ) from error


def plain_value(value: Any) -> Any:
    """Return a value as JSON has it. Raises `ValueError` if JSON cannot hold it."""
    try:
        return from_json(to_json(value))
    except PydanticSerializationError as error:
        raise ValueError(encodable(str(error))) from error


@dataclass(slots=True)
class Decisions:
    """What a resume decides about interrupted calls: of its run, and of sub-agents below it.

    Attributes:
        named: by the names that the resume gives.
        bound: by run and id of the call, once the names are bound; a run above such a call has an
            entry, too.
    """

    named: Mapping[str, Resolution] = field(default_factory=dict[str, Resolution])
    bound: dict[str, dict[str, Resolution]] = field(
        default_factory=dict[str, dict[str, Resolution]]
    )

    async def of(self, store: UserStore, run: Run) -> Mapping[str, Resolution]:
        """Return the decisions about a run's calls, by their ids; each is returned once.

        The first run that asks is the one that is resumed; its call binds the names.

        Raises:
            ConfigError: a name is that of no interrupted call of the run, or of several.
        """
        if self.named:
            self.bound, self.named = await _bind(store, run, self.named), {}
        # A sub-agent may be resumed again meanwhile; then other calls were interrupted.
        return self.bound.pop(run.id, {})


async def _bind(
    store: UserStore, run: Run, resolutions: Mapping[str, Resolution]
) -> dict[str, dict[str, Resolution]]:
    calls = await interrupted_calls(store, run)
    bound: dict[str, dict[str, Resolution]] = {}
    for name, resolution in resolutions.items():
        # A sub-agent's calls may have the same ids as those of the run itself, which come first.
        own = [one for one in calls if (one.run_id, one.call_id) == (run.id, name)]
        meant = own or [one for one in calls if name in (one.id, one.call_id, one.name)]
        if len(meant) != 1 or meant[0].call_id in bound.get(meant[0].run_id, {}):
            raise _unclear(run, name, meant or calls, known=bool(meant))
        bound.setdefault(meant[0].run_id, {})[meant[0].call_id] = resolution
    for one in list(bound):
        above = await store.runs.get(one)
        while above.id != run.id and above.parent_run_id is not None:
            above = await store.runs.get(above.parent_run_id)
            # An entry, though empty, for each run on the way down: it shows that those have to be
            # resumed too.
            bound.setdefault(above.id, {})
    return bound


def _unclear(run: Run, name: str, calls: Sequence[InterruptedCall], *, known: bool) -> ConfigError:
    those = ", ".join(
        f"{one.name} ({one.call_id if one.run_id == run.id else one.id})" for one in calls
    )
    if known:
        return ConfigError(
            f"{name!r} names several interrupted calls of run {run.id}, or one for a second time.",
            cure=f"Name each once, by its id: {those}.",
        )
    return ConfigError(
        f"No interrupted call of run {run.id} is called {name!r}.",
        cure=f"Its interrupted calls are: {those or 'none'}.",
    )


async def interrupted_calls(store: UserStore, run: Run) -> list[InterruptedCall]:
    """Return the calls whose end was not recorded: of a run, then of sub-agents below it.

    Sub-agents count that are resumed with the run, because a call of these made them.
    """
    own = await _own_calls(store, run)
    found, ids = list(own), {one.call_id for one in own}
    # Only a workflow's nodes: a model may give any value as an argument of this name.
    workflow = RunSpec.of(run).workflow
    nodes = {(one.name, one.arguments.get("iteration")) for one in own if workflow}
    for child in await store.runs.list(parent_run_id=run.id, status=ACTIVE, limit=10_000):
        spec = RunSpec.of(child)
        made_by = spec.delegation
        delegated = made_by is not None and made_by.call in ids and not made_by.background
        if delegated or (spec.node and (spec.node, spec.iteration) in nodes):
            found += await interrupted_calls(store, child)
    return found


async def _own_calls(store: UserStore, run: Run) -> list[InterruptedCall]:
    """Return those that the run itself made, in their order."""
    found: dict[object, InterruptedCall] = {}
    if RunSpec.of(run).workflow:
        # A workflow closes its exchanges; its function asks again for what was interrupted.
        head = (await store.threads.get(run.thread_id)).head
        nodes: list[Node] = []
        if head is not None and run.task_id is not None and head >= run.task_id:
            nodes = await store.log.branch(run.thread_id, head, first=run.task_id)
        for node in nodes:
            for row, one in _calls(node, run.id):
                key = one.name, one.arguments.get("iteration")
                # A later call of the same node and iteration: the interruption has been dealt
                # with.
                found.pop(key, None)
                if row.outcome == "interrupted":
                    found[key] = one
    if run.open_node is not None:
        for row, one in _calls(await store.log.node(run.thread_id, run.open_node), run.id):
            if row.status == "started":
                found[one.call_id] = one
    return list(found.values())


def _calls(node: Node, run_id: str) -> Iterable[tuple[CallRow, InterruptedCall]]:
    message = decode_message(node.body) if node.calls else None
    if isinstance(message, AssistantMessage):
        for row, call in zip(node.calls, message.calls, strict=True):
            yield row, InterruptedCall(call.name, call.id, call.arguments, run_id)


def resolved_result(resolution: Accept | Fail) -> ToolResult:
    """Return the result of an interrupted call that does not run again."""
    if isinstance(resolution, Accept):
        return result_of_value(resolution.value)
    says = f" They say: {resolution.reason}" if resolution.reason.strip() else ""
    return ToolResult(encodable(f"{_FAILED}{says}"), outcome="error")


# By answers to questions


def encode_resolution(resolution: Resolution) -> dict[str, Any]:
    """Return a resolution in its stored form. Raises `ValueError` if JSON cannot hold it."""
    match resolution:
        case Rerun():
            return {"resolution": "rerun"}
        case Accept(value):
            return {"resolution": "accept", "value": _stored_value(value)}
        case Fail(reason):
            return {"resolution": "fail", "reason": encodable(reason)}


def _stored_value(value: Any) -> Any:
    plain = plain_value(value)
    try:
        # orjson writes NaN and infinity as null, which is another value.
        same = orjson.loads(orjson.dumps(plain)) == plain
    except TypeError as error:
        raise ValueError(str(error)) from error
    if not same:
        raise ValueError("It has a number that is not finite.")
    return plain


def decode_resolution(answer: Mapping[str, Any]) -> Resolution | None:
    """Return the resolution that an answer holds; None if it holds none."""
    match answer.get("resolution"):
        case "rerun":
            return Rerun()
        case "accept" if "value" in answer:
            return Accept(answer["value"])
        case "fail":
            return Fail(str(answer.get("reason", "")))
        case _:
            return None


async def answered_resolutions(
    store: UserStore, lease: Lease
) -> dict[tuple[int, int], Resolution | None]:
    """Return what was decided since the run was suspended, by node and index of the call.

    None stands for a question that nobody answered in time.  A call that was to run again, and then
    waited for an approval, still is to.
    """
    rows = await store.questions.list(run_id=lease.run_id, limit=10_000)
    return {
        (row.node_id, row.position): _resolution_of(row)
        for row in rows
        # An answer is for the resume that follows it; the call may have run since another one.
        if row.kind in (KIND, "approval")
        and row.position is not None
        and row.status != "withdrawn"
        and row.body.get("epoch") == lease.epoch - 1
    }


def _resolution_of(row: QuestionRow) -> Resolution | None:
    # It was asked before the call was to run again, so its answer stands for that decision.
    if row.kind == "approval":
        return Rerun()
    return decode_resolution(row.answer) if row.status == "answered" else None
