"""Settings: defaults, limits, and the errors of an invalid environment."""

from __future__ import annotations

import pytest
from pydantic import SecretStr, ValidationError

from agent_runtime import Runtime
from agent_runtime.models import model_from_name
from agent_runtime_config import ConfigError, Settings, default_database_url, load_settings
from agent_runtime_config.groups.model_settings import RoleSettings

DEFAULTS: dict[str, object] = {
    "model": "",
    "database_auth_token": None,
    "database_connections": 8,
    "object_store_url": None,
    "synchronous": "full",
    "user": "local",
    "last_messages": 20,
    "node_memory_keep_days": 0.0,
    "max_steps": 500,
    "sub_agent_max_steps": 100,
    "plan_phases": "plan,execute,inspect,evaluate,debug",
    "delegation_depth": 1,
    "delegation_parallel": 8,
    "background_timeout": 1800.0,
    "background_idle_timeout": 600.0,
    "approve": "",
    "answer_timeout": 86_400.0,
    "loop_limit": 5,
    "plan_stall_limit": 50,
    "timezone": "UTC",
    "observational_memory": True,
    "observer_model": "same",
    "observer_message_tokens": 30_000,
    "reflector_model": "same",
    "reflector_observation_tokens": 40_000,
    "constraint_share": 0.1,
    "observer_timeout": 120.0,
    "observer_service": "batch",
    "activation": "threshold",
    "activate_after_idle": 300.0,
    "embedder_model": "",
    "embedder_base_url": None,
    "embedder_timeout": 30.0,
    "reranker_model": "",
    "reranker_base_url": None,
    "reranker_api_key": None,
    "reranker_timeout": 3.0,
    "reranker_price_input": None,
    "semantic_recall_top_k": 5,
    "semantic_recall_before": 2,
    "semantic_recall_after": 1,
    "semantic_recall_scope": "thread",
    "semantic_recall_mode": "hybrid",
    "semantic_recall_tokens": 2000,
    "semantic_recall_timeout": 3.0,
    "context_window": None,
    "response_reserve": None,
    "max_output_tokens": None,
    "repeat_system_prompt": False,
    "first_byte_timeout": 120.0,
    "idle_timeout": 60.0,
    "model_rate_limits": "wait",
    "model_transport": "auto",
    "model_settings": "",
    "model_retries": 4,
    "fallback_cool_down": 30.0,
    "model_base_url": None,
    "tool_timeout": 600.0,
    "mcp_servers": None,
    "mcp_schema_bytes": 12_000,
    "sandbox": "none",
    "sandbox_network": False,
    "sandbox_read": "",
    "command_environment": "",
    "max_result_tokens": 8_000,
    "max_file_bytes": 20_000_000,
    "model_outage": 600.0,
    "max_runs": None,
    "queue_runs_per_user": None,
    "queue_runs_per_agent": None,
    "queue_runs_per_model": None,
    "sweep": 0.0,
    "drain_timeout": 0.0,
    "pause_timeout": 5.0,
    "max_message_chars": 200_000,
    "max_inbox_messages": 100,
    "max_user_inbox_messages": 1_000,
    "max_title_chars": 500,
    "tools": "coding",
    "protected_paths": "",
    "hidden_paths": "",
    "project_instructions": True,
    "skills": "",
    "instructions_file": "",
    "allow_web": False,
    "web_domains": "",
    "web_private_hosts": "",
    "service_max_body_bytes": 1_000_000,
    "service_rate": 20.0,
    "service_burst": 100,
    "service_max_runs": 10,
    "service_max_streams": 20,
    "service_heartbeat": 15.0,
    "service_stall": 60.0,
    "service_origins": "",
    "service_prefix": "",
    "telemetry_content": False,
    "metrics_token": None,
    "run_timeout": None,
    "budget_tokens": None,
    "budget_steps": None,
    "budget_seconds": None,
    "thread_budget_tokens": None,
    "thread_budget_usd": None,
    "day_budget_tokens": None,
    "day_budget_usd": None,
    "budget_usd": None,
    "unknown_price": "refuse",
    "price_input": None,
    "price_output": None,
    "price_cache_read": None,
    "price_cache_write": None,
    "forbid_real_models": False,
}

