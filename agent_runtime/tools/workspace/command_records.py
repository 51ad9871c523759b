"""Commands under way, kept in the user's state folder, so that a resume ends what is left of one.

A record names the supervisor before the command starts.  It is read on the machine, and in the
boot, that it was written in; elsewhere it says nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from agent_runtime.log.leases import boot_and_namespace, process_start_time
from agent_runtime.log.liveness import private_folder
from agent_runtime.tools.workspace import supervisor
from agent_runtime_config.state import state_folders


@dataclass(frozen=True, slots=True)
class SupervisedCommand:
    """A command's supervisor, and the mark of what the command started."""

    call: str
    mark: str
    pid: int
    started: str
    boot: str

    @classmethod
    def of(cls, call: str, mark: str, pid: int) -> SupervisedCommand:
        """Return the command of a supervisor that was just started."""
        return cls(call, mark, pid, process_start_time(pid), boot_and_namespace())


def record_command(run_id: str, command: SupervisedCommand) -> Path | None:
    """Keep a command that is about to start; None if it cannot be kept."""
    data = json.dumps(asdict(command)).encode()
    for folder in state_folders():
        path = folder / "commands" / f"{_name(run_id)}.{command.mark}"
        try:
            private_folder(folder)
            private_folder(path.parent)
            # Whoever reads it while it is written must not take half of it.
            draft = path.with_suffix(".new")
            draft.write_bytes(data)
            draft.rename(path)
        except OSError:
            continue
        return path
    return None


def end_of_run(run_id: str) -> dict[str, list[str]]:
    """End the commands that a dead process left at work for a run.

    Returns the processes that could not be ended, by call.
    """
    left: dict[str, list[str]] = {}
    for folder in state_folders():
        with suppress(OSError):
            private_folder(folder / "commands")
            for path in list((folder / "commands").glob(f"{_name(run_id)}.*")):
                if path.suffix != ".new" and (found := _end(path)) is not None:
                    left.setdefault(found[0], []).extend(found[1])
    return {call: names for call, names in left.items() if names}


def end_command(command: SupervisedCommand) -> list[str]:
    """End a supervisor with all below it, and what carries its mark; return what is left.

    What lost both its supervisor and its environment is not found.
    """
    if command.boot != boot_and_namespace() or not command.boot:
        return []
    until = time.monotonic() + 2 * supervisor.END_SECONDS
    asked = time.monotonic()
    if _lives(command):
        # It ends what it started by itself, if nobody has stopped it.
        with suppress(ProcessLookupError, PermissionError):
            os.kill(command.pid, signal.SIGCONT)
            os.kill(command.pid, signal.SIGTERM)
    while True:
        lives = _lives(command)
        if lives and time.monotonic() - asked < supervisor.END_SECONDS + 1:
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
    """Return whether a command's supervisor runs; not if it ended before it was recorded."""
    return bool(command.started) and process_start_time(command.pid) == command.started


def _has(pid: int, command: SupervisedCommand) -> bool:
    """Return whether a process carries a command's mark."""
    wanted = f"{supervisor.MARK}={command.mark}".encode()
    try:
        return wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _name(run_id: str) -> str:
    return hashlib.blake2b(run_id.encode(), digest_size=16).hexdigest()
