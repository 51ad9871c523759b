"""Packages of npm that the tests use: installed once, into a folder that git ignores."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.services.process import MissingPart

CACHE = Path(__file__).parents[2] / ".services"
"""Where npm installs packages."""


def npm_package(name: str, version: str) -> Path:
    """Return the folder in which `node_modules` holds a package, as `npm_packages` does."""
    return npm_packages(f"{name}-{version}", f"{name}@{version}")


def npm_packages(name: str, *packages: str) -> Path:
    """Return the folder in which `node_modules` holds packages, installed if it is missing.

    Args:
        name: of the folder; it must change with the packages.
        packages: each with its version, as in `ws@8.18.0`.

    Raises:
        MissingPart: they cannot be installed; the message says why.
    """
    folder = CACHE / name
    if folder.exists():
        return folder
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise MissingPart(f"there is no npm to install {name}")
    CACHE.mkdir(exist_ok=True)
    # Install next to the final folder and rename: several test sessions may install at once.
    with tempfile.TemporaryDirectory(prefix="installing-", dir=CACHE) as scratch:
        made = Path(scratch, "made")
        made.mkdir()
        command = [npm, "install", "--ignore-scripts", "--no-save", "--no-package-lock"]
        command += ["--no-audit", "--no-fund", "--prefix", str(made), *packages]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=scratch)
        if done.returncode:
            raise MissingPart(f"npm cannot install {name}:\n{done.stdout}{done.stderr}")
        try:
            made.rename(folder)
        except OSError:
            if not folder.exists():
                raise
    return folder
