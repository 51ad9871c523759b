"""What threads remember: observations with what they stand for, and search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import anyio.to_thread
from pydantic import Field
from starlette.requests import Request

from agent_runtime.errors import NotFound
from agent_runtime.log.branch import observation_of
from agent_runtime.memory.recall.excerpts import excerpt
from agent_runtime.messages import decode_message, decode_result, searchable
from agent_runtime.prompt.observation import Observation, ObservationLine
from agent_runtime.server.access import runtime_of, store_of, user_of
from agent_runtime.server.api.schemas import Input, Name, Output
from agent_runtime.server.operations import operation
from agent_runtime_storage import UserStore
from agent_runtime_storage.contract.records.search import TextHit

_EXCERPT_CHARS = 300


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
    title: str = Field(description="Of the thread.")
    text: str = Field(description="The part with most of the words, some 300 characters.")


class Hits(Output):
    """What was found, the best first."""

    hits: list[HitOut]


@operation("GET", "/search", tag="memory")
async def search(request: Request, query: SearchQuery) -> Hits:
    """Search the text of messages and results, ranked by BM25."""
    store = store_of(request)
    found = await store.search.find(query.q, thread_id=query.thread_id, limit=query.limit)
    bodies: list[bytes] = []
    titles: dict[str, str] = {}
    shown: list[TextHit] = []
    for hit in found:
        try:
            if hit.thread_id not in titles:
                titles[hit.thread_id] = (await store.threads.get(hit.thread_id)).title
            bodies.append(await _body(store, hit))
        except NotFound:
            # Deleted since it was found.
            continue
        shown.append(hit)
    # In a thread: a hit may have megabytes.
    texts = await anyio.to_thread.run_sync(_excerpts, shown, bodies, query.q.split())
    return Hits(
        hits=[
            HitOut(
                thread_id=hit.thread_id, node_id=hit.node_id, call=hit.call, score=hit.score,
                title=titles[hit.thread_id], text=text,
            )
            for hit, text in zip(shown, texts, strict=True)
        ]
    )  # fmt: skip


async def _body(store: UserStore, hit: TextHit) -> bytes:
    if hit.call is not None:
        return (await store.log.call(hit.thread_id, hit.node_id, hit.call)).body
    return (await store.log.node(hit.thread_id, hit.node_id)).body


def _excerpts(hits: Sequence[TextHit], bodies: Sequence[bytes], words: Sequence[str]) -> list[str]:
    found: list[str] = []
    for hit, body in zip(hits, bodies, strict=True):
        of_call = hit.call is not None
        text = decode_result(body).text if of_call else searchable(decode_message(body))
        found.append(excerpt(text, words, _EXCERPT_CHARS)[1])
    return found


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
