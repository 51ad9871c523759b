"""Transcripts: what an Observer reads of an interval, each message with its node, time and speaker.

Messages are data, fenced by a nonce that occurs nowhere in them, so that no text can close the
fence or pass for another speaker.  They are otherwise shown as they are; only long tool results
are truncated, to head, tail and the identifiers in between.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import orjson

from agent_runtime.messages import (
    ASK_USER,
    AssistantMessage,
    Note,
    ToolCall,
    ToolResult,
    UserMessage,
    encodable,
)
from agent_runtime.models.tokens import count_text, placeholder
from agent_runtime.prompt.constraints import own_words
from agent_runtime.prompt.ledger import identifiers
from agent_runtime.prompt.truncate import share_result_budget, truncate_text
from agent_runtime.prompt.view import Entry

RESULT_TOKENS = 4_000
"""Tokens up to which a tool result or an argument of a call is read whole."""
REASONING_TOKENS = 300
"""Tokens of the agent's reasoning, which may be the only place that gives its reasons."""
IDENTIFIER_TOKENS = 200
"""Tokens of identifiers that are listed for the truncated part of a result."""
SCANNED = 200_000
"""Characters of the truncated part that are searched for them."""
MOST_CHARS = 8
"""Upper bound of the average characters of a token."""
LEAST = 256
"""Least tokens of a piece of a transcript."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# A split may be moved back by this share of a part to end a line or a word.
_NEAR = 0.5
# Upper bounds of a fence, and of what a part adds to a header.
_FENCE_TOKENS, _PART_TOKENS = 24, 12


@dataclass(frozen=True, slots=True)
class TranscriptMessage:
    """A message, or a result, as the Observer reads it.

    Attributes:
        at: `2026-11-21 14:05` in UTC; empty if unknown.
        speaker: who said it, and how.
        noteworthy: whether it requires a note: the user said something, or a tool failed.
    """

    node: int
    at: str
    speaker: str
    text: str
    noteworthy: bool = False


@dataclass(frozen=True, slots=True)
class TranscriptPart:
    """A transcript, or a piece of a long one.

    Attributes:
        text: with its fences.
        tokens: our count of it.
        latest: the time of the newest message in it; empty if unknown.
        noteworthy: whether one of its messages is.
    """

    text: str
    tokens: int
    latest: str
    noteworthy: bool


def transcript_messages(
    entries: Iterable[Entry], *, result_limit: int = RESULT_TOKENS
) -> tuple[TranscriptMessage, ...]:
    """Return the messages and results of nodes, oldest first, long results truncated."""
    return tuple(one for entry in entries for one in _messages_of(entry, result_limit))


def characters(entries: Iterable[Entry]) -> int:
    """Return about how many characters nodes have, as a measure of the work to read them."""
    return sum(
        len(entry.message.text) + sum(len(result.text) for result in entry.results)
        for entry in entries
    )


def nonce_for(texts: Iterable[str]) -> str:
    """Return a nonce that occurs in none of the texts; equal texts give an equal nonce."""
    known = list(texts)
    digest = hashlib.sha256()
    for text in known:
        digest.update(text.encode("utf-8", "surrogatepass"))
    while True:
        nonce = digest.hexdigest()[:6]
        if not any(nonce in text for text in known):
            return nonce
        digest.update(b"again")


def time_of(at: float) -> str:
    """Format seconds since the epoch as `2026-11-21 14:05` in UTC; 0 (unknown) gives nothing."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M") if at > 0 else ""


