"""The settings: their names, units, defaults and limits."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from agent_runtime_config.fields import (
    Approvals,
    Count,
    DatabaseUrl,
    Dollars,
    Folders,
    Globs,
    HttpUrl,
    Limit,
    Lower,
    ModelName,
    Natural,
    ObjectStoreUrl,
    Phases,
    Price,
    RepeatLimit,
    RequestSettings,
    SandboxName,
    Seconds,
    TimeZone,
    VariableNames,
)
from agent_runtime_config.groups.context_settings import ContextSettings
from agent_runtime_config.groups.database_settings import DatabaseSettings
from agent_runtime_config.groups.input_settings import InputSettings
from agent_runtime_config.groups.model_settings import RoleSettings
from agent_runtime_config.groups.queue_settings import QueueSettings
from agent_runtime_config.groups.service_settings import ServiceSettings
from agent_runtime_config.groups.telemetry_settings import TelemetrySettings
from agent_runtime_config.groups.web_settings import WebSettings
from agent_runtime_config.names import PREFIX
from agent_runtime_config.state import default_database_url
from agent_runtime_config.urls import redact_url


class Settings(
    RoleSettings, WebSettings, ContextSettings, ServiceSettings, TelemetrySettings, QueueSettings,
    DatabaseSettings, InputSettings,
):  # fmt: skip
    """The settings of a runtime, as an immutable value.

    The constructor does not read the environment; `load_settings` does.  `None` means unset: no
    limit, or the model's own value.

    Raises:
        pydantic.ValidationError: a name is no setting, or a value is out of range, which it hides.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        frozen=True,
        extra="forbid",
        # A wrong value may be a secret in the wrong variable.
        hide_input_in_errors=True,
        # Fields such as `model_retries` are settings, not methods of pydantic.
        protected_namespaces=(),
    )

    model: ModelName = Field(
        default="",
        description="The language model, by its litellm name such as "
        "`anthropic/claude-sonnet-4-5`; none means the offline model. Its key is read from the "
        "provider's own variable, such as `ANTHROPIC_API_KEY`. Of several names with commas "
        "between them, each takes the place of those before it when they fail; the address, key, "
        "window, limits and prices of the settings are for the first.",
    )
    database_url: DatabaseUrl = Field(
        default_factory=default_database_url,
        description="The database: a file, as `file:…` or a path; a libSQL server, as `libsql:…`, "
        "`http(s):…` or (with the extra `libsql`) `ws(s):…`; or Postgres, as `postgresql:…`. "
        "Where it is unset, `DATABASE_URL` counts if it names Postgres; else it is a file in the "
        "user's folder for state, which `XDG_STATE_HOME` moves.",
    )
    object_store_url: ObjectStoreUrl | None = Field(
        default=None,
        description="Where bodies above 256 KiB (compressed) are stored: a folder, as `file:…` or "
        "a path, or a bucket, as `s3://…`, `gs://…`, `az://…` or `abfss://…`, with its "
        "credentials in the provider's own variables. Where it is unset, they are next to a "
        "database file, or in the database of a server, since other machines do not see a folder.",
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
        default=500,
        description="The most steps (model calls) of a run; then it stops and can be resumed.",
    )
    sub_agent_max_steps: Count = Field(
        default=100, description="The most steps of a sub-agent's run."
    )
    delegation_depth: Natural = Field(
        default=1,
        description="How deep sub-agents may delegate: with 1 a sub-agent cannot delegate, with 0 "
        "no agent can.",
    )
    delegation_parallel: Count = Field(
        default=8, description="How many sub-agents work at once in a run's process; others wait."
    )
    background_timeout: Limit = Field(
        default=1800.0,
        description="Seconds that a sub-agent in the background may work; then it ends as "
        "`timeout`, and can be delegated again. 0 for no limit.",
    )
    background_idle_timeout: Limit = Field(
        default=600.0,
        description="Seconds that a sub-agent in the background may go without an answer, a "
        "piece of one or a result of a tool; then it ends as well. 0 for no limit.",
    )
    approve: Approvals = Field(
        default="",
        description="The calls that a person must allow, in addition to those of tools that "
        "always ask: `bash,write_file:path=/etc/*` means every `bash` (also known "
        "as `shell`) and each `write_file` whose `path` matches. Separate rules by commas, and "
        "the arguments of a rule by `;`.",
    )
    answer_timeout: Seconds = Field(
        default=86_400.0,
        description="Seconds that a question to a person stays open; then it counts as refused.",
    )
    loop_limit: RepeatLimit = Field(
        default=5,
        description="After this many equal calls with equal results in a row, a note asks the "
        "model to do something else; after twice as many the run stops. 0 for never.",
    )
    plan_stall_limit: RepeatLimit = Field(
        default=50,
        description="After this many steps without a change of the plan, a note says so to the "
        "model; after half as many more the run stops. 0 for never.",
    )
    node_memory_keep_days: float = Field(
        default=0.0,
        ge=0,
        allow_inf_nan=False,
        description="Delete a node's memory after this many days without a turn, checked once a "
        "day; 0 keeps all.",
    )
    plan_phases: Phases = Field(
        default="plan,execute,inspect,evaluate,debug",
        description="The phases of plans, in their order, for agents that name none.",
    )
    timezone: TimeZone = Field(
        default="UTC",
        description="The user's time zone, by its IANA name such as `Europe/Berlin`: prompts show "
        "the date and times in it, and the Observer works out what `today` means. Not the "
        "system's by default, so that a run means the same day on every machine.",
    )
    observational_memory: bool = Field(
        default=True,
        description="Whether observations replace older messages in the prompt. Without it older "
        "messages leave the prompt as the window moves.",
    )
    observer_model: ModelName = Field(
        default="same",
        description="What writes the observations: `same` for the run's own model, `extractive` "
        "for rules without a model, or a model's name, or several as for the main model. Without "
        "its key it is `extractive`.",
    )
    observer_message_tokens: Annotated[int, Field(ge=1000)] = Field(
        default=30_000,
        description="Replace the oldest messages by observations when the raw messages exceed "
        "this many tokens; at most half of what a prompt may have.",
    )
    reflector_model: ModelName = Field(
        default="same",
        description="What condenses old observations; takes the same names as the Observer.",
    )
    reflector_observation_tokens: Annotated[int, Field(ge=500)] = Field(
        default=40_000,
        description="Condense the oldest observations when all of them exceed this many tokens; "
        "at most a quarter of what a prompt may have, less where tools fill a small window.",
    )
    constraint_share: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = Field(
        default=0.1,
        description="The share of REFLECTOR_OBSERVATION_TOKENS that prompts reserve for what the "
        "user requires, forbids or corrects, in the user's words.",
    )
    observer_timeout: Seconds = Field(
        default=120.0, description="Seconds that the Observer may take for a chunk of messages."
    )
    observer_service: Annotated[Literal["batch", "standard"], Lower] = Field(
        default="batch",
        description="The service tier of Observer and Reflector: `batch` asks for the tier with "
        "the price of batches (`flex`) where their model has one and their notes are not needed "
        "yet, and for the usual one if that has no room or takes half of their time; `standard` "
        "asks for the usual one.",
    )
    activation: Annotated[Literal["threshold", "price"], Lower] = Field(
        default="threshold",
        description="When observations replace their messages: at the `threshold`; or by `price`, "
        "as soon as carrying the messages has cost as much as removing them, at the threshold at "
        "the latest.",
    )
    activate_after_idle: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=300.0,
        description="Seconds without a model call after which the provider's cache counts as "
        "expired; observations that are ready then replace their messages at once. 0 for never.",
    )
    embedder_model: ModelName = Field(
        default="",
        description="The model that embeds messages, by its litellm name such as "
        "`openai/text-embedding-3-small`. With one, earlier messages are recalled before each "
        "turn; without one, nothing is embedded or recalled.",
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
    semantic_recall_before: Natural = Field(
        default=2, description="How many messages before each recalled one are shown with it."
    )
    semantic_recall_after: Natural = Field(
        default=1, description="How many messages after each recalled one are shown with it."
    )
    semantic_recall_scope: Annotated[Literal["thread", "user"], Lower] = Field(
        default="thread",
        description="Where recall searches: in the `thread`, or in all threads of the `user`.",
    )
    semantic_recall_mode: Annotated[Literal["hybrid", "text", "vectors"], Lower] = Field(
        default="hybrid",
        description="How recall searches: by full text, by vectors, or `hybrid`, by both. By "
        "`text` nothing is embedded.",
    )
    semantic_recall_tokens: Annotated[int, Field(ge=100)] = Field(
        default=2000, description="The most tokens that are recalled before a turn."
    )
    semantic_recall_timeout: Seconds = Field(
        default=3.0,
        description="Seconds that a turn waits for the vector of the user's message; then recall "
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
        description="The most tokens of one answer of the model, reasoning included. It lowers "
        "the model's own limit, or sets it where none is known; the room in the window and the "
        "budget may lower it further.",
    )
    repeat_system_prompt: bool = Field(
        default=False,
        description="Whether to repeat the system prompt as a user message, for models that "
        "ignore the system role.",
    )
    model_transport: Annotated[Literal["auto", "native", "litellm"], Lower] = Field(
        default="auto",
        description="How models are called: `native` by a wire of our own, `litellm` through that "
        "library, `auto` by a wire of our own where there is one for the provider.",
    )
    model_settings: RequestSettings = Field(
        default="",
        description="What a run's model is asked for in each call, as a JSON object such as "
        '`{"temperature": 0.2, "reasoning": "high"}`; the fields are those of `ModelSettings`. An '
        "agent's own settings win.",
    )
    first_byte_timeout: Seconds = Field(
        default=120.0, description="Seconds to wait for the first byte of a model's answer."
    )
    idle_timeout: Seconds = Field(
        default=60.0, description="Seconds without data after which a model's stream is abandoned."
    )
    model_retries: Natural = Field(
        default=4, description="How often a failed model call is tried again."
    )
    model_rate_limits: Annotated[Literal["wait", "off"], Lower] = Field(
        default="wait",
        description="Whether calls `wait` while the provider's headers say that they would exceed "
        "its rate limits, and after it refused a call for its rate. The runs of a process take "
        "turns, and processes on one database share the limits of a key. `off` sends every call "
        "at once and leaves the limits to the provider. Only for calls by a wire of our own.",
    )
    fallback_cool_down: Seconds = Field(
        default=30.0,
        description="Seconds for which a model that failed is passed over, where several are "
        "named; each further failure doubles them.",
    )
    model_base_url: HttpUrl | None = Field(
        default=None,
        description="The address of the model's server, such as an OpenAI-compatible one. It is "
        "for that model, and for others of its provider that have no address of their own.",
    )
    tool_timeout: Seconds = Field(
        default=600.0, description="Seconds that a tool may take, unless it sets its own limit."
    )
    mcp_servers: SecretStr | None = Field(
        default=None,
        description="MCP servers of the command line's agents: JSON in the form of `.mcp.json`, or "
        "the path of such a file.",
    )
    mcp_schema_bytes: Annotated[int, Field(ge=0)] = Field(
        default=12_000,
        description="Up to how many bytes the schemas of an agent's MCP tools stand in its prompt; "
        "of more, the model finds the tools by `mcp_find` and calls them by `mcp_call`.",
    )
    sandbox: SandboxName = Field(
        default="none",
        description="What confines the commands of workspaces: `none`; `bwrap` for bubblewrap, on "
        "Linux; or `docker:IMAGE` for a container of that image. Without it commands have all "
        "rights of the runtime's user.",
    )
    sandbox_network: bool = Field(
        default=False, description="Whether commands in a sandbox may use the network."
    )
    sandbox_read: Folders = Field(
        default="",
        description="Files and folders outside of the workspace that commands in a sandbox may "
        "read, such as a toolchain in your home folder, with colons between them.",
    )
    command_environment: VariableNames = Field(
        default="",
        description="The variables of the runtime's environment that commands get in addition to "
        "the usual ones, with commas between their names.",
    )
    max_result_tokens: Count = Field(
        default=8_000,
        description="The most tokens of a tool's result that a prompt shows, at any window, "
        "unless the tool sets its own limit. `recall` opens the rest.",
    )
    max_file_bytes: Count = Field(
        default=20_000_000,
        description="The largest file, in bytes, that is kept with a thread: attached to a task, "
        "or returned from a tool.",
    )
    model_outage: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=600.0,
        description="Seconds for which a run waits, after all retries, for a model that is "
        "unavailable; then it is suspended as `unavailable`, and `resume` or a sweep continues it. "
        "With 0 the run fails at once.",
    )
    max_runs: Count | None = Field(
        default=None,
        description="How many runs work at once in a process, without sub-agents and runs that "
        "a tool begins; the others wait in order.",
    )
    sweep: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=0.0,
        description="Seconds between the sweeps that an open runtime makes by itself: it suspends "
        "runs whose process died, and continues those for which it was given agents "
        "(`Runtime.open(agents=…)`). 0 for never.",
    )
    drain_timeout: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=0.0,
        description="Seconds that runs have to end by themselves when their runtime closes.",
    )
    pause_timeout: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=5.0,
        description="Seconds that runs then have to end their step; what is left is interrupted. "
        "Both kinds are suspended, and `resume` or a sweep continues them.",
    )
    protected_paths: Globs = Field(
        default="",
        description="More paths in a workspace that the file tools must not write, as globs with "
        "commas between them: `migrations,docs/*.md`. One without `/` matches a name in any "
        "folder, one with `/` from the workspace on, `**` any folders; `!glob` makes an exception. "
        "Files of git, virtual environments, shells, editors and package managers are protected "
        "by default.",
    )
    hidden_paths: Globs = Field(
        default="",
        description="The same for paths that the file tools must not read either. Files of "
        "secrets, such as `.env`, are hidden by default.",
    )
    run_timeout: Seconds | None = Field(
        default=None,
        description="Seconds of wall time that a run may take; a resume starts the count again.",
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
        description="The most seconds that a run may work, with its sub-agents, across all "
        "resumes; waiting for a person does not count.",
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
    unknown_price: Annotated[Literal["refuse", "tokens"], Lower] = Field(
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
        description="Dollars per million input tokens written to the provider's cache, instead of "
        "the known price.",
    )
    forbid_real_models: bool = Field(
        default=False,
        description="Whether to refuse calls of models that are not on this machine; for tests.",
    )

    @model_validator(mode="before")
    @classmethod
    def _name_the_nearest(cls, given: Any) -> Any:
        for name in given:
            if name not in cls.model_fields:
                near = difflib.get_close_matches(name, sorted(cls.model_fields), n=1)
                raise PydanticCustomError(
                    "unknown_setting",
                    "{name} is not a setting.{cure}",
                    {"name": repr(name), "cure": f" Did you mean {near[0]}?" if near else ""},
                )
        return given

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Return the values without the credentials of URLs: programs log their settings."""
        for name, value in super().__repr_args__():
            yield (
                name,
                redact_url(value) if isinstance(value, str) and "url" in (name or "") else value,
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
