"""References to files in messages, and how they are resolved.

The content of uploads and of tools' files is stored with its thread (see `attach`) and deleted with
it.  Messages hold `FileRef`s only.  `resolve_files` looks them up; one that is broken, or another
owner's, becomes a problem that the prompt names, never an error.

URLs are never fetched here, because their author could make this machine call addresses that only
it can reach.  They are passed to the model's provider if it accepts URLs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args
from urllib.parse import urlsplit

from agent_runtime.errors import StoreError
from agent_runtime.messages import FileRef, encodable
from agent_runtime_config.counted import counted
from agent_runtime_storage.contract.records.files import FileKind, FileRow
from agent_runtime_storage.contract.store import UserStore

TransferMethod = Literal["local_file", "remote_url", "tool_file"]
"""The origin of a file in Dify's terms: an upload, a URL, or a tool."""
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
        kinds: the kinds that are shown.
        methods: the origins that are shown.
        limit: the most files of one message, None for all; the first ones are shown.
        max_bytes: the largest size, None for any.
        detail: the resolution of images, for providers that let one choose.
    """

    kinds: tuple[FileKind, ...] = _KINDS
    methods: tuple[TransferMethod, ...] = _METHODS
    limit: int | None = None
    max_bytes: int | None = None
    detail: Detail = "auto"

    def against(self, file: FileRef, shown: int) -> str:
        """Return why a file is not shown, after `shown` others of its message; empty if it is."""
        if file.kind not in self.kinds:
            return f"files of kind {file.kind} are not shown here"
        if method_of(file) not in self.methods:
            return "files that came in this way are not shown here"
        if self.limit is not None and shown >= self.limit:
            shown_at_most = counted(self.limit, "file")
            return f"of each message at most {shown_at_most} can be shown here"
        if self.max_bytes is not None and file.size > self.max_bytes:
            return f"files of more than {self.max_bytes:,} bytes are not shown here"
        return ""


EVERY_FILE = FilePolicy()
"""Shows every file that the model takes."""


@dataclass(frozen=True, slots=True)
class ResolvedFile:
    """A resolved reference.

    Attributes:
        file: the reference, with the stored kind, name, media type and size.
        problem: why it cannot be shown, for `placeholder`; empty if it can.
        thread_id: the thread that has its content; empty for a URL.
    """

    file: FileRef
    problem: str = ""
    thread_id: str = ""


async def resolve_files(
    store: UserStore, refs: Sequence[FileRef], policy: FilePolicy = EVERY_FILE
) -> list[ResolvedFile]:
    """Resolve the references of one message, in their order, without reading content.

    Files of all threads of the owner are found, because a sub-agent may refer to files of its
    parent's thread; other owners' files count as absent.  Whatever is wrong with a file becomes its
    `problem`: no file is dropped, and no `Exception` is raised.
    """
    rows: dict[str, FileRow] = {}
    missing = NOT_THERE
    # One query for all of them.
    try:
        wanted = sorted({identity for ref in refs if (identity := file_id(ref))})
        rows = {row.id: row for row in await store.files.find(wanted)}
    except StoreError as error:
        _log.warning("Files cannot be looked up: %s", error.message)
        missing = UNREADABLE
    resolved: list[ResolvedFile] = []
    for ref in refs:
        one = _resolve(ref, rows, missing)
        if not one.problem:
            shown = sum(not before.problem for before in resolved)
            one = replace(one, problem=policy.against(one.file, shown))
        resolved.append(one)
    return resolved


def _resolve(ref: FileRef, rows: Mapping[str, FileRow], missing: str) -> ResolvedFile:
    method = method_of(ref)
    if method is None:
        return ResolvedFile(ref, BROKEN)
    if method == "remote_url":
        return ResolvedFile(ref, "" if host_of(ref.uri) else BROKEN)
    row = rows.get(file_id(ref))
    if row is None:
        return ResolvedFile(ref, missing if file_id(ref) else BROKEN)
    # The store's own data, whatever the reference says; only the pixels are not stored.
    return ResolvedFile(replace(ref_of(row), pixels=ref.pixels), thread_id=row.thread_id)


def ref_of(row: FileRow) -> FileRef:
    """Return the reference to a stored file."""
    return FileRef(row.kind, f"{row.origin}:{row.id}", row.media_type, row.name, row.bytes)


def method_of(ref: FileRef) -> TransferMethod | None:
    """Return the origin of a file; None if its reference is broken."""
    return _SCHEMES.get(ref.uri.partition(":")[0].lower())


def file_id(ref: FileRef) -> str:
    """Return the id of a stored file; empty for a URL or a broken reference."""
    scheme, _, rest = ref.uri.partition(":")
    return rest if _SCHEMES.get(scheme) in ("local_file", "tool_file") else ""


def host_of(url: str) -> str | None:
    """Return the host of a URL, or None."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def to_reference(ref: FileRef, belongs_to: BelongsTo = "user") -> dict[str, Any]:
    """Return a reference in Dify's form: `type`, `transfer_method`, and an id or `url`.

    A URL also gets `name`, `media_type` and `size` if known; the store has those of its own files.
    A broken reference is preserved as the `url` of a remote file.
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
    """Return the reference that `to_reference` or Dify wrote, and whose message it belongs to.

    Raises nothing: an invalid one becomes a reference that `resolve_files` reports as broken.
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
