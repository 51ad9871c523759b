"""Turns: a user's message and everything up to the next one; included whole or not at all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from typing import TypeVar

import anyio.to_thread

from agent_runtime.agent import RolePrefix
from agent_runtime.files.references import FilePolicy, resolve_files
from agent_runtime.messages import PromptMessage
from agent_runtime.models.tokens import count_message, placeholder
from agent_runtime_storage.contract.records.files import FileKind
from agent_runtime_storage.contract.store import UserStore

COUNT_IN_THREAD = 100_000
"""Characters above which a turn is counted in a worker thread."""

T = TypeVar("T")


def turns_of(items: Sequence[T], *, begins: Callable[[T], bool]) -> list[list[T]]:
    """Group items into turns; those before the first beginning are a turn too."""
    turns: list[list[T]] = []
    for item in items:
        if begins(item) or not turns:
            turns.append([])
        turns[-1].append(item)
    return turns


class History(list[PromptMessage]):
    """Messages of the newest whole turns, oldest first.

    Attributes:
        left_out: the number of older turns that did not fit the limits.
    """

    left_out: int = 0


async def newest_turns(
    turns: Sequence[T],
    show: Callable[[T], Awaitable[list[PromptMessage]]],
    *,
    max_tokens: int,
    max_messages: int,
    takes: Collection[FileKind] | None = None,
) -> History:
    """Return the newest turns that fit both limits, oldest first.

    It stops at the first turn that does not fit, so the history has no gap.

    Args:
        show: called once for each turn, from the newest on.
        takes: the kinds of files that are sent, None for all; the others are counted as the lines
            that name them.
    """
    fitting: list[list[PromptMessage]] = []
    for turn in reversed(turns):
        shown = await show(turn)
        # Messages before tokens: counting is the expensive check.
        max_messages -= len(shown)
        if max_messages < 0:
            break
        max_tokens -= await _count(shown, takes)
        if max_tokens < 0:
            break
        fitting.append(shown)
    history = History(one for shown in reversed(fitting) for one in shown)
    history.left_out = len(turns) - len(fitting)
    return history


async def _count(shown: Sequence[PromptMessage], takes: Collection[FileKind] | None) -> int:
    def as_sent(one: PromptMessage) -> PromptMessage:
        if takes is None or not one.files:
            return one
        # A file costs many tokens and the line that names it a few: files that are not sent must
        # not use up the limit.
        sent = tuple(file for file in one.files if file.kind in takes)
        named = tuple(file for file in one.files if file.kind not in takes)
        return replace(in_words(replace(one, files=named)), files=sent)

    def count() -> int:
        return sum(count_message(as_sent(one)) for one in shown)

    if sum(len(one.text) for one in shown) > COUNT_IN_THREAD:
        return await anyio.to_thread.run_sync(count)
    return count()


async def with_files(store: UserStore, message: PromptMessage, policy: FilePolicy) -> PromptMessage:
    """Return a message with its files resolved; a line of text replaces those not shown."""
    if not message.files:
        return message
    resolved = await resolve_files(store, message.files, policy)
    named = [placeholder(one.file, one.problem) for one in resolved if one.problem]
    shown = tuple(one.file for one in resolved if not one.problem)
    return replace(message, text="\n".join(filter(None, [message.text, *named])), files=shown)


def in_words(message: PromptMessage) -> PromptMessage:
    """Return a message with a line of text for each of its files."""
    named = [placeholder(file) for file in message.files]
    return replace(message, text="\n".join(filter(None, [message.text, *named])), files=())


def as_text(messages: Sequence[PromptMessage], prefix: RolePrefix) -> str:
    """Return messages as plain text, each after its role.

    Tool calls and results are left out; files must be `in_words` already.
    """
    names = {"user": prefix.user, "assistant": prefix.assistant}
    said: list[str] = []
    for one in messages:
        if one.role not in names:
            continue
        if one.text or not one.calls:
            said.append(f"{names[one.role]}: {one.text}".rstrip())
    return "\n".join(said)
