"""What the comparison should show of this runtime, next to what it shows."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.frame import Row, Target, at_most
from benchmarks.peers.environments import FLOOR, OURS, PEERS

MOST_CPU = 0.5


def targets(rows: Sequence[Row]) -> list[Target]:
    """Return the targets that the rows suffice for."""
    by = {(row["table"], row.get("peer"), row.get("steps")): row for row in rows}
    steps: list[int] = [
        row["steps"] for row in rows if row["table"] == "speed" and row["peer"] == OURS
    ]
    compacting = [peer.name for peer in PEERS if peer.compacts and peer.name != OURS]
    others = [peer.name for peer in PEERS if peer.behaves and peer.name != OURS]
    found: list[Target] = []
    for count in steps:

        def of(table: str, names: Sequence[str], count: int = count) -> list[Row]:
            return [by[table, name, count] for name in names if (table, name, count) in by]

        ours = by["speed", OURS, count]
        if speed := of("speed", compacting):
            least = min(row["cpu_ms"] for row in speed)
            name = f"CPU of {count} steps, against the fastest that compacts"
            found.append(at_most(name, ours["cpu_ms"] / least, MOST_CPU, "times"))
        for row in of("speed", [FLOOR]):
            ratio = ours["database_mb"] / row["database_mb"]
            found.append(
                at_most(f"database of {count} steps, against the floor's", ratio, 1, "times")
            )
        prompts = of("prompts", others)
        for sent in of("prompts", [OURS]):
            alike = [row for row in prompts if row["kept"] >= sent["kept"]]
            against = {"the least of all": prompts, "the least that keep as much": alike}
            for text, some in against.items():
                if some:
                    ratio = sent["weighted_mb"] / min(row["weighted_mb"] for row in some)
                    name = f"weighted prompts of {count} steps, against {text}"
                    found.append(at_most(name, ratio, 1, "times"))
    trials = [_passed(row) for row in rows if row["table"] == "behaviour" and row["peer"] == OURS]
    if trials:
        passed = f"{sum(trials)} of {len(trials)}"
        found.append(Target("trials passed", passed, "all", all(trials)))
    return found


def _passed(row: Row) -> bool:
    whole = row["kept"] == row["kept_of"] and not row["twice"]
    return bool(row["done"] and whole and not row["task_lost"])
