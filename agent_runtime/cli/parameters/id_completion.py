"""Complete ids from the database, fast enough for the Tab key."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from click.shell_completion import CompletionItem

from agent_runtime.cli.terminal import shorten

if TYPE_CHECKING:
    from agent_runtime_storage.contract.short_ids import IdKind, IdMatch

SECONDS = 3.0
"""How long the database may take."""
NEWEST = 200
"""How many of the newest ids are offered."""
_SAFE = re.compile(r"[\w.-]+")


def complete_ids(
    kind: IdKind, incomplete: str, last: str, short_id: Callable[[str], str]
) -> list[CompletionItem]:
    """Return `last` and the newest short ids that begin as typed, with their titles.

    Only of a database in a file; none if it cannot be read.
    """
    items = [CompletionItem(last, help=f"the newest {kind} of this folder")]
    # A shell shows nothing while it completes, neither errors nor warnings.
    with suppress(Exception):
        for one in _newest(kind):
            short = short_id(one.id)
            value = short if short.startswith(incomplete) else one.id
            # The shell inserts what is offered as it is.
            if _SAFE.fullmatch(value):
                items.append(CompletionItem(value, help=shorten(one.title, 60)))
    return [item for item in items if str(item.value).startswith(incomplete)]


def _newest(kind: IdKind) -> list[IdMatch]:
    import anyio

    return anyio.run(_read, kind)


async def _read(kind: IdKind) -> list[IdMatch]:
    import anyio

    from agent_runtime_config.state import default_database_url
    from agent_runtime_storage.urls import backend_of, file_path, open_store

    # Not by `load_settings`: pydantic alone takes longer than a person waits for a Tab.
    url = os.environ.get("AGENT_RUNTIME_DATABASE_URL") or default_database_url()
    if backend_of(url) != "file" or not file_path(url).is_file():
        return []
    with anyio.fail_after(SECONDS):
        # A key press must not change the database.
        store = await open_store(url, migrate=False)
        try:
            user = os.environ.get("AGENT_RUNTIME_USER") or "local"
            return await store.of(user).ids.find(kind, "", limit=NEWEST)
        finally:
            await store.close()
