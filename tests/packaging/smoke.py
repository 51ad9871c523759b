"""Smoke test of the installed wheel: a run with one tool call, through litellm, on loopback.

It is a script, not a test: nothing of the checkout may be importable.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio

from agent_runtime import Agent, LiteLLMModel, Runtime, load_settings, tool
from agent_runtime.testing import OpenAIServer, Reply


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


async def main() -> None:
    """Call a tool once, through the whole path, and check the answer."""

    def script(request: dict[str, Any], n: int) -> Reply:
        if n == 0:
            return Reply(calls=(("multiply", {"a": 6, "b": 7}),))
        return Reply(text=f"It is {request['messages'][-1]['content']}.")

    async with OpenAIServer(script) as server, Runtime.open() as runtime:
        model = LiteLLMModel("openai/smoke", base_url=server.base_url, api_key="unused")
        result = await runtime.run(Agent(model, tools=[multiply]), "What is 6 times 7?")
    if result.output != "It is 42.":
        raise SystemExit(f"the run ended with {result.output!r}")
    print("the wheel alone: a tool call through litellm, answered:", result.output)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        anyio.run(main)
        command = [str(Path(sys.executable).with_name("agent-runtime")), "threads"]
        subprocess.run(command, check=True)
        if "config" in sys.modules or "storage" in sys.modules:
            raise SystemExit("the wheel shadows a module called config or storage")
        print("settings read:", load_settings().database_url)
