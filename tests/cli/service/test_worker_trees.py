"""Trees of queued runs, whose workers are killed at any moment."""

from __future__ import annotations

import random
import signal
import subprocess
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import anyio
import orjson
import pytest

from agent_runtime import Agent, Runtime, Settings
from tests.cli.service.test_worker import until, worker
from tests.support.stores import execute

APP = """
import anyio
from agent_runtime import Agent, App, Delegation, ScriptedModel, tool
from agent_runtime.models.scripted import calls, raw_call, say

PARTS = ("one", "two", "three")

@tool(idempotent=True)
async def look(part: str) -> str:
    "Look at a part."
    await anyio.sleep(0.2)
    return f"seen {part}"

def answer(request):
    answered = any(message.role == "tool" for message in request.messages)
    text = " ".join(message.text for message in request.messages)
    if any(one.name == "delegate" for one in request.tools):
        if answered:
            return say("All seen.")
        return calls(*(
            raw_call("delegate", role="looker", tools=["look"], task_key=part,
                     instructions=f"Look at part {part}.")
            for part in PARTS
        ))
    part = next(part for part in PARTS if f"part {part}" in text)
    return say(f"I saw {part}.") if answered else calls(raw_call("look", part=part))

boss = Agent(ScriptedModel(answer), tools=[look], delegation=Delegation(placement="queue"))
app = App(agents={"boss": boss}, name="mine")
"""
TREES, KILLS = 8, 6


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.backends("file", "postgres")
async def test_a_tree_ends_once_whichever_worker_dies(tmp_path: Path, database_url: str) -> None:
    (tmp_path / "mine.py").write_text(APP)
    chance = random.Random(11)
    settings = Settings(database_url=database_url)
    async with Runtime.open(settings, program="mine") as runtime:
        store = runtime.store_of()
        queued = [await runtime.enqueue(Agent(name="boss"), "Look.") for _ in range(TREES)]
        with ExitStack() as stack:
            alive: list[subprocess.Popen[str]] = []
            for _ in range(2):
                alive.append(stack.enter_context(worker(tmp_path, database_url)))
            for _ in range(KILLS):
                await anyio.sleep(chance.uniform(0.2, 1.0))
                alive.pop(0).kill()
                alive.append(stack.enter_context(worker(tmp_path, database_url)))
            for one in queued:
                await until(runtime, one.run_id)
        for one in queued:
            run = await store.runs.get(one.run_id)
            assert (run.status, run.output) == ("succeeded", b'"All seen."')
            tree = await runtime.tree(run.id)
            assert Counter(child.status for child in tree.children) == {"succeeded": 3}
            head = (await store.threads.get(run.thread_id)).head
            assert head is not None
            nodes = await store.log.branch(run.thread_id, head)
            bodies = [orjson.loads(call.body)["text"] for node in nodes for call in node.calls]
            results = [orjson.loads(body)["result"] for body in bodies]
            assert results == ["I saw one.", "I saw two.", "I saw three."]
        assert await runtime.queue.list() == []


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.backends("postgres")
async def test_sub_agents_in_the_process_of_a_worker_are_taken_over_with_their_agent(
    tmp_path: Path, database_url: str
) -> None:
    app = APP.replace('placement="queue"', 'placement="process"')
    slow = app.replace("anyio.sleep(0.2)", "anyio.sleep(600)")
    (tmp_path / "mine.py").write_text(slow)
    async with Runtime.open(Settings(database_url=database_url), program="mine") as runtime:
        store = runtime.store_of()
        one = await runtime.enqueue(Agent(name="boss"), "Look.")
        with worker(tmp_path, database_url) as stopped:
            with anyio.fail_after(60):
                while sum(run.open_node is not None for run in await store.runs.list()) < 4:  # noqa: ASYNC110
                    await anyio.sleep(0.05)
            stopped.send_signal(signal.SIGSTOP)
            # Of the agent the lease ends first, and of its sub-agents a little later.
            for which, seconds in (("IS NULL", 0), ("IS NOT NULL", 3)):
                await execute(
                    database_url,
                    "UPDATE runs SET lease_until = extract(epoch FROM now()) + :seconds "
                    f"WHERE parent_run_id {which}",
                    seconds=seconds,
                )
            (tmp_path / "mine.py").write_text(app)
            with worker(tmp_path, database_url):
                assert (await until(runtime, one.run_id)).status == "succeeded"
            tree = await runtime.tree(one.run_id)
            assert Counter(child.status for child in tree.children) == {"succeeded": 3}
            # It writes nothing more when it goes on.
            before = await store.runs.list()
            stopped.send_signal(signal.SIGCONT)
            await anyio.sleep(2)
            assert await store.runs.list() == before
