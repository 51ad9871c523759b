"""Files in prompts: what a model gets of them, and how they are counted."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from agent_runtime import File, FileRef, Runtime
from agent_runtime.errors import ObjectLost, StoreUnavailable
from agent_runtime.files.attach import store_file
from agent_runtime.files.references import (
    UNREADABLE,
)
from agent_runtime.messages import FileKind, PromptMessage, decode_message
from agent_runtime.models.base import FilePart
from agent_runtime.models.file_limits.admission import FileLimits
from agent_runtime.models.tokens import (
    IMAGE_TOKENS,
    TEXT_BYTES,
    count_file,
    count_text,
    placeholder,
)
from agent_runtime.prompt.attachments import (
    LOST,
    NO_IMAGE,
    NO_PDF,
    NOT_TAKEN,
    ContentCache,
)
from agent_runtime_storage import UserStore
from tests.files.prompted import PDF, PNG, Prompted, runtime, store

__all__ = ["runtime", "store"]
pytestmark = pytest.mark.backends("file")


async def test_a_model_gets_texts_and_the_content_of_kinds_that_it_accepts(
    store: UserStore,
) -> None:
    image = await store_file(store, "t1", File(PNG, "cat.png"))
    paper = await store_file(store, "t1", File(PDF, "p.pdf"))
    text = await store_file(store, "t1", File("Ümlaut".encode(), "notes.txt"))
    long = await store_file(store, "t1", File("ü".encode() * TEXT_BYTES, "long.txt"))
    prompted = Prompted(store, takes=frozenset({"image"}))
    seen = await prompted.parts(image, paper, text, long)
    assert [bool(part.data) for part in seen] == [True, False, False, False]
    assert seen[2].text == "Ümlaut"
    assert seen[3].text == "ü" * (TEXT_BYTES // 2) + "\n[... cut here: 40,000 bytes in all ...]"
    assert prompted.reasons == [NOT_TAKEN]
    # Each file is reported once.
    assert await prompted.parts(image, paper, text, long) == seen
    assert prompted.reasons == [NOT_TAKEN]


async def test_content_that_contradicts_its_type_is_only_named(store: UserStore) -> None:
    fake = await store_file(store, "t1", File(b"\0garbage", "a.png", "image/png"))
    paper = await store_file(store, "t1", File(b"\0garbage", "a.pdf", "application/pdf"))
    drawing = await store_file(store, "t1", File(b"<svg/>", "a.svg", "image/svg+xml"))
    problems = [part.problem for part in await Prompted(store).parts(fake, paper, drawing)]
    assert problems == [NO_IMAGE, NO_PDF, NO_IMAGE]


class Failing:
    """A store that fails to read files while `error` is set."""

    def __init__(self, store: UserStore) -> None:
        self._store = store
        self.files = self
        self.error: Exception | None = None
        self.reads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def find(self, ids: Any) -> Any:
        """Fail if the error is the database's."""
        if isinstance(self.error, StoreUnavailable):
            raise self.error
        return await self._store.files.find(ids)

    async def content(self, thread_id: str, file_id: str) -> bytes:
        """Raise the error, if it is set."""
        self.reads += 1
        if self.error is not None:
            raise self.error
        return await self._store.files.content(thread_id, file_id)


async def test_lost_content_stays_missing_for_the_rest_of_the_run(store: UserStore) -> None:
    failing: Any = Failing(store)
    ref = await store_file(store, "t1", File(PNG))
    failing.error = ObjectLost("gone")
    prompted = Prompted(failing)
    assert [part.problem for part in await prompted.parts(ref)] == [LOST]
    failing.error = None
    assert [part.problem for part in await prompted.parts(ref)] == [LOST]
    assert prompted.reasons == [LOST]


async def test_temporarily_unreadable_content_is_shown_later(store: UserStore) -> None:
    failing: Any = Failing(store)
    ref = await store_file(store, "t1", File(PNG))
    failing.error = StoreUnavailable("down")
    prompted = Prompted(failing)
    assert [part.problem for part in await prompted.parts(ref)] == [UNREADABLE]
    failing.error = None
    [part] = await prompted.parts(ref)
    assert (part.problem, bool(part.data)) == ("", True)


