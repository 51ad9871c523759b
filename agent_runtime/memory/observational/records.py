"""What is committed with an observation: its ledger, its event and the usage of its calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

import anyio.to_thread

from agent_runtime.log.run_log import RunLog
from agent_runtime.memory.observational.observer.base import MemoryCall
from agent_runtime.memory.transcript import characters
from agent_runtime.messages import AssistantMessage, repeats
from agent_runtime.models.cost import usage_of
from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.ledger import TOKENS_PER_THOUSAND, LedgerSource, compile_ledger
from agent_runtime.prompt.observation import Observation
from agent_runtime.prompt.render import message_tokens, shown_text
from agent_runtime.prompt.view import Entry, handle_of
from agent_runtime_storage.contract.records.log import Amount, NewEvent
from agent_runtime_storage.contract.records.usage import Usage

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


def observation_event(written: Observation, of: int, why: str, *, again: bool = False) -> NewEvent:
    """Return the event of a committed observation.

    Args:
        of: tokens of what it replaces, in our count.
        why: why the Observer's or Reflector's own notes are not used; empty if they are.
        again: whether it replaces a provisional observation.
    """
    data = {
        "level": written.level,
        "first": written.first,
        "last": written.last,
        "tokens": written.tokens,
        "of": of,
        "origin": written.origin,
        "provisional": written.provisional,
        "again": again,
        "why": why,
    }
    return NewEvent("observation", written.last, data)


def usage_rows(
    log: RunLog, calls: Sequence[MemoryCall], purpose: str, node_id: int | None
) -> list[Usage]:
    """Return the usage rows of model calls that memory made for a run."""
    rows = [
        usage_of(
            call.answer,
            run_id=log.lease.run_id,
            root_run_id=log.lease.root_run_id,
            node_id=node_id,
            counted=call.counted,
            bound=Amount(call.counted, 0),
        )
        for call in calls
    ]
    return [replace(row, purpose=purpose) for row in rows]


def unreported(calls: Sequence[MemoryCall]) -> bool:
    """Return whether an attempt without reported usage may be billed."""
    # An answer without usage was billed by an unknown amount, and so were lost attempts before it.
    return any(call.answer.usage is None or call.answer.lost for call in calls)
