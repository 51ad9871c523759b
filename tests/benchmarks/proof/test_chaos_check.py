"""The check of killed runs detects faults: each promise is broken once, by hand."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import orjson
import pytest

from benchmarks.proof.chaos import worker
from benchmarks.proof.chaos_check import Fact, check, journal
from benchmarks.proof.chaos_worker import THREAD, Life


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the facts of an undisturbed run."""
    folder = tmp_path_factory.mktemp("calm")
    with worker() as work:
        death = work.live(Life(str(folder)))
    assert (death.signal, death.code) == (0, 0)
    return folder


@pytest.fixture
def folder(calm: Path, tmp_path: Path) -> Path:
    """A copy of the undisturbed run, to tamper with."""
    return Path(shutil.copytree(calm, tmp_path / "run"))


def _first(facts: list[Fact], **wanted: str) -> Fact:
    return next(fact for fact in facts if wanted.items() <= fact.items())


def _repeat_effect(facts: list[Fact]) -> None:
    effect = _first(facts, what="effect", tool="press")
    facts.insert(facts.index(effect), effect)


def _repeat_idempotent_effect_later(facts: list[Fact]) -> None:
    facts.append(_first(facts, what="effect", tool="put"))


def _lose_effect(facts: list[Fact]) -> None:
    facts.remove(_first(facts, what="effect", tool="press"))


def _invent_effect(facts: list[Fact]) -> None:
    facts.append({"what": "effect", "thread": THREAD, "call": "c0000zz00", "tool": "put"})


def _change_prompt(facts: list[Fact]) -> None:
    _first(facts, what="prompt")["messages"][0] = "another"


def _bill_less(facts: list[Fact]) -> None:
    facts.remove(_first(facts, what="billed"))


def _bill_more(facts: list[Fact]) -> None:
    facts.append({"what": "billed", "tokens": 1_000_000})


@pytest.mark.parametrize(
    ("tamper", "finding"),
    [
        (_repeat_effect, "ran 2 times"),
        (_repeat_idempotent_effect_later, "ran again after it was done"),
        (_lose_effect, "is recorded as done and never ran"),
        (_invent_effect, "which is no call of the log"),
        (_change_prompt, "do not extend the one before"),
        (_bill_less, "tokens were billed"),
        (_bill_more, "tokens were billed"),
    ],
)
async def test_a_journal_that_contradicts_the_log_is_detected(
    folder: Path, tamper: Callable[[list[Fact]], None], finding: str
) -> None:
    facts = journal(folder)
    tamper(facts)
    lines = [orjson.dumps(fact) + b"\n" for fact in facts]
    (folder / "journal").write_bytes(b"".join(lines))

    verdict = await check(Life(str(folder)))

    assert any(finding in what for what in verdict.violations), verdict


@pytest.mark.parametrize(
    ("sql", "finding"),
    [
        ("DELETE FROM events WHERE thread_id = 'chaos' AND id = 3", "not without gaps"),
        ("UPDATE events SET kind = 'run-finish' WHERE id = 3", "events of its run's end"),
        (
            "UPDATE calls SET status = 'started', outcome = NULL WHERE node_id = 4",
            "calls without a result",
        ),
        ("UPDATE calls SET outcome = 'interrupted' WHERE node_id = 4", "not that of its result"),
        ("UPDATE threads SET head = head - 1 WHERE id = 'chaos'", "not one chain without gaps"),
        ("UPDATE runs SET status = 'failed' WHERE thread_id = 'chaos'", "is failed"),
        ("UPDATE runs SET steps = steps + 1 WHERE thread_id = 'chaos'", "steps and has"),
        ("UPDATE runs SET tree_settled_tokens = 1 WHERE thread_id = 'chaos'", "what is settled"),
    ],
)
async def test_a_log_that_breaks_a_promise_is_detected(
    folder: Path, sql: str, finding: str
) -> None:
    with closing(sqlite3.connect(folder / "run.db")) as connection, connection:
        assert connection.execute(sql).rowcount > 0

    verdict = await check(Life(str(folder)))

    assert any(finding in what for what in verdict.violations), verdict


async def test_an_undisturbed_run_passes(calm: Path) -> None:
    verdict = await check(Life(str(calm)))

    assert (verdict.violations, verdict.interrupted, verdict.repeated) == ((), 0, 0)
