"""Check the place of the database file, and who may read it."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_runtime_config import Settings

OLD_DEFAULT = "agent_runtime.db"
"""Where earlier versions stored the database: in the current folder."""
_ENDINGS = ("", "-wal", "-shm", "-journal")


@dataclass(frozen=True, slots=True)
class StateProblem:
    """A problem, and its cure."""

    text: str
    cure: str


def misplaced(settings: Settings) -> Iterator[StateProblem]:
    """Yield the problems with the place of the database; opens nothing."""
    from agent_runtime_config import default_database_url
    from agent_runtime_config.state import known_state_folder

    if (database := _file(settings)) is not None and (tree := _work_tree(database)):
        yield StateProblem(
            f"The database {database} is in the git work tree {tree}: a commit would include what "
            "was said and read, and git may remove the file during a run.",
            "Unset AGENT_RUNTIME_DATABASE_URL, or name a file outside of it; `agent-runtime db "
            "copy` copies its content.",
        )
    old = Path(OLD_DEFAULT).absolute()
    if known_state_folder() is None:
        # Then the settings name the database.
        return
    if settings.database_url == default_database_url() and old.is_file():
        yield StateProblem(
            f"{old} is not used: it may have come with a clone.",
            "If it is yours, from an earlier version, keep using it with "
            f"AGENT_RUNTIME_DATABASE_URL=file:{OLD_DEFAULT}, or copy its threads: "
            f"agent-runtime db copy file:{OLD_DEFAULT} {default_database_url()}",
        )


def readable_by_others(settings: Settings) -> Iterator[StateProblem]:
    """Yield the files and folders of the database that other users may access."""
    from agent_runtime_config.state import known_state_folder
    from agent_runtime_storage.objects.object_store import default_object_folder, parse_folder_url

    database, objects = _file(settings), settings.object_store_url
    paths: list[Path] = []
    if database is not None:
        # SQLite keeps recent content in files next to the database.
        paths += [database.with_name(database.name + end) for end in _ENDINGS]
        folder = known_state_folder()
        # Only our own folder: that of a database elsewhere may be shared on purpose.
        if folder is not None and database.parent == folder.resolve():
            paths.append(database.parent)
        if objects is None:
            paths.append(default_object_folder(database))
    if objects is not None and objects.partition(":")[0] in (objects, "file"):
        paths.append(parse_folder_url(objects))
    for path in paths:
        # `exists` is false in a folder that is closed to us.
        if path.exists() and (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077:
            yield StateProblem(
                f"{path} is accessible to other users (mode {mode:04o}).", f"chmod -R go= '{path}'"
            )


def _file(settings: Settings) -> Path | None:
    """Return the database's file; None for a server."""
    from agent_runtime_storage.urls import backend_of, file_path

    url = settings.database_url
    return file_path(url).resolve() if backend_of(url) == "file" else None


def _work_tree(path: Path) -> Path | None:
    return next((one for one in path.parents if (one / ".git").exists()), None)
