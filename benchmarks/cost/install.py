"""Measure how much disk an installation takes: the default, each extra, and what weighs in it.

Each is a virtual environment of its own, made by uv from this checkout and the package index.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from benchmarks.frame import Report, at_most

ROOT = Path(__file__).parents[2]
MOST_MB = 150
"""Megabytes of the smallest installation that calls a model."""
HEAVIEST = 12
WITHOUT_LITELLM = "litellm ; python_version < '3'\n"
"""The override by which uv leaves litellm out, with what only litellm needs."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--extras", action="store_true", help="measure each extra, too")


def run(args: argparse.Namespace) -> Report:
    """Install, and add up files."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras: list[str] = sorted(project["optional-dependencies"]) if args.extras else []
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        wheel = _built(Path(folder, "wheel"))
        least = _installed(Path(folder, "least"), wheel, without_litellm=True)
        base = _installed(Path(folder, "default"), wheel)
        rows.append({"install": "without litellm", **_totals(least)})
        rows.append({"install": "default", **_totals(base)})
        for extra in extras:
            found = _totals(_installed(Path(folder, extra), wheel, f"[{extra}]"))
            rows.append({"install": f"[{extra}]", **found})
    for table, found in (("without litellm", least), ("default", base)):
        heaviest = sorted(found.items(), key=lambda one: -one[1])[:HEAVIEST]
        rows += [{"table": table, "package": name, "mb": _mb(size)} for name, size in heaviest]
    smallest = _mb(sum(least.values()))
    return Report("install", rows, [at_most("the smallest installation", smallest, MOST_MB, "MB")])


def _uv() -> list[str]:
    return [found] if (found := shutil.which("uv")) else ["python3", "-m", "uv"]


def _built(place: Path) -> Path:
    """Build the wheel once, for all installations; return it."""
    command = [*_uv(), "build", "--quiet", "--wheel", "--out-dir", str(place), str(ROOT)]
    subprocess.run(command, check=True)
    [wheel] = place.glob("*.whl")
    return wheel


def _installed(
    place: Path, wheel: Path, extra: str = "", *, without_litellm: bool = False
) -> dict[str, int]:
    """Install into a new environment; return bytes by entry of its site-packages."""
    uv = _uv()
    subprocess.run([*uv, "venv", "--quiet", "--python", sys.executable, str(place)], check=True)
    overrides = place / "overrides.txt"
    overrides.write_text(WITHOUT_LITELLM if without_litellm else "")
    command = [*uv, "pip", "install", "--quiet", "--python", str(place)]
    # From a folder of its own, so that the project's constraints do not count.
    subprocess.run(
        [*command, "--overrides", str(overrides), f"agent-runtime-om{extra} @ {wheel.as_uri()}"],
        cwd=place,
        check=True,
    )
    [packages] = place.glob("lib/python*/site-packages")
    return {one.name: _size(one) for one in packages.iterdir()}


def _size(path: Path) -> int:
    """Return the bytes of a file or folder."""
    if not path.is_dir():
        return path.stat().st_size
    folders = os.walk(path)
    return sum(Path(root, name).stat().st_size for root, _, names in folders for name in names)


def _totals(found: dict[str, int]) -> dict[str, int]:
    return {
        "packages": sum(name.endswith(".dist-info") for name in found),
        "mb": _mb(sum(found.values())),
    }


def _mb(size: int) -> int:
    return round(size / 1_000_000)
