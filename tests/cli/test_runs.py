"""Runs from the command line, with a model server on loopback and real database files."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from click.testing import CliRunner, Result

from agent_runtime.cli import exit_codes as exits
from agent_runtime.cli import main
from agent_runtime.testing.model_server import OpenAIServer, Reply, Script, unauthorized
from tests.support.command import COMMAND, clean_environ

KEY = "sk-test-0123456789abcdef"
HELLO = Reply(text="Hello from the model.")
STALL = Reply(stall_after=0)


class Machine:
    """A folder to work in, and a model server whose script a test can change."""

    def __init__(self, folder: Path, portal: BlockingPortal, server: OpenAIServer) -> None:
        self.folder = folder
        self.portal = portal
        self.server = server
        self.script: Script = lambda request, n: HELLO
        self.environ = {
            "AGENT_RUNTIME_MODEL": "openai/test-model",
            "AGENT_RUNTIME_MODEL_BASE_URL": server.base_url,
            "AGENT_RUNTIME_MODEL_RETRIES": "0",
            "OPENAI_API_KEY": KEY,
        }

    def invoke(self, *arguments: str, stdin: str | None = None, **environ: str) -> Result:
        """Run a command in this process."""
        return CliRunner().invoke(main, arguments, env=self.environ | environ, input=stdin)

    @contextmanager
    def process(self, *arguments: str) -> Generator[subprocess.Popen[str]]:
        """Run a command in a separate process."""
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=self.folder,
            env=clean_environ(self.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                yield process
            finally:
                process.kill()

    def wait_for_requests(self, count: int) -> None:
        """Return once the model was called this often."""
        self.portal.call(self.server.wait_for_requests, count)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    for name in ("AGENT_RUNTIME_DATABASE_URL", "DATABASE_URL", "AGENT_RUNTIME_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AGENT_RUNTIME_DATABASE_URL", "file:agent_runtime.db")
    monkeypatch.chdir(tmp_path)
    made: list[Machine] = []
    with start_blocking_portal() as portal:
        server = OpenAIServer(lambda request, n: made[0].script(request, n))
        with portal.wrap_async_context_manager(server):
            made.append(Machine(tmp_path, portal, server))
            yield made[0]


def _calls_then_answer(steps: int) -> Script:
    def script(request: dict[str, Any], n: int) -> Reply:
        return HELLO if n >= steps else Reply(calls=(("glob", {}),))

    return script


def _run_id(stderr: str) -> str:
    match = re.search(r"agent-runtime resume (\S+)", stderr)
    assert match is not None, stderr
    return match[1]


def test_the_answer_goes_to_stdout_and_everything_else_to_stderr(machine: Machine) -> None:
    result = machine.invoke("run", "Say hello.")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "Hello from the model.\n"
    assert re.search(r"run \S+ starts: model openai/test-model, thread \S+, at most 500 steps",
                     result.stderr)  # fmt: skip
    assert "--workspace PATH" in result.stderr
    assert "Done after 1 step" in result.stderr and "cost unknown" in result.stderr


def test_json_is_one_object_with_usage_and_cost(machine: Machine) -> None:
    result = machine.invoke(
        "run", "Say hello.", "--json", AGENT_RUNTIME_PRICE_INPUT="3",
        AGENT_RUNTIME_PRICE_OUTPUT="15", AGENT_RUNTIME_PRICE_CACHE_READ="0.3",
        AGENT_RUNTIME_PRICE_CACHE_WRITE="0",
    )  # fmt: skip
    report = json.loads(result.stdout)
    assert (report["status"], report["stop_reason"], report["steps"]) == (
        "succeeded",
        "completed",
        1,
    )
    assert report["output"] == "Hello from the model."
    usage = report["usage"]
    cost = (3 * usage["prompt_tokens"] + 15 * usage["completion_tokens"]) / 1e6
    assert usage["prompt_tokens"] > 0 and report["cost_usd"] == pytest.approx(cost)
    assert report["run_id"] in result.stderr and report["thread_id"] in result.stderr


def test_an_unknown_price_is_null(machine: Machine) -> None:
    assert json.loads(machine.invoke("run", "Hello.", "--json").stdout)["cost_usd"] is None


@pytest.mark.parametrize("arguments", [["-"], []])
def test_the_task_can_be_piped_in(machine: Machine, arguments: list[str]) -> None:
    assert machine.invoke("run", *arguments, stdin="Piped task").exit_code == 0
    assert "Piped task" in machine.server.requests[0].body.decode()


def test_the_task_can_be_read_from_a_file(machine: Machine) -> None:
    (machine.folder / "task.md").write_text("Task in a file")
    assert machine.invoke("run", "--file", "task.md").exit_code == 0
    assert "Task in a file" in machine.server.requests[0].body.decode()


def test_files_are_attached_and_shown(machine: Machine) -> None:
    (machine.folder / "notes.txt").write_text("The sea is blue.")
    url = "https://example.com/cat.png"
    done = machine.invoke("run", "Look.", "--attach", "notes.txt", "--attach", url, "--thread", "t")
    assert done.exit_code == 0, done.stderr
    body = machine.server.requests[0].body.decode()
    assert "The sea is blue." in body and url in body
    shown = "the model does not see cat.png: the model does not take such files"
    assert shown in done.stderr and done.stderr.count("cat.png") == 1

    shown = machine.invoke("show", "t").stdout
    assert "[file: notes.txt (document, text/plain, 16 bytes) upload:" in shown
    assert f"[file: cat.png (image, image/png) {url}]" in shown


def test_a_file_that_cannot_be_attached_is_bad_usage(machine: Machine) -> None:
    done = machine.invoke("run", "Look.", "--attach", "missing.png")
    assert done.exit_code == exits.USAGE
    assert "The file 'missing.png' cannot be read: No such file or directory." in done.stderr
    assert machine.server.requests == []


def test_a_refused_key_is_reported_without_the_key(machine: Machine) -> None:
    machine.script = lambda request, n: unauthorized(KEY)
    result = machine.invoke("run", "Say hello.", "--json")
    assert result.exit_code == exits.MODEL
    assert "error: " in result.stderr and "cure: " in result.stderr
    assert KEY not in result.output
    assert json.loads(result.stdout)["status"] == "failed"
    machine.script = lambda request, n: HELLO
    again = machine.invoke("resume", _run_id(result.stderr))
    assert (again.exit_code, again.stdout) == (0, "Hello from the model.\n")


def test_a_run_out_of_steps_is_resumed_and_finishes(machine: Machine) -> None:
    machine.script = _calls_then_answer(3)
    stopped = machine.invoke("run", "List.", "--workspace", ".", "--max-steps", "2", "--json")
    assert stopped.exit_code == exits.STOPPED
    report = json.loads(stopped.stdout)
    assert (report["stop_reason"], report["steps"], report["output"]) == ("max_steps", 2, None)
    resumed = machine.invoke("resume", "--json")
    assert resumed.exit_code == 0, resumed.stderr
    ended = json.loads(resumed.stdout)
    assert (ended["run_id"], ended["steps"]) == (report["run_id"], 4)
    tools = machine.server.requests[-1].json["tools"]
    assert "glob" in {tool["function"]["name"] for tool in tools}
    nothing = machine.invoke("resume")
    assert nothing.exit_code == exits.NOTHING and "no run to resume" in nothing.stderr


def test_an_unknown_run_or_thread_is_reported(machine: Machine) -> None:
    for command in (["resume", "nope"], ["resume", "--thread", "nope"], ["show", "nope"],
                    ["show", "nope", "--events"], ["cancel", "nope"]):  # fmt: skip
        result = machine.invoke(*command)
        assert result.exit_code == exits.NOTHING, command
        assert result.stderr.startswith("error: ") and result.stdout == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_run_and_it_can_be_resumed(
    machine: Machine, number: signal.Signals
) -> None:
    machine.script = lambda request, n: STALL if n else Reply(calls=(("glob", {}),))
    with machine.process("run", "List.", "--workspace", ".") as process:
        machine.wait_for_requests(2)
        process.send_signal(number)
        stdout, stderr = process.communicate()
    assert process.returncode == exits.INTERRUPTED, stderr
    assert stdout == "" and "Traceback" not in stderr
    machine.script = lambda request, n: HELLO
    again = machine.invoke("resume", _run_id(stderr), "--json")
    assert json.loads(again.stdout)["steps"] == 2


def test_a_killed_run_is_found_and_resumed(machine: Machine) -> None:
    machine.script = lambda request, n: STALL if n else Reply(calls=(("glob", {}),))
    with machine.process("run", "List.", "--workspace", ".", "--thread", "work") as process:
        machine.wait_for_requests(2)
        process.kill()
    machine.script = lambda request, n: HELLO
    again = machine.invoke("resume", "--thread", "work", "--json")
    assert again.exit_code == 0, again.stderr
    assert json.loads(again.stdout)["steps"] == 2


def test_a_running_run_holds_its_thread_and_another_process_can_cancel_it(
    machine: Machine,
) -> None:
    machine.script = lambda request, n: STALL
    with machine.process("run", "Wait.", "--thread", "work") as process:
        machine.wait_for_requests(1)
        second = machine.invoke("run", "Me too.", "--thread", "work")
        assert second.exit_code == exits.NOTHING
        assert machine.invoke("resume", "--thread", "work").exit_code == exits.NOTHING
        (line,) = machine.invoke("threads", "--json").stdout.splitlines()
        run_id = json.loads(line)["active_run"]
        assert machine.invoke("cancel", run_id).stdout == f"{run_id}\n"
        _, stderr = process.communicate()
    assert process.returncode == exits.STOPPED
    assert "Stopped (cancelled)" in stderr
    assert "not active" in machine.invoke("cancel", run_id).stderr


def test_a_chat_attaches_files_to_its_next_line(machine: Machine) -> None:
    (machine.folder / "notes.txt").write_text("The sea is blue.")
    done = machine.invoke("chat", stdin="/attach notes.txt\nWhat colour is it?\nThanks.\n")
    assert done.exit_code == 0, done.stderr
    first, second = (request.json["messages"] for request in machine.server.requests)
    assert first[1]["content"].startswith("What colour is it?\n\n[file: notes.txt")
    assert "The sea is blue." in first[1]["content"]
    assert second[-1]["content"].strip() == "Thanks."


def test_chat_stays_on_one_thread(machine: Machine) -> None:
    result = machine.invoke(
        "chat", "--thread", "talk", stdin="My name is Ada.\n\nAnd now?\n/exit\n"
    )
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "Hello from the model.\n" * 2
    bodies = [request.body.decode() for request in machine.server.requests]
    assert len(bodies) == 2 and "Ada" in bodies[1] and "And now?" in bodies[1]


def test_show_and_threads_list_what_happened(machine: Machine) -> None:
    machine.script = _calls_then_answer(1)
    (machine.folder / "seen.txt").write_text("x")
    machine.invoke("run", "List the files.", "--workspace", ".", "--thread", "work")
    assert "work" in machine.invoke("threads").stdout
    shown = machine.invoke("show", "work").stdout
    for text in ("List the files.", "-> glob", "seen.txt", "Hello from the model."):
        assert text in shown
    nodes = [
        json.loads(line)
        for line in machine.invoke("show", "work", "--json").stdout.split("\n")
        if line
    ]
    # The first is the note of the workspace.
    assert [node["kind"] for node in nodes] == ["message", "message", "exchange", "message"]
    assert nodes[2]["results"][0]["outcome"] == "ok"
    assert [node["seq"] for node in nodes] == [1, 2, 3, 4]
    last = machine.invoke("show", "work", "--limit", "1")
    assert "List the files." not in last.stdout and "This is the last message;" in last.stderr
    events = machine.invoke("show", "work", "--events", "--json").stdout.splitlines()
    kinds = [json.loads(line)["kind"] for line in events]
    assert kinds[0] == "run-start" and kinds[-1] == "run-finish" and "tool-finish" in kinds
    assert "run-finish" in machine.invoke("show", "work", "--events", "--limit", "1").stdout


def test_another_user_sees_nothing(machine: Machine) -> None:
    machine.invoke("run", "Hello.", "--thread", "work")
    other = {"AGENT_RUNTIME_USER": "eve"}
    assert machine.invoke("threads", **other).stdout == ""
    assert machine.invoke("show", "work", **other).exit_code == exits.NOTHING


@pytest.mark.parametrize("command", [["run", "x"], ["threads"], ["resume"]])
def test_a_database_that_does_not_open_is_reported(machine: Machine, command: list[str]) -> None:
    result = machine.invoke(*command, AGENT_RUNTIME_DATABASE_URL="file:missing/folder/x.db")
    assert result.exit_code == exits.DATABASE
    assert "error: " in result.stderr and "cure: " in result.stderr


def test_another_programs_run_is_not_rebuilt(
    machine: Machine, begin_elsewhere: Callable[[], str]
) -> None:
    run_id = begin_elsewhere()
    result = machine.invoke("resume", run_id)
    assert result.exit_code == exits.USAGE
    assert "not started from the command line" in result.stderr


@pytest.fixture
def begin_elsewhere(machine: Machine) -> Callable[[], str]:
    """Return a function that runs another program's agent until it fails."""
    import anyio

    from agent_runtime.agent import Agent
    from agent_runtime.errors import ModelAuthError
    from agent_runtime.models.scripted import ScriptedModel
    from agent_runtime.runtime import Runtime
    from agent_runtime_config import Settings

    async def work() -> str:
        model = ScriptedModel([ModelAuthError("no")])
        run_id = ""
        async with (
            Runtime.open(Settings(database_url="file:agent_runtime.db"), model=model) as runtime,
            runtime.stream(Agent(), "Hello.") as stream,
        ):
            with pytest.raises(ModelAuthError):
                async for event in stream:
                    run_id = event.run_id
        return run_id

    return lambda: anyio.run(work)