GOOD: list[tuple[str, str, object]] = [
    ("DATABASE_AUTH_TOKEN", "hidden", SecretStr("hidden")),
    ("MODEL", " anthropic/claude-sonnet-4-5 ", "anthropic/claude-sonnet-4-5"),
    ("MODEL_RATE_LIMITS", "OFF", "off"),
    ("MODEL_TRANSPORT", " Native ", "native"),
    ("MODEL_SETTINGS", '{"seed": 1}', '{"seed": 1}'),
    ("FALLBACK_COOL_DOWN", "2", 2.0),
    ("DATABASE_URL", "data/agent.db", "data/agent.db"),
    ("DATABASE_URL", "libsql://db.example.com", "libsql://db.example.com"),
    ("DATABASE_URL", "postgresql://h/db", "postgresql://h/db"),
    ("OBJECT_STORE_URL", "s3://bucket/prefix", "s3://bucket/prefix"),
    ("OBJECT_STORE_URL", "data/objects", "data/objects"),
    ("SYNCHRONOUS", "NORMAL", "normal"),
    ("USER", "ada", "ada"),
    ("LAST_MESSAGES", "2", 2),
    ("NODE_MEMORY_KEEP_DAYS", "0.5", 0.5),
    ("MAX_STEPS", "1", 1),
    ("SUB_AGENT_MAX_STEPS", "7", 7),
    ("PLAN_PHASES", " draft, polish ", "draft,polish"),
    ("DELEGATION_DEPTH", "0", 0),
    ("DELEGATION_PARALLEL", "20", 20),
    ("BACKGROUND_TIMEOUT", "0", 0.0),
    ("BACKGROUND_IDLE_TIMEOUT", "60", 60.0),
    ("APPROVE", "shell,write_file:path=/etc/*", "shell,write_file:path=/etc/*"),
    ("MAX_MESSAGE_CHARS", "1000", 1000),
    ("MAX_INBOX_MESSAGES", "3", 3),
    ("MAX_USER_INBOX_MESSAGES", "3", 3),
    ("MAX_TITLE_CHARS", "80", 80),
    ("TOOLS", "reading", "reading"),
    ("PROTECTED_PATHS", "docs/*.md, !.vscode", "docs/*.md, !.vscode"),
    ("HIDDEN_PATHS", "*.pem", "*.pem"),
    ("PROJECT_INSTRUCTIONS", "false", False),
    ("SKILLS", "/a:/b", "/a:/b"),
    ("INSTRUCTIONS_FILE", "rules.md", "rules.md"),
    ("ALLOW_WEB", "true", True),
    ("WEB_DOMAINS", "*.A.org, b.org", "*.a.org,b.org"),
    ("WEB_PRIVATE_HOSTS", "localhost:80,[::1]", "localhost:80,[::1]"),
    ("ANSWER_TIMEOUT", "60", 60.0),
    ("LOOP_LIMIT", "0", 0),
    ("PLAN_STALL_LIMIT", "0", 0),
    ("TIMEZONE", "Europe/Berlin", "Europe/Berlin"),
    ("OBSERVATIONAL_MEMORY", "false", False),
    ("ACTIVATION", "PRICE", "price"),
    ("EMBEDDER_MODEL", "openai/text-embedding-3-small", "openai/text-embedding-3-small"),
    ("EMBEDDER_BASE_URL", "http://localhost:1234/v1", "http://localhost:1234/v1"),
    ("EMBEDDER_TIMEOUT", "5", 5.0),
    ("SEMANTIC_RECALL_TOP_K", "3", 3),
    ("SEMANTIC_RECALL_BEFORE", "0", 0),
    ("SEMANTIC_RECALL_AFTER", "0", 0),
    ("SEMANTIC_RECALL_TOKENS", "100", 100),
    ("SEMANTIC_RECALL_TIMEOUT", "0.5", 0.5),
    ("SEMANTIC_RECALL_SCOPE", "User", "user"),
    ("SEMANTIC_RECALL_MODE", "TEXT", "text"),
    ("ACTIVATE_AFTER_IDLE", "0", 0.0),
    ("OBSERVER_MODEL", "extractive", "extractive"),
    ("OBSERVER_MESSAGE_TOKENS", "1000", 1000),
    ("REFLECTOR_MODEL", "openai/gpt-5-mini", "openai/gpt-5-mini"),
    ("REFLECTOR_OBSERVATION_TOKENS", "500", 500),
    ("CONSTRAINT_SHARE", "0.05", 0.05),
    ("OBSERVER_TIMEOUT", "30", 30.0),
    ("OBSERVER_SERVICE", "Standard", "standard"),
    ("CONTEXT_WINDOW", "1000", 1000),
    ("RESPONSE_RESERVE", "1", 1),
    ("MAX_OUTPUT_TOKENS", "1", 1),
    ("REPEAT_SYSTEM_PROMPT", "true", True),
    ("FIRST_BYTE_TIMEOUT", "0.5", 0.5),
    ("IDLE_TIMEOUT", "3", 3.0),
    ("MODEL_RETRIES", "0", 0),
    ("MODEL_BASE_URL", "http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1"),
    ("TOOL_TIMEOUT", "1e3", 1000.0),
    ("SANDBOX", "docker:registry:5000/a/b:1.2@sha256:0", "docker:registry:5000/a/b:1.2@sha256:0"),
    ("MCP_SERVERS", "servers.json", SecretStr("servers.json")),
    ("MCP_SCHEMA_BYTES", "0", 0),
    ("SANDBOX_NETWORK", "true", True),
    ("SERVICE_MAX_BODY_BYTES", "5000", 5_000),
    ("SERVICE_RATE", "0.5", 0.5),
    ("SERVICE_BURST", "3", 3),
    ("SERVICE_MAX_RUNS", "1", 1),
    ("SERVICE_MAX_STREAMS", "2", 2),
    ("SERVICE_HEARTBEAT", "1.5", 1.5),
    ("SERVICE_STALL", "2.5", 2.5),
    ("SERVICE_ORIGINS", "https://app.example.com", "https://app.example.com"),
    ("SERVICE_PREFIX", "/agents", "/agents"),
    ("TELEMETRY_CONTENT", "true", True),
    ("METRICS_TOKEN", "of-a-scraper-0123", SecretStr("of-a-scraper-0123")),
    ("SANDBOX_READ", "~/.cargo::/srv/tools", "~/.cargo:/srv/tools"),
    ("COMMAND_ENVIRONMENT", "HTTPS_PROXY, _x,", "HTTPS_PROXY,_x"),
    ("MAX_RESULT_TOKENS", "500", 500),
    ("MAX_FILE_BYTES", "1000", 1000),
    ("MODEL_OUTAGE", "0", 0.0),
    ("MAX_RUNS", "16", 16),
    ("DATABASE_CONNECTIONS", "2", 2),
    ("QUEUE_RUNS_PER_USER", "3", 3),
    ("QUEUE_RUNS_PER_AGENT", "40", 40),
    ("QUEUE_RUNS_PER_MODEL", "10", 10),
    ("SWEEP", "60", 60.0),
    ("DRAIN_TIMEOUT", "30", 30.0),
    ("PAUSE_TIMEOUT", "0.5", 0.5),
    ("MAX_RESULT_TOKENS", "900", 900),
    ("RUN_TIMEOUT", "3600", 3600.0),
    ("BUDGET_TOKENS", "1", 1),
    ("UNKNOWN_PRICE", "Tokens", "tokens"),
    ("BUDGET_USD", "0.25", 0.25),
    ("BUDGET_STEPS", "1", 1),
    ("BUDGET_SECONDS", "0.5", 0.5),
    ("THREAD_BUDGET_TOKENS", "500000", 500_000),
    ("THREAD_BUDGET_USD", "2.5", 2.5),
    ("DAY_BUDGET_TOKENS", "2000000", 2_000_000),
    ("DAY_BUDGET_USD", "20", 20.0),
    ("PRICE_INPUT", "0", 0.0),
    ("PRICE_OUTPUT", "15", 15.0),
    ("PRICE_CACHE_READ", "0.3", 0.3),
    ("PRICE_CACHE_WRITE", "3.75", 3.75),
    ("FORBID_REAL_MODELS", "1", True),
]

