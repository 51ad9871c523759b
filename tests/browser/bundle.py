"""`python -m tests.browser.bundle`: make the page's script of its modules, by esbuild."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.services.npm import npm_package

ESBUILD = "0.28.2"
INSPECTOR = Path(__file__).parents[2] / "agent_runtime/server/inspector"
MODULES = INSPECTOR / "script"
SCRIPT = INSPECTOR / "static/main.js"


def bundled() -> bytes:
    """Return the modules as one script without comments and long names. Raises `MissingPart`."""
    program = npm_package("esbuild", ESBUILD) / "node_modules/.bin/esbuild"
    flags = ["--bundle", "--minify", "--format=esm", "--charset=utf8"]
    command = [str(program), str(MODULES / "main.js"), *flags]
    return subprocess.run(command, check=True, capture_output=True, timeout=60).stdout


if __name__ == "__main__":
    SCRIPT.write_bytes(bundled())
    print(f"wrote {SCRIPT}: {SCRIPT.stat().st_size / 1000:.1f} KB")
