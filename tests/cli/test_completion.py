"""Shell completion: scripts that shells read, installed once, and ids from the database."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from agent_runtime.cli import exit_codes as exits
from agent_runtime.cli import main
from agent_runtime.cli.completion.install import MARK, SHELLS, Shell, install, script_of
from tests.cli.test_runs import Machine
from tests.cli.test_runs import machine as machine
from tests.support.command import clean_environ

HEAVY = {"litellm", "pydantic", "rich", "prompt_toolkit", "openai"}


@pytest.mark.parametrize("shell", SHELLS)
def test_it_is_installed_once(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    started = {"bash": ".bashrc", "zsh": ".zshrc"}.get(shell)
    if started:
        (tmp_path / started).write_bytes("alias x=y # für mich".encode("latin-1"))
    place = install(shell, {})
    assert install(shell, {}) == place
    assert place.script.read_text() == script_of(shell)
    assert "_AGENT_RUNTIME_COMPLETE" in script_of(shell)
    if started:
        text = (tmp_path / started).read_text("latin-1")
        assert text.startswith(f"alias x=y # für mich\n{MARK}\n") and text.count(MARK) == 1
    if started and (program := shutil.which(shell)):
        # What the shell reads when it starts has no mistake, the script included.
        for file in (tmp_path / started, place.script):
            subprocess.run([program, "-n", str(file)], check=True)


def _completed(folder: Path, *words: str) -> tuple[list[str], str]:
    """Return what the shell is offered for the last word, and which heavy modules were loaded."""
    code = (
        "import atexit, sys\n"
        f"atexit.register(lambda: print(sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr))\n"
        "from agent_runtime.cli import main\nmain(prog_name='agent-runtime')"
    )
    environ = clean_environ(
        {
            "_AGENT_RUNTIME_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(("agent-runtime", *words)),
            "COMP_CWORD": str(len(words)),
        }
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environ, capture_output=True, text=True
    )
    return [line.partition(",")[2] for line in done.stdout.split()], done.stderr.strip()


def test_ids_complete_without_heavy_imports(machine: Machine) -> None:
    result = json.loads(machine.invoke("run", "Say hello.", "--json").stdout)
    run, thread = str(result["run_id"]), str(result["thread_id"])
    assert _completed(machine.folder, "runs", "tree", run[-8:-5]) == ([run[-8:]], "[]")
    assert _completed(machine.folder, "show", thread[:5]) == ([thread], "[]")
    assert _completed(machine.folder, "resume", "la") == (["last"], "[]")
    assert _completed(machine.folder, "rege") == (["regenerate"], "[]")


def test_a_folder_without_a_database_completes_nothing_and_creates_none(tmp_path: Path) -> None:
    assert _completed(tmp_path, "show", "0") == ([], "[]")
    (tmp_path / "agent_runtime.db").write_text("no database")
    assert _completed(tmp_path, "show", "0") == ([], "[]")
    assert [path.name for path in tmp_path.iterdir()] == ["agent_runtime.db"]


def test_ctrl_c_during_a_completion_leaves_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def pressed(kind: str) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("agent_runtime.cli.parameters.id_completion._newest", pressed)
    monkeypatch.setenv("_AGENT_RUNTIME_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "agent-runtime show 0")
    monkeypatch.setenv("COMP_CWORD", "2")
    with pytest.raises(SystemExit) as ended:
        main(prog_name="agent-runtime")
    assert ended.value.code == exits.INTERRUPTED and not capsys.readouterr().err
