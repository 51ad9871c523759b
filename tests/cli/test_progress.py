"""Progress as the user reads it; no content of an event can control the terminal."""

from __future__ import annotations

from typing import Any

import pytest

from agent_runtime.cli.display.progress import PlainProgress
from agent_runtime.cli.display.screen import LiveProgress
from agent_runtime.cli.display.tally import RunTally
from agent_runtime.cli.terminal import printable, short_arguments, shorten
from agent_runtime.events import Event, EventKind


def _event(kind: EventKind, run: str = "run-1", **data: Any) -> Event:
    return Event(kind, "thread-1", run, data=data)


def _answer(step: int, *, cost: int | None = 2_500_000, run: str = "run-1", **sizes: int) -> Event:
    return _event(
        "answer",
        run,
        step=step,
        calls=1,
        prompt_tokens=1000,
        cached_tokens=900,
        completion_tokens=50,
        cost=cost,
        **sizes,
    )


START = _event("run-start", agent="agent", model="some/model", max_steps=500, resumed=False)


def shown(tally: RunTally, event: Event) -> list[str]:
    """Return the lines of an event, whole."""
    return [line.plain() for line in tally.update(event)]


def test_the_start_names_model_thread_and_limit() -> None:
    (line,) = shown(RunTally(), START)
    assert line == "run run-1 starts: model some/model, thread thread-1, at most 500 steps"


def test_a_resumed_run_continues_its_step_count() -> None:
    tally = RunTally()
    (line,) = shown(
        tally, _event("run-start", agent="a", model="m", max_steps=500, resumed=True, steps=16)
    )
    assert line.startswith("run run-1 resumes") and line.endswith("16 of at most 500 steps made")
    assert tally.status().plain().startswith("step 16/500")


def test_a_step_shows_tokens_cache_share_and_cost_so_far() -> None:
    tally = RunTally()
    shown(tally, START)
    shown(tally, _answer(1))
    (line,) = shown(tally, _answer(2))
    assert line == ("step 2/500 · $0.0050 so far · 1 tool call · prompt 1,000 tokens, 90% cached")
    assert tally.status().plain() == "step 2/500 · $0.0050 · 2.1K tokens · 90% of input cached"


def test_an_unknown_price_is_never_shown_as_zero() -> None:
    tally = RunTally()
    shown(tally, START)
    (line,) = shown(tally, _answer(1, cost=None))
    assert "cost unknown so far" in line and "$" not in line


def test_missing_usage_is_not_an_error() -> None:
    tally = RunTally()
    event = _event("answer", step=1, calls=0, prompt_tokens=None, cached_tokens=None,
                   completion_tokens=None, cost=None)  # fmt: skip
    assert shown(tally, event) == ["step 1/0 · cost unknown so far · answer"]


def test_a_retry_shows_its_reason_and_wait() -> None:
    (line,) = shown(RunTally(), _event("model-retry", reason="rate limit", attempt=2, wait=1.5))
    assert line == "retry 2 in 1.5 s: rate limit"
    outage = _event("model-retry", reason="it is down", attempt=2, wait=9.0, outage=True)
    assert shown(RunTally(), outage) == ["the step is tried again in 9.0 s: it is down"]


def test_a_long_wait_for_a_rate_limit_is_shown_and_a_short_one_in_the_status() -> None:
    tally = RunTally()
    reason = "the provider's rate limit leaves 0 of 50 requests"
    (line,) = shown(tally, _event("model-wait", reason=reason, wait=12.34))
    assert line == f"waits, up to 12.3 s until a reset: {reason}"
    assert shown(tally, _event("model-wait", reason="a limit", wait=0.2)) == []
    assert tally.now("").text == "waiting: a limit"


def test_another_model_is_shown_with_the_reason_and_once_with_what_to_mend() -> None:
    tally = RunTally()
    given = {"from": "one", "to": "two", "why": "key", "reason": "one does not accept the key."}
    expected = "model two replaces one: one does not accept the key."
    assert shown(tally, _event("model-fallback", **given)) == [expected]
    warned = _event("model-fallback", **given, warning="Check the key.")
    assert shown(tally, warned) == [expected, "Check the key."]


def test_an_activation_is_shown_if_messages_left_the_prompt() -> None:
    data: dict[str, Any] = {"cause": "window", "left_out": 12, "cut": 3, "tokens": 4000}
    (line,) = shown(RunTally(), _event("activation", **data))
    assert "12 messages left the prompt, 3 tool results cut, 4,000 tokens stay" in line
    data |= {"left_out": 0, "cut": 0}
    assert shown(RunTally(), _event("activation", **data)) == []
    (line,) = shown(RunTally(), _event("activation", **(data | {"cause": "late"})))
    assert line.endswith("(observations are late)")


REMEMBERING = _event(
    "run-start", agent="agent", model="some/model", max_steps=500, resumed=False,
    observe_at=30_000, reflect_at=950, warnings=["It needs a key. Rules observe instead."],
)  # fmt: skip


