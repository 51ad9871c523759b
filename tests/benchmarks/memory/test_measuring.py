"""The memory benchmarks end to end, by rules and by models: memory improves the answers.

The real product stores small conversations; where models are used, each is called through litellm,
and one server on loopback plays them all.
"""

from __future__ import annotations

import argparse
import io
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from anyio.from_thread import start_blocking_portal

from agent_runtime import Agent, Runtime, Settings
from agent_runtime.errors import ConfigError, ModelAuthError
from agent_runtime.log.branch import load_view
from agent_runtime.messages import AssistantMessage, UserMessage
from agent_runtime.testing.model_server import OpenAIServer, Reply, failure, unauthorized
from benchmarks.__main__ import main
from benchmarks.frame import Report
from benchmarks.memory import longmemeval
from benchmarks.memory.data import Conversation, Exchange
from benchmarks.memory.kept import ANSWERS, Kept
from benchmarks.memory.measure import add_arguments, report_of
from benchmarks.memory.threads import log_only, remember
from tests.benchmarks.memory import conversations as made

READER, OBSERVER, JUDGE = "openai/gpt-4.1", "openai/gpt-4.1-mini", "openai/gpt-4.1-nano"
SMALL = ("--observe-at", "1500", "--last-messages", "4")


def options(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data")
    add_arguments(parser)
    return parser.parse_args([*SMALL, *arguments])


@pytest.fixture
def conversations(tmp_path: Path) -> list[Conversation]:
    """Four questions of a type that the official file has."""
    made.write(tmp_path / "longmemeval_s_cleaned.json", made.longmemeval(20))
    return longmemeval.read(tmp_path)


def rows_of(report: Report, context: str) -> dict[str, dict[str, Any]]:
    """Return a context's rows by label."""
    return {row["what"]: dict(row) for row in report.rows if row["context"] == context}


async def test_without_memory_less_is_known(conversations: list[Conversation]) -> None:
    report = await report_of("longmemeval", conversations, options("--runs", "1"))

    scores = {
        context: rows_of(report, context)["all (micro)"]["score"]
        for context in ("full", "none", "memory")
    }
    # One of the four questions is about something never mentioned.
    assert scores == {"full": 1.0, "none": 0.25, "memory": 1.0}
    assert rows_of(report, "none")["abstention"]["score"] == 1.0
    assert rows_of(report, "memory")["observations"]["n"] > 4
    prompts = [
        rows_of(report, one)["tokens of a prompt"]["n"] for one in ("none", "memory", "full")
    ]
    assert prompts == sorted(prompts)
    assert all(target.met for target in report.targets) and len(report.targets) == 2


@pytest.mark.slow
async def test_recall_finds_facts_that_observations_omit(conversations: list[Conversation]) -> None:
    # In a window this small, rules condense until the oldest facts are dropped.
    small = ("--window", "3000", "--observe-at", "1100", "--reflect-at", "500")
    chosen = options("--runs", "1", "--contexts", "memory", "--recall", *small)
    report = await report_of("longmemeval", conversations, chosen)

    alone, recalling = rows_of(report, "memory"), rows_of(report, "memory+recall")
    assert alone["all (micro)"]["score"] < recalling["all (micro)"]["score"] == 1.0
    assert alone["calls of the reader"]["n"] == 4 < recalling["calls of the reader"]["n"]


def test_the_command_writes_a_report_and_the_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made.write(tmp_path / "longmemeval_s_cleaned.json", made.longmemeval(4))
    answers = tmp_path / "answers.jsonl"
    given = ["longmemeval", "--data", str(tmp_path), "--limit", "2", "--answers", str(answers)]

    assert main([*given, "--contexts", "full", "none", *SMALL]) == 0

    assert "score with full" in capsys.readouterr().out
    rows = [orjson.loads(line) for line in answers.read_bytes().splitlines()]
    assert {(row["context"], row["run"]) for row in rows} == {
        (context, run) for context in ("full", "none") for run in (1, 2, 3)
    }
    assert main(["longmemeval"]) == 1
    assert "--data DIR" in capsys.readouterr().err


class Players:
    """A server's script that plays reader, Observer, Reflector and judge by the model's name."""

    def __init__(self) -> None:
        self.reader_fails = False
        self.prompts: dict[str, list[str]] = {}

    def __call__(self, request: dict[str, Any], n: int) -> Reply:
        del n
        prompt = "\n".join(str(message["content"]) for message in request["messages"])
        name = f"openai/{request['model']}"
        self.prompts.setdefault(name, []).append(prompt)
        if name == READER:
            return self._read(prompt)
        if name == OBSERVER:
            facts = [fact for _, _, _, fact in made.FACTS if fact in prompt]
            lines = [f"2023-05-01 09:00 | critical | User states: {fact}" for fact in facts]
            other = "2023-05-02 09:00 | info | They spoke about gardens, trains and bread."
            return Reply("\n".join([*lines, other, "TASK: talk", "NEXT: none"]))
        right = any(f">\n{answer}\n<" in prompt for _, _, answer, _ in made.FACTS)
        return Reply("yes" if right else "no")

    def _read(self, prompt: str) -> Reply:
        if self.reader_fails:
            return failure(400, "This content is not allowed", code="content_filter")
        asked = prompt[prompt.rindex("]") :]
        for _, question, answer, fact in made.FACTS:
            if question in asked and fact in prompt:
                return Reply(answer)
        return Reply("I do not know.")


@pytest.mark.slow
async def test_models_read_observe_and_judge_through_litellm(
    conversations: list[Conversation], monkeypatch: pytest.MonkeyPatch
) -> None:
    players = Players()
    models = ("--reader", READER, "--observer", OBSERVER, "--judge", JUDGE)
    chosen = options("--runs", "2", "--contexts", "none", "memory", *models)
    async with OpenAIServer(players) as server:
        monkeypatch.setenv("AGENT_RUNTIME_MODEL_BASE_URL", server.base_url)
        report = await report_of("longmemeval", conversations[:2], chosen)

    memory, none = rows_of(report, "memory"), rows_of(report, "none")
    assert memory["all (micro)"]["score"] == 1.0
    assert none["all (micro)"]["score"] == 0.0
    assert players.prompts.keys() == {READER, OBSERVER, JUDGE}
    assert memory["calls of the observer"]["$"] > 0
    assert "observations by rules for want of the model's" not in memory
    assert "calls of the observer" not in none
    for row in (memory, none):
        assert row["calls of the reader"]["n"] == row["calls of the judge"]["n"] == 2
        assert row["calls of the reader"]["$"] > row["calls of the judge"]["$"] > 0
    assert memory["calls of the reader"]["tokens"] > none["calls of the reader"]["tokens"]
    assert memory["all (micro)"]["sd of runs"] == 0
    assert report.targets == []


async def test_a_failed_question_is_counted_and_the_rest_continues(
    conversations: list[Conversation], monkeypatch: pytest.MonkeyPatch
) -> None:
    players = Players()
    players.reader_fails = True
    chosen = options("--runs", "1", "--reader", READER, "--contexts", "full")
    async with OpenAIServer(players) as server:
        monkeypatch.setenv("AGENT_RUNTIME_MODEL_BASE_URL", server.base_url)
        report = await report_of("longmemeval", conversations, chosen)

    assert rows_of(report, "full")["questions that failed"]["n"] == 4
    assert rows_of(report, "full")["all (micro)"]["score"] == 0


async def test_a_wrong_key_ends_it_at_once(
    conversations: list[Conversation], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = options("--runs", "1", "--reader", READER, "--contexts", "full")
    async with OpenAIServer(lambda request, n: unauthorized("sk-wrong")) as server:
        monkeypatch.setenv("AGENT_RUNTIME_MODEL_BASE_URL", server.base_url)
        with pytest.raises(ModelAuthError):
            await report_of("longmemeval", conversations, chosen)
        assert len(server.requests) <= 4


async def test_rules_never_replace_a_failed_observer_in_a_measurement(
    conversations: list[Conversation],
) -> None:
    chosen = options("--runs", "1", "--observer", OBSERVER, "--contexts", "memory")
    with pytest.raises(ConfigError, match="memory would not be the one") as raised:
        await report_of("longmemeval", conversations[:1], chosen)
    assert "--observer extractive" in raised.value.cure


async def test_remember_and_log_only_store_the_same_messages(tmp_path: Path) -> None:
    exchanges = [Exchange(*made.filler(number)) for number in range(20)]
    settings = Settings(
        database_url=f"file:{tmp_path}/run.db",
        observational_memory=True,
        observer_message_tokens=1000,
        last_messages=4,
    )
    async with Runtime.open(settings) as runtime:
        store = runtime.store.of(settings.user)
        fed = await remember(runtime, "remembered", exchanges, Agent(instructions="Listen."))
        await log_only(store, "logged", exchanges)
        logs = [
            [node.body for node in await store.log.branch(thread, 2 * len(exchanges))]
            for thread in ("remembered", "logged")
        ]
        view = await load_view(store, "logged", 2 * len(exchanges))

    assert logs[0] == logs[1]
    assert fed.observations > 2 and fed.late == 0
    messages = [entry.message for entry in view.entries]
    assert messages[:2] == [UserMessage(exchanges[0].said), AssistantMessage(exchanges[0].answer)]
    assert len(messages) == 2 * len(exchanges)


async def test_an_interrupted_measurement_continues_and_pays_for_nothing_twice(
    conversations: list[Conversation], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kept"
    models = ("--reader", READER, "--observer", OBSERVER, "--judge", JUDGE, "--keep", str(folder))
    chosen = options("--runs", "1", "--contexts", "memory", "--at-once", "1", *models)
    players = Players()
    async with OpenAIServer(players) as server:
        monkeypatch.setenv("AGENT_RUNTIME_MODEL_BASE_URL", server.base_url)
        whole = await report_of("longmemeval", conversations[:2], chosen)
        counts = {name: len(prompts) for name, prompts in players.prompts.items()}
        lines = (folder / ANSWERS).read_bytes().splitlines(keepends=True)
        rows = [orjson.loads(line) for line in lines]
        assert [row.get("fed") for row in rows] == [True, None, True, None]
        assert rows[1]["asked"] and rows[1]["right"] and rows[1]["answer"] and rows[1]["judged"]
        # As a kill leaves it: the second conversation is not remembered, its line is unfinished.
        (folder / ANSWERS).write_bytes(b"".join(lines[:2]) + lines[2][:30])
        again = await report_of("longmemeval", conversations[:2], chosen)
        assert len(players.prompts[READER]) == counts[READER] + 1
        # Only the second conversation is observed again.
        more = players.prompts[OBSERVER][counts[OBSERVER] :]
        assert more and not any("my parrot is called" in prompt for prompt in more)
        observed = len(players.prompts[OBSERVER])
        assert (folder / ANSWERS).read_bytes().count(b"\n") == 4
        last = await report_of("longmemeval", conversations[:2], chosen)
    assert len(players.prompts[READER]) == counts[READER] + 1
    assert len(players.prompts[OBSERVER]) == observed
    assert not list((folder / "databases").iterdir())

    for report in (again, last):
        now, before = rows_of(report, "memory"), rows_of(whole, "memory")
        assert now["all (micro)"] == before["all (micro)"]
        for what in ("calls of the reader", "calls of the judge"):
            assert now[what]["n"] == before[what]["n"] == 2


def test_a_folder_of_another_measurement_or_in_use_is_refused(tmp_path: Path) -> None:
    held, refused = Kept(tmp_path / "kept", {"reader": "a"}), pytest.raises(ConfigError)
    with held, refused as caught:
        Kept(tmp_path / "kept", {"reader": "a"})
    assert "Another process" in caught.value.message
    with pytest.raises(ConfigError, match="reader differs"):
        Kept(tmp_path / "kept", {"reader": "b"})
    (tmp_path / "kept" / ANSWERS).write_bytes(b'{"unit": 1}\n')
    with pytest.raises(ConfigError, match="damaged"):
        Kept(tmp_path / "kept", {"reader": "a"})


def test_the_command_says_what_models_will_cost_and_asks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made.write(tmp_path / "longmemeval_s_cleaned.json", made.longmemeval(20))
    kept = tmp_path / "kept"
    models = ["--reader", READER, "--observer", OBSERVER, "--judge", JUDGE, "--keep", str(kept)]
    given = ["longmemeval", "--data", str(tmp_path), "--runs", "1", *models, *SMALL]
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert main(given) == 1
    said = capsys.readouterr().err
    assert "About $" in said and "--yes" in said
    for name in (READER, OBSERVER, JUDGE):
        assert name in said
    assert not (kept / ANSWERS).read_bytes()
    with start_blocking_portal() as portal:
        server = OpenAIServer(Players())
        with portal.wrap_async_context_manager(server):
            monkeypatch.setenv("AGENT_RUNTIME_MODEL_BASE_URL", server.base_url)
            assert main([*given, "--yes", "--contexts", "memory"]) == 0
    assert len((kept / ANSWERS).read_bytes().splitlines()) == 8
