"""Sub-agents in the queue: begun by any worker, waited for without a slot, each result once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import anyio
import orjson
import pytest

from agent_runtime import Agent, App, Delegation, Runtime, ScriptedModel, Settings, tool
from agent_runtime.errors import ModelRejected
from agent_runtime.models.base import ModelAnswer, ModelRequest
from agent_runtime.models.scripted import Scripted, calls, raw_call, say
from agent_runtime_storage import Run
from tests.delegation.helpers import is_child, step
from tests.run.process.working import over, until, working

PARTS = ("one", "two", "three")


@pytest.fixture
def settings(database_url: str) -> Settings:
    """Settings with the test's own database."""
    return Settings(database_url=database_url, observational_memory=False, pause_timeout=30)


def delegating(*parts: str, **more: Any) -> ModelAnswer:
    """Return an answer that delegates a task for each of these parts."""
    one = {"role": "looker", "tools": ["look"], **more}
    return calls(
        *(
            raw_call("delegate", **one, instructions=f"Look at part {part}.", task_key=part)
            for part in parts
        )
    )


class Place:
    """An application whose agent delegates, and what its sub-agents did."""

    def __init__(self, *script: ModelAnswer, approve: bool = False, **policy: Any) -> None:
        self.looked = Counter[str]()
        self.script = script

        async def look(part: str) -> str:
            """Look at a part."""
            self.looked[part] += 1
            return f"seen {part}"

        delegation = Delegation(placement="queue", **policy)
        agent = Agent(
            ScriptedModel(self._answer), delegation=delegation,
            tools=[tool(look, idempotent=False, needs_approval=approve)],
        )  # fmt: skip
        self.app = App(agents={"boss": agent}, name="parts", version="3")

    def _answer(self, request: ModelRequest) -> Scripted:
        number = step(request)
        if not is_child(request):
            return self.script[number]
        part = next(
            one for one in PARTS if any(f"part {one}" in m.text for m in request.messages)
            or f"part {one}" in request.messages[0].text
        )  # fmt: skip
        return say(f"I saw {part}.") if number else calls(raw_call("look", part=part))


async def results(runtime: Runtime, run: Run) -> list[dict[str, Any]]:
    """Return the outcomes that a run's model read, in the order of its calls."""
    store = runtime.store_of()
    nodes = await store.log.branch(
        run.thread_id, (await store.threads.get(run.thread_id)).head or 0
    )
    bodies = [orjson.loads(one.body) for node in nodes for one in node.calls]
    return [orjson.loads(body["text"]) for body in bodies]


async def test_a_tree_is_worked_off_by_two_workers_of_one_slot(settings: Settings) -> None:
    place = Place(delegating(*PARTS), say("All seen."))
    async with Runtime.open(settings) as first, Runtime.open(settings) as second:
        queued = await first.enqueue(place.app.named("boss"), "Look.", app=place.app)
        async with (
            working(first, place.app, concurrency=1),
            working(second, place.app, concurrency=1),
        ):
            run = await until(first, queued.run_id, over)

        assert (run.status, run.output) == ("succeeded", b'"All seen."')
        assert place.looked == dict.fromkeys(PARTS, 1)
        found = await results(first, run)
        assert [one["task_key"] for one in found] == list(PARTS)
        assert [one["result"] for one in found] == [f"I saw {part}." for part in PARTS]
        assert await first.queue.list() == []
        # Suspended once, woken once.
        kinds = Counter(one.kind for one in await first.store_of().events.list(run.thread_id))
        assert kinds["run-start"] == 2
        tree = await first.tree(run.id)
        assert [one.status for one in tree.children] == ["succeeded"] * 3
        assert all(one.parent_run_id == run.id for one in tree.children)


async def test_a_resume_leaves_background_sub_agents_in_the_queue(settings: Settings) -> None:
    at_work, go_on, away = anyio.Event(), anyio.Event(), True

    async def answer(request: ModelRequest) -> Scripted:
        if not step(request):
            return delegating("one", background=True, tools=[])
        if away:
            at_work.set()
            await go_on.wait()
            return ModelRejected("The request is refused.")
        return say("It will be seen.")

    agent = Agent(ScriptedModel(answer), delegation=Delegation(placement="queue"))
    app = App(agents={"boss": agent}, name="parts", version="3")
    async with Runtime.open(settings) as runtime:
        queued = await runtime.enqueue(app.named("boss"), "Look.", app=app)
        async with working(runtime, app, concurrency=1):
            await at_work.wait()
        # Nobody works on the queue any more, so the sub-agent still waits there.
        go_on.set()
        await until(runtime, queued.run_id, over)
        away = False
        result = await runtime.resume(queued.run_id, agent)
        assert result.output == "It will be seen."
        tree = await runtime.tree(queued.run_id)
        assert [one.status for one in tree.children] == ["queued"]
