"""The page for everyone, at every width, in both themes; and how quick it is."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

import pytest
from playwright.async_api import Page, expect

from tests.browser.bundle import MODULES, SCRIPTS, bundled
from tests.browser.made_service import STATIC, MadeService
from tests.browser.made_thread import MadeThread
from tests.services.fixtures import missing
from tests.services.process import MissingPart

Start = Callable[[MadeThread], MadeService]

THREAD = "#/threads/made"
VIEWS = {
    "home": "#/",
    "thread": THREAD,
    "where": f"{THREAD}?step=80&msg=3&obs=3&pane=prompt",
    "left": f"{THREAD}?step=80&tab=left&pane=prompt",
    "compare": f"{THREAD}?step=80&tab=compare&with=20&pane=prompt",
    "side": f"{THREAD}?pane=side",
    "gone": "#/threads/other",
}


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1280])
async def test_nobody_is_kept_out(
    page: Page, start: Start, axe: str, width: int, theme: Literal["light", "dark"]
) -> None:
    service = start(MadeThread(120))
    await page.emulate_media(color_scheme=theme, reduced_motion="reduce")
    await page.set_viewport_size({"width": width, "height": 800})
    for name, place in VIEWS.items():
        await page.goto(service.url + place)
        await expect(page.locator("h1")).not_to_be_empty()
        await page.wait_for_load_state("networkidle") if name == "home" else None
        await page.locator("#panes, .home, .blank").first.wait_for()
        await page.evaluate(axe)
        found = await page.evaluate(
            """async () => (await axe.run({resultTypes: ["violations"]})).violations.map(
                one => `${one.id}: ${one.nodes.map(node => node.html).join(" ").slice(0, 400)}`)"""
        )
        assert not found, name
        wide = await page.evaluate("document.documentElement.scrollWidth > innerWidth")
        assert not wide, f"{name} is wider than the window"


async def test_targets_are_large_enough(page: Page, start: Start) -> None:
    await page.goto(start(MadeThread(60)).url + THREAD)
    await expect(page.locator("#sec-raw li").first).to_be_visible()
    small = await page.evaluate(
        """() => [...document.querySelectorAll("button, input, textarea")]
            .filter(one => one.checkVisibility() && !one.matches(".rail"))
            .filter(one => one.getBoundingClientRect().height < 23.9)
            .map(one => one.outerHTML.slice(0, 120))"""
    )
    assert not small


async def test_ten_thousand_steps_are_ready_at_once_and_follow_the_pointer(
    page: Page, start: Start
) -> None:
    service = start(MadeThread(10_000))
    await page.goto(service.url + THREAD)
    await expect(page.locator("#plot")).to_have_attribute("aria-valuemax", "10000")
    assert await page.locator("#lscroll article").count() < 60
    # What a move of the pointer has to draw; a bound that only a slow design exceeds.
    moved = await page.evaluate(
        """async () => {
            const plot = document.getElementById("plot"), took = [];
            const box = plot.getBoundingClientRect();
            for (let x = 60; x < 1200; x += 20) {
                const began = performance.now();
                const at = {clientX: box.x + x, clientY: box.y + 9};
                plot.dispatchEvent(new PointerEvent("pointermove", at));
                await new Promise(requestAnimationFrame);
                took.push(performance.now() - began);
            }
            return took.sort((a, b) => a - b)[took.length >> 1];
        }"""
    )
    assert moved < 200


def test_the_script_is_that_of_its_modules() -> None:
    try:
        for name in SCRIPTS:
            kept = (STATIC / name).read_bytes()
            assert bundled(name) == kept, "run python -m tests.browser.bundle"
    except MissingPart as error:
        missing(error)


def test_the_files_are_small_and_need_no_exception_from_the_policy() -> None:
    assert sum(file.stat().st_size for file in STATIC.glob("*.js")) <= 60_000
    assert all("</script" not in file.read_text("utf-8") for file in STATIC.glob("*.js"))
    for file in MODULES.glob("*.js"):
        text = file.read_text("utf-8")
        assert "innerHTML" not in text and "import(" not in text
        assert len(text.splitlines()) <= 500
    page = (STATIC / "index.html").read_text("utf-8")
    assert not re.search(r"<[^>]+ (?:style|on\w+)=", page)