def _observation(**data: Any) -> Event:
    known: dict[str, Any] = {
        "id": 3, "level": 0, "first": 1, "last": 9, "tokens": 200, "of": 2000, "origin": "model",
        "provisional": False, "again": False, "why": "", "calls": 1, "prompt_tokens": 1500,
        "cached_tokens": 0, "completion_tokens": 100, "cost": 1_000_000,
    }  # fmt: skip
    return _event("observation", **(known | data))


def test_the_start_names_what_memory_lacks() -> None:
    _, line = shown(RunTally(), REMEMBERING)
    assert line == "memory: It needs a key. Rules observe instead."


def test_a_step_shows_how_full_the_prompt_is() -> None:
    tally = RunTally()
    shown(tally, REMEMBERING)
    (line,) = shown(tally, _answer(1, raw_tokens=12_340, observed_tokens=800))
    assert "90% cached · raw 12.3K of 30K, observed 800 of 950" in line
    assert "raw 12.3K of 30K, observed 800 of 950" in tally.status().plain()
    shown(tally, _answer(1, run="child", raw_tokens=5, observed_tokens=5))
    assert "raw 12.3K of 30K" in tally.status().plain()


def test_the_status_shows_memory_work_until_it_ends() -> None:
    tally = RunTally()
    shown(tally, REMEMBERING)
    for purpose, doing in (("observe", "observing 2,000 tokens"), ("reflect", "condensing 2,000")):
        shown(tally, _event("memory", purpose=purpose, tokens=2000, again=False))
        assert doing in tally.status().plain()
        shown(tally, _event("memory", "child", purpose="observe", tokens=7, again=False))
        assert doing in tally.status().plain()
        shown(tally, _observation())
        assert doing not in tally.status().plain()
    shown(tally, _event("memory", purpose="observe", tokens=2000, again=True))
    assert "observing 2,000 tokens again" in tally.status().plain()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({}, "2,000 tokens observed as 200 (by the model)"),
        (
            {"origin": "rules", "provisional": True, "why": "It is down.", "calls": 0},
            "2,000 tokens observed as 200 (by rules, until the model does it: It is down.)",
        ),
        ({"level": 1}, "2,000 tokens of observations condensed to 200 (by the model)"),
        (
            {"level": 2, "origin": "archive", "why": "No progress."},
            "2,000 tokens of observations archived as 200 (by rules: No progress.)",
        ),
        ({"again": True}, "notes by rules for 2,000 tokens written again as 200 (by the model)"),
    ],
)
def test_an_observation_shows_who_wrote_it_and_why(data: dict[str, Any], expected: str) -> None:
    assert shown(RunTally(), _observation(**data)) == [f"memory: {expected}"]


def test_memory_usage_counts() -> None:
    tally = RunTally()
    shown(tally, REMEMBERING)
    shown(tally, _answer(1))
    shown(tally, _observation())
    assert tally.spent.text() == "2,650 tokens, 36% of input cached, $0.0035"
    shown(tally, _observation(calls=0, prompt_tokens=0, completion_tokens=0, cost=0))
    assert tally.spent.text() == "2,650 tokens, 36% of input cached, $0.0035"


def test_streamed_text_changes_only_what_happens_now() -> None:
    tally = RunTally()
    shown(tally, START)
    assert shown(tally, _event("text-delta", text="Hello")) == []
    assert tally.now("").text == "writing"
    shown(tally, _event("tool-start", call_id="c", tool="look", arguments={"at": 1}))
    assert tally.now("").text == "look at=1"


def test_plain_progress_writes_lines_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    progress = PlainProgress()
    with progress:
        progress.show(START)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("run run-1 starts")


def test_live_progress_shows_a_models_markup_as_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = LiveProgress()
    with progress:
        progress.show(START)
        progress.show(_event("tool-start", call_id="c", tool="say", arguments={"x": "[/b]\x1b[2J"}))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "[/b]" in captured.err and "\x1b[2J" not in captured.err


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert printable("a\x1b[31m\tb\nc\x07") == "a [31m\tb\nc "
    assert printable("a\nb", lines=False) == "a b"
    assert shorten("one\n two\x1b three", 12) == "one two  th…"
    assert short_arguments({"text": "\x1b]0;evil\x07"}).isprintable()


def test_recall_shows_the_number_of_matches_and_any_failure() -> None:
    tally = RunTally()
    shown(tally, START)
    match = {"thread": "thread-1", "node": 3, "call": None}
    assert shown(tally, _event("recall", found=[match], why="")) == ["recalled 1 earlier message"]
    assert shown(tally, _event("recall", found=[match, match], why="The embedder is down.")) == [
        "recall is degraded: The embedder is down.",
        "recalled 2 earlier messages",
    ]


def test_a_run_that_is_resumed_without_a_known_price_is_shown() -> None:
    used = {"prompt_tokens": 10, "cached_tokens": 0, "completion_tokens": 1, "cost": None}
    resumed = _event(
        "run-start", agent="a", model="m", max_steps=500, resumed=True, steps=1, used=used
    )
    tally = RunTally()
    shown(tally, resumed)
    assert "cost unknown" in tally.status().plain()
    shown(tally, _answer(2))
    assert "at least $0.0025" in tally.status().plain()
