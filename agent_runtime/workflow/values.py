"""The values of a workflow's nodes, as JSON in the log and as Python objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

import orjson
from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json

from agent_runtime.errors import ConfigError
from agent_runtime.messages import ToolResult, encodable
from agent_runtime.tools.results import NO_RESULT

SHOWN_CHARS = 100_000
"""How much of a workflow's output its message shows."""


def to_plain_json(value: Any) -> Any:
    """Return a value as JSON, the same in every process.

    Values that JSON cannot hold are named by their type: an argument such as a connection must be
    passed on, but need not be stored.

    Raises:
        ConfigError: it holds itself, or is nested too deeply.
    """
    try:
        return from_json(to_json(_ordered(value, named=True), fallback=_named))
    except (PydanticSerializationError, RecursionError, TypeError, ValueError) as error:
        raise ConfigError(
            f"A value of a workflow cannot be recorded as JSON: {error}",
            cure="Pass plain values, dataclasses or pydantic models, not nested too deeply.",
        ) from error


def node_tool_result(value: Any) -> ToolResult:
    """Return a node's value as the log stores it.

    Raises:
        ConfigError: JSON cannot hold it.
    """
    return ToolResult(encode_node_value(value))


def encode_node_value(value: Any) -> str:
    """Return a value as text: JSON, or a string unchanged unless it reads like JSON.

    Raises:
        ConfigError: JSON cannot hold it.
    """
    # A plain string stays readable in the log; "1" or "null" would be read back as something else.
    if isinstance(value, str) and not _is_json(value := encodable(value)):
        return value
    try:
        return to_json(_ordered(value)).decode()
    except (PydanticSerializationError, RecursionError, TypeError) as error:
        raise _not_json(error) from error


def encode_output(value: Any) -> tuple[bytes, str]:
    """Return the output of a workflow as it is stored, and as the text of its message.

    The message of a long output shows its beginning: later prompts of the thread hold it, while
    the result holds all of it.

    Raises:
        ConfigError: JSON cannot hold it; NaN and infinities among others.
    """
    # Raises where JSON cannot hold the value; `to_plain_json` would only name its type.
    encode_node_value(value)
    plain = to_plain_json(value)
    stored = to_json(plain)
    try:
        # As every reader of a run does, which takes less than `from_json`.
        orjson.loads(stored)
    except orjson.JSONDecodeError as error:
        raise _not_json("a number that is infinite or none, or text that is not UTF-8") from error
    shown = describe_value(plain)
    if (more := len(shown) - SHOWN_CHARS) > 0:
        shown = f"{shown[:SHOWN_CHARS]}\n[... {more:,} more characters in the run's output ...]"
    return stored, shown


def _not_json(error: object) -> ConfigError:
    return ConfigError(
        f"A node or workflow returned what JSON cannot hold: {error}",
        cure="Return plain values, dataclasses or pydantic models, not nested too deeply.",
    )


def decode_node_value(text: str) -> Any:
    """Return the value that `encode_node_value` wrote."""
    try:
        return from_json(text)
    except ValueError:
        return text


def describe_value(value: Any) -> str:
    """Return a value as the text of a message."""
    if value is None or value == "":
        return NO_RESULT
    return value if isinstance(value, str) else encode_node_value(value)


def typed(value: Any, kind: Any) -> Any:
    """Convert a JSON value to a type; return it unchanged if pydantic cannot handle the type.

    Raises:
        ConfigError: the value does not fit the type.
    """
    if kind is None or kind is Any:
        return value
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(kind)
        return adapter.validate_json(to_json(value))
    except ValidationError as error:
        raise ConfigError(
            f"A node returned what its type {kind!r} does not allow: "
            f"{error.errors(include_url=False, include_input=False)[0]['msg']}",
            cure="Correct the return annotation, or what is returned.",
        ) from error
    except (PydanticUserError, TypeError, NameError):
        return value


def _is_json(text: str) -> bool:
    try:
        from_json(text)
    except ValueError:
        return False
    return True


def _ordered(value: Any, *, named: bool = False) -> Any:
    """Return the value with its sets sorted and its texts storable.

    Args:
        named: whether to name iterators instead of reading them, which would use them up.
    """
    inner = partial(_ordered, named=named)
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value).items()
        return {inner(key): inner(one) for key, one in pairs}
    if isinstance(value, list | tuple):
        return [inner(one) for one in cast("Sequence[Any]", value)]
    if isinstance(value, set | frozenset):
        # The order of a set of strings differs in each process.
        return sorted(map(inner, cast("set[Any]", value)), key=repr)
    if named and isinstance(value, Iterator):
        return _named(cast("object", value))
    return value


def _named(value: object) -> str:
    return f"<{type(value).__name__}>"
