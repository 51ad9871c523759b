"""Who holds a run: enough to tell at once whether an owner on this host is dead."""

from __future__ import annotations

import functools
import os
import platform
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from agent_runtime_storage.records import LeaseOwner, Run

LEASE_SECONDS = 30.0
"""How long a lease lasts without being renewed; a dead owner on another host is replaced then."""


def _boot() -> str:
    """Return the host's boot and the pid namespace, as `boot:namespace`; "" if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    """Return when a process started, so that a reused pid is not taken for it; "" if unknown."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    # The name in parentheses may hold spaces; field 22 of the whole line is the start time.
    return stat.rpartition(")")[2].split()[19]


@functools.lru_cache(maxsize=4)
def _own(pid: int) -> LeaseOwner:
    return LeaseOwner(host=platform.node(), boot=_boot(), pid=pid, started=_started(pid))


def own() -> LeaseOwner:
    """Return this process as the owner of a lease (also right after a fork)."""
    return _own(os.getpid())


_at_work = Counter[str]()
"""How many in this process hold the lease of a run, or may be about to take it."""


@contextmanager
def at_work(run_id: str) -> Generator[None]:
    """Mark a run as being worked on in this process, for as long as its lease may be held here."""
    _at_work[run_id] += 1
    try:
        yield
    finally:
        _at_work[run_id] -= 1
        if not _at_work[run_id]:
            del _at_work[run_id]


def is_dead(run: Run) -> bool:
    """Return whether nobody can be working on the run any more.

    On this host that is known at once; an owner elsewhere, or in a container whose processes cannot
    be seen from here, counts as dead once its lease expired.
    """
    owner = run.owner
    if owner is None or not run.lease_live:
        return True
    here = own()
    if owner.host != here.host or not here.boot:
        return False
    if owner.boot.partition(":")[0] != here.boot.partition(":")[0]:
        return True
    if owner.boot != here.boot:
        return False
    if owner.pid == here.pid and owner.started == here.started:
        return run.id not in _at_work
    return not _alive(owner)


def _alive(owner: LeaseOwner) -> bool:
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    started = _started(owner.pid)
    return not started or started == owner.started
