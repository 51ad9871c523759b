"""Recent messages: which nodes stay raw, and what is cut so that the prompt fits its window.

Without observational memory this is the whole of the memory: at least N recent messages and at
most 2 N, which move in chunks, because a window that slides by one message a step breaks the
provider's cache at every step.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from agent_runtime.errors import PromptTooLarge
from agent_runtime.messages import PromptMessage
from agent_runtime.models.tokens import count_message, count_text
from agent_runtime.prompt import constraints
from agent_runtime.prompt.build import recent_cut, view_of, view_of_rendered
from agent_runtime.prompt.constraints import Constraints
from agent_runtime.prompt.ledger import left_out
from agent_runtime.prompt.observation import Observation
from agent_runtime.prompt.truncate import truncate_text
from agent_runtime.prompt.view import (
    ActivationCause,
    ActivationContent,
    Entry,
    Gap,
    PromptPrefix,
    Truncation,
    View,
    handle_of,
    handles,
)

REWRITES: tuple[ActivationCause, ...] = ("tokens", "overflow", "observed", "price", "late", "idle")
"""Causes at which what stays is sent anew in any case, so that old results are cut as well."""

CUT_TOKENS = 400
"""To how many tokens an old tool result is cut when the prompt has to shrink."""
UNCUT_EXCHANGES = 2
"""How many of the newest exchanges keep their results as they were first sent."""
FITS = 0.85
"""Up to this share of the room the guaranteed messages stay as they are; where they fill more,
they would have to shrink again within a few steps."""
TARGET = 0.6
"""To what share of the room a prompt shrinks when its guaranteed messages do not fit."""
RESULTS_SHARE = 0.2
"""What share of the room the results of one exchange may fill when they are first sent."""


@dataclass(frozen=True, slots=True)
class PromptLimits:
    """What a prompt may fill.

    Attributes:
        window: the model's context window.
        reserve: what is kept free of it for the answer.
        last_messages: N, the recent messages that stay.
    """

    window: int
    reserve: int
    last_messages: int

    @property
    def limit(self) -> int:
        """The most tokens that a prompt may have."""
        return self.window - self.reserve


def results_budget(room: PromptLimits, ratio: float) -> int:
    """Return how many of our tokens the results of one exchange may show."""
    return max(64, int(room.limit * RESULTS_SHARE / ratio))


def overdue(view: View, room: PromptLimits, estimate: int) -> ActivationCause | None:
    """Return why the next prompt needs an activation before it, or None."""
    if estimate > room.limit:
        return "tokens"
    if sum(entry.size for entry in view.entries) > _most(view, room):
        return "messages"
    return None


def _most(view: View, room: PromptLimits) -> int:
    # An exchange of many parallel calls may be longer than N by itself: it is never split, so
    # the ceiling leaves room for one more beside the N that stay.
    longest = max(_unsplit(view.entries), default=0)
    return max(2 * room.last_messages, room.last_messages + longest)


def _unsplit(entries: tuple[Entry, ...]) -> list[int]:
    """Return the sizes of what leaves as a whole: messages, exchanges with the notes in them."""
    sizes: list[int] = []
    for index, entry in enumerate(entries):
        if sizes and _rides(entries, index):
            sizes[-1] += entry.size
        else:
            sizes.append(entry.size)
    return sizes


def plan_activation(
    view: View,
    room: PromptLimits,
    *,
    cause: ActivationCause,
    estimate: Callable[[int], int],
    nonce: str,
    task: Entry | None,
    model: str | None = None,
    prefix: PromptPrefix | None = None,
    repeat_system: bool = False,
    state: str = "",
    required: Constraints | None = None,
    remembers: bool = False,
    ready: Sequence[Observation] = (),
    standing: Sequence[Observation] = (),
    gaps: Sequence[Gap] = (),
) -> View:
    """Return the view under the next activation.

    With observational memory only what observations stand for leaves, so the view may not fit the
    room yet; the caller has more observed then.

    Args:
        estimate: what the provider will count for so many of our tokens.
        task: the run's task, shown in front when its node leaves.
        model: the model from now on, where it changes.
        prefix: the system prompt and tools from now on, where they change.
        state: what is current of the run beside its task.
        required: what the user requires, with the tokens that it may take; None for as before.
        remembers: whether observational memory is on.
        ready: the observations that take the place of the oldest raw nodes.
        standing: all observations from now on, those and the ones before them.
        gaps: what has left and is in none of them.

    Raises:
        PromptTooLarge: without observational memory, even the last exchange does not fit; the
            message names what is too long.
    """
    base = replace(
        view.start,
        nonce=nonce,
        model=view.start.model if model is None else model,
        repeat_system=repeat_system,
        remembers=remembers,
        gaps=tuple(gaps),
        state=state,
        constraints=view.start.constraints if required is None else required,
    )
    plan = _Plan(view, prefix or view.prefix, task, base, room.last_messages, tuple(standing))
    if remembers:
        keep = len(covered(view.entries, ready)[1])
        uncut = 0 if cause == "overflow" else UNCUT_EXCHANGES
        return plan.view(keep, _cuts(plan, keep, uncut) if cause in REWRITES else {**base.cuts})
    keep = _keep_messages(view.entries, room.last_messages)
    goal = int(room.limit * (TARGET if cause == "overflow" else FITS))
    if cause in ("start", "agent", "note"):
        keep, goal = _keep_messages(view.entries, _most(view, room)), room.limit
    planned = plan.view(keep, {**base.cuts})
    if estimate(planned.tokens) <= goal:
        return planned
    return _shrink(plan, keep, room, estimate)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What every candidate for the next view has in common."""

    old: View
    prefix: PromptPrefix
    task: Entry | None
    base: ActivationContent
    least: int
    standing: tuple[Observation, ...] = ()

    def view(self, keep: int, cuts: Mapping[str, Truncation]) -> View:
        """Return the view that keeps the entries from index `keep` on."""
        start, pinned = self._start(keep, cuts)
        kept = self.old.entries[keep:]
        return view_of(self._id, self._anchor, start, self.prefix, pinned, kept, self._observations)

    def less(self, view: View, keep: int) -> View:
        """Return a view of this plan with its entries only from index `keep` on."""
        start, pinned = self._start(keep, view.start.cuts)
        kept = view.entries[keep - len(self.old.entries) :]
        return view_of_rendered(
            self._id, self._anchor, start, self.prefix, pinned, kept, self._observations
        )

    @property
    def _observations(self) -> tuple[Observation, ...]:
        return self.standing if self.base.remembers else ()

    @property
    def _id(self) -> int:
        return self.old.activation_id + 1

    @property
    def _anchor(self) -> int | None:
        return self.old.entries[-1].seq if self.old.entries else None

    def _start(
        self, keep: int, cuts: Mapping[str, Truncation]
    ) -> tuple[ActivationContent, Entry | None]:
        kept, dropped = self.old.entries[keep:], self.old.entries[:keep]
        first = kept[0].seq if keep else self.old.start.first
        shown = {handle for entry in kept for handle in handles(entry)}
        kept_cuts = {handle: one for handle, one in cuts.items() if handle in shown}
        short = sum(entry.size for entry in kept) < self.least
        pinned = self.task if self.task and not any(e.seq == self.task.seq for e in kept) else None
        gone = sum(e.size for e in dropped) + self.base.left_out + (self.old.task is not None)
        task_id = pinned.seq if pinned else None
        start = replace(
            self.base,
            first=first,
            task=task_id,
            left_out=gone - (pinned is not None),
            cuts=kept_cuts,
            last_messages=self.least,
            observed=tuple(one.id for one in self._observations),
            constraints=constraints.fit_constraints(
                self.base.constraints, first=first, task=task_id
            ),
            shrunk=first is not None and (short or recent_cut(kept, kept_cuts)),
        )
        return start, pinned


