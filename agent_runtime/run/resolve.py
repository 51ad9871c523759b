"""Resolve an agent and the settings into the model, tools and limits that a run works with."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from agent_runtime.agent import Agent
from agent_runtime.delegation import artifact_tool as artifact
from agent_runtime.delegation import tool as delegate
from agent_runtime.delegation.tasks_tool import tasks, tasks_note
from agent_runtime.errors import ConfigError
from agent_runtime.files.references import EVERY_FILE, FilePolicy
from agent_runtime.human.approval_rules import check_rules
from agent_runtime.human.ask_user import ask_user
from agent_runtime.memory.observational.configure import MemorySetup, configure_memory
from agent_runtime.memory.observational.models import MemoryModels
from agent_runtime.memory.recall.tool import recall
from agent_runtime.messages import encodable
from agent_runtime.models import model_from_name
from agent_runtime.models.base import Model, ModelInfo, ModelSettings, default_reserve
from agent_runtime.models.catalog import known_output
from agent_runtime.models.cost import require_price
from agent_runtime.models.fallback.choice import ModelChoice
from agent_runtime.models.model_settings import is_main, place_for_model
from agent_runtime.models.pricing.dearest import dearest
from agent_runtime.models.tokens import Calibration, load_vocabulary
from agent_runtime.plan.planner import PLAN
from agent_runtime.plan.tool import PlanTool, plan_note, plan_tool
from agent_runtime.prompt.incomplete_answers import OutputLimit
from agent_runtime.prompt.view import PromptPrefix
from agent_runtime.prompt.window import PromptLimits
from agent_runtime.run.budget import in_money, limits_of
from agent_runtime.run.context.notes import ContextNotes, context_notes, load_skills
from agent_runtime.tools import output as outputs
from agent_runtime.tools.base import Tool
from agent_runtime.tools.context import StateFunction
from agent_runtime.tools.hooks import ToolHooks
from agent_runtime.tools.mcp.pool import McpConnections
from agent_runtime.tools.mcp.server import McpServer
from agent_runtime.tools.skills.open_skill import OpenSkill
from agent_runtime.tools.toolset import Toolset
from agent_runtime.tools.workspace.file_rules import FileRules
from agent_runtime.tools.workspace.shell_session import BASH, commands_note
from agent_runtime_config import Settings
from agent_runtime_config.approvals import approval_rules
from agent_runtime_config.request_settings import parse_model_settings
from agent_runtime_storage import UserStore
from agent_runtime_storage.contract.records.spending import NO_LIMITS, UNLIMITED, Budget, Limits

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunSetup:
    """What a run works with, from its first step to its last.

    Attributes:
        info: what holds for each of the models, if there are several.
        choice: which of them is in use.
        room: the model's window, and what of it prompts may fill; a refusal may narrow it later.
        max_output: tokens of an answer, where window and budget have room; set by `output_limit`.
        memory: what observational memory works with; None where it is off.
        state_notes: functions whose texts make up the state note.
        context: writes the notes about where the agent is.
        limited: whether its run tree has a budget, or its runs have limits, when it begins.
        unpriced: the name of a model that no limit in dollars allows, as its price is not known.
        max_result_tokens: for a tool that sets no limit of its own.
        idle: seconds after which the provider's cache counts as expired; None for never.
        timezone: of the times that prompts show.
    """

    model: Model
    info: ModelInfo
    room: PromptLimits
    prefix: PromptPrefix
    tools: Toolset
    choice: ModelChoice
    max_steps: int
    max_output: int
    output_limit: OutputLimit
    output: outputs.OutputType | None
    repeat_system: bool
    model_settings: ModelSettings
    memory: MemorySetup | None = None
    state_notes: Sequence[StateFunction] = ()
    context: ContextNotes = field(default_factory=ContextNotes)
    files: FilePolicy = EVERY_FILE
    deps: Any = None
    limits: Limits = NO_LIMITS
    limited: bool = False
    unpriced: str | None = None
    max_result_tokens: int = 8000
    idle: float | None = None
    timezone: str = "UTC"

    @property
    def calibration(self) -> Calibration:
        """The ratio of the tokens of the model in use to ours."""
        return self.choice.calibration


async def resolve_run(
    agent: Agent[Any],
    settings: Settings,
    default: Model | None,
    offline: Callable[[], Model],
    store: UserStore,
    *,
    thread_id: str,
    child: bool,
    budget: Budget = UNLIMITED,
    deps: Any = None,
    remembers: bool = True,
    memory_models: MemoryModels | None = None,
) -> RunSetup:
    """Return what the agent's run works with; no model is called.

    Args:
        default: the model of agents that name none; `offline` makes the one used without it.
        remembers: False turns observational memory off, whatever the settings say.
        memory_models: an Observer and a Reflector of the program's own.

    Raises:
        ConfigError: the model, a tool or a limit is not usable.
    """
    # Before anything counts tokens, which would load it on the event loop.
    await load_vocabulary()
    model = model_of(agent, settings, default, offline, child=child)
    choice = await ModelChoice.of(model, partial(_calibration, store))
    info = await _info(model, choice, settings)
    room = _room(agent, settings, default, choice)
    max_output, output_limit = _output_limit(agent, settings, default, choice, child=child)
    tools, output = await _tools(agent, settings)
    limits, memory, top = limits_of(settings), None, _prefix(agent, tools)
    if remembers:
        memory = await configure_memory(settings, model, info, room, memory_models, top, thread_id)
    return RunSetup(
        model=model,
        info=info,
        room=room,
        prefix=top,
        tools=tools,
        choice=choice,
        max_steps=_max_steps(agent, settings, child=child),
        max_output=max_output,
        output_limit=output_limit,
        output=output,
        repeat_system=_repeats_system(agent, settings),
        model_settings=agent.request_settings(parse_model_settings(settings.model_settings)),
        memory=memory,
        state_notes=(*_own_notes(tools), *agent.state),
        context=context_notes(agent.context, tools, settings, room.limit),
        files=agent.files or EVERY_FILE,
        deps=deps,
        limits=limits,
        limited=budget != UNLIMITED or limits != NO_LIMITS,
        unpriced=_unpriced(choice, settings),
        max_result_tokens=settings.max_result_tokens,
        idle=settings.activate_after_idle or None,
        timezone=settings.timezone,
    )


def _prefix(agent: Agent[Any], tools: Toolset) -> PromptPrefix:
    return PromptPrefix(encodable(agent.instructions.strip()), tools.specs)


async def with_servers(agent: Agent[Any], connections: McpConnections, user_id: str) -> Agent[Any]:
    """Return an agent with the tools of its MCP servers in their place; starts the servers.

    Raises:
        ConfigError: two servers have the same name, or the SDK is not installed.
        McpServerFailed: a server cannot be used.
    """
    if not any(isinstance(one, McpServer) for one in agent.tools):
        return agent
    return replace(agent, tools=await connections.tools_of(agent.tools, user_id))


async def _tools(
    agent: Agent[Any], settings: Settings
) -> tuple[Toolset, outputs.OutputType | None]:
    """Return the agent's tools, and the type of its output if that is not text."""
    output = None if agent.output_type in (None, str) else outputs.output_type(agent.output_type)
    whole = await agent_of_run(agent, settings)
    return toolset(whole, output, levels=settings.delegation_depth), output


