"""Messages of a branch: outlines with the beginnings of their texts, and whole texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import anyio.to_thread
import orjson

from agent_runtime.errors import NotFound
from agent_runtime.log.run_spec import delegation_record
from agent_runtime.messages import (
    AssistantMessage,
    FileRef,
    Note,
    call_id,
    decode_message,
    decode_result,
)
from agent_runtime.server.inspector.branches import branch_of
from agent_runtime_storage.contract.records.log import CallRow, Node, Run
from agent_runtime_storage.contract.store import UserStore

MOST = 200
TEXT_CHARS = 2000
_MOST_RUNS = 1000


async def nodes_of(
    store: UserStore,
    thread_id: str,
    first: int,
    last: int,
    head: int | None = None,
    *,
    chars: int = TEXT_CHARS,
) -> dict[str, Any]:
    """Return the nodes of a branch from one to another, at most 200.

    Args:
        chars: the most characters of each text.

    Raises:
        NotFound: there is no such thread or closed node.
        CorruptThread: the branch is broken.
    """
    branch = await branch_of(store, thread_id, head, after=0)
    wanted = [node for node in branch.nodes if first <= node.seq <= last]
    shown = wanted[:MOST]
    rows: list[Node] = []
    if closed := [node.seq for node in shown if node.status == "closed"]:
        rows = await store.log.branch(thread_id, closed[-1], first=closed[0])
    rows += [await store.log.node(thread_id, node.seq) for node in shown if node.status == "open"]
    parents = [node.parent_id for node in shown if node.parent_id is not None]
    siblings = await store.inspection.children(thread_id, parents)
    asked = {
        (one.node_id, one.position): one.id
        for one in await store.questions.list(thread_id=thread_id, limit=10_000)
    }
    began = {one.run_id: one.run_id for one in rows if one.run_id}
    agents = {run: (await store.runs.get(run)).agent for run in began}
    children = await _children(store, thread_id, rows)
    known = _Known(siblings, asked, agents, children, chars)
    outlines = await anyio.to_thread.run_sync(lambda: [known.node(row) for row in rows])
    return {"nodes": outlines, "next": wanted[MOST].seq if len(wanted) > MOST else None}


async def _children(
    store: UserStore, thread_id: str, rows: Sequence[Node]
) -> Mapping[str, Sequence[Run]]:
    """Return the runs that these nodes' calls began, by the call's id."""
    if not any(row.calls for row in rows):
        return {}
    runs = await store.runs.list(parent_thread_id=thread_id, limit=_MOST_RUNS)
    found: dict[str, list[Run]] = {}
    for run in runs:
        if (record := delegation_record(run)) is not None:
            found.setdefault(record.call, []).append(run)
    return found


class _Known:
    """What outlines of nodes show besides the nodes themselves."""

    def __init__(
        self,
        siblings: Sequence[tuple[int, int]],
        asked: Mapping[tuple[int, int | None], str],
        agents: Mapping[str, str],
        children: Mapping[str, Sequence[Run]],
        chars: int,
    ) -> None:
        self._below: dict[int, list[int]] = {}
        for seq, parent in siblings:
            self._below.setdefault(parent, []).append(seq)
        self._asked, self._agents, self._children = asked, agents, children
        self._chars = chars

    def node(self, row: Node) -> dict[str, Any]:
        message = decode_message(row.body)
        others = self._below.get(row.parent_id or 0, [])
        files = () if isinstance(message, Note) else message.files
        calls = message.calls if isinstance(message, AssistantMessage) else ()
        return {
            "seq": row.seq,
            "parent": row.parent_id,
            "kind": row.kind,
            "status": row.status,
            "role": row.role,
            "run": row.run_id,
            "agent": self._agents.get(row.run_id or "", ""),
            "activation": row.activation_id,
            "at": row.created_at,
            "tokens": row.tokens,
            "source": message.source if isinstance(message, Note) else "",
            "text": message.text[: self._chars],
            "chars": len(message.text),
            "files": [_file(one) for one in files],
            "calls": [
                self._call(row.seq, call.name, call.arguments, stored)
                for call, stored in zip(calls, row.calls, strict=False)
            ],
            "siblings": [seq for seq in others if seq != row.seq],
        }

    def _call(self, node: int, tool: str, given: Mapping[str, Any], row: CallRow) -> dict[str, Any]:
        handle = call_id(node, row.index)
        result = decode_result(row.body) if row.status == "done" else None
        text = "" if result is None else result.text
        runs = [
            {
                "run": run.id,
                "thread": run.thread_id,
                "task_key": record.key if (record := delegation_record(run)) else "",
                "agent": run.agent,
                "status": run.status,
            }
            for run in reversed(self._children.get(handle, ()))
        ]
        return {
            "handle": handle,
            "index": row.index,
            "tool": tool,
            "arguments": arguments_of(given, self._chars),
            "status": row.status,
            "outcome": row.outcome,
            "text": text[: self._chars],
            "chars": len(text),
            "shown": row.shown,
            "tokens": row.tokens,
            "files": [] if result is None else [_file(one) for one in result.files],
            "run": runs[-1]["run"] if runs else None,
            "thread": runs[-1]["thread"] if runs else None,
            "task_key": runs[-1]["task_key"] if runs else None,
            "runs": runs,
            "question": self._asked.get((node, row.index)),
        }


def arguments_of(given: Mapping[str, Any], chars: int) -> list[dict[str, Any]]:
    """Return a call's arguments as texts: strings as they are, other values as JSON."""
    shown: list[dict[str, Any]] = []
    for name, value in given.items():
        plain = isinstance(value, str)
        text = value if plain else orjson.dumps(value, default=str).decode()
        shown.append(
            {
                "name": name,
                "text": text[:chars],
                "chars": len(text),
                "json": not plain,
                "more": len(text) > chars,
            }
        )
    return shown


def _file(file: FileRef) -> dict[str, Any]:
    uri = "" if file.uri.startswith("data:") else file.uri
    return {"name": file.name, "uri": uri, "media_type": file.media_type, "bytes": file.size}


async def text_of(store: UserStore, thread_id: str, node: int) -> bytes:
    """Return the whole text of a message. Raises `NotFound`."""
    row = await store.log.node(thread_id, node)
    return await anyio.to_thread.run_sync(lambda: decode_message(row.body).text.encode())


async def call_text(store: UserStore, thread_id: str, node: int, index: int, *, part: str) -> bytes:
    """Return the whole result of a call as text, or its arguments as JSON.

    Raises:
        NotFound: there is no such call, or it has no result yet.
    """
    if part == "arguments":
        row = await store.log.node(thread_id, node)
        message = await anyio.to_thread.run_sync(decode_message, row.body)
        calls = message.calls if isinstance(message, AssistantMessage) else ()
        if index >= len(calls):
            raise _no_call(thread_id, node, index)
        call = calls[index]
        if call.raw is not None:
            return call.raw.encode()
        option = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS
        return await anyio.to_thread.run_sync(lambda: orjson.dumps(call.arguments, option=option))
    row = await store.log.call(thread_id, node, index)
    if row.status != "done":
        raise _no_call(thread_id, node, index)
    return await anyio.to_thread.run_sync(lambda: decode_result(row.body).text.encode())


def _no_call(thread_id: str, node: int, index: int) -> NotFound:
    return NotFound(
        f"Call {index} of node {node} in thread {thread_id} is not there, or is not done.",
        cure="Check the numbers, or read it again when the call is done.",
    )
