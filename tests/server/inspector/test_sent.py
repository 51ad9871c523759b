"""What the inspector says was sent, against the bytes that a server on loopback received."""

from __future__ import annotations

import itertools
from typing import Any

import anyio
import orjson
import pytest

from agent_runtime import Agent, Event, tool
from agent_runtime.log import branches
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.openai_format import Dialect, messages_of
from agent_runtime.server.inspector.prompts import PromptPart, SentPrompt, prompt_under
from agent_runtime.testing import Reply, is_for_memory, notes_for
from agent_runtime_storage import UserStore
from tests.server.inspector.page import Tables, page_of
from tests.support.worlds import Serve, Served

STEPS = 14
SETTINGS = {"observer_message_tokens": 1000, "reflector_observation_tokens": 500}


@tool
def look(path: str) -> str:
    """Look at a file.

    Args:
        path: the file.
    """
    return "\n".join(f"{path}:{n}: ERROR E{n} in module_{n}.py, value={n * n}" for n in range(20))


AGENT = Agent(tools=[look], max_steps=200)


class Survey:
    """Looks at files, at two in every seventh step; each run ends after `STEPS` steps.

    It is steered in the middle of its first run.
    """

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def __call__(self, request: dict[str, Any], n: int) -> Reply:
        if is_for_memory(request):
            return Reply(text=notes_for(request))
        n = len(self.asked)
        self.asked.append(request)
        if n % STEPS == STEPS - 1:
            return Reply(text=f"Done, after {n} steps.")
        looked = [("look", {"path": f"src/part_{n}/{i}.py"}) for i in range(1 + (n % 7 == 0))]
        return Reply(text=f"Next: {n}." if n % 3 else "", calls=tuple(looked))


async def work(world: Served, survey: Survey) -> None:
    """Run twice on a thread, the first time steered; edit the second message and run again."""
    async with anyio.create_task_group() as tasks:

        def heard(event: Event) -> None:
            if event.kind == "answer" and event.data["step"] == STEPS // 2:
                text = "Never change config/prod.yaml."
                tasks.start_soon(world.runtime.steer, event.run_id, text)

        await world.runtime.run(AGENT, "Survey src.", thread="t", on_event=heard)
    await world.run(AGENT, "Never touch lib/. Survey it again.", thread="t")
    await branches.edit(world.store, "t", (await world.row()).task_id or 0)
    await world.run(AGENT, "Survey src again.", thread="t")


async def prompts_of(store: UserStore, tables: Tables, head: int | None) -> dict[int, SentPrompt]:
    """Return the prompts under each activation of a branch's steps."""
    used = dict.fromkeys(tables["steps"]["activation"])
    return {one: await prompt_under(store, "t", one, head) for one in used}


def bytes_of(part: PromptPart, known: dict[str, bytes]) -> bytes:
    """Return a message as it goes to the server."""
    assert part.message is not None
    if part.hash in known:
        return known[part.hash]
    request = ModelRequest(messages=(part.message,), tools=(), max_output=1)
    (wire,) = messages_of(request, Dialect("openai/test", "openai"))
    known[part.hash] = orjson.dumps(wire)
    return known[part.hash]


@pytest.mark.backends("file", "postgres")
async def test_every_prompt_is_made_again_byte_for_byte(serve: Serve) -> None:
    survey = Survey()
    async with serve(survey, settings=SETTINGS) as world, page_of(world.runtime) as page:
        await work(world, survey)
        heads = await world.runtime.threads.branches("t")
        assert len(heads) == 2
        made: dict[int, list[bytes]] = {}
        known: dict[str, bytes] = {}
        for head in heads:
            header, tables = await page.steps("t", head=head)
            assert header["models"] == ["openai/test"]
            prompts = await prompts_of(world.store, tables, head)
            assert len(prompts) > 2
            steps = tables["steps"]
            for node, activation in zip(steps["node"], steps["activation"], strict=True):
                parts = prompts[activation].before(node)
                made[node] = [bytes_of(one, known) for one in parts if one.message]
                _check_prefix(prompts, steps, node, made)
            _check_bands(steps)
        sent = [[orjson.dumps(one) for one in request["messages"]] for request in survey.asked]
        # Nodes are numbered as they were answered, on both branches.
        assert [made[node] for node in sorted(made)] == sent
        assert any(b"Never change config/prod.yaml" in one for one in sent[-STEPS - 1])


def _check_prefix(
    prompts: dict[int, SentPrompt],
    steps: dict[str, list[int]],
    node: int,
    made: dict[int, list[bytes]],
) -> None:
    """Compare by hashes, as the page does, and by bytes, as a provider's cache does."""
    at = steps["node"].index(node)
    if not at:
        return
    pairs = [
        [one for one in prompts[steps["activation"][i]].before(steps["node"][i]) if one.message]
        for i in (at - 1, at)
    ]
    same = _same([one.hash for one in pairs[0]], [one.hash for one in pairs[1]])
    assert same == _same(made[steps["node"][at - 1]], made[node])
    if steps["activation"][at] == steps["activation"][at - 1]:
        assert same == len(pairs[0])


def _same(one: list[Any], other: list[Any]) -> int:
    return sum(
        1
        for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    )


def _check_bands(steps: dict[str, list[int]]) -> None:
    names = ("system", "observed", "constraints", "state", "raw")
    for row in zip(steps["prompt"], *(steps[name] for name in names), strict=True):
        assert row[0] == sum(row[1:])
        assert min(row) >= 0
    assert any(steps["observed"])
    assert any(steps["constraints"])