class TestOffline:
    """Without a language model."""

    def test_a_run_that_began_offline_names_the_option_for_the_model_that_is_set(
        self, machine: Machine
    ) -> None:
        online, machine.environ = machine.environ, {}
        assert machine.invoke("run", "Hello.").exit_code == exits.UNSUPPORTED
        machine.environ = online
        shown = machine.invoke("resume", "last")
        assert "No language model is set" not in shown.stderr
        assert f"--model {online['AGENT_RUNTIME_MODEL']} gives it" in shown.stderr

    def test_a_survey_is_written_and_the_missing_model_is_reported(
        self, machine: Machine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (machine.folder / "src").mkdir()
        (machine.folder / "src" / "a.py").write_text('"""Adds."""\n\ndef add(): ...\n')
        machine.environ = {}
        result = machine.invoke(
            "run", "Survey this folder and write REPORT.md", "--workspace", "src"
        )
        assert result.exit_code == 0, result.stderr
        assert "No language model is set" in result.stderr
        assert "AGENT_RUNTIME_MODEL=" in result.stderr
        assert "a.py" in (machine.folder / "src" / "REPORT.md").read_text()
        assert machine.server.requests == []

    def test_another_task_is_refused_with_a_cure(self, machine: Machine) -> None:
        machine.environ = {}
        result = machine.invoke("run", "Write a poem about the sea", "--workspace", ".")
        assert result.exit_code == exits.UNSUPPORTED
        assert "AGENT_RUNTIME_MODEL" in result.stderr and result.stdout == ""
