"""The contract of the store: its promises in prose, then protocols by subject.

**Owner.**  Every method of a `UserStore` belongs to one owner (`Store.of(user_id)`).  Nothing of
another owner is read, written, counted or revealed; another owner's ids do not exist here.

**Atomicity.**  Each writing method is one batch: all of it is written, or nothing.  When it
returns, what it wrote survives a kill of the process and, with `synchronous=full`, of the machine.

**Order.**  Node, activation, inbox and event ids count up within a thread, without gaps, in commit
order: a reader that continues after a cursor misses no event and sees none twice.

**Leases.**  A thread has at most one active run.  A write for a run names its lease; the store
compares the epoch in the same transaction, so a process that lost the lease writes nothing.  The
times of leases are the database's.  Posting to an inbox and requesting a cancel need no lease.

**Retries.**  A commit states the ids that it writes, so sending the same commit again misses
instead of writing twice.

**Branches.**  The head is explicit and moves only to a closed node; while a run is active, only
that run moves it.  A branch is the chain of parents of a head; a missing ancestor or a cycle raises
`CorruptThread`, never a shorter history.

**Bodies.**  The store does not interpret them.  Large ones (above 4 KB) are stored compressed,
once for each distinct content of a thread; the largest (above 256 KB compressed) in an object
store, if there is one.  Readers notice only when a body is lost: `ObjectLost`.

**Cancellation.**  A cancelled read is abandoned.  A cancelled write either has not begun, or is
finished under a shield before the cancellation takes effect; it is never in doubt.

**Closing.**  The caller that opened the store closes it; accepted writes are finished first.
"""

from __future__ import annotations

from typing import Protocol

from agent_runtime_storage.contract.documents import Documents
from agent_runtime_storage.contract.files import FileStore
from agent_runtime_storage.contract.inspection import InspectionStore
from agent_runtime_storage.contract.leases import LeaseStore, RateShareStore
from agent_runtime_storage.contract.log import LogStore
from agent_runtime_storage.contract.questions import QuestionStore
from agent_runtime_storage.contract.queue import QueueStore, WorkQueue
from agent_runtime_storage.contract.records.objects import ObjectStore
from agent_runtime_storage.contract.runs import JobStore, RunStore
from agent_runtime_storage.contract.schedules import DueSchedules, ScheduleStore
from agent_runtime_storage.contract.search import TextSearch, VectorStore
from agent_runtime_storage.contract.service import ServiceStore
from agent_runtime_storage.contract.short_ids import IdStore
from agent_runtime_storage.contract.spending import SpendingStore
from agent_runtime_storage.contract.threads import EventStore, InboxStore, ThreadStore
from agent_runtime_storage.contract.upkeep import Maintenance, Upkeep


class UserStore(Protocol):
    """One owner's view of the store, by subject."""

    user_id: str
    threads: ThreadStore
    log: LogStore
    runs: RunStore
    inbox: InboxStore
    events: EventStore
    spending: SpendingStore
    jobs: JobStore
    files: FileStore
    questions: QuestionStore
    queue: QueueStore
    schedules: ScheduleStore
    search: TextSearch
    vectors: VectorStore
    ids: IdStore
    inspection: InspectionStore

    @property
    def upkeep(self) -> Upkeep:
        """Export, import, deletion and retention of the owner's threads."""
        ...

    @property
    def documents(self) -> Documents:
        """The owner's documents, which are in the object store only.

        Raises:
            ConfigError: there is no object store.
        """
        ...


class Store(Protocol):
    """An open database."""

    leases: LeaseStore
    rate_shares: RateShareStore
    queue: WorkQueue
    schedules: DueSchedules
    service: ServiceStore

    @property
    def maintenance(self) -> Maintenance:
        """Checks and sizes of the whole database."""
        ...

    @property
    def objects(self) -> ObjectStore | None:
        """The object store of all owners; None if large bodies are in the database."""
        ...

    def of(self, user_id: str) -> UserStore:
        """Return the store of one owner.

        Raises:
            ConfigError: the owner is empty, or a name that not every database can store.
        """
        ...

    async def close(self) -> None:
        """Finish accepted work, then release everything; safe to call twice."""
        ...
