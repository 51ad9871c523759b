"""The rows of two owners: what one tries to keep, and what the other attacks with."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from agent_runtime_config.errors import ConfigError
from agent_runtime_storage import (
    Amount,
    CallDone,
    Commit,
    Job,
    Lease,
    NewActivation,
    NewEvent,
    NewFile,
    NewNode,
    NewObservation,
    NewPlan,
    NewQuestion,
    Usage,
    UserStore,
    VectorItem,
)
from agent_runtime_storage.contract.records.queue import NewQueuedRun
from agent_runtime_storage.contract.records.schedules import NewSchedule
from tests.storage.helpers import LARGE, begin, exchange

SECRET = "a secret that only its owner may find"
DOCUMENT = "node_memory/app/t1/node.json"
FILE = "0199a000-0000-7000-8000-00000000000f"
QUESTION = "0199a000-0000-7000-8000-0000000000ff"
SCHEDULE = "morning"
DIGEST = "0" * 32
"""Digest of the text that the vectors stand for."""
KEPT = "kept"
"""The other owner's archived thread."""
OWN = "own"
"""Each stranger's own thread; the run on it is `own-run`."""


@dataclass(frozen=True, slots=True)
class Target:
    """The other owner's ids that an attempt names, and the attacker's own lease."""

    job: Job
    own: Lease
    thread: str = "t1"
    run: str = "r1"
    child: str = "r2"

    @property
    def lease(self) -> Lease:
        """The other owner's lease."""
        return Lease(self.run, self.thread, self.run, 1)


async def fill_other(user: UserStore) -> Job:
    """Write rows of every kind that an attempt names; return a claimed job."""
    lease = await begin(
        user,
        events=(NewEvent("run-start"),),
        activation=NewActivation(1, None, "begin", b"{}", b"prompt"),
        nodes=(text_node(1, None),),
    )
    usage = Usage("r1", "r1", None, "step", "m", 1, 0, 0, 1, 1, 1)
    await user.runs.commit(
        lease,
        Commit(
            nodes=(exchange(2, 1, "a", "b"),),
            usage=(usage,),
            settle=Amount(2, 1),
            reserve=Amount(5, 5),
        ),
    )
    result = CallDone(2, 0, "ok", LARGE, 5, text=SECRET)
    seen = NewObservation(1, 0, None, 1, 1, SECRET.encode(), 5)
    plan = NewPlan(1, 2, "call-2-0", SECRET.encode())
    await user.runs.commit(lease, Commit(done=(result,), observation=seen, plan=plan))
    question = NewQuestion(QUESTION, 2, 1, "text", {"text": SECRET}, 3600)
    await user.runs.commit(lease, Commit(questions=(question,)))
    await begin(user, "r2", "t2", parent_run_id="r1")
    await user.inbox.post("t1", "steer", b"x")
    await user.inbox.post("t1", "steer", LARGE)
    await user.vectors.upsert("e", [vector_of("t1"), vector_of("t2")])
    await user.vectors.upsert("theirs", [vector_of("t1", 4)])
    await user.files.put("t1", file_of(SECRET.encode()))
    with suppress(ConfigError):
        # A database on a server has no folder for documents here.
        assert await user.documents.write(DOCUMENT, SECRET.encode(), replaces=None)
        await user.threads.ensure(KEPT, title=SECRET)
        await user.upkeep.archive_thread(KEPT)
    await user.schedules.add(schedule_of(SCHEDULE))
    await user.jobs.claim_periodic("tidy", seconds=3600)
    await user.jobs.enqueue("t1", "observe", "a", b"payload")
    await user.jobs.enqueue("t1", "other", "a", LARGE)
    job = await user.jobs.claim("other", seconds=3600)
    assert job is not None
    return job


async def fill_own(user: UserStore) -> Lease:
    """Write the attacker's own rows; return the run's lease."""
    lease = await begin(user, "own-run", OWN, nodes=(text_node(1, None, "my own words"),))
    usage = Usage("own-run", "own-run", None, "step", "m", 1, 0, 0, 1, 1, 1)
    await user.runs.commit(lease, Commit(nodes=(exchange(2, 1, "a"),), usage=(usage,)))
    await user.inbox.post(OWN, "steer", b"x")
    await user.vectors.upsert("e", [vector_of(OWN, digest="")])
    return lease


def text_node(seq: int, parent: int | None, text: str = SECRET) -> NewNode:
    """Return a message that full-text search finds."""
    return NewNode(seq, parent, "message", "user", text.encode(), 3, 0, text=text)


def file_of(content: bytes) -> NewFile:
    """Return a file with the id that attempts name."""
    return NewFile(FILE, "document", "upload", "notes.txt", "text/plain", content)


def vector_of(
    thread_id: str, dimensions: int = 2, *, source_id: int = 1, digest: str = DIGEST
) -> VectorItem:
    """Return a vector of ones for a message of a thread."""
    return VectorItem(thread_id, "message", source_id, [1.0] * dimensions, digest=digest)


def schedule_of(name: str) -> NewSchedule:
    """Return a schedule of this name."""
    return NewSchedule(name, "0 9 * * *", "UTC", "once", queued_run("", ""), 4e9)


def queued_run(run_id: str, thread_id: str) -> NewQueuedRun:
    """Return a run to enqueue."""
    return NewQueuedRun(run_id, thread_id, "coder", "app", None, {}, "share")
