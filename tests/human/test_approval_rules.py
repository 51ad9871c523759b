"""Approval rules apply to every way of writing the same argument."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import pytest

from agent_runtime import (
    Agent,
    Decision,
    Settings,
    Tool,
    ToolContext,
    ToolResult,
    Workflow,
    WorkflowContext,
    tool,
)
from agent_runtime.errors import ConfigError
from agent_runtime.messages import ToolSpec
from agent_runtime.models.base import ModelAnswer, ModelRequest
from agent_runtime.models.scripted import call, calls, raw_call, say
from agent_runtime.tools.argument_patterns import Arguments, covers, may_match
from agent_runtime.tools.base import REFUSED
from agent_runtime.tools.workspace.files import workspace_tools
from tests.delegation.helpers import is_child, step
from tests.support.worlds import Play

pytestmark = pytest.mark.backends("file")
ran: list[dict[str, Any]] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    """Clear the record of calls."""
    ran.clear()


@tool
def deploy(
    amount: float = 1000,
    mode: Literal["staging", "production"] = "production",
    path: str = "a.txt",
    names: list[str] | None = None,
) -> str:
    """Deploy."""
    ran.append({"amount": amount, "mode": mode, "path": path, "names": names})
    return "done"


class Raw(Tool):
    """A tool that receives its arguments unchanged."""

    def __init__(self, properties: dict[str, Any]) -> None:
        schema = {"type": "object", "properties": properties}
        super().__init__(name="raw", spec=ToolSpec("raw", "Take.", schema))

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Accept the arguments."""
        ran.append(arguments)
        return ToolResult("taken")


async def _asks(play: Play, rule: str, tools: list[Any], made: Any) -> bool:
    async with play([made, say("Done.")], settings={"approve": rule}) as world:
        return (await world.run(Agent(tools=tools))).status == "suspended"


@pytest.mark.parametrize("rule", ["wirte_file", "deploi:path=x", "Deploy", "dep?", "deploy,no"])
async def test_a_rule_for_an_unknown_tool_is_an_error(play: Play, rule: str) -> None:
    async with play([call("deploy"), say("Done.")], settings={"approve": rule}) as world:
        with pytest.raises(ConfigError, match="names no tool of this run") as raised:
            await world.run(Agent(tools=[deploy]))
        assert "deploy, recall" in raised.value.cure and ran == []


@pytest.mark.parametrize("rule", ["deploy:pth=/etc/*", "dep*:pth=/etc/*"])
async def test_a_rule_for_an_unknown_argument_is_an_error(play: Play, rule: str) -> None:
    async with play([call("deploy"), say("Done.")], settings={"approve": rule}) as world:
        with pytest.raises(ConfigError, match="argument 'pth'") as raised:
            await world.run(Agent(tools=[deploy]))
        assert "amount, mode, path, names" in raised.value.cure and ran == []


def test_a_tool_that_names_an_unknown_argument_is_an_error() -> None:
    with pytest.raises(ConfigError, match="arguments that it does not have: pth"):
        tool(deploy.function, needs_approval={"pth": "/etc/*"})

    class Kept(Raw):
        def __init__(self) -> None:
            spec = ToolSpec("kept", "Take.", {"type": "object", "properties": {"path": {}}})
            Tool.__init__(self, name="kept", spec=spec, needs_approval={"pth": "/etc/*"})

    with pytest.raises(ConfigError, match="arguments that it does not have: pth"):
        Kept()


def test_a_rule_that_names_an_argument_twice_is_an_error() -> None:
    with pytest.raises(ValueError, match="names the argument 'path' twice in rule 2"):
        Settings(approve="shell,deploy:path=/etc/*;path=/root/*")


async def test_a_rule_may_name_a_tool_of_a_sub_agent_only(play: Play) -> None:
    @tool
    async def hand_over(context: ToolContext) -> str:
        """Have another agent deploy."""
        return (await context.run_agent(Agent(tools=[deploy]), "Deploy.")).thread_id

    script = [call("hand_over"), call("deploy"), say("No."), say("Done.")]
    async with play(script, settings={"approve": "deploy"}) as world:
        result = await world.run(Agent(tools=[hand_over]))
        [(_, thread)] = await world.results(result.thread_id)
        assert await world.results(thread) == [("refused", REFUSED)] and ran == []


