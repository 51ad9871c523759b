"""The commands of a chat: each runs a command of the command line on the chat's thread."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

HERE = "{thread}"
REST = "{rest}"


@dataclass(frozen=True, slots=True)
class Slash:
    """A command of a chat.

    Attributes:
        meaning: for `/help` and the completion.
        runs: the arguments of the command line; empty for what the chat itself does.
        takes: what follows the name, for `/help`.
    """

    meaning: str
    runs: tuple[str, ...] = ()
    takes: str = ""


SLASH: dict[str, Slash] = {
    "/help": Slash("list these commands"),
    "/model": Slash("show the model, or use another one from now on", takes="[NAME]"),
    "/plan": Slash("show the agent's plan", ("plan", "show", HERE)),
    "/memory": Slash("show what the prompt and the observations hold",
                     ("memory", "show", HERE)),
    "/compact": Slash("observe now what may leave the prompt", ("memory", "observe", HERE)),
    "/cost": Slash("show what was spent and what is left", ("usage", "--thread", HERE)),
    "/tasks": Slash("list background tasks", ("tasks", "list", HERE)),
    "/show": Slash("show the last messages", ("show", HERE)),
    "/branches": Slash("list the branches", ("show", HERE, "--branches")),
    "/attach": Slash("add a file to the next line", takes="PATH|URL"),
    "/files": Slash("list the files of the conversation, and of the next line"),
    "/undo": Slash("go back to before the last message", ("edit", HERE, "last")),
    "/edit": Slash("replace the last message, and answer it",
                   ("edit", HERE, "last", "--", REST), "TEXT"),
    "/regenerate": Slash("answer the last message again", ("regenerate", HERE)),
    "/fork": Slash("continue from another message, by its number", ("fork", HERE, REST), "NODE"),
    "/resume": Slash("continue the run that stopped", ("resume", "--thread", HERE)),
    "/approvals": Slash("list what is allowed on this thread", ("approvals", HERE)),
    "/prompts": Slash("list the prompts of MCP servers; /SERVER__PROMPT sends one"),
    "/quit": Slash("leave; the conversation can be continued"),
    "/exit": Slash("the same"),
}  # fmt: skip


def help_lines() -> list[str]:
    """Return what `/help` shows."""
    names = [f"{name} {one.takes}".rstrip() for name, one in SLASH.items()]
    width = max(map(len, names))
    lines = [
        f"  {name:<{width}}  {one.meaning}" for name, one in zip(names, SLASH.values(), strict=True)
    ]
    keys = "Alt-Enter, or a backslash at the end, begins a new line."
    return [*lines, f"Anything else goes to the agent; // begins a message with a slash. {keys}"]


def arguments_of(command: Slash, thread: str, rest: str) -> list[str] | None:
    """Return the arguments of the command line; None if what it takes is missing."""
    if command.takes and not rest:
        return None
    filled = [one.replace(HERE, thread).replace(REST, rest) for one in command.runs]
    if REST in command.runs or not rest:
        return filled
    return [*filled, *shlex.split(rest)]
