"""Ask git for the state of a folder without running anything that its repository names.

A repository's configuration can name programs: monitors, hooks, filters, and transports that fetch
missing objects.  Options can switch off those that are known, but filters have names of their own,
and whoever may write the folder could add one while git runs.  So `git status` is given a git
folder of its own, which has only a few checked values of the repository's configuration; the
repository's index and objects are only read.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import anyio.to_thread

from agent_runtime.concurrency import open_process

SECONDS = 3.0
"""How long git may take in all."""
OUTPUT_BYTES = 256 << 10
"""The most output that is read of one command."""
MOST_CHANGES = 20
"""The most changed files that are named."""
EXCLUDE_BYTES = 64 << 10
"""The most that is read of the repository's own list of ignored files."""

# Settings by which a repository could run programs or reach a server, or make git write.
_SAFE = (
    "--no-pager",
    "-c", "core.fsmonitor=false",
    "-c", "core.hooksPath=/dev/null",
    "-c", "core.untrackedCache=false",
    "-c", "protocol.allow=never",
    "-c", "safe.bareRepository=explicit",
)  # fmt: skip
_SETTINGS = "filemode|autocrlf|eol|ignorecase|symlinks|precomposeunicode|trustctime|checkstat"
_VALUES = frozenset({"true", "false", "input", "lf", "crlf", "native", "default", "minimal"})
_FORMATS = ("sha1", "sha256")


@dataclass(frozen=True, slots=True)
class GitState:
    """The state of a repository.

    Attributes:
        branch: empty if no branch is checked out.
        commit: empty before the first one.
        changes: what changed, as `git status --short` marks it, and the path.
        count: how many files changed.
        unread: why the changed files are not known; else empty.
        problem: why nothing is known; else empty.
    """

    branch: str = ""
    commit: str = ""
    changes: tuple[tuple[str, str], ...] = ()
    count: int = 0
    unread: str = ""
    problem: str = ""


class _GitFailed(Exception):
    """A command of git failed, or gave something unexpected."""


class _TooMuchOutput(_GitFailed):
    """A command gave more than is read."""


async def read_git_state(folder: Path) -> GitState | None:
    """Return the state of the repository that a folder lies in; None if it lies in none.

    Args:
        folder: a resolved path.

    Cancellation: git is ended.
    """
    top = await anyio.to_thread.run_sync(git_root, folder)
    if top is None:
        return None
    program = await anyio.to_thread.run_sync(_program, top)
    if program is None:
        return GitState(problem="the program git is not there")
    git = _Git(program, top)
    late = f"git took longer than {SECONDS:g} seconds"
    state = GitState(problem=late)
    with anyio.move_on_after(SECONDS):
        try:
            state = await git.head()
        except (OSError, _GitFailed):
            return GitState(problem="git cannot read the repository, or refuses to")
        found, state = state, replace(state, unread=late)
        try:
            state = await git.with_changes(found)
        except _TooMuchOutput:
            state = replace(found, unread="there are too many")
        except (OSError, _GitFailed):
            state = replace(found, unread="git cannot read its index")
    return state


def git_root(folder: Path) -> Path | None:
    """Return the folder with the `.git` that a folder lies under; None if there is none.

    Folders above that belong to another user are not looked at: anybody can write `/tmp/.git`.
    """
    for one in (folder, *folder.parents):
        try:
            # A folder above that belongs to another user could name a repository of theirs.
            if one != folder and one.stat().st_uid not in (0, os.getuid()):
                return None
            if os.path.lexists(one / ".git"):
                status = (one / ".git").lstat()
                return one if one == folder or status.st_uid in (0, os.getuid()) else None
        except OSError:
            return None
    return None


def _program(top: Path) -> str | None:
    """Return the program git; never one that lies in the repository."""
    for place in os.get_exec_path():
        # A relative entry would be searched from wherever the process stands.
        if not Path(place).is_absolute():
            continue
        found = shutil.which("git", path=place)
        if found is not None and not _inside(found, top):
            return found
    return None


def _inside(path: str, top: Path) -> bool:
    real = Path(os.path.realpath(path))
    return any(one.is_relative_to(top) for one in (Path(path), real))


