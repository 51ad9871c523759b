"""The folder and exported variables stay between the calls of a run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_runtime import Agent, Runtime, ScriptedModel, Settings, tool
from agent_runtime.errors import ConfigError
from agent_runtime.messages import ToolResult, call_id, decode_result
from agent_runtime.models.scripted import call, say
from agent_runtime.tools.base import Tool
from agent_runtime.tools.workspace.files import workspace_tools
from agent_runtime.tools.workspace.sandbox import docker as docker_sandbox
from agent_runtime.tools.workspace.sandbox.bubblewrap import Bubblewrap
from agent_runtime.tools.workspace.shell_session import MOST_VARIABLES, ShellSession
from tests.services.fixtures import missing
from tests.services.process import MissingPart
from tests.support.worlds import Play
from tests.tools.calling import context
from tests.tools.docker_double import docker_double


class Desk:
    """A workspace, and one session in it."""

    def __init__(self, root: Path, sandbox: str = "none") -> None:
        tools = workspace_tools(root, shell=True, sandbox=sandbox)
        self.bash: Tool = tools[-2]
        self.root = root
        self.session = ShellSession()
        self.answers = 0

    async def call(self, command: str, *, answer: int | None = None) -> ToolResult:
        """Run a command, each in an answer of its own."""
        self.answers += 1
        made = context(session=self.session, call=call_id(answer or 100 + self.answers, 0))
        return await self.bash.call({"command": command}, made)

    async def __call__(self, command: str) -> str:
        result = await self.call(command)
        assert result.outcome == "ok", result.text
        return result.text


@pytest.fixture(params=["none", "bwrap", "docker:tools:1"])
def desk(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Desk]:
    """A desk with each sandbox."""
    root = tmp_path / "it's a workspace"
    (root / "src").mkdir(parents=True)
    if request.param == "bwrap":
        try:
            Bubblewrap().check(root)
        except ConfigError as problem:
            missing(MissingPart(str(problem)))
    if not request.param.startswith("docker"):
        yield Desk(root, request.param)
        return
    docker_sandbox._is_rootless.cache_clear()  # pyright: ignore[reportPrivateUsage]
    with docker_double(tmp_path, "tools:1") as double:
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
        monkeypatch.setenv("DOCKER_HOST", f"unix://{double.socket}")
        yield Desk(root, request.param)


async def test_the_folder_and_variables_stay(desk: Desk) -> None:
    first = await desk('cd src; export ODD="it\'s\n  a \\$x; \\"" LD_PRELOAD=; unset HOME')
    assert first == "Exit code 0.\n[Folder: src]"
    shown = await desk('pwd; echo "$ODD" "${HOME-unset}" ${LD_PRELOAD-unset}')
    where = f"{desk.root}/src"
    assert shown == f"Exit code 0.\n{where}\nit's\n  a $x; \" unset\n[Folder: src]"
    assert await desk("cd ..; exit 3") == "Exit code 3.\n"
    assert await desk("pwd") == f"Exit code 0.\n{desk.root}\n"


@pytest.fixture
def plain(tmp_path: Path) -> Desk:
    """A desk without a sandbox."""
    (tmp_path / "src").mkdir()
    return Desk(tmp_path)


@pytest.mark.parametrize(
    "command",
    [
        "cd src; export A=1; exit 4",
        "set -euxo pipefail; cd src; export A=1; false",
        "trap 'true' EXIT; cd src; export A=1",
        "trap 'echo \"it'\\''s over\"; false' EXIT; cd src; export A=1; exit 3",
        "trap 'true' EXIT; trap - EXIT; cd src; export A=1; exit 3",
        "set -eux; trap 'true' INT EXIT; cd src; export A=1; false",
        "trap 'true' EXIT; cd src; export A=1; (trap 'false' EXIT; cd /; exit 3); exit 3",
        "cd src; export A=1; export PATH=/nothing",
        "cd src; export A=1; echo 'unclosed",
        "printf() { :; }; cd src; export A=1",
        "alias cd=false; cd src; export A=1; kill -TERM $$",
    ],
)
async def test_a_session_stays_however_a_command_ends(plain: Desk, command: str) -> None:
    await plain("cd src; export A=1" if "unclosed" in command else "true")
    await plain.call(command)
    assert f"{plain.root}/src\n1\n" in await plain("pwd; echo $A")


async def test_what_a_command_reports_is_not_in_its_output(plain: Desk) -> None:
    assert await plain("set -ux; true") == "Exit code 0.\n++ true\n"
    shown = await plain("if true; then")
    assert shown.startswith("Exit code 2.\nbash: eval: line 2:") and "agent_state" not in shown


async def test_a_folder_that_is_gone_is_told(plain: Desk) -> None:
    await plain("cd src; rmdir ../src")
    shown = await plain("touch made")
    gone = f"The folder {plain.root}/src is gone: nothing was run."
    assert shown == f"Exit code 1.\n{gone} The next command begins in the workspace.\n"
    assert not (plain.root / "made").exists()
    assert await plain("pwd") == f"Exit code 0.\n{plain.root}\n"


async def test_a_command_that_is_killed_or_replaced_leaves_the_session_as_it_was(
    plain: Desk,
) -> None:
    await plain("cd src")
    for command in ("cd ..; kill -KILL $$", "cd ..; exec true"):
        await plain.call(command)
    assert await plain("pwd") == f"Exit code 0.\n{plain.root}/src\n[Folder: src]"


async def test_calls_of_one_answer_begin_alike(plain: Desk) -> None:
    await plain.call("cd src; export A=1", answer=7)
    second = await plain.call("pwd; echo ${A-unset}; export B=2", answer=7)
    assert second.text == f"Exit code 0.\n{plain.root}\nunset\n[Folder: src]"
    # What the second left as it was stays as the first left it.
    assert await plain("pwd; echo $A $B") == f"Exit code 0.\n{plain.root}/src\n1 2\n[Folder: src]"


async def test_too_many_variables_are_not_kept(plain: Desk) -> None:
    for number in range(3):
        await plain(f"export A{number}=$(head -c {MOST_VARIABLES // 3} /dev/zero | tr '\\0' x)")
    assert len(plain.session.variables) == 2


async def test_a_forged_report_changes_only_the_session(plain: Desk) -> None:
    forged = "printf '\\0state\\0/nowhere\\0bash\\0BAD NAME=1\\0X=1\\0\\0end\\0' >&9; kill -KILL $$"
    await plain.call(forged)
    shown = await plain("pwd; echo $X")
    assert "The folder /nowhere is gone" in shown
    assert await plain("pwd; echo $X") == f"Exit code 0.\n{plain.root}\n1\n"


@pytest.mark.parametrize("ending", ["", "\\0end\\0\\0state\\0/nowhere\\0bash\\0B=hunter3\\0"])
async def test_a_report_that_is_cut_off_shows_no_value(plain: Desk, ending: str) -> None:
    cut_off = f"printf '\\0state\\0/nowhere\\0bash\\0A=hunter2\\0{ending}' >&9; kill -KILL $$"
    assert (await plain.call(cut_off)).text == "Exit code -9.\n"


@pytest.mark.parametrize("shell", ["bash", "sh"])
async def test_variables_that_are_none_of_a_shell_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    if shell == "sh":
        for name in ("cat", "env"):
            (tmp_path / name).symlink_to(shutil.which(name) or "")
    path = str(tmp_path) if shell == "sh" else os.environ["PATH"]
    monkeypatch.setenv("PATH", path)
    given = {"PATH": path, "a;echo no": "1", "BASH_FUNC_f%%": "() { echo f; }", "KEPT": "k"}
    bash = workspace_tools(tmp_path, shell=True, environment=given)[-2]
    session = ShellSession()
    for number in (100, 101):
        made = context(session=session, call=call_id(number, 0))
        result = await bash.call({"command": "echo $KEPT"}, made)
        assert result.text.startswith("Exit code 0.\nk\n"), result.text
        assert None not in session.variables.values()


async def test_the_shell_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "in bash;" in Desk(tmp_path).bash.spec.description
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("cat", "env"):
        (tools / name).symlink_to(f"/bin/{name}" if name == "cat" else "/usr/bin/env")
    monkeypatch.setenv("PATH", str(tools))
    desk = Desk(tmp_path)
    assert "in sh (not bash);" in desk.bash.spec.description
    assert await desk("echo ${BASH_VERSION-no}") == (
        "Exit code 0.\nno\n[The shell is sh: there is no bash.]"
    )
    assert await desk("export A=1") == "Exit code 0.\n"
    assert await desk("echo $A") == "Exit code 0.\n1\n"


def test_both_tools_have_at_most_1200_bytes_of_schema(tmp_path: Path) -> None:
    import orjson

    specs = [one.spec for one in workspace_tools(tmp_path, shell=True)[-2:]]
    sent = [orjson.dumps([one.name, one.description, one.parameters]) for one in specs]
    assert [one.name for one in specs] == ["bash", "bash_output"]
    assert sum(map(len, sent)) <= 1200


async def test_the_time_limits_are_in_the_schema(tmp_path: Path) -> None:
    def limits(most: float) -> str:
        [bash, _] = workspace_tools(tmp_path, shell=True, shell_timeout=most)[-2:]
        return bash.spec.parameters["properties"]["timeout"]["description"]

    assert limits(600) == "seconds; default 120, at most 600."
    assert limits(30) == "seconds; default 30, at most 30."


# In runs


@pytest.mark.parametrize("outside", [False, True], ids=["inside", "outside"])
@pytest.mark.backends("file")
async def test_a_resume_begins_in_the_same_folder_without_the_variables(
    tmp_path: Path, database_url: str, play: Play, outside: bool
) -> None:
    root = tmp_path / "work"
    (root / "src").mkdir(parents=True)
    # It leads out of the workspace.
    (root / "link").symlink_to(tmp_path)
    place = "link" if outside else "src"

    @tool
    def fail() -> str:
        """End the run."""
        raise KeyboardInterrupt

    first = [call("bash", command=f"cd {place}; export TOKEN=hunter2-value"), call("fail")]
    tools = [*workspace_tools(root, shell=True), fail]
    with pytest.raises(KeyboardInterrupt):
        async with play() as world:
            await world.run(Agent(ScriptedModel(first), tools=tools), thread="t")
    script = [
        call("bash", command="pwd; echo ${TOKEN-gone}"),
        call("bash", command="pwd"),
        say("x"),
    ]
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        store = runtime.store_of()
        [run] = await store.runs.list(thread_id="t")
        await runtime.resume(run.id, Agent(ScriptedModel(script), tools=tools))
        head = (await store.threads.get("t")).head
        assert head is not None
        nodes = await store.log.branch("t", head)
    results = [decode_result(one.body) for node in nodes for one in node.calls]
    *_, again, last = results
    where = "the workspace" if outside else "the folder of the last"
    shown = f"{root}\n" if outside else f"{root}/src\n"
    folder = "" if outside else "[Folder: src]"
    assert again.text == (
        f"The runtime was restarted: this is a new shell in {where}. Its variables are gone; set "
        f"again what you need: TOKEN.\nExit code 0.\n{shown}gone\n{folder}"
    )
    assert last.text == f"Exit code 0.\n{shown}{folder}"
    assert last.data == {"exit_code": 0} | ({} if outside else {"folder": f"{root}/src"})


@pytest.mark.backends("file")
async def test_values_of_variables_are_not_in_the_log(tmp_path: Path, play: Play) -> None:
    # "hunter2", which the command does not name.
    command = "export SESSION_TOKEN=$(echo uhagre2 | tr a-z n-za-m)"
    script = [call("bash", command=command), call("bash", command="cd /"), say("Done.")]
    async with play() as world:
        tools = workspace_tools(tmp_path, shell=True)
        await world.run(Agent(ScriptedModel(script), tools=tools), thread="t")
        contents = world.contents()
    assert b"SESSION_TOKEN" in contents
    assert b"hunter2" not in contents
    ends = [event.data["data"] for event in world.events if event.kind == "tool-finish"]
    assert [one["exit_code"] for one in ends] == [0, 0]


@pytest.mark.backends("file")
async def test_runs_do_not_share_a_session(tmp_path: Path, play: Play) -> None:
    async with play() as world:
        tools = workspace_tools(tmp_path, shell=True)
        for command in ("cd /; export A=1", "pwd; echo ${A-unset}"):
            script = [call("bash", command=command), say("Done.")]
            await world.run(Agent(ScriptedModel(script), tools=tools), thread="t")
        [_, (_, second)] = await world.results("t")
    assert second == f"Exit code 0.\n{tmp_path}\nunset\n"


@pytest.mark.backends("file")
async def test_a_run_that_waited_for_a_person_has_the_same_shell(
    tmp_path: Path, play: Play
) -> None:
    (tmp_path / "src").mkdir()

    def asks(given: dict[str, object]) -> bool:
        return str(given["command"]).startswith("pwd")

    tools = workspace_tools(tmp_path, shell=True, shell_approval=asks)
    script = [call("bash", command=one) for one in ("true", "pwd", "cd src; A=1", "pwd #")]
    agent = Agent(ScriptedModel([*script, say("Done.")]), tools=tools)
    async with play() as world:
        result = await world.run(agent, thread="t")
        while result.questions:
            await world.runtime.answer(result.questions[0].id, True)
            result = await world.resume(agent)
        shown = [text for _, text in await world.results("t")]
    assert shown == [
        "Exit code 0.\n",
        f"Exit code 0.\n{tmp_path}\n",
        "Exit code 0.\n[Folder: src]",
        f"Exit code 0.\n{tmp_path}/src\n[Folder: src]",
    ]
