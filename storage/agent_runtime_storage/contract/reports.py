"""Reports on a database as a whole: its state, its damage, its size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """What a database is, and whether it is ready.

    Attributes:
        server: the software and its version.
        schema: the newest applied migration's number; 0 for an empty database.
        pending: the migrations that it lacks.
        problem: why its schema cannot be used by this version of the runtime; "" if it can.
        isolation: how the database itself separates owners, in addition to the owner that every
            statement names; "" where it cannot.
        cure: what to do about the problem, or for a better isolation; "" if nothing.
    """

    server: str
    schema: int
    pending: tuple[str, ...]
    problem: str = ""
    isolation: str = ""
    cure: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """What a check of a database found.

    Attributes:
        level: `damage` where something is lost or contradicts itself, `notice` where something
            waits for somebody or only takes space.
        user_id: the owner; "" where it is nobody's.
        thread_id: "" where it is no thread's.
    """

    level: Literal["damage", "notice"]
    user_id: str
    thread_id: str
    detail: str
    cure: str


@dataclass(frozen=True, slots=True)
class OwnerSize:
    """What an owner's threads hold, in bytes of content."""

    user_id: str
    threads: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ThreadSize:
    """What a thread holds, in bytes of content."""

    user_id: str
    thread_id: str
    title: str
    bytes: int


@dataclass(frozen=True, slots=True)
class StoreSizes:
    """How large a database is.

    Attributes:
        total: bytes that it takes, without objects outside of it.
        tables: bytes by table, with its indexes where the database can tell; the largest first.
        owners: the largest first; compressed content only, objects outside included.
        threads: the largest ones of all owners, the largest first.
    """

    total: int
    tables: tuple[tuple[str, int], ...]
    owners: tuple[OwnerSize, ...]
    threads: tuple[ThreadSize, ...]


@dataclass(frozen=True, slots=True)
class CopiedThread:
    """What became of a thread, with those of its sub-agents, in a copy of a database.

    Or of a document: then `thread_id` is its key, and `user_id` a digest of its owner.

    Attributes:
        outcome: `copied`; `there` if the same thread was in the target already; `conflict` if it
            was not copied.
        detail: why not.
    """

    user_id: str
    thread_id: str
    outcome: Literal["copied", "there", "conflict"]
    detail: str = ""
