"""From an agent and the settings to what a run works with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent_runtime.agent import Agent
from agent_runtime.errors import ConfigError
from agent_runtime.files.references import EVERY_FILE, FilePolicy
from agent_runtime.memory.observational.configure import MemorySetup, configure_memory
from agent_runtime.messages import encodable
from agent_runtime.models.base import Model, ModelInfo, default_reserve
from agent_runtime.models.tokens import Calibration, load_vocabulary
from agent_runtime.plan.planner import PLAN
from agent_runtime.prompt.incomplete_answers import OutputLimit
from agent_runtime.prompt.view import PromptPrefix
from agent_runtime.prompt.window import PromptLimits
from agent_runtime.tools import output as outputs
from agent_runtime.tools.base import StateFunction, Tool, Toolset
from agent_runtime_config import Settings
from agent_runtime_storage import UserStore
from agent_runtime_storage.contract.spending_records import NO_LIMITS, Limits


@dataclass(slots=True)
class RunSetup:
    """What a run works with."""

    model: Model
    info: ModelInfo
    room: PromptLimits
    prefix: PromptPrefix
    tools: Toolset
    calibration: Calibration
    max_steps: int
    max_output: int
    output_limit: OutputLimit
    """What sets `max_output`."""
    output: outputs.OutputType | None
    repeat_system: bool
    temperature: float | None
    remembering: MemorySetup | None = None
    """What observational memory works with; None where it is off."""
    restating: Sequence[StateFunction] = ()
    files: FilePolicy = EVERY_FILE
    deps: Any = None
    limited: bool = False
    """Whether its run tree has a budget, or its runs have limits."""
    limits: Limits = NO_LIMITS


async def resolve_run(
    agent: Agent,
    settings: Settings,
    default: Model | None,
    offline: Callable[[], Model],
    store: UserStore,
    *,
    thread_id: str,
    child: bool,
) -> RunSetup:
    """Return what the agent's run works with; nothing is called yet.

    Raises:
        ConfigError: the model, a tool or a limit is not usable.
    """
    await load_vocabulary()
    agent = _planning(agent, settings)
    model = model_of(agent, settings, default, offline, child=child)
    info = await model.info()
    window = agent.context_window or _window(agent, settings, default, info)
    reserve = settings.response_reserve or default_reserve(window)
    if reserve >= window:
        raise ConfigError(
            f"The response reserve of {reserve:,} tokens fills the window of {window:,}.",
            cure="Set AGENT_RUNTIME_RESPONSE_RESERVE to less than AGENT_RUNTIME_CONTEXT_WINDOW.",
        )
    most, limit = _output_limit(agent, settings, default, info, child=child)
    output = None if agent.output_type in (None, str) else outputs.output_type(agent.output_type)
    tools = toolset(_delegating(agent, settings), output, levels=settings.delegation_depth)
    steps = settings.sub_agent_max_steps if child else settings.max_steps
    repeat = agent.repeat_system_prompt
    room = PromptLimits(window, reserve, agent.last_messages or settings.last_messages)
    calibration = Calibration(info.start_ratio)
    for usage in reversed(await store.recent_usage(model.name)):
        calibration.observe(usage.counted_tokens, usage.prompt_tokens)
        calibration.reset_anchor()
    return RunSetup(
        model=model,
        info=info,
        room=room,
        prefix=PromptPrefix(encodable(agent.instructions.strip()), tools.specs),
        tools=tools,
        calibration=calibration,
        max_steps=agent.max_steps or steps,
        max_output=most,
        output_limit=limit,
        output=output,
        repeat_system=settings.repeat_system_prompt if repeat is None else repeat,
        temperature=agent.temperature,
        restating=(*_own_notes(tools), *agent.state),
        files=agent.files or EVERY_FILE,
        remembering=await configure_memory(
            settings,
            model,
            info,
            thread_id=thread_id,
            room=room.limit,
            last_messages=room.last_messages,
        ),
    )


def _output_limit(
    agent: Agent, settings: Settings, default: Model | None, info: ModelInfo, *, child: bool
) -> tuple[int, OutputLimit]:
    """Return how many tokens an answer may have, and what sets that."""
    from agent_runtime.models.catalog import known_output
    from agent_runtime.models.model_settings import is_main, place_for_model

    limit: OutputLimit = "setting"
    name = _name(agent, settings, default)
    if not name:
        most = settings.max_output_tokens if is_main(info.name, settings) else None
        own = info.max_output
    else:
        # Its limit is the settings' already.
        place = place_for_model(name, settings, "sub_agent" if child else "model")
        most, own = place.max_output, known_output(info.name)
        if most != settings.max_output_tokens:
            limit = "sub_agent_setting"
    if most is None or (own is not None and own <= most):
        return info.max_output, "model"
    return most, limit


def _planning(agent: Agent, settings: Settings) -> Agent:
    """Return the agent with the tool `plan` where it keeps plans."""
    if agent.planning is False:
        return agent
    from agent_runtime.plan.tool import plan_tool

    phases = settings.plan_phases.split(",") if agent.planning is True else agent.planning
    return replace(agent, tools=(*agent.tools, plan_tool(phases=phases)))


def _delegating(agent: Agent, settings: Settings) -> Agent:
    """Return the agent as its sub-agents take after it: with their model, where one is set."""
    name = settings.sub_agent_model
    return agent if name in ("", "same") else replace(agent, model=name)


def _window(agent: Agent, settings: Settings, default: Model | None, info: ModelInfo) -> int:
    """Return the window of the agent's model: the settings', where they are for that model."""
    if isinstance(agent.model, str) or (agent.model is None and default is None):
        # A model of a name has its settings already.
        named = bool(agent.model or settings.model)
        return info.window if named else settings.context_window or info.window
    from agent_runtime.models.model_settings import is_main

    own = settings.context_window if is_main(info.name, settings) else None
    return own or info.window


def _own_notes(tools: Toolset) -> tuple[StateFunction, ...]:
    """Return what the runtime's own tools have to say in the state note."""
    from agent_runtime.delegation.tasks_tool import tasks, tasks_note
    from agent_runtime.plan.tool import PlanTool, plan_note

    notes = (plan_note,) if isinstance(tools.get(PLAN), PlanTool) else ()
    return (*notes, tasks_note) if tools.get(tasks.name) is tasks else notes


