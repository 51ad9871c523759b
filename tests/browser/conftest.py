"""Chromium, the page in it, and the service that it shows."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import anyio
import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

from tests.browser.made_service import MadeService
from tests.browser.made_thread import MadeThread
from tests.services.fixtures import missing, starting
from tests.services.npm import npm_package
from tests.services.process import MissingPart

AXE = "4.14.1"
PROGRAM = "TEST_CHROMIUM"
# A busy machine may draw late; what never comes fails all the same.
expect.set_options(timeout=20_000)
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


def chromium_program() -> str | None:
    """Return the browser's program, if there is one."""
    return os.environ.get(PROGRAM) or shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser's program: the system's, or the one that a variable names."""
    named = chromium_program()
    if named is None:
        missing(MissingPart(f"there is no chromium on PATH or in {PROGRAM}"))
    return named


async def closed(close: Callable[[], Awaitable[None]]) -> None:
    """Close something of the browser, which never answers after a test was cut off in a call."""
    with anyio.fail_after(30):
        await close()


@pytest.fixture(scope="module")
async def browser(chromium: str) -> AsyncIterator[Browser]:
    """A browser for the tests of a module."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        await closed(browser.close)


@pytest.fixture
async def page(browser: Browser) -> AsyncIterator[Page]:
    """A page that fails the test if a script fails, or its policy stops something."""
    context = await browser.new_context(viewport={"width": 1280, "height": 800})
    page = await context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "console",
        lambda message: wrong.append(message.text) if "ontent Security" in message.text else None,
    )
    page.set_default_timeout(20_000)
    yield page
    await closed(context.close)
    assert not wrong


@pytest.fixture
def start() -> Iterator[Callable[[MadeThread], MadeService]]:
    """Return a function that starts a service which shows a thread."""
    with starting(MadeService) as start:
        yield start


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe-core, which finds what keeps people out."""
    try:
        folder = npm_package("axe-core", AXE)
    except MissingPart as error:
        missing(error)
    return Path(folder, "node_modules/axe-core/axe.min.js").read_text("utf-8")
