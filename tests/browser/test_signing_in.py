"""Signing in to the real service, which knows its users by tokens."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import Page, expect

from agent_runtime.models.scripted import say
from tests.server.serving import serving


async def test_the_page_asks_for_a_token_and_keeps_its_place(page: Page, tmp_path: Path) -> None:
    async with serving(f"file:{tmp_path / 'a.db'}", [say("It is done.")]) as service:
        started = await service.start(task="Work.", thread_id="t")
        await service.ended(started["run_id"])
        place = f"{service.url}/#/threads/t?step=1&tab=left"
        await page.goto(place)
        form = page.locator("#signin")
        await form.get_by_label("Your token").fill("art_wrong")
        await form.get_by_role("button", name="Sign in").click()
        await expect(form.get_by_role("alert")).to_contain_text("wrong, expired or revoked")
        await form.get_by_label("Your token").fill(service.tokens["ann"])
        await form.get_by_role("button", name="Sign in").click()
        await expect(page.locator("#prompt header h2")).to_contain_text("step 1")
        assert page.url == place
        [cookie] = await page.context.cookies()
        assert cookie.get("httpOnly") and cookie.get("sameSite") == "Strict"
        await page.locator("#steer").fill("And then?")
        await page.context.clear_cookies()
        await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        await form.get_by_label("Your token").fill(service.tokens["ann"])
        await form.get_by_role("button", name="Sign in").click()
        await expect(form).to_be_hidden()
        await expect(page.locator("#steer")).to_have_value("And then?")
        await page.get_by_role("button", name="Sign out").click()
        await expect(form).to_be_visible()
        assert not await page.context.cookies()
