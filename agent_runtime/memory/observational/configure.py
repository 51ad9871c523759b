"""Configure a run's observational memory from the settings: thresholds, Observer, Reflector."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from agent_runtime.errors import AgentRuntimeError
from agent_runtime.memory.observational.models import MemoryModels
from agent_runtime.memory.observational.observer.base import Observer
from agent_runtime.memory.observational.observer.model import ModelObserver
from agent_runtime.memory.observational.reflector.base import Reflector
from agent_runtime.memory.observational.reflector.model import ModelReflector
from agent_runtime.memory.observational.thresholds import CHUNK, ActivationPrices, MemoryThresholds
from agent_runtime.memory.transcript import LEAST
from agent_runtime.models import model_from_name
from agent_runtime.models.base import Checkable, Model, ModelInfo
from agent_runtime.models.fallback.model import FallbackModel
from agent_runtime.models.scripted import ScriptedModel
from agent_runtime.prompt.render import prefix_tokens
from agent_runtime.prompt.view import PromptPrefix
from agent_runtime.prompt.window import PromptLimits
from agent_runtime_config import Settings
from agent_runtime_config.groups.model_settings import Role
from agent_runtime_config.names import PREFIX


@dataclass(frozen=True, slots=True)
class MemorySetup:
    """What a run's observational memory works with.

    Attributes:
        observer, reflector: None for rules.
        warnings: settings that could not be followed, and why.
    """

    thresholds: MemoryThresholds
    observer: Observer | None = None
    reflector: Reflector | None = None
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class _Choice:
    settings: Settings
    model: Model
    info: ModelInfo
    warnings: list[str] = field(default_factory=list[str])

    async def chosen(
        self, given: Model | None, name: str, role: Role
    ) -> tuple[Model, ModelInfo] | None:
        """Return the given model, or that of this name; None for rules."""
        if given is not None:
            return await self._usable(given, role)
        # A script has answers only for the run it was written for.
        parts = self.model.models if isinstance(self.model, FallbackModel) else (self.model,)
        scripted = any(isinstance(one, ScriptedModel) for one in parts)
        if name == "extractive" or (name == "same" and scripted):
            return None
        if name == "same":
            return self.model, self.info
        try:
            other = model_from_name(name, self.settings, role=role)
        except AgentRuntimeError as error:
            return self.by_rules(role, error.message, error.cure)
        return await self._usable(other, role)

    async def _usable(self, model: Model, role: Role) -> tuple[Model, ModelInfo] | None:
        """Return a model that is not the run's own; None for rules if it cannot be called."""
        try:
            if isinstance(model, Checkable):
                await model.check()
            info = await model.info()
        except AgentRuntimeError as error:
            return self.by_rules(role, error.message, error.cure)
        if info.price is None and self.settings.needs_prices:
            unknown = f"The price of {model.name} is unknown"
            return self.by_rules(role, f"{unknown}, so a budget in dollars cannot be kept with it.")
        return model, info

    def by_rules(self, role: Role, why: str, cure: str = "") -> None:
        """Warn that rules do the work of a role, and why."""
        self.warnings.append(f"{why} Rules {_WORK[role]} instead. {cure}".strip())

    def lowered(self, setting: str, used: int) -> None:
        """Warn that the window allows less than somebody has set; a default says nothing."""
        wanted = int(getattr(self.settings, setting))
        if used < wanted and setting in self.settings.model_fields_set:
            self.warnings.append(
                f"{PREFIX}{setting.upper()} is {wanted:,}, and the window of "
                f"{self.info.window:,} tokens allows {used:,}, which is used."
            )


_WORK: dict[Role, str] = {"observer": "observe", "reflector": "condense observations"}


async def configure_memory(
    settings: Settings,
    model: Model,
    info: ModelInfo,
    room: PromptLimits,
    given: MemoryModels | None,
    prefix: PromptPrefix,
    thread_id: str,
) -> MemorySetup | None:
    """Return the observational memory of a run; None if it is off.

    A model that cannot be called, for example without a key, or whose window is too small, is
    replaced by rules with a warning.

    Args:
        room: the limits of prompts.
        given: an Observer and a Reflector of the program's own.
        prefix: the system prompt and the tool schemas, which share the window.
    """
    if not settings.observational_memory:
        return None
    # The run's own model has the window that the agent or a setting gives it.
    choice = _Choice(settings, model, replace(info, window=room.window))
    tokens = settings.observer_message_tokens, settings.reflector_observation_tokens
    thresholds = MemoryThresholds(*tokens, room.last_messages, required=settings.constraint_share)
    thresholds = thresholds.within(room.limit, prefix_tokens(prefix))
    choice.lowered("observer_message_tokens", thresholds.observe)
    choice.lowered("reflector_observation_tokens", thresholds.reflect)
    own = given or MemoryModels()
    observer, observing = await _observer(choice, own.observer, thresholds, thread_id)
    reflector = await _reflector(choice, own.reflector, thresholds, thread_id)
    if settings.activation == "price":
        thresholds = replace(thresholds, prices=_prices(choice, observing))
    return MemorySetup(thresholds, observer, reflector, tuple(dict.fromkeys(choice.warnings)))


