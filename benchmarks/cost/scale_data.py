"""Fill a Postgres with the rows of a large deployment, by statements and not by the store."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import LiteralString

import psycopg

OWNER = "user-000000"
"""The owner of a tenth of the threads, the longest one among them."""
LONG = "00000001-0000-7000-8000-000000000000"
"""The longest thread; it has a tenth of the nodes."""
SHORT = "00000002-0000-7000-8000-000000000000"
WORDS = 40
_SLICE = 5_000


@dataclass(frozen=True, slots=True)
class Size:
    """How much there is to be."""

    nodes: int
    threads: int
    users: int
    queued: int
    texts: int


_BEGIN: tuple[LiteralString, ...] = (
    "SET session_replication_role = replica",
    "SET search_path = agent_runtime, public",
    "SET statement_timeout = 0",
    "SET synchronous_commit = off",
    "SET maintenance_work_mem = '256MB'",
)
# k counts the threads; the first belongs to the first owner, and so does every tenth.
_THREADS: LiteralString = """
CREATE TEMP TABLE made AS
SELECT k, 'user-' || lpad((CASE WHEN k %% 10 = 1 OR k < 3 THEN 0 ELSE k %% %(users)s END)::text,
                      6, '0') AS user_id,
       lpad(to_hex(k), 8, '0') || '-0000-7000-8000-000000000000' AS id,
       CASE WHEN k = 1 THEN %(long)s
            ELSE 1 + (hashint4(k)::bigint & 2147483647) %% (2 * %(mean)s) END AS n,
       1.7e9 + k * 10.0 AS at
