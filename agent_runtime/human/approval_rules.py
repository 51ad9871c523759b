"""Decide which calls need an approval, by their tool and by the settings' rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, cast

from agent_runtime.errors import ConfigError
from agent_runtime.human.ask_user import AskUser
from agent_runtime.tools.argument_patterns import UNSETTLED, Arguments, may_match
from agent_runtime.tools.base import Tool
from agent_runtime.tools.fingerprint import json_digest
from agent_runtime.tools.function import FunctionTool
from agent_runtime.tools.toolset import Toolset
from agent_runtime_config.approvals import ApprovalRule

if TYPE_CHECKING:
    from agent_runtime.messages import ToolCall

SHELL = "bash"
ALIASES = {SHELL: ("shell", "run_command")}
"""Other names that rules may use for a tool."""
OWN = (
    "apply_patch",
    "ask_user",
    SHELL,
    "bash_output",
    "delegate",
    "edit_file",
    "fetch",
    "final_result",
    "glob",
    "open_artifact",
    "plan",
    "read_file",
    "recall",
    "search",
    "tasks",
    "write_file",
)
"""The runtime's tools: a rule may name one that a run does not have."""


def given_of(tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call as the tool takes them; unchanged if they are not valid.

    A default that differs each time is shown as `UNSETTLED`.
    """
    try:
        # Twice, to find defaults such as a time or a new id: an answer could never match them
        # later.
        first, second = tool.given(arguments), tool.given(arguments)
    except (Exception, SystemExit, GeneratorExit):
        # A type of the tool's author may raise anything; patterns then see what was written.
        return arguments
    return {
        name: value if value == second.get(name) else arguments.get(name, UNSETTLED)
        for name, value in first.items()
    }


def may_need_approval(tool: Tool, rules: Sequence[ApprovalRule]) -> bool:
    """Return whether any call of a tool may need an approval."""
    # A subclass may decide by itself, call by call.
    own = tool.needs_approval is not False or type(tool).approval is not Tool.approval
    return own or any(_names(rule, name) for rule in rules for name in (tool.name, *tool.also))


def pattern_of(
    tool: Tool, given: dict[str, Any], rules: Sequence[ApprovalRule]
) -> Mapping[str, str] | None:
    """Return the pattern of arguments for which a call needs an approval; None if it needs none."""
    if isinstance(tool, AskUser):
        return None
    pattern = rule_pattern((tool.name,), tool.arguments(given), rules)
    if pattern is None and any(
        _names(rule, name) and not _names(rule, tool.name) for rule in rules for name in tool.also
    ):
        # Its arguments are those of another tool, which patterns of this one cannot be about.
        return {}
    return tool.approval(given) if pattern is None else pattern


def rule_pattern(
    names: Iterable[str], arguments: Arguments, rules: Sequence[ApprovalRule]
) -> Mapping[str, str] | None:
    """Return the pattern of the first rule that a call may match under any name; else None."""
    called = tuple(names)
    for rule in rules:
        if any(_names(rule, name) for name in called) and may_match(rule.arguments, arguments):
            return rule.arguments
    return None


def call_digest(tool: Tool, call: ToolCall, given: Mapping[str, Any], folder: str = "") -> str:
    """Return the digest that an answer is bound to.

    Args:
        folder: where the call would run, if its tool says so.
    """
    where = [folder] if folder else []
    given = unordered(dict(given))
    return json_digest(call.id, call.name, call.arguments, given, tool.binding(), *where)


def unordered(value: Any) -> Any:
    """Return a JSON value with its lists sorted.

    A set becomes a list of another order in each process.  The order of real lists still counts:
    the digest also has the arguments as they were written.
    """
    if isinstance(value, dict):
        return {key: unordered(one) for key, one in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        # By digests, because JSON values of several types have no order among themselves.
        return sorted(map(json_digest, map(unordered, cast("list[Any]", value))))
    return value


def check_rules(rules: Sequence[ApprovalRule], tools: Toolset, *, nodes: bool = False) -> list[str]:
    """Check that each rule names a tool of the run, and arguments that this tool has.

    Returns warnings about rules that only a sub-agent's tools, or a workflow's nodes, might match.

    Args:
        nodes: whether the run is a workflow's, whose nodes are not known before they run.

    Raises:
        ConfigError: a rule can never match.
    """
    known = list(tools.every())
    # Such a tool may run agents whose tools are not known here, so a rule may be for one of them.
    open_ended = nodes or any(map(_may_run_agents, known))
    warnings: list[str] = []
    for place, rule in enumerate(rules, 1):
        named = [tool for tool in known if _names(rule, tool.name)]
        if named:
            _check_arguments(rule, place, named)
        elif not any(_names(rule, name) for name in OWN):
            names = ", ".join(sorted(tool.name for tool in known)) or "none"
            problem = (
                f"AGENT_RUNTIME_APPROVE names no tool of this run in rule {place}: {rule.tool}."
            )
            # A server's tools are there only where its definition is.
            if not open_ended and "__" not in rule.tool:
                cure = f"The tools are: {names}. Correct the name, or leave the rule out."
                raise ConfigError(problem, cure=cure)
            where = ", or a node that name" if nodes else ""
            warnings.append(f"{problem} It asks only where an agent has such a tool{where}.")
    return warnings


def _check_arguments(rule: ApprovalRule, place: int, tools: Sequence[Tool]) -> None:
    for name in rule.arguments:
        if not any(tool.takes(name) for tool in tools):
            [first, *_] = tools
            known = ", ".join(first.spec.parameters.get("properties", {})) or "none"
            raise ConfigError(
                f"AGENT_RUNTIME_APPROVE names the argument {name!r} in rule {place}, which "
                f"{first.name} does not have.",
                cure=f"Its arguments are: {known}.",
            )


def _may_run_agents(tool: Tool) -> bool:
    if isinstance(tool, FunctionTool):
        # None for a function that `exec` made.
        own = str(getattr(tool.function, "__module__", "")).startswith("agent_runtime.")
        # Only with the context can a function run an agent.
        return tool.takes_context and not own
    return not type(tool).__module__.startswith("agent_runtime.")


def _names(rule: ApprovalRule, name: str) -> bool:
    return any(fnmatchcase(one, rule.tool) for one in (name, *ALIASES.get(name, ())))
