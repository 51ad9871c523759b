"""What a peer does where a long task breaks: kills, cancels, two runs at once, a small window."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.peers import trial
from benchmarks.peers.environments import Missing, Peer
from benchmarks.peers.server import Script, Served
from benchmarks.peers.trial import MARK, Course, Failed

KILL_AT = 30
KILL_STEPS = 40
CANCEL_AT = 10
"""As in `runners/protocol.py`."""
CANCEL_STEPS = 20
PAIR_STEPS = 12
WINDOW = 32_768
WINDOW_STEPS = 100
DELAY = 0.1
"""Seconds of an answer where a process is killed: some write what they keep while the model works,
and a model without any latency would give them no time."""


@dataclass(frozen=True, slots=True)
class Found:
    """How a trial went.

    Attributes:
        done: whether the last run was answered as if all was read.
        outcome: in a sentence.
        tools: how many pages were read, and how many of them again.
        kept: results that the next run saw, of `kept_of`.
        task_lost: prompts without the task.
    """

    trial: str
    done: bool
    outcome: str
    tools: int = 0
    twice: int = 0
    kept: int | None = None
    kept_of: int | None = None
    task_lost: int | None = None


def killed_in_a_tool(course: Course, peer: Peer) -> Found:
    """Kill the process while its tool works at step 30, after the effect; resume."""
    script = Script(KILL_STEPS, by_prompt=True, mark=MARK, delay=DELAY)
    return _killed(course, peer, "killed in a tool", script, kill_in=KILL_AT, complete=KILL_AT - 1)


def killed_between(course: Course, peer: Peer) -> Found:
    """Kill the process when its request after step 30 arrives; resume."""
    script = Script(KILL_STEPS, by_prompt=True, mark=MARK, delay=DELAY, kill_at=KILL_AT + 1)
    return _killed(course, peer, "killed after a tool", script, kill_in=0, complete=KILL_AT)


def _killed(
    course: Course, peer: Peer, name: str, script: Script, *, kill_in: int, complete: int
) -> Found:
    python = course.environments.python(peer)
    with trial.folder() as place:
        url = course.server.begin(script)
        result: dict[str, Any] = {}
        try:
            trial.run(course, peer, python, url, place, script, "run", kill_in=kill_in)
            result = trial.run(course, peer, python, url, place, script, "resume")
        finally:
            served = course.server.end()
        read = trial.tools(place)
        kept = [page for page in served.first_pages.get("b", ()) if page <= complete]
        twice = len(read) - len(set(read))
        done = "b" in served.done and result["error"] is None
        said = f"{len(kept)} of {complete} results kept, {_times(twice)} again"
        return Found(
            trial=name,
            done=done,
            outcome=f"{said}; {_ending(done, result)}",
            tools=len(read),
            twice=twice,
            kept=len(kept),
            kept_of=complete,
            task_lost=served.without_task,
        )


def two_at_once(course: Course, peer: Peer) -> Found:
    """Run two tasks on one thread at the same time; count the results that a third run sees."""
    script = Script(PAIR_STEPS, books=True, mark=MARK, delay=DELAY)
    result, served, read = _one(course, peer, script, "pair")
    kept = set(served.first_pages.get("c", ()))
    both: Sequence[dict[str, Any]] = result["both"]
    refused = [one["error"] for one in both if one["error"]]
    said = f"{len(kept & set(read))} of {len(read)} results kept"
    if refused:
        said += f"; {len(refused)} run refused or failed ({refused[0][:80]})"
    if served.mixed:
        said += f"; {served.mixed} prompts mix both tasks"
    if result["error"]:
        said += f"; the thread is unusable afterwards ({result['error'][:80]})"
    return Found(
        trial="two at once",
        done=len(kept & set(read)) == len(read) and not served.mixed,
        outcome=said,
        tools=len(read),
        twice=len(read) - len(set(read)),
        kept=len(kept & set(read)),
        kept_of=len(read),
    )


def cancelled(course: Course, peer: Peer) -> Found:
    """Cancel a run while its tool works at step 10; continue on the thread."""
    script = Script(CANCEL_STEPS, by_prompt=True, mark=MARK, delay=DELAY)
    result, served, read = _one(course, peer, script, "cancel")
    kept, twice = served.first_pages.get("b", ()), len(read) - len(set(read))
    done = "b" in served.done and result["error"] is None
    said = f"{len(kept)} of {CANCEL_AT - 1} results kept"
    if served.without_task:
        said += ", the task lost"
    return Found(
        trial="cancel, continue",
        done=done,
        outcome=f"{said}; {_ending(done, result)}",
        tools=len(read),
        twice=twice,
        kept=len(kept),
        kept_of=CANCEL_AT - 1,
        task_lost=served.without_task,
    )


def small_window(course: Course, peer: Peer) -> Found:
    """Work for 100 steps where prompts beyond 32K tokens are refused."""
    script = Script(WINDOW_STEPS, window=WINDOW, mark=MARK)
    result, served, read = _one(course, peer, script, "run")
    done = "a" in served.done and result["error"] is None
    said = _ending(done, result) if done else f"{_ending(done, result)} after step {len(read)}"
    if served.refused:
        said += f"; {served.refused} prompts too long"
    if served.without_task:
        said += f"; {served.without_task} prompts without the task"
    return Found(
        trial="window of 32K",
        done=done,
        outcome=said,
        tools=len(read),
        twice=len(read) - len(set(read)),
        task_lost=served.without_task,
    )


def _one(
    course: Course, peer: Peer, script: Script, do: str
) -> tuple[dict[str, Any], Served, list[int]]:
    python = course.environments.python(peer)
    with trial.folder() as place:
        url = course.server.begin(script)
        try:
            result = trial.run(course, peer, python, url, place, script, do)
        finally:
            served = course.server.end()
        return result, served, trial.tools(place)


def _ending(done: bool, result: dict[str, Any]) -> str:
    if done:
        return "done"
    if result.get("error"):
        return f"stopped ({result['error'][:80]})"
    return f"answered {str(result.get('answer'))[:60]!r}"


def _times(twice: int) -> str:
    return "no tool ran" if not twice else f"{twice} tool{'s' if twice > 1 else ''} ran"


TRIALS: Mapping[str, Callable[[Course, Peer], Found]] = {
    "killed in a tool": killed_in_a_tool,
    "killed after a tool": killed_between,
    "two at once": two_at_once,
    "cancel, continue": cancelled,
    "window of 32K": small_window,
}


def look(course: Course, peer: Peer) -> list[Found]:
    """Do all trials with a peer; one that cannot be done says why."""
    found: list[Found] = []
    for name, one in TRIALS.items():
        try:
            found.append(one(course, peer))
        except (Missing, Failed) as error:
            found.append(Found(name, False, f"not measured: {error}"))
    return found
