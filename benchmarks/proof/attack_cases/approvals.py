"""Approvals: what hides what runs, rules that do not match, answers that fit another call."""

from __future__ import annotations

from typing import Literal

from agent_runtime import Agent, Decision, ScriptedModel, Tool, tool
from agent_runtime.errors import AgentRuntimeError, ConfigError
from agent_runtime.human.display import shown_value
from agent_runtime.models.scripted import Scripted, call, say
from benchmarks.proof.attack_cases.world import Workspace, World, play
from benchmarks.proof.verdicts import Case

COMMANDS = (
    "TOKEN=$(touch${IFS}x) make test",
    "deploy --token=$(touch${IFS}x)",
    "API_KEY=x;touch${IFS}x|sh",
    "curl -H 'Authorization: bearer x;touch x'",
    "git clone https://x:;touch${IFS}x;@host/a",
    "password=$(touch x) author=me tokenizer=b max_tokens=3",
)
COVERS = {
    "blanks": "make" + " " * 2100 + "; touch x",
    "newlines": "# " + "\n" * 60 + "The agent wants to call read_file:\n" + "; touch x",
    "carriage returns": "make\r" + " " * 7 + "; touch x",
    "terminal sequences": "make\x1b[2K\x1b[1A\x9b2J; touch x",
    "reversed text": "make \u202e x hcuot ;",
    "letters without width": "m\u200bake\u2060; touch\u00ad x",
    "blank letters": "make\u3164\u2800\u115f; touch x",
    "stacked accents": "make" + "\u0301" * 500 + "; touch x",
}
RULE_SPELLINGS = (
    "secrets/a",
    "./secrets/a",
    "secrets//a",
    "secrets/./a",
    "x/../secrets/a",
    "secrets/a/",
    "{root}/secrets/a",
    "//{root}/secrets/a",
    "link/a",
    "SECRETS/../secrets/a",
)


async def an_approval_shows_all_that_runs(world: World) -> list[str]:
    """Nothing of a command is masked or hidden where a person approves it."""
    del world
    faults: list[str] = []
    for command in COMMANDS:
        if shown_value(command) != command:
            faults.append(f"{command!r} is shown as {shown_value(command)!r}")
    for name, command in COVERS.items():
        shown = shown_value(command)
        if not shown.isprintable() or "\n" in shown or " " * 9 in shown:
            faults.append(f"{name} are not escaped: {shown[:80]!r}")
        if name != "reversed text" and "touch" not in shown.replace("\\u00ad", ""):
            faults.append(f"{name} hide the end")
    return faults


async def a_rule_that_names_no_tool_is_refused(world: World) -> list[str]:
    """A rule of approval that names no tool of the run ends it before anything runs."""
    faults: list[str] = []
    for rule in ("wirte_file", "write_file:pth=x", "Write_File", "write_file,no"):
        space = Workspace(world)
        async with world.runtime(approve=rule) as runtime:
            try:
                await play(
                    runtime, [call("write_file", path="a", content="x"), say("Done.")], space.tools
                )
                faults.append(f"{rule!r} was accepted")
            except ConfigError:
                pass
        if (space.root / "a").exists():
            faults.append(f"{rule!r}: the file was written")
    return faults


async def a_rule_sees_every_spelling(world: World) -> list[str]:
    """A rule for a path asks whatever way the path is written, links and defaults included."""
    faults: list[str] = []
    for template in RULE_SPELLINGS:
        space = Workspace(world)
        (space.root / "secrets").mkdir()
        (space.root / "x").mkdir()
        (space.root / "link").symlink_to("secrets")
        path = template.format(root=space.root)
        async with world.runtime(approve="write_file:path=secrets/*") as runtime:
            script = [call("write_file", path=path, content="x"), say("Done.")]
            await play(runtime, script, space.tools)
        if (space.root / "secrets" / "a").exists():
            faults.append(f"{path!r} was written unasked")
    ran: list[str] = []

    @tool
    def deploy(amount: float = 1000, mode: Literal["staging", "production"] = "production") -> str:
        """Deploy."""
        ran.append(f"{mode} {amount}")
        return "done"

    for arguments in ({}, {"amount": " 1000"}, {"amount": "+1000"}, {"amount": 1e3}):
        for rule in ("deploy:mode=production", "deploy:amount=1000*"):
            async with world.runtime(approve=rule) as runtime:
                await play(runtime, [call("deploy", **arguments), say("Done.")], [deploy])
    return faults + [f"deploy ran unasked: {one}" for one in ran]


async def an_answer_fits_its_question_alone(world: World) -> list[str]:
    """An approval is of one call of one tool; a second answer or another tool gets nothing."""
    ran: list[str] = []

    def deployer(target: str) -> Tool:
        @tool(needs_approval=True)
        def deploy(version: str) -> str:
            """Deploy."""
            ran.append(f"{version} to {target}")
            return "done"

        return deploy

    faults: list[str] = []
    async with world.runtime() as runtime:
        script: list[Scripted] = [
            call("deploy", version="1"),
            call("deploy", version="1"),
            say("Done."),
        ]
        result, _, _ = await play(runtime, script, [deployer("staging")])
        question = result.questions[0].id
        for other in ("ann", "bob"):
            try:
                await runtime.answer(question, Decision(allow=True), user=other)
                faults.append("another owner answered")
            except AgentRuntimeError:
                pass
        await runtime.answer(question, Decision(allow=True, remember=True))
        try:
            if await runtime.answer(question, Decision(allow=True)):
                faults.append("the question was answered twice")
        except AgentRuntimeError:
            pass
        # Another tool of the same name, and the same agent's name.
        agent = Agent(ScriptedModel(script[1:]), tools=[deployer("production")])
        await runtime.resume(result.run_id, agent)
    return faults + [f"unasked: {one}" for one in ran if "production" in one]


CASES: tuple[Case[World], ...] = (
    an_approval_shows_all_that_runs,
    a_rule_that_names_no_tool_is_refused,
    a_rule_sees_every_spelling,
    an_answer_fits_its_question_alone,
)
