"""What a scripted server answers where it plays the Observer or the Reflector.

Both are called by the run's own model unless the settings name another one, so a script that
serves a run with observational memory has to tell their requests from the agent's.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agent_runtime.models.tokens import count_text

OBSERVED = 0.1
"""Size of notes, as a share of the transcript: the Observer's instructions ask for a tenth."""
LEAST_CHARS = 80
"""Characters that a line of notes may have, however short what it notes is."""
CRITICAL_CHARS = 400
"""The same for what the user said."""

_CODE = re.compile(r"The code is (?P<code>\w+)\.")
_DIGITS = re.compile(r"\d+")
_GOAL = re.compile(r"Aim at ([\d,]+) words or fewer")
_LINE = re.compile(r"(?P<at>[\d-]+|unknown)(?: [\d:]+)? \| (?P<priority>\w+) \| (?P<text>.*)")
_WORDS_PER_TOKEN = 0.75


@dataclass(frozen=True, slots=True)
class _Line:
    at: str
    priority: str
    text: str

    def __str__(self) -> str:
        return f"{self.at} | {self.priority} | {self.text}"


def is_for_memory(request: Mapping[str, Any]) -> bool:
    """Return whether a request comes from an Observer or a Reflector."""
    return not request.get("tools") and _CODE.match(_text(request)) is not None


def notes_for(request: Mapping[str, Any]) -> str:
    """Return the notes that a good model would write, always the same for the same request.

    An Observer's notes have about a tenth of the transcript's length: a line for each message, and
    for each call the beginning of its result; similar ones in a row are folded into one.  A
    Reflector's keep the critical lines, shorten the others, and have the length that it asks for.
    """
    text = _text(request)
    found = _CODE.match(text)
    code = found["code"] if found else ""
    if goal := _GOAL.search(text):
        return _condensed(text, code, int(goal[1].replace(",", "")) / _WORDS_PER_TOKEN)
    return _observed(text, code)


def _text(request: Mapping[str, Any]) -> str:
    """Return the first message of the user: memory's later ones only say what was rejected."""
    said = (one["content"] for one in request["messages"] if one["role"] == "user")
    content = next(said, None)
    if isinstance(content, str):
        return content
    # An agent's message may have images, or no content at all.
    return "".join(part.get("text", "") for part in content or ())


def _observed(text: str, code: str) -> str:
    messages = list(_messages(text, code))
    lines = _folded(_lines(messages))
    asked = [body for _, speaker, body in messages if speaker.startswith("user")]
    earlier = re.findall(r"^TASK: (.*)$", text, re.MULTILINE)
    task = _short(asked[-1], CRITICAL_CHARS) if asked else (earlier or ["none"])[-1]
    return "\n".join([*map(str, lines), f"TASK: {task}", "NEXT: go on"])


def _messages(text: str, code: str) -> Iterator[tuple[str, str, str]]:
    """Yield the time, the speaker and the text of each message of a transcript."""
    transcript = text.partition(f"<transcript {code}>")[2].partition(f"</transcript {code}>")[0]
    parts = re.split(rf"^\[{code} \| node \d+ \| (.*?) \| (.*)\]$", transcript, flags=re.MULTILINE)
    for at, speaker, body in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        yield at if at[:1].isdigit() else "unknown", speaker, " ".join(body.split())


def _lines(messages: Iterable[tuple[str, str, str]]) -> Iterator[_Line]:
    called = ""
    for at, speaker, body in messages:
        room = max(LEAST_CHARS, int(len(body) * OBSERVED))
        if speaker.startswith("agent, calls "):
            called = f"{speaker.removeprefix('agent, calls ')} ({_short(body, room)})"
        elif speaker.startswith("tool "):
            ok = speaker.endswith("(ok)")
            priority, verb = ("info", "returned") if ok else ("important", "failed")
            yield _Line(at, priority, f"{called} {verb}: {_short(body, room)}")
        elif speaker.startswith("user"):
            yield _Line(at, "critical", f"User says: {_short(body, CRITICAL_CHARS)}")
        else:
            yield _Line(
                at, "info", f"Said by the {speaker.partition(',')[0]}: {_short(body, room)}"
            )


def _folded(lines: Iterable[_Line]) -> Iterator[_Line]:
    """Yield the lines, and of those in a row that differ in numbers only the last."""
    for _, group in itertools.groupby(lines, key=lambda one: _DIGITS.sub("0", one.text)):
        alike = list(group)
        again = f" ({len(alike)} times alike)" if len(alike) > 1 else ""
        last = alike[-1]
        yield _Line(last.at, last.priority, last.text + again)


def _condensed(text: str, code: str, goal: float) -> str:
    notes = re.findall(rf"<notes {code} \d+>\n(.*?)\n</notes {code} \d+>", text, re.DOTALL)
    shown = "\n".join(notes).splitlines()
    lines = [_Line(*found.groups()) for one in shown if (found := _LINE.fullmatch(one))]
    tasks = [one for one in shown if one.startswith("TASK: ")]
    kept = "\n".join(str(one) for one in lines if one.priority == "critical")
    other = "\n".join(str(one) for one in lines if one.priority != "critical")
    share = max(0.0, goal - count_text(kept)) / max(1, count_text(other))
    return "\n".join([*_within(lines, share), *tasks[-1:]])


def _within(lines: Iterable[_Line], share: float) -> Iterator[str]:
    for one in lines:
        room = len(one.text) if one.priority == "critical" else int(len(str(one)) * share) - 20
        if room > 0:
            yield str(_Line(one.at, one.priority, _short(one.text, room)))


def _short(text: str, room: int) -> str:
    """Return the text, cut after a word to at most `room` characters."""
    if len(text) <= room:
        return text
    return text[:room].rpartition(" ")[0] or text[:room]
