"""The statements and the hidden batches of an import."""

from __future__ import annotations

from contextlib import aclosing

import anyio.to_thread

from agent_runtime_storage.contract.errors import Conflict, ThreadExists
from agent_runtime_storage.contract.records.search import NodeText, VectorItem
from agent_runtime_storage.drivers.protocol import Statement
from agent_runtime_storage.objects.documents import (
    objects_needed,
    stored_document,
    thread_document_key,
    thread_documents,
)
from agent_runtime_storage.queries.owner import OwnerScope
from agent_runtime_storage.search.full_text import TextIndexer
from agent_runtime_storage.search.vectors import SqlVectors


class ImportBatches:
    """The parts of the store that an import uses."""

    def __init__(self, scope: OwnerScope, vectors: SqlVectors, indexer: TextIndexer) -> None:
        self._scope = scope
        self._vectors = vectors
        self._indexer = indexer
        self.max_title_chars = scope.max_title_chars
        self.statement = scope.statement
        self.new_bodies = scope.bodies

    async def write_hidden(
        self, thread_id: str, token: str, count: int, statements: list[Statement]
    ) -> None:
        """Run a batch for an import that has written `count` threads.

        Raises:
            BatchMissed: a statement missed; `taken`, if the import was cleaned up as abandoned.
            Conflict: the batch breaks a rule.
        """
        # It also renews the time by which `clean_up` tells an import that was interrupted.
        guard = self._scope.statement("import_touch", {"token": token}, rows=count, miss="taken")
        await self._scope.batch([guard, *statements], thread=thread_id)

    async def require_free(self, thread_id: str, *, restores: str | None = None) -> None:
        """Raise `ThreadExists` if the thread exists, hidden or not, or is archived.

        Args:
            restores: the archived thread that is being restored.
        """
        if thread_id != restores and await self._scope.read("archive", thread_id=thread_id):
            raise ThreadExists(
                f"Thread {thread_id} is archived.",
                cure="Import it under another id, or delete the archived thread first.",
            )
        for row in await self._scope.read("family", thread_id=thread_id):
            if row[0] != thread_id:
                continue
            if row[1]:
                raise ThreadExists(
                    f"Thread {thread_id} is being imported or deleted, or was when its process "
                    "was killed.",
                    cure="Wait for it. What a killed process left is cleaned up by the next "
                    "import 5 minutes later.",
                )
            raise ThreadExists(
                f"Thread {thread_id} is there already.",
                cure="Import it under another id, or delete the existing thread first.",
            )

    async def require_no_documents(self, thread_id: str) -> None:
        """Raise `Conflict` if there are documents that a thread of this id would get."""
        objects = self._scope.objects
        if objects is None:
            return
        async with aclosing(thread_documents(objects, self._scope.user_id, thread_id)) as places:
            async for place in places:
                raise Conflict(
                    f"There is a document of a thread {thread_id} already: {'/'.join(place)}.",
                    cure="Import the thread under another id, or delete the node memories of this "
                    "conversation first.",
                )

    async def put_document(self, thread_id: str, place: tuple[str, str, str], body: bytes) -> bool:
        """Write a plain document of a thread; return False if there is one already.

        Raises:
            ConfigError: the database has no object store.
        """
        objects = self._scope.objects
        if objects is None:
            raise objects_needed()
        data = await anyio.to_thread.run_sync(stored_document, place[-1], body)
        key = thread_document_key(self._scope.user_id, thread_id, *place)
        return await objects.replace(key, data, None)

    async def vector_statements(
        self, model: str, item: VectorItem, known: set[tuple[str, int]]
    ) -> list[Statement]:
        """Return the statements that write a vector.

        Args:
            known: the models and dimensions that this import has checked; the vector's is added.
        """
        key = (model, len(item.values))
        batch = [] if key in known else await self._vectors.require_model(*key)
        known.add(key)
        return [*batch, self._vectors.put(model, item)]

    async def text_statements(self, thread_id: str, texts: list[NodeText]) -> list[Statement]:
        return await self._indexer.statements(thread_id, texts)
