"""The default place of the runtime's state: the user's folder for state.

Never the current folder: the agent works there, its user commits it, and a database that came with
a clone was written by somebody else.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from urllib.parse import quote

from agent_runtime_config.errors import ConfigError

FOLDER = "agent-runtime"
DATABASE = "agent_runtime.db"
SHOWN = f"file:~/.local/state/{FOLDER}/{DATABASE}"
"""The default database as the documentation shows it, where nothing moves the user's folders."""


def state_folder() -> Path:
    """Return the folder of the user's state, which may not be there yet.

    Raises:
        ConfigError: this user has none.
    """
    if (folder := known_state_folder()) is None:
        raise ConfigError(
            "There is no folder for the runtime's state: this user has no home.",
            cure="Set HOME or XDG_STATE_HOME to an absolute path, or AGENT_RUNTIME_DATABASE_URL.",
        )
    return folder


def known_state_folder() -> Path | None:
    """Return the folder of the user's state; None for a user without a home."""
    from platformdirs import user_state_path

    try:
        folder = user_state_path(FOLDER, appauthor=False)
        # A relative one would lie wherever the process stands; the specification ignores it too.
        if not folder.is_absolute():
            folder = Path.home() / ".local" / "state" / FOLDER
    except RuntimeError:
        return None
    return folder if folder.is_absolute() else None


def state_folders() -> list[Path]:
    """Return the folders that this user's state on this machine may be in, the best first."""
    own = known_state_folder()
    shared = Path(tempfile.gettempdir()) / f"{FOLDER}-{os.getuid()}"
    return [shared] if own is None else [own, shared]


def default_database_url() -> str:
    """Return the URL of the default database."""
    return f"file:{quote(str(state_folder() / DATABASE))}"


def config_folder() -> Path | None:
    """Return the folder of the user's configuration; None for a user without a home."""
    from platformdirs import user_config_path

    try:
        folder = user_config_path(FOLDER, appauthor=False)
        if not folder.is_absolute():
            folder = Path.home() / ".config" / FOLDER
    except RuntimeError:
        return None
    return folder if folder.is_absolute() else None
