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
    │   └── ObjectLost        the object with a body is missing or damaged
    ├── CorruptDocument       a document in the object store is damaged; it is left as it is
    │   └── UnknownVersion    it is of a version that this code does not know
    ├── InvalidVector         a vector has no direction: empty, zero, or not finite
    ├── DimensionMismatch     a vector has another length than its model's; `.known`, `.given`
    ├── InvalidExport         the records are not a complete export; `.line` says where
    └── Conflict              the state is not what the writer thought; nothing was written
        ├── ThreadBusy        the thread has an active run; `.run_id` names it
        ├── ThreadExists      the thread to import exists already
        ├── LeaseLost         another process took the run over
        ├── RunCancelled      the run, or one it was started by, is cancelled
        ├── InboxWaiting      items wait in the inbox, so the run may not end yet
        ├── InboxFull         too many items wait in the inbox
        ├── QuestionClosed    a question is answered, expired or withdrawn; `.status` says which
        └── BudgetExceeded    the reservation does not fit the run tree's budget
"""

from __future__ import annotations

from agent_runtime_config.errors import AgentRuntimeError


class StoreError(AgentRuntimeError):
    """The root of the store's errors.

    Cause: see the subclass.
    Cure: see the subclass.
    """


class UnknownScheme(StoreError):
    """The database URL names no backend.

    Cause: a scheme that is none of `file`, `libsql`, `http(s)`, `ws(s)` and `postgresql`.
    Cure: write one of these, or the path of a file.
    """


class StoreUnavailable(StoreError):
    """The database cannot be reached or opened.

    Cause: the server is down, the URL or the password is wrong, or a package is missing.
    Cure: run `agent-runtime doctor`, which names the cause.
    """


class StoreBusy(StoreUnavailable):
    """Another process kept the database's lock for longer than the deadline.

    Cause: a transaction of another program that stays open, or an overloaded server.
    Cure: try again; if it stays, find the transaction and end it.
    """


class StoreReadOnly(StoreUnavailable):
    """The database file, or its folder, cannot be written.

    Cause: the process lacks the permission, or the file system is mounted read-only.
    Cure: give the process write permission on the file and on its folder.
    """


class StoreFull(StoreUnavailable):
    """No space is left on the device; what was being written was rolled back whole.

    Cause: the disk or the quota is full.
    Cure: free some space, then resume the run.
    """


class NotADatabase(StoreUnavailable):
    """The file is not a database of ours, or it is damaged.

    Cause: the URL names another program's file, or the disk damaged it.
    Cure: choose another file, or restore it from a backup.
    """


class StoreInDoubt(StoreUnavailable):
    """The connection broke while a write was on its way: all of it was written, or nothing.

    Cause: the network or the server failed between the write and its acknowledgement.
    Cure: read what is there before you write it again; the runtime does this for its own writes.
    """


class ObjectsUnavailable(StoreUnavailable):
    """The object store that holds large bodies cannot be reached, written to or used.

    Cause: wrong credentials, a bucket that does not exist, or a folder that cannot be written.
    Cure: correct `AGENT_RUNTIME_OBJECT_STORE_URL` or the provider's credentials.
    """


class MigrationError(StoreError):
    """The schema is newer than this code knows, or an applied migration was changed.

    Cause: an older version of the runtime, a changed migration file, or a Postgres that is too old.
    Cure: upgrade the runtime to the version that wrote the database, or newer.
    """


class NotFound(StoreError):
    """There is no such row for this owner.

    Cause: a wrong id, a deleted thread, or one that belongs to another user.
    Cure: check the id and `AGENT_RUNTIME_USER`.
    """


class ThreadArchived(NotFound):
    """The thread is in the archive: its content is in the object store.

    Cause: `threads archive` was run for it, or for all that were unused for long.
    Cure: restore it (`agent-runtime threads restore`), or use another id.
    """


class CorruptThread(StoreError):
    """The chain of nodes is broken: an ancestor is missing, or it runs in a circle.

    Cause: a damaged database, or rows deleted by hand.
    Cure: go on from a branch that is whole (`agent-runtime fork`), or restore a backup.
    """


class InvalidExport(StoreError):
    """The records to import are not a complete export of a thread.

    Cause: another file, or an export that was cut short.
    Cure: export the thread again; nothing was imported.

    Attributes:
        line: the record at fault, counted from 1.
    """

    def __init__(self, message: str, *, line: int, cure: str = "") -> None:
        super().__init__(f"Line {line}: {message}", cure=cure)
        self.line = line


class ObjectLost(CorruptThread):
    """The object with a body is missing from the object store, or is damaged.

    Cause: a database opened with another object store than it was written with, or a lost folder.
    Cure: set `AGENT_RUNTIME_OBJECT_STORE_URL` to the original store, or restore the object.
    """


class CorruptDocument(StoreError):
    """A document in the object store cannot be read; it is never overwritten.

    Cause: a damaged object, or one that another program wrote.
    Cure: restore it from a backup, or delete it.
    """


class UnknownVersion(CorruptDocument):
    """A document is of a version that this code does not know; it is never overwritten.

    Cause: a newer version of the runtime wrote it.
    Cure: read it with the version that wrote it, or upgrade.
    """


class InvalidVector(StoreError):
    """The vector has no direction, so no similarity can be computed; nothing was written.

    Cause: an embedder that returned an empty, zero or infinite vector.
    Cure: look at what the embedder returned, or use another one.
    """


class DimensionMismatch(StoreError):
    """The vector has another number of dimensions than those of its model; nothing was written.

    Cause: an embedder changed under the same name.
    Cure: give the changed embedder another name, such as `model@1024`.
    """

    def __init__(self, message: str, *, known: int, given: int, cure: str = "") -> None:
        super().__init__(message, cure=cure)
        self.known = known
        self.given = given


class Conflict(StoreError):
    """The state is not what the writer thought; the whole batch was rolled back.

    Cause: another process changed the same thread or run first.
    Cure: read the state again, then decide.
    """


class ThreadBusy(Conflict):
    """The thread has an active run already.

    Cause: a second run was started on the thread, or a run of it waits or stands still.
    Cure: wait for the run that the message names, resume it, or cancel it.
    """

    def __init__(self, message: str, *, run_id: str, cure: str = "") -> None:
        super().__init__(message, cure=cure)
        self.run_id = run_id


class ThreadExists(Conflict):
    """The thread to import exists already.

    Cause: the same export was imported before.
    Cure: import it under another id, or delete the thread first.
    """


class LeaseLost(Conflict):
    """Another process took the run over; this one wrote nothing.

    Cause: this process was stopped or cut off for longer than its lease.
    Cure: leave the run to the other process.
    """


class RunCancelled(Conflict):
    """The run, or an ancestor of it, was cancelled.

    Cause: `cancel` was called, by this process or another.
    Cure: resume the run if it is to go on after all.
    """


class InboxWaiting(Conflict):
    """Something waits for the run that this commit would have overlooked; nothing was written.

    Cause: a message or a cancel arrived while the run ended or recorded a step.
    Cure: none is needed: the runtime reads it and writes again.
    """


class InboxFull(Conflict):
    """Too many messages wait to be read; this one was not written.

    Cause: messages are sent faster than runs read them, or to a thread whose run is over.
    Cure: let the run take a step, or raise `AGENT_RUNTIME_MAX_INBOX_MESSAGES`.
    """


class QuestionClosed(Conflict):
    """The question cannot be answered any more; nothing was written.

    Cause: somebody answered first, its time ran out, or its run is over.
    Cure: look at the open questions (`agent-runtime questions`).

    Attributes:
        status: `answered`, `expired` or `withdrawn`; `open` if its run is being cancelled.
    """

    def __init__(self, message: str, *, status: str, cure: str = "") -> None:
        super().__init__(message, cure=cure)
        self.status = status


class BudgetExceeded(Conflict):
    """The reservation does not fit what is left of a budget; nothing was written.

    Cause: the run tree, its thread or its user's day has spent its limit.
    Cure: raise the budget (`agent-runtime budget`) and resume, or wait for the next day.

    Attributes:
        budget: whose: `run` (of a run with those below it), `thread`, `day`, or `steps` of the run.
    """

    def __init__(self, message: str, *, budget: str, cure: str = "") -> None:
        super().__init__(message, cure=cure)
        self.budget = budget
