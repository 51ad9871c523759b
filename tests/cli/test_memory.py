"""`agent-runtime memory` on threads made by real runs, with a model server on loopback."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from click.testing import CliRunner, Result

from agent_runtime.cli import exit_codes as exits
from agent_runtime.cli import main
from agent_runtime.prompt.calendar import local_time
from agent_runtime.testing.model_server import OpenAIServer, Reply
from agent_runtime.testing.observer import is_for_memory
from tests.cli.test_runs import Machine

SMALL = {
    "AGENT_RUNTIME_OBSERVATIONAL_MEMORY": "true",
    "AGENT_RUNTIME_OBSERVER_MESSAGE_TOKENS": "2000",
    "AGENT_RUNTIME_REFLECTOR_OBSERVATION_TOKENS": "1000",
    "AGENT_RUNTIME_LAST_MESSAGES": "4",
}
OFF = {"AGENT_RUNTIME_OBSERVATIONAL_MEMORY": "false"}
PRICES = {
    "AGENT_RUNTIME_PRICE_INPUT": "3",
    "AGENT_RUNTIME_PRICE_OUTPUT": "15",
    "AGENT_RUNTIME_PRICE_CACHE_READ": "0.3",
    "AGENT_RUNTIME_PRICE_CACHE_WRITE": "3",
}


def _system(request: dict[str, Any]) -> str:
    return str(request["messages"][0]["content"])


class Provider:
    """A model that reads a file a few times and answers; it also plays Observer and Reflector.

    Attributes:
        observing: how it answers as the Observer; None to write notes.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.observing: Reply | None = None

    def __call__(self, request: dict[str, Any], n: int) -> Reply:
        now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
        if "You keep the memory" in _system(request):
            notes = f"{now} | info | The agent read a page, look {n}.\nTASK: read\nNEXT: go on"
            return self.observing or Reply(text=notes)
        if "You keep the long-term memory" in _system(request):
            return Reply(text=f"{now} | info | All was read.\nTASK: read\nNEXT: go on")
        self.steps -= 1
        if self.steps < 0:
            return Reply(text="Done reading.")
        return Reply(calls=(("read_file", {"path": "notes.txt"}),))


class Desk(Machine):
    """A machine with a thread `t` none of whose messages has been observed."""

    provider: Provider

    def run(self, steps: int, **environ: str) -> Result:
        """Run a task of this many steps on the thread."""
        self.provider = Provider(steps)
        self.script = self.provider
        arguments = ("run", "Read the notes.", "--workspace", ".", "--thread", "t", "--json")
        return self.invoke(*arguments, **({"AGENT_RUNTIME_LOOP_LIMIT": "0"} | environ))

    def memory(self, *arguments: str, **environ: str) -> Result:
        """Run a `memory` command with small thresholds."""
        return self.invoke("memory", *arguments, **(SMALL | environ))

    def state(self) -> dict[str, Any]:
        """Return the thread's memory."""
        return json.loads(self.memory("show", "t", "--json").stdout)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    for name in ("AGENT_RUNTIME_DATABASE_URL", "DATABASE_URL", "AGENT_RUNTIME_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AGENT_RUNTIME_DATABASE_URL", "file:agent_runtime.db")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("what is written here, line by line\n" * 40)
    made: list[Desk] = []
    with start_blocking_portal() as portal:
        server = OpenAIServer(lambda request, n: made[0].script(request, n))
        with portal.wrap_async_context_manager(server):
            made.append(Desk(tmp_path, portal, server))
            assert made[0].run(12, **OFF).exit_code == 0
            yield made[0]


def test_show_lists_the_contents_of_the_prompt(desk: Desk) -> None:
    shown = desk.memory("show", "t")
    assert shown.exit_code == 0, shown.stderr
    lines = {line.split()[0]: line for line in shown.stdout.splitlines()}
    assert lines["thread"] == "thread    t, observational memory on"
    figures = re.fullmatch(
        r"prompt +([\d,]+) tokens: ([\d,]+) system, ([\d,]+) tools, 0 observations, (\d+) state, "
        r"([\d,]+) raw",
        lines["prompt"],
    )
    assert figures is not None, lines["prompt"]
    total, *parts = [int(group.replace(",", "")) for group in figures.groups()]
    assert total == sum(parts)
    assert re.fullmatch(r"raw +[\d,]+ of 2,000 tokens, \d+%", lines["raw"])
    assert lines["observed"] == "observed  0 of 1,000 tokens, 0%"
    assert "activation 1 at the beginning: the thread began" in lines["since"]
    assert "no observations yet" in shown.stderr
    assert "memory off" in desk.memory("show", "t", **OFF).stdout


