"""The store's contract, in prose first, then as a protocol.

**Owner.**  Every method belongs to one owner (`Store.of(user_id)`); nothing is read, written,
counted or revealed of another's.  Thread and run ids of another owner are simply not found.

**Atomicity.**  Each writing method is one batch: all of it, or nothing.  When it returns, what it
wrote survives a kill of the process and, with `synchronous=full`, of the machine.

**Order.**  `seq`, activation ids, inbox ids and event ids count up within a thread, without gaps,
in commit order: whoever reads events after a cursor misses none and sees none twice.

**Leases.**  One run a thread is active.  A write for a run names its lease; the store compares
the epoch in the same transaction, so who lost the lease writes nothing.  Times of leases are the
database's.  Posting to an inbox and asking for a cancel need no lease.

**Retries.**  A commit states the seqs that it writes, so the same commit sent twice misses the
second time instead of writing twice.

**Branches.**  The head is explicit, moves only to a closed node, and only the active run moves it
while there is one.  A branch is the chain of parents of a head; a missing ancestor or a cycle
raises `CorruptThread`, never a shorter history.

**Bodies.**  The store does not interpret them.  Large ones (above 4 KB) lie compressed beside
their row, once for each distinct content of a thread; the largest (above 256 KB compressed) in an
object store, if there is one.  Readers never notice, unless one is gone: `ObjectLost`.

**Cancellation.**  A cancelled read is abandoned.  A cancelled write either did not begin, or is
finished under a shield before the cancellation goes on; it is never in doubt.

**Closing.**  Who opened the store closes it; what was accepted before is finished first.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from agent_runtime_storage.contract.plans import PlansContract
from agent_runtime_storage.contract.questions import QuestionsContract
from agent_runtime_storage.contract.records import (
    Activation,
    CallRow,
    Commit,
    EventRow,
    FileRow,
    InboxItem,
    Job,
    LateObservation,
    Lease,
    LeaseOwner,
    NewFile,
    NewRun,
    Node,
    ObservationRow,
    Outline,
    Run,
    RunStatus,
    Thread,
    Usage,
    UsageTotal,
)
from agent_runtime_storage.contract.reports import Problem, StoreSizes, StoreStatus
from agent_runtime_storage.contract.search import SearchContract
from agent_runtime_storage.contract.spending import SpendingContract
from agent_runtime_storage.contract.transfer import MovingContract

if TYPE_CHECKING:
    from agent_runtime_storage.objects.documents import Documents
    from agent_runtime_storage.objects.object_store import Objects


class UserStore(
    SearchContract, MovingContract, PlansContract, QuestionsContract, SpendingContract, Protocol
):
    """All that one owner can read and write."""

    user_id: str

    # Threads

    async def ensure_thread(
        self, thread_id: str, *, title: str = "", metadata: Mapping[str, Any] | None = None
    ) -> Thread:
        """Return the thread, created empty if it is not there (title and metadata then apply)."""
        ...

    async def thread(self, thread_id: str) -> Thread:
        """Return the thread. Raises `NotFound`."""
        ...

    async def threads(
        self, *, limit: int = 50, before: float | None = None, children: bool = True
    ) -> list[Thread]:
        """Return threads, the most recently updated first.

        Args:
            before: an `updated_at` cursor.
            children: whether to return those in which child runs work, too.
        """
        ...

    async def update_thread(
        self, thread_id: str, *, title: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> Thread:
        """Set the title, and merge the given keys into the metadata (None removes a key)."""
        ...

    async def move_head(self, thread_id: str, head: int | None, *, expect: int | None) -> None:
        """Point the head at another closed node, or before the first one.

        Raises `ThreadBusy` while a run is active, `NotFound` if the node is not there or not
        closed, `Conflict` if the head is not `expect` any more.
        """
        ...

    # The log

    async def branch(
        self, thread_id: str, head: int, *, first: int | None = None, limit: int | None = None
    ) -> list[Node]:
        """Return the chain that ends at `head`, oldest first, with calls.

        It goes back to the node `first` (inclusive), to the root, or over `limit` nodes.
        Raises `CorruptThread` for a missing ancestor, a cycle, or a `first` that is no ancestor.
        """
        ...

    async def lineage(self, thread_id: str, head: int, *, first: int = 0) -> list[int]:
        """Return the seqs of the chain that ends at `head`, oldest first, from `first` on.

        Quicker than `branch`, since no bodies are read; `first` need not be on the branch.
        Raises `CorruptThread` for a missing ancestor or a cycle.
        """
        ...

    async def outlines(
        self, places: Collection[tuple[str, int]], *, before: int = 0, after: int = 0
    ) -> list[Outline]:
        """Return what nodes are, and so many before and after each, ordered by thread and `seq`.

        Args:
            places: threads and nodes; those that are not on the branch of their thread's head, or
                not there at all, are left out.
        """
        ...

    async def node(self, thread_id: str, seq: int) -> Node:
        """Return one node with its calls. Raises `NotFound`."""
        ...

    async def children(self, thread_id: str, parent_id: int | None) -> list[Node]:
        """Return the nodes whose parent this is (None: the roots), in `seq` order."""
        ...

    async def call(self, thread_id: str, node_id: int, index: int) -> CallRow:
        """Return one tool call with its whole result. Raises `NotFound`."""
        ...

    async def activation(self, thread_id: str, head: int | None) -> Activation | None:
        """Return the newest activation among the head's ancestors and the head itself.

        That is the newest one anchored at the head (for None: at no node), else the one that was
        in force when the head was appended.
        """
        ...

    async def activations(self, thread_id: str) -> list[Activation]:
        """Return all activations of the thread, on whatever branch, in the order of their ids."""
        ...

    async def last_observation(self, thread_id: str) -> int:
        """Return the id of the thread's newest observation; 0 if there is none."""
        ...

    async def observations(
        self, thread_id: str, *, ids: Sequence[int] = (), ending_from: int | None = None
    ) -> list[ObservationRow]:
        """Return observations in the order of their ids.

        Args:
            ids: those to return in any case.
            ending_from: return those as well whose last node is this one or a later one, on
                whatever branch; None for no others.
        """
        ...

    # Runs

    async def begin_run(self, run: NewRun) -> tuple[Lease, int]:
        """Begin a run and make it the thread's active one; return its lease and last event id.

        Raises `ThreadBusy` if the thread has an active run, `Conflict` if head or seq moved,
        `RunCancelled` if the parent is cancelled or over, `BudgetExceeded`, `NotFound`.
        """
        ...

    async def commit(self, lease: Lease, commit: Commit) -> int:
        """Write one step's boundary, whole or not at all; return the thread's last event id.

        Raises `LeaseLost`, `BudgetExceeded`, `InboxWaiting`, `Conflict`.
        """
        ...

    async def commit_late(self, lease: Lease, commit: LateObservation) -> int:
        """Write an observation whose run ended meanwhile; return the thread's last event id.

        The claim on its job is what allows it, not the lease, which says only whose it is.  What
        it may have cost was counted as spent when the run ended, so no budget changes.

        Raises `Conflict`: the claim is void, or the observation is not the next one; `NotFound`:
        the thread or the run is gone.
        """
        ...

    async def book_late(self, lease: Lease, usage: Sequence[Usage]) -> None:
        """Write what was used for a run whose lease is over, or was taken by another.

        No budget changes: what it may have cost was counted as spent when the run ended.

        Raises `NotFound`: the thread or the run is gone.
        """
        ...

    async def run(self, run_id: str) -> Run:
        """Return the run. Raises `NotFound`."""
        ...

    async def runs(
        self,
        *,
        thread_id: str | None = None,
        root_run_id: str | None = None,
        parent_run_id: str | None = None,
        parent_thread_id: str | None = None,
        task_key: str | None = None,
        status: Sequence[RunStatus] | None = None,
        limit: int = 100,
    ) -> list[Run]:
        """Return runs that match all that is given, the newest first.

        Args:
            parent_thread_id: the child runs of this thread's runs.
            task_key: of those, the ones that were delegated under this key.
        """
        ...

    async def take_lease(
        self,
        run_id: str,
        owner: LeaseOwner,
        *,
        seconds: float,
        replaces: int,
        was: RunStatus | None = None,
    ) -> Lease:
        """Take a run over, with the next epoch, if its epoch is still `replaces`, and its status.

        The epoch alone does not tell whether its owner has ended it since it was read, so whoever
        judged by its status gives that as `was`.

        The run becomes `running` and the thread's active one, its own outstanding reservation is
        settled as unsettled on the root.  A cancel that was asked for holds until the run is ended;
        whoever takes it after that takes it back.  Whether the former owner is dead is the caller's
        judgement.  Raises `ThreadBusy` if another run is active, `LeaseLost` if the epoch or the
        status moved, `Conflict` if the run has succeeded.
        """
        ...

    async def renew_lease(self, lease: Lease, *, seconds: float) -> bool:
        """Extend the lease; return whether a cancel was asked for. Raises `LeaseLost`."""
        ...

    async def cancel_run(self, run_id: str) -> list[str]:
        """Ask every active run of this run's subtree to cancel; return their ids.

        Idempotent.  A run that is not active is left as it is.  Raises `NotFound`.
        """
        ...

    # Inbox and events

    async def post(
        self, thread_id: str, kind: str, body: bytes, *, run_id: str | None = None
    ) -> int:
        """Append to the thread's inbox, without a lease; return the item's id."""
        ...

    async def inbox(self, thread_id: str) -> list[InboxItem]:
        """Return what is not drained yet, oldest first."""
        ...

    async def poll(self, lease: Lease) -> tuple[bool, bool]:
        """Return (was a cancel asked for, is anything in the inbox) in one read.

        Raises `LeaseLost` if the epoch moved.
        """
        ...

    async def events(self, thread_id: str, *, after: int = 0, limit: int = 1000) -> list[EventRow]:
        """Return events with ids above `after`, in order, without gaps. Raises `NotFound`."""
        ...

    def follow(self, thread_id: str, *, after: int = 0) -> AsyncGenerator[EventRow]:
        """Iterate over the events with ids above `after`, in order, without gaps, without end.

        What is there comes at once, what is new as it is committed, by whatever process: within
        milliseconds where the database can tell (and always within this process), else within a
        quarter of a second.  Raises `NotFound`.  Cancellation ends it at any time; close the
        iterator (`contextlib.aclosing`) when you leave it otherwise.
        """
        ...

    # Usage

    async def usage_total(
        self,
        *,
        root_run_id: str | None = None,
        run_id: str | None = None,
        thread_id: str | None = None,
    ) -> UsageTotal:
        """Sum the usage of a run tree, of one run, or of a thread (exactly one is given)."""
        ...

    async def usage_by_purpose(
        self,
        *,
        root_run_id: str | None = None,
        run_id: str | None = None,
        thread_id: str | None = None,
    ) -> dict[str, UsageTotal]:
        """Sum like `usage_total`, each purpose (`step`, `embed` and so on) by itself."""
        ...

    async def usage_by_run(self, root_run_id: str) -> dict[str, UsageTotal]:
        """Sum the usage of each run of a tree by itself; runs without any are left out."""
        ...

    async def recent_usage(self, model: str, *, limit: int = 20) -> list[Usage]:
        """Return the newest reported usage of a model, newest first."""
        ...

    # Durable jobs

    async def enqueue(self, thread_id: str, kind: str, key: str, payload: bytes) -> bool:
        """Add a job unless there is one of this thread, kind and key; return whether it did."""
        ...

    async def claim(
        self, kind: str, *, seconds: float, thread_id: str | None = None, key: str | None = None
    ) -> Job | None:
        """Lease the oldest job that is free or whose lease expired; None if there is none.

        Args:
            thread_id, key: take only a job of this thread, and with this key.
        """
        ...

    async def finish_job(self, job: Job) -> None:
        """Mark a claimed job done; doing so again changes nothing.

        Raises `LeaseLost` if another claimed it meanwhile, or if it was given up.
        """
        ...

    async def fail_job(self, job: Job, *, retry_after: float | None, detail: str) -> None:
        """Free a claimed job for a retry after so many seconds; None gives it up for good.

        Raises `LeaseLost` if another claimed it meanwhile.
        """
        ...

    # Periodic jobs

    async def claim_periodic(self, kind: str, *, seconds: float) -> str | None:
        """Lease what is done for the owner from time to time; None if it is not due.

        It is due at first, when its time has come again, and when a claim has expired.

        Returns:
            The token by which it is finished.
        """
        ...

    async def finish_periodic(self, kind: str, token: str, *, again_after: float) -> None:
        """Let a claimed periodic job be due again after so many seconds.

        Raises `LeaseLost` if another claimed it meanwhile.
        """
        ...

    # Files

    async def put_file(self, thread_id: str, file: NewFile) -> None:
        """Keep a file, as a part of its thread, and count that as a use of the thread.

        A file of this id that the thread has already is left as it is.  Its content lies where
        bodies lie, once for each distinct content of the thread.

        Raises:
            NotFound: the thread is not there.
            StoreError: the id is empty, too long, or no text.
        """
        ...

    async def files(self, thread_id: str) -> list[FileRow]:
        """Return the files of a thread, in the order of their ids. Raises `NotFound`."""
        ...

    async def find_files(self, ids: Sequence[str]) -> list[FileRow]:
        """Return the files of these ids, of whatever thread, in the order of their ids.

        What is not there is left out.  Where several threads have it, as copies of each other, it
        is given once.
        """
        ...

    async def file_content(self, thread_id: str, file_id: str) -> bytes:
        """Return what a file of the thread holds.

        Raises:
            NotFound: it is not there.
            CorruptThread, ObjectLost: its content is lost or damaged.
        """
        ...

    # Documents

    def documents(self) -> Documents:
        """Return the owner's documents, which lie in the object store only.

        Raises `ConfigError` if there is no object store.
        """
        ...


