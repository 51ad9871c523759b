"""A small repository with a failing test, a virtual environment of its own and a server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FILES = {
    "prices.py": (
        "from taxes import RATE\n\n\ndef total(items: list[int]) -> int:\n"
        '    """Return the sum with tax, in cents."""\n'
        "    return sum(items[1:]) * (100 + RATE) // 100\n"
    ),
    "test_prices.py": (
        "import unittest\n\nfrom prices import total\n\n\n"
        "class Totals(unittest.TestCase):\n"
        "    def test_each_item_counts(self) -> None:\n"
        "        self.assertEqual(total([100, 200]), 357)\n"
    ),
    "serve.py": (
        "import http.server\nimport os\nfrom pathlib import Path\n\nfrom prices import total\n\n\n"
        "class Shop(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self) -> None:\n"
        "        self.send_response(200)\n        self.end_headers()\n"
        '        self.wfile.write(f"total {total([100, 200])}".encode())\n\n\n'
        'server = http.server.HTTPServer(("127.0.0.1", 0), Shop)\n'
        'Path(".server").write_text(f"{os.getpid()} {server.server_port}")\n'
        'print("serving", flush=True)\nserver.serve_forever()\n'
    ),
    "ask.py": (
        "import urllib.request\nfrom pathlib import Path\n\n"
        'port = Path(".server").read_text().split()[1]\n'
        'print(urllib.request.urlopen(f"http://127.0.0.1:{port}/").read().decode())\n'
    ),
    "CHANGES.md": "# Changes\n",
    ".gitignore": ".venv/\n.server\n__pycache__/\nasked\ngo\n",
}
DEPENDENCY = "RATE = 19\n"


def make_project(folder: Path) -> None:
    """Make the repository; only its own environment has the module `taxes`."""
    for name, text in FILES.items():
        (folder / name).write_text(text)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / ".venv"], check=True)
    [packages] = (folder / ".venv").glob("lib/python*/site-packages")
    (packages / "taxes.py").write_text(DEPENDENCY)
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Begin")


def git(folder: Path, *arguments: str) -> str:
    """Run git in the repository; return its output."""
    identity = {f"GIT_{who}_{what}": "someone@example.org"
                for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}  # fmt: skip
    return subprocess.run(
        ["git", *arguments], cwd=folder, env=os.environ | identity, capture_output=True,
        text=True, check=True,
    ).stdout  # fmt: skip


def passes_its_tests(folder: Path) -> bool:
    """Return whether its tests pass in its own environment."""
    done = subprocess.run(
        [folder / ".venv/bin/python", "-m", "unittest"], cwd=folder, capture_output=True,
        check=False,
    )  # fmt: skip
    return done.returncode == 0


def server_pid(folder: Path) -> int:
    """Return the process id of the server that was started last."""
    return int((folder / ".server").read_text().split()[0])


def is_alive(pid: int) -> bool:
    """Return whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
