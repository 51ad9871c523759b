"""Maintain a database as a whole, over all owners: status, checks, sizes, vacuum."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from agent_runtime_storage.contract.errors import (
    MigrationError,
    NotADatabase,
    StoreError,
    StoreUnavailable,
)
from agent_runtime_storage.contract.reports import (
    OwnerSize,
    Problem,
    StoreSizes,
    StoreStatus,
    ThreadSize,
)
from agent_runtime_storage.drivers.protocol import Driver, Patient, Row, Vacuuming, Value
from agent_runtime_storage.objects.archive_parts import list_places, part_keys
from agent_runtime_storage.objects.object_store import Objects, in_parallel
from agent_runtime_storage.objects.parts import Parted
from agent_runtime_storage.queries.migrations import schema_state
from agent_runtime_storage.sql.loader import load_queries
from agent_runtime_storage.upkeep.orphans import find_missing_objects, find_orphans

# Problems of one check; a damaged database could have millions.
_MOST = 100
_PAGE = 500
# As long as `clean_up` waits before it takes an import or a deletion for interrupted.
_ABANDONED_SECONDS = 300.0
_RESTORE = "Restore the database from a backup; `threads export` saves what can still be read."
_RESTORE_OBJECTS = (
    "Set AGENT_RUNTIME_OBJECT_STORE_URL to where they were written, or restore the objects from a "
    "backup."
)
_REPORT = "Report it, and how it happened; the thread's content is not affected."
_MIGRATE = "Run `agent-runtime db migrate`."


class _Check(NamedTuple):
    """A query of `maintenance.sql`; each row is a problem: owner, thread, values for `detail`."""

    query: str
    level: Literal["damage", "notice"]
    detail: str
    cure: str


_CHECKS = (
    _Check("check_file", "damage", "the file is damaged: {}", _RESTORE),
    _Check("check_references", "damage", "{} refers to {}, which is not there", _RESTORE),
    _Check("check_parents", "damage", "the parent of node {}, node {}, is not there", _RESTORE),
    _Check("check_heads", "damage", "the head, node {}, is not there or not closed", _RESTORE),
    _Check(
        "check_counters", "damage", "of {} there are {}, the last is {}, and {} were counted",
        _RESTORE,
    ),
    _Check("check_inbox", "damage", "inbox item {} is there, and {} were counted", _RESTORE),
    _Check("check_blobs", "damage", "the content of {} is lost", _RESTORE),
    _Check("check_calls", "damage", "node {} is closed, but {} of its calls are not done", _REPORT),
    _Check(
        "check_active_runs", "damage", "its active run, {}, is not there or not active", _RESTORE
    ),
    _Check(
        "check_open_nodes", "notice", "exchange {} is open, and belongs to no run's next step",
        _REPORT,
    ),
    _Check(
        "check_unfinished", "notice", "exchange {} is open, and its run {} is over ({})",
        "Close it by `agent-runtime resume`; what its tools did is not verified.",
    ),
    _Check(
        "check_dead_runs", "notice", "run {} was running, and its lease has expired",
        "Resume it by `agent-runtime resume`, or end it by `agent-runtime cancel`.",
    ),
    _Check(
        "check_orphan_blobs", "notice", "{} large bodies are used by nothing any more",
        "Nothing needs to be done: they go with the thread.",
    ),
    _Check(
        "check_archived", "damage", "it is archived in {}, and there as well", _REPORT,
    ),
    _Check(
        "check_hidden", "notice", "`{}` was interrupted, and no process continues it",
        "Run `agent-runtime threads prune` as its owner; it cleans up.",
    ),
)  # fmt: skip


class _Wall(Protocol):
    """A driver's report on row-level security."""

    @property
    def wall(self) -> str: ...
    @property
    def detail(self) -> str: ...
    @property
    def cure(self) -> str: ...


@runtime_checkable
class _Isolating(Protocol):
    async def isolation(self) -> _Wall: ...


