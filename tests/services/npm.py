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
    """Return the folder in which `node_modules` holds a package, installed if it is missing.

    Raises:
        MissingPart: it can not be installed; the message says why.
    """
    folder = CACHE / f"{name}-{version}"
    if not folder.exists():
        _install(f"{name}@{version}", folder)
    return folder


def _install(package: str, folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise MissingPart(f"there is no npm to install {package}")
    CACHE.mkdir(exist_ok=True)
    # Install next to the final folder and rename: several test sessions may install at once.
    with tempfile.TemporaryDirectory(prefix="installing-", dir=CACHE) as scratch:
        command = [npm, "install", "--ignore-scripts", "--no-save", "--no-package-lock"]
        command += ["--no-audit", "--no-fund", "--prefix", f"{scratch}/made", package]
        Path(scratch, "made").mkdir()
        installed = subprocess.run(
            command, capture_output=True, text=True, timeout=300, cwd=scratch
        )
        if installed.returncode:
            raise MissingPart(
                f"npm cannot install {package}:\n{installed.stdout}{installed.stderr}"
            )
        try:
            Path(scratch, "made").rename(folder)
        except OSError:
            if not folder.exists():
                raise
