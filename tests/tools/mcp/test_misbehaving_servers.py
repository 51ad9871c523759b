"""Servers that do not start, die, hang, flood, lie and talk of secrets."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_runtime import McpServer
from agent_runtime.errors import ConfigError, McpServerFailed
from agent_runtime.tools.base import Tool
from agent_runtime.tools.mcp import bounds, connection, stdio
from agent_runtime.tools.mcp.definitions import definitions_of, tool_name
from agent_runtime.tools.mcp.pool import McpConnections, holding
from tests.tools.calling import call, context, until
from tests.tools.mcp.serving import described, noted, opened, raw
from tests.tools.test_shell import ended

SECRET = "sk-0123456789"


def nested(levels: int) -> dict[str, Any]:
    """Return a schema of objects in objects."""
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


LIES: dict[str, tuple[Any, str]] = {
    "no object": ({"type": "array"}, "no schema of an object"),
    "not JSON schema": ({"type": "object", "properties": 3}, "not valid"),
    "huge": ({"type": "object", "description": "x" * 100_000}, "bytes"),
    "deep": (nested(60), "levels"),
    "other document": ({"type": "object", "properties": {"a": {"$ref": "http://x/y"}}}, "else"),
    "nothing there": ({"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}}, "else"),
    "itself": ({"type": "object", "properties": {"a": {"$ref": "#"}}}, "refers to itself"),
    "a circle": (
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/a"}},
            "$defs": {
                "a": {"properties": {"b": {"$ref": "#/$defs/b"}}},
                "b": {"items": {"$ref": "#/$defs/a"}},
            },
        },
        "refers to itself",
    ),
    "many references": (
        {"type": "object", "allOf": [{"$ref": f"#/$defs/{n}"} for n in range(300)]},
        "references",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lying_schema_is_refused_with_its_server_and_tool(lie: str) -> None:
    schema, why = LIES[lie]
    server = McpServer("liar", "x")
    tool = {"name": "odd", "inputSchema": schema}
    with pytest.raises(McpServerFailed, match=why) as error:
        definitions_of(server, [described("fine"), tool])
    assert "'odd' of the MCP server liar" in error.value.message and "deny" in error.value.cure
    [kept] = definitions_of(McpServer("liar", "x", deny=["odd"]), [described("fine"), tool])
    assert kept.spec.name == "liar__fine"


def test_a_schema_may_share_definitions() -> None:
    shared = {"properties": {"a": {"$ref": "#/$defs/n"}, "b": {"$ref": "#/$defs/n"}}}
    schema = {"type": "object", **shared, "$defs": {"n": {"type": "number"}}}
    [one] = definitions_of(McpServer("s", "x"), [{"name": "t", "inputSchema": schema}])
    assert one.spec.parameters["$defs"] == {"n": {"type": "number"}}


def test_names_are_valid_for_every_provider_and_stay_apart() -> None:
    assert tool_name("files", "read_file") == "files__read_file"
    odd = {tool_name("s", name) for name in ("a.b", "a/b", "a b", "ä" * 80, "x" * 80, "x" * 81)}
    assert len(odd) == 6
    assert all(len(one) <= 64 and one.isascii() and "." not in one for one in odd)


def test_descriptions_have_no_hidden_characters() -> None:
    hidden = "Adds.\u202e\x1b[2J\u200b Fine."
    [one] = definitions_of(McpServer("s", "x"), [described("t", hidden)])
    assert one.spec.description == "Adds.[2J Fine."


@pytest.mark.parametrize(
    "options", [{}, {"url": "ftp://x"}, {"url": "http://far/", "headers": {"A": "b"}},
                {"command": "x", "url": "http://y"}, {"command": "x", "timeout": 0}],
)  # fmt: skip
def test_a_definition_that_cannot_work_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        McpServer("s", **options)


async def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(McpServerFailed, match="nosuch: No such file"):
        async with opened(McpServer("s", "nosuch")):
            pass


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("dies", "its program ended"),
        ("endless", "lists more than"),
        ("chatters", "something else"),
        ("silent", "within 0.5 s. Try again, or give it more seconds by `startTimeout`"),
    ],
)
async def test_a_server_that_does_not_start_says_why(how: str, why: str, tmp_path: Path) -> None:
    environment = {"API_TOKEN": SECRET}
    # Long enough for the two that fail by themselves.
    limit = 0.5 if how == "silent" else 60
    server = raw(tmp_path, "echo", how=how, start_timeout=limit, env=environment)
    with pytest.raises(McpServerFailed, match=why) as error:
        async with opened(server):
            pass
    assert "MCP server raw" in error.value.message and SECRET not in str(error.value)
    if how == "dies":
        assert "It wrote: bad token ***" in error.value.message
    for pid in noted(tmp_path, "pids"):
        await ended(int(pid))


async def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(McpServerFailed, match=r"No such file or directory \(.*/nowhere\)"):
        async with opened(raw(tmp_path, cwd=tmp_path / "nowhere")):
            pass


async def test_a_server_that_dies_is_started_again(tmp_path: Path) -> None:
    async with opened(raw(tmp_path, "die", "echo")) as tools:
        died = await call(tools["raw__die"])
        assert died.outcome == "interrupted" and "unverified" in died.text
        assert (await call(tools["raw__echo"], a=1)).text == '{"a": 1}'
    assert len(noted(tmp_path, "pids")) == 2


async def test_a_server_that_keeps_dying_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "FIRST_PAUSE", 0.0)
    async with opened(raw(tmp_path, "die")) as tools:
        # As if a run held it: a connection that nobody holds may end.
        with holding(tools.values()):
            (tmp_path / "how").write_text("dies")
            texts = [(await call(tools["raw__die"])).text for _ in range(8)]
    assert "ended" in texts[-1]
    assert len(noted(tmp_path, "pids")) == connection.MAX_FAILURES


async def test_a_tool_that_changed_since_it_was_checked_is_not_called(tmp_path: Path) -> None:
    async with opened(raw(tmp_path, "echo", "die")) as tools:
        await call(tools["raw__die"])
        raw(tmp_path, described("echo", "Something else."), "die")
        # The server is started again by this call, after the rules have looked at the old tool.
        result = await call(tools["raw__echo"])
        assert result.outcome == "error" and "just changed" in result.text
        assert noted(tmp_path, "calls") == ['["die", {}]']


async def test_a_tool_that_changes_as_its_server_dies_is_not_called(tmp_path: Path) -> None:
    async with opened(raw(tmp_path, "echo", "change")) as tools:
        (tmp_path / "how").write_text("dies listing")
        await call(tools["raw__change"])
        # The call waits for the list, and the server dies instead of giving it.
        result = await call(tools["raw__echo"])
        assert result.outcome == "error" and "just changed" in result.text
        assert noted(tmp_path, "calls") == ['["change", {}]']


async def test_a_server_that_dies_in_each_call_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "FIRST_PAUSE", 0.0)
    async with opened(raw(tmp_path, "die")) as tools:
        with holding(tools.values()):
            texts = [(await call(tools["raw__die"])).text for _ in range(8)]
    assert "was lost" in texts[-1]
    assert len(noted(tmp_path, "pids")) == connection.MAX_FAILURES


async def test_a_slow_call_is_bounded_and_the_server_told(tmp_path: Path) -> None:
    async with opened(raw(tmp_path, "hang", "echo")) as tools:
        result = await tools["raw__hang"].call({}, context(timeout=0.2))
        assert result.outcome == "interrupted" and "0.2 s" in result.text
        await until(lambda: noted(tmp_path, "cancelled"))
        assert (await call(tools["raw__echo"])).text == "{}"
    assert len(noted(tmp_path, "pids")) == 1


async def test_a_cancelled_call_is_cancelled_on_the_server(tmp_path: Path) -> None:
    async with opened(raw(tmp_path, "hang")) as tools, anyio.create_task_group() as group:
        group.start_soon(call, tools["raw__hang"])
        await until(lambda: noted(tmp_path, "calls"))
        group.cancel_scope.cancel()
    await until(lambda: noted(tmp_path, "cancelled"))


async def test_a_server_that_reads_nothing_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "LEAVE_SECONDS", 0.1)
    async with opened(raw(tmp_path, "deaf", "echo")) as tools:
        for name, text in (("raw__deaf", ""), ("raw__echo", "x" * 500_000)):
            result = await tools[name].call({"text": text}, context(timeout=0.2))
            assert result.outcome == "interrupted"
    await ended(int(noted(tmp_path, "pids")[0]))


@pytest.mark.parametrize("how", ["flood", "notices", "requests"])
async def test_a_flood_ends_the_connection(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MAX_NOTICES", 500)
    monkeypatch.setattr(stdio, "MAX_MESSAGE_BYTES", 1 << 20)
    async with opened(raw(tmp_path, how, "echo")) as tools:
        result = await call(tools[f"raw__{how}"])
        assert result.outcome == "interrupted"
        assert ("at once" if how == "flood" else "without an end") in result.text
        await ended(int(noted(tmp_path, "pids")[0]))
        assert (await call(tools["raw__echo"])).text == "{}"


async def test_pings_over_a_long_time_are_no_flood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MAX_REQUESTS", 5)
    monkeypatch.setattr(bounds, "REQUEST_SECONDS", 0.0)
    async with opened(raw(tmp_path, "pings")) as tools:
        assert (await call(tools["raw__pings"])).outcome == "ok"


async def test_lines_that_are_no_messages_are_skipped(tmp_path: Path) -> None:
    async with opened(raw(tmp_path, "noise")) as tools:
        assert (await call(tools["raw__noise"])).outcome == "ok"


async def test_a_failure_that_a_tool_reports_is_an_error_result(tmp_path: Path) -> None:
    async with opened(raw(tmp_path, "fail")) as tools:
        result = await call(tools["raw__fail"])
        assert (result.outcome, result.text) == ("error", "no such row")


async def test_secrets_stay_out_of_results_logs_and_reprs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server = raw(tmp_path, "secret", env={"API_TOKEN": SECRET})
    async with opened(server) as tools:
        assert (await call(tools["raw__secret"])).text == "***"
    assert SECRET not in caplog.text + repr(server)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--api-key", SECRET],
        [f"--token={SECRET}"],
        ["-e", f"API_KEY={SECRET}"],
        ["--header", f"Authorization: Bearer {SECRET}"],
        [f"postgresql://me:{SECRET}@host/db"],
    ],
)
async def test_secret_arguments_stay_out_of_errors(arguments: list[str], tmp_path: Path) -> None:
    server = raw(tmp_path, "complain")
    server = replace(server, args=[*server.args, *arguments])
    async with opened(server) as tools:
        text = (await call(tools["raw__complain"])).text
    assert "cannot use" in text and "***" in text and SECRET not in text


async def test_a_program_gets_no_other_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("AGENT_RUNTIME_DATABASE_URL", "file:x")
    async with opened(raw(tmp_path, "environment", env={"MINE": "1"})) as tools:
        names = (await call(tools["raw__environment"])).text.split()
    assert {"MINE", "PATH", "HOME"} <= set(names)
    assert not {name for name in names if "KEY" in name or name.startswith("AGENT_RUNTIME_")}


async def test_what_the_user_does_not_allow_is_not_there(tmp_path: Path) -> None:
    server = raw(tmp_path, "read_a", "read_b", "write", allow=["read_*"], deny=["*_b"])
    async with opened(server) as tools:
        assert list(tools) == ["raw__read_a"]


async def test_what_one_agent_may_do_another_may_not(tmp_path: Path) -> None:
    connections = McpConnections(1 << 20)
    server = raw(tmp_path, "read", "write")
    found = [
        [tool.name for tool in await connections.tools_of([one], "user") if isinstance(tool, Tool)]
        for one in (server, replace(server, deny=["write"]))
    ]
    await connections.close()
    assert found == [["raw__read", "raw__write"], ["raw__read"]]


async def test_only_the_user_says_what_may_run_again(tmp_path: Path) -> None:
    hints = {"readOnlyHint": True, "idempotentHint": True}
    hinted = {**described("hinted"), "annotations": hints}
    async with opened(raw(tmp_path, hinted, "said", idempotent=["said"])) as tools:
        assert [tool.idempotent for tool in tools.values()] == [False, True]
        assert list(tools) == ["raw__hinted", "raw__said"]


async def test_two_owners_have_two_servers(tmp_path: Path) -> None:
    connections = McpConnections(1 << 20)
    server = raw(tmp_path, "echo")
    for user in ("anna", "ben", "anna"):
        await connections.tools_of([server], user)
    await connections.close()
    assert len(noted(tmp_path, "pids")) == 2
    for pid in noted(tmp_path, "pids"):
        await ended(int(pid))


def test_two_servers_of_one_name_are_refused(tmp_path: Path) -> None:
    async def tools() -> None:
        await McpConnections(1).tools_of([raw(tmp_path), McpServer("RAW", "x")], "user")

    with pytest.raises(ConfigError, match="Two MCP servers are called 'raw'"):
        anyio.run(tools)
