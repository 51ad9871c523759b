"""`agent-runtime mcp`: define, try and trust servers of tools."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from agent_runtime.cli.display.view import remark
from agent_runtime.cli.groups import CommandGroup
from agent_runtime.cli.mcp_service.serve import serve
from agent_runtime.cli.options import confirm, json_lines_option, yes_option
from agent_runtime.cli.parameters.mcp import approve, show
from agent_runtime.cli.terminal import say, shorten, write_json, write_row

if TYPE_CHECKING:
    from agent_runtime.tools.mcp.config import ServerEntry
    from agent_runtime.tools.mcp.connection import McpConnection

workspace_option = click.option(
    "--workspace",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=".",
    show_default="the current folder",
    help="The folder whose `.mcp.json` is read.",
)
project_option = click.option(
    "--project", is_flag=True, help="In the workspace's `.mcp.json` instead of your own file."
)


@click.group(cls=CommandGroup)
def mcp() -> None:
    """Define, try and trust MCP servers, whose tools agents get; serve the agent as one."""


mcp.add_command(serve)


@mcp.command("list")
@workspace_option
@json_lines_option
def list_servers(workspace: Path, as_json: bool) -> None:
    """List the servers that a run in the workspace can use; starts none."""
    from agent_runtime.tools.mcp.config import find_entries

    found = find_entries(workspace.absolute())
    if not found and not as_json:
        say("There are no MCP servers here: agent-runtime mcp add NAME COMMAND")
    for one in found:
        wrong = _wrong(one)
        state = "disabled" if one.disabled else "trusted" if one.trusted else "not trusted"
        state, where = (state, _where(one)) if not wrong else ("not usable", wrong)
        if as_json:
            row = {"name": one.name, "state": state, "origin": one.origin, "runs": where}
            write_json(row | {"file": None if one.file is None else str(one.file)})
        else:
            write_row(f"{one.name}  {state}  {one.file or one.origin}  {where}")


@mcp.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("name")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--url", help="The address of a server on HTTP, instead of a command.")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="A variable for the program.")
@click.option("--header", multiple=True, metavar="NAME=VALUE", help="A header for the requests.")
@project_option
@workspace_option
def add(
    name: str,
    command: tuple[str, ...],
    url: str | None,
    env: tuple[str, ...],
    header: tuple[str, ...],
    project: bool,
    workspace: Path,
) -> None:
    """Define the server NAME: a COMMAND with its arguments, or the URL of a server on HTTP.

    Options come before NAME. Write `${VARIABLE}` instead of a secret: its value is filled in when
    the server is started.
    """
    if command[:1] == ("--",):
        # Other clients require it before a command; click keeps it after NAME.
        command = command[1:]
    elif command and command[0].startswith("-"):
        raise click.UsageError(
            f"{command[0]} stands after the name, where a program begins. Options come before it: "
            f"agent-runtime mcp add {command[0]} ... {name}"
        )
    if len(command) == 1 and command[0].startswith(("http://", "https://")) and not url:
        url, command = command[0], ()
    definition: dict[str, Any] = {"type": "http", "url": url} if url else {}
    if command:
        definition |= {"command": command[0], "args": list(command[1:])}
    definition |= {"env": _pairs(env)} if env else {}
    definition |= {"headers": _pairs(header)} if header else {}
    path = _file(project, workspace)
    entry = _checked(name, definition, path, project)
    if entry.name != name:
        raise click.UsageError(f"{name!r} is no name for a server: use letters, digits, - and _.")
    servers, whole = _read(path)
    if name in servers:
        option = " --project" if project else ""
        raise click.UsageError(
            f"{path} defines {name} already; agent-runtime mcp remove{option} {name} removes it."
        )
    servers[name] = definition
    _write(path, whole)
    if project:
        # The user has just defined it.
        entry.trust()
    say(f"{name} is defined in {path}; `agent-runtime mcp test {name}` tries it.")


@mcp.command()
@click.argument("name")
@project_option
@workspace_option
def remove(name: str, project: bool, workspace: Path) -> None:
    """Remove the server NAME from your own file, or from the workspace's."""
    path = _file(project, workspace)
    servers, whole = _read(path)
    if name not in servers:
        raise click.UsageError(f"{path} does not define {name}.{_elsewhere(name, workspace)}")
    del servers[name]
    _write(path, whole)
    say(f"{name} is removed from {path}.")


