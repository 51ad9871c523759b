"""The tool `open_artifact`: it opens files and tool results that agents pass by reference."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from agent_runtime.delegation.assignment import artifact_reference
from agent_runtime.errors import NotFound, ToolError
from agent_runtime.files.media_types import is_text
from agent_runtime.files.references import file_id, resolve_files
from agent_runtime.memory.recall.open import NodeLocator, Opened, open_result
from agent_runtime.memory.recall.tool import page
from agent_runtime.messages import FileRef, ToolResult
from agent_runtime.tools.context import ToolContext
from agent_runtime.tools.function import FunctionTool
from agent_runtime.tools.parameters import Chars, Offset

NAME = "open_artifact"
HOW = "A reference is a file's (tool:… or upload:…) or the handle of a tool result."


def open_artifact_tool(
    thread_id: str = "", allowed: Collection[str] | None = None
) -> FunctionTool[..., Any]:
    """Return the tool.

    Args:
        thread_id: the thread whose tool results it opens; empty for the run's own.
        allowed: the only references that it opens; None for any of the owner's.
    """

    async def open_artifact(
        context: ToolContext,
        reference: str,
        offset: Offset = 0,
        limit: Chars = 8000,
    ) -> ToolResult:
        """Open a stored file (tool:ID, upload:ID) or a result (c0000001a).

        Args:
            offset: characters to skip.
        """
        # Models copy references with the quotes or brackets around them.
        asked = artifact_reference(reference.strip("\"'<>` "))
        # A sub-agent knows only what it is given: another reference may come from what it read.
        if not asked or (allowed is not None and asked not in allowed):
            known = ", ".join(sorted(allowed)) if allowed else "one that you were given"
            raise ToolError(
                f"{reference[:80]!r} is not one of your artifacts.", cure=f"Open {known}."
            )
        if file_id(FileRef("custom", asked)):
            return await _file(context, asked, offset, limit)
        # The handle is of the thread that delegates, not of the sub-agent's own.
        asker = thread_id or context.thread_id
        where = await NodeLocator.of(context.store, asker, context.timezone)
        return ToolResult(page(await open_result(where, asked, HOW), offset, limit))

    return FunctionTool(open_artifact, name=NAME, idempotent=True)


async def _file(context: ToolContext, reference: str, offset: int, limit: int) -> ToolResult:
    """Show a page of a text file, or any other file as an attachment."""
    [stored] = await resolve_files(context.store, [FileRef("custom", reference)])
    if stored.problem or not stored.thread_id:
        raise ToolError(
            f"The file {reference[:80]!r} cannot be opened: {stored.problem}.", cure=HOW
        )
    file = stored.file
    about = f"File {file.name or reference} ({file.media_type or file.kind})"
    if file.kind != "document" or not is_text(file.media_type):
        return ToolResult(f"{about}, {file.size:,} bytes.", files=(file,))
    try:
        content = await context.store.files.content(stored.thread_id, file_id(file))
    except NotFound:
        problem = f"The file {reference[:80]!r} no longer exists."
        raise ToolError(problem, cure=HOW) from None
    return ToolResult(page(Opened(about, content.decode(errors="replace")), offset, limit))
