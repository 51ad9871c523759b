"""Plans of the store's own statements: which indexes they use, and how many pages they read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import psycopg
from psycopg import sql as composed

from agent_runtime_storage.drivers.postgres.setup import APP_ROLE, setup_queries
from agent_runtime_storage.drivers.postgres.translation import translate
from agent_runtime_storage.drivers.protocol import Row, Statement, Value
from agent_runtime_storage.sql.loader import load_queries

SMALL = 2000
"""Pages of a table that may be read from its start to its end; the planner then uses no index."""
_TYPES: Mapping[type, str] = {str: "text", int: "bigint", float: "double precision", bytes: "bytea"}


class Captured(Exception):
    """A batch was recorded and not run."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """Statements that the store sends in one transaction, for one owner or for all.

    Attributes:
        mode: how the driver lets them be planned, as `plan_cache_mode` has it.
    """

    owner: str | None
    statements: tuple[Statement, ...]
    mode: str = "force_custom_plan"


class Recorder:
    """A driver that records what the store sends; reads are answered, batches are not run."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self.sent: list[Recorded] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    async def read(self, sql: str, params: Mapping[str, Value], *, owner: str | None) -> list[Row]:
        self.sent.append(Recorded(owner, (Statement(sql, params),)))
        return cast("list[Row]", await self._driver.read(sql, params, owner=owner))

    async def batch(
        self, statements: Sequence[Statement], *, owner: str | None, **_: object
    ) -> list[list[Row]]:
        self.sent.append(Recorded(owner, tuple(statements), "force_generic_plan"))
        raise Captured


@dataclass(frozen=True, slots=True)
class Plan:
    """A statement's plan, under the settings of the store's connections.

    Attributes:
        planning: the milliseconds that the planner took.
        pages: read by the statement, in the cache or not.
        scans: tables of more than `SMALL` pages that it reads from start to end.
        indexes: that it uses itself, without those of functions.
        rows: that it returns.
    """

    statement: str
    pages: int
    milliseconds: float
    planning: float
    scans: tuple[str, ...]
    indexes: tuple[str, ...]
    rows: int


class Explainer:
    """Runs recorded statements under EXPLAIN, as their owner, and takes them back.

    Args:
        url: for the login that the store uses.
    """

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._names = {text: name for name, text in load_queries("postgres").items()}
        rows = self._connection.execute(
            "SELECT relname, relpages FROM pg_class WHERE relkind = 'r' "
            "AND relnamespace = 'agent_runtime'::regnamespace"
        ).fetchall()
        self._large = {str(name) for name, pages in rows if int(pages) > SMALL}

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def plans(self, recorded: Recorded) -> list[Plan]:
        """Return a plan for each statement, in their order, each after those before it."""
        with self._connection.transaction(force_rollback=True):
            self._settle(recorded.owner)
            self._connection.execute(
                "SELECT set_config('plan_cache_mode', %s, true)", [recorded.mode]
            )
            return [self._explain(statement) for statement in recorded.statements]

    def _settle(self, owner: str | None) -> None:
        # As each connection of the store has them.
        given = translate(setup_queries()["settings"])
        own = {"path": "agent_runtime, public"}
        values = [own.get(name, "0") for name in given.names]
        with psycopg.RawCursor(self._connection) as cursor:
            cursor.execute(given.sql, values)
        settings = {"agent_runtime.user_id": owner or ""}
        if owner is None:
            settings["agent_runtime.system"] = "on"
        else:
            settings["role"] = APP_ROLE
        for name, value in settings.items():
            self._connection.execute("SELECT set_config(%s, %s, true)", [name, value])

    def _explain(self, statement: Statement) -> Plan:
        text = translate(statement.sql)
        values = [statement.params[key] for key in text.names]
        types = [_TYPES.get(type(value), "unknown") for value in values]
        declared = composed.SQL(f"({', '.join(types)})" if types else "")  # pyright: ignore[reportArgumentType]
        body = composed.SQL(text.sql.decode())  # pyright: ignore[reportArgumentType]
        cursor = self._connection.cursor()
        cursor.execute(composed.SQL("PREPARE asked {} AS {}").format(declared, body))
        arguments = composed.SQL(", ").join(map(composed.Literal, values))
        given = composed.SQL("({})").format(arguments) if values else composed.SQL("")
        explain = composed.SQL("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE asked {}")
        [row] = cursor.execute(explain.format(given)).fetchall()
        cursor.execute("DEALLOCATE asked")
        [report] = cast("list[dict[str, Any]]", row[0])
        root = report["Plan"]
        nodes = list(_nodes(root))
        scans = {
            str(node["Relation Name"])
            for node in nodes
            if node["Node Type"] == "Seq Scan"
            and node["Relation Name"] in self._large
            and node["Actual Loops"]
        }
        indexes = {str(node["Index Name"]) for node in nodes if "Index Name" in node}
        return Plan(
            self._names.get(statement.sql, "?"),
            root["Shared Hit Blocks"] + root["Shared Read Blocks"],
            report["Execution Time"],
            report["Planning Time"],
            tuple(sorted(scans)),
            tuple(sorted(indexes)),
            round(root["Actual Rows"]),
        )


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)
