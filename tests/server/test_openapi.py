# The types of schemathesis are partly unknown.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false
"""The description of the service is whole and true."""

from __future__ import annotations

from typing import Any, cast

import anyio
import anyio.to_thread
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from starlette.routing import Route

from agent_runtime import Agent, App, Settings
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, say
from agent_runtime.server import create_app
from agent_runtime.server.app import OPERATIONS
from agent_runtime.server.openapi import openapi_of
from tests.server.serving import double, serving

LEFT_OUT = ("/api/openapi.json", "/api/inspector/")
"""What the description leaves out below `/api`: itself, and what only the page reads."""


def test_every_route_stands_in_it() -> None:
    made = create_app(App(agents={"a": Agent()}), settings=Settings())
    described = openapi_of(OPERATIONS)
    listed = {(path, method.upper()) for path, one in described["paths"].items() for method in one}
    served = {
        (route.path, method)
        for route in made.routes
        if isinstance(route, Route) and route.path.startswith("/api/")
        if not route.path.startswith(LEFT_OUT)
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert listed == served
    names = [one["operationId"] for path in described["paths"].values() for one in path.values()]
    assert len(names) == len(set(names))
    assert all(one["summary"] for path in described["paths"].values() for one in path.values())


async def _attack(database_url: str, examples: int) -> None:
    """Send requests made of the description, and check every answer against it."""
    # Every process of the session would import it with this module.
    import schemathesis
    from schemathesis.checks import not_a_server_error
    from schemathesis.core.result import Ok
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    agents = {"worker": Agent(tools=[double])}

    def script(request: ModelRequest) -> Scripted:
        return call("double", number=1) if len(request.messages) < 3 else say("Done.")

    limits = {"service_max_runs": 1000, "service_heartbeat": 0.05}
    async with serving(database_url, script, agents=agents, settings=limits) as service:
        await service.client.post("/api/threads", json={"id": "0"})
        checks = [
            not_a_server_error,
            content_type_conformance,
            response_schema_conformance,
            status_code_conformance,
        ]

        def work() -> None:
            described = openapi_of(OPERATIONS)
            schema = schemathesis.openapi.from_dict(described)
            schema.config.update(base_url=service.url)
            for result in schema.get_all_operations():
                assert isinstance(result, Ok), result
                operation = result.ok()
                # A stream does not end; its errors are tested elsewhere.
                if operation.path.endswith("/events"):
                    continue

                @given(case=operation.as_strategy())
                @settings(
                    max_examples=examples, deadline=None, database=None, derandomize=True,
                    phases=(Phase.generate,), suppress_health_check=cast("Any", tuple(HealthCheck)),
                )  # fmt: skip
                def check(case: Any) -> None:
                    response = case.call(headers=service.to("ann"), timeout=10)
                    case.validate_response(response, checks=checks)

                check()

        await anyio.to_thread.run_sync(work)


@pytest.mark.backends("file")
async def test_no_request_of_the_description_breaks_the_service(database_url: str) -> None:
    await _attack(database_url, 1)


@pytest.mark.slow
@pytest.mark.backends("file", "postgres")
async def test_no_request_of_the_description_breaks_the_service_long(database_url: str) -> None:
    await _attack(database_url, 100)
