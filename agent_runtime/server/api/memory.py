"""What threads remember: observations with what they stand for, and search."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from starlette.requests import Request

from agent_runtime.log.branch import observation_of
from agent_runtime.prompt.observation import Observation, ObservationLine
from agent_runtime.server.access import runtime_of, store_of, user_of
from agent_runtime.server.api.schemas import Input, Name, Output
from agent_runtime.server.operations import operation


class LineOut(Output):
    """A line of an observation."""

    at: str
    priority: str
    text: str
    node: int | None = Field(description="The message that it tells of; null if unknown.")


class ObservationOut(Output):
    """An observation, with the interval of nodes that it stands for."""

    id: int
    level: int
    first: int
    last: int
    parts: list[int] = Field(description="The observations that it replaces; of level 0 none.")
    provisional: bool
    tokens: int
    lines: list[LineOut]
    ledger: list[str]
    created_at: float


class ObservationList(Output):
    """The observations of a thread, in the order in which they were written."""

    observations: list[ObservationOut]


class ObservationsQuery(Input):
    """Which observations."""

    ending_from: Annotated[int, Field(ge=0, le=2**53)] = Field(
        default=0, description="Only those whose last node is this one or a later one."
    )


@operation("GET", "/threads/{thread_id}/observations", tag="memory")
async def list_observations(
    request: Request, thread_id: str, query: ObservationsQuery
) -> ObservationList:
    """List the observations of a thread, of every branch, with the nodes that they stand for."""
    store = store_of(request)
    await store.threads.get(thread_id)
    rows = await store.log.observations(thread_id, ending_from=query.ending_from)
    found = [_observation(observation_of(row), row.tokens, row.created_at) for row in rows]
    return ObservationList(observations=found)


class NodeMemoryOut(Output):
    """Where a message is now."""

    node: int
    form: str = Field(description="Such as `raw`, `observed` or `archived`.")
    summary: str
    active: bool
    observations: list[int] = Field(description="Those that stand for it, the newest first.")
    lines: list[LineOut] = Field(description="What they say of it.")
    constraint: str


@operation("GET", "/threads/{thread_id}/nodes/{node_id}/memory", tag="memory")
async def explain_node(request: Request, thread_id: str, node_id: int) -> NodeMemoryOut:
    """Say where a message is now: in the prompt, in an observation, or only in the log."""
    memory = runtime_of(request).memory
    found = await memory.explain(thread_id, node_id, user=user_of(request))
    return NodeMemoryOut(
        node=found.node,
        form=found.form,
        summary=found.summary,
        active=found.active,
        observations=[one.id for one in found.observations],
        lines=[_line(one) for one in found.lines],
        constraint=found.constraint,
    )


class SearchQuery(Input):
    """What to search for."""

    q: Annotated[str, Field(min_length=1, max_length=1000)]
    thread_id: Name | None = Field(default=None, description="Only in this thread.")
    limit: Annotated[int, Field(ge=1, le=100)] = 10


class HitOut(Output):
    """A message, or a call's result, that was found."""

    thread_id: str
    node_id: int
    call: int | None
    score: float


class Hits(Output):
    """What was found, the best first."""

    hits: list[HitOut]


@operation("GET", "/search", tag="memory")
async def search(request: Request, query: SearchQuery) -> Hits:
    """Search the text of messages and results, ranked by BM25."""
    store = store_of(request)
    found = await store.search.find(query.q, thread_id=query.thread_id, limit=query.limit)
    return Hits(hits=[HitOut.model_validate(one) for one in found])


def _observation(one: Observation, tokens: int, created_at: float) -> ObservationOut:
    return ObservationOut(
        id=one.id, level=one.level, first=one.first, last=one.last, parts=list(one.parts),
        provisional=one.provisional, tokens=tokens, lines=[_line(line) for line in one.notes.lines],
        ledger=list(one.ledger), created_at=created_at,
    )  # fmt: skip


def _line(line: ObservationLine) -> LineOut:
    return LineOut(at=line.at, priority=line.priority, text=line.text, node=line.node or None)


OPERATIONS = (list_observations, explain_node, search)
"""The operations of this module."""
