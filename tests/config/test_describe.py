"""The description of settings: complete, with origins, without secrets."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agent_runtime_config import ConfigError, Settings, describe_settings, load_settings
from agent_runtime_config import settings_table as table
from agent_runtime_config.docs import BEGIN, END, main, settings_sections, with_table
from agent_runtime_config.subjects import subjects
from agent_runtime_config.urls import redact_url


def _row(environ: dict[str, str], name: str) -> tuple[str, str]:
    rows = describe_settings(load_settings(environ), environ)
    row = next(row for row in rows if row.variable == f"AGENT_RUNTIME_{name}")
    return row.value, row.origin


def test_every_setting_is_described_with_its_meaning() -> None:
    rows = describe_settings(Settings(), {})
    assert sorted(row.variable for row in rows) == sorted(
        f"AGENT_RUNTIME_{field.upper()}" for field in Settings.model_fields
    )
    assert rows[0].variable == "AGENT_RUNTIME_MODEL"
    assert all(row.meaning.endswith(".") and row.origin == "default" for row in rows)
    # The documentation shows the default database without anyone's home folder.
    moved = {"AGENT_RUNTIME_DATABASE_URL"}
    assert all(row.value == row.default for row in rows if row.variable not in moved)


def test_a_value_has_its_origin() -> None:
    postgres = {"DATABASE_URL": "postgres://h/db"}
    assert _row({}, "MAX_STEPS") == ("500", "default")
    assert _row({"AGENT_RUNTIME_MAX_STEPS": "500"}, "MAX_STEPS") == ("500", "environment")
    assert _row(postgres, "DATABASE_URL") == ("postgres://h/db", "DATABASE_URL")
    both = postgres | {"AGENT_RUNTIME_DATABASE_URL": "file:a.db"}
    assert _row(both, "DATABASE_URL") == ("file:a.db", "environment")
    in_code = describe_settings(Settings(max_steps=3), {})
    assert next(row for row in in_code if row.variable.endswith("_MAX_STEPS")).origin == "code"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("file:agent_runtime.db", "file:agent_runtime.db"),
        ("data/my@file.db", "data/my@file.db"),
        ("postgresql://host:5432/db", "postgresql://host:5432/db"),
        ("postgresql://ada:hunter2@host/db", "postgresql://***@host/db"),
        ("libsql://hunter2@host", "libsql://***@host"),
        ("libsql://host?authToken=hunter2&tls=1", "libsql://host?authToken=***&tls=***"),
        ("https://host?hunter2", "https://host?***"),
        ("https://host/db#hunter2", "https://host/db#***"),
        ("postgresql://ada:hun@ter2@host/db", "postgresql://***@host/db"),
        ("postgresql://ada:hun/ter2@host/db", "postgresql://***"),
        ("postgresql://ada:hun?ter2@host/db", "postgresql://***"),
        ("postgresql://ada:hun#ter2@host/db", "postgresql://***"),
        ("file:x.db?key=hunter2", "file:x.db?key=***"),
        ("postgres//ada:hunter2@host/db", "***@host/db"),
        ("postgresql:/ada:hun/ter2@host/db", "***@host/db"),
        ("postgresql;//ada:hunter2@host/db", "***@host/db"),
        ("//ada:hunter2@host/db", "***@host/db"),
        ("ada:hunter2@host", "***@host"),
        ("host/db;password=hunter2", "host/db;password=***"),
        ("file:data/my@file.db", "file:data/my@file.db"),
        ("file:x.db#hunter2", "file:x.db#***"),
        ("data/a#b.db", "data/a#b.db"),
        ("host=h password='a \\' hunter2' user=u", "host=h password=*** user=u"),
        ('password="a hunter2', "password=***"),
        ("postgresql://h/db?options=-c%20password%3Dhunter2", "postgresql://h/db?options=***"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert redact_url(url) == shown


@pytest.mark.parametrize("name", ["DATABASE_URL", "MODEL_BASE_URL"])
def test_a_described_url_has_no_secret(name: str) -> None:
    environ = {f"AGENT_RUNTIME_{name}": "https://ada:hunter2@host/v1?key=hunter2"}
    value, _ = _row(environ, name)
    assert value == "https://***@host/v1?key=***"


def test_the_table_has_a_line_for_each_setting() -> None:
    lines = table().splitlines()
    assert len(lines) == 2 + len(Settings.model_fields)
    assert "| `AGENT_RUNTIME_LAST_MESSAGES` | `20` |" in table()
    assert all(line.count(" | ") == 2 for line in lines[2:])


def test_each_setting_is_under_one_subject_in_the_documentation() -> None:
    listed = [field for fields in subjects().values() for field in fields]
    assert sorted(listed) == sorted(Settings.model_fields)
    assert all(f"`AGENT_RUNTIME_{field.upper()}`" in settings_sections() for field in listed)


def test_the_table_is_written_between_its_markers(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"# Title\n{BEGIN}old\n{END}rest\n")
    assert main([str(readme), "--check"]) == 1
    assert main([str(readme)]) == 0
    assert readme.read_text() == f"# Title\n{BEGIN}{settings_sections()}\n{END}rest\n"
    assert main([str(readme), "--check"]) == 0


def test_a_file_without_markers_is_refused_and_unchanged(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("# Title\n")
    assert main([str(readme)]) == 2
    assert main([str(tmp_path / "missing.md")]) == 2
    assert readme.read_text() == "# Title\n"
    with pytest.raises(ConfigError, match="no place"):
        with_table(f"{END}{BEGIN}")


def test_importing_the_package_loads_no_library() -> None:
    code = (
        "import sys, agent_runtime_config; "
        "print(sorted({'pydantic', 'pydantic_settings'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_a_token_is_neither_described_nor_printed() -> None:
    environ = {"AGENT_RUNTIME_DATABASE_AUTH_TOKEN": "hidden-token"}
    settings = load_settings(environ)

    shown = {row.variable: row.value for row in describe_settings(settings, environ)}

    assert shown["AGENT_RUNTIME_DATABASE_AUTH_TOKEN"] == "***"
    assert "hidden-token" not in repr(settings)
