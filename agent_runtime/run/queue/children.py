"""Sub-agents' runs in the queue: enqueue one below a run, build its agent, deliver its end."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from agent_runtime.agent import Agent
from agent_runtime.delegation.background import deliver_result
from agent_runtime.delegation.placed import ChildQueue, path_to
from agent_runtime.delegation.request import sub_agent
from agent_runtime.delegation.tool import delegator_of
from agent_runtime.errors import AgentRuntimeError
from agent_runtime.log.run_log import RunLog
from agent_runtime.log.run_spec import RunSpec, delegation_record
from agent_runtime.messages import UserMessage, encodable, encode_message
from agent_runtime.run.queue.enqueue import Agents
from agent_runtime.run.resolve import agent_of_run, with_servers
from agent_runtime.run.start import title_of
from agent_runtime.tools.context_sources.base import ContextSources
from agent_runtime.tools.mcp.pool import McpConnections
from agent_runtime.tools.toolset import Toolset
from agent_runtime_config import Settings
from agent_runtime_storage.contract.ids import new_id
from agent_runtime_storage.contract.records.log import ACTIVE, Run
from agent_runtime_storage.contract.records.queue import NewQueuedRun
from agent_runtime_storage.contract.store import UserStore

_log = logging.getLogger(__name__)


def child_queue(
    log: RunLog, settings: Settings, user_context: Mapping[str, Any]
) -> ChildQueue | None:
    """Return what enqueues runs below a log's run; None if that is none of the queue's."""
    # A plain runtime has no workers that would pick the child.
    if not log.lease.queued:
        return None

    async def enqueue(name: str, text: str, spec: RunSpec) -> str:
        task, run_id = UserMessage(encodable(text)), new_id()
        spec = spec.with_context(user_context)
        placed = (spec.delegation and spec.delegation.placed) or {}
        other = settings.sub_agent_model
        run = NewQueuedRun(
            id=run_id,
            thread_id=new_id(),
            agent=encodable(name),
            program="",
            task=encode_message(task).decode(),
            spec={},
            internal=spec.internal(),
            title=title_of(task),
            model=placed.get("model") or ("" if other == "same" else other),
            # The store gives it the share of its parent.
            share="",
            parent=log.lease,
        )
        await log.store.queue.enqueue(run)
        return run_id

    return ChildQueue(enqueue)


async def child_agent(
    store: UserStore, run: Run, agents: Agents, servers: McpConnections, settings: Settings
) -> Agent[Any] | None:
    """Return the agent of a sub-agent's queued run; None if the root's may not continue here.

    Raises:
        ConfigError: the root's agent does not delegate any more, or lacks a tool of the run.
        McpServerFailed: a server cannot be used.
    """
    root, path = await path_to(store, run)
    agent = agents.of_run(root)
    if not isinstance(agent, Agent):
        return None
    whole = await with_servers(agent, servers, store.user_id)
    agent = await agent_of_run(whole, settings)
    delegator = delegator_of(agent, Toolset(agent.tools), levels=settings.delegation_depth)
    for one in path:
        assignment, delegator = delegator.placed(one.placed)
        sources = ContextSources(tuple(agent.context))
        steps = settings.sub_agent_max_steps
        agent = sub_agent(assignment, one.thread_id, sources, agent.hooks, steps)
    return agent


async def deliver_end(store: UserStore, run_id: str, max_bytes: int, key: str = "") -> None:
    """Send the message about a background task that has ended; else whoever is next sends it.

    Args:
        key: of the job that owes it; by default the first.
    """
    try:
        run = await store.runs.get(run_id)
        record = delegation_record(run)
        if record is None or not record.background or run.status in ACTIVE:
            return
        parent = await store.runs.get(run.parent_run_id or "")
        # Of others nothing: one whose process died may be about to be continued.
        await deliver_result(store, parent.thread_id, key or f"{run_id}/1", max_bytes)
    except AgentRuntimeError as error:
        _log.warning("The message of task %s will be sent later: %s", run_id, type(error).__name__)
