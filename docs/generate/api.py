"""The pages of the API: each public name, with its docstring rendered by mkdocstrings."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType

import agent_runtime
import agent_runtime_config
import agent_runtime_storage

GROUPS: Mapping[str, Sequence[str]] = {
    "agents": ("Agent", "Delegation", "Assignment", "Outcome", "delegate", "BackgroundTask"),
    "runtime": (
        "Runtime",
        "RunResult",
        "RunStream",
        "StartedRun",
        "Event",
        "AnyEvent",
        "TreeRun",
        "Health",
        "Sweep",
        "Threads",
        "ThreadMessage",
        "Question",
        "Decision",
        "InterruptedCall",
        "Rerun",
        "Accept",
        "Fail",
    ),
    "tools": (
        "tool",
        "Tool",
        "ToolContext",
        "ToolHook",
        "ToolResult",
        "Verdict",
        "Change",
        "ToolError",
        "web_tools",
        "workspace_tools",
        "McpPrompt",
        "McpServer",
        "mcp_prompts",
        "mcp_servers",
        "ContextSource",
        "ContextNote",
        "ContextRequest",
        "Environment",
        "ProjectInstructions",
        "Skill",
        "SkillFolder",
        "plan_tool",
        "Plan",
        "PlanItem",
        "Planner",
    ),
    "memory": (
        "MemoryConfig",
        "MemoryMode",
        "MemoryWindow",
        "ConversationMemory",
        "RolePrefix",
        "NodeMemory",
        "latest",
        "Observer",
        "ObserverInput",
        "ObserverResult",
        "ObserverFailed",
        "ObservationNotes",
        "ObservationLine",
        "Reflector",
        "Reflection",
        "ReflectorResult",
        "UserMessage",
        "File",
        "FilePolicy",
        "FileRef",
        "count_message_tokens",
        "count_messages_tokens",
        "get_context_window",
        "trim_messages",
    ),
    "models": (
        "Model",
        "ModelSettings",
        "LiteLLMModel",
        "NativeModel",
        "FallbackModel",
        "ScriptedModel",
        "model_from_name",
        "Embedder",
        "LiteLLMEmbedder",
        "ScriptedEmbedder",
    ),
    "workflows": ("App", "Workflow", "WorkflowContext", "NodeFailed"),
}
"""The names of `agent_runtime`, by the page that shows them."""
ERRORS = (
    "AgentRuntimeError",
    "BudgetExceeded",
    "ConfigError",
    "Conflict",
    "ModelError",
    "NoOutput",
    "NotFound",
    "QuestionsOpen",
    "StoreError",
    "ThreadBusy",
)
"""The errors that programs catch most often; the page of errors has all of them."""
CONTRACT = (
    "open_store",
    "Store",
    "UserStore",
    "ThreadStore",
    "LogStore",
    "RunStore",
    "InboxStore",
    "EventStore",
    "SpendingStore",
    "JobStore",
    "FileStore",
    "QuestionStore",
    "TextSearch",
    "VectorStore",
    "Upkeep",
    "Documents",
    "Maintenance",
    "ObjectStore",
)
"""The protocols of the store, in the order of its page: first the store, then its parts."""
ELSEWHERE = {*ERRORS, "Settings", "load_settings"}
"""Names that another page shows: that of errors, or that of the settings' package."""


def check_complete() -> None:
    """Compare the groups with what is public.

    Raises:
        ValueError: a public name is on no page, or a page has one that is not public.
    """
    shown = {name for names in GROUPS.values() for name in names} | ELSEWHERE
    if difference := shown ^ set(agent_runtime.__all__):
        raise ValueError(f"docs/generate/api.py and the public names differ: {sorted(difference)}")


def page(group: str) -> str:
    """Return what shows one group of the names of `agent_runtime`."""
    return _shown("agent_runtime", GROUPS[group])


def storage_page() -> str:
    """Return what shows the names of `agent_runtime_storage`: the contract, then the records."""
    names = [one for one in agent_runtime_storage.__all__ if not _is_error(one)]
    first = [one for one in CONTRACT if one in names]
    rest = [one for one in names if one not in first]
    module = "agent_runtime_storage"
    kinds = f"## Records\n\n{_shown(module, rest, 3)}"
    return f"## The contract\n\n{_shown(module, first, 3)}{kinds}"


def config_page() -> str:
    """Return what shows the names of `agent_runtime_config`."""
    names = [one for one in agent_runtime_config.__all__ if not one.endswith("Error")]
    return _shown("agent_runtime_config", names)


def models_page() -> str:
    """Return what shows models, and what programs test with where there is a package for it."""
    testing = _testing()
    names = _shown(testing.__name__, testing.__all__, 3) if testing else ""
    return page("models") + (f"## Testing\n\n{names}" if names else "")


def public_names() -> Iterable[tuple[ModuleType, str]]:
    """Return each public name with its package."""
    testing = _testing()
    packages = [agent_runtime, agent_runtime_storage, agent_runtime_config]
    for module in [*packages, *([testing] if testing else [])]:
        for name in module.__all__:
            yield module, name


def _testing() -> ModuleType | None:
    name = "agent_runtime.testing"
    return importlib.import_module(name) if importlib.util.find_spec(name) else None


def _is_error(name: str) -> bool:
    found = getattr(agent_runtime_storage, name)
    return inspect.isclass(found) and issubclass(found, Exception)


def _shown(module: str, names: Iterable[str], level: int = 2) -> str:
    return "".join(
        f"::: {module}.{name}\n    options:\n      heading_level: {level}\n\n" for name in names
    )
