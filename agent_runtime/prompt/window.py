"""The window of recent messages: which nodes stay raw, and what is truncated to fit the model.

Without observational memory this is all the memory there is: between N and 2 N recent messages.
They leave in chunks, because a window that slides at every step breaks the provider's cache at
every step.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from agent_runtime.errors import PromptTooLarge
from agent_runtime.messages import PromptMessage
from agent_runtime.models.tokens import REMEMBERED_CHARS, count_message, count_text
from agent_runtime.prompt import constraints
from agent_runtime.prompt.build import recent_cut, view_of
from agent_runtime.prompt.calendar import Today
from agent_runtime.prompt.constraints import Constraints
from agent_runtime.prompt.context_notes import left_context
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
"""Causes that rewrite the prompt anyway, so that old results are truncated as well."""

CUT_TOKENS = 400
"""Tokens of an old tool result after an activation."""
FAR = 1.2
"""By this factor a part of a text may have fewer tokens than its length lets expect."""
UNCUT_EXCHANGES = 2
"""How many of the newest exchanges keep their results as first sent."""
FITS = 0.85
"""Share of the room above which the guaranteed messages shrink; otherwise they would have to shrink
again within a few steps."""
TARGET = 0.6
"""Share of the room that is filled after the guaranteed messages had to shrink."""
RESULTS_SHARE = 0.2
"""Share of the room for the results of one exchange when they are first sent."""


@dataclass(frozen=True, slots=True)
class PromptLimits:
    """The limits of a prompt.

    Attributes:
        window: the model's context window, in tokens.
        reserve: the tokens of it that are reserved for the answer.
        last_messages: N, the recent messages that stay.
    """

    window: int
    reserve: int
    last_messages: int

    @property
    def limit(self) -> int:
        """The most tokens of a prompt."""
        return self.window - self.reserve


def results_budget(room: PromptLimits, ratio: float) -> int:
    """Return how many of our tokens the results of one exchange may have."""
    # A tiny window still shows the line that names the handle.
    return max(64, int(room.limit * RESULTS_SHARE / ratio))


def overdue(view: View, room: PromptLimits, estimate: int) -> ActivationCause | None:
    """Return why an activation is needed before the next prompt, or None."""
    if estimate > room.limit:
        return "tokens"
    if sum(entry.size for entry in view.entries) > _most(view, room):
        return "messages"
    return None


def _most(view: View, room: PromptLimits) -> int:
    # An exchange of many parallel calls may have more than N messages and is never split, so the
    # ceiling leaves room for the longest one and N others.
    longest = max(_unsplit(view.entries), default=0)
    return max(2 * room.last_messages, room.last_messages + longest)


def _unsplit(entries: tuple[Entry, ...]) -> list[int]:
    """Return the sizes of what leaves as a unit: messages, and exchanges with notes in them."""
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
    today: Today | None = None,
    remembers: bool = False,
    ready: Sequence[Observation] = (),
    standing: Sequence[Observation] = (),
    gaps: Sequence[Gap] = (),
) -> View:
    """Return the view under the next activation.

    With observational memory only observed nodes leave; the view may still exceed the room.

    Args:
        estimate: returns the provider's count for a number of our tokens.
        task: the run's task, shown in front when its node leaves.
        model, prefix: the new model, and the new system prompt and tools, if they change.
        state: the run's current plan, running tasks and open questions.
        required: what the user requires, and the tokens for it; None for no change.
        today: the day, and the time zone of what prompts show; None for no change.
        ready: the observations that replace the oldest raw nodes; `standing` are all from now on.
        gaps: nodes that have left and are in no observation.

    Raises:
        PromptTooLarge: without observational memory, even the last exchange does not fit; the
            message names the longest part.
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
        today=view.start.today if today is None else today,
    )
    plan = _Plan(view, prefix or view.prefix, task, base, room.last_messages, tuple(standing))
    if remembers:
        keep = len(covered(view.entries, ready)[1])
        uncut = 0 if cause == "overflow" else UNCUT_EXCHANGES
        return plan.view(keep, _cuts(plan, keep, uncut) if cause in REWRITES else {**base.cuts})
    keep = _keep_messages(view.entries, room.last_messages)
    goal = int(room.limit * (TARGET if cause == "overflow" else FITS))
    if cause in ("start", "agent", "model", "note"):
        # Not caused by the prompt's length, so nothing leaves that may still stay.
        keep, goal = _keep_messages(view.entries, _most(view, room)), room.limit
    planned = plan.view(keep, {**base.cuts})
    return planned if estimate(planned.tokens) <= goal else _shrink(plan, keep, room, estimate)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What all candidates for the next view have in common."""

    old: View
    prefix: PromptPrefix
    task: Entry | None
    base: ActivationContent
    least: int
    standing: tuple[Observation, ...] = ()

    def view(self, keep: int, cuts: Mapping[str, Truncation]) -> View:
        """Return the view that keeps the entries from index `keep` on."""
        return self._view(keep, cuts, self.old.entries[keep:], rendered=False)

    def less(self, view: View, keep: int) -> View:
        """Return a view of this plan without its entries before index `keep`."""
        kept = view.entries[keep - len(self.old.entries) :]
        return self._view(keep, view.start.cuts, kept, rendered=True)

    def _view(
        self, keep: int, cuts: Mapping[str, Truncation], entries: Sequence[Entry], *, rendered: bool
    ) -> View:
        start, task, context = self._start(keep, cuts)
        anchor = self.old.entries[-1].seq if self.old.entries else None
        number, seen = self.old.activation_id + 1, self._observations
        parts = (start, self.prefix, task, entries, seen, context)
        return view_of(number, anchor, *parts, rendered=rendered)

    @property
    def _observations(self) -> tuple[Observation, ...]:
        return self.standing if self.base.remembers else ()

    def _start(
        self, keep: int, cuts: Mapping[str, Truncation]
    ) -> tuple[ActivationContent, Entry | None, tuple[Entry, ...]]:
        kept, dropped = self.old.entries[keep:], self.old.entries[:keep]
        # If nothing leaves, the raw nodes begin where they did, perhaps at the root.
        first = kept[0].seq if keep else self.old.start.first
        shown = {handle for entry in kept for handle in handles(entry)}
        kept_cuts = {handle: one for handle, one in cuts.items() if handle in shown}
        short = sum(entry.size for entry in kept) < self.least
        pinned = self.task if self.task and not any(e.seq == self.task.seq for e in kept) else None
        # The old view's task was shown in front, so it was not counted as left out.
        left = sum(e.size for e in dropped) + self.base.left_out + (self.old.task is not None)
        # The same holds for the notes in front.
        context = left_context(self.old, first)
        left += len(self.old.context) - len(context)
        task_id = pinned.seq if pinned else None
        start = replace(
            self.base,
            first=first,
            task=task_id,
            left_out=left - (pinned is not None),
            cuts=kept_cuts,
            last_messages=self.least,
            observed=tuple(one.id for one in self._observations),
            constraints=constraints.fit_constraints(
                self.base.constraints, first=first, task=task_id
            ),
            shrunk=first is not None and (short or recent_cut(kept, kept_cuts)),
            context=tuple(one.seq for one in context),
        )
        return start, pinned, context


def _keep_messages(entries: tuple[Entry, ...], count: int) -> int:
    """Return the index from which at least `count` messages, in whole nodes, remain."""
    remaining = 0
    for index in reversed(range(len(entries))):
        remaining += entries[index].size
        if remaining >= count and not _rides(entries, index):
            return index
    return 0


def _rides(entries: tuple[Entry, ...], index: int) -> bool:
    # A note inside of an exchange's last result stays with that exchange.
    return not entries[index].prompt


def _shrink(plan: _Plan, keep: int, room: PromptLimits, estimate: Callable[[int], int]) -> View:
    """Truncate old results, then drop the oldest guaranteed messages, down to the last exchange.

    If that exchange and the messages after it do not fit either, drop it and the oldest of those,
    down to the newest message.
    """
    entries = plan.old.entries
    view = plan.view(keep, _cuts(plan, keep, UNCUT_EXCHANGES))
    if estimate(view.tokens) <= int(room.limit * FITS):
        return view

    def fits(most: int) -> Callable[[int], bool]:
        return lambda first: estimate(plan.less(view, first).tokens) <= most

    # Each node that leaves makes the prompt shorter, so a binary search finds where it fits.
    starts = [keep, *(i for i in range(keep + 1, len(entries)) if not _rides(entries, i))]
    last = max(keep, last_exchange(entries))
    before, behind = [i for i in starts if i <= last], [i for i in starts if i >= last]
    # First as far as the last exchange, down to the target; beyond it only as far as the limit
    # demands.
    index = bisect_left(before, True, key=fits(int(room.limit * TARGET)))
    if index < len(before):
        return plan.less(view, before[index])
    index = bisect_left(behind, True, key=fits(room.limit))
    keep = behind[min(index, len(behind) - 1)]
    view = plan.less(view, keep)
    if estimate(view.tokens) > room.limit:
        # The window became smaller, or the provider now counts more per token of ours.
        # Then even the newest results are truncated.
        view = plan.view(keep, _cuts(plan, keep, 0))
    if estimate(view.tokens) > room.limit:
        raise prompt_too_large(view, room, estimate)
    return view


def last_exchange(entries: Sequence[Entry]) -> int:
    """Return the index of the last exchange, or of the last entry if there is none."""
    for index in reversed(range(len(entries))):
        if entries[index].results:
            return index
    return max(0, len(entries) - 1)


def _cuts(plan: _Plan, keep: int, uncut: int) -> dict[str, Truncation]:
    """Return the current cuts, and new ones of long results before the newest exchanges."""
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
    """Return about how many tokens truncating all long results but the newest would save."""
    # An estimate by length, which is cheap enough for every step.
    exchanges = [entry for entry in view.entries if entry.results]
    return sum(
        max(0, min(len(result.text), entry.shown[index] or len(result.text)) // 4 - CUT_TOKENS)
        for entry in exchanges[: len(exchanges) - UNCUT_EXCHANGES]
        for index, result in enumerate(entry.results)
        if handle_of(entry, index) not in view.start.cuts
    )


def truncation_of(text: str, handle: str, cap: int | None) -> Truncation | None:
    """Return the truncation of a result to about `CUT_TOKENS`; None if it is no longer than that.

    Args:
        cap: the characters to which it was truncated when it was first sent.
    """
    # A token has at least one character, so such a text is not worth counting.
    if len(text) <= CUT_TOKENS:
        return None
    # About four characters a token; fewer in digits, hexadecimal and many scripts.
    chars = CUT_TOKENS * 4
    if len(text) <= REMEMBERED_CHARS:
        # It was counted when it was logged: what is far too long by that needs no count of its own.
        density = count_text(text) / len(text)
        while chars > 100 and chars * density > CUT_TOKENS * FAR:
            chars = chars * 3 // 4
    while chars > 100 and count_text(truncate_text(text, chars, handle)) > CUT_TOKENS:
        chars = chars * 3 // 4
    if chars >= len(text):
        return None
    # Identifiers that the cap already hid were never shown, so they are not listed.
    if cap is not None and cap <= chars:
        return Truncation(chars)
    return Truncation(chars, " ".join(left_out(text, truncate_text(text, chars, handle))))


def prompt_too_large(
    view: View, room: PromptLimits, estimate: Callable[[int], int]
) -> PromptTooLarge:
    """Return the error that names the longest part of the prompt."""
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
        f"are reserved for the answer. The longest part is {name} with about {estimate(tokens):,}.",
        cure="Shorten it, use a model with a larger window, or set AGENT_RUNTIME_CONTEXT_WINDOW "
        "if the window is larger than the runtime assumes.",
    )


def _name(message: PromptMessage) -> str:
    names = {"system": "the system prompt", "user": "a user message", "assistant": "an answer"}
    return names.get(message.role, f"a result of {message.name}")


def covered(
    entries: Sequence[Entry], prepared: Sequence[Observation]
) -> tuple[list[Observation], Sequence[Entry]]:
    """Return the observations that stand for the oldest entries, and those entries.

    Of several observations of one interval the final one wins over provisional ones, then the
    newest.
    """
    by_first: dict[int, Observation] = {}
    # Later ones overwrite earlier ones, so the best comes last.
    for one in sorted(prepared, key=lambda one: (not one.provisional, one.id)):
        by_first[one.first] = one
    places = {entry.seq: place for place, entry in enumerate(entries)}
    chosen: list[Observation] = []
    reached = 0
    while reached < len(entries) and (one := by_first.get(entries[reached].seq)) is not None:
        # It ends on another branch, or beyond the head.
        if one.last not in places:
            break
        chosen.append(one)
        reached = places[one.last] + 1
    return chosen, entries[:reached]
