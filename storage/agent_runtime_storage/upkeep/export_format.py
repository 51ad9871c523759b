"""The format of an export: JSON records, each of a section with a version.

The first record is a header; the last one has the counts and the checksum of all others.  Between
them come the threads, each with its runs: the exported thread, then those of its sub-agents.  Then
follow, for each thread in the same order, a record `log` that names it, its `SECTIONS`, its vectors
and its documents, such as node memories.

A body is text if it is UTF-8 (`"body": "…"`), else base64 (`"body": {"base64": "…"}`).  The
checksum is over the records as JSON with sorted keys, so it does not depend on how a file is
written.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import math
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn, cast

import orjson

from agent_runtime_storage.contract.errors import InvalidExport
from agent_runtime_storage.drivers.protocol import Row, Value
from agent_runtime_storage.objects.bodies import unpack_body

EXPORT_FORMAT = "agent-runtime-thread"
EXPORT_VERSION = 1
UPGRADE_CURE = "Import it with the version of the runtime that wrote it, or a newer one."
BROKEN_EXPORT_CURE = "Export the thread again; the file was changed, or written by something else."

ColumnKind = Literal["text", "int", "float", "flag", "json", "body", "blob"]
ExportRecord = Mapping[str, Any]
BODY_KINDS: tuple[ColumnKind, ...] = ("body", "blob")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a section.

    Attributes:
        kind: the type of the value; a `blob` is a body that is never inline in its row.
        optional: whether the value may be null.
        since: the version of the section from which on records have it; before, it is null if it
            may be, else "" or 0.
    """

    name: str
    kind: ColumnKind
    optional: bool = False
    since: int = 1

    @property
    def before(self) -> str | int | None:
        """The value in records that are older than the column."""
        return None if self.optional else "" if self.kind == "text" else 0


@dataclass(frozen=True, slots=True)
class Section:
    """The rows of one table; `key` pages through them."""

    name: str
    columns: tuple[Column, ...]
    key: str = "id"
    version: int = 1


def _columns(text: str) -> tuple[Column, ...]:
    """Return columns from their names: `id:int parent_id:int? seconds:float@2`.

    `?` allows null; `@` is the version of the section from which on records have the column.
    """
    columns: list[Column] = []
    for word in text.split():
        name, _, rest = word.partition(":")
        kind, _, since = rest.partition("@")
        plain = cast("ColumnKind", kind.removesuffix("?"))
        columns.append(Column(name, plain, kind.endswith("?"), int(since or 1)))
    return tuple(columns)


THREAD = Section(
    "thread",
    _columns(
        "id:text title:text metadata:json head:int? last_seq:int last_activation:int "
        "last_event:int last_inbox:int last_usage:int active_run:text? created_at:float "
        "updated_at:float"
    ),
)
RUNS = Section(
    "runs",
    _columns(
        "id:text parent_run_id:text? root_run_id:text agent:text status:text "
        "stop_reason:text? detail:text task_id:int? open_node:int? steps:int max_steps:int "
        "cancel_requested:flag spec:json output:body epoch:int budget_tokens:int? "
        "budget_cost:int? tree_reserved_tokens:int tree_reserved_cost:int "
        "tree_settled_tokens:int tree_settled_cost:int tree_unsettled_tokens:int "
        "tree_unsettled_cost:int own_reserved_tokens:int own_reserved_cost:int "
        "created_at:float updated_at:float finished_at:float? worked_seconds:float@2 "
        "commit_id:text@3"
    ),
    version=3,
)
LOG = Section("log", _columns("thread:text"))
SECTIONS = (
    Section(
        "nodes",
        _columns(
            "id:int parent_id:int? kind:text status:text role:text run_id:text? "
            "activation_id:int body:body tokens:int created_at:float"
        ),
    ),
    Section(
        "calls",
        _columns(
            "node_id:int position:int tool:text status:text outcome:text? body:body shown:int? "
            "tokens:int"
        ),
        key="node_id",
    ),
    Section(
        "activations",
        _columns(
            "id:int anchor:int? run_id:text? cause:text body:body prefix:blob created_at:float "
            "parts:text?@2"
        ),
        version=2,
    ),
    Section(
        "observations",
        _columns(
            "id:int level:int parent_id:int? first_id:int last_id:int parts:text "
            "provisional:flag run_id:text? body:body tokens:int created_at:float"
        ),
    ),
    Section(
        "plans",
        _columns("id:int node_id:int call_id:text run_id:text body:body created_at:float"),
    ),
    Section(
        "events",
        _columns("id:int run_id:text? kind:text node_id:int? data:json created_at:float"),
    ),
    Section(
        "usage",
        _columns(
            "id:int run_id:text root_run_id:text node_id:int? purpose:text model:text "
            "prompt_tokens:int cached_tokens:int cache_write_tokens:int completion_tokens:int "
            "counted_tokens:int cost:int? reported:flag created_at:float"
        ),
    ),
    Section("inbox", _columns("id:int run_id:text? kind:text body:body created_at:float")),
    Section(
        "jobs",
        _columns(
            "id:text kind:text key:text payload:body status:text attempts:int due_at:float "
            "detail:text created_at:float finished_at:float? token:text@2"
        ),
        version=2,
    ),
    Section(
        "files",
        _columns(
            "id:text kind:text origin:text name:text media_type:text bytes:int content:blob "
            "created_at:float"
        ),
    ),
    # Only a copy by the owner takes these over; whoever imports a file is asked again.
    Section(
        "approvals",
        _columns("id:text tool:text arguments:json binding:text agent:text created_at:float"),
    ),
    Section(
        "questions",
        _columns(
            "id:text run_id:text node_id:int position:int? kind:text body:json status:text "
            "answer:json asked_at:float expires_at:float answered_at:float?"
        ),
    ),
)
VECTORS = Section(
    "vectors",
    _columns("model:text source:text source_id:int part:int values:body"),
)
# Objects and no rows.  A compressed one is exported plain, and compressed again by the import, so
# that no file can promise to fill the memory.
DOCUMENTS = Section("documents", _columns("collection:text scope:text name:text body:body"))
SECTIONS_BY_NAME = {
    section.name: section for section in (THREAD, RUNS, LOG, *SECTIONS, VECTORS, DOCUMENTS)
}


