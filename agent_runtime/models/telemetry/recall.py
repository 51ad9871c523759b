"""The span of a search for earlier messages."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from agent_runtime.models.telemetry import conventions as names
from agent_runtime.models.telemetry.contents import shown
from agent_runtime.models.telemetry.spans import shows_contents, span


@contextmanager
def retrieval(query: str) -> Generator[None]:
    """Make the span of a search in the log."""
    with span("retrieval", {names.OPERATION: "retrieval"}) as current:
        if current is not None and shows_contents():
            current.set_attribute(names.RETRIEVAL_QUERY, shown(query))
        yield
