"""The settings: their names, units, defaults and limits, and how they are read."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from agent_runtime_config.approvals import approval_rules
from agent_runtime_config.errors import ConfigError
from agent_runtime_config.limits import MAX_DOLLARS, MAX_SECONDS
from agent_runtime_config.model_settings import Count, HttpUrl, Price, Role, RoleSettings
from agent_runtime_config.state import SHOWN, default_database_url
from agent_runtime_config.urls import url_scheme

PREFIX = "AGENT_RUNTIME_"
POSTGRES_SCHEMES = ("postgresql", "postgres")
DATABASE_SCHEMES = ("file", "libsql", "http", "https", "ws", "wss", *POSTGRES_SCHEMES)

OBJECT_SCHEMES = ("file", "s3", "gs", "az", "abfs", "abfss")


def _database_url(url: str) -> str:
    scheme = url_scheme(url)
    if scheme and scheme not in DATABASE_SCHEMES:
        raise PydanticCustomError(
            "database_scheme",
            "names the unknown scheme {scheme}; known are {known}",
            {"scheme": scheme, "known": ", ".join(DATABASE_SCHEMES)},
        )
    return _no_keywords(url)


def _object_store_url(url: str) -> str:
    scheme = url_scheme(url)
    if scheme and scheme not in OBJECT_SCHEMES:
        raise PydanticCustomError(
            "object_scheme",
            "names the unknown scheme {scheme}; known are {known}",
            {"scheme": scheme, "known": ", ".join(OBJECT_SCHEMES)},
        )
    return _no_keywords(url)


def _no_keywords(url: str) -> str:
    if re.match(r"\w+\s*=", url):
        raise PydanticCustomError("url_keywords", "must be a URL or a path, not a list of keywords")
    return url


def _approvals(text: str) -> str:
    try:
        approval_rules(text)
    except ValueError as error:
        raise PydanticCustomError("approvals", "{problem}", {"problem": str(error)}) from None
    return text


def _repeats(limit: int) -> int:
    if limit == 1:
        raise PydanticCustomError("repeats", "must be 0 (never), or 2 or more")
    return limit


def _phases(text: str) -> str:
    names = [name.strip() for name in text.split(",")]
    if len(set(names)) < len(names) or not all(re.fullmatch(r"[\w-]{1,40}", one) for one in names):
        raise PydanticCustomError("phases", "must be words with commas between them, each once")
    return ",".join(names)


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


DatabaseUrl = Annotated[str, AfterValidator(_database_url)]
ObjectStoreUrl = Annotated[str, AfterValidator(_object_store_url)]
Seconds = Annotated[float, Field(gt=0, le=MAX_SECONDS, allow_inf_nan=False)]
Dollars = Annotated[float, Field(gt=0, le=MAX_DOLLARS, allow_inf_nan=False)]
Synchronous = Annotated[Literal["full", "normal"], BeforeValidator(_lower)]


class Settings(RoleSettings):
    """What the runtime obeys, as an immutable value.

    The constructor reads no environment: what is not given has its default.  `load_settings`
    reads the environment.  `None` means that nothing is set: no limit, or the model's own value.

    Raises:
        pydantic.ValidationError: a value passed in code is out of range; it hides the value.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        frozen=True,
        extra="ignore",
        hide_input_in_errors=True,
        # Fields such as `model_retries` are settings, not methods of pydantic.
        protected_namespaces=(),
    )

    model: str = Field(
        default="",
        description="The language model, by its litellm name such as "
        "`anthropic/claude-sonnet-4-5`; none means the offline model. Its key is read from the "
        "provider's own variable, such as `ANTHROPIC_API_KEY`.",
    )
    database_url: DatabaseUrl = Field(
        default_factory=default_database_url,
        description="The database: a file, as `file:…` or a path; a libSQL server, as `libsql:…`, "
        "`http(s):…` or (with the extra `libsql`) `ws(s):…`; or Postgres, as `postgresql:…`. Where "
        "it is unset, `DATABASE_URL` counts if it names Postgres; else it is a file in the user's "
        "folder for state, which `XDG_STATE_HOME` moves.",
    )
    database_auth_token: SecretStr | None = Field(
        default=None, description="The token that a libSQL server asks for."
    )
    object_store_url: ObjectStoreUrl | None = Field(
        default=None,
        description="Where bodies above 256 KiB (compressed) lie: a folder, as `file:…` or a path, "
        "or a bucket, as `s3://…`, `gs://…`, `az://…` or `abfss://…`, with its credentials in the "
        "provider's own variables. Where it is unset, they lie in a folder beside a database file, "
        "and in the database of a server, since other machines do not see a folder.",
    )
    synchronous: Synchronous = Field(
        default="full",
        description="For a database file: `full` keeps each commit over a power cut, `normal` "
        "only over a crash of the process.",
    )
    user: str = Field(
        default="local", min_length=1, description="The owner of what is read and written."
    )
    last_messages: int = Field(
        default=20,
        ge=2,
        description="How many recent messages always stay in the prompt, rounded up to whole "
        "exchanges.",
    )
    max_steps: Count = Field(
        default=500, description="The most steps (model calls) of a run; then it stops, resumably."
    )
    sub_agent_max_steps: Count = Field(
        default=100, description="The most steps of a sub-agent's run."
    )
    delegation_depth: Annotated[int, Field(ge=0)] = Field(
        default=1,
        description="How many sub-agents may be above each other: with 1 a sub-agent cannot "
        "delegate itself, with 0 nobody can.",
    )
    delegation_parallel: Count = Field(
        default=8, description="How many sub-agents of a run work at once; the others wait."
    )
    approve: Annotated[str, AfterValidator(_approvals)] = Field(
        default="",
        description="Which calls a person has to allow, beside those of tools that need it anyway: "
        "`run_command,write_file:path=/etc/*` for all of `run_command`, which may be named `shell` "
        "too, and those of `write_file` whose `path` matches. Rules stand between commas, a rule's "
        "arguments between `;`.",
    )
    answer_timeout: Seconds = Field(
        default=86_400.0,
        description="Seconds that a question to a person stays open; then it counts as refused.",
    )
    loop_limit: Annotated[int, Field(ge=0), AfterValidator(_repeats)] = Field(
        default=5,
        description="After how many same calls with the same result in a row the model is told "
        "to do something else; after twice as many the run stops. 0 for never.",
    )
    plan_stall_limit: Annotated[int, Field(ge=0), AfterValidator(_repeats)] = Field(
        default=50,
        description="After how many steps in which no step of its plan changes the model is told; "
        "after half as many more the run stops. 0 for never.",
    )
    node_memory_keep_days: float = Field(
        default=0.0,
        ge=0,
        allow_inf_nan=False,
        description="After so many days without a turn a node's memory is deleted, looked for once "
        "a day; 0 keeps all.",
    )
    plan_phases: Annotated[str, AfterValidator(_phases)] = Field(
        default="plan,execute,inspect,evaluate,debug",
        description="The phases of plans, in their order, for agents that name none.",
    )
    observational_memory: bool = Field(
        default=True,
        description="Whether observations take the place of older messages, so that the model "
        "keeps what matters of them; without it they leave the prompt as the window moves.",
    )
    observer_model: str = Field(
        default="same",
        description="Who writes the observations: `same` for the run's own model, `extractive` for "
        "rules without a model, or a model's name. Without its key it is `extractive`.",
    )
    observer_message_tokens: Annotated[int, Field(ge=1000)] = Field(
        default=30_000,
        description="From how many tokens of raw messages on observations take the place of the "
        "oldest; at most half of what a prompt may have.",
    )
    reflector_model: str = Field(
        default="same",
        description="Who condenses old observations, by the same names as the Observer.",
    )
    reflector_observation_tokens: Annotated[int, Field(ge=500)] = Field(
        default=40_000,
        description="From how many tokens of observations on the oldest are condensed; at most a "
        "quarter of what a prompt may have.",
    )
    constraint_share: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = Field(
        default=0.1,
        description="What share of REFLECTOR_OBSERVATION_TOKENS what the user requires, forbids or "
        "corrects may take in prompts, in the user's words, beside the observations.",
    )
    observer_timeout: Seconds = Field(
        default=120.0, description="Seconds that the Observer may take for a chunk of messages."
    )
    activation: Annotated[Literal["threshold", "price"], BeforeValidator(_lower)] = Field(
        default="threshold",
        description="When observations take the place of their messages: at the `threshold`, or, "
        "by `price`, as soon as carrying the messages has cost what removing them costs by the "
        "models' prices, at the threshold at the latest.",
    )
    activate_after_idle: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=300.0,
        description="Seconds without a model call after which the provider's cache is taken for "
        "expired; then observations that are ready take the place of their messages at once. 0 "
        "for never.",
    )
    embedder_model: str = Field(
        default="",
        description="Who makes vectors of messages, by its litellm name such as "
        "`openai/text-embedding-3-small`. With one, what was said earlier is recalled before each "
        "turn; without, nothing is embedded and nothing recalled.",
    )
    embedder_base_url: HttpUrl | None = Field(
        default=None,
        description="The address of an OpenAI-compatible server that embeds.",
    )
    embedder_timeout: Seconds = Field(
        default=30.0, description="Seconds that the embedder may take for a batch of texts."
    )
    semantic_recall_top_k: Count = Field(
        default=5, description="How many earlier messages are recalled before a turn, at most."
    )
    semantic_recall_before: Annotated[int, Field(ge=0)] = Field(
        default=2, description="How many messages before each of them come along."
    )
    semantic_recall_after: Annotated[int, Field(ge=0)] = Field(
        default=1, description="How many messages after each of them come along."
    )
    semantic_recall_scope: Annotated[Literal["thread", "user"], BeforeValidator(_lower)] = Field(
        default="thread",
        description="Where recall searches: in the `thread`, or in all threads of the `user`.",
    )
    semantic_recall_mode: Annotated[
        Literal["hybrid", "text", "vectors"], BeforeValidator(_lower)
    ] = Field(
        default="hybrid",
        description="How recall searches: by full text, by vectors, or `hybrid`, by both. By "
        "`text` nothing is embedded.",
    )
    semantic_recall_tokens: Annotated[int, Field(ge=100)] = Field(
        default=2000, description="The most tokens that are recalled before a turn."
    )
    semantic_recall_timeout: Seconds = Field(
        default=3.0,
        description="Seconds that a turn waits for the vector of what the user says; then recall "
        "searches by full text.",
    )
    context_window: Annotated[int, Field(ge=1000)] | None = Field(
        default=None, description="The context window in tokens, instead of the model's known one."
    )
    response_reserve: Count | None = Field(
        default=None,
        description="Tokens of the window kept free for the answer; by default the smaller of "
        "8192 and a quarter of the window.",
    )
    max_output_tokens: Count | None = Field(
        default=None,
        description="The most tokens of one answer of the model, reasoning included. It lowers the "
        "model's own limit, or sets it where none is known; the room in the window and the budget "
        "may lower it further.",
    )
    repeat_system_prompt: bool = Field(
        default=False,
        description="Whether to repeat the system prompt as a user message, for models that "
        "ignore the system role.",
    )
    first_byte_timeout: Seconds = Field(
        default=120.0, description="Seconds to wait for the first byte of a model's answer."
    )
    idle_timeout: Seconds = Field(
        default=60.0, description="Seconds of silence after which a model's stream is given up."
    )
    model_retries: Annotated[int, Field(ge=0)] = Field(
        default=4, description="How often a failed model call is tried again."
    )
    model_base_url: HttpUrl | None = Field(
        default=None,
        description="The address of the model's server, such as an OpenAI-compatible one. It is "
        "for that model, and for others of its provider that have no address of their own.",
    )
    tool_timeout: Seconds = Field(
        default=600.0, description="Seconds that a tool may take, unless it sets its own limit."
    )
    max_result_tokens: Count = Field(
        default=8_000,
        description="The most tokens of a tool's result that a prompt shows, at any window, unless "
        "the tool sets its own limit. `recall` opens the rest.",
    )
    max_file_bytes: Count = Field(
        default=20_000_000,
        description="The largest file, in bytes, that is kept with a thread: attached to a task, "
        "or returned from a tool.",
    )
    run_timeout: Seconds | None = Field(
        default=None,
        description="Seconds of wall time that a run may take, counted anew when it is resumed.",
    )
    budget_tokens: Count | None = Field(
        default=None, description="The most tokens that a run and its sub-agents may use together."
    )
    budget_usd: Dollars | None = Field(
        default=None, description="The most dollars that a run and its sub-agents may cost."
    )
    budget_steps: Count | None = Field(
        default=None,
        description="The most steps that a run and its sub-agents may take together, resumed or "
        "not; two of them are kept for the run itself.",
    )
    budget_seconds: Seconds | None = Field(
        default=None,
        description="The most seconds that a run may work, with its sub-agents, however often it "
        "is resumed; while it waits for a person its time stands still.",
    )
    thread_budget_tokens: Count | None = Field(
        default=None, description="The most tokens that all runs of a thread may use together."
    )
    thread_budget_usd: Dollars | None = Field(
        default=None, description="The most dollars that all runs of a thread may cost."
    )
    day_budget_tokens: Count | None = Field(
        default=None,
        description="The most tokens that all runs of a user may use on a day, by UTC.",
    )
    day_budget_usd: Dollars | None = Field(
        default=None, description="The most dollars that all runs of a user may cost on a day."
    )
    unknown_price: Annotated[Literal["refuse", "tokens"], BeforeValidator(_lower)] = Field(
        default="refuse",
        description="What a budget in dollars means for a model whose price is unknown: `refuse` "
        "does not call it, `tokens` calls it and counts its tokens only.",
    )
    price_input: Price | None = Field(
        default=None, description="Dollars per million input tokens, instead of the known price."
    )
    price_output: Price | None = Field(
        default=None, description="Dollars per million output tokens, instead of the known price."
    )
    price_cache_read: Price | None = Field(
        default=None,
        description="Dollars per million input tokens read from the provider's cache, instead of "
        "the known price.",
    )
    price_cache_write: Price | None = Field(
        default=None,
        description="Dollars per million input tokens written to the provider's cache, instead "
        "of the known price.",
    )
    forbid_real_models: bool = Field(
        default=False,
        description="Whether to refuse calls of models that are not on this machine; for tests.",
    )

    @property
    def needs_prices(self) -> bool:
        """Whether a model whose price is unknown may not be called."""
        dollars = (self.budget_usd, self.thread_budget_usd, self.day_budget_usd)
        limited = any(one is not None for one in dollars)
        return limited and self.unknown_price == "refuse"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take only what is passed in, so that a value never depends on hidden state."""
        return (init_settings,)


@dataclass(frozen=True, slots=True)
class _Problem:
    variable: str
    reason: str
    cure: str


def variable_of(field: str) -> str:
    """Return the environment variable of a setting."""
    return PREFIX + field.upper()


def load_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read the settings from an environment; None for the process's own.

    Empty values count as unset, spaces around a value are dropped.

    Raises:
        ConfigError: names every variable that is misspelt or has a bad value, never the value.
    """
    given = os.environ if environ is None else environ
    present = {name: value.strip() for name, value in given.items() if value.strip()}
    source = EnvSettingsSource(Settings)
    source.env_vars = {name.lower(): value for name, value in present.items()}
    values = source()
    origin = variable_of("database_url")
    common = present.get("DATABASE_URL", "")
    if "database_url" not in values and url_scheme(common) in POSTGRES_SCHEMES:
        values["database_url"], origin = common, "DATABASE_URL"
    problems = _unknown(present)
    try:
        settings = Settings(**values)
    except ValidationError as error:
        problems += [_invalid(detail, origin) for detail in error.errors()]
        raise _config_error(problems) from None
    problems += _contradictions(settings)
    if problems:
        raise _config_error(problems)
    return settings


