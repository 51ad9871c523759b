"""A server that others wrote, from npm: it reads and writes files."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from agent_runtime import McpServer
from tests.services.npm import CACHE
from tests.tools.calling import call, error, text
from tests.tools.mcp.serving import opened

PACKAGE, VERSION = "@modelcontextprotocol/server-filesystem", "2026.8.31"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def program() -> Path:
    """The server's program, installed once."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("npm and node are not installed")
    folder = CACHE / f"server-filesystem-{VERSION}"
    program = folder / "node_modules" / PACKAGE / "dist" / "index.js"
    if not program.exists():
        CACHE.mkdir(exist_ok=True)
        # Several test sessions may install it at once.
        with tempfile.TemporaryDirectory(prefix="installing-", dir=CACHE) as scratch:
            command = [npm, "install", "--ignore-scripts", "--no-save", "--no-package-lock"]
            command += ["--no-audit", "--no-fund", "--prefix", scratch, f"{PACKAGE}@{VERSION}"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=100)
            if done.returncode:
                pytest.skip(f"npm cannot install it: {done.stderr[-300:]}")
            if not folder.exists():
                shutil.copytree(scratch, folder, symlinks=True)
    return program


async def test_files_are_written_and_read(program: Path, tmp_path: Path) -> None:
    server = McpServer("files", "node", [str(program), str(tmp_path)], deny=["move_file"])
    async with opened(server) as tools:
        assert "files__read_text_file" in tools and "files__move_file" not in tools
        await text(tools["files__write_file"], path=f"{tmp_path}/a.txt", content="The sea.")
        assert "The sea." in await text(tools["files__read_text_file"], path=f"{tmp_path}/a.txt")
        assert "denied" in await error(tools["files__read_text_file"], path="/etc/passwd")
        assert (await call(tools["files__read_text_file"])).outcome == "error"
