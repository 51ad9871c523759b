"""Turn a tool's return value into a result: text, JSON, files, or several of these."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

import orjson
from pydantic_core import to_json

from agent_runtime.errors import InvalidFile, StoreError
from agent_runtime.files.attach import File
from agent_runtime.messages import FileRef, ToolResult, encodable, encodable_files
from agent_runtime.tools.observes import bounded

NO_RESULT = "(no result)"
MOST_DATA = 4096
"""The most bytes of a result's data, as JSON."""

_log = logging.getLogger(__name__)


def result_of_value(value: Any) -> ToolResult:
    """Return a tool's value as a result: text unchanged, everything else as JSON."""
    if isinstance(value, ToolResult):
        return replace(
            value,
            text=encodable(value.text),
            files=encodable_files(value.files),
            observed=bounded(value.observed),
            data=_bounded_data(value.data),
        )
    if value is None:
        return ToolResult(NO_RESULT)
    if isinstance(value, str):
        return ToolResult(encodable(value))
    if isinstance(value, bytes):
        return ToolResult(value.decode(errors="replace"))
    try:
        return ToolResult(to_json(value, serialize_unknown=True).decode())
    except ValueError as error:
        # Circular references, or a value's own serializer.
        text = f"The tool ran, but what it returned cannot be shown as JSON: {error}"
        return ToolResult(encodable(text), outcome="error")


def _bounded_data(data: dict[str, Any]) -> dict[str, Any]:
    """Return a result's data if the log can store it; else none of it."""
    if not data:
        return data
    try:
        if len(text := orjson.dumps(data)) <= MOST_DATA:
            # Read back, so that what listeners get is what the log keeps.
            return orjson.loads(text)
        _log.warning("A tool's data was dropped: it is larger than %d bytes", MOST_DATA)
    except TypeError as error:
        # The call has had its effect, so its result must not be lost.
        _log.warning("A tool's data was dropped: %s", type(error).__name__)
    return {}


def has_files(value: Any) -> bool:
    """Return whether a tool's value is a file, or a list with files."""
    return any(isinstance(one, File | FileRef) for one in _parts(value))


async def render_files(value: Any, keep: Callable[[File], Awaitable[FileRef]]) -> ToolResult:
    """Return a tool's value as a result with its files, after storing them with `keep`."""
    texts: list[str] = []
    files: list[FileRef] = []
    try:
        for one in _parts(value):
            if isinstance(one, FileRef):
                files.append(one)
            elif isinstance(one, File):
                files.append(await keep(one))
            else:
                part = result_of_value(one)
                if part.outcome == "error":
                    return part
                texts.append(part.text)
    except (InvalidFile, StoreError) as error:
        text = f"The tool ran, but a file that it returned cannot be stored: {error.message}"
        return ToolResult(encodable(text), outcome="error")
    names = ", ".join(file.name or file.kind for file in files)
    return ToolResult("\n".join(texts) or f"Files: {names}", files=encodable_files(files))


def _parts(value: Any) -> list[Any]:
    return list(cast("list[Any]", value)) if isinstance(value, list | tuple) else [value]
