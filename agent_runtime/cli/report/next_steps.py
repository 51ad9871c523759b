"""What a person can do next, by how a run ended or which error ended a command.

Each line is a sentence, or a command that can be copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from agent_runtime.cli.display.short_ids import said_id

if TYPE_CHECKING:
    from agent_runtime.run.results import RunResult
    from agent_runtime_storage.contract.records.log import StopReason

RESUME = "Resume it with: agent-runtime resume {run}"
_OTHER_MODEL = "By another model: agent-runtime resume {run} --model NAME"

BY_REASON: Mapping[StopReason, tuple[str, ...]] = {
    "completed": (),
    "max_steps": ("With more steps: agent-runtime resume {run} --max-steps NUMBER",),
    "budget": (
        "Show its budget: agent-runtime usage --run {run} --thread {thread}",
        "Raise it: agent-runtime budget {run} --usd NUMBER   (or --tokens NUMBER; budgets of "
        "threads and days are settings)",
        "Then: agent-runtime resume {run}",
    ),
    "timeout": ("With a new time limit: agent-runtime resume {run} --timeout SECONDS",),
    "cancelled": (RESUME,),
    "error": (RESUME,),
    "awaiting_user": ("Then resume it with: agent-runtime resume {run}",),
    "awaiting_children": (
        "A worker continues it when they have ended. Until then: agent-runtime runs tree {run}",
    ),
    "paused": (
        "Tell it something first: agent-runtime steer {run} TEXT",
        RESUME,
    ),
    "no_progress": (
        "See what it repeats: agent-runtime show {thread}",
        "Tell it what to do differently: agent-runtime run TEXT --thread {thread}",
        RESUME,
    ),
    "interrupted": (RESUME,),
    "dead_letter": ("Look at its cause, then: agent-runtime queue retry {run}",),
    "unavailable": (
        "When the provider answers again: agent-runtime resume {run}",
        _OTHER_MODEL,
    ),
    "unsupported": (
        "With a language model and its provider's key: agent-runtime resume {run} --model NAME",
    ),
    "refusal": (
        "Say it differently: agent-runtime edit {thread} last TEXT",
        _OTHER_MODEL,
    ),
    "content_filter": (
        "Say it differently: agent-runtime edit {thread} last TEXT",
        _OTHER_MODEL,
    ),
    "length": (
        "The answer reached the model's limit. Ask for less: agent-runtime edit {thread} last TEXT",
        "Or let it try again: agent-runtime resume {run}",
    ),
    "imported": ("If you trust its file: agent-runtime resume {run} --imported",),
}
"""By stop reason; `{run}` and `{thread}` are ids."""

BY_ERROR: Mapping[str, tuple[str, ...]] = {
    "ModelAuthError": ("When the key is set: agent-runtime resume {run}", _OTHER_MODEL),
    # Resuming it as it is would fail again.
    "ModelNotFound": ("With the right name: agent-runtime {again} --model NAME",),
    "ModelRejected": (
        "Change the request: agent-runtime edit {thread} last TEXT",
        _OTHER_MODEL,
    ),
    "ModelStalled": ("Try again later: agent-runtime resume {run}", _OTHER_MODEL),
    "ModelUnavailable": (
        "When the provider answers again: agent-runtime resume {run}",
        _OTHER_MODEL,
    ),
    "ModelOverflow": (
        "With AGENT_RUNTIME_CONTEXT_WINDOW set to the model's real window: agent-runtime resume "
        "{run}",
    ),
    "ModelProtocolError": ("Try again: agent-runtime resume {run}", _OTHER_MODEL),
    "RealModelForbidden": ("When it may be called: agent-runtime resume {run}",),
    "PromptTooLarge": (
        "By a model with a larger window: agent-runtime resume {run} --model NAME",
        "Or leave out what is large: agent-runtime edit {thread} last TEXT",
    ),
    "UnsupportedTask": BY_REASON["unsupported"],
    "BudgetExceeded": BY_REASON["budget"],
    "RunCancelled": (RESUME,),
    "StoreError": (
        "Check the database: agent-runtime doctor",
        "Then: agent-runtime resume {run}",
    ),
    "ConfigError": ("When that is corrected: agent-runtime resume {run}",),
    "McpServerFailed": ("Without MCP servers: give --no-mcp as well.",),
    "InvalidFile": ("Give another file: agent-runtime run TASK --attach PATH",),
    "InvalidExport": ("Export the thread again: agent-runtime threads export THREAD",),
    # Not "check the database", as for the others of the store: it works.
    "Conflict": ("Show how the runs are: agent-runtime runs",),
    "LeaseLost": ("Show who has it: agent-runtime runs",),
    "ThreadBusy": (
        "Send the active run a message: agent-runtime steer {busy} TEXT",
        "Or end it: agent-runtime cancel {busy}",
    ),
    "QuestionsOpen": ("Show its questions: agent-runtime questions",),
    "NotFound": ("List what there is: agent-runtime runs, agent-runtime threads",),
    "RuntimeClosed": (RESUME,),
    "InvariantError": ("Report it, with the output of: agent-runtime --debug resume {run}",),
}
"""By the name of an error's class, or of the nearest class above it."""

