"""The page shows a thread, keeps it current, and sends what a person decides."""

from __future__ import annotations

import re
from collections.abc import Callable

import anyio
import pytest
from playwright.async_api import Page, Route, expect

from tests.browser.made_service import MadeService
from tests.browser.made_thread import COMMAND, MadeThread

Start = Callable[[MadeThread], MadeService]

THREAD = "#/threads/made"
SELECTED = '#lscroll [aria-current="true"] .g'
TITLE = "#prompt header h2"

TOO_WIDE = """[...document.querySelectorAll(".scroll, .home, main, .need")]
    .filter(box => box.clientWidth && box.scrollWidth > box.clientWidth + 1)
    .map(box => [box.id, ...[...box.querySelectorAll("*")].filter(one =>
        one.getBoundingClientRect().right > box.getBoundingClientRect().right)
        .map(one => one.outerHTML.slice(0, 60))])"""


async def test_home_shows_what_waits_runs_and_ended(page: Page, start: Start) -> None:
    await page.goto(start(MadeThread(60)).url)
    await expect(page.locator(".need pre")).to_have_text(COMMAND)
    await expect(page.locator("tr.go")).to_have_count(4)
    await page.locator("tr.go a").first.click()
    await expect(page.locator(TITLE)).to_have_text("What the model saw at step 60")
    await page.go_back()
    await expect(page.locator(".figs")).to_contain_text("Waiting")


async def test_every_state_is_in_the_address(page: Page, start: Start) -> None:
    service = start(MadeThread(120))
    address = f"{service.url}{THREAD}?step=70&msg=40&obs=2&tab=compare&with=60&z=20-110&pane=side"
    await page.goto(address)
    await expect(page.locator(TITLE)).to_have_text("What the model saw at step 70")
    await expect(page.locator(SELECTED)).to_contain_text("#40")
    await expect(page.get_by_role("spinbutton")).to_have_value("60")
    await expect(page.locator("#readout")).to_contain_text("Steps 20–110")
    await page.get_by_role("tab", name="Left out").click()
    await page.reload()
    await expect(page.get_by_role("tab", name="Left out")).to_have_attribute(
        "aria-selected", "true"
    )
    await expect(page.locator("#panel")).to_contain_text("left the prompt")


async def test_keys_move_through_messages_steps_and_activations(page: Page, start: Start) -> None:
    await page.goto(f"{start(MadeThread(120)).url}{THREAD}?step=50")
    await expect(page.locator(SELECTED)).to_contain_text("50")
    for key, wanted in [("k", 49), ("j", 50), ("ArrowRight", 51), ("ArrowLeft", 50), ("]", 64)]:
        await page.keyboard.press(key)
        await expect(page.locator(TITLE)).to_have_text(f"What the model saw at step {wanted}")
    await page.keyboard.press("e")
    await expect(page.locator(TITLE)).to_have_text("What the model saw at step 90")
    await page.keyboard.press("w")
    await expect(page.locator(".where")).to_contain_text("Where #90 is at step 90")
    for key, panel in [
        ("d", "parts are the same"),
        ("l", "Nothing is lost"),
        ("p", "Raw messages"),
    ]:
        await page.keyboard.press(key)
        await expect(page.locator("#panel")).to_contain_text(panel)
    await page.keyboard.press("s")
    await expect(page.locator("#steer")).to_be_focused()
    await page.keyboard.type("gj")
    await expect(page.locator("#steer")).to_have_value("gj")
    await page.locator("#plot").press("Enter")
    await expect(page.locator("#lscroll [aria-current=true]")).to_be_focused()


async def test_the_strip_and_the_log_wait_for_nothing_else(page: Page, start: Start) -> None:
    held = anyio.Event()
    asked: list[str] = []

    async def later(route: Route) -> None:
        await held.wait()
        await route.continue_()

    page.on("request", lambda request: asked.append(request.url.rsplit("/", 1)[1]))
    await page.route(re.compile("/(activations|observations)"), later)
    await page.goto(start(MadeThread(120)).url + THREAD)
    await expect(page.locator("#plot")).to_have_attribute("aria-valuemax", "120")
    await expect(page.locator("#lscroll article").last).to_contain_text("#122")
    await expect(page.locator("#panel .sum")).to_contain_text("tokens")
    # What is in view needs one request, which `ahead.js` has made.
    assert [one for one in asked if one in ("opening", "made", "steps")] == ["opening"]
    assert not any(one.startswith("nodes") for one in asked)
    await page.keyboard.press("ArrowLeft")
    await expect(page.locator(TITLE)).to_have_text("What the model saw at step 119")
    await expect(page.locator("#panel .sk")).to_have_count(1)
    held.set()
    await expect(page.locator("#sec-raw li").first).to_be_visible()


