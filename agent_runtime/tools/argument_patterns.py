"""Match patterns against a call's arguments, and mask secrets in what a person sees of them.

A pattern that asks a person matches every value that it *may* mean, however that is written
(`may_match`).  A pattern that allows without asking matches only what is certain (`covers`).  If a
pattern cannot decide, a person is asked.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

COMMANDS = frozenset({"command", "cmd", "script", "code", "argv", "args"})
"""Names of arguments that are treated as shell commands."""
MASK = "*** (a secret that this process knows; not shown)"
LONGEST_COMMAND = 2000
"""A longer command may match any pattern."""
LONGEST_PATH = 4096
"""The most characters of a path; no system opens a longer one."""
LONGEST_NUMBER = 400
"""A float written out has fewer characters; a longer text is not compared as a number."""
UNSETTLED = "(chosen when the call is made)"
"""Shown for a default that differs each time."""
_SEPARATORS = re.compile(r"[/\\]")
_WILDCARD = re.compile(r"[*?\[]")
# With any of these a shell may run another command than the text shows.
_SHELL = re.compile(r"[;&|<>$`\\\"'(){}\[\]*?~#!\r\n]")
_WITHIN_WORD = re.compile(r"[^\w.-]")
_SHORT_OPTION = re.compile(r"-[^\W\d_]")


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a call.

    Attributes:
        given: the values that the tool is called with.
        takes: returns whether the tool may have an argument of a name.
        folder: where relative paths start; None for the process's folder.
    """

    given: Mapping[str, Any]
    takes: Callable[[str], bool]
    folder: Path | None = None


