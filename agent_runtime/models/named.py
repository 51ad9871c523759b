"""The language model of one name, by the wire or the library that calls it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_runtime.errors import ConfigError
from agent_runtime_config.urls import is_not_a_model

if TYPE_CHECKING:
    from pydantic import SecretStr

    from agent_runtime.models.base import Price
    from agent_runtime.models.litellm import LiteLLMModel
    from agent_runtime.models.native import NativeModel
    from agent_runtime_config import Settings
    from agent_runtime_config.groups.model_settings import ModelPlace, Role


OFFLINE = ("", "scripted", "offline")
"""Names that mean no language model."""


def model_of_one_name(
    name: str, settings: Settings | None, role: Role, **options: Any
) -> NativeModel | LiteLLMModel:
    """Return a model as `model_from_name` does, for a name that means one."""
    if name.strip() in OFFLINE:
        raise ConfigError(
            f"{name!r} names no language model.",
            cure="Leave the model unset to work offline, or name one as provider/model.",
        )
    check_name(name)
    known = {} if settings is None else _options(name, settings, role)
    arguments = known | options
    if _transport(name, settings, arguments.get("base_url")) == "native":
        from agent_runtime.models.native import NativeModel

        if settings is not None:
            arguments.setdefault("rate_limits", settings.model_rate_limits)
        return NativeModel(name, **arguments)
    from agent_runtime.models.litellm import LiteLLMModel

    return LiteLLMModel(name, **arguments)


def check_name(name: str) -> None:
    """Raise `ConfigError` if a model's name holds parameters or an address."""
    if is_not_a_model(name):
        raise ConfigError(
            "This is no model's name: it holds parameters or an address, which are not shown here.",
            cure="Give address and key by `base_url` and `api_key`, or by their settings.",
        )


def _transport(name: str, settings: Settings | None, base_url: str | None) -> str:
    """Return the transport for a model, `native` or `litellm`."""
    chosen = "auto" if settings is None else settings.model_transport
    if chosen != "auto":
        return chosen
    from agent_runtime.models.catalog import full_name
    from agent_runtime.models.native import can_call

    full = full_name(name)
    # On a compatible server of the user's, a name without a provider is OpenAI's form.
    full = f"openai/{full}" if base_url is not None and "/" not in full else full
    return "native" if can_call(full, base_url) else "litellm"


def _options(name: str, settings: Settings, role: Role) -> dict[str, Any]:
    from agent_runtime.models.model_settings import place_for_model

    place = place_for_model(name, settings, role)
    return {
        "base_url": place.base_url,
        "api_key": secret_of(place.api_key),
        "first_byte_timeout": settings.first_byte_timeout,
        "idle_timeout": settings.idle_timeout,
        "retries": settings.model_retries,
        "window": place.window,
        "max_output": _max_output(name, place),
        "price": _price(name, place),
        "local_only": settings.forbid_real_models,
    }


def secret_of(key: SecretStr | None) -> str | None:
    """Return a key in plain text; None without one."""
    return None if key is None else key.get_secret_value()


def _max_output(name: str, place: ModelPlace) -> int | None:
    """Return the settings' output limit, at most the known one; None without a setting."""
    from agent_runtime.models.catalog import full_name, known_output

    # A limit above the model's own would be refused with the first call.
    limits = [one for one in (place.max_output, known_output(full_name(name))) if one]
    return None if place.max_output is None else min(limits)


def _price(name: str, place: ModelPlace) -> Price | None:
    """Return the settings' price, completed by the known one; None without a setting."""
    given = {
        "input": place.price_input,
        "output": place.price_output,
        "cache_read": place.price_cache_read,
        "cache_write": place.price_cache_write,
    }
    if all(value is None for value in given.values()):
        return None
    from agent_runtime.models.base import Price
    from agent_runtime.models.catalog import full_name, model_info
    from agent_runtime.models.pricing.price import nanodollars

    known = model_info(full_name(name), base_url=place.base_url).price
    nano = {key: nanodollars(value, 1_000_000) for key, value in given.items() if value is not None}
    if known is None and not {"input", "output"} <= nano.keys():
        raise ConfigError(
            f"The price of {name} is not known, and the settings give only a part of it.",
            cure=f"Set both {place.prefix}PRICE_INPUT and {place.prefix}PRICE_OUTPUT.",
        )
    # Without prices of the cache its tokens count like any others: too dear rather than too
    # cheap.
    plain = nano.get("input", known.input if known else 0)
    return Price(
        input=plain,
        output=nano.get("output", known.output if known else 0),
        cache_read=nano.get("cache_read", known.cache_read if known else plain),
        cache_write=nano.get("cache_write", known.cache_write if known else plain),
    )
