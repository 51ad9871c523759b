"""Resume a background task's run from outside: build its agent again, and send its outcome."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from agent_runtime.agent import Agent, Runnable
from agent_runtime.delegation.background import require_delivery
from agent_runtime.delegation.request import sub_agent
from agent_runtime.delegation.tool import delegator_of
from agent_runtime.log.run_spec import delegation_record
from agent_runtime.run.queue.children import deliver_end
from agent_runtime.run.resolve import agent_of_run, with_servers
from agent_runtime.tools.context_sources.base import ContextSources
from agent_runtime.tools.mcp.pool import McpConnections
from agent_runtime.tools.toolset import Toolset
from agent_runtime_config import Settings
from agent_runtime_storage.contract.records.log import Run
from agent_runtime_storage.contract.store import UserStore


async def agent_run_of(store: UserStore, run: Run) -> Run:
    """Return the run whose agent resumes a run: itself, or that which delegated it as a task."""
    record = delegation_record(run)
    if run.parent_run_id is None or record is None or record.built is None:
        return run
    return await store.runs.get(run.parent_run_id)


@asynccontextmanager
async def resuming_task(
    store: UserStore,
    run: Run,
    agent: Runnable[Any],
    servers: McpConnections,
    settings: Settings,
) -> AsyncGenerator[Runnable[Any]]:
    """Give the agent that resumes a run; if it is a task's and ends, send its outcome afterwards.

    Args:
        agent: of a background task, the agent that delegated it; else the run's own.

    Raises:
        ConfigError: the agent has no longer what the task was given.
        McpServerFailed: a server cannot be used.
    """
    record = delegation_record(run)
    built = record.built if record is not None else None
    if built is None or not isinstance(agent, Agent) or not agent.delegation:
        yield agent
        return
    thread_id = (await agent_run_of(store, run)).thread_id
    # With the tools that its run had: the task may have been given any of them.
    whole = await agent_of_run(await with_servers(agent, servers, store.user_id), settings)
    delegator = delegator_of(whole, Toolset(whole.tools), levels=settings.delegation_depth)
    assignment, _ = delegator.placed(built)
    sources, steps = ContextSources(tuple(whole.context)), settings.sub_agent_max_steps
    # The message of the process that began it may have been sent already.
    key = await require_delivery(store, thread_id, run.id)
    yield sub_agent(assignment, thread_id, sources, whole.hooks, steps)
    await deliver_end(store, run.id, settings.max_file_bytes, key)
