"""`agent-runtime serve` and `tokens`, as processes."""

from __future__ import annotations

import importlib
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from agent_runtime.cli.service.applications import load_named
from agent_runtime.cli.service.serve import load_hook
from agent_runtime.errors import ConfigError
from tests.support.command import COMMAND, clean_environ, invoke_command, run_command

APP = """
from agent_runtime import Agent, App, ScriptedModel
from agent_runtime.models.scripted import say

app = App(agents={"worker": Agent(ScriptedModel(lambda request: say("Done.")))}, name="mine")
"""


def test_tokens_serve_and_a_drain(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(APP)
    outside = invoke_command("serve", "mine:app", "--host", "0.0.0.0", "--port", "0", cwd=tmp_path)
    assert outside.returncode == 2 and "does not listen on 0.0.0.0" in outside.stderr
    made = invoke_command("tokens", "make", "ann", cwd=tmp_path)
    token = made.stdout.strip()
    listed = invoke_command("tokens", "list", cwd=tmp_path)
    assert token[:11] in listed.stdout and token not in listed.stdout
    process = subprocess.Popen(
        [*COMMAND, "serve", "mine:app", "--port", "0"],
        cwd=tmp_path, env=clean_environ(), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "Serving on" in line)
        url = line.split()[-1]
        assert httpx.get(f"{url}/api/runs").status_code == 401
        with httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=30
        ) as client:
            run = client.post("/api/runs", json={"task": "Work."}).json()
            with client.stream("GET", f"/api/runs/{run['run_id']}/events") as events:
                assert "event: end" in events.read().decode()
            with client.stream("GET", f"/api/threads/{run['thread_id']}/events") as events:
                lines = events.iter_lines()
                next(lines)
                process.send_signal(signal.SIGTERM)
                assert ": the service closes" in list(lines)
        assert process.wait(30) in (0, -signal.SIGTERM)
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()
    identity = listed.stdout.split()[0]
    assert invoke_command("tokens", "revoke", identity, cwd=tmp_path).returncode == 0
    again = invoke_command("tokens", "revoke", identity, cwd=tmp_path)
    assert again.returncode == 6 and "no token" in again.stderr


def test_what_is_no_application_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "no_apps.py").write_text("app = 1")
    monkeypatch.setattr(sys, "path", [*sys.path])
    for target in ("no_apps:app", "no_apps:nothing", "missing:app"):
        refused = invoke_command("serve", target, "--port", "0", cwd=tmp_path)
        assert refused.returncode == 2, refused.stderr
        assert "module:app" in refused.stderr or "module:name" in refused.stderr


def test_an_address_that_cannot_be_listened_on_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(APP)
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = str(other.getsockname()[1])
        used = run_command("serve", "mine:app", "--port", taken, cwd=tmp_path)
    assert used.returncode == 2
    assert "cannot listen on" in used.stderr and "in use" in used.stderr


@pytest.mark.parametrize("hook", ["missing:name", "not a module", ".:x", "no_hooks:app"])
def test_a_hook_that_is_none_is_refused(
    hook: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no_hooks.py").write_text("app = 1")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(ConfigError) as refused:
        load_hook(hook)
    assert "`module:name`" in (refused.value.cure or "")


@pytest.mark.slow
def test_tokens_stay_required_after_the_last_is_revoked(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(APP)
    invoke_command("tokens", "make", "ann", cwd=tmp_path)
    identity = invoke_command("tokens", "list", cwd=tmp_path).stdout.split()[0]
    assert invoke_command("tokens", "revoke", identity, cwd=tmp_path).returncode == 0
    process = subprocess.Popen(
        [*COMMAND, "serve", "mine:app", "--port", "0"],
        cwd=tmp_path, env=clean_environ(), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "Serving on" in line)
        assert httpx.get(f"{line.split()[-1]}/api/runs").status_code == 401
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def (", "SyntaxError"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise SystemExit('bye \\x1b[31m')", "SystemExit: bye"),
        (
            "raise RuntimeError('postgresql://u:hunter2@h/db')",
            "RuntimeError: postgresql://***@h/db",
        ),
        ("app = type('X', (), {'__getattr__': lambda self, name: 1 / 0})()", "ZeroDivisionError"),
    ],
)
def test_a_module_that_cannot_be_imported_is_an_error_of_the_user(
    tmp_path: Path, text: str, said: str
) -> None:
    # Each its own, as they are imported in this process.
    module = f"broken_{abs(hash(text))}"
    (tmp_path / f"{module}.py").write_text(text)
    refused = invoke_command("serve", f"{module}:app.agents", cwd=tmp_path)
    assert refused.returncode == 2
    assert "cannot be imported" in refused.stderr and said in refused.stderr
    assert "internal error" not in refused.stderr
    assert "hunter2" not in refused.stderr and "\x1b" not in refused.stderr


def test_an_agent_cannot_replace_what_is_imported_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beginning.py").write_text("import helping\n\n\ndef later():\n    import lately\n")
    (tmp_path / "helping.py").write_text("")
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.chdir(tmp_path)
    later = load_named("beginning:later", "APP")
    # As a tool for files would write them: one of them is a module of Python.
    for name in ("wave", "lately"):
        (tmp_path / f"{name}.py").write_text("MINE = True")
        monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.invalidate_caches()
    assert not hasattr(importlib.import_module("wave"), "MINE")
    # The application's own modules are found all the same.
    later()
    assert sys.modules["lately"].MINE
