"""The scripted reader answers from the prompt, and the judges score answers correctly."""

from __future__ import annotations

import pytest

from agent_runtime import ScriptedModel
from agent_runtime.messages import PromptMessage
from agent_runtime.models.base import ModelRequest
from benchmarks.memory.data import Conversation, Question, Session, Turn
from benchmarks.memory.judge import ModelJudge, RulesJudge, prompt_of, read_verdict
from benchmarks.memory.reader import UNKNOWN, scripted_reader

FACT = (
    "I went to the market. My sister Greta sold nine jars of plum jam there on Friday. It rained."
)
OTHER = "Greta keeps her money in a tin."
TALK = Conversation("c", (Session("", (Turn("1", "user", FACT), Turn("2", "user", OTHER))),), ())
ASKED = Question("q", "multi-hop", "How many jars did Greta sell?", "", ("nine",), (), ("1",))


async def answer_to(question: Question, *shown: str) -> str:
    messages = [PromptMessage("user", text) for text in (*shown, question.text)]
    model = scripted_reader(TALK, question, 10_000)
    async with model.stream(ModelRequest(tuple(messages))) as events:
        return "".join([getattr(event, "text", "") async for event in events][-1:])


async def test_the_reader_answers_from_raw_or_noted_evidence() -> None:
    assert await answer_to(ASKED, FACT) == "nine"
    assert await answer_to(ASKED, "14:05 - sister Greta sold nine jars of plum jam") == "nine"


@pytest.mark.parametrize(
    "shown", ["", OTHER, "My brother sold the car on Friday.", "I went to the market. It rained."]
)
async def test_the_reader_does_not_know_absent_evidence(shown: str) -> None:
    assert await answer_to(ASKED, shown) == UNKNOWN


async def test_the_question_itself_is_not_evidence() -> None:
    question = Question("q", "k", FACT, "", ("nine",), (), ("1",))
    assert await answer_to(question) == UNKNOWN


async def test_all_evidence_is_required_and_points_count_by_share() -> None:
    both = Question("q", "k", "What of Greta?", "", ("jam and tin",), (), ("1", "2"))
    assert await answer_to(both, FACT) == UNKNOWN
    assert await answer_to(both, FACT, OTHER) == "jam and tin"
    points = Question("q", "k", "What of Greta?", "", (), ("jam", "tin"), ("1", "2"))
    assert await answer_to(points, OTHER) == "jam"
    assert await answer_to(points, OTHER, FACT) == "jam\ntin"


ABSENT = Question("q", "adversarial", "Which cat?", abstains=True)
POINTS = Question("q", "summarization", "What?", rubric=("LLM response should state: red", "blue"))
RIGHT = Question("q", "temporal", "When?", answers=("7 May 2023", "the 7th of May"))


@pytest.mark.parametrize(
    ("question", "answer", "score"),
    [
        (RIGHT, "It was on May 7, 2023.", 1.0),
        (RIGHT, "On the 7th of May, I think.", 1.0),
        (RIGHT, "It was on May 8, 2023.", 0.0),
        (RIGHT, UNKNOWN, 0.0),
        (POINTS, "Red, then blue.", 1.0),
        (POINTS, "Only blue.", 0.5),
        (POINTS, "The response should state nothing.", 0.0),
        (ABSENT, UNKNOWN, 1.0),
        (ABSENT, "You never mentioned a cat.", 1.0),
        (ABSENT, "The black one.", 0.0),
    ],
)
async def test_rules_compare_words(question: Question, answer: str, score: float) -> None:
    assert (await RulesJudge().judge(question, answer)).score == score


@pytest.mark.parametrize(
    ("question", "reply", "score"),
    [
        (RIGHT, "Yes.", 1.0),
        (RIGHT, " **no**", 0.0),
        (RIGHT, "Perhaps", None),
        (ABSENT, "yes", 1.0),
        (POINTS, "1: yes\n2: partly", 0.75),
        (POINTS, "Here:\n1. no\n2. yes\n", 0.5),
        (POINTS, "1: yes", None),
    ],
)
def test_a_verdict_is_parsed_or_none(question: Question, reply: str, score: float | None) -> None:
    assert read_verdict(question, reply) == score


async def test_a_judge_is_retried_once_and_its_cost_is_recorded() -> None:
    model = ScriptedModel(["Hm.", "yes"])
    verdict = await ModelJudge(model).judge(RIGHT, "On May 7.")
    assert (verdict.score, len(verdict.calls)) == (1.0, 2)
    model = ScriptedModel(["Hm.", "Hm."])
    verdict = await ModelJudge(model).judge(RIGHT, "On May 7.")
    assert (verdict.score, len(verdict.calls)) == (None, 2)


def test_a_judge_gets_the_rubric_of_the_question_type() -> None:
    assert "span" in prompt_of(RIGHT, "?") and "7 May 2023" in prompt_of(RIGHT, "?")
    assert "1. red\n2. blue" in prompt_of(POINTS, "?")
    assert "do not tell" in prompt_of(ABSENT, "?")
    assert "<answer>\nThe black one.\n</answer>" in prompt_of(ABSENT, "The black one.")