async def test_a_refusal_concerns_only_files_that_no_answered_prompt_had(store: UserStore) -> None:
    first = await store_file(store, "t1", File(PNG))
    second = await store_file(store, "t1", File(PNG + b"2"))
    prompted = Prompted(store)

    async def shown(*files: FileRef) -> dict[int, list[FilePart]]:
        return await prompted.files.parts([PromptMessage("user", "", files=files)])

    prompted.files.accepted(await shown(first))
    both = await shown(first, second)
    assert prompted.files.refused(both)
    assert [bool(part.problem) for part in (await shown(first, second))[0]] == [False, True]
    # No file is left that the refusal could be about.
    assert not prompted.files.refused(await shown(first, second))


async def test_the_content_cache_is_bounded(store: UserStore) -> None:
    failing: Any = Failing(store)
    refs = [await store_file(store, "t1", File(PNG + bytes([n]) * 1000)) for n in range(3)]
    size = -(-(len(PNG) + 1000) // 3) * 4
    prompted = Prompted(failing, cache=ContentCache(limit=2 * size))
    for ref in (refs[0], refs[1], refs[0], refs[2], refs[0], refs[2]):
        [part] = await prompted.parts(ref)
        assert len(part.data) == size
    assert failing.reads == 3
    await prompted.parts(refs[1])
    assert failing.reads == 4


async def test_encoding_content_does_not_block_the_loop(runtime: Runtime) -> None:
    store = runtime.store.of("local")
    await store.threads.ensure("t1")
    content = PNG + os.urandom(12_000_000)
    ref = await store_file(store, "t1", File(content), 20_000_000)
    prompted = Prompted(store)
    parts: list[FilePart] = []
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await anyio.lowlevel.checkpoint()
            ticks += 1

    async with anyio.create_task_group() as group:
        group.start_soon(tick)
        await anyio.lowlevel.checkpoint()
        before = ticks
        parts = await prompted.parts(ref)
        assert ticks > before + 10
        group.cancel_scope.cancel()
    assert len(parts[0].data) == -(-len(content) // 3) * 4


# Messages and counting


def test_a_message_without_file_sizes_is_still_read() -> None:
    old = b'{"text":"Hi.","files":[{"kind":"image","uri":"upload:1","media_type":"","name":""}]'
    message = decode_message(old + b',"type":"user"}')
    assert message.type == "user"
    assert message.files == (FileRef("image", "upload:1"),)


def test_a_files_tokens_depend_on_kind_and_size_within_bounds() -> None:
    assert count_file(FileRef("image", "https://example.com/a.png")) == IMAGE_TOKENS
    url = FileRef("document", "https://example.com/a.pdf", "application/pdf")
    assert count_file(url) == count_text(placeholder(url))

    def tokens(kind: FileKind, media_type: str, size: int) -> int:
        return count_file(FileRef(kind, "upload:1", media_type, "a", size))

    assert tokens("document", "application/pdf", 10) == 1_500
    assert tokens("document", "application/pdf", 1_000_000) == 20_000
    assert tokens("document", "application/pdf", 20_000_000) == 30_000
    assert tokens("document", "text/plain", 3_000) > 1_000
    assert tokens("document", "text/plain", 10**9) < 7_000
    assert tokens("audio", "audio/wav", 1_000_000) == 4_000
    assert tokens("video", "video/mp4", 1_000_000) == 5_000
    assert tokens("custom", "application/zip", 1_000_000) < 50


async def test_a_file_that_is_too_large_is_named_and_the_others_stay(store: UserStore) -> None:
    large = await store_file(store, "t1", File(PNG * 9, "large.png"))
    small = [await store_file(store, "t1", File(PNG, f"{n}.png")) for n in range(2)]
    prompted = Prompted(store, limits=FileLimits(image=2000))
    first, named, second = await prompted.parts(small[0], large, small[1])
    assert [part.problem for part in (first, second)] == ["", ""]
    assert first.data and second.data and not named.data
    assert "an image may have 0.0 MB as base64" in named.problem
    assert prompted.reasons == [named.problem]


async def test_what_was_shown_stays_as_a_prompt_grows(store: UserStore) -> None:
    refs = [await store_file(store, "t1", File(PNG, f"{n}.png")) for n in range(4)]
    shown: list[list[str]] = []
    for count in range(1, 5):
        # Each in a process of its own: nothing is remembered.
        prompted = Prompted(store, limits=FileLimits(images=2))
        shown.append([part.problem for part in await prompted.parts(*refs[:count])])
    assert all(longer[: len(shorter)] == shorter for shorter, longer in pairwise(shown))
    assert list(map(bool, shown[-1])) == [False, False, True, True]
    # After an activation that the first ones left, there is room for the others.
    later = Prompted(store, limits=FileLimits(images=2))
    assert [part.problem for part in await later.parts(*refs[2:])] == ["", ""]