BAD: list[tuple[str, str]] = [
    ("DATABASE_URL", "mysql://host/db"),
    ("DATABASE_URL", "host=db password=hunter2"),
    ("OBJECT_STORE_URL", "ftp://host/objects"),
    ("SYNCHRONOUS", "off"),
    ("UNKNOWN_PRICE", "0"),
    ("LAST_MESSAGES", "1"),
    ("NODE_MEMORY_KEEP_DAYS", "-1"),
    ("NODE_MEMORY_KEEP_DAYS", "inf"),
    ("LAST_MESSAGES", "2.5"),
    ("MAX_STEPS", "0"),
    ("MAX_MESSAGE_CHARS", "999"),
    ("MAX_INBOX_MESSAGES", "0"),
    ("MAX_TITLE_CHARS", "79"),
    ("MAX_STEPS", "many"),
    ("SUB_AGENT_MAX_STEPS", "-1"),
    ("PLAN_PHASES", "draft,,polish"),
    ("PLAN_PHASES", "draft,draft"),
    ("DELEGATION_DEPTH", "-1"),
    ("DELEGATION_PARALLEL", "0"),
    ("BACKGROUND_TIMEOUT", "-1"),
    ("BACKGROUND_IDLE_TIMEOUT", "inf"),
    ("APPROVE", "two words"),
    ("APPROVE", "shell:path"),
    ("ANSWER_TIMEOUT", "0"),
    ("LOOP_LIMIT", "1"),
    ("PLAN_STALL_LIMIT", "1"),
    ("TIMEZONE", "Berlin"),
    ("TIMEZONE", "../etc/passwd"),
    ("TIMEZONE", "Europe"),
    ("LOOP_LIMIT", "-1"),
    ("ACTIVATION", "always"),
    ("EMBEDDER_BASE_URL", "localhost"),
    ("EMBEDDER_TIMEOUT", "0"),
    ("SEMANTIC_RECALL_TOP_K", "0"),
    ("SEMANTIC_RECALL_BEFORE", "-1"),
    ("SEMANTIC_RECALL_AFTER", "-1"),
    ("SEMANTIC_RECALL_SCOPE", "everybody"),
    ("SEMANTIC_RECALL_MODE", "both"),
    ("SEMANTIC_RECALL_TOKENS", "99"),
    ("SEMANTIC_RECALL_TIMEOUT", "0"),
    ("ACTIVATE_AFTER_IDLE", "-1"),
    ("CONTEXT_WINDOW", "999"),
    ("RESPONSE_RESERVE", "0"),
    ("MAX_OUTPUT_TOKENS", "0"),
    ("REPEAT_SYSTEM_PROMPT", "perhaps"),
    ("FIRST_BYTE_TIMEOUT", "0"),
    ("IDLE_TIMEOUT", "nan"),
    ("MODEL_TRANSPORT", "http"),
    ("MODEL_SETTINGS", "{"),
    ("MODEL_RETRIES", "-1"),
    ("MODEL_BASE_URL", "ftp://host"),
    ("TOOL_TIMEOUT", "inf"),
    ("MAX_FILE_BYTES", "0"),
    ("MODEL_OUTAGE", "-1"),
    ("MAX_RUNS", "0"),
    ("SWEEP", "inf"),
    ("DRAIN_TIMEOUT", "-1"),
    ("PAUSE_TIMEOUT", "nan"),
    ("SANDBOX", "docker"),
    ("SANDBOX", "docker:--privileged"),
    ("SANDBOX", "firejail"),
    ("SANDBOX_READ", "tools"),
    ("SANDBOX_READ", "/"),
    ("COMMAND_ENVIRONMENT", "TOKEN=hunter2"),
    ("MAX_RESULT_TOKENS", "0"),
    ("RUN_TIMEOUT", "-5"),
    ("BUDGET_TOKENS", "0"),
    ("BUDGET_USD", "0"),
    ("BUDGET_STEPS", "0"),
    ("BUDGET_SECONDS", "soon"),
    ("THREAD_BUDGET_TOKENS", "1.5"),
    ("THREAD_BUDGET_USD", "-1"),
    ("DAY_BUDGET_TOKENS", "0"),
    ("DAY_BUDGET_USD", "0"),
    ("PRICE_INPUT", "-1"),
    ("PRICE_OUTPUT", "-1"),
    ("PRICE_CACHE_READ", "nan"),
    ("PRICE_CACHE_WRITE", "free"),
    ("FORBID_REAL_MODELS", "maybe"),
]


