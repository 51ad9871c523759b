"""Files that messages refer to: their rows, and their content in blobs."""

from __future__ import annotations

from collections.abc import Sequence

import anyio.to_thread
import orjson

from agent_runtime_storage.contract.errors import StoreError
from agent_runtime_storage.contract.names import name_problem
from agent_runtime_storage.contract.records.files import FileRow, NewFile
from agent_runtime_storage.drivers.protocol import BatchMissed, Value
from agent_runtime_storage.objects.bodies import THREAD_BYTES, unpack_body
from agent_runtime_storage.queries.owner import OwnerScope, not_found
from agent_runtime_storage.queries.row_decoding import to_file


class SqlFiles:
    """`FileStore` over SQL."""

    def __init__(self, scope: OwnerScope) -> None:
        self._scope = scope

    async def put(self, thread_id: str, file: NewFile) -> None:
        if problem := name_problem(file.id):
            raise StoreError(f"The file's id {problem}.", cure="Use a UUID.")
        bodies = self._scope.bodies(thread_id)
        await bodies.pack([], blobs=[file.content])
        values = file_values(thread_id, file, bodies.blob(file.content).hash)
        batch = [
            self._scope.statement("touch_thread", {"thread_id": thread_id}, rows=1),
            *bodies.statements(),
            self._scope.statement("put_file", values),
        ]
        try:
            await self._scope.batch(batch, thread=thread_id, repeatable=True)
        except BatchMissed as error:
            raise not_found("thread", thread_id) from error

    async def list(self, thread_id: str) -> list[FileRow]:
        await self._scope.require_thread(thread_id)
        rows = await self._scope.read("files_of_thread", thread_id=thread_id)
        return [to_file(row) for row in rows]

    async def find(self, ids: Sequence[str]) -> list[FileRow]:
        if not ids:
            return []
        rows = await self._scope.read("files_by_id", ids=orjson.dumps(list(ids)).decode())
        # Copies of a thread hold the same file; the oldest copy comes first.
        by_id: dict[str, FileRow] = {}
        for row in rows:
            by_id.setdefault(row[1], to_file(row))
        return list(by_id.values())

    async def content(self, thread_id: str, file_id: str) -> bytes:
        rows = await self._scope.read("file_body", thread_id=thread_id, id=file_id)
        if not rows:
            raise not_found("file", file_id)
        inline, codec, data = rows[0]
        # Files are the largest bodies: decompressing one would hold up the event loop.
        if len(data or b"") <= THREAD_BYTES:
            return unpack_body(inline, codec, data, {"file": file_id})
        return await anyio.to_thread.run_sync(unpack_body, inline, codec, data, {"file": file_id})


def file_values(thread_id: str, file: NewFile, blob: bytes | None) -> dict[str, Value]:
    """Return the values of a file's row."""
    return {
        "thread_id": thread_id,
        "id": file.id,
        "kind": file.kind,
        "origin": file.origin,
        "name": file.name,
        "media_type": file.media_type,
        "bytes": len(file.content),
        "blob": blob,
    }
