"""Run the README's first steps as written, against a provider on loopback.

    python first_steps.py clone FOLDER    from a fresh clone, created in the folder; then the other
                                          blocks of the documents for a fresh clone, each by itself
    python first_steps.py wheel BIN       with the commands of an installed wheel, in that folder

It is a script, not a test, and needs only Python's standard library.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
ANSWER = "The slowest test waits for a server."
REQUESTS: list[dict[str, Any]] = []
_NOT_CLONED = (".git", ".*_cache", ".venv", ".services", "__pycache__", "*.db*", "REPORT.md")


def events() -> bytes:
    """Return an answer as Anthropic streams it."""
    usage = {"input_tokens": 100, "output_tokens": 1}
    message: dict[str, Any] = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
        "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage,
    }  # fmt: skip
    parts: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "text", "text": ""},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": ANSWER},
        },
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 9},
        },
        {"type": "message_stop"},
    ]
    return b"".join(
        f"event: {part['type']}\ndata: {json.dumps(part)}\n\n".encode() for part in parts
    )


class Provider(BaseHTTPRequestHandler):
    """Answers every request with the same message."""

    def do_POST(self) -> None:
        """Stream the answer."""
        REQUESTS.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        body = events()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class's name
        """Suppress the log."""


def blocks() -> list[str]:
    """Return the README's shell commands, except those that run the tests."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    matches = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [block for block in matches if "pytest" not in block]


def fresh_clone_blocks() -> list[str]:
    """Return the shell commands of all documents that are marked for a fresh clone."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [
        block
        for page in pages
        for block in re.findall(
            r"^<!-- fresh clone -->\n```sh\n(.*?)^```$",
            page.read_text(encoding="utf-8"),
            re.MULTILINE | re.DOTALL,
        )
    ]


def environment(home: Path, port: int) -> dict[str, str]:
    """Return a new user's environment: an empty home folder and no settings."""
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AGENT_RUNTIME_", "XDG_", "VIRTUAL_ENV", "UV_PROJECT"))
        and not name.endswith("_API_KEY")
        and name != "DATABASE_URL"
    }
    # Downloads of pip and uv are cached in the real home folder.
    caches = Path.home() / ".cache"
    python = Path(sys.base_prefix, "bin")
    return {
        "UV_CACHE_DIR": str(caches / "uv"),
        "PIP_CACHE_DIR": str(caches / "pip"),
        **environ,
        "HOME": str(home),
        "PATH": f"{python}:{environ['PATH']}",
        # The loopback provider; everything else is as the README says.
        "AGENT_RUNTIME_MODEL_BASE_URL": f"http://127.0.0.1:{port}",
    }


def shell(script: str, folder: Path, environ: Mapping[str, str]) -> str:
    """Run commands in one shell, and return their stdout."""
    completed = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        check=False,
    )  # fmt: skip
    if completed.returncode:
        raise SystemExit(f"exit code {completed.returncode} of:\n{script}")
    return completed.stdout


def activate(environ: dict[str, str], folder: Path) -> None:
    """Create a virtual environment and activate it, so that pip installs into it."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    environ |= {"PATH": f"{folder / 'bin'}:{environ['PATH']}", "VIRTUAL_ENV": str(folder)}


def install_by_documents(clone: Path, port: int) -> None:
    """Run each further block for a fresh clone as another new user; the package is installed."""
    first = blocks()
    for block in fresh_clone_blocks():
        if block in first:
            continue
        with tempfile.TemporaryDirectory() as temporary:
            home = Path(temporary, "home")
            home.mkdir()
            environ = environment(home, port)
            activate(environ, Path(temporary, "venv"))
            environ["PATH"] = f"{home / '.local/bin'}:{environ['PATH']}"
            shell(f"{block}\nagent-runtime --help", clone, environ)


def main(source: str, where: Path) -> None:
    """Run all first steps from a clone, or those that need a key with an installed wheel."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary, "home")
        home.mkdir()
        environ = environment(home, server.server_port)
        steps = blocks()
        if source == "clone":
            clone = where / "clone"
            # Copied, not cloned by git: the checkout may be an export without history.
            shutil.copytree(ROOT, clone, ignore=shutil.ignore_patterns(*_NOT_CLONED))
            activate(environ, Path(temporary, "venv"))
            installed = 'python3 -c "import agent_runtime_storage, agent_runtime.runtime"'
            output = shell("\n".join([*steps, f"cd / && {installed}"]), clone, environ)
            if not (clone / "REPORT.md").is_file():
                raise SystemExit("the first step wrote no report")
            install_by_documents(clone, server.server_port)
        else:
            environ["PATH"] = f"{where}:{environ['PATH']}"
            project = Path(temporary, "project")
            project.mkdir()
            keyed = [step for step in steps if "_API_KEY" in step]
            output = shell("\n".join([*keyed, "agent-runtime-om --help"]), project, environ)
        states = list(home.rglob("agent_runtime.db"))
    server.shutdown()
    server.server_close()
    if ANSWER not in output or not REQUESTS or len(states) != 1:
        raise SystemExit(f"the step with a key did not work; it printed:\n{output}")
    print(f"the README's first steps work from a {source}")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]).resolve())