def _elsewhere(name: str, workspace: Path) -> str:
    """Return where a server is defined, if that is in another file; empty if it is not."""
    from agent_runtime.tools.mcp.config import find_entries

    files = [
        one.file or one.origin for one in find_entries(workspace.absolute()) if one.name == name
    ]
    if not files:
        return " `agent-runtime mcp list` lists what is defined."
    where = "with --project" if files[0] == _file(True, workspace) else "without --project"
    return f" {files[0]} does: remove it {where}."


@mcp.command()
@click.argument("name")
@workspace_option
@json_lines_option
def test(name: str, workspace: Path, as_json: bool) -> None:
    """Start the server NAME, and list its tools as agents get them."""

    async def tried(connection: McpConnection) -> None:
        listing = await connection.started()
        for one in listing.tools:
            changed = connection.changed(one.tool, one.digest)
            if as_json:
                write_json({"tool": one.spec.name, "changed": changed,
                            "description": one.spec.description,
                            "parameters": one.spec.parameters})  # fmt: skip
            else:
                mark = "  (changed since you first used it)" if changed else ""
                write_row(f"{one.spec.name}{mark}  {shorten(one.spec.description, 80)}")

    _connected(_find(name, workspace), tried)


@mcp.command()
@click.argument("name")
@workspace_option
@yes_option
def trust(name: str, workspace: Path, yes: bool) -> None:
    """Trust the server NAME: its definition, or the tools that it has changed since.

    A workspace's server starts only if you trust its definition. If you already do, this command
    starts it, shows the tools that changed since you first used them, and asks you to accept them.
    """
    entry = _find(name, workspace)
    entry.check()
    if not entry.trusted:
        if yes:
            # Also shown with --yes, so that a log of the command says what was trusted.
            show(entry)
            entry.trust()
        else:
            confirm_terminal()
            approve(entry)
        say(f"You trust {entry.name} as it is defined now.")
        return
    _connected(entry, partial(_accept, yes=yes))


@mcp.command()
@click.argument("name")
@click.option("--no-browser", is_flag=True, help="Only print the address to open.")
@workspace_option
def login(name: str, no_browser: bool, workspace: Path) -> None:
    """Log in to the server NAME in a browser. Only you can read the stored tokens."""
    from agent_runtime.tools.mcp.login import LOGIN_SECONDS, log_in

    server = _find(name, workspace).server()
    if not server.url:
        raise click.UsageError(f"{name} is a program on this machine; it has no login.")

    def tell(url: str) -> None:
        say(f"Log in to {name} at this address, within {LOGIN_SECONDS / 60:g} minutes:")
        # On stdout: the address is the result of the command.
        write_row(url)
        if not no_browser:
            click.launch(url)

    _run(lambda: log_in(server, tell))
    say(f"You are logged in to {name}.")


def confirm_terminal() -> None:
    """Raise `click.UsageError` if there is no terminal to ask on."""
    import sys

    if not sys.stdin.isatty():
        raise click.UsageError("There is no terminal to ask on: give --yes.")


async def _accept(connection: McpConnection, *, yes: bool) -> None:
    import anyio.to_thread

    from agent_runtime.human.display import escape_invisible
    from agent_runtime.tools.mcp.records import PINS, write_record

    listing = await connection.started()
    before, now = connection.pins, listing.digests
    changed = sorted(name for name in now if before.get(name) != now[name])
    gone = sorted(set(before) - set(now))
    if not changed and not gone:
        say("Its tools have not changed since you first used them.")
        return
    shown = {one.tool: one.spec for one in listing.tools}
    for name in changed:
        spec = shown.get(name)
        about = "not given to agents" if spec is None else escape_invisible(spec.description)
        say(f"  {'changed' if name in before else 'new'}: {escape_invisible(name)}: {about}")
        if spec is not None:
            say(f"    {escape_invisible(json.dumps(spec.parameters))}")
    for name in gone:
        say(f"  gone: {escape_invisible(name)}")
    await anyio.to_thread.run_sync(lambda: confirm("Accept these definitions?", yes=yes))
    await anyio.to_thread.run_sync(write_record, PINS, connection.server.pin_key, dict(now))
    say("They are accepted.")


