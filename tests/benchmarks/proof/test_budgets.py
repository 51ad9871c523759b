"""Twenty concurrent sub-agents share one budget: they never bill more, and can use all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.proof.budgets import AT_ONCE, CHILDREN, KINDS, USABLE, spend

pytestmark = pytest.mark.slow


@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", range(len(KINDS)), ids=KINDS)
async def test_concurrent_sub_agents_never_bill_more_than_the_trees_budget(
    tmp_path: Path, seed: int
) -> None:
    spent = await spend(seed, tmp_path)

    assert spent.kind == KINDS[seed]
    assert spent.settled <= spent.billed <= spent.settled + spent.unsettled
    assert USABLE * spent.budget <= spent.settled + spent.unsettled
    assert spent.billed <= spent.budget
    assert spent.answered
    assert (spent.at_once >= AT_ONCE, spent.finished) == (True, CHILDREN)