def test_an_empty_environment_gives_every_default() -> None:
    database = {"database_url": default_database_url()}
    assert load_settings({}).model_dump() == DEFAULTS | _roles() | database


def _roles() -> dict[str, object]:
    """Return the defaults of the settings of each role: all unset, except for sub-agents."""
    unset = dict.fromkeys(name for name in RoleSettings.model_fields if name not in DEFAULTS)
    return {**unset, "sub_agent_model": "same"}


@pytest.mark.parametrize(("name", "text", "value"), GOOD)
def test_a_good_value_is_read(name: str, text: str, value: object) -> None:
    assert getattr(load_settings({f"AGENT_RUNTIME_{name}": text}), name.lower()) == value


def test_every_setting_has_a_good_value_tested() -> None:
    tested = {name.lower() for name, _, _ in GOOD}
    assert tested | set(RoleSettings.model_fields) == set(Settings.model_fields)


def test_the_settings_of_each_role_are_read() -> None:
    texts = {"model": "a/b", "url": "http://h/v1", "key": "k", "window": "5000", "tokens": "7"}
    values = {name: texts.get(name.rpartition("_")[2], "2") for name in RoleSettings.model_fields}
    models = {"observer_model": "a/c", "reflector_model": "a/d"}
    environ = {f"AGENT_RUNTIME_{k.upper()}": v for k, v in (values | models).items()}
    settings = load_settings(environ)
    assert all(getattr(settings, name) is not None for name in values)
    assert settings.place("reflector").window == 5000
    assert "SecretStr('**********')" in repr(settings)


