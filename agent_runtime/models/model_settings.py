"""Find the settings for a model: its address, key, limits and prices."""

from __future__ import annotations

from dataclasses import fields, replace

from agent_runtime.errors import ConfigError
from agent_runtime.models.catalog import full_name, provider_of
from agent_runtime_config import Settings
from agent_runtime_config.groups.model_settings import ModelPlace, Role

_ACCESS = ("base_url", "api_key")


def place_for_model(name: str, settings: Settings, role: Role) -> ModelPlace:
    """Return the settings for a model that is used in a role.

    A role's settings apply to the model that they name; the main model's apply to that model in
    any role.  Another model takes the main model's base URL and key only if it has no base URL and
    has the same provider, so that no key is sent to another provider.

    Raises:
        ConfigError: there is a base URL or a key without a model's name.
    """
    main, own = settings.place("model"), settings.place(role)
    named = role != "model" and _same(own.name, name, settings)
    if not named:
        own = ModelPlace(name, prefix=main.prefix)
    near = _provider(name, settings) == _provider(main.name, settings)
    if not main.name and not named and role in ("model", "sub_agent"):
        # The model is named in code; the settings are for it.
        if near or not (main.base_url or main.api_key):
            return main
        if role == "model":
            raise ConfigError(
                f"AGENT_RUNTIME_MODEL_BASE_URL or AGENT_RUNTIME_MODEL_API_KEY is set without "
                f"AGENT_RUNTIME_MODEL, so that they may not be meant for {name}.",
                cure=f"Set AGENT_RUNTIME_MODEL={name} if they are, or unset them.",
            )
    if own.base_url is None and near:
        own = replace(own, base_url=main.base_url, api_key=own.api_key or main.api_key)
    if not _same(main.name, name, settings):
        return own
    missing = [one.name for one in fields(own) if getattr(own, one.name) is None]
    # Never the address or the key: they have been decided above, by the provider.
    return replace(own, **{one: getattr(main, one) for one in missing if one not in _ACCESS})


def is_main(name: str, settings: Settings) -> bool:
    """Return whether the main model's settings apply to a model that was made in code.

    Args:
        name: that of the model, or of several with commas between them.
    """
    main = settings.place("model").name
    return not main or _same(main, name.partition(",")[0], settings)


def _same(one: str, other: str, settings: Settings) -> bool:
    return bool(one) and _full(one, settings) == _full(other, settings)


def _full(name: str, settings: Settings) -> str:
    # A name without a provider means the one of the table, or an OpenAI-compatible server.
    full = full_name(name)
    return full if "/" in full else f"{_provider(name, settings)}/{full}"


def _provider(name: str, settings: Settings) -> str:
    full = full_name(name)
    main = full_name(settings.place("model").name)
    if not full or (settings.model_base_url and full == main and "/" not in full):
        return "openai"
    return provider_of(full) or "openai"
