"""A thread with every kind of row and a sub-agent's thread, marked by a word."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from agent_runtime_storage import (
    Amount,
    Budget,
    CallDone,
    Commit,
    Finish,
    NewActivation,
    NewEvent,
    NewFile,
    NewNode,
    NewPlan,
    NewQuestion,
    NodeText,
    Usage,
    UserStore,
    VectorItem,
)
from agent_runtime_storage.upkeep.export_format import Checksum
from tests.storage.helpers import begin, begin_child

PARENT, CHILD = "parent", "child"
VECTOR = (0.6, 0.8, 0.0)


async def fill(user: UserStore, mark: str) -> None:
    """Write a thread with the mark in rows of every kind, and end its runs."""
    large = (f"{mark} is said again and again\n" * 400).encode()
    await user.threads.ensure(PARENT, title=f"title {mark}", metadata={"note": mark})
    lease = await begin(
        user,
        "run-parent",
        PARENT,
        agent=f"agent {mark}",
        spec={"model": mark},
        budget=Budget(tokens=10_000, cost=5_000),
        activation=NewActivation(1, None, f"cause {mark}", f"start {mark}".encode(), large),
        nodes=(NewNode(1, None, "message", "user", f"task {mark}".encode(), 3, 1),),
        reserve=Amount(10, 10),
        events=(NewEvent("run-start", 1, {"said": mark}),),
    )
    calls = NewNode(2, 1, "exchange", "assistant", large, 10, 1, "open", (f"tool-{mark}", "raw"))
    await user.runs.commit(lease, Commit(nodes=(calls,)))
    plan = NewPlan(1, 2, f"call {mark}", f"plan {mark}".encode() + large)
    await user.runs.commit(lease, Commit(plan=plan))
    question = NewQuestion(f"question {mark}", 2, 0, "text", {"text": f"asked {mark}"}, 60.0)
    await user.runs.commit(lease, Commit(questions=(question,)))
    child = await begin_child(
        user,
        "run-parent",
        "run-child",
        CHILD,
        nodes=(NewNode(1, None, "message", "user", f"asked {mark}".encode(), 3, 0),),
        spec={"for": mark, "parent": "run-parent"},
    )
    await user.runs.commit(
        child, Commit(finish=Finish("failed", "error", f"detail {mark}", large + b"child"))
    )
    await user.runs.commit(
        lease,
        Commit(
            done=(
                CallDone(2, 0, "ok", f"result {mark}".encode(), 5),
                CallDone(2, 1, "error", b"\xff\x00" + large, 5, 40),
            ),
            close=(2,),
            head=2,
            steps=1,
            usage=(_usage(mark),),
            release=Amount(10, 10),
            settle=Amount(7, 3),
            events=(NewEvent("tool-finish", 2, {"said": mark, "run": "run-child"}),),
        ),
    )
    await user.inbox.post(PARENT, f"steer {mark}", f"inbox {mark}".encode(), run_id="run-child")
    await user.jobs.enqueue(PARENT, f"kind {mark}", f"key {mark}", f"payload {mark}".encode())
    content = f"content {mark}".encode()
    file = NewFile(f"file {mark}", "document", "upload", f"name {mark}", f"type/{mark}", content)
    await user.files.put(PARENT, file)
    await user.vectors.upsert(f"model {mark}", [VectorItem(PARENT, f"from {mark}", 1, VECTOR)])
    await user.search.index(PARENT, [NodeText(1, None, f"task {mark}"), NodeText(2, 0, mark)])
    await user.runs.commit(
        lease, Commit(finish=Finish("succeeded", "completed", f"detail {mark}", large + b"out"))
    )


def _usage(mark: str) -> Usage:
    return Usage(
        run_id="run-parent",
        root_run_id="run-parent",
        node_id=2,
        purpose="step",
        model=f"model {mark}",
        prompt_tokens=100,
        cached_tokens=10,
        cache_write_tokens=5,
        completion_tokens=20,
        counted_tokens=99,
        cost=1234,
    )


async def exported(user: UserStore, thread_id: str = PARENT) -> list[dict[str, Any]]:
    """Return the records of an export."""
    return [dict(record) async for record in user.upkeep.export_thread(thread_id)]


async def stream(records: list[dict[str, Any]]) -> AsyncIterator[Mapping[str, Any]]:
    """Yield the records one by one."""
    for record in records:
        yield record


def sealed(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return changed records with a checksum that fits them."""
    checksum = Checksum()
    for record in records[1:-1]:
        checksum.add(record)
    return [*records[:-1], checksum.end()]
