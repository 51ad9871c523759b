"""Read what a call changed: the file, and the change on one line."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from agent_runtime.memory.observational.observer.slots.shell import Command, commands
from agent_runtime.messages import Change
from agent_runtime.prompt.slots import SEPARATOR
from agent_runtime.prompt.text import one_line, shorten

MOST_CHANGES = 40
"""Changes of one call that are kept."""
TARGET_CHARS = 300
"""Characters of what was changed, such as a path."""
ADDED_CHARS = 170
REMOVED_CHARS = 60
_LINE_CHARS = 110
_TOP_LINES = 3

_PATHS = (
    "file_path",
    "path",
    "filename",
    "file",
    "target_file",
    "notebook_path",
    "filepath",
    "uri",
)
_OLD = ("old_string", "old_str", "old", "search", "old_text", "original")
_NEW = ("new_string", "new_str", "new", "replace", "new_text", "replacement", "new_source")
_WHOLE = ("content", "contents", "file_text", "text", "code")
_PATCHES = ("patch", "diff", "input", "patch_text", "patchText")
_SCRIPTS = ("command", "cmd", "script", "code", "input", "commands")
_WRITES = re.compile(
    r"edit|write|create|patch|replace|insert|update|save|append|overwrite|modify", re.IGNORECASE
)
_SHELL = re.compile(r"bash|shell|exec|run|command|terminal|cmd", re.IGNORECASE)

_PATCH_FILE = re.compile(
    r"^(?:\*\*\* (?P<how>Update|Add|Delete) File: (?P<own>[^\n]+)"
    r"|\+\+\+ (?:[ab]/)?(?P<plain>[^\n\t]+)|diff --git a/\S+ b/(?P<git>\S+))",
)
_SED = re.compile(r"-[a-zA-Z]*i")
_OPENED = re.compile(
    r"(?:open\(\s*(?P<quote>['\"])(?P<path>[^'\"\n]{1,300})(?P=quote)\s*,\s*['\"][wax]"
    r"|Path\(\s*['\"](?P<written>[^'\"\n]{1,300})['\"]\s*\)\.write_text)"
)
_REPLACED = re.compile(
    r"\.replace\(\s*(?P<old>'''.{0,2000}?'''|\"\"\".{0,2000}?\"\"\"|'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\")\s*,"
    r"\s*(?P<new>'''.{0,2000}?'''|\"\"\".{0,2000}?\"\"\"|'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\")",
    re.DOTALL,
)
_STRING = re.compile(r"'(?:[^'\\\n]|\\.){12,200}'|\"(?:[^\"\\\n]|\\.){12,200}\"")


@dataclass(frozen=True, slots=True)
class _Diff:
    """A change of lines.

    Attributes:
        how: in place of a plus, where no line is new.
    """

    target: str
    added: Sequence[str]
    removed: Sequence[str] = ()
    how: str = ""


_Found: TypeAlias = Change | _Diff


def changes_of(
    tool: str, arguments: Mapping[str, Any], written: set[str] | None = None
) -> list[Change]:
    """Return the changes that a call of a common tool makes, by its arguments.

    Args:
        written: lines of earlier changes, which are shown only where a change has no others: what
            each script imports says less of it.  This change's lines are added.
    """
    if _is_shell(tool, arguments):
        found = _of_script(_first(arguments, _SCRIPTS))
    elif _WRITES.search(tool):
        found = _of_arguments(arguments)
    else:
        return []
    known: set[str] = set() if written is None else written
    return [
        Change(shorten(one.target, TARGET_CHARS), _described(one, known))
        for one in itertools.islice(found, MOST_CHANGES)
    ]


def script_of(tool: str, arguments: Mapping[str, Any]) -> str:
    """Return the script that a call of a shell runs; empty if it is none."""
    return _first(arguments, _SCRIPTS) if _is_shell(tool, arguments) else ""


def _is_shell(tool: str, arguments: Mapping[str, Any]) -> bool:
    if _first(arguments, _PATHS) and not _SHELL.fullmatch(tool):
        return False
    return bool(_SHELL.search(tool)) and bool(_first(arguments, _SCRIPTS))


def _first(arguments: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return the first of the named arguments that is a text, or a list of words."""
    for name in names:
        value = arguments.get(name)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list):
            words = cast("list[object]", value)
            if words and all(isinstance(one, str) for one in words):
                # `["bash", "-lc", "the script"]`
                plain = cast("list[str]", words)
                return plain[-1] if len(plain) > 2 and plain[1].startswith("-") else " ".join(plain)
    return ""


