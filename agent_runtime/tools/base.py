"""`Tool`: something that a model can call, and which of its calls need an approval."""

from __future__ import annotations

import logging
import os
import re
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeAlias

from agent_runtime.errors import ConfigError, ToolError, text_of
from agent_runtime.messages import ToolResult, ToolSpec, encodable
from agent_runtime.models.access import environment_keys
from agent_runtime.models.error_mapping import scrub
from agent_runtime.tools.argument_patterns import Arguments, may_match
from agent_runtime.tools.context import ToolContext
from agent_runtime.tools.fingerprint import code_digest, json_digest

_log = logging.getLogger(__name__)
REFUSED = "This call needs a person's approval, and nobody can be asked from here. It was not made."
NeedsApproval: TypeAlias = bool | Mapping[str, str] | Callable[[dict[str, Any]], bool]
"""Which calls need an approval: all or none; those whose arguments match patterns (`*`, `?`,
`[…]`), by argument; or those for whose arguments the function returns True."""

# Gemini takes none that begins with a digit or a hyphen.
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")


class Tool(ABC):
    """Something that a model can call.

    Args:
        name: letters, digits, `_` and `-`, at most 64; the first is a letter or `_`.
        spec: name, description and parameters for the model; None makes it of the first two.
        timeout: seconds; None for the run's default, `math.inf` for no limit.
        idempotent: whether it may run again after a crash that left its effect unknown.
        needs_approval: which calls need an approval; see `NeedsApproval`.
        max_result_tokens: how much of a result prompts show; None for the setting.

    Attributes:
        in_thread: whether its calls run in threads, which a cancellation does not stop.
        folder: where relative paths in its arguments start; None for the process's folder.
        inherited: whether a sub-agent may be given it without its being named in `Delegation`.
        also: further names by which rules of approval mean it.

    Raises:
        ConfigError: the name or a limit is not usable.
    """

    in_thread: bool = False
    max_result_tokens: int | None = None
    folder: Path | None = None
    inherited: bool = True
    also: tuple[str, ...] = ()

    def __init__(
        self,
        *,
        name: str,
        description: str = "",
        spec: ToolSpec | None = None,
        timeout: float | None = None,
        idempotent: bool = False,
        needs_approval: NeedsApproval = False,
        max_result_tokens: int | None = None,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"{name!r} is not a valid name for a tool.",
                cure="Use 1 to 64 letters (a-z), digits, `_` and `-`, a letter or `_` first.",
            )
        if timeout is not None and not timeout > 0:
            raise ConfigError(
                f"The timeout of the tool {name} is {timeout!r}.", cure="Give seconds above 0."
            )
        if max_result_tokens is not None and max_result_tokens < 1:
            raise ConfigError(
                f"The tool {name} has max_result_tokens={max_result_tokens!r}.",
                cure="Give at least 1, or None for AGENT_RUNTIME_MAX_RESULT_TOKENS.",
            )
        self.name = name
        self.description = description
        self.spec = spec or ToolSpec(name, description, {"type": "object", "properties": {}})
        self.timeout = timeout
        self.idempotent = idempotent
        self.needs_approval = needs_approval
        self.max_result_tokens = max_result_tokens
        if not isinstance(needs_approval, bool) and not callable(needs_approval):
            self._check_patterns(needs_approval)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def _check_patterns(self, patterns: Mapping[str, str]) -> None:
        if unknown := [one for one in patterns if not self.takes(one)]:
            known = ", ".join(self.spec.parameters.get("properties", {})) or "none"
            raise ConfigError(
                f"Approvals of the tool {self.name} name arguments that it does not have: "
                f"{', '.join(unknown)}.",
                cure=f"Its arguments are: {known}.",
            )

    @abstractmethod
    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run the tool; return failures as a result that the model can read.

        Never raises an `Exception`.  Cancellation passes through.
        """
        ...

    def given(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments as JSON, completed by the tool's defaults.

        Raises:
            ToolError: they are not valid.
        """
        properties: dict[str, Any] = self.spec.parameters.get("properties", {})
        known: dict[str, Any] = {
            name: one["default"]
            for name, one in properties.items()
            if isinstance(one, dict) and "default" in one
        }
        # A copy, because a tool may change what it is given, and defaults are shared by all
        # calls.
        return deepcopy(known | arguments)

    def takes(self, name: str) -> bool:
        """Return whether the tool may have an argument of this name."""
        schema = self.spec.parameters
        if name in (properties := schema.get("properties", {})):
            return True
        # A tool with a schema of its own may describe its arguments in another way.
        return not properties and schema.get("additionalProperties") is not False

    def reaches(self) -> Sequence[Tool]:
        """Return the tools that its calls may be passed on to; see `target`."""
        return ()

    def target(self, arguments: dict[str, Any]) -> tuple[Tool, dict[str, Any]] | None:
        """Return the tool that a call is passed on to, and its arguments; None for this one."""
        return None

    def question(self) -> str:
        """Return what a person is asked about a call that needs an approval."""
        return f"May the agent call {self.name}?"

    async def working_folder(self, context: ToolContext) -> str:
        """Return the folder that a call would run in; empty where the arguments say all.

        The question about the call names it, and an approval holds for a call in that folder only.
        """
        del context
        return ""

    def binding(self) -> str:
        """Return a digest of the tool, the same in every process, to bind approvals to."""
        spec = [self.spec.name, self.spec.description, self.spec.parameters]
        return json_digest(spec, str(self.folder), *self._held())

    def _held(self) -> tuple[str, ...]:
        return (code_digest(self, made=False),)

    def approval(self, arguments: dict[str, Any]) -> Mapping[str, str] | None:
        """Return the pattern for which a call needs an approval; None if it needs none.

        If the `needs_approval` function fails, the call needs one.

        Args:
            arguments: as `given` returns them.
        """
        wanted = self.needs_approval
        if isinstance(wanted, bool):
            return {} if wanted else None
        if callable(wanted):
            # A copy, because what is approved must be what runs.
            try:
                return {} if wanted(deepcopy(arguments)) else None
            # A check that fails says nothing, so a person is asked.
            except (Exception, SystemExit, GeneratorExit):
                return {}
        return wanted if may_match(wanted, self.arguments(arguments)) else None

    def arguments(self, given: Mapping[str, Any]) -> Arguments:
        """Return the arguments of a call for matching patterns."""
        return Arguments(given, self.takes, self.folder)

    def refusal(self) -> ToolResult:
        """Return the result of a call that nobody can approve."""
        return ToolResult(REFUSED, outcome="refused")


def error_result(error: BaseException) -> ToolResult:
    """Return an exception as the result that a model reads."""
    text = text_of(error)
    if not isinstance(error, ToolError):
        text = f"{type(error).__name__}: {text}".removesuffix(": ")
        _log_traceback(error)
    return ToolResult(encodable(text), outcome="error")


def _log_traceback(error: BaseException) -> None:
    """Log where a tool raised: its author needs it, and the model's result has no room for it."""
    if _log.isEnabledFor(logging.INFO):
        text = "".join(traceback.format_exception(error))
        _log.info("A tool raised an exception.\n%s", scrub(text, environment_keys(os.environ)))