def test_observe_writes_observations_and_activates_nothing(desk: Desk) -> None:
    before = desk.state()

    done = desk.memory("observe", "t", "--json", **PRICES)

    assert done.exit_code == 0, done.stderr
    report = json.loads(done.stdout)
    assert len(report["written"]) > 1
    assert re.search(r"^memory: [\d,]+ tokens observed as \d+ \(by the model\)$", done.stderr, re.M)
    assert report["usage"]["calls"] == len(report["written"]) and report["usage"]["cost"] > 0
    after = desk.state()
    assert after["activation"] == before["activation"]
    assert {observation["place"] for observation in after["observations"]} == {"prepared"}
    assert [observation["parent_id"] for observation in after["observations"]] == [
        None,
        *(observation["last"] for observation in after["observations"][:-1]),
    ]
    assert all(
        observation["of"] > observation["tokens"] > 0 for observation in after["observations"]
    )
    assert (after["task"], after["next_step"]) == ("read", "go on")
    assert after["usage"]["observe"]["calls"] == report["usage"]["calls"]
    shown = desk.memory("show", "t", "--full").stdout
    assert re.search(r"^raw .*; [\d,]+ of them are observed$", shown, re.M)
    assert re.search(
        r"^o1 +level 0  nodes? 1[-\d]* .* x\)  openai/test-model, prepared$", shown, re.M
    )
    assert "task      read" in shown.splitlines()

    again = desk.memory("observe", "t")
    assert again.exit_code == 0 and "There is nothing to observe" in again.stderr


def test_the_next_run_starts_from_the_observations(desk: Desk) -> None:
    desk.memory("observe", "t")
    calls = len(desk.server.requests)

    done = desk.run(0, **SMALL)

    assert done.exit_code == 0, done.stderr
    # The Observer may be called before the agent's own model is.
    asked = [
        request.json for request in desk.server.requests[calls:] if not is_for_memory(request.json)
    ]
    sent = asked[0]["messages"]
    assert any(str(one["content"]).startswith("<observed ") for one in sent)
    assert {observation["place"] for observation in desk.state()["observations"]} >= {"active"}
    assert re.search(
        r"context: \d+ messages left the prompt, .* \(the agent changed\)", done.stderr
    )


def test_reflect_condenses_the_oldest_observations(desk: Desk) -> None:
    assert "nothing to condense" in desk.memory("reflect", "t").stderr
    # Thresholds small enough that there are many observations and none is spared.
    desk.memory("observe", "t", AGENT_RUNTIME_OBSERVER_MESSAGE_TOKENS="1000")

    done = desk.memory("reflect", "t", "--json")

    assert done.exit_code == 0, done.stderr
    [one] = json.loads(done.stdout)["written"]
    assert one["level"] == 1 and len(one["parts"]) > 1 and one["origin"] == "model"
    assert re.search(r"tokens of observations condensed to \d+ \(by the model\)", done.stderr)
    state = desk.state()
    assert [each["place"] for each in state["observations"] if each["id"] == one["id"]] == [
        "prepared"
    ]
    assert state["usage"]["reflect"]["calls"] >= 1


def test_a_failed_observers_notes_are_provisional_and_rewritten(desk: Desk) -> None:
    desk.provider.observing = Reply(text="I would rather not.")
    done = desk.memory("observe", "t", "--json")
    written = json.loads(done.stdout)["written"]
    assert all(entry["provisional"] and entry["origin"] == "rules" for entry in written)
    assert (
        "by rules, until the model does it: openai/test-model wrote no usable notes" in done.stderr
    )

    desk.provider.observing = None
    again = desk.memory("observe", "t", "--json")

    written_again = json.loads(again.stdout)["written"]
    assert [one["first"] for one in written_again] == [entry["first"] for entry in written]
    assert not any(one["provisional"] for one in written_again)
    assert "notes by rules" in again.stderr and "written again" in again.stderr


def test_observing_by_rules_calls_no_model(desk: Desk) -> None:
    calls = len(desk.server.requests)
    done = desk.memory("observe", "t", AGENT_RUNTIME_OBSERVER_MODEL="extractive")
    assert done.exit_code == 0 and "No model was called." in done.stderr
    assert re.match(r"o1  nodes? 1[-\d]*, [\d,]+ tokens, by rules\n", done.stdout)
    assert len(desk.server.requests) == calls


@pytest.mark.parametrize("command", ["show", "observe", "reflect", "export"])
def test_an_unknown_thread_is_an_error(desk: Desk, command: str) -> None:
    result = desk.memory(command, "nowhere")
    assert result.exit_code == exits.NOTHING
    assert "error: There is no thread nowhere" in result.stderr and "cure: " in result.stderr


