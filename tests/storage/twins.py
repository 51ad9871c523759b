"""A series of calls that touches everything, for two owners to make under the same ids."""

from __future__ import annotations

from agent_runtime_storage import (
    Amount,
    Budget,
    Commit,
    Finish,
    NewActivation,
    NewEvent,
    NodeText,
    Usage,
    UserStore,
    VectorItem,
)
from agent_runtime_storage.contract.records.log import CallShown
from tests.storage.attacks import plain
from tests.storage.helpers import LARGE, OTHER, begin, done, exchange, message
from tests.storage.owners import text_node

COMMON = b"content that both have, and that lies in a blob for its length\n" * 200


async def live(user: UserStore, mark: str) -> list[object]:
    """Make the calls and return all their results; the mark is part of everything they write."""
    seen: list[object] = []
    await user.threads.ensure("t1", title=mark, metadata={"mark": mark})
    lease = await begin(
        user,
        events=(NewEvent("run-start", data={"mark": mark}),),
        activation=NewActivation(1, None, mark, mark.encode(), COMMON),
        nodes=(text_node(1, None, mark), message(2, 1, COMMON)),
        budget=Budget(1000, 1000),
    )
    usage = Usage("r1", "r1", 1, mark, "m", 1, 0, 0, 1, 1, 1)
    open_node = exchange(3, 2, "a", "b", mark)
    first = Commit(nodes=(open_node,), usage=(usage, usage), reserve=Amount(5, 5), steps=1)
    seen.append(await user.runs.commit(lease, first))
    await user.runs.commit(lease, Commit(start=((3, 0), (3, 1))))
    await user.runs.commit(lease, Commit(done=(done(3, 0, COMMON), done(3, 1, LARGE))))
    seen.append(
        [await user.log.node("t1", 3), await user.log.call("t1", 3, 0), await user.runs.get("r1")]
    )
    items = [await user.inbox.post("t1", mark, body) for body in (COMMON, mark.encode())]
    seen += [items, await user.inbox.pending("t1"), await user.runs.poll(lease)]
    closing = Commit(
        done=(done(3, 2, mark.encode()),),
        shown=(CallShown(3, 0, 10, 2),),
        close=(3,),
        nodes=(message(4, 3, mark.encode()),),
        head=4,
        activation=NewActivation(2, 3, mark, COMMON, mark.encode()),
        drained=(1,),
        release=Amount(5, 5),
        settle=Amount(3, 3),
        reserve=Amount(7, 7),
        events=(NewEvent(mark, 3), NewEvent(mark, 4)),
    )
    seen.append(await user.runs.commit(lease, closing))
    await begin(user, "r2", "t2", parent_run_id="r1", nodes=(text_node(1, None, mark),))
    seen += [await user.runs.cancel("r1"), await user.runs.renew_lease(lease, seconds=60)]
    lease = await user.runs.take_lease("r1", OTHER, seconds=60, replaces=1)
    await user.runs.commit(lease, Commit(drained=(2,)))
    end = Finish("failed", "error", mark, COMMON)
    await user.runs.commit(lease, Commit(finish=end, quiet_inbox=True))
    await user.threads.move_head("t1", 1, expect=4)
    await user.threads.update("t1", title=mark + "!", metadata={"more": mark})
    return [plain(result) for result in seen] + await _more(user, mark) + await look(user, mark)


async def _more(user: UserStore, mark: str) -> list[object]:
    seen: list[object] = []
    for key, payload in (("a", COMMON), ("b", mark.encode()), ("c", b"")):
        seen.append(await user.jobs.enqueue("t1", "observe", key, payload))
    claimed = [await user.jobs.claim("observe", seconds=3600) for _ in range(3)]
    # Jobs of the same millisecond are claimed in any order.
    jobs = sorted((job for job in claimed if job is not None), key=lambda job: job.key)
    first, second, third = jobs
    seen += [(job.key, job.payload, job.attempts) for job in jobs]
    await user.jobs.finish(first)
    await user.jobs.fail(second, retry_after=0, detail=mark)
    await user.jobs.fail(third, retry_after=None, detail=mark)
    await user.search.index("t1", [NodeText(4, None, mark)])
    for model, values in (("e", [1.0, 0.5]), (mark, [1.0, 0.5, 0.25])):
        items = [VectorItem("t1", mark, number, values) for number in (1, 2)]
        await user.vectors.upsert(model, items)
    seen.append(await user.vectors.delete("t1", model="e", source=mark, source_ids=[2]))
    return seen


async def look(user: UserStore, mark: str) -> list[object]:
    """Return all that the owner can read."""
    thread = await user.threads.get("t1")
    return [
        plain(result)
        for result in (
            thread,
            await user.threads.list(),
            await user.log.branch("t1", 4),
            await user.log.branch("t1", 4, first=2, limit=2),
            await user.log.lineage("t1", 4),
            await user.log.children("t1", None),
            await user.log.children("t1", 1),
            await user.log.activation("t1", None),
            await user.log.activation("t1", 4),
            await user.log.activations("t1"),
            await user.inbox.pending("t1"),
            await user.events.list("t1"),
            await user.runs.get("r1"),
            await user.runs.list(),
            await user.runs.list(thread_id="t1", status=("failed",)),
            await user.runs.list(root_run_id="r1"),
            await user.runs.list(parent_run_id="r1"),
            await user.spending.usage_total(root_run_id="r1"),
            await user.spending.usage_total(run_id="r1"),
            await user.spending.usage_total(thread_id="t1"),
            await user.spending.usage_by_purpose(thread_id="t1"),
            await user.spending.recent_usage("m"),
            await user.search.find(mark),
            await user.search.find(mark, thread_id="t1", every_word=True),
            await user.vectors.nearest("e", [1.0, 0.5]),
            await user.vectors.nearest(mark, [1.0, 0.5, 0.25], thread_id="t1", sources=[mark]),
            await user.vectors.models(),
            await user.vectors.missing("another"),
            await user.vectors.of_thread("t1"),
            await user.upkeep.idle_threads(seconds=0),
        )
    ]
