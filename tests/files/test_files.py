"""Files: storing them, and references to them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from agent_runtime import File, FilePolicy, FileRef, Runtime
from agent_runtime.errors import InvalidFile, NotFound
from agent_runtime.files.attach import attach, store_file
from agent_runtime.files.media_types import is_text
from agent_runtime.files.references import (
    BROKEN,
    NOT_THERE,
    ResolvedFile,
    from_reference,
    resolve_files,
    to_reference,
)
from agent_runtime.models.tokens import (
    placeholder,
)
from agent_runtime_storage import UserStore
from tests.files.prompted import PDF, PNG, Prompted, runtime, store

__all__ = ["runtime", "store"]
pytestmark = pytest.mark.backends("file")


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
        "of each message at most 2 files can be shown here",
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
