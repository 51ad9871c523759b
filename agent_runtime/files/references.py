"""Files that messages refer to: what a reference is, and how it is rebuilt when it is read.

The content of an upload, and of what a tool made, is kept with its thread (see `attaching`), and
goes with it.  Messages hold references only, `FileRef`s, which `resolve_files` rebuilds: one that
is broken, or another owner's, becomes a word that says so, and never an error.

What lies behind a URL is never fetched here: whoever writes the URL could have this machine call
addresses that only it can reach.  It is handed to the model's provider, where that takes URLs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args
from urllib.parse import urlsplit

from agent_runtime.errors import StoreError
from agent_runtime.messages import FileRef, encodable
from agent_runtime_storage.contract.records import FileKind, FileRow
from agent_runtime_storage.contract.store import UserStore

TransferMethod = Literal["local_file", "remote_url", "tool_file"]
"""How a file came, in Dify's words: by upload, by its URL, or from a tool."""
BelongsTo = Literal["user", "assistant"]
Detail = Literal["auto", "low", "high"]

NOT_THERE = "it is not there"
BROKEN = "its reference is broken"
UNREADABLE = "it cannot be read at the moment"

_KINDS = cast("tuple[FileKind, ...]", get_args(FileKind))
_METHODS = cast("tuple[TransferMethod, ...]", get_args(TransferMethod))
_SCHEMES: Mapping[str, TransferMethod] = {
    "upload": "local_file",
    "tool": "tool_file",
    "http": "remote_url",
    "https": "remote_url",
}
_ID_KEYS = {"local_file": ("upload", "upload_file_id"), "tool_file": ("tool", "tool_file_id")}

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FilePolicy:
    """Which files a model is shown, after Dify's `FileUploadConfig`; the others are only named.

    Attributes:
        kinds: of these kinds.
        methods: that came in these ways.
        limit: so many of one message, the first ones; None for all.
        max_bytes: up to this size; None for any.
        detail: how closely a model looks at images, where its provider lets one choose.
    """

    kinds: tuple[FileKind, ...] = _KINDS
    methods: tuple[TransferMethod, ...] = _METHODS
    limit: int | None = None
    max_bytes: int | None = None
    detail: Detail = "auto"

    def against(self, file: FileRef, shown: int) -> str:
        """Return why a file is not shown after so many others of its message; empty if it is."""
        if file.kind not in self.kinds:
            return f"files of kind {file.kind} are not shown here"
        if method_of(file) not in self.methods:
            return "files that came in this way are not shown here"
        if self.limit is not None and shown >= self.limit:
            return f"at most {self.limit} files of a message are shown here"
        if self.max_bytes is not None and file.size > self.max_bytes:
            return f"files of more than {self.max_bytes:,} bytes are not shown here"
        return ""


EVERY_FILE = FilePolicy()
"""Shows what the model takes."""


@dataclass(frozen=True, slots=True)
class ResolvedFile:
    """A reference, rebuilt.

    Attributes:
        file: completed by what is known of the file: kind, name, media type and size.
        problem: why it cannot be shown, for `tokens.placeholder`; empty if it can.
        thread_id: the thread that keeps its content; empty for a URL.
    """

    file: FileRef
    problem: str = ""
    thread_id: str = ""


async def resolve_files(
    store: UserStore, refs: Sequence[FileRef], policy: FilePolicy = EVERY_FILE
) -> list[ResolvedFile]:
    """Rebuild the references of one message, in their order; no content is read.

    Files of any thread of the owner are found, since a sub-agent may be told of the files of the
    thread that it works for; another owner's file is just not there.  Whatever is wrong with one
    becomes its `problem`: none is dropped, and nothing is raised but a cancellation.
    """
    rows: dict[str, FileRow] = {}
    missing = NOT_THERE
    try:
        wanted = sorted({identity for ref in refs if (identity := file_id(ref))})
        rows = {row.id: row for row in await store.find_files(wanted)}
    except StoreError as error:
        _log.warning("Files cannot be looked up: %s", error.message)
        missing = UNREADABLE
    found: list[ResolvedFile] = []
    for ref in refs:
        one = _rebuilt(ref, rows, missing)
        shown = sum(not before.problem for before in found)
        found.append(one if one.problem else replace(one, problem=policy.against(one.file, shown)))
    return found


def _rebuilt(ref: FileRef, rows: Mapping[str, FileRow], missing: str) -> ResolvedFile:
    method = method_of(ref)
    if method is None:
        return ResolvedFile(ref, BROKEN)
    if method == "remote_url":
        return ResolvedFile(ref, "" if host_of(ref.uri) else BROKEN)
    row = rows.get(file_id(ref))
    if row is None:
        return ResolvedFile(ref, missing if file_id(ref) else BROKEN)
    return ResolvedFile(replace(ref_of(row), pixels=ref.pixels), thread_id=row.thread_id)


def ref_of(row: FileRow) -> FileRef:
    """Return the reference to a file that is kept."""
    return FileRef(row.kind, f"{row.origin}:{row.id}", row.media_type, row.name, row.bytes)


def method_of(ref: FileRef) -> TransferMethod | None:
    """Return how a file came; None if its reference is not understood."""
    return _SCHEMES.get(ref.uri.partition(":")[0].lower())


def file_id(ref: FileRef) -> str:
    """Return the id of a file that is kept; empty for a URL, and for a broken reference."""
    scheme, _, rest = ref.uri.partition(":")
    return rest if _SCHEMES.get(scheme) in ("local_file", "tool_file") else ""


def host_of(url: str) -> str | None:
    """Return the host of a URL; None if it has none."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def to_reference(ref: FileRef, belongs_to: BelongsTo = "user") -> dict[str, Any]:
    """Return the reference as Dify writes it: `type`, `transfer_method`, an id or `url`.

    What the store knows of a file that it keeps is not repeated; of a URL, `name`, `media_type` and
    `size` are added where they are known.  What is no reference of these kinds is kept as it is,
    as the `url` of a remote file.
    """
    method = method_of(ref) or "remote_url"
    known: dict[str, Any] = {"type": ref.kind, "transfer_method": method}
    if method in _ID_KEYS:
        known[_ID_KEYS[method][1]] = file_id(ref)
    else:
        known["url"] = ref.uri
        extra = {"name": ref.name, "media_type": ref.media_type, "size": ref.size}
        known |= {key: value for key, value in extra.items() if value}
    if ref.pixels:
        known["pixels"] = ref.pixels
    return {**known, "belongs_to": belongs_to}


def from_reference(reference: Mapping[str, Any]) -> tuple[FileRef, BelongsTo]:
    """Return what `to_reference`, or Dify, wrote, and to whom it belongs.

    It never fails: what it does not understand becomes a reference that `resolve_files` calls
    broken.
    """

    def text(key: str) -> str:
        value = reference.get(key)
        return encodable(value) if isinstance(value, str) else ""

    kind = text("type")
    size, pixels = reference.get("size"), reference.get("pixels")
    scheme, key = _ID_KEYS.get(text("transfer_method"), ("", "url"))
    ref = FileRef(
        kind=kind if kind in _KINDS else "custom",
        uri=f"{scheme}:{text(key)}" if scheme else text(key),
        media_type=text("media_type"),
        name=text("name"),
        size=size if isinstance(size, int) and size > 0 else 0,
        pixels=pixels if isinstance(pixels, int) and pixels > 0 else 0,
    )
    return ref, "assistant" if text("belongs_to") == "assistant" else "user"
