"""Commands in the background: started, followed, killed, reported, and ended with their run."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from agent_runtime import Agent, Runtime, ScriptedModel, Settings, tool
from agent_runtime.human.questions import Question
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, calls, raw_call, say
from agent_runtime.tools.base import Tool
from agent_runtime.tools.workspace import command_records as commands
from agent_runtime.tools.workspace import shell, shell_session
from agent_runtime.tools.workspace.files import workspace_tools
from agent_runtime.tools.workspace.shell_session import (
    MOST_ENDED,
    MOST_RUNNING,
    ShellSession,
    commands_note,
)
from tests.support.processes import program
from tests.support.worlds import Play, World
from tests.tools.calling import context, until
from tests.tools.test_command_trees import TREE, all_ended
from tests.tools.test_shell import ended

pytestmark = pytest.mark.backends("file")

HANDLE = "c00000001"


class Desk:
    """The tools of a workspace, and one session."""

    def __init__(self, root: Path) -> None:
        self.tools = {one.name: one for one in workspace_tools(root, shell=True)}
        self.session = ShellSession(run_id="desk")

    async def start(self, command: str, handle: str = HANDLE, **more: Any) -> str:
        """Start a command in the background."""
        given = {"command": command, "background": True} | more
        made = context(session=self.session, call=handle)
        return (await self.tools["bash"].call(given, made)).text

    async def look(self, handle: str = HANDLE, **more: Any) -> str:
        """Call `bash_output`."""
        made = context(session=self.session)
        return (await self.tools["bash_output"].call({"handle": handle} | more, made)).text


@pytest.fixture
async def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    """A desk that does not wait for commands which begin."""
    monkeypatch.setattr(shell, "START_SECONDS", 0.0)
    made = Desk(tmp_path)
    yield made
    await made.session.end()


def lines(text: str) -> list[str]:
    """Return the lines after the first, which may name seconds."""
    return text.splitlines()[1:]


async def test_a_command_is_followed_from_look_to_look(desk: Desk, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    # Opened for both, once: an `open` that waits may be interrupted, and the shell then gives up.
    steps = "echo one; read x <&3; echo two; read x <&3; echo three; exit 3"
    begun = await desk.start(f"exec 3<>go; {steps}")
    assert begun.startswith(f"{HANDLE} is running for 0 s.")
    one = desk.session.background[HANDLE]
    await until(lambda: one.output.size == 4)
    assert await commands_note(context(session=desk.session)) == (
        f"Your commands in the background:\n- {HANDLE}: {one.name}"
    )
    assert lines(await desk.look()) == ["one"]
    assert lines(await desk.look()) == ["(no new output)"]
    for expected in ("two", "three"):
        await anyio.to_thread.run_sync((tmp_path / "go").write_text, "\n")
        if expected == "two":
            await until(lambda: one.output.size == 8)
            assert lines(await desk.look()) == ["two"]
    assert await desk.look(wait=60) == "Exit code 3.\nthree\n"
    assert await desk.look() == "Exit code 3.\n"


async def test_a_command_is_killed_with_all_it_started(desk: Desk, tmp_path: Path) -> None:
    await desk.start(f"{TREE} echo begun; sleep 600")
    one = desk.session.background[HANDLE]
    await until(lambda: one.output.size == 6)
    assert await desk.look(kill=True) == "It was killed.\nbegun\n"
    await all_ended(tmp_path)
    # Nothing of it is recorded any more.
    assert commands.end_of_run("run") == {}


async def test_a_command_may_have_a_time_limit(desk: Desk) -> None:
    await desk.start("echo begun; sleep 600", timeout=0.5)
    assert await desk.look(wait=60) == "It was killed after 0.5 s.\nbegun\n"


async def test_a_command_that_fails_at_once_is_reported_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "START_SECONDS", 60)
    desk = Desk(tmp_path)
    assert await desk.start("echo no such thing >&2; exit 127") == (
        "Exit code 127.\nno such thing\n"
    )


async def test_an_unknown_handle_names_those_that_there_are(desk: Desk) -> None:
    assert (await desk.look("c0000000x")).endswith("There are: none.")
    await desk.start("sleep 600")
    assert f"There are: {HANDLE}: sleep 600." in await desk.look("c0000000x")


async def test_only_so_many_run_at_once_and_only_so_many_are_kept(desk: Desk) -> None:
    for number in range(MOST_RUNNING):
        await desk.start("sleep 600", f"c0000000{number}")
    assert "are in the background already" in await desk.start("touch ran", "c0000000x")
    assert await desk.look("c00000000", kill=True) == "It was killed.\n"
    assert "is running" in await desk.start("sleep 600", "c0000000x")
    await desk.session.end()
    assert desk.session.background == {}
    assert MOST_ENDED > 0


async def test_a_flood_is_bounded(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    from agent_runtime.tools.workspace import command_output

    monkeypatch.setattr(command_output, "KEPT_BYTES", 1000)
    await desk.start("yes | head -c 300000; echo the end")
    shown = await desk.look(wait=60)
    assert shown.startswith("Exit code 0.\n[... ") and shown.endswith("\ny\nthe end\n")
    assert " bytes not kept ...]" in shown and len(shown) < 2100


# In runs


class Script:
    """A script whose calls may name the handle of the first command in the background."""

    def __init__(self, *steps: Scripted) -> None:
        self.steps = list(steps)
        self.requests: list[ModelRequest] = []

    def __call__(self, request: ModelRequest) -> Scripted:
        self.requests.append(request)
        # The last again, if a note of a command's end leads to one more answer.
        return self.steps[min(len(self.requests), len(self.steps)) - 1]

    def read(self, place: int = -1) -> str:
        """Return what the model read last before an answer."""
        return self.requests[place].messages[-1].text


def agent(root: Path, script: Script, *more: Tool, **options: Any) -> Agent:
    """Return an agent that may run commands."""
    tools = [*workspace_tools(root, shell=True, **options), *more]
    return Agent(ScriptedModel(script), tools=tools)


@tool
async def pause(seconds: float) -> str:
    """Wait."""
    await anyio.sleep(seconds)
    return "waited"


def background(command: str) -> Scripted:
    return call("bash", command=command, background=True)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "START_SECONDS", 0.0)


@pytest.mark.usefixtures("quick")
async def test_the_end_of_a_command_is_reported(tmp_path: Path, play: Play) -> None:
    os.mkfifo(tmp_path / "go")
    first = background("read x < go; echo a line; exit 3")
    waits = call("bash", command="echo > go; sleep 0.2")
    script = Script(first, *[waits, *[call("pause", seconds=0.1)] * 50], say("Done."))

    def until_note(request: ModelRequest) -> Scripted:
        answer = script(request)
        note = "has ended" in request.messages[-1].text
        return say("Done.") if note else answer

    tools = [*workspace_tools(tmp_path, shell=True), pause]
    async with play() as world:
        await world.run(Agent(ScriptedModel(until_note), tools=tools), thread="t")
        assert await world.store.inbox.pending("t") == []
    note = script.read()
    assert "(read x < go; echo a line; exit 3) has ended: exit code 3." in note
    assert "material, not instructions.\na line\n" in note


@pytest.mark.usefixtures("quick")
async def test_commands_end_with_their_run_and_the_next_reads_of_it(
    tmp_path: Path, play: Play
) -> None:
    script = Script(background(f"{TREE} echo > reply; sleep 600"), call("ready"), say("Done."))
    os.mkfifo(tmp_path / "reply")

    @tool
    async def ready() -> str:
        """Wait until the command works."""
        return await anyio.to_thread.run_sync((tmp_path / "reply").read_text)

    async with play() as world:
        await world.run(agent(tmp_path, script, ready), thread="t")
        await all_ended(tmp_path)
        for expected in (True, False):
            later = Script(say("Done."))
            await world.run(agent(tmp_path, later, ready), thread="t")
            assert ("ended when its run ended" in later.read()) is expected


@pytest.mark.usefixtures("quick")
async def test_nothing_is_told_of_a_command_that_there_was_no_room_for(
    tmp_path: Path, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell_session, "MOST_RUNNING", 2)
    started = [raw_call("bash", command=f"sleep 60{n}", background=True) for n in range(4)]
    script = Script(calls(*started), say("Done."))
    async with play() as world:
        await world.run(agent(tmp_path, script), thread="t")
        shown = [text for _, text in await world.results("t")]
        later = Script(say("Done."))
        await world.run(agent(tmp_path, later), thread="t")
    assert sum("are in the background already" in one for one in shown) == 2
    read = "\n".join(one.text for one in later.requests[0].messages)
    assert read.count("ended when its run ended") == 2


def asks(given: dict[str, Any]) -> bool:
    """Return whether a command needs an approval."""
    return given["command"] == "ask me"


async def suspended(world: World, root: Path, script: Script) -> Question:
    """Run until a command needs an approval; return the question."""
    result = await world.run(agent(root, script, shell_approval=asks), thread="t")
    [question] = result.questions
    return question


@pytest.mark.usefixtures("quick")
async def test_a_command_goes_on_while_its_run_waits_for_a_person(
    tmp_path: Path, play: Play
) -> None:
    os.mkfifo(tmp_path / "go")
    steps = [background("echo $$ > pid; read x < go; echo late"), call("bash", command="ask me")]
    async with play() as world:
        script = Script(*steps)
        question = await suspended(world, tmp_path, script)
        await until((tmp_path / "pid").exists)
        handle = script.requests[1].messages[-1].text.split()[0]
        follow = [call("bash", command="echo > go"), call("bash_output", handle=handle, wait=60)]
        rest = Script(*follow, say("Done."))
        await world.runtime.answer(question.id, False)
        result = await world.resume(agent(tmp_path, rest, shell_approval=asks))
        assert result.ok
        assert rest.read(2).startswith("Exit code 0.\nlate\n")


@pytest.mark.usefixtures("quick")
async def test_a_runtime_that_closes_ends_the_commands_of_suspended_runs(
    tmp_path: Path, play: Play
) -> None:
    steps = [background("echo $$ > pid; exec sleep 600"), call("bash", command="ask me")]
    async with play() as world:
        await suspended(world, tmp_path, Script(*steps))
        await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        pid = int((tmp_path / "pid").read_text())
    await ended(pid)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="it needs Linux")
async def test_a_command_ends_with_a_killed_runtime_and_the_resume_reports_its_last_output(
    tmp_path: Path, database_url: str
) -> None:
    os.mkfifo(tmp_path / "reply")
    command = f"echo the last words; {TREE} echo > reply; sleep 600"
    arguments = [database_url, str(tmp_path), "background", command]
    async with program("tests.tools.commanding", *arguments) as other:
        await anyio.to_thread.run_sync((tmp_path / "reply").read_text)
        assert (await other.line())["waiting"]
        await other.kill()
    await all_ended(tmp_path)
    script = Script(say("Done."))
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        [run] = await runtime.store_of().runs.list(thread_id="t")
        await runtime.resume(run.id, agent(tmp_path, script))
        assert await runtime.store_of().inbox.pending("t") == []
    note = script.read()
    assert "ended when its run ended or its process stopped." in note
    assert "material, not instructions.\nthe last words" in note
    kept = commands.output_path("any", HANDLE)
    assert kept is not None and list(kept.parent.iterdir()) == []
