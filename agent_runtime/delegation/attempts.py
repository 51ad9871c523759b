"""The log of attempts at a task, by its key: what the next attempt is told of those before it.

It is no table of its own: an attempt is the run that made it, which keeps the key and what was
asked, and whose log says how it went.  So an attempt and its entry cannot come apart, whatever
crashes in between; a fork or an edit of the asking thread knows the attempts of its own branch.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent_runtime.delegation.outcome import Outcome, outcome_of_run
from agent_runtime.delegation.record import shortened
from agent_runtime.errors import StoreError
from agent_runtime.log.run_spec import DelegationRecord, delegation_record
from agent_runtime.messages import call_place
from agent_runtime.models.tokens import count_text
from agent_runtime_storage.contract.records import ACTIVE, Run
from agent_runtime_storage.contract.store import UserStore

TOKENS = 2000
"""How much of a sub-agent's task the log may take, in our count."""
MOST = 20
"""How many attempts are told of, the newest."""
RESULT_CHARS = 2000
SHORT_CHARS = 120

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a task (n8n's IterationLog entry).

    Attributes:
        attempt: which one, from 1.
        action: what the sub-agent was asked, by role and instructions.
        result: what it said in the end; `status` says whether that was the end of the task.
        error: what stood in its way, and its tools' errors, as observed.
        diagnosis: why it failed, as who asked said with the next attempt.
        fix_applied: what the next attempt does in another way, as said there.
    """

    attempt: int
    status: str
    action: str
    result: str
    error: str
    diagnosis: str = ""
    fix_applied: str = ""

    def text(self, most: int) -> str:
        """Return the entry as the next attempt reads it, each of its texts up to so long."""
        lines = [f"Attempt {self.attempt} ({self.status})"]
        for name in ("action", "result", "error", "diagnosis", "fix_applied"):
            if said := shortened(getattr(self, name), most):
                lines.append(f"- {name}: {said}")
        return "\n".join(lines)


async def earlier_runs(
    store: UserStore, thread_id: str, key: str
) -> list[tuple[Run, DelegationRecord]]:
    """Return the runs that were delegated under a key on the branch of a thread, the oldest first.

    Those of an exchange that is under way count as on the branch.

    Raises:
        StoreError: they cannot be read.
    """
    found: list[tuple[Run, DelegationRecord, int]] = []
    for run in await store.runs(parent_thread_id=thread_id, task_key=key, limit=1000):
        record = delegation_record(run)
        if record is None:
            continue
        try:
            found.append((run, record, call_place(record.call)[0]))
        except ValueError:
            _log.warning("Run %s names no call that began it: %r.", run.id, record.call[:20])
    if not found:
        return []
    head = (await store.thread(thread_id)).head
    first = min(node for _, _, node in found)
    branch = set(await store.lineage(thread_id, head or 0, first=first))
    nodes = {node for _, _, node in found}
    for node in nodes - branch:
        row = await store.node(thread_id, node)
        if row.status == "open" and row.parent_id == head:
            branch.add(node)
    return [(run, record) for run, record, node in reversed(found) if node in branch]


async def attempts(
    store: UserStore,
    runs: Sequence[tuple[Run, DelegationRecord]],
    *,
    diagnosis: str,
    fix_applied: str,
) -> list[Attempt]:
    """Return the log of the attempts that are over, the oldest first, the newest `MOST` of them.

    One that cannot be read is passed over, with a warning.

    Args:
        diagnosis, fix_applied: what is said now of the last one.
    """
    entries: list[Attempt] = []
    done = [(number, *one) for number, one in enumerate(runs, 1) if one[0].status not in ACTIVE]
    said = [(record.diagnosis, record.fix_applied) for _, _, record in done[1:]]
    # What is said with an attempt is about the one before it.
    said.append((diagnosis.strip(), fix_applied.strip()))
    for (number, run, record), (why, fix) in list(zip(done, said, strict=False))[-MOST:]:
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
    result = outcome.result if isinstance(outcome.result, str) else str(outcome.result)
    return Attempt(number, status, record.action, result, "; ".join(errors))


def rendered(entries: Sequence[Attempt], tokens: int = TOKENS) -> str:
    """Return the log as the next attempt reads it, within so many tokens.

    The oldest entries are shortened first, then left out.
    """
    texts = [entry.text(RESULT_CHARS) for entry in entries]
    counts = [count_text(text) for text in texts]
    for most in (SHORT_CHARS, 0):
        for index, entry in enumerate(entries):
            if sum(counts) <= tokens:
                break
            texts[index] = entry.text(most) if most else ""
            counts[index] = count_text(texts[index])
    left_out = sum(not text for text in texts)
    said = [f"[{left_out} earlier attempts are left out.]"] if left_out else []
    return "\n\n".join([*said, *filter(None, texts)])