async def test_a_failed_run_says_why_at_once(page: Page, start: Start) -> None:
    thread = MadeThread(20, asks=False, words=" The key was refused.")
    thread.status = "failed"
    await page.set_viewport_size({"width": 360, "height": 740})
    await page.goto(start(thread).url + THREAD)
    await expect(page.locator("#note")).to_contain_text("The key was refused.")
    # Of the newest step the number of its message is whole, however long the thread.
    await page.goto("about:blank")
    await page.set_viewport_size({"width": 1280, "height": 800})
    await page.goto(start(MadeThread(10_010)).url + THREAD)
    spans = page.locator("#lscroll article").last.locator(".g span")
    await expect(spans.first).to_have_text("10,010")
    step, message = [await span.bounding_box() for span in await spans.all()]
    assert step and message and step["y"] == message["y"]


async def test_a_phone_searches_from_home(page: Page, start: Start) -> None:
    await page.set_viewport_size({"width": 360, "height": 740})
    await page.goto(start(MadeThread(20)).url)
    await page.locator("#find").fill("walrus")
    await page.keyboard.press("Enter")
    await expect(page.locator(".home h2")).to_contain_text("“walrus”")
    await expect(page.locator("#find")).to_be_visible()


async def test_an_observation_opens_to_its_lines_and_messages(page: Page, start: Start) -> None:
    await page.goto(f"{start(MadeThread(300)).url}{THREAD}?step=300")
    await page.locator("#sec-observed").get_by_role("button", name="reflection").first.click()
    await expect(page.locator("#sec-observed")).to_contain_text("Written from 5 observations")
    await (
        page.locator("#sec-observed .in").get_by_role("button", name="observation of").first.click()
    )
    await page.locator("#sec-observed .in .in").get_by_role("button", name="#3 ·").click()
    await expect(page.locator(SELECTED)).to_contain_text("#3")
    await expect(page.locator(".where")).to_contain_text("Message 3 is observed.")


async def test_the_answer_carries_what_was_shown(page: Page, start: Start) -> None:
    service = start(MadeThread(40))
    await page.goto(service.url + THREAD)
    # By the keyboard: Escape goes back, and the focus stays in the pane.
    await page.get_by_role("button", name="Refuse…").press("Enter")
    await page.get_by_label("Why not?").press("Escape")
    await expect(page.get_by_label("Why not?")).to_be_hidden()
    await expect(page.locator("#sscroll")).to_be_focused()
    await page.get_by_role("button", name="Refuse…").click()
    await page.get_by_label("Why not?").fill("Not on a Friday.")
    await page.get_by_role("button", name="Refuse", exact=True).click()
    await expect(page.locator(".need")).to_have_count(0)
    [(path, body, key), (resumed, _, _)] = service.posts
    assert path == "questions/q1/answer" and len(key) == 32
    decision = {"allow": False, "reason": "Not on a Friday.", "remember": False}
    assert body == {"digest": "digest-1"} | decision
    assert resumed == "runs/run-made/resume"
    # It was left before it went on: nobody is asked anything, but it does not go on by itself.
    service.thread.status = "suspended"
    service.thread.grow(1)
    await expect(page.locator("#status")).to_have_text("Waits to be resumed")
    await expect(page.get_by_role("button", name="Resume")).to_be_visible()


async def test_a_refused_action_says_cause_and_cure(page: Page, start: Start) -> None:
    service = start(MadeThread(40))
    service.refusal = {"detail": "The run has ended.", "cure": "Start another."}
    await page.goto(service.url + THREAD)
    await page.locator("#steer").fill("Count rows.")
    for _ in range(2):
        await page.get_by_role("button", name="Tell it").click()
        await expect(page.locator("#note")).to_contain_text("The run has ended. Start another.")
        await page.locator("#note").get_by_role("button", name="Close").click()
    await expect(page.locator("#steer")).to_have_value("Count rows.")
    (first, second) = service.posts
    assert first[:2] == second[:2] == ("runs/run-made/steer", {"text": "Count rows."})


async def test_what_was_not_shown_whole_stays_forbidden(page: Page, start: Start) -> None:
    service = start(MadeThread(40, long=True))
    service.refusal = {"detail": "The run has ended.", "cure": ""}
    await page.goto(service.url + THREAD)
    allow = page.get_by_role("button", name="Allow once")
    await expect(allow).to_be_disabled()
    await page.get_by_role("button", name="Refuse…").click()
    await page.get_by_role("button", name="Refuse", exact=True).click()
    # What failed can be tried again, and no more than before.
    await expect(page.locator("#note")).to_contain_text("The run has ended.")
    await expect(page.get_by_role("button", name="Refuse…")).to_be_enabled()
    await expect(allow).to_be_disabled()


async def test_new_steps_arrive_and_the_place_is_held(page: Page, start: Start) -> None:
    thread = MadeThread(100, asks=False)
    service = start(thread)
    await page.goto(f"{service.url}{THREAD}?step=50")
    await expect(page.locator(SELECTED)).to_contain_text("50")
    before = await page.locator("#lscroll").evaluate("box => box.scrollTop")
    thread.grow(3)
    await expect(page.locator("#plot")).to_have_attribute("aria-valuemax", "103")
    await expect(page.locator(".pill")).to_have_text("3 new steps ↓")
    assert await page.locator("#lscroll").evaluate("box => box.scrollTop") == before
    await page.locator(".pill").click()
    thread.grow(2)
    await expect(page.locator("#lscroll article").last).to_contain_text("105")


