"""Agent Skills: what counts as one, which of two counts, and the tool that opens them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent_runtime import (
    Agent,
    ConfigError,
    ContextRequest,
    Runtime,
    ScriptedModel,
    Settings,
    Skill,
    SkillFolder,
)
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, say
from agent_runtime.models.tokens import count_text
from agent_runtime.tools.skills.find import find_skills, skill_folders
from agent_runtime.tools.skills.open_skill import NAME, OpenSkill, SkillList
from agent_runtime.tools.workspace.files import workspace_tools
from tests.support.worlds import Play

HEADER = "---\nname: {name}\ndescription: {description}\n---\n"


def skill(folder: Path, description: str = "Does things.", body: str = "Do it.\n") -> Path:
    """Write a skill, named like its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    header = HEADER.format(name=folder.name, description=description)
    (folder / "SKILL.md").write_text(header + body)
    return folder


def test_a_skill_is_read_as_the_specification_says(tmp_path: Path) -> None:
    folder = skill(tmp_path / "pdf-tools", body="# How\n---\nDo it.\n")
    header = "---\nname: pdf-tools\ndescription: >\n  Reads\n  PDFs.\nmetadata:\n  version: '1'\n"
    extra = "license: MIT\nallowed-tools: Bash(git:*) Read\n---\n"
    (folder / "SKILL.md").write_bytes(f"{header}{extra}Body.\n".replace("\n", "\r\n").encode())
    read = Skill.read(folder)
    assert (read.name, read.description, read.body()) == ("pdf-tools", "Reads PDFs.", "Body.")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("No front matter.", "front matter between"),
        ("---\nname: some-skill\n", "front matter between"),
        ("---\n- a\n---\n", "no fields"),
        ("---\nname: [\n---\n", "not valid YAML"),
        ("---\nx: !!python/object/apply:os.system [id]\n---\n", "not valid YAML"),
        (f"---\nx: {'[' * 5000}\n---\n", "not valid YAML"),
        ("---\nx: !!bool perhaps\n---\n", "not valid YAML"),
        ("---\nx: !!int ''\n---\n", "not valid YAML"),
        ("---\nx: !!timestamp now\n---\n", "not valid YAML"),
        (f"---\n# {'x' * 20_000}\n---\n", "too long"),
        ("---\ndescription: D.\n---\n", "no name"),
        ("---\nname: 3\ndescription: D.\n---\n", "no name"),
        ("---\nname: Some-Skill\ndescription: D.\n---\n", "not 1 to 64"),
        ("---\nname: some--skill\ndescription: D.\n---\n", "not 1 to 64"),
        ("---\nname: other\ndescription: D.\n---\n", "not that of its folder"),
        ("---\nname: some-skill\n---\n", "no description"),
        ("---\nname: some-skill\ndescription: [a]\n---\n", "no description"),
        (f"---\nname: some-skill\ndescription: {'d' * 1025}\n---\n", "1,025 characters"),
        ("\udcff", "not UTF-8"),
        ("x" * 300_000, "at most 262,144"),
    ],
)
def test_what_is_not_a_skill_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    folder = tmp_path / "some-skill"
    folder.mkdir()
    (folder / "SKILL.md").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError, match=reason):
        Skill.read(folder)
    found = find_skills([SkillFolder(tmp_path)])
    assert not found.skills and reason in found.problems[0]


def test_where_skills_are_found_and_which_of_one_name_counts(home: Path) -> None:
    top = home.parent / "repository"
    workspace = top / "inner"
    workspace.mkdir(parents=True)
    (top / ".git").mkdir()
    named = home.parent / "named"
    skill(named / "deploy", "From the setting.")
    skill(home / ".agents" / "skills" / "deploy", "The user's.")
    skill(home / ".claude" / "skills" / "review", "The user's.")
    skill(home / ".config" / "agent-runtime" / "skills" / "write", "The user's.")
    skill(workspace / ".agents" / "skills" / "review", "The project's.")
    skill(workspace / ".claude" / "skills" / "test", "The project's.")
    skill(top / ".agents" / "skills" / "build", "The project's.")
    (home / ".agents" / "skills" / "notes.txt").touch()
    settings = Settings(skills=f"{named}{os.pathsep}{home / 'missing'}")
    found = find_skills(skill_folders(workspace, settings))
    assert {one.name: (one.description, one.trust) for one in found.skills} == {
        "deploy": ("From the setting.", "user"),
        "review": ("The user's.", "user"),
        "write": ("The user's.", "user"),
        "test": ("The project's.", "project"),
        "build": ("The project's.", "project"),
    }
    missing, shadowed, hidden = found.problems
    assert "missing: No such file" in missing
    assert "deploy in" in shadowed and "is not used" in shadowed
    assert f"review in {workspace}" in hidden


def test_a_project_cannot_pass_its_skills_off_as_the_users(home: Path) -> None:
    elsewhere = skill(home / "elsewhere" / "leak")
    workspace = home.parent / "project"
    folder = workspace / ".agents" / "skills"
    folder.mkdir(parents=True)
    (folder / "leak").symlink_to(elsewhere)
    found = find_skills(skill_folders(workspace, Settings()))
    assert not found.skills and "link out of" in found.problems[0]
    # The home as the workspace: the agent can write what is there.
    skill(home / ".agents" / "skills" / "mine")
    [mine] = find_skills(skill_folders(home, Settings())).skills
    assert mine.trust == "project"


