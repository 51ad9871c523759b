"""Threads as one file that opens without a service: the page, and compressed blocks of data.

It holds a thread and the threads of all its sub-agents, each on its own branch.
"""

from __future__ import annotations

import base64
import gzip
import time
from collections.abc import AsyncGenerator
from importlib.resources.abc import Traversable
from typing import Any

import anyio.to_thread
import orjson

from agent_runtime.server.inspector.activations import (
    MOST_WHOLE,
    activations_of,
    whole_activations,
)
from agent_runtime.server.inspector.branches import branch_of
from agent_runtime.server.inspector.nodes import MOST as NODES
from agent_runtime.server.inspector.nodes import nodes_of
from agent_runtime.server.inspector.observations import observations_of, whole_observations
from agent_runtime.server.inspector.pages import joined_page
from agent_runtime.server.inspector.prompts import prompt_under
from agent_runtime.server.inspector.steps import steps_of
from agent_runtime.server.inspector.threads import thread_of
from agent_runtime_storage.contract.records.log import Thread
from agent_runtime_storage.contract.store import UserStore

OBSERVATIONS = 100
"""Observations in a block."""
TEXT_CHARS = 50_000
_PAGE = 500


async def exported(
    store: UserStore, thread_id: str, folder: Traversable | None = None
) -> AsyncGenerator[bytes]:
    """Yield a page that shows a thread, in pieces; each holds at most one block.

    Args:
        folder: of the page's files; None for the package's own.

    Raises:
        NotFound: there is no such thread.
        CorruptThread: its branch is broken.
    """
    # First, so that an error leaves no half of a file.
    threads = await _threads(store, thread_id)
    before, after = await anyio.to_thread.run_sync(joined_page, folder)
    blocks: dict[str, str] = {}
    yield before.encode()
    for one in threads:
        # The thread itself is at the top of the file, its sub-agents' below their ids.
        prefix = "" if one.id == thread_id else f"threads/{one.id}/"
        async for path, data in _blocks(store, one.id, one.head):
            name = f"block-{len(blocks)}"
            blocks[prefix + path] = name
            packed = await anyio.to_thread.run_sync(_packed, data)
            kind = "application/octet-stream"
            yield f'<script type="{kind}" id="{name}">{packed}</script>\n'.encode()
    described = {"version": 1, "thread": thread_id, "at": time.time(), "blocks": blocks}
    # What could end the element is written in JSON's own escapes.
    text = orjson.dumps(described).decode().replace("<", "\\u003c")
    yield f'<script type="application/json" id="export">{text}</script>\n'.encode()
    yield after.encode()


async def _threads(store: UserStore, thread_id: str) -> list[Thread]:
    """Return a thread, and the threads of the runs below it, each after the one it is below."""
    found = [await store.threads.get(thread_id)]
    known = {thread_id}
    # The list grows while it is read: threads that are found are looked below in turn.
    for above in found:
        before: str | None = None
        while runs := await store.runs.list(parent_thread_id=above.id, before=before, limit=_PAGE):
            before = runs[-1].id
            new = [run.thread_id for run in reversed(runs) if run.thread_id not in known]
            for one in dict.fromkeys(new):
                known.add(one)
                found.append(await store.threads.get(one))
    return found


def _packed(data: bytes | dict[str, Any]) -> str:
    body = data if isinstance(data, bytes) else orjson.dumps(data, option=orjson.OPT_NON_STR_KEYS)
    # Without a time, so that the same thread gives the same file.
    return base64.b64encode(gzip.compress(body, 9, mtime=0)).decode()


async def _blocks(
    store: UserStore, thread_id: str, head: int | None
) -> AsyncGenerator[tuple[str, bytes | dict[str, Any]]]:
    yield "thread", await thread_of(store, thread_id)
    yield "steps", await steps_of(store, thread_id, head)
    outlines: list[dict[str, Any]] = []
    after: int | None = 0
    while after is not None:
        page = await activations_of(store, thread_id, head, after=after)
        outlines, after = [*outlines, *page["activations"]], page["next"]
    ids = [one["id"] for one in outlines]
    whole: list[dict[str, Any]] = []
    for start in range(0, len(ids), MOST_WHOLE):
        some = await whole_activations(store, thread_id, ids[start : start + MOST_WHOLE])
        whole += some["activations"]
    yield "activations", {"activations": whole, "next": None}
    for one in ids:
        yield f"prompt/{one}", (await prompt_under(store, thread_id, one, head)).to_json()
    async for block in _observations(store, thread_id, head):
        yield block
    seqs = [node.seq for node in (await branch_of(store, thread_id, head)).nodes]
    for number, start in enumerate(range(0, len(seqs), NODES)):
        some = seqs[start : start + NODES]
        found = await nodes_of(store, thread_id, some[0], some[-1], head, chars=TEXT_CHARS)
        yield f"nodes/{number}", found


async def _observations(
    store: UserStore, thread_id: str, head: int | None
) -> AsyncGenerator[tuple[str, dict[str, Any]]]:
    known: list[dict[str, Any]] = []
    after: int | None = 0
    while after is not None:
        page = await observations_of(store, thread_id, head, after=after)
        known, after = [*known, *page["observations"]], page["next"]
    yield "observations", {"observations": known, "next": None}
    numbers: dict[int, list[int]] = {}
    for one in known:
        numbers.setdefault((one["id"] - 1) // OBSERVATIONS, []).append(one["id"])
    for number, ids in numbers.items():
        yield f"observations/{number}", await whole_observations(store, thread_id, ids)
