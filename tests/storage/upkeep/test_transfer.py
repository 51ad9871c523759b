"""Exporting and importing threads: an import is complete, or leaves nothing visible."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_runtime_storage import (
    Budget,
    Commit,
    Conflict,
    Finish,
    InvalidExport,
    NewApproval,
    NewEvent,
    NewQuestion,
    NotFound,
    Store,
    ThreadBusy,
    ThreadExists,
    UserStore,
    open_store,
)
from agent_runtime_storage.upkeep.export_format import Checksum, dump_record, header, load_records
from tests.storage.families import CHILD, PARENT, exported, fill, sealed, stream
from tests.storage.helpers import OTHER, append, begin, begin_child, exchange, message

Records = list[dict[str, Any]]


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[UserStore]:
    """An owner of an empty database file."""
    store = await open_store(f"file:{tmp_path / 'target.db'}")
    yield store.of("bob")
    await store.close()


async def test_an_import_is_equal_to_the_original(user: UserStore, target: UserStore) -> None:
    await fill(user, "amber")
    records = await exported(user)

    assert await target.upkeep.import_thread(stream(records), trusted=True) == [PARENT, CHILD]

    assert await exported(target) == records
    thread, head = await target.threads.get(PARENT), 2
    assert thread == await user.threads.get(PARENT)
    assert await target.log.branch(PARENT, head) == await user.log.branch(PARENT, head)
    assert await target.log.activation(PARENT, head) == await user.log.activation(PARENT, head)
    assert await target.events.list(PARENT) == await user.events.list(PARENT)
    assert await target.inbox.pending(PARENT) == await user.inbox.pending(PARENT)
    assert await target.runs.get("run-child") == await user.runs.get("run-child")
    assert await target.spending.usage_total(thread_id=PARENT) == await user.spending.usage_total(
        thread_id=PARENT
    )
    assert await target.vectors.of_thread(PARENT) == await user.vectors.of_thread(PARENT)
    assert await target.questions.list(thread_id=PARENT) == await user.questions.list(
        thread_id=PARENT
    )
    sections = {record["section"] for record in records}
    assert sections == {
        "header", "thread", "runs", "nodes", "calls", "activations", "events", "usage", "inbox",
        "jobs", "files", "plans", "questions", "log", "vectors", "end",
    }  # fmt: skip


async def test_an_export_can_be_imported_into_any_backend(
    user: UserStore, target: UserStore
) -> None:
    await fill(target, "amber")
    records = await exported(target)

    await user.upkeep.import_thread(stream(records), trusted=True)

    assert await exported(user) == records
    claimed = await user.jobs.claim("kind amber", seconds=60)
    assert claimed is not None and claimed.payload == b"payload amber"


async def test_a_thread_can_be_imported_next_to_itself_under_another_name(user: UserStore) -> None:
    await fill(user, "amber")
    records = await exported(user)

    copied, child = await user.upkeep.import_thread(stream(records), rename="copy", trusted=True)

    assert copied == "copy" and child != CHILD
    copies = {run.id: run for run in await user.runs.list() if run.thread_id in (copied, child)}
    assert len(copies) == 2 and not copies.keys() & {"run-parent", "run-child"}
    [root] = [run for run in copies.values() if run.parent_run_id is None]
    [sub] = [run for run in copies.values() if run.parent_run_id is not None]
    assert (sub.parent_run_id, sub.root_run_id) == (root.id, root.id)
    # References to a run of the original now refer to the copy's run.
    assert sub.spec == {"for": "amber", "parent": root.id}
    assert (await user.events.list("copy"))[-1].data == {"said": "amber", "run": sub.id}
    assert [item.run_id for item in await user.inbox.pending("copy")] == [sub.id]
    assert (await user.spending.usage_total(root_run_id=root.id)).calls == 1
    assert await exported(user) == records


async def test_an_import_is_searchable_if_its_texts_are_given(
    user: UserStore, target: UserStore
) -> None:
    await fill(user, "amber")
    records = await exported(user)

    await target.upkeep.import_thread(
        stream(records), texts=lambda kind, body: f"{kind} {body[:20]!r}"
    )
    await target.upkeep.import_thread(stream(records), rename="silent")

    hits = await target.search.find("amber")
    assert {(hit.thread_id, hit.node_id, hit.call) for hit in hits} >= {(PARENT, 1, None)}
    assert not [hit for hit in hits if hit.thread_id == "silent"]


async def test_an_export_can_be_written_as_lines(user: UserStore, target: UserStore) -> None:
    await fill(user, "amber")
    records = await exported(user)
    lines = b"".join(dump_record(record) for record in records).splitlines()
    assert len(lines) == len(records)
    assert json.loads(lines[0])["format"] == "agent-runtime-thread"

    async def read() -> AsyncIterator[bytes]:
        for line in lines:
            yield line

    await target.upkeep.import_thread(load_records(read()), trusted=True)

    assert await exported(target) == records


async def test_an_invalid_line_is_reported_by_its_number(target: UserStore) -> None:
    async def read() -> AsyncIterator[bytes]:
        yield dump_record(header("t", "a test"))
        yield b"{oops"

    with pytest.raises(InvalidExport, match="Line 2: it is no JSON") as raised:
        await target.upkeep.import_thread(load_records(read()))

    assert raised.value.line == 2


async def test_a_thread_with_a_running_run_is_not_exported(user: UserStore) -> None:
    await begin(user)

    with pytest.raises(ThreadBusy):
        await exported(user, "t1")


async def test_an_export_of_a_thread_that_changes_meanwhile_fails(
    user: UserStore,
) -> None:
    await fill(user, "amber")
    records: Records = []

    with pytest.raises(Conflict, match="changed while"):
        async for record in user.upkeep.export_thread(PARENT):
            if not records:
                await user.inbox.post(PARENT, "steer", b"in between")
            records.append(dict(record))

    assert records[-1]["section"] != "end"


async def test_a_missing_or_another_owners_thread_is_not_exported(
    user: UserStore, stranger: UserStore
) -> None:
    await fill(user, "amber")

    for thread_id in (PARENT, "nowhere"):
        with pytest.raises(NotFound, match=thread_id):
            await exported(stranger, thread_id)


async def test_an_import_does_not_overwrite_a_thread(user: UserStore) -> None:
    await fill(user, "amber")
    records = await exported(user)

    with pytest.raises(ThreadExists, match=PARENT):
        await user.upkeep.import_thread(stream(records))
    await user.upkeep.delete_thread(PARENT)
    await user.threads.ensure(CHILD, title="another's")
    with pytest.raises(ThreadExists, match=CHILD):
        await user.upkeep.import_thread(stream(records))

    assert [thread.title for thread in await user.threads.list()] == ["another's"]


async def test_an_import_with_an_existing_run_id_is_refused(user: UserStore) -> None:
    await fill(user, "amber")
    records = await exported(user)
    await user.upkeep.delete_thread(PARENT)
    await begin(user, "run-parent", "t1")

    with pytest.raises(Conflict, match="line"):
        await user.upkeep.import_thread(stream(records))

    assert [thread.id for thread in await user.threads.list()] == ["t1"]


def _without_end(records: Records) -> Records:
    return records[:-1]


def _without_header(records: Records) -> Records:
    return records[1:]


def _without_records(records: Records) -> Records:
    return records[:0]


def _without_jobs(records: Records) -> Records:
    return [record for record in records if record["section"] != "jobs"]


def _without_a_log(records: Records) -> Records:
    logs = [place for place, record in enumerate(records) if record["section"] == "log"]
    return _with_end(records[: logs[1]])


def _cycle(records: Records) -> Records:
    parents = {"run-parent": "run-child", "run-child": "run-parent"}
    changed = [
        {**record, "parent_run_id": parents[record["id"]], "root_run_id": "elsewhere"}
        if record["section"] == "runs"
        else record
        for record in records[:-1]
    ]
    return _with_end(changed)


def _with_end(records: Records) -> Records:
    """Add the end that an export has, with its checksum."""
    checksum = Checksum()
    for record in records[1:]:
        checksum.add(record)
    return [*records, checksum.end()]


def _with_two_ends(records: Records) -> Records:
    return [*records, records[-1]]


def _change(section: str, /, **values: Any) -> Callable[[Records], Records]:
    """Change a section's first record, and adapt the checksum."""

    def change(records: Records) -> Records:
        place = [record["section"] for record in records].index(section)
        changed = [*records[:place], {**records[place], **values}, *records[place + 1 :]]
        return changed if section in ("header", "end") else _with_end(changed[:-1])

    return change


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_without_end, "cut short"),
        (_without_jobs, "checksum"),
        (_with_two_ends, "after the end"),
        (_without_header, "no header"),
        (_without_records, "cut short"),
        (_change("header", version=9, writer="agent-runtime 9.0"), "written by agent-runtime 9.0"),
        (_change("header", thread=""), "names no thread"),
        (_change("end", sha256="0"), "checksum"),
        (_change("nodes", version=9), "section nodes has version 9"),
        (_change("inbox", section="dreams"), "section 'dreams' is not known"),
        (_change("thread", id=""), "id is empty"),
        (_change("thread", title=7), "title of a record of thread is no text"),
        (_change("nodes", id=7), "id of nodes is 7, not 1"),
        (_change("nodes", parent_id=1), "parent of node 1 is node 1"),
        (_change("nodes", body={"base64": "!"}), "neither text nor base64"),
        (_change("nodes", extra=1), "unknown 'extra'"),
        (_change("calls", node_id=9), "refers to node 9"),
        (_change("calls", position=1), "out of order"),
        (_change("events", run_id="nobody"), "refers to run nobody"),
        (_change("usage", node_id=99), "refers to node 99"),
        (_change("runs", root_run_id="else"), "neither a root nor a child"),
        (_change("thread", last_seq=3), "has 2 nodes, not 3"),
        (_change("thread", head=None, active_run="run-child"), "active run"),
        (_change("vectors", values="abc"), "single-precision"),
        (_change("log", thread=CHILD), "not that of the next thread"),
        (_without_a_log, "has its log"),
        (_cycle, "its own ancestor"),
    ],
)
async def test_a_damaged_export_is_refused_and_leaves_nothing(
    target: UserStore,
    tmp_path: Path,
    damage: Callable[[Records], Records],
    message: str,
) -> None:
    source = await open_store(f"file:{tmp_path / 'source.db'}")
    user = source.of("ann")
    await fill(user, "amber")
    records = await exported(user)
    await source.close()

    with pytest.raises(InvalidExport, match=message):
        await target.upkeep.import_thread(stream(damage(records)), trusted=True)

    assert await target.threads.list() == [] and await target.runs.list() == []
    # No hidden thread is left either: the undamaged export can be imported.
    assert await target.upkeep.import_thread(stream(records), trusted=True) == [PARENT, CHILD]


