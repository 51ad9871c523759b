"""`read_file` pages and outlines; images; `glob`; presets and the size of schemas."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import anyio
import orjson
import pytest

from agent_runtime import Runtime, ScriptedModel, Settings
from agent_runtime.cli.agents import Spec, build_agent
from agent_runtime.errors import ConfigError
from agent_runtime.models.scripted import say
from agent_runtime.tools.base import Tool
from agent_runtime.tools.workspace.files import workspace_tools
from agent_runtime.tools.workspace.reading.outline import MOST_PARTS, outline
from agent_runtime.tools.workspace.reading.pages import PAGE_CHARS
from agent_runtime.tools.workspace.root import Root
from agent_runtime.tools.workspace.searching.ignored import IgnoredFiles
from tests.tools.calling import error, text

MOST_BYTES = 6 * 1024
PNG = bytes.fromhex("89504e470d0a1a0a0000000d4948445200000001000000010806000000")


@pytest.fixture
def tools(tmp_path: Path) -> dict[str, Tool]:
    return {one.name: one for one in workspace_tools(tmp_path)}


async def test_a_long_file_comes_in_pages_with_an_outline_of_the_rest(
    tmp_path: Path, tools: dict[str, Tool]
) -> None:
    code = "".join(f"def f{number}():\n    return {number}\n\n" for number in range(120))
    (tmp_path / "a.py").write_text(code)
    first = await text(tools["read_file"], path="a.py")
    assert first.startswith("a.py: 360 lines, ") and "; next: offset=301.\n1|def f0():" in first
    assert "\n300|\n\nIn the rest:\n301|def f100():\n304|def f101():" in first
    second = await text(tools["read_file"], path="a.py", offset=301)
    assert "lines 301-360 follow.\n301|def f100():" in second and "In the rest" not in second


async def test_every_line_can_be_read(tmp_path: Path, tools: dict[str, Tool]) -> None:
    (tmp_path / "long").write_text("".join(f"{n}\n" for n in range(1, 30_001)))
    one = await text(tools["read_file"], path="long", offset=29_999, limit=1)
    assert one.endswith("bytes; line 29999 follows; next: offset=30000.\n29999|29999")
    gone = await text(tools["read_file"], path="long", offset=1 << 70)
    assert gone.startswith("long: 30,000 lines, ") and "there is no line" in gone
    (tmp_path / "one").write_text("x")
    assert await text(tools["read_file"], path="one") == (
        "one: 1 line, 1 byte; no newline at the end.\n1|x"
    )


async def test_a_page_of_long_lines_is_bounded_too(tmp_path: Path, tools: dict[str, Tool]) -> None:
    (tmp_path / "wide").write_text(("x" * 500 + "\n") * 300)
    assert PAGE_CHARS - 600 < len(await text(tools["read_file"], path="wide")) < PAGE_CHARS + 200


@pytest.mark.parametrize(
    ("name", "source", "found"),
    [
        ("a.py", "class A:\n    async def f(self):\n        x = 1", [1, 2]),
        ("a.ts", "export class A {\n  run(x: number): void {\n    if (x) {\n  }\n}", [1, 2]),
        (
            "a.go",
            "package a\n\nfunc (a *A) Run() error {\n\treturn nil\n}\ntype B struct {",
            [3, 6],
        ),
        ("a.rs", "pub async fn run() {\n    let x = 1;\n}\nimpl<T> A<T> {", [1, 4]),
        ("A.java", "public class A {\n    private int size(int x) {\n        return x;\n", [1, 2]),
        ("a.c", "#define X 1\nstatic int f(int x)\n{\n  return g(x);\n}", [1, 2]),
        ("a.md", "# A\ntext\n```\n# no heading\n```\n## B", [1, 6]),
        ("a.rb", "module A\n  def f\n    1\n  end", [1, 2]),
        ("a.toml", "[tool]\nx = 1", [1]),
        ("a.txt", "def f():", []),
    ],
)
def test_outlines_name_the_parts_of_a_text(name: str, source: str, found: list[int]) -> None:
    lines = outline(name, enumerate(source.split("\n"), 1))
    assert [int(line.partition("|")[0]) for line in lines] == found


def test_a_long_outline_keeps_the_outer_parts() -> None:
    source = "".join(f"class A{n}:\n    def f(self):\n        ...\n" for n in range(MOST_PARTS - 5))
    lines = outline("a.py", enumerate(source.split("\n"), 1))
    assert len(lines) == MOST_PARTS - 5 and all("class" in line for line in lines)


async def test_an_image_is_attached(
    tmp_path: Path, tools: dict[str, Tool], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    tool = tools["read_file"]
    from agent_runtime.tools.context import ToolContext
    from tests.tools.calling import context

    stored: list[object] = []

    async def keep(self: ToolContext, file: object) -> object:
        from agent_runtime.messages import FileRef

        stored.append(file)
        return FileRef("image", "tool:1", "image/png", "a.png")

    monkeypatch.setattr(ToolContext, "keep", keep)
    result = await tool.call({"path": "a.png"}, context())
    assert result.text == f"a.png: image/png, {len(PNG)} bytes; it is attached."
    assert [file.uri for file in result.files] == ["tool:1"] and len(stored) == 1


async def test_the_newest_files_come_first_and_ignored_ones_are_left_out(
    tmp_path: Path, tools: dict[str, Tool]
) -> None:
    (tmp_path / ".gitignore").write_text("build/\n*.log\n!keep.log\n")
    (tmp_path / "build").mkdir()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / ".gitignore").write_text("/only_here\n")
    for age, name in enumerate(["b.py", "a.py", "x.log", "keep.log", "build/c.py", "sub/only_here",
                                "only_here"]):  # fmt: skip
        (tmp_path / name).write_text("x")
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))

    async def found(**arguments: object) -> list[str]:
        _, *lines = (await text(tools["glob"], **arguments)).split("\n")
        return [line.partition("  ")[2] for line in lines]

    assert await found(pattern="*.{py,log}") == ["b.py", "a.py", "keep.log"]
    assert await found(pattern="**/only_here") == ["only_here"]
    assert await found(pattern="**/*.py", ignored=True) == ["b.py", "a.py", "build/c.py"]
    # Whoever names an ignored folder wants what is in it.
    assert await found(path="build") == await found(pattern="build/*") == ["build/c.py"]


IGNORED = r"""
# comment
*.log
!keep.log
/top
build/
doc/*.txt
**/deep
a/**/z
tmp/**
!tmp/b
\#hash
we[^x]rd
trail\ 
name.*   
"""


NAMES = (
    *("x.log", "keep.log", "top", "sub/top", "build/x", "sub/build", "doc/a.txt", "sub/doc/a.txt"),
    *("doc/s/a.txt", "q/deep/f", "a/z", "a/b/c/z", "b/a/z", "tmp/a", "tmp/b", "#hash", "weyrd"),
    *("wexrd", "name.c", "s/keep.log", "s/x.log", "s/n/name", "trail "),
)


def test_what_is_ignored_is_what_git_ignores(tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / ".gitignore").write_text(IGNORED)
    (tmp_path / "s" / ".gitignore").write_text("!x.log\nkeep.log\n/n/*\n")
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    listed = ["git", "ls-files", "--others", "--exclude-per-directory=.gitignore"]
    wanted = subprocess.check_output(listed, cwd=tmp_path, text=True).splitlines()
    rules = IgnoredFiles(Root(tmp_path), ()).matches
    found = Root(tmp_path).walk(".", ignored=rules).found
    assert sorted(one.path for one in found if one.kind == "file") == sorted(wanted)
    assert 5 < len(wanted) < len(NAMES) - 5


def test_globs_of_an_attacker_take_no_time(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*a" * 100 + "b\n" + "**/" * 200 + "x\n")
    deep = tmp_path.joinpath(*["d"] * 40)
    deep.mkdir(parents=True)
    (deep / ("a" * 200)).write_text("")
    rules = IgnoredFiles(Root(tmp_path), ()).matches
    assert len(Root(tmp_path).walk(".", ignored=rules).found) == 42


