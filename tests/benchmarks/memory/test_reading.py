"""The benchmarks' files, official or as JSON lines, are read into conversations."""

from __future__ import annotations

import os
from pathlib import Path

import orjson
import pytest
import zstandard

from agent_runtime.errors import ConfigError
from benchmarks.memory import beam, locomo, longmemeval
from benchmarks.memory.data import (
    GOES_ON,
    UNANSWERED,
    Conversation,
    Exchange,
    Question,
    Session,
    Turn,
    exchanges_of,
    sample,
)
from tests.benchmarks.memory import conversations as made


def real_data(name: str) -> Path:
    """Return the folder of recorded conversations, or skip."""
    configured = os.environ.get("TEST_DATA_DIR")
    folder = Path(configured or os.devnull)
    if not (folder / name).is_dir():
        pytest.skip(f"there are no recorded conversations ({name}) on this machine")
    return folder


def test_longmemeval_in_its_published_format(tmp_path: Path) -> None:
    made.write(tmp_path / "longmemeval_s_cleaned.json", made.longmemeval(3))

    conversations = longmemeval.read(tmp_path)

    assert [conversation.id for conversation in conversations] == ["pet", "town", "car", "cat_abs"]
    first = conversations[0].questions[0]
    assert (first.answers, first.evidence, first.abstains) == (("Quincey",), ("s0:0",), False)
    assert first.date == "2023/06/01 (Thu) 10:00"
    assert conversations[0].text_of(first.evidence) == (made.FACTS[0][3],)
    assert (
        conversations[3].questions[0].abstains
        and conversations[3].questions[0].kind == "abstention"
    )
    assert exchanges_of(conversations[0])[0] == Exchange(
        f"[2023/05/01 (Mon) 09:00] {made.FACTS[0][3]}", "Good to know."
    )


def test_locomo_in_its_published_format(tmp_path: Path) -> None:
    made.write(tmp_path / "locomo10.json", made.locomo())

    [found] = locomo.read(tmp_path)

    assert [question.kind for question in found.questions] == [
        "multi-hop",
        "temporal",
        "adversarial",
    ]
    assert [question.evidence for question in found.questions] == [
        ("D1:2", "D10:1"),
        ("D10:1",),
        (),
    ]
    assert [question.answers for question in found.questions] == [("a kayak",), ("2023",), ()]
    assert found.questions[2].abstains
    assert exchanges_of(found) == [
        Exchange(f"[1:00 pm on 3 May, 2023] {GOES_ON}", "Bo: Hi Ida!"),
        Exchange("[1:00 pm on 3 May, 2023] Ida: I bought a kayak. [shares a kayak]", "Bo: Great."),
        Exchange("[2:00 pm on 9 May, 2023] Ida: It sank.", UNANSWERED),
    ]


def test_beam_in_its_published_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made.beam(tmp_path)
    monkeypatch.setitem(beam.CHATS, "100K", 1)

    [found] = beam.read(tmp_path)

    update, absent = found.questions
    assert (update.kind, update.evidence, update.answers) == (
        "knowledge_update",
        ("0", "2"),
        ("Tabs",),
    )
    assert absent.abstains and not absent.evidence
    assert exchanges_of(found) == [
        Exchange("[March-15-2024] Use tabs.", "I will."),
        Exchange("[May-01-2024] Bye.", UNANSWERED),
    ]


def test_an_unknown_format_is_reported_by_file(tmp_path: Path) -> None:
    made.write(tmp_path / "longmemeval_s_cleaned.json", [{"question": "What?"}])
    with pytest.raises(ConfigError, match="another form") as raised:
        longmemeval.read(tmp_path)
    assert "--data DIR" in raised.value.cure
    (tmp_path / "locomo10.json").write_bytes(b"{")
    with pytest.raises(ConfigError, match="cannot be read"):
        locomo.read(tmp_path)


def test_evidence_is_planted_by_date(tmp_path: Path) -> None:
    history = {
        "question_id": "a",
        "question_type": "multi-session",
        "question": "Where?",
        "answer": ["here"],
        "question_date": "2023/06/01 (Thu) 10:00",
        "sessions": [
            {"session_id": "x", "date": "2023-05-01T09:00:00", "turns": [_said("One.")]},
            {"session_id": "y", "date": "2023-05-03T09:00:00", "turns": [_said("Three.")]},
        ],
    }
    planted = {
        "question_id": "b",
        "question_type": "knowledge-update",
        "question": "What?",
        "answer": ["two"],
        "question_date": "2023/06/01 (Thu) 10:00",
        "abstention": False,
        "evidence_sessions": [
            {"session": 1, "date": "2023/05/02 (Tue) 09:00", "turns": [_said("Two.")]}
        ],
    }
    _lines(tmp_path / "haystacks.jsonl.zst", history)
    with pytest.raises(ConfigError, match="no evidence"):
        longmemeval.planted(longmemeval.read(tmp_path), tmp_path)
    _lines(tmp_path / "evidence.jsonl.zst", planted)

    [found] = longmemeval.planted(longmemeval.read(tmp_path), tmp_path)

    assert [turn.text for session in found.sessions for turn in session.turns] == [
        "One.",
        "Two.",
        "Three.",
    ]
    assert found.text_of(found.questions[1].evidence) == ("Two.",)
    assert found.sessions[0].date == "2023/05/01 (Mon) 09:00"


def _said(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def _lines(path: Path, *rows: object) -> None:
    lines = b"\n".join(map(orjson.dumps, rows))
    path.write_bytes(zstandard.ZstdCompressor().compress(lines))


def test_a_sample_is_evenly_spaced() -> None:
    def conversation(name: str, count: int) -> Conversation:
        questions = tuple(Question(f"{name}{number}", "k", "?") for number in range(count))
        return Conversation(name, (Session("", (Turn("1", "user", "Hi."),)),), questions)

    everything = [conversation("a", 6), conversation("b", 2)]
    assert sample(everything, None) == everything == sample(everything, 99)
    chosen = sample(everything, 4)
    assert [q.id for conversation in chosen for q in conversation.questions] == [
        "a0",
        "a2",
        "a4",
        "b0",
    ]
    assert [conversation.id for conversation in sample(everything, 1)] == ["a"]


def test_the_recorded_conversations_are_read_completely() -> None:
    histories = longmemeval.planted(
        longmemeval.read(real_data("longmemeval")), real_data("longmemeval")
    )
    talks = locomo.read(real_data("locomo"))
    chats = beam.read(real_data("beam"))
    for conversation in [*histories, *talks, *chats]:
        said = exchanges_of(conversation)
        assert len(said) > 50
        assert all(each.said.strip() and each.answer.strip() for each in said)
        turns = [turn.id for session in conversation.sessions for turn in session.turns]
        assert len(turns) == len(set(turns))
        assert all(q.answers or q.rubric or q.abstains for q in conversation.questions)
    known = [
        bool(talk.text_of(q.evidence)) for talk in talks for q in talk.questions if not q.abstains
    ]
    assert all(known)
