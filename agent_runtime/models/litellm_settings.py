"""`ModelSettings` as litellm's arguments, without those that the model does not take."""

from __future__ import annotations

from typing import Any, cast

from agent_runtime.models.base import Json, ModelSettings
from agent_runtime.models.catalog import entry_of, provider_of

_NAMES = {
    "temperature": "temperature",
    "top_p": "top_p",
    "seed": "seed",
    "verbosity": "verbosity",
    "service_tier": "service_tier",
}
_SAMPLING = ("temperature", "top_p")


def settings_arguments(
    litellm: Any, name: str, settings: ModelSettings, *, has_tools: bool
) -> tuple[Json, list[str]]:
    """Return litellm's arguments for the settings, and the names of those that are left out.

    Args:
        name: litellm's name of the model.
        has_tools: whether the request has tools; without them a choice of tools is refused.
    """
    taken = set(cast("list[str]", litellm.get_supported_openai_params(name) or []))
    if provider_of(name) in ("openai", "azure") and entry_of(name).get("supports_reasoning"):
        # litellm lists them, and then refuses every value but 1.
        taken.difference_update(_SAMPLING)
    wanted: dict[str, tuple[str, Any]] = {}
    for setting, argument in _NAMES.items():
        if (value := getattr(settings, setting)) is not None:
            wanted[argument] = (setting, value)
    if settings.stop:
        wanted["stop"] = ("stop", list(settings.stop))
    if isinstance(settings.reasoning, int):
        thinking = {"type": "enabled", "budget_tokens": settings.reasoning}
        wanted["thinking"] = ("reasoning", thinking)
    elif settings.reasoning is not None:
        wanted["reasoning_effort"] = ("reasoning", settings.reasoning)
    if has_tools and settings.tool_choice is not None:
        wanted["tool_choice"] = ("tool_choice", _choice(settings.tool_choice))
    if has_tools and settings.parallel_calls is not None:
        wanted["parallel_tool_calls"] = ("parallel_calls", settings.parallel_calls)
    arguments: Json = {key: value for key, (_, value) in wanted.items() if key in taken}
    ignored = [setting for key, (setting, _) in wanted.items() if key not in taken]
    if settings.cache_ttl not in (None, "5m"):
        ignored.append("cache_ttl")
    if settings.extra_headers:
        arguments["extra_headers"] = dict(settings.extra_headers)
    if settings.extra_body:
        arguments["extra_body"] = dict(settings.extra_body)
    return arguments, ignored


def _choice(choice: str) -> str | Json:
    if choice in ("auto", "required", "none"):
        return choice
    return {"type": "function", "function": {"name": choice}}
