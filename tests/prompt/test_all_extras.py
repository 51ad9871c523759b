"""Prompts of a run with everything that adds to them: each extends the one before."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from agent_runtime import (
    Agent,
    Environment,
    Event,
    NativeModel,
    ProjectInstructions,
    Runtime,
    Settings,
    SkillFolder,
)
from agent_runtime.testing import Anthropic, Call, Say, StrictServer, Think, Turn
from agent_runtime.tools.mcp.finding import CALL, FIND
from agent_runtime.tools.workspace.files import workspace_tools
from tests.tools.mcp.serving import described, raw

pytestmark = pytest.mark.backends("file")

STEPS = 48
PARTS = 6
BODY = "Count each box twice, and write both figures down.\n"


def workspace(folder: Path) -> Path:
    """Make a repository whose folders have instructions of their own."""
    root = folder / "work"
    for n in range(PARTS):
        part = root / f"part{n}"
        part.mkdir(parents=True)
        (part / "AGENTS.md").write_text(f"Part {n} is measured in feet.\n")
        lines = (f"def count_{n}_{line}():\n    return {line}\n" for line in range(40))
        (part / "code.py").write_text("".join(lines))
    (root / "AGENTS.md").write_text("Never touch the archive.\n")
    skill = folder / "skills" / "counting"
    skill.mkdir(parents=True)
    header = "---\nname: counting\ndescription: How boxes are counted.\n---\n"
    (skill / "SKILL.md").write_text(header + BODY)
    subprocess.run(["git", "init", "--quiet", root], check=True)
    return root


def script(child: bool, n: int) -> Turn:
    """Return a turn: eight kinds of work in a row, on one part after the other."""
    if n >= STEPS:
        return (Think("That was all."), Say("All is counted."))
    part, path = n // 8 % PARTS, f"part{n // 8 % PARTS}/code.py"
    edit = {"old": f"count_{part}_3()", "new": f"counts_{part}_{n}()"}
    plan = {"action": "create", "goal": "Count.", "steps": [{"description": "All parts."}]}
    kinds: list[tuple[Call, ...]] = [
        (Call("read_file", {"path": path}), Call(FIND, {"query": f"row {n}"})),
        (Call("read_file", {"path": path}), Call("search", {"pattern": "return 3$"})),
        (Call(CALL, {"tool": f"raw__row_{part}", "arguments": {"n": n}}),),
        (Call("bash", {"command": f"echo begun {n}; sleep 600", "background": True}),),
        (Call("edit_file", {"path": path, "edits": [edit]}),),
        (Call("recall", {"query": f"measured in feet part {part}"}),),
        (Call("bash", {"command": f"cd part{part} && ls && pwd"}),),
        (Call("open_skill", {"name": "counting"}), Call("plan", plan)),
    ]
    return (Think(f"Step {n}."), Say(f"Now {n}."), *kinds[n % 8])


async def test_prompts_break_only_at_activations_with_all_extras_on(tmp_path: Path) -> None:
    root = workspace(tmp_path)
    rows = [described(f"row_{n}", f"Change row {n} of the table.") for n in range(40)]
    settings = Settings(
        database_url=f"file:{tmp_path / 'run.db'}", observer_model="extractive",
        reflector_model="extractive", observer_message_tokens=12_000, last_messages=6,
        mcp_schema_bytes=1000, loop_limit=0,
    )  # fmt: skip
    activated: list[int] = []
    results: list[str] = []

    def watch(event: Event) -> None:
        if event.kind == "activation":
            activated.append(len(server.prompts))
        elif event.kind == "tool-finish":
            results.append(f"{event.data['tool']}:{event.data['outcome']}:{event.data['result']}")

    server = StrictServer(Anthropic(thinking=True), script)
    async with server, Runtime.open(settings) as runtime:
        agent = Agent(
            NativeModel("anthropic/claude-sonnet-4-5", base_url=server.url, api_key="unused"),
            tools=[*workspace_tools(root, shell=True), raw(tmp_path, *rows)],
            context=[Environment(root), ProjectInstructions(root)],
            skills=[SkillFolder(tmp_path / "skills")],
            planning=True, max_steps=STEPS + 2,
        )  # fmt: skip
        result = await runtime.run(agent, "Count all parts.", on_event=watch)
    assert (server.violations, result.output) == ([], "All is counted.")
    # Some are before the first prompt, or several before the same.
    assert server.breaks() == sorted({number for number in activated if number > 0})
    assert 2 <= len(server.breaks()) <= STEPS / 4
    # All of it was on.
    sent = "".join(part.decode() for prompt in server.prompts for part in prompt)
    marks = [
        *("is unchanged since step", "Never touch the archive.", "Your commands in the background"),
        *("How boxes are counted.", BODY.strip()),
        *(f"Part {n} is measured" for n in range(PARTS)),
    ]
    assert [mark for mark in marks if mark not in sent] == []
    failed = [one for one in results if ":ok:" not in one[:30]]
    assert not failed