def _keep_messages(entries: tuple[Entry, ...], count: int) -> int:
    """Return the index from which at least `count` messages, in whole nodes, remain."""
    remaining = 0
    for index in reversed(range(len(entries))):
        remaining += entries[index].size
        if remaining >= count and not _rides(entries, index):
            return index
    return 0


def _rides(entries: tuple[Entry, ...], index: int) -> bool:
    # A note that rides in an exchange's last result stays with that exchange.
    return not entries[index].prompt


def _shrink(plan: _Plan, keep: int, room: PromptLimits, estimate: Callable[[int], int]) -> View:
    """Cut old results, then let the guaranteed messages go, down to the last exchange.

    What was said after it stays with it, unless all together do not fit; then they go as well,
    down to the newest message.
    """
    entries = plan.old.entries
    view = plan.view(keep, _cuts(plan, keep, UNCUT_EXCHANGES))
    if estimate(view.tokens) <= int(room.limit * FITS):
        return view

    def fits(most: int) -> Callable[[int], bool]:
        return lambda first: estimate(plan.less(view, first).tokens) <= most

    # A prompt becomes shorter with each node that leaves, so where it fits is found by halving.
    starts = [keep, *(i for i in range(keep + 1, len(entries)) if not _rides(entries, i))]
    last = max(keep, last_exchange(entries))
    before, behind = [i for i in starts if i <= last], [i for i in starts if i >= last]
    found = bisect_left(before, True, key=fits(int(room.limit * TARGET)))
    if found < len(before):
        return plan.less(view, before[found])
    found = bisect_left(behind, True, key=fits(room.limit))
    keep = behind[min(found, len(behind) - 1)]
    view = plan.less(view, keep)
    if estimate(view.tokens) > room.limit:
        # The window became smaller, or the provider counts more than it did.
        view = plan.view(keep, _cuts(plan, keep, 0))
    if estimate(view.tokens) > room.limit:
        raise prompt_too_large(view, room, estimate)
    return view


