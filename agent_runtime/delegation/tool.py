"""The tool `delegate`: a model hands tasks over to sub-agents."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from agent_runtime.agent import Delegation
from agent_runtime.delegation.artifact_tool import NAME as OPEN_ARTIFACT
from agent_runtime.delegation.assignment import Assignment, artifact_reference
from agent_runtime.delegation.background import TASKS
from agent_runtime.delegation.delegate import delegate as hand_over
from agent_runtime.delegation.outcome import refused_outcome
from agent_runtime.errors import ConfigError, ToolError
from agent_runtime.human.waiting import AwaitingHuman
from agent_runtime.memory.recall.tool import recall
from agent_runtime.messages import ToolResult
from agent_runtime.tools.base import FunctionTool, Tool, ToolContext, Toolset
from agent_runtime.tools.output import FINAL, schema_type

if TYPE_CHECKING:
    from agent_runtime.agent import Agent

NAME = "delegate"
NEVER = frozenset({NAME, TASKS, "plan", "ask_user"})
"""Tools of the runtime's own by which only the agent itself works."""
ALWAYS = frozenset({recall.name, OPEN_ARTIFACT, FINAL})
"""Tools that a sub-agent gets by itself where it has a use for them."""


def delegate_tool(agent: Agent, own: Toolset, *, levels: int) -> FunctionTool[..., Any]:
    """Return the tool by which an agent delegates.

    Args:
        agent: whose model, limits and policy its sub-agents have.
        own: its tools.
        levels: how many sub-agents may be above each other from here on.

    Raises:
        ConfigError: the agent's policy names a tool that it does not have.
    """
    policy = agent.delegation if isinstance(agent.delegation, Delegation) else Delegation()
    if unknown := [name for name in policy.tools or () if own.get(name) is None]:
        raise ConfigError(
            f"Delegation names tools that the agent does not have: {', '.join(unknown)}.",
            cure="Add them to the agent's tools, or leave them out.",
        )
    allowed = {
        one.name: one
        for one in own
        if (policy.tools is None or one.name in policy.tools) and one.name not in NEVER | ALWAYS
    }

    return FunctionTool(
        Delegator(agent, policy, allowed, levels).delegate,
        name=NAME,
        timeout=math.inf,
        idempotent=True,
    )


@dataclass(frozen=True, slots=True)
class Delegator:
    """What an agent's calls of `delegate` have in common.

    Attributes:
        allowed: its tools that a sub-agent may be given.
        levels: how many sub-agents may be above each other from here on.
    """

    agent: Agent
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
        output_schema: dict[str, Any] | None = None,
        max_steps: Annotated[int, Field(ge=1)] | None = None,
        background: bool = False,
    ) -> ToolResult:
        """Hand a task over to a sub-agent, and get its outcome when it has ended.

        Worth it for parts that can be done apart from each other, or that would fill your context:
        make several calls in one answer, and they work at the same time. A sub-agent sees none of
        this conversation, only what you say here; afterwards it is gone. The outcome tells its
        result, and what was observed of its work: its calls, their errors, what stood in the way.

        Args:
            role: who the sub-agent is, in a few words.
            instructions: what it has to do, and when it is done.
            briefing: what it has to know: facts, findings, constraints.
            tools: names of those of your tools that it may call; leave out for all that you can
                give, [] for none.
            artifacts: material by reference: paths, URLs, handles of tool results (c0000001a),
                files (tool:… or upload:…).
            conversation_context: what of this conversation it has to know, such as the user's own
                words.
            task_key: a short stable name of the task. Trying again, give the same one: the
                sub-agent is then told of the earlier attempts.
            diagnosis: trying again: why the last attempt failed.
            fix_applied: trying again: what is different this time.
            model: another model's name, if you were told of any.
            output_schema: a JSON schema, if the result is to be a value of it instead of text.
            max_steps: the most steps that it may take.
            background: do not wait: you go on at once, and the outcome comes as a message. At most
                5 run at a time; the tool tasks lists, awaits, cancels and steers them.
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
        )
        try:
            _check_model(model, self.policy.models)
            given = _given(tools, self._allowed(background=background))
            assignment = await self._checked(context, assignment, given, output_schema)
        except (ToolError, ConfigError) as error:
            return refused_outcome(str(error), assignment.key).tool_result()
        outcome = await hand_over(context, assignment, background=background, waits=True)
        if outcome.status == "waiting":
            return AwaitingHuman("", run_id=outcome.run_id, paused=outcome.stop_reason == "paused")
        return outcome.tool_result()

    def _allowed(self, *, background: bool) -> Mapping[str, Tool]:
        """Return what a sub-agent may be given; in the background nobody waits for a person."""
        if not background:
            return self.allowed
        return {name: one for name, one in self.allowed.items() if one.needs_approval is not True}

    async def _checked(
        self,
        context: ToolContext,
        assignment: Assignment,
        given: Sequence[Tool],
        output_schema: dict[str, Any] | None,
    ) -> Assignment:
        """Return an assignment with what it may have. Raises `ToolError`, `ConfigError`."""
        await _check_artifacts(context, assignment.artifacts)
        if self.levels > 1:
            inner = replace(self.agent, delegation=replace(self.policy, tools=None))
            given = (*given, delegate_tool(inner, Toolset(given), levels=self.levels - 1))
        kind = schema_type(output_schema) if output_schema else None
        return replace(assignment, tools=given, output_type=kind)


def _given(names: Sequence[str] | None, allowed: Mapping[str, Tool]) -> tuple[Tool, ...]:
    """Return the tools that a sub-agent is given. Raises `ToolError`."""
    if names is None:
        return tuple(allowed.values())
    wanted = [name for name in dict.fromkeys(names) if name not in ALWAYS]
    if wrong := [name for name in wanted if name not in allowed]:
        known = ", ".join(sorted(allowed)) or "none"
        raise ToolError(
            f"A sub-agent cannot be given: {', '.join(wrong)[:500]}.",
            cure=f"The tools that you can give are: {known}.",
        )
    return tuple(allowed[name] for name in wanted)


def _check_model(model: str, known: Sequence[str]) -> None:
    if model and model not in known:
        others = f" The others are: {', '.join(known)}." if known else ""
        raise ToolError(
            f"A sub-agent cannot run the model {model[:80]!r}.",
            cure=f"Leave `model` out for your own.{others}",
        )


async def _check_artifacts(context: ToolContext, artifacts: Sequence[str]) -> None:
    """Refuse references to what is not there. Raises `ToolError`, `StoreError`."""
    from agent_runtime.errors import NotFound
    from agent_runtime.files.references import file_id, resolve_files
    from agent_runtime.messages import FileRef, call_place

    for reference in filter(None, map(artifact_reference, artifacts)):
        file = FileRef("custom", reference)
        found = False
        if file_id(file):
            [one] = await resolve_files(context.store, [file])
            found = not one.problem
        else:
            try:
                await context.store.call(context.thread_id, *call_place(reference))
                found = True
            except NotFound:
                pass
        if not found:
            raise ToolError(
                f"There is no artifact {reference[:80]!r}.",
                cure="Give the handle of a tool result, a file's reference, a path or a URL.",
            )
