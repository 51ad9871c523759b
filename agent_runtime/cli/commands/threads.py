"""`agent-runtime threads` and `show`: the contents of the log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from agent_runtime.cli.commands import archiving, transfer
from agent_runtime.cli.display.short_ids import short_id
from agent_runtime.cli.groups import CommandGroup
from agent_runtime.cli.options import json_lines_option
from agent_runtime.cli.parameters.ids import THREAD
from agent_runtime.cli.runtime_calls import with_runtime, with_store
from agent_runtime.cli.terminal import (
    say,
    short_arguments,
    shorten,
    time_text,
    write_json,
    write_output,
    write_row,
)
from agent_runtime.cli.workspaces import MOST, describe_folder, here_first, workspace_of
from agent_runtime_config.counted import counted

if TYPE_CHECKING:
    from agent_runtime.runtime import Runtime
    from agent_runtime_storage import UserStore
    from agent_runtime_storage.contract.records.log import EventRow, Node, Thread

# Characters of a result that are shown without `--full`.
RESULT_CHARS = 400


@click.group(cls=CommandGroup, invoke_without_command=True)
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True)
@click.option("--all", "every", is_flag=True, help="Include those of sub-agents.")
@click.option("--archived", is_flag=True, help="List archived threads, the last archived first.")
@json_lines_option
@click.pass_context
def threads(ctx: click.Context, limit: int, every: bool, archived: bool, as_json: bool) -> None:
    """List threads, this folder's first; archive, delete, export and import threads."""
    if ctx.invoked_subcommand is not None:
        return
    if archived:
        archiving.list_archived(limit, as_json=as_json)
        return
    # Read all of them before the limit is applied, because threads of other folders come last.
    found = here_first(with_store(lambda store: store.threads.list(limit=MOST, children=every)))[
        :limit
    ]
    for thread in found:
        if as_json:
            write_json(_thread_json(thread))
        else:
            mark = "active" if thread.active_run else "      "
            title = shorten(thread.title, 80) + describe_folder(workspace_of(thread))
            write_row(
                f"{short_id(thread.id)}  {time_text(thread.updated_at)}  {mark}  {title}".rstrip()
            )
    if not found and not as_json:
        say("There are no threads yet.")


for command in (
    transfer.remove,
    transfer.prune,
    transfer.export_thread,
    transfer.import_thread,
    archiving.archive,
    archiving.restore,
):
    threads.add_command(command)


