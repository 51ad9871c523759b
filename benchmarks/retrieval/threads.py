"""The conversations of the question sets as threads of a real store, each message at its time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from agent_runtime.memory.recall.passages import passages
from agent_runtime.messages import (
    AssistantMessage,
    UserMessage,
    encode_message,
    searchable,
    searchable_body,
)
from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.build import entry_of
from agent_runtime_storage import Commit, Finish, LeaseOwner, NewNode, NewRun, UserStore, VectorItem
from agent_runtime_storage.upkeep.export_format import Checksum
from benchmarks.memory.data import Conversation, Turn

THREAD = "conversation"
_DATES = ("%Y/%m/%d (%a) %H:%M", "%I:%M %p on %d %B, %Y", "%B-%d-%Y")
_FIRST = datetime(2024, 1, 1, tzinfo=UTC)
_DAY, _MINUTE = 86_400.0, 60.0
_OWNER = LeaseOwner(host="here", boot="b", pid=1, started="s")
_NODES, _VECTORS = 500, 500

Embed = Callable[[Sequence[str]], Sequence[Sequence[float]]]


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, and the nodes with its answer."""

    text: str
    evidence: frozenset[int]


@dataclass(frozen=True, slots=True)
class Talk:
    """A conversation with the time of each message; its first message is node 1."""

    name: str
    turns: tuple[Turn, ...]
    times: tuple[float, ...]
    tokens: tuple[int, ...]
    questions: tuple[Asked, ...]


def talk_of(conversation: Conversation) -> Talk:
    """Return a conversation as it is written into a thread, with its answerable questions."""
    turns: list[Turn] = []
    times: list[float] = []
    for session in conversation.sessions:
        start = _seconds(session.date, times[-1] + _DAY if times else _FIRST.timestamp())
        turns += session.turns
        times += [start + _MINUTE * place for place in range(len(session.turns))]
    nodes = {turn.id: number for number, turn in enumerate(turns, 1)}
    questions = [
        Asked(question.text, frozenset(nodes[turn] for turn in question.evidence if turn in nodes))
        for question in conversation.questions
    ]
    tokens = [count_text(turn.text) for turn in turns]
    answerable = tuple(question for question in questions if question.evidence)
    return Talk(conversation.id, tuple(turns), tuple(times), tuple(tokens), answerable)


def _seconds(date: str, otherwise: float) -> float:
    for form in _DATES:
        try:
            return datetime.strptime(date, form).replace(tzinfo=UTC).timestamp()
        except ValueError:
            continue
    return otherwise


async def write(talk: Talk, scratch: UserStore, store: UserStore) -> None:
    """Write a talk into `store` by way of `scratch`: a log stamps its nodes with the current time.

    An import preserves the times in the records, so the talk is exported, dated and imported.
    """
    await _log(talk, scratch)
    await store.upkeep.import_thread(_dated(talk, scratch), texts=_text_of)


async def embed(store: UserStore, model: str, embed: Embed) -> int:
    """Embed a talk's messages; return the number of passages."""
    head = (await store.threads.get(THREAD)).head or 0
    nodes = await store.log.branch(THREAD, head)
    made = passages([entry_of(node) for node in nodes])
    for first in range(0, len(made), _VECTORS):
        some = made[first : first + _VECTORS]
        vectors = embed([passage.text for passage in some])
        items = [
            VectorItem(THREAD, one.source, one.source_id, vector, one.part)
            for one, vector in zip(some, vectors, strict=True)
        ]
        await store.vectors.upsert(model, items)
    return len(made)


async def _log(talk: Talk, store: UserStore) -> None:
    await store.threads.ensure(THREAD)
    nodes = [
        _node(turn, seq, count)
        for seq, (turn, count) in enumerate(zip(talk.turns, talk.tokens, strict=True), 1)
    ]
    run = NewRun("run", THREAD, "a", 1, {}, _OWNER, 600.0, None, 0, (nodes[0],))
    lease, _ = await store.runs.begin(run)
    for first in range(1, len(nodes), _NODES):
        some = tuple(nodes[first : first + _NODES])
        await store.runs.commit(lease, Commit(nodes=some, head=some[-1].seq))
    await store.runs.commit(lease, Commit(finish=Finish("succeeded", "completed")))


def _node(turn: Turn, seq: int, tokens: int) -> NewNode:
    message = UserMessage(turn.text) if turn.role == "user" else AssistantMessage(turn.text)
    return NewNode(
        seq,
        seq - 1 or None,
        "message",
        message.type,
        encode_message(message),
        tokens,
        0,
        text=searchable(message),
    )


async def _dated(talk: Talk, store: UserStore) -> AsyncIterator[dict[str, Any]]:
    checksum = Checksum()
    async with aclosing(store.upkeep.export_thread(THREAD)) as records:
        async for exported in records:
            record = dict(exported)
            if record["section"] == "end":
                record = checksum.end()
            elif record["section"] == "nodes":
                record["created_at"] = talk.times[record["id"] - 1]
            if record["section"] not in ("header", "end"):
                checksum.add(record)
            yield record


def _text_of(kind: str, body: bytes) -> str:
    return searchable_body("node" if kind == "node" else "call", body)
