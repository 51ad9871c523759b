"""Each check of `doctor`, in the states that a test can produce."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import anyio
import pytest
from anyio.from_thread import start_blocking_portal
from click.testing import CliRunner

from agent_runtime import Agent, Runtime, ScriptedModel, Settings
from agent_runtime.cli import exit_codes as exits
from agent_runtime.cli import main
from agent_runtime.cli.commands import doctor
from agent_runtime.models.scripted import call
from agent_runtime.testing.model_server import OpenAIServer, Reply, server_error
from agent_runtime_storage import LeaseOwner
from tests.support.command import without_settings

GONE = LeaseOwner(host="gone", boot="b", pid=1, started="1")


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    without_settings(monkeypatch, tmp_path)
    for name in [name for name in os.environ if name.endswith("_API_KEY")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AGENT_RUNTIME_DATABASE_URL", "file:agent_runtime.db")


def _doctor(environ: Mapping[str, str] | None = None) -> tuple[int, dict[str, dict[str, str]]]:
    result = CliRunner().invoke(main, ["doctor", "--json"], env=environ)
    return result.exit_code, {check["name"]: check for check in json.loads(result.stdout)}


def test_a_fresh_install_passes_and_reports_that_no_model_is_set() -> None:
    code, checks = _doctor()
    assert code == exits.SUCCESS
    assert {name: check["state"] for name, check in checks.items()} == {
        "python": "ok",
        "packages": "ok",
        "settings": "ok",
        "model": "warn",
        "embedder": "ok",
        "database": "ok",
        "objects": "ok",
        "state": "ok",
        "sandbox": "ok",
    }
    assert "AGENT_RUNTIME_MODEL" in checks["model"]["cure"]


def test_the_text_names_each_check_and_its_cure() -> None:
    result = CliRunner().invoke(main, ["doctor"])
    assert "ok    database: file:agent_runtime.db opens" in result.stdout
    assert "warn  model: none is set" in result.stdout and "      cure: Set" in result.stdout


def test_live_names_runs_whose_process_is_gone_and_those_that_can_go_on() -> None:
    settings = Settings(database_url="file:agent_runtime.db")

    async def leave() -> None:
        async with Runtime.open(settings) as runtime:
            for thread in ("a", "b"):
                agent = Agent(ScriptedModel([call("none")]), max_steps=1)
                run = await runtime.run(agent, "Go.", thread=thread)
                runs = runtime.store.of("local").runs
                await runs.take_lease(run.run_id, GONE, seconds=60 * (thread == "b"), replaces=1)

    anyio.run(leave)
    result = CliRunner().invoke(main, ["doctor", "--live"])
    assert "warn  live: 1 run whose process is gone, 0 of them in the middle" in result.stdout
    assert "runs sweep --resume" in result.stdout
    assert "ok    live: gone, process 1: 1 run at work, 0 of them in tools" in result.stdout

    anyio.run(sweep_once, settings)
    result = CliRunner().invoke(main, ["doctor", "--live"])
    assert "warn  live: 1 run interrupted" in result.stdout


async def sweep_once(settings: Settings) -> None:
    """Sweep the runs of the settings' user."""
    async with Runtime.open(settings) as runtime:
        await runtime.sweep()


def test_bad_settings_fail() -> None:
    code, checks = _doctor({"AGENT_RUNTIME_MAX_STEP": "3"})
    assert code == exits.INTERNAL
    assert checks["settings"]["state"] == "fail"
    assert checks["settings"]["cure"] == "Did you mean AGENT_RUNTIME_MAX_STEPS?"


def test_a_missing_key_fails_and_is_named() -> None:
    code, checks = _doctor({"AGENT_RUNTIME_MODEL": "anthropic/claude-sonnet-4-5"})
    assert code == exits.INTERNAL
    assert checks["model"]["state"] == "fail"
    assert checks["model"]["cure"] == "Set ANTHROPIC_API_KEY."


def test_a_key_that_is_set_is_never_shown() -> None:
    environ = {
        "AGENT_RUNTIME_MODEL": "anthropic/claude-sonnet-4-5",
        "ANTHROPIC_API_KEY": "sk-ant-hunter2",
    }
    code, checks = _doctor(environ)
    assert code == exits.SUCCESS and checks["model"]["state"] == "ok"
    assert "window 200,000" in checks["model"]["detail"]
    assert "hunter2" not in json.dumps(checks)


def test_a_self_hosted_server_needs_no_key() -> None:
    environ = {
        "AGENT_RUNTIME_MODEL": "openai/own",
        "AGENT_RUNTIME_MODEL_BASE_URL": "http://ada:hunter2@127.0.0.1:1/v1",
    }
    code, checks = _doctor(environ)
    assert code == exits.SUCCESS
    assert "price unknown, at http://***@127.0.0.1:1/v1" in checks["model"]["detail"]


