"""Ranges of seeds that were judged, in a file, so that a long simulation can be continued."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

import agent_runtime
import agent_runtime_storage

_SIMULATED = Path(__file__).parent
_ENGINE, _STORE = Path(agent_runtime.__file__).parent, Path(agent_runtime_storage.__file__).parent
_CODE = (
    _SIMULATED, _ENGINE / "run" / "queue", _ENGINE / "run" / "takeover.py", _ENGINE / "log",
    _STORE / "log", _STORE / "sql", _STORE / "queries", _STORE / "contract",
    _STORE / "drivers" / "sqlite",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Judged:
    """What a range of seeds showed.

    Attributes:
        first, last: the range; its last seed is the one before `last`.
        happened: how often each counted event occurred.
        problems: of each seed that had some.
        cpu: seconds of processor time.
    """

    first: int
    last: int
    happened: Mapping[str, int]
    problems: Mapping[str, Sequence[str]]
    cpu: float

    @property
    def worlds(self) -> int:
        """How many seeds it has."""
        return self.last - self.first


class Kept:
    """Ranges in a file, one in a line; only those of the same code and the same size count.

    Args:
        path: of the file; None to keep nothing.

    Attributes:
        judged: by the first seed of each.
    """

    def __init__(self, path: Path | None, size: str) -> None:
        self._path = path
        self._key = {"size": size, "code": code_digest()} if path else {}
        self.judged: dict[int, Judged] = {}
        lines = path.read_bytes().splitlines() if path and path.exists() else []
        for line in filter(None, lines):
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError:
                # Whoever wrote it was ended meanwhile.
                continue
            if {name: row.pop(name) for name in ("size", "code")} == self._key:
                self.judged[row["first"]] = Judged(**row)

    def of(self, shares: Iterable[range]) -> Iterator[Judged]:
        """Yield what is kept of ranges, and forget those that are none of them."""
        wanted = {(share.start, share.stop) for share in shares}
        self.judged = {
            one.first: one for one in self.judged.values() if (one.first, one.last) in wanted
        }
        yield from self.judged.values()

    def add(self, judged: Judged) -> None:
        """Write a range, if there is a file."""
        if self._path is not None:
            # A line break first, in case the last line has none.
            with self._path.open("ab") as file:
                file.write(b"\n" + orjson.dumps({**self._key, **_row(judged)}))


def _row(judged: Judged) -> Mapping[str, object]:
    return {name: getattr(judged, name) for name in Judged.__slots__}


@functools.cache
def code_digest() -> str:
    """Return a digest of the code that decides what a world does."""
    digest = hashlib.sha256()
    for place in _CODE:
        files = [place] if place.is_file() else sorted(place.rglob("*"))
        for file in files:
            if file.suffix in (".py", ".sql"):
                digest.update(file.relative_to(place.parent).as_posix().encode())
                digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
