"""A runtime for long autonomous agents.

    from agent_runtime import Agent, Runtime, tool

Everything public is importable from here. Nothing heavy is imported until it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_runtime.agent import (
        Agent,
        Delegation,
        MemoryConfig,
        MemoryMode,
        MemoryWindow,
        RolePrefix,
    )
    from agent_runtime.delegation.assignment import Assignment
    from agent_runtime.delegation.background import BackgroundTask
    from agent_runtime.delegation.delegate import delegate
    from agent_runtime.delegation.outcome import Outcome
    from agent_runtime.errors import (
        AgentRuntimeError,
        BudgetExceeded,
        ConfigError,
        Conflict,
        ModelError,
        NodeFailed,
        NoOutput,
        NotFound,
        QuestionsOpen,
        StoreError,
        ThreadBusy,
        ToolError,
    )
    from agent_runtime.events import AnyEvent, Event
    from agent_runtime.files.attach import File
    from agent_runtime.files.references import FilePolicy
    from agent_runtime.human.interruptions import Accept, Fail, InterruptedCall, Rerun
    from agent_runtime.human.questions import Decision, Question
    from agent_runtime.memory.conversation.history import ConversationMemory
    from agent_runtime.memory.node.memory import NodeMemory, latest
    from agent_runtime.memory.observational.observer.base import (
        Observer,
        ObserverFailed,
        ObserverInput,
        ObserverResult,
    )
    from agent_runtime.memory.observational.reflector.base import (
        Reflection,
        Reflector,
        ReflectorResult,
    )
    from agent_runtime.messages import (
        Change,
        FileRef,
        Plan,
        PlanItem,
        ToolResult,
        UserMessage,
        Verdict,
    )
    from agent_runtime.models import model_from_name
    from agent_runtime.models.base import Model, ModelSettings
    from agent_runtime.models.fallback.model import FallbackModel
    from agent_runtime.models.litellm import LiteLLMModel
    from agent_runtime.models.native import NativeModel
    from agent_runtime.models.retrieval.embedding import Embedder, LiteLLMEmbedder, ScriptedEmbedder
    from agent_runtime.models.scripted import ScriptedModel
    from agent_runtime.plan.planner import Planner
    from agent_runtime.plan.tool import plan_tool
    from agent_runtime.prompt.observation import ObservationLine, ObservationNotes
    from agent_runtime.prompt.trim import (
        count_message_tokens,
        count_messages_tokens,
        get_context_window,
        trim_messages,
    )
    from agent_runtime.run.process.detached import StartedRun
    from agent_runtime.run.process.health import Health
    from agent_runtime.run.results import RunResult, RunStream
    from agent_runtime.run.sweep import Sweep
    from agent_runtime.run.threads.access import ThreadMessage, Threads
    from agent_runtime.run.tree import TreeRun
    from agent_runtime.runtime import Runtime
    from agent_runtime.tools.base import Tool
    from agent_runtime.tools.context import ToolContext
    from agent_runtime.tools.context_sources.base import (
        ContextNote,
        ContextRequest,
        ContextSource,
    )
    from agent_runtime.tools.context_sources.environment import Environment
    from agent_runtime.tools.context_sources.instructions import ProjectInstructions
    from agent_runtime.tools.function import tool
    from agent_runtime.tools.hooks import ToolHook
    from agent_runtime.tools.mcp.config import mcp_servers
    from agent_runtime.tools.mcp.prompts import McpPrompt, mcp_prompts
    from agent_runtime.tools.mcp.server import McpServer
    from agent_runtime.tools.skills.find import SkillFolder
    from agent_runtime.tools.skills.skill import Skill
    from agent_runtime.tools.web.fetch import web_tools
    from agent_runtime.tools.workspace.files import workspace_tools
    from agent_runtime.workflow.definition import Workflow, WorkflowContext
    from agent_runtime.workflow.registry import App
    from agent_runtime_config import Settings, load_settings

__all__ = [
    "Accept",
    "Agent",
    "AgentRuntimeError",
    "AnyEvent",
    "App",
    "Assignment",
    "BackgroundTask",
    "BudgetExceeded",
    "Change",
    "ConfigError",
    "Conflict",
    "ContextNote",
    "ContextRequest",
    "ContextSource",
    "ConversationMemory",
    "Decision",
    "Delegation",
    "Embedder",
    "Environment",
    "Event",
    "Fail",
    "FallbackModel",
    "File",
    "FilePolicy",
    "FileRef",
    "Health",
    "InterruptedCall",
    "LiteLLMEmbedder",
    "LiteLLMModel",
    "McpPrompt",
    "McpServer",
    "MemoryConfig",
    "MemoryMode",
    "MemoryWindow",
    "Model",
    "ModelError",
    "ModelSettings",
    "NativeModel",
    "NoOutput",
    "NodeFailed",
    "NodeMemory",
    "NotFound",
    "ObservationLine",
    "ObservationNotes",
    "Observer",
    "ObserverFailed",
    "ObserverInput",
    "ObserverResult",
    "Outcome",
    "Plan",
    "PlanItem",
    "Planner",
    "ProjectInstructions",
    "Question",
    "QuestionsOpen",
    "Reflection",
    "Reflector",
    "ReflectorResult",
    "Rerun",
    "RolePrefix",
    "RunResult",
    "RunStream",
    "Runtime",
    "ScriptedEmbedder",
    "ScriptedModel",
    "Settings",
    "Skill",
    "SkillFolder",
    "StartedRun",
    "StoreError",
    "Sweep",
    "ThreadBusy",
    "ThreadMessage",
    "Threads",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolHook",
    "ToolResult",
    "TreeRun",
    "UserMessage",
    "Verdict",
    "Workflow",
    "WorkflowContext",
    "count_message_tokens",
    "count_messages_tokens",
    "delegate",
    "get_context_window",
    "latest",
    "load_settings",
    "mcp_prompts",
    "mcp_servers",
    "model_from_name",
    "plan_tool",
    "tool",
    "trim_messages",
    "web_tools",
    "workspace_tools",
]

_HOMES = {
    "Accept": ".human.interruptions",
    "Agent": ".agent",
    "AgentRuntimeError": ".errors",
    "AnyEvent": ".events",
    "App": ".workflow.registry",
    "Assignment": ".delegation.assignment",
    "BackgroundTask": ".delegation.background",
    "BudgetExceeded": ".errors",
    "Change": ".messages",
    "ConfigError": ".errors",
    "Conflict": ".errors",
    "ContextNote": ".tools.context_sources.base",
    "ContextRequest": ".tools.context_sources.base",
    "ContextSource": ".tools.context_sources.base",
    "ConversationMemory": ".memory.conversation.history",
    "Decision": ".human.questions",
    "Delegation": ".agent",
    "Embedder": ".models.retrieval.embedding",
    "Environment": ".tools.context_sources.environment",
    "Event": ".events",
    "Fail": ".human.interruptions",
    "FallbackModel": ".models.fallback.model",
    "File": ".files.attach",
    "FilePolicy": ".files.references",
    "FileRef": ".messages",
    "Health": ".run.process.health",
    "InterruptedCall": ".human.interruptions",
    "LiteLLMEmbedder": ".models.retrieval.embedding",
    "LiteLLMModel": ".models.litellm",
    "McpPrompt": ".tools.mcp.prompts",
    "McpServer": ".tools.mcp.server",
    "MemoryConfig": ".agent",
    "MemoryMode": ".agent",
    "MemoryWindow": ".agent",
    "Model": ".models.base",
    "ModelError": ".errors",
    "ModelSettings": ".models.base",
    "NativeModel": ".models.native",
    "NodeFailed": ".errors",
    "NodeMemory": ".memory.node.memory",
    "NoOutput": ".errors",
    "NotFound": ".errors",
    "ObservationLine": ".prompt.observation",
    "ObservationNotes": ".prompt.observation",
    "Observer": ".memory.observational.observer.base",
    "ObserverFailed": ".memory.observational.observer.base",
    "ObserverInput": ".memory.observational.observer.base",
    "ObserverResult": ".memory.observational.observer.base",
    "Outcome": ".delegation.outcome",
    "Plan": ".messages",
    "PlanItem": ".messages",
    "Planner": ".plan.planner",
    "ProjectInstructions": ".tools.context_sources.instructions",
    "Question": ".human.questions",
    "QuestionsOpen": ".errors",
    "Reflection": ".memory.observational.reflector.base",
    "Reflector": ".memory.observational.reflector.base",
    "ReflectorResult": ".memory.observational.reflector.base",
    "Rerun": ".human.interruptions",
    "RolePrefix": ".agent",
    "RunResult": ".run.results",
    "RunStream": ".run.results",
    "Runtime": ".runtime",
    "ScriptedEmbedder": ".models.retrieval.embedding",
    "ScriptedModel": ".models.scripted",
    "Settings": "agent_runtime_config",
    "Skill": ".tools.skills.skill",
    "SkillFolder": ".tools.skills.find",
    "StartedRun": ".run.process.detached",
    "StoreError": ".errors",
    "Sweep": ".run.sweep",
    "ThreadBusy": ".errors",
    "ThreadMessage": ".run.threads.access",
    "Threads": ".run.threads.access",
    "Tool": ".tools.base",
    "ToolContext": ".tools.context",
    "ToolError": ".errors",
    "ToolHook": ".tools.hooks",
    "ToolResult": ".messages",
    "TreeRun": ".run.tree",
    "UserMessage": ".messages",
    "Verdict": ".messages",
    "Workflow": ".workflow.definition",
    "WorkflowContext": ".workflow.definition",
    "count_message_tokens": ".prompt.trim",
    "count_messages_tokens": ".prompt.trim",
    "delegate": ".delegation.delegate",
    "get_context_window": ".prompt.trim",
    "latest": ".memory.node.memory",
    "load_settings": "agent_runtime_config",
    "mcp_prompts": ".tools.mcp.prompts",
    "mcp_servers": ".tools.mcp.config",
    "model_from_name": ".models",
    "plan_tool": ".plan.tool",
    "tool": ".tools.function",
    "trim_messages": ".prompt.trim",
    "web_tools": ".tools.web.fetch",
    "workspace_tools": ".tools.workspace.files",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