async def agent_of_run(agent: Agent[Any], settings: Settings) -> Agent[Any]:
    """Return an agent with the tools that the settings and its skills give it."""
    return await _with_skills(_as_sub_agent(_with_plan_tool(agent, settings), settings))


def _max_steps(agent: Agent[Any], settings: Settings, *, child: bool) -> int:
    default = settings.sub_agent_max_steps if child else settings.max_steps
    return agent.max_steps or default


def _repeats_system(agent: Agent[Any], settings: Settings) -> bool:
    own = agent.repeat_system_prompt
    return settings.repeat_system_prompt if own is None else own


def _room(
    agent: Agent[Any], settings: Settings, default: Model | None, choice: ModelChoice
) -> PromptLimits:
    window = agent.context_window or _window(agent, settings, default, choice)
    reserve = settings.response_reserve or default_reserve(window)
    if reserve >= window:
        raise ConfigError(
            f"The response reserve of {reserve:,} tokens fills the window of {window:,}.",
            cure="Set AGENT_RUNTIME_RESPONSE_RESERVE to less than AGENT_RUNTIME_CONTEXT_WINDOW.",
        )
    return PromptLimits(window, reserve, agent.last_messages or settings.last_messages)


async def _info(model: Model, choice: ModelChoice, settings: Settings) -> ModelInfo:
    """Return what holds for each of the agent's models."""
    info = await model.info()
    if info.price is None and settings.unknown_price == "tokens":
        # The models whose prices are known keep to the budget in dollars all the same.
        return replace(info, price=dearest([one.price for one in choice.infos if one.price]))
    return info


async def _calibration(store: UserStore, model: Model, info: ModelInfo) -> Calibration:
    """Return the ratio of the model's tokens to ours, learned from its recent calls."""
    calibration = Calibration(info.start_ratio)
    for usage in reversed(await store.spending.recent_usage(model.name)):
        calibration.observe(usage.counted_tokens, usage.prompt_tokens)
        # These prompts are of any of the owner's threads: none extends another.
        calibration.reset_anchor()
    return calibration


def _unpriced(choice: ModelChoice, settings: Settings) -> str | None:
    if settings.unknown_price == "tokens":
        return None
    return next((one.name for one in choice.infos if one.price is None), None)


