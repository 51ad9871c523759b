"""`agent-runtime fork`, `edit` and `regenerate`: other branches of a thread."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import click

from agent_runtime.cli import session
from agent_runtime.cli.agents import Spec, build_agent, check_model, is_of_command
from agent_runtime.cli.commands.run import read_task
from agent_runtime.cli.display.view import current_view
from agent_runtime.cli.options import json_object_option
from agent_runtime.cli.parameters.ids import LAST_NODE, THREAD, NodeType
from agent_runtime.cli.parameters.run_options import RunOptions, run_options, say_widened
from agent_runtime.cli.runtime_calls import user_store, with_store
from agent_runtime.cli.terminal import say, shorten, time_text, write_json, write_row

if TYPE_CHECKING:
    from agent_runtime.run.results import RunStream
    from agent_runtime.runtime import Runtime
    from agent_runtime_config import Settings
    from agent_runtime_storage import UserStore
    from agent_runtime_storage.contract.records.log import Node

Move = Callable[["UserStore"], Awaitable[object]]
TEXT_WIDTH = 72

_ROOT = 0
"""The place before the first node."""


@click.command()
@click.argument("thread", type=THREAD)
@click.argument("node", type=NodeType(_ROOT), required=False)
@json_object_option
def fork(thread: str, node: int | None, as_json: bool) -> None:
    """Continue THREAD from NODE, on a new branch; the other branches stay.

    0 is the place before the first node. The last node of a branch switches back to that branch.
    Without NODE nothing changes. Prints the thread's head; `show --branches` lists the branches.
    """
    from agent_runtime.log import branches

    async def move(store: UserStore) -> None:
        # The last node is the head already.
        if node not in (None, LAST_NODE):
            await branches.fork(store, thread, None if node == _ROOT else node)

    _write_head(thread, with_store(lambda store: _moved(store, thread, move)), as_json=as_json)


@click.command()
@click.argument("thread", type=THREAD)
@click.argument("node", type=NodeType())
@click.argument("text", required=False)
@run_options
@json_object_option
def edit(thread: str, node: int, text: str | None, options: RunOptions, as_json: bool) -> None:
    """Replace NODE, a message of the user, by TEXT on a new branch, and run the agent on it.

    NODE is a number that `show` shows, or `last` for the newest message of the user. NODE and what
    followed it stay on their branch. Without TEXT the thread moves back to before NODE, and the
    next task replaces it; if TEXT is `-`, it is read from stdin. The agent is the one that answered
    NODE, unless options change it.

    \b
    Examples:
      agent-runtime edit last last "Make the tests pass, without new dependencies."
      agent-runtime edit 3f9a2b1c 12 - --model openai/gpt-5 < task.md
    """
    from agent_runtime.log import branches
    from agent_runtime_config import load_settings

    settings = load_settings()
    task = None if text is None else read_task(text, None)

    async def find(store: UserStore) -> tuple[int, Spec | None]:
        seq = await _newest_message(store, thread) if node == LAST_NODE else node
        return seq, None if task is None else await _spec_of(store, thread, seq)

    seq, kept = with_store(find, settings)

    async def move(store: UserStore) -> None:
        await branches.edit(store, thread, seq)

    if task is None:
        taken = with_store(lambda store: store.log.node(thread, seq), settings)
        head = with_store(lambda store: _moved(store, thread, move), settings)
        if not as_json:
            say(f"Taken back, with what followed: {_node_line(taken)}")
            say("Files stay as they are. The next task on the thread replaces it.")
        if as_json or not current_view().chat:
            _write_head(thread, head, as_json=as_json)
        return
    _run(settings, options, kept, thread, task, move, as_json=as_json)


@click.command()
@click.argument("thread", type=THREAD)
@run_options
@json_object_option
def regenerate(thread: str, options: RunOptions, as_json: bool) -> None:
    """Answer the newest message of the user on THREAD again, on a new branch.

    The previous answer stays on its branch. The agent is the one that gave it, unless options
    change it.

    \b
    Example:
      agent-runtime regenerate last --model openai/gpt-5
    """
    from agent_runtime.log import branches
    from agent_runtime_config import load_settings

    settings = load_settings()

    async def move(store: UserStore) -> None:
        await branches.regenerate(store, thread)

    kept = with_store(lambda store: _spec_of(store, thread, None), settings)
    _run(settings, options, kept, thread, None, move, as_json=as_json)


def show_branches(thread: str, *, as_json: bool) -> None:
    """List the branches of a thread, newest first; a star marks the current branch."""
    head, found = with_store(lambda store: _branches(store, thread))
    for node, nodes, current in found:
        if as_json:
            write_json({**_node_json(node), "nodes": nodes, "current": current})
        else:
            length = f"{nodes:>5} {'node' if nodes == 1 else 'nodes':<5}"
            write_row(f"{'*' if current else ' '} {length}  {_node_line(node)}")
    if not as_json:
        say(_where(thread, head))


# Parts


def _run(
    settings: Settings,
    options: RunOptions,
    kept: Spec | None,
    thread: str,
    task: str | None,
    move: Move,
    *,
    as_json: bool,
) -> None:
    """Move the head, and run the agent of an earlier run there, changed by the options.

    Args:
        kept: the earlier run's spec; None if the command line did not start it.
    """
    if kept is None:
        spec = options.new_spec(settings)
    else:
        spec = options.on(kept, settings)
        say_widened(kept, spec)
    settings = options.limited(settings, spec)
    agent = build_agent(spec)

    @asynccontextmanager
    async def start(runtime: Runtime) -> AsyncGenerator[RunStream]:
        # Move the head last: if the runtime does not open, or the model cannot be called, nothing
        # has changed.
        await check_model(spec, settings)
        await move(user_store(runtime))
        async with runtime.stream(agent, task, thread=thread, spec=spec.to_json()) as stream:
            yield stream

    outcome = session.follow(
        settings, start, lambda runtime, run_id: runtime.resume_stream(run_id, agent)
    )
    session.finish(outcome, as_json=as_json)


async def _newest_message(store: UserStore, thread: str) -> int:
    """Return the node of the newest message of the user on the branch. Raises `NotFound`."""
    from agent_runtime.errors import NotFound

    node = await _message_above(store, thread, (await store.threads.get(thread)).head)
    if node is None:
        raise NotFound(
            f"Thread {thread} has no message of the user.", cure="Start with `agent-runtime run`."
        )
    return node.seq


async def _message_above(store: UserStore, thread: str, head: int | None) -> Node | None:
    """Return the newest message of the user from a node on upwards; None if there is none."""
    while head is not None:
        node = await store.log.node(thread, head)
        if node.role == "user":
            return node
        head = node.parent_id
    return None


async def _spec_of(store: UserStore, thread: str, node_id: int | None) -> Spec | None:
    """Return the spec of a node's run; without a node, of the newest task on the branch.

    None for a run that was not started from the command line.
    """
    if node_id is not None:
        node = await store.log.node(thread, node_id)
    else:
        node = await _message_above(store, thread, (await store.threads.get(thread)).head)
    if node is None:
        return None
    run = await store.runs.get(node.run_id) if node.run_id else None
    # Options cannot rebuild an agent that the code of a program built.
    return Spec.from_json(run.spec) if run is not None and is_of_command(run) else None


async def _moved(store: UserStore, thread: str, move: Move) -> Node | None:
    """Move the head of a thread; return the node that is its head now."""
    await move(store)
    head = (await store.threads.get(thread)).head
    return None if head is None else await store.log.node(thread, head)


async def _branches(
    store: UserStore, thread_id: str
) -> tuple[Node | None, list[tuple[Node, int, bool]]]:
    """Return a thread's head, and for each branch: last node, length, whether it is current."""
    from agent_runtime.log import branches

    thread = await store.threads.get(thread_id)
    found: list[tuple[Node, int, bool]] = []
    for tip in await branches.branch_heads(store, thread):
        # The head may lie within a branch after a fork, not at its end.
        chain = await store.log.lineage(thread_id, tip)
        current = thread.head is not None and thread.head in chain
        found.append((await store.log.node(thread_id, tip), len(chain), current))
    head = None if thread.head is None else await store.log.node(thread_id, thread.head)
    return head, found


def _write_head(thread: str, head: Node | None, *, as_json: bool) -> None:
    if as_json:
        write_json({"thread_id": thread, "head": head and _node_json(head)})
    else:
        write_row(_where(thread, head))


def _where(thread: str, head: Node | None) -> str:
    if head is None:
        return f"Thread {thread} is before its first node."
    return f"Thread {thread} is at {_node_line(head)}"


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