_CONTINUE = ("Continue it with /resume, or type what to do instead.",)
_BY_MODEL = "By another model: /model NAME, then /resume"
IN_CHAT: Mapping[str, tuple[str, ...]] = {
    "budget": (
        "Show what was spent: /cost",
        "With a larger budget: /resume --budget-usd NUMBER   (of tokens: agent-runtime budget "
        "{run} --tokens NUMBER)",
    ),
    "cancelled": _CONTINUE,
    "error": _CONTINUE,
    "interrupted": _CONTINUE,
    "awaiting_user": ("/resume asks again.",),
    "paused": ("Type a message to continue with, or /resume.",),
    "no_progress": (
        "See what it repeats: /show",
        "Type what to do differently, or continue it with /resume.",
    ),
    "unsupported": ("By a language model: /model NAME, then /resume",),
    # `/resume` continues the thread's run; what is vouched for is named by its id.
    "imported": BY_REASON["imported"],
    "ModelAuthError": (
        "When the key is set: agent-runtime chat --thread {thread}",
        _BY_MODEL,
    ),
    "ModelNotFound": ("With the right name: /model NAME, then /regenerate",),
    "UnsupportedTask": ("By a language model: /model NAME, then /resume",),
    "InvalidFile": ("Give another file by /attach PATH, and say the line again.",),
    "RunCancelled": _CONTINUE,
    "McpServerFailed": ("Without MCP servers: start the chat again with --no-mcp.",),
    "QuestionsOpen": ("/resume asks them.",),
}
"""In a chat, by stop reason and by the name of an error's class; `_SLASHES` says the others."""
_SLASHES: Mapping[str, str] = {
    _OTHER_MODEL: _BY_MODEL,
    "agent-runtime resume {run}": "/resume",
    "agent-runtime edit {thread} last TEXT": "/edit TEXT",
}
"""Parts of lines, and what stands for them in a chat."""


def after_result(result: RunResult, *, chat: bool = False) -> list[str]:
    """Return what to do after a run that ended without an error.

    Args:
        chat: whether the person can type a line of a chat, and not a command.
    """
    reason = result.stop_reason
    found = _of_chat(reason, BY_REASON[reason]) if chat else BY_REASON[reason]
    return _filled(found, run=result.run_id, thread=result.thread_id)


def after_error(
    error: BaseException, *, run: str = "", thread: str = "", chat: bool = False
) -> list[str]:
    """Return what to do after an error.

    Args:
        run, thread: of the run that it ended; empty if none began.
        chat: whether the person can type a line of a chat, and not a command.
    """
    names = [kind.__name__ for kind in type(error).__mro__]
    name = next((one for one in names if one in BY_ERROR), "")
    found = BY_ERROR.get(name, (RESUME,) if run else ())
    named = "`agent-runtime " in str(getattr(error, "cure", ""))
    if name in ("NotFound", "Conflict") and named:
        # The cure names the command already.
        found = ()
    found = _of_chat(name, found) if chat else found
    busy = str(getattr(error, "run_id", ""))
    again = f"regenerate {said_id(thread)}" if thread else "run TASK"
    lines = _filled(found, run=run, thread=thread, busy=busy, again=again)
    if type(error).__name__ == "ModelNotFound":
        lines = [*_near_models(error), *lines]
    return lines


def _of_chat(name: str, lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return the lines of a stop reason or an error as they are said in a chat."""
    if name in IN_CHAT:
        return IN_CHAT[name]
    found: list[str] = []
    for line in lines:
        for command, slash in _SLASHES.items():
            line = line.replace(command, slash)
        found.append(line)
    return tuple(found)


def _filled(lines: Iterable[str], **ids: str) -> list[str]:
    """Return the lines with ids; without those that need one which is not there."""
    missing = [f"{{{name}}}" for name, value in ids.items() if not value]
    said = {name: said_id(value) for name, value in ids.items()}
    return [line.format(**said) for line in lines if not any(name in line for name in missing)]


def _near_models(error: BaseException) -> list[str]:
    near = near_names(str(getattr(error, "model", "")))
    return [f"Did you mean {' or '.join(near)}?"] if near else []


def near_names(name: str) -> list[str]:
    """Return up to three names of known models that are near a misspelt one."""
    import difflib

    from agent_runtime.models.catalog import chat_models, full_name

    wanted, known = full_name(name), chat_models()
    provider, slash, model = wanted.partition("/")
    own = [one for one in known if one.startswith(f"{provider}/")] if slash else []
    near = difflib.get_close_matches(wanted, own or known, 3, 0.7) if slash else []
    if not near:
        # The provider may be what is missing or wrong.
        # Reversed, so that of equal models the first provider wins.
        plain = {one.partition("/")[2]: one for one in reversed(known)}
        near = [plain[one] for one in difflib.get_close_matches(model or wanted, plain, 3, 0.7)]
    return near