@pytest.mark.parametrize("command", ["observe", "reflect"])
def test_with_memory_off_nothing_is_written(desk: Desk, command: str) -> None:
    result = desk.memory(command, "t", **OFF)
    assert result.exit_code == exits.USAGE
    assert "cure: Set AGENT_RUNTIME_OBSERVATIONAL_MEMORY=true." in result.stderr


@pytest.mark.parametrize("which", ["same", "openai/gpt-5-mini"])
def test_without_a_key_nothing_is_written(
    desk: Desk, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "AGENT_RUNTIME_MODEL_BASE_URL"):
        desk.environ.pop(name)
        monkeypatch.delenv(name, raising=False)

    allowed = {"AGENT_RUNTIME_FORBID_REAL_MODELS": "false"}
    result = desk.memory("observe", "t", AGENT_RUNTIME_OBSERVER_MODEL=which, **allowed)

    assert result.exit_code == exits.MODEL
    assert "needs a key" in result.stderr and "cure: Set OPENAI_API_KEY" in result.stderr
    assert desk.state()["observations"] == []


def test_a_thread_with_a_running_run_is_left_alone(desk: Desk) -> None:
    desk.script = lambda request, n: Reply(stall_after=0)
    calls = len(desk.server.requests)
    with desk.process("run", "More.", "--thread", "t"):
        desk.wait_for_requests(calls + 1)
        for command in ("observe", "reflect"):
            result = desk.memory(command, "t")
            assert result.exit_code == exits.NOTHING
            assert "error: " in result.stderr and "cure: " in result.stderr
        assert desk.memory("show", "t").exit_code == 0


@contextmanager
def _observing(desk: Desk) -> Generator[subprocess.Popen[str]]:
    """Run `memory observe` in a process whose model never answers."""
    desk.provider.observing = Reply(stall_after=0)
    desk.environ |= SMALL
    calls = len(desk.server.requests)
    with desk.process("memory", "observe", "t") as process:
        desk.wait_for_requests(calls + 1)
        desk.provider.observing = None
        yield process


def test_a_killed_observe_is_continued_by_the_next(desk: Desk) -> None:
    with _observing(desk) as process:
        process.kill()
        process.communicate()

    # An interval claimed by a dead process is free once its claim expires; the others are free now.
    done = desk.memory("observe", "t", AGENT_RUNTIME_OBSERVER_MESSAGE_TOKENS="1000")

    assert done.exit_code == 0, done.stderr
    assert desk.state()["observations"]


def test_a_run_continues_on_the_thread_of_a_killed_observe(desk: Desk) -> None:
    with _observing(desk) as process:
        process.kill()
        process.communicate()

    assert desk.run(1, **OFF).exit_code == 0


def test_an_interrupted_observe_leaves_the_thread_free(desk: Desk) -> None:
    with _observing(desk) as process:
        process.send_signal(signal.SIGINT)
        process.communicate()
        assert process.returncode == exits.INTERRUPTED

    done = desk.memory("observe", "t")

    assert done.exit_code == 0 and desk.state()["observations"]


def test_cancel_stops_observe(desk: Desk) -> None:
    with _observing(desk) as process:
        shown = desk.invoke("show", "t", "--events", "--json", "--limit", "5")
        events = [json.loads(line) for line in shown.stdout.splitlines()]
        [run] = [event["run_id"] for event in events if event["data"].get("agent") == "memory"]

        assert desk.invoke("cancel", run).stdout.split() == [run]

        _, stderr = process.communicate()
        assert process.returncode == exits.STOPPED
        assert "was cancelled" in stderr
    refused = desk.invoke("resume", run)
    assert refused.exit_code != 0 and "error: " in refused.stderr


def test_a_stopped_run_is_resumed_after_memory_commands(desk: Desk) -> None:
    desk.provider.steps = 8
    stopped = desk.invoke(
        "run", "Read on.", "--workspace", ".", "--thread", "t", "--max-steps", "2", **OFF
    )
    assert stopped.exit_code == exits.STOPPED
    assert desk.memory("observe", "t").exit_code == 0
    desk.provider.steps = 0

    resumed = desk.invoke("resume", "--thread", "t", **OFF)

    assert (resumed.exit_code, resumed.stdout) == (0, "Done reading.\n")


