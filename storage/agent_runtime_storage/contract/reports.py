"""Reports on a database as a whole: its state, its damage, its size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """The state of a database.

    Attributes:
        server: the software and its version.
        schema: the newest applied migration's number; 0 for an empty database.
        pending: the migrations that it lacks.
        problem: why this version of the runtime cannot use its schema; "" if it can.
        isolation: how the database itself separates owners, in addition to the owner that every
            statement names; "" if it cannot.
        cure: what to do about the problem, or for a better isolation; "" if nothing.
        outdated_texts: how many texts an earlier version indexed; until they are indexed again,
            which running processes do in the background, they are found by exact words only.
    """

    server: str
    schema: int
    pending: tuple[str, ...]
    problem: str = ""
    isolation: str = ""
    cure: str = ""
    outdated_texts: int = 0


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem that a check of a database found.

    Attributes:
        level: `damage` if data is lost or contradictory, `notice` if something waits for a person
            or only takes space.
        user_id: the owner; "" if there is none.
        thread_id: the thread; "" if there is none.
    """

    level: Literal["damage", "notice"]
    user_id: str
    thread_id: str
    detail: str
    cure: str


@dataclass(frozen=True, slots=True)
class OwnerSize:
    """The size of an owner's threads, in bytes of content."""

    user_id: str
    threads: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ThreadSize:
    """The size of a thread, in bytes of content."""

    user_id: str
    thread_id: str
    title: str
    bytes: int


@dataclass(frozen=True, slots=True)
class StoreSizes:
    """The size of a database.

    Attributes:
        total: its bytes, without objects.
        tables: bytes by table, including indexes if the database can measure them; the largest
            first.
        owners: the largest first; compressed content only, objects included.
        threads: the largest ones of all owners, the largest first.
    """

    total: int
    tables: tuple[tuple[str, int], ...]
    owners: tuple[OwnerSize, ...]
    threads: tuple[ThreadSize, ...]


@dataclass(frozen=True, slots=True)
class ArchivedThread:
    """A thread whose content is in the object store.

    Attributes:
        created_at, updated_at: the thread's own times.
        place: the folder of its parts in the object store.
        digests: the SHA-256 of each part, one after the other.
        threads: how many threads are archived with it, itself and those of its sub-agents.
        records: the lines of JSON.
        bytes: of these lines.
        stored_bytes: of the compressed parts.
    """

    thread_id: str
    title: str
    created_at: float
    updated_at: float
    archived_at: float
    place: str
    digests: bytes
    threads: int
    records: int
    bytes: int
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class CopiedThread:
    """The outcome for a thread, with those of its sub-agents, in a copy of a database.

    For a document `thread_id` is its key, and `user_id` a digest of its owner.

    Attributes:
        outcome: `copied`; `there` if the target already had the same thread; `conflict` if it was
            not copied.
        detail: why it was not copied.
    """

    user_id: str
    thread_id: str
    outcome: Literal["copied", "there", "conflict"]
    detail: str = ""
