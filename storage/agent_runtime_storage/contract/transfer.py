"""The part of the store's contract by which threads leave it, or come from elsewhere."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from typing import Any, Protocol

from agent_runtime_storage.contract.records import TextOf, Thread, Vet


class MovingContract(Protocol):
    """What `UserStore` has to delete, export and import threads."""

    # Retention

    async def delete_thread(
        self, thread_id: str, *, unchanged_since: float | None = None
    ) -> list[str]:
        """Delete a thread and the threads of its runs' sub-agents; return the ids of all.

        Everything derived from them goes too: nodes, results, events, usage, inbox, jobs, runs,
        vectors, text index, files, objects.  The thread is gone for everybody from the first
        transaction on; of a large one the rows follow in pieces, and a deletion that a crash cut
        short is taken up by calling this again or by `clean_up`.

        Nothing of it is left in a database file or its write-ahead log, unless a reader held the
        log open for seconds.  A server keeps what was deleted until its own clean-up (`VACUUM`).

        Args:
            unchanged_since: delete only a thread that was last updated before this moment.

        Raises:
            NotFound, ThreadBusy (a run of it has a live lease), Conflict.
        """
        ...

    async def idle_threads(self, *, seconds: float, limit: int = 1000) -> list[Thread]:
        """Return threads that were not updated for so long and have no run at work, oldest first.

        Threads of sub-agents are not among them: they go with the thread that they worked for.
        """
        ...

    async def clean_up(self) -> list[str]:
        """Delete what is left of imports and deletions that were cut short; return the ids.

        Only of those that nobody has gone on with for 5 minutes.
        """
        ...

    # Transfer

    def export_thread(self, thread_id: str) -> AsyncGenerator[Mapping[str, Any]]:
        """Give a thread, and the threads of its sub-agents, as JSON records, page by page.

        Everything is in them but the text index, leases and secrets; `transfer_format` has the
        form.  The last record is given only if nothing changed meanwhile, so what an import takes
        is one state of the thread.  Close the generator (`contextlib.aclosing`) when you leave it
        early.

        Raises:
            NotFound, ThreadBusy (a run of it has a live lease), ObjectLost.
            Conflict: it was changed meanwhile.
        """
        ...

    async def import_thread(
        self,
        records: AsyncIterable[Mapping[str, Any]],
        *,
        rename: str | None = None,
        texts: TextOf | None = None,
        vet: Vet | None = None,
        trusted: bool = False,
    ) -> list[str]:
        """Write an exported thread with those of its sub-agents; return the ids of all.

        What comes is history, and starts nothing: runs are over for good and have no spec, calls
        that were not done are refused, and questions, inbox, jobs, activations and vectors stay
        behind.  A new run goes on with the conversation.

        Runs whose parent is not in the export become roots.  Nothing of it is seen until all of it
        is there: what a failure or cancellation leaves is deleted, what a crash
        leaves stays hidden until `clean_up`, or the next import 5 minutes later.

        Args:
            rename: another id for the thread; sub-agents' threads, runs and jobs get new ones.
            texts: gives the text that search finds a node or result by; without it nothing of the
                import is found by search.
            vet: refuses bodies that the engine could not read, as `agent_runtime.imports.vet`.
            trusted: whether the records come straight from a database of this owner's own: then
                all is as in the original, and exporting it again gives the same records.

        Raises:
            InvalidExport: the records are no whole export, or of another version.
            ThreadExists: a thread of it is there already.
            Conflict: another id of it is taken.
        """
        ...