class SqlMaintenance:
    """`Maintenance` over SQL."""

    def __init__(self, driver: Driver, objects: Objects | None = None) -> None:
        self._driver = driver
        self._objects = objects
        self._sql = load_queries(driver.dialect)

    async def status(self) -> StoreStatus:
        [(server,)] = await self._all("server_version")
        try:
            schema, pending = await schema_state(self._driver)
        except (MigrationError, NotADatabase) as error:
            return StoreStatus(str(server), 0, (), error.message, cure=error.cure)
        isolation = cure = ""
        outdated = 0 if pending else int((await self._all("count_outdated_texts"))[0][0])
        # Before the migrations there is no table to guard.
        if not pending and isinstance(self._driver, _Isolating):
            wall = await self._driver.isolation()
            isolation, cure = f"{wall.wall}: {wall.detail}", wall.cure
        if pending:
            cure = _MIGRATE
        return StoreStatus(
            str(server), schema, pending, isolation=isolation, cure=cure, outdated_texts=outdated
        )

    async def owners(self) -> list[str]:
        await self._require_schema()
        return [str(user_id) for (user_id,) in await self._all("owners")]

    async def outdated(self) -> list[str]:
        await self._require_schema()
        return [str(user_id) for (user_id,) in await self._all("owners_of_outdated_texts")]

    async def thread_ids(self, user_id: str) -> AsyncGenerator[str]:
        await self._require_schema()
        # Pages by both: the threads of sub-agents come after all others.
        child, after = 0, ""
        while rows := await self._all(
            "thread_ids", user_id=user_id, child=child, after=after, limit=_PAGE
        ):
            for thread_id, child_of in rows:
                after, child = str(thread_id), int(child_of)
                yield after

    async def check(self) -> list[Problem]:
        await self._require_schema()
        problems: list[Problem] = []
        for check in _CHECKS:
            try:
                rows = await self._all(check.query, limit=_MOST, seconds=_ABANDONED_SECONDS)
            except StoreUnavailable:
                raise
            except StoreError:
                if check.query != "check_file":
                    raise
                # Some libSQL servers refuse the pragma.
                continue
            problems += [
                Problem(
                    check.level, str(row[0]), str(row[1]), check.detail.format(*row[2:]), check.cure
                )
                for row in rows
            ]
        return [
            *problems,
            *await self._check_parts(),
            *await self._check_archives(),
            *await self._check_objects(),
        ]

    async def sizes(self, *, threads: int = 10) -> StoreSizes:
        await self._require_schema()
        [(total,)] = await self._all("size_total")
        try:
            tables = await self._all("size_tables")
        except StoreUnavailable:
            raise
        except StoreError:
            # A server without `dbstat` can only sum the lengths of the content.
            tables = await self._all("size_contents")
        owners = await self._all("size_owners")
        largest = await self._all("size_threads", limit=max(threads, 0))
        return StoreSizes(
            int(total),
            tuple((str(name), int(size or 0)) for name, size in tables),
            tuple(OwnerSize(*row) for row in owners),
            tuple(ThreadSize(*row) for row in largest),
        )

    async def vacuum(self) -> None:
        await self._require_schema()
        if not isinstance(self._driver, Vacuuming):
            raise StoreError(
                "The database server frees space by itself, not on request.",
                cure="Ask whoever runs it.",
            )
        await self._driver.vacuum()

    async def _check_parts(self) -> list[Problem]:
        problems: list[Problem] = []
        after = ""
        while rows := await self._all("bodies_in_parts", after=after, limit=_PAGE):
            for user_id, thread_id, key, size in rows:
                after = str(key)
                parted, _ = Parted.parse(after)
                found = 0
                for number in range(parted.number):
                    place = {"user_id": user_id, "thread_id": thread_id}
                    part = await self._all("part_bytes", hash=parted.hash_of(number), **place)
                    found += sum(int(length or 0) for (length,) in part)
                if found != size and len(problems) < _MOST:
                    detail = f"of the {size} bytes of body {parted.digest.hex()} there are {found}"
                    problems.append(
                        Problem("damage", str(user_id), str(thread_id), detail, _RESTORE)
                    )
        return problems

    async def _check_archives(self) -> list[Problem]:
        """Compare archived threads with the parts in the object store."""
        if self._objects is None:
            return []
        problems: list[Problem] = []
        # The listing first: what was archived after it is looked up below, one by one.
        after, rest = "", await list_places(self._objects)
        while rows := await self._all("archives_of_all", after=after, limit=_PAGE):
            for user_id, thread_id, place, digests, size in rows:
                after = str(place)
                sizes = {part.key: part.bytes for part in rest.pop(after, ())}
                keys = part_keys(after, digests)
                if not sizes:
                    # Archived since the listing.
                    infos = await in_parallel(self._objects.info, keys)
                    sizes = {key: info.bytes for key, info in infos.items() if info}
                if sizes.keys() >= set(keys) and sum(sizes.values()) == size:
                    continue
                if len(problems) < _MOST:
                    detail = f"the archived thread lacks parts, or has others, in {after}"
                    problems.append(
                        Problem("damage", str(user_id), str(thread_id), detail, _RESTORE_OBJECTS)
                    )
        if rest:
            detail = f"{len(rest)} archives in the object store belong to no row"
            cure = (
                "They are being written, or were cut short; `agent-runtime threads prune` deletes "
                "an owner's after a day."
            )
            problems.append(Problem("notice", "", "", detail, cure))
        return problems

    async def _check_objects(self) -> list[Problem]:
        if self._objects is None:
            return []
        problems: list[Problem] = []
        async with aclosing(find_missing_objects(self._driver, self._objects)) as pages:
            async for page in pages:
                for missing in page[: _MOST - len(problems)]:
                    state = "is not there" if missing.found is None else "has another length"
                    problems.append(
                        Problem(
                            "damage",
                            missing.user_id,
                            missing.thread_id,
                            f"object {missing.key} {state} in {self._objects.shown}",
                            _RESTORE_OBJECTS,
                        )
                    )
        count = 0
        async with aclosing(find_orphans(self._driver, self._objects)) as chunks:
            async for orphans in chunks:
                count += len(orphans)
        if count:
            cure = "Nothing needs to be done, but they take space."
            problems.append(Problem("notice", "", "", f"{count} objects belong to no row", cure))
        return problems

    async def _require_schema(self) -> None:
        _, pending = await schema_state(self._driver)
        if pending:
            raise MigrationError(
                f"The database lacks {len(pending)} migrations, {pending[0]} the first.",
                cure=_MIGRATE,
            )

    async def _all(self, query: str, **params: Value) -> list[Row]:
        # Drivers ignore values that a query does not name, so all checks get the same.
        driver = self._driver
        # Checks and sizes read whole tables.
        read = driver.read_patiently if isinstance(driver, Patient) else driver.read
        return await read(self._sql[query], params, owner=None)
