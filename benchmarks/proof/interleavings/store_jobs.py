"""Judges the durable jobs of an interleaving."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from agent_runtime_storage.drivers.protocol import Row
from benchmarks.proof.interleavings.history import Op


def _of(history: Sequence[Op], what: str) -> list[Op]:
    return [op for op in history if op.what == what]


def check_jobs(rows: Sequence[Row], history: Sequence[Op]) -> list[str]:
    """Return the faults of the jobs: each must be done once, by the holder of its newest claim."""
    problems: list[str] = []
    jobs = {row[0]: row for row in rows}
    if len(jobs) != len(rows):
        problems.append("a job is there twice")
    added = Counter(op.facts["key"] for op in _of(history, "enqueue") if op.facts.get("added"))
    for key, count in added.items():
        if count > 1 or key not in jobs:
            problems.append(f"job {key} was added {count} times, is {jobs.get(key)}")
    claims = [op for op in _of(history, "claim") if "attempt" in op.facts]
    for (key, attempt), count in Counter(
        (op.facts["key"], op.facts["attempt"]) for op in claims
    ).items():
        if count > 1 or attempt > jobs[key][2]:
            problems.append(f"attempt {attempt} of job {key} was given {count} times")
    settled = [op for op in _of(history, "settle_job") if op.outcome == "ok"]
    for end in settled:
        key, attempt = end.facts["key"], end.facts["attempt"]
        for claim in claims:
            if claim.facts["key"] != key or claim.facts["attempt"] <= attempt:
                continue
            if claim.end is not None and claim.end < end.start:
                problems.append(f"{end.id} ended job {key} after {claim.id} had claimed it")
            if end.facts["how"] != "retry" and end.end is not None and end.end < claim.start:
                problems.append(f"{claim.id} claimed job {key}, which {end.id} had ended")
    for first in claims:
        key = first.facts["key"]
        for second in claims:
            if second.facts["key"] != key or not first.facts["seconds"]:
                continue
            freed = [
                op
                for op in _of(history, "settle_job")
                if op.facts.get("key") == key and op.start < (second.end or 0)
            ]
            if (first.end or second.start) < second.start and not freed:
                problems.append(f"{second.id} claimed job {key}, which {first.id} holds")
    for key, status, _ in jobs.values():
        over = {"done": "done", "failed": "give up"}.get(status)
        tried = [op for op in _of(history, "settle_job") if op.facts.get("key") == key]
        if over and not any(op.facts["how"] == over for op in tried):
            problems.append(f"job {key} is {status} by nobody")
    return problems
