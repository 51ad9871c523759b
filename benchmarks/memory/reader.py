"""A reader without a language model: it answers only from evidence in its prompt.

It knows which turns hold the answer.  Of each it takes the sentence that shares most words with the
question and its answer, and looks for a passage of the prompt that still contains it, raw or as an
observation.  It gives the answer if all evidence is there; for an answer in points, the share
found.  If it has `recall`, it searches for the question once before it gives up.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import anyio.to_thread

from agent_runtime import ScriptedModel
from agent_runtime.memory.recall.tool import recall
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, say
from benchmarks.memory.data import Conversation, Question

NAME = "scripted-reader"
UNKNOWN = "I do not know: what was said does not tell."
FOUND = 0.6
"""A passage with this share of a sentence's words contains the sentence."""
LEAST_WORDS = 4
"""A sentence of fewer words is joined with the next one."""

_NONE: frozenset[str] = frozenset()
_WORD = re.compile(r"[^\W_]+")
_BREAK = re.compile(r"(?<=[.!?])\s+|\n+")
_LITTLE = """\
a about all also am an and any are as at be been but by can could did do does for from get
had has have he her him his how i if in into is it its just like me more my of on or our out
s she so some t than that the their them then there these they this to up us was we were
what when where which who will with would you your"""
_COMMON = frozenset(_LITTLE.split())


def words(text: str) -> frozenset[str]:
    """Return the significant words of a text; all of them if none is."""
    tokens = frozenset(_WORD.findall(text.lower()))
    return tokens - _COMMON or tokens


def answerable(conversations: Sequence[Conversation]) -> list[Conversation]:
    """Return the conversations with the questions that known evidence can answer."""
    chosen: list[Conversation] = []
    for conversation in conversations:
        questions = tuple(
            q for q in conversation.questions if q.abstains or conversation.text_of(q.evidence)
        )
        if questions:
            chosen.append(replace(conversation, questions=questions))
    return chosen


def scripted_reader(conversation: Conversation, question: Question, window: int) -> ScriptedModel:
    """Return a model that answers this question from the evidence in its prompt."""
    evidence = conversation.text_of(question.evidence)
    known = " ".join((question.text, *question.answers, *question.rubric))
    wanted = [key_words(text, words(known)) for text in evidence]

    async def read(request: ModelRequest) -> Scripted:
        shown = [message.text.replace(question.text, "") for message in request.messages]
        count = await anyio.to_thread.run_sync(find, wanted, shown)
        searched = request.messages[-1].role == "tool"
        if count < len(wanted) and request.tools and not searched:
            return call(recall.name, query=question.text)
        return say(_answer(question, count, len(wanted)))

    return ScriptedModel(read, name=NAME, window=window)


def _answer(question: Question, count: int, wanted: int) -> str:
    if question.abstains or not count:
        return UNKNOWN
    if question.rubric:
        return "\n".join(question.rubric[: len(question.rubric) * count // wanted]) or UNKNOWN
    return question.answers[0] if count == wanted else UNKNOWN


def key_words(text: str, known: frozenset[str]) -> frozenset[str]:
    """Return the words of the sentence that shares most words with the known ones."""
    return max(_sentences(text), key=lambda one: (len(one & known), len(one)), default=_NONE)


def find(wanted: Sequence[frozenset[str]], shown: Sequence[str]) -> int:
    """Return how many of the sentences are contained in some passage of the texts."""
    passages = [passage for text in shown for passage in _passages(text)]
    return sum(any(_says(passage, sentence) for passage in passages) for sentence in wanted)


def _says(passage: frozenset[str], sentence: frozenset[str]) -> bool:
    return bool(sentence) and len(sentence & passage) >= FOUND * len(sentence)


@functools.lru_cache(maxsize=8192)
def _passages(text: str) -> tuple[frozenset[str], ...]:
    """Return the words of each pair of consecutive sentences."""
    sentences = list(_sentences(text))
    return tuple(
        one | after for one, after in zip(sentences, [*sentences[1:], _NONE], strict=False)
    )


def _sentences(text: str) -> Iterator[frozenset[str]]:
    held = ""
    for part in _BREAK.split(text):
        held = f"{held} {part}".strip()
        if len(words(held)) >= LEAST_WORDS:
            yield words(held)
            held = ""
    if held:
        yield words(held)
