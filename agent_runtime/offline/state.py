"""What the offline model knows of its survey, carried in the text of its own answers.

Old messages leave the prompt, so each answer repeats all that the next one needs; that is bounded
to about 4 KB whatever the folder holds.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal, TypeAlias, TypeVar, cast, overload

import orjson

Phase: TypeAlias = Literal[
    "begin", "stub", "list", "search", "figures", "queue", "read", "part",
    "delegate", "outcome", "recall", "ending", "check",
]  # fmt: skip
PAGE = 200
"""So many entries are listed at once, at first."""
LARGE_PAGE = 1000
LEAST_PAGE = 1
MOST_EXTENSIONS = 30
"""So many extensions are counted one by one, in the order in which they turn up."""
MOST_BIG = 8
"""So many of the biggest files are named."""
LIST_BYTES = 500
"""How much the names of the biggest files, and those of the next files, may take each."""
OTHER = "others"

_MARK = "state: "


@dataclass(slots=True)
class FolderPart:
    """A part of the folder, which a sub-agent reads.

    Attributes:
        first, end: its first entry in the listing, and the one before which it ends.
        ordinal: how many files lie before it.
        label: the path that it begins with, shortened.
        offset, at: the entry and the file at which the next attempt goes on.
        tries: how many attempts were made.
        idle: how many of these in a row came no further.
        stops: why attempts stopped before the part was done.
        done: whether nothing more is to be tried.
    """

    id: str
    first: int
    end: int
    ordinal: int = 0
    label: str = ""
    offset: int = 0
    at: int = 0
    tries: int = 0
    idle: int = 0
    stops: list[str] = field(default_factory=list[str])
    done: bool = False


@dataclass(slots=True)
class State:
    """The survey so far.

    Attributes:
        phase: what the calls beside this state are for.
        sure: whether the folder was named as one in the task.
        page: entries to list at once.
        pages: how many pages were listed for the figures.
        listed: entries that the figures are of.
        offset: where the listing goes on.
        total: entries of the folder by the first listing.
        changed: whether a later listing told another total.
        extensions: files and bytes by extension.
        biggest: size and path, the biggest first.
        notes: what the listing left out or could not read.
        stride: one of so many files is read.
        ordinal: files passed while choosing those to read.
        queue: paths to read next.
        reading: paths being read.
        opened, lines, binary, failed: files read, their lines, and files that could not be read.
        more: whether files may lie behind the last listing.
        before, size: bytes of the report before and after the write under way.
        verify: whether it is being checked if an interrupted write was done.
        planned, phased: whether the survey keeps a plan, and whether in phases.
        delegated: whether sub-agents read the files.
        parts: what they read.
        outcomes: the parts, by their places, whose outcomes are not noted yet, and the handles that
            open these.
        first_listing: the handle of the first page that was listed.
        recalled: what that said, opened again, and where it was.
    """

    phase: Phase
    folder: str
    report: str
    sure: bool = True
    page: int = PAGE
    pages: int = 0
    listed: int = 0
    offset: int = 0
    total: int = 0
    changed: bool = False
    files: int = 0
    folders: int = 0
    links: int = 0
    special: int = 0
    empty: int = 0
    bytes: int = 0
    extensions: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    biggest: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    notes: list[str] = field(default_factory=list[str])
    stride: int = 1
    ordinal: int = 0
    more: bool = False
    queue: list[str] = field(default_factory=list[str])
    reading: list[str] = field(default_factory=list[str])
    opened: int = 0
    lines: int = 0
    binary: int = 0
    failed: int = 0
    before: int = 0
    size: int = 0
    verify: bool = False
    planned: bool = False
    phased: bool = False
    delegated: bool = False
    parts: list[FolderPart] = field(default_factory=list[FolderPart])
    outcomes: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    first_listing: str = ""
    recalled: str = ""
    whereabouts: str = ""

    def add(self, path: str, size: int) -> None:
        """Count a file."""
        self.files += 1
        self.bytes += size
        self.empty += size == 0
        name = extension(path)
        if name not in self.extensions and len(self.extensions) >= MOST_EXTENSIONS:
            name = OTHER
        entry = self.extensions.setdefault(name, [0, 0])
        entry[0] += 1
        entry[1] += size
        self.biggest = sorted([*self.biggest, (size, path)], key=lambda one: (-one[0], one[1]))
        del self.biggest[MOST_BIG:]
        while len(self.biggest) > 1 and _length(path for _, path in self.biggest) > LIST_BYTES:
            self.biggest.pop()

    def has_room(self, path: str) -> bool:
        """Return whether one more path may be queued."""
        return not self.queue or _length([*self.queue, path]) <= LIST_BYTES


def extension(path: str) -> str:
    """Return a file's extension in small letters; short, as some names are all extension."""
    stem, dot, suffix = path.rpartition("/")[2].rpartition(".")
    return f".{suffix.lower()}" if dot and stem and 0 < len(suffix) <= 12 else "none"


Kept = TypeVar("Kept")


def to_text(words: str, state: object, *, without: Collection[str] = ()) -> str:
    """Return an answer's text: words for people, and the state, some of its fields left out."""
    kept = {name: value for name, value in _kept(state).items() if name not in without}
    return f"{words}\n{_MARK}{orjson.dumps(kept).decode()}"


@overload
def from_text(text: str) -> State | None: ...
@overload
def from_text(text: str, kind: type[Kept]) -> Kept | None: ...
def from_text(text: str, kind: type[Any] = State) -> Any:
    """Return the state that an answer's text carries; None if there is none."""
    _, mark, state = text.rpartition(f"\n{_MARK}")
    if not mark:
        return None
    try:
        found = kind(**orjson.loads(state))
        if isinstance(found, State):
            found.parts = [FolderPart(**cast("dict[str, Any]", one)) for one in found.parts]
    except (orjson.JSONDecodeError, TypeError):
        return None
    return found


def _kept(value: Any) -> dict[str, Any]:
    """Return the fields of a state that are not as they are at first."""
    known = ((one, getattr(value, one.name)) for one in fields(value))
    return {one.name: _plain(now) for one, now in known if now != _default(one)}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in cast("list[Any]", value)]
    return _kept(value) if is_dataclass(value) else value


def _default(one: Any) -> Any:
    return one.default_factory() if callable(one.default_factory) else one.default


def _length(paths: Any) -> int:
    return sum(len(path.encode()) + 3 for path in paths)