def text_of(value: Any) -> str:
    """Return a value as patterns see it: text unchanged, others as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def may_match(patterns: Mapping[str, str], arguments: Arguments) -> bool:
    """Return whether every named argument may match its pattern (`*`, `?`, `[…]`)."""
    return all(
        (name in COMMANDS and _may_run(arguments.given[name], pattern))
        or _may_be(arguments.given[name], pattern, arguments.folder)
        if name in arguments.given
        else arguments.takes(name)
        for name, pattern in patterns.items()
    )


def covers(
    patterns: Mapping[str, str], given: Mapping[str, Any], folder: Path | None = None
) -> bool:
    """Return whether every named argument is given and certainly matches its pattern.

    Paths with `..`, and commands that a shell could change, must equal the pattern.  A path whose
    links lead outside of the pattern does not match.
    """
    return all(
        name in given
        and not (name in COMMANDS and _hides(given[name], pattern))
        and _is(given[name], pattern, folder)
        for name, pattern in patterns.items()
    )


def climbs(value: Any) -> bool:
    """Return whether a value is a path with `..`, which may lead out of a folder."""
    return isinstance(value, str) and ".." in _SEPARATORS.split(value.strip())


def _wanders(value: Any, folder: Path | None) -> bool:
    """Return whether a value is a path that may lead anywhere: with `..`, or by a hidden link."""
    if climbs(value):
        return True
    if not isinstance(value, str) or "\0" in value or len(value) > LONGEST_PATH:
        return False
    try:
        os.path.realpath(os.path.join(_start(folder), _expanded(value)))  # noqa: PTH118
    except OSError:
        # The user may not read a link: `/proc/1/root` is one.
        return True
    except ValueError:
        # No file can have such a name.
        return False
    return False


# Matching what may be meant


def _may_be(value: Any, pattern: str, folder: Path | None) -> bool:
    wanted: set[str] | None = None
    for one in _leaves(value):
        # What cannot be known beforehand may match: the check fails towards asking.
        if one == UNSETTLED or _wanders(one, folder) or _same_number(one, pattern):
            return True
        if wanted is None:
            # Once, and only if needed: it resolves links.
            wanted = _pattern_forms(pattern, folder)
        forms = _forms(one, folder)
        if any(fnmatchcase(form, each) for form in forms for each in wanted):
            return True
    return False


def _hides(command: Any, pattern: str) -> bool:
    """Return whether a shell could run another command than the pattern names."""
    if command == pattern:
        return False
    # As it is written: as a path, `./tool x` would be a form of `tool x`, and is another program.
    other = isinstance(command, str) and not fnmatchcase(command, pattern)
    return other or _SHELL.search(text_of(command)) is not None


def _may_run(command: Any, pattern: str) -> bool:
    """Return whether a command runs, or could run, what a pattern names."""
    parts = cast("list[Any]", command) if isinstance(command, list) else [command]
    text = " ".join(map(text_of, parts))
    if len(text) > LONGEST_COMMAND or _SHELL.search(text):
        return True
    words, wanted = text.split(), _alike(" ".join(pattern.split()))
    # From every word on, and from places inside of it: `env`, `sudo` and others run their
    # arguments, `env -Srm` and `tar --to-command=rm` the ends of these.
    for at, word in enumerate(words):
        for first in {word, *_ends(word)}:
            if _is_line(_alike(" ".join([first, *words[at + 1 :]])), wanted):
                return True
    return _runs_with_options([_alike(one) for one in words], wanted.split(" "))


def _ends(word: str) -> set[str]:
    """Return the ends of a word that may be the name of a program."""
    ends = {word[match.end() :] for match in _WITHIN_WORD.finditer(word)}
    if _SHORT_OPTION.match(word):
        ends.add(word[2:])
    return ends - {""}


def _is_line(line: str, wanted: str) -> bool:
    # `ls *` also means `ls` without arguments.
    return any(fnmatchcase(one, wanted) for one in (line, f"{line} "))


def _runs_with_options(words: list[str], wanted: list[str]) -> bool:
    """Return whether words are the wanted ones with options between: `git -C x push`."""
    *before, last = wanted
    if not before:
        return False
    places = {
        at
        for at, word in enumerate(words)
        if any(fnmatchcase(one, before[0]) for one in {word, *_ends(word)})
    }
    for name in before[1:]:
        places = {at for at in _following(words, places) if fnmatchcase(words[at], name)}
    following = _following(words, places)
    return any(_is_line(" ".join(words[at:]), last) for at in following)


def _following(words: list[str], places: set[int]) -> set[int]:
    """Return where the word after those at some places may stand, as options may take values."""
    found = {at + 1 for at in places if at + 1 < len(words)}
    options = [at for at in found if words[at].startswith("-")]
    return found | set(range(min(options) + 1, len(words))) if options else found


def _leaves(value: Any) -> Iterator[Any]:
    """Yield a value and all values inside it."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        yield one
        if isinstance(one, Mapping):
            pairs = cast("Mapping[Any, Any]", one)
            waiting += [*pairs.keys(), *pairs.values()]
        elif isinstance(one, list | tuple):
            waiting += cast("list[Any]", one)


def _same_number(value: Any, pattern: str) -> bool:
    if not isinstance(value, str | int | float) or len(text_of(value)) > LONGEST_NUMBER:
        return False
    try:
        return Decimal(text_of(int(value) if isinstance(value, bool) else value)) == Decimal(
            pattern
        )
    except InvalidOperation:
        return False


def _forms(value: Any, folder: Path | None) -> set[str]:
    """Return all ways to write a value: as a whole number, and as every form of a path."""
    text = text_of(value)
    forms = {text}
    if isinstance(value, float) and value.is_integer():
        forms.add(str(int(value)))
    if isinstance(value, str):
        # Any text may be a path: only the tool knows.
        for one in {text, text.strip(), _file_of(text.strip())}:
            forms |= _path_forms(one, folder)
    return forms | set(map(_alike, forms))


def _path_forms(text: str, folder: Path | None) -> set[str]:
    plain = _normal(_expanded(text))
    if not text or "\0" in text or len(plain) > LONGEST_PATH:
        return {text}
    whole, real = _places(text, folder)
    found = {text, plain, whole, real}
    for start in {_start(folder), _real(_start(folder))}:
        inside = [one for one in (whole, real) if one.startswith(start.rstrip("/") + "/")]
        found |= {os.path.relpath(one, start) for one in inside}
        if start in (whole, real):
            found.add(".")
    # A folder matches wherever its content does.
    return found | {f"{one}/" for one in found} | {f"./{one}" for one in found}


