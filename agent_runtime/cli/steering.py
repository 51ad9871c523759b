"""Ctrl-C while a run works: a message to the agent, instead of the end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from agent_runtime.cli.answer_prompt import can_ask, read_line
from agent_runtime.cli.terminal import flush_typed, say

if TYPE_CHECKING:
    from agent_runtime.cli.display.progress import Progress
    from agent_runtime.runtime import Runtime

PROMPT = "Message to the agent (Enter sends it, empty goes on; Ctrl-C again stops the run):"


def can_steer() -> bool:
    """Return whether a person at the terminal can type to this process."""
    if not can_ask():
        return False
    try:
        # A process in the background would be stopped for reading.
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:
        return False


async def steer(
    runtime: Runtime, run_id: str, progress: Progress, done: Callable[[], None]
) -> None:
    """Ask for a message and send it to the run, which goes on meanwhile.

    Cancellation, as at the end of the run, drops what was not sent.

    Args:
        done: is called when nobody is asked any more.
    """
    import anyio.to_thread

    from agent_runtime.errors import AgentRuntimeError

    sent = False
    try:
        await anyio.to_thread.run_sync(progress.hold)
        flush_typed()
        say(PROMPT)
        say("> ", end="")
        text = (await read_line()).strip()
        sent = True
        if text:
            await runtime.steer(run_id, text)
            say("Sent: the agent reads it at its next step.")
    except AgentRuntimeError as error:
        say(f"It was not sent. {error.message}")
    finally:
        if not sent:
            # Otherwise the next question, or the shell, would read what was typed.
            flush_typed()
            say("\nNo message was sent.")
        progress.release()
        done()