def pieces(
    messages: Iterable[TranscriptMessage], *, limit: int, nonce: str
) -> tuple[TranscriptPart, ...]:
    """Return the messages as transcripts of at most about `limit` tokens each.

    A longer message is split, and each of its parts says so.

    Args:
        nonce: marks the fences and headers; see `nonce_for`.

    Raises:
        ValueError: the nonce occurs in a message.
    """
    room = max(LEAST, limit) - _FENCE_TOKENS
    packed: list[TranscriptPart] = []
    waiting: list[tuple[TranscriptMessage, str, int]] = []
    size = 0
    for one in messages:
        # Checked again, because a fence that a message can close lets it speak for the user.
        if nonce in one.text or nonce in one.speaker:
            raise ValueError(f"the mark {nonce!r} occurs in node {one.node}")
        header = count_text(_header(one, nonce)) + _PART_TOKENS
        for part in _parts(one, max(LEAST // 4, room - header)):
            shown = _shown(part, nonce)
            # The text by itself, as it was counted when it was logged; it begins and ends a line.
            tokens = count_text(_header(part, nonce)) + count_text(part.text) + 2
            if waiting and size + tokens > room:
                packed.append(_piece(waiting, nonce))
                waiting, size = [], 0
            waiting.append((part, shown, tokens))
            size += tokens
    if waiting:
        packed.append(_piece(waiting, nonce))
    return tuple(packed)


def _piece(packed: Sequence[tuple[TranscriptMessage, str, int]], nonce: str) -> TranscriptPart:
    body = "\n\n".join(shown for _, shown, _ in packed)
    text = f"<transcript {nonce}>\n{body}\n</transcript {nonce}>"
    return TranscriptPart(
        text,
        sum(tokens for _, _, tokens in packed) + _FENCE_TOKENS,
        max(one.at for one, _, _ in packed),
        any(one.noteworthy for one, _, _ in packed),
    )


def _shown(one: TranscriptMessage, nonce: str) -> str:
    return f"{_header(one, nonce)}\n{one.text}"


def _header(one: TranscriptMessage, nonce: str) -> str:
    return f"[{nonce} | node {one.node} | {one.at or 'time unknown'} | {one.speaker}]"


def _parts(one: TranscriptMessage, room: int) -> list[TranscriptMessage]:
    """Return a message, split into parts of at most about `room` tokens."""
    # A token rarely has less than a quarter of a character or more than sixteen.
    size = len(one.text)
    if size <= room // 4 or (size <= room * 16 and count_text(one.text) <= room):
        return [one]
    texts = list(_split(one.text, room))
    return [
        replace(one, text=text, speaker=f"{one.speaker}, part {number} of {len(texts)}")
        for number, text in enumerate(texts, 1)
    ]


def _split(text: str, room: int) -> Iterator[str]:
    """Yield a text in parts of at most `room` tokens, split after a line or a word."""
    start, size = 0, room * 4
    while start < len(text):
        end = _end(text, start, start + size)
        tokens = count_text(text[start:end])
        while tokens > room and end - start > 1:
            # A little less than in proportion, so that few rounds are needed.
            end = _end(text, start, start + max(1, (end - start) * room * 9 // (tokens * 10)))
            tokens = count_text(text[start:end])
        yield text[start:end]
        # Most texts are uniform: begin the next part at this size and a little more.
        size = max(room // 4, min(room * 8, (end - start) * 5 // 4))
        start = end


def _end(text: str, start: int, end: int) -> int:
    if end >= len(text):
        return len(text)
    least = start + int((end - start) * _NEAR)
    space = max(text.rfind("\n", least, end), text.rfind(" ", least, end))
    return space + 1 if space > start else end


# From nodes to messages


def _messages_of(entry: Entry, result_limit: int) -> Iterator[TranscriptMessage]:
    message, at = entry.message, time_of(entry.at)
    if isinstance(message, UserMessage):
        files = [placeholder(file) for file in message.files]
        own = own_words(message.text)
        if own != message.text:
            notes = _clean(message.text.removesuffix(own))
            # Apart from the user's own words: what memory noted must not be noted as theirs.
            yield TranscriptMessage(entry.seq, at, "runtime note (memory)", notes)
        text = _clean("\n".join([own, *files]))
        if text.strip() or own == message.text:
            yield TranscriptMessage(entry.seq, at, "user", text, noteworthy=bool(text.strip()))
    elif isinstance(message, Note):
        steered = message.source == "steer"
        speaker = "user, to the agent at work" if steered else f"runtime note ({message.source})"
        yield TranscriptMessage(entry.seq, at, speaker, _clean(message.text), noteworthy=steered)
    else:
        yield from _exchange(entry, message, at, result_limit)


def _exchange(
    entry: Entry, message: AssistantMessage, at: str, limit: int
) -> Iterator[TranscriptMessage]:
    if message.reasoning.strip():
        thought = _clean(_truncated(message.reasoning, REASONING_TOKENS))
        yield TranscriptMessage(entry.seq, at, "agent, thinking", thought)
    text = "\n".join([message.text, *map(placeholder, message.files)])
    if text.strip():
        yield TranscriptMessage(entry.seq, at, "agent", _clean(text))
    for index, call in enumerate(message.calls):
        name = _name(call.name)
        yield TranscriptMessage(
            entry.seq, at, f"agent, calls {name}", _clean(_arguments(call, limit))
        )
        if index < len(entry.results):
            result = entry.results[index]
            text = _clean(_result(result, call.id, limit))
            # A cancelled call says that the run was stopped, not that something is wrong.
            failed = result.outcome not in ("ok", "cancelled")
            answered = call.name == ASK_USER and result.outcome == "ok"
            speaker = "user, answering" if answered else f"tool {name} ({result.outcome})"
            yield TranscriptMessage(entry.seq, at, speaker, text, noteworthy=failed or answered)


def _arguments(call: ToolCall, limit: int) -> str:
    """Return a call's arguments, one a line, with texts unescaped."""
    # The arguments were no JSON object; what the model wrote shows why the call failed.
    if call.raw is not None:
        return _truncated(call.raw, limit)
    return "\n".join(
        f"{name}: {_truncated(_value(value), limit)}" for name, value in call.arguments.items()
    )


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, ValueError):
        # A lone surrogate, or a number that JSON cannot hold.
        return repr(value)


def _result(result: ToolResult, handle: str, limit: int) -> str:
    chars = _chars(result.text, limit)
    text = result.text if chars is None else truncate_text(result.text, chars, handle)
    if chars is not None and text != result.text:
        text = _with_identifiers(text, result.text, chars)
    return "\n".join([text, *(placeholder(file) for file in result.files)])


def _chars(text: str, tokens: int) -> int | None:
    """Return how many characters of a text make up `tokens`; None if the whole text fits."""
    most = tokens * MOST_CHARS
    if len(text) <= most:
        return share_result_budget([text], tokens, _count)[0]
    # Counting a text of megabytes would be slow: count its head and tail.
    known = text[: most * 3 // 5] + text[len(text) - most * 2 // 5 :]
    chars = share_result_budget([known], tokens, _count)[0]
    return len(known) if chars is None else chars


def _count(text: str) -> int:
    return count_text(_clean(text))


def _with_identifiers(shown: str, whole: str, chars: int) -> str:
    """Append the identifiers that occur only in the truncated part of a result."""
    # Approximate: names that the head or the tail shows are skipped below.
    middle = whole[chars // 2 : len(whole) - chars // 4]
    if len(middle) > SCANNED:
        middle = f"{middle[: SCANNED // 2]}\n{middle[-SCANNED // 2 :]}"
    chosen: list[str] = []
    left = IDENTIFIER_TOKENS
    for name, _ in Counter(identifiers(middle)).most_common():
        if name in shown:
            continue
        left -= count_text(f" {name}")
        if left < 0:
            break
        chosen.append(name)
    if not chosen:
        return shown
    return f"{shown}\n[identifiers in what is left out: {' '.join(chosen)}]"


def _truncated(text: str, tokens: int) -> str:
    """Return the text, or its head and tail if it has more tokens."""
    chars = _chars(text, tokens)
    if chars is None or chars >= len(text):
        return text
    head, tail = text[: chars * 3 // 5], text[len(text) - chars * 2 // 5 :]
    left_out = len(text) - len(head) - len(tail)
    return f"{head}\n[... {left_out:,} of {len(text):,} characters are left out here ...]\n{tail}"


def _clean(text: str) -> str:
    """Return the text with control characters made visible, so that it can be sent."""
    return _CONTROL.sub(_picture, encodable(text).replace("\r\n", "\n"))


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    return chr(0x2400 + code) if code < 0x20 else "\ufffd"


def _name(name: str) -> str:
    return _clean(" ".join(name.split()))[:64]
