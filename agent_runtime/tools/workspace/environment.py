"""The environment variables of commands: the project's environment, not the runtime's."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

PREFERENCES = ("COLORTERM", "LANG", "LANGUAGE", "LC_*", "NO_COLOR", "TERM", "TZ")
"""Variables that commands get everywhere."""
OWN_FOLDERS = (
    "CARGO_HOME", "RUSTUP_HOME", "GOPATH", "NVM_BIN", "NVM_DIR", "PYENV_ROOT", "UV_CACHE_DIR",
    "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
)  # fmt: skip
"""Variables that name folders of the user, for which tools have defaults below `HOME`."""
PLACES = (
    "PATH", "HOME", "SHELL", "USER", "LOGNAME", "TMPDIR",
    # An environment that is active, which is not the runtime's.
    "VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT",
    "CONDA_DEFAULT_ENV", "CONDA_EXE", "CONDA_PREFIX*", "CONDA_PROMPT_MODIFIER", "CONDA_SHLVL",
    # Where tools and certificates lie.
    *OWN_FOLDERS, "GOROOT", "JAVA_HOME",
    "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE",
)  # fmt: skip
"""Variables that name places of this machine, which a container does not have."""

_CONDA = re.compile(r"CONDA_(PREFIX|DEFAULT_ENV|PROMPT_MODIFIER|SHLVL)(_\d+)?")


def own_environments() -> set[Path]:
    """Return the virtual environments that this process imports from."""
    places = [Path(sys.prefix)] if sys.prefix != sys.base_prefix else []
    for entry in sys.path:
        # lib/python3.x/site-packages, or Lib/site-packages.
        places += list(Path(entry).parents)[:3] if entry.endswith("-packages") else []
    return {_real(place) for place in places if (place / "pyvenv.cfg").is_file()}


def command_environment(
    environment: Mapping[str, str], folder: Path, named: Iterable[str] = (), *, places: bool = True
) -> dict[str, str]:
    """Return the variables for commands in a folder: those of the lists above, and the named ones.

    Everything else may be a secret, whatever its name.

    Args:
        places: whether commands see this machine's file system.
    """
    patterns = (*PREFERENCES, *(PLACES if places else ()))
    wanted = set(named)
    found = {
        name: value
        for name, value in environment.items()
        if name in wanted or any(fnmatchcase(name, one) for one in patterns)
    }
    return project_environment(found, folder) if places else found


def project_environment(
    environment: Mapping[str, str], folder: Path, own: Iterable[Path] | None = None
) -> dict[str, str]:
    """Return an environment in which a folder's virtual environment is active, not the runtime's.

    The folder's own is `.venv` or `venv`.  It is activated even if it is the runtime's: then the
    runtime is installed for this project.

    Args:
        own: the runtime's environments; None for those of this process.
    """
    ours = own_environments() if own is None else set(own)
    found = dict(environment)
    active = found.get("VIRTUAL_ENV")
    if active is not None and _real(active) in ours:
        del found["VIRTUAL_ENV"]
        found.pop("VIRTUAL_ENV_PROMPT", None)
    places = found.get("PATH", "").split(os.pathsep) if "PATH" in found else []
    # Otherwise `python` and `pip` of commands would be the runtime's, not the project's.
    places = [place for place in places if not _is_inside(place, ours)]
    places = _without_conda(found, places)
    if (project := _environment_of(folder)) is not None:
        found["VIRTUAL_ENV"] = str(project)
        places = [str(project / "bin"), *(places or os.defpath.split(os.pathsep))]
    if places or "PATH" in found:
        # An empty PATH would mean the current folder.
        found["PATH"] = os.pathsep.join(places) or os.defpath
    return found


def _is_inside(place: str, environments: set[Path]) -> bool:
    """Return whether an entry of PATH is the program folder of one of the environments."""
    if not place:
        return False
    # Compare folders, not programs: the interpreter is a link out of the environment.
    return _real(place) in {one / name for one in environments for name in ("bin", "Scripts")}


def _real(place: str | Path) -> Path:
    """Return the real path; the path itself if it cannot be resolved."""
    try:
        return Path(os.path.realpath(place))
    except (OSError, ValueError):
        return Path(place)


def _without_conda(found: dict[str, str], places: list[str]) -> list[str]:
    """Replace a conda environment that the runtime runs in by the one it was activated over."""
    prefix = found.get("CONDA_PREFIX")
    if prefix is None or _real(prefix) != _real(sys.prefix):
        return places
    level = found.get("CONDA_SHLVL", "1")
    outer = found.get(f"CONDA_PREFIX_{int(level) - 1}", "") if level.isdigit() else ""
    for name in [one for one in found if _CONDA.fullmatch(one)]:
        del found[name]
    own = _real(prefix) / "bin"
    kept: list[str] = []
    for place in places:
        if not place or _real(place) != own:
            kept.append(place)
        elif outer:
            kept.append(str(Path(outer) / "bin"))
    return kept


def _environment_of(folder: Path) -> Path | None:
    """Return the virtual environment of a project."""
    for name in (".venv", "venv"):
        place = folder / name
        if (place / "pyvenv.cfg").is_file() and (place / "bin").is_dir():
            return place
    return None
