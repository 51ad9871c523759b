"""The sandbox `bwrap`: bubblewrap, which needs Linux and user namespaces."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent_runtime.errors import ConfigError
from agent_runtime.tools.workspace.environment import OWN_FOLDERS
from agent_runtime.tools.workspace.sandbox.base import (
    HOME,
    Launch,
    Sandbox,
    check_folder,
    find_program,
    folders_above,
    state_within,
    try_program,
)

SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt",
    "/nix/store", "/run/current-system", "/gnu/store",
)  # fmt: skip
"""Programs, libraries and their configuration, which commands may read."""
INSTALL = "Install bubblewrap (on Debian: `apt install bubblewrap`), or use `docker:IMAGE`."
ALLOW = (
    "Allow unprivileged user namespaces on this machine (on Ubuntu an AppArmor profile for bwrap; "
    "in a container its runtime must allow them), or use `docker:IMAGE`."
)


@dataclass(frozen=True, slots=True)
class Bubblewrap(Sandbox):
    """Commands with their own processes, /proc, /tmp and network, and a read-only system."""

    @property
    def name(self) -> str:
        return "bwrap"

    @property
    def sees_system(self) -> bool:
        return True

    def check(self, folder: Path) -> None:
        launch = self.launch(folder, {"PATH": os.defpath})
        works, said = try_program([*launch.prefix, "-c", "exit 0"], launch.environment)
        if not works:
            last = said.splitlines()[-1] if said else "no reason was given"
            raise ConfigError(f"The sandbox `bwrap` cannot be used: {last}.", cure=ALLOW)

    def launch(self, folder: Path, environment: Mapping[str, str]) -> Launch:
        check_folder(folder)
        folders, files = state_within((folder, *self.read, *_shown()))
        above = folders_above(folder, (*folders, *files))
        prefix = [
            find_program("bwrap", folder, INSTALL),
            "--unshare-all",
            *(("--share-net",) if self.network else ()),
            # Also when the runtime is killed.
            "--die-with-parent",
            # As root, a command would otherwise keep the right to read every file.
            *("--cap-drop", "ALL"),
            *_system(),
            *(_resolver() if self.network else ()),
            *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),
            # The kernel lets root write its settings there, whatever rights were dropped.
            *(("--remount-ro", "/proc") if os.geteuid() == 0 else ()),
            *("--tmpfs", "/var/tmp"),
            *(word for one in self.read for word in ("--ro-bind", str(one), str(one))),
            # After the others, since it may lie in one of them.
            *(word for one in (folder, *above) for word in ("--bind", str(one), str(one))),
            *_hidden(folders, files),
            *("--remount-ro", "/", "--chdir", str(folder), "--", "/bin/sh"),
        ]
        # Of the user's own folders, only what is shown exists: tools then use their defaults.
        shown = [folder, *self.read, *map(Path, SYSTEM)]
        kept = {
            name: value
            for name, value in environment.items()
            if name not in OWN_FOLDERS or any(map(Path(value).is_relative_to, shown))
        }
        return Launch({**kept, "HOME": HOME, "TMPDIR": "/tmp"}, tuple(prefix))


def _shown() -> list[Path]:
    """Return the folders of the system that commands may read; /opt may hold a service's state."""
    return [path for place in SYSTEM if (path := Path(place)).is_dir() and not path.is_symlink()]


def _system() -> Iterator[str]:
    for place in SYSTEM:
        if (path := Path(place)).is_symlink():
            # On merged systems `/bin` is a link to `/usr/bin`, which a mount would follow outside
            # of the sandbox.
            yield from ("--symlink", str(path.readlink()), place)
    for path in _shown():
        yield from ("--ro-bind", str(path), str(path))
    # Root reads what is for it alone, such as /etc/shadow; other users are refused by the file
    # itself.
    if os.geteuid() == 0:
        yield from _hidden(*_not_for_others("/etc"))


def _not_for_others(root: str) -> tuple[list[Path], list[Path]]:
    """Return the folders and files in a folder that only some users may read."""
    folders: list[Path] = []
    files: list[Path] = []
    for place, names, others in os.walk(root):
        for name in list(names):
            if not _allows(path := Path(place, name), stat.S_IXOTH):
                folders.append(path)
                # `os.walk` then leaves out what is below.
                names.remove(name)
        files += [path for name in others if not _allows(path := Path(place, name), stat.S_IROTH)]
    return folders, files


def _allows(path: Path, right: int) -> bool:
    try:
        return bool(path.lstat().st_mode & right)
    except OSError:
        # It is gone, so there is nothing to hide, and nothing to mount over.
        return True


def _hidden(folders: Iterable[Path], files: Iterable[Path]) -> Iterator[str]:
    for one in folders:
        yield from ("--tmpfs", str(one), "--remount-ro", str(one))
    for one in files:
        # A device cannot be opened where it is mounted like this.
        yield from ("--ro-bind", os.devnull, str(one))


def _resolver() -> Iterator[str]:
    """Show the file that /etc/resolv.conf leads to, which may lie in /run."""
    real = os.path.realpath("/etc/resolv.conf")
    if real.startswith("/run/") and Path(real).is_file():
        yield from ("--ro-bind", real, real)
