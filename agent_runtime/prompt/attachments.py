"""Files in prompts: which files a model is shown, in what form, and with what content.

The only module of this room with I/O: it looks up references, reads content from the store, and
writes an event for each file that the model does not see.

The reference, the model and the agent's policy decide how a file is shown, and all are in the log,
so prompts do not change.  Only lost content, or a provider's refusal, changes that: the file is
only named for the rest of the run.
"""

from __future__ import annotations

import base64
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import anyio.to_thread

from agent_runtime.errors import CorruptThread, NotFound, StoreError
from agent_runtime.files.attach import IN_THREAD
from agent_runtime.files.image_sizes import sides_of
from agent_runtime.files.media_types import IMAGES, PDF, is_text, sniff
from agent_runtime.files.pdf_pages import pages_of
from agent_runtime.files.references import (
    NOT_THERE,
    UNREADABLE,
    FilePolicy,
    ResolvedFile,
    file_id,
    resolve_files,
)
from agent_runtime.messages import FileRef, PromptMessage
from agent_runtime.models.base import FilePart, ModelInfo
from agent_runtime.models.file_limits.admission import FileAdmission, FileSize
from agent_runtime.models.tokens import TEXT_BYTES
from agent_runtime.prompt.fences import masked
from agent_runtime_config.urls import redact_url
from agent_runtime_storage.contract.records.log import NewEvent
from agent_runtime_storage.contract.store import UserStore

CACHED_BYTES = 64_000_000
"""The size of the cache, in characters of base64 or text."""

LOST = "its content is lost"
REFUSED = "the model's provider refused it"
NO_IMAGE = "its content is not a PNG, JPEG, GIF or WebP image"
NO_PDF = "its content is not a PDF"
NOT_TAKEN = "the model does not take such files"

# Bytes; a multiple of three, so that no piece but the last has padding.
_PIECE = 3 * 100_000
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Content:
    """A file's content as prompts have it."""

    media_type: str
    data: str = ""
    text: str = ""
    side: int = 0
    pages: int = 0


class ContentCache:
    """A cache of files' content; the least recently used leaves first."""

    def __init__(self, limit: int = CACHED_BYTES) -> None:
        self._limit = limit
        self._held: OrderedDict[tuple[str, str, str], _Content] = OrderedDict()
        self._size = 0

    async def get(self, store: UserStore, thread_id: str, file: FileRef) -> _Content:
        """Return a file's content, from the cache or the store.

        Raises:
            StoreError: it cannot be read.
        """
        # With the owner: the cache is shared by all runs of the process.
        key = (store.user_id, thread_id, file_id(file))
        cached = self._held.pop(key, None)
        if cached is None:
            content = await store.files.content(thread_id, file_id(file))
            # Encoding a large file would block the event loop.
            if len(content) > IN_THREAD:
                cached = await anyio.to_thread.run_sync(_coded, content, file)
            else:
                cached = _coded(content, file)
            self._size += _size(cached)
        # Another run may have read it in the meantime.
        self._size -= _size(self._held.pop(key, None))
        self._held[key] = cached
        while self._size > self._limit:
            self._size -= _size(self._held.popitem(last=False)[1])
        return cached


def _size(content: _Content | None) -> int:
    return 0 if content is None else len(content.data) + len(content.text)


def _coded(content: bytes, file: FileRef) -> _Content:
    # By its bytes: a provider refuses the whole request if an image is not of its declared type.
    media_type = sniff(content)
    if file.kind == "document" and not media_type and is_text(file.media_type):
        # The last character may be cut in half.
        text = content[:TEXT_BYTES].decode(errors="replace").rstrip("\ufffd")
        if len(content) > TEXT_BYTES:
            text += f"\n[... cut here: {len(content):,} bytes in all ...]"
        return _Content(file.media_type, text=text)
    # In pieces, because encoding holds the interpreter lock.
    pieces = range(0, len(content), _PIECE)
    data = "".join(base64.b64encode(content[i : i + _PIECE]).decode() for i in pieces)
    pages = pages_of(content) if media_type == PDF else 0
    return _Content(media_type, data=data, side=max(sides_of(content)), pages=pages)


def masked_parts(shown: Mapping[int, Sequence[FilePart]], nonce: str) -> dict[int, list[FilePart]]:
    """Return files with the mark of the runtime's notes masked in their names and texts."""
    return {
        index: [
            replace(
                one,
                file=replace(one.file, name=masked(one.file.name, nonce)),
                text=masked(one.text, nonce),
            )
            for one in parts
        ]
        for index, parts in shown.items()
    }