async def opened(folder: Path, **arguments: str) -> tuple[str, str]:
    """Return the text and outcome of a call of the tool with the skills in a folder."""
    found = find_skills([SkillFolder(folder, "project")])
    results: list[tuple[str, str]] = []

    def script(request: ModelRequest) -> Scripted:
        last = request.messages[-1]
        if last.role != "tool":
            return call(NAME, **arguments)
        results.append((last.text, last.outcome))
        return say("Done.")

    settings = Settings(database_url=f"file:{folder / 'run.db'}")
    async with Runtime.open(settings) as runtime:
        await runtime.run(Agent(ScriptedModel(script), skills=found.skills), "Go.")
    return results[0]


async def test_a_skill_and_its_files_are_opened(tmp_path: Path) -> None:
    folder = skill(tmp_path / "deploy", body="See references/a.md.\n</skill>\n")
    (folder / "references").mkdir()
    (folder / "references" / "a.md").write_text("First this.")
    text, outcome = await opened(tmp_path, name="deploy")
    assert outcome == "ok" and "See references/a.md." in text and str(folder) in text
    assert "allows nothing" in text and "by `file`: references/a.md" in text
    mark = next(line for line in text.splitlines() if line.startswith("<skill "))
    assert f"</{mark[1:]}" in text
    text, outcome = await opened(tmp_path, name="deploy", file="references/a.md")
    assert outcome == "ok" and "First this." in text


@pytest.mark.parametrize("file", ["../secret.md", "/etc/passwd", "link.md", "none.md", ".env"])
async def test_only_files_of_the_skill_are_opened(tmp_path: Path, file: str) -> None:
    folder = skill(tmp_path / "deploy")
    (tmp_path / "secret.md").write_text("SECRET")
    (folder / ".env").write_text("SECRET")
    (folder / "link.md").symlink_to(tmp_path / "secret.md")
    text, outcome = await opened(tmp_path, name="deploy", file=file)
    assert outcome == "error" and "SECRET" not in text and "root:" not in text


async def test_an_unknown_skill_names_those_that_there_are(tmp_path: Path) -> None:
    skill(tmp_path / "deploy")
    text, outcome = await opened(tmp_path, name="deplyo")
    assert outcome == "error" and "The skills are: deploy." in text


async def test_prompts_list_skills_within_bounds_and_have_the_tool_only_then(
    tmp_path: Path,
) -> None:
    for number in range(80):
        skill(tmp_path / "skills" / f"skill-{number:02}", "What it does. " * 70)
    requests: list[ModelRequest] = []

    def script(request: ModelRequest) -> Scripted:
        requests.append(request)
        return say("Done.")

    settings = Settings(database_url=f"file:{tmp_path / 'run.db'}")
    async with Runtime.open(settings) as runtime:
        model = ScriptedModel(script)
        await runtime.run(Agent(model, skills=[tmp_path / "skills"]), "Go.", thread="t")
        await runtime.run(Agent(model), "Go.", thread="t")
    listed = requests[0].messages[1].text
    assert all(f"- skill-{number:02}: What" in listed for number in range(80))
    assert len(listed) < 8000
    assert [one.name for one in requests[0].tools] == [NAME, "recall"]
    assert requests[1].tools == ()
    assert "the skills said holds no longer" in "".join(one.text for one in requests[1].messages)


async def test_names_of_very_many_skills_are_bounded_too(tmp_path: Path) -> None:
    many = [Skill(f"{number:04}-{'x' * 59}", "Does it.", tmp_path) for number in range(1000)]
    [note] = await SkillList(many).notes(ContextRequest(Settings(), 4000))
    assert count_text(note.text) < 2000
    assert "- 0000-xxx" in note.text and "(and 9" in note.text


def test_the_schema_is_small() -> None:
    spec = OpenSkill(()).spec
    assert len(spec.description) + len(str(spec.parameters)) < 400


@pytest.mark.parametrize(
    ("of_tools", "of_settings"),
    [("*.key", ""), ("", "*.key"), (".claude/skills/tidy/sub", ""), ("", "/.claude/*/*/sub")],
)
@pytest.mark.backends("file")
async def test_what_a_workspace_hides_no_skill_shows(
    tmp_path: Path, play: Play, of_tools: str, of_settings: str
) -> None:
    folder = skill(tmp_path / ".claude" / "skills" / "tidy")
    (folder / "sub").mkdir()
    (folder / "sub" / "a.key").write_text("hunter2")
    (folder / "open.md").write_text("Open.")
    files = ("sub/a.key", "open.md")
    script = [*(call(NAME, name="tidy", file=one) for one in files), say("Done.")]
    tools = workspace_tools(tmp_path, hidden=[of_tools])
    agent = Agent(ScriptedModel(script), tools=tools, skills=[folder])
    async with play(settings={"hidden_paths": of_settings}) as world:
        await world.run(agent, thread="t")
        [(outcome, hidden), (_, shown)] = await world.results("t")
    assert outcome == "error" and "hidden" in hidden and "hunter2" not in hidden
    assert "Open." in shown
