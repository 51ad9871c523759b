"""Writing what an export holds, hidden from everybody until all of it is there."""

from __future__ import annotations

import secrets
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from agent_runtime_storage.contract.errors import Conflict, InvalidExport
from agent_runtime_storage.contract.ids import new_id
from agent_runtime_storage.contract.names import name_problem
from agent_runtime_storage.contract.records import TextOf, Vet
from agent_runtime_storage.contract.search_records import NodeText, VectorItem
from agent_runtime_storage.drivers.protocol import BatchMissed, Statement, Value
from agent_runtime_storage.objects.bodies import BodyWriter
from agent_runtime_storage.upkeep.export_format import (
    BODY_KINDS,
    BROKEN_EXPORT_CURE,
    LOG,
    RUNS,
    THREAD,
    VECTORS,
    Checksum,
    ColumnKind,
    ExportRecord,
    Fields,
    Section,
    check_header,
    read_fields,
    replace_ids,
    section_of,
)
from agent_runtime_storage.upkeep.import_batches import ImportBatches
from agent_runtime_storage.upkeep.import_vetting import strip_to_history, validate_record_body

_CHUNK_ROWS = 400
_CHUNK_BYTES = 2**20
_COUNTED = {
    "nodes": "last_seq",
    "activations": "last_activation",
    "events": "last_event",
    "usage": "last_usage",
}
"""Sections whose ids count up from 1, and the thread's counter that is the last of them."""


@dataclass(slots=True)
class _Thread:
    """A thread on its way in."""

    id: str
    fields: Fields
    next_id: dict[str, int] = field(default_factory=dict[str, int])
    last_inbox: int = 0
    last_call: tuple[int, int] = (0, -1)
    lacking: dict[int, int] = field(default_factory=dict[int, int])
    """How many calls are still to come of which exchanges."""


@dataclass(slots=True)
class _Row:
    section: Section
    fields: Fields


