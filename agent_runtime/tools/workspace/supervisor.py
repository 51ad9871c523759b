"""A program that runs one command and ends every process that the command started.

    supervisor.py CONTAINER SHELL ...

SHELL is a shell with its arguments, perhaps in a sandbox, that runs a script from its input.
CONTAINER is the name of the container that it starts, or empty.  File 0 is a socket to the runtime:
it brings the script, takes the report of the command's end, and closing it ends the command.  Only
the standard library is used (`python -I -S`).

On Linux orphans become children of the supervisor, so that no process escapes by a new session.
The command's parent is an intermediate process: a command that kills or stops its parent does not
hit the supervisor.  On other systems only the command's process group is ended.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import struct
import sys
import time
from contextlib import suppress

MARK = "AGENT_COMMAND_MARK"
"""The variable that identifies a command's processes after its supervisor was killed."""
END_SECONDS = 5.0
"""How long ending a command's processes may take."""
REMOVE_SECONDS = 20.0
"""How long removing a container may take."""

_LINUX = sys.platform == "linux"
# Of prctl(2), which Python's library does not have.
_PDEATHSIG, _NAME, _SUBREAPER = 1, 15, 36
_STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def process_parents() -> dict[int, int]:
    """Return the parent of every visible process that still runs."""
    found: dict[int, int] = {}
    with suppress(OSError):
        for name in os.listdir("/proc"):  # noqa: PTH208  (pathlib is slow to import)
            if name.isdigit() and (fields := _stat(int(name))) and _runs(fields):
                found[int(name)] = int(fields[1])
    return found


def descendants_of(root: int) -> list[int]:
    """Return all descendants of a process."""
    children: dict[int, list[int]] = {}
    for pid, parent in process_parents().items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    waiting = [root]
    while waiting:
        some = children.get(waiting.pop(), [])
        found += some
        waiting += some
    return found


def name_of(pid: int) -> str:
    """Return a process's id and name."""
    try:
        with open(f"/proc/{pid}/comm", errors="replace") as file:  # noqa: PTH123
            # A process may have line breaks in its name, and the report is one of lines.
            return f"{pid} ({' '.join(file.read().split())})"
    except OSError:
        return str(pid)


