"""`agent-runtime node-memory`: what nodes remember of conversations, and what nobody uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agent_runtime.cli.commands.transfer import age_option, confirm, dry_run_option, yes_option
from agent_runtime.cli.options import json_lines_option
from agent_runtime.cli.terminal import say, time_text, write_json

if TYPE_CHECKING:
    from agent_runtime.memory.node.upkeep import StoredNodeMemory
    from agent_runtime_config import Settings


@click.group("node-memory", invoke_without_command=True)
@json_lines_option
@click.pass_context
def node_memory(ctx: click.Context, as_json: bool) -> None:
    """List node memories, those first that were not written to for longest; or clean up."""
    if ctx.invoked_subcommand is not None:
        return
    import anyio

    from agent_runtime_config import load_settings

    found = anyio.run(_stored, load_settings())
    for one in found:
        _tell(one, as_json=as_json)
    if not found and not as_json:
        say("There are no node memories yet.")


@node_memory.command()
@age_option
@dry_run_option
@yes_option
@json_lines_option
def prune(age: float, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Delete the node memories that were not written to for so long."""
    import time

    import anyio

    from agent_runtime_config import load_settings

    settings = load_settings()
    before = time.time() - age
    found = [one for one in anyio.run(_stored, settings) if one.modified < before]
    for one in found if dry_run or not (as_json or yes) else ():
        _tell(one, as_json=as_json)
    if dry_run:
        say(f"{_count(len(found))} would be deleted.")
        return
    if not found:
        say("There is nothing to delete.")
        return
    confirm(f"Delete {_count(len(found))} for good?", yes=yes)
    for one in anyio.run(_prune, settings, age):
        _tell(one, as_json=as_json)


async def _stored(settings: Settings) -> list[StoredNodeMemory]:
    from agent_runtime.memory.node.upkeep import stored_memories
    from agent_runtime.runtime import Runtime

    async with Runtime.open(settings) as runtime:
        return await stored_memories(runtime.store.of(settings.user))


async def _prune(settings: Settings, age: float) -> list[StoredNodeMemory]:
    from agent_runtime.memory.node.upkeep import prune
    from agent_runtime.runtime import Runtime

    async with Runtime.open(settings) as runtime:
        return await prune(runtime.store.of(settings.user), seconds=age)


def _tell(memory: StoredNodeMemory, *, as_json: bool) -> None:
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
    click.echo(f"{time_text(memory.modified)}  {memory.bytes:>10,} bytes  {name}")


def _count(number: int) -> str:
    return f"{number:,} node memor{'y' if number == 1 else 'ies'}"
