"""Run agents of many providers' models at a server on loopback, and print who else is asked.

A process of its own, because an audit hook cannot be removed again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, cast

import anyio

from agent_runtime import Agent, AgentRuntimeError, LiteLLMModel, Runtime, Settings, tool
from agent_runtime.testing.model_server import OpenAIServer, Reply

asked: list[str] = []
server_port = 0


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname"):
        return
    address: Any = arguments[1] if event == "socket.connect" else arguments[:2]
    host: Any = address
    port: Any = None
    if isinstance(address, tuple):
        host, port, *_ = (*cast("tuple[Any, ...]", address), None)
    if host not in ("127.0.0.1", "localhost", "::1") or int(port or 0) != server_port:
        asked.append(f"{event} {host}:{port}")
        raise OSError(f"{host}:{port} is not the model's server")


@tool
def read(path: str) -> str:
    """Read a file."""
    return f"The text of {path}."


async def main(folder: str, names: list[str]) -> None:
    """Run an agent for each name."""
    global server_port

    def script(request: dict[str, Any], n: int) -> Reply:
        if any(message["role"] == "tool" for message in request["messages"]):
            return Reply(text="Done.")
        return Reply(text="I read.", calls=(("read", {"path": "a"}),))

    ended: dict[str, str] = {}
    async with OpenAIServer(script) as server:
        server_port = int(server.base_url.split(":")[2].split("/")[0])
        sys.addaudithook(_hook)
        settings = Settings(database_url=f"file:{Path(folder) / 'runs.db'}", max_steps=5)
        async with Runtime.open(settings) as runtime:
            for name in names:
                model = LiteLLMModel(
                    name, base_url=server.base_url, api_key="sk-of-this-test", retries=0
                )
                try:
                    result = await runtime.run(Agent(model, tools=[read]), "Read a.")
                    ended[name] = result.status
                except AgentRuntimeError as error:
                    ended[name] = type(error).__name__
    print(json.dumps({"asked": asked, "ended": ended}))


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2:])