async def test_a_sub_agents_thread_can_be_imported_alone(
    user: UserStore, target: UserStore
) -> None:
    await fill(user, "amber")

    await target.upkeep.import_thread(stream(await exported(user, CHILD)))

    run = await target.runs.get("run-child")
    assert (run.parent_run_id, run.root_run_id) == (None, "run-child")
    assert [thread.id for thread in await target.threads.list()] == [CHILD]


async def test_runs_may_precede_their_parents_in_an_export(
    user: UserStore, target: UserStore
) -> None:
    # Exports sort by id: each parent's id is greater than its child's, so it comes later.
    lease = await begin(user, "z-parent", "t1")
    await begin_child(user, "z-parent", "m-child", "t2", lease_seconds=-1.0)
    await user.runs.commit(lease, Commit(finish=Finish("succeeded", "completed")))
    back = await begin_child(
        user, "m-child", "a-grandchild", "t1", expect_head=1, expect_seq=1,
        nodes=(message(2, 1),), task_id=2,
    )  # fmt: skip
    await user.runs.commit(back, Commit(finish=Finish("succeeded", "completed")))
    records = await exported(user, "t1")

    await target.upkeep.import_thread(stream(records), trusted=True)

    assert await exported(target, "t1") == records
    run = await target.runs.get("a-grandchild")
    assert (run.parent_run_id, run.root_run_id) == ("m-child", "z-parent")