def kill(pid: int) -> None:
    """Kill a process if it exists and may be killed."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def remove(docker: str, container: str) -> list[str]:
    """Remove a container, which ends its processes; return its name if that fails."""
    import subprocess  # Few commands have one, and the import would delay all of them.

    try:
        done = subprocess.run(
            [docker, "rm", "--force", container],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=REMOVE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return [f"container {container}"]
    # It may have removed itself at its end.
    gone = any(text in done.stderr for text in (b"No such container", b"already in progress"))
    return [] if gone or not done.returncode else [f"container {container}"]


def _runs(fields: list[str]) -> bool:
    """Return whether a process still runs, by what `_stat` returns."""
    # A process whose first thread ended is called a zombie while its other threads run.
    return fields[0] not in "ZX" or int(fields[17]) > 1


def _stat(pid: int) -> list[str]:
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def _control(option: int, value: ctypes.c_ulong | ctypes.c_char_p) -> None:
    if _LINUX:
        ctypes.CDLL(None).prctl(ctypes.c_int(option), value, 0, 0, 0)


def _die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends; exit if it has ended already."""
    _control(_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    # The parent may have ended before the kernel knew.
    if os.getppid() != parent:
        os._exit(1)


def _read_script() -> bytes:
    data = bytearray()
    while len(data) < 8 or len(data) < 8 + struct.unpack("!Q", data[:8])[0]:
        more = os.read(0, 1 << 16)
        if not more:
            os._exit(1)
        data += more
    return bytes(data[8:])


def _file_of(script: bytes) -> int:
    """Return a file without a name that holds a script."""
    # A pipe would take only 64 KB before somebody reads it.
    if _LINUX:
        file = os.memfd_create("script")
    else:
        import tempfile  # Slow to import.

        file, path = tempfile.mkstemp()
        os.unlink(path)  # noqa: PTH108
    with open(file, "wb", closefd=False) as stream:
        stream.write(script)
    # The shell reads it as its input, from the beginning.
    os.lseek(file, 0, os.SEEK_SET)
    return file


def _execute(shell: list[str], script: bytes, report: int) -> None:
    """Become the command."""
    parent = os.getppid()
    # A session of its own: no terminal, and no signals of the runtime's group.
    os.setsid()
    _die_with(parent)
    try:
        os.dup2(_file_of(script), 0)
        os.execv(shell[0], shell)
    except OSError as error:
        os.write(report, f"error {error.strerror}\n".encode())
    os._exit(127)


def _between(shell: list[str], script: bytes, report: int, supervisor: int) -> None:
    """Be the command's parent, and report how it ended."""
    # What the supervisor set up would be inherited by the command.
    signal.set_wakeup_fd(-1)
    for one in (*_STOPS, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(one, signal.SIG_DFL)
    # Out of the supervisor's group, so that a command that kills its parent's group does not hit
    # it.
    os.setpgid(0, 0)
    _die_with(supervisor)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    child = os.fork()
    if not child:
        _execute(shell, script, report)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os.write(report, f"group {child}\n".encode())
    _, status = os.waitpid(child, 0)
    os.write(report, f"exit {os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _wait(between: int, wake: int) -> None:
    """Wait until the command has ended or has to end."""
    while True:
        ready, _, _ = select.select([0, wake], [], [])
        if 0 in ready:
            return
        if any(number in _STOPS for number in os.read(wake, 512)):
            return
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return
            if not pid:
                break
            if pid == between and os.WIFSTOPPED(status):
                # A command can stop its parent, which then would never report its end.
                os.kill(between, signal.SIGCONT)
            elif pid == between:
                return


def _end_all(between: int, group: int) -> list[str]:
    """Kill all descendants; return what could not be killed."""
    until = time.monotonic() + END_SECONDS
    pause = 0.001
    while True:
        if group and not _LINUX:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
            kill(between)
        # Again and again: a process may have forked while the others were being killed.
        for pid in descendants_of(os.getpid()):
            kill(pid)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return []
        if time.monotonic() > until:
            return [name_of(pid) for pid in descendants_of(os.getpid())]
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


def main() -> None:
    """Run the script that the socket brings."""
    container, *shell = sys.argv[1:]
    # Orphans of the command become children of this process instead of init's.
    _control(_SUBREAPER, ctypes.c_ulong(1))
    _control(_PDEATHSIG, ctypes.c_ulong(signal.SIGTERM))
    _control(_NAME, ctypes.c_char_p(b"agent-command"))
    wake, waker = os.pipe()
    for end in (wake, waker):
        os.set_blocking(end, False)
    # Signals arrive as bytes in a pipe, so that one `select` waits for them and for the socket.
    signal.set_wakeup_fd(waker)
    for one in (*_STOPS, signal.SIGCHLD):
        signal.signal(one, lambda number, frame: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    script = _read_script()
    reader, report = os.pipe()
    supervisor = os.getpid()
    between = os.fork()
    if not between:
        _between(shell, script, report, supervisor)
    os.close(report)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)
    _wait(between, wake)
    os.set_blocking(reader, False)
    lines: list[str] = []
    with suppress(BlockingIOError):
        lines = os.read(reader, 4096).decode().splitlines()
    group = next((int(line.split()[1]) for line in lines if line.startswith("group ")), 0)
    left = _end_all(between, group)
    if container:
        # Ending the program `docker` does not end its container.
        left += remove(shell[0], container)
    lines += [f"left {one}" for one in left]
    # The last line: without it the runtime takes the supervisor for killed.
    lines.append("over")
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    with suppress(OSError):
        os.write(0, "\n".join(lines).encode())


if __name__ == "__main__":
    main()