def _serve(reply: Reply) -> AbstractContextManager[OpenAIServer]:
    """Run a server in a thread of its own, because the command has its own event loop."""

    @contextmanager
    def served() -> Generator[OpenAIServer]:
        with start_blocking_portal() as portal:
            server = OpenAIServer(lambda request, n: reply)
            with portal.wrap_async_context_manager(server):
                yield server

    return served()


@pytest.mark.parametrize(
    ("reply", "code", "state", "detail"),
    [
        (Reply(text="ready"), exits.SUCCESS, "ok", r"'ready' \(stop\) after .* tokens"),
        (server_error(), exits.INTERNAL, "fail", "cannot be reached or failed"),
    ],
)
def test_a_call_shows_what_came_back(reply: Reply, code: int, state: str, detail: str) -> None:
    with _serve(reply) as server:
        environ = {
            "AGENT_RUNTIME_MODEL": "openai/own",
            "AGENT_RUNTIME_MODEL_BASE_URL": server.base_url,
            "AGENT_RUNTIME_MODEL_API_KEY": "sk-of-this-test-only",
            "AGENT_RUNTIME_MODEL_RETRIES": "0",
        }
        result = CliRunner().invoke(main, ["doctor", "--json", "--call"], env=environ)
        requests = len(server.requests)
    checks = {check["name"]: check for check in json.loads(result.stdout)}
    assert (result.exit_code, checks["call"]["state"], requests) == (code, state, 1)
    assert re.search(detail, checks["call"]["detail"])
    assert "sk-of-this-test-only" not in result.output


def test_a_base_urls_user_and_password_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with _serve(Reply(text="ready")) as server:
        url = server.base_url.replace("http://", "http://ada:hunter%402@")
        environ = {"AGENT_RUNTIME_MODEL": "openai/own", "AGENT_RUNTIME_MODEL_BASE_URL": url}
        result = CliRunner().invoke(main, ["doctor", "--call"], env=environ)
        sent = server.requests[0].headers["authorization"]
    assert base64.b64decode(sent.removeprefix("Basic ")) == b"ada:hunter@2"
    assert "hunter" not in result.output


def test_models_that_replace_each_other_are_all_checked() -> None:
    names = {"AGENT_RUNTIME_MODEL": "anthropic/claude-sonnet-4-5, openai/gpt-4o"}
    code, checks = _doctor(names)
    assert code == exits.INTERNAL and checks["model"]["state"] == "fail"
    code, checks = _doctor({**names, "OPENAI_API_KEY": "sk-0123456789"})
    assert (code, checks["model"]["state"]) == (exits.SUCCESS, "warn")
    assert "(anthropic/claude-sonnet-4-5 needs a key" in checks["model"]["detail"]
    assert "; then openai/gpt-4o, window 128,000 tokens" in checks["model"]["detail"]
    assert checks["model"]["cure"] == "Set ANTHROPIC_API_KEY."


@pytest.mark.parametrize("role", ["OBSERVER", "REFLECTOR"])
def test_a_window_that_is_too_small_for_memory_is_told(role: str) -> None:
    environ = {
        "AGENT_RUNTIME_MODEL": "openai/gpt-4o",
        "OPENAI_API_KEY": "sk-0123456789",
        f"AGENT_RUNTIME_{role}_MODEL": "openai/gpt-4o-mini",
        f"AGENT_RUNTIME_{role}_CONTEXT_WINDOW": "1200",
    }
    code, checks = _doctor(environ)
    check = checks[role.lower()]
    assert (code, check["state"]) == (exits.SUCCESS, "warn")
    assert "1,200 tokens, has room for 0 tokens" in check["detail"]
    assert f"AGENT_RUNTIME_{role}_CONTEXT_WINDOW" in check["cure"]
    # The run's own model, where no other is named.
    own = {"AGENT_RUNTIME_CONTEXT_WINDOW": "1200"} | dict(list(environ.items())[:2])
    assert _doctor(own)[1][role.lower()]["state"] == "warn"
    environ[f"AGENT_RUNTIME_{role}_CONTEXT_WINDOW"] = "128000"
    assert _doctor(environ)[1][role.lower()]["state"] == "ok"