async def test_an_open_run_can_be_resumed_only_after_a_trusted_import(
    user: UserStore, target: UserStore
) -> None:
    lease = await begin(user, lease_seconds=-1.0)
    await user.runs.commit(lease, Commit(nodes=(exchange(2, 1, "shell"),)))
    await user.runs.commit(lease, Commit(start=((2, 0),), events=(NewEvent("tool-start", 2),)))
    records = await exported(user, "t1")

    await target.upkeep.import_thread(stream(records), trusted=True)
    await target.upkeep.import_thread(stream(records), rename="t2")

    run = await target.runs.get("r1")
    assert (run.status, run.open_node, run.owner) == ("running", 2, None)
    assert (await target.threads.get("t1")).active_run == "r1"
    assert (await target.log.call("t1", 2, 0)).status == "started"
    [run] = await target.runs.list(thread_id="t2")
    assert (run.status, run.stop_reason, run.open_node) == ("cancelled", "imported", None)
    thread = await target.threads.get("t2")
    assert (thread.head, thread.active_run) == (2, None)
    call = await target.log.call("t2", 2, 0)
    assert (call.status, call.outcome) == ("done", "refused")
    with pytest.raises(Conflict):
        await target.runs.take_lease(run.id, OTHER, seconds=60, replaces=run.epoch)