def _unknown(present: Mapping[str, str]) -> list[_Problem]:
    known = {variable_of(field).removeprefix(PREFIX) for field in Settings.model_fields}
    problems: list[_Problem] = []
    for name in sorted(present):
        suffix = name.upper().removeprefix(PREFIX)
        if name.upper().startswith(PREFIX) and suffix not in known:
            near = difflib.get_close_matches(suffix, sorted(known), n=1)
            cure = f"Did you mean {PREFIX}{near[0]}?" if near else f"Unset {name}."
            problems.append(_Problem(name, "is not a setting", cure))
    return problems


def _invalid(detail: ErrorDetails, database_variable: str) -> _Problem:
    field = str(detail["loc"][0])
    variable = database_variable if field == "database_url" else variable_of(field)
    reason = detail["msg"].replace("Input should be", "must be").replace("String should", "must")
    default = default_text(field)
    cure = f"Correct {variable}, or unset it for its default ({default})."
    return _Problem(variable, reason, cure)


def _contradictions(settings: Settings) -> list[_Problem]:
    problems = _without_models(settings)
    window, reserve = settings.context_window, settings.response_reserve
    if window is not None and reserve is not None and reserve >= window:
        variable = variable_of("response_reserve")
        reason = f"must be smaller than {variable_of('context_window')} ({window})"
        problems.append(_Problem(variable, reason, f"Lower {variable}, or unset it."))
    return problems