async def test_a_reload_in_mid_run_leaves_no_gap(page: Page, start: Start) -> None:
    thread = MadeThread(30, asks=False)
    await page.goto(start(thread).url + THREAD)
    for _ in range(3):
        thread.grow(7)
        await page.reload()
        thread.grow(5)
        await expect(page.locator("#plot")).to_have_attribute(
            "aria-valuemax", str(len(thread.steps))
        )
    await page.keyboard.press("0")
    rows = await page.evaluate(
        """async () => {
            const box = document.getElementById("lscroll"), seen = new Set();
            for (let y = 0; y < box.scrollHeight; y += 200) {
                box.scrollTop = y;
                // The event of a scroll comes in the next frame, before its timers.
                await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
                for (const row of box.querySelectorAll("article")) seen.add(+row.ariaPosInSet);
            }
            return [...seen].sort((a, b) => a - b);
        }"""
    )
    assert rows == list(range(1, len(thread.nodes) + 1))


async def test_without_a_connection_data_stay_and_controls_are_off(
    page: Page, start: Start
) -> None:
    thread = MadeThread(40, asks=False)
    service = start(thread)
    await page.goto(service.url + THREAD)
    await expect(page.locator(TITLE)).to_contain_text("step 40")
    service.down = True
    thread.grow(1)
    await expect(page.locator("#note")).to_contain_text("No connection since")
    await expect(page.get_by_role("button", name="Tell it")).to_be_disabled()
    await expect(page.locator(TITLE)).to_contain_text("step 40")
    service.down = False
    await expect(page.locator(TITLE)).to_contain_text("step 41")
    await expect(page.locator("#note")).to_be_hidden()
    await expect(page.get_by_role("button", name="Tell it")).to_be_enabled()


async def test_a_thread_that_is_deleted_while_it_is_open_is_gone(page: Page, start: Start) -> None:
    thread = MadeThread(5, asks=False)
    await page.goto(start(thread).url + THREAD)
    await expect(page.locator(TITLE)).to_contain_text("step 5")
    thread.name = "another"
    # The parts that are being read may say so as well, before the page does.
    gone = page.get_by_role("alert").filter(has_text="There is no such thread").first
    await expect(gone).to_be_visible()
    await expect(page.get_by_role("button", name="Tell it")).to_have_count(0)


async def test_a_thread_of_someone_else_is_gone(page: Page, start: Start) -> None:
    await page.goto(start(MadeThread(5)).url + "#/threads/other")
    await expect(page.get_by_role("alert")).to_contain_text("belongs to someone else")
    await page.get_by_role("link", name="All threads").click()
    await expect(page.locator(".figs")).to_be_visible()


@pytest.mark.slow
async def test_ten_tabs_of_one_run_are_all_current(page: Page, start: Start) -> None:
    thread = MadeThread(20, asks=False)
    service = start(thread)
    tabs = [page, *[await page.context.new_page() for _ in range(9)]]
    for tab in tabs:
        await tab.goto(service.url + THREAD, wait_until="domcontentloaded")
    thread.grow(5)
    for tab in tabs:
        await expect(tab.locator("#plot")).to_have_attribute("aria-valuemax", "25", timeout=20_000)
    assert service.streams <= 4


@pytest.mark.parametrize("width", [360, 1280])
async def test_hostile_text_is_text(page: Page, start: Start, width: int) -> None:
    words = (
        "<img src=x onerror=alert(1)><script>alert(2)</script><svg onload=alert(3)></svg>"
        "<a href='javascript:alert(4)'>x</a>\u202egnp.exe\u200b\u2066 " + 400 * "W"
    )
    service, dialogs = start(MadeThread(90, words=words)), list[str]()
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    await page.set_viewport_size({"width": width, "height": 800})
    fetched: list[str] = []
    page.on("request", lambda request: fetched.append(request.url))
    for place in [
        "#/",
        THREAD,
        f"{THREAD}?step=80&msg=3&obs=3",
        f"{THREAD}?step=80&tab=left&pane=prompt",
        f"{THREAD}?step=80&tab=compare&with=20&pane=prompt",
        f"{THREAD}?pane=side",
    ]:
        await page.goto(service.url + place)
        await expect(page.locator("h1")).not_to_be_empty()
        await page.evaluate(
            "document.querySelectorAll('[aria-expanded=false]').forEach(one => one.click())"
        )
        await anyio.sleep(0.1)
        content = page.locator("body")
        assert (
            await content.locator(
                "img, svg:not(.spark), script, iframe, [onerror], [onload]"
            ).count()
            == 0
        )
        assert await content.locator("a:not([href^='#']):not([href^='api/'])").count() == 0
        shown = await page.evaluate("document.title + document.body.outerHTML")
        assert not re.search("[\u202e\u200b\u2066]", shown)
        # A word longer than a line pushes nothing out of view: a decision is seen whole.
        assert not await page.evaluate(TOO_WIDE)
    assert "U+202E" in await page.locator("body").inner_text()
    assert not dialogs and all(url.startswith(service.url) for url in fetched)
