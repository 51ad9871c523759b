"""An agent repairs a repository in tmux: asked, steered, killed, resumed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from agent_runtime.testing import Anthropic, Call, Say, StrictServer, Turn
from tests.support.command import COMMAND, clean_environ
from tests.terminal.small_project import git, is_alive, make_project, passes_its_tests, server_pid
from tests.terminal.tmux import Tmux, shell_in_tmux

pytestmark = pytest.mark.slow

QUESTION = "The agent wants to call bash:"
ANSWER = "or later] >"
SERVE = Call("bash", {"command": "exec python serve.py", "background": True})
TURNS: list[Turn] = [
    (
        Say("I read the code and its test."),
        Call("read_file", {"path": "prices.py"}),
        Call("read_file", {"path": "test_prices.py"}),
    ),
    (Call("bash", {"command": "pip install pytest"}),),
    (Call("bash", {"command": "python -m unittest"}),),
    (
        Say("The first item is left out."),
        Call("edit_file", {"path": "prices.py", "edits": [{"old": "items[1:]", "new": "items"}]}),
    ),
    (SERVE,),
    (Call("bash", {"command": "python ask.py; touch asked; until [ -e go ]; do sleep 0.1; done"}),),
    (
        Call(
            "edit_file",
            {"path": "CHANGES.md", "edits": [{"old": "# Changes\n", "new": "# Changes\n- Add.\n"}]},
        ),
    ),
    (Call("bash", {"command": "touch waits; sleep 600"}),),
    (Call("bash", {"command": "rm waits; python -m unittest"}), SERVE),
    (Call("bash", {"command": "python ask.py"}),),
    (Say("The total counts **every** item again."),),
]


@pytest.fixture
def model() -> Iterator[StrictServer]:
    """A provider that answers by how many answers the prompt has, as after a crash."""
    made: list[StrictServer] = []

    def script(child: bool, n: int) -> Turn:
        answers = sum(b'"role":"assistant"' in part for part in made[0].prompts[-1])
        return TURNS[answers]

    with start_blocking_portal() as portal:
        made.append(StrictServer(Anthropic(thinking=False), script))
        with portal.wrap_async_context_manager(made[0]):
            yield made[0]


def last_prompt(model: StrictServer) -> str:
    """Return the last prompt as text."""
    return b"".join(model.prompts[-1]).decode()


def begin(tmux: Tmux, project: Path, model: StrictServer) -> None:
    """Start a chat, refuse one command, allow the others, and have it edit and serve."""
    tmux.type("agent-runtime chat --workspace . --ask-shell --thread repair")
    tmux.wait_for(lambda: tmux.at_prompt("> "))
    tmux.type("The tests fail. Find out why, and repair it.")
    tmux.until(QUESTION, "command: pip install pytest", ANSWER)
    tmux.type("n It uses unittest.")
    tmux.until(QUESTION, ANSWER, times=2)
    tmux.type("a")
    tmux.wait_for(lambda: (project / ".server").exists())
    tmux.wait_for(lambda: (project / "asked").exists())
    sent = last_prompt(model)
    assert "It uses unittest." in sent and "FAILED (failures=1)" in sent
    assert is_alive(server_pid(project))


def interrupt(tmux: Tmux, project: Path, model: StrictServer) -> None:
    """Interrupt it to tell it something, and let it go on."""
    tmux.type("", "C-c")
    tmux.until("It stops after this step.")
    tmux.type("Note it in CHANGES.md too.")
    tmux.until("> Note it in CHANGES.md too.")
    (project / "go").touch()
    tmux.wait_for(lambda: (project / "waits").exists())
    assert "Note it in CHANGES.md too." in last_prompt(model)


def kill_and_resume(tmux: Tmux, project: Path) -> None:
    """Kill the process at work, and resume its run."""
    first = server_pid(project)
    tmux.kill_command()
    tmux.wait_for(lambda: not is_alive(first))
    tmux.type("stty sane; clear")
    tmux.wait_for(tmux.at_prompt)
    (project / ".server").unlink()
    tmux.type("agent-runtime resume last")
    tmux.until("was interrupted in a call of bash:", "accept RESULT")
    tmux.type("fail I killed it.")
    tmux.until("Done after")
    tmux.wait_for(tmux.at_prompt)


def test_a_repository_is_repaired(tmp_path: Path, model: StrictServer) -> None:
    project = tmp_path / "shop"
    project.mkdir()
    make_project(project)
    assert not passes_its_tests(project)
    environ = {
        "AGENT_RUNTIME_DATABASE_URL": f"file:{tmp_path}/state.db",
        "AGENT_RUNTIME_MODEL": "anthropic/claude-sonnet-4-5",
        "AGENT_RUNTIME_MODEL_BASE_URL": model.url,
        "ANTHROPIC_API_KEY": "unused",
    }
    with shell_in_tmux(project, environ) as tmux:
        begin(tmux, project, model)
        interrupt(tmux, project, model)
        kill_and_resume(tmux, project)
        assert "  The total counts every item again." in tmux.rows()
    assert passes_its_tests(project)
    assert git(project, "diff", "--stat").count("|") == 2
    assert not git(project, "ls-files", "--others", "--exclude-standard")
    assert not is_alive(server_pid(project))
    sent = last_prompt(model)
    assert "I killed it." in sent and "total 357" in sent
    assert model.violations == []
    # Not even the message to the interrupted run begins a new prompt.
    assert model.breaks() == []
    check = [*COMMAND, "db", "check"]
    done = subprocess.run(
        check, env=clean_environ(environ), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