def _output_limit(
    agent: Agent[Any],
    settings: Settings,
    default: Model | None,
    choice: ModelChoice,
    *,
    child: bool,
) -> tuple[int, OutputLimit]:
    """Return the most tokens of an answer, and what sets that limit.

    Of several models, the settings are for the first; the others may lower the limit.
    """
    limit: OutputLimit = "setting"
    info, *others = choice.infos
    lowest = min((one.max_output for one in others), default=info.max_output)
    name = _name(agent, settings, default).partition(",")[0].strip()
    if not name:
        most = settings.max_output_tokens if is_main(info.name, settings) else None
        own = info.max_output
    else:
        # A model made from a name has the settings' limit in its info: compare with the catalog's.
        place = place_for_model(name, settings, "sub_agent" if child else "model")
        most, own = place.max_output, known_output(info.name)
        if most != settings.max_output_tokens:
            limit = "sub_agent_setting"
    if most is None or (own is not None and own <= most):
        return min(info.max_output, lowest), "model"
    return (lowest, "model") if lowest < most and others else (most, limit)


def _with_plan_tool(agent: Agent[Any], settings: Settings) -> Agent[Any]:
    if agent.planning is False:
        return agent
    phases = settings.plan_phases.split(",") if agent.planning is True else agent.planning
    return replace(agent, tools=(*agent.tools, plan_tool(phases=phases)))


async def _with_skills(agent: Agent[Any]) -> Agent[Any]:
    skills = await load_skills(agent.skills)
    if not skills:
        return agent
    return replace(agent, tools=(*agent.tools, OpenSkill(skills, FileRules.of(agent.tools))))


def _as_sub_agent(agent: Agent[Any], settings: Settings) -> Agent[Any]:
    """Return the agent that its sub-agents copy: with the setting's model for them, if any."""
    name = settings.sub_agent_model
    return agent if name in ("", "same") else replace(agent, model=name)


def _window(
    agent: Agent[Any], settings: Settings, default: Model | None, choice: ModelChoice
) -> int:
    """Return the window of the agent's models; the setting holds for the main model only."""
    info, *others = choice.infos
    return min([_own_window(agent, settings, default, info), *(one.window for one in others)])


def _own_window(
    agent: Agent[Any], settings: Settings, default: Model | None, info: ModelInfo
) -> int:
    if isinstance(agent.model, str) or (agent.model is None and default is None):
        # A model made from a name has the settings' window in its info.
        named = bool(agent.model or settings.model)
        return info.window if named else settings.context_window or info.window
    own = settings.context_window if is_main(info.name, settings) else None
    return own or info.window


def _own_notes(tools: Toolset) -> tuple[StateFunction, ...]:
    """Return the state functions of the runtime's own tools."""
    notes = (plan_note,) if isinstance(tools.get(PLAN), PlanTool) else ()
    notes = (*notes, commands_note) if tools.get(BASH) else notes
    return (*notes, tasks_note) if tools.get(tasks.name) is tasks else notes


def model_of(
    agent: Agent[Any],
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
    return model_from_name(name, settings, role="sub_agent" if child else "model")


def _name(agent: Agent[Any], settings: Settings, default: Model | None) -> str:
    """Return the name of the agent's model in the settings; empty for a `Model` made in code."""
    if agent.model is None:
        return settings.model if default is None else ""
    return agent.model or settings.model if isinstance(agent.model, str) else ""


def toolset(agent: Agent[Any], output: outputs.OutputType | None, *, levels: int = 0) -> Toolset:
    """Return the agent's tools, then the runtime's own tools that it has, then the output's.

    Args:
        levels: the most levels of sub-agents below this agent.

    Raises:
        ConfigError: a tool cannot be used, or has the name of one of the runtime's own.
    """
    own = Toolset(agent.tools)
    delegating = bool(agent.delegation) and levels > 0
    reserved = (delegate.NAME, artifact.NAME, tasks.name) if delegating else ()
    for name in (recall.name, ask_user.name, outputs.FINAL, *reserved):
        if own.get(name) not in (None, recall, ask_user):
            raise ConfigError(
                f"The tool name {name!r} is reserved for the runtime.",
                cure="Give yours another name: `tool(function, name=...)`.",
            )
    tools: list[Tool] = list(own)
    if agent.asking and ask_user not in tools:
        tools.append(ask_user)
    if delegating:
        tools += [delegate.delegate_tool(agent, own, levels=levels), artifact.open_artifact_tool()]
        tools.append(tasks)
    if tools and recall not in tools:
        tools.append(recall)
    if output is not None:
        tools.append(outputs.FinalTool(output))
    return Toolset(tools, ToolHooks(tuple(agent.hooks)))


def check_setup(
    setup: RunSetup, settings: Settings, budget: Budget, *, rules: bool, nodes: bool = False
) -> None:
    """Log what is doubtful about a run.

    Args:
        rules: whether to check the rules of approval, too.
        nodes: whether the run is a workflow's.

    Raises:
        ConfigError: a rule names no tool, or dollars are limited and a model has no price.
    """
    if rules:
        for warning in check_rules(approval_rules(settings.approve), setup.tools, nodes=nodes):
            _log.warning("%s", warning)
    for warning in setup.memory.warnings if setup.memory else ():
        _log.warning("Observational memory: %s", warning)
    for info in setup.choice.infos:
        require_price(info, in_money(budget, setup.limits), settings)
