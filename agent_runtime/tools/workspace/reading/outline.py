"""Outline a text: the lines that name its parts, by simple rules for each language."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

MOST_PARTS = 40
"""The most parts that an outline shows."""
LINE_CHARS = 100
SECONDS = 1.0
"""How long parts are looked for; an outline may lack the last ones."""
# Characters of a line that the rules see: minified code would make them slow.
_READ_CHARS = 400

_PYTHON = r"\s*(?:async\s+def|def|class)\s+\w"
_SCRIPT = (
    r"\s*(?:export\s+)?(?:default\s+)?(?:declare\s+)?(?:abstract\s+)?"
    r"(?:(?:async\s+)?function\b|class\s|interface\s|type\s+\w+[^=]*=|enum\s|namespace\s)"
    r"|(?:export\s+)?(?:const|let|var)\s+\w+[^=]*=\s*(?:async\s*)?(?:function\b|\(|\w+\s*=>)"
    r"|\s{2,4}(?:(?:public|private|protected|static|async|get|set)\s+)*(?!if|for|while|switch|catch|return|else)"
    r"\w+\s*\([^;]*\)\s*(?::[^;={]+)?\{\s*$"
)
_GO = r"(?:func|type|const|var)\b"
_RUST = (
    r"\s*(?:pub(?:\([^)]*\))?\s+)?(?:default\s+)?(?:async\s+)?(?:unsafe\s+)?(?:const\s+)?"
    r"(?:extern\s+\S+\s+)?(?:fn|struct|enum|trait|impl|mod|union|type|macro_rules!)(?=[\s<])"
)
_JAVA = (
    r"\s*(?:@\w+\s+)*(?:(?:public|private|protected|internal|static|final|abstract|sealed|open|data|"
    r"override|virtual|async|partial|readonly|suspend|inline|native|synchronized|default)\s+)*"
    r"(?:(?:class|interface|enum|record|struct|namespace|object|trait|fun|def|protocol|extension|"
    r"func|actor)\s+\w|(?:[\w.]+(?:<[^()=;]*>)?(?:\[\])*\s+)\w+\s*\([^;]*\)\s*(?:throws\s[^{;]+)?\{?\s*$)"
)
_C = (
    r"(?:(?:typedef\s+)?(?:struct|enum|union|class|namespace)\s+\w[^;]*$"
    r"|#define\s+\w+|(?!return\b|else\b|if\b|for\b|while\b|switch\b)[A-Za-z_][\w:<>,&*\s~]*\([^;]*$)"
)
_RUBY = r"\s*(?:def|class|module)\s+\w"
_PHP = (
    r"\s*(?:(?:abstract|final|public|private|protected|static|readonly)\s+)*"
    r"(?:function|class|interface|trait|enum|namespace)\s+&?\w"
)
_SHELL = r"\s*(?:function\s+[\w:-]+|[\w:-]+\s*\(\)\s*)"
_SQL = r"\s*(?:create|alter|drop)\s+(?:or\s+replace\s+)?(?:\w+\s+){1,2}"
_CSS = r"[^\s{}/][^{}]*\{"
_SETTINGS = r"\s*\[.+\]\s*$"
_YAML = r"[\w.\"'-]+\s*:"
_HEADING = r"#{1,6}\s+\S"
_TEX = r"\s*\\(?:part|chapter|(?:sub)*section|begin\{(?:theorem|figure|table))"
_LUA = r"\s*(?:local\s+)?function\b"
_ELIXIR = r"\s*(?:defmodule|defp?|defmacrop?|defprotocol|defimpl)\s+\S"
_LISP = r"\((?:def\w*|ns)\s"
_HASKELL = r"(?:data|type|newtype|class|instance|module)\s|[a-z]\w*'?\s*::"

_LANGUAGES = (
    (_PYTHON, "py pyi pyx"),
    (_SCRIPT, "js jsx ts tsx mjs cjs mts cts vue svelte"),
    (_GO, "go"),
    (_RUST, "rs"),
    (_JAVA, "java kt kts cs scala swift groovy dart"),
    (_C, "c h cc cpp cxx hpp hh hxx m mm cu"),
    (_RUBY, "rb rake"),
    (_PHP, "php"),
    (_SHELL, "sh bash zsh"),
    (_SQL, "sql"),
    (_CSS, "css scss less"),
    (_SETTINGS, "toml ini cfg"),
    (_YAML, "yml yaml"),
    (_HEADING, "md markdown mdx"),
    (_TEX, "tex"),
    (_LUA, "lua"),
    (_ELIXIR, "ex exs"),
    (_LISP, "clj cljs el lisp scm"),
    (_HASKELL, "hs elm"),
)
_RULES = {
    ending: re.compile(rule, re.IGNORECASE if rule is _SQL else 0)
    for rule, endings in _LANGUAGES
    for ending in endings.split()
}


def outline(path: str, lines: Iterable[tuple[int, str]]) -> list[str]:
    """Return the numbered lines that name the parts of a text; none for an unknown language.

    Args:
        lines: with their numbers.
    """
    rule = _RULES.get(PurePosixPath(path).suffix[1:].lower())
    if rule is None:
        return []
    parts = list(_parts(rule, lines, headings=rule.pattern == _HEADING))
    if len(parts) > MOST_PARTS:
        # The outer ones say more of the whole.
        depths = sorted(_depth(line) for _, line in parts)
        deepest = depths[MOST_PARTS - 1]
        parts = [one for one in parts if _depth(one[1]) < deepest] or parts
    shown = [f"{number}|{line.rstrip()[:LINE_CHARS]}" for number, line in parts[:MOST_PARTS]]
    more = len(parts) - len(shown)
    return [*shown, f"… and {more} more"] if more else shown


def _parts(
    rule: re.Pattern[str], lines: Iterable[tuple[int, str]], *, headings: bool
) -> Iterator[tuple[int, str]]:
    fenced = False
    deadline = time.monotonic() + SECONDS
    for number, line in lines:
        if time.monotonic() > deadline:
            return
        line = line[:_READ_CHARS]
        if headings and line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif not fenced and rule.match(line):
            yield number, line


def _depth(line: str) -> int:
    if line.startswith("#"):
        return len(line) - len(line.lstrip("#"))
    return len(line) - len(line.lstrip())
