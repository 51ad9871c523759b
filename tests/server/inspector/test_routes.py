"""The inspector's routes: what they answer, to whom, and how they refuse."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from agent_runtime import Agent, Runtime, ScriptedModel, Settings, tool
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, say
from agent_runtime.server.inspector import front_parts
from tests.server.inspector.page import Page, page_of
from tests.support.stores import execute
from tests.support.worlds import Play, double


@tool
def look(number: int) -> str:
    """Look.

    Args:
        number: at what.
    """
    return f"src/part_{number}.py: the lantern is number {number}\n" + "what was seen there\n" * 60


@pytest.fixture
async def runtime(
    file_template: object, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Runtime]:
    left = iter(range(24))

    def script(request: ModelRequest) -> Scripted:
        number = next(left, None)
        return say("Done.") if number is None else call("look", number=number)

    settings = Settings(
        database_url=f"file:{tmp_path_factory.mktemp('inspector') / 'run.db'}",
        observational_memory=True,
        observer_message_tokens=1000,
        reflector_observation_tokens=500,
    )
    agent = Agent(ScriptedModel(script), tools=[look], last_messages=4)
    async with Runtime.open(settings) as opened:
        assert (await opened.run(agent, "Never touch the walrus. Find it.", thread="a/b")).ok
        yield opened


async def test_where_agrees_with_explain_and_with_each_prompt(runtime: Runtime) -> None:
    async with page_of(runtime) as page:
        _, tables = await page.steps("a/b")
        for node in tables["nodes"]["node"]:
            now = await page.get("threads/a/b/where", node=node)
            explained = await runtime.memory.explain("a/b", node)
            assert (now["form"], now["summary"]) == (explained.form, explained.summary)
            path = [one.id for one in explained.observations] if explained.active else []
            assert (now["path"], now["constraint"]) == (path, explained.constraint)
        steps = list(zip(tables["steps"]["node"], tables["steps"]["activation"], strict=True))
        for answer, activation in steps[::3]:
            prompt = await page.get("threads/a/b/prompt", activation=activation)
            raw = {one["node"] for one in prompt["parts"] if (one["node"] or answer) < answer}
            observed = {one["observation"] for one in prompt["parts"]} - {None}
            for node in tables["nodes"]["node"]:
                found = await page.get("threads/a/b/where", node=node, at=answer)
                assert (found["kind"] == "raw") == (node in raw)
                assert (found["kind"] == "future") == (node >= answer)
                assert set(found["path"][:1]) <= observed
                assert (found["last_raw"] == answer) == (node in raw)


async def test_observations_open_down_to_the_messages(runtime: Runtime) -> None:
    async with page_of(runtime) as page:
        outlines = (await page.get("threads/a/b/observations"))["observations"]
        levels = {one["id"]: one["level"] for one in outlines}
        assert max(levels.values()) >= 1
        ids = ",".join(map(str, levels))
        for one in (await page.get("threads/a/b/observations", ids=ids))["observations"]:
            assert one["lines"]
            assert one["of"] > 0
            kept = {line["text"] for line in one["lines"]}
            assert not kept & {line["text"] for line in one["left_out"]}
            assert bool(one["parts"]) == bool(one["level"])
        nodes = (await page.get("threads/a/b/nodes", **{"from": 1, "to": 9}))["nodes"]
        assert [one["seq"] for one in nodes] == list(range(1, 10))
        answer = nodes[1]
        assert answer["calls"][0]["arguments"][0]["text"] == "0"
        assert answer["calls"][0]["text"].startswith("src/part_0.py")


async def test_activations_say_what_stands_in_front(runtime: Runtime) -> None:
    async with page_of(runtime) as page:
        found = (await page.get("threads/a/b/activations"))["activations"]
        assert [one["cause"] for one in found][:2] == ["start", "observed"]
        last = found[-1]
        (whole,) = (await page.get("threads/a/b/activations", ids=last["id"]))["activations"]
        assert last.items() <= whole.items()
        assert whole["constraints"][0]["node"] == 1
        prompt = await page.get("threads/a/b/prompt", activation=last["id"])
        front = [one for one in prompt["parts"] if one["node"] is None]
        assert sum(one["tokens"] for one in front) == sum(last["parts"].values())
        assert sum(one["tokens"] for one in prompt["parts"]) == prompt["counted"]
        state = next(i for i, one in enumerate(prompt["parts"]) if one["kind"] == "state")
        text = await page.client.get(
            "threads/a/b/prompt/text", params={"activation": last["id"], "part": state}
        )
        assert text.text == prompt["parts"][state]["text"]


async def test_new_rows_are_asked_for_after_the_head(runtime: Runtime) -> None:
    async with page_of(runtime) as page:
        header, tables = await page.steps("a/b")
        half = tables["nodes"]["node"][10]
        again, more = await page.steps("a/b", after=half)
        assert not again["reset"]
        assert more["nodes"]["node"] == tables["nodes"]["node"][11:]
        assert more["steps"]["node"] == [n for n in tables["steps"]["node"] if n > half]
        assert (await page.steps("a/b", after=header["head"]))[1]["nodes"]["node"] == []
        # Another branch begins before it.
        forked, rest = await page.steps("a/b", head=half, after=header["head"])
        assert forked["reset"]
        assert rest["nodes"]["node"] == tables["nodes"]["node"][:11]


async def test_the_opening_has_the_summary_the_steps_and_the_end_of_the_log(
    runtime: Runtime,
) -> None:
    async with page_of(runtime) as page:
        for head in ({}, {"head": 11}):
            header, tables = await page.steps("a/b", **head)
            opened, same = await page.tables("a/b", "opening", **head)
            assert same == tables
            summary = await page.get("threads/a/b")
            assert opened.pop("summary") | {"at": 0} == summary | {"at": 0}
            last = opened.pop("last")
            assert opened == header
            nodes = tables["nodes"]["node"][-30:]
            query = {"from": nodes[0], "to": nodes[-1], **head}
            assert last == (await page.get("threads/a/b/nodes", **query))["nodes"]
        assert (await page.client.get("threads/none/opening")).status_code == 404
        await runtime.store_of().threads.ensure("empty")
        opened, tables = await page.tables("empty", "opening")
        assert (opened["last"], tables["nodes"]["node"]) == ([], [])


async def test_rows_of_older_versions_get_their_parts_from_the_log(runtime: Runtime) -> None:
    async with page_of(runtime) as page:
        whole = await page.client.get("threads/a/b/steps")
        assert len((await page.get("threads/a/b/activations"))["activations"]) > 2
        await execute(str(runtime.settings.database_url), "UPDATE activations SET parts = NULL")
        front_parts.forget()
        assert (await page.client.get("threads/a/b/steps")).content == whole.content


async def test_home_shows_what_waits_and_what_ended(play: Play) -> None:
    agent = Agent(tools=[tool(double.function, needs_approval=True)])
    async with (
        play([call("double", number=4), say("Done.")]) as world,
        page_of(world.runtime) as page,
    ):
        await world.run(agent, "Double 4.", thread="t")
        home = await page.get("home")
        (card,) = home["needs"]
        assert card["arguments"] == [
            {"name": "number", "text": "4", "chars": 1, "json": True, "more": False}
        ]
        (question,) = await world.runtime.questions()
        assert card["digest"] == question.digest
        assert [(line["status"], line["way_on"]) for line in home["active"]] == [
            ("suspended", "answer")
        ]
        shown = await page.get("threads/t")
        assert shown["questions"] == [card]
        _, tables = await page.steps("t")
        assert tables["steps"]["flags"] == [2 + 32]
        await world.runtime.answer(card["id"], True)
        # It waits for nobody, and does not go on by itself.
        (line,) = (await page.get("home"))["active"]
        assert line["way_on"] == (await page.get("threads/t"))["run"]["way_on"] == "resume"
        await world.resume(agent)
        home = await page.get("home")
        assert (home["needs"], home["active"]) == ([], [])
        (line,) = home["recent"]
        assert (line["status"], len(line["spark"])) == ("succeeded", 2)
        assert sum(line["spark"]) == line["prompt"]


async def test_calls_are_read_whole_and_by_range(runtime: Runtime) -> None:
    async with page_of(runtime) as page:
        path = "threads/a/b/nodes/2/calls/0"
        whole = await page.client.get(path)
        assert whole.status_code == 200
        assert whole.headers["x-content-type-options"] == "nosniff"
        some = await page.client.get(path, headers={"range": "bytes=4-9"})
        assert (some.status_code, some.content) == (206, whole.content[4:10])
        last = await page.client.get(path, headers={"range": "bytes=-5"})
        assert last.content == whole.content[-5:]
        beyond = await page.client.get(path, headers={"range": "bytes=99999999-"})
        assert beyond.status_code == 416
        given = await page.client.get(path, params={"part": "arguments"})
        assert given.json() == {"number": 0}


ROUTES = (
    "threads/{t}",
    "threads/{t}/steps",
    "threads/{t}/activations",
    "threads/{t}/activations?ids=1",
    "threads/{t}/observations",
    "threads/{t}/observations?ids=1",
    "threads/{t}/nodes?from=1&to=3",
    "threads/{t}/nodes/2/text",
    "threads/{t}/nodes/2/calls/0",
    "threads/{t}/nodes/2/calls/0?part=arguments",
    "threads/{t}/prompt?activation=1",
    "threads/{t}/prompt/text?activation=1&part=0",
    "threads/{t}/where?node=2",
)


async def test_what_is_not_the_users_is_gone(runtime: Runtime) -> None:
    async with page_of(runtime) as mine, page_of(runtime, "somebody-else") as theirs:
        for route in ROUTES:
            assert (await mine.client.get(route.format(t="a/b"))).status_code == 200, route
            for page, thread in ((mine, "none"), (theirs, "a/b"), (mine, "x" * 2000)):
                await _refused(page, route.format(t=thread), 404)
        assert (await theirs.get("home"))["recent"] == []


BAD = (
    ("home?limit=0", 400),
    ("home?limit=1000", 400),
    ("home?before=nan:x", 400),
    ("threads/a/b/steps?head=999", 404),
    ("threads/a/b/steps?head=-1", 400),
    ("threads/a/b/steps?after=99999999999999999", 400),
    ("threads/a/b/nodes", 400),
    ("threads/a/b/nodes?from=a&to=2", 400),
    ("threads/a/b/observations?ids=1,x", 400),
    ("threads/a/b/activations?ids=" + ",".join(["1"] * 51), 400),
    ("threads/a/b/nodes/2/calls/7", 404),
    ("threads/a/b/nodes/2/calls/0?part=x", 400),
    ("threads/a/b/nodes/999/text", 404),
    ("threads/a/b/nodes/99999999999999999999999/text", 404),
    ("threads/a/b/nodes/2/calls/99999999999999999999999", 404),
    # More digits than Python reads at once.
    ("threads/a/b/nodes/" + "9" * 5000 + "/text", 404),
    ("threads/a/b/nodes/2/calls/" + "9" * 5000, 404),
    ("threads/a/b/nodes/999999999/calls/999999999", 404),
    ("threads/a/b/steps?head=" + "9" * 5000, 400),
    ("threads/a/b/observations?ids=" + "9" * 5000, 400),
    ("home?before=" + "9" * 5000 + ":x", 400),
    ("threads/a/b/prompt", 400),
    ("threads/a/b/prompt?activation=999", 404),
    ("threads/a/b/prompt/text?activation=1&part=999", 404),
    ("threads/a/b/where?node=999", 404),
    ("threads/a/b/where?node=2&at=1", 404),
)


async def test_bad_requests_are_told_why(runtime: Runtime) -> None:
    async with page_of(runtime) as page:
        for path, status in BAD:
            await _refused(page, path, status)


async def _refused(page: Page, path: str, status: int) -> None:
    response = await page.client.get(path)
    assert response.status_code == status, (path, response.text[:200])
    assert response.headers["content-type"] == "application/problem+json"
    explained = response.json()
    assert explained["status"] == status
    assert explained["detail"]
    assert explained["cure"]
