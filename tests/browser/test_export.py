"""An exported thread opens from a file: no service, no network, sub-agents included."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import Page, expect

from agent_runtime import Agent, Runtime, ScriptedModel, Settings
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, say
from agent_runtime.server.inspector.export import exported
from tests.server.serving import double

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u202egnp"


def script(request: ModelRequest) -> Scripted:
    """Delegate a task, whose agent doubles a number; both answer then."""
    text = str(request.messages)
    child = "Count the piers" in text and "Survey the bridge" not in text
    if child:
        return say("Four piers." + HOSTILE) if "'4'" in text else call("double", number=2)
    if "Four piers" in text:
        return say("It has four piers.")
    order = {"role": "counter", "instructions": "Count.", "briefing": "Count the piers."}
    return call("delegate", task_key="piers", **order)


async def test_a_file_shows_the_thread_and_its_sub_agents(page: Page, tmp_path: Path) -> None:
    settings = Settings(database_url=f"file:{tmp_path / 'a.db'}")
    agent = Agent(ScriptedModel(script), tools=[double], delegation=True)
    async with Runtime.open(settings) as runtime:
        result = await runtime.run(agent, "Survey the bridge." + HOSTILE, thread="a/b")
        assert result.output == "It has four piers."
        file = tmp_path / "bridge.html"
        pieces = [piece async for piece in exported(runtime.store_of(), "a/b")]
        file.write_bytes(b"".join(pieces))
    fetched: list[str] = []
    page.on("request", lambda request: fetched.append(request.url))
    await page.goto(file.as_uri())
    await expect(page.locator("#prompt header h2")).to_have_text("What the model saw at step 2")
    await page.locator("#sec-system > button").click()
    await expect(page.locator("#sec-system")).to_contain_text("delegate")
    await page.get_by_role("button", name="delegate").first.click()
    await expect(page.locator(".sub")).to_contain_text("double")
    await page.get_by_role("link", name="Open its thread").click()
    await expect(page.locator("#log")).to_contain_text("Four piers.</script>")
    await expect(page.locator("#sec-raw")).to_contain_text("double")
    await expect(page.locator("#status")).to_have_text("Succeeded")
    await page.get_by_role("treeitem").first.click()
    await expect(page.locator("#log")).to_contain_text("Survey the bridge")
    assert await page.locator("body img, body script:not([id])").count() <= 1
    assert all(url.startswith(("file:", "blob:", "data:")) for url in fetched)
