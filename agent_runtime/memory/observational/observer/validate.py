"""Validate notes that a model wrote: whether they can replace what it read.

The checks are deterministic and linear in the text.  A rejection says why, in words for the model.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from agent_runtime.memory.observational.observer.notes_format import ParsedNotes, parse_notes
from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.ledger import identifiers
from agent_runtime.prompt.observation import ObservationLine, ObservationNotes, render_notes

RejectionReason = Literal[
    "empty",
    "cut off",
    "contradictory",
    "not believable",
    "malformed",
    "repetitive",
    "too long",
    "echo",
    "unfounded",
]

SHARE = 0.5
"""Upper bound of notes, as a share of the tokens that they replace."""
SMALL = 150
"""Tokens that notes of a short text may have, if the text has more."""
_ECHO = 40
"""A line of at least this many characters that is also in the instructions was copied."""
# Repetition is judged from this many lines on, and lines that differ in numbers from this many.
_LOOP_LINES = 6
_LOOP_SHAPES = 20
# A text, or a single line, of this many characters is a loop if zlib shrinks it below the ratio.
_LOOP_TEXT, _LOOP_RATIO = 1_200, 0.06
_RUN, _RUN_RATIO = 400, 0.1
# Sequences of four words, judged from this many on.
_GRAM, _GRAMS = 4, 60
# Identifiers from which on most must occur in the source.
_UNFOUNDED = 8
_NUMBER = re.compile(r"\d+")
_DATE = re.compile(r"[\d:./+-]+")


@dataclass(frozen=True, slots=True)
class NotesSource:
    """What the notes were written from.

    Attributes:
        text: everything that the model read except its instructions.
        tokens: tokens that the notes are to replace, in our count.
        instructions: must not come back as notes.
        nonce: marks the fences; empty if there were none.
        latest: nothing happened later than this time; empty if unknown.
        noteworthy: whether "nothing to observe" cannot be right.
        zone: of times that name none.
    """

    text: str
    tokens: int
    instructions: str = ""
    nonce: str = ""
    latest: str = ""
    noteworthy: bool = False
    zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class NotesRejected:
    """Why notes were rejected; `detail` is for the model that wrote them."""

    reason: RejectionReason
    detail: str


def validate_notes(
    text: str, source: NotesSource, *, cut_off: bool = False
) -> ObservationNotes | NotesRejected | None:
    """Return the notes that a model wrote, or None if it says that there is nothing to note.

    Args:
        cut_off: whether the answer ended at its length limit.
    """
    if not text.strip():
        return NotesRejected("empty", "The answer was empty.")
    most = max_notes_tokens(source.tokens)
    if len(text) > most * 40:
        # Too long to be worth parsing.
        return _too_long(count_text(text[: most * 40]), most)
    if loop := _loops(text):
        return loop
    if source.nonce and source.nonce in text:
        return NotesRejected("echo", "It repeats the transcript's marks.")
    parsed = parse_notes(text, source.zone)
    if (wrong := _verdict(parsed, source) or _shape(parsed)) is not None:
        return wrong
    if parsed.nothing:
        return None
    # After the other checks: a loop is cut off too, and asking for fewer lines would not end it.
    if cut_off:
        return NotesRejected(
            "cut off", "It was cut at its length limit. Write fewer, shorter lines."
        )
    written = parsed.notes
    notes = _tidied(written, source.latest)
    if (wrong := _repeats(written.lines) or _echoes(notes, source.instructions)) is not None:
        return wrong
    # As prompts show them, which is shorter than what the model wrote.
    tokens = count_text(render_notes(notes))
    return _too_long(tokens, most) if tokens > most else _unfounded(notes, source) or notes


def max_notes_tokens(tokens: int) -> int:
    """Return the most tokens that notes of a text of `tokens` may have, always fewer."""
    return max(int(tokens * SHARE), min(SMALL, tokens - 1), 1)


def _too_long(tokens: int, most: int) -> NotesRejected:
    return NotesRejected(
        "too long", f"It has {tokens:,} tokens or more, and may have {most:,}. Condense it."
    )


# Form


def _verdict(parsed: ParsedNotes, source: NotesSource) -> NotesRejected | None:
    if not parsed.nothing:
        return None
    if parsed.lines:
        return NotesRejected(
            "contradictory", "It has notes and says that there is nothing to observe."
        )
    if source.noteworthy:
        return NotesRejected(
            "not believable",
            "It says that there is nothing to observe, but the user said something, or a tool "
            "failed. Note that.",
        )
    return None


def _shape(parsed: ParsedNotes) -> NotesRejected | None:
    if parsed.nothing:
        return None
    form = "Write each line as `YYYY-MM-DD HH:MM | priority | text` and nothing else."
    if not parsed.lines:
        return NotesRejected("malformed", f"It has no line of notes. {form}")
    # A preamble and a sign-off are no notes, and do no harm.
    other = parsed.loose + parsed.joined + max(0, parsed.stray - 2)
    if parsed.proper < other or parsed.stray > 2 + parsed.proper // 10:
        return NotesRejected("malformed", f"{other} lines have no time and no priority. {form}")
    return None


def _tidied(notes: ObservationNotes, latest: str) -> ObservationNotes:
    """Remove repeated lines, and times later than `latest`."""
    lines = dict.fromkeys(
        # A time after the newest message is invented; the note itself may be right.
        replace(line, at="") if latest and line.at[:16] > latest else line
        for line in notes.lines
    )
    return replace(notes, lines=tuple(lines))


# Loops


def _loops(text: str) -> NotesRejected | None:
    """Reject a text that repeats itself, whatever its form."""
    runs = [line for line in text.splitlines() if len(line) >= _RUN]
    whole = len(text) >= _LOOP_TEXT and _ratio(text) < _LOOP_RATIO
    if whole or any(_ratio(line) < _RUN_RATIO for line in runs):
        return NotesRejected("repetitive", "It repeats itself over and over.")
    return None


def _ratio(text: str) -> float:
    data = text.encode("utf-8", "surrogatepass")
    # What repeats itself shrinks to almost nothing, whatever is repeated.
    return len(zlib.compress(data, 6)) / len(data)


def _few_grams(text: str) -> bool:
    """Return whether most sequences of four words are repetitions."""
    # A path is one word, so a list of files in one folder is not taken for a loop.
    words = text.split()
    grams = list(zip(*(words[place:] for place in range(_GRAM)), strict=False))
    return len(grams) >= _GRAMS and len(set(grams)) < len(grams) * 0.35


def _repeats(lines: Sequence[ObservationLine]) -> NotesRejected | None:
    texts = [" ".join(line.text.lower().split()) for line in lines]
    few = len(texts) >= _LOOP_LINES and len(set(texts)) <= len(texts) // 2
    if few or _few_grams(" ".join(texts)):
        return NotesRejected(
            "repetitive", "Most of it is said more than once. Write each thing once."
        )
    shapes = Counter(_NUMBER.sub("0", text) for text in texts)
    commonest = max(shapes.values(), default=0)
    if commonest >= _LOOP_SHAPES and commonest > len(texts) * 0.6:
        return NotesRejected(
            "repetitive", "Most of its lines differ in a number only. Fold them into one."
        )
    return None


# Content


def _echoes(notes: ObservationNotes, instructions: str) -> NotesRejected | None:
    known = " ".join(instructions.lower().split())
    for text in _texts(notes):
        plain = " ".join(text.lower().split())
        if len(plain) >= _ECHO and plain in known:
            return NotesRejected(
                "echo", "It repeats the instructions. Note what is in the transcript."
            )
    return None


def _unfounded(notes: ObservationNotes, source: NotesSource) -> NotesRejected | None:
    """Reject notes if most of their identifiers do not occur in the source."""
    named = {name for text in _texts(notes) for name in identifiers(text)}
    named = {name for name in named if not _DATE.fullmatch(name)}
    missing = sum(name not in source.text for name in named)
    if len(named) >= _UNFOUNDED and missing > len(named) // 2:
        return NotesRejected(
            "unfounded", f"{missing} of the names in it do not occur in the transcript."
        )
    return None


def _texts(notes: ObservationNotes) -> Iterable[str]:
    yield from (line.text for line in notes.lines)
    yield notes.task
    yield notes.next_step
