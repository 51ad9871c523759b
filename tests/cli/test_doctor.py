"""Each check of `doctor` in the states that can be brought about here."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent_runtime.cli import exit_codes as exits
from agent_runtime.cli import main
from agent_runtime.cli.commands import doctor


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("AGENT_RUNTIME_") or name.endswith("_API_KEY") or name == "DATABASE_URL":
            monkeypatch.delenv(name)
    monkeypatch.setenv("AGENT_RUNTIME_DATABASE_URL", "file:agent_runtime.db")


def _doctor(environ: Mapping[str, str] | None = None) -> tuple[int, dict[str, dict[str, str]]]:
    result = CliRunner().invoke(main, ["doctor", "--json"], env=environ)
    return result.exit_code, {check["name"]: check for check in json.loads(result.stdout)}


def test_a_fresh_install_passes_and_says_that_no_model_is_set() -> None:
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
    }
    assert "AGENT_RUNTIME_MODEL" in checks["model"]["cure"]


def test_the_text_names_each_check_with_its_cure() -> None:
    result = CliRunner().invoke(main, ["doctor"])
    assert "ok    database: file:agent_runtime.db opens" in result.stdout
    assert "warn  model: none is set" in result.stdout and "      cure: Set" in result.stdout


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


def test_a_server_of_ones_own_needs_no_key() -> None:
    environ = {
        "AGENT_RUNTIME_MODEL": "openai/own",
        "AGENT_RUNTIME_MODEL_BASE_URL": "http://ada:hunter2@127.0.0.1:1/v1",
    }
    code, checks = _doctor(environ)
    assert code == exits.SUCCESS
    assert "price unknown, at http://***@127.0.0.1:1/v1" in checks["model"]["detail"]


def test_models_that_replace_each_other_are_all_checked() -> None:
    names = {"AGENT_RUNTIME_MODEL": "anthropic/claude-sonnet-4-5, openai/gpt-4o"}
    code, checks = _doctor(names)
    assert code == exits.INTERNAL and checks["model"]["state"] == "fail"
    code, checks = _doctor({**names, "OPENAI_API_KEY": "sk-0123456789"})
    assert (code, checks["model"]["state"]) == (exits.SUCCESS, "warn")
    assert "(anthropic/claude-sonnet-4-5 needs a key" in checks["model"]["detail"]
    assert "; then openai/gpt-4o, window 128,000 tokens" in checks["model"]["detail"]
    assert checks["model"]["cure"] == "Set ANTHROPIC_API_KEY."


def test_each_roles_own_model_is_shown_without_its_key() -> None:
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


def test_an_embedder_without_its_key_fails_and_one_of_ones_own_needs_none() -> None:
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


def test_an_embedder_of_unknown_price_and_a_budget_in_dollars_do_not_go_together() -> None:
    environ = {
        "AGENT_RUNTIME_EMBEDDER_MODEL": "openai/own",
        "AGENT_RUNTIME_EMBEDDER_BASE_URL": "http://127.0.0.1:1/v1",
        "AGENT_RUNTIME_BUDGET_USD": "1",
    }
    code, checks = _doctor(environ)
    assert code == exits.SUCCESS and checks["embedder"]["state"] == "warn"


def test_a_file_that_is_no_database_fails(tmp_path: Path) -> None:
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
def test_the_broken_releases_of_litellm_are_known(version: str, broken: bool) -> None:
    assert doctor.broken_litellm(version) is broken


@pytest.mark.parametrize(
    ("version", "state"), [((3, 10), "fail"), ((3, 11), "ok"), ((3, 13), "ok"), ((3, 14), "warn")]
)
def test_the_version_of_python_is_checked(version: tuple[int, int], state: str) -> None:
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


def test_an_object_store_that_cannot_be_used_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"a letter")
    code, checks = _doctor({"AGENT_RUNTIME_OBJECT_STORE_URL": str(tmp_path / "file")})
    assert code == exits.INTERNAL
    assert checks["objects"]["state"] == "fail" and "is a file" in checks["objects"]["detail"]
    assert checks["objects"]["cure"] == "Choose the path of a folder."
