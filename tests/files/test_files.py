"""Files: storing them, references to them, and their parts in prompts."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from agent_runtime import File, FilePolicy, FileRef, Runtime, Settings
from agent_runtime.errors import InvalidFile, NotFound, ObjectLost, StoreUnavailable
from agent_runtime.files.attach import attach, store_file
from agent_runtime.files.media_types import is_text
from agent_runtime.files.references import (
    BROKEN,
    NOT_THERE,
    UNREADABLE,
    ResolvedFile,
    from_reference,
    resolve_files,
    to_reference,
)
from agent_runtime.messages import FileKind, PromptMessage, decode_message
from agent_runtime.models.base import FilePart, ModelInfo
from agent_runtime.models.file_limits.admission import NO_FILE_LIMITS, FileLimits
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
    PromptFiles,
)
from agent_runtime_storage import UserStore
from agent_runtime_storage.contract.records.log import NewEvent

pytestmark = pytest.mark.backends("file")

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


# Storing files


@pytest.mark.parametrize(
    ("content", "name", "kind", "media_type"),
    [
        (PNG, "", "image", "image/png"),
        (PNG, "cat.jpg", "image", "image/png"),
        (b"\xff\xd8\xff\xe0", "", "image", "image/jpeg"),
        (b"RIFF\x04\0\0\0WEBPVP8 ", "", "image", "image/webp"),
        (b"RIFF\x04\0\0\0WAVEfmt ", "", "audio", "audio/wav"),
        (b"\0\0\0\x18ftypmp42", "film.mp4", "video", "video/mp4"),
        (PDF, "", "document", "application/pdf"),
        (b"# Title", "notes.md", "document", "text/markdown"),
        ('{"ö": 1}'.encode(), "a.json", "document", "application/json"),
        (b"some words", "", "document", "text/plain"),
        (b"a" * 4095 + "ö".encode(), "", "document", "text/plain"),
        (b"\0\1\2\3", "", "custom", "application/octet-stream"),
        (b"PK\3\4\0", "a.zip", "custom", "application/zip"),
    ],
)
async def test_the_type_is_taken_from_the_content_and_then_from_the_name(
    store: UserStore, content: bytes, name: str, kind: str, media_type: str
) -> None:
    ref = await store_file(store, "t1", File(content, name))
    assert (ref.kind, ref.media_type, ref.name) == (kind, media_type, name)
    assert ref.size == len(content)
    assert await resolve_files(store, [ref]) == [ResolvedFile(ref, thread_id="t1")]


async def test_a_text_with_a_video_suffix_is_a_document(
    store: UserStore,
) -> None:
    ref = await store_file(store, "t1", File(b"let x = 1", "main.ts"))
    assert ref.kind == "document"
    assert is_text(ref.media_type)


async def test_a_stated_type_is_used_unless_the_content_contradicts_it(
    runtime: Runtime,
) -> None:
    ref = await runtime.files.upload(
        "new thread", b"\0\1", name="data", media_type="Application/X-Thing", kind="document"
    )
    assert (ref.kind, ref.media_type) == ("document", "application/x-thing")
    assert ref.uri.startswith("upload:")
    bad = await runtime.files.upload("new thread", PNG, media_type="image/jpeg\r\nX: y")
    assert bad.media_type == "image/png"
    assert await runtime.files.of("new thread") == [ref, bad]
    assert await runtime.files.read(bad) == PNG
    with pytest.raises(NotFound):
        await runtime.files.read(bad, user="stranger")
    with pytest.raises(NotFound):
        await runtime.files.read(FileRef("image", "https://example.com/a.png"))


async def test_paths_urls_references_and_bytes_are_attached_in_order(
    store: UserStore, tmp_path: Path
) -> None:
    (tmp_path / "a b.png").write_bytes(PNG)
    known = FileRef("image", "upload:1")
    files = await attach(
        store,
        "t1",
        [
            str(tmp_path / "a b.png"),
            tmp_path / "a b.png",
            File(PDF, "p.pdf"),
            known,
            "https://example.com/x/cat%20one.JPG?sig=1",
            "http://example.com/",
            "data:image/png;base64,iVBORw0KGgo=",
            FileRef("document", "data:,Hello%20there", name="greeting.txt"),
        ],
    )
    assert [file.name for file in files] == [
        "a b.png", "a b.png", "p.pdf", "", "cat one.JPG", "", "", "greeting.txt",
    ]  # fmt: skip
    assert [file.kind for file in files] == [
        "image", "image", "document", "image", "image", "custom", "image", "document",
    ]  # fmt: skip
    assert files[3] is known
    assert files[4].uri == "https://example.com/x/cat%20one.JPG?sig=1"
    # The content of a `data:` URL is stored, because messages hold no content.
    assert files[7].uri.startswith("upload:")
    row = (await store.files.find([files[7].uri.partition(":")[2]]))[0]
    assert await store.files.content("t1", row.id) == b"Hello there"


async def test_the_scheme_of_a_data_url_may_be_in_capitals(store: UserStore) -> None:
    await store.threads.ensure("t1")
    [file] = await attach(store, "t1", ["DATA:text/csv;base64,YSxi"])
    assert (file.kind, file.media_type) == ("document", "text/csv")


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (File(b""), "is empty"),
        (File(b"x" * 50_001, "big"), "'big' has 50,001 bytes; the limit is 50,000"),
        ("missing.png", "'missing.png' cannot be read: No such file"),
        (".", "is not a file"),
        ("bad\0name", "cannot be read"),
        ("http:///path", "names no host"),
        ("data:image/png;base64,???", "incomplete"),
        ("data:image/png;base64,ü", "incomplete"),
        ("data:nothing", "incomplete"),
    ],
)
async def test_a_file_that_cannot_be_stored_is_refused_by_name(
    store: UserStore, file: Any, message: str
) -> None:
    with pytest.raises(InvalidFile, match=message) as raised:
        await attach(store, "t1", [file], 50_000)
    assert raised.value.cure
    assert await store.files.list("t1") == []


async def test_a_file_above_the_limit_is_not_read(store: UserStore, tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(10**12)
    with pytest.raises(InvalidFile, match="1,000,000,000,000 bytes"):
        await attach(store, "t1", [large], 50_000)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidFile, match="is not a file"):
        await attach(store, "t1", [tmp_path / "pipe"])


async def test_a_name_is_stored_as_one_readable_line(store: UserStore) -> None:
    name = "a\0b\nc\x1b[31m\ud800" + "x" * 300 + ".txt"
    ref = await store_file(store, "t1", File(b"words", name))
    assert len(ref.name) == 200
    assert ref.name.endswith("x.txt")
    short = await store_file(store, "t1", File(b"words", "a\0b\nc \ud800.txt"))
    assert short.name == "a b c \ufffd.txt"


# References


@pytest.mark.parametrize(
    ("ref", "reference"),
    [
        (
            FileRef("image", "upload:file-uuid-123"),
            {
                "type": "image",
                "transfer_method": "local_file",
                "upload_file_id": "file-uuid-123",
                "belongs_to": "user",
            },
        ),
        (
            FileRef("video", "tool:t-1"),
            {
                "type": "video",
                "transfer_method": "tool_file",
                "tool_file_id": "t-1",
                "belongs_to": "user",
            },
        ),
        (
            FileRef("document", "https://example.com/a.pdf", "application/pdf", "a.pdf", 12),
            {
                "type": "document",
                "transfer_method": "remote_url",
                "url": "https://example.com/a.pdf",
                "name": "a.pdf",
                "media_type": "application/pdf",
                "size": 12,
                "belongs_to": "user",
            },
        ),
    ],
)
def test_a_reference_goes_to_dify_and_back(ref: FileRef, reference: dict[str, Any]) -> None:
    assert to_reference(ref) == reference
    assert from_reference(reference) == (ref, "user")
    # Dify also writes unset fields.
    unset = dict.fromkeys(("upload_file_id", "tool_file_id", "url"))
    assert from_reference({**unset, **reference}) == (ref, "user")
    assert from_reference(to_reference(ref, "assistant")) == (ref, "assistant")


@pytest.mark.parametrize(
    "reference",
    [
        {},
        {"type": "image", "transfer_method": "local_file"},
        {"type": "image", "transfer_method": "local_file", "upload_file_id": 7},
        {"type": 7, "transfer_method": ["x"], "url": None},
        {"type": "image", "transfer_method": "remote_url", "url": "ftp://example.com/a"},
        {"type": "image", "transfer_method": "remote_url", "url": "https://[broken"},
        {"type": "hologram", "transfer_method": "teleport", "url": "nowhere"},
    ],
)
async def test_a_broken_reference_is_reported_and_never_raised(
    store: UserStore, reference: dict[str, Any]
) -> None:
    ref, _ = from_reference(reference)
    [resolved] = await resolve_files(store, [ref])
    assert resolved.problem == BROKEN
    assert "not shown: its reference is broken]" in placeholder(resolved.file, resolved.problem)


async def test_a_reference_is_completed_from_the_store(store: UserStore) -> None:
    ref = await store_file(store, "t1", File(PNG, "cat.png"), origin="tool")
    bare, _ = from_reference(to_reference(ref))
    assert bare == FileRef("image", ref.uri)
    [resolved] = await resolve_files(store, [bare])
    assert resolved.file == ref
    assert (resolved.problem, resolved.thread_id) == ("", "t1")


async def test_a_broken_file_does_not_affect_the_others(store: UserStore) -> None:
    good = await store_file(store, "t1", File(PNG, "cat.png"))
    url = FileRef("image", "https://example.com/a.png")
    missing = FileRef("image", "upload:00000000-0000-7000-8000-000000000000")
    resolved = await resolve_files(store, [missing, good, FileRef("custom", ""), url])
    assert [file.problem for file in resolved] == [NOT_THERE, "", BROKEN, ""]


async def test_a_file_of_another_owner_is_not_found(runtime: Runtime, store: UserStore) -> None:
    theirs = await runtime.files.upload("t1", PNG, name="secret.png", user="stranger")
    missing = FileRef("image", "upload:00000000-0000-7000-8000-000000000000")
    bare = FileRef("image", theirs.uri)
    prompted = Prompted(store)
    foreign, missing_part = await prompted.parts(bare, missing)
    assert (foreign.file, foreign.data, foreign.problem) == (bare, "", NOT_THERE)
    assert missing_part.problem == foreign.problem
    assert "secret" not in placeholder(foreign.file, foreign.problem)
    assert prompted.reasons == [NOT_THERE, NOT_THERE]


async def test_a_sub_agents_thread_can_use_its_parents_file(store: UserStore) -> None:
    ref = await store_file(store, "t1", File(PNG))
    await store.threads.ensure("of a sub-agent")
    [part] = await Prompted(store).parts(ref)
    assert part.data


async def test_a_policy_selects_the_files_of_a_message(store: UserStore) -> None:
    image = await store_file(store, "t1", File(PNG))
    tools = await store_file(store, "t1", File(PNG), origin="tool")
    paper = await store_file(store, "t1", File(PDF))
    url = FileRef("image", "https://example.com/a.png")
    files = [paper, image, url, tools]

    async def problems(**policy: Any) -> list[str]:
        return [file.problem for file in await resolve_files(store, files, FilePolicy(**policy))]

    assert await problems() == ["", "", "", ""]
    kinds = await problems(kinds=("image",), limit=2)
    assert kinds == [
        "files of kind document are not shown here",
        "",
        "",
        "at most 2 files of a message are shown here",
    ]
    way = "files that came in this way are not shown here"
    assert await problems(methods=("local_file",)) == ["", "", way, way]
    assert await problems(max_bytes=500) == [
        "",
        "files of more than 500 bytes are not shown here",
        "",
        "files of more than 500 bytes are not shown here",
    ]
    prompted = Prompted(store, policy=FilePolicy(detail="low", kinds=("image",)))
    assert [part.detail for part in await prompted.parts(image, url)] == ["low", "low"]


# Files in prompts


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
