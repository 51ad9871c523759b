"""Run the code blocks of a page: Python, commands, settings."""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from anyio.from_thread import BlockingPortal, start_blocking_portal

from agent_runtime import Runtime
from agent_runtime.cli import exit_codes as exits
from agent_runtime.cli import main as command
from agent_runtime_config import Settings, load_settings
from tests.docs.blocks import Block
from tests.docs.provider import Provider, call, calls, say
from tests.services.fixtures import missing
from tests.services.process import MissingPart

COMMANDS = ("agent-runtime", "agent-runtime-om")
SHELL = ("cd", "mkdir", "echo", "printf", "export")
"""Commands that a shell block may have in addition to the product's own."""
_PLACEHOLDER = re.compile(r"\b(RUN|THREAD|NODE|QUESTION|APPROVAL|TOKEN_ID)\b")
_ADDRESS = re.compile(r"http://\S+")
_WORKING = re.compile("Working on the queue")
_HERE = {"say": say, "call": call, "calls": calls}


class Runner:
    """State that the blocks of one page share: names, a database, a provider, an open runtime.

    Attributes:
        counts: number of blocks run, by language, and of the others, by their comment.
    """

    def __init__(self, provider: Provider, patch: pytest.MonkeyPatch) -> None:
        self.provider = provider
        self.patch = patch
        self.counts: Counter[str] = Counter()
        self.names: dict[str, Any] = {"__name__": "documents"}
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None
        self._printed = ""

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def run(self, block: Block) -> None:
        """Run one block; an error names the block's place."""
        if "not run" in block.comments:
            assert len(block.comments["not run"].split()) >= 3, f"{block.where}: no reason"
            self.counts["not run"] += 1
            return
        if "fresh clone" in block.comments:
            self.counts["fresh clone"] += 1
            return
        if name := block.comments.get("file"):
            Path(name.strip()).write_text(block.text)
            self.counts["file"] += 1
            return
        runs: dict[str, Callable[[Block], None]] = {
            "python": self.python,
            "sh": self.shell,
            "env": self.environment,
            "toml": self.configuration,
            "json": lambda block: json.loads(block.text),
            "yaml": self.manifests,
            "ts": self.script,
            "text": self.text,
        }
        assert block.language in runs, (
            f"{block.where}: a block of {block.language or 'no language'}"
        )
        self.counts[block.language] += 1
        if answers := block.comments.get("model"):
            self.provider.script(eval(answers.strip(), {**self.names, **_HERE}))
        try:
            if setup := block.comments.get("setup"):
                self._execute(textwrap.dedent(setup).strip())
            runs[block.language](block)
        except Exception as error:
            error.add_note(f"in the block at {block.where}")
            raise
        unused = list(self.provider.answers)
        assert not unused, f"{block.where}: answers that the model did not use: {unused}"

    def python(self, block: Block) -> None:
        """Run Python; its awaits run on the event loop of the page's runtime."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            self._execute(block.text)
        self._printed = printed.getvalue()

    def _execute(self, source: str) -> None:
        if re.search(r"\bruntime\.", source) and "runtime" not in self.names:
            self.names["runtime"] = self._stack.enter_context(
                self.portal.wrap_async_context_manager(Runtime.open())
            )
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code = compile(source, "documents", "exec", flags=flags, dont_inherit=True)
        if code.co_flags & inspect.CO_COROUTINE:
            self.portal.call(self._run_awaiting, code)
        else:
            exec(code, self.names)

    async def _run_awaiting(self, code: Any) -> None:
        await eval(code, self.names)

    @property
    def portal(self) -> BlockingPortal:
        """The event loop of the page."""
        if self._portal is None:
            self._portal = self._stack.enter_context(start_blocking_portal("asyncio"))
        return self._portal

    def script(self, block: Block) -> None:
        """Check the syntax of a client's program; tests of the protocols run such programs."""
        if (node := shutil.which("node")) is None:
            missing(MissingPart("node is not installed"))
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "block.mjs")
            file.write_text(block.text)
            checked = subprocess.run([node, "--check", file], capture_output=True, text=True)
        assert checked.returncode == 0, f"{block.where}\n{checked.stderr}"

    def manifests(self, block: Block) -> None:
        """Read the documents of a block of YAML."""
        list(yaml.safe_load_all(block.text))

    def text(self, block: Block) -> None:
        """Compare the block with the output of the Python above, if its comment is `prints`."""
        if "prints" in block.comments:
            printed = self._printed.strip()
            assert printed == block.text.strip(), f"{block.where} prints:\n{printed}"

    def environment(self, block: Block) -> None:
        """Check that the settings can be loaded; they do not stay set."""
        environ = dict(self._assigned(line) for line in block.text.splitlines() if line.strip())
        load_settings(environ)
        fields = {f"AGENT_RUNTIME_{field.upper()}" for field in Settings.model_fields}
        unknown = {name for name in environ if name.startswith("AGENT_RUNTIME_")} - fields
        assert not unknown, f"{block.where}: no settings: {unknown}"

    def configuration(self, block: Block) -> None:
        """Check that a configuration file can be loaded."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "config.toml")
            file.touch(mode=0o600)
            file.write_text(block.text)
            load_settings({"AGENT_RUNTIME_CONFIG_FILE": str(file)})

    def _assigned(self, line: str) -> tuple[str, str]:
        name, equals, value = line.partition("=")
        assert equals and name.isidentifier(), f"no assignment: {line}"
        return name, " ".join(shlex.split(value, comments=True))

    def shell(self, block: Block) -> None:
        """Run commands in this process, and the few shell words that pages need."""
        if "serves" in block.comments:
            for line in block.text.splitlines():
                _serve(shlex.split(line), block.where)
            return
        codes = [int(code) for code in block.comments.get("exit", "").split(",") if code.strip()]
        for line in block.text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            with self.patch.context() as context:
                while words and "=" in words[0]:
                    context.setenv(*words.pop(0).split("=", 1))
                if not words:
                    continue
                expected = codes.pop(0) if codes and words[0] in COMMANDS else 0
                assert self._word(words) == expected, f"{block.where}: {line}\n{self._printed}"

    def _word(self, words: list[str]) -> int:
        name, *arguments = words
        if name in COMMANDS:
            return self.command([self._filled(word) for word in arguments])
        match name:
            case "cd":
                self.patch.chdir(arguments[0])
            case "mkdir":
                os.makedirs(arguments[-1], exist_ok=True)  # noqa: PTH103
            case "export":
                for word in arguments:
                    key, _, value = word.partition("=")
                    if not key.endswith("_API_KEY") and key != "AGENT_RUNTIME_MODEL":
                        self.patch.setenv(key, value)
                load_settings()
            case _:
                raise AssertionError(f"the command {name} is not supported here")
        return 0

    def command(self, arguments: list[str]) -> int:
        """Run a command of the product and return its exit code."""
        printed = io.StringIO()
        stdin = io.StringIO("")
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            self.patch.setattr("sys.stdin", stdin)
            try:
                command.main(arguments, prog_name="agent-runtime", standalone_mode=True)
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
            else:
                code = 0
        self._printed = printed.getvalue()
        return code

    def _filled(self, word: str) -> str:
        """Replace a placeholder by the id of the page's newest object of its kind."""
        return _PLACEHOLDER.sub(lambda match: self._id(match[0]), word)

    def _id(self, placeholder: str) -> str:
        match placeholder:
            case "RUN":
                runs = (item for item in self._json("runs") if not item["parent_run_id"])
                return str(next(runs)["run_id"])
            case "THREAD":
                return str(self._json("threads")[0]["id"])
            case "NODE":
                shown = self._json("show", self._id("THREAD"))
                return str([item["seq"] for item in shown if item["message"]["type"] == "user"][-1])
            case "TOKEN_ID":
                return str(self._json("tokens", "list")[-1]["id"])
            case "QUESTION":
                return str(self._json("questions")[0]["id"])
            case _:
                return str(self._json("approvals", self._id("THREAD"))[0]["id"])

    def _json(self, *arguments: str) -> list[dict[str, Any]]:
        assert self.command([*arguments, "--json"]) == 0, self._printed
        return [json.loads(line) for line in self._printed.splitlines()]


