"""`agent-runtime mcp`, and runs with the servers that it defines."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_runtime.cli import exit_codes as exits
from agent_runtime.testing.model_server import Reply
from agent_runtime.tools.mcp.config import user_file
from tests.cli.screen import at_terminal
from tests.cli.test_runs import HELLO, Machine
from tests.cli.test_runs import machine as machine
from tests.tools.mcp import raw_server
from tests.tools.mcp.serving import SDK_SERVER, described, noted, raw

ECHO = Reply(calls=(("tool__echo", {"a": 1}),))


def command(folder: Path) -> list[str]:
    raw(folder, "echo")
    return [sys.executable, "-I", "-S", raw_server.__file__, str(folder)]


def define(machine: Machine, **more: Any) -> Path:
    """Define a server in the machine's folder."""
    (machine.folder / "server").mkdir()
    program, *args = command(machine.folder / "server")
    servers = {"mcpServers": {"tool": {"command": program, "args": args} | more}}
    (machine.folder / ".mcp.json").write_text(json.dumps(servers))
    return machine.folder / "server"


def script(machine: Machine) -> None:
    def answer(request: dict[str, Any], n: int) -> Reply:
        return HELLO if any(one["role"] == "tool" for one in request["messages"]) else ECHO

    machine.script = answer


def test_a_definition_that_is_not_usable_is_neither_asked_about_nor_started(
    machine: Machine,
) -> None:
    servers = {"a": {"comand": "echo"}, "b": {}}
    (machine.folder / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    rows = machine.invoke("mcp", "list").stdout.splitlines()
    assert "not usable" in rows[0] and "Did you mean 'command'?" in rows[0]
    assert "neither a command nor a URL" in rows[1]
    for arguments in (("mcp", "trust", "--yes", "b"), ("mcp", "test", "b")):
        refused = machine.invoke(*arguments)
        assert refused.exit_code == exits.USAGE and "neither a command" in refused.stderr


def test_what_was_typed_before_a_question_of_trust_does_not_answer_it(machine: Machine) -> None:
    define(machine)
    script(machine)
    with at_terminal(machine.folder, machine.environ, "run", "Go.", "--workspace", ".") as screen:
        os.write(screen.master, b"y\r")
        screen.until("whenever it is defined like this? [y/N]:")
        os.write(screen.master, b"n\r")
        while screen.process.poll() is None:
            screen.read()
    assert noted(machine.folder / "server", "calls") == []


def test_a_server_of_ones_own_is_added_tried_used_and_removed(machine: Machine) -> None:
    (machine.folder / "server").mkdir()
    added = machine.invoke(
        "mcp", "add", "--env", "API_TOKEN=${KEY:-none}", "tool", *command(machine.folder / "server")
    )
    assert added.exit_code == 0, added.stderr
    own = user_file()
    assert own is not None and stat.S_IMODE(own.stat().st_mode) == 0o600
    [row] = [json.loads(one) for one in machine.invoke("mcp", "list", "--json").stdout.splitlines()]
    assert (row["name"], row["state"], row["origin"]) == ("tool", "trusted", "user")
    tried = machine.invoke("mcp", "test", "tool")
    assert tried.stdout.startswith("tool__echo")
    assert tried.stderr == "Starting tool, which may take 30 s.\n"
    script(machine)
    done = machine.invoke("run", "Echo.", "--workspace", ".")
    assert done.exit_code == 0, done.stderr
    assert noted(machine.folder / "server", "calls") == ['["echo", {"a": 1}]']
    again = machine.invoke("mcp", "add", "tool", "x")
    assert again.exit_code == exits.USAGE and "agent-runtime mcp remove tool" in again.stderr
    elsewhere = machine.invoke("mcp", "remove", "--project", "tool")
    assert elsewhere.exit_code == exits.USAGE
    assert f"{own} does: remove it without --project." in elsewhere.stderr
    removed = machine.invoke("mcp", "remove", "tool")
    assert removed.exit_code == 0 and f"tool is removed from {own}." in removed.stderr
    listed = machine.invoke("mcp", "list")
    assert listed.stdout == "" and "agent-runtime mcp add NAME COMMAND" in listed.stderr


def test_a_workspaces_server_waits_for_trust(machine: Machine) -> None:
    folder = define(machine)
    script(machine)
    refused = machine.invoke("run", "Echo.", "--workspace", ".")
    assert refused.exit_code == exits.USAGE
    assert "agent-runtime mcp trust tool" in refused.stderr and "--no-mcp" in refused.stderr
    assert machine.invoke("mcp", "test", "tool").exit_code == exits.USAGE
    assert not noted(folder, "pids") and not machine.server.requests
    assert machine.invoke("run", "Hi.", "--workspace", ".", "--no-mcp").exit_code == 0
    unasked = machine.invoke("mcp", "trust", "tool")
    assert unasked.exit_code == exits.USAGE and "--yes" in unasked.stderr
    trusted = machine.invoke("mcp", "trust", "tool", "--yes")
    assert trusted.exit_code == 0 and raw_server.__file__ in trusted.stderr
    assert not noted(folder, "pids")
    assert machine.invoke("run", "Echo.", "--workspace", ".").exit_code == 0
    assert len(noted(folder, "calls")) == 1
    # What was trusted is not what is there now.
    text = (machine.folder / ".mcp.json").read_text()
    (machine.folder / ".mcp.json").write_text(text.replace('"-S"', '"-s"'))
    assert machine.invoke("run", "Echo.", "--workspace", ".").exit_code == exits.USAGE


def test_a_resume_has_the_servers_of_its_run(machine: Machine) -> None:
    folder = define(machine)
    machine.invoke("mcp", "trust", "tool", "--yes")
    script(machine)
    stopped = machine.invoke("run", "Echo.", "--workspace", ".", "--max-steps", "1")
    assert stopped.exit_code == exits.STOPPED
    resumed = machine.invoke("resume")
    assert resumed.exit_code == 0, resumed.stderr
    names = [tool["function"]["name"] for tool in machine.server.requests[-1].json["tools"]]
    assert "tool__echo" in names and len(noted(folder, "calls")) == 1


def test_changed_tools_are_shown_and_accepted(machine: Machine) -> None:
    folder = define(machine)
    machine.invoke("mcp", "trust", "tool", "--yes")
    assert "changed" not in machine.invoke("mcp", "test", "tool").stdout
    assert "you first used them" in machine.invoke("mcp", "trust", "tool", "--yes").stderr
    raw(folder, described("echo", "Now\u202e another."), "more")
    assert machine.invoke("mcp", "test", "tool").stdout.count("changed since") == 2
    accepted = machine.invoke("mcp", "trust", "tool", "--yes")
    assert "changed: echo: Now another." in accepted.stderr and "new: more" in accepted.stderr
    assert "changed" not in machine.invoke("mcp", "test", "tool").stdout


def test_a_file_of_servers_can_be_named(machine: Machine, tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.mktemp("elsewhere")
    program, *args = command(folder)
    (folder / "x.json").write_text(
        json.dumps({"mcpServers": {"tool": {"command": program, "args": args}}})
    )
    script(machine)
    done = machine.invoke("run", "Echo.", "--mcp-config", str(folder / "x.json"))
    assert done.exit_code == 0 and len(noted(folder, "calls")) == 1
    both = machine.invoke("run", "Echo.", "--mcp-config", str(folder / "x.json"), "--no-mcp")
    assert both.exit_code == exits.USAGE


def test_a_server_that_fails_ends_the_command_before_anything_begins(machine: Machine) -> None:
    machine.invoke("mcp", "add", "tool", "no-such-program")
    failed = machine.invoke("run", "Echo.")
    assert failed.exit_code == exits.USAGE and "agent-runtime mcp test tool" in failed.stderr
    assert not machine.server.requests


def test_wrong_definitions_are_not_written(machine: Machine) -> None:
    for wrong in (["a b", "x"], ["tool"], ["--url", "ftp://x", "tool"], ["--env", "A", "t", "x"]):
        assert machine.invoke("mcp", "add", *wrong).exit_code == exits.USAGE
    late = machine.invoke("mcp", "add", "tool", "--url", "https://x.example")
    assert late.exit_code == exits.USAGE and "mcp add --url ... tool" in late.stderr
    assert machine.invoke("mcp", "list").stdout == ""
    missing = machine.invoke("mcp", "remove", "tool")
    assert missing.exit_code == exits.USAGE and "does not define" in missing.stderr
    assert "There is no MCP server" in machine.invoke("mcp", "test", "x").stderr


def test_a_url_instead_of_a_command_is_a_server_on_http(machine: Machine) -> None:
    for options in ((), ("--header", "X-Team=a")):
        machine.invoke("mcp", "add", *options, f"web{len(options)}", "https://x.example/mcp")
    listed = machine.invoke("mcp", "list").stdout
    assert listed.count("https://x.example") == 2


def test_a_terminal_shows_a_definition_and_asks(machine: Machine) -> None:
    folder = define(machine, env={"HIDDEN": "a\u202eb" + " " * 300 + "c"})
    script(machine)
    options = ("run", "Echo.", "--workspace", ".")
    with at_terminal(machine.folder, machine.environ, *options) as screen:
        screen.until("The MCP server tool is defined by", "Start tool now")
        shown = "".join(screen.rows)
        assert "\\u202e" in shown and "[300 blanks]" in shown and raw_server.__file__ in shown
        assert not noted(folder, "pids")
        screen.type("y")
        screen.until("Done after 2 steps")
    assert len(noted(folder, "calls")) == 1
    raw(folder, described("echo", "Something else."))
    with at_terminal(machine.folder, machine.environ, *options) as screen:
        screen.until("The agent wants to call tool__echo:", "has changed what the tool is")
        assert len(noted(folder, "calls")) == 1


def test_a_prompt_is_a_command_of_a_chat(machine: Machine) -> None:
    (offered := machine.folder / "server").mkdir()
    arguments = [{"name": "file", "required": True}, {"name": "depth"}]
    prompt = {"name": "review", "description": "Review a file.", "arguments": arguments}
    (offered / "prompts.json").write_text(json.dumps([prompt]))
    machine.invoke("mcp", "add", "sums", "--", *command(offered))
    lines = "/prompts\n/sums__none\n/sums__review\n/sums__review 'a b.py' deep\n"
    chat = machine.invoke("chat", stdin=lines)
    assert "/sums__review file [depth]  Review a file." in chat.stderr
    assert "There is no prompt sums__none." in chat.stderr
    assert "The prompt sums__review needs file." in chat.stderr
    assert "  | Review a b.py deep." in chat.stderr
    [request] = machine.server.requests
    assert request.json["messages"][-1]["content"] == "Review a b.py deep."


@pytest.mark.slow
def test_the_prompts_of_a_server_complete_once_its_name_begins(machine: Machine) -> None:
    machine.invoke("mcp", "add", "sums", sys.executable, str(SDK_SERVER))
    (other := machine.folder / "server").mkdir()
    added = machine.invoke("mcp", "add", "tool", "--", *command(other))
    assert added.exit_code == 0, added.stderr
    environ = machine.environ | {"PROMPT_TOOLKIT_NO_CPR": "1"}
    with at_terminal(machine.folder, environ, "chat") as screen:
        screen.until("/help lists", ">")
        screen.type("/su", end="")
        screen.until("/sums__review", "file [depth]  Review a file.")
        # A server whose name was not begun is not started.
        assert not noted(other, "pids")
        screen.type("\t", end="")
        screen.until("> /sums__review")
        screen.type(" a.py", end="\r")
        screen.until("| Review a.py (short).", "Done after")
