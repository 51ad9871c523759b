"""A runtime for long autonomous agents.

    from agent_runtime import Agent, Runtime, tool

Everything public is importable from here. Nothing heavy is imported until it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_runtime_config import Settings, load_settings

    from .agent import Agent
    from .attaching import File
    from .counting import (
        count_message_tokens,
        count_messages_tokens,
        get_context_window,
        trim_messages,
    )
    from .delegation.assignment import Assignment
    from .delegation.background import BackgroundTask
    from .delegation.delegating import delegate
    from .delegation.outcome import Outcome
    from .delegation.policy import Delegation
    from .errors import AgentRuntimeError, NodeFailed, ToolError
    from .events import Event
    from .files import FilePolicy
    from .memory.conversation import ConversationMemory
    from .memory.mode import MemoryConfig, MemoryMode
    from .memory.node import NodeMemory
    from .messages import FileRef, ToolResult, UserMessage
    from .models import model_from_name
    from .models.base import Model
    from .models.embedding import Embedder, LiteLLMEmbedder, ScriptedEmbedder
    from .models.litellm import LiteLLMModel
    from .models.scripted import ScriptedModel
    from .people.questions import Decision, Question
    from .plan import Plan, PlanItem
    from .results import RunResult, RunStream
    from .run_tree import TreeRun
    from .runtime import Runtime
    from .sweep import Sweep
    from .tools.base import Tool, ToolContext, tool
    from .tools.plan import plan_tool
    from .tools.workspace import workspace_tools
    from .workflow.context import WorkflowContext
    from .workflow.definition import Workflow

__all__ = [
    "Agent",
    "AgentRuntimeError",
    "Assignment",
    "BackgroundTask",
    "ConversationMemory",
    "Decision",
    "Delegation",
    "Embedder",
    "Event",
    "File",
    "FilePolicy",
    "FileRef",
    "LiteLLMEmbedder",
    "LiteLLMModel",
    "MemoryConfig",
    "MemoryMode",
    "Model",
    "NodeFailed",
    "NodeMemory",
    "Outcome",
    "Plan",
    "PlanItem",
    "Question",
    "RunResult",
    "RunStream",
    "Runtime",
    "ScriptedEmbedder",
    "ScriptedModel",
    "Settings",
    "Sweep",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolResult",
    "TreeRun",
    "UserMessage",
    "Workflow",
    "WorkflowContext",
    "count_message_tokens",
    "count_messages_tokens",
    "delegate",
    "get_context_window",
    "load_settings",
    "model_from_name",
    "plan_tool",
    "tool",
    "trim_messages",
    "workspace_tools",
]

_HOMES = {
    "Agent": ".agent",
    "AgentRuntimeError": ".errors",
    "Assignment": ".delegation.assignment",
    "BackgroundTask": ".delegation.background",
    "ConversationMemory": ".memory.conversation",
    "Decision": ".people.questions",
    "Delegation": ".delegation.policy",
    "Embedder": ".models.embedding",
    "Event": ".events",
    "File": ".attaching",
    "FilePolicy": ".files",
    "FileRef": ".messages",
    "LiteLLMEmbedder": ".models.embedding",
    "LiteLLMModel": ".models.litellm",
    "MemoryConfig": ".memory.mode",
    "MemoryMode": ".memory.mode",
    "Model": ".models.base",
    "NodeFailed": ".errors",
    "NodeMemory": ".memory.node",
    "Outcome": ".delegation.outcome",
    "Plan": ".plan",
    "PlanItem": ".plan",
    "Question": ".people.questions",
    "RunResult": ".results",
    "RunStream": ".results",
    "Runtime": ".runtime",
    "ScriptedEmbedder": ".models.embedding",
    "ScriptedModel": ".models.scripted",
    "Settings": "agent_runtime_config",
    "Sweep": ".sweep",
    "Tool": ".tools.base",
    "ToolContext": ".tools.base",
    "ToolError": ".errors",
    "ToolResult": ".messages",
    "TreeRun": ".run_tree",
    "UserMessage": ".messages",
    "Workflow": ".workflow.definition",
    "WorkflowContext": ".workflow.context",
    "count_message_tokens": ".counting",
    "count_messages_tokens": ".counting",
    "delegate": ".delegation.delegating",
    "get_context_window": ".counting",
    "load_settings": "agent_runtime_config",
    "model_from_name": ".models",
    "plan_tool": ".tools.plan",
    "tool": ".tools.base",
    "trim_messages": ".counting",
    "workspace_tools": ".tools.workspace",
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
