"""Recall where nothing fits: after small talk, and in threads without earlier messages."""

from __future__ import annotations

import pytest

from tests.memory.recall.recalling import FACTS, QUESTION, Open, world

__all__ = ["world"]


@pytest.mark.backends("file")
@pytest.mark.parametrize("mode", ["hybrid", "vectors", "text"])
async def test_small_talk_recalls_nothing_and_an_event_says_so(world: Open, mode: str) -> None:
    async with world(semantic_recall_top_k=5, semantic_recall_mode=mode) as one:
        await one.converse([*FACTS, "Good morning! Thank you!", "Danke!", "Well, so be it.", "Hm."])
        for text in ("Thanks!", "ok", "Good morning", "Vielen Dank!", "谢谢"):
            await one.say(text)
            assert not one.found() and not one.note()
            assert one.recalled[-1].data["why"] == "Nothing fits."
        await one.say(QUESTION)
        assert one.found()[0] == ("t", 1)


@pytest.mark.backends("file")
async def test_a_message_about_something_else_recalls_nothing(world: Open) -> None:
    async with world(semantic_recall_mode="text") as one:
        await one.converse()
        await one.say("Please convert the machine-readable list of tensor shapes into YAML files.")
        assert not one.found() and one.recalled[-1].data["why"] == "Nothing fits."
        await one.say("Does the coffee machine need anything?")
        assert one.found() == [("t", 7)]


@pytest.mark.backends("file")
async def test_a_thread_without_earlier_messages_has_no_event_of_recall(world: Open) -> None:
    async with world() as one:
        await one.say("Thanks!")
        await one.say(QUESTION, thread="other")
        assert not one.recalled
