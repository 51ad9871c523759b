"""The store's errors: every driver error is mapped to one of these.

AgentRuntimeError
└── StoreError
    ├── UnknownScheme         the database URL names no backend
    ├── StoreUnavailable      the database cannot be reached or opened
    │   ├── StoreBusy         another process kept its lock longer than the deadline
    │   ├── StoreReadOnly     the file or its folder cannot be written
    │   ├── StoreFull         no space is left on the device
    │   ├── NotADatabase      the file is something else, or damaged
    │   ├── ObjectsUnavailable the store of large bodies cannot be reached or used
    │   └── StoreInDoubt      the connection broke while a write was on its way
    ├── MigrationError        the schema is newer than the code, or a migration was changed
    ├── NotFound              no such thread, run, node or call for this owner
    ├── CorruptThread         the chain of nodes is broken: an ancestor is missing, or a cycle
    │   └── ObjectLost        a body lies in an object that is not there, or is damaged
    ├── CorruptDocument       a document in the object store is damaged; it is left as it is
    │   └── UnknownVersion    it is of a version that this code does not know
    ├── InvalidVector         a vector has no direction: empty, zero, or not finite
    ├── DimensionMismatch     a vector has another length than its model's; `.known`, `.given`
    ├── InvalidExport         what is to be imported is no whole export; `.line` says where
    └── Conflict              the state is not what the writer thought; nothing was written
        ├── ThreadBusy        the thread has an active run; `.run_id` names it
        ├── ThreadExists      the thread that is to be imported is there already
        ├── LeaseLost         another process took the run over
        ├── RunCancelled      the run, or one it was started by, is cancelled
        ├── InboxWaiting      something waits in the inbox of a run that was to end
        ├── QuestionClosed    a question is answered, expired or withdrawn; `.status` says which
        └── BudgetExceeded    the reservation does not fit the run tree's budget
"""

from __future__ import annotations

from agent_runtime_config.errors import AgentRuntimeError


class StoreError(AgentRuntimeError):
    """The root of the store's errors."""


class UnknownScheme(StoreError):
    """The database URL names no backend."""


class StoreUnavailable(StoreError):
    """The database cannot be reached or opened."""


class StoreBusy(StoreUnavailable):
    """Another process kept the database's lock for longer than the deadline."""


class StoreReadOnly(StoreUnavailable):
    """The database file, or the folder it lies in, cannot be written."""


class StoreFull(StoreUnavailable):
    """No space is left on the device; what was being written was rolled back whole."""


class NotADatabase(StoreUnavailable):
    """The file is not a database of ours, or it is damaged."""


class StoreInDoubt(StoreUnavailable):
    """The connection broke while a write was on its way: all of it was written, or nothing."""


class ObjectsUnavailable(StoreUnavailable):
    """The object store that holds large bodies cannot be reached, written to or used."""


class MigrationError(StoreError):
    """The schema is newer than this code knows, or an applied migration was changed."""


class NotFound(StoreError):
    """There is no such row for this owner."""


class CorruptThread(StoreError):
    """The chain of nodes is broken: an ancestor is missing, or it runs in a circle."""


class InvalidExport(StoreError):
    """What is to be imported is no whole export of a thread.

    Attributes:
        line: the record at fault, counted from 1.
    """

    def __init__(self, message: str, *, line: int, cure: str = "") -> None:
        super().__init__(f"Line {line}: {message}", cure=cure)
        self.line = line


class ObjectLost(CorruptThread):
    """A body lies in an object that is not in the object store, or is damaged."""


class CorruptDocument(StoreError):
    """A document in the object store cannot be read; it is never overwritten."""


class UnknownVersion(CorruptDocument):
    """A document is of a version that this code does not know; it is never overwritten."""


class InvalidVector(StoreError):
    """No cosine can be told of the vector; nothing was written."""


class DimensionMismatch(StoreError):
    """The vector has another number of dimensions than those of its model; nothing was written."""

    def __init__(self, message: str, *, known: int, given: int, cure: str = "") -> None:
        super().__init__(message, cure=cure)
        self.known = known
        self.given = given


class Conflict(StoreError):
    """The state is not what the writer thought; the whole batch was rolled back."""


class ThreadBusy(Conflict):
    """The thread has an active run already."""

    def __init__(self, message: str, *, run_id: str, cure: str = "") -> None:
        super().__init__(message, cure=cure)
        self.run_id = run_id


class ThreadExists(Conflict):
    """The thread that is to be imported is there already."""


class LeaseLost(Conflict):
    """The run's lease is somebody else's now; the loser wrote nothing."""


class RunCancelled(Conflict):
    """The run, or an ancestor of it, was cancelled."""


class InboxWaiting(Conflict):
    """Something waits in the inbox, so the run may not end yet."""


class QuestionClosed(Conflict):
    """The question cannot be answered any more; nothing was written.

    Attributes:
        status: `answered`, `expired` or `withdrawn`; `open` if its run is being cancelled.
    """

    def __init__(self, message: str, *, status: str, cure: str = "") -> None:
        super().__init__(message, cure=cure)
        self.status = status


class BudgetExceeded(Conflict):
    """The reservation does not fit what is left of a budget; nothing was written.

    Attributes:
        budget: whose: `run` (of a run with those below it), `thread`, `day`, or `steps` of the run.
    """

    def __init__(self, message: str, *, budget: str, cure: str = "") -> None:
        super().__init__(message, cure=cure)
        self.budget = budget