async def test_approvals_and_worked_time_are_taken_over_by_the_owners_copy_only(
    user: UserStore, target: UserStore
) -> None:
    lease = await begin(user)
    question = NewQuestion("q1", 1, None, "approval", {"text": "May it?"}, 60.0)
    finish = Finish("suspended", "awaiting_user")
    await user.runs.commit(lease, Commit(questions=(question,), finish=finish))
    approval = NewApproval("a1", "deploy", {"to": "staging"}, binding="digest", agent="agent")
    await user.questions.answer("q1", {"allow": True}, remember=approval)
    records = await exported(user, "t1")

    await target.upkeep.import_thread(stream(records), trusted=True)
    await target.upkeep.import_thread(stream(records), rename="t2")

    assert await target.questions.approvals("t1") == await user.questions.approvals("t1") != []
    assert await target.runs.active_seconds("r1") == await user.runs.active_seconds("r1") > 0
    assert await exported(target, "t1") == records
    assert await target.questions.approvals("t2") == []


async def test_a_vouched_import_has_worked_for_no_time(user: UserStore, target: UserStore) -> None:
    lease = await begin(user)
    await user.runs.commit(lease, Commit(finish=Finish("failed", "error")))
    records = [
        {**one, "worked_seconds": 900.0} if one["section"] == "runs" else one
        for one in await exported(user, "t1")
    ]
    await target.upkeep.import_thread(stream(sealed(records)))
    assert await target.runs.active_seconds("r1") == 900
    await target.runs.adopt("r1", Budget(tokens=10))
    assert await target.runs.active_seconds("r1") == 0


async def test_an_export_of_an_earlier_version_lacks_what_came_later(
    user: UserStore, target: UserStore
) -> None:
    lease = await begin(user)
    await user.runs.commit(lease, Commit(finish=Finish("failed", "error")))
    [head, *records, _] = await exported(user, "t1")
    checksum, earlier = Checksum(), [head]
    for record in records:
        if record["section"] == "runs":
            newer = ("worked_seconds", "commit_id")
            record = {k: v for k, v in record.items() if k not in newer} | {"version": 1}
        checksum.add(record)
        earlier.append(record)

    await target.upkeep.import_thread(stream([*earlier, checksum.end()]), trusted=True)

    assert await target.runs.active_seconds("r1") == 0
    later = [{**one, "version": 4} if one["section"] == "runs" else one for one in earlier]
    with pytest.raises(InvalidExport, match="runs has version 4"):
        await target.upkeep.import_thread(stream(later), rename="t2", trusted=True)


async def test_small_pages_and_batches_give_the_same_export(
    user: UserStore, target: UserStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_runtime_storage.upkeep.transfer._PAGE_ROWS", 7)
    monkeypatch.setattr("agent_runtime_storage.upkeep.transfer._PAGE_BYTES", 60)
    monkeypatch.setattr("agent_runtime_storage.upkeep.importer._CHUNK_ROWS", 5)
    lease = await begin(user)
    await append(user, lease, 40)
    await user.runs.commit(lease, Commit(finish=Finish("succeeded", "completed")))
    await fill(user, "amber")

    for thread_id in ("t1", PARENT):
        records = await exported(user, thread_id)
        await target.upkeep.import_thread(stream(records), trusted=True)
        assert await exported(target, thread_id) == records


async def test_a_thread_is_invisible_during_its_import(
    user: UserStore, target: UserStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_runtime_storage.upkeep.importer._CHUNK_ROWS", 1)
    await fill(target, "amber")
    records = await exported(target)
    seen = 0

    async def look() -> AsyncIterator[Mapping[str, Any]]:
        nonlocal seen
        for record in records:
            yield record
            if record["section"] != "end":
                assert await user.threads.list() == [] and await user.runs.list() == []
                seen += 1

    await user.upkeep.import_thread(look())

    assert seen == len(records) - 1
    assert len(await user.threads.list()) == 2


async def test_a_cancelled_import_leaves_nothing(user: UserStore, target: UserStore) -> None:
    await fill(target, "amber")
    records = await exported(target)

    async def stall() -> AsyncIterator[Mapping[str, Any]]:
        for record in records[:-1]:
            yield record
        scope.cancel()
        await anyio.sleep(60)

    with anyio.CancelScope() as scope:
        await user.upkeep.import_thread(stall())

    assert scope.cancelled_caught
    assert await user.threads.list() == []
    assert await user.upkeep.import_thread(stream(records)) == [PARENT, CHILD]


async def test_an_import_that_was_cleaned_up_is_refused(
    store: Store, user: UserStore, target: UserStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_runtime_storage.upkeep.retention._ABANDONED_SECONDS", -1.0)
    await fill(target, "amber")
    records = await exported(target)

    async def stall() -> AsyncIterator[Mapping[str, Any]]:
        for record in records[:-1]:
            yield record
        assert sorted(await store.of(user.user_id).upkeep.clean_up()) == [CHILD, PARENT]
        yield records[-1]

    with pytest.raises(Conflict, match="abandoned"):
        await user.upkeep.import_thread(stall())

    assert await user.threads.list() == []
