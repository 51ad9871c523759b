"""Files of threads: upload, list and download them."""

from __future__ import annotations

import re
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from agent_runtime.errors import NotFound
from agent_runtime.files.references import file_id
from agent_runtime.messages import FileRef
from agent_runtime.server.access import runtime_of, store_of, user_of
from agent_runtime.server.api.schemas import FileList, FileOut, UploadQuery
from agent_runtime.server.operations import operation
from agent_runtime.server.problems import ServiceError

_SHOWN = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf", "text/plain")
"""The types that are sent as they are; a browser would run what others hold, such as HTML."""
_RANGE = re.compile(r"bytes=(\d{0,15})-(\d{0,15})")


@operation(
    "POST", "/threads/{thread_id}/files", tag="files", status=201,
    consumes="application/octet-stream",
)  # fmt: skip
async def upload_file(request: Request, thread_id: str, query: UploadQuery) -> FileOut:
    """Store a file with a thread, which is made if there is none; runs refer to it by `uri`."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip()
    content = await request.body()
    # What clients send when they do not know: the name or the content says more.
    known = "" if media_type == "application/octet-stream" else media_type
    ref = await runtime_of(request).files.upload(
        thread_id, content, name=query.name, media_type=known, user=user_of(request)
    )
    return _file(ref)


@operation("GET", "/threads/{thread_id}/files", tag="files")
async def list_files(request: Request, thread_id: str) -> FileList:
    """List the files of a thread, the oldest first."""
    refs = await runtime_of(request).files.of(thread_id, user=user_of(request))
    return FileList(files=[_file(ref) for ref in refs])


@operation(
    "GET", "/threads/{thread_id}/files/{file_id}", tag="files", status=200,
    produces="application/octet-stream",
)  # fmt: skip
async def download_file(request: Request, thread_id: str, file_id: str) -> Response:
    """Return the content of a file, whole or the part that `Range` asks for, to be saved."""
    store = store_of(request)
    await store.threads.get(thread_id)
    # By the thread's own list: another thread of the user may have a file with this id.
    rows = {row.id: row for row in await store.files.list(thread_id)}
    row = rows.get(file_id)
    if row is None:
        raise NotFound(f"Thread {thread_id} has no file {file_id}.", cure="Check the id.")
    content = await store.files.content(thread_id, file_id)
    # Encoded whole (RFC 8187), so that no name can end the header or begin another.
    name = quote(row.name or row.id, safe="")
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
        # Whatever a browser makes of the file, it can run no script and reach nothing of this
        # origin.
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Accept-Ranges": "bytes",
    }
    media_type = row.media_type if row.media_type in _SHOWN else "application/octet-stream"
    part = _part(request.headers.get("range"), len(content))
    if part is None:
        return Response(content, 200, headers, media_type)
    first, last = part
    headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
    return Response(content[first : last + 1], 206, headers, media_type)


def _part(header: str | None, size: int) -> tuple[int, int] | None:
    """Return the first and last byte that a header asks for; None for all of them."""
    match = _RANGE.fullmatch(header.strip()) if header else None
    # A header of another form, such as several ranges, asks for what need not be given.
    if match is None or match[0] == "bytes=-":
        return None
    start, end = match[1], match[2]
    if start:
        first, last = int(start), min(int(end or size - 1), size - 1)
    else:
        first, last = max(0, size - int(end)), size - 1
    if first > last:
        raise ServiceError(
            416, "range-not-satisfiable", f"The file has {size:,} bytes.",
            cure="Ask for bytes that it has.", headers={"Content-Range": f"bytes */{size}"},
        )  # fmt: skip
    return first, last


def _file(ref: FileRef) -> FileOut:
    return FileOut(
        id=file_id(ref), uri=ref.uri, kind=ref.kind, name=ref.name, media_type=ref.media_type,
        size=ref.size,
    )  # fmt: skip


OPERATIONS = (upload_file, list_files, download_file)
"""The operations of this module."""
