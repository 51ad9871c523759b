"""`python -m docs.generate.screens [FOLDER]`: pictures of the terminal, from real runs in one.

The model is scripted; everything else is as it is for a user.  The ids in the pictures differ from
time to time, so nothing compares them.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from anyio.from_thread import start_blocking_portal
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import MONOKAI
from rich.text import Text

from agent_runtime.human.approval_rules import SHELL
from agent_runtime.testing.model_server import OpenAIServer, Reply
from docs.generate.page import PAGES
from tests.cli.screen import Screen, at_terminal

COLUMNS = 88
CTRL_C = "\x03"
PRICES = {
    "AGENT_RUNTIME_PRICE_INPUT": "3",
    "AGENT_RUNTIME_PRICE_OUTPUT": "15",
    "AGENT_RUNTIME_PRICE_CACHE_READ": "0.3",
    "AGENT_RUNTIME_PRICE_CACHE_WRITE": "3.75",
}
CODE = """\
def total(items):
    result = 0
    for item in items:
        result = item
    return result
"""
TEST = """\
import unittest

from total import total


class TestTotal(unittest.TestCase):
    def test_two(self):
        self.assertEqual(total([1, 2]), 3)
"""
PLAN = {
    "action": "create",
    "goal": "Fix it.",
    "steps": [{"description": "Read the code and its test."}, {"description": "Fix it and check."}],
}
CHECK = "python3 -B -m unittest -q"
EDIT = {
    "path": "total.py",
    "edits": [{"old": "        result = item\n", "new": "        result += item\n"}],
}
DONE = """\
## The bug is fixed

`total` overwrote its result with each item; now it **adds** them:

```python
for item in items:
    result += item
```

- the test passes
- nothing else was changed
"""


def reply(text: str, *calls: tuple[str, dict[str, Any]]) -> Reply:
    """Return a scripted answer."""
    return Reply(text=text, calls=calls)


LOOK = reply(
    "I will look at the code and at its test first.",
    ("plan", PLAN),
    ("read_file", {"path": "total.py"}),
    ("read_file", {"path": "test_total.py"}),
)
FIX = reply("The loop overwrites `result` instead of adding to it.", ("edit_file", EDIT))


@contextmanager
def run(replies: list[Reply], *options: str, rows: int) -> Generator[Screen]:
    """Run the command at a terminal, with a scripted model."""
    with tempfile.TemporaryDirectory() as name, start_blocking_portal() as portal:
        folder = Path(name) / "shop"
        folder.mkdir()
        (folder / "total.py").write_text(CODE)
        (folder / "test_total.py").write_text(TEST)
        server = OpenAIServer(lambda request, n: replies[min(n, len(replies) - 1)])
        with portal.wrap_async_context_manager(server):
            environ = PRICES | {
                "AGENT_RUNTIME_MODEL": "openai/example",
                "AGENT_RUNTIME_MODEL_BASE_URL": server.base_url,
                "AGENT_RUNTIME_DATABASE_URL": f"file:{name}/agent.db",
                "OPENAI_API_KEY": "sk-example-0123456789",
            }
            arguments = ("run", "Fix the failing test.", "--workspace", ".", *options)
            with at_terminal(
                folder, environ, *arguments, columns=COLUMNS, rows=rows, stdout=True
            ) as screen:
                yield screen


def working(picture: Callable[[Screen], None]) -> None:
    """A run at work: what was done, and what happens now."""
    slow = reply("", (SHELL, {"command": f"sleep 3; {CHECK}"}))
    replies = [LOOK, reply("", (SHELL, {"command": CHECK})), FIX, slow, reply(DONE)]
    with run(replies, "--allow-shell", rows=34) as screen:
        screen.until("result += item", "sleep 3", "· 1.")
        picture(screen)


def approval(picture: Callable[[Screen], None]) -> None:
    """A command that a person refuses, with a reason."""
    install = reply("The tests need pytest.", (SHELL, {"command": "pip install pytest"}))
    ends = reply("I will use `python3 -m unittest` instead, and install nothing.")
    with run([install, ends], "--ask-shell", rows=24) as screen:
        screen.until("] >")
        screen.type("n use unittest, as the project does")
        screen.until("Done after")
        screen.until_exit()
        picture(screen)


def steering(picture: Callable[[Screen], None]) -> None:
    """A message to the agent at work, and its answer."""
    slow = reply("", (SHELL, {"command": "while [ ! -e go ]; do sleep 0.1; done"}))
    with run([LOOK, slow, reply(DONE)], "--allow-shell", rows=40) as screen:
        screen.until("sleep 0.1", "· 1.")
        screen.type(CTRL_C, end="")
        screen.until("Message to the agent", ">")
        screen.type("Say in one sentence what was wrong.")
        screen.until("Sent:")
        screen.folder.joinpath("go").touch()
        screen.until("Done after")
        screen.until_exit()
        picture(screen)


SCENES = {"working": working, "approval": approval, "steering": steering}

# That of rich without its fonts, which it fetches from another host.
SVG = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}"
  height="{terminal_height}" /></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g></g></svg>
"""


def drawn(screen: Screen) -> str:
    """Return the screen as SVG."""
    rows = screen.rows
    last = max((number for number, row in enumerate(rows) if row), default=0)
    with Path("/dev/null").open("w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True)
        for number in range(last + 1):
            ones = [screen.buffer[number][column] for column in range(len(rows[number]))]
            line = Text()
            # What looks the same is one text, so that the picture is small.
            for style, alike in itertools.groupby(ones, _style):
                line.append("".join(one.data for one in alike), style)
            console.print(line, soft_wrap=True)
    return console.export_svg(
        title="agent-runtime", theme=MONOKAI, code_format=SVG, unique_id="screen"
    )


def _style(one: Any) -> Style:
    color = None if one.fg == "default" else {"brown": "yellow"}.get(one.fg, one.fg)
    if color is not None and color.startswith("bright"):
        color = f"bright_{color.removeprefix('bright')}"
    known = color if color is None or not _is_hex(color) else f"#{color}"
    return Style(color=known, bold=one.bold, italic=one.italics, underline=one.underscore)


def _is_hex(color: str) -> bool:
    return len(color) == 6 and all(one in "0123456789abcdef" for one in color)


def main(arguments: list[str] | None = None) -> int:
    """Write the pictures; return the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    folder = Path(given[0]) if given else PAGES / "assets"
    for name, scene in SCENES.items():
        path = folder / f"terminal-{name}.svg"
        scene(lambda screen, path=path: _write(path, drawn(screen)))
    return 0


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    print(f"wrote {path}: {len(text) / 1024:.0f} KB")


if __name__ == "__main__":
    raise SystemExit(main())
