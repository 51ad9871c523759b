"""The routes of all protocols, for an application to mount."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

from starlette.routing import BaseRoute

from agent_runtime.agent import Agent
from agent_runtime.errors import ConfigError
from agent_runtime.server.protocols.ai_sdk import ai_sdk_routes
from agent_runtime.server.protocols.openai_chat import openai_routes
from agent_runtime.server.protocols.turns import ClientTurns
from agent_runtime.workflow.definition import Workflow
from agent_runtime_storage.contract.records.log import Run


def protocol_routes(
    agents: Mapping[str, Agent | Workflow],
    spec: Mapping[str, Any] | None = None,
    of_run: Callable[[Run], Agent | Workflow | None] | None = None,
    *,
    a2a: bool = False,
) -> list[BaseRoute]:
    """Return the routes of the protocols whose packages are installed.

    The AI SDK's and OpenAI's need none, AG-UI's the extra `ag-ui`, MCP's the extra `mcp`, A2A's the
    extra `a2a`.

    Args:
        agents: what clients may run, by the names that they use.
        spec: stored with each run; must not hold secrets.
        of_run: returns what continues a run, None for one of another program; by default the agent
            that has the name of the run's.
        a2a: whether with A2A, whose card tells everybody the name of the first agent.

    Raises:
        ConfigError: A2A is asked for, and its package is not installed.
    """
    turns = ClientTurns(agents, spec, of_run)
    routes: list[BaseRoute] = [*ai_sdk_routes(turns), *openai_routes(turns)]
    if find_spec("ag_ui") is not None:
        from agent_runtime.server.protocols.ag_ui import ag_ui_routes

        routes += ag_ui_routes(turns)
    if find_spec("mcp") is not None:
        from agent_runtime.server.protocols.mcp_http import mcp_routes

        routes += mcp_routes(turns)
    if a2a:
        if find_spec("a2a") is None:
            raise ConfigError("Agent2Agent needs its SDK.", cure="Install `agent-runtime-om[a2a]`.")
        from agent_runtime.server.protocols.a2a import a2a_routes

        routes += a2a_routes(turns)
    return routes
