"""Settings as fields of Anthropic's Messages API.

Each generation of Claude refuses other settings, so they are chosen by its name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from agent_runtime.messages import PromptMessage
from agent_runtime.models.base import Json, ModelRequest
from agent_runtime.models.wire.base import Target
from agent_runtime_config.request_settings import Effort

# Tokens; Anthropic refuses a smaller budget of thinking.
_LEAST_BUDGET = 1024
_LEAST_TOP_P = 0.95
"""Of models that think; they take no lower one."""
_BUDGETS: dict[Effort, int] = {
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16384,
    "xhigh": 32768,
    "max": 65536,
}
_CLAUDE = re.compile(
    r"claude-(?:"
    r"(?P<family>[a-z]+)-(?:preview|(?P<major>\d{1,2})(?:[-.](?P<minor>\d{1,2}))?(?!\d))"
    r"|(?P<old_major>\d)(?:[-.](?P<old_minor>\d{1,2}))?(?:-(?P<old_family>[a-z]+)|$)"
    r")"
)
"""A name such as `claude-opus-4-5-20251101` or `claude-3-7-sonnet-latest`."""
_UNFORCED = {"fable": (5, 1), "mythos": (5, 1), "opus": (5, 5), "sonnet": (5, 5)}
"""The first version of each family that cannot be forced to call a tool."""


@dataclass(frozen=True, slots=True)
class Abilities:
    """The settings that a model takes; by default those of a model that is not Claude.

    Attributes:
        thinks: whether it can think before it answers.
        budget: whether it takes a limit of its thinking in tokens.
        adaptive: whether it can decide itself how much to think, by an effort.
        efforts: the efforts that it takes.
        off: the type of thinking that turns it off; empty if it is off by default, None if it
            always thinks.
        sampling: whether it takes `temperature` or `top_p`.
        hottest: the highest temperature.
        both: whether it takes `temperature` and `top_p` together.
        forced: whether it can be forced to call a tool.
    """

    thinks: bool = True
    budget: bool = True
    adaptive: bool = False
    efforts: frozenset[str] = frozenset()
    off: str | None = "disabled"
    sampling: bool = True
    hottest: float = 2.0
    both: bool = True
    forced: bool = True

    @classmethod
    def of(cls, model: str) -> Abilities:
        """Return those of a model by its name; a newer model counts as the newest known one."""
        found = _CLAUDE.search(model.lower())
        if found is None:
            return cls()
        family = found["family"] or found["old_family"] or ""
        # Only a preview has no version; the ones so far belong to the fifth generation.
        major = int(found["major"] or found["old_major"] or 5)
        version = (major, int(found["minor"] or found["old_minor"] or 0))
        always = family in ("fable", "mythos") or (family == "opus" and version >= (5, 5))
        off = "between_tools" if family == "sonnet" and version >= (5, 5) else "disabled"
        efforts = ["low", "medium", "high", "max", "xhigh"]
        return cls(
            thinks=version >= (3, 7),
            budget=version <= (4, 6),
            adaptive=version >= (4, 6),
            efforts=frozenset(efforts if version >= (4, 7) else efforts[:-1]),
            off=None if always else off if version >= (5, 0) else "",
            sampling=version <= (4, 6),
            hottest=1.0,
            both=False,
            forced=version < _UNFORCED.get(family, (99, 0)),
        )


def fields_of(
    request: ModelRequest, target: Target, can: Abilities, limit: int
) -> tuple[Json, tuple[str, ...]]:
    """Return the fields of a request's settings, and the names of settings that are left out.

    Args:
        limit: the most tokens of the answer, thinking included.
    """
    form = _Form(request, target, can, limit)
    form.reason()
    form.sample()
    if request.tools:
        form.choose()
    form.rest()
    return form.fields, tuple(form.ignored)


@dataclass(slots=True)
class _Form:
    request: ModelRequest
    target: Target
    can: Abilities
    limit: int
    fields: Json = field(default_factory=dict[str, object])
    ignored: list[str] = field(default_factory=list[str])

    @property
    def thinking(self) -> str:
        """The type of thinking that is asked for; empty for the model's default."""
        return cast("dict[str, str]", self.fields.get("thinking") or {}).get("type", "")

    def reason(self) -> None:
        asked, can = self.request.settings.reasoning, self.can
        if asked is None:
            return
        if asked == "none" or (isinstance(asked, int) and asked <= 0):
            # One that always thinks can only be asked for little.
            if can.off is None:
                self._adapt("low")
            elif can.off:
                self.fields["thinking"] = {"type": can.off}
        elif not can.thinks:
            self.ignored.append("reasoning")
        elif can.budget and (isinstance(asked, int) or not can.adaptive):
            self._budget(asked if isinstance(asked, int) else _BUDGETS[asked])
        elif isinstance(asked, int):
            self._adapt("low" if asked <= 2048 else "medium" if asked <= 8192 else "high")
        else:
            asked = "low" if asked == "minimal" else asked
            self._adapt(asked if asked in can.efforts else "high")

    def _adapt(self, effort: str) -> None:
        self.fields["thinking"] = {"type": "adaptive"}
        self.fields["output_config"] = {"effort": effort}

    def _budget(self, wanted: int) -> None:
        # A quarter of the answer is kept for what follows the thinking.
        budget = max(_LEAST_BUDGET, min(wanted, self.limit - self.limit // 4))
        # The budget has to be below the limit, which may be less than the least budget.
        if budget >= self.limit:
            self.ignored.append("reasoning")
        elif _loop_thinks(self.request.messages, self.target.name):
            self.fields["thinking"] = {"type": "enabled", "budget_tokens": budget}

    def sample(self) -> None:
        temperature, top_p = self.request.settings.temperature, self.request.settings.top_p
        can, thinks = self.can, self.thinking in ("enabled", "adaptive")
        if temperature is not None:
            # With thinking only the default of 1 is taken.
            if can.sampling and temperature <= can.hottest and (temperature == 1 or not thinks):
                self.fields["temperature"] = temperature
            else:
                self.ignored.append("temperature")
        if top_p is not None:
            alone = can.both or "temperature" not in self.fields
            if can.sampling and alone and (top_p >= _LEAST_TOP_P or not thinks):
                self.fields["top_p"] = top_p
            else:
                self.ignored.append("top_p")

    def choose(self) -> None:
        settings = self.request.settings
        choice: Json = {"type": "auto"}
        if settings.tool_choice == "none":
            choice = {"type": "none"}
        elif settings.tool_choice not in (None, "auto"):
            # A budget of thinking and a forced call exclude each other; an effort does not.
            if not self.can.forced or self.thinking == "enabled":
                self.ignored.append("tool_choice")
            elif settings.tool_choice == "required":
                choice = {"type": "any"}
            else:
                choice = {"type": "tool", "name": settings.tool_choice}
        if settings.parallel_calls is False and choice["type"] != "none":
            choice["disable_parallel_tool_use"] = True
        if choice != {"type": "auto"}:
            self.fields["tool_choice"] = choice

    def rest(self) -> None:
        settings = self.request.settings
        # A blank stop sequence is refused.
        stop = [text for text in settings.stop if text.strip()]
        if stop:
            self.fields["stop_sequences"] = stop
        if len(stop) < len(settings.stop):
            self.ignored.append("stop")
        # OpenAI's names of tiers are refused; what is bought there by name is a contract here.
        if settings.service_tier in ("auto", "standard_only"):
            self.fields["service_tier"] = settings.service_tier
        elif settings.service_tier is not None:
            self.ignored.append("service_tier")
        if settings.cache_ttl is not None and not self.target.marks:
            self.ignored.append("cache_ttl")
        if settings.seed is not None:
            self.ignored.append("seed")
        if settings.verbosity is not None:
            self.ignored.append("verbosity")


def _loop_thinks(messages: Sequence[PromptMessage], model: str) -> bool:
    """Return whether a tool loop under way, if there is one, began with this model's thinking.

    With a budget a loop that began without it, such as another model's, is refused.  The model need
    not think again between its calls.
    """
    first: PromptMessage | None = None
    for message in reversed(messages):
        if message.role == "assistant":
            if not message.calls:
                break
            first = message
    if first is None:
        return True
    opaque = first.opaque
    return opaque is not None and opaque.model == model and bool(opaque.data.get("thinking_blocks"))
