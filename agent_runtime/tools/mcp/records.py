"""What this user trusts: servers of workspaces, and the definitions of tools.

Each record is a small file in the user's state folder, which agents' file tools cannot reach.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from agent_runtime.errors import ConfigError
from agent_runtime.log.liveness import private_folder
from agent_runtime_config.state import state_folders

MAX_BYTES = 4 << 20


def read_record(kind: str, key: str) -> dict[str, Any] | None:
    """Return a record; None if there is none, or it cannot be read."""
    with suppress(OSError, ValueError):
        path = _path(kind, key)
        if path.stat().st_size <= MAX_BYTES:
            found = json.loads(path.read_bytes())
            return cast("dict[str, Any]", found) if isinstance(found, dict) else None
    return None


def write_record(kind: str, key: str, record: Mapping[str, Any], *, first: bool = False) -> bool:
    """Write a record as a whole; return whether it was written.

    Args:
        first: whether to keep a record that is there.

    Raises:
        ConfigError: the state folder cannot be written.
    """
    path = _path(kind, key)
    draft = ""
    try:
        private_folder(path.parent)
        number, draft = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(number, "w", encoding="utf-8") as file:
            json.dump(record, file)
            file.flush()
            # Before it gets its name: a crash must not leave an empty record, which would trust
            # anything.
            os.fsync(file.fileno())
        if not first:
            Path(draft).replace(path)
            return True
        try:
            # Unlike a rename, it fails if another process was first.
            os.link(draft, path)
        except FileExistsError:
            return False
    except OSError as error:
        raise ConfigError(
            f"What you trust cannot be recorded in {path.parent}: {error.strerror}.",
            cure="Make the folder your own and writable, or set XDG_STATE_HOME to one that is.",
        ) from None
    finally:
        if draft:
            Path(draft).unlink(missing_ok=True)
    return True


def delete_record(kind: str, key: str) -> bool:
    """Delete a record; return whether there was one."""
    try:
        _path(kind, key).unlink()
    except OSError:
        return False
    return True


def pinned(key: str, definitions: Mapping[str, str]) -> Mapping[str, str]:
    """Return the recorded digests of a server's tools; these if none were recorded before.

    A record that cannot be read counts as one of other definitions.

    Raises:
        ConfigError: they cannot be recorded.
    """
    if write_record(PINS, key, definitions, first=True):
        return definitions
    return {name: str(digest) for name, digest in (read_record(PINS, key) or {}).items()}


PINS, TRUSTED, TOKENS = "pins", "trusted", "tokens"


def _path(kind: str, key: str) -> Path:
    # Only the first: a folder for all users could be prepared by another one.
    folder = state_folders()[0] / "mcp" / kind
    return folder / hashlib.blake2b(key.encode(errors="replace"), digest_size=20).hexdigest()
