"""Packages from npm, installed once for all tests."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.services.libsql import CACHE
from tests.services.process import MissingPart


def installed(name: str, *packages: str) -> Path:
    """Return a folder whose `node_modules` has these packages, each with its version.

    Args:
        name: of the folder; it must change with the packages.

    Raises:
        MissingPart: there is no node or npm, or they cannot be installed.
    """
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise MissingPart("npm and node are not installed")
    folder = CACHE / name
    if folder.exists():
        return folder
    CACHE.mkdir(exist_ok=True)
    # Install next to the final folder and rename: several test sessions may install at once.
    with tempfile.TemporaryDirectory(prefix="installing-", dir=CACHE) as scratch:
        target = Path(scratch, name)
        target.mkdir()
        command = [npm, "install", "--ignore-scripts", "--no-save", "--no-package-lock"]
        command += ["--no-audit", "--no-fund", "--prefix", str(target), *packages]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=scratch)
        if done.returncode:
            raise MissingPart(f"npm cannot install {name}:\n{done.stdout}{done.stderr}")
        try:
            target.rename(folder)
        except OSError:
            if not folder.exists():
                raise
    return folder
