"""`agent-runtime chat`: a conversation on one thread."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Sequence

import click

from agent_runtime.cli import exit_codes as exits
from agent_runtime.cli import session
from agent_runtime.cli.commands.run import thread_option
from agent_runtime.cli.display.short_ids import said_id
from agent_runtime.cli.display.view import KEY, current_view
from agent_runtime.cli.parameters.run_options import RunOptions, run_options
from agent_runtime.cli.terminal import say, say_step

ARGUMENTS = "agent_runtime.chat.arguments"


class _Chat(click.Command):
    """Keeps its arguments, to name the command that continues the conversation."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)


@click.command(cls=_Chat)
@thread_option
@run_options
def chat(thread: str | None, options: RunOptions) -> None:
    """Talk with the agent on one thread.

    Each line is a run with these options and limits. While the agent works, a line tells it
    something at its next step; Esc or Ctrl-C interrupts it, so that the next line continues it,
    and Ctrl-C twice stops it. Lines that begin with a slash are commands: /help lists them.
    Alt-Enter, or a backslash at the end of a line, begins a new line. Ctrl-D leaves, as does Ctrl-C
    on an empty line.

    The history of lines is kept in the user's folder for state. Without a terminal, or with
    TERM=dumb, lines are read plainly, and Ctrl-C stops the active run.

    \b
    Examples:
      agent-runtime chat --workspace . --ask-shell
      agent-runtime chat --thread last
    """
    import uuid

    from agent_runtime.cli.chat.conversation import Conversation
    from agent_runtime.cli.chat.editor import Editor, PlainLines, can_edit
    from agent_runtime.cli.chat.slash import SLASH
    from agent_runtime_config import load_settings

    loaded = load_settings()
    spec = options.new_spec(loaded)
    settings = options.limited(loaded, spec)
    given, thread = thread, thread or str(uuid.uuid4())
    context = click.get_current_context()
    view = context.find_root().meta[KEY] = dataclasses.replace(current_view(), chat=True)
    if can_edit():
        from agent_runtime.cli.chat.server_prompts import ServerPrompts
        from agent_runtime.cli.chat.steering import Steering

        prompts = ServerPrompts(spec).beginning
        editor = Editor({name: one.meaning for name, one in SLASH.items()}, prompts)
        lines, steering = editor, Steering(editor)
    else:
        lines, steering = PlainLines(), None
    # Written right before the first prompt: until then the terminal echoes what is typed.
    say(f"Thread {said_id(thread)}. /help lists the commands; Ctrl-D or /quit leaves.")
    conversation = Conversation(settings, spec, thread, view, steering)
    token = session.COMPANION.set(steering)
    try:
        conversation.hold(lines)
    finally:
        session.COMPANION.reset(token)
    if given or conversation.begun:
        say_step(_continuing(context.meta[ARGUMENTS], thread))
    # A person saw each failure; a script that pipes lines in needs the last exit code.
    interactive = sys.stdin.isatty()
    context.exit(exits.SUCCESS if interactive else conversation.code)


def _continuing(arguments: Sequence[str], thread: str) -> str:
    """Return the command that continues the conversation, with the options given here."""
    kept: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--thread":
            next(words, None)
        elif not word.startswith("--thread="):
            kept.append(word)
    return f"Continue with: agent-runtime chat {shlex.join(['--thread', said_id(thread), *kept])}"
