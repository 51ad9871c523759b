"""What a run knows of files, by its log: texts that its prompt still shows, and changes since."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from agent_runtime import Agent, Runtime, ScriptedModel, Settings, workspace_tools
from agent_runtime.models.scripted import Scripted, call, calls, raw_call, say

TEXT = "".join(f"line {number} of the file\n" for number in range(60))
READ = call("read_file", path="a.txt")
EDIT = call("edit_file", path="a.txt", edits=[{"old": "line 1 of", "new": "line one of"}])


def others(count: int) -> list[Scripted]:
    """Return calls that fill the prompt, so that older messages leave it."""
    return [call("glob", pattern=f"{number}*") for number in range(count)]


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncGenerator[Runtime]:
    settings = Settings(
        database_url=f"file:{tmp_path / 'own.db'}", observational_memory=False, last_messages=2
    )
    async with Runtime.open(settings) as runtime:
        yield runtime


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.txt").write_text(TEXT)
    return work


def agent(folder: Path, *script: Scripted, max_steps: int | None = None) -> Agent:
    return Agent(ScriptedModel(script), tools=workspace_tools(folder), max_steps=max_steps)


def results(agent: Agent) -> list[str]:
    """Return the results that the model has seen last, one for each prompt after the first."""
    assert isinstance(agent.model, ScriptedModel)
    prompts = [request.messages for request in agent.model.requests]
    return [next(one.text for one in reversed(prompt) if one.role == "tool")
            for prompt in prompts if any(one.role == "tool" for one in prompt)]  # fmt: skip


async def test_a_text_that_the_prompt_shows_is_not_shown_again(
    runtime: Runtime, folder: Path
) -> None:
    part = call("read_file", path="a.txt", offset=5, limit=50)
    reader = agent(folder, READ, part, part, say("Done."))
    assert (await runtime.run(reader, "Read.")).ok
    first, second, third = results(reader)
    assert "60|line 59 of the file" in first
    assert second.startswith("a.txt is unchanged since step 1: the result of read_file there still")
    # A model that does not find it asks again.
    assert "54|line 53 of the file" in third


async def test_a_text_that_has_left_the_prompt_is_shown_again(
    runtime: Runtime, folder: Path
) -> None:
    reader = agent(folder, READ, *others(6), READ, say("Done."))
    assert (await runtime.run(reader, "Read.")).ok
    assert "60|line 59 of the file" in results(reader)[-1]


@pytest.mark.parametrize("left", [0, 6])
async def test_a_resumed_run_does_not_edit_a_file_that_changed_meanwhile(
    runtime: Runtime, folder: Path, left: int
) -> None:
    first = agent(folder, READ, *others(left), max_steps=1 + left)
    stopped = await runtime.run(first, "Edit.")
    assert stopped.stop_reason == "max_steps"
    (folder / "a.txt").write_text(TEXT + "by another program\n")
    editor = agent(folder, EDIT, READ, EDIT, say("Done."), max_steps=20)
    assert (await runtime.resume(stopped.run_id, editor)).ok
    refused, read, edited = results(editor)[-3:]
    assert refused.startswith("a.txt has changed since you last saw it, in step 1: ")
    assert "by another program" in read
    assert edited == "Edited a.txt: line 2."


async def test_a_write_that_a_crash_interrupted_can_be_repeated(
    runtime: Runtime, folder: Path
) -> None:
    stopped = await runtime.run(agent(folder, READ, max_steps=1), "Write.")
    # As the interrupted call left it.
    (folder / "a.txt").write_text("written\n")
    writes = [call("write_file", path="a.txt", content=text) for text in ("written\n", "other\n")]
    writer = agent(folder, *writes, say("Done."), max_steps=20)
    assert (await runtime.resume(stopped.run_id, writer)).ok
    first, second = results(writer)[-2:]
    assert first.startswith("Wrote 8 bytes to a.txt")
    # From the first on the run knows the file again.
    assert second.startswith("Wrote 6 bytes to a.txt")


async def test_edits_of_one_answer_know_of_each_other(runtime: Runtime, folder: Path) -> None:
    numbers = range(10, 30)
    together = calls(
        *(raw_call("edit_file", path="a.txt",
                   edits=[{"old": f"line {number} ", "new": f"LINE {number} "}])
          for number in numbers)
    )  # fmt: skip
    editor = agent(folder, READ, together, say("Done."))
    assert (await runtime.run(editor, "Edit.")).ok
    assert (folder / "a.txt").read_text().count("LINE") == len(numbers)


async def test_an_own_change_is_none_and_a_file_that_was_never_read_can_be_edited(
    runtime: Runtime, folder: Path
) -> None:
    back = call("edit_file", path="a.txt", edits=[{"old": "line one of", "new": "line 1 of"}])
    more = call("write_file", path="a.txt", content="end\n", append=True)
    editor = agent(folder, EDIT, more, back, say("Done."))
    assert (await runtime.run(editor, "Edit.")).ok
    assert (folder / "a.txt").read_text() == TEXT + "end\n"
