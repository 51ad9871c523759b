"""Commands run in the project's environment, whichever environment the runtime runs in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent_runtime.tools.workspace.environment import project_environment
from tests.support.command import ROOT

SCRIPT = """
import anyio, os, sys
from pathlib import Path
from agent_runtime.tools.workspace.files import workspace_tools
from tests.tools.calling import text

async def main(root, command):
    tools = workspace_tools(Path(root), shell=True)
    [one] = [one for one in tools if one.name == "bash"]
    print(await text(one, command=command))

anyio.run(main, *sys.argv[1:])
"""
PREFIX = 'python3 -c "import sys; print(sys.prefix)"'


def environment(place: Path) -> Path:
    """Create a virtual environment that can import all that this process can."""
    base = [sys.executable, "-m", "venv", "--without-pip", str(place)]
    subprocess.run(base, check=True)
    [packages] = place.glob("lib/python*/site-packages")
    entries = [str(ROOT / entry) for entry in (".", "storage", "config")] + sys.path
    (packages / "all.pth").write_text("\n".join(entry for entry in entries if entry))
    return place


def run(ours: Path, root: Path, command: str, **variables: str) -> list[str]:
    """Run a command from a runtime whose environment is active; return its output."""
    environ = {
        **os.environ,
        "PATH": f"{ours / 'bin'}{os.pathsep}/usr/local/bin:/usr/bin:/bin",
        "VIRTUAL_ENV": str(ours),
        **variables,
    }
    python = ours / "bin" / "python"
    completed = subprocess.run(
        [python, "-c", SCRIPT, str(root), command],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert completed.returncode == 0, completed.stderr
    head, *lines = completed.stdout.strip().splitlines()
    assert head.startswith("Exit code "), completed.stdout
    return lines


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment that the runtime runs in."""
    return environment(tmp_path_factory.mktemp("ours") / ".venv")


def test_a_command_runs_in_the_projects_environment(ours: Path, tmp_path: Path) -> None:
    project = tmp_path / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(project)], check=True)
    assert run(ours, tmp_path, f"{PREFIX}; echo $VIRTUAL_ENV") == [str(project)] * 2


def test_a_project_without_an_environment_does_not_get_the_runtimes(
    ours: Path, tmp_path: Path
) -> None:
    shown = run(
        ours,
        tmp_path,
        "echo $PATH; echo ${VIRTUAL_ENV-none} ${PYTHONPATH-none} ${UV_PROJECT_ENVIRONMENT-none}",
        PYTHONPATH=str(ROOT),
        UV_PROJECT_ENVIRONMENT=str(ours),
    )
    assert shown == ["/usr/local/bin:/usr/bin:/bin", "none none none"]


def test_the_runtimes_environment_is_used_if_it_is_the_projects(ours: Path) -> None:
    assert run(ours, ours.parent, PREFIX) == [str(ours)]


def test_an_environment_activated_for_the_project_stays(tmp_path: Path) -> None:
    other = tmp_path / "other"
    environ = {"PATH": f"{other}/bin:/usr/bin", "VIRTUAL_ENV": str(other), "UV_CACHE_DIR": "/c"}
    assert project_environment(environ, tmp_path, own=[tmp_path / "ours"]) == environ


def test_every_spelling_of_the_runtimes_folder_leaves_the_path(tmp_path: Path) -> None:
    programs = tmp_path / "ours" / "bin"
    programs.mkdir(parents=True)
    (tmp_path / "link").symlink_to(programs)
    path = f"{programs}/:{tmp_path}/link:/usr/bin:{tmp_path}/ours/../ours/bin"
    own = [(tmp_path / "ours").resolve()]
    assert project_environment({"PATH": path}, tmp_path / "w", own=own) == {"PATH": "/usr/bin"}


def test_a_conda_environment_of_the_runtime_is_replaced_by_its_base(tmp_path: Path) -> None:
    environ = {
        "PATH": f"{sys.prefix}/bin:/opt/conda/condabin:/usr/bin",
        "CONDA_PREFIX": sys.prefix,
        "CONDA_PREFIX_1": "/opt/conda",
        "CONDA_SHLVL": "2",
        "CONDA_EXE": "/opt/conda/bin/conda",
    }
    assert project_environment(environ, tmp_path, own=[]) == {
        "PATH": "/opt/conda/bin:/opt/conda/condabin:/usr/bin",
        "CONDA_EXE": "/opt/conda/bin/conda",
    }


def test_paths_that_cannot_be_resolved_are_unchanged(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    environ = {"PATH": f"{loop}:{loop / 'bin'}:/usr/bin", "VIRTUAL_ENV": str(loop)}
    assert project_environment(environ, tmp_path) == environ
