"""Attacks get nothing; `benchmarks attacks` has those that take longer, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.backends import empty_databases
from benchmarks.proof.attack_cases.world import World
from benchmarks.proof.attacks import CASES
from benchmarks.proof.verdicts import NotHere

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
LONG = {
    "a_rule_sees_every_spelling",
    "no_path_leaves_the_workspace",
    "state_is_private",
    "no_pattern_holds_a_search_up",
    "no_text_controls_the_terminal",
    "no_error_shows_a_secret",
    "no_input_bricks_a_thread",
    "no_answer_of_a_model_breaks_a_thread",
    "no_result_of_a_tool_breaks_a_thread",
    "no_method_reaches_other_owners",
}
"""What takes longer has tests of its own."""


def test_the_long_cases_are_cases() -> None:
    assert CASES.keys() > LONG


@pytest.mark.parametrize("name", [name for name in CASES if name not in LONG])
async def test_an_attack_gets_nothing(name: str, tmp_path: Path) -> None:
    with empty_databases() as make:
        try:
            got = await CASES[name](World(make, tmp_path))
        except NotHere as missing:
            pytest.skip(str(missing))
    assert got == []
