"""A process that a test kills while it waits for a server.

killed.py FOLDER
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc

from tests.support.command import ROOT, clean_environ


@asynccontextmanager
async def started(folder: Path) -> AsyncGenerator[anyio.abc.Process]:
    """Start it; it is killed at the end."""
    command = [sys.executable, "-m", "tests.tools.mcp.killed", str(folder)]
    async with await anyio.open_process(command, cwd=ROOT, env=clean_environ(), stderr=None) as one:
        try:
            yield one
        finally:
            if one.returncode is None:
                one.kill()


async def main(folder: Path) -> None:
    from tests.tools.calling import call
    from tests.tools.mcp.serving import opened, raw

    async with opened(raw(folder, "hang")) as tools:
        await call(tools["raw__hang"])


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]))
