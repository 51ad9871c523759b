"""Full-text search finds what a run appends, from the transaction that appends it."""

from __future__ import annotations

from typing import Any

import pytest

from agent_runtime import Agent, tool
from agent_runtime.messages import searchable_body
from agent_runtime.models.scripted import call, say
from agent_runtime_storage import NodeText
from tests.support.worlds import Play


@tool
def look_up(where: dict[str, Any]) -> str:
    """Look something up."""
    return f"Found the walrus among {len(where)}."


async def test_a_runs_task_calls_results_and_answer_are_found(play: Play) -> None:
    script = [
        call("look_up", where={"kind": "mammal\nnarwhal", "deep": [{"a": "zebra-fish"}]}),
        say("It was an octopus."),
    ]
    async with play(script) as world:
        result = await world.run(Agent(world.model, tools=[look_up]), "Find the penguin.")
        store, thread = world.store, result.thread_id
        places = {
            "penguin": (1, None),
            "look_up": (2, None),
            "narwhal": (2, None),
            "zebra-fish": (2, None),
            "walrus": (2, 0),
            "octopus": (3, None),
        }
        for query, place in places.items():
            hits = await store.search.find(query, every_word=True)
            assert (hits[0].node_id, hits[0].call) == place, query
            assert hits[0].thread_id == thread
        # Indexing the log again gives the same texts.
        before = await store.search.find(" ".join(places))
        head = (await store.threads.get(thread)).head or 0
        texts = [
            NodeText(node.seq, None, searchable_body("node", node.body))
            for node in await store.log.branch(thread, head)
        ]
        assert [text.text for text in texts] == [
            "Find the penguin.",
            "look_up\nwhere\nkind\nmammal\nnarwhal\ndeep\na\nzebra-fish",
            "It was an octopus.",
        ]
        await store.search.index(thread, texts)
        assert await store.search.find(" ".join(places)) == before


@pytest.mark.backends("file")
async def test_results_of_the_recall_tool_are_not_indexed(play: Play) -> None:
    script = [
        call("look_up", where={}),
        call("recall", query="walrus"),
        say("There was one."),
    ]
    async with play(script) as world:
        await world.run(Agent(world.model, tools=[look_up]), "Find it.")
        hits = await world.store.search.find("walrus among", every_word=True)
        assert [(hit.node_id, hit.call) for hit in hits] == [(2, 0)]
