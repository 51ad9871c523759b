"""Find and read files of instructions: `AGENTS.md`, or `CLAUDE.md` where there is none.

Files of a project are read through its `Root`, which no path or link leaves.  Files of the user are
read wherever their links lead, if they belong to the user.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from agent_runtime.errors import ConfigError, ToolError
from agent_runtime.tools.context_sources.git_state import git_root
from agent_runtime.tools.workspace.protected_paths import DEFAULT, ProtectedPaths
from agent_runtime.tools.workspace.root import SKIPPED, Root
from agent_runtime_config.state import config_folder

NAMES = ("AGENTS.md", "CLAUDE.md")
"""The names of files of instructions; the first that a folder has counts."""
FILE_BYTES = 256 << 10
"""The most that is read of a file."""
INCLUDES = 10
"""The most files that one file of instructions includes."""
INCLUDED = (".md", ".mdc", ".markdown", ".txt")
"""What can be included: nothing else is written to be read by a model."""

_INCLUDE = re.compile(r"@([^\s@`]+)")
_FENCE = re.compile(r"\s*(?:```|~~~)")
# Without blocking: the name may be that of a FIFO, which nobody writes to.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class InstructionFile:
    """A file of instructions that was found.

    Attributes:
        path: for a file of a project, relative to the workspace; else how the user writes it.
        text: with what it includes, or why that is not included; empty if it was refused.
        problem: why it was not read, or not whole; else empty.
    """

    path: str
    text: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class InstructionFiles:
    """The files of instructions for a workspace.

    Every method blocks.

    Attributes:
        root: the workspace, or the folder of the repository that it lies in.
        rules: paths that settings keep from the file tools.
    """

    workspace: Path
    root: Root
    rules: ProtectedPaths = field(default_factory=ProtectedPaths)

    @classmethod
    def of(cls, workspace: Path, rules: ProtectedPaths) -> InstructionFiles:
        """Return the files for a workspace; those above it count up to the root of its repository.

        Raises:
            ConfigError: the workspace is not a folder.
        """
        top = git_root(workspace)
        with suppress(ConfigError):
            # The repository may have the runtime's state in it, although the workspace has not.
            return cls(workspace, Root(top or workspace), rules)
        return cls(workspace, Root(workspace), rules)

    def above(self) -> Iterator[InstructionFile]:
        """Yield the files of the workspace and the folders above it, the outermost first."""
        parts = self.workspace.relative_to(self.root.path).parts
        for depth in range(len(parts) + 1):
            yield from self._in_folder(parts[:depth])

    def below(self, path: Path) -> Iterator[InstructionFile]:
        """Yield the files of the folders from below the workspace down to a path."""
        # A path may be too long, or a folder in it may not be readable.
        with suppress(ValueError, OSError):
            whole = Path(os.path.realpath(path))
            inside = whole.relative_to(self.workspace).parts
            start = self.workspace.relative_to(self.root.path).parts
            depth = len(inside) if whole.is_dir() else len(inside) - 1
            for end in range(1, depth + 1):
                if inside[end - 1] in SKIPPED:
                    return
                yield from self._in_folder((*start, *inside[:end]))

    def again(self, path: str) -> InstructionFile | None:
        """Return a file that was found before, by its path; None if it is there no more."""
        parts = Path(os.path.normpath(self.workspace / path)).parts
        top = self.root.path.parts
        if parts[: len(top)] != top or not parts[len(top) :]:
            return None
        return next(self._in_folder(parts[len(top) : -1]), None)

    def _in_folder(self, folder: tuple[str, ...]) -> Iterator[InstructionFile]:
        for name in NAMES:
            parts = (*folder, name)
            if not os.path.lexists(self.root.path.joinpath(*parts)):
                continue
            shown = os.path.relpath(self.root.path.joinpath(*parts), self.workspace)
            try:
                self._check_owner(parts)
                text, problem = self._read("/".join(parts))
            except ToolError as error:
                yield InstructionFile(shown, "", error.message.rstrip("."))
                return
            if text.strip() or problem:
                yield _with_includes(shown, text, problem, lambda one: self._included(folder, one))
            return

    def _check_owner(self, parts: tuple[str, ...]) -> None:
        """Refuse a file above the workspace that another user may have put there."""
        path = self.root.path.joinpath(*parts)
        if path.is_relative_to(self.workspace):
            return
        if path.lstat().st_uid not in (0, os.getuid()):
            raise ToolError("it belongs to another user")

    def _included(self, folder: tuple[str, ...], path: str) -> tuple[str, str]:
        if PurePosixPath(path).suffix.lower() not in INCLUDED:
            raise ToolError(f"{path} is not a text to include")
        return self._read(os.path.normpath("/".join((*folder, path))))

    def _read(self, path: str) -> tuple[str, str]:
        # What the user protects from being written may be read, but what other programs act on by
        # themselves is not written for agents.
        parts = self.root.parts(path)
        if any(one in SKIPPED for one in parts) or DEFAULT.protected.matches(parts):
            raise ToolError(f"{path} leads to a file of another program")
        with self.root.read(path, DEFAULT + self.rules) as (file, size):
            data = file.read(FILE_BYTES)
        return _decoded(data, size)


def user_file(home: Path | None = None) -> tuple[Path, InstructionFile] | None:
    """Return the user's own file of instructions, and where it is; None if there is none.

    Only the first of `user_places` counts.
    """
    for place in user_places(home):
        shown = _from_home(place, home)
        try:
            text, problem = _read_own(place)
        except FileNotFoundError:
            continue
        except OSError as error:
            return place, InstructionFile(shown, "", error.strerror or type(error).__name__)
        if text.strip():
            folder = place.parent
            return place, _with_includes(
                shown, text, problem, lambda one, folder=folder: _own_included(folder, one)
            )
    return None


def user_places(home: Path | None = None) -> list[Path]:
    """Return where the user's own instructions may be, the best first."""
    folder = config_folder()
    places = [folder / NAMES[0]] if folder is not None else []
    with suppress(RuntimeError):
        own = home or Path.home()
        places += [own / ".agents" / NAMES[0], own / ".claude" / NAMES[1]]
    return places