# By arguments


def _of_arguments(arguments: Mapping[str, Any]) -> Iterator[_Found]:
    path = _first(arguments, _PATHS)
    patch = _first(arguments, _PATCHES)
    if patch and (not path or _PATCH_FILE.search(patch)):
        yield from _of_patch(patch, path)
        return
    edits = arguments.get("edits") or arguments.get("changes")
    if isinstance(edits, list):
        for one in cast("list[object]", edits):
            if isinstance(one, dict):
                nested = cast("dict[str, Any]", one)
                yield from _of_arguments({"path": path, **nested} if path else nested)
        return
    if not path:
        return
    new = _text(arguments, _NEW)
    if new is not None:
        yield _diff(path, _text(arguments, _OLD) or "", new)
    elif (whole := _text(arguments, _WHOLE)) is not None:
        yield _diff(path, "", whole)


def _text(arguments: Mapping[str, Any], names: Sequence[str]) -> str | None:
    return next((one for name in names if isinstance(one := arguments.get(name), str)), None)


def _diff(target: str, old: str, new: str) -> _Diff:
    # By counting, as an alignment takes seconds where the same lines occur many times.
    before, after = _plain_lines(old), _plain_lines(new)
    added, removed = _beyond(after, before), _beyond(before, after)
    if added or removed or old == new:
        return _Diff(target, added, removed)
    return _Diff(target, after, (), "spaces only:" if before == after else "reordered:")


def _plain_lines(text: str) -> list[str]:
    """Return the lines of a text; those that differ in spaces only, as in columns, are equal."""
    return [one_line(line) for line in text.splitlines()]


def _beyond(lines: Sequence[str], others: Sequence[str]) -> list[str]:
    """Return the lines that occur more often than in the others, in order."""
    left = Counter(others)
    beyond: list[str] = []
    for line in lines:
        if left[line]:
            left[line] -= 1
        else:
            beyond.append(line)
    return beyond


def _described(change: _Found, written: set[str]) -> str:
    """Return a change on one line: what is added first, then what is removed."""
    if isinstance(change, Change):
        return change.what
    added, removed = _informative(change.added), _informative(change.removed)
    parts: list[str] = []
    if added:
        fresh = [line for line in added if line not in written]
        parts.append(f"{change.how or '+'} {_some(fresh or added, len(added), ADDED_CHARS)}")
        written.update(added)
    if removed:
        # What was removed matters less, unless it is all there is.
        chars = REMOVED_CHARS if parts else ADDED_CHARS
        parts.append(f"- {_some(removed, len(removed), chars)}")
    return "; ".join(parts) or "blank lines only"


def _informative(lines: Sequence[str]) -> list[str]:
    """Return the lines that say something, each on one line."""
    plain = [one_line(line) for line in lines]
    return [line for line in plain if any(map(str.isalnum, line))]


def _some(lines: Sequence[str], total: int, chars: int) -> str:
    """Return the first lines within a length, and how many more of all there are."""
    shown: list[str] = []
    for line in lines[:_TOP_LINES]:
        line = shorten(line, _LINE_CHARS)
        if shown and sum(map(len, shown)) + len(line) > chars:
            break
        shown.append(line)
    more = total - len(shown)
    text = SEPARATOR.join(shown)
    return f"{text} ({more} more)" if more else text


# Patches


