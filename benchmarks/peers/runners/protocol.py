"""What all runners share: the task, the tool, the clock and what a trial does.

A runner is a script that runs in the environment of one peer.  It may import its peer, the
standard library, this module and `pages`, and nothing else of this project.  It gives `main` a
`Peer`.  The trial comes in environment variables:

    PEER_URL      the server, without the last part of the path (`/a/v1`)
    PEER_DO       run, resume, pair or cancel
    PEER_STEPS    how many tool calls the task takes
    PEER_FOLDER   where databases go; `tools.txt` there gets the number of each page read
    PEER_VARIANT  the runner's own, such as `summaries`
    PEER_WINDOW   the model's window in tokens, or empty where it is large
    PEER_KILL_IN  the page at which the tool kills its own process, or empty
    PEER_PROMPTS  recorded requests, one a line

The result is one line of JSON, the last on stdout.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from pages import page

URL = os.environ["PEER_URL"]
DO = os.environ["PEER_DO"]
STEPS = int(os.environ["PEER_STEPS"])
FOLDER = Path(os.environ["PEER_FOLDER"])
VARIANT = os.environ.get("PEER_VARIANT", "")
WINDOW = int(os.environ.get("PEER_WINDOW") or 0)
KILL_IN = int(os.environ.get("PEER_KILL_IN") or 0)
PROMPTS = os.environ.get("PEER_PROMPTS", "")

MODEL = "bench"
KEY = "none"
MARK = "ORDER-7391"
"""Part of the task that no summary of the server repeats."""
TASK = f"{MARK}: read the pages of the book one after another, then say that it is done."
INSTRUCTIONS = "You read books with your tool."
THREAD = "thread-1"
SUMMARIZE_AT = int(WINDOW * 0.7) if WINDOW else 30_000
"""Tokens at which peers that want a threshold summarize."""
CANCEL_AT = 10
first_call: tuple[float, float] | None = None
cancel_now: Callable[[], object] | None = None


async def read_page(number: int) -> str:
    """Read a page of the book.

    Args:
        number: the number of the page.
    """
    global first_call
    if first_call is None:
        first_call = time.perf_counter(), time.process_time()
    note(number)
    if number == KILL_IN:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == CANCEL_AT and cancel_now is not None:
        cancel_now()
        await asyncio.sleep(30)
    return page(number)


def note(number: int) -> None:
    """Write down that a page was read, so that a kill does not lose it."""
    with (FOLDER / "tools.txt").open("ab", buffering=0) as log:
        log.write(b"%d\n" % number)


class Peer:
    """A way to run an agent that has `read_page`, on a thread that is kept."""

    async def open(self) -> None:
        """Prepare what runs share."""

    async def run(self, task: str, url: str) -> str:
        """Answer a user's message on the thread `THREAD`."""
        raise NotImplementedError

    async def resume(self, url: str) -> str:
        """Continue the run that a crash ended, as the peer's documentation advises."""
        return await self.run("Continue.", url)

    async def close(self) -> None:
        """Close what is open."""


def main(peer: Peer) -> None:
    """Do what the trial wants and print what was measured."""
    print("\n" + json.dumps(asyncio.run(_main(peer))), flush=True)


async def _main(peer: Peer) -> dict[str, object]:
    await peer.open()
    try:
        if DO == "pair":
            return await _pair(peer)
        if DO == "cancel":
            return await _cancel(peer)
        began = time.perf_counter(), time.process_time()
        if DO == "resume":
            outcome = await _outcome(peer.resume(f"{URL}/b/v1"))
        else:
            outcome = await _outcome(peer.run(TASK, f"{URL}/a/v1"))
        ended = time.perf_counter(), time.process_time()
        start = first_call or began
        return outcome | {
            "wall": ended[0] - start[0],
            "cpu": ended[1] - start[1],
            "startup_cpu": start[1],
            "peak": peak(),
        }
    finally:
        with contextlib.suppress(Exception):
            await peer.close()


async def _pair(peer: Peer) -> dict[str, object]:
    """Run two tasks on one thread at the same time, then ask a third question there."""
    tasks = [f"{TASK} Book {book}." for book in "ab"]
    both = await asyncio.gather(
        *(
            _outcome(peer.run(task, f"{URL}/{book}/v1"))
            for task, book in zip(tasks, "ab", strict=True)
        )
    )
    last = await _outcome(peer.run("What have you read?", f"{URL}/c/v1"))
    return {"both": both, **last}


async def _cancel(peer: Peer) -> dict[str, object]:
    """Cancel a run while its tool works, then continue on the same thread."""
    global cancel_now
    task = asyncio.create_task(_outcome(peer.run(TASK, f"{URL}/a/v1")))
    cancel_now = task.cancel
    with contextlib.suppress(asyncio.CancelledError):
        await task
    cancel_now = None
    return await _outcome(peer.run("Continue.", f"{URL}/b/v1"))


async def _outcome(answer: Awaitable[str]) -> dict[str, object]:
    try:
        return {"answer": str(await answer), "error": None}
    except Exception as error:
        return {"answer": None, "error": f"{type(error).__name__}: {error}"[:300]}


def peak() -> int:
    """Return the most bytes of memory that the process had.

    `ru_maxrss` counts the parent's too where a process begins as a copy of it.
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
