"""A program: a server made with the SDK, on stdio or, with a port, over HTTP."""

from __future__ import annotations

import sys
from typing import Annotated

from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve
from opentelemetry.trace import get_current_span
from pydantic import BaseModel

server = MCPServer("sums", log_level="ERROR")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def count(to: int, context: Context) -> str:
    """Count, and tell how far it is."""
    for done in range(to):
        await context.report_progress(done, to, "counting")
    return "counted"


@server.tool()
def header(context: Context) -> str:
    """Return a header of the request."""
    return str((context.headers or {}).get("x-key"))


@server.tool()
def trace() -> str:
    """Return the id of the caller's trace."""
    return f"{get_current_span().get_span_context().trace_id:032x}"


@server.resource("note://one")
def note() -> str:
    """A note of the test."""
    return "A note."


class Place(BaseModel):
    """Where to send it."""

    city: str
    floor: int


class Sure(BaseModel):
    """Whether to do it."""

    sure: bool


def ask_place() -> Elicit[Place]:
    return Elicit("Where to?", Place)


def ask_sure(what: str) -> Elicit[Sure]:
    return Elicit(f"Really send {what}?", Sure)


@server.tool()
def send(
    what: str,
    sure: Annotated[Sure, Resolve(ask_sure)],
    place: Annotated[Place, Resolve(ask_place)],
) -> str:
    """Send something."""
    return f"{what} to {place.city}, floor {place.floor}, sure: {sure.sure}"


@server.tool()
async def old(context: Context) -> str:
    """Ask in the middle of a call."""
    return str(await context.elicit("Sure?", Sure))


@server.prompt()
def review(file: str, depth: str = "short") -> str:
    """Review a file."""
    return f"Review {file} ({depth})."


def main() -> None:
    if len(sys.argv) > 1:
        port = int(sys.argv[1])
        server.run("streamable-http", host="127.0.0.1", port=port)
    else:
        server.run("stdio")


if __name__ == "__main__":
    main()
