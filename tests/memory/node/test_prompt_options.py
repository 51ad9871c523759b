"""Dify's options of a memory: a template of the task, and a history as one text."""

from __future__ import annotations

import pytest

from agent_runtime import Agent, MemoryConfig, RolePrefix, ScriptedModel
from agent_runtime.errors import ConfigError
from agent_runtime.run.node_memory import NodeRun
from tests.memory.node.parts import echo, seen, without, writer
from tests.support.worlds import Play, play

__all__ = ["play"]

on_the_file = pytest.mark.backends("file")


@on_the_file
async def test_a_template_wraps_the_task_and_the_memory_keeps_the_task_alone(play: Play) -> None:
    agent = writer(query_prompt_template="Judge this: {{#sys.query#}} Be brief.")
    async with play() as world:
        await world.run(agent, "draft\0\ud800 {{#sys.query#}}", thread="talk")
        await world.run(agent, "two", thread="talk")
        kept, answer, task = seen(agent)
        # What a database cannot hold is replaced.
        assert kept == "draft\ufffd {{#sys.query#}}"
        assert answer == "Re: Judge this: draft\0\ufffd {{#sys.query#}} Be brief."
        assert task == "Judge this: two Be brief."


@on_the_file
async def test_a_template_applies_to_a_threads_task_too(play: Play) -> None:
    config = MemoryConfig(query_prompt_template="Q: {{#sys.query#}}")
    agent = Agent(ScriptedModel(echo), memory=config)
    async with play() as world:
        await world.run(agent, "one", thread="talk")
        await world.run(agent, "two", thread="talk")
        assert seen(agent) == ["Q: one", "Re: Q: one", "Q: two"]
        with pytest.raises(ConfigError, match="task is empty"):
            await world.run(agent, " ", thread="talk")


@on_the_file
async def test_the_owed_turn_of_a_dead_run_is_the_task_without_its_template(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = writer(query_prompt_template="Q: {{#sys.query#}}")
    async with play() as world:
        with monkeypatch.context() as patch:
            patch.setattr(NodeRun, "keep", without("keep"))
            await world.run(agent, "one", thread="talk")
        await world.run(agent, "two", thread="talk")
        assert seen(agent) == ["one", "Re: Q: one", "Q: two"]


@on_the_file
async def test_role_prefixes_make_the_history_one_text(play: Play) -> None:
    agent = writer(role_prefix=RolePrefix("Customer", "Support"))
    async with play() as world:
        for text in ("one", "two", "three"):
            await world.run(agent, text, thread="talk")
        note, task = seen(agent)
        assert task == "three"
        said = ["Customer: one", "Support: Re: one", "Customer: two", "Support: Re: two"]
        assert "\n".join(said) in note


@on_the_file
@pytest.mark.parametrize(
    ("config", "cause"),
    [
        (MemoryConfig(query_prompt_template="Be brief."), "no place for the task"),
        (MemoryConfig(role_prefix=RolePrefix()), "its thread is its memory"),
    ],
)
async def test_options_that_cannot_apply_are_refused(
    play: Play, config: MemoryConfig, cause: str
) -> None:
    async with play() as world:
        with pytest.raises(ConfigError, match=cause):
            await world.run(Agent(ScriptedModel(echo), memory=config), "one", thread="talk")
