"""The document of a node memory: JSON, version 1, plain or compressed.

In the format of Dify's `NodeTokenBufferMemory`.  Unknown fields are preserved.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal, cast

import anyio.to_thread
import zstandard
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent_runtime.errors import CorruptDocument, UnknownVersion
from agent_runtime.files.references import from_reference, to_reference
from agent_runtime.messages import FileRef, encodable

VERSION = 1
PLAIN, COMPRESSED = ".json", ".json.zst"
CODE_IN_THREAD = 128 * 1024
"""Bytes above which documents are coded in a worker thread."""
_CURE = "Restore it from a backup, or delete the memory with `clear`; it was left as it is."


class NodeMessage(BaseModel):
    """One message of a node memory.

    Attributes:
        files: references in Dify's form: `type`, `transfer_method`, an id or a URL, `belongs_to`.
        token_count: of the content, by our count.
        created_at: ISO 8601, UTC.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    message_id: str
    parent_message_id: str | None
    role: Literal["user", "assistant"]
    content: str
    files: tuple[dict[str, Any], ...] = ()
    token_count: int = Field(default=0, ge=0)
    created_at: str = ""

    @property
    def refs(self) -> tuple[FileRef, ...]:
        """The files as messages refer to them."""
        return tuple(from_reference(file)[0] for file in self.files)


class _Document(BaseModel):
    model_config = ConfigDict(extra="allow")

    version: Literal[1]
    messages: tuple[NodeMessage, ...]


def new_message(
    message_id: str,
    parent_message_id: str | None,
    role: Literal["user", "assistant"],
    content: str,
    files: Sequence[FileRef],
    token_count: int,
) -> NodeMessage:
    """Return a message with the current time."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return NodeMessage(
        message_id=message_id,
        parent_message_id=parent_message_id,
        role=role,
        content=encodable(content),
        files=tuple(to_reference(file, role) for file in files),
        token_count=token_count,
        created_at=now.replace("+00:00", "Z"),
    )


class NodeDocument:
    """The messages of a document, and its unknown fields."""

    def __init__(
        self, messages: Sequence[NodeMessage] = (), extra: dict[str, Any] | None = None
    ) -> None:
        self.messages = tuple(messages)
        self.extra = extra or {}

    def with_messages(self, messages: Sequence[NodeMessage]) -> NodeDocument:
        """Return a copy with other messages."""
        return NodeDocument(messages, self.extra)


async def decode_node_document(data: bytes, place: str) -> NodeDocument:
    """Return the content of a document.

    Args:
        place: its key, for errors; the ending says whether it is compressed.

    Raises:
        CorruptDocument: it is damaged, or not a node memory.
        UnknownVersion: it has another version.
    """
    if len(data) > CODE_IN_THREAD or place.endswith(COMPRESSED):
        return await anyio.to_thread.run_sync(_decode, data, place)
    return _decode(data, place)


def read_node_document(data: bytes) -> NodeDocument:
    """Return the content of a plain document. Raises `ValueError` if it is none."""
    try:
        return _decode(data, PLAIN)
    except CorruptDocument as error:
        raise ValueError(error.message) from None


async def encode_node_document(content: NodeDocument, *, compressed: bool) -> bytes:
    """Return the bytes of a document."""
    if compressed or sum(len(one.content) for one in content.messages) > CODE_IN_THREAD:
        return await anyio.to_thread.run_sync(_encode, content, compressed)
    return _encode(content, compressed)


def _encode(content: NodeDocument, compressed: bool) -> bytes:
    whole = {
        **content.extra,
        "version": VERSION,
        "messages": [one.model_dump(mode="json") for one in content.messages],
    }
    # Readable, because people look into the bucket; compression removes the cost.
    data = json.dumps(whole, ensure_ascii=False, indent=2).encode()
    return zstandard.ZstdCompressor(write_checksum=True).compress(data) if compressed else data


def _decode(data: bytes, place: str) -> NodeDocument:
    try:
        text = _inflated(data) if place.endswith(COMPRESSED) else data
        value: object = json.loads(text)
    except (ValueError, RecursionError, zstandard.ZstdError) as error:
        raise CorruptDocument(
            f"The node memory {place} is damaged: it is not JSON.", cure=_CURE
        ) from error
    known = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    # Before the rest is validated: a later version may have another form, and is not damaged.
    version = known.get("version", VERSION)
    if version != VERSION:
        raise UnknownVersion(
            f"The node memory {place} has version {version!r:.40}, not {VERSION}.",
            cure="Read it with the agent-runtime that wrote it; it was left as it is.",
        )
    try:
        document = _Document.model_validate(value)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        what = f"{where}: {error.errors()[0]['msg']}" if where else error.errors()[0]["msg"]
        # Not chained: the text of pydantic's error repeats the memory's content.
        raise CorruptDocument(
            f"The node memory {place} is not a document of version {VERSION}: {what}.", cure=_CURE
        ) from None
    return NodeDocument(document.messages, dict(document.model_extra or {}))


def _inflated(data: bytes) -> bytes:
    # Streamed: `decompress` needs the size in the frame's header, which other writers may omit.
    with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=False) as reader:
        return reader.read()