def model_of(
    agent: Agent,
    settings: Settings,
    default: Model | None,
    offline: Callable[[], Model],
    *,
    child: bool = False,
) -> Model:
    """Return the agent's model: its own, the runtime's, the settings', or the offline one."""
    if agent.model is not None and not isinstance(agent.model, str):
        return agent.model
    if agent.model is None and default is not None:
        return default
    name = _name(agent, settings, default)
    if not name:
        return offline()
    from agent_runtime.models import model_from_name

    return model_from_name(name, settings, role="sub_agent" if child else "model")


def _name(agent: Agent, settings: Settings, default: Model | None) -> str:
    """Return the name by which the settings know the agent's model; empty if it is made in code."""
    if agent.model is None:
        return settings.model if default is None else ""
    return agent.model or settings.model if isinstance(agent.model, str) else ""


def toolset(agent: Agent, output: outputs.OutputType | None, *, levels: int = 0) -> Toolset:
    """Return the agent's tools, with those of the runtime's own that it has, and the output's.

    Args:
        levels: how many sub-agents may be above each other.

    Raises:
        ConfigError: a tool cannot be used, or has a name that is the runtime's own.
    """
    from agent_runtime.delegation import artifact_tool as artifact
    from agent_runtime.delegation import tasks_tool as tasks
    from agent_runtime.delegation import tool as delegate
    from agent_runtime.human.ask_user import ask_user
    from agent_runtime.memory.recall.tool import recall

    own = Toolset(agent.tools)
    delegating = bool(agent.delegation) and levels > 0
    kept = (delegate.NAME, artifact.NAME, tasks.tasks.name) if delegating else ()
    for name in (recall.name, outputs.FINAL, *kept):
        if own.get(name) not in (None, recall):
            raise ConfigError(
                f"The name {name!r} is kept for a tool of the runtime's own.",
                cure="Give yours another one: `tool(function, name=...)`.",
            )
    tools: list[Tool] = list(own)
    if agent.asking and ask_user not in tools:
        tools.append(ask_user)
    if delegating:
        tools += [delegate.delegate_tool(agent, own, levels=levels), artifact.open_artifact_tool()]
        tools.append(tasks.tasks)
    if tools and recall not in tools:
        tools.append(recall)
    if output is not None:
        tools.append(outputs.FinalTool(output))
    return Toolset(tools)