def _connected(entry: ServerEntry, work: Callable[[McpConnection], Awaitable[None]]) -> None:
    from agent_runtime.tools.mcp.pool import connected

    server = entry.server()

    async def call() -> None:
        doing = "Connecting to" if server.url else "Starting"
        remark(f"{doing} {entry.name}, which may take {server.start_timeout:g} s.")
        async with connected(server) as connection:
            await work(connection)

    _run(call)


def _run(work: Callable[[], Awaitable[None]]) -> None:
    import anyio

    anyio.run(work)


def _find(name: str, workspace: Path) -> ServerEntry:
    from agent_runtime.tools.mcp.config import find_entries

    entries = find_entries(workspace.absolute())
    for one in entries:
        if one.name == name:
            return one
    known = ", ".join(one.name for one in entries) or "none"
    raise click.UsageError(f"There is no MCP server {name!r}. Those defined are: {known}.")


def _wrong(entry: ServerEntry) -> str:
    """Return why a definition cannot be used; empty if it can."""
    from agent_runtime.errors import ConfigError

    try:
        entry.check()
    except ConfigError as error:
        return " ".join(filter(None, (error.message, error.cure)))
    return ""


def _where(entry: ServerEntry) -> str:
    """Return what a server is, without its arguments, which may hold secrets."""
    from urllib.parse import urlsplit

    definition = entry.definition
    if url := definition.get("url"):
        try:
            # Without a user and a password, which may stand before it.
            return f"{urlsplit(str(url)).scheme}://{urlsplit(str(url)).netloc.rpartition('@')[2]}"
        except ValueError:
            return "a URL that is not valid"
    return shorten(str(definition.get("command")), 60)


def _file(project: bool, workspace: Path) -> Path:
    from agent_runtime.tools.mcp.config import FILE, user_file

    path = workspace.absolute() / FILE if project else user_file()
    if path is None:
        raise click.UsageError("You have no home folder: set HOME, or give --project.")
    return path


def _checked(name: str, definition: dict[str, Any], path: Path, project: bool) -> ServerEntry:
    """Return an entry whose definition is usable.  Raises `ConfigError`."""
    import dataclasses

    from agent_runtime.tools.mcp.config import ServerEntry, plain_name

    entry = ServerEntry(plain_name(name), definition, "user", path)
    # Every variable gets a value here: those that the definition names need not be set yet.
    entry.server(_Anything())
    return dataclasses.replace(entry, origin="workspace") if project else entry


class _Anything(dict[str, str]):
    def get(self, key: str, default: Any = None) -> Any:
        del key, default
        return "x"


def _pairs(values: tuple[str, ...]) -> dict[str, str]:
    for one in values:
        if "=" not in one:
            raise click.UsageError("--env and --header are given as NAME=VALUE.")
    return {name: value for name, _, value in (one.partition("=") for one in values)}


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the servers of a file, and the whole, which holds them.  Raises `ConfigError`."""
    from agent_runtime.tools.mcp.config import read_entries, read_file

    if not path.exists() and not path.is_symlink():
        servers: dict[str, Any] = {}
        return servers, {"mcpServers": servers}
    read_entries(path, "user")
    whole = cast("dict[str, Any]", json.loads(read_file(path)))
    return whole["mcpServers"], whole


def _write(path: Path, whole: dict[str, Any]) -> None:
    """Replace a file. A new one is private to the user; an existing one keeps its mode."""
    from agent_runtime.errors import ConfigError

    draft = ""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
        # In the same folder, because a rename is atomic only within a file system.
        number, draft = tempfile.mkstemp(dir=path.parent, prefix=".mcp-")
        with os.fdopen(number, "w", encoding="utf-8") as file:
            json.dump(whole, file, indent=2)
            file.write("\n")
        os.chmod(draft, mode)  # noqa: PTH101
        Path(draft).replace(path)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}.", cure="Check its permissions."
        ) from None
    finally:
        if draft:
            Path(draft).unlink(missing_ok=True)
