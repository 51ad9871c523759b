"""What git runs or reads by itself because the repository of a workspace says so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_MOST_BYTES = 1 << 20
# Of `core` and `include`; a value may stand in quotes.
_SETTING = re.compile(
    r"^\s*(?:\[[^\]\n]*\]\s*)?(hookspath|fsmonitor|path)\s*=\s*\"?([^\"\n]*?)\"?\s*$", re.I | re.M
)


def run_by_git(workspace: Path) -> list[Path]:
    """Return the resolved paths of hooks, monitors and further configuration; blocks.

    Only the repository's own configuration is looked at, which the file tools cannot write.
    """
    return [
        path
        for config in _configurations(workspace / ".git")
        for path in _named_in(config, workspace)
    ]


def _configurations(place: Path) -> Iterator[Path]:
    # A file of a worktree, of a submodule, or of a repository that is kept apart.
    if (link := _text(place)).startswith("gitdir:"):
        place = place.parent / link.removeprefix("gitdir:").strip()
    yield place / "config"
    yield place / "config.worktree"
    if common := _text(place / "commondir").strip():
        yield place / common / "config"


def _named_in(config: Path, workspace: Path) -> Iterator[Path]:
    for name, value in _SETTING.findall(_text(config)):
        # Git looks for included files next to the one that names them.
        folder = config.parent if name.lower() == "path" else workspace
        try:
            yield (folder / Path(value).expanduser()).resolve()
        except (OSError, RuntimeError, ValueError):
            # No file can have such a name, or no user.
            continue


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode(errors="surrogateescape")
    except (OSError, ValueError):
        return ""
