"""Files of servers: their form, variables, trust, and whose definitions count."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from agent_runtime import McpServer, mcp_servers
from agent_runtime.errors import ConfigError
from agent_runtime.tools.mcp import records
from agent_runtime.tools.mcp.config import ServerEntry, find_entries, plain_name, user_file
from agent_runtime_config.state import state_folder

SECRET = "sk-0123456789"


def write(path: Path, **servers: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


def project(folder: Path, **servers: Any) -> Path:
    write(folder / ".mcp.json", **servers)
    return folder


def test_the_form_of_other_clients_is_read(tmp_path: Path) -> None:
    local = {
        "command": "npx",
        "args": ["-y", "server", "${ROOT:-/tmp}"],
        "env": {"API_TOKEN": "${TOKEN}"},
        "autoApprove": ["*"],
        "cwd": "/",
    }
    far = {"type": "http", "url": "https://${HOST}/mcp", "headers": {"Authorization": "B ${TOKEN}"}}
    path = write(tmp_path / "servers.json", files=local, docs=far, off={"disabled": True})
    files, docs = mcp_servers(path, environ={"TOKEN": SECRET, "HOST": "example.com"})
    assert (files.name, files.command, files.args) == ("files", "npx", ["-y", "server", "/tmp"])
    assert files.env == {"API_TOKEN": SECRET} and files.needs_approval is False
    assert (docs.url, docs.headers) == ("https://example.com/mcp", {"Authorization": f"B {SECRET}"})
    assert SECRET not in repr([files, docs])


def test_the_setting_is_json_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "servers.json", a={"command": "x"})
    for value in (path.read_text(), str(path)):
        monkeypatch.setenv("AGENT_RUNTIME_MCP_SERVERS", value)
        [server] = mcp_servers()
        assert isinstance(server, McpServer) and server.name == "a"


WRONG: dict[str, tuple[str, str]] = {
    "no JSON": ("{", "is no JSON"),
    "no servers": ("[]", "no object `mcpServers`"),
    "no object": ('{"mcpServers": {"a": 3}}', "not an object"),
    "deep": ('{"mcpServers": {"a": {"x": ' + "[" * 1000 + "]" * 1000 + "}}}", "levels"),
    "misspelt": ('{"mcpServers": {"a": {"command": "x", "denny": ["*"]}}}', "not known"),
    "a number": ('{"mcpServers": {"a": {"command": 3}}}', "wrong command"),
    "neither": ('{"mcpServers": {"a": {}}}', "neither a command"),
    "old transport": ('{"mcpServers": {"a": {"type": "sse", "url": "http://x"}}}', "'sse'"),
    "one name": ('{"mcpServers": {"a b": {"command": "x"}, "a_b": {"command": "x"}}}', "called"),
    "no variable": ('{"mcpServers": {"a": {"command": "${NO_SUCH_ONE}"}}}', "NO_SUCH_ONE"),
    "a NUL": ('{"mcpServers": {"a": {"command": "x\\u0000"}}}', "NUL"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_with_its_place(name: str, tmp_path: Path) -> None:
    text, problem = WRONG[name]
    (tmp_path / "servers.json").write_text(text)
    with pytest.raises(ConfigError) as error:
        mcp_servers(tmp_path / "servers.json", environ={})
    assert problem in error.value.message and error.value.cure


def test_a_pipe_in_the_place_of_the_file_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".mcp.json")
    with pytest.raises(ConfigError, match="cannot be read"):
        find_entries(tmp_path)


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_bytes(b" " * ((1 << 20) + 1))
    with pytest.raises(ConfigError, match="more than"):
        find_entries(tmp_path)


def test_a_workspaces_server_is_not_trusted_until_the_user_says_so(tmp_path: Path) -> None:
    [entry] = find_entries(project(tmp_path / "a", tool={"command": "x", "args": ["1"]}))
    with pytest.raises(ConfigError, match="you have not said") as error:
        entry.server()
    assert "agent-runtime mcp trust tool" in error.value.cure
    entry.trust()
    server = entry.server()
    assert server.command == "x" and server.cwd == tmp_path / "a"
    [again] = find_entries(tmp_path / "a")
    assert again.trusted and again.distrust() and not again.trusted


@pytest.mark.parametrize("change", [{"args": ["2"]}, {"env": {"A": "b"}}, {"allow": ["*", "x"]}])
def test_trust_ends_with_any_change(change: dict[str, Any], tmp_path: Path) -> None:
    [entry] = find_entries(project(tmp_path, tool={"command": "x", "args": ["1"]}))
    entry.trust()
    [changed] = find_entries(project(tmp_path, tool={"command": "x", "args": ["1"]} | change))
    assert not changed.trusted


def test_trust_is_for_one_folder(tmp_path: Path) -> None:
    [here] = find_entries(project(tmp_path / "a", tool={"command": "./x"}))
    here.trust()
    [there] = find_entries(project(tmp_path / "b", tool={"command": "./x"}))
    assert not there.trusted


def test_no_workspace_replaces_a_server_of_the_user(tmp_path: Path) -> None:
    own = user_file()
    assert own is not None
    write(own, tool={"command": "mine"})
    found = find_entries(project(tmp_path, TOOL={"command": "theirs"}, other={"command": "x"}))
    assert [(one.name, one.origin) for one in found] == [("tool", "user"), ("other", "workspace")]


def test_a_file_in_the_workspace_is_its_own_however_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "work" / "servers.json", tool={"command": "x"})
    (tmp_path / "link").symlink_to(tmp_path / "work")
    monkeypatch.setenv("AGENT_RUNTIME_MCP_SERVERS", str(tmp_path / "link" / "servers.json"))
    assert [one.trusted for one in find_entries(tmp_path / "work")] == [False]
    assert [one.trusted for one in find_entries(tmp_path)] == [False]
    assert [one.trusted for one in find_entries(tmp_path / "else", path)] == [True]


def test_records_are_private_and_a_broken_one_is_no_trust(tmp_path: Path) -> None:
    entry = ServerEntry("a", {"command": "x"}, "workspace", tmp_path / ".mcp.json")
    entry.trust()
    [path] = (state_folder() / "mcp" / "trusted").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.write_text("{")
    assert not entry.trusted


def test_the_first_definitions_are_kept_and_a_broken_record_asks() -> None:
    assert records.pinned("k", {"a": "1"}) == {"a": "1"}
    assert records.pinned("k", {"a": "2"}) == {"a": "1"}
    [path] = (state_folder() / "mcp" / "pins").iterdir()
    path.write_text("{")
    assert records.pinned("k", {"a": "2"}) == {}


def test_a_state_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (state_folder().parent).mkdir(parents=True, exist_ok=True)
    state_folder().write_text("a file")
    with pytest.raises(ConfigError, match="cannot be recorded"):
        records.pinned("k", {})


@pytest.mark.parametrize(
    ("given", "plain"),
    [("Sentry Prod", "Sentry_Prod"), ("a__b", "a_b"), ("1st", "s_1st"), ("x" * 40, "x" * 32)],
)
def test_names_of_other_clients_become_ours(given: str, plain: str) -> None:
    assert plain_name(given) == plain
    McpServer(plain, "x")
