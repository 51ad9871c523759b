"""A process that runs agents against a server with rate limits: database, server, form, runs."""

from __future__ import annotations

import sys

import anyio
import anyio.to_thread
import orjson

from agent_runtime import Agent, NativeModel, Runtime, Settings, tool
from agent_runtime.models import attempts
from agent_runtime.models.rate_limits import limiter

NAMES = {"openai": "openai/test", "anthropic": "anthropic/claude-sonnet-4-5"}


@tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


async def main(database: str, server: str, form: str, runs: int) -> None:
    """Make one call, say so, wait for a line, and run the agent many times at once."""
    attempts.FIRST_WAIT = 0.0
    limiter.NEXT_RESPONSE = limiter.LONGEST_WAIT = 600.0
    model = NativeModel(NAMES[form], base_url=server, api_key="sk-test", retries=50, max_output=100)
    settings = Settings(database_url=database, loop_limit=0)
    async with Runtime.open(settings) as runtime:
        agent = Agent(model, tools=[double])
        await runtime.run(agent, "Do run-0.")
        print(orjson.dumps({"ready": True}).decode(), flush=True)
        await anyio.to_thread.run_sync(sys.stdin.readline)
        async with anyio.create_task_group() as group:
            for n in range(runs):
                group.start_soon(runtime.run, agent, f"Do run-{n + 1}.")
    print(orjson.dumps({"done": True}).decode(), flush=True)


if __name__ == "__main__":
    database, server, form, runs = sys.argv[1:]
    anyio.run(main, database, server, form, int(runs))
