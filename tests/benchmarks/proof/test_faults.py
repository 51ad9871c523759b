"""Faults from outside break no promise; the benchmark `faults` has the slow ones, too."""

from __future__ import annotations

import pytest

from benchmarks.backends import empty_databases
from benchmarks.proof.fault_cases import cases
from benchmarks.proof.fault_cases.cases import World
from benchmarks.proof.verdicts import Case, NotHere

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    "case",
    [
        cases.commands_end_with_the_runtime,
        cases.a_machine_of_the_same_name_keeps_its_run,
        cases.a_locked_file_is_waited_for,
        cases.a_full_disk_is_waited_out,
        cases.a_restarting_postgres_is_waited_for,
        cases.hostile_tools_leave_a_valid_log,
    ],
    ids=lambda case: case.__name__,
)
async def test_a_promise_holds_under_a_fault(case: Case[World]) -> None:
    with empty_databases() as make:
        try:
            broken = await case(World(make, kills=2, block=0))
        except NotHere as missing:
            pytest.skip(str(missing))
    assert broken == []
