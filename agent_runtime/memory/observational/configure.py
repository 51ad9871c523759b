"""From the settings to a run's observational memory: who observes, who condenses, and by when."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from agent_runtime.errors import AgentRuntimeError
from agent_runtime.memory.observational.activation_price import ActivationPrices
from agent_runtime.memory.observational.observer.base import Observer
from agent_runtime.memory.observational.reflector.base import Reflector
from agent_runtime.memory.observational.thresholds import MemoryThresholds
from agent_runtime.models.base import Model, ModelInfo
from agent_runtime.models.scripted import ScriptedModel
from agent_runtime_config import Settings
from agent_runtime_config.model_settings import Role


@dataclass(frozen=True, slots=True)
class MemorySetup:
    """What a run's observational memory works with.

    Attributes:
        observer: None for rules; so is `reflector`.
        warnings: what is not as the settings ask for, and why.
    """

    bands: MemoryThresholds
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
        """Return the model of a name; None for rules, also where it cannot be called."""
        # A script answers what it was written for, and nothing else.
        if name == "extractive" or (name == "same" and isinstance(self.model, ScriptedModel)):
            return None
        if name == "same":
            return self.model, self.info
        from agent_runtime.models import model_from_name

        try:
            other = model_from_name(name, self.settings, role=role)
            await other.check()
        except AgentRuntimeError as error:
            self.warnings.append(
                f"{error.message} Rules {job} instead. {error.cure}".strip(),
            )
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
    room: int,
    last_messages: int,
) -> MemorySetup | None:
    """Return the observational memory of a run; None where it is off.

    A model that cannot be called, for want of its key, is no error: rules take its place, and a
    warning says so.

    Args:
        room: the most tokens that a prompt may have.
        last_messages: N.
    """
    if not settings.observational_memory:
        return None
    choice = _Choice(settings, model, info)
    observing = await choice.named(settings.observer_model, "observer", "observe")
    reflecting = await choice.named(settings.reflector_model, "reflector", "condense observations")
    tokens = settings.observer_message_tokens, settings.reflector_observation_tokens
    bands = MemoryThresholds(*tokens, last_messages, required=settings.constraint_share).within(
        room
    )
    if settings.activation == "price":
        bands = replace(bands, prices=_prices(choice, observing))
    return MemorySetup(
        bands,
        _observer(observing, settings, thread_id),
        _reflector(reflecting, settings, thread_id),
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


def _observer(
    found: tuple[Model, ModelInfo] | None, settings: Settings, thread_id: str
) -> Observer | None:
    if found is None:
        return None
    from agent_runtime.memory.observational.observer.model import ModelObserver

    # Not the session of the run's own calls: these have a prefix of their own to be cached.
    return ModelObserver(*found, settings.observer_timeout, session=f"{thread_id}-observer")


def _reflector(
    found: tuple[Model, ModelInfo] | None, settings: Settings, thread_id: str
) -> Reflector | None:
    if found is None:
        return None
    from agent_runtime.memory.observational.reflector.model import ModelReflector

    return ModelReflector(*found, settings.observer_timeout, session=f"{thread_id}-reflector")
