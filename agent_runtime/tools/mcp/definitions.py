"""Check and name the tools that a server describes; what it describes may be anything."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import orjson

from agent_runtime.errors import McpServerFailed
from agent_runtime.messages import ToolSpec, encodable
from agent_runtime.tools.fingerprint import json_digest
from agent_runtime.tools.mcp.server import McpServer
from agent_runtime.tools.schema_references import references, values_of

SEPARATOR = "__"
MAX_TOOLS = 1000
MAX_SCHEMA_BYTES = 64 * 1024
MAX_DEPTH = 40
MAX_REFERENCES = 200
MAX_DESCRIPTION = 4000
"""How many characters of a description models see."""
_MAX_NAME = 64
_REFUSED = re.compile(r"[^a-zA-Z0-9_-]")
# A terminal or a model may be misled by characters that nobody sees.
_CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]"
)


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool as its server describes it.

    Attributes:
        tool: its name on the server.
        spec: how models see it.
        digest: of everything that the server says about it.
    """

    tool: str
    spec: ToolSpec
    digest: str


def definitions_of(server: McpServer, described: Iterable[dict[str, Any]]) -> list[ToolDefinition]:
    """Return the tools that an agent gets, by name, so that their order never changes prompts.

    Args:
        described: the tools as JSON.  Those that the server's `deny` or `allow` leave out are not
            looked at.

    Raises:
        McpServerFailed: a definition is not usable.
    """
    wanted = [one for one in described if server.offers(str(one.get("name")))]
    found: dict[str, ToolDefinition] = {}
    for one in wanted:
        made = _definition(server, one)
        if made.spec.name in found:
            raise refused(server, made.tool, "has the name of another one")
        found[made.spec.name] = made
    return [found[name] for name in sorted(found)]


def tool_name(server: str, tool: str) -> str:
    """Return the name that models call a tool by; it is valid for every provider."""
    plain = f"{server}{SEPARATOR}{_REFUSED.sub('_', tool)}"
    if plain == f"{server}{SEPARATOR}{tool}" and len(plain) <= _MAX_NAME:
        return plain
    # Names that differ on the server differ here too.
    digest = hashlib.sha256(tool.encode(errors="replace")).hexdigest()[:8]
    return f"{plain[: _MAX_NAME - 9]}_{digest}"


def refused(server: McpServer, tool: str, why: str) -> McpServerFailed:
    """Return the error about a definition that is not usable."""
    shown = clean(tool)[:80]
    return McpServerFailed(
        f"The tool {shown!r} of the MCP server {server.name} {why}.",
        cure="Have the server mended, or leave the tool out by `deny`.",
    )


def clean(text: str) -> str:
    """Return a server's text without controls and characters that cannot be seen."""
    return _CONTROLS.sub("", encodable(text))


def _definition(server: McpServer, described: dict[str, Any]) -> ToolDefinition:
    tool = described.get("name")
    if not isinstance(tool, str) or not tool or len(tool) > 256:
        raise refused(server, str(tool), "has no name, or one that is too long")
    schema = described.get("inputSchema")
    _check(server, tool, schema)
    parameters: dict[str, Any] = {"properties": {}, **cast("dict[str, Any]", schema)}
    text = described.get("description") or described.get("title") or ""
    description = clean(str(text)).strip()
    if len(description) > MAX_DESCRIPTION:
        description = f"{description[:MAX_DESCRIPTION]} …"
    spec = ToolSpec(tool_name(server.name, tool), description, parameters)
    # Of everything: parts that models do not see yet, such as annotations, may be used later.
    return ToolDefinition(tool, spec, json_digest(described))


def _check(server: McpServer, tool: str, schema: Any) -> None:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    if not isinstance(schema, dict) or cast("dict[str, Any]", schema).get("type") != "object":
        raise refused(server, tool, "has no schema of an object")
    whole = cast("dict[str, Any]", schema)
    if depth_of(whole) > MAX_DEPTH:
        raise refused(server, tool, f"has a schema of more than {MAX_DEPTH} levels")
    if len(orjson.dumps(whole)) > MAX_SCHEMA_BYTES:
        raise refused(server, tool, f"has a schema of more than {MAX_SCHEMA_BYTES:,} bytes")
    try:
        Draft202012Validator.check_schema(whole)
    except SchemaError as error:
        place = clean(error.json_path)[:100]
        raise refused(server, tool, f"has a schema that is not valid, at {place}") from None
    _check_references(server, tool, whole)


def depth_of(schema: Any) -> int:
    """Return how many levels JSON has; at most one more than `MAX_DEPTH`."""
    # Without recursion: what nests a million levels must not end the interpreter.
    deepest, waiting = 0, [(schema, 1)]
    while waiting and deepest <= MAX_DEPTH:
        one, level = waiting.pop()
        deepest = max(deepest, level)
        waiting += [(inner, level + 1) for inner in values_of(one)]
    return deepest


def _check_references(server: McpServer, tool: str, schema: dict[str, Any]) -> None:
    """Refuse references to other documents, to nothing, and in circles.

    A schema must not make anybody open URLs, and not every provider takes one without an end.
    """
    done: set[str] = set()
    starts = dict.fromkeys(references(schema))
    if len(starts) > MAX_REFERENCES:
        raise refused(server, tool, f"has a schema with more than {MAX_REFERENCES} references")
    for start in starts:
        path: list[tuple[str, Iterator[str]]] = [("", iter((start,)))]
        while path:
            reference = next(path[-1][1], None)
            if reference is None:
                done.add(path.pop()[0])
            elif any(reference == above for above, _ in path):
                raise refused(server, tool, "has a schema that refers to itself")
            elif reference not in done:
                target = _target(schema, reference)
                if target is None:
                    raise refused(server, tool, "has a schema that refers to something else")
                path.append((reference, references(target)))


def _target(schema: dict[str, Any], reference: str) -> Any:
    """Return what a reference inside of the schema names; None for any other."""
    if not reference.startswith("#"):
        return None
    found: Any = schema
    for part in reference.removeprefix("#").split("/")[1:]:
        # A JSON pointer's escapes, in the order of RFC 6901: `~01` is `~1`.
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = cast("dict[str, Any]", found).get(name)
        elif isinstance(found, list) and name.isdigit():
            items = cast("list[Any]", found)
            found = items[int(name)] if int(name) < len(items) else None
        else:
            return None
    return found
