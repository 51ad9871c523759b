"""Two hosts on this machine, by namespaces: own networks, own process ids, the same host name.

    python -m benchmarks.proof.cluster.hosts FOLDER PLAN

runs a campaign between them.  It has to be started in the network of `hub`, where the database and
the model are, which `disturb_hosts` does; no address is added to the machine's own network.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import psutil

from benchmarks.proof.cluster.campaign import Plan
from benchmarks.proof.cluster.judge import Verdict
from benchmarks.proof.cluster.processes import Place
from benchmarks.proof.cluster.world import HERE, Outcome, disturb
from benchmarks.proof.fault_cases.cases import HOUR, faketime
from benchmarks.proof.verdicts import NotHere

NAME = "node"
"""The name of both hosts."""
NETWORKS = ("10.77.1.0/30", "10.77.2.0/30")
HUBS, ADDRESSES = ("10.77.1.1", "10.77.2.1"), ("10.77.1.2", "10.77.2.2")
CLOCKS = (HOUR, -HOUR)
PROGRAMS = ("ip", "unshare", "nsenter", "setpriv", "hostname")
MORTAL = ("setpriv", "--pdeathsig", "KILL")
"""Begins a command that ends with the process that starts it."""
MODULE = "benchmarks.proof.cluster.hosts"


def disturb_hosts(plan: Plan, folder: Path) -> Outcome:
    """Run a campaign between two hosts and judge it. Blocks until it is done.

    Raises:
        NotHere: this machine does not give what that needs.
    """
    _require()
    with _networks() as (hub, *others):
        command = [*MORTAL, "ip", "netns", "exec", hub, sys.executable, "-m", MODULE]
        command += [str(folder), orjson.dumps(asdict(plan)).decode(), *others]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = orjson.loads(done.stdout)
    verdict: dict[str, Any] = found.pop("verdict")
    return Outcome(Verdict(**verdict), **found)


def main() -> None:
    """Run a campaign in the network of the hub, and write its outcome."""
    folder, plan, *names = sys.argv[1:]
    with ExitStack() as stack:
        made = [stack.enter_context(_host(name)) for name in names]
        places = partial(_places, Path(folder), made)
        outcome = disturb(Plan(**orjson.loads(plan)), Path(folder), places, NETWORKS)
    sys.stdout.buffer.write(orjson.dumps(asdict(outcome)))


def _require() -> None:
    if os.geteuid():
        raise NotHere("namespaces of the network need root")
    for program in PROGRAMS:
        if shutil.which(program) is None:
            raise NotHere(f"the program {program} is missing")
    faketime()


@contextmanager
def _networks() -> Generator[Sequence[str]]:
    """Yield the names of three networks, the first of which reaches the others."""
    prefix = f"cluster-{secrets.token_hex(3)}"
    names = [f"{prefix}-{part}" for part in ("hub", "a", "b")]
    hub = names[0]
    with ExitStack() as stack:
        for name in names:
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "delete", name)
            _ip("-n", name, "link", "set", "lo", "up")
        for number, name in enumerate(names[1:]):
            ours = f"to{number}"
            _ip("-n", hub, "link", "add", ours, "type", "veth", "peer", "eth0", "netns", name)
            _ip("-n", hub, "address", "add", f"{HUBS[number]}/30", "dev", ours)
            _ip("-n", name, "address", "add", f"{ADDRESSES[number]}/30", "dev", "eth0")
            _ip("-n", hub, "link", "set", ours, "up")
            _ip("-n", name, "link", "set", "eth0", "up")
        yield names


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotHere(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


@contextmanager
def _host(network: str) -> Generator[int]:
    """Start a host in a network: a process whose namespaces others enter; yield its id."""
    command = [*MORTAL, "ip", "netns", "exec", network]
    command += ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command += ["sh", "-c", f"hostname {NAME} && exec sleep infinity"]
    with subprocess.Popen(command) as process:
        try:
            yield _below(process.pid)
        finally:
            process.kill()


def _below(pid: int) -> int:
    """Return the first process of a host, once its name is set."""
    for _ in range(200):
        for child in psutil.Process(pid).children(recursive=True):
            if child.name() == "sleep":
                return child.pid
        time.sleep(0.05)
    raise NotHere("a host does not start")


def _places(folder: Path, hosts: Sequence[int], database: str, model: str) -> Sequence[Place]:
    library = faketime()
    return [
        Place(
            f"host-{number}",
            database.replace(HERE, HUBS[number]),
            model.replace(HERE, HUBS[number]),
            ("nsenter", "--target", str(pid), "--net", "--uts", "--pid", "--mount"),
            {
                "LD_PRELOAD": library,
                "FAKETIME": f"{CLOCKS[number]:+d}",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                "XDG_STATE_HOME": str(folder / f"state-{number}"),
            },
            ADDRESSES[number],
        )
        for number, pid in enumerate(hosts)
    ]


if __name__ == "__main__":
    main()
