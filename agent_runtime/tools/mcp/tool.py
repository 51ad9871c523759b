"""The tools of a server, as an agent has them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from agent_runtime.errors import AgentRuntimeError, text_of
from agent_runtime.messages import ToolResult, ToolSpec, encodable
from agent_runtime.tools.base import Tool
from agent_runtime.tools.context import ToolContext
from agent_runtime.tools.fingerprint import json_digest
from agent_runtime.tools.mcp.definitions import ToolDefinition, tool_name
from agent_runtime.tools.mcp.failures import CallLost, McpErrorAnswer, ToolChanged
from agent_runtime.tools.mcp.server import McpServer
from agent_runtime.tools.questions import AwaitingAnswers

if TYPE_CHECKING:
    from agent_runtime.tools.mcp.connection import McpConnection

PROGRESS_PAUSE = 0.2
"""The least seconds between two events about the progress of a call."""
# The most resources that are listed.
MAX_RESOURCES = 200
MOST_POLLS, POLL_SECONDS = 40, 0.25
"""How often, and after how long, a call is made again that a server puts off."""
UNVERIFIED = "The effect of the call is unverified. Check what it did before you repeat it."
JUST_CHANGED = (
    "The server has just changed what this tool is. Nothing was called; call it again if you still "
    "need it."
)
CHANGED = (
    "Its server has changed what the tool is since you first used it. `agent-runtime mcp trust "
    "{server}` shows and accepts the change."
)


class _ServerTool(Tool):
    """What calls of a server have in common.

    Attributes:
        tool: its name on the server.
    """

    inherited = False

    def __init__(
        self, server: McpServer, connection: McpConnection, tool: str, spec: ToolSpec
    ) -> None:
        super().__init__(
            name=spec.name,
            description=spec.description,
            spec=spec,
            timeout=server.timeout,
            idempotent=server.is_idempotent(tool),
            needs_approval=server.asks_about(tool),
            max_result_tokens=server.max_result_tokens,
        )
        self.server, self.connection, self.tool = server, connection, tool

    def given(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments as they are sent: the server alone has defaults."""
        return deepcopy(arguments)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Make the call; failures of the server are results that the model can read."""
        limit = context.timeout if self.timeout is None else self.timeout
        with context.timer.limit(limit):
            try:
                return await self._made(arguments, context)
            except CallLost as error:
                return ToolResult(f"{error} {UNVERIFIED}", outcome="interrupted")
            except McpErrorAnswer as error:
                return ToolResult(str(error), outcome="error")
            except AgentRuntimeError as error:
                # The server did not start, so the call was not made.
                return ToolResult(encodable(error.message), outcome="error")
            except Exception as error:
                # Whatever the SDK raises; its text may repeat what was sent.
                text = self.connection.secrets.shown(f"{type(error).__name__}: {text_of(error)}")
                return ToolResult(f"{text} {UNVERIFIED}", outcome="interrupted")
        text = f"The server did not answer within {limit:g} s, and was asked to stop. {UNVERIFIED}"
        return ToolResult(text, outcome="interrupted")

    @abstractmethod
    async def _made(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Send the call to the server, and return what it answers."""


class McpTool(_ServerTool):
    """A tool of a server.

    Its calls ask for an approval when the server's definition of it is not the recorded one.
    """

    def __init__(
        self, server: McpServer, connection: McpConnection, definition: ToolDefinition
    ) -> None:
        super().__init__(server, connection, definition.tool, definition.spec)
        self.definition = definition

    @property
    def changed(self) -> bool:
        """Whether it is not what was recorded, or not what the model was shown."""
        return self.connection.changed(self.tool, self.definition.digest)

    def approval(self, arguments: dict[str, Any]) -> Mapping[str, str] | None:
        """Return the pattern for which a call needs an approval; None if it needs none."""
        # Whatever the user allowed was allowed for the tool as it was.
        return {} if self.changed else super().approval(arguments)

    def question(self) -> str:
        """Return what a person is asked about a call."""
        text = super().question()
        return f"{text} {CHANGED.format(server=self.server.name)}" if self.changed else text

    def _held(self) -> tuple[str, ...]:
        # An approval holds for one definition, whatever the server says later.
        digests = self.connection.listing.digests
        return (self.server.pin_key, self.definition.digest, digests.get(self.tool, ""))

    async def _made(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        from mcp_types import CallToolResult

        from agent_runtime.tools.mcp.content import call_result
        from agent_runtime.tools.mcp.elicitation import (
            NOBODY,
            ElicitationReply,
            NotAskable,
            awaiting,
            reply_of,
        )

        # What was checked before the call, and perhaps approved.
        seen = self.connection.listing.digests.get(self.tool)
        reported = -PROGRESS_PAUSE

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            nonlocal reported
            now = anyio.current_time()
            # Some servers report each percent of a quick call, and each report is an event.
            if now - reported >= PROGRESS_PAUSE:
                reported = now
                context.progress(progress, total, self.connection.secrets.shown(message or ""))

        reply = reply_of(context.answers)
        if reply.again:
            return AwaitingAnswers(NOBODY, questions=reply.again)
        called = partial(self.connection.call, self.tool, seen, arguments, on_progress)
        try:
            result = await called(reply)
            for _ in range(MOST_POLLS):
                if isinstance(result, CallToolResult) or result.input_requests:
                    break
                # The server only wants to be called again, with its state.
                await anyio.sleep(POLL_SECONDS)
                result = await called(
                    ElicitationReply(state=result.request_state, round=reply.round)
                )
            if not isinstance(result, CallToolResult):
                who = f"The MCP server {self.server.name}, in a call of {self.tool},"
                asked = awaiting(result, who, reply.round, self.connection.secrets.mask)
                self.connection.linger()
                return asked
        except ToolChanged:
            return ToolResult(JUST_CHANGED, outcome="error")
        except NotAskable as error:
            return ToolResult(f"The server wants {error}, which is not given.", outcome="error")
        return await call_result(result, context.keep, self.connection.secrets.mask)


class McpResourceTool(_ServerTool):
    """The tool that lists and reads a server's resources."""

    TOOL = "read_resource"

    def __init__(self, server: McpServer, connection: McpConnection) -> None:
        spec = ToolSpec(
            tool_name(server.name, self.TOOL),
            f"Read a resource of the server {server.name}; without a URI, list them.",
            {"type": "object", "properties": {"uri": {"type": "string"}}},
        )
        super().__init__(server, connection, self.TOOL, spec)

    def _held(self) -> tuple[str, ...]:
        return (self.server.pin_key, json_digest(self.TOOL))

    async def _made(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        from agent_runtime.tools.mcp.content import resource_result

        uri = arguments.get("uri")
        if isinstance(uri, str) and uri:
            found = await self.connection.read_resource(uri)
            return await resource_result(found, context.keep, self.connection.secrets.mask)
        listed = await self.connection.resources()
        lines = [f"{one.uri} {one.description or one.name}" for one in listed[:MAX_RESOURCES]]
        text = self.connection.secrets.mask("\n".join(lines) or "The server has no resources.")
        return ToolResult(encodable(text))