def _read_own(path: Path) -> tuple[str, str]:
    opened = os.open(path, _READ)
    with os.fdopen(opened, "rb") as file:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(0, "it is no regular file")
        if status.st_uid not in (0, os.getuid()):
            raise OSError(0, "it belongs to another user")
        return _decoded(file.read(FILE_BYTES), status.st_size)


def _own_included(folder: Path, path: str) -> tuple[str, str]:
    # Resolved first, so that a link cannot lead out of the folder.
    real = Path(os.path.realpath(folder / path))
    inside = real.is_relative_to(os.path.realpath(folder))
    if not inside or real.suffix.lower() not in INCLUDED:
        raise ToolError(f"{path} is not a text in the same folder")
    try:
        return _read_own(real)
    except OSError as error:
        raise ToolError(f"{path}: {error.strerror}") from None


def _decoded(data: bytes, size: int) -> tuple[str, str]:
    text = data.decode("utf-8", "replace")
    return text, f"only its first {FILE_BYTES:,} bytes were read" if size > len(data) else ""


def _with_includes(
    path: str, text: str, problem: str, read: Callable[[str], tuple[str, str]]
) -> InstructionFile:
    """Return a file with the files in place of the lines that include them, one level deep."""
    lines: list[str] = []
    fenced, count = False, 0
    for line in text.splitlines():
        fenced ^= bool(_FENCE.match(line))
        found = None if fenced else _INCLUDE.fullmatch(line.strip())
        lines.append(line)
        if found is None:
            continue
        count += 1
        # What is said of an included file stands with its line: the line is of the file's author,
        # and so belongs between the marks of the note.
        if count > INCLUDES:
            if count == INCLUDES + 1:
                lines.append(f"(not included, like all that follow: it is more than {INCLUDES})")
            continue
        try:
            included, cut = read(found[1])
        except ToolError as error:
            lines.append(f"(not included: {error.message.rstrip('.')})")
            continue
        lines[-1:] = [f"({found[1]}:)", included]
        lines += [f"({cut})"] if cut else []
    return InstructionFile(path, "\n".join(lines).strip(), problem)


def _from_home(path: Path, home: Path | None) -> str:
    with suppress(RuntimeError, ValueError):
        return f"~/{path.relative_to(home or Path.home())}"
    return str(path)
