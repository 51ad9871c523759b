"""The log of attempts at a task: what the next attempt reads about those before it.

It is not a table.  An attempt is the run that made it: the run's record keeps the key and what was
asked, its log says how it went.  So no crash can separate an attempt from its entry, and a fork or
an edit of the asking thread sees the attempts of its own branch only.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent_runtime.delegation.outcome import Outcome, outcome_of_run
from agent_runtime.errors import StoreError
from agent_runtime.log.run_spec import DelegationRecord, delegation_record
from agent_runtime.messages import call_place
from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.text import one_line, shorten
from agent_runtime_config.counted import counted
from agent_runtime_storage.contract.records.log import ACTIVE, Run
from agent_runtime_storage.contract.store import UserStore

TOKENS = 2000
"""Tokens of a sub-agent's task that the log may take, by our count."""
MOST = 20
"""Attempts in the log; older ones are left out."""
RESULT_CHARS = 2000
SHORT_CHARS = 100

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a task (n8n's IterationLog entry).

    Attributes:
        attempt: its number, from 1.
        action: the sub-agent's role and instructions.
        result: its last words; `status` says whether they completed the task.
        error: what stopped it, and the errors of its tools, as observed.
        diagnosis: why it failed, as given with the next attempt.
        fix_applied: what the next attempt does differently, as given there.
    """

    attempt: int
    status: str
    action: str
    result: str
    error: str
    diagnosis: str = ""
    fix_applied: str = ""

    def text(self, chars: int) -> str:
        """Return the entry as the next attempt reads it, with at most `chars` of each text."""
        lines = [f"Attempt {self.attempt} ({self.status})"]
        for name in ("action", "result", "error", "diagnosis", "fix_applied"):
            if text := shorten(one_line(getattr(self, name)), chars):
                lines.append(f"- {name}: {text}")
        return "\n".join(lines)


async def earlier_runs(
    store: UserStore, thread_id: str, key: str
) -> list[tuple[Run, DelegationRecord]]:
    """Return the runs that were delegated under a key on the thread's branch, oldest first.

    Includes those of an exchange that is still open at the head.

    Raises:
        StoreError: they cannot be read.
    """
    runs: list[tuple[Run, DelegationRecord, int]] = []
    # By thread, not by run: earlier runs on the thread may have tried the task too.
    for run in await store.runs.list(parent_thread_id=thread_id, task_key=key, limit=1000):
        record = delegation_record(run)
        if record is None:
            continue
        try:
            runs.append((run, record, call_place(record.call)[0]))
        except ValueError:
            _log.warning("Run %s names no call that began it: %r.", run.id, record.call[:20])
    if not runs:
        return []
    head = (await store.threads.get(thread_id)).head
    nodes = {node for _, _, node in runs}
    # A fork or an edit must not see what another branch delegated.
    branch = set(await store.log.lineage(thread_id, head or 0, first=min(nodes)))
    # The head moves only to closed exchanges, but the call that delegates is in an open one.
    for node in nodes - branch:
        row = await store.log.node(thread_id, node)
        if row.status == "open" and row.parent_id == head:
            branch.add(node)
    return [(run, record) for run, record, node in reversed(runs) if node in branch]


async def attempt_number(store: UserStore, thread_id: str, key: str, run: Run) -> int:
    """Return which attempt at its task a run on the thread's branch is, from 1.

    Raises:
        StoreError: the attempts cannot be read.
    """
    known = [one.id for one, _ in await earlier_runs(store, thread_id, key)]
    # The thread may have moved to another branch since the task began.
    return known.index(run.id) + 1 if run.id in known else 1


async def attempts(
    store: UserStore,
    runs: Sequence[tuple[Run, DelegationRecord]],
    *,
    diagnosis: str,
    fix_applied: str,
) -> list[Attempt]:
    """Return the log of the attempts that are over, oldest first: the newest `MOST`.

    An attempt that cannot be read is skipped with a warning.

    Args:
        diagnosis, fix_applied: what the new attempt says about the last one.
    """
    entries: list[Attempt] = []
    done = [(number, *one) for number, one in enumerate(runs, 1) if one[0].status not in ACTIVE]
    # What is given with an attempt is about the one before it.
    remarks = [(record.diagnosis, record.fix_applied) for _, _, record in done[1:]]
    remarks.append((diagnosis.strip(), fix_applied.strip()))
    for (number, run, record), (why, fix) in list(zip(done, remarks, strict=False))[-MOST:]:
        try:
            entry = _entry(number, record, await outcome_of_run(store, run))
        except (StoreError, ValueError) as error:
            _log.warning("Attempt %d, run %s, cannot be read: %s", number, run.id, error)
            continue
        entries.append(replace(entry, diagnosis=why, fix_applied=fix))
    return entries


def _entry(number: int, record: DelegationRecord, outcome: Outcome) -> Attempt:
    errors = [*outcome.blockers, *(f"{one.tool}: {one.error}" for one in outcome.tool_errors)]
    status = outcome.status
    if not outcome.ok and outcome.stop_reason:
        status = f"{outcome.status}, {outcome.stop_reason}"
    return Attempt(number, status, record.action, str(outcome.result), "; ".join(errors))


def rendered(entries: Sequence[Attempt], tokens: int = TOKENS) -> str:
    """Return the log as the next attempt reads it, within a token budget.

    The oldest entries are shortened first, then left out.
    """
    texts = [entry.text(RESULT_CHARS) for entry in entries]
    counts = [count_text(text) for text in texts]
    # First all entries are shortened, from the oldest on, and only then left out.
    for chars in (SHORT_CHARS, 0):
        # The newest entries stay whole longest: what failed last matters most.
        for index, entry in enumerate(entries):
            if sum(counts) <= tokens:
                break
            texts[index] = entry.text(chars) if chars else ""
            counts[index] = count_text(texts[index])
    left_out = sum(not text for text in texts)
    lines = [f"[Left out: {counted(left_out, 'earlier attempt')}.]"] if left_out else []
    return "\n\n".join([*lines, *filter(None, texts)])
