"""Compare with other runtimes: time, storage and prompts of a step, and what breaks a long task.

One scripted server on loopback, which answers without latency and calls a tool with results of
2 KB again and again; each runtime in an environment and a process of its own, as its documentation
advises; and two floors.  Rounds are interleaved, and medians are reported.  `net_ms` is wall time
less the CPU time of the server's process, `cpu_ms` the CPU time of the measured process with all
its threads; both for one step, after the first.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from agent_runtime.errors import ConfigError
from benchmarks.frame import Report, Row
from benchmarks.peers.behaviour import look
from benchmarks.peers.environments import (
    OURS,
    PEERS,
    Environments,
    Missing,
    Peer,
    default_folder,
)
from benchmarks.peers.report import write
from benchmarks.peers.server import Script
from benchmarks.peers.targets import targets
from benchmarks.peers.trial import (
    LONGEST,
    MARK,
    Course,
    Failed,
    Measured,
    Unfinished,
    measure,
    server,
)

WARM_STEPS = 2
INTERRUPTED = "interrupted; those that are not listed were not made"
Key = tuple[int, str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="only the peers with this in their name"
    )
    parser.add_argument(
        "--steps", type=_numbers, default=(50, 200, 500, 2000), help="such as 50,200"
    )
    parser.add_argument(
        "--rounds",
        type=_rounds,
        default=(3, 2, 1, 1),
        help="such as 3, or 3,2 for two numbers of steps; the last one is for all further ones",
    )
    parser.add_argument(
        "--limit", type=float, default=120.0, metavar="SECONDS", help="of one measurement"
    )
    parser.add_argument("--environments", type=Path, metavar="DIR", default=default_folder())
    parser.add_argument(
        "--skip", choices=("speed", "behaviour"), help="leave out a part of the comparison"
    )
    parser.add_argument("--write", type=Path, metavar="DIR", help="tables and plots for people")


def _numbers(text: str) -> tuple[int, ...]:
    numbers = tuple(sorted({int(part) for part in text.split(",")}))
    if numbers[0] < WARM_STEPS:
        raise ValueError(f"a run has at least {WARM_STEPS} steps")
    return numbers


def _rounds(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def run(args: argparse.Namespace) -> Report:
    """Compare."""
    chosen = choose(args.only or [])
    rounds: tuple[int, ...] = args.rounds
    rounds = (*rounds, *rounds[-1:] * len(args.steps))[: len(args.steps)]
    rows: list[Row] = []
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder, server() as one:
        environments, prompts = Environments(args.environments), Path(folder) / "prompts.jsonl"
        course = Course(one, environments, prompts, args.limit)
        most = WARM_STEPS if args.skip == "speed" else args.steps[-1]
        missing = warm(course, chosen, most)
        present = [peer for peer in chosen if peer.name not in missing]
        if args.skip != "speed":
            rows += speed(course, present, dict(zip(args.steps, rounds, strict=True)), missing)
        if args.skip != "behaviour":
            rows += behaviour(course, present, missing)
    rows += [{"table": "missing", "peer": name, "why": why} for name, why in missing.items()]
    rows.append(
        {
            "table": "conditions",
            "part": {None: "all", "speed": "behaviour", "behaviour": "speed"}[args.skip],
            "rounds": "/".join(map(str, rounds)),
            "date": datetime.now(UTC).date().isoformat(),
            "load_before": before,
            "load_after": os.getloadavg()[0],
        }
    )
    report = Report("peers", rows, targets(rows), versions=pinned(chosen))
    if args.write is not None:
        write(report, args.write)
    return report


def choose(names: Sequence[str]) -> list[Peer]:
    """Return the peers that are meant; this runtime is always among them, as the measure.

    Raises:
        ConfigError: a name fits none.
    """
    for name in names:
        if not any(name.lower() in peer.name.lower() for peer in PEERS):
            known = ", ".join(peer.name for peer in PEERS)
            raise ConfigError(f"There is no peer {name!r}.", cure=f"There are: {known}.")
    return [
        peer
        for peer in PEERS
        if not names
        or peer.name == OURS
        or any(name.lower() in peer.name.lower() for name in names)
    ]


def warm(course: Course, peers: Sequence[Peer], steps: int) -> dict[str, str]:
    """Make the environments, compile what they import, and record this runtime's prompts.

    Returns:
        Why a peer is missing, by its name.
    """
    missing: dict[str, str] = {}
    for peer in peers:
        record = str(course.prompts) if peer.name == OURS else None
        script = Script(steps if record else WARM_STEPS, mark=MARK, record=record)
        _say(f"preparing {peer.name}")
        try:
            # Not within the limit: the floor needs the prompts of the longest task.
            measure(replace(course, limit=LONGEST), peer, script)
        except (Missing, Failed) as error:
            _say(f"{peer.name} is missing: {error}")
            missing[peer.name] = str(error)
    return missing


def speed(
    course: Course, peers: Sequence[Peer], rounds: Mapping[int, int], missing: dict[str, str]
) -> list[Row]:
    """Measure every peer, as many rounds as are given by the number of steps."""
    found: dict[Key, list[Measured]] = {}
    unfinished: dict[Key, str] = {}
    plan = [
        (number, count, peer)
        for number in range(max(rounds.values()))
        for count, most in rounds.items()
        for peer in peers
        if number < most
    ]
    try:
        for number, count, peer in plan:
            key = count, peer.name
            unfinished |= {} if key in unfinished else hopeless(key, found, course.limit)
            if key in unfinished:
                continue
            try:
                measured = measure(course, peer, Script(count, mark=MARK))
            except Unfinished as error:
                _say(f"round {number + 1}, {count} steps: {error}: {peer.name}")
                unfinished[key] = str(error)
                continue
            except Failed as error:
                missing[f"{peer.name}, {count} steps"] = str(error)
                continue
            found.setdefault(key, []).append(measured)
            net, cpu = net_ms(measured, count), cpu_ms(measured, count)
            _say(f"round {number + 1}, {count} steps: net {net:.1f} cpu {cpu:.1f} {peer.name}")
    except KeyboardInterrupt:
        _say("interrupted: here is what was measured")
        missing["measurements"] = INTERRUPTED
    order = sorted(found, key=lambda key: key[0])
    rows: list[Row] = [_speed(key, found) for key in order]
    rows += [_prompts(count, name, found[count, name][0]) for count, name in order]
    return rows + [
        {"table": "unfinished", "peer": name, "steps": count, "why": why}
        for (count, name), why in unfinished.items()
    ]


def hopeless(key: Key, found: Mapping[Key, Sequence[Measured]], limit: float) -> dict[Key, str]:
    """Return why a measurement need not be tried: a shorter one took too long for it, if it did.

    A step of a longer run takes no less time, so this judges in the peer's favour.
    """
    count, name = key
    shorter = [one for one, peer in found if peer == name and one < count]
    if not shorter:
        return {}
    most = max(shorter)
    took = min(one.result["wall"] for one in found[most, name])
    if took * count / most <= limit:
        return {}
    return {key: f"not finished in {limit:g} s, since {most} steps took {took:.0f} s"}


def net_ms(one: Measured, steps: int) -> float:
    """Return the time of a step outside the server."""
    return (one.result["wall"] - one.served.busy) / steps * 1000


def cpu_ms(one: Measured, steps: int) -> float:
    """Return the CPU time of a step."""
    return one.result["cpu"] / steps * 1000


def _speed(key: Key, found: dict[Key, list[Measured]]) -> dict[str, Any]:
    count, name = key

    def middle(figure: Callable[[Measured], float]) -> float:
        return median(figure(one) for one in found[key])

    def net(one: Measured) -> float:
        return net_ms(one, count)

    def cpu(one: Measured) -> float:
        return cpu_ms(one, count)

    return {
        "table": "speed",
        "peer": name,
        "steps": count,
        "net_ms": middle(net),
        "cpu_ms": middle(cpu),
        "database_mb": middle(lambda one: one.database / 1e6),
        "peak_mb": middle(lambda one: one.result["peak"] / 1e6),
        "startup_ms": middle(lambda one: one.startup * 1000),
        "startup_cpu_ms": middle(lambda one: one.result["startup_cpu"] * 1000),
    }


def _prompts(count: int, name: str, one: Measured) -> dict[str, Any]:
    volume = one.served.volume
    return {
        "table": "prompts",
        "peer": name,
        "steps": count,
        "prompt_mb": volume["prompt"] / 1e6,
        "largest_kb": volume["largest"] / 1e3,
        "cacheable": volume["share"],
        "breaks": volume["breaks"],
        "summaries": volume["summaries"],
        "summary_mb": volume["summary_bytes"] / 1e6,
        "written_kb": volume["written"] / 1e3,
        "weighted_mb": volume["weighted"] / 1e6,
        "without_task": one.served.without_task,
        "kept": one.served.kept,
    }


def behaviour(course: Course, peers: Sequence[Peer], missing: dict[str, str]) -> list[Row]:
    """See what each peer does where a long task breaks."""
    rows: list[Row] = []
    try:
        for peer in (one for one in peers if one.behaves):
            _say(f"behaviour of {peer.name}")
            for found in look(course, peer):
                rows.append({"table": "behaviour", "peer": peer.name} | asdict(found))
    except KeyboardInterrupt:
        _say("interrupted: here is what was seen")
        missing["trials"] = INTERRUPTED
    return rows


def pinned(peers: Sequence[Peer]) -> dict[str, str]:
    """Return the versions of the peers' packages."""
    return dict(package.split("==", 1) for peer in peers for package in peer.packages)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
