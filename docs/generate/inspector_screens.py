# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""`python -m docs.generate.inspector_screens [FOLDER] [--all]`: pictures of the inspector's page.

A service in this process works on a moved database with scripted models; Chromium shows its page.
With `--all`, every view is taken at three widths in both themes, to look at.
"""

from __future__ import annotations

import argparse
import base64
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import anyio
from playwright.async_api import Browser, Page, async_playwright

from agent_runtime import Agent, tool
from agent_runtime.errors import ToolError
from agent_runtime.models.base import ModelAnswer, ModelRequest
from agent_runtime.models.pricing.price import Price
from agent_runtime.models.scripted import ScriptedModel, calls, raw_call, say
from docs.generate.page import PAGES
from tests.browser.conftest import FLAGS, chromium_program
from tests.server.serving import Service, serving, until

PRICE = Price(input=3000, output=15000, cache_read=300, cache_write=3750)
TASK = "Move the store of this application from SQLite to Postgres without losing a row."
RULES = " Never change config/prod.yaml. Ask before anything that writes to the real database."
STEPS = 150
HEIGHT = 900

Theme = Literal["light", "dark"]
THEMES: tuple[Theme, ...] = ("light", "dark")


@tool
def read_file(path: str) -> str:
    """Read a file."""
    return "\n".join(f"{n:>3}  row.{path[8:-3]}_{n} = convert(row, {n})" for n in range(40))


@tool
def edit_file(path: str, old: str, new: str) -> str:
    """Edit a file."""
    return f"{path}: 1 place changed."


@tool
def run_tests(path: str) -> str:
    """Run the tests of a folder."""
    if path.endswith("_fails"):
        raise ToolError("1 failed, 38 passed: test_orders_keep_their_time: 14:00 is not 16:00")
    return "39 passed in 2.1 s"


@tool(needs_approval=True)
def run_command(command: str) -> str:
    """Run a command in the shell."""
    return "done"


@dataclass
class Mover:
    """What the model of the large thread answers, step by step."""

    steered: anyio.Event = field(default_factory=anyio.Event)
    steps: int = 0
    own: str = ""

    async def __call__(self, request: ModelRequest) -> ModelAnswer:
        self.own = self.own or request.session
        if request.session != self.own:
            return next(REVIEWS)
        self.steps += 1
        n = self.steps
        if n == 61:
            await self.steered.wait()
        return self.answer(n)

    def answer(self, n: int) -> ModelAnswer:
        module = f"storage/module_{n // 4}.py"
        if n == 1:
            return calls(raw_call("plan", action="create", goal="Move the store", steps=PLAN))
        if done := {20: 1, 70: 3, 120: 4}.get(n):
            steps = [{"id": f"s{k}", "status": "completed"} for k in range(1, done + 1)]
            steps.append({"id": f"s{done + 1}", "status": "in_progress"})
            return calls(raw_call("plan", action="update", steps=steps))
        if n in (44, 96):
            order = {"role": "reviewer", "instructions": "Review.", "briefing": f"Review {module}."}
            return calls(raw_call("delegate", task_key=f"review-{n}", **order))
        if n >= STEPS:
            why = (
                "All 48,211 rows are on staging and equal by checksum. The last command writes to "
            )
            return calls(
                raw_call("run_command", command=COMMAND),
                text=why + "the real database: it copies, verifies, and restarts the application.",
            )
        if n % 37 == 0:
            return calls(raw_call("run_tests", path="tests/orders_fails"))
        if n % 4 == 3:
            change = {"old": "import sqlite3", "new": "import psycopg"}
            return calls(raw_call("edit_file", path=module, **change))
        if n % 4 == 0:
            return calls(raw_call("run_tests", path="tests/storage"), text="Now its tests.")
        text = f"`{module}` builds its statements by hand; I read it first." if n % 4 == 1 else ""
        return calls(raw_call("read_file", path=module), text=text)


PLAN = [
    {"id": f"s{n}", "description": text}
    for n, text in enumerate(
        (
            "Survey what touches the database",
            "Write the Postgres schema and its migrations",
            "Port the queries, module by module",
            "Compare every table by checksum on staging",
            "Copy the real database, and switch over",
        ),
        1,
    )
]
COMMAND = (
    "python -m move.copy --from /srv/app/app.db --to $DATABASE_URL --batch 500 --verify && "
    "systemctl restart app"
)


def reviews() -> Iterator[ModelAnswer]:
    """Yield what sub-agents answer, one after the other."""
    while True:
        yield calls(raw_call("read_file", path="storage/module_1.py"))
        yield say("The statements are right; one index is missing.")


REVIEWS = reviews()
UNREAD = calls(raw_call("read_file", path="invoices.csv"))


def short(text: str) -> ScriptedModel:
    """Return a model that reads two files, then answers."""
    answers = [calls(raw_call("read_file", path=f"storage/ids_{n}.py")) for n in range(2)]
    return ScriptedModel([*answers, say(text)], name="scripted/small", price=PRICE)


@asynccontextmanager
async def worked() -> AsyncGenerator[Service]:
    """Give a service with threads in every state: waiting, at work, failed, ended."""
    mover, gate = Mover(), anyio.Event()
    left = iter(range(24))

    async def counting(request: ModelRequest) -> ModelAnswer:
        if (n := next(left, None)) is None:
            await gate.wait()
            return say("Counted.")
        return calls(raw_call("read_file", path=f"storage/table_{n}.py"))

    def large(name: str, script: Mover) -> ScriptedModel:
        return ScriptedModel(script, name=name, price=PRICE)

    tools = [read_file, edit_file, run_tests, run_command]
    agents = {
        "mover": Agent(
            large("scripted/large", mover), tools=tools, name="mover", max_steps=400,
            planning=True, delegation=True, instructions="You move an application. Test it.",
        ),
        "counter": Agent(
            ScriptedModel(counting, name="scripted/small", price=PRICE), tools=[read_file],
            name="counter", max_steps=400,
        ),
        "reader": Agent(short("It makes ids that rise."), tools=[read_file], name="reader"),
        "sorter": Agent(
            ScriptedModel([UNREAD], name="scripted/small", price=PRICE), tools=[read_file],
            name="sorter",
        ),
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "observational_memory": True,
            "observer_message_tokens": 9000,
            "reflector_observation_tokens": 2200,
        }
        async with serving(
            f"file:{folder}/a.db", agents=agents, local=True, settings=settings
        ) as service:
            for agent, task in (
                ("reader", "What does ids.py do?"),
                ("sorter", "Sort the invoices of October"),
            ):
                started = await service.start(agent=agent, task=task, thread_id=agent)
                await service.ended(started["run_id"])
            started = await service.start(agent="mover", task=TASK + RULES, thread_id="move")
            await until(lambda: mover.steps > 60)
            steer = {"text": "The numbers of rows must be compared per table, not in total."}
            await service.client.post(f"/api/runs/{started['run_id']}/steer", json=steer)
            mover.steered.set()
            await service.ended(started["run_id"])
            task = "Count the rows of every table"
            await service.start(agent="counter", task=task, thread_id="count")
            await until(lambda: next(left, None) is None)
            yield service
            gate.set()


@dataclass(frozen=True)
class View:
    """A place of the page, and what has to be there."""

    place: str
    there: str
    press: str = ""


VIEWS = {
    "home": View("#/", "tr.go"),
    "thread": View("#/threads/move?step=104", "#sec-raw li"),
    "newest": View("#/threads/move", "#sec-raw li"),
    "left-out": View("#/threads/move?step=104&tab=left&pane=prompt", ".delta"),
    "where": View("#/threads/move?step=104&msg=40&obs=1&pane=prompt", ".where .path, .where p"),
    "compare": View("#/threads/move?step=104&tab=compare&with=90&pane=prompt", ".delta"),
    "side": View("#/threads/move?pane=side", "#side .need"),
    "running": View("#/threads/count", "#sec-raw li"),
    "failed": View("#/threads/sorter", "#sec-raw li"),
    "gone": View("#/threads/other", ".blank"),
    "search": View("#/search?q=checksum", "h2"),
}
PICTURES: dict[str, tuple[str, int, int, Theme]] = {
    "inspector-home": ("home", 1200, 760, "dark"),
    "inspector-thread": ("thread", 1440, 900, "light"),
    "inspector-left-out": ("left-out", 900, 800, "light"),
    "inspector-phone": ("newest", 360, 740, "light"),
}


async def taken(
    browser: Browser, service: Service, view: View, size: tuple[int, int], theme: Theme
) -> bytes:
    """Return a picture of a view, as WebP."""
    context = await browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=theme, reduced_motion="reduce"
    )
    try:
        page = await context.new_page()
        page.set_default_timeout(60_000)
        await page.goto(f"{service.url}/{view.place}")
        await page.locator(view.there).first.wait_for(state="attached")
        await settled(page)
        session = await context.new_cdp_session(page)
        shot = await session.send("Page.captureScreenshot", {"format": "webp", "quality": 82})
        return base64.b64decode(shot["data"])
    finally:
        await context.close()


async def settled(page: Page) -> None:
    """Wait until nothing of the page is being read."""
    await page.wait_for_function(
        "() => !document.querySelector('#panel .sk, #lscroll [aria-busy=true]')"
    )
    await page.evaluate(
        "() => new Promise(done => requestAnimationFrame(() => setTimeout(done, 200)))"
    )


async def pictures(folder: Path, all_views: bool) -> None:
    """Write the pictures of the documents, or of every view at every width."""
    async with worked() as service, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium_program(), args=FLAGS)
        wanted: dict[str, tuple[str, int, int, Theme]] = PICTURES
        if all_views:
            wanted = {
                f"{name}-{width}-{theme}": (name, width, HEIGHT if width > 400 else 740, theme)
                for name in VIEWS
                for width in (360, 900, 1440)
                for theme in THEMES
            }
        for name, (view, width, height, theme) in wanted.items():
            data = await taken(browser, service, VIEWS[view], (width, height), theme)
            path = folder / f"{name}.webp"
            path.write_bytes(data)
            print(f"wrote {path}: {len(data) / 1000:.0f} KB")
        await browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=PAGES / "assets")
    parser.add_argument("--all", action="store_true", help="every view, at three widths")
    options = parser.parse_args()
    anyio.run(pictures, options.folder, options.all)