FROM generate_series(1, %(threads)s) AS k
"""
_SLICES: Mapping[str, LiteralString] = {
    "threads": """
        INSERT INTO threads (user_id, id, title, metadata, head, last_seq, last_activation,
                             last_event, last_usage, created_at, updated_at)
        SELECT user_id, id, 'Thread ' || k, '{"workspace": "/work"}', n, n, (n + 49) / 50, n,
               n / 2, at, at + n FROM made WHERE k > %(after)s AND k <= %(last)s""",
    "blobs": """
        INSERT INTO blobs (user_id, thread_id, hash, codec, data)
        SELECT user_id, id, sha256('prefix'), 'raw', convert_to(repeat('p', 2000), 'UTF8')
        FROM made WHERE k > %(after)s AND k <= %(last)s""",
    "runs": """
        INSERT INTO runs (user_id, id, thread_id, root_run_id, agent, status, stop_reason, task_id,
                          steps, max_steps, spec, epoch, created_at, updated_at, finished_at)
        SELECT user_id, run, id, run, 'helper', 'succeeded', 'completed', g, 50, 100,
               '{"model": "m"}', 1, at + g, at + g + 50, at + g + 50
        FROM made, generate_series(1, n, 50) AS g,
             LATERAL (SELECT lpad(to_hex(k), 8, '0') || '-' || lpad(to_hex(g), 12, '0')
                             || '-run' AS run) AS r
        WHERE k > %(after)s AND k <= %(last)s""",
    "nodes": """
        INSERT INTO nodes (user_id, thread_id, id, parent_id, kind, status, role, run_id,
                           activation_id, body, tokens, created_at)
        SELECT user_id, id, g, nullif(g - 1, 0),
               CASE g %% 2 WHEN 0 THEN 'exchange' ELSE 'message' END, 'closed',
               CASE g %% 2 WHEN 0 THEN 'assistant' ELSE 'user' END,
               lpad(to_hex(k), 8, '0') || '-' || lpad(to_hex(g - (g - 1) %% 50), 12, '0') || '-run',
               (g + 49) / 50, convert_to(repeat('w' || g, 25), 'UTF8'), 60, at + g
        FROM made, generate_series(1, n) AS g WHERE k > %(after)s AND k <= %(last)s""",
    "calls": """
        INSERT INTO calls (user_id, thread_id, node_id, position, tool, status, outcome, body,
                           tokens)
        SELECT user_id, id, g, 0, 'read', 'done', 'ok', convert_to(repeat('r', 150), 'UTF8'), 40
        FROM made, generate_series(2, n, 2) AS g WHERE k > %(after)s AND k <= %(last)s""",
    "events": """
        INSERT INTO events (user_id, thread_id, id, run_id, kind, node_id, data, created_at)
        SELECT user_id, id, g,
               lpad(to_hex(k), 8, '0') || '-' || lpad(to_hex(g - (g - 1) %% 50), 12, '0') || '-run',
               'answer', g, '{"tokens": 60}', at + g
        FROM made, generate_series(1, n) AS g WHERE k > %(after)s AND k <= %(last)s""",
    "usage": """
        INSERT INTO usage (user_id, thread_id, id, run_id, root_run_id, node_id, purpose, model,
                           prompt_tokens, cached_tokens, cache_write_tokens, completion_tokens,
                           counted_tokens, cost, reported, created_at)
        SELECT user_id, id, g / 2, run, run, g, 'step', 'model-' || g %% 3, 4000, 3000, 0, 60, 3990,
               1000, 1, at + g
        FROM made, generate_series(2, n, 2) AS g,
             LATERAL (SELECT lpad(to_hex(k), 8, '0') || '-'
                             || lpad(to_hex(g - (g - 1) %% 50), 12, '0') || '-run' AS run) AS r
        WHERE k > %(after)s AND k <= %(last)s""",
    "activations": """
        INSERT INTO activations (user_id, thread_id, id, anchor, cause, body, prefix_blob,
                                 created_at)
        SELECT user_id, id, (g + 49) / 50, nullif(g - 1, 0), 'grown', 'start', sha256('prefix'),
               at + g
        FROM made, generate_series(1, n, 50) AS g WHERE k > %(after)s AND k <= %(last)s""",
    "observations": """
        INSERT INTO observations (user_id, thread_id, id, level, parent_id, first_id, last_id,
                                  parts, provisional, body, tokens, created_at)
        SELECT user_id, id, g / 25, 0, nullif(g - 25, 0), g - 24, g, '[]', 0,
               convert_to(repeat('o', 300), 'UTF8'), 80, at + g
        FROM made, generate_series(25, n, 25) AS g WHERE k > %(after)s AND k <= %(last)s""",
}
# The first owner's texts have the words of texts that the store has indexed, others' have any.
_TEXTS: tuple[LiteralString, ...] = (
    """
    CREATE TEMP TABLE texts AS
    SELECT row_number() OVER () AS n, user_id, id AS thread_id, g AS node_id
    FROM made, LATERAL generate_series(3, n, greatest(1, (%(nodes)s / %(texts)s)::bigint)) AS g
    """,
    """
    CREATE TEMP TABLE real_terms AS
    SELECT row_number() OVER () - 1 AS n, terms FROM search_index LIMIT %(words)s
    """,
    """
    CREATE TEMP TABLE added AS
    WITH added AS (
        INSERT INTO search_texts (user_id, thread_id, node_id, call, length, version)
        SELECT user_id, thread_id, node_id, -1, 12, 2 FROM texts
        ON CONFLICT DO NOTHING RETURNING id, user_id, thread_id, node_id)
    SELECT id, user_id, CASE WHEN user_id = %(owner)s THEN (
               SELECT terms FROM real_terms
               WHERE real_terms.n = (node_id + hashtext(thread_id)::bigint + 2147483648)
                                    %% %(words)s)
           ELSE array_to_tsvector(ARRAY(
               SELECT substr(md5(user_id || (id * w) %% 5000), 1, 12)
               FROM generate_series(1, 8) AS w)) END AS terms
    FROM added
    """,
    "INSERT INTO search_index (id, terms) SELECT id, terms FROM added",
    """
    INSERT INTO search_entries (id, owner, length, repeats)
    SELECT id, user_id, 12, search_repeats(terms) FROM added
    """,
    """
    INSERT INTO search_totals (user_id, thread_id, texts, length)
    SELECT user_id, thread_id, count(*), 12 * count(*) FROM texts GROUP BY user_id, thread_id
    ON CONFLICT DO NOTHING
    """,
)
_STATES: tuple[LiteralString, ...] = (
    # Runs that wait for a worker, runs at work, and runs that wait for a person.
    """
    WITH queued AS (
        INSERT INTO runs (user_id, id, thread_id, root_run_id, agent, status, max_steps, spec,
                          epoch, created_at, updated_at)
        SELECT user_id, 'queued-' || k, id, 'queued-' || k, 'helper', 'queued', 0, '{}', 0, at, at
        FROM made WHERE k > 10 AND k <= 10 + %(queued)s RETURNING user_id, id, thread_id)
    INSERT INTO queue (user_id, run_id, thread_id, program, agent, version, model, state, share,
                       tag, enqueued_at, task)
    SELECT user_id, id, thread_id, 'app', 'helper', '1', 'm', 'waiting', user_id,
           row_number() OVER (PARTITION BY user_id ORDER BY id), unix_seconds(), 'task'
    FROM queued
    """,
    """
    UPDATE runs SET status = 'running', finished_at = NULL, stop_reason = NULL, lease_host = 'here',
        lease_boot = 'b1', lease_pid = 100, lease_started = 's1',
        lease_until = unix_seconds() + 3600
    WHERE (user_id, thread_id, task_id) IN (
        SELECT user_id, id, 1 FROM made WHERE k > 20000 AND k <= 20200)
    """,
    """
    UPDATE runs SET status = 'suspended', stop_reason = 'awaiting_user', finished_at = NULL
    WHERE (user_id, thread_id, task_id) IN (
        SELECT user_id, id, 1 FROM made WHERE k > 30000 AND k <= 31000)
    """,
    """
    INSERT INTO jobs (user_id, id, thread_id, kind, key, payload, status, due_at, created_at)
    SELECT user_id, 'job-' || k, id, 'observe', '1', '', CASE WHEN k %% 50 = 0 THEN 'ready'
           ELSE 'done' END, at, at FROM made WHERE k %% 2 = 0
    """,
    """
    INSERT INTO archives (user_id, thread_id, title, created_at, updated_at, archived_at, place,
                          digests, threads, records, bytes, stored_bytes)
    SELECT user_id, 'archived-' || k, 'Old thread', at, at, at, 'x/archives/' || k,
           sha256(k::text::bytea), 1, 100, 10000, 2000 FROM made
    """,
    """
    INSERT INTO spending (user_id, day, settled_tokens, settled_cost)
    SELECT DISTINCT user_id, floor(unix_seconds() / 86400)::bigint - d, 1000, 1000
    FROM made, generate_series(0, 30) AS d
    """,
)


def fill(url: str, size: Size) -> dict[str, float]:
    """Write the rows, and return the seconds that each table took.

    Args:
        url: for a superuser of the database, which has the store's schema and the first owner's
            `WORDS` texts.
    """
    seconds: dict[str, float] = {}
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in _BEGIN:
            connection.execute(statement)
        values = {
            "threads": size.threads,
            "users": size.users,
            "long": size.nodes // 10,
            "mean": max(1, (size.nodes - size.nodes // 10) // size.threads),
            "nodes": size.nodes,
            "texts": size.texts,
            "queued": size.queued,
            "words": WORDS,
            "owner": OWNER,
        }
        connection.execute(_THREADS, values)
        for name, statement in _SLICES.items():
            began = time.monotonic()
            for after in range(0, size.threads, _SLICE):
                place = {"after": after, "last": after + _SLICE}
                connection.execute(statement, place)
            seconds[name] = time.monotonic() - began
            print(f"{name}: {seconds[name]:.0f} s", file=sys.stderr, flush=True)
        began = time.monotonic()
        for statement in _TEXTS:
            connection.execute(statement, values)
        seconds["texts"] = time.monotonic() - began
        began = time.monotonic()
        for statement in _STATES:
            connection.execute(statement, values)
        connection.execute("VACUUM (ANALYZE)")
        seconds["vacuum"] = time.monotonic() - began
        print(f"texts: {seconds['texts']:.0f} s", file=sys.stderr, flush=True)
    return seconds
