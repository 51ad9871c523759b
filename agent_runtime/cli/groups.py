"""A group of commands that shows whole summaries, and names commands where one is unknown."""

from __future__ import annotations

import difflib
import sys

import click


class CommandGroup(click.Group):
    """The group of all commands, and of the commands below one of them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Most groups have a command `list`; a group that lists by itself takes the word too.
        if (
            args[:1] == ["list"]
            and self.invoke_without_command
            and not self.get_command(ctx, "list")
        ):
            args = args[1:]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not (ctx.resilient_parsing or name.startswith("-") or self.get_command(ctx, name)):
            raise click.UsageError(f"No such command '{name}'. {self._hint(ctx, name)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # click would cut a summary that is longer than the rest of its line.
        rows = [
            (name, command.get_short_help_str(sys.maxsize))
            for name in self.list_commands(ctx)
            if (command := self.get_command(ctx, name)) and not command.hidden
        ]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def _hint(self, ctx: click.Context, name: str) -> str:
        names = self.list_commands(ctx)
        near = difflib.get_close_matches(name, names, n=1)
        if near:
            return f"Did you mean `{ctx.command_path} {near[0]}`?"
        if len(names) > _FEW:
            return f"`{ctx.command_path} --help` lists them."
        return f"There are: {', '.join(names)}."


# As many names as an error of a few lines can list.
_FEW = 12
