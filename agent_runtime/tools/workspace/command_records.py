"""Records of running commands in the user's state folder, so that a resume can end leftovers.

A record names the supervisor before the command starts.  It counts only on the machine and in the
boot that it was written in.  The output of commands in the background is kept next to the records.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from agent_runtime.log.leases import boot_and_namespace, process_start_time
from agent_runtime.log.liveness import private_folder
from agent_runtime.tools.workspace import supervisor
from agent_runtime.tools.workspace.sandbox.docker import remove_container
from agent_runtime_config.state import state_folders

kept: set[str] = set()
"""The marks of this process's commands in the background, which a resume by it does not end."""

OUTPUTS = "command-output"
OUTPUT_SECONDS = 7 * 86400.0
"""How long the output of a command in the background is kept for a run that may be resumed."""

_HANDLE = re.compile(r"[a-z0-9]{1,64}")


@dataclass(frozen=True, slots=True)
class SupervisedCommand:
    """A command's supervisor, and the mark in the environment of the command's processes.

    Attributes:
        container: the command's container, if it has one.
        folder: where the command runs.
    """

    call: str
    mark: str
    pid: int
    started: str
    boot: str
    container: str = ""
    folder: str = ""

    @classmethod
    def of(cls, call: str, mark: str, pid: int, container: str = "", folder: Path = Path()) -> Self:
        """Return the record of a supervisor that was just started."""
        started, boot = process_start_time(pid), boot_and_namespace()
        return cls(call, mark, pid, started, boot, container, str(folder))


def record_command(run_id: str, command: SupervisedCommand) -> Path | None:
    """Record a command before it starts; return the file, or None if it cannot be written."""
    data = json.dumps(asdict(command)).encode()
    for folder in state_folders():
        path = folder / "commands" / f"{_name(run_id)}.{command.mark}"
        try:
            private_folder(folder)
            private_folder(path.parent)
            # Renamed, so that no reader sees half of it.
            draft = path.with_suffix(".new")
            draft.write_bytes(data)
            draft.rename(path)
        except OSError:
            continue
        return path
    return None


def end_of_run(run_id: str) -> dict[str, list[str]]:
    """End the commands of a run that a dead process left running.

    Returns the processes that could not be killed, by call.
    """
    left: dict[str, list[str]] = {}
    for folder in state_folders():
        with suppress(OSError):
            private_folder(folder / "commands")
            for path in list((folder / "commands").glob(f"{_name(run_id)}.*")):
                if path.suffix[1:] in {"new", *kept}:
                    continue
                if (found := _end(path)) is not None:
                    left.setdefault(found[0], []).extend(found[1])
    return {call: names for call, names in left.items() if names}


def output_path(run_id: str, handle: str) -> Path | None:
    """Return the file for the output of a command in the background; None if there is no place."""
    # A handle may come from a database that somebody else wrote.
    if not _HANDLE.fullmatch(handle):
        return None
    for folder in state_folders():
        path = folder / OUTPUTS / f"{_name(run_id)}.{handle}.out"
        with suppress(OSError):
            private_folder(folder)
            private_folder(path.parent)
            return path
    return None


def prune_outputs() -> None:
    """Remove the outputs of ended commands that nobody asked for."""
    for folder in state_folders():
        with suppress(OSError):
            for path in (folder / OUTPUTS).iterdir():
                if time.time() - path.lstat().st_mtime > OUTPUT_SECONDS:
                    path.unlink(missing_ok=True)


def end_command(command: SupervisedCommand) -> list[str]:
    """End all processes of a command, and its container; return what is left.

    A process that lost both its supervisor and its environment is not noticed.
    """
    left = _end_processes(command)
    if command.container:
        left += remove_container(command.container, Path(command.folder))
    return left


def _end_processes(command: SupervisedCommand) -> list[str]:
    """Kill a supervisor, its descendants, and all processes with its mark; return what is left."""
    # After a reboot, or in another container, the process ids name other processes.
    if command.boot != boot_and_namespace() or not command.boot:
        return []
    asked = time.monotonic()
    patience = supervisor.END_SECONDS + 1
    patience += supervisor.REMOVE_SECONDS if command.container else 0
    until = asked + patience + supervisor.END_SECONDS
    if _lives(command):
        # Unless it is stopped, it ends its processes itself.
        with suppress(ProcessLookupError, PermissionError):
            os.kill(command.pid, signal.SIGCONT)
            os.kill(command.pid, signal.SIGTERM)
    while True:
        lives = _lives(command)
        # Killed, the supervisor would leave its orphans to another parent: first let it finish.
        if lives and time.monotonic() - asked < patience:
            time.sleep(0.01)
            continue
        found = [*supervisor.descendants_of(command.pid), command.pid] if lives else []
        found += [
            pid for pid in supervisor.process_parents() if pid not in found and _has(pid, command)
        ]
        if not found:
            return []
        for pid in found:
            supervisor.kill(pid)
        # Around again: a killed process may have started others meanwhile.
        if time.monotonic() > until:
            return [supervisor.name_of(pid) for pid in found]
        time.sleep(0.01)


def _end(path: Path) -> tuple[str, list[str]] | None:
    try:
        command = SupervisedCommand(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
    left = end_command(command)
    if not left:
        path.unlink(missing_ok=True)
    return command.call, left


def _lives(command: SupervisedCommand) -> bool:
    """Return whether a command's supervisor runs."""
    return bool(command.started) and process_start_time(command.pid) == command.started


def _has(pid: int, command: SupervisedCommand) -> bool:
    """Return whether a process has a command's mark in its environment."""
    wanted = f"{supervisor.MARK}={command.mark}".encode()
    return wanted in _environment(pid).split(b"\0")


def _environment(pid: int) -> bytes:
    """Return a process's environment; empty if it cannot be read."""
    # That of a first thread which ended is gone, while its others still have it.
    for pattern in ("environ", "task/*/environ"):
        for path in Path(f"/proc/{pid}").glob(pattern):
            with suppress(OSError):
                if found := path.read_bytes():
                    return found
    return b""


def _name(run_id: str) -> str:
    return hashlib.blake2b(run_id.encode(), digest_size=16).hexdigest()
