"""`python -m tests.browser.bundle`: make the page's script of its modules, by esbuild."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.services.npm import npm_package

ESBUILD = "0.28.2"
INSPECTOR = Path(__file__).parents[2] / "agent_runtime/server/inspector"
MODULES = INSPECTOR / "script"
STATIC = INSPECTOR / "static"
SCRIPTS = {"ahead.js": "iife", "main.js": "esm"}
"""The scripts that browsers get, and their formats."""

OWN = (
    "activationAt activationBefore activationLine anchored askedKey callRow childRun "
    "drawActivations drawAll drawBase drawMarks drawOver drawRows eventsOf followButton "
    "following fronted inObservation partsAt promptPath rawRow readAll readFront readWindow "
    "showBand showStep stepAfter stepOf stopFollowing toEnd toSeq wholeButton whereAt whereHere "
    "arrived between buttons detach details nodeOf outdate resized reveal scrolled sections "
    "wanted windows attach changed choose draw drawn goal hover loaded measure offline panes "
    "passes pending position refresh renew retry seen strip tell stopped "
    "streaming bands late stack listen range column space"
)
"""Names of the page's own methods and fields, which no browser and no answer has."""


def bundled(name: str) -> bytes:
    """Return a module with those it needs, without comments and long names.

    Raises:
        MissingPart: npm or its registry cannot be reached.
    """
    program = npm_package("esbuild", ESBUILD) / "node_modules/.bin/esbuild"
    flags = ["--bundle", "--minify", f"--format={SCRIPTS[name]}", "--charset=utf8"]
    own = f"--mangle-props=^({OWN.replace(' ', '|')})$"
    command = [str(program), str(MODULES / name), *flags, own]
    return subprocess.run(command, check=True, capture_output=True, timeout=60).stdout


if __name__ == "__main__":
    for script in SCRIPTS:
        made = STATIC / script
        made.write_bytes(bundled(script))
        print(f"wrote {made}: {made.stat().st_size / 1000:.1f} KB")