def test_each_roles_model_is_shown_without_its_key() -> None:
    environ = {
        "AGENT_RUNTIME_OBSERVER_MODEL": "openai/small",
        "AGENT_RUNTIME_OBSERVER_BASE_URL": "http://ada:hunter2@127.0.0.1:1/v1",
        "AGENT_RUNTIME_OBSERVER_API_KEY": "hunter2-of-the-observer",
        "AGENT_RUNTIME_OBSERVER_CONTEXT_WINDOW": "9000",
        "AGENT_RUNTIME_REFLECTOR_MODEL": "replicate/x",
        "AGENT_RUNTIME_REFLECTOR_BASE_URL": "http://127.0.0.1:1/v1",
    }
    code, checks = _doctor(environ)
    assert code == exits.INTERNAL
    assert checks["observer"]["state"] == "ok"
    assert "window 9,000" in checks["observer"]["detail"]
    assert "at http://***@127.0.0.1:1/v1" in checks["observer"]["detail"]
    assert checks["reflector"]["state"] == "fail" and "own host" in checks["reflector"]["detail"]
    shown = CliRunner().invoke(main, ["config"], env=environ).output
    assert "hunter2" not in json.dumps(checks) + shown


def test_a_hosted_embedder_needs_a_key_and_a_self_hosted_one_does_not() -> None:
    environ = {"AGENT_RUNTIME_EMBEDDER_MODEL": "openai/text-embedding-3-small"}
    code, checks = _doctor(environ)
    assert code == exits.INTERNAL
    assert checks["embedder"]["state"] == "fail"
    assert checks["embedder"]["cure"] == "Set OPENAI_API_KEY."
    url = "http://ada:hunter2@127.0.0.1:1/v1"
    code, checks = _doctor({**environ, "AGENT_RUNTIME_EMBEDDER_BASE_URL": url})
    assert code == exits.SUCCESS and checks["embedder"]["state"] == "ok"
    assert "127.0.0.1:1/v1" in checks["embedder"]["detail"]
    assert "hunter2" not in json.dumps(checks)


def test_an_unpriced_embedder_fails_under_a_budget_in_dollars() -> None:
    environ = {
        "AGENT_RUNTIME_EMBEDDER_MODEL": "openai/own",
        "AGENT_RUNTIME_EMBEDDER_BASE_URL": "http://127.0.0.1:1/v1",
        "AGENT_RUNTIME_BUDGET_USD": "1",
    }
    code, checks = _doctor(environ)
    assert code == exits.SUCCESS and checks["embedder"]["state"] == "warn"


def test_a_file_that_is_not_a_database_fails(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("This is no database, but a text.\n" * 100)
    code, checks = _doctor({"AGENT_RUNTIME_DATABASE_URL": "file:notes.txt"})
    assert code == exits.INTERNAL
    assert checks["database"]["state"] == "fail" and checks["database"]["cure"]


def test_a_postgres_database_needs_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENT_RUNTIME_DATABASE_URL")
    _, checks = _doctor({"DATABASE_URL": "postgresql://ada:hunter2@127.0.0.1:1/db"})
    assert checks["postgres"]["state"] == "ok" and "psycopg 3" in checks["postgres"]["detail"]
    assert checks["database"]["state"] == "fail"
    assert "hunter2" not in json.dumps(checks)


@pytest.mark.parametrize(
    ("version", "broken"),
    [
        ("1.105.3", False),
        ("1.106.0", True),
        ("1.107.2rc1", True),
        ("1.108.0", True),
        ("1.108.3", True),
        ("1.108.4", False),
        ("1.109.1", False),
        ("2.0.0", False),
        ("", False),
    ],
)
def test_broken_releases_of_litellm_are_reported(version: str, broken: bool) -> None:
    assert doctor.broken_litellm(version) is broken


@pytest.mark.parametrize(
    ("version", "state"), [((3, 10), "fail"), ((3, 11), "ok"), ((3, 13), "ok"), ((3, 14), "warn")]
)
def test_the_python_version_is_checked(version: tuple[int, int], state: str) -> None:
    assert doctor.check_python(version).state == state


def test_the_object_store_is_written_and_read(tmp_path: Path) -> None:
    code, checks = _doctor({"AGENT_RUNTIME_OBJECT_STORE_URL": str(tmp_path / "objects")})
    assert code == exits.SUCCESS
    assert checks["objects"]["detail"] == f"file:{tmp_path}/objects can be written and read"
    assert [one for one in (tmp_path / "objects").rglob("*") if one.is_file()] == []


def test_without_an_object_store_the_folder_is_named(tmp_path: Path) -> None:
    _, checks = _doctor()
    assert (
        checks["objects"]["detail"]
        == f"large bodies are stored in {tmp_path}/agent_runtime.objects"
    )


def test_an_unusable_object_store_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"a letter")
    code, checks = _doctor({"AGENT_RUNTIME_OBJECT_STORE_URL": str(tmp_path / "file")})
    assert code == exits.INTERNAL
    assert checks["objects"]["state"] == "fail" and "is a file" in checks["objects"]["detail"]
    assert checks["objects"]["cure"] == "Choose the path of a folder."