def _of_patch(patch: str, path: str = "") -> Iterator[_Found]:
    """Yield the changes of a patch, a unified one or one of `apply_patch`."""
    target, deleted = path, False
    added: list[str] = []
    removed: list[str] = []
    for line in patch.splitlines():
        if match := _PATCH_FILE.match(line):
            if target and (added or removed or deleted):
                yield _patched(target, added, removed, deleted)
            target = one_line(match["own"] or match["plain"] or match["git"])
            deleted = match["how"] == "Delete"
            added, removed = [], []
        elif line.startswith("+") and not line.startswith("+++"):
            added.append(line[1:])
        elif line.startswith("-") and not line.startswith("---"):
            removed.append(line[1:])
    if target and (added or removed or deleted):
        yield _patched(target, added, removed, deleted)


def _patched(target: str, added: Sequence[str], removed: Sequence[str], deleted: bool) -> _Found:
    if deleted:
        return Change(target, "deleted")
    return _diff(target, "\n".join(removed), "\n".join(added))


# Scripts


def _of_script(script: str) -> Iterator[_Found]:
    for command in commands(script):
        if not command.words:
            continue
        program = command.words[0].rsplit("/", 1)[-1]
        if command.body is not None and (program in ("patch", "apply_patch") or _applies(command)):
            yield from _of_patch(command.body)
        elif program in ("cat", "tee") and command.body is not None:
            target = command.target or next(
                (word for word in command.words[1:] if not word.startswith("-")), ""
            )
            if target and not target.startswith("/dev/"):
                yield _diff(target, "", command.body)
        elif program in ("echo", "printf") and command.target and "/dev/" not in command.target:
            text = "\n".join(command.words[1:]).replace("\\n", "\n")
            yield _diff(command.target, "", text)
        elif program == "sed" and any(map(_SED.fullmatch, command.words[1:])):
            yield from _of_sed(command.words[1:])
        elif program.startswith("python"):
            yield from _of_python(command)
        elif program in ("rm", "mv") or command.words[:2] in (
            ["git", "checkout"],
            ["git", "restore"],
        ):
            yield from _of_files(command.words)


def _applies(command: Command) -> bool:
    return command.words[:2] == ["git", "apply"]


def _of_sed(words: Sequence[str]) -> Iterator[_Found]:
    scripts: list[str] = []
    files: list[str] = []
    skip = ""
    for word in words:
        if skip:
            scripts.append(word)
            skip = ""
        elif word in ("-e", "-f"):
            skip = word
        elif word.startswith("-") or not word:
            continue
        elif not scripts:
            scripts.append(word)
        else:
            files.append(word)
    what = f"sed {shorten(one_line('; '.join(scripts)), ADDED_CHARS)}"
    for path in files:
        yield Change(path, what)


def _of_python(command: Command) -> Iterator[_Found]:
    """Yield the changes of Python code that opens files to write them."""
    code = command.body
    if code is None:
        place = command.words.index("-c") + 1 if "-c" in command.words else 0
        code = command.words[place] if 0 < place < len(command.words) else ""
    targets = dict.fromkeys(one["path"] or one["written"] for one in _OPENED.finditer(code))
    if not targets:
        return
    replaced = _REPLACED.search(code)
    for path in targets:
        if replaced:
            yield _diff(path, replaced["old"].strip("'\""), replaced["new"].strip("'\""))
        else:
            texts = (one_line(one[0][1:-1]) for one in _STRING.finditer(code))
            yield _Diff(path, [text for text in texts if text not in targets])


def _of_files(words: Sequence[str]) -> Iterator[_Found]:
    plain = [word for word in words[1:] if not word.startswith("-")]
    if words[0] == "mv" and len(plain) == 2:
        yield Change(plain[0], f"moved to {plain[1]}")
    elif words[0] == "rm":
        yield from (Change(path, "deleted") for path in plain[:8])
    elif words[0] == "git" and "--" in words:
        yield from (Change(path, "reverted") for path in words[words.index("--") + 1 :])
