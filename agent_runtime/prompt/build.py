"""The prompt as a pure function of the log.

`View` is a thread's branch as prompts see it: the newest activation, and the nodes from its first
raw one to the head.  `build_prompt` turns it into a prompt, and `check_prompt` asserts on every
call what the runtime promises of prompts.  Nothing here reads a clock, a store or a setting.
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
from agent_runtime.prompt.fences import masked_entry, masked_tool
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
from agent_runtime_storage.contract.records import Activation, Node

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
    """Return what an activation's row says."""
    return _start().validate_json(row.body), _prefix().validate_json(row.prefix)


def entry_of(node: Node) -> Entry:
    """Return a closed node as an entry that is not rendered yet."""
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
) -> View:
    """Render a branch under an activation; `entries` begin at its first raw node."""
    placed: list[Entry] = []
    for entry in entries:
        _place(placed, entry, start, anchor)
    return view_of_rendered(activation_id, anchor, start, prefix, task, placed, observations)


def view_of_rendered(
    activation_id: int,
    anchor: int | None,
    start: ActivationContent,
    prefix: PromptPrefix,
    task: Entry | None,
    entries: Sequence[Entry],
    observations: Sequence[Observation] = (),
) -> View:
    """Like `view_of`, of entries that look already as they do under this activation."""
    task = None if task is None else masked_entry(task, start.nonce)
    front = render_front(start, prefix, task, observations)
    return View(
        activation_id=activation_id,
        anchor=anchor,
        start=start,
        prefix=prefix,
        task=task,
        front=front,
        front_tokens=sum(map(count_message, front)) + count_tools(prefix.tools),
        entries=tuple(entries),
        observations=tuple(observations),
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
        # An activation renders nodes that are shown already: what looks as before is not recounted.
        entry = replace(entry, prompt=prompt, tokens=sum(map(count_message, prompt)))
    entries.append(entry)


def _keeps_opaque(entry: Entry, start: ActivationContent, anchor: int | None) -> bool:
    """Return whether what a model needs back of a node still holds under this activation."""
    return entry.seq > (anchor or 0) or not is_bound(start.model)


def _place_note(entries: list[Entry], entry: Entry, note: Note, nonce: str) -> None:
    # Inside a tool loop a note rides in the last tool result: some providers refuse a user
    # message there, others drop their reasoning and their cache at it.
    text = fence(note.text, nonce)
    carrier = next((i for i in reversed(range(len(entries))) if entries[i].prompt), None)
    if carrier is None or entries[carrier].prompt[-1].role != "tool":
        prompt = (PromptMessage("user", text),)
        entries.append(replace(entry, prompt=prompt, tokens=count_message(prompt[0])))
        return
    exchange = entries[carrier]
    last = exchange.prompt[-1]
    longer = replace(last, text=f"{last.text}\n\n{text}")
    tokens = count_message(longer) - count_message(last)
    entries[carrier] = replace(
        exchange, prompt=(*exchange.prompt[:-1], longer), tokens=exchange.tokens + tokens
    )
    entries.append(entry)


def build_prompt(view: View, *, cache_marks: int = 0) -> Prompt:
    """Return the prompt of a view, with at most so many cache breakpoints.

    They stand after the last message but one node, and after the last: the last is what the next
    call reads, the one before is what this call reads.  Then, for what stays over an activation,
    after the system prompt, after the observations, and after those that only a reflection
    changes.
    """
    messages = [*view.front]
    ends: list[int] = []
    for entry in view.entries:
        messages.extend(entry.prompt)
        if entry.prompt:
            ends.append(len(messages) - 1)
    wanted = [*reversed(ends[-2:]), 0, *_observed_ends(view)]
    marks = sorted(dict.fromkeys(wanted[:cache_marks]))
    return Prompt(
        activation_id=view.activation_id,
        messages=tuple(messages),
        tools=tuple(masked_tool(tool, view.start.nonce) for tool in view.prefix.tools),
        marks=tuple(marks),
        counted=view.tokens,
    )


def _observed_ends(view: View) -> list[int]:
    """Return the message of the last observation, and of the last reflected one."""
    count = len(view.observations)
    if not count:
        return []
    first = 1 + view.start.repeat_system
    reflected = sum(1 for one in view.observations if one.level)
    ends = [first + count - 1]
    return [*ends, first + reflected - 1] if 0 < reflected < count else ends


# What always holds


def check_prompt(
    view: View,
    prompt: Prompt,
    previous: Prompt | None,
    *,
    estimate: int,
    limit: int,
) -> None:
    """Assert what the runtime promises of every prompt.

    Args:
        previous: the prompt of the call before, if this process made it.
        estimate: how many tokens the provider will count.
        limit: how many it may have.

    Raises:
        InvariantError: a promise is broken: a bug of the runtime, not of its user.
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
    if view.task is not None and any(entry.seq == view.task.seq for entry in entries):
        raise InvariantError(f"the task, node {view.task.seq}, is shown twice")


def _check_observed(view: View) -> None:
    """Assert that what has left is observed once or named as a gap, up to the raw nodes."""
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
    """Assert that the model gets back all that it needs of its own, and nothing of others."""
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
        if old is not new and old != new:
            raise InvariantError(f"message {index} changed without an activation")


def recent_cut(entries: Sequence[Entry], cuts: Collection[str]) -> bool:
    """Return whether a result of the last two exchanges is cut below its exchange's cap."""
    recent = [entry for entry in entries if entry.results][-2:]
    return any(handle in cuts for entry in recent for handle in handles(entry))
