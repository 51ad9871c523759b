"""A function that a workflow calls, as rules of approval and people see the call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from agent_runtime.human.approval_rules import may_need_approval, rule_pattern
from agent_runtime.tools.argument_patterns import Arguments
from agent_runtime.tools.fingerprint import code_digest, json_digest
from agent_runtime.tools.function import FunctionTool
from agent_runtime.workflow.values import to_plain_json
from agent_runtime_config.approvals import ApprovalRule


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function's call by a node.

    Attributes:
        node: the node's name.
        made: the tool, if the function was made one by `tool`.
    """

    node: str
    function: Callable[..., Any]
    made: FunctionTool[..., Any] | None
    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        node: str,
        function: Callable[..., Any],
        made: FunctionTool[..., Any] | None,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> FunctionCall:
        """Return the call of a function; what a `functools.partial` holds are arguments, too."""
        while isinstance(function, partial):
            # Otherwise a rule could not name the function, nor a person see these.
            held = cast("partial[Any]", function)
            args, kwargs = (*held.args, *args), {**held.keywords, **kwargs}
            function = held.func
        return cls(node, function, made, args, kwargs)

    @property
    def names(self) -> set[str]:
        """The names by which rules mean it."""
        own = self.made.name if self.made else self.node
        return {self.node, str(getattr(self.function, "__name__", self.node)), own}

    def may_need_approval(self, rules: Sequence[ApprovalRule]) -> bool:
        """Return whether any call of the function may need an approval."""
        return bool(rules) or (self.made is not None and may_need_approval(self.made, ()))

    def arguments(self) -> Arguments:
        """Return the arguments as JSON, by parameter and with defaults."""
        given: dict[str, Any] = {}
        with suppress(TypeError, ValueError):
            signature = inspect.signature(self.function)
            bound = signature.bind(*self.args, **self.kwargs)
            bound.apply_defaults()
            given = to_plain_json(_flat(bound, signature))
        if not given and (self.args or self.kwargs):
            # A person has to see them all the same.
            given = to_plain_json({"args": list(self.args), **self.kwargs})

        def takes(one: str) -> bool:
            # A rule that names another argument may be mistyped, so it asks.
            return True

        return Arguments(given, takes, self.made.folder if self.made else None)

    def pattern(
        self, arguments: Arguments, rules: Sequence[ApprovalRule]
    ) -> Mapping[str, str] | None:
        """Return the pattern for which the call needs an approval; None if it needs none."""
        pattern = rule_pattern(self.names, arguments, rules)
        if pattern is None and self.made is not None:
            return self.made.approval(dict(arguments.given))
        return pattern

    def binding(self, workflow: str) -> str:
        """Return the digest of the function and the workflow, to bind approvals to."""
        code = self.made.binding() if self.made else code_digest(self.function, made=False)
        held = [] if self.made else _numbers(self.function)
        return json_digest("node", self.node, code, held, f"workflow {workflow}")


def _numbers(function: Callable[..., Any]) -> list[str]:
    """Return the numbers that a function captures: what it pays, for example."""
    found: list[str] = []
    for cell in getattr(function, "__closure__", None) or ():
        with suppress(ValueError):
            # An empty cell raises.
            if isinstance(cell.cell_contents, int | float | complex):
                found.append(repr(cell.cell_contents))
    return found


def _flat(bound: inspect.BoundArguments, signature: inspect.Signature) -> dict[str, Any]:
    """Return arguments by name; those of a `**` parameter are not nested."""
    flat: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        several = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
        flat |= value if several else {name: value}
    return flat
