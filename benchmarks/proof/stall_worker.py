"""One run of the stall benchmark in its own process, or the server that it talks to.

`python -m benchmarks.proof.stall_worker run …` prints its `Measured` as JSON; `serve` prints its
URL and serves until it is killed.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import orjson

from agent_runtime import Agent, Event, LiteLLMModel, Runtime, Settings, tool
from agent_runtime.testing.model_server import OpenAIServer, Reply, Script, call_then_answer
from agent_runtime.testing.observer import is_for_memory, notes_for
from benchmarks.cost.loop_worker import KEY
from benchmarks.peers.runners.pages import page


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of one run, in seconds.

    Attributes:
        longest: the longest time from one step's tool to the next step's.
        observer_calls: model calls for the memory.
    """

    wall: float
    cpu: float
    longest: float
    observations: int
    activations: int
    observer_calls: int


def serve_both(steps: int, *, step: float, observer: float) -> Script:
    """Return a script that plays the agent's model and its Observer, each with its delay."""
    answer = call_then_answer(steps)
    asked = 0

    def script(request: dict[str, Any], n: int) -> Reply:
        del n
        nonlocal asked
        if is_for_memory(request):
            return Reply(text=notes_for(request), delay=observer)
        if not request.get("tools"):
            # The call that warms up.
            return Reply(text="Ready.")
        asked += 1
        reply = answer(request, asked - 1)
        return Reply(text=reply.text, calls=reply.calls, delay=step)

    return script


async def serve(args: argparse.Namespace) -> None:
    """Serve until killed."""
    script = serve_both(args.steps, step=args.step, observer=args.observer)
    async with OpenAIServer(script) as server:
        print(server.base_url, flush=True)
        await anyio.sleep_forever()


async def run(args: argparse.Namespace) -> Measured:
    """Run the task once."""
    marks: list[float] = []

    @tool
    async def read_page(number: int) -> str:
        """Read a page.

        Args:
            number: of the page.
        """
        marks.append(time.perf_counter())
        return page(number)

    model = LiteLLMModel("openai/bench", base_url=args.url, api_key=KEY)
    await _warm(model, args.folder)
    settings = Settings(
        database_url=f"file:{args.folder / 'run.db'}",
        max_steps=args.steps + 1,
        observational_memory=args.observe is not None,
        observer_message_tokens=args.observe or 30_000,
    )
    events: list[Event] = []
    async with Runtime.open(settings, model=model) as runtime:
        agent = Agent(tools=[read_page], instructions="Read all pages, then say that it is done.")
        began = time.perf_counter(), time.process_time()
        result = await runtime.run(agent, "Read the pages.", thread="t", on_event=events.append)
        wall, cpu = time.perf_counter() - began[0], time.process_time() - began[1]
        if not result.ok or len(marks) != args.steps:
            raise RuntimeError(f"the run ended with {result}")
    kinds = [event.kind for event in events]
    return Measured(
        wall=wall,
        cpu=cpu,
        longest=max(after - before for before, after in pairwise(marks)),
        observations=kinds.count("observation"),
        activations=kinds.count("activation"),
        observer_calls=result.usage.calls - result.steps,
    )


async def _warm(model: LiteLLMModel, folder: Path) -> None:
    """Make a first call, so that its imports are not measured."""
    settings = Settings(database_url=f"file:{folder / 'warm.db'}", observational_memory=False)
    async with Runtime.open(settings, model=model) as runtime:
        await runtime.run(Agent(), "Warm up.")


def main() -> None:
    """Run, or serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("run", "serve"))
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--url", help="of the server")
    parser.add_argument("--folder", type=Path, help="for databases")
    parser.add_argument("--observe", type=int, help="the threshold; without it there is no memory")
    parser.add_argument("--step", type=float, default=0.0, help="seconds of an answer")
    parser.add_argument("--observer", type=float, default=0.0, help="seconds of the Observer's")
    args = parser.parse_args()
    if args.what == "serve":
        anyio.run(serve, args)
    else:
        print(orjson.dumps(anyio.run(run, args)).decode(), flush=True)


if __name__ == "__main__":
    main()
