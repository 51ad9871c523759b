"""From an agent and the settings to what a run works with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agent_runtime_config import Settings
from agent_runtime_storage import UserStore

from . import output as outputs
from .agent import Agent
from .errors import ConfigError
from .memory.bands import Bands
from .memory.observer import Observer
from .memory.recent import Room
from .memory.reflector import Reflector
from .messages import encodable
from .models.base import Model, ModelInfo
from .models.scripted import ScriptedModel
from .tokens import Calibration, warm
from .tools.base import Tool, Toolset
from .view import Prefix

DEFAULT_RESERVE = 8192
"""Tokens kept free for the answer, where the window is not small."""


@dataclass(slots=True)
class Resolved:
    """What a run works with."""

    model: Model
    info: ModelInfo
    room: Room
    prefix: Prefix
    tools: Toolset
    calibration: Calibration
    max_steps: int
    max_output: int
    output: outputs.OutputType | None
    repeat_system: bool
    temperature: float | None
    bands: Bands | None = None
    """The thresholds of observational memory; None where it is off."""
    observer: Observer | None = None
    reflector: Reflector | None = None
    deps: Any = None
    limited: bool = False
    """Whether the run tree has a budget."""


async def resolve(
    agent: Agent, settings: Settings, default: Model | None, store: UserStore, *, child: bool
) -> Resolved:
    """Return what the agent's run works with; nothing is called yet.

    Raises:
        ConfigError: the model, a tool or a limit is not usable.
    """
    await warm()
    model = model_of(agent, settings, default)
    info = await model.info()
    window = agent.context_window or settings.context_window or info.window
    reserve = settings.response_reserve or min(DEFAULT_RESERVE, window // 4)
    if reserve >= window:
        raise ConfigError(
            f"The response reserve of {reserve:,} tokens fills the window of {window:,}.",
            cure="Set AGENT_RUNTIME_RESPONSE_RESERVE to less than AGENT_RUNTIME_CONTEXT_WINDOW.",
        )
    output = None if agent.output_type in (None, str) else outputs.output_type(agent.output_type)
    tools = toolset(agent, output)
    steps = settings.sub_agent_max_steps if child else settings.max_steps
    repeat = agent.repeat_system_prompt
    bands = None
    if settings.observational_memory:
        tokens = settings.observer_message_tokens, settings.reflector_observation_tokens
        bands = Bands(*tokens, settings.last_messages).within(window - reserve)
    calibration = Calibration(info.start_ratio)
    for usage in reversed(await store.recent_usage(model.name)):
        calibration.observe(usage.counted_tokens, usage.prompt_tokens)
        calibration.reset_anchor()
    return Resolved(
        model=model,
        info=info,
        room=Room(window, reserve, agent.last_messages or settings.last_messages),
        prefix=Prefix(encodable(agent.instructions.strip()), tools.specs),
        tools=tools,
        calibration=calibration,
        max_steps=agent.max_steps or steps,
        max_output=min(reserve, info.max_output),
        output=output,
        repeat_system=settings.repeat_system_prompt if repeat is None else repeat,
        temperature=agent.temperature,
        bands=bands,
        observer=await observer_of(settings, model, info) if bands else None,
        reflector=await reflector_of(settings, model, info) if bands else None,
    )


async def observer_of(settings: Settings, model: Model, info: ModelInfo) -> Observer | None:
    """Return the model that observes, by the settings; None for rules."""
    found = await _memory_model(settings, settings.observer_model, model, info)
    if found is None:
        return None
    from .memory.model_observer import ModelObserver

    return ModelObserver(*found, settings.observer_timeout)


async def reflector_of(settings: Settings, model: Model, info: ModelInfo) -> Reflector | None:
    """Return the model that condenses observations, by the settings; None for rules."""
    found = await _memory_model(settings, settings.reflector_model, model, info)
    if found is None:
        return None
    from .memory.model_reflector import ModelReflector

    return ModelReflector(*found, settings.observer_timeout)


async def _memory_model(
    settings: Settings, name: str, model: Model, info: ModelInfo
) -> tuple[Model, ModelInfo] | None:
    # A script answers what it was written for, and nothing else.
    if name == "extractive" or (name == "same" and isinstance(model, ScriptedModel)):
        return None
    if name == "same":
        return model, info
    from .models import model_from_name

    other = model_from_name(name, settings)
    return other, await other.info()


def model_of(agent: Agent, settings: Settings, default: Model | None) -> Model:
    """Return the agent's model: its own, the runtime's, the settings', or the offline one."""
    if agent.model is not None and not isinstance(agent.model, str):
        return agent.model
    if agent.model is None and default is not None:
        return default
    name = agent.model or settings.model
    if not name:
        from .offline import offline_model

        return offline_model()
    from .models import model_from_name

    return model_from_name(name, settings)


def toolset(agent: Agent, output: outputs.OutputType | None) -> Toolset:
    """Return the agent's tools, with `recall` beside any others, and the output's.

    Raises:
        ConfigError: a tool cannot be used, or has a name that is the runtime's own.
    """
    from .tools.recall import recall

    own = Toolset(agent.tools)
    for name in (recall.name, outputs.FINAL):
        if own.get(name) not in (None, recall):
            raise ConfigError(
                f"The name {name!r} is kept for a tool of the runtime's own.",
                cure="Give yours another one: `tool(function, name=...)`.",
            )
    tools: list[Tool] = list(own)
    if tools and recall not in tools:
        tools.append(recall)
    if output is not None:
        tools.append(outputs.FinalTool(output))
    return Toolset(tools)
