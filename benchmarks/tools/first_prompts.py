"""Count the bytes of the first request of a task on files: each preset's, and that of a peer.

The requests are those that arrive at a server on loopback, without keys and in an empty folder
with a repository.  deepagents brings tools for files of its own; the other peers of the comparison
bring none.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import orjson

from agent_runtime import LiteLLMModel, Runtime, Settings
from agent_runtime.cli.agents import Spec, build_agent
from agent_runtime.testing.model_server import OpenAIServer, Reply
from benchmarks.frame import Report, at_most
from benchmarks.peers.environments import PEERS, Environments, Missing, default_folder

TASK = "Say hello."
MOST_BYTES = 6 * 1024
"""The most bytes of the schemas of the preset `coding`."""
PRESETS: tuple[tuple[str, bool], ...] = (
    ("coding", False),
    ("coding", True),
    ("coding,apply_patch", True),
    ("reading", False),
    ("minimal", True),
)
"""Names, and whether with the shell (and `ask_user`, where there is more than the shell)."""

_DEEPAGENTS = """
import sys
from deepagents import create_deep_agent
from deepagents.backends import {backend}
from langchain_openai import ChatOpenAI

model = ChatOpenAI(model="gpt-5-mini", base_url=sys.argv[1], api_key="none", max_retries=0)
agent = create_deep_agent(model, backend={backend}(root_dir=sys.argv[2]))
agent.invoke({{"messages": [{{"role": "user", "content": "Say hello."}}]}})
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--no-peers", action="store_true", help="measure this runtime alone")


def run(args: argparse.Namespace) -> Report:
    """Measure."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "work"
        folder.mkdir()
        subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
        rows = anyio.run(_measured, folder, Path(scratch) / "data.db", not args.no_peers)
    [small] = [row for row in rows if row["what"] == "coding"]
    target = at_most("schemas of coding", small["schemas"], MOST_BYTES, "bytes")
    return Report("first_prompts", rows, [target])


async def _measured(folder: Path, database: Path, peers: bool) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    async with OpenAIServer(lambda request, n: Reply("Hello.")) as server:
        async with Runtime.open(Settings(database_url=f"file:{database}")) as runtime:
            for preset, shell in PRESETS:
                asks = shell and preset != "minimal"
                spec = Spec("openai/x", str(folder), allow_shell=shell, asking=asks, tools=preset)
                model = LiteLLMModel("openai/x", base_url=server.base_url, api_key="none")
                await runtime.run(replace(build_agent(spec), model=model), TASK)
                more = f"{', shell' * shell}{', ask_user' * asks}"
                rows.append(_row(preset + more, server.requests[-1].json))
        for backend in ("FilesystemBackend", "LocalShellBackend") if peers else ():
            before = len(server.requests)
            program = _DEEPAGENTS.format(backend=backend)
            await anyio.to_thread.run_sync(_peer, program, server.base_url, folder)
            if len(server.requests) > before:
                rows.append(_row(f"deepagents, {backend}", server.requests[before].json))
    return rows


def _peer(program: str, url: str, folder: Path) -> None:
    [peer] = [one for one in PEERS if one.name == "deepagents"]
    try:
        python = Environments(default_folder()).python(peer)
    except Missing as error:
        print(error)
        return
    subprocess.run([python, "-c", program, url, str(folder)], check=False, timeout=120)


def _row(what: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return the sizes of a request: of its schemas, the rest of its prompt, and both."""
    tools: list[dict[str, Any]] = request.get("tools") or []
    # Without the wrapper that only this wire has around each.
    schemas = sum(len(orjson.dumps(one.get("function", one))) for one in tools)
    messages = len(orjson.dumps(request["messages"]))
    return {
        "what": what,
        "tools": len(tools),
        "schemas": schemas,
        "messages": messages,
        "bytes": schemas + messages,
    }
