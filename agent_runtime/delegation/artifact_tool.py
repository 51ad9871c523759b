"""The tool that opens what agents hand each other by reference: tool results, and files."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any

from pydantic import Field

from agent_runtime.delegation.assignment import artifact_reference
from agent_runtime.errors import NotFound, ToolError
from agent_runtime.files.media_types import is_text
from agent_runtime.files.references import file_id, resolve_files
from agent_runtime.memory.recall.open import NodeLocator, Opened, open_result
from agent_runtime.memory.recall.tool import page
from agent_runtime.messages import FileRef, ToolResult
from agent_runtime.tools.base import FunctionTool, ToolContext

NAME = "open_artifact"
HOW = "A reference is that of a file (tool:… or upload:…) or the handle of a tool result."


def open_artifact_tool(
    thread_id: str = "", allowed: Collection[str] | None = None
) -> FunctionTool[..., Any]:
    """Return the tool.

    Args:
        thread_id: the thread whose tool results it opens; empty for the run's own.
        allowed: the references that it opens, and no others; None for any of the owner's.
    """

    async def open_artifact(
        context: ToolContext,
        reference: str,
        offset: Annotated[int, Field(ge=0)] = 0,
        limit: Annotated[int, Field(ge=1, le=100_000)] = 8000,
    ) -> ToolResult:
        """Open an artifact: a file that is kept (tool:… or upload:…), or a tool result's handle.

        Args:
            reference: what to open, as it was given to you.
            offset: how many characters of a text to skip.
            limit: how many characters of it to show.
        """
        asked = artifact_reference(reference.strip("\"'<>` "))
        if not asked or (allowed is not None and asked not in allowed):
            known = ", ".join(sorted(allowed)) if allowed else "those that you were given"
            raise ToolError(f"{reference[:80]!r} is no artifact of yours.", cure=f"Open {known}.")
        if file_id(FileRef("custom", asked)):
            return await _file(context, asked, offset, limit)
        where = await NodeLocator.of(context.store, thread_id or context.thread_id)
        return ToolResult(page(await open_result(where, asked, HOW), offset, limit))

    return FunctionTool(open_artifact, name=NAME, idempotent=True)


async def _file(context: ToolContext, reference: str, offset: int, limit: int) -> ToolResult:
    """Show a text file's text, a page at a time, and any other file as itself."""
    [found] = await resolve_files(context.store, [FileRef("custom", reference)])
    if found.problem or not found.thread_id:
        raise ToolError(f"The file {reference[:80]!r} cannot be opened: {found.problem}.", cure=HOW)
    file = found.file
    about = f"File {file.name or reference} ({file.media_type or file.kind})"
    if file.kind != "document" or not is_text(file.media_type):
        return ToolResult(f"{about}, {file.size:,} bytes.", files=(file,))
    try:
        content = await context.store.file_content(found.thread_id, file_id(file))
    except NotFound:
        raise ToolError(f"The file {reference[:80]!r} is gone.", cure=HOW) from None
    return ToolResult(page(Opened(about, content.decode(errors="replace")), offset, limit))
