"""What a service has in addition to its runtime: what it runs, its limits, its closing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio
from starlette.requests import HTTPConnection

from agent_runtime.run.process.detached import StartedRun
from agent_runtime.server.feeds import Feeds
from agent_runtime.server.limits import UserLimits
from agent_runtime.server.problems import ServiceError
from agent_runtime.server.users import Authenticate
from agent_runtime.workflow.registry import Registry
from agent_runtime_config import Settings

START_SECONDS = 20.0
"""How long a start waits for a place where the process has as many runs as it admits."""


@dataclass(slots=True)
class ServiceState:
    """The state of a service.

    Attributes:
        registry: what it runs.
        authenticate: says whose a request is; None where there is one user.
        closing: set when the service is about to end; then its streams end.
        feeds: what the streams of events share.
    """

    registry: Registry
    settings: Settings
    limits: UserLimits
    authenticate: Authenticate | None
    closing: anyio.Event = field(default_factory=anyio.Event)
    feeds: Feeds = field(default_factory=Feeds)


def service_of(connection: HTTPConnection) -> ServiceState:
    """Return the state of the service that a request came to."""
    return connection.app.state.service


async def start_within_limits(
    service: ServiceState | None, user: str, start: Callable[[], Awaitable[StartedRun]]
) -> StartedRun:
    """Start a run of a user, whose place is given back when the run's work ends.

    Args:
        service: None for no limit of a user's runs.

    Raises:
        ServiceError: the user has the most runs at work (429), or the process has (503).
    """
    give_back = _nothing if service is None else service.limits.begin_run(user)
    try:
        with anyio.fail_after(START_SECONDS):
            started = await start()
    except TimeoutError:
        give_back()
        raise ServiceError(
            503, "full", "The service has as many runs at work as it may.",
            cure="Try again later, or raise AGENT_RUNTIME_MAX_RUNS.", retry_after=START_SECONDS,
        ) from None  # fmt: skip
    except BaseException:
        give_back()
        raise
    # At the end of the run's work, not of the request, which may have left long before.
    started.task.add_done_callback(lambda _: give_back())
    return started


def _nothing() -> None:
    return
