"""The prompts of MCP servers as commands of a chat."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from agent_runtime.cli.agents import Spec, servers_of
from agent_runtime.cli.terminal import say
from agent_runtime_config.counted import counted

if TYPE_CHECKING:
    from agent_runtime.tools.mcp.prompts import McpPrompt
    from agent_runtime.tools.mcp.server import McpServer

LIST = "prompts"
SHOWN_LINES = 20
SEPARATOR = "__"
"""Between the names of a server and of its prompt."""


class ServerPrompts:
    """The prompts of a chat's servers, for completion; each server is asked once."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._known: dict[str, dict[str, str]] = {}

    async def beginning(self, typed: str) -> Mapping[str, str]:
        """Return what the prompts mean whose names, with a slash, begin with what is typed.

        It starts the servers whose names fit and that were not asked before.  What fails has no
        completions: choosing a prompt says why.
        """
        import anyio.to_thread

        from agent_runtime.errors import AgentRuntimeError

        try:
            servers = await anyio.to_thread.run_sync(servers_of, self._spec)
            for server in servers:
                start = f"/{server.name}{SEPARATOR}"
                # After a lone slash no server is started: it may only begin a command of our own.
                fits = typed.startswith(start) or (start.startswith(typed) and len(typed) > 1)
                if fits and server.name not in self._known:
                    self._known[server.name] = await _meanings(server)
        except AgentRuntimeError:
            # A server is not trusted, or the SDK is missing.
            return {}
        found = (one for prompts in self._known.values() for one in prompts.items())
        return {name: meaning for name, meaning in found if name.startswith(typed)}


async def _meanings(server: McpServer) -> dict[str, str]:
    """Return what a server's prompts mean, by their names with a slash; none if it fails."""
    from agent_runtime.errors import McpServerFailed
    from agent_runtime.human.display import escape_invisible
    from agent_runtime.tools.mcp.prompts import mcp_prompts

    try:
        found = await mcp_prompts([server])
    except McpServerFailed:
        return {}
    return {
        f"/{one.name}": f"{_takes(one)}  {escape_invisible(one.description)}".strip()
        for one in found
    }


def _takes(prompt: McpPrompt) -> str:
    """Return the arguments of a prompt as they are shown, the optional ones in brackets."""
    from agent_runtime.human.display import escape_invisible

    shown = ((escape_invisible(name), needed) for name, needed in prompt.arguments.items())
    return " ".join(name if needed else f"[{name}]" for name, needed in shown)


def chosen(spec: Spec, name: str, rest: str) -> str:
    """Return the text of a prompt, which is shown; empty if there is none, or after a list.

    Raises:
        ConfigError: a server is not trusted.
        McpServerFailed: a server fails, or an argument is wrong.
    """
    import anyio

    from agent_runtime.human.display import escape_invisible, shown_lines
    from agent_runtime.tools.mcp.prompts import mcp_prompts

    found = anyio.run(mcp_prompts, servers_of(spec))
    prompt = next((one for one in found if one.name == name), None)
    if prompt is None:
        if name != LIST:
            say(f"There is no prompt {escape_invisible(name)}.")
        for one in found:
            usage = f"  /{one.name} {_takes(one)}".rstrip()
            say(f"{usage}  {escape_invisible(one.description)}")
        if not found:
            say("No MCP server of this chat has prompts.")
        return ""
    text = anyio.run(partial(prompt.text, **arguments_of(prompt.arguments, rest)))
    # Shown first: a server wrote it, and it is sent in the user's name.
    lines = shown_lines(text)
    for line in lines[:SHOWN_LINES]:
        say(line)
    if len(lines) > SHOWN_LINES:
        say(f"({counted(len(lines) - SHOWN_LINES, 'more line')})")
    return text


def arguments_of(takes: Mapping[str, bool], rest: str) -> dict[str, str]:
    """Return a prompt's arguments: `name=value`, and other words in the order of the names.

    With more words than names, the last name takes all that is left.
    """
    given: dict[str, str] = {}
    try:
        words = shlex.split(rest)
    except ValueError:
        # An apostrophe, for example.
        words = rest.split()
    plain: list[str] = []
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name in takes:
            given[name] = value
        else:
            plain.append(word)
    free = [one for one in takes if one not in given]
    if not free and plain:
        given[""] = " ".join(plain)
    for place, name in enumerate(free[: len(plain)]):
        last = place == len(free) - 1
        given[name] = " ".join(plain[place:]) if last else plain[place]
    return given