@pytest.mark.parametrize("rule", ["shell", "bash", "sh*"])
async def test_the_shell_is_gated_by_either_of_its_names(
    play: Play, tmp_path: Path, rule: str
) -> None:
    made = call("bash", command="touch made")
    assert await _asks(play, rule, workspace_tools(tmp_path, shell=True), made)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("rule", "arguments"),
    [
        ("deploy:mode=production", {}),
        ("deploy:mode=Production", {}),
        ("deploy:amount=1000", {}),
        ("deploy:amount=1000", {"amount": " 1000"}),
        ("deploy:amount=1000", {"amount": "+1000"}),
        ("deploy:amount=1000", {"amount": "1e3"}),
        ("deploy:amount=1000.0", {"amount": 1000}),
        ("deploy:amount=1e3", {"amount": "1_000"}),
        ("deploy:amount=1???", {"amount": "1e3"}),
        ("deploy:names=/etc/*", {"names": ["a", "/etc/passwd"]}),
    ],
)
async def test_patterns_match_the_arguments_that_the_tool_receives(
    play: Play, rule: str, arguments: dict[str, Any]
) -> None:
    assert await _asks(play, rule, [deploy], call("deploy", **arguments)) and ran == []


@pytest.mark.parametrize(
    ("rule", "arguments"),
    [
        ("deploy:mode=production", {"mode": "staging"}),
        ("deploy:amount=1000", {"amount": "999"}),
        ("deploy:path=/etc/*", {"path": "/tmp/etc"}),
        ("deploy:names=/etc/*", {"names": ["etc"]}),
    ],
)
async def test_arguments_that_match_no_pattern_need_no_approval(
    play: Play, rule: str, arguments: dict[str, Any]
) -> None:
    assert not await _asks(play, rule, [deploy], call("deploy", **arguments)) and len(ran) == 1


FORMS = (
    "/etc/passwd",
    "//etc/passwd",
    "///etc//passwd",
    "/./etc/passwd",
    "/etc/./passwd",
    "/tmp/../etc/passwd",
    " /etc/passwd",
    "/ETC/passwd",
    "file:///etc/passwd",
    "file:///%65tc/passwd",
    "/proc/self/root/etc/passwd",
    "/" + "./" * 3000 + "etc/passwd",
)


@pytest.mark.parametrize("pattern", ["/etc/*", "/etc/"])
@pytest.mark.parametrize("by", ["setting", "tool"])
async def test_every_form_of_a_path_is_asked_about(play: Play, by: str, pattern: str) -> None:
    own = deploy
    if by == "tool":
        own = tool(deploy.function, needs_approval={"path": pattern})
    rule = f"deploy:path={pattern}" if by == "setting" else ""
    made = calls(*(raw_call("deploy", path=form) for form in FORMS))
    async with play([made, say("Done.")], settings={"approve": rule}) as world:
        suspended = (await world.run(Agent(tools=[own]))).questions
        assert [one.arguments["path"] for one in suspended] == [*FORMS] and ran == []


@pytest.mark.parametrize(
    "rule", ["secrets/*", "secrets/", "./secrets/*", "{root}/secrets/*", "vault/*"]
)
async def test_a_folder_rule_covers_every_way_into_the_folder(
    play: Play, tmp_path: Path, rule: str
) -> None:
    (tmp_path / "vault").mkdir()
    (tmp_path / "secrets").symlink_to("vault")
    (tmp_path / "link").symlink_to(tmp_path / "vault")
    (tmp_path / "vault" / "a").touch()
    (tmp_path / "file.txt").symlink_to("vault/a")
    inside = ["secrets/a", "./secrets/a", "secrets//a", "x/../secrets/a", f"{tmp_path}/secrets/a"]
    inside += [f"{tmp_path}/./secrets/a", "link/a", "vault/a", "file.txt"]
    paths = [*inside, "other.txt", "x/vault/a"]
    made = calls(*(raw_call("write_file", path=path, content="x") for path in paths))
    settings = {"approve": f"write_file:path={rule.format(root=tmp_path)}"}

    async with play([made, say("Done.")], settings=settings) as world:
        suspended = (await world.run(Agent(tools=workspace_tools(tmp_path)))).questions

    assert [one.arguments["path"] for one in suspended] == inside
    assert (tmp_path / "vault" / "a").read_text() == "" and (tmp_path / "other.txt").exists()