def last_exchange(entries: Sequence[Entry]) -> int:
    """Return the place of the last exchange; of the last entry if there is none."""
    for index in reversed(range(len(entries))):
        if entries[index].results:
            return index
    return max(0, len(entries) - 1)


def _cuts(plan: _Plan, keep: int, uncut: int) -> dict[str, Truncation]:
    """Return the cuts in force with those of every long result before the newest exchanges."""
    cuts = dict(plan.base.cuts)
    exchanges = [entry for entry in plan.old.entries[keep:] if entry.results]
    for entry in exchanges[: len(exchanges) - uncut]:
        for index, result in enumerate(entry.results):
            handle = handle_of(entry, index)
            if handle not in cuts and (
                one := truncation_of(result.text, handle, entry.shown[index])
            ):
                cuts[handle] = one
    return cuts


def saved_by_cuts(view: View) -> int:
    """Return about how many tokens it would save to cut every long result but the newest ones."""
    exchanges = [entry for entry in view.entries if entry.results]
    return sum(
        max(0, min(len(result.text), entry.shown[index] or len(result.text)) // 4 - CUT_TOKENS)
        for entry in exchanges[: len(exchanges) - UNCUT_EXCHANGES]
        for index, result in enumerate(entry.results)
        if handle_of(entry, index) not in view.start.cuts
    )


def truncation_of(text: str, handle: str, cap: int | None) -> Truncation | None:
    """Return the cut after which a result has about `CUT_TOKENS`; None if it has no more.

    Args:
        cap: to how many characters it was cut when it was first sent.
    """
    if len(text) <= CUT_TOKENS:
        return None
    chars = CUT_TOKENS * 4
    while chars > 100 and count_text(truncate_text(text, chars, handle)) > CUT_TOKENS:
        chars = chars * 3 // 4
    if chars >= len(text):
        return None
    # What its exchange's cap never showed leaves nothing behind.
    if cap is not None and cap <= chars:
        return Truncation(chars)
    return Truncation(chars, " ".join(left_out(text, truncate_text(text, chars, handle))))


def prompt_too_large(
    view: View, room: PromptLimits, estimate: Callable[[int], int]
) -> PromptTooLarge:
    """Return the error that names what fills the window most."""
    parts: list[tuple[int, str]] = [
        (count_message(message), _name(message)) for message in view.front
    ]
    parts.append((view.front_tokens - sum(tokens for tokens, _ in parts), "the tool schemas"))
    parts += [
        (count_message(message), f"{_name(message)} of node {entry.seq}")
        for entry in view.entries
        for message in entry.prompt
    ]
    tokens, name = max(parts)
    return PromptTooLarge(
        f"The prompt needs about {estimate(view.tokens):,} tokens, but the window of "
        f"{view.start.model or 'the model'} is {room.window:,} tokens, of which {room.reserve:,} "
        f"are kept for the answer. The longest part is {name} with about {estimate(tokens):,}.",
        cure="Shorten it, use a model with a larger window, or set AGENT_RUNTIME_CONTEXT_WINDOW "
        "if the window is larger than the runtime believes.",
    )


def _name(message: PromptMessage) -> str:
    names = {"system": "the system prompt", "user": "a user message", "assistant": "an answer"}
    return names.get(message.role, f"a result of {message.name}")


def covered(
    entries: Sequence[Entry], prepared: Sequence[Observation]
) -> tuple[list[Observation], Sequence[Entry]]:
    """Return the observations that stand for the front of the entries, and the entries they do.

    Where several stand for the same interval, the one that is not provisional counts, then the
    newest.
    """
    by_first: dict[int, Observation] = {}
    for one in sorted(prepared, key=lambda one: (not one.provisional, one.id)):
        by_first[one.first] = one
    places = {entry.seq: place for place, entry in enumerate(entries)}
    found: list[Observation] = []
    reached = 0
    while reached < len(entries) and (one := by_first.get(entries[reached].seq)) is not None:
        if one.last not in places:
            break
        found.append(one)
        reached = places[one.last] + 1
    return found, entries[:reached]
