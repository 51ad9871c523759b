"""A person at the page of the real service, while runs are at work."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from playwright.async_api import Error, Page, expect

from tests.browser.served import DEPLOY, Served, served

STEP = "#plot"
NEWEST = "aria-valuemax"


@pytest.fixture(scope="module")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """The service, one for all tests of the module; each has a thread of its own."""
    async with served(tmp_path_factory.mktemp("served")) as service:
        yield service


async def enter(page: Page, service: Served, place: str) -> None:
    """Sign in, as a person does, and open a place."""
    page.set_default_timeout(30_000)
    await page.goto(f"{service.url}/#/{place}")
    form = page.locator("#signin")
    await form.get_by_label("Your token").fill(service.token)
    await form.get_by_role("button", name="Sign in").click()
    await expect(form).to_be_hidden()


async def at_least(page: Page, steps: int) -> int:
    """Wait until the page shows this many steps; return how many there are."""
    await page.wait_for_function(
        "n => +document.querySelector('#plot')?.getAttribute('aria-valuemax') >= n", arg=steps
    )
    return int(await page.locator(STEP).get_attribute(NEWEST) or 0)


async def open_observation(page: Page, service: Served) -> None:
    """Open the first observation; another stands first once a reflection replaced it."""
    opened = page.locator("#sec-observed", has_text="Stands for")
    # At full speed reflections replace observations faster than a page can be read.
    hurry, service.lead.pause = service.lead.pause, 3
    while not await opened.count():
        with suppress(AssertionError, Error):
            await page.locator("#sec-observed .ob > button").first.click(timeout=2_000)
            await expect(opened).to_be_visible(timeout=2_000)
    service.lead.pause = hurry


async def numbers(page: Page) -> list[int]:
    """Return the numbers of the messages in the log, from the top to the end."""
    return await page.evaluate(
        """async () => {
            const box = document.getElementById("lscroll"), seen = new Set();
            for (let y = 0; y < box.scrollHeight + 400; y += 250) {
                box.scrollTop = y;
                await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
                for (const row of box.querySelectorAll("article")) seen.add(+row.ariaPosInSet);
            }
            return [...seen].sort((a, b) => a - b);
        }"""
    )


async def test_a_run_is_started_watched_steered_and_allowed(page: Page, service: Served) -> None:
    await service.ended(await service.start("Be brief.", "moving"))
    await enter(page, service, "threads/moving")
    # Start: the thread goes on.
    await page.locator("#steer").fill("Look at every part. Never touch the walrus.")
    await page.get_by_role("button", name="Continue", exact=True).click()
    await expect(page.locator("#status")).to_have_text("Running")
    # Watch, and load the page again in mid-run.
    await at_least(page, 12)
    await page.reload()
    reached = await at_least(page, 20)
    # An observation opens to its lines and messages while the run goes on.
    await open_observation(page, service)
    assert await at_least(page, reached + 3) > reached
    await page.locator("#steer").fill("Deploy now, please.")
    await page.get_by_role("button", name="Tell it").click()
    # What is shown is what runs: the text of the card, and nothing else.
    shown = page.locator("#side .need pre")
    await expect(shown).to_have_text(DEPLOY)
    text = await shown.inner_text()
    assert not (service.folder / "deployed.txt").exists()
    await page.get_by_role("button", name="Allow once").click()
    await expect(page.locator("#status")).to_have_text("Succeeded")
    assert (service.folder / "deployed.txt").read_text() == text == DEPLOY
    # Nothing is missing: each node of the branch has its row.
    rows = await numbers(page)
    found = await service.client.get("/api/inspector/threads/moving")
    assert rows == list(range(1, found.json()["head"] + 1))


async def test_a_run_is_cancelled(page: Page, service: Served) -> None:
    run = await service.start("Look at everything.", "endless")
    await enter(page, service, "threads/endless")
    await at_least(page, 2)
    await page.get_by_role("button", name="Cancel…").click()
    await page.get_by_role("button", name="Cancel the run").click()
    await expect(page.locator("#status")).to_have_text("Cancelled")
    assert (await service.ended(run))["status"] == "cancelled"


@pytest.mark.slow
async def test_ten_tabs_of_one_run_are_all_current(page: Page, service: Served) -> None:
    run = await service.start("Look at everything again.", "tabs")
    await enter(page, service, "threads/tabs")
    tabs = [page, *[await page.context.new_page() for _ in range(9)]]
    for tab in tabs[1:]:
        await tab.goto(f"{service.url}/#/threads/tabs", wait_until="domcontentloaded")
    await at_least(page, 10)
    for tab in tabs:
        await at_least(tab, 8)
    assert (await service.client.post(f"/api/runs/{run}/cancel", json={})).is_success
    for tab in tabs:
        await expect(tab.locator("#status")).to_have_text("Cancelled", timeout=40_000)
        await expect(tab.locator("#note")).to_be_hidden()
    head = (await service.client.get("/api/inspector/threads/tabs")).json()["head"]
    for tab in (tabs[0], tabs[-1]):
        # A tab in the background does not scroll.
        await tab.bring_to_front()
        assert await numbers(tab) == list(range(1, head + 1))