class Importer:
    """Takes the records of an export one by one, and writes them in batches.

    Attributes:
        token: what its threads are hidden by.
        threads: the ids of the threads as they are here.
    """

    def __init__(
        self,
        store: ImportBatches,
        *,
        rename: str | None,
        texts: TextOf | None,
        vet: Vet | None,
        trusted: bool,
    ) -> None:
        self.token = f"import {secrets.token_hex(8)}"
        self._ended = False
        self._store = store
        self._rename = rename
        self._text_of = texts
        self._vet = vet
        self._trusted = trusted
        self._head: ExportRecord = {}
        self._checksum = Checksum()
        self._members: list[_Thread] = []
        self._logs: list[_Thread] = []
        self._ids: dict[str, str] = {}
        self._roots: dict[str, str] = {}
        self._orphans: dict[str, str] = {}
        self._open: list[tuple[str, int]] = []
        self._rows: list[_Row] = []
        self._bytes = 0
        self._embedders: set[tuple[str, int]] = set()

    @property
    def threads(self) -> list[str]:
        return [member.id for member in self._members]

    async def take(self, record: ExportRecord, line: int) -> None:
        """Take the next record.

        Raises:
            InvalidExport: it is not what can come here.
            ThreadExists: the thread, or one of its sub-agents, is there already.
            Conflict: an id is taken.
        """
        if line == 1:
            check_header(record)
            self._head = record
            return
        if self._ended:
            raise InvalidExport("there is more after the end.", line=line, cure=BROKEN_EXPORT_CURE)
        if record.get("section") == "end":
            self._check_end(record, line)
            return
        section = section_of(record, line, self._head)
        fields = read_fields(section, record, line)
        try:
            self._checksum.add(record)
        except TypeError:
            # JSON can be read that cannot be written again.
            fields.fail("it is nested too deeply.")
        if not self._trusted:
            self._continue(section, fields)
            if not strip_to_history(section, fields):
                return
        if section is THREAD:
            await self._begin(fields)
            return
        if section is LOG:
            await self._begin_log(fields)
            return
        if not (self._members if section is RUNS else self._logs):
            fields.fail("it comes before its thread.")
        self._check(section, fields)
        if self._vet is not None:
            self._check_calls(section, fields, validate_record_body(section, fields, self._vet))
        self._rows.append(_Row(section, fields))
        self._bytes += 200 + sum(len(body) for body in fields.bodies.values())
        if len(self._rows) >= _CHUNK_ROWS or self._bytes >= _CHUNK_BYTES:
            await self._flush()

    async def finish(self, lines: int) -> None:
        """Check the whole, and make it visible in one transaction.

        Args:
            lines: how many records there were.

        Raises:
            InvalidExport, Conflict: as for `take`.
        """
        if not self._ended:
            raise InvalidExport(
                "the export ends here, without its last record: it was cut short.",
                line=lines + 1,
                cure="Export the thread again.",
            )
        await self._finish_log(lines)
        if not self._members or len(self._logs) != len(self._members):
            raise InvalidExport(
                "not every thread has its log.", line=lines, cure=BROKEN_EXPORT_CURE
            )
        statements = [*self._open_nodes(), *(self._show(member) for member in self._members)]
        await self._write(self._members[0], statements, lines)

    # Threads

    async def _begin(self, fields: Fields) -> None:
        """Begin a thread, which stays hidden."""
        if self._logs:
            fields.fail("a thread comes after the first log.")
        await self._flush()
        old = str(fields.values["id"])
        if problem := name_problem(old):
            fields.fail(f"the thread's id {problem}.")
        if old in self._ids:
            fields.fail(f"thread {old} is there twice.")
        new = old
        if self._rename is not None:
            new = new_id() if self._members else self._rename
        self._ids[old] = new
        await self._store.require_free(new)
        values = fields.values
        create = self._store.statement(
            "import_thread",
            {
                "id": new,
                "title": values["title"],
                "metadata": orjson.dumps(values["metadata"]).decode(),
                "created_at": values["created_at"],
                "token": self.token,
                **{
                    name: values[name]
                    for name in (
                        "last_seq",
                        "last_activation",
                        "last_event",
                        "last_inbox",
                        "last_usage",
                    )
                },
            },
        )
        member = _Thread(new, fields)
        await self._write(member, [create], fields.line)
        self._members.append(member)

    async def _begin_log(self, fields: Fields) -> None:
        """Go on to the log of the next thread."""
        await self._finish_log(fields.line)
        member = next(iter(self._members[len(self._logs) :]), None)
        if member is None or member.fields.values["id"] != fields.values["thread"]:
            fields.fail("the log is not that of the next thread.")
        if not self._logs and (links := self._links(fields.line)):
            await self._write(member, links, fields.line)
        self._logs.append(member)

    async def _finish_log(self, line: int) -> None:
        """Write what waits, and check that all of the last log came."""
        await self._flush()
        if not self._logs:
            return
        member = self._logs[-1]
        for section, counter in _COUNTED.items():
            came, wanted = member.next_id.get(section, 1) - 1, member.fields.values[counter]
            if came != wanted:
                raise InvalidExport(
                    f"thread {member.fields.values['id']} has {came} {section}, not {wanted}.",
                    line=line,
                    cure=BROKEN_EXPORT_CURE,
                )
        if node := next(iter(member.lacking), None):
            raise InvalidExport(f"node {node} lacks calls.", line=line, cure=BROKEN_EXPORT_CURE)

    # Checks that a database would make too late or not at all

    @property
    def _current(self) -> _Thread:
        return (self._logs or self._members)[-1]

    def _check(self, section: Section, fields: Fields) -> None:
        member, values = self._current, fields.values
        if section.name in _COUNTED:
            wanted = member.next_id.get(section.name, 1)
            if values["id"] != wanted:
                fields.fail(f"the id of {section.name} is {values['id']}, not {wanted}.")
            member.next_id[section.name] = wanted + 1
        match section.name:
            case "runs":
                self._check_run(fields)
            case "nodes":
                parent = values["parent_id"]
                if parent is not None and not 0 < parent < values["id"]:
                    fields.fail(f"the parent of node {values['id']} is node {parent}.")
            case "calls":
                node, position = values["node_id"], values["position"]
                before, last = member.last_call
                if (node, position) != (before, last + 1) and not (node > before and not position):
                    fields.fail(f"call {position} of node {node} is out of order.")
                member.last_call = (node, position)
                self._check_node(fields, node)
            case "inbox":
                if not member.last_inbox < values["id"] <= member.fields.values["last_inbox"]:
                    fields.fail(f"the id of the inbox item is {values['id']}.")
                member.last_inbox = values["id"]
            case "files":
                if values["bytes"] != len(fields.bodies["content"]):
                    fields.fail(f"file {values['id']} has not the length that it should have.")
            case _:
                pass
        for name in ("node_id", "anchor"):
            if values.get(name) is not None:
                self._check_node(fields, values[name])
        if section.name != "runs" and values.get("run_id") is not None:
            self._check_known(section, fields)

    def _continue(self, section: Section, fields: Fields) -> None:
        """Have a thread's branch go on to what its run was about to do, which is refused here."""
        if section.name != "nodes" or fields.values["status"] != "open" or not self._logs:
            return
        thread = self._current.fields.values
        if fields.values["parent_id"] == thread["head"]:
            thread["head"] = fields.values["id"]

    def _check_calls(self, section: Section, fields: Fields, calls: int) -> None:
        """Check that each call that a message has comes, and no other one."""
        lacking = self._current.lacking
        if section.name == "nodes" and calls:
            lacking[fields.values["id"]] = calls
        elif section.name == "calls":
            node = fields.values["node_id"]
            if node not in lacking:
                fields.fail(f"node {node} has no call {fields.values['position']}.")
            lacking[node] -= 1
            if not lacking[node]:
                del lacking[node]

    def _check_node(self, fields: Fields, node: int) -> None:
        if not 0 < node <= self._current.fields.values["last_seq"]:
            fields.fail(f"it refers to node {node}, which is not there.")

    def _check_known(self, section: Section, fields: Fields) -> None:
        run_id = fields.values["run_id"]
        if run_id in self._roots:
            return
        if section.name != "inbox":
            fields.fail(f"it refers to run {run_id}, which is not there.")
        # What a run posted that is not in the export stays, without it.
        fields.values["run_id"] = None

    def _check_run(self, fields: Fields) -> None:
        """Take up a run: its id here, its root, and whether its parent comes with it."""
        if self._logs:
            fields.fail("a run comes after the first log.")
        values = fields.values
        run_id, parent = values["id"], values["parent_run_id"]
        if run_id in self._roots:
            fields.fail(f"run {run_id} is there twice.")
        if (parent is None) != (values["root_run_id"] == run_id):
            fields.fail(f"run {run_id} is neither a root nor a child.")
        if problem := name_problem(run_id):
            fields.fail(f"the run's id {problem}.")
        self._ids[run_id] = run_id if self._rename is None else new_id()
        self._roots[run_id] = run_id
        if parent in self._roots:
            self._roots[run_id] = self._roots[parent]
        elif parent is not None:
            # Without its parent in the export it is a root; that is known when all runs are.
            self._orphans[run_id] = parent
            values["parent_run_id"] = None
        if values["task_id"] is not None:
            self._check_node(fields, values["task_id"])
        if values["open_node"] is not None:
            self._check_node(fields, values["open_node"])
            self._open.append((run_id, values["open_node"]))

    # Writing

    async def _flush(self) -> None:
        """Write the rows that wait, in one batch."""
        rows, self._rows, self._bytes = self._rows, [], 0
        if not rows:
            return
        member = self._current
        bodies = self._store.new_bodies(member.id)
        stored = [one for one in rows if one.section is not VECTORS]
        await bodies.pack(_of_kind(stored, "body"), blobs=_of_kind(stored, "blob"))
        statements = bodies.statements()
        texts: list[NodeText] = []
        for one in rows:
            if one.section is VECTORS:
                item = self._vector(member, one.fields)
                model = one.fields.values["model"]
                statements += await self._store.vector_statements(model, item, self._embedders)
                continue
            statements.append(self._insert(member, one, bodies))
            texts += self._texts(one)
        statements += await self._store.text_statements(member.id, texts)
        await self._write(member, statements, rows[0].fields.line)

    async def _write(self, member: _Thread, statements: list[Statement], line: int) -> None:
        written = len(self._members)
        try:
            await self._store.write_hidden(member.id, self.token, written, statements)
        except BatchMissed as error:
            raise _missed(error.label, line, member.id) from error
        except Conflict as error:
            raise Conflict(
                f"From line {line} on: {error.message}",
                cure="An id of the export may be taken here: import it under another id.",
            ) from error

    def _insert(self, member: _Thread, row: _Row, bodies: BodyWriter) -> Statement:
        values: dict[str, Value] = {"thread_id": member.id}
        for column in row.section.columns:
            if column.kind in BODY_KINDS:
                body = row.fields.bodies[column.name]
                blob = column.kind == "blob"
                packed = bodies.blob(body) if blob else bodies.get(body)
                values[f"{column.name}_blob"] = packed.hash
                if not blob:
                    values[column.name] = packed.inline
                continue
            value: Any = row.fields.values[column.name]
            if column.kind == "json":
                renamed = replace_ids(value, self._ids) if self._rename is not None else value
                value = orjson.dumps(renamed).decode()
            elif column.kind == "flag":
                value = int(value)
            values[column.name] = value
        return self._store.statement(f"import_{row.section.name}", self._here(row.section, values))

    def _here(self, section: Section, values: dict[str, Value]) -> dict[str, Value]:
        """Return the values with the ids that runs and jobs have here."""
        if section.name == "runs":
            values["root_run_id"] = self._ids[self._roots[str(values["id"])]]
            values.pop("open_node")
        elif section.name == "usage":
            values["root_run_id"] = self._ids[self._roots[str(values["run_id"])]]
        names = ["run_id", "parent_run_id", *(["id"] if section.name == "runs" else [])]
        for name in names:
            if values.get(name) is not None:
                values[name] = self._ids[str(values[name])]
        if section.name in ("jobs", "questions") and self._rename is not None:
            values["id"] = new_id()
        return values

    def _texts(self, row: _Row) -> list[NodeText]:
        if self._text_of is None:
            return []
        values = row.fields.values
        if row.section.name == "nodes":
            text = self._text_of("node", row.fields.bodies["body"])
            return [NodeText(values["id"], None, text)] if text else []
        if row.section.name == "calls" and values["status"] == "done":
            text = self._text_of("call", row.fields.bodies["body"])
            return [NodeText(values["node_id"], values["position"], text)] if text else []
        return []

    def _vector(self, member: _Thread, fields: Fields) -> VectorItem:
        raw = fields.bodies["values"]
        if not raw or len(raw) % 4:
            fields.fail("the values of a vector are no single-precision numbers.")
        numbers = array("f", raw)
        if sys.byteorder == "big":
            numbers.byteswap()
        values = fields.values
        return VectorItem(
            member.id, values["source"], values["source_id"], tuple(numbers), values["part"]
        )

    # The end

    def _check_end(self, record: ExportRecord, line: int) -> None:
        if (record.get("sha256"), record.get("counts")) != (
            self._checksum.digest,
            self._checksum.counts,
        ):
            raise InvalidExport(
                "the checksum does not fit what came before it.", line=line, cure=BROKEN_EXPORT_CURE
            )
        self._ended = True

    def _links(self, line: int) -> list[Statement]:
        """Return what ties runs to parents that came after them, and settles who is whose root.

        Raises:
            InvalidExport: runs are each other's parents.
        """
        tops = {run_id: run_id for run_id in self._roots.values()}
        for run_id in tops:
            seen = {run_id}
            while (parent := self._orphans.get(tops[run_id])) in self._roots:
                tops[run_id] = self._roots[str(parent)]
                if tops[run_id] in seen:
                    raise InvalidExport(
                        f"run {run_id} is its own ancestor.", line=line, cure=BROKEN_EXPORT_CURE
                    )
                seen.add(tops[run_id])
        batch: list[Statement] = []
        for run_id, root in self._roots.items():
            values = {"id": self._ids[run_id], "root_run_id": self._ids[tops[root]]}
            if root == run_id and tops[root] != root:
                values["parent_run_id"] = self._ids[self._orphans[run_id]]
                batch.append(self._store.statement("import_link", values, rows=1, miss="run"))
            elif tops[root] != root:
                batch.append(self._store.statement("import_root", values, rows=1, miss="run"))
        self._roots = {run_id: tops[root] for run_id, root in self._roots.items()}
        return batch

    def _open_nodes(self) -> list[Statement]:
        return [
            self._store.statement(
                "import_open_node",
                {"id": self._ids[run_id], "open_node": node},
                rows=1,
                miss=f"run {run_id}",
            )
            for run_id, node in self._open
        ]

    def _show(self, member: _Thread) -> Statement:
        values = member.fields.values
        active = values["active_run"]
        return self._store.statement(
            "import_show",
            {
                "id": member.id,
                "head": values["head"],
                # One that is not known gives no id, and the statement misses.
                "active_run": None if active is None else self._ids.get(active, "?"),
                "updated_at": values["updated_at"],
                "token": self.token,
            },
            rows=1,
            miss=f"thread {values['id']}",
        )


def _of_kind(rows: Sequence[_Row], kind: ColumnKind) -> list[bytes]:
    """Return the bodies of one kind of column."""
    return [
        one.fields.bodies[column.name]
        for one in rows
        for column in one.section.columns
        if column.kind == kind
    ]


def _missed(label: str, line: int, thread_id: str) -> Exception:
    if label == "taken":
        return Conflict(
            f"The import of thread {thread_id} was taken for abandoned and cleaned up.",
            cure="Import it again.",
        )
    if label == "dimensions":
        return InvalidExport(
            "the vectors of a model have another length than those of the same name here.",
            line=line,
            cure="Delete this owner's vectors of that model first.",
        )
    return InvalidExport(
        f"the {label} has a head, an active run or an open node that cannot be.",
        line=line,
        cure=BROKEN_EXPORT_CURE,
    )