async def _observer(
    choice: _Choice, given: Model | Observer | None, thresholds: MemoryThresholds, thread: str
) -> tuple[Observer | None, ModelInfo | None]:
    """Return the Observer, and its model's facts; None for rules."""
    if isinstance(given, Observer):
        return given, None
    settings = choice.settings
    chosen = await choice.chosen(given, settings.observer_model, "observer")
    if chosen is None:
        return None, None
    observer = ModelObserver(
        *chosen,
        settings.observer_timeout,
        thread=thread,
        zone=settings.timezone,
        batches=settings.observer_service == "batch",
    )
    if problem := _observer_problem(observer, thresholds):
        return choice.by_rules("observer", problem, LARGER["observer"]), None
    return observer, chosen[1]


async def _reflector(
    choice: _Choice, given: Model | Reflector | None, thresholds: MemoryThresholds, thread: str
) -> Reflector | None:
    if isinstance(given, Reflector):
        return given
    settings = choice.settings
    chosen = await choice.chosen(given, settings.reflector_model, "reflector")
    if chosen is None:
        return None
    reflector = ModelReflector(
        *chosen,
        settings.observer_timeout,
        thread=thread,
        zone=settings.timezone,
        batches=settings.observer_service == "batch",
    )
    if problem := _reflector_problem(reflector, thresholds):
        return choice.by_rules("reflector", problem, LARGER["reflector"])
    return reflector


MOST_CALLS = 8
"""The most calls for one chunk: in more, instructions would cost more than what they are for."""
LARGER: dict[Role, str] = {
    "observer": "Name a model with a larger window in AGENT_RUNTIME_OBSERVER_MODEL, or correct "
    "AGENT_RUNTIME_OBSERVER_CONTEXT_WINDOW.",
    "reflector": "Name a model with a larger window in AGENT_RUNTIME_REFLECTOR_MODEL, or correct "
    "AGENT_RUNTIME_REFLECTOR_CONTEXT_WINDOW.",
}


def window_problem(
    role: Role, model: Model, info: ModelInfo, settings: Settings, limit: int
) -> tuple[str, str]:
    """Return why a model's window is too small for its work in memory, and the cure; or nothing.

    Args:
        limit: the most tokens of the agent's prompts.
    """
    tokens = settings.observer_message_tokens, settings.reflector_observation_tokens
    thresholds = MemoryThresholds(*tokens, settings.last_messages).within(limit)
    if role == "observer":
        problem = _observer_problem(ModelObserver(model, info, 1.0), thresholds)
    else:
        problem = _reflector_problem(ModelReflector(model, info, 1.0), thresholds)
    return problem, LARGER[role] if problem else ""


def _observer_problem(observer: ModelObserver, thresholds: MemoryThresholds) -> str:
    """Return why a model's window is too small to observe; empty if it is not."""
    chunk = int(thresholds.observe * CHUNK)
    calls = -(-chunk // observer.limit)
    if observer.room >= LEAST and calls <= MOST_CALLS:
        return ""
    room = max(0, observer.room)
    return (
        f"The window of {observer.info.name}, {observer.info.window:,} tokens, has room for "
        f"{room:,} tokens of a transcript, and {chunk:,} are observed at a time."
    )


def _reflector_problem(reflector: ModelReflector, thresholds: MemoryThresholds) -> str:
    """Return why a model's window is too small to reflect; empty if it is not."""
    # About what one reflection condenses: it begins below R, and the newest stay as they are.
    wanted = thresholds.reflect // 2
    if reflector.room >= wanted:
        return ""
    return (
        f"The window of {reflector.info.name}, {reflector.info.window:,} tokens, has room for "
        f"{max(0, reflector.room):,} tokens of observations, and {wanted:,} or more are condensed "
        "at a time."
    )


def _prices(choice: _Choice, observing: ModelInfo | None) -> ActivationPrices | None:
    infos = [choice.info, *([observing] if observing else [])]
    unknown = [one.name for one in infos if one.price is None]
    if unknown or choice.info.price is None:
        choice.warnings.append(
            f"The price of {unknown[0]} is unknown, so observations are activated by threshold.",
        )
        return None
    return ActivationPrices(choice.info.price, observing.price if observing else None)