async def test_a_path_below_home_matches_its_tilde_form(
    play: Play, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for rule, path in (("~/.ssh/*", f"{tmp_path}/.ssh/id"), (f"{tmp_path}/*", "~/.ssh/id")):
        assert await _asks(play, f"deploy:path={rule}", [deploy], call("deploy", path=path))


@pytest.mark.parametrize("pattern", ["rm *", " rm  *"])
async def test_a_command_pattern_cannot_be_evaded(play: Play, tmp_path: Path, pattern: str) -> None:
    tools = workspace_tools(tmp_path, shell=True, shell_approval={"command": pattern})
    commands = ["rm x", "  rm x", "/bin/rm x", "sudo rm x", "ls; rm x", "r''m x", "r\\m x"]
    commands += ["$(echo rm) x", "RM x", "rm"]
    made = calls(*(raw_call("bash", command=one) for one in [*commands, "ls -l"]))
    async with play([made, say("Done.")]) as world:
        suspended = (await world.run(Agent(tools=tools))).questions
        assert [one.arguments["command"] for one in suspended] == commands


@pytest.mark.parametrize(
    ("pattern", "command"),
    [
        ("rm *", "env -Srm -rf x"),
        ("rm *", "tar cf a.tar b --checkpoint=1 --checkpoint-action=exec=rm"),
        ("rm *", "PAGER=/bin/rm man x"),
        ("git push*", "git -C repo push origin"),
        ("git push*", "git --no-pager -c a=b push"),
        ("git push", "env GIT_DIR=x /usr/bin/git -v push"),
        ("gh repo delete *", "gh -R a/b repo --verbose delete x"),
    ],
)
def test_options_do_not_hide_what_a_command_runs(pattern: str, command: str) -> None:
    assert may_match({"command": pattern}, Arguments({"command": command}, lambda name: True))


@pytest.mark.parametrize(
    ("pattern", "command"),
    [
        ("rm *", "terraform plan"),
        ("git push*", "git checkout push-fix"),
        ("git push*", "git -C repo log"),
        ("gh repo delete *", "gh repo view delete"),
    ],
)
def test_other_commands_are_not_asked_about(pattern: str, command: str) -> None:
    assert not may_match({"command": pattern}, Arguments({"command": command}, lambda name: True))


def test_always_for_what_is_in_a_folder_does_not_cover_the_folder(tmp_path: Path) -> None:
    for path in ("docs/", "docs/.", "./docs/", "docs"):
        assert not covers({"path": "docs/*"}, {"path": path}, tmp_path)
    assert covers({"path": "docs/*"}, {"path": "docs/a/"}, tmp_path)
    assert covers({"path": "docs/"}, {"path": "docs/"}, tmp_path)


def test_a_link_that_nobody_may_read_can_lead_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to("elsewhere")

    def refuse(path: str) -> str:
        raise PermissionError(path)

    # As for links of other users' processes, such as `/proc/1/root`.
    monkeypatch.setattr(os, "readlink", refuse)
    given = {"path": "link/etc/passwd"}
    assert may_match({"path": "/etc/*"}, Arguments(given, lambda name: True, tmp_path))
    assert not covers({"path": "link/*"}, given, tmp_path)
    assert covers({"path": "link/etc/passwd"}, given, tmp_path)
    assert not may_match({"path": "/etc/*"}, Arguments({"path": "etc"}, lambda name: True))


@pytest.mark.parametrize("path", ["~a\0b", "~\ud800", "~" * 9000, "\ud800", "file://["])
def test_text_that_is_not_a_path_is_matched_literally(path: str) -> None:
    arguments = Arguments({"path": path}, takes=lambda name: True)
    assert not may_match({"path": "/etc/*"}, arguments)
    assert may_match({"path": "*"}, arguments)
    assert covers({"path": path.replace("[", "[[]")}, arguments.given)
    assert not covers({"path": "/etc/*"}, arguments.given)


@pytest.mark.parametrize("command", ["./check x", "{folder}/check x", ".//check x", "~/../check x"])
def test_a_program_of_the_folder_is_not_the_command_of_its_name(
    tmp_path: Path, command: str
) -> None:
    given = {"command": command.format(folder=tmp_path)}
    assert not covers({"command": "check *"}, given, tmp_path)
    assert covers({"command": "check *"}, {"command": "check x"}, tmp_path)
    assert covers({"command": "./check *"}, {"command": "./check x"}, tmp_path)


@pytest.mark.parametrize("properties", [{}, {"path": {}}, {"path": {"default": "/etc/x"}}])
async def test_an_undecidable_pattern_asks_a_person(play: Play, properties: dict[str, Any]) -> None:
    assert await _asks(play, "raw:path=/etc/*", [Raw(properties)], call("raw")) and ran == []


async def test_a_function_sees_the_coerced_arguments_with_defaults(play: Play) -> None:
    own = tool(deploy.function, needs_approval=lambda one: one["amount"] > 10)
    assert await _asks(play, "", [own], call("deploy"))
    assert await _asks(play, "", [own], call("deploy", amount="+11"))
    assert not await _asks(play, "", [own], call("deploy", amount="10"))


async def test_always_allowing_by_a_rule_covers_the_rules_pattern(play: Play) -> None:
    script = [call("deploy", path=one) for one in ("//tmp/x/a", "/tmp/x/b", "/tmp/x/../../etc/c")]
    async with play([*script, say("Done.")], settings={"approve": "deploy:path=/tmp/x/*"}) as world:
        [question] = (await world.run(Agent(tools=[deploy]))).questions
        await world.runtime.answer(question.id, Decision(True, remember=True))
        [asked] = (await world.resume(Agent(tools=[deploy]))).questions
        assert asked.arguments["path"] == "/tmp/x/../../etc/c" and len(ran) == 2


def _ship(path: str, amount: int = 5) -> str:
    ran.append({"path": path, "amount": amount})
    return "shipped"


@pytest.mark.parametrize(
    ("rule", "function"),
    [
        ("ship", _ship),
        ("_ship", _ship),
        ("ship:path=/etc/*", _ship),
        ("ship:amount=5", _ship),
        ("store", tool(_ship, name="store")),
        ("store:path=/etc/*", tool(_ship, name="store")),
        ("", tool(_ship, name="store", needs_approval={"path": "/etc/*"})),
        ("", tool(_ship, name="store", needs_approval=lambda one: one["amount"] == 5)),
    ],
)
async def test_a_workflows_call_that_needs_approval_waits(
    play: Play, rule: str, function: Any
) -> None:
    @Workflow
    async def flow(w: WorkflowContext, path: str = "/./etc/x") -> str:
        return await w.call("ship", function, path)

    async with play([], settings={"approve": rule}) as world:
        [question] = (await world.runtime.run(flow, "Go.")).questions
        assert question.arguments == {"path": "/./etc/x", "amount": 5}
    assert ran == []


async def test_a_workflows_call_without_a_rule_runs(play: Play) -> None:
    @Workflow
    async def flow(w: WorkflowContext) -> str:
        return await w.call("ship", _ship, "/tmp/x", amount=6)

    settings = {"approve": "ship:path=/etc/*,ship:amount=5,other"}
    async with play([], settings=settings) as world:
        assert (await world.runtime.run(flow, "Go.")).output == "shipped"


async def test_rules_apply_to_sub_agents_in_the_background(play: Play) -> None:
    order = {"role": "deployer", "instructions": "Deploy.", "background": True}

    def respond(request: ModelRequest) -> ModelAnswer:
        if is_child(request):
            return say("No.") if step(request) else call("deploy")
        begun = call("delegate", **order)
        return [begun, call("tasks", action="wait"), say("Done.")][min(step(request), 2)]

    async with play(respond, settings={"approve": "deploy"}) as world:
        result = await world.run(Agent(tools=[deploy], delegation=True))
        [child] = await world.store.runs.list(parent_run_id=result.run_id)
        assert (child.status, child.stop_reason) == ("suspended", "awaiting_user")
        assert result.ok and ran == []


async def test_a_function_without_a_module_is_a_tool(play: Play) -> None:
    names: dict[str, Any] = {"tool": tool}
    exec("@tool\ndef made() -> str:\n    'Make.'\n    return 'made'\n", names)
    made = names["made"]
    # The builtins' module is that of code whose namespace has no name.
    made.function.__module__ = None
    async with play([call("made"), say("Done.")], settings={"approve": "shell"}) as world:
        assert (await world.run(Agent(tools=[made]))).ok
