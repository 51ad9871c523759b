"""Extract the slots of an interval: what its calls and messages show, in the order of the log."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial

import anyio.to_thread

from agent_runtime.memory.observational.observer.slots.changes import changes_of, script_of
from agent_runtime.memory.observational.observer.slots.checks import checks_of
from agent_runtime.memory.observational.observer.slots.verdicts import verdict_of
from agent_runtime.memory.transcript import characters
from agent_runtime.messages import (
    AssistantMessage,
    Observed,
    ToolCall,
    ToolResult,
    UserMessage,
    Verdict,
)
from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.render import message_tokens
from agent_runtime.prompt.slots import (
    LEAST_TOKENS,
    TOKENS_PER_THOUSAND,
    Agreement,
    NotedChange,
    NotedVerdict,
    Slots,
    fit_slots,
)
from agent_runtime.prompt.text import one_line, shorten
from agent_runtime.prompt.view import Entry

OFF_LOOP = 50_000
"""Above this many characters slots are read in a thread."""
SHORTEST_SHARE = 4
"""The slots of a short interval may have one of this many of its tokens."""
FEW_TOKENS = 120
"""Tokens that the slots of any interval may have: one of each kind."""
SHORT_CHARS = 120
"""Characters of an answer that says little without what it answers."""
PROPOSAL_CHARS = 2_400
"""Characters of a proposal that are kept."""
BY_MODEL = 0.15
"""Share of the budget where a model writes the notes: these say the rest in its words, and more
would cost more than it saves (on recorded runs 4% of the bill with the whole budget)."""
_RULE = re.compile(r"^\s*(?:[-=*_|: ]{3,}|```\w*)\s*$", re.MULTILINE)


async def slots_of_nodes(entries: Sequence[Entry], *, by_model: bool = False) -> Slots:
    """Return the slots of nodes, within the budget that their size gives.

    Args:
        by_model: whether a model writes the notes, which then have no room for slots to take.
    """
    if characters(entries) > OFF_LOOP:
        return await anyio.to_thread.run_sync(partial(slots_of, entries, by_model=by_model))
    return slots_of(entries, by_model=by_model)


def slots_of(entries: Sequence[Entry], *, by_model: bool = False) -> Slots:
    """Return the slots of nodes; a function of the nodes alone."""
    verdicts: list[NotedVerdict] = []
    changes: list[NotedChange] = []
    written: set[str] = set()
    for entry in entries:
        if not isinstance(entry.message, AssistantMessage):
            continue
        for call, result in zip(entry.message.calls, entry.results, strict=False):
            for one in observed(call, result, written):
                if isinstance(one, Verdict):
                    verdicts.append(NotedVerdict(entry.seq, one))
                else:
                    changes.append(NotedChange(entry.seq, one))
    found = Slots(tuple(verdicts), tuple(changes), tuple(agreements(entries)))
    budget = slot_budget(entries)
    return fit_slots(found, int(budget * BY_MODEL) if by_model else budget)


def slot_budget(entries: Sequence[Entry]) -> int:
    """Return the tokens that the slots of nodes may have where rules write the notes."""
    size = sum(
        entry.tokens
        or message_tokens(entry.message) + sum(count_text(result.text) for result in entry.results)
        for entry in entries
    )
    # Not more than a part of a short interval: observing has to make it shorter.
    least = min(LEAST_TOKENS, max(FEW_TOKENS, size // SHORTEST_SHARE))
    return max(least, size * TOKENS_PER_THOUSAND // 1000)


def observed(
    call: ToolCall, result: ToolResult, written: set[str] | None = None
) -> Sequence[Observed]:
    """Return what a call shows: as its tool tells, or else by its arguments and its result.

    Args:
        written: see `changes_of`.
    """
    if result.observed:
        return result.observed
    if call.raw is not None or result.outcome in ("refused", "cancelled"):
        return ()
    found: list[Observed] = []
    if script := script_of(call.name, call.arguments):
        checks = checks_of(script)
        verdicts = [one for check in checks if (one := verdict_of(check, result))]
        # One output for all: if one failed, it does not show which of the others passed.
        failed = [one for one in verdicts if not one.passed]
        found += failed[-1:] if failed and len(checks) > 1 else verdicts
    # A tool that failed has changed nothing; a shell may have, before it did.
    if result.outcome == "ok" or script:
        found += changes_of(call.name, call.arguments, written)
    return found


def agreements(entries: Sequence[Entry]) -> Iterator[Agreement]:
    """Yield short answers of the user with what the agent had said last.

    What it says last in the interval is among them, as the user may answer it next.
    """
    proposal: tuple[int, str] | None = None
    for entry in entries:
        message = entry.message
        if isinstance(message, AssistantMessage):
            text = "" if message.calls else proposal_of(message.text)
            # Said to the user only where the agent then waits for an answer.
            proposal = (entry.seq, text) if text else None
        elif isinstance(message, UserMessage) or message.source == "steer":
            answer = one_line(message.text)
            if proposal and is_short(answer):
                yield Agreement(*proposal, entry.seq, answer)
            proposal = None
    if proposal:
        yield Agreement(*proposal)


def is_short(answer: str) -> bool:
    """Return whether an answer of the user says little without what it answers."""
    return 0 < len(answer) <= SHORT_CHARS


def proposal_of(text: str) -> str:
    """Return what the agent says to the user on one line, the end rather than the middle."""
    plain = one_line(_RULE.sub(" ", text[-4 * PROPOSAL_CHARS :]))
    return shorten(plain, PROPOSAL_CHARS)