@dataclass(frozen=True, slots=True)
class _Git:
    """Runs git for the repository at `top`."""

    program: str
    top: Path

    async def head(self) -> GitState:
        """Return the branch and the commit."""
        top = (await self._ask("rev-parse", "--show-toplevel")).rstrip("\n")
        # `core.worktree` may name any other folder.  Both paths are resolved.
        if Path(top) != self.top:
            raise _GitFailed
        # Fails on a detached head, and the next one before the first commit.
        branch = await self._ask("symbolic-ref", "--quiet", "--short", "HEAD", fails=True)
        commit = await self._ask("rev-parse", "--quiet", "--verify", "HEAD^{commit}", fails=True)
        return GitState(branch.strip(), commit.strip())

    async def with_changes(self, state: GitState) -> GitState:
        """Return the state with its changed files."""
        names = ("index", "objects", "info/exclude")
        paths = await self._ask(
            "rev-parse", "--path-format=absolute", "--show-object-format",
            *(part for name in names for part in ("--git-path", name)),
        )  # fmt: skip
        lines = paths.splitlines()
        if len(lines) != 1 + len(names) or lines[0] not in _FORMATS:
            raise _GitFailed
        object_format, index, objects, exclude = lines
        settings = await self._ask(
            "config", "--null", "--get-regexp", rf"^core\.({_SETTINGS})$", fails=True
        )
        # A git folder of our own, because `status` obeys the repository's configuration, which
        # may name programs.
        own = Path(tempfile.gettempdir()) / f"agent-runtime-git-{uuid.uuid4().hex}"
        try:
            await anyio.to_thread.run_sync(
                _make_git_folder, own, state.commit, object_format, settings, exclude
            )
            return await self._status(state, own, index, objects)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(lambda: shutil.rmtree(own, ignore_errors=True))

    async def _status(self, state: GitState, own: Path, index: str, objects: str) -> GitState:
        places = {
            "GIT_DIR": str(own),
            "GIT_WORK_TREE": str(self.top),
            "GIT_INDEX_FILE": index,
            "GIT_OBJECT_DIRECTORY": objects,
            # The user's configuration may name filters, which attributes of the repository select.
            "GIT_CONFIG_GLOBAL": str(own / "config"),
        }
        text = await self._ask(
            "status", "--porcelain=v1", "-z", "--untracked-files=normal",
            "--ignore-submodules=all", "--no-renames", environment=places,
        )  # fmt: skip
        # Without renames each entry is one path.
        entries = [one for one in text.split("\0") if len(one) > 3]
        changes = tuple((one[:2], one[3:]) for one in entries[:MOST_CHANGES])
        return replace(state, changes=changes, count=len(entries))

    async def _ask(
        self, *arguments: str, fails: bool = False, environment: Mapping[str, str] | None = None
    ) -> str:
        """Return the output of a command; an empty text if it `fails` as it may.

        Raises:
            OSError, _GitFailed.
        """
        known = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        known |= {
            "LC_ALL": "C",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_ALLOW_PROTOCOL": "",
            "GIT_TERMINAL_PROMPT": "0",
        }
        command = [self.program, *_SAFE, *arguments]
        code, output = await _run(command, self.top, known | dict(environment or {}))
        if code and not fails:
            raise _GitFailed
        return "" if code else output.decode("utf-8", "replace")


async def _run(
    command: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> tuple[int, bytes]:
    """Run a program; return its exit code and its output.

    Cancellation: it is ended, with what it started.
    """
    process = await open_process(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    output = bytearray()
    try:
        assert process.stdout is not None
        async for part in process.stdout:
            output += part
            if len(output) > OUTPUT_BYTES:
                raise _TooMuchOutput
        return await process.wait(), bytes(output)
    except BaseException:
        with suppress(ProcessLookupError, PermissionError):
            # The whole group: git starts helpers of its own, which can outlive it.
            os.killpg(process.pid, signal.SIGKILL)
        raise
    finally:
        # A process that waits for a dead file server cannot even be killed.
        with anyio.move_on_after(1, shield=True):
            await process.aclose()


def _make_git_folder(
    folder: Path, commit: str, object_format: str, settings: str, exclude: str
) -> None:
    """Make a git folder without references, and with checked configuration."""
    folder.mkdir(mode=0o700)
    values = ["[core]", "repositoryformatversion = 1", "bare = false"]
    for one in settings.split("\0"):
        key, _, value = one.partition("\n")
        # Words that only switch something; a path or a command is never one of them.
        if value.lower() in _VALUES:
            values.append(f"{key.removeprefix('core.')} = {value.lower()}")
    values += ["[extensions]", f"objectFormat = {object_format}"]
    (folder / "config").write_text("\n".join(values) + "\n")
    (folder / "HEAD").write_text(f"{commit}\n" if commit else "ref: refs/heads/none\n")
    for name in ("refs", "info"):
        (folder / name).mkdir()
    with suppress(OSError), open(exclude, "rb", opener=_open_plainly) as file:
        (folder / "info" / "exclude").write_bytes(file.read(EXCLUDE_BYTES))


def _open_plainly(path: str, flags: int) -> int:
    # A FIFO without a writer would block.
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
