"""Write the records of an export, hidden from everybody until all of them are written."""

from __future__ import annotations

import secrets
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import anyio.to_thread
import orjson

from agent_runtime_storage.contract.errors import Conflict, InvalidExport
from agent_runtime_storage.contract.ids import new_id
from agent_runtime_storage.contract.records.log import TextOf, Vet
from agent_runtime_storage.contract.records.search import NodeText, VectorItem
from agent_runtime_storage.drivers.protocol import BatchMissed, Statement, Value
from agent_runtime_storage.objects.bodies import BodyWriter
from agent_runtime_storage.objects.documents import is_document_place
from agent_runtime_storage.upkeep.export_format import (
    BODY_KINDS,
    BROKEN_EXPORT_CURE,
    DOCUMENTS,
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
    replace_ids_in_document,
    section_of,
)
from agent_runtime_storage.upkeep.import_batches import ImportBatches
from agent_runtime_storage.upkeep.import_state import ImportedThread, ImportState
from agent_runtime_storage.upkeep.import_vetting import strip_to_history, validate_record_body

# The limits of a batch: an import of any size takes little memory, and other writers wait only for
# a short transaction.
_CHUNK_ROWS = 400
_CHUNK_BYTES = 2**20


@dataclass(slots=True)
class _Row:
    section: Section
    fields: Fields