def test_export_writes_everything_as_json_lines(desk: Desk) -> None:
    desk.memory("observe", "t")
    desk.run(0, **SMALL)
    done = desk.memory("export", "t", "-o", "memory.jsonl")
    assert done.exit_code == 0, done.stderr

    lines = (desk.folder / "memory.jsonl").read_text().splitlines()

    records = [json.loads(line) for line in lines]
    assert records[0]["type"] == "memory" and records[0]["thread_id"] == "t"
    activations = [record for record in records if record["type"] == "activation"]
    observations = [record for record in records if record["type"] == "observation"]
    assert [activation["id"] for activation in activations] == list(range(1, len(activations) + 1))
    assert activations[0]["cause"] == "start" and activations[-1]["cause"] == "agent"
    active = [observation["id"] for observation in observations if observation["place"] == "active"]
    assert activations[-1]["start"]["observed"] == active and active
    assert all(
        observation["notes"]["lines"] and "ledger" in observation for observation in observations
    )
    assert desk.memory("export", "t").stdout.splitlines()[1:] == lines[1:]


def test_times_are_in_the_zone_of_prompts(desk: Desk) -> None:
    desk.memory("observe", "t")
    at = desk.state()["observations"][0]["notes"]["lines"][0]["at"]
    local = local_time(at, "Asia/Kathmandu")
    zone = {"AGENT_RUNTIME_TIMEZONE": "Asia/Kathmandu"}
    shown = desk.memory("show", "t", "--full", **zone).stdout
    assert f"  {local} Asia/Kathmandu  " in shown and f"    {local[11:]} " in shown
    exported = desk.memory("export", "t", "--format", "markdown", **zone).stdout
    assert f"  {local} Asia/Kathmandu  " in exported and f"\n{local[11:]} " in exported
    # What programs read stays in UTC.
    assert at in desk.memory("show", "t", "--json", **zone).stdout


def test_export_writes_readable_text(desk: Desk) -> None:
    desk.memory("observe", "t")
    shown = desk.memory("export", "t", "--format", "markdown").stdout
    assert shown.startswith("# Memory of thread t\n")
    assert "\n- observed: 0 of 1,000 tokens, 0%\n" in shown
    blocks = re.findall(r"## o\d+ [^\n]*\n\n```text\n(.*?)\n```\n", shown, re.S)
    assert len(blocks) == len(desk.state()["observations"])
    assert "The agent read a page" in blocks[0] and "\n- task: read\n" in shown


def test_an_unwritable_export_is_bad_usage(desk: Desk) -> None:
    result = desk.memory("export", "t", "-o", "no/such/folder/file")
    assert result.exit_code == exits.USAGE and "cannot be written" in result.stderr


def test_notes_cannot_control_the_terminal(desk: Desk) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    text = f"{now} | info | A file said \x1b[2J\x1b]0;evil\x07 and ``` too.\nTASK: \x1b[31mred"
    desk.provider.observing = Reply(text=text)
    done = desk.memory("observe", "t")
    assert done.exit_code == 0 and "\x1b" not in done.output
    shown = desk.memory("export", "t", "--format", "markdown").stdout
    assert shown.count("```") == 2 * len(desk.state()["observations"])


def test_a_run_reports_memory_usage_separately(desk: Desk) -> None:
    result = desk.run(14, **SMALL, **PRICES)
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    apart = report["usage_by_purpose"]
    assert apart["observe"]["calls"] > 0
    assert sum(one["calls"] for one in apart.values()) == report["usage"]["calls"]
    assert sum(one["cost"] for one in apart.values()) == report["usage"]["cost"]
    assert apart["step"]["calls"] == 15 and apart["step"]["cached_tokens"] > 0
    calls = f"{apart['observe']['calls']} call"
    assert f"of these observe ({calls}" in result.stderr
    assert re.search(r"prompt [\d,]+ tokens, \d+% cached · raw \S+ of 2K, observed", result.stderr)
    assert "memory: " in result.stderr and "observations replace them" in result.stderr


def test_help_names_the_commands() -> None:
    shown = CliRunner().invoke(main, ["memory", "--help"]).output
    for name in ("show", "observe", "reflect", "export"):
        assert f"\n  {name} " in shown


def test_explain_says_where_a_message_is(desk: Desk) -> None:
    shown = desk.memory("explain", "t", "2")
    assert shown.exit_code == 0, shown.stderr
    lines = {line.split()[0]: line for line in shown.stdout.splitlines()}
    assert lines["node"].startswith("node      2, user, ")
    assert lines["now"] == "now       in the prompt as it was written"
    assert lines["recall"] == "recall    handle 2 opens it"
    as_json = json.loads(desk.memory("explain", "t", "2", "--json").stdout)
    assert (as_json["form"], as_json["node"], as_json["lines"]) == ("raw", 2, [])
    assert desk.memory("explain", "t", "999").exit_code != 0
