"""`agent-runtime node-memory`: what workflow nodes remember of conversations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agent_runtime.cli.groups import CommandGroup
from agent_runtime.cli.options import (
    age_option,
    confirm,
    dry_run_option,
    json_lines_option,
    yes_option,
)
from agent_runtime.cli.runtime_calls import with_store
from agent_runtime.cli.terminal import say, time_text, write_json, write_row
from agent_runtime_config.counted import counted

if TYPE_CHECKING:
    from agent_runtime.memory.node.upkeep import StoredNodeMemory


@click.group("node-memory", cls=CommandGroup, invoke_without_command=True)
@json_lines_option
@click.pass_context
def node_memory(ctx: click.Context, as_json: bool) -> None:
    """List node memories, the longest unused first; `prune` deletes unused ones."""
    if ctx.invoked_subcommand is not None:
        return
    from agent_runtime.memory.node.upkeep import stored_memories

    found = with_store(stored_memories)
    for one in found:
        _write(one, as_json=as_json)
    if not found and not as_json:
        say("There are no node memories yet.")


@node_memory.command()
@age_option
@dry_run_option
@yes_option
@json_lines_option
def prune(age: float, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Delete the node memories that have not been written for this long."""
    import time

    from agent_runtime.memory.node import upkeep

    before = time.time() - age
    found = [one for one in with_store(upkeep.stored_memories) if one.modified < before]
    for one in found if dry_run or not (as_json or yes) else ():
        _write(one, as_json=as_json)
    if dry_run:
        say(f"{_count(len(found))} would be deleted.")
        return
    if not found:
        say("There is nothing to delete.")
        return
    confirm(f"Delete {_count(len(found))} for good?", yes=yes)
    for one in with_store(lambda store: upkeep.prune(store, seconds=age)):
        _write(one, as_json=as_json)


def _write(memory: StoredNodeMemory, *, as_json: bool) -> None:
    if as_json:
        write_json(
            {
                "app_id": memory.app_id,
                "conversation_id": memory.conversation_id,
                "node_id": memory.node_id,
                "bytes": memory.bytes,
                "modified": memory.modified,
            }
        )
        return
    name = f"{memory.app_id}/{memory.conversation_id}/{memory.node_id}"
    write_row(f"{time_text(memory.modified)}  {memory.bytes:>10,} bytes  {name}")


def _count(number: int) -> str:
    return counted(number, "node memory", "node memories")