def to_record(section: Section, row: Row) -> dict[str, Any]:
    """Return a row, in the order of the section's columns, as a record.

    Raises:
        CorruptThread: a body is lost or damaged.
    """
    record: dict[str, Any] = {"section": section.name, "version": section.version}
    values = iter(row)
    for column in section.columns:
        value = next(values)
        if column.kind in BODY_KINDS:
            codec, data = next(values), next(values)
            what = {section.name.removesuffix("s"): row[0]}
            value = encode_export_body(unpack_body(value, codec, data, what))
        elif value is not None:
            value = _to_json(column.kind, value)
        record[column.name] = value
    return record


def _to_json(kind: ColumnKind, value: Value) -> Any:
    match kind:
        case "json":
            return orjson.loads(cast("str", value))
        case "float":
            return float(cast("float", value))
        case "flag":
            return bool(value)
        case _:
            return value


def encode_export_body(body: bytes) -> Any:
    """Return a body as JSON: text, or base64 if it is not UTF-8."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(body).decode()}


def document_record(place: tuple[str, str, str], body: bytes) -> dict[str, Any]:
    """Return a document, by its collection, scope and name, as a record."""
    collection, scope, name = place
    return {
        "section": DOCUMENTS.name,
        "version": DOCUMENTS.version,
        "collection": collection,
        "scope": scope,
        "name": name,
        "body": encode_export_body(body),
    }


class Checksum:
    """The checksum and the counts of an export, computed record by record."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.counts: dict[str, int] = {}

    def add(self, record: ExportRecord) -> None:
        """Add a record."""
        # Sorted, so that the checksum does not depend on the order in which a tool wrote the
        # keys.
        self._hash.update(orjson.dumps(record, option=orjson.OPT_SORT_KEYS))
        self._hash.update(b"\n")
        name = str(record["section"])
        self.counts[name] = self.counts.get(name, 0) + 1

    @property
    def digest(self) -> str:
        """The checksum so far."""
        return self._hash.hexdigest()

    def end(self) -> dict[str, Any]:
        """Return the record that ends an export."""
        return {"section": "end", "version": 1, "counts": self.counts, "sha256": self.digest}


def header(thread_id: str, writer: str) -> dict[str, Any]:
    """Return the record that begins an export."""
    return {
        "section": "header",
        "format": EXPORT_FORMAT,
        "version": EXPORT_VERSION,
        "writer": writer,
        "thread": thread_id,
    }


def dump_record(record: ExportRecord) -> bytes:
    """Return a record as a line of JSON, with its line end."""
    return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)


async def load_records(lines: AsyncIterable[bytes | str]) -> AsyncIterator[ExportRecord]:
    """Yield the records in lines of JSON.

    Raises:
        InvalidExport: a line is no JSON object.
    """
    number = 0
    async for line in lines:
        number += 1
        try:
            record: Any = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise InvalidExport(
                f"it is no JSON: {error}.", line=number, cure=BROKEN_EXPORT_CURE
            ) from error
        if not isinstance(record, dict):
            raise InvalidExport("it is no JSON object.", line=number, cure=BROKEN_EXPORT_CURE)
        yield cast("ExportRecord", record)


