"""`agent-runtime serve`: the HTTP service."""

from __future__ import annotations

import dataclasses
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from agent_runtime.cli.extras import needs_extra
from agent_runtime.cli.parameters.run_options import RunOptions, run_options
from agent_runtime.cli.terminal import say

if TYPE_CHECKING:
    import socket

    from agent_runtime.server.users import Authenticate
    from agent_runtime.workflow.registry import Registry
    from agent_runtime_config import Settings

PORT = 8420


@click.command()
@click.argument("app", required=False)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True)
@click.option(
    "--auth", metavar="MODULE:NAME", help="An async function from a request to its user or None."
)
@click.option("--a2a", is_flag=True, help="Also serve the Agent2Agent protocol.")
@run_options
def serve(
    app: str | None, host: str, port: int, auth: str | None, a2a: bool, options: RunOptions
) -> None:
    """Serve threads and runs by HTTP, on this machine unless --host says otherwise.

    APP names an `App`, an agent or a workflow, as `module:name`; without it, the agent of
    `agent-runtime run` is served, with the options given here. Users come with tokens of
    `agent-runtime tokens make`. On this machine alone none are needed; once there is one, they are.

    \b
    Examples:
      agent-runtime serve --workspace . --ask-shell
      agent-runtime serve my_agents:app --host 0.0.0.0
    """
    from agent_runtime_config import load_settings

    with needs_extra("server", "The service"):
        # Before anything is asked or loaded.
        for module in ("uvicorn", "agent_runtime.server"):
            import_module(module)
    settings = load_settings()
    if app is not None:
        if options != RunOptions():
            raise click.UsageError("APP has its own agents: leave out the options of a run.")
        from agent_runtime.cli.service.applications import load_app

        registry = load_app(app)
    else:
        registry, settings = _own_agent(options, settings)
    _serve(registry, settings, host, port, _authenticate(auth, settings, host), a2a)


def _own_agent(options: RunOptions, settings: Settings) -> tuple[Registry, Settings]:
    from agent_runtime.cli.service.applications import CommandApp

    spec = options.new_spec(settings)
    # People answer by the service, whether or not this is a terminal.
    spec = dataclasses.replace(spec, asking=bool(spec.model))
    return CommandApp(spec), options.limited(settings, spec)


def _authenticate(auth: str | None, settings: Settings, host: str) -> Any:
    """Return how a request's user is found: by a hook, by tokens, or not at all on this machine.

    Raises:
        ConfigError: the service would listen beyond this machine without either.
    """
    from agent_runtime.cli.runtime_calls import with_runtime
    from agent_runtime.errors import ConfigError
    from agent_runtime.server.guard import is_loopback

    if auth is not None:
        return load_hook(auth)
    # Also where all are revoked or have expired: that must not open the service to everybody.
    if with_runtime(lambda runtime: runtime.store.service.tokens(), settings):
        return "tokens"
    if not is_loopback(host):
        raise ConfigError(
            f"Without tokens the service does not listen on {host}: whoever reaches it could run "
            "the agents.",
            cure="Make a token first: `agent-runtime tokens make USER`.",
        )
    say("There are no tokens: whoever can use this machine's network may use the service.")
    return "local"


def load_hook(target: str) -> Authenticate:
    """Return the async function that `module:name` names. Raises `ConfigError`."""
    import inspect

    from agent_runtime.cli.service.applications import load_named
    from agent_runtime.errors import ConfigError

    found = load_named(target, "--auth")
    if not inspect.iscoroutinefunction(found):
        raise ConfigError(f"{target!r} names no async function.", cure="Write it as `module:name`.")
    hook: Authenticate = found
    return hook


def _listening(host: str, port: int) -> list[socket.socket]:
    """Return a socket for each address of a host. Raises `ConfigError`."""
    import socket

    from agent_runtime.errors import ConfigError

    opened: list[socket.socket] = []
    try:
        # The order of the addresses is kept, and a name's repeated ones are left out.
        for family, address in dict.fromkeys(
            (family, address[:2])
            for family, _, _, _, address in socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
        ):
            opened.append(socket.create_server(address, family=family, backlog=2048))
    except (OSError, UnicodeError) as error:
        for one in opened:
            one.close()
        reason = getattr(error, "strerror", None) or "that is no name of a host"
        raise ConfigError(
            f"The service cannot listen on {host!r}, port {port}: {reason}.",
            cure="Choose another --host or --port; --port 0 takes a free one.",
        ) from error
    return opened


def _serve(
    registry: Registry, settings: Settings, host: str, port: int, users: Any, a2a: bool
) -> None:
    import uvicorn

    from agent_runtime.server import create_app
    from agent_runtime.server.process import ServiceServer

    service = create_app(registry, settings=settings, authenticate=users, a2a=a2a)
    config = uvicorn.Config(
        service, log_level="warning", access_log=False, lifespan="on",
        server_header=False, h11_max_incomplete_event_size=65_536, timeout_graceful_shutdown=10,
        ws="none",
    )  # fmt: skip
    server = ServiceServer(config, service, lambda address: say(f"Serving on {address}"))
    server.run(_listening(host, port))
    # It has logged why.
    if not server.started:
        raise click.exceptions.Exit(1)
