"""`agent-runtime fork`, `edit` and `regenerate`, with a model server on loopback."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from agent_runtime.cli import exit_codes as exits
from agent_runtime.testing.model_server import Reply
from tests.cli.test_runs import Machine
from tests.cli.test_runs import machine as machine

HELLO = "Hello from the model."


@pytest.fixture
def talk(machine: Machine) -> Callable[..., None]:
    """Return a function that sends messages on the thread `t`; each gets a text as its answer."""

    def say(*texts: str) -> None:
        for text in texts:
            machine.script = lambda request, n, text=text: Reply(text=f"To {text}")
            assert machine.invoke("run", text, "--thread", "t").exit_code == 0

    return say


def shown(machine: Machine) -> list[tuple[int, str]]:
    """Return the node numbers and texts of the thread's branch."""
    lines = machine.invoke("show", "t", "--json").stdout.splitlines()
    nodes: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return [(node["seq"], node["message"]["text"]) for node in nodes]


def asked(machine: Machine) -> list[str]:
    """Return the last request's messages, without the system prompt and notes."""
    texts = [message["content"] for message in machine.server.requests[-1].json["messages"][1:]]
    return [text for text in texts if not text.startswith("<runtime-note ")]


def test_a_fork_continues_from_a_node_and_switches_back(
    machine: Machine, talk: Callable[..., None]
) -> None:
    talk("One", "Two")
    forked = machine.invoke("fork", "t", "2")
    assert forked.exit_code == 0
    assert "Thread t is at [2] assistant" in forked.stdout and "To One" in forked.stdout
    talk("Other")
    assert asked(machine) == ["One", "To One", "Other"]
    assert shown(machine) == [(1, "One"), (2, "To One"), (5, "Other"), (6, "To Other")]
    back = machine.invoke("fork", "t", "4", "--json")
    assert json.loads(back.stdout)["head"]["text"] == "To Two"
    assert [text for _, text in shown(machine)] == ["One", "To One", "Two", "To Two"]
    stands = machine.invoke("fork", "t")
    assert stands.stdout == machine.invoke("fork", "t", "4").stdout
    fresh = machine.invoke("fork", "t", "0")
    assert fresh.stdout == "Thread t is before its first node.\n"
    talk("Again")
    assert asked(machine) == ["Again"]


def test_an_edited_message_is_answered_by_its_agent(
    machine: Machine, talk: Callable[..., None]
) -> None:
    talk("One")
    assert machine.invoke("run", "Two", "--thread", "t", "--workspace", ".").exit_code == 0
    talk("Three")
    machine.script = lambda request, n: Reply(text="To the edit")
    # Before it is the note of the workspace.
    edited = machine.invoke("edit", "t", "4", "Two, better", "--json")
    assert edited.exit_code == 0, edited.stderr
    assert json.loads(edited.stdout)["output"] == "To the edit"
    assert asked(machine) == ["One", "To One", "Two, better"]
    tools = machine.server.requests[-1].json["tools"]
    assert "glob" in {tool["function"]["name"] for tool in tools}
    piped = machine.invoke("edit", "t", "1", "-", stdin="One, better")
    assert piped.stdout == "To the edit\n" and asked(machine) == ["One, better"]


def test_an_edit_without_a_text_only_moves_the_head(
    machine: Machine, talk: Callable[..., None]
) -> None:
    talk("One", "Two")
    before = len(machine.server.requests)
    assert "is at [2]" in machine.invoke("edit", "t", "3").stdout
    assert len(machine.server.requests) == before
    talk("Two, better")
    assert asked(machine) == ["One", "To One", "Two, better"]


