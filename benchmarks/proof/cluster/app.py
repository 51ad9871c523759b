"""The application that the services serve and the workers work for.

`CLUSTER_JOURNAL` names the file of its tools' effects, `CLUSTER_MODEL` the address of its model,
`CLUSTER_MEMBER` the process; without tokens of Procrastinate where `CLUSTER_TOKENS` is `0`.
"""

from __future__ import annotations

import os
import sys
from typing import Any, cast

from starlette.requests import HTTPConnection

from agent_runtime.log.leases import this_process_owner
from benchmarks.proof.cluster.agents import Effects, application
from benchmarks.proof.cluster.journal import Journal

if os.environ.get("CLUSTER_TOKENS") == "0":
    # As if it were not installed.
    cast("dict[str, Any]", sys.modules)["procrastinate"] = None

_member = os.environ.get("CLUSTER_MEMBER", "")
_journal = Journal(os.environ["CLUSTER_JOURNAL"])
_journal.note("member", member=_member, instance=this_process_owner().instance)
app = application(
    Effects(_journal, _member, float(os.environ["CLUSTER_PAUSE"])), os.environ["CLUSTER_MODEL"]
)


async def user_of(connection: HTTPConnection) -> str | None:
    """Return the user of a request, as it says itself."""
    return connection.headers.get("x-cluster-user")
