"""The errors of a path, and the checks of it that the tools share."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager

from agent_runtime.errors import ToolError
from agent_runtime_storage.drivers.protected_files import is_protected_file


@contextmanager
def path_errors(path: str) -> Generator[None]:
    """Turn an `OSError` into a `ToolError` that names the path as it was given."""
    try:
        yield
    except OSError as error:
        cure = "List the files with glob." if isinstance(error, FileNotFoundError) else ""
        raise ToolError(f"{show(path)}: {reason_of(error)}.", cure=cure) from error


def show(path: str) -> str:
    """Return a path on one line: quoted as JSON where a plain line could not carry it."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return f"{json.dumps(path)} (the name is no UTF-8, so it cannot be opened)"
    plain = path.isprintable() and path == path.strip() and not path.startswith('"')
    return path if plain and path else json.dumps(path, ensure_ascii=False)


def reason_of(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "A link appeared after the path was checked, or links form a circle"
    return error.strerror or type(error).__name__


def status_of(path: str, name: str, folder: int) -> os.stat_result | None:
    """Return a file's status without opening it; None if it does not exist."""
    try:
        status = os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return None
    if is_protected_file(status):
        raise state_error(path)
    return status


def protected_error(path: str) -> ToolError:
    return ToolError(
        f"{show(path)} is protected from the file tools: other programs act on it by themselves.",
        cure="Tell the user what should be in it. AGENT_RUNTIME_PROTECTED_PATHS can allow it.",
    )


def hidden_error(path: str) -> ToolError:
    return ToolError(
        f"{show(path)} is hidden from the file tools: files of this name hold secrets.",
        cure="Work without it, or ask the user. AGENT_RUNTIME_HIDDEN_PATHS can allow it.",
    )


def state_error(path: str) -> ToolError:
    return ToolError(f"{show(path)} belongs to the runtime's database and is kept from its tools.")


def check_regular(path: str, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise ToolError(f"{show(path)} is a folder.", cure="List its files with glob.")
    if not stat.S_ISREG(status.st_mode):
        raise ToolError(f"{show(path)} is no regular file.")
