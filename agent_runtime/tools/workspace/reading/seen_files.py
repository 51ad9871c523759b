"""`SeenFiles`: which versions of which files a run has seen, by what its log says."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import anyio.to_thread

from agent_runtime.log.run_log import RunLog
from agent_runtime.messages import SeenFile, call_id, decode_result
from agent_runtime.prompt.view import View, handles, shows_whole
from agent_runtime_storage.contract.records.log import Node

MOST_NODES = 2000
"""How far back a resumed run reads its log for what it has seen."""


@dataclass(slots=True)
class _Known:
    """What the run knows of one file.

    Attributes:
        shown: the calls that showed lines of this version.
        pointed: the page for which the last read only named an earlier result.
    """

    digest: str
    step: int
    shown: list[tuple[str, SeenFile]] = field(default_factory=list[tuple[str, SeenFile]])
    pointed: tuple[int, int] | None = None


class SeenFiles:
    """The files that one run has seen; each tool result records what it adds.

    Methods may be called in any thread.

    Args:
        view: returns what prompts are made of now; None where nothing is shown.

    """

    def __init__(self, view: Callable[[], View] | None = None) -> None:
        self._files: dict[str, _Known] = {}
        self._lock = threading.Lock()
        self._view = view

    @classmethod
    def of(cls, log: RunLog) -> SeenFiles:
        """Return what the prompts of a run that begins show."""
        seen = cls(lambda: log.view)
        seen._record_prompt(log)
        return seen

    @classmethod
    async def of_resumed(cls, log: RunLog) -> SeenFiles:
        """Return what a run that is resumed has seen, also what its prompt does not show."""
        seen, entries, exchange = cls(lambda: log.view), log.view.entries, log.exchange
        if entries and (before := entries[0].parent_id) is not None:
            nodes = await log.store.log.branch(log.lease.thread_id, before, limit=MOST_NODES)
            # Off the event loop: there may be thousands of results.
            seen.record("", await anyio.to_thread.run_sync(_seen_in, nodes, log.lease.run_id))
        seen._record_prompt(log)
        if exchange is not None:
            for index, result in sorted(exchange.results.items()):
                seen.record(call_id(exchange.seq, index), result.seen)
        return seen

    def _record_prompt(self, log: RunLog) -> None:
        for entry in log.view.entries:
            for handle, result in zip(handles(entry), entry.results, strict=True):
                self.record(handle, result.seen)

    def record(self, handle: str, seen: Iterable[SeenFile]) -> None:
        """Add what a call's result has shown or made, in the order of the log."""
        with self._lock:
            for one in seen:
                known = self._files.get(one.path)
                if known is None or known.digest != one.digest:
                    known = self._files[one.path] = _Known(one.digest, one.step)
                known.step, known.pointed = one.step, None
                if one.last >= one.first:
                    known.shown.append((handle, one))

    def changed(self, path: str, digest: str) -> int | None:
        """Return the step at which the run last saw the file, if that was another version.

        Args:
            path: below the workspace, with its links resolved.
        """
        with self._lock:
            known = self._files.get(path)
            return None if known is None or known.digest == digest else known.step

    def still_shown(self, path: str, digest: str, first: int, last: int) -> SeenFile | None:
        """Return what in the prompt shows these lines of this version; None if nothing does.

        Asked for the same again at once it returns None, for a model that does not find them.
        """
        with self._lock:
            known = self._files.get(path)
            if known is None or known.digest != digest:
                return None
            # Whoever asks for the same lines again, after the hint, gets them.
            if known.pointed == (first, last):
                known.pointed = None
                return None
            for handle, seen in reversed(known.shown):
                if seen.first <= first and last <= seen.last and self._shows(handle):
                    known.pointed = (first, last)
                    return seen
            return None

    def _shows(self, handle: str) -> bool:
        return self._view is not None and bool(handle) and shows_whole(self._view(), handle)


def _seen_in(nodes: Sequence[Node], run_id: str) -> list[SeenFile]:
    return [one for node in nodes if node.run_id == run_id for one in _seen_by(node)]


def _seen_by(node: Node) -> Iterator[SeenFile]:
    for call in node.calls:
        # Most results have none, and decoding a result takes a while.
        if b'"digest"' in (call.body or b""):
            yield from decode_result(call.body).seen


def digest_of(data: bytes) -> str:
    """Return the digest that names a version of a file."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()
