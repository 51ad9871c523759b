"""What observes and condenses: what the settings name, or what a program gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from agent_runtime.errors import ConfigError
from agent_runtime.memory.observational.observer.base import Observer
from agent_runtime.memory.observational.reflector.base import Reflector
from agent_runtime.models.base import Model
from agent_runtime_config import Settings
from agent_runtime_config.environment import given_or_loaded
from agent_runtime_config.urls import is_not_a_model

ObserverChoice: TypeAlias = Model | Observer | str
"""A model's name as in the settings, a model, or an Observer of one's own."""
ReflectorChoice: TypeAlias = Model | Reflector | str
"""A model's name as in the settings, a model, or a Reflector of one's own."""


@dataclass(frozen=True, slots=True)
class MemoryModels:
    """An Observer and a Reflector of a program's own; None for what the settings name."""

    observer: Model | Observer | None = None
    reflector: Model | Reflector | None = None


def choose_memory(
    given: Settings | None, observer: ObserverChoice | None, reflector: ReflectorChoice | None
) -> tuple[Settings, MemoryModels]:
    """Return the settings with those that are names, and those that are not.

    Args:
        given: None for the settings of the environment.

    Raises:
        ConfigError: the settings are something else, or one of the others is neither a name nor a
            model nor an Observer or Reflector.
    """
    settings, names = given_or_loaded(given), dict[str, str]()
    if isinstance(observer, str):
        names["observer_model"], observer = _name("observer", observer), None
    elif observer is not None:
        _check("observer", observer, isinstance(observer, Observer))
    if isinstance(reflector, str):
        names["reflector_model"], reflector = _name("reflector", reflector), None
    elif reflector is not None:
        _check("reflector", reflector, isinstance(reflector, Reflector))
    settings = settings.model_copy(update=names) if names else settings
    return settings, MemoryModels(observer, reflector)


def _name(role: str, name: str) -> str:
    if not name.strip() or is_not_a_model(name):
        raise ConfigError(
            f"{role}= is no model's name.",
            cure="Give it a name such as 'openai/gpt-5-mini', 'same' or 'extractive'.",
        )
    return name.strip()


def _check(role: str, given: object, own: bool) -> None:
    model = all(callable(getattr(given, name, None)) for name in ("stream", "info"))
    if isinstance(given, type) or not (own or model):
        method = "observe" if role == "observer" else "reflect"
        raise ConfigError(
            f"{role}= takes a model's name, a model, or an object with the methods `{method}` and "
            f"`bound`, not {given if isinstance(given, type) else type(given)!r}.",
            cure=f"Give it one of these, or leave {role}= out for what the settings name.",
        )
