"""What a service has in addition to its runtime: what it runs, its limits, its closing."""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio
from starlette.requests import HTTPConnection

from agent_runtime.server.feeds import Feeds
from agent_runtime.server.limits import UserLimits
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
