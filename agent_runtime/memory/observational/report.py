"""A report of what a thread's memory holds; read only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from agent_runtime.log.branch import load_view, observation_of
from agent_runtime.memory.observational.thresholds import MemoryThresholds
from agent_runtime.models.tokens import count_message
from agent_runtime.prompt.build import observations_start
from agent_runtime.prompt.observation import Archive, Observation
from agent_runtime.prompt.view import View, handle_of, handles
from agent_runtime_storage.contract.records.observations import ObservationRow
from agent_runtime_storage.contract.records.usage import UsageTotal
from agent_runtime_storage.contract.store import UserStore

STEP = "step"
"""The purpose of the usage of the run's own model calls."""

ObservationPlace = Literal["active", "prepared", "replaced", "elsewhere"]
"""Where an observation is: in prompts, ready for the next activation, replaced by another one, or
on another branch of the thread."""


@dataclass(frozen=True, slots=True)
class ReportedObservation:
    """An observation of the thread.

    Attributes:
        tokens: its tokens in a prompt.
        of: tokens of the messages that it replaces, as they were first sent.
        created_at: in seconds since the epoch.
    """

    observation: Observation
    place: ObservationPlace
    tokens: int
    of: int
    created_at: float

    @property
    def ratio(self) -> float:
        """How many times smaller it is than what it replaces."""
        return self.of / max(1, self.tokens)


@dataclass(frozen=True, slots=True)
class CurrentActivation:
    """The activation in force."""

    id: int
    cause: str
    anchor: int | None
    created_at: float


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """Tokens of the parts of the next prompt."""

    system: int
    tools: int
    observations: int
    state: int
    raw: int

    @property
    def total(self) -> int:
        """Tokens of the whole prompt."""
        return self.system + self.tools + self.observations + self.state + self.raw


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What the next prompt does not show of the branch.

    Attributes:
        messages: how many left the prompt; observations stand for them, except for the gaps.
        gaps: stretches that no observation stands for yet, each by its first and last node.
        shortened: handles of results that are shown in part.
        constraints: how many of the user's requirements are only named, or only in the log.
        archived: what the observations only point to.
    """

    messages: int = 0
    gaps: tuple[tuple[int, int], ...] = ()
    shortened: tuple[str, ...] = ()
    constraints: int = 0
    archived: tuple[Archive, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """The state of a thread's memory; tokens are estimates of the provider's count.

    Attributes:
        on: whether observational memory is on, by the settings.
        observe_at: T, of raw messages.
        reflect_at: R, of observations.
        ratio: the provider's tokens per token of our count.
        activation: None on a thread without one.
        left_out: what it does not show.
        held: every observation of the thread, in the order of the log.
        task: what the agent was working on, by the newest observation of the branch.
        ledger: the identifiers that the active observations list.
        usage: what memory has spent on this thread, by purpose.
    """

    thread_id: str
    on: bool
    observe_at: int
    reflect_at: int
    ratio: float
    activation: CurrentActivation | None
    tokens: PromptTokens
    left_out: LeftOut
    held: tuple[ReportedObservation, ...]
    task: str
    next_step: str
    ledger: tuple[str, ...]
    usage: Mapping[str, UsageTotal]

    def at(self, *places: ObservationPlace) -> list[ReportedObservation]:
        """Return the observations at these places."""
        return [one for one in self.held if one.place in places]


async def memory_report(
    store: UserStore, thread_id: str, thresholds: MemoryThresholds, ratio: float, *, on: bool
) -> MemoryReport:
    """Read the state of a thread's memory.

    Raises:
        NotFound: there is no such thread.
    """
    thread = await store.threads.get(thread_id)
    row = await store.log.activation(thread_id, thread.head)
    view = await load_view(store, thread_id, thread.head)
    rows = await store.log.observations(thread_id, ending_from=0)
    places = await _places(store, thread_id, thread.head, view, rows)
    sizes = await _sizes(store, thread_id, rows)
    held = [
        ReportedObservation(
            observation=observation_of(one),
            place=places[one.id],
            tokens=round(one.tokens * ratio),
            of=round(sizes[one.id] * ratio),
            created_at=one.created_at,
        )
        for one in rows
    ]
    held.sort(key=lambda one: (one.observation.first, -one.observation.level, one.observation.id))
    standing = [one.observation for one in held if one.place in ("active", "prepared")]
    spent = await store.spending.usage_by_purpose(thread_id=thread_id)
    return MemoryReport(
        thread_id=thread_id,
        on=on,
        observe_at=thresholds.observe,
        reflect_at=thresholds.reflect,
        ratio=ratio,
        activation=row and CurrentActivation(row.id, row.cause, row.anchor, row.created_at),
        tokens=prompt_tokens(view, ratio),
        left_out=_left_out(view),
        held=tuple(held),
        task=_newest(one.notes.task for one in standing),
        next_step=_newest(one.notes.next_step for one in standing),
        ledger=tuple(name for one in view.observations for name in one.ledger),
        usage={name: one for name, one in spent.items() if name != STEP},
    )


def prompt_tokens(view: View, ratio: float) -> PromptTokens:
    """Return the tokens of the parts of a view's prompt: our count times `ratio`."""
    begin = observations_start(view)
    end = begin + len(view.observations)
    observations = sum(map(count_message, view.front[begin:end]))
    system, state = (
        sum(map(count_message, part)) for part in (view.front[:begin], view.front[end:])
    )
    return PromptTokens(
        system=round(system * ratio),
        tools=round((view.front_tokens - system - observations - state) * ratio),
        observations=round(observations * ratio),
        state=round(state * ratio),
        raw=round(sum(entry.tokens for entry in view.entries) * ratio),
    )