def _pattern_forms(pattern: str, folder: Path | None) -> set[str]:
    """Return a pattern as given, and with its fixed part as an absolute and a real path."""
    text = _expanded(pattern.strip())
    # `folder/` means its content.
    text += "*" * text.endswith("/")
    found = {pattern, text, _normal(text)}
    first = _WILDCARD.search(text)
    fixed = text[: first.start()] if first else text
    if fixed and "\0" not in fixed and len(fixed) <= LONGEST_PATH:
        head, _, _ = fixed.rpartition("/")
        head = head if first else fixed
        rest = text[len(head) :] if head or text.startswith("/") else f"/{text}"
        for place in _places(head or ("/" if text.startswith("/") else "."), folder):
            found.add(_normal(place + rest) if rest else place)
    return found | set(map(_alike, found))


def _alike(text: str) -> str:
    """Fold case and accents, which some file systems ignore."""
    return unicodedata.normalize("NFC", text.casefold())


def _file_of(text: str) -> str:
    """Return the path of a `file:` URL; other text unchanged."""
    if text[:5].lower() != "file:":
        return text
    try:
        return unquote(urlsplit(text).path)
    except ValueError:
        return text


# Matching what is certain


def _is(value: Any, pattern: str, folder: Path | None) -> bool:
    text = text_of(value)
    if not isinstance(value, str):
        simple = value is None or isinstance(value, bool | int | float)
        # A list or an object matches whole or not at all: a wildcard inside would cover items
        # that nobody saw.
        matched = fnmatchcase(text, pattern) or (simple and _same_number(value, pattern))
        return matched if simple else pattern in (text, "*")
    # Only the very text that was approved: where it leads may differ the next time.
    if _wanders(value, folder) or value == UNSETTLED:
        return value == pattern
    whole, real = _places(value, folder)
    # The pattern's links are not followed: a person approved the path as it is written.
    wanted = pattern if _WILDCARD.match(pattern) else _places(pattern, folder, follow=False)[0]
    # `a/` and `a/.` are the folder itself, which `a/*` does not name.
    written = not value.endswith(("/", "/.")) or value == pattern
    if not (written and fnmatchcase(value, pattern)) and not fnmatchcase(whole, wanted):
        return False
    # A link that leads out of what was approved is not covered; `*` alone covers all places.
    return real == whole or not pattern.strip("*") or fnmatchcase(real, wanted)


# Paths


def _places(text: str, folder: Path | None, *, follow: bool = True) -> tuple[str, str]:
    """Return a path as an absolute and as a real path; `~` is the user's folder."""
    # `Path` would fail for an unknown user, and drop a `.` that matters.
    joined = os.path.join(_start(folder), _expanded(text))  # noqa: PTH118
    whole = _normal(joined)
    return whole, _real(joined) if follow else whole


def _real(path: str) -> str:
    if len(_normal(path)) > LONGEST_PATH:
        return _normal(path)
    try:
        return _normal(os.path.realpath(path))
    except (OSError, ValueError):
        # No file can have such a name.
        return _normal(path)


def _expanded(text: str) -> str:
    try:
        return os.path.expanduser(text)  # noqa: PTH111
    except ValueError:
        # No user can have such a name.
        return text


def _start(folder: Path | None) -> str:
    if folder is not None:
        return str(folder)
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        # The process's folder was deleted.
        return "/"


def _normal(path: str) -> str:
    # `normpath` leaves two slashes at the beginning, which mean one.
    return re.sub(r"^//+", "/", os.path.normpath(path)) if path else path


# Masking


def shown_arguments(
    arguments: Mapping[str, Any], secrets: Set[str] = frozenset()
) -> dict[str, Any]:
    """Return the arguments as a person sees them: complete, but with secrets masked.

    Only a value that equals a known secret is masked, and nothing in commands: a person must see
    what runs.
    """
    return {
        name: value if name in COMMANDS else _masked(value, secrets)
        for name, value in arguments.items()
    }


def _masked(value: Any, secrets: Set[str]) -> Any:
    if isinstance(value, str):
        return MASK if value in secrets else value
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        return {key: _masked(one, secrets) for key, one in pairs}
    if isinstance(value, list):
        return [_masked(one, secrets) for one in cast("list[Any]", value)]
    return value
