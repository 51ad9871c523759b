"""The tool `delegate`: a model delegates tasks to sub-agents."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from agent_runtime.agent import Agent, Delegation
from agent_runtime.delegation.artifact_tool import NAME as OPEN_ARTIFACT
from agent_runtime.delegation.assignment import Assignment, artifact_reference
from agent_runtime.delegation.background import TASKS
from agent_runtime.delegation.delegate import delegate as delegate_task
from agent_runtime.delegation.outcome import Outcome, refused_outcome, waiting_result
from agent_runtime.delegation.request import DelegationServices
from agent_runtime.errors import ConfigError, NotFound, ToolError
from agent_runtime.files.references import file_id, resolve_files
from agent_runtime.memory.recall.tool import recall
from agent_runtime.messages import FileRef, ToolResult, call_place, encodable
from agent_runtime.tools.base import Tool
from agent_runtime.tools.context import ToolContext
from agent_runtime.tools.function import FunctionTool
from agent_runtime.tools.output import FINAL, schema_type
from agent_runtime.tools.toolset import Toolset

Schema = Annotated[dict[str, Any], WithJsonSchema({"type": "object"})]
Steps = Annotated[int, Field(ge=1), WithJsonSchema({"type": "integer"})]

NAME = "delegate"
NEVER = frozenset({NAME, TASKS, "plan", "ask_user"})
"""The runtime's tools that a sub-agent never inherits."""
ALWAYS = frozenset({recall.name, OPEN_ARTIFACT, FINAL})
"""Tools that a sub-agent gets without being given them, where they apply."""


def delegate_tool(agent: Agent[Any], own: Toolset, *, levels: int) -> FunctionTool[..., Any]:
    """Return the tool with which an agent delegates.

    Args:
        agent: its sub-agents get its model, limits and policy.
        own: its tools.
        levels: how many levels of sub-agents may follow.

    Raises:
        ConfigError: the agent's policy names a tool that it does not have.
    """
    return FunctionTool(
        delegator_of(agent, own, levels=levels).delegate,
        name=NAME,
        # The sub-agent's run has limits of its own.
        timeout=math.inf,
        # After a crash it is called again, finds its run by the call, and resumes it.
        idempotent=True,
    )


def delegator_of(agent: Agent[Any], own: Toolset, *, levels: int) -> Delegator:
    """Return what is behind the tool; arguments and errors as for `delegate_tool`."""
    policy = agent.delegation if isinstance(agent.delegation, Delegation) else Delegation()
    if unknown := [name for name in policy.tools or () if not _named(name, own)]:
        raise ConfigError(
            f"Delegation names tools that the agent does not have: {', '.join(unknown)}.",
            cure="Add them to the agent's tools, or leave them out.",
        )
    if policy.tools is None:
        chosen = {one.name for one in own if one.inherited}
    else:
        chosen = {one.name for name in policy.tools for one in _named(name, own)}
    allowed = {one.name: one for one in own.every() if one.name in chosen - NEVER - ALWAYS}
    return Delegator(agent, policy, allowed, levels)


def _named(name: str, own: Toolset) -> list[Tool]:
    """Return the tools that a name in `Delegation.tools` means; a pattern may mean several."""
    if "*" in name:
        return [one for one in own.every() if fnmatchcase(one.name, name)]
    return [] if (tool := own.get(name)) is None else [tool]


