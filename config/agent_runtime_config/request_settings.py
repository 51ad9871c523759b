"""`ModelSettings`: what a model is asked for in each call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, cast, get_args

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How much a model reasons before it answers."""


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """What a model is asked for in each call; None leaves it to the provider.

    A setting that the model does not take is left out; the event `setting_ignored` names it.

    Attributes:
        temperature: 0 for the likeliest answer; most models take up to 1 or 2.
        top_p: sample from the likeliest tokens of this share only.
        seed: the same seed makes answers more alike, where the provider supports it.
        stop: texts that end an answer.
        reasoning: how much to reason, or the most tokens of reasoning; each provider gets its own
            form of it.
        tool_choice: `auto`, `required` (some tool), `none`, or the name of the tool to call.
        parallel_calls: whether an answer may call several tools.
        verbosity: how long answers are.
        service_tier: the provider's own word, such as `flex`.
        cache_ttl: how long the provider keeps a cached prompt.
        extra_headers: added to the request.
        extra_body: added to the request's body, in the provider's own form; wins over all else.
    """

    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    reasoning: Effort | int | None = None
    tool_choice: str | None = None
    parallel_calls: bool | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    service_tier: str | None = None
    cache_ttl: Literal["5m", "1h"] | None = None
    extra_headers: Mapping[str, str] = field(default_factory=dict[str, str])
    extra_body: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def service(self) -> str:
        """The service tier that is asked for, which `extra_body` may name too; empty for none."""
        named = (self.extra_body.get(name) for name in ("service_tier", "serviceTier"))
        own = next((one for one in named if one is not None), self.service_tier)
        return own if isinstance(own, str) else ""

    def over(self, defaults: ModelSettings) -> ModelSettings:
        """Return these settings, with the defaults where one is not set."""
        unset = {
            one.name: getattr(defaults, one.name)
            for one in fields(self)
            if getattr(self, one.name) is None or getattr(self, one.name) in ((), {})
        }
        return replace(self, **unset)


NO_SETTINGS = ModelSettings()
"""Everything as the provider has it."""


def parse_model_settings(text: str) -> ModelSettings:
    """Return the settings in a JSON object; none if the text is empty.

    Raises:
        ValueError: the text is no JSON object, or a field is unknown or has a wrong value.
    """
    if not text.strip():
        return NO_SETTINGS
    try:
        values: object = json.loads(text)
    except ValueError:
        raise ValueError("is no valid JSON") from None
    if not isinstance(values, dict):
        raise ValueError("must be a JSON object")
    known = {one.name for one in fields(ModelSettings)}
    given = cast("dict[str, Any]", values)
    for name, value in given.items():
        if name not in known:
            raise ValueError(f"has the unknown field {name}; known are {', '.join(sorted(known))}")
        if value is not None and (wanted := _wanted(name, value)):
            raise ValueError(f"has a wrong {name}: it must be {wanted}")
    if "stop" in given:
        given["stop"] = tuple(given["stop"] or ())
    return ModelSettings(**{name: value for name, value in given.items() if value is not None})


def _wanted(name: str, value: Any) -> str:
    """Return what a field's value must be, if it is not."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    whole = isinstance(value, int) and not isinstance(value, bool)
    if name in ("temperature", "top_p"):
        most = 2 if name == "temperature" else 1
        return "" if number and 0 <= value <= most else f"a number from 0 to {most}"
    if name == "seed":
        return "" if whole else "a whole number"
    if name == "stop":
        texts = cast("list[Any]", value) if isinstance(value, list) else [None]
        return "" if all(isinstance(one, str) and one for one in texts) else "a list of texts"
    if name == "reasoning":
        right = value > 0 if whole else value in get_args(Effort)
        return "" if right else f"a number of tokens, or one of {', '.join(get_args(Effort))}"
    if name == "parallel_calls":
        return "" if isinstance(value, bool) else "true or false"
    if name in ("extra_headers", "extra_body"):
        return "" if isinstance(value, dict) else "an object"
    choices = {"verbosity": ("low", "medium", "high"), "cache_ttl": ("5m", "1h")}.get(name)
    if choices:
        return "" if value in choices else f"one of {', '.join(choices)}"
    return "" if isinstance(value, str) and value else "a text"
