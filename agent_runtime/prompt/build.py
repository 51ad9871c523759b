"""The prompt as a pure function of the log.

A `View` is a thread's branch under its newest activation, from the first raw node to the head.
`build_prompt` turns it into a prompt, and `check_prompt` asserts the invariants of prompts before
every call.  Nothing here reads a clock, a store or a setting.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from agent_runtime.errors import InvariantError
from agent_runtime.messages import (
    AssistantMessage,
    Note,
    PromptMessage,
    decode_message,
    decode_result,
)
from agent_runtime.models.reasoning_replay import is_bound
from agent_runtime.models.tokens import count_message, count_tools
from agent_runtime.prompt.fences import masked_entry, masked_tools
from agent_runtime.prompt.observation import Observation
from agent_runtime.prompt.render import fence, is_of, render_entry, render_front
from agent_runtime.prompt.view import (
    ActivationContent,
    Entry,
    Gap,
    Prompt,
    PromptPrefix,
    View,
    handles,
)
from agent_runtime_storage.contract.records.log import Activation, Node

if TYPE_CHECKING:
    from pydantic import TypeAdapter


# From rows


@functools.cache
def _start() -> TypeAdapter[ActivationContent]:
    from pydantic import TypeAdapter

    return TypeAdapter(ActivationContent)


@functools.cache
def _prefix() -> TypeAdapter[PromptPrefix]:
    from pydantic import TypeAdapter

    return TypeAdapter(PromptPrefix)


def encode_start(start: ActivationContent) -> bytes:
    """Return the body of an activation's row."""
    return _start().dump_json(start)


def encode_prefix(prefix: PromptPrefix) -> bytes:
    """Return the prefix of an activation's row."""
    return _prefix().dump_json(prefix)


def decode_activation(row: Activation) -> tuple[ActivationContent, PromptPrefix]:
    """Return the content and prefix of an activation's row."""
    return _start().validate_json(row.body), _prefix().validate_json(row.prefix)


def entry_of(node: Node) -> Entry:
    """Return a closed node as an entry, not rendered yet."""
    return Entry(
        seq=node.seq,
        parent_id=node.parent_id,
        message=decode_message(node.body),
        results=tuple(decode_result(call.body) for call in node.calls),
        shown=tuple(call.shown for call in node.calls),
        at=node.created_at,
    )


def view_of(
    activation_id: int,
    anchor: int | None,
    start: ActivationContent,
    prefix: PromptPrefix,
    task: Entry | None,
    entries: Sequence[Entry],
    observations: Sequence[Observation] = (),
    context: Sequence[Entry] = (),
    *,
    rendered: bool = False,
) -> View:
    """Return the view of a branch under an activation.

    Args:
        context: the notes that stand in front.
        entries: from the activation's first raw node to the head.
        rendered: whether the entries are already rendered under this activation.
    """
    placed = list(entries) if rendered else []
    for entry in () if rendered else entries:
        _place(placed, entry, start, anchor)
    # Nodes before the raw ones are not masked yet; these are shown from such nodes.
    task = None if task is None else masked_entry(task, start.nonce)
    context = tuple(masked_entry(one, start.nonce) for one in context)
    front = render_front(start, prefix, task, observations, context)
    return View(
        activation_id=activation_id,
        anchor=anchor,
        start=start,
        prefix=prefix,
        task=task,
        front=front,
        front_tokens=sum(map(count_message, front)) + count_tools(prefix.tools),
        entries=tuple(placed),
        observations=tuple(observations),
        context=context,
    )


def extend_view(view: View, entry: Entry) -> View:
    """Return the view with one more node at its head."""
    entries = list(view.entries)
    _place(entries, entry, view.start, view.anchor)
    return replace(view, entries=tuple(entries))


def _place(
    entries: list[Entry], entry: Entry, start: ActivationContent, anchor: int | None
) -> None:
    entry = masked_entry(entry, start.nonce)
    if isinstance(entry.message, Note):
        _place_note(entries, entry, entry.message, start.nonce)
        return
    prompt = render_entry(entry, start, keep_opaque=_keeps_opaque(entry, start, anchor))
    if prompt != entry.prompt:
        # At an activation most nodes look as before; their tokens are not counted again.
        entry = replace(entry, prompt=prompt, tokens=sum(map(count_message, prompt)))
    entries.append(entry)