def _serve(words: Sequence[str], where: str) -> None:
    """Start a command that serves, open the address that it prints if any, and interrupt it."""
    assert words[0] in COMMANDS, where
    works = words[1] == "worker"
    port = [] if works or "--port" in words else ["--port", "0"]
    command = [sys.executable, "-m", "agent_runtime", *words[1:], *port]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        try:
            said, ready = "", _WORKING if works else _ADDRESS
            while (address := ready.search(said)) is None:
                line = process.stdout.readline()
                assert line, f"{where}: it ended and said:\n{said}"
                said += line
            if not works:
                assert httpx.get(address[0], follow_redirects=True).status_code == 200
        finally:
            process.send_signal(signal.SIGINT)
            process.stdout.read()
        assert process.wait() in (exits.SUCCESS, exits.INTERRUPTED), where


@contextlib.contextmanager
def settings_of_a_new_user(provider: Provider, patch: pytest.MonkeyPatch) -> Generator[None]:
    """Set a new user's environment: a model and its key, with the provider on loopback."""
    for name in list(os.environ):
        if name.startswith("AGENT_RUNTIME_") or name in ("DATABASE_URL",):
            patch.delenv(name)
    patch.setenv("AGENT_RUNTIME_MODEL", "anthropic/claude-sonnet-4-5")
    patch.setenv("AGENT_RUNTIME_MODEL_BASE_URL", provider.url)
    patch.setenv("AGENT_RUNTIME_FORBID_REAL_MODELS", "1")
    patch.setenv("ANTHROPIC_API_KEY", "of-nobody")
    yield
