"""What every sandbox does: check that it works, and say how commands are started in it."""

from __future__ import annotations

import os
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent_runtime.errors import ConfigError
from agent_runtime_storage.drivers.protected_files import open_paths, protected_folders

CHECK_SECONDS = 30.0
HOME = "/tmp"
"""The home folder of commands: empty, and gone when the command ends."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How a command is started.

    Attributes:
        environment: the variables of the program that is started.
        prefix: a shell, or a sandbox that starts one; `-c SCRIPT` and the input are for the shell.
        container: the container that it starts, which outlives its processes.
        variables: those that commands get, if they are not the program's.
    """

    environment: Mapping[str, str]
    prefix: tuple[str, ...] = ("/bin/sh",)
    container: str = ""
    variables: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Sandbox(ABC):
    """Confines commands to a folder, in which they can change everything.

    Attributes:
        network: whether commands may use the network.
        read: existing files and folders outside of it that commands may read.
    """

    network: bool = False
    read: tuple[Path, ...] = ()

    @property
    @abstractmethod
    def name(self) -> str:
        """The sandbox as the setting names it."""

    @property
    @abstractmethod
    def sees_system(self) -> bool:
        """Whether commands can read the programs of this machine."""

    @abstractmethod
    def check(self, folder: Path) -> None:
        """Try it; blocks.

        Raises:
            ConfigError: it cannot be used on this machine, or for this folder.
        """

    @abstractmethod
    def launch(self, folder: Path, environment: Mapping[str, str]) -> Launch:
        """Return how a command is started in the folder; blocks.

        Raises:
            ConfigError: its program is not installed.
        """


def find_program(name: str, folder: Path, cure: str) -> str:
    """Return the path of a program. Raises `ConfigError` with this cure."""
    # Never from the workspace, where commands could put a program of this name.
    places = [
        place
        for place in os.environ.get("PATH", os.defpath).split(os.pathsep)
        if place.startswith("/") and not Path(os.path.realpath(place)).is_relative_to(folder)
    ]
    found = shutil.which(name, path=os.pathsep.join(places))
    if found is None:
        raise ConfigError(f"The program `{name}` of the sandbox is not installed.", cure=cure)
    return found


def try_program(
    command: Sequence[str], environment: Mapping[str, str] | None = None
) -> tuple[bool, str]:
    """Run a program to its end; return whether it succeeded, and what it printed."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            timeout=CHECK_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return False, f"no answer within {CHECK_SECONDS:g} s"
    except OSError as error:
        return False, str(error.strerror)
    return done.returncode == 0, done.stdout.decode(errors="replace").strip()


def check_folder(folder: Path) -> None:
    """Refuse a folder that no sandbox can be built around. Raises `ConfigError`."""
    # All of the system would be writable, or hidden behind the sandbox's own /proc.
    if folder == Path("/") or folder.parts[1] in ("proc", "sys"):
        raise ConfigError(
            f"A sandbox cannot have the workspace {folder}.", cure="Name a folder of your own."
        )


def state_within(places: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Return the folders and the files of the runtime's state in these places, to be hidden.

    They are named as commands reach them: a place may be a link, or lie behind one.
    """
    folders = [one for one in protected_folders() if one.is_dir()]
    files = [one for one in sorted(open_paths()) if one.is_file() and not _is_within(one, folders)]
    return _seen(folders, places), _seen(files, places)


def folders_above(folder: Path, paths: Iterable[Path]) -> list[Path]:
    """Return the folders between a folder and these paths, outermost first.

    Mounted onto themselves they cannot be renamed.  Otherwise a command could move the runtime's
    state along with a folder above it, to where the next command finds it.
    """
    between = {one for path in paths for one in path.parents if one.is_relative_to(folder)}
    return sorted(between - {folder})


def _seen(paths: Sequence[Path], places: Sequence[Path]) -> list[Path]:
    """Return the names that resolved paths have in these places."""
    real = [(place, place.resolve()) for place in places]
    found = [
        place / path.relative_to(target)
        for place, target in real
        for path in paths
        if path.is_relative_to(target)
    ]
    return list(dict.fromkeys(found))


def _is_within(path: Path, places: Sequence[Path]) -> bool:
    return any(path.is_relative_to(one) for one in places)
