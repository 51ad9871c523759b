"""What a measurement with language models will cost, as far as that can be known before it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from agent_runtime.models.base import Model
from agent_runtime.models.tokens import count_text
from benchmarks.memory.data import Conversation, exchanges_of
from benchmarks.memory.score import NANO

ANSWER = 300
"""Tokens of an answer."""
NOTES = 0.12
"""Tokens that an Observer writes, per token that it reads for the first time."""
AGAIN = 1.5
"""How often an Observer reads a token: notes and instructions come with each chunk."""
STEPS_WITH_RECALL = 2.5
JUDGED, VERDICT = 600, 10
"""Tokens that a judge reads in addition to the answer, and writes."""


@dataclass(frozen=True, slots=True)
class ExpectedCalls:
    """The calls of one role; tokens are sums."""

    role: str
    model: Model
    calls: int
    read: int
    written: int

    async def dollars(self) -> float | None:
        """Return what they cost without any cache; None where the price is unknown."""
        price = (await self.model.info()).price
        if price is None:
            return None
        return (self.read * price.input + self.written * price.output) / NANO


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be measured.

    Attributes:
        window: of the reader, in tokens.
        last: how many recent messages stay.
        left: for each context and conversation the number of questions without an answer, over
            all runs, and in how many runs it has to be remembered.
    """

    observe_at: int
    reflect_at: int
    window: int
    last: int
    left: Sequence[tuple[str, Conversation, int, int]]

    def expected(
        self, reader: Model | None, observer: Model | None, judge: Model | None
    ) -> list[ExpectedCalls]:
        """Return the expected calls of each role that calls a model."""
        asked = read = steps = 0
        observed = 0
        for context, conversation, questions, remembered in self.left:
            whole, last = _sizes(conversation, self.last)
            steps_each = STEPS_WITH_RECALL if context == "memory+recall" else 1
            asked += questions
            steps += round(questions * steps_each)
            read += round(questions * steps_each * self._prompt(context, whole, last))
            if context.startswith("memory"):
                observed += remembered * whole
        found: list[ExpectedCalls] = []
        if reader is not None and steps:
            found.append(ExpectedCalls("reader", reader, steps, read, steps * ANSWER))
        if observer is not None and observed:
            calls = round(observed / (0.2 * self.observe_at)) + 1
            found.append(
                ExpectedCalls(
                    "observer", observer, calls, round(observed * AGAIN), round(observed * NOTES)
                )
            )
        if judge is not None and asked:
            texts = asked * (JUDGED + ANSWER)
            found.append(ExpectedCalls("judge", judge, asked, texts, asked * VERDICT))
        return found

    def _prompt(self, context: str, whole: int, last: int) -> int:
        """Return the tokens of a prompt."""
        if context == "full":
            return min(whole, self.window)
        if context == "none":
            return last
        return min(
            whole, max(last, self.observe_at // 2) + min(int(whole * NOTES), self.reflect_at)
        )


def _sizes(conversation: Conversation, last: int) -> tuple[int, int]:
    """Return the tokens of a conversation, and of its newest messages."""
    sizes = [
        count_text(text)
        for exchange in exchanges_of(conversation)
        for text in (exchange.said, exchange.answer)
    ]
    return sum(sizes), sum(sizes[-last:])


async def show_expected(expected: Iterable[ExpectedCalls], console: Console) -> None:
    """Print the expected calls, tokens and dollars."""
    table = Table()
    for column in ("expected", "calls", "tokens read", "tokens written", "$"):
        table.add_column(column, justify="left" if column == "expected" else "right")
    total, known = 0.0, True
    for one in expected:
        dollars = await one.dollars()
        total, known = total + (dollars or 0.0), known and dollars is not None
        shown = "price unknown" if dollars is None else f"{dollars:,.2f}"
        table.add_row(
            f"{one.role} {one.model.name}",
            f"{one.calls:,}",
            f"{one.read:,}",
            f"{one.written:,}",
            shown,
        )
    console.print(table)
    more = "" if known else ", and what has no known price"
    console.print(
        f"About ${total:,.2f}{more}: an estimate by sizes, without the discounts of caches; "
        "reasoning tokens come on top.",
        highlight=False,
    )
