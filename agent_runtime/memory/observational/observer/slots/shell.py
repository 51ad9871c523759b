"""Read a shell script as far as it takes to know what it runs: its commands, by words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

MOST_READ = 48_000
"""Characters of a script that are read."""

_HEREDOC = re.compile(r"<<-?\s*(?P<quote>['\"]?)(?P<end>[A-Za-z_]\w*)(?P=quote)")
_TOKEN = re.compile(
    r"(?P<end>&&|\|\||;;?|\|&?|&(?!>)|\n)"
    r"|(?P<redirect>\d?>>?(?:&\d)?|&>>?|<(?!<))"
    r"|(?P<blank>(?:[^\S\n]|\\\n)+)"
    r"|(?P<comment>(?<![^\s;|&])\#[^\n]*)"
    r"|(?P<word>(?:'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.|[^\s'\"\\;|&<>])+|.)",
    re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_QUOTED = re.compile(
    r"'(?P<single>[^']*)'|\"(?P<double>(?:[^\"\\]|\\.)*)\"|\\(?P<one>.)", re.DOTALL
)


@dataclass(slots=True)
class Command:
    """A simple command of a script.

    Attributes:
        words: without quotes and redirections.
        target: the file that its output goes to; empty if none.
        appends: whether it adds to that file.
        body: the text of its here-document; None if it has none.
        before: the operator before it: `&&`, `||`, `|`, `;` or nothing.
    """

    words: list[str] = field(default_factory=list[str])
    target: str = ""
    appends: bool = False
    body: str | None = None
    before: str = ""


def commands(script: str) -> Iterator[Command]:
    """Yield the simple commands of a script in order, in time linear in its length."""
    # First, because quotes and operators in a here-document mean nothing to the shell.
    text, bodies = _without_bodies(script[:MOST_READ])
    current, before, redirect = Command(), "", ""
    for match in _TOKEN.finditer(text):
        kind, token = match.lastgroup, match[0]
        if kind == "end":
            if current.words or current.body is not None:
                current.before = before
                yield current
                before = ""
            current, redirect = Command(), ""
            # A line break after an operator only continues it.
            before = (
                before if token == "\n" and before else ";" if token in ("\n", "&", ";;") else token
            )
        elif kind == "redirect":
            # `2>&1` names no file, and errors are not what a command writes.
            redirect = "" if "&" in token and token[0] != "&" else token
        elif kind == "word":
            word = _plain(token)
            if redirect:
                if redirect in (">", ">>", "1>", "1>>", "&>", "&>>"):
                    current.target, current.appends = word, redirect.endswith(">>")
                redirect = ""
            elif token.startswith("\x00") and token[1:].isdecimal():
                current.body = bodies[int(token[1:])]
            else:
                current.words.append(word)
    if current.words or current.body is not None:
        current.before = before
        yield current


def _without_bodies(script: str) -> tuple[str, list[str]]:
    """Return a script with each here-document replaced by its number, and their texts."""
    if "<<" not in script:
        return script.replace("\x00", ""), []
    kept: list[str] = []
    bodies: list[str] = []
    body: list[str] | None = None
    end = ""
    for line in script.replace("\x00", "").split("\n"):
        if body is not None:
            if line.strip() != end:
                body.append(line)
                continue
            bodies[-1], body = "\n".join(body), None
        elif start := _HEREDOC.search(line):
            end, body = start["end"], []
            bodies.append("")
            line = f"{line[: start.start()]} \x00{len(bodies) - 1} {line[start.end() :]}"
            kept.append(line)
        else:
            kept.append(line)
    if body is not None:
        bodies[-1] = "\n".join(body)
    return "\n".join(kept), bodies


def _plain(word: str) -> str:
    """Return a word without its quotes and escapes."""
    if "'" not in word and '"' not in word and "\\" not in word:
        return word

    def inner(match: re.Match[str]) -> str:
        if match["double"] is not None:
            return _ESCAPED.sub(
                lambda one: one[1] if one[1] in '"\\$`' else one[0], match["double"]
            )
        return match["single"] if match["single"] is not None else match["one"]

    return _QUOTED.sub(inner, word)