class Store(Protocol):
    """An open database."""

    @property
    def objects(self) -> Objects | None:
        """Where the objects of all owners lie; None if they have no place of their own."""
        ...

    def of(self, user_id: str) -> UserStore:
        """Return the store as one owner sees it. Raises `ConfigError` if the owner is empty."""
        ...

    # Looking at the whole, over all owners; an operator's work.  Without an up-to-date schema all
    # but `status` raise `MigrationError`.

    async def status(self) -> StoreStatus:
        """Return what the database is, and what it lacks; changes nothing."""
        ...

    async def owners(self) -> list[str]:
        """Return the owners who have threads."""
        ...

    def thread_ids(self, user_id: str) -> AsyncGenerator[str]:
        """Give the ids of all threads of an owner, those of sub-agents last."""
        ...

    async def check(self) -> list[Problem]:
        """Return what is damaged, lost or left over, at most 100 findings of a kind.

        Reads every table whole.
        """
        ...

    async def sizes(self, *, threads: int = 10) -> StoreSizes:
        """Return how large the database is, by table, by owner, and of the largest threads."""
        ...

    async def vacuum(self) -> None:
        """Give back the space of what was deleted; takes as long as reading everything.

        A file is written anew, and nobody writes to it meanwhile; on Postgres what was deleted is
        gone for good from then on.  Raises `StoreError` for a libSQL server, which does it by
        itself.
        """
        ...

    async def close(self) -> None:
        """Finish what was accepted, then release everything."""
        ...
