"""`agent-runtime db`, with the real command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from agent_runtime.cli import exit_codes as exits
from agent_runtime.cli import main
from tests.support.command import without_settings


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    without_settings(monkeypatch, tmp_path)
    monkeypatch.setenv("AGENT_RUNTIME_DATABASE_URL", "file:agent_runtime.db")


def _run(*arguments: str, **environ: str) -> Result:
    """Run the command in the test's folder, within this process."""
    return CliRunner().invoke(main, arguments, env=environ)


def _fill() -> None:
    """Create a database with a thread by running the offline model."""
    Path("work").mkdir(exist_ok=True)
    done = _run("run", "Survey the folder", "--workspace", "work", "--thread", "t1")
    assert done.exit_code == 0, done.stderr


def _change(sql: str) -> None:
    """Change the database's rows behind the store's back, in a separate process."""
    code = "import apsw, sys\napsw.Connection('agent_runtime.db').execute(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, sql], check=True)


def test_db_status_creates_no_database(tmp_path: Path) -> None:
    status = _run("db", "status")
    as_json = _run("db", "status", "--json")

    assert status.exit_code == 0 and "no database yet" in status.stdout
    assert json.loads(as_json.stdout) == {"url": "file:agent_runtime.db", "there": False}
    for command in ("check", "size", "vacuum"):
        assert _run("db", command).exit_code == exits.NOTHING
    assert not list(tmp_path.iterdir())


def test_migrate_prepares_a_database_once(tmp_path: Path) -> None:
    applied = _run("db", "migrate")
    again = _run("db", "migrate")
    status = _run("db", "status")

    assert applied.stdout.splitlines()[0] == "0001 log"
    assert again.stdout == "" and "current" in again.stderr
    assert status.exit_code == 0 and "pending    none" in status.stdout


def test_pending_migrations_are_reported_and_not_applied(tmp_path: Path) -> None:
    (tmp_path / "agent_runtime.db").touch()
    for _ in range(2):
        status = _run("db", "status", "--json")
        report = json.loads(status.stdout)
        assert status.exit_code == exits.DATABASE
        assert not report["ready"] and report["pending"][0] == "0001 log"
    check = _run("db", "check")
    assert check.exit_code == exits.DATABASE and "db migrate" in check.stderr


def test_a_newer_schema_is_reported(tmp_path: Path) -> None:
    _fill()
    _change("INSERT INTO schema_migrations VALUES (9000, 'dreams', '', 0)")

    status = _run("db", "status")

    assert status.exit_code == exits.DATABASE
    assert "9000 (dreams)" in status.stdout and "Upgrade" in status.stdout


def test_check_tells_a_sound_database_from_a_damaged_one(tmp_path: Path) -> None:
    _fill()
    well = _run("db", "check")
    assert (well.exit_code, well.stdout) == (0, "") and "No problems" in well.stderr

    _change("UPDATE threads SET last_seq = last_seq + 1 WHERE id = 't1'")
    ill = _run("db", "check")
    as_json = _run("db", "check", "--json")

    assert ill.exit_code == as_json.exit_code == exits.DATABASE
    assert "damage local/t1: of nodes there are" in ill.stdout and "cure: " in ill.stdout
    assert [finding["level"] for finding in json.loads(as_json.stdout)] == ["damage"]


def test_sizes_are_shown_as_text_and_as_json(tmp_path: Path) -> None:
    _fill()

    text = _run("db", "size").stdout
    report = json.loads(_run("db", "size", "--json", "--threads", "1").stdout)

    assert "in total" in text and "table nodes" in text and "thread local/t1" in text
    assert report["total"] >= sum(size for _, size in report["tables"]) > 0
    assert [thread["thread_id"] for thread in report["threads"]] == ["t1"]
    assert "before" in _run("db", "vacuum").stdout


def test_a_copy_can_be_repeated_and_lists_what_it_skipped(tmp_path: Path) -> None:
    _fill()
    urls = ("file:agent_runtime.db", "file:copy.db")

    first = _run("db", "copy", *urls)
    again = _run("db", "copy", *urls, "--json")
    _fill()
    other = _run("db", "copy", *urls)

    assert (first.exit_code, first.stdout) == (0, "copied    local/t1\n")
    assert json.loads(again.stdout)["outcome"] == "there"
    assert other.exit_code == exits.NOTHING and "conflict  local/t1" in other.stdout
    environ = {"AGENT_RUNTIME_DATABASE_URL": "file:copy.db"}
    assert _run("db", "check", **environ).exit_code == 0
    assert "survey" in _run("show", "t1", **environ).stdout


@pytest.mark.parametrize(
    ("source", "target", "code"),
    [
        ("file:missing.db", "file:b.db", exits.NOTHING),
        ("file:a.db", "file:a.db", exits.USAGE),
        ("ftp://host/a", "file:b.db", exits.USAGE),
    ],
)
def test_a_refused_copy_creates_nothing(
    source: str, target: str, code: int, tmp_path: Path
) -> None:
    done = _run("db", "copy", source, target)

    assert done.exit_code == code and done.stdout == ""
    assert not list(tmp_path.iterdir())


def test_secrets_in_a_url_are_not_shown(tmp_path: Path) -> None:
    _fill()
    secret = "hunter2-4711"
    url = f"postgresql://ada:{secret}@127.0.0.1:1/db"
    environ = {"AGENT_RUNTIME_DATABASE_URL": url}

    copied = _run("db", "copy", "file:agent_runtime.db", url)
    status = _run("db", "status", **environ)

    for done in (copied, status):
        assert done.exit_code == exits.DATABASE
        assert "***@127.0.0.1:1" in done.stderr
        assert secret not in done.stdout + done.stderr


def test_help_lists_every_db_command() -> None:
    shown = CliRunner().invoke(main, ["db", "--help"]).output
    for name in ("status", "migrate", "check", "size", "copy", "vacuum"):
        assert f"\n  {name} " in shown
    assert "db " in CliRunner().invoke(main, ["--help"]).output


def test_texts_of_an_earlier_version_are_reported_and_indexed_again() -> None:
    _fill()
    assert "search" not in _run("db", "status").stdout
    _change("UPDATE search_texts SET version = 1")

    status = _run("db", "status")
    again = _run("db", "reindex")

    assert status.exit_code == 0 and "found by exact words only" in status.stdout
    assert again.exit_code == 0 and "Indexed again: " in again.stderr
    assert "search" not in _run("db", "status").stdout
    assert "current" in _run("db", "reindex").stderr
