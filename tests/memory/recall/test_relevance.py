"""What fits a query, and what is small talk."""

from __future__ import annotations

import random

import pytest

from agent_runtime.memory.recall.relevance import lower_bound
from agent_runtime.memory.recall.small_talk import is_small_talk

SMALL_TALK = """\
thanks!|ok|Good morning!|👍|...|Thank you sooo much!|haha nice|sounds good|got it|how are you?
Guten Morgen|Danke dir, alles klar!|Schönes Wochenende!|Merci beaucoup !|D'accord, c'est bon
Bonne nuit|Muchas gracias|¡Hola! ¿Qué tal?|bom dia|muito obrigado|grazie mille|va bene, ciao
dank je wel|dzień dobry|спасибо большое!|Доброе утро|teşekkür ederim|شكرا جزيلا|صباح الخير
ठीक है|谢谢!|好的,谢谢你|ありがとうございます!|了解です|네, 알겠습니다|안녕하세요!
xin chào|terima kasih|ευχαριστώ|תודה רבה|kiitos"""
ABOUT_SOMETHING = """\
What is my dog's name?|3|option 2|deploy it|thanks, now what about the budget?|config.yaml
ok, delete the branch|Good morning! Remind me of my flight|How did the test go?|good restaurants?
Wie heißt mein Hund?|Danke, und wie war das Passwort?|Quel est mon port préféré ?
merci pour le gâteau|我的狗叫什么名字?|好的,端口是多少|犬の名前は何ですか
개 이름이 뭐예요?|what did we do today?"""


def lines(text: str) -> list[str]:
    """Return the messages of a list."""
    return [one for line in text.splitlines() for one in line.split("|")]


@pytest.mark.parametrize("text", lines(SMALL_TALK))
def test_small_talk_is_known_in_many_languages(text: str) -> None:
    assert is_small_talk(text)


@pytest.mark.parametrize("text", lines(ABOUT_SOMETHING))
def test_a_message_about_something_is_no_small_talk(text: str) -> None:
    assert not is_small_talk(text)


def test_small_talk_is_found_out_in_time_that_grows_with_the_text_only() -> None:
    assert not is_small_talk("好" * 50_000 + "端口")
    assert not is_small_talk("ok " * 50_000)


def test_what_lies_outside_of_the_messages_does_not_change_for_an_outlier() -> None:
    draw = random.Random(1)
    near = [draw.gauss(0.7, 0.05) for _ in range(24)]
    bound = lower_bound(near)
    assert bound is not None and 0.45 < bound < 0.65
    with_outlier = lower_bound([*near[1:], 0.1])
    assert with_outlier is not None and abs(with_outlier - bound) < 0.03
    assert lower_bound(near[:7]) is None
