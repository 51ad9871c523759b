"""Language models and embedders: their protocols, implementations, tokens and prices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_runtime.models.named import OFFLINE, check_name, model_of_one_name, secret_of

if TYPE_CHECKING:
    from agent_runtime.models.fallback.model import FallbackModel
    from agent_runtime.models.litellm import LiteLLMModel
    from agent_runtime.models.native import NativeModel
    from agent_runtime.models.retrieval.embedding import LiteLLMEmbedder
    from agent_runtime_config import Settings
    from agent_runtime_config.groups.model_settings import Role

__all__ = ["OFFLINE", "check_name", "embedder_from_name", "model_from_name"]


def model_from_name(
    name: str, settings: Settings | None = None, *, role: Role = "model", **options: Any
) -> NativeModel | LiteLLMModel | FallbackModel:
    """Return the language model of a name, without loading or calling anything.

    It is called by a wire of ours where there is one for its provider, else through litellm.

    Args:
        name: litellm's name, such as `anthropic/claude-sonnet-4-5`; also `provider:model`, and
            several with commas between them for a `FallbackModel`.
        settings: for deadlines and retries, and for address, key, limits and prices if they are
            for this model; None for the defaults.
        role: the role that the model is used in.
        options: more arguments of the model, such as `retries`, which win over the settings.

    Raises:
        ConfigError: the name means no language model, a price is given only in part, it is not
            clear whether the main model's address and key are for this model, or the transport
            `native` is demanded and there is none for it.
    """
    if "," in name:
        check_name(name)
        from agent_runtime.models.fallback.model import FallbackModel

        return FallbackModel(name.split(","), settings=settings, role=role, **options)
    return model_of_one_name(name, settings, role, **options)


def embedder_from_name(name: str, settings: Settings) -> LiteLLMEmbedder:
    """Return the embedder of a litellm name, without loading or calling anything.

    Raises:
        ConfigError: the name is empty.
    """
    from agent_runtime.models.retrieval.embedding import LiteLLMEmbedder

    check_name(name)
    place = settings.place("embedder")
    return LiteLLMEmbedder(
        name,
        base_url=place.base_url,
        api_key=secret_of(place.api_key),
        timeout=settings.embedder_timeout,
        retries=settings.model_retries,
        price=None if place.price_input is None else round(place.price_input * 1000),
        local_only=settings.forbid_real_models,
    )
