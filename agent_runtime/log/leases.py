"""Owners of leases, identified well enough to see at once whether one on this machine is dead."""

from __future__ import annotations

import hashlib
import os
import platform
from contextlib import suppress
from pathlib import Path

from agent_runtime.log import liveness as marker
from agent_runtime.log.liveness import at_work as at_work
from agent_runtime_storage.contract.records.log import Lease, LeaseOwner, Run

LEASE_SECONDS = 30.0
"""How long a lease lasts without renewal; then an owner on another machine is replaced."""

_MACHINE_IDS = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))


def boot_and_namespace() -> str:
    """Return the machine's boot and the pid namespace, as `boot:namespace`; "" if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


def process_start_time(pid: int) -> str:
    """Return when the running process of a pid started, so that a reused pid is noticed.

    Empty if there is none, if it is a zombie, or if it cannot be seen.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    # The name in parentheses may hold spaces; fields 3 and 22 of the whole line are meant.
    fields = stat.rpartition(")")[2].split()
    # A zombie (Z) or a dead process (X) does nothing any more, although its entry is still there.
    return "" if fields[0] in "ZX" else fields[19]


def _machine() -> str:
    for path in _MACHINE_IDS:
        with suppress(OSError):
            if identity := path.read_text().strip():
                return identity
    return ""


def this_process_owner() -> LeaseOwner:
    """Return this process as the owner of a lease; correct after a fork, too."""
    pid = os.getpid()
    return LeaseOwner(
        host=platform.node(),
        boot=boot_and_namespace(),
        pid=pid,
        started=process_start_time(pid),
        machine=_machine(),
        instance=marker.instance(),
    )


def is_dead(run: Run) -> bool:
    """Return whether no process can be working on the run any more.

    An owner that is seen at work is alive, however late its lease is.  One that has ended on this
    machine is dead at once.  Anything else cannot be known from here (another machine or container,
    a clone of this machine, another boot), so the lease decides.
    """
    owner = run.owner
    if owner is None:
        return True
    here = this_process_owner()
    same = _place(owner) == _place(here)
    # Older versions stored no instance.
    if owner.instance == here.instance or (not owner.instance and _is_process(owner, here)):
        if owner.instance and not same:
            # One of the two is a clone of the other, made with its memory.
            return not run.lease_live
        # This process's own lease: it is left over unless one of its tasks works on the run.
        return not _is_process(owner, here) or not marker.is_at_work(run.id)
    activity = marker.activity_of(owner.instance, run.id)
    # A folder may be shared with other machines, whose locks cannot be seen here.
    if activity == "gone" and same:
        return True
    # `idle` is not enough: a worker holds the leases of runs that it has picked and not begun.
    if activity == "working" or (activity == "unknown" and _runs(owner, here)):
        return False
    return not run.lease_live


def is_own(run: Run) -> bool:
    """Return whether this process had the run's lease last."""
    return run.owner is not None and run.owner.instance == marker.instance()


def is_gone(owner: LeaseOwner) -> bool:
    """Return whether an owner is a process of this machine that is known to have ended."""
    here = this_process_owner()
    same = _place(owner) == _place(here) and owner.instance != here.instance
    return same and marker.activity_of(owner.instance, "") == "gone"


def claim_holder(lease: Lease) -> str:
    """Return a text that names this process and its lease, for the claim of a job."""
    here = this_process_owner()
    return f"{lease.run_id} {lease.epoch} {here.instance} {_place_digest(here)}"


def is_claim_void(holder: str, lease: Lease) -> bool:
    """Return whether the holder of a claim is dead, or has lost its run to this lease.

    Args:
        holder: as `claim_holder` returned it.
        lease: that of the caller.
    """
    match holder.split():
        case [run_id, epoch, instance, place] if epoch.isdecimal():
            if place == _place_digest(this_process_owner()):
                # A process that still finishes its work after the run's end is not replaced.
                return marker.activity_of(instance, "") == "gone"
            return run_id == lease.run_id and int(epoch) < lease.epoch
        case _:
            # Older versions named nobody.
            return False


def may_run_elsewhere(owner: LeaseOwner) -> bool:
    """Return whether an owner's processes may still run where they cannot be seen from here."""
    here = this_process_owner()
    # Without the namespace: another container of the same boot may well run.
    rebooted = owner.boot.partition(":")[0] != here.boot.partition(":")[0]
    same_machine = (owner.host, owner.machine) == (here.host, here.machine)
    return _place(owner) != _place(here) and not (same_machine and rebooted)


def _is_process(owner: LeaseOwner, here: LeaseOwner) -> bool:
    return (owner.boot, owner.pid, owner.started) == (here.boot, here.pid, here.started)


def _place(owner: LeaseOwner) -> tuple[str, str, str]:
    return owner.host, owner.machine, owner.boot


def _place_digest(owner: LeaseOwner) -> str:
    # A host's name may hold spaces.
    return hashlib.blake2b(repr(_place(owner)).encode(), digest_size=8).hexdigest()


def _runs(owner: LeaseOwner, here: LeaseOwner) -> bool:
    """Return whether the owner's process runs here, by its pid: its marks cannot be seen."""
    if not here.boot or (owner.boot, owner.pid == here.pid) != (here.boot, False):
        # With this process's id but another instance it lives in a clone of this machine.
        return False
    return bool(owner.started) and process_start_time(owner.pid) == owner.started
