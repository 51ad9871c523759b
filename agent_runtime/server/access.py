"""What the handler of a request may use: the runtime, and the store of the request's user."""

from __future__ import annotations

from starlette.requests import HTTPConnection

from agent_runtime.errors import ConfigError
from agent_runtime.runtime import Runtime
from agent_runtime_storage import UserStore


def runtime_of(connection: HTTPConnection) -> Runtime:
    """Return the application's runtime, which is open while it serves.

    Raises:
        ConfigError: the service is mounted without one.
    """
    runtime = getattr(connection.app.state, "runtime", None)
    if runtime is None:
        raise ConfigError(
            "The service has no open runtime: a server starts the outer application only.",
            cure="Open one in its lifespan, and give it: `create_app(app, runtime=runtime)`.",
        )
    return runtime


def user_of(connection: HTTPConnection) -> str:
    """Return the id of the user whom the request's authentication has named."""
    return connection.state.user


def store_of(connection: HTTPConnection) -> UserStore:
    """Return the store of the request's user: it holds nothing of other users."""
    return runtime_of(connection).store_of(user_of(connection))
