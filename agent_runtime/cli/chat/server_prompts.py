"""The prompts of MCP servers as commands of a chat."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from functools import partial

from agent_runtime.cli.agents import Spec, servers_of
from agent_runtime.cli.terminal import say

LIST = "prompts"
SHOWN_LINES = 20


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
            takes = " ".join(
                shown if needed else f"[{shown}]"
                for shown, needed in ((escape_invisible(a), b) for a, b in one.arguments.items())
            )
            say(f"  /{one.name} {takes}".rstrip() + f"  {escape_invisible(one.description)}")
        if not found:
            say("No MCP server of this chat has prompts.")
        return ""
    text = anyio.run(partial(prompt.text, **arguments_of(prompt.arguments, rest)))
    # A server wrote it, and it is said in the user's name.
    lines = shown_lines(text)
    for line in lines[:SHOWN_LINES]:
        say(line)
    if len(lines) > SHOWN_LINES:
        say(f"({len(lines) - SHOWN_LINES} more lines)")
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
