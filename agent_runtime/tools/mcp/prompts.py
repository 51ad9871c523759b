"""The prompts that servers offer: texts with arguments, which a person picks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent_runtime.errors import McpServerFailed
from agent_runtime.tools.mcp.definitions import clean, tool_name
from agent_runtime.tools.mcp.failures import CallLost, McpErrorAnswer
from agent_runtime.tools.mcp.pool import connected
from agent_runtime.tools.mcp.server import McpServer

if TYPE_CHECKING:
    from mcp_types import ContentBlock, GetPromptResult, Prompt

    from agent_runtime.tools.mcp.connection import McpConnection

MAX_PROMPTS = 200
"""The most prompts of a server that are listed."""
MAX_DESCRIPTION = 300


@dataclass(frozen=True, slots=True)
class McpPrompt:
    """A prompt of a server.

    Attributes:
        name: of the server and of the prompt, as in `docs__review`.
        prompt: its name on the server.
        arguments: the names of its arguments, with whether each is required.
    """

    server: McpServer
    name: str
    prompt: str
    description: str
    arguments: Mapping[str, bool]

    async def text(self, /, **arguments: str) -> str:
        """Return the text of the prompt, to be given to a run as its task.

        It starts the server and ends it again.

        Raises:
            McpServerFailed: an argument is missing or unknown, or the server fails.
        """
        self._check(arguments)
        async with connected(self.server) as connection:
            found = await _asked(connection, connection.prompt(self.prompt, arguments))
            return connection.secrets.mask(_rendered(found))

    def _check(self, given: Mapping[str, str]) -> None:
        missing = [one for one, needed in self.arguments.items() if needed and one not in given]
        unknown = [one for one in given if one not in self.arguments]
        if missing or unknown:
            problem = "needs" if missing else "does not take"
            known = ", ".join(self.arguments) or "none"
            raise McpServerFailed(
                f"The prompt {self.name} {problem} {', '.join(missing or unknown)}.",
                cure=f"Its arguments are: {known}.",
            )


async def mcp_prompts(servers: Iterable[McpServer]) -> list[McpPrompt]:
    """Return the prompts of servers, which are started for it one after the other.

    Raises:
        McpServerFailed: a server cannot be used.
        ConfigError: the SDK is not installed.
    """
    found: dict[str, McpPrompt] = {}
    for server in servers:
        async with connected(server) as connection:
            for one in (await _asked(connection, connection.prompts()))[:MAX_PROMPTS]:
                made = _prompt(server, one)
                found.setdefault(made.name, made)
    return list(found.values())


async def _asked(connection: McpConnection, request: Any) -> Any:
    """Return what a request gives; failures of the server become `McpServerFailed`."""
    try:
        return await request
    except (CallLost, McpErrorAnswer) as error:
        raise McpServerFailed(
            f"The MCP server {connection.server.name} does not give its prompts: {error}",
            cure=f"agent-runtime mcp test {connection.server.name} tries it.",
        ) from None


def _prompt(server: McpServer, found: Prompt) -> McpPrompt:
    about = " ".join(clean(found.description or found.title or "").split())[:MAX_DESCRIPTION]
    arguments = {one.name: bool(one.required) for one in found.arguments or ()}
    return McpPrompt(server, tool_name(server.name, found.name), found.name, about, arguments)


def _rendered(found: GetPromptResult) -> str:
    """Return the messages as one text; what the server has the assistant say is marked."""
    parts: list[str] = []
    for one in found.messages:
        text = clean(_text(one.content))
        parts.append(text if one.role == "user" else f"[The assistant said:]\n{text}")
    return "\n\n".join(parts)


def _text(block: ContentBlock) -> str:
    from mcp_types import EmbeddedResource, TextContent, TextResourceContents

    match block:
        case TextContent(text=text):
            return text
        case EmbeddedResource(resource=TextResourceContents(uri=uri, text=text)):
            return f"Resource {uri}:\n{text}"
        case _:
            return f"({block.type} is left out)"
