"""The public names of `agent_runtime`, the cost of importing them, and the tree of errors."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import agent_runtime
from agent_runtime import errors

PUBLIC = {
    "Accept",
    "Agent",
    "AgentRuntimeError",
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
    "AnyEvent",
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
    "NodeFailed",
    "NodeMemory",
    "NoOutput",
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
    "mcp_prompts",
    "mcp_servers",
    "load_settings",
    "model_from_name",
    "plan_tool",
    "tool",
    "trim_messages",
    "web_tools",
    "workspace_tools",
}
HEAVY = ("litellm", "openai", "pydantic_settings", "pydantic", "apsw", "tiktoken", "psycopg")


def fresh(code: str) -> str:
    """Run code in a fresh interpreter; return what it prints."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert done.stderr == ""
    return done.stdout.strip()


def test_public_names_match_the_list_of_this_test() -> None:
    assert set(agent_runtime.__all__) == PUBLIC
    assert list(agent_runtime.__all__) == sorted(agent_runtime.__all__)
    assert dir(agent_runtime) == sorted(PUBLIC)


def test_every_public_name_exists_and_is_documented() -> None:
    for name in agent_runtime.__all__:
        # A union of types has no docstring of its own.
        assert name == "AnyEvent" or inspect.getdoc(getattr(agent_runtime, name)), name


def _homes() -> dict[str, str]:
    """Return the module of each public name, from the table that imports are made by."""
    source = Path(agent_runtime.__file__).read_text()
    return dict(re.findall(r'^    "(\w+)": "([\w.]+)",$', source, re.MULTILINE))


@pytest.mark.slow
def test_every_public_name_imports_on_its_own_and_by_a_star() -> None:
    # A fresh interpreter for each module is enough: its first name loads it, whichever that is.
    modules: dict[str, list[str]] = {}
    for name, home in _homes().items():
        modules.setdefault(home, []).append(name)
    assert set().union(*modules.values()) == PUBLIC
    for names in modules.values():
        lines = [f"from agent_runtime import {name} as one; assert one" for name in names]
        fresh("\n".join(lines))
    code = "from agent_runtime import *; print(len([n for n in dir() if n[0] != '_']))"
    assert fresh(code) == str(len(PUBLIC))


def test_type_checkers_see_the_names_that_are_imported() -> None:
    source = Path(agent_runtime.__file__).read_text()
    block = source[source.index("if TYPE_CHECKING:") : source.index("__all__")]
    seen: dict[str, str] = {}
    for home, names in re.findall(r"from (\S+) import (\([^)]+\)|[\w, ]+)", block):
        # The table has relative names; `agent_runtime_config` is another package and stays whole.
        seen |= dict.fromkeys(re.findall(r"\w+", names), re.sub(r"^agent_runtime\b", "", home))
    assert seen == _homes()


def test_a_missing_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        getattr(agent_runtime, "no_such_name")  # noqa: B009


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = f"import sys, agent_runtime\nprint([name for name in {HEAVY!r} if name in sys.modules])"
    assert fresh(code) == "[]"


def test_the_whole_runtime_is_imported_without_litellm() -> None:
    code = (
        "import sys\nfrom agent_runtime import *\nimport agent_runtime.cli\n"
        "print([name for name in ('litellm', 'openai') if name in sys.modules])"
    )
    assert fresh(code) == "[]"


def test_a_run_imports_only_what_it_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A key is looked for in what is shown to people.
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789abcdefghij")
    unused = (
        "agent_runtime.memory.recall.retriever",
        "agent_runtime.offline",
        "agent_runtime_storage.upkeep.transfer",
        "regex",
        "snowballstemmer",
    )
    code = (
        "import sys, anyio\nfrom agent_runtime import Agent, Runtime, ScriptedModel, Settings\n"
        "from agent_runtime.models.scripted import say\n"
        "async def main():\n"
        f"    settings = Settings(database_url='file:{tmp_path}/runs.db')\n"
        "    async with Runtime.open(settings, model=ScriptedModel([say('Hello.')])) as runtime:\n"
        "        assert (await runtime.run(Agent(), 'Greet.')).ok\n"
        f"anyio.run(main)\nprint([name for name in {unused!r} if name in sys.modules])"
    )
    assert fresh(code) == "[]"


def documented_tree() -> dict[str, str]:
    """Return each error in the tree of the docstring of `errors.py`, with its parent."""
    parents: dict[str, str] = {}
    above: list[str] = []
    for line in (inspect.getdoc(errors) or "").splitlines():
        branch = re.match(r"((?:│   |    )*)(?:[├└]── )", line)
        if branch is None:
            if line.startswith("AgentRuntimeError"):
                above = ["AgentRuntimeError"]
            continue
        depth = len(branch[0]) // 4
        # `StoreUnavailable: StoreBusy, …` lists children on their parent's line.
        name, _, children = line[branch.end() :].split("  ")[0].partition(":")
        above = [*above[:depth], name]
        parents[name] = above[depth - 1]
        parents |= dict.fromkeys(re.findall(r"\w+", children), name)
    return parents


def test_the_documented_tree_of_errors_matches_the_classes() -> None:
    classes = {name: getattr(errors, name) for name in errors.__all__}
    parents = {
        name: kind.__bases__[0].__name__
        for name, kind in classes.items()
        if kind is not errors.AgentRuntimeError
    }
    assert documented_tree() == parents


def test_every_error_is_exported_by_errors() -> None:
    code = (
        "import pkgutil, importlib, agent_runtime, agent_runtime_storage\n"
        "from agent_runtime import errors\n"
        "for package in (agent_runtime, agent_runtime_storage):\n"
        "    for found in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        if not found.name.endswith('__main__'):\n"
        "            importlib.import_module(found.name)\n"
        "def below(kind):\n"
        "    return {kind}.union(*map(below, kind.__subclasses__()))\n"
        "names = {one.__name__ for one in below(errors.AgentRuntimeError)}\n"
        "print(sorted(names - set(errors.__all__)))"
    )
    assert fresh(code) == "[]"


def test_only_the_tests_of_benchmarks_import_benchmarks() -> None:
    tests = Path(__file__).parent
    importers = [
        str(path.relative_to(tests))
        for path in tests.rglob("*.py")
        if re.search(r"^\s*(from|import) benchmarks\b", path.read_text(), re.MULTILINE)
    ]
    assert [path for path in importers if not path.startswith("benchmarks/")] == []


OPTIONS: dict[str, dict[str, Any]] = {
    "ThreadBusy": {"run_id": "r"},
    "DimensionMismatch": {"known": 3, "given": 4},
    "BudgetExceeded": {"budget": "thread"},
    "InvalidExport": {"line": 1},
    "QuestionClosed": {"status": "answered"},
    "QuestionsOpen": {"questions": ("q",)},
}


@pytest.mark.parametrize("name", errors.__all__)
def test_an_error_reads_as_message_and_cure(name: str) -> None:
    kind = getattr(errors, name)
    assert inspect.getdoc(kind)
    options = OPTIONS.get(name, {})
    where = "Line 1: " if name == "InvalidExport" else ""
    error = kind("It broke.", cure="Mend it.", **options)
    assert (error.message, error.cure, str(error)) == (
        f"{where}It broke.",
        "Mend it.",
        f"{where}It broke. Mend it.",
    )
    assert str(kind("It broke.", **options)) == f"{where}It broke."
