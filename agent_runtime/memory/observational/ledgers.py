"""Compile the ledger of nodes from what they say, call and return."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import anyio.to_thread

from agent_runtime.memory.transcript import characters
from agent_runtime.messages import AssistantMessage, repeats
from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.ledger import TOKENS_PER_THOUSAND, LedgerSource, compile_ledger
from agent_runtime.prompt.observation import Observation
from agent_runtime.prompt.render import message_tokens, shown_text
from agent_runtime.prompt.view import Entry, handle_of

OFF_LOOP = 50_000
"""Above this many characters a ledger is compiled in a thread; it takes some milliseconds."""


async def ledger_of_nodes(
    entries: Sequence[Entry], active: Sequence[Observation]
) -> tuple[str, ...]:
    """Return the ledger of nodes, without what the ledgers of `active` list already."""
    listed = "\n".join(name for one in active for name in one.ledger)

    def compiled() -> tuple[str, ...]:
        budget = first_sent(entries) * TOKENS_PER_THOUSAND // 1000
        return compile_ledger(ledger_sources(entries), budget, listed=listed)

    if characters(entries) > OFF_LOOP:
        return await anyio.to_thread.run_sync(compiled)
    return compiled()


def first_sent(entries: Sequence[Entry]) -> int:
    """Return our token count of nodes as they were first sent, before later truncation."""
    return sum(
        message_tokens(entry.message)
        + sum(
            count_text(shown_text(result.text, handle_of(entry, index), shown))
            for index, (result, shown) in enumerate(zip(entry.results, entry.shown, strict=True))
        )
        for entry in entries
    )


def ledger_sources(entries: Sequence[Entry]) -> list[LedgerSource]:
    """Return the texts a ledger is compiled from: messages, arguments of calls, and results."""
    sources: list[LedgerSource] = []
    for entry in entries:
        message = entry.message
        if repeats(message):
            continue
        sources.append(LedgerSource(message.text, own=True))
        if isinstance(message, AssistantMessage):
            sources += [
                LedgerSource("\n".join(_strings(call.arguments)), own=True)
                for call in message.calls
            ]
        sources += [LedgerSource(result.text, own=False) for result in entry.results]
    return sources


def _strings(value: object) -> Iterator[str]:
    """Yield the texts of a JSON value, unescaped."""
    match value:
        case str():
            yield value
        case dict():
            for one in cast("dict[str, object]", value).values():
                yield from _strings(one)
        case list():
            for one in cast("list[object]", value):
                yield from _strings(one)
        case None:
            return
        case _:
            yield str(value)