def _left_out(view: View) -> LeftOut:
    start = view.start
    named = sum(not one.whole for one in start.constraints.items) + start.constraints.dropped
    raw = {handle for entry in view.entries for handle in handles(entry)}
    capped = {
        handle_of(entry, index)
        for entry in view.entries
        for index, shown in enumerate(entry.shown)
        if shown is not None and shown < len(entry.results[index].text)
    }
    return LeftOut(
        messages=start.left_out,
        gaps=tuple((gap.first, gap.last) for gap in start.gaps),
        shortened=tuple(sorted((raw & start.cuts.keys()) | capped)),
        constraints=named,
        archived=tuple(one.archive for one in view.observations if one.archive),
    )


async def _places(
    store: UserStore,
    thread_id: str,
    head: int | None,
    view: View,
    rows: Sequence[ObservationRow],
) -> dict[int, ObservationPlace]:
    first = min((one.first for one in rows), default=0)
    branch = [] if head is None else await store.log.lineage(thread_id, head, first=first)
    on_branch = frozenset(branch)
    active = {one.id: one for one in view.observations}
    raw = view.entries[0].seq if view.entries else None
    known = {one.id: one for one in rows}
    replaced = set(_parts(active, known))
    # A reflection of reflections replaces them even before it is active.
    condensed = {part for one in rows if one.last in on_branch for part in one.parts}

    def place(one: ObservationRow) -> ObservationPlace:
        if one.id in active:
            return "active"
        if one.last not in on_branch:
            return "elsewhere"
        if one.id in replaced:
            return "replaced"
        if not one.level and raw is not None and one.first >= raw:
            return "prepared"
        if not one.level and not any(
            each.first <= one.first <= each.last for each in active.values()
        ):
            # It left the prompt when memory was turned off, and returns with it.
            return "prepared"
        if one.level and one.id in condensed:
            return "replaced"
        # It replaces what is active: a provisional observation, or several.
        again = any(_same(one, each) and each.provisional for each in active.values())
        inside = bool(one.parts) and all(part not in replaced for part in one.parts)
        return "prepared" if (again and not one.provisional) or inside else "replaced"

    return {one.id: place(one) for one in rows}


def _parts(ids: Iterable[int], known: Mapping[int, ObservationRow]) -> Iterable[int]:
    """Yield the ids that these observations replaced, directly or through others."""
    for identity in ids:
        parts = known[identity].parts
        yield from parts
        yield from _parts(parts, known)


def _same(one: ObservationRow, other: Observation) -> bool:
    return (one.level, one.first, one.last) == (other.level, other.first, other.last)


async def _sizes(
    store: UserStore, thread_id: str, rows: Sequence[ObservationRow]
) -> dict[int, int]:
    """Return, for each observation, the tokens of the messages that it replaces."""
    sizes: dict[int, int] = {}
    intervals: dict[tuple[int, int], int] = {}
    # Parts before what they became, so that their sizes are known.
    for one in sorted(rows, key=lambda one: one.level):
        interval = one.first, one.last
        if interval not in intervals:
            if one.parts:
                intervals[interval] = sum(sizes[part] for part in one.parts)
            else:
                nodes = await store.log.branch(thread_id, one.last, first=one.first)
                intervals[interval] = sum(node.tokens for node in nodes)
        sizes[one.id] = intervals[interval]
    return sizes


def _newest(texts: Iterable[str]) -> str:
    return next((text for text in reversed(list(texts)) if text), "")
