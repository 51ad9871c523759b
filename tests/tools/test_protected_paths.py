"""Protected and hidden paths: what the file tools refuse, and how it is allowed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import anyio
import pytest

from agent_runtime.errors import ConfigError
from agent_runtime.tools.base import Tool
from agent_runtime.tools.workspace.files import workspace_tools
from agent_runtime.tools.workspace.protected_paths import Globs, from_settings
from tests.tools.calling import context, error, text

PROTECTED = [
    ".git/config",
    ".git/hooks/pre-commit",
    ".GIT/config",
    ".g\u200cit/config",
    "deep/down/.git/info/attributes",
    ".git",
    "sub/HEAD",
    ".husky/pre-commit",
    ".venv/bin/python",
    "venv/lib/site.py",
    "fresh/pyvenv.cfg",
    "node_modules/.bin/tsc",
    ".envrc",
    ".bashrc",
    ".zshrc",
    ".profile",
    ".bash_profile",
    ".config/fish/config.fish",
    ".vscode/tasks.json",
    ".claude/settings.json",
    ".npmrc",
    ".nvim.lua",
    ".pdbrc",
    ".lefthook-local.yml",
    "mise.local.toml",
    ".mise/config.toml",
    "own/bin/python",
    ".gitconfig.local",
    ".devcontainer.json",
    ".yarn/releases/yarn.cjs",
    "opencode.json",
]
HIDDEN = [".env", ".env.local", "services/api/.env", ".netrc", ".ssh/id_ed25519", ".pypirc"]
FREE = [
    "conftest.py",
    ".github/workflows/ci.yml",
    "Makefile",
    ".gitignore",
    ".env.example",
    "src/environment.py",
    "git/config",
    "head.py",
    "layouts/partials/head/css.html",
    "src/Head/index.tsx",
]


def tools_of(root: Path, protected: str = "", hidden: str = "") -> dict[str, Tool]:
    tools = workspace_tools(root, protected=protected.split(","), hidden=hidden.split(","))
    return {one.name: one for one in tools}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    (folder / "own" / "bin").mkdir(parents=True)
    (folder / "own" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    return folder


def files_below(root: Path) -> list[Path]:
    return sorted(one for one in root.rglob("*") if one.is_file())


@pytest.mark.parametrize("path", [*PROTECTED, *HIDDEN])
async def test_a_protected_file_is_neither_written_nor_appended_to(root: Path, path: str) -> None:
    tools, before = tools_of(root), files_below(root)
    for append in (False, True):
        refused = await error(tools["write_file"], path=path, content="x", append=append)
        assert "from the file tools" in refused
        assert "AGENT_RUNTIME_" in refused
    assert files_below(root) == before


@pytest.mark.parametrize("path", FREE)
async def test_code_of_the_project_is_written(root: Path, path: str) -> None:
    await text(tools_of(root)["write_file"], path=path, content="x")
    assert (root / path).read_text() == "x"


async def test_a_protected_file_is_read_and_not_edited(root: Path) -> None:
    (root / ".envrc").write_text("use flake\n")
    tools = tools_of(root)
    assert "use flake" in await text(tools["read_file"], path=".envrc")
    refused = await error(
        tools["edit_file"], path=".envrc", edits=[{"old": "flake", "new": "$(touch x)"}]
    )
    assert ".envrc is protected from the file tools" in refused
    assert (root / ".envrc").read_text() == "use flake\n"


async def test_secrets_are_neither_read_nor_found(root: Path) -> None:
    (root / ".env").write_text("TOKEN=hunter2\n")
    (root / "link").symlink_to(".env")
    tools = tools_of(root)
    for path in (".env", "link", "./own/../.env", str(root / ".env")):
        assert "hidden from the file tools" in await error(tools["read_file"], path=path)
        assert "hunter2" not in await error(
            tools["edit_file"], path=path, edits=[{"old": "TOKEN", "new": "x"}]
        )
    found = await text(tools["search"], pattern="hunter")
    assert "0 matching lines" in found
    assert ".env (hidden: " in found
    assert "hidden" in await error(tools["search"], pattern="hunter", path=".env")


@pytest.mark.parametrize("path", ["link/config", "link/hooks/pre-commit", "direct"])
async def test_links_do_not_lead_around_the_rules(root: Path, path: str) -> None:
    (root / ".git").mkdir()
    (root / "link").symlink_to(".git")
    (root / "direct").symlink_to(".git/config")
    assert "protected" in await error(tools_of(root)["write_file"], path=path, content="x")
    assert not list((root / ".git").iterdir())


async def test_what_git_runs_by_itself_cannot_be_written(root: Path, tmp_path: Path) -> None:
    """`git status` runs the program that `core.fsmonitor` names."""
    await anyio.run_process(["git", "init", "-q", str(root)])
    monitor = f'[core]\n\tfsmonitor = "touch {tmp_path}/ran"\n'
    write = tools_of(root)["write_file"]
    await error(write, path=".git/config", content=monitor, append=True)
    # A folder that has these is a repository, too.
    for path in ("bare/objects/x", "bare/refs/x"):
        await text(write, path=path, content="")
    await error(write, path="bare/HEAD", content="ref: refs/heads/main\n")
    await text(write, path="bare/config", content=f"{monitor}bare = false\nworktree = ..\n")
    for folder in (root, root / "bare"):
        await anyio.run_process(["git", "status"], cwd=folder)
    assert not (tmp_path / "ran").exists()


async def test_no_repository_can_be_written_whatever_its_name(root: Path) -> None:
    await anyio.run_process(["git", "init", "-q", "--bare", str(root / "bare")])
    await anyio.run_process(["git", "init", "-q", "--separate-git-dir=apart"], cwd=root)
    tools = tools_of(root)
    before = (root / "apart/config").read_text()
    for path in ("bare/hooks/post-update", "bare/config", "apart/config", "apart/hooks/x"):
        assert "protected" in await error(tools["write_file"], path=path, content="x")
    edit = {"path": "apart/config", "edits": [{"old": "[core]", "new": "[core]\n\tpager = x"}]}
    assert "protected" in await error(tools["edit_file"], **edit)
    assert (root / "apart/config").read_text() == before
    # Also where it is the workspace itself.
    inside = tools_of(root / "bare")["write_file"]
    assert "protected" in await error(inside, path="hooks/update", content="x")
    await text(tools_of(root, protected="!apart")["write_file"], path="apart/note", content="x")


async def test_what_the_configuration_of_git_names_cannot_be_written(root: Path) -> None:
    await anyio.run_process(["git", "init", "-q", "--separate-git-dir=../apart"], cwd=root)
    settings = {"core.hooksPath": "tools/hooks", "core.fsmonitor": "./tools/watch"}
    for name, value in {**settings, "include.path": "../workspace/shared.cfg"}.items():
        await anyio.run_process(["git", "config", name, value], cwd=root)
    write = tools_of(root)["write_file"]
    for path in ("tools/hooks/pre-commit", "tools/hooks", "tools/watch", "shared.cfg"):
        assert "protected" in await error(write, path=path, content="x")
    await text(write, path="tools/build", content="x")
    await text(tools_of(root, protected="!tools")["write_file"], path="tools/watch", content="x")


async def test_rules_are_added_and_excepted(root: Path) -> None:
    tools = tools_of(root, protected="migrations/**,!.vscode,!own", hidden="*.pem,!.env.local")
    write = tools["write_file"]
    (root / "key.pem").write_text("secret")
    assert "protected" in await error(write, path="migrations/1.sql", content="x")
    assert "hidden" in await error(tools["read_file"], path="key.pem")
    for path in (".vscode/tasks.json", ".env.local", "own/bin/python", "a/migrations/1.sql"):
        await text(write, path=path, content="x")


async def test_settings_decide_over_what_a_program_allows(root: Path) -> None:
    tools = tools_of(root, protected="!.vscode")
    rules = from_settings(".vscode", "notes")
    services = dataclasses.replace(context(), services={type(rules): rules})
    for path, word in ((".vscode/tasks.json", "protected"), ("notes/a", "hidden")):
        given = {"path": path, "content": "x"}
        result = await tools["write_file"].call(given, services)
        assert word in result.text


def test_a_read_only_workspace_has_no_tools_that_write(root: Path) -> None:
    tools = workspace_tools(root, read_only=True)
    assert {one.name for one in tools} == {"glob", "read_file", "search"}
    with pytest.raises(ConfigError, match="Commands can write"):
        workspace_tools(root, read_only=True, shell=True)


async def test_rules_hold_for_paths_of_a_thousand_parts(root: Path) -> None:
    tools = tools_of(root, protected="**/deep/**/x/**/y")
    path = "deep/" * 700 + ".git/config"
    assert "is protected" in await error(tools["write_file"], path=path, content="x")
    assert "No such file" in await error(tools["read_file"], path=path)


async def test_a_path_that_no_program_could_open_is_not_created(root: Path) -> None:
    tools, path = tools_of(root), "deep/" * 1000 + "file"
    assert "longer than" in await error(tools["write_file"], path=path, content="x")
    assert not (root / "deep").exists()


@pytest.mark.parametrize(
    ("globs", "path", "matches"),
    [
        ("a", "x/a/b", True),
        ("/a", "x/a", None),
        ("/a", "a/b", True),
        ("a/b", "x/a/b", None),
        ("**/a/b", "x/y/a/b/c", True),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("a/*/b", "a/x/y/b", None),
        ("*.sql", "a/b.SQL", True),
        ("a,!a/b", "a/b/c", False),
        ("!a/b,a", "a/b", True),
        (" , !", "a", None),
    ],
)
def test_globs_match_as_in_a_gitignore(globs: str, path: str, matches: bool | None) -> None:
    assert Globs.of(globs.split(",")).matches(path.split("/")) is matches
