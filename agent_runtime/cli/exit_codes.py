"""Exit codes, and which one an error or a finished run gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_runtime.run.results import RunResult

SUCCESS = 0
INTERNAL = 1
USAGE = 2
STOPPED = 3
MODEL = 4
UNSUPPORTED = 5
NOTHING = 6
DATABASE = 7
SUSPENDED = 8
# As shells report a program that SIGINT ended: 128 and the signal's number.
INTERRUPTED = 130

MEANINGS = {
    SUCCESS: "success",
    INTERNAL: "internal error, or a check of `doctor` failed",
    USAGE: "bad usage or settings",
    STOPPED: "stopped before completion: steps, budget, time, cancelled",
    MODEL: "the model failed: key, availability, a refusal",
    UNSUPPORTED: "the offline model cannot do this task",
    NOTHING: "the thread is busy, or there is no such thread or run, or nothing to resume",
    DATABASE: "the database failed",
    SUSPENDED: "suspended: a question waits, the run is paused, or its model is unavailable",
    INTERRUPTED: "interrupted by Ctrl-C, SIGTERM or SIGHUP",
}


def code_of_error(error: BaseException) -> int:
    """Return the exit code of an error that ends a command."""
    from agent_runtime import errors

    # Subclasses before their bases: the first case that fits decides.
    match error:
        case errors.UnsupportedTask():
            return UNSUPPORTED
        case errors.ConfigError() | errors.UnknownScheme() | errors.McpServerFailed():
            return USAGE
        case errors.InvalidExport() | errors.InvalidFile() | errors.InvalidAnswer():
            return USAGE
        case errors.ModelError():
            return MODEL
        case errors.BudgetExceeded() | errors.RunCancelled() | errors.PromptTooLarge():
            return STOPPED
        case errors.QuestionsOpen():
            return SUSPENDED
        case errors.NotFound() | errors.Conflict():
            return NOTHING
        case errors.StoreError():
            return DATABASE
        case _:
            return INTERNAL


def code_of_result(result: RunResult) -> int:
    """Return the exit code of a run that ended."""
    if result.status == "succeeded":
        return SUCCESS
    if result.status == "suspended":
        return SUSPENDED
    if result.stop_reason == "unsupported":
        return UNSUPPORTED
    by_model = result.stop_reason in ("error", "refusal", "content_filter", "length")
    return MODEL if by_model else STOPPED
