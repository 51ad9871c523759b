"""`agent-runtime mcp serve`: what an MCP client starts."""

from __future__ import annotations

import dataclasses
import os
import signal
from importlib import import_module
from typing import TYPE_CHECKING

import click

from agent_runtime.cli import exit_codes as exits
from agent_runtime.cli.extras import needs_extra
from agent_runtime.cli.parameters.run_options import RunOptions, describe_limits, run_options
from agent_runtime.cli.terminal import say

if TYPE_CHECKING:
    from agent_runtime.cli.agents import Spec
    from agent_runtime.runtime import Runtime
    from agent_runtime_config import Settings


@click.command()
@run_options
def serve(options: RunOptions) -> None:
    """Serve the agent to an MCP client, on stdin and stdout.

    The client starts tasks, follows their progress, steers and cancels them, and answers their
    questions. The options say what each task may do. When the client leaves, tasks at work are
    suspended; `agent-runtime resume` continues them.

    \b
    Example, for a client's configuration:
      agent-runtime mcp serve --workspace /home/ada/site --allow-shell --ask-shell
    """
    import anyio

    from agent_runtime_config import load_settings

    with needs_extra("mcp", "The MCP server"):
        # Before the store is opened.
        import_module("mcp")
    settings = load_settings()
    spec = options.new_spec(settings)
    # The client's user can be asked, although nobody is at a terminal.
    spec = dataclasses.replace(spec, asking=bool(spec.model))
    settings = options.limited(settings, spec)
    if spec.model:
        say(describe_limits(settings))
    anyio.run(_serve, settings, spec)


async def _serve(settings: Settings, spec: Spec) -> None:
    import anyio

    from agent_runtime.cli.agents import build_agent
    from agent_runtime.concurrency import single_error
    from agent_runtime.log.run_spec import COMMAND
    from agent_runtime.runtime import Runtime
    from agent_runtime.server.protocols.mcp_server import task_server
    from agent_runtime.server.protocols.turns import ClientTurns, UserTurns

    agent = build_agent(spec)
    turns = ClientTurns({agent.name: agent}, spec=spec.to_json())

    async with Runtime.open(settings, program=COMMAND) as runtime:
        mine = UserTurns(turns, runtime, settings.user)
        server = task_server(lambda _: mine, [agent.name])
        async with single_error(), anyio.create_task_group() as group:
            group.start_soon(_until_told, runtime)
            await server.run_stdio_async()
            # The client has closed its end, so no signal is waited for any longer.
            group.cancel_scope.cancel()


async def _until_told(runtime: Runtime) -> None:
    """End the process at a signal, with its tasks suspended; at once at the second one."""
    import anyio

    async def leave() -> None:
        await runtime.close()
        # The thread that reads stdin cannot be interrupted, and would hold up an ordinary exit.
        os._exit(exits.INTERRUPTED)

    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with anyio.create_task_group() as group:
            first = True
            async for _ in signals:
                if not first:
                    os._exit(exits.INTERRUPTED)
                first = False
                group.start_soon(leave)
