"""Forms of a query's words: inflections, and function words that do not count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime_storage import NodeText, UserStore
from agent_runtime_storage.search.query_expansion import forms_of
from tests.storage.helpers import begin


@pytest.mark.parametrize(
    ("word", "form"),
    [
        ("adopting", "adopted"),
        ("puppies", "puppy"),
        ("hopped", "hopping"),
        ("hoping", "hope"),
        ("activities", "activity"),
        ("volunteered", "volunteering"),
        ("boxes", "box"),
        ("went", "go"),
        ("goes", "gone"),
        ("bought", "buying"),
        ("children", "child"),
    ],
)
def test_forms_are_symmetric(word: str, form: str) -> None:
    assert form in forms_of(word)
    assert word in forms_of(form)


def test_similar_words_are_not_forms() -> None:
    assert "hop" not in forms_of("hope")
    assert "past" not in forms_of("paste")


@pytest.mark.parametrize("word", ["x1", "東京", "straße", "foo_bar", "404", "is"])
def test_other_words_have_no_forms(word: str) -> None:
    assert forms_of(word) == (word,)


@given(st.text(alphabet="aeinostrdgy", min_size=1, max_size=12))
def test_the_word_itself_is_the_first_form_and_forms_are_unique(word: str) -> None:
    forms = forms_of(word)
    assert forms[0] == word
    assert len(set(forms)) == len(forms) < 40


async def test_function_words_alone_are_looked_for(user: UserStore) -> None:
    await begin(user)
    await begin(user, "r2", "t2")
    await user.search.index("t1", [NodeText(1, None, "who is it, then")])
    await user.search.index("t2", [NodeText(1, None, "nobody wins")])

    assert [hit.thread_id for hit in await user.search.find("who is it")] == ["t1"]
    assert [hit.thread_id for hit in await user.search.find("who wins it")] == ["t2"]


async def test_other_forms_rank_just_below_the_word_itself(user: UserStore) -> None:
    await begin(user)
    await begin(user, "r2", "t2")
    await begin(user, "r3", "t3")
    await user.search.index("t1", [NodeText(1, None, "she adopted a dog")])
    await user.search.index("t2", [NodeText(1, None, "they adopt a cat")])
    await user.search.index("t3", [NodeText(1, None, "when did the rain stop")])

    first, second = await user.search.find("When did they adopt it?")

    assert [first.thread_id, second.thread_id] == ["t2", "t1"]
    assert first.score < 2 * second.score
    assert [hit.thread_id for hit in await user.search.find("adopt", every_word=True)] == ["t2"]
