"""Settings of a run's models; each applies to the model of one role only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings

from agent_runtime_config.fields import Count, HttpUrl, ModelName, Price, Seconds, Window

Role: TypeAlias = Literal["model", "sub_agent", "observer", "reflector", "embedder", "reranker"]


@dataclass(frozen=True, slots=True)
class ModelPlace:
    """What the settings give for the model of one role; prices in dollars per million tokens.

    Attributes:
        name: the model, the first of several; empty where the settings name none.
        prefix: beginning of the variables of the role's prices.
    """

    name: str
    base_url: str | None = None
    api_key: SecretStr | None = None
    window: int | None = None
    max_output: int | None = None
    price_input: float | None = None
    price_output: float | None = None
    price_cache_read: float | None = None
    price_cache_write: float | None = None
    prefix: str = ""


class RoleSettings(BaseSettings):
    """The settings of the models of roles other than the main one."""

    model_api_key: SecretStr | None = Field(
        default=None,
        description="The key of the model, instead of its provider's own variable; it is sent to "
        "that model's provider or base URL only.",
    )
    sub_agent_model: ModelName = Field(
        default="same",
        description="The model of sub-agents that name none: `same` for that of the run above, or "
        "a model's name, or several as for the main model.",
    )
    sub_agent_base_url: HttpUrl | None = Field(
        default=None, description="The address of the server of the sub-agents' model."
    )
    sub_agent_api_key: SecretStr | None = Field(
        default=None, description="The key of the sub-agents' model."
    )
    sub_agent_context_window: Window | None = Field(
        default=None, description="The context window of the sub-agents' model."
    )
    sub_agent_max_output_tokens: Count | None = Field(
        default=None, description="The output limit of the sub-agents' model."
    )
    sub_agent_price_input: Price | None = Field(
        default=None, description="Dollars per million input tokens of the sub-agents' model."
    )
    sub_agent_price_output: Price | None = Field(
        default=None, description="Dollars per million output tokens of the sub-agents' model."
    )
    sub_agent_price_cache_read: Price | None = Field(
        default=None, description="The same, for input tokens read from the cache."
    )
    sub_agent_price_cache_write: Price | None = Field(
        default=None, description="The same, for input tokens written to the cache."
    )
    observer_base_url: HttpUrl | None = Field(
        default=None, description="The address of the server of the Observer's model."
    )
    observer_api_key: SecretStr | None = Field(
        default=None, description="The key of the Observer's model."
    )
    observer_context_window: Window | None = Field(
        default=None, description="The context window of the Observer's model."
    )
    observer_max_output_tokens: Count | None = Field(
        default=None, description="The output limit of the Observer's model."
    )
    observer_price_input: Price | None = Field(
        default=None, description="Dollars per million input tokens of the Observer's model."
    )
    observer_price_output: Price | None = Field(
        default=None, description="Dollars per million output tokens of the Observer's model."
    )
    observer_price_cache_read: Price | None = Field(
        default=None, description="The same, for input tokens read from the cache."
    )
    observer_price_cache_write: Price | None = Field(
        default=None, description="The same, for input tokens written to the cache."
    )
    reflector_base_url: HttpUrl | None = Field(
        default=None, description="The address of the server of the Reflector's model."
    )
    reflector_api_key: SecretStr | None = Field(
        default=None, description="The key of the Reflector's model."
    )
    reflector_context_window: Window | None = Field(
        default=None, description="The context window of the Reflector's model."
    )
    reflector_max_output_tokens: Count | None = Field(
        default=None, description="The output limit of the Reflector's model."
    )
    reflector_price_input: Price | None = Field(
        default=None, description="Dollars per million input tokens of the Reflector's model."
    )
    reflector_price_output: Price | None = Field(
        default=None, description="Dollars per million output tokens of the Reflector's model."
    )
    reflector_price_cache_read: Price | None = Field(
        default=None, description="The same, for input tokens read from the cache."
    )
    reflector_price_cache_write: Price | None = Field(
        default=None, description="The same, for input tokens written to the cache."
    )
    embedder_api_key: SecretStr | None = Field(
        default=None, description="The key of the embedder, instead of its provider's own variable."
    )
    embedder_price_input: Price | None = Field(
        default=None, description="Dollars per million tokens of the embedder."
    )
    reranker_model: ModelName = Field(
        default="",
        description="The model that orders what recall has found, by its litellm name such as "
        "`cohere/rerank-v3.5`. Without one, or where it fails, the search's own order stays.",
    )
    reranker_base_url: HttpUrl | None = Field(
        default=None, description="The address of a server with the API of the reranker's provider."
    )
    reranker_api_key: SecretStr | None = Field(
        default=None, description="The key of the reranker, instead of its provider's own variable."
    )
    reranker_timeout: Seconds = Field(
        default=3.0, description="Seconds that a search waits for the reranker."
    )
    reranker_price_input: Price | None = Field(
        default=None,
        description="Dollars per million tokens of the reranker, instead of the known price.",
    )

    def model_name(self, role: Role) -> str:
        """Return the name of a role's model as it is set: several have commas between them."""
        return str(getattr(self, "model" if role == "model" else f"{role}_model", None) or "")

    def place(self, role: Role) -> ModelPlace:
        """Return the settings of a role's own model."""
        own = "" if role == "model" else f"{role}_"

        def given(name: str) -> object:
            return getattr(self, name, None)

        # Of several models, the settings are for the first.
        name = self.model_name(role).partition(",")[0].strip()
        fields = {
            "base_url": given(f"{role}_base_url"),
            "api_key": given(f"{role}_api_key"),
            "window": given(f"{own}context_window"),
            "max_output": given(f"{own}max_output_tokens"),
        } | {one: given(own + one) for one in PRICES}
        prefix = f"AGENT_RUNTIME_{own.upper()}"
        # The fields are checked by pydantic, under the names that stand here.
        return ModelPlace(name, **fields, prefix=prefix)  # pyright: ignore[reportArgumentType]


PRICES = ("price_input", "price_output", "price_cache_read", "price_cache_write")
