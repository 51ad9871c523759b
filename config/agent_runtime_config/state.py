"""Where the runtime keeps its state if nothing says otherwise: in the user's own folder for that.

Never in the folder that the process stands in: the agent works there, its user commits it, and a
database that came with a clone was written by somebody else.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

FOLDER = "agent-runtime"
DATABASE = "agent_runtime.db"
SHOWN = f"file:~/.local/state/{FOLDER}/{DATABASE}"
"""The default database as the documentation shows it, where nothing moves the user's folders."""


def state_folder() -> Path:
    """Return the folder of the user's state, which may not be there yet."""
    from platformdirs import user_state_path

    folder = user_state_path(FOLDER, appauthor=False)
    # A relative one would lie wherever the process stands; the specification ignores it as well.
    return folder if folder.is_absolute() else Path.home() / ".local" / "state" / FOLDER


def default_database_url() -> str:
    """Return the URL of the default database."""
    return f"file:{quote(str(state_folder() / DATABASE))}"