@click.command()
@click.argument("thread", type=THREAD)
@click.option("--events", is_flag=True, help="Show the events instead of the messages.")
@click.option(
    "--after",
    type=click.IntRange(min=0),
    metavar="ID",
    help="With --events: the events after this one, oldest first.",
)
@click.option("--branches", is_flag=True, help="List the branches instead of the messages.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True)
@click.option("--full", is_flag=True, help="Do not shorten tool results.")
@json_lines_option
def show(
    thread: str,
    events: bool,
    after: int | None,
    branches: bool,
    limit: int,
    full: bool,
    as_json: bool,
) -> None:
    """Show the last messages of THREAD's current branch, oldest first."""
    if after is not None and not events:
        raise click.UsageError("--after needs --events.")
    if branches:
        from agent_runtime.cli.commands.branches import show_branches

        show_branches(thread, as_json=as_json)
        return
    if events:
        for event in with_runtime(lambda runtime: _events(runtime, thread, after, limit)):
            _write_event(event, as_json=as_json)
        return
    nodes = with_store(lambda store: _nodes(store, thread, limit))
    if as_json:
        for node in nodes:
            write_json(_node_json(node))
        return
    if nodes and nodes[0].parent_id is not None:
        last = "This is the last message" if len(nodes) == 1 else f"The last {len(nodes)} messages"
        say(f"{last}; --limit shows more.")
    if not nodes:
        say("The thread is empty.")
    for node in nodes:
        write_output("\n".join(_node_lines(node, full=full)) + "\n")


async def _nodes(store: UserStore, thread_id: str, limit: int) -> list[Node]:
    """Return the last nodes of the branch, and the open node of its newest run."""
    from agent_runtime.log.run_spec import RunSpec

    thread = await store.threads.get(thread_id)
    nodes: list[Node] = []
    if thread.head is not None:
        nodes = await store.log.branch(thread_id, thread.head, limit=limit)
    for run in await store.runs.list(thread_id=thread_id, limit=10):
        # A maintenance run has no nodes; the run before it may have left an exchange open.
        if RunSpec.of(run).upkeep:
            continue
        if run.open_node is not None:
            # The head does not include an exchange in progress.
            nodes.append(await store.log.node(thread_id, run.open_node))
        break
    return nodes[-limit:]


async def _events(
    runtime: Runtime, thread_id: str, after: int | None, limit: int
) -> list[EventRow]:
    """Return the events after an id, or the last ones."""
    if after is None:
        after = max(0, (await runtime.threads.get(thread_id)).last_event - limit)
    return await runtime.threads.events(thread_id, after=after, limit=limit)


def _write_event(event: EventRow, *, as_json: bool) -> None:
    import dataclasses

    if as_json:
        write_json(dataclasses.asdict(event))
        return
    node = "" if event.node_id is None else f"  node {event.node_id}"
    data = short_arguments(dict(event.data), 160)
    write_row(f"{event.id:>6}  {time_text(event.created_at)}  {event.kind:<12}{node}  {data}")


def _node_lines(node: Node, *, full: bool) -> Iterator[str]:
    from agent_runtime.messages import (
        AssistantMessage,
        Note,
        UserMessage,
        call_id,
        decode_message,
        decode_result,
    )
    from agent_runtime.models.tokens import placeholder

    message = decode_message(node.body)
    who = f"note from {message.source}" if isinstance(message, Note) else message.type
    state = "" if node.status == "closed" else "  (in progress)"
    yield f"[{node.seq}] {who}  {time_text(node.created_at)}{state}"
    if message.text:
        yield message.text
    if isinstance(message, UserMessage):
        yield from map(placeholder, message.files)
    if not isinstance(message, AssistantMessage):
        return
    for call, row in zip(message.calls, node.calls, strict=True):
        yield f"  -> {call.name} {short_arguments(call.arguments, 120)}".rstrip()
        if row.status != "done":
            yield f"     {row.status}"
            continue
        result = decode_result(row.body)
        text = result.text
        left_out = 0 if full else max(0, len(text) - RESULT_CHARS)
        shown = text[: len(text) - left_out].rstrip()
        size, handle = counted(len(text), "character"), call_id(node.seq, row.index)
        yield f"     {row.outcome}, {size}, handle {handle}"
        yield from (f"     | {line}" for line in shown.splitlines())
        yield from (f"     {placeholder(file)}" for file in result.files)
        if left_out:
            yield f"     … {counted(left_out, 'more character')} (--full shows them)"


def _node_json(node: Node) -> dict[str, Any]:
    from dataclasses import asdict

    import orjson

    from agent_runtime.messages import call_id, decode_result

    results = [decode_result(row.body) if row.status == "done" else None for row in node.calls]
    return {
        "seq": node.seq,
        "parent_id": node.parent_id,
        "kind": node.kind,
        "status": node.status,
        "run_id": node.run_id,
        "created_at": node.created_at,
        "message": orjson.loads(node.body),
        "results": [
            {
                "call_id": call_id(node.seq, row.index),
                "tool": row.tool,
                "status": row.status,
                "outcome": row.outcome,
                "text": None if result is None else result.text,
                "files": [] if result is None else [asdict(file) for file in result.files],
            }
            for row, result in zip(node.calls, results, strict=True)
        ],
    }


def _thread_json(thread: Thread) -> dict[str, Any]:
    return {
        "id": thread.id,
        "title": thread.title,
        "workspace": workspace_of(thread),
        "active_run": thread.active_run,
        "nodes": thread.last_seq,
        "created_at": thread.created_at,
        "updated_at": thread.updated_at,
    }