def _without_models(settings: Settings) -> list[_Problem]:
    """Return what is set for a role that has no model of its own to apply it to."""
    problems: list[_Problem] = []
    roles: tuple[Role, ...] = ("sub_agent", "observer", "reflector")
    for role in roles:
        named = settings.place(role).name
        fields = [one for one in RoleSettings.model_fields if one.startswith(f"{role}_")]
        given = [
            one for one in fields if one != f"{role}_model" and getattr(settings, one) is not None
        ]
        if given and named in ("", "same", "extractive"):
            variable, names = variable_of(f"{role}_model"), " and ".join(map(variable_of, given))
            reason = f"is set, but {variable} names no model of its own ({named or 'none'})"
            problems.append(_Problem(names, reason, f"Name one by {variable}, or unset {names}."))
    return problems


def _config_error(problems: list[_Problem]) -> ConfigError:
    texts = [f"{problem.variable} {problem.reason}" for problem in problems]
    return ConfigError("; ".join(texts) + ".", cure=" ".join(problem.cure for problem in problems))


def default_text(field: str) -> str:
    """Return a setting's default as one would write it in the environment; "none" for unset."""
    return SHOWN if field == "database_url" else value_text(Settings.model_fields[field].default)


def value_text(value: object) -> str:
    """Return a setting's value as one would write it in the environment; "none" for unset."""
    if value is None or value == "":
        return "none"
    if isinstance(value, SecretStr):
        return "***"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