def test_regenerate_adds_an_answer_and_keeps_the_first(
    machine: Machine, talk: Callable[..., None]
) -> None:
    talk("One", "Two")
    machine.script = lambda request, n: Reply(text="Again")
    again = machine.invoke("regenerate", "t")
    assert (again.exit_code, again.stdout) == (0, "Again\n")
    assert asked(machine) == ["One", "To One", "Two"]
    assert [text for _, text in shown(machine)] == ["One", "To One", "Two", "Again"]
    listed = machine.invoke("show", "t", "--branches")
    first, second = listed.stdout.splitlines()
    assert first.startswith("*     4 nodes  [5] assistant") and first.endswith("Again")
    assert second.startswith("      4 nodes  [4] assistant") and second.endswith("To Two")
    assert "Thread t is at [5]" in listed.stderr
    branches = [
        json.loads(line)
        for line in machine.invoke("show", "t", "--branches", "--json").stdout.splitlines()
    ]
    assert [(branch["seq"], branch["nodes"], branch["current"]) for branch in branches] == [
        (5, 4, True),
        (4, 4, False),
    ]


def test_an_invalid_branch_command_fails_and_changes_nothing(
    machine: Machine, talk: Callable[..., None]
) -> None:
    talk("One")
    before = shown(machine)
    for command, expected in (
        (["fork", "t", "9"], "9"),
        (["fork", "nope", "1"], "nope"),
        (["edit", "t", "2", "Text"], "not a message of the user"),
        (["edit", "t", "9", "Text"], "9"),
        (["edit", "t", "2"], "not a message of the user"),
        (["regenerate", "nope"], "nope"),
        (["show", "nope", "--branches"], "nope"),
    ):
        result = machine.invoke(*command)
        assert (result.exit_code, result.stdout) == (exits.NOTHING, ""), command
        assert "error: " in result.stderr and expected in result.stderr
    assert machine.invoke("edit", "t", "1", " ").exit_code == exits.USAGE
    assert machine.invoke("edit", "t", "1", "Text", "--allow-shell").exit_code == exits.USAGE
    assert shown(machine) == before and len(machine.server.requests) == 1


def test_observations_follow_the_branch(machine: Machine, talk: Callable[..., None]) -> None:
    """A branch's observations are in its prompts and in no other branch's."""
    machine.environ |= {
        "AGENT_RUNTIME_OBSERVER_MESSAGE_TOKENS": "2000",
        "AGENT_RUNTIME_LAST_MESSAGES": "2",
    }
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    notes = f"{now} | info | The secret word is heliotrope.\nTASK: talk\nNEXT: go on"

    def script(request: dict[str, Any], n: int) -> Reply:
        observing = "You keep the memory" in str(request["messages"][0]["content"])
        return Reply(text=notes if observing else HELLO)

    machine.script = script
    for number in range(6):
        text = f"{number} {'word ' * 300}"
        assert machine.invoke("run", text, "--thread", "t").exit_code == 0
    assert machine.invoke("memory", "observe", "t").exit_code == 0
    assert machine.invoke("run", f"On. {'word ' * 1500}", "--thread", "t").exit_code == 0
    assert machine.invoke("run", "And?", "--thread", "t").exit_code == 0
    assert "heliotrope" in "".join(asked(machine))
    old = shown(machine)[-1][0]
    assert machine.invoke("fork", "t", "2").exit_code == 0
    assert machine.invoke("run", "Another way.", "--thread", "t").exit_code == 0
    assert "heliotrope" not in "".join(asked(machine))
    assert machine.invoke("fork", "t", str(old)).exit_code == 0
    assert machine.invoke("run", "Back.", "--thread", "t").exit_code == 0
    assert "heliotrope" in "".join(asked(machine))


def test_the_head_stays_where_the_model_cannot_be_called(
    machine: Machine, talk: Callable[..., None]
) -> None:
    talk("One", "Two")
    before = shown(machine)
    unusable = machine.invoke("edit", "t", "3", "Other", "--model", "anthropic/claude-sonnet-4-5")
    assert unusable.exit_code == exits.MODEL and "anthropic" in unusable.stderr
    unknown = machine.invoke("regenerate", "t", "--model", "nobody/nothing")
    assert unknown.exit_code != 0
    assert shown(machine) == before
