"""`agent-runtime worker`: work on queued runs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from agent_runtime.cli.parameters.run_options import RunOptions, run_options
from agent_runtime.cli.terminal import say

if TYPE_CHECKING:
    from agent_runtime.run.queue.enqueue import Agents
    from agent_runtime_config import Settings


@click.command()
@click.argument("app", required=False)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 1000),
    default=4,
    show_default=True,
    help="How many runs work at once.",
)
@run_options
def worker(app: str | None, concurrency: int, options: RunOptions) -> None:
    """Work on queued runs until a signal comes.

    APP names an `App`, an agent or a workflow, as `module:name`; without it, the worker takes the
    runs of `agent-runtime run --queue` that may do no more than the options given here allow.
    SIGTERM, or Ctrl-C, hands the runs over: each ends its step, for
    `AGENT_RUNTIME_PAUSE_TIMEOUT` seconds, and another worker continues it.

    \b
    Examples:
      agent-runtime worker my_agents:app --concurrency 16
      agent-runtime worker --workspace . --ask-shell
    """
    import anyio

    from agent_runtime_config import load_settings

    settings = load_settings()
    agents: Agents
    if app is not None:
        if options != RunOptions():
            raise click.UsageError("APP has its own agents: leave out the options of a run.")
        from agent_runtime.cli.service.applications import load_app

        agents = load_app(app)
    else:
        from agent_runtime.cli.service.applications import CommandApp

        spec = options.new_spec(settings)
        agents = CommandApp(dataclasses.replace(spec, asking=bool(spec.model)))
        settings = options.limited(settings, spec)
    anyio.run(_work, agents, settings, concurrency)


async def _work(agents: Agents, settings: Settings, concurrency: int) -> None:
    import gc
    import signal

    import anyio

    from agent_runtime.runtime import Runtime

    async with Runtime.open(settings, program=agents.program) as runtime:
        # What was imported stays: each full collection would look at it again, and hold the loop.
        gc.freeze()
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            async with anyio.create_task_group() as group:

                async def work() -> None:
                    await runtime.work(agents, concurrency=concurrency)

                group.start_soon(work)
                say(f"Working on the queue: {', '.join(agents.names)}.")
                async for _ in signals:
                    break
                group.cancel_scope.cancel()
        # From here on a second signal ends the process at once; then the leases expire.
        say("The runs are handed over.")
