"""Agents that work with MCP servers: results, events, approvals, crashes, sub-agents."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_runtime import Agent, Decision, Delegation, McpServer, ScriptedModel
from agent_runtime.errors import ConfigError, McpServerFailed
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import calls, raw_call, say
from agent_runtime.tools.mcp.finding import CALL, FIND
from tests.support.worlds import Play
from tests.tools.calling import until
from tests.tools.mcp import killed
from tests.tools.mcp.serving import described, noted, raw, sums, sums_over_http
from tests.tools.test_shell import ended

pytestmark = pytest.mark.backends("file")


def scripted(*made: Any) -> list[Any]:
    """Return a script: a call in each answer, then the end."""
    return [*(calls(one) for one in made), say("Done.")]


async def test_a_server_of_the_sdk_on_stdio(play: Play) -> None:
    server = sums()
    script = scripted(
        raw_call("sums__add", a=1, b=2),
        raw_call("sums__count", to=3),
        raw_call("sums__read_resource", uri="note://one"),
        raw_call("sums__read_resource"),
    )
    async with play(script) as world:
        await world.run(Agent(tools=[server]), thread="t")
        results = await world.results("t")
        assert [text for _, text in results] == [
            "3", "counted", "Resource note://one:\nA note.", "note://one A note of the test.",
        ]  # fmt: skip
        _, start, *_ = (event for event in world.events if event.kind == "tool-start")
        reported = [event for event in world.events if event.kind == "tool-progress"]
        about = {"done": 0.0, "total": 3.0, "message": "counting"}
        assert reported[0].data == {"call_id": start.data["call_id"], **about}
        assert all(event.id == 0 for event in reported)


async def test_a_server_of_the_sdk_over_http(play: Play) -> None:
    async with sums_over_http() as url:
        server = McpServer("sums", url=url, headers={"X-Key": "sk-0123456789"})
        script = scripted(raw_call("sums__add", a=1, b=2), raw_call("sums__header"))
        async with play(script) as world:
            await world.run(Agent(tools=[server]), thread="t")
            # The header has arrived, and comes back without its value.
            assert [text for _, text in await world.results("t")] == ["3", "***"]
            assert b"sk-0123456789" not in world.contents()


async def test_a_server_over_http_that_is_not_there(play: Play) -> None:
    server = McpServer("gone", url="http://127.0.0.1:1/mcp")
    async with play([say("Done.")]) as world:
        with pytest.raises(McpServerFailed, match="gone cannot be used: it cannot be reached"):
            await world.run(Agent(tools=[server]))
        assert not world.events


async def test_an_image_becomes_a_file_of_the_thread(play: Play, tmp_path: Path) -> None:
    async with play(scripted(raw_call("raw__image"))) as world:
        await world.run(Agent(tools=[raw(tmp_path, "image")]), thread="t")
        [file] = await world.runtime.files.of("t")
        assert file.media_type == "image/png"


async def test_servers_end_with_the_runtime(play: Play, tmp_path: Path) -> None:
    async with play(2 * scripted(raw_call("raw__echo"))) as world:
        await world.run(Agent(tools=[raw(tmp_path, "echo")]))
        await world.run(Agent(tools=[raw(tmp_path, "echo")]))
    [pid] = noted(tmp_path, "pids")
    await ended(int(pid))


async def test_a_server_ends_with_a_killed_process(tmp_path: Path) -> None:
    raw(tmp_path, "hang")
    async with killed.started(tmp_path) as process:
        await until(lambda: noted(tmp_path, "calls"))
        process.kill()
    [pid] = noted(tmp_path, "pids")
    await ended(int(pid))


# Approvals


async def test_rules_are_about_the_tools_of_servers(play: Play, tmp_path: Path) -> None:
    server = raw(tmp_path, "read", "write")
    both = calls(raw_call("raw__read", path="/a"), raw_call("raw__write", path="/a"))
    async with play([both, say("Done.")], settings={"approve": "raw__w*:path=/a*"}) as world:
        suspended = await world.run(Agent(tools=[server]), thread="t")
        [question] = suspended.questions
        assert question.tool == "raw__write" and len(noted(tmp_path, "calls")) == 1
        await world.runtime.answer(question.id, Decision(False))
        await world.resume(Agent(tools=[server]))
    assert noted(tmp_path, "calls") == ['["read", {"path": "/a"}]']


async def test_a_server_may_ask_about_all_or_some_of_its_tools(play: Play, tmp_path: Path) -> None:
    server = raw(tmp_path, "read", "write", needs_approval=["w*"])
    both = calls(raw_call("raw__read"), raw_call("raw__write"))
    async with play([both, say("Done.")]) as world:
        suspended = await world.run(Agent(tools=[server]))
        assert [question.tool for question in suspended.questions] == ["raw__write"]


async def test_a_tool_that_changed_asks_again(play: Play, tmp_path: Path) -> None:
    agent = Agent(tools=[raw(tmp_path, "echo")])
    async with play(scripted(raw_call("raw__echo"))) as world:
        assert (await world.run(agent, thread="t")).status == "succeeded"
    raw(tmp_path, described("echo", "Now something else."))
    async with play(scripted(raw_call("raw__echo"))) as world:
        suspended = await world.run(agent, thread="t")
        [question] = suspended.questions
        assert "has changed what the tool is" in question.text and "mcp trust raw" in question.text
        assert len(noted(tmp_path, "calls")) == 1
        await world.runtime.answer(question.id, True)
        await world.resume(agent)
    assert len(noted(tmp_path, "calls")) == 2


async def test_a_tool_that_changes_during_a_run_asks_too(play: Play, tmp_path: Path) -> None:
    script = scripted(raw_call("raw__change"), raw_call("raw__wait"), raw_call("raw__change"))
    agent = Agent(tools=[raw(tmp_path, "change", "wait")])

    def listed() -> bool:
        [connection] = world.runtime.host.mcp._connections.values()  # pyright: ignore[reportPrivateUsage]
        return connection.listing.digests != connection.pins

    async def wait(event: Any) -> None:
        if event.kind == "tool-finish" and event.data["tool"] == "raw__wait":
            await until(listed)

    async with play(script) as world:
        suspended = await world.runtime.run(agent, "Work.", on_event=wait)
        assert [question.tool for question in suspended.questions] == ["raw__change"]
    assert len(noted(tmp_path, "calls")) == 2


async def test_a_changed_tool_asks_in_the_background_too(play: Play, tmp_path: Path) -> None:
    agent = Agent(tools=[raw(tmp_path, "echo")], delegation=Delegation(tools=["raw__*"]))
    async with play([say("Done.")]) as world:
        await world.run(agent)
    raw(tmp_path, described("echo", "Now something else."))
    task = raw_call("delegate", role="r", instructions="Echo.", background=True)

    def script(request: ModelRequest) -> Any:
        called = request.messages[-1].role == "tool"
        if any(tool.name == "delegate" for tool in request.tools):
            return say("Done.") if called else calls(task)
        return say("No.") if called else calls(raw_call("raw__echo"))

    async with play(script) as world:
        await world.run(agent)
        for _ in range(2000):
            if await world.runtime.questions():
                break
            await anyio.sleep(0.01)
        [question] = await world.runtime.questions()
        assert "has changed what the tool is" in question.text
        assert not noted(tmp_path, "calls")
        await world.runtime.answer(question.id, False)
        await world.runtime.host.background.wait()
    assert not noted(tmp_path, "calls")


# Many tools


def many(folder: Path, count: int = 40) -> McpServer:
    tools = [described(f"row_{n}", f"Change row {n} of the table.") for n in range(count)]
    return raw(folder, described("search", "Search the web."), *tools)


async def test_many_tools_are_found_and_called_by_two(play: Play, tmp_path: Path) -> None:
    script = scripted(
        raw_call(FIND, query="search the web"),
        raw_call(CALL, tool="raw__search", arguments={"words": "x"}),
        raw_call(CALL, tool="raw__none", arguments={}),
        raw_call(CALL, tool="raw__search", arguments=3),
        raw_call("raw__search", words="y"),
    )
    async with play(script, settings={"mcp_schema_bytes": 1000}) as world:
        await world.run(Agent(tools=[many(tmp_path)]), thread="t")
        results = await world.results("t")
        assert [outcome for outcome, _ in results] == ["ok", "ok", "error", "error", "ok"]
        first = json.loads(results[0][1].splitlines()[0])
        assert first["tool"] == "raw__search" and first["arguments"]["type"] == "object"
        assert isinstance(world.model, ScriptedModel)
        tools = [tuple(tool.name for tool in request.tools) for request in world.model.requests]
        assert set(tools) == {(FIND, CALL, "recall")}
    assert noted(tmp_path, "calls") == ['["search", {"words": "x"}]', '["search", {"words": "y"}]']


@pytest.mark.parametrize("rule", ["raw__search", "raw__search:words=x", CALL, f"{CALL}:tool=none"])
async def test_rules_see_the_tool_behind_a_call(rule: str, play: Play, tmp_path: Path) -> None:
    script = scripted(raw_call(CALL, tool="raw__search", arguments={"words": "x"}))
    agent = Agent(tools=[many(tmp_path)])
    async with play(script, settings={"mcp_schema_bytes": 1000, "approve": rule}) as world:
        suspended = await world.run(agent)
        [question] = suspended.questions
        assert (question.tool, question.arguments) == ("raw__search", {"words": "x"})
        assert not noted(tmp_path, "calls")
        await world.runtime.answer(question.id, True)
        await world.resume(agent)
    assert noted(tmp_path, "calls") == ['["search", {"words": "x"}]']


async def test_a_rule_for_other_arguments_lets_a_found_tool_run(play: Play, tmp_path: Path) -> None:
    script = scripted(raw_call(CALL, tool="raw__search", arguments={"words": "x"}))
    settings = {"mcp_schema_bytes": 1000, "approve": "raw__search:words=secret"}
    async with play(script, settings=settings) as world:
        assert (await world.run(Agent(tools=[many(tmp_path)]))).status == "succeeded"


# Sub-agents


@pytest.mark.parametrize(
    ("policy", "lazy", "given"),
    [
        (True, False, set[str]()),
        (Delegation(tools=["raw__search"]), False, {"raw__search"}),
        (Delegation(tools=["raw__s*"]), True, {"raw__search"}),
        (Delegation(tools=["raw__search"]), True, {"raw__search"}),
    ],
)
async def test_sub_agents_get_a_servers_tools_only_by_name(
    policy: Any, lazy: bool, given: set[str], play: Play, tmp_path: Path
) -> None:
    task = raw_call("delegate", role="r", instructions="Search.")
    async with play(
        [calls(task), say("Found."), say("Done.")],
        settings={"mcp_schema_bytes": 1000 if lazy else 1 << 20},
    ) as world:
        await world.run(Agent(tools=[many(tmp_path)], delegation=policy))
        assert isinstance(world.model, ScriptedModel)
        tools = {tool.name for tool in world.model.requests[1].tools}
        assert {name for name in tools if name.startswith(("raw__", "mcp_"))} == given


async def test_a_rule_for_a_server_that_is_not_there_is_a_warning(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    async with play([say("Done.")], settings={"approve": "files__write"}) as world:
        assert (await world.run(Agent())).status == "succeeded"
    assert "files__write" in caplog.text


async def test_without_the_sdk_the_error_names_the_extra(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.delitem(sys.modules, "agent_runtime.tools.mcp.connection", raising=False)
    async with play([say("Done.")]) as world:
        with pytest.raises(ConfigError) as error:
            await world.run(Agent(tools=[McpServer("s", "x")]))
    assert "agent-runtime-om[mcp]" in error.value.cure
