"""Read the files that hold settings: env files, and configuration files in TOML."""

from __future__ import annotations

import difflib
import io
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from agent_runtime_config.errors import ConfigError
from agent_runtime_config.names import PLACES, PREFIX, is_provider_variable

MAX_BYTES = 1_000_000
JSON_SETTINGS = frozenset({"MODEL_SETTINGS"})
"""Settings that are JSON, and so may be tables in a configuration file."""
COLON_SETTINGS = frozenset({"SANDBOX_READ"})
"""Settings that are lists with colons, where others have commas."""

_TABLE = re.compile(r"\s*\[([^\[\]]+)\]\s*(?:#.*)?")
_ASSIGNED = re.compile(r"""\s*([\w"'.\s-]+?)\s*=""")


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One value of a file.

    Attributes:
        variable: the environment variable that it stands for.
        written: its name as it is written in the file.
        line: where it stands, from 1.
    """

    variable: str
    text: str = field(repr=False)
    written: str
    line: int


def read_env_file(path: Path) -> list[FileEntry]:
    """Return the variables of an env file; `$` in a value stands for itself.

    Raises:
        ConfigError: it cannot be read, or a line is not an assignment.
    """
    from dotenv.parser import parse_stream

    entries: list[FileEntry] = []
    for one in parse_stream(io.StringIO(_text(path, required=True))):
        # What the parser took may begin with empty lines.
        skipped = len(one.original.string) - len(one.original.string.lstrip())
        line = one.original.line + one.original.string[:skipped].count("\n")
        if one.error:
            raise ConfigError(
                f"{path}, line {line}, is not an assignment.", cure="Write it as NAME=value."
            )
        if one.key is None:
            continue
        if one.value is None and one.key.upper().startswith(PREFIX):
            raise ConfigError(
                f"{path}, line {line}, gives {one.key} no value.", cure="Write it as NAME=value."
            )
        name = one.key.upper() if one.key.upper().startswith(PREFIX) else one.key
        entries.append(_entry(path, name, (one.value or "").strip(), one.key, line))
    return entries


def read_config_file(path: Path, *, required: bool) -> list[FileEntry]:
    """Return the settings of a configuration file; none where it is missing and not required.

    Raises:
        ConfigError: it cannot be read, or a name in it is no setting.
    """
    import tomllib

    text = _text(path, required=required)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # Its message has the place, and no value but a character.
        raise ConfigError(f"{path} is not valid TOML: {error}.", cure="Correct it.") from None
    except (RecursionError, ValueError):
        raise ConfigError(
            f"{path} nests too deeply, or holds a number that is too long.", cure="Correct it."
        ) from None
    lines = _lines(text)
    known = _known_settings()
    entries: dict[str, FileEntry] = {}
    for keys, value in _values(document):
        written, line = ".".join(keys), _line(lines, keys)
        variable = _variable(keys, known)
        if value == {} and _holds_settings(keys, known):
            continue
        if variable is None:
            raise _unknown(path, line, written, known)
        shown = _plain(value, variable.removeprefix(PREFIX))
        if shown is None:
            raise ConfigError(
                f"{path}, line {line}: {written} has a value of the wrong kind.",
                cure="Give a text, a number, true or false, or a list of texts without commas.",
            )
        if variable in entries:
            raise ConfigError(
                f"{path}, line {line}: {written} is set again; "
                f"{entries[variable].written} is the same setting.",
                cure="Remove one of them.",
            )
        entries[variable] = _entry(path, variable, shown.strip(), written, line)
    return list(entries.values())


def _entry(path: Path, variable: str, text: str, written: str, line: int) -> FileEntry:
    if "\0" in text:
        raise ConfigError(
            f"{path}, line {line}: the value of {written} holds a zero byte.", cure="Remove it."
        )
    return FileEntry(variable, text, written, line)


def _text(path: Path, *, required: bool) -> str:
    try:
        # A pipe without a writer would wait for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if isinstance(error, FileNotFoundError | NotADirectoryError) and not required:
            return ""
        raise ConfigError(
            f"The file of settings {path} cannot be read: {error.strerror}.",
            cure="Name a file that exists and that you may read.",
        ) from None
    try:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            raise ConfigError(f"{path} is not a file.", cure="Name a regular file.")
        if state.st_mode & stat.S_IWOTH or state.st_uid not in (os.getuid(), 0):
            raise ConfigError(
                f"Other users may change {path}, and so decide what an agent may do.",
                cure=f"Make it yours: chown $USER '{path}'; chmod o-w '{path}'",
            )
        data = os.read(descriptor, MAX_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(data) > MAX_BYTES:
        raise ConfigError(
            f"{path} is larger than {MAX_BYTES} bytes.", cure="Name a file of settings."
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8.", cure="Save it as UTF-8.") from None


def _known_settings() -> frozenset[str]:
    from agent_runtime_config.settings import Settings

    return frozenset(one.upper() for one in Settings.model_fields)


def _values(
    table: Mapping[str, Any], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in table.items():
        keys = (*above, key)
        # An empty table has no values by which a misspelt name would be found.
        if isinstance(value, dict) and value and _suffix(keys) not in JSON_SETTINGS:
            yield from _values(cast("dict[str, Any]", value), keys)
        else:
            yield keys, value


def _suffix(keys: tuple[str, ...]) -> str:
    return "_".join(keys).upper().removeprefix(PREFIX)


def _holds_settings(keys: tuple[str, ...], known: frozenset[str]) -> bool:
    """Return whether a table of this name could hold settings."""
    beginning = "_".join((*keys, "")).upper()
    return any(f"{PREFIX}{name}".startswith((beginning, PREFIX + beginning)) for name in known)


def _variable(keys: tuple[str, ...], known: frozenset[str]) -> str | None:
    """Return the variable of a key; None if it is neither a setting nor a provider's variable."""
    name = _suffix(keys)
    if name in known or PREFIX + name in PLACES:
        return PREFIX + name
    # TOML cannot have both a value `model` and a table `[model]`.
    if len(keys) > 1 and keys[-1].lower() == "name" and _suffix(keys[:-1]) in known:
        return PREFIX + _suffix(keys[:-1])
    return keys[0] if len(keys) == 1 and is_provider_variable(keys[0]) else None


