"""Notes that a model writes as JSON: an array, an object, or an object a line, with any names.

A field is known by its value where its name says nothing: what reads as a time is the time, what
names a priority is the priority, and the longest of the others is the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import orjson

from agent_runtime.memory.observational.language.note_times import plain_of, read_time
from agent_runtime.memory.observational.language.note_words import is_word, priority_of

_TEXTS = frozenset(["text", "note", "observation", "content", "description", "fact"])
_BEGINS, _ENDS = ("{", "["), ("}", "]")
# Levels of nesting that are read: models nest notes by day and topic, and a hostile answer is cut
# off.
_DEEPEST = 5


def without_json(text: str) -> str:
    """Return an answer with its JSON as lines of notes; a text without JSON as it is."""
    lines = text.splitlines()
    places = [place for place, line in enumerate(lines) if line.lstrip()[:1] in _BEGINS]
    if not places:
        return text
    # An array or object may take many lines, with something said before and after it.
    begin = places[0]
    end = next(
        (place for place in reversed(range(len(lines))) if lines[place].rstrip()[-1:] in _ENDS), -1
    )
    whole = _parsed("\n".join(lines[begin : end + 1]))
    if notes := list(_notes(whole, _DEEPEST)):
        return "\n".join((*lines[:begin], *notes, *lines[end + 1 :]))
    return "\n".join(part for line in lines for part in _of_line(line))


def _of_line(line: str) -> list[str]:
    # JSON that is no note may be what a note quotes.
    return list(_notes(_parsed(line.strip().removesuffix(",")), _DEEPEST)) or [line]


def _parsed(text: str) -> object:
    """Return an array or object with something in it, or None."""
    # A line of notes may begin with a bracket, too: "[2026-11-21] critical".
    if text[:1] not in _BEGINS:
        return None
    try:
        return orjson.loads(text) or None
    except orjson.JSONDecodeError:
        return None


def _notes(value: object, deepest: int) -> Iterator[str]:
    """Yield the lines of a JSON value; a task and a next step come last."""
    if isinstance(value, str):
        if " | " in value:
            yield " ".join(value.split())
    elif isinstance(value, list) and deepest:
        for one in cast("list[object]", value):
            yield from _notes(one, deepest - 1)
    elif isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        plain = {
            name: " ".join(one.split()) for name, one in fields.items() if isinstance(one, str)
        }
        texts = {name: text for name, text in plain.items() if text}
        last = {name: texts.pop(name) for name in list(texts) if _label(name)}
        yield from _line(texts)
        for one in fields.values():
            if isinstance(one, list | dict):
                yield from _notes(cast("object", one), deepest - 1) if deepest else ()
        for name, text in last.items():
            yield f"{_label(name)}: {text}"


def _label(name: str) -> str:
    plain = name.replace("_", " ")
    return "TASK" if is_word(plain, "task") else "NEXT" if is_word(plain, "next") else ""


def _line(fields: Mapping[str, str]) -> Iterator[str]:
    """Yield the line that the texts of one object are."""
    named = [text for name, text in fields.items() if name.casefold() in _TEXTS]
    others = [text for name, text in fields.items() if name.casefold() not in _TEXTS]
    times = [text for text in others if _is_time(text)]
    priority = next((text for text in others if priority_of(text)), "")
    said = named or sorted({*others} - {*times, priority}, key=len)[-1:]
    if not said:
        return
    if times or priority:
        yield f"{' '.join(times[:2]) or 'unknown'} | {priority or 'info'} | {' '.join(said)}"
    elif named:
        yield f"- {' '.join(said)}"


def _is_time(text: str) -> bool:
    plain = plain_of(text)
    found = read_time(plain, "2000-01-01") if len(plain) < 60 else None
    return found is not None and found.end >= len(plain)
