"""Plans for any values, which batches of Postgres have: none of them reads a whole thread."""

from __future__ import annotations

import psycopg

from agent_runtime_storage import open_store
from agent_runtime_storage.drivers.protocol import Statement, Value
from agent_runtime_storage.sql.loader import load_queries
from benchmarks.cost.scale_plans import Explainer, Recorded

LONG = 5000
OWNERS = [f"u{number}" for number in range(20)]
"""Of many owners with threads of their own names: the planner takes the two for independent."""
_THREADS = """
INSERT INTO threads (user_id, id, title, metadata, created_at, updated_at)
SELECT %(owner)s, %(owner)s || number, '', '{}', 0, 0 FROM generate_series(1, 20) AS number
"""
_NODES = """
INSERT INTO nodes (user_id, thread_id, id, parent_id, kind, status, role, activation_id, body,
                   tokens, created_at)
SELECT %(owner)s, %(owner)s || thread, id, nullif(id - 1, 0), 'message', 'closed', 'user', 1, '',
       0, 0
FROM generate_series(1, 20) AS thread
CROSS JOIN generate_series(1, CASE WHEN thread = 1 THEN %(long)s ELSE 1 END) AS id
"""


async def test_a_step_finds_a_node_by_its_key(postgres_url: str) -> None:
    await (await open_store(postgres_url)).close()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("SET search_path = agent_runtime, public")
        for owner in OWNERS:
            connection.execute("SELECT set_config('agent_runtime.user_id', %s, false)", [owner])
            long = LONG if owner == OWNERS[0] else 1
            connection.execute(_THREADS, {"owner": owner})
            connection.execute(_NODES, {"owner": owner, "long": long})
        connection.execute("ANALYZE")
    found: dict[str, Value] = {
        "user_id": OWNERS[0], "thread_id": f"{OWNERS[0]}1", "head": LONG, "id": LONG + 1,
        "parent_id": LONG, "kind": "message", "status": "closed", "role": "user", "run_id": None,
        "activation_id": 1, "body": b"", "blob": None, "tokens": 0,
    }  # fmt: skip
    queries = load_queries("postgres")
    statements = tuple(Statement(queries[name], found) for name in ("set_head", "append_node"))
    explainer = Explainer(postgres_url)
    try:
        plans = explainer.plans(Recorded(OWNERS[0], statements, "force_generic_plan"))
    finally:
        explainer.close()

    # An index of a thread's nodes by their parents looked as good, and was read from end to end.
    assert [[one for one in plan.indexes if one.startswith("nodes")] for plan in plans] == [
        ["nodes_pkey"], ["nodes_pkey"]
    ]  # fmt: skip