def _unknown(path: Path, line: int, written: str, known: frozenset[str]) -> ConfigError:
    name = _suffix((written.replace(".", "_").replace("-", "_"),))
    near = difflib.get_close_matches(name, sorted(known), n=1)
    cure = f"Did you mean {near[0].lower()}?" if near else "Remove it."
    return ConfigError(f"{path}, line {line}: {written} is not a setting.", cure=cure)


def _plain(value: Any, setting: str) -> str | None:
    """Return a value as one would write it in the environment; None if that is not possible."""
    if setting in JSON_SETTINGS and isinstance(value, dict | list):
        return json.dumps(value, default=str)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    separator = os.pathsep if setting in COLON_SETTINGS else ","
    if isinstance(value, list):
        parts = [one for one in cast("list[Any]", value) if isinstance(one, str)]
        if len(parts) == len(cast("list[Any]", value)) and not any(
            separator in one for one in parts
        ):
            return separator.join(parts)
    return None


def _lines(text: str) -> dict[tuple[str, ...], int]:
    """Return where keys stand; TOML's parser does not say."""
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _TABLE.fullmatch(line):
            table = _keys(header[1])
            found.setdefault(table, number)
        elif assigned := _ASSIGNED.match(line):
            found.setdefault((*table, *_keys(assigned[1])), number)
    return found


def _keys(text: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in text.split("."))


def _line(lines: Mapping[tuple[str, ...], int], keys: tuple[str, ...]) -> int:
    """Return the line of a key, or of the inline table that it is in."""
    while keys and keys not in lines:
        keys = keys[:-1]
    return lines.get(keys, 1)
