"""Where settings come from: their precedence, their files, and what files may not do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from agent_runtime_config import ConfigError, Settings, describe_settings, load_settings
from agent_runtime_config.names import HARMLESS, is_provider_variable

STEPS = "AGENT_RUNTIME_MAX_STEPS"


@pytest.fixture
def env_file(tmp_path: Path) -> Path:
    return tmp_path / "project.env"


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    file = tmp_path / "config.toml"
    file.touch(mode=0o600)
    return file


def _environ(env_file: Path, config_file: Path, **more: str) -> dict[str, str]:
    places = {
        "AGENT_RUNTIME_ENV_FILE": str(env_file),
        "AGENT_RUNTIME_CONFIG_FILE": str(config_file),
    }
    return places | more


def test_the_environment_wins_over_the_env_file_and_that_over_the_configuration_file(
    env_file: Path, config_file: Path
) -> None:
    config_file.write_text("max_steps = 3\nlast_messages = 4\nloop_limit = 5\n")
    env_file.write_text("AGENT_RUNTIME_MAX_STEPS=6\n\nexport AGENT_RUNTIME_LAST_MESSAGES='8'\n")
    environ = _environ(env_file, config_file, AGENT_RUNTIME_MAX_STEPS="7")

    settings = load_settings(environ)

    assert (settings.max_steps, settings.last_messages, settings.loop_limit) == (7, 8, 5)
    rows = {row.variable: row for row in describe_settings(settings, environ)}
    assert rows[STEPS].origin == "environment"
    assert rows["AGENT_RUNTIME_LAST_MESSAGES"].origin == f"{env_file}:3"
    assert rows["AGENT_RUNTIME_LOOP_LIMIT"].origin == f"{config_file}:3"
    assert rows["AGENT_RUNTIME_SWEEP"].origin == "default"


def test_a_configuration_file_may_use_tables_lists_and_full_names(config_file: Path) -> None:
    config_file.write_text(
        """
        AGENT_RUNTIME_USER = "ada"
        approve = ["bash", "write_file:path=/etc/*"]
        sandbox_network = true
        sandbox_read = ["/opt/go", "/opt/node"]
        budget.usd = 2.5
        [model]
        name = "openai/gpt-5"
        base_url = "http://localhost:8000/v1"
        [semantic_recall]
        top_k = 7
        [model_settings]
        temperature = 0.5
        """
    )

    settings = load_settings({"AGENT_RUNTIME_CONFIG_FILE": str(config_file)})

    assert settings == Settings(
        user="ada",
        approve="bash,write_file:path=/etc/*",
        sandbox_network=True,
        sandbox_read="/opt/go:/opt/node",
        budget_usd=2.5,
        model="openai/gpt-5",
        model_base_url="http://localhost:8000/v1",
        semantic_recall_top_k=7,
        model_settings='{"temperature": 0.5}',
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("\nmax_step = 3", "line 2: max_step is not a setting. Did you mean max_steps?"),
        ("[observer]\nmodl = 'x'", "observer.modl is not a setting. Did you mean observer_mod"),
        ("max-steps = 3", "max-steps is not a setting. Did you mean max_steps?"),
        ("max_steps = 3\nAGENT_RUNTIME_MAX_STEPS = 4", "line 2: AGENT.* is set again"),
        ("max_steps = 2026-01-01", "max_steps has a value of the wrong kind"),
        ("approve = ['a', 'b,c']", "approve has a value of the wrong kind"),
        ("approve = ['a', 1]", "approve has a value of the wrong kind"),
        ("max_steps = 0", r"max_steps \(.*config.toml:1\) must be greater than"),
        ("max_steps = ", "is not valid TOML"),
        ("max_steps = " + "9" * 5000, "a number that is too long"),
        ("max_steps = " + "[" * 5000 + "]" * 5000, "nests too deeply"),
        ('user = "a\\u0000b"', "zero byte"),
        ("env_file = '/x'", "which only the environment can"),
        ("PATH = '/x'", "PATH is not a setting"),
        ("[memroy]", "memroy is not a setting"),
        ("[observer.modle]", "observer.modle is not a setting"),
        ("user = {}", "user has a value of the wrong kind"),
        ("database_url = 'mysql://ada:hunter2@h/d'", "names the unknown scheme mysql"),
    ],
)  # fmt: skip
def test_a_bad_line_is_named_without_its_value(config_file: Path, text: str, problem: str) -> None:
    config_file.write_text(text)
    with pytest.raises(ConfigError, match=problem) as caught:
        load_settings({"AGENT_RUNTIME_CONFIG_FILE": str(config_file)})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "AGENT_RUNTIME_MAX_STEP=3",
            r"MAX_STEP \(.*project.env:1\) is not a setting.*_MAX_STEPS\?",
        ),
        ("\n\n'", "line 3, is not an assignment"),
        ("AGENT_RUNTIME_MODEL", "line 1, gives AGENT_RUNTIME_MODEL no value"),
        ("AGENT_RUNTIME_CONFIG_FILE=/x", "which only the environment can"),
        ("AGENT_RUNTIME_USER=\0", "line 1: the value of AGENT_RUNTIME_USER holds a zero byte"),
    ],
)
def test_a_bad_line_of_an_env_file_is_named(env_file: Path, text: str, problem: str) -> None:
    env_file.write_text(text)
    with pytest.raises(ConfigError, match=problem):
        load_settings({"AGENT_RUNTIME_ENV_FILE": str(env_file)})


def test_an_env_file_gives_settings_and_keys_and_nothing_else(
    env_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env_file.write_text(
        "OPENAI_API_KEY=from-file\nANTHROPIC_API_KEY=from-file\nLD_PRELOAD=/tmp/x.so\n"
        "HTTPS_PROXY=http://evil\nDATABASE_URL=postgresql://app\nAGENT_RUNTIME_USER=a$HOME\n"
    )
    monkeypatch.setenv("AGENT_RUNTIME_ENV_FILE", str(env_file))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "from-environment")
    monkeypatch.setenv("OPENAI_API_KEY", "")
    for name in ("LD_PRELOAD", "HTTPS_PROXY", "DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)

    settings = load_settings()

    assert settings.user == "a$HOME"
    assert settings.database_url.startswith("file:")
    assert os.environ["OPENAI_API_KEY"] == "from-file"
    assert os.environ["ANTHROPIC_API_KEY"] == "from-environment"
    assert not {"LD_PRELOAD", "HTTPS_PROXY"} & set(os.environ)


def test_reading_another_environment_changes_nothing(
    env_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MISTRAL_API_KEY", raising=False)
    env_file.write_text("MISTRAL_API_KEY=x\n")
    load_settings({"AGENT_RUNTIME_ENV_FILE": str(env_file)})
    assert "MISTRAL_API_KEY" not in os.environ


@pytest.mark.parametrize(
    "line",
    [
        "AGENT_RUNTIME_APPROVE=none",
        "AGENT_RUNTIME_HIDDEN_PATHS=!.env",
        "AGENT_RUNTIME_DATABASE_URL=http://evil",
        "agent_runtime_model_base_url=http://evil",
        "AGENT_RUNTIME_NOT_YET_INVENTED=1",
        "OPENAI_BASE_URL=http://evil",
    ],
)
def test_a_file_of_the_current_folder_cannot_set_what_guards(
    env_file: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.chdir(env_file.parent)
    env_file.write_text(f"AGENT_RUNTIME_MODEL=openai/gpt-5\n{line}\n")
    with pytest.raises(ConfigError, match="line 2, sets"):
        load_settings({"AGENT_RUNTIME_ENV_FILE": env_file.name})


def test_a_file_of_the_current_folder_may_set_a_model_and_its_key(
    env_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(env_file.parent)
    env_file.write_text("AGENT_RUNTIME_MODEL=openai/gpt-5\nOPENAI_API_KEY=x\nDEBUG=1\n")
    assert load_settings({"AGENT_RUNTIME_ENV_FILE": env_file.name}).model == "openai/gpt-5"


def test_harmless_settings_exist() -> None:
    assert {one.upper() for one in Settings.model_fields} >= HARMLESS


def test_a_file_that_is_not_safe_or_not_there_is_refused(config_file: Path, tmp_path: Path) -> None:
    def problem(path: Path, variable: str = "CONFIG_FILE") -> str:
        with pytest.raises(ConfigError) as caught:
            load_settings({f"AGENT_RUNTIME_{variable}": str(path)})
        assert caught.value.cure
        return caught.value.message

    config_file.write_text("ANTHROPIC_API_KEY = 'hunter2'")
    config_file.chmod(0o640)
    assert "holds a key (ANTHROPIC_API_KEY, line 1)" in problem(config_file)
    config_file.write_text("max_steps = 3")
    assert load_settings({"AGENT_RUNTIME_CONFIG_FILE": str(config_file)}).max_steps == 3
    config_file.chmod(0o602)
    assert "Other users may change" in problem(config_file)
    assert "Other users may change" in problem(config_file, "ENV_FILE")
    config_file.chmod(0o600)
    config_file.write_bytes(b"\xff")
    assert "not UTF-8" in problem(config_file)
    config_file.write_bytes(b"#" * 1_000_001)
    assert "larger than" in problem(config_file)
    assert "cannot be read" in problem(tmp_path / "missing", "ENV_FILE")
    assert "not a file" in problem(tmp_path, "ENV_FILE")
    os.mkfifo(tmp_path / "pipe")
    assert "not a file" in problem(tmp_path / "pipe")
    assert "relative path" in problem(Path("config.toml"))


def test_the_users_configuration_file_counts_in_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "agent-runtime").mkdir()
    (tmp_path / "agent-runtime/config.toml").write_text("max_steps = 3")
    assert load_settings().max_steps == 3
    assert load_settings({}).max_steps == 500
    monkeypatch.setenv("AGENT_RUNTIME_CONFIG_FILE", "none")
    assert load_settings().max_steps == 500


def test_a_misspelt_name_in_code_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"databse_url.*Did you mean database_url\?"):
        Settings(databse_url="file:x.db")  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize(
    ("name", "known"),
    [("GROQ_API_KEY", True), ("AWS_PROFILE", True), ("PATH", False), ("HTTP_PROXY", False)],
)
def test_providers_variables_are_known_by_their_names(name: str, known: bool) -> None:
    assert is_provider_variable(name) is known
