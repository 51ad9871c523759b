"""The nonce that marks the runtime's own words in prompts, and is masked in everything else.

A thread has one secret.  The first activation marks notes with it, each later one with the secret
and new digits, so that a mark is void after the next activation.  Observations carry the secret
alone, because providers cache them across activations.  The secret is masked in everything that
others said, so no mark that the thread ever used can be forged.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

from agent_runtime.messages import (
    AssistantMessage,
    FileRef,
    LoggedMessage,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from agent_runtime.prompt.view import Entry

T = TypeVar("T")

LEAST = 8
"""Secrets shorter than this are not masked, as they would occur in plain words; none is made."""

_MASKED_TOOLS: dict[tuple[int, str], tuple[tuple[ToolSpec, ...], tuple[ToolSpec, ...]]] = {}
_MOST_MASKED_TOOLS = 64


def new_nonce() -> str:
    """Return a mark that no tool output can foresee.

    Digits have no case, and all such marks have the same number of tokens.
    """
    return _digits(12)


def next_nonce(nonce: str) -> str:
    """Return the mark of the next activation, or of the first if `nonce` is empty."""
    if not nonce:
        return new_nonce()
    while (following := f"{secret_of(nonce)}_{_digits(6)}") == nonce:
        continue
    return following


def _digits(count: int) -> str:
    return f"{secrets.randbelow(10**count):0{count}}"


def secret_of(nonce: str) -> str:
    """Return the secret, with which all marks of a thread begin."""
    return nonce.partition("_")[0]


def masked(value: T, nonce: str) -> T:
    """Return a text, or JSON, with the secret replaced by asterisks."""
    secret = secret_of(nonce)
    return cast(T, _masked(value, secret)) if len(secret) >= LEAST else value


def _masked(value: Any, secret: str) -> Any:
    match value:
        case str():
            # The secrets of older threads contain letters.
            return value.replace(secret, "*" * len(secret)).replace(
                secret.upper(), "*" * len(secret)
            )
        case Mapping():
            known = cast("Mapping[Any, Any]", value)
            return {_masked(key, secret): _masked(one, secret) for key, one in known.items()}
        case list() | tuple():
            return [_masked(one, secret) for one in cast("list[Any]", value)]
        # Python refuses to write out huge integers.
        case int() if value.bit_length() < 1024 and secret in str(value):
            return _masked(str(value), secret)
        case _:
            return value


def masked_entry(entry: Entry, nonce: str) -> Entry:
    """Return a node with the secret masked."""
    if len(secret_of(nonce)) < LEAST:
        return entry
    message = _message(entry.message, nonce)
    results = tuple(_result(one, nonce) for one in entry.results)
    # The same object nearly always, which makes comparisons of prompts cheap.
    if message == entry.message and results == entry.results:
        return entry
    return replace(entry, message=message, results=results)


def masked_tools(tools: tuple[ToolSpec, ...], nonce: str) -> tuple[ToolSpec, ...]:
    """Return tools with the secret masked: the same tuple again for the same tools and nonce."""
    # By identity, since each step of a run has the same tools; schemas have no hash.
    key = (id(tools), nonce)
    known = _MASKED_TOOLS.get(key)
    if known is None or known[0] is not tools:
        known = tools, tuple(masked_tool(tool, nonce) for tool in tools)
        if len(_MASKED_TOOLS) >= _MOST_MASKED_TOOLS:
            _MASKED_TOOLS.clear()
        _MASKED_TOOLS[key] = known
    return known[1]


def masked_tool(tool: ToolSpec, nonce: str) -> ToolSpec:
    """Return a tool with the secret masked; a server may have written its description."""
    return replace(
        tool,
        description=masked(tool.description, nonce),
        parameters=masked(tool.parameters, nonce),
    )


def _message(message: LoggedMessage, nonce: str) -> LoggedMessage:
    text = masked(message.text, nonce)
    match message:
        case AssistantMessage():
            return replace(
                message,
                text=text,
                reasoning=masked(message.reasoning, nonce),
                calls=tuple(_call(one, nonce) for one in message.calls),
                files=_files(message.files, nonce),
            )
        case _ if message.type == "user":
            return replace(message, text=text, files=_files(message.files, nonce))
        case _:
            return replace(message, text=text)


def _result(result: ToolResult, nonce: str) -> ToolResult:
    return replace(result, text=masked(result.text, nonce), files=_files(result.files, nonce))


def _call(call: ToolCall, nonce: str) -> ToolCall:
    return replace(
        call,
        name=masked(call.name, nonce),
        arguments=masked(call.arguments, nonce),
        raw=None if call.raw is None else masked(call.raw, nonce),
    )


def _files(files: tuple[FileRef, ...], nonce: str) -> tuple[FileRef, ...]:
    return tuple(replace(one, name=masked(one.name, nonce)) for one in files)
