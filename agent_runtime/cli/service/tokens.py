"""`agent-runtime tokens`: make, list and revoke the tokens of the service's users."""

from __future__ import annotations

import dataclasses

import click

from agent_runtime.cli.extras import needs_extra
from agent_runtime.cli.groups import CommandGroup
from agent_runtime.cli.options import Age, json_lines_option
from agent_runtime.cli.runtime_calls import with_runtime
from agent_runtime.cli.terminal import printable, say, time_text, write_json, write_row


@click.group(cls=CommandGroup)
def tokens() -> None:
    """Make, list and revoke the tokens of the service's users.

    A service that serves without tokens has to be started again to ask for them.
    """


@tokens.command("make")
@click.argument("user")
@click.option("--name", default="", help="What it is for, for your own list.")
@click.option("--expires", type=Age(), help="After which time it ends, such as 30d or 12h.")
def make(user: str, name: str, expires: float | None) -> None:
    """Make a token for USER, and print it; it is shown only now."""
    with needs_extra("server", "The service"):
        from agent_runtime.server.users import new_token

    token = new_token()
    row = with_runtime(
        lambda runtime: runtime.store.service.make_token(user, token, name=name, seconds=expires)
    )
    write_row(token)
    ends = "it does not expire" if row.expires_at is None else f"until {time_text(row.expires_at)}"
    say(printable(f"Token {row.id} for {row.user_id}; {ends}. It is not shown again.", lines=False))


@tokens.command("list")
@json_lines_option
def list_tokens(as_json: bool) -> None:
    """List the tokens of all users, without the tokens themselves."""
    found = with_runtime(lambda runtime: runtime.store.service.tokens())
    for row in found:
        if as_json:
            write_json(dataclasses.asdict(row))
            continue
        used = "never used" if row.used_at is None else f"used {time_text(row.used_at)}"
        state = "revoked" if row.revoked_at is not None else used
        if row.expires_at is not None:
            state += f", until {time_text(row.expires_at)}"
        text = f"{row.id}  {row.prefix}…  {row.user_id}  {row.name}  {state}"
        write_row(printable(text, lines=False))
    if not found and not as_json:
        say("There are no tokens.")


@tokens.command("revoke")
@click.argument("token_id")
def revoke(token_id: str) -> None:
    """Revoke a token by its id, at once and in every process."""
    from agent_runtime.errors import NotFound

    if not with_runtime(lambda runtime: runtime.store.service.revoke_token(token_id)):
        raise NotFound(
            f"There is no token {token_id} that can be used.",
            cure="Look at `agent-runtime tokens list`.",
        )
    say("It is revoked.")