@pytest.mark.parametrize(
    ("preset", "names"),
    [
        (
            "coding",
            {"read_file", "search", "glob", "edit_file", "write_file", "bash", "bash_output"},
        ),
        ("reading", {"read_file", "search", "glob", "bash", "bash_output"}),
        ("minimal", {"bash", "bash_output"}),
        (
            "reading, apply_patch",
            {"read_file", "search", "glob", "apply_patch", "bash", "bash_output"},
        ),
    ],
)
def test_a_preset_chooses_the_tools(tmp_path: Path, preset: str, names: set[str]) -> None:
    assert {one.name for one in workspace_tools(tmp_path, preset=preset, shell=True)} == names


def test_presets_that_do_not_exist_or_leave_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no file tool 'codng'"):
        workspace_tools(tmp_path, preset="codng")
    with pytest.raises(ConfigError, match="leaves no tool"):
        workspace_tools(tmp_path, preset="minimal")
    with pytest.raises(ConfigError, match="leaves no tool"):
        workspace_tools(tmp_path, preset="edit_file", read_only=True)


@pytest.mark.parametrize("more", [False, True])
async def test_the_schemas_of_the_commands_tools_stay_small(tmp_path: Path, more: bool) -> None:
    """Each of these bytes is in every prompt; docs/how-to/workspace.md has the figures."""
    model = ScriptedModel([say("Done.")])
    spec = Spec("openai/gpt-5-mini", str(tmp_path), allow_shell=more, asking=more)
    async with Runtime.open(Settings(database_url=f"file:{tmp_path / 'own.db'}")) as runtime:
        await runtime.run(replace(build_agent(spec), model=model), "Go.")
    sizes = {one.name: len(orjson.dumps(one)) for one in model.requests[0].tools}
    assert {"plan", "delegate", "recall", "tasks", "open_artifact"} < sizes.keys()
    assert more == ({"bash", "bash_output", "ask_user"} < sizes.keys())
    assert sum(sizes.values()) <= MOST_BYTES, sizes


async def test_special_files_and_odd_arguments_end_soon(
    tmp_path: Path, tools: dict[str, Tool]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    with anyio.fail_after(30):
        for name in ("pipe", "zero"):
            await error(tools["read_file"], path=name)
            await error(tools["edit_file"], path=name, edits=[{"old": "a", "new": "b"}])
            await error(tools["search"], path=name, pattern="a")
        assert "stands for more than 64" in await error(tools["glob"], pattern="{a,b}" * 10)
        assert "stands for more than 64" in await error(
            tools["search"], pattern="a", globs="{a,b}" * 10
        )
        await text(tools["glob"], pattern="*a" * 200)
