"""The application of the cluster, which its services serve and its workers work for.

`CLUSTER_JOURNAL` names the file of its tools' effects, `CLUSTER_MODEL` the address of its model,
`CLUSTER_MEMBER` the process; without tokens of Procrastinate where `CLUSTER_TOKENS` is `0`.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any, cast

import anyio
from starlette.requests import HTTPConnection

from agent_runtime import Agent, App, Delegation, ToolContext, tool
from agent_runtime.log.leases import this_process_owner
from agent_runtime.models.native import NativeModel
from benchmarks.proof.cluster.journal import Journal

PAUSE = 0.05
"""Seconds between the beginning and the effect of a call, so that faults meet tools."""
USER_HEADER = "x-cluster-user"

if os.environ.get("CLUSTER_TOKENS") == "0":
    # As if it were not installed.
    cast("dict[str, Any]", sys.modules)["procrastinate"] = None

_member = os.environ.get("CLUSTER_MEMBER", "")
_journal = Journal(os.environ["CLUSTER_JOURNAL"])
_pause = float(os.environ.get("CLUSTER_PAUSE", PAUSE))
_journal.note("member", member=_member, instance=this_process_owner().instance)


async def user_of(connection: HTTPConnection) -> str | None:
    """Return the user of a request, as it says itself."""
    return connection.headers.get(USER_HEADER)


def _note(what: str, context: ToolContext, item: str) -> None:
    _journal.note(
        what, item=item, tool=item.rpartition("/")[2], thread=context.thread_id,
        run=context.run_id, call=context.call_id, member=_member, user=context.user_id,
        cpu=time.process_time(),
    )  # fmt: skip


async def _on_the_loop(context: ToolContext, item: str) -> str:
    _note("begin", context, item)
    await anyio.sleep(_pause)
    _note("effect", context, item)
    return f"{item} is done."


def _in_a_thread(context: ToolContext, item: str) -> str:
    _note("begin", context, item)
    time.sleep(_pause)
    _note("effect", context, item)
    return f"{item} is done."


@tool
async def send(context: ToolContext, item: str) -> str:
    """Send a message: it must not be sent twice."""
    return await _on_the_loop(context, item)


@tool(idempotent=True)
async def put(context: ToolContext, item: str) -> str:
    """Put a value; putting it again does no harm."""
    return await _on_the_loop(context, item)


@tool
def press(context: ToolContext, item: str) -> str:
    """Press a button, in a thread; it must not be pressed twice."""
    return _in_a_thread(context, item)


@tool(idempotent=True)
def fetch(context: ToolContext, item: str) -> str:
    """Fetch a page, in a thread; fetching it again does no harm."""
    return _in_a_thread(context, item)


def _agent(name: str, delegation: Delegation | None = None) -> Agent:
    model = NativeModel(
        "openai/scripted", base_url=os.environ["CLUSTER_MODEL"], api_key="unused", rate_limits="off"
    )
    return Agent(
        model,
        tools=[send, put, press, fetch],
        instructions="Be exact.",
        delegation=delegation or False,
        name=name,
    )


app = App(
    agents={
        "alone": _agent("alone"),
        "tick": _agent("tick"),
        "inside": _agent("inside", Delegation(placement="process")),
        "placed": _agent("placed", Delegation(placement="queue")),
    },
    name="cluster",
)