def _keeps_opaque(entry: Entry, start: ActivationContent, anchor: int | None) -> bool:
    """Return whether a node's opaque parts are still valid under this activation."""
    # Models that check them would refuse those whose preceding messages have changed.
    return entry.seq > (anchor or 0) or not is_bound(start.model)


def _place_note(entries: list[Entry], entry: Entry, note: Note, nonce: str) -> None:
    # Inside a tool loop a note goes into the last tool result, because some providers refuse a user
    # message there, and others drop their reasoning and their cache.
    text = fence(note.text, nonce)
    # Several notes may follow one result; those before this one have no messages of their own.
    carrier = next((i for i in reversed(range(len(entries))) if entries[i].prompt), None)
    if carrier is None or entries[carrier].prompt[-1].role != "tool":
        prompt = (PromptMessage("user", text),)
        entries.append(replace(entry, prompt=prompt, tokens=count_message(prompt[0])))
        return
    exchange = entries[carrier]
    last = exchange.prompt[-1]
    longer = replace(last, text=f"{last.text}\n\n{text}")
    # Only the difference: the exchange may have many long results.
    tokens = count_message(longer) - count_message(last)
    entries[carrier] = replace(
        exchange, prompt=(*exchange.prompt[:-1], longer), tokens=exchange.tokens + tokens
    )
    entries.append(entry)


def build_prompt(view: View, *, cache_marks: int = 0) -> Prompt:
    """Return the prompt of a view.

    Args:
        cache_marks: the most cache breakpoints.  The first two are after the last node (read by the
            next call) and the one before it (read by this call).  The others outlast an activation:
            after the system prompt, the observations, and the reflected observations.
    """
    messages = [*view.front]
    ends: list[int] = []
    for entry in view.entries:
        messages.extend(entry.prompt)
        if entry.prompt:
            ends.append(len(messages) - 1)
    # By value: a provider with fewer marks gets the first of these.
    wanted = [*reversed(ends[-2:]), 0, *_observed_ends(view)]
    marks = sorted(dict.fromkeys(wanted[:cache_marks]))
    return Prompt(
        activation_id=view.activation_id,
        messages=tuple(messages),
        tools=masked_tools(view.prefix.tools, view.start.nonce),
        marks=tuple(marks),
        counted=view.tokens,
    )


def observations_start(view: View) -> int:
    """Return the index of the first observation in a view's front."""
    return 1 + view.start.repeat_system + len(view.context)


def _observed_ends(view: View) -> list[int]:
    """Return the indices of the last observation and of the last reflected one."""
    count = len(view.observations)
    if not count:
        return []
    first = observations_start(view)
    # Reflected ones stand first, since they replace the oldest.
    reflected = sum(1 for one in view.observations if one.level)
    ends = [first + count - 1]
    return [*ends, first + reflected - 1] if 0 < reflected < count else ends


# Invariants


def check_prompt(
    view: View,
    prompt: Prompt,
    previous: Prompt | None,
    *,
    estimate: int,
    limit: int,
) -> None:
    """Assert the invariants of a prompt.

    Args:
        previous: the prompt of the call before, if this process made it.
        estimate: the tokens that the provider will count.
        limit: the most tokens.

    Raises:
        InvariantError: one does not hold, which is a bug of the runtime.
    """
    if estimate > limit:
        raise InvariantError(f"the prompt has about {estimate} tokens, the limit is {limit}")
    _check_coverage(view)
    _check_recent(view)
    _check_pairs(prompt.messages)
    _check_opaque(view)
    if previous is not None and previous.activation_id == prompt.activation_id:
        _check_extension(previous, prompt)


