"""Turn what a server returns into a result: its text, and its images and resources as files."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import anyio.to_thread
import orjson
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ReadResourceResult,
    TextContent,
    TextResourceContents,
)

from agent_runtime.errors import InvalidFile, StoreError
from agent_runtime.files.attach import File
from agent_runtime.messages import FileRef, ToolResult, encodable, encodable_files
from agent_runtime.tools.results import NO_RESULT

MAX_FILES = 20
"""How many files of one result are kept."""
KeepFile = Callable[[File], Awaitable[FileRef]]


@dataclass(slots=True)
class _Parts:
    """The texts and files of a result; what cannot be kept is named in the text."""

    keep: KeepFile
    texts: list[str] = field(default_factory=list[str])
    files: list[FileRef] = field(default_factory=list[FileRef])

    async def add_file(self, data: str, media_type: str, name: str = "") -> None:
        shown = name or media_type or "file"
        if len(self.files) >= MAX_FILES:
            self.texts.append(f"({shown}: not kept, as there are more than {MAX_FILES} files)")
            return
        try:
            content = await anyio.to_thread.run_sync(_decode, data)
            self.files.append(await self.keep(File(content, name=name, media_type=media_type)))
        except (ValueError, InvalidFile, StoreError) as error:
            why = error.message if isinstance(error, InvalidFile | StoreError) else "not base64"
            self.texts.append(f"({shown}: not kept: {why})")

    async def add(self, block: ContentBlock) -> None:
        match block:
            case TextContent(text=text):
                self.texts.append(text)
            case ImageContent(data=data, mime_type=kind) | AudioContent(data=data, mime_type=kind):
                await self.add_file(data, kind)
            case EmbeddedResource(resource=resource):
                await self.add_resource(resource)
            case _:
                about = ", ".join(filter(None, (block.name, block.mime_type)))
                self.texts.append(f"Resource {block.uri} ({about})")

    async def add_resource(self, resource: TextResourceContents | BlobResourceContents) -> None:
        if isinstance(resource, TextResourceContents):
            self.texts.append(f"Resource {resource.uri}:\n{resource.text}")
        else:
            name = urlsplit(str(resource.uri)).path.rpartition("/")[2]
            await self.add_file(resource.blob, resource.mime_type or "", name)


def _decode(data: str) -> bytes:
    try:
        # Without `validate`, other characters are dropped, and rubbish becomes a file.
        return base64.b64decode(data, validate=True)
    except binascii.Error:
        raise ValueError from None


async def call_result(
    result: CallToolResult, keep: KeepFile, mask: Callable[[str], str]
) -> ToolResult:
    """Return a call's result; a value without text becomes JSON."""
    parts = _Parts(keep)
    for block in result.content:
        await parts.add(block)
    if not parts.texts and not parts.files and result.structured_content is not None:
        parts.texts.append(orjson.dumps(result.structured_content).decode())
    return _finished(parts, mask, failed=result.is_error)


async def resource_result(
    result: ReadResourceResult, keep: KeepFile, mask: Callable[[str], str]
) -> ToolResult:
    """Return the contents of a resource as a result."""
    parts = _Parts(keep)
    for one in result.contents:
        await parts.add_resource(one)
    return _finished(parts, mask, failed=False)


def _finished(parts: _Parts, mask: Callable[[str], str], *, failed: bool) -> ToolResult:
    text = mask(encodable("\n".join(parts.texts)))
    if not text:
        text = _named(parts.files) if parts.files else NO_RESULT
    files = encodable_files(tuple(parts.files))
    return ToolResult(text, outcome="error" if failed else "ok", files=files)


def _named(files: Iterable[FileRef]) -> str:
    return f"Files: {', '.join(one.name or one.kind for one in files)}"
