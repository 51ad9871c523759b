"""Records and the protocol of the object store, and the check of its folder."""

from __future__ import annotations

import stat
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from agent_runtime_storage.contract.errors import ObjectsUnavailable

Version: TypeAlias = Mapping[str, str]
"""Identifies the content of an object; only the backend that returned it can interpret it."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object as it is listed.

    Attributes:
        modified: when it was last put, in seconds since the epoch, by the store's clock.
    """

    key: str
    bytes: int
    modified: float


class ObjectStore(Protocol):
    """The objects of one database, as users of `Store.objects` need them.

    Every method raises `ObjectsUnavailable` if the store cannot be used, and `StoreFull` if it has
    no space left.
    """

    @property
    def shown(self) -> str:
        """The store's URL without secrets."""
        ...

    def list(self, prefix: str = "") -> AsyncGenerator[list[ObjectInfo]]:
        """Yield the objects in `prefix` in chunks, in no order."""
        ...

    async def read(self, key: str) -> tuple[bytes, Version] | None:
        """Return an object's content with its version, or None if it does not exist."""
        ...

    async def replace(self, key: str, data: bytes, version: Version | None) -> bool:
        """Write an object if it still has this version (None: does not exist); return whether.

        It is durable when this returns.  Of several that replace the same version one succeeds.
        """
        ...


def check_folder(root: Path) -> None:
    """Raise `ObjectsUnavailable` if the path is no folder, or its parent does not exist."""
    try:
        mode = root.stat().st_mode
    except FileNotFoundError:
        # The first write creates it.
        if root.parent.is_dir():
            return
        raise ObjectsUnavailable(
            f"The folder {root.parent}, in which the objects' folder is to be, is not there.",
            cure="Create it, or choose another path.",
        ) from None
    except OSError as error:
        raise ObjectsUnavailable(
            f"The objects' folder {root} cannot be used: {error.strerror}.",
            cure="Check the path and the permissions of the folders on its way.",
        ) from error
    if not stat.S_ISDIR(mode):
        raise ObjectsUnavailable(
            f"The objects' folder {root} is a file.", cure="Choose the path of a folder."
        )