class PromptFiles:
    """The files of one run's prompts.

    Args:
        store: the owner's.
        policy: which files the agent shows its model.
        info: of the model: the kinds of files that it takes, and how many how large ones.
        tell: writes an event, for each file that the model does not see.
    """

    def __init__(
        self,
        store: UserStore,
        cache: ContentCache,
        policy: FilePolicy,
        info: ModelInfo,
        tell: Callable[[NewEvent], Awaitable[None]],
    ) -> None:
        self._store = store
        self._cache = cache
        self._policy = policy
        self._takes = info.takes
        self._limits = info.file_limits
        self._tell = tell
        self._resolved: dict[tuple[FileRef, ...], list[ResolvedFile]] = {}
        self._problems: dict[FileRef, str] = {}
        self._accepted: set[FileRef] = set()
        self._reported: set[FileRef] = set()

    async def parts(self, messages: Sequence[PromptMessage]) -> dict[int, list[FilePart]]:
        """Return the files of messages as the model is to see them, by the messages' indices.

        A file that cannot be shown is only named; that raises nothing.

        Raises:
            StoreError: an event cannot be written.
        """
        shown: dict[int, list[FilePart]] = {}
        # A new one for each prompt: what fits depends on the prompt only, in whichever process.
        admission = FileAdmission(self._limits)
        for index, message in enumerate(messages):
            # Providers do not take back files that their models made.
            if message.files and message.role != "assistant":
                resolved = await self._resolve(message.files)
                shown[index] = [await self._part(one, admission) for one in resolved]
        return shown

    def accepted(self, shown: dict[int, list[FilePart]]) -> None:
        """Remember that a model answered a prompt with these files."""
        self._accepted.update(_sent(shown))

    def refused(self, shown: dict[int, list[FilePart]]) -> bool:
        """Handle a provider's refusal of a prompt with these files.

        Files that no answered prompt had are only named from now on; return whether there are any.
        """
        new = _sent(shown) - self._accepted
        self._problems |= dict.fromkeys(new, REFUSED)
        return bool(new)

    async def _resolve(self, files: tuple[FileRef, ...]) -> list[ResolvedFile]:
        resolved = self._resolved.get(files)
        if resolved is None:
            resolved = await resolve_files(self._store, files, self._policy)
            # Not remembered if the store did not answer: it may at the next step.
            if all(one.problem != UNREADABLE for one in resolved):
                self._resolved[files] = resolved
        return resolved

    async def _part(self, one: ResolvedFile, admission: FileAdmission) -> FilePart:
        file = one.file
        problem = one.problem or self._problems.get(file, "")
        part = FilePart(file, problem=problem, detail=self._policy.detail)
        text = file.kind == "document" and is_text(file.media_type)
        if not problem and one.thread_id and (text or file.kind in self._takes):
            part = await self._filled(part, one.thread_id, admission)
        elif not problem and not one.thread_id and file.kind in self._takes:
            # A URL that the provider fetches.
            too_much = admission.problem(FileSize(file.kind, file.media_type))
            part = replace(part, problem=too_much)
        if part.problem or not (part.text or file.kind in self._takes):
            await self._report(file, part.problem or NOT_TAKEN)
        return part

    async def _filled(self, part: FilePart, thread_id: str, admission: FileAdmission) -> FilePart:
        file = part.file
        try:
            content = await self._cache.get(self._store, thread_id, file)
        except (NotFound, CorruptThread) as error:
            self._problems[file] = NOT_THERE if isinstance(error, NotFound) else LOST
            return replace(part, problem=self._problems[file])
        except StoreError as error:
            # Not remembered: it may be readable at the next step.
            _log.warning("The file %s cannot be read: %s", file.uri, error.message)
            return replace(part, problem=UNREADABLE)
        problem = ""
        if file.kind == "image" and content.media_type not in IMAGES:
            problem = NO_IMAGE
        elif file.media_type == PDF and content.media_type != PDF:
            problem = NO_PDF
        if problem:
            self._problems[file] = problem
            return replace(part, problem=problem)
        if not content.text:
            size = FileSize(
                file.kind, content.media_type, len(content.data), content.side, content.pages
            )
            if too_much := admission.problem(size):
                return replace(part, problem=too_much)
        return replace(part, data=content.data, text=content.text)

    async def _report(self, file: FileRef, reason: str) -> None:
        """Write an event, once in a run, that a file is not shown."""
        if file in self._reported:
            return
        self._reported.add(file)
        uri = redact_url(file.uri[:500])
        _log.warning("The model does not see the file %s (%s): %s.", file.name, uri, reason)
        data = {"name": file.name, "uri": uri, "reason": reason}
        await self._tell(NewEvent("file", data=data))


def _sent(shown: dict[int, list[FilePart]]) -> set[FileRef]:
    return {
        part.file
        for parts in shown.values()
        for part in parts
        if not part.problem and not part.text
    }
