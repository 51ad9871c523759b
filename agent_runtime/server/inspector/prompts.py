"""What a model was sent: the prompts under an activation, part by part, made from the log again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import anyio.to_thread
import orjson

from agent_runtime.errors import NotFound
from agent_runtime.log.branch import read_branch, view_from
from agent_runtime.messages import PromptMessage, call_place
from agent_runtime.models.tokens import count_message, count_tools, load_vocabulary
from agent_runtime.prompt.build import observations_start
from agent_runtime.prompt.fences import masked_tools
from agent_runtime.prompt.view import Entry, View
from agent_runtime.server.inspector.branches import Branch, branch_of
from agent_runtime_storage.contract.records.log import Activation
from agent_runtime_storage.contract.store import UserStore

TEXT_CHARS = 100_000
_HASH_BYTES = 8


@dataclass(slots=True)
class PromptPart:
    """A message of a prompt, or its tool schemas.

    Attributes:
        node: the node that it shows; None before the raw nodes.
        call: of a result, the index of its call.
        observation: the observation that it is.
        tokens: our count.
        notes: the notes that stand inside of it, as at the end of a tool's result.
        text: as it is sent.
        message: None for the tool schemas.
    """

    kind: str
    tokens: int
    hash: str
    text: str
    message: PromptMessage | None = None
    node: int | None = None
    call: int | None = None
    observation: int | None = None
    cut: bool = False
    notes: list[int] = field(default_factory=list[int])

    def to_json(self, index: int) -> dict[str, Any]:
        """Return what the page shows of it; texts of the log are read from there."""
        front = self.node is None and self.observation is None
        return {
            "key": index,
            "kind": self.kind,
            "role": self.message.role if self.message else "",
            "node": self.node,
            "call": self.call,
            "observation": self.observation,
            "tokens": self.tokens,
            "chars": len(self.text),
            "hash": self.hash,
            "text": self.text[:TEXT_CHARS] if front else "",
            "cut": self.cut,
            "notes": self.notes,
        }


@dataclass(frozen=True, slots=True)
class SentPrompt:
    """The longest prompt under an activation on a branch.

    The prompt of the step that node N answers has its parts before N, and all that have no node.
    """

    activation: Activation
    view: View
    parts: tuple[PromptPart, ...]

    def before(self, node: int) -> tuple[PromptPart, ...]:
        """Return the parts of the prompt that a node answers."""
        return tuple(one for one in self.parts if one.node is None or one.node < node)

    def to_json(self) -> dict[str, Any]:
        """Return what the page shows."""
        return {
            "activation": self.activation.id,
            "anchor": self.activation.anchor,
            "first": self.view.start.first,
            "model": self.view.start.model,
            "parts": [part.to_json(index) for index, part in enumerate(self.parts)],
            "counted": self.view.tokens,
        }


async def prompt_under(
    store: UserStore, thread_id: str, activation: int, head: int | None = None
) -> SentPrompt:
    """Return the longest prompt under an activation on a branch.

    Args:
        head: the branch's last closed node; None for the thread's own.

    Raises:
        NotFound: there is no such thread, node or activation on the branch.
    """
    branch = await branch_of(store, thread_id, head)
    rows = await store.inspection.activations(thread_id, [activation])
    on_branch = {None, *(node.seq for node in branch.nodes)}
    if not rows or rows[0].anchor not in on_branch:
        raise NotFound(
            f"Activation {activation} is not on this branch of thread {thread_id}.",
            cure="Read the branch's activations again.",
        )
    newest = await store.log.activation(thread_id, branch.head)
    end = branch.head
    if newest is None or newest.id != activation:
        end = last_prompted(branch, activation) or rows[0].anchor
    found = await read_branch(store, thread_id, rows[0], end)
    view = await anyio.to_thread.run_sync(view_from, found)
    await load_vocabulary()
    parts = await anyio.to_thread.run_sync(lambda: tuple(parts_of(view)))
    return SentPrompt(rows[0], view, parts)


def last_prompted(branch: Branch, activation: int) -> int | None:
    """Return the node before the last answer under an activation; None if there is no answer."""
    answers = [
        node
        for node in branch.nodes
        if node.activation_id == activation and node.role == "assistant"
    ]
    return answers[-1].parent_id if answers else None


def parts_of(view: View) -> Iterator[PromptPart]:
    """Yield the parts of a view's prompt in their order; the tool schemas come first."""
    if view.prefix.tools:
        tools = masked_tools(view.prefix.tools, view.start.nonce)
        text = orjson.dumps(tools).decode()
        yield PromptPart("tools", count_tools(tools), _hash(text.encode()), text)
    begin = observations_start(view)
    end = begin + len(view.observations)
    for index, message in enumerate(view.front):
        if index < begin - len(view.context):
            yield _part("system", message)
        elif index < begin:
            one = view.context[index - begin + len(view.context)]
            yield _part("context", message, notes=[one.seq])
        elif index < end:
            yield _part("observation", message, observation=view.observations[index - begin].id)
        else:
            yield _part("state", message)
    last: PromptPart | None = None
    for entry in view.entries:
        if not entry.prompt and last is not None:
            last.notes.append(entry.seq)
        for part in _raw(entry, view):
            last = part
            yield part


def _raw(entry: Entry, view: View) -> Iterator[PromptPart]:
    for message in entry.prompt:
        kind = "note" if entry.message.type == "note" else message.role
        if message.role != "tool":
            yield _part(kind, message, node=entry.seq)
            continue
        index = call_place(message.call_id)[1]
        capped = index < len(entry.shown) and entry.shown[index] is not None
        cut = capped or message.call_id in view.start.cuts
        yield _part(kind, message, node=entry.seq, call=index, cut=cut)


def _part(
    kind: str,
    message: PromptMessage,
    *,
    node: int | None = None,
    call: int | None = None,
    observation: int | None = None,
    cut: bool = False,
    notes: list[int] | None = None,
) -> PromptPart:
    return PromptPart(
        kind,
        count_message(message),
        _hash(orjson.dumps(message, default=str, option=orjson.OPT_NON_STR_KEYS)),
        message.text,
        message,
        node,
        call,
        observation,
        cut,
        notes or [],
    )


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[: 2 * _HASH_BYTES]