class Importer:
    """Takes the records of an export one by one, and writes them in batches.

    Attributes:
        token: marks its hidden threads.
        threads: the new ids of the threads.
    """

    def __init__(
        self,
        store: ImportBatches,
        *,
        rename: str | None,
        texts: TextOf | None,
        vet: Vet | None,
        trusted: bool,
        restores: str | None = None,
    ) -> None:
        self._restores = restores
        self.token = f"import {secrets.token_hex(8)}"
        self._ended = False
        self._store = store
        self._text_of = texts
        self._vet = vet
        self._trusted = trusted
        self._head: ExportRecord = {}
        self._checksum = Checksum()
        self._state = ImportState(rename)
        self._rows: list[_Row] = []
        self._bytes = 0
        self._embedders: set[tuple[str, int]] = set()

    @property
    def threads(self) -> list[str]:
        return [member.id for member in self._state.members]

    async def take(self, record: ExportRecord, line: int) -> None:
        """Check the next record, and write it with those before it once there are enough.

        Raises:
            InvalidExport: the record is not valid here.
            ThreadExists: the thread, or one of its sub-agents', exists already.
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
            # Before anything is removed from the record.
            self._checksum.add(record)
        except TypeError:
            # orjson reads JSON that is nested more deeply than it writes.
            fields.fail("it is nested too deeply.")
        if not self._trusted:
            self._state.continue_branch(section, fields)
            if not strip_to_history(section, fields, self._store.max_title_chars):
                return
        if section is THREAD:
            await self._begin(fields)
            return
        if section is LOG:
            await self._begin_log(fields)
            return
        if not (self._state.members if section is RUNS else self._state.logs):
            fields.fail("it comes before its thread.")
        self._state.check(section, fields)
        if self._vet is not None:
            self._state.check_calls(
                section, fields, validate_record_body(section, fields, self._vet)
            )
        if section is DOCUMENTS:
            await self._put_document(fields)
            return
        self._rows.append(_Row(section, fields))
        # 200 bytes for the columns that are no bodies.
        self._bytes += 200 + sum(len(body) for body in fields.bodies.values())
        if len(self._rows) >= _CHUNK_ROWS or self._bytes >= _CHUNK_BYTES:
            await self._flush()

    async def finish(self, lines: int, also: Sequence[Statement] = ()) -> None:
        """Check that the export is complete, and make the threads visible in one transaction.

        Args:
            lines: the number of records.
            also: further statements of that transaction.

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
        if not self._state.members or len(self._state.logs) != len(self._state.members):
            raise InvalidExport(
                "not every thread has its log.", line=lines, cure=BROKEN_EXPORT_CURE
            )
        # Only now, as a run's open node and a thread's head refer to nodes that came after them.
        shown = [self._show(member) for member in self._state.members]
        statements = [*self._open_nodes(), *shown, *also]
        # One transaction for all threads: nobody sees a conversation without its sub-agents'
        # threads.
        await self._write(self._state.members[0], statements, lines)

    async def _begin(self, fields: Fields) -> None:
        """Insert a thread, hidden."""
        await self._flush()
        new = self._state.name_thread(fields)
        await self._store.require_free(new, restores=self._restores)
        if not self._trusted:
            # A withdrawn import deletes what belongs to its threads.
            await self._store.require_no_documents(new)
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
        member = ImportedThread(new, fields)
        await self._write(member, [create], fields.line)
        self._state.members.append(member)

    async def _begin_log(self, fields: Fields) -> None:
        """Begin the log of the next thread."""
        await self._finish_log(fields.line)
        member = self._state.next_log(fields)
        # The first log: all runs were read, so their roots are known.
        if not self._state.logs and (links := self._links(fields.line)):
            await self._write(member, links, fields.line)
        self._state.logs.append(member)

    async def _finish_log(self, line: int) -> None:
        """Write the waiting rows, and check that the last log is complete."""
        await self._flush()
        if self._state.logs:
            self._state.check_log(line)

    async def _put_document(self, fields: Fields) -> None:
        """Write a document of the current thread."""
        values, body = fields.values, fields.bodies["body"]
        place = values["collection"], values["scope"], values["name"]
        # The id of the thread is a part of the key, too, and the file may have chosen it.
        if not is_document_place(self._state.current.id, *place):
            fields.fail("a document has a name that none can have.")
        if self._state.renames:
            body = await anyio.to_thread.run_sync(replace_ids_in_document, body, self._state.ids)
        if not await self._store.put_document(self._state.current.id, place, body):
            fields.fail(f"the document {'/'.join(place)} is there twice.")

    async def _flush(self) -> None:
        """Write the waiting rows in one batch."""
        rows, self._rows, self._bytes = self._rows, [], 0
        if not rows:
            return
        member = self._state.current
        bodies = self._store.new_bodies(member.id)
        # The values of a vector are a column, whatever their size.
        stored = [row for row in rows if row.section is not VECTORS]
        await bodies.pack(_of_kind(stored, "body"), blobs=_of_kind(stored, "blob"))
        statements = bodies.statements()
        texts: list[NodeText] = []
        for row in rows:
            if row.section is VECTORS:
                item = self._vector(member, row.fields)
                model = row.fields.values["model"]
                statements += await self._store.vector_statements(model, item, self._embedders)
                continue
            statements.append(self._insert(member, row, bodies))
            texts += self._texts(row)
        statements += await self._store.text_statements(member.id, texts)
        await self._write(member, statements, rows[0].fields.line)

    async def _write(self, member: ImportedThread, statements: list[Statement], line: int) -> None:
        written = len(self._state.members)
        try:
            # Without a retry when in doubt: the whole import is then withdrawn.
            await self._store.write_hidden(member.id, self.token, written, statements)
        except BatchMissed as error:
            raise _missed(error.label, line, member.id) from error
        except Conflict as error:
            raise Conflict(
                f"From line {line} on: {error.message}",
                cure="An id of the export may be taken here: import it under another id.",
            ) from error

    def _insert(self, member: ImportedThread, row: _Row, bodies: BodyWriter) -> Statement:
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
                renamed = replace_ids(value, self._state.ids) if self._state.renames else value
                value = orjson.dumps(renamed).decode()
            elif column.kind == "flag":
                value = int(value)
            values[column.name] = value
        return self._store.statement(f"import_{row.section.name}", self._here(row.section, values))

    def _here(self, section: Section, values: dict[str, Value]) -> dict[str, Value]:
        """Return the values with the new ids of runs, jobs and questions."""
        if section.name == "runs":
            values["root_run_id"] = self._state.root_of(str(values["id"]))
            # Written at the end: the node does not exist yet.
            values.pop("open_node")
        elif section.name == "usage":
            values["root_run_id"] = self._state.root_of(str(values["run_id"]))
        names = ["run_id", "parent_run_id", *(["id"] if section.name == "runs" else [])]
        for name in names:
            if values.get(name) is not None:
                values[name] = self._state.ids[str(values[name])]
        if section.name in ("jobs", "questions") and self._state.renames:
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

    def _vector(self, member: ImportedThread, fields: Fields) -> VectorItem:
        raw = fields.bodies["values"]
        if not raw or len(raw) % 4:
            fields.fail("the values of a vector are no single-precision numbers.")
        # Little-endian in the file, on every machine.
        numbers = array("f", raw)
        if sys.byteorder == "big":
            numbers.byteswap()
        values = fields.values
        return VectorItem(
            member.id, values["source"], values["source_id"], tuple(numbers), values["part"]
        )

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
        """Return the statements that set roots, and parents that came after their child."""
        batch: list[Statement] = []
        for run_id, root, parent in self._state.tie_runs(line):
            values = {"id": run_id, "root_run_id": root}
            if parent is None:
                batch.append(self._store.statement("import_root", values, rows=1, miss="run"))
            else:
                values["parent_run_id"] = parent
                batch.append(self._store.statement("import_link", values, rows=1, miss="run"))
        return batch

    def _open_nodes(self) -> list[Statement]:
        return [
            self._store.statement(
                "import_open_node",
                {"id": self._state.ids[run_id], "open_node": node},
                rows=1,
                miss=f"run {run_id}",
            )
            for run_id, node in self._state.open_nodes
        ]

    def _show(self, member: ImportedThread) -> Statement:
        values = member.fields.values
        active = values["active_run"]
        return self._store.statement(
            "import_show",
            {
                "id": member.id,
                "head": values["head"],
                # No run has the id "?", so the statement misses for an unknown run.
                "active_run": None if active is None else self._state.ids.get(active, "?"),
                "updated_at": values["updated_at"],
                "token": self.token,
            },
            rows=1,
            miss=f"thread {values['id']}",
        )


def _of_kind(rows: Sequence[_Row], kind: ColumnKind) -> list[bytes]:
    """Return the bodies of one kind of column."""
    return [
        row.fields.bodies[column.name]
        for row in rows
        for column in row.section.columns
        if column.kind == kind
    ]


def _missed(label: str, line: int, thread_id: str) -> Exception:
    if label == "taken":
        return Conflict(
            f"The import of thread {thread_id} was cleaned up as abandoned.",
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
