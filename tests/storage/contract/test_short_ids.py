"""Ids by their beginning or end, and the spec of a run."""

from __future__ import annotations

import pytest

from agent_runtime_storage import Store
from agent_runtime_storage.contract.errors import LeaseLost, NotFound
from tests.storage.helpers import begin


async def _found(store: Store, text: str, limit: int = 10) -> list[str]:
    return [one.id for one in await store.of("u").ids.find("thread", text, limit=limit)]


async def test_a_beginning_and_an_end_find_ids_in_any_case(store: Store) -> None:
    threads = store.of("u").threads
    for name in ("abcd-1", "abcd-2", "xy-ABCD", "a%c_d", "a!c"):
        await threads.ensure(name, title=f"Title of {name}")
    await store.of("v").threads.ensure("abcd-3")

    assert set(await _found(store, "abcd")) == {"abcd-1", "abcd-2", "xy-ABCD"}
    assert await _found(store, "ABCD-1") == ["abcd-1"]
    assert await _found(store, "d-2") == ["abcd-2"]
    assert len(await _found(store, "abcd", limit=2)) == 2
    # What means anything in a pattern is text here.
    assert await _found(store, "a%c") == ["a%c_d"] and await _found(store, "!c") == ["a!c"]
    assert await _found(store, "%") == [] and await _found(store, "b_d") == []
    [one] = await store.of("u").ids.find("thread", "abcd-1")
    assert one.title == "Title of abcd-1" and one.updated_at > 0


async def test_runs_are_found(store: Store) -> None:
    user = store.of("u")
    await begin(user)
    assert [one.id for one in await user.ids.find("run", "r1")] == ["r1"]
    assert await user.ids.find("question", "r1") == []


async def test_a_spec_is_replaced_as_long_as_nobody_has_taken_the_run_over(store: Store) -> None:
    runs = store.of("u").runs
    await begin(store.of("u"))
    await runs.replace_spec("r1", {"model": "b"}, {"program": "p"}, replaces=1)
    run = await runs.get("r1")
    assert (run.spec, run.internal) == ({"model": "b"}, {"program": "p"})
    with pytest.raises(LeaseLost):
        await runs.replace_spec("r1", {"model": "c"}, {}, replaces=2)
    with pytest.raises(NotFound):
        await runs.replace_spec("r9", {}, {}, replaces=1)
    with pytest.raises(NotFound):
        await store.of("v").runs.replace_spec("r1", {}, {}, replaces=1)
    assert (await runs.get("r1")).spec == {"model": "b"}
