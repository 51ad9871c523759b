"""Bodies larger than a database takes as one value, on real libSQL servers."""

from __future__ import annotations

from random import Random

import pytest

from agent_runtime_storage import (
    CallDone,
    Commit,
    CorruptThread,
    Finish,
    NewFile,
    NewNode,
    Store,
    StoreError,
    UserStore,
)
from tests.storage.families import exported, stream
from tests.storage.helpers import begin
from tests.support.stores import driver_of, execute

pytestmark = pytest.mark.backends("libsql-ws")
# Incompressible, and more than the server takes as one value.
LARGE = Random(1).randbytes(5_500_000)
OTHER = Random(2).randbytes(4_000_001)


async def _fill(user: UserStore) -> None:
    """Write a file, a result and the output of a run that are too large for one value."""
    lease = await begin(user, nodes=(NewNode(1, None, "message", "user", b"task", 1, 0),))
    await user.files.put("t1", NewFile("f1", "document", "upload", "f", "text/plain", LARGE))
    calls = NewNode(2, 1, "exchange", "assistant", b"call", 1, 0, "open", ("look",))
    await user.runs.commit(lease, Commit(nodes=(calls,)))
    done = CallDone(2, 0, "ok", OTHER, tokens=1)
    await user.runs.commit(lease, Commit(start=((2, 0),), done=(done,), close=(2,), head=2))


@pytest.mark.backends("libsql-http", "libsql-ws")
async def test_large_bodies_are_kept_in_parts(store: Store, user: UserStore) -> None:
    await _fill(user)

    assert await user.files.content("t1", "f1") == LARGE
    nodes = await user.log.branch("t1", 2)
    assert nodes[-1].calls[0].body == OTHER
    problems = await store.maintenance.check()
    assert [one.detail for one in problems if "body" in one.detail or "bodies" in one.detail] == []
    blobs = "SELECT length(data) FROM blobs"
    sizes = [size for (size,) in await driver_of(store).read(blobs, {}, owner=None)]
    assert sum(sizes) == len(LARGE) + len(OTHER) and max(sizes) == 2_000_000


async def test_a_body_that_lacks_a_part_is_reported(
    store: Store, user: UserStore, database_url: str
) -> None:
    await _fill(user)
    assert not any("bytes of body" in one.detail for one in await store.maintenance.check())
    await execute(database_url, "DELETE FROM blobs WHERE length(data) = 1500000")
    with pytest.raises(CorruptThread, match="is damaged"):
        await user.files.content("t1", "f1")
    [problem] = [one for one in await store.maintenance.check() if "bytes of body" in one.detail]
    assert (problem.level, problem.thread_id) == ("damage", "t1")


async def test_what_the_server_refuses_names_the_cure_and_leaves_nothing(
    store: Store, user: UserStore
) -> None:
    await begin(user)
    # A server may be set to take less than a part.
    driver_of(store).part_bytes = 20_000_000  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(StoreError) as refused:
        file = NewFile("f1", "document", "upload", "f", "text/plain", LARGE)
        await user.files.put("t1", file)
    assert "AGENT_RUNTIME_OBJECT_STORE_URL" in refused.value.cure
    assert await user.files.list("t1") == []


async def test_a_body_too_large_for_a_message_of_a_websocket_names_the_cure(
    user: UserStore,
) -> None:
    await begin(user)
    file = NewFile("f1", "document", "upload", "f", "text/plain", Random(3).randbytes(12_000_000))
    with pytest.raises(StoreError, match="over a WebSocket") as refused:
        await user.files.put("t1", file)
    assert "AGENT_RUNTIME_OBJECT_STORE_URL" in refused.value.cure
    assert await user.files.list("t1") == []


async def test_parts_are_exported_imported_and_deleted_with_their_thread(
    store: Store, user: UserStore
) -> None:
    lease = await begin(user)
    await user.files.put("t1", NewFile("f1", "document", "upload", "f", "text/plain", LARGE))
    await user.runs.commit(lease, Commit(finish=Finish("failed", "error")))
    records = await exported(user, "t1")
    await user.upkeep.import_thread(stream(records), rename="t/2")
    await user.upkeep.delete_thread("t1")
    assert await user.files.content("t/2", "f1") == LARGE
    await user.upkeep.delete_thread("t/2")
    assert await driver_of(store).read("SELECT 1 FROM blobs", {}, owner=None) == []
