"""Files that messages refer to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agent_runtime_storage.contract.records.files import FileRow, NewFile


class FileStore(Protocol):
    """The files of threads."""

    async def put(self, thread_id: str, file: NewFile) -> None:
        """Store a file as part of its thread, and update the thread's time.

        A file with an id that the thread already has is left unchanged.  The content is stored
        like a body, once for each distinct content of the thread.

        Raises:
            NotFound: there is no such thread.
            StoreError: the id is empty, too long, or not valid text.
        """
        ...

    async def list(self, thread_id: str) -> list[FileRow]:
        """Return the files of a thread, in the order of their ids. Raises `NotFound`."""
        ...

    async def find(self, ids: Sequence[str]) -> list[FileRow]:
        """Return the files with these ids, of any thread, in the order of their ids.

        Unknown ids are left out.  A file that several threads hold as copies is returned once.
        """
        ...

    async def content(self, thread_id: str, file_id: str) -> bytes:
        """Return the content of a file of the thread.

        Raises:
            NotFound: there is no such file.
            CorruptThread, ObjectLost: the content is lost or damaged.
        """
        ...
