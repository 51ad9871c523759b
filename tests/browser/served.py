"""`agent-runtime serve` as a process, with a model on loopback that the test leads."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx
import orjson

from agent_runtime.testing import OpenAIServer, Reply, is_for_memory, notes_for
from tests.support.command import COMMAND, clean_environ, run_command

APP = """
import os
from pathlib import Path
from agent_runtime import Agent, App, NativeModel, tool

@tool
def look(number: int) -> str:
    '''Look at a part.'''
    return f"src/part_{number}.py: the lantern is number {number}. " + "It was seen there. " * 60

@tool(needs_approval=True)
def deploy(command: str) -> str:
    '''Deploy by a command.'''
    Path("deployed.txt").write_text(command)
    return "deployed"

model = NativeModel("openai/any", base_url=os.environ["MODEL_URL"], api_key="sk-test-0123456789",
    window=60_000)
mover = Agent(model, tools=[look, deploy], last_messages=4, max_steps=2000)
app = App(agents={"mover": mover}, name="moving")
"""
DEPLOY = "rsync -a --delete ./build/ web:/srv && echo '<b onclick=alert(1)>done</b>' \"$HOME\""
SETTINGS = {
    "AGENT_RUNTIME_OBSERVER_MESSAGE_TOKENS": "2000",
    "AGENT_RUNTIME_REFLECTOR_OBSERVATION_TOKENS": "1500",
}


@dataclass
class Lead:
    """What the model does: it looks at parts, until the prompt says "Deploy now" or "Be brief".

    Attributes:
        pause: seconds that each answer takes.
        looked: how many parts it has looked at.
    """

    pause: float = 0.02
    looked: int = 0

    def __call__(self, request: dict[str, Any], n: int) -> Reply:
        if is_for_memory(request):
            return Reply(text=notes_for(request))
        text = orjson.dumps(request["messages"]).decode()
        if "Be brief" in text.rpartition('"role":"user"')[2] or '"content":"deployed' in text:
            return Reply(text="It is done.")
        if "Deploy now" in text:
            return Reply(calls=(("deploy", {"command": DEPLOY}),))
        self.looked += 1
        return Reply(calls=(("look", {"number": self.looked}),), delay=self.pause)


@dataclass
class Served:
    """The process: its address, a token of its user, its folder, and who leads the model."""

    url: str
    token: str
    folder: Path
    lead: Lead
    client: httpx.AsyncClient

    async def start(self, task: str, thread: str) -> str:
        """Start a run; return its id."""
        body = {"task": task, "thread_id": thread}
        response = await self.client.post("/api/runs", json=body)
        assert response.status_code == 201, response.text
        return response.json()["run_id"]

    async def ended(self, run_id: str) -> dict[str, Any]:
        """Wait until a run is over or waits; return it."""
        while True:
            run = (await self.client.get(f"/api/runs/{run_id}")).json()
            if run["status"] not in ("queued", "running"):
                return run
            await anyio.sleep(0.2)


def _begun(folder: Path, environ: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, "serve", "moving:app", "--port", "0"],
        cwd=folder, env=environ, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@asynccontextmanager
async def served(folder: Path) -> AsyncGenerator[Served]:
    """Serve the application of a folder while the context lasts."""
    (folder / "moving.py").write_text(APP)
    lead = Lead()
    async with OpenAIServer(lead) as model:
        made = await anyio.to_thread.run_sync(
            lambda: run_command("tokens", "make", "ann", cwd=folder)
        )
        environ = clean_environ(SETTINGS | {"MODEL_URL": model.base_url})
        process = _begun(folder, environ)
        try:
            assert process.stderr is not None
            lines = process.stderr
            line = await anyio.to_thread.run_sync(
                lambda: next((line for line in lines if "Serving on" in line), "")
            )
            assert line, "the service did not start"
            url, token = line.split()[-1], made.stdout.strip()
            headers = {"Authorization": f"Bearer {token}"}
            async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as client:
                yield Served(url, token, folder, lead, client)
        finally:
            process.terminate()
            try:
                await anyio.to_thread.run_sync(lambda: process.wait(20))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stderr is not None:
                process.stderr.close()
