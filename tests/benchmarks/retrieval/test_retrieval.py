"""The benchmark `retrieval` on a small scale: its figures and the systems it compares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from agent_runtime.models.retrieval.embedding import hashed
from benchmarks.memory.data import Conversation, Question, Session, Turn
from benchmarks.retrieval.retrieval import SYSTEMS, measure, score
from benchmarks.retrieval.threads import Asked, Talk, talk_of

SUBJECTS = ("gardening", "sailing", "woodwork", "astronomy", "cooking", "cycling")


@dataclass(frozen=True)
class Trigrams:
    """An embedder of letter trigrams."""

    name: str = "trigrams"

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector for each text."""
        return [hashed(text, 128) for text in texts]


def conversation(name: str, subjects: Sequence[str]) -> Conversation:
    """Return a conversation of one session per subject, with a question on each."""
    sessions: list[Session] = []
    questions: list[Question] = []
    for number, subject in enumerate(subjects):
        turns = [
            Turn(f"{number}.{place}", "user" if place % 2 == 0 else "assistant", text)
            for place, text in enumerate(
                [
                    f"Good morning, today it is {subject}.",
                    "What about it?",
                    f"For {subject} I bought a tool called thing{number}.",
                    "That sounds useful to me.",
                    "Thanks, until next time.",
                    "Goodbye.",
                ]
            )
        ]
        sessions.append(Session(f"2024/03/{number + 1:02} (Fri) 10:00", tuple(turns)))
        asked = f"Which tool did I buy for {subject}?"
        questions.append(Question(f"q{number}", "fact", asked, evidence=(f"{number}.2",)))
    return Conversation(name, tuple(sessions), tuple(questions))


@pytest.mark.backends("file", "postgres")
async def test_every_system_is_asked_and_conversations_are_separate(database_url: str) -> None:
    talks = [
        talk_of(conversation("one", SUBJECTS[:3])),
        talk_of(conversation("two", SUBJECTS[3:])),
    ]
    rows = await measure(database_url, talks, Trigrams())

    assert [row["system"] for row in rows] == list(SYSTEMS)
    assert {row["questions"] for row in rows} == {6}
    for row in rows:
        assert row["R@5"] <= row["R@10"] <= row["range"] <= 1.0
        assert 0 < row["tokens"] <= 18 * 20
    best = {row["system"]: row for row in rows}
    assert best["hybrid"]["R@10"] == best["full text"]["R@10"] == 1.0
    assert best["hybrid"]["nDCG@10"] >= 0.6


@pytest.mark.parametrize(
    ("found", "first", "range_"),
    [([5], 1.0, 1.0), ([7], 0.0, 1.0), ([4], 0.0, 1.0), ([3], 0.0, 0.0), ([8], 0.0, 0.0)],
)
def test_messages_near_a_hit_count_for_the_range(
    found: list[int], first: float, range_: float
) -> None:
    talk = talk_of(conversation("one", SUBJECTS[:2]))
    figures = score(talk, Asked("?", frozenset({5})), found)
    assert (figures["R@5"], figures["R@10"], figures["range"]) == (first, first, range_)


def test_a_hits_gain_falls_with_its_rank_and_is_zero_past_the_tenth() -> None:
    talk: Talk = talk_of(conversation("one", SUBJECTS))
    question = Asked("?", frozenset({1, 30}))

    second = score(talk, question, [10, 1, 20])
    assert second["nDCG@10"] == pytest.approx(0.6309 / 1.6309, abs=1e-3)
    assert second["R@10"] == 0.5
    late = score(talk, question, [*range(10, 20), 1])
    assert (late["R@10"], late["nDCG@10"]) == (0.0, 0.0)
    assert score(talk, question, [*range(10, 16), 1])["R@5"] == 0.0
