"""What an import does in the store: its statements, and batches that stay hidden."""

from __future__ import annotations

from collections.abc import Mapping

from agent_runtime_storage.contract.errors import ThreadExists
from agent_runtime_storage.contract.search_records import NodeText, VectorItem
from agent_runtime_storage.drivers.protocol import Statement, Value
from agent_runtime_storage.objects.bodies import BodyWriter
from agent_runtime_storage.search.full_text import TextIndexer
from agent_runtime_storage.search.vectors import Vectors


class ImportBatches(Vectors, TextIndexer):
    """What an import needs of the store."""

    async def write_hidden(
        self, thread_id: str, token: str, count: int, statements: list[Statement]
    ) -> None:
        """Run a batch for an import that has written so many threads.

        Raises:
            BatchMissed: a statement missed; `taken`, if the import was cleaned up as abandoned.
            Conflict: the batch breaks a rule.
        """
        guard = self._statement("import_touch", {"token": token}, rows=count, miss="taken")
        await self._batch([guard, *statements], thread=thread_id)

    async def require_free(self, thread_id: str) -> None:
        """Raise `ThreadExists` if a thread is there, be it hidden."""
        for row in await self._read("family", thread_id=thread_id):
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
                cure="Import it under another id, or delete that one first.",
            )

    async def statements_of_vector(
        self, model: str, item: VectorItem, known: set[tuple[str, int]]
    ) -> list[Statement]:
        """Return what writes a vector; `known` are the models that were looked at already."""
        key = (model, len(item.values))
        batch = [] if key in known else await self._embedder(*key)
        known.add(key)
        return [*batch, self._put_vector(model, item)]

    def statement(
        self, name: str, params: Mapping[str, Value], *, rows: int | None = None, miss: str = ""
    ) -> Statement:
        """Return a statement of this owner."""
        return self._statement(name, params, rows=rows, miss=miss)

    def new_bodies(self, thread_id: str) -> BodyWriter:
        """Return where the bodies of a batch go."""
        return self._bodies(thread_id)

    async def statements_of_texts(self, thread_id: str, texts: list[NodeText]) -> list[Statement]:
        """Return what indexes texts."""
        return await self._index(thread_id, texts)
