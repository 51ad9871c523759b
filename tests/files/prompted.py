"""A store with a thread, and the files of a run's prompts."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from agent_runtime import FilePolicy, FileRef, Runtime, Settings
from agent_runtime.messages import FileKind, PromptMessage
from agent_runtime.models.base import FilePart, ModelInfo
from agent_runtime.models.file_limits.admission import NO_FILE_LIMITS, FileLimits
from agent_runtime.prompt.attachments import (
    ContentCache,
    PromptFiles,
)
from agent_runtime_storage import UserStore
from agent_runtime_storage.contract.records.log import NewEvent

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4
PDF = b"%PDF-1.7\n" + b"x" * 100
EVERY: frozenset[FileKind] = frozenset({"image", "audio", "video", "document"})


@pytest.fixture
async def runtime(database_url: str) -> AsyncIterator[Runtime]:
    """An open runtime."""
    async with Runtime.open(Settings(database_url=database_url, max_file_bytes=50_000)) as opened:
        yield opened


@pytest.fixture
async def store(runtime: Runtime) -> UserStore:
    """The owner's store, with a thread."""
    store = runtime.store.of("local")
    await store.threads.ensure("t1")
    return store


class Prompted:
    """The files of a run's prompts, and the reasons in the events that they write."""

    def __init__(
        self,
        store: UserStore,
        *,
        policy: FilePolicy = FilePolicy(),  # noqa: B008  (immutable)
        takes: frozenset[FileKind] = EVERY,
        limits: FileLimits = NO_FILE_LIMITS,
        cache: ContentCache | None = None,
    ) -> None:
        self.reasons: list[str] = []
        cache = cache or ContentCache()
        info = ModelInfo("m", 8000, 800, None, takes=takes, file_limits=limits)
        self.files = PromptFiles(store, cache, policy, info, self._record)

    async def _record(self, event: NewEvent) -> None:
        assert event.kind == "file"
        self.reasons.append(event.data["reason"])

    async def parts(self, *files: FileRef) -> list[FilePart]:
        """Return the parts of one message with these files."""
        return (await self.files.parts([PromptMessage("user", "Look.", files=files)]))[0]