@dataclass(slots=True)
class Fields:
    """The values of a record, with their types checked."""

    line: int
    values: dict[str, Any]
    bodies: dict[str, bytes] = field(default_factory=dict[str, bytes])

    def fail(self, problem: str) -> NoReturn:
        """Raise `InvalidExport` for this record."""
        raise InvalidExport(problem, line=self.line, cure=BROKEN_EXPORT_CURE)


def read_fields(section: Section, record: ExportRecord, line: int) -> Fields:
    """Return a record's values, checked.

    Raises:
        InvalidExport: a value is missing, has the wrong type, or is unknown.
    """
    fields = Fields(line, {})
    for column in section.columns:
        if column.name not in record and record["version"] >= column.since:
            fields.fail(f"a record of {section.name} has no {column.name}.")
        value = record.get(column.name, column.before)
        if value is None and column.optional:
            fields.values[column.name] = None
        elif column.kind in BODY_KINDS:
            fields.bodies[column.name] = _body(fields, column.name, value)
        elif _CHECKS[column.kind](value):
            fields.values[column.name] = (
                float(cast("float", value)) if column.kind == "float" else value
            )
        else:
            fields.fail(f"the {column.name} of a record of {section.name} is no {column.kind}.")
    # Refused, or an import would silently lose what a newer version added.
    known = {"section", "version", *(column.name for column in section.columns)}
    if unknown := sorted(record.keys() - known):
        fields.fail(f"a record of {section.name} has an unknown {unknown[0]!r}.")
    return fields


# In Python True is an integer too.
def _integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_CHECKS: dict[ColumnKind, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str),
    "int": _integer,
    "float": _number,
    "flag": lambda value: isinstance(value, bool),
    "json": lambda value: isinstance(value, dict),
}


def _body(fields: Fields, name: str, value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict):
        coded = cast("dict[str, Any]", value).get("base64")
        if isinstance(coded, str):
            with contextlib.suppress(binascii.Error):
                # Without `validate`, characters outside the alphabet would be skipped.
                return base64.b64decode(coded, validate=True)
    return fields.fail(f"the {name} is neither text nor base64.")


def check_header(record: ExportRecord) -> str:
    """Return the id of the exported thread.  Raises `InvalidExport` if this code cannot read it."""
    if record.get("format") != EXPORT_FORMAT:
        raise InvalidExport(
            "it is no header of an export.", line=1, cure="Choose a file of `threads export`."
        )
    if record.get("version") != EXPORT_VERSION:
        raise _newer(1, f"the format has version {record.get('version')}", record)
    thread = record.get("thread")
    if not isinstance(thread, str) or not thread:
        raise InvalidExport("the header names no thread.", line=1, cure=BROKEN_EXPORT_CURE)
    return thread


def section_of(record: ExportRecord, line: int, head: ExportRecord) -> Section:
    """Return the section of a record.  Raises `InvalidExport` if this code does not know it."""
    name = record.get("section")
    section = SECTIONS_BY_NAME.get(name) if isinstance(name, str) else None
    if section is None:
        raise _newer(line, f"the section {name!r} is not known", head)
    version = record.get("version")
    # Not `isinstance`: True would count as version 1.
    if type(version) is not int or not 1 <= version <= section.version:
        raise _newer(line, f"the section {name} has version {record.get('version')}", head)
    return section


def _newer(line: int, what: str, head: ExportRecord) -> InvalidExport:
    writer = head.get("writer")
    return InvalidExport(
        f"{what}; it was written by {writer if isinstance(writer, str) else 'something else'}.",
        line=line,
        cure=UPGRADE_CURE,
    )


def replace_ids(value: Any, ids: Mapping[str, str]) -> Any:
    """Return a JSON value with every string that equals an old id replaced by the new id."""
    if isinstance(value, str):
        return ids.get(value, value)
    if isinstance(value, dict):
        return {key: replace_ids(item, ids) for key, item in cast("ExportRecord", value).items()}
    if isinstance(value, list):
        return [replace_ids(item, ids) for item in cast("Sequence[Any]", value)]
    return value


def replace_ids_in_document(body: bytes, ids: Mapping[str, str]) -> bytes:
    """Return a document with new ids, also in strings that are ids joined by dots.

    A document that is no JSON is returned unchanged.
    """
    joined = _Joined(ids)
    try:
        return orjson.dumps(replace_ids(orjson.loads(body), joined))
    except (orjson.JSONDecodeError, TypeError, RecursionError):
        return body


class _Joined(dict[str, str]):
    """New ids by the old ones; finds joined ids as well."""

    def get(self, value: str, default: Any = None) -> Any:
        parts = value.split(".")
        known = all(part in self for part in parts)
        return ".".join(self[part] for part in parts) if known else default