@dataclass(frozen=True, slots=True)
class Delegator:
    """The method behind an agent's tool `delegate`, and what its calls share.

    Attributes:
        allowed: the agent's tools that a sub-agent may be given.
        levels: how many levels of sub-agents may follow.
    """

    agent: Agent[Any]
    policy: Delegation
    allowed: Mapping[str, Tool]
    levels: int

    async def delegate(
        self,
        context: ToolContext,
        role: str,
        instructions: str,
        briefing: str = "",
        tools: list[str] | None = None,
        artifacts: list[str] | None = None,
        conversation_context: str = "",
        task_key: str = "",
        diagnosis: str = "",
        fix_applied: str = "",
        model: str = "",
        output_schema: Schema | None = None,
        max_steps: Steps | None = None,
        background: bool = False,
    ) -> ToolResult:
        """Have a sub-agent do a part; it sees only what is given here.

        Calls in one answer run at once.

        Args:
            instructions: what to do, and when it is done.
            briefing: what it needs to know.
            tools: of yours; default all.
            artifacts: paths, URLs, handles (c0000001a).
            task_key: attempts under one key see earlier ones.
            background: do not wait; see `tasks`.
        """
        assignment = Assignment(
            role=role,
            instructions=instructions,
            briefing=briefing,
            conversation_context=conversation_context,
            artifacts=tuple(artifacts or ()),
            task_key=task_key,
            model=model or self.agent.model,
            max_steps=max_steps,
            diagnosis=diagnosis,
            fix_applied=fix_applied,
            asking=self.asking,
        )
        services = context.service(DelegationServices)
        # Before anything is awaited: a slot goes to the call that comes first in the answer.
        place = services.order[background].place(context.call_id) if services else nullcontext()
        with place:
            return await self._done(context, assignment, model, tools, output_schema, background)

    async def _done(
        self,
        context: ToolContext,
        assignment: Assignment,
        model: str,
        tools: Sequence[str] | None,
        output_schema: dict[str, Any] | None,
        background: bool,
    ) -> ToolResult:
        """Check the assignment and delegate it; return its outcome, or why it is refused."""
        try:
            _check_model(model, self.policy.models)
            given = _given(tools, self.allowed)
            assignment = await self._checked(context, assignment, given, output_schema)
        except (ToolError, ConfigError) as error:
            return refused_outcome(str(error), assignment.key).tool_result()
        placed = _placed(assignment, model, [one.name for one in given], output_schema)
        return _result(
            await delegate_task(
                context,
                assignment,
                background=background,
                waits=True,
                placed=placed,
                queued=self.policy.placement == "queue",
            )
        )

    async def _checked(
        self,
        context: ToolContext,
        assignment: Assignment,
        given: Sequence[Tool],
        output_schema: dict[str, Any] | None,
    ) -> Assignment:
        """Return the assignment with its tools and output type.

        Raises:
            ToolError, ConfigError: an artifact or the schema is not usable.
        """
        await _check_artifacts(context, assignment.artifacts)
        return self._equipped(assignment, given, output_schema)

    def _equipped(
        self, assignment: Assignment, given: Sequence[Tool], output_schema: dict[str, Any] | None
    ) -> Assignment:
        if self.levels > 1:
            given = (*given, delegate_tool(self._inner, Toolset(given), levels=self.levels - 1))
        kind = schema_type(output_schema) if output_schema else None
        return replace(assignment, tools=given, output_type=kind)

    @property
    def _inner(self) -> Agent[Any]:
        # The names of the policy are of this agent's tools; the sub-agent may have fewer.
        return replace(self.agent, delegation=replace(self.policy, tools=None))

    @property
    def asking(self) -> bool:
        """Whether its sub-agents may ask the user."""
        own = self.policy.asking
        return self.agent.asking if own is None else own

    def placed(self, data: Mapping[str, Any]) -> tuple[Assignment, Delegator]:
        """Return the assignment that a call placed in the queue, and what its agent delegates by.

        Raises:
            ToolError, ConfigError: this agent has not the tools, or the schema is not usable.
        """
        given = _given(data["tools"], self.allowed)
        assignment = Assignment(
            role=data["role"],
            instructions=data["instructions"],
            artifacts=data["artifacts"],
            model=data["model"] or self.agent.model,
            max_steps=data["max_steps"],
            # As it began: its prompt says whether somebody answers.
            asking=data.get("asking") is True,
        )
        below = delegator_of(self._inner, Toolset(given), levels=self.levels - 1)
        return self._equipped(assignment, given, data["output_schema"]), below


def _given(names: Sequence[str] | None, allowed: Mapping[str, Tool]) -> tuple[Tool, ...]:
    """Return the tools of these names.  Raises `ToolError` for one that may not be given."""
    if names is None:
        return tuple(allowed.values())
    # Naming a tool that it gets in any case is no mistake.
    wanted = [name for name in dict.fromkeys(names) if name not in ALWAYS]
    if wrong := [name for name in wanted if name not in allowed]:
        known = ", ".join(sorted(allowed)) or "none"
        raise ToolError(
            f"A sub-agent cannot be given: {', '.join(wrong)[:500]}.",
            cure=f"The tools that you can give are: {known}.",
        )
    return tuple(allowed[name] for name in wanted)


def _placed(
    assignment: Assignment,
    model: str,
    tools: Sequence[str],
    output_schema: dict[str, Any] | None,
) -> Mapping[str, Any]:
    """Return what `Delegator.placed` takes, as JSON."""
    return {
        "role": encodable(assignment.role),
        "instructions": encodable(assignment.instructions),
        "artifacts": [encodable(one) for one in assignment.artifacts],
        "model": model,
        "max_steps": assignment.max_steps,
        "asking": assignment.asking,
        "tools": list(tools),
        "output_schema": output_schema,
    }


def _check_model(model: str, known: Sequence[str]) -> None:
    if model and model not in known:
        others = f" The others are: {', '.join(known)}." if known else ""
        raise ToolError(
            f"A sub-agent cannot run the model {model[:80]!r}.",
            cure=f"Leave `model` out for your own.{others}",
        )


async def _check_artifacts(context: ToolContext, artifacts: Sequence[str]) -> None:
    """Raise `ToolError` for a reference to a file or a result that does not exist."""
    for reference in filter(None, map(artifact_reference, artifacts)):
        file = FileRef("custom", reference)
        if file_id(file):
            [stored] = await resolve_files(context.store, [file])
            exists = not stored.problem
        else:
            try:
                await context.store.log.call(context.thread_id, *call_place(reference))
                exists = True
            except NotFound:
                exists = False
        if not exists:
            raise ToolError(
                f"There is no artifact {reference[:80]!r}.",
                cure="Give the handle of a tool result, a file's reference, a path or a URL.",
            )


def _result(outcome: Outcome) -> ToolResult:
    return waiting_result(outcome) if outcome.status == "waiting" else outcome.tool_result()