@pytest.mark.parametrize(("name", "text"), BAD)
def test_a_bad_value_is_refused_by_the_name_of_its_variable(name: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings({f"AGENT_RUNTIME_{name}": text})
    assert f"AGENT_RUNTIME_{name} " in caught.value.message
    assert f"AGENT_RUNTIME_{name}" in caught.value.cure


@pytest.mark.parametrize("name", sorted({name for name, _ in BAD}))
def test_a_bad_value_is_never_shown(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings({f"AGENT_RUNTIME_{name}": "hunter2 = x"})
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("glob", ["../other", "a,!../b", "~/.ssh", "a\\b", "!!a"])
@pytest.mark.parametrize("name", ["PROTECTED_PATHS", "HIDDEN_PATHS"])
def test_a_glob_that_could_not_match_is_refused(name: str, glob: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be globs of paths inside"):
        load_settings({f"AGENT_RUNTIME_{name}": glob})


MISSPELT = [
    "postgres//ada:hunter2@h/db",
    '"postgresql://ada:hunter2@h/db"',
    "'libsql://h?authToken=hunter2'",
    "postgresql;//ada:hunter2@h",
    "//ada:hunter2@h",
    "h/d;password=hunter2",
]


@pytest.mark.parametrize("url", MISSPELT)
@pytest.mark.parametrize("name", ["DATABASE_URL", "OBJECT_STORE_URL"])
def test_a_misspelt_url_is_not_taken_for_a_path(name: str, url: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} looks like a URL") as caught:
        load_settings({f"AGENT_RUNTIME_{name}": url})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "model", ["openai/x?api_key=hunter2", "https://ada:hunter2@h/v1", "x&k=hunter2"]
)
@pytest.mark.parametrize("role", ["", "SUB_AGENT_", "OBSERVER_", "REFLECTOR_", "EMBEDDER_"])
def test_a_models_name_holds_no_key(role: str, model: str) -> None:
    with pytest.raises(ConfigError, match=f"{role}MODEL must be a model's name") as caught:
        load_settings({f"AGENT_RUNTIME_{role}MODEL": model})
    with pytest.raises(ConfigError, match="no model's name") as in_code:
        model_from_name(model)
    assert "hunter2" not in f"{caught.value} {in_code.value}"


def test_an_unknown_scheme_is_named_without_the_rest_of_the_url() -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings({"AGENT_RUNTIME_DATABASE_URL": "mysql://ada:hunter2@db.internal/x"})
    assert "unknown scheme mysql" in caught.value.message
    assert "hunter2" not in str(caught.value) and "db.internal" not in str(caught.value)


@pytest.mark.parametrize("empty", ["", "  ", "\n"])
def test_an_empty_value_counts_as_unset(empty: str) -> None:
    assert load_settings({"AGENT_RUNTIME_MAX_STEPS": empty}).max_steps == 500


def test_a_misspelt_name_is_reported_with_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings({"AGENT_RUNTIME_LAST_MESAGES": "30"})
    assert "AGENT_RUNTIME_LAST_MESAGES is not a setting" in caught.value.message
    assert "Did you mean AGENT_RUNTIME_LAST_MESSAGES?" in caught.value.cure


def test_a_name_like_no_other_gets_no_suggestion() -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings({"AGENT_RUNTIME_XYZZY": "1"})
    assert "Did you mean" not in caught.value.cure
    assert "AGENT_RUNTIME_XYZZY" in caught.value.cure


def test_all_problems_are_reported_together() -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(
            {
                "AGENT_RUNTIME_MAX_STEP": "3",
                "AGENT_RUNTIME_LAST_MESSAGES": "1",
                "AGENT_RUNTIME_USER": "ada",
                "AGENT_RUNTIME_DATABASE_URL": "redis://h",
            }
        )
    for name in ("MAX_STEP", "LAST_MESSAGES", "DATABASE_URL"):
        assert f"AGENT_RUNTIME_{name} " in caught.value.message
    assert "AGENT_RUNTIME_USER" not in str(caught.value)


def test_a_reserve_that_fills_the_window_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be smaller than AGENT_RUNTIME_CONTEXT_WINDOW"):
        load_settings(
            {"AGENT_RUNTIME_CONTEXT_WINDOW": "4000", "AGENT_RUNTIME_RESPONSE_RESERVE": "4000"}
        )


@pytest.mark.parametrize("scheme", ["postgres", "postgresql"])
def test_database_url_is_used_if_it_names_postgres(scheme: str) -> None:
    url = f"{scheme}://h/db"
    assert load_settings({"DATABASE_URL": url}).database_url == url


@pytest.mark.parametrize("url", ["mysql://h/db", "sqlite:///x.db", "x.db", ""])
def test_database_url_is_ignored_otherwise(url: str) -> None:
    assert load_settings({"DATABASE_URL": url}).database_url == default_database_url()


def test_the_prefixed_database_variable_has_precedence() -> None:
    environ = {"DATABASE_URL": "postgres://h/db", "AGENT_RUNTIME_DATABASE_URL": "file:own.db"}
    assert load_settings(environ).database_url == "file:own.db"


def test_other_variables_are_ignored() -> None:
    assert load_settings({"MAX_STEPS": "3", "MODEL": "x", "AGENT_RUNTIMES": "y"}) == Settings()


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_RUNTIME_MAX_STEPS", "42")
    assert load_settings().max_steps == 42
    assert Settings().max_steps == 500


def test_no_url_shows_its_credentials_where_settings_are_logged() -> None:
    url = "postgresql://ada:hunter2@db.internal/x?sslpassword=hunter2"
    settings = load_settings(
        {
            "AGENT_RUNTIME_DATABASE_URL": url,
            "AGENT_RUNTIME_OBJECT_STORE_URL": "s3://bucket/?secret_access_key=hunter2",
            "AGENT_RUNTIME_MODEL_BASE_URL": "http://ada:hunter2@models.internal/v1",
        }
    )
    assert settings.database_url == url
    shown = f"{settings!r} {settings}"
    assert "hunter2" not in shown and "***@db.internal/x" in shown


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        load_settings({}).max_steps = 3  # pyright: ignore[reportAttributeAccessIssue]


async def test_a_runtime_is_opened_with_settings_only() -> None:
    with pytest.raises(ConfigError, match="with Settings, and not with str") as error:
        async with Runtime.open("postgresql://ada:secret@h/d"):  # pyright: ignore[reportArgumentType]
            pass
    assert "secret" not in str(error.value)
