"""Configure a run's observational memory from the settings: thresholds, Observer, Reflector."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from agent_runtime.errors import AgentRuntimeError
from agent_runtime.memory.observational.observer.base import Observer
from agent_runtime.memory.observational.observer.model import ModelObserver
from agent_runtime.memory.observational.reflector.base import Reflector
from agent_runtime.memory.observational.reflector.model import ModelReflector
from agent_runtime.memory.observational.thresholds import ActivationPrices, MemoryThresholds
from agent_runtime.models import model_from_name
from agent_runtime.models.base import Model, ModelInfo
from agent_runtime.models.fallback.model import FallbackModel
from agent_runtime.models.scripted import ScriptedModel
from agent_runtime.prompt.window import PromptLimits
from agent_runtime_config import Settings
from agent_runtime_config.model_settings import Role


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

    async def named(self, name: str, role: Role, job: str) -> tuple[Model, ModelInfo] | None:
        """Return the model of this name; None for rules, also if it cannot be called."""
        # A script has answers only for the run it was written for.
        parts = self.model.models if isinstance(self.model, FallbackModel) else (self.model,)
        scripted = any(isinstance(one, ScriptedModel) for one in parts)
        if name == "extractive" or (name == "same" and scripted):
            return None
        if name == "same":
            return self.model, self.info
        try:
            other = model_from_name(name, self.settings, role=role)
            await other.check()
        except AgentRuntimeError as error:
            self.warnings.append(f"{error.message} Rules {job} instead. {error.cure}".strip())
            return None
        info = await other.info()
        if info.price is None and self.settings.needs_prices:
            self.warnings.append(
                f"The price of {name} is unknown, so a budget in dollars cannot be kept with it. "
                f"Rules {job} instead.",
            )
            return None
        return other, info


async def configure_memory(
    settings: Settings,
    model: Model,
    info: ModelInfo,
    *,
    thread_id: str,
    room: PromptLimits,
) -> MemorySetup | None:
    """Return the observational memory of a run; None if it is off.

    A model that cannot be called, for example without a key, is replaced by rules with a warning.

    Args:
        room: the limits of prompts.
    """
    if not settings.observational_memory:
        return None
    timeout = settings.observer_timeout
    # The run's own model has the window that the agent or a setting gives it.
    choice = _Choice(settings, model, replace(info, window=room.window))
    observing = await choice.named(settings.observer_model, "observer", "observe")
    reflecting = await choice.named(settings.reflector_model, "reflector", "condense observations")
    tokens = settings.observer_message_tokens, settings.reflector_observation_tokens
    thresholds = MemoryThresholds(*tokens, room.last_messages, required=settings.constraint_share)
    thresholds = thresholds.within(room.limit)
    if settings.activation == "price":
        thresholds = replace(thresholds, prices=_prices(choice, observing))
    return MemorySetup(
        thresholds,
        observing and ModelObserver(*observing, timeout, thread=thread_id),
        reflecting and ModelReflector(*reflecting, timeout, thread=thread_id),
        tuple(dict.fromkeys(choice.warnings)),
    )


def _prices(choice: _Choice, observing: tuple[Model, ModelInfo] | None) -> ActivationPrices | None:
    infos = [choice.info, *([observing[1]] if observing else [])]
    unknown = [one.name for one in infos if one.price is None]
    if unknown or choice.info.price is None:
        choice.warnings.append(
            f"The price of {unknown[0]} is unknown, so observations are activated by threshold.",
        )
        return None
    return ActivationPrices(choice.info.price, observing[1].price if observing else None)
