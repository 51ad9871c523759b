"""The harness of the interleavings ends what does not end by itself, and says so."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_runtime_storage import Store
from benchmarks.proof.interleavings import harness
from benchmarks.proof.interleavings.harness import Action, Verdict, World, run_seeds
from benchmarks.proof.interleavings.history import Op, recorded
from benchmarks.proof.interleavings.store import StoreWorld
from tests.support.prompt_judge import MAIN
from tests.support.stores import driver_of


class WaitingWorld(World):
    """Actions that wait."""

    odds = StoreWorld.odds

    async def act(self, action: Action) -> None:
        """Wait for an hour, a driver or for ever, or read for ever where nothing cancels it."""
        with recorded(action.op):
            match action.op.what:
                case "sleep":
                    await anyio.sleep(3_600)
                case "pause":
                    # As a driver pauses between two attempts of a call.
                    gated: Any = driver_of(action.store)
                    with gated._gate.calling():
                        await anyio.sleep(0.05)
                case "wait":
                    await anyio.Event().wait()
                case _:
                    with anyio.CancelScope(shield=True):
                        while True:
                            await action.store.of(self.owner).threads.get(MAIN)

    async def judge(self, store: Store, history: Sequence[Op]) -> list[str]:
        """Find no fault."""
        del store
        return [f"{op.what} failed" for op in history if op.outcome == "failed"]


def world_of(what: str) -> type[World]:
    """Return a world with only one action."""
    return type("OneWorld", (WaitingWorld,), {"weights": {what: 1}, "odds": odds_of(what)})


def odds_of(what: str) -> harness.Odds:
    """Return odds that cancel nothing."""
    return harness.Odds(what, 2, 1, 0, 0.5, 0.1, 0, 0, 1, 0)


@pytest.mark.parametrize(
    ("what", "found"),
    [
        ("sleep", ()),
        ("pause", ()),
        ("wait", ("waited for nothing that could happen",)),
        ("read", ("had not ended after 300 calls and timers",)),
    ],
)
async def test_what_does_not_end_is_ended_and_reported(
    what: str, found: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "LONGEST", 300)
    verdicts: list[Verdict] = []
    url = f"file:{tmp_path / 'run.db'}"

    await run_seeds(world_of(what), url, [1, 2], verdicts.append, actions=2)

    assert len(verdicts) == 2
    for verdict in verdicts:
        assert len(verdict.problems) == len(found)
        assert all(part in problem for part, problem in zip(found, verdict.problems, strict=True))
    # An hour has passed on the clock of the loop, which goes on from there.
    assert (anyio.current_time() - time.monotonic() > 3_000) == (what == "sleep")
