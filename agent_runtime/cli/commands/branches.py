"""`agent-runtime fork`, `edit` and `regenerate`: other branches of a thread."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import click

from agent_runtime.cli import session
from agent_runtime.cli.agents import Spec, build_agent, is_of_command
from agent_runtime.cli.commands.run import (
    model_option,
    new_spec,
    read_task,
    respecified,
    shell_option,
    steps_option,
    workspace_option,
)
from agent_runtime.cli.options import json_object_option
from agent_runtime.cli.terminal import say, shorten, time_text, write_json

if TYPE_CHECKING:
    from agent_runtime.run.results import RunStream
    from agent_runtime.runtime import Runtime
    from agent_runtime_config import Settings
    from agent_runtime_storage import UserStore
    from agent_runtime_storage.contract.records import Node

Move = Callable[["UserStore"], Awaitable[object]]
TEXT_WIDTH = 72

_ROOT = 0
"""What stands for the place before the first node."""


@click.command()
@click.argument("thread")
@click.argument("node", type=click.IntRange(min=_ROOT), required=False)
@json_object_option
def fork(thread: str, node: int | None, as_json: bool) -> None:
    """Go on from NODE of THREAD, on a branch of its own; nothing of the others is lost.

    0 is the place before the first node; a branch's last node switches back to it. Without NODE
    nothing is changed. Prints where the thread stands; `show --branches` lists the branches.
    """
    import anyio

    from agent_runtime.log import branches
    from agent_runtime_config import load_settings

    async def move(store: UserStore) -> None:
        if node is not None:
            await branches.fork(store, thread, None if node == _ROOT else node)

    _tell(*anyio.run(_moved, load_settings(), thread, move), as_json=as_json)


@click.command()
@click.argument("thread")
@click.argument("node", type=click.IntRange(min=1))
@click.argument("text", required=False)
@model_option
@workspace_option
@steps_option
@shell_option
@json_object_option
def edit(
    thread: str,
    node: int,
    text: str | None,
    model: str | None,
    workspace: str | None,
    max_steps: int | None,
    allow_shell: bool,
    as_json: bool,
) -> None:
    """Say TEXT in the place of NODE, a message of the user, and run the agent on it.

    What followed NODE stays, on its own branch. Without TEXT the thread goes back to before NODE,
    so that the next task takes its place; with `-` the text is read from stdin. The agent is the
    one that answered NODE, unless options say otherwise.
    """
    import anyio

    from agent_runtime.log import branches
    from agent_runtime_config import load_settings

    settings = load_settings()

    async def move(store: UserStore) -> None:
        await branches.edit(store, thread, node)

    if text is None:
        _tell(*anyio.run(_moved, settings, thread, move), as_json=as_json)
        return
    task = read_task(text, None)
    kept = anyio.run(_spec_of, settings, thread, node)
    spec = _spec(settings, kept, model, workspace, max_steps, allow_shell)
    _run(settings, spec, thread, task, move, as_json=as_json)


@click.command()
@click.argument("thread")
@model_option
@workspace_option
@steps_option
@shell_option
@json_object_option
def regenerate(
    thread: str,
    model: str | None,
    workspace: str | None,
    max_steps: int | None,
    allow_shell: bool,
    as_json: bool,
) -> None:
    """Answer the newest message of the user on THREAD again.

    The answer so far stays, on its own branch. The agent is the one that gave it, unless options
    say otherwise.
    """
    import anyio

    from agent_runtime.log import branches
    from agent_runtime_config import load_settings

    settings = load_settings()

    async def move(store: UserStore) -> None:
        await branches.regenerate(store, thread)

    kept = anyio.run(_spec_of, settings, thread, None)
    spec = _spec(settings, kept, model, workspace, max_steps, allow_shell)
    _run(settings, spec, thread, None, move, as_json=as_json)


def show_branches(settings: Settings, thread: str, *, as_json: bool) -> None:
    """List the branches of a thread, the newest first; a star marks the one that it stands on."""
    import anyio

    head, found = anyio.run(_branches, settings, thread)
    for node, nodes, current in found:
        if as_json:
            write_json({**_node_json(node), "nodes": nodes, "current": current})
        else:
            click.echo(f"{'*' if current else ' '} {nodes:>5} nodes  {_node_line(node)}")
    if not as_json:
        say(_where(thread, head))


# Parts


def _spec(
    settings: Settings,
    kept: Spec | None,
    model: str | None,
    workspace: str | None,
    max_steps: int | None,
    allow_shell: bool,
) -> Spec:
    if kept is None:
        return new_spec(settings, model, workspace, max_steps, allow_shell)
    return respecified(kept, model, max_steps, workspace=workspace, allow_shell=allow_shell)


def _run(
    settings: Settings,
    spec: Spec,
    thread: str,
    task: str | None,
    move: Move,
    *,
    as_json: bool,
) -> None:
    agent = build_agent(spec)

    @asynccontextmanager
    async def start(runtime: Runtime) -> AsyncGenerator[RunStream]:
        await move(runtime.store.of(settings.user))
        async with runtime.stream(agent, task, thread=thread, spec=spec.to_json()) as stream:
            yield stream

    outcome = session.follow(
        settings, start, lambda runtime, run_id: runtime.resume_stream(run_id, agent)
    )
    session.finish(outcome, as_json=as_json)


async def _spec_of(settings: Settings, thread: str, node_id: int | None) -> Spec | None:
    """Return the spec of the run that a node belongs to (None: of the newest task of the branch).

    None for a run that was not started from the command line.
    """
    from agent_runtime.runtime import Runtime

    async with Runtime.open(settings) as runtime:
        store = runtime.store.of(settings.user)
        head = (await store.thread(thread)).head if node_id is None else node_id
        while head is not None:
            node = await store.node(thread, head)
            if node.role == "user" or node_id is not None:
                break
            head = node.parent_id
        else:
            return None
        run = await store.run(node.run_id) if node.run_id else None
    return Spec.from_json(run.spec) if run is not None and is_of_command(run) else None


async def _moved(settings: Settings, thread: str, move: Move) -> tuple[str, Node | None]:
    """Move the head of a thread; return the thread and the node at which it stands now."""
    from agent_runtime.runtime import Runtime

    async with Runtime.open(settings) as runtime:
        store = runtime.store.of(settings.user)
        await move(store)
        head = (await store.thread(thread)).head
        return thread, None if head is None else await store.node(thread, head)


async def _branches(
    settings: Settings, thread_id: str
) -> tuple[Node | None, list[tuple[Node, int, bool]]]:
    """Return where a thread stands, and of each branch its last node and its length."""
    from agent_runtime.log import branches
    from agent_runtime.runtime import Runtime

    async with Runtime.open(settings) as runtime:
        store = runtime.store.of(settings.user)
        thread = await store.thread(thread_id)
        found: list[tuple[Node, int, bool]] = []
        for tip in await branches.branch_heads(store, thread):
            chain = await store.lineage(thread_id, tip)
            current = thread.head is not None and thread.head in chain
            found.append((await store.node(thread_id, tip), len(chain), current))
        head = None if thread.head is None else await store.node(thread_id, thread.head)
        return head, found


def _tell(thread: str, head: Node | None, *, as_json: bool) -> None:
    if as_json:
        write_json({"thread_id": thread, "head": head and _node_json(head)})
    else:
        click.echo(_where(thread, head))


def _where(thread: str, head: Node | None) -> str:
    if head is None:
        return f"Thread {thread} stands before its first node."
    return f"Thread {thread} stands at {_node_line(head)}"


def _node_line(node: Node) -> str:
    from agent_runtime.messages import decode_message

    message = decode_message(node.body)
    text = shorten(" ".join(message.text.split()), TEXT_WIDTH)
    return f"[{node.seq}] {message.type}  {time_text(node.created_at)}  {text}".rstrip()


def _node_json(node: Node) -> dict[str, Any]:
    from agent_runtime.messages import decode_message

    message = decode_message(node.body)
    return {"seq": node.seq, "parent_id": node.parent_id, "type": message.type,
            "text": message.text, "created_at": node.created_at}  # fmt: skip
