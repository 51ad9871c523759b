"""Exit codes: every error has one, as documented."""

from __future__ import annotations

import pytest

from agent_runtime import errors
from agent_runtime.cli import exit_codes as exits
from agent_runtime.run.results import RunResult
from agent_runtime_storage.contract.records.log import RunStatus, StopReason
from agent_runtime_storage.contract.records.usage import UsageTotal

CODES: list[tuple[Exception, int]] = [
    (errors.ConfigError("x"), 2),
    (errors.UnknownScheme("x"), 2),
    (errors.BudgetExceeded("x", budget="thread"), 3),
    (errors.RunCancelled("x"), 3),
    (errors.PromptTooLarge("x"), 3),
    (errors.ModelAuthError("x"), 4),
    (errors.ModelStalled("x"), 4),
    (errors.RealModelForbidden("x"), 4),
    (errors.UnsupportedTask("x"), 5),
    (errors.NotFound("x"), 6),
    (errors.ThreadBusy("x", run_id="r"), 6),
    (errors.LeaseLost("x"), 6),
    (errors.Conflict("x"), 6),
    (errors.QuestionClosed("x", status="expired"), 6),
    (errors.QuestionsOpen("x", questions=("q",)), 8),
    (errors.InvalidAnswer("x"), 2),
    (errors.StoreFull("x"), 7),
    (errors.MigrationError("x"), 7),
    (errors.CorruptThread("x"), 7),
    (errors.InvariantError("x"), 1),
    (ValueError("x"), 1),
]


@pytest.mark.parametrize(("error", "code"), CODES)
def test_an_error_has_its_exit_code(error: Exception, code: int) -> None:
    assert exits.code_of_error(error) == code
    assert code in exits.MEANINGS


@pytest.mark.parametrize(
    ("status", "stop_reason", "code"),
    [
        ("succeeded", "completed", 0),
        ("failed", "max_steps", 3),
        ("failed", "budget", 3),
        ("failed", "timeout", 3),
        ("failed", "no_progress", 3),
        ("cancelled", "cancelled", 3),
        ("suspended", "paused", 8),
        ("suspended", "awaiting_user", 8),
        ("failed", "error", 4),
        ("failed", "unsupported", 5),
    ],
)
def test_a_result_has_its_exit_code(status: RunStatus, stop_reason: StopReason, code: int) -> None:
    usage = UsageTotal(0, 0, 0, 0, 0, 0, 0, 0)
    result = RunResult("r", "t", status, stop_reason, "", None, 0, usage)
    assert exits.code_of_result(result) == code