def _check_coverage(view: View) -> None:
    entries = view.entries
    _check_observed(view)
    if entries and view.start.first is not None and entries[0].seq != view.start.first:
        raise InvariantError(
            f"the raw nodes begin at {entries[0].seq}, the activation says {view.start.first}"
        )
    if entries and view.start.first is None and entries[0].parent_id is not None:
        raise InvariantError(f"node {entries[0].seq} is no root, but nothing stands before it")
    for before, after in itertools.pairwise(entries):
        if after.parent_id != before.seq:
            raise InvariantError(
                f"node {after.seq} follows {before.seq}, but its parent is {after.parent_id}"
            )
    if tuple(one.seq for one in view.context) != view.start.context:
        raise InvariantError(
            f"the activation keeps the notes {view.start.context} in front, "
            f"there are {tuple(one.seq for one in view.context)}"
        )
    if view.task is not None and any(entry.seq == view.task.seq for entry in entries):
        raise InvariantError(f"the task, node {view.task.seq}, is shown twice")


def _check_observed(view: View) -> None:
    """Assert that every node before the raw ones is in one observation or one gap."""
    seen = view.observations
    if tuple(one.id for one in seen) != view.start.observed:
        raise InvariantError(
            f"the activation names the observations {view.start.observed}, "
            f"there are {tuple(one.id for one in seen)}"
        )
    if not (seen or view.start.remembers):
        return
    reached: int | None = None
    for one in sorted((*seen, *view.start.gaps), key=lambda one: one.first):
        if one.parent_id != reached:
            what = "what is left out" if isinstance(one, Gap) else f"observation {one.id}"
            raise InvariantError(
                f"{what} begins after node {one.parent_id}, what is before it ends at {reached}"
            )
        reached = one.last
    if view.entries and view.entries[0].parent_id != reached:
        raise InvariantError(
            f"the raw nodes begin after node {view.entries[0].parent_id}, "
            f"what stands for those before them ends at {reached}"
        )


def _check_recent(view: View) -> None:
    # A short thread, all of it raw, has fewer messages.
    if view.start.shrunk or view.start.first is None:
        return
    size = sum(entry.size for entry in view.entries)
    if size < view.start.last_messages:
        raise InvariantError(
            f"only {size} recent messages are there, not {view.start.last_messages}"
        )
    if recent_cut(view.entries, view.start.cuts):
        raise InvariantError("a result of the last two exchanges was cut again")


def _check_pairs(messages: Sequence[PromptMessage]) -> None:
    waiting: list[str] = []
    seen: set[str] = set()
    for message in messages:
        if message.role == "tool":
            if not waiting or waiting[0] != message.call_id:
                raise InvariantError(f"result {message.call_id!r} has no call before it")
            # In order: some providers match results to calls by their places.
            waiting.pop(0)
            continue
        if waiting:
            raise InvariantError(f"call {waiting[0]!r} has no result")
        waiting = [call.id for call in message.calls]
        if seen.intersection(waiting):
            raise InvariantError("two calls of a prompt have the same id")
        seen.update(waiting)
    if waiting:
        raise InvariantError(f"call {waiting[0]!r} has no result")


def _check_opaque(view: View) -> None:
    """Assert that the model gets all of its own opaque parts, and none of other models."""
    model = view.start.model
    for entry in view.entries:
        if not isinstance(entry.message, AssistantMessage):
            continue
        made = entry.message.opaque
        due = is_of(made, model) and _keeps_opaque(entry, view.start, view.anchor)
        if entry.prompt[0].opaque != (made if due else None):
            what = "is missing from" if due else "must not be in"
            raise InvariantError(f"what {model} keeps of node {entry.seq} {what} the prompt")


def _check_extension(previous: Prompt, prompt: Prompt) -> None:
    if previous.tools != prompt.tools:
        raise InvariantError("the tool schemas changed without an activation")
    if len(prompt.messages) < len(previous.messages):
        raise InvariantError("the prompt became shorter without an activation")
    for index, (old, new) in enumerate(zip(previous.messages, prompt.messages, strict=False)):
        # Identity first: most messages are the same objects, and comparing long texts takes time.
        if old is not new and old != new:
            raise InvariantError(f"message {index} changed without an activation")


def recent_cut(entries: Sequence[Entry], cuts: Collection[str]) -> bool:
    """Return whether a result of the last two exchanges is truncated below its exchange's cap."""
    recent = [entry for entry in entries if entry.results][-2:]
    return any(handle in cuts for entry in recent for handle in handles(entry))
