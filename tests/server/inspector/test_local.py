"""The page on one's own machine, and a thread as one file."""

from __future__ import annotations

import base64
import gzip
import re
import socket
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from click.testing import CliRunner

from agent_runtime import Agent, ScriptedModel, tool
from agent_runtime.cli.main import main
from agent_runtime.models.scripted import call, say
from agent_runtime.server.inspector.columns import decode_tables, encode_tables
from agent_runtime.server.inspector.export import exported
from agent_runtime.server.inspector.local import LocalAccess, local_app
from agent_runtime.server.inspector.pages import joined_page
from tests.server.inspector.page import page_of
from tests.support.worlds import Play, World, double

HOSTILE = "</script><script>alert(1)</script>\u202e<img src=x onerror=alert(1)>"


@tool(needs_approval=True)
def deploy(command: str) -> str:
    """Deploy by a command."""
    return f"{command}: done"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A page of its own."""
    (tmp_path / "index.html").write_text(
        '<html><head><link rel="stylesheet" href="static/style.css">'
        '<script type="module" src="static/main.js"></script></head><body>x</body></html>'
    )
    (tmp_path / "style.css").write_text("body {margin: 0}")
    (tmp_path / "main.js").write_text("const el = x => x;\nel(1);\n")
    return tmp_path


async def _worked(world: World, thread: str) -> None:
    await world.run(Agent(tools=[double]), HOSTILE, thread=thread)


async def _export(world: World, thread: str, folder: Path) -> tuple[str, dict[str, bytes]]:
    page = b"".join([piece async for piece in exported(world.store, thread, folder)]).decode()
    elements = dict(
        re.findall(r'<script type="[^"]+" id="([^"]+)">(.*?)</script>', page, re.DOTALL)
    )
    described = orjson.loads(elements["export"])
    assert described["thread"] == thread
    blocks = {
        path: gzip.decompress(base64.b64decode(elements[name]))
        for path, name in described["blocks"].items()
    }
    return page, blocks


async def test_an_exported_thread_is_one_file_with_all_of_it(play: Play, folder: Path) -> None:
    script = [call("double", number=4), say(HOSTILE)]
    async with play(script) as world, page_of(world.runtime) as page:
        thread = "a</script>b"
        await _worked(world, thread)
        text, blocks = await _export(world, thread, folder)
        assert text.count("<script") == 2 + len(blocks)
        assert "alert(1)" not in text
        assert "default-src 'none'" in text
        assert blocks.keys() == {
            "thread", "steps", "activations", "observations", "prompt/1", "nodes/0",
        }  # fmt: skip
        nodes = orjson.loads(blocks["nodes/0"])["nodes"]
        assert [one["text"] for one in nodes] == [HOSTILE, "", HOSTILE]
        _, tables = decode_tables(blocks["steps"])
        assert tables == (await page.steps(thread))[1]
        assert orjson.loads(blocks["prompt/1"])["parts"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("main.js", 'const x = "</script>";'),
        ("style.css", "</style>"),
        ("index.html", "<html><body>x</body></html>"),
    ],
)
def test_files_that_cannot_be_joined_are_refused(folder: Path, name: str, text: str) -> None:
    before, after = joined_page(folder)
    assert before.count("sha256-") == 2 and "el(1)" in after
    (folder / name).write_text(text)
    joined_page.cache_clear()
    with pytest.raises(ValueError, match=r"element|once each"):
        joined_page(folder)


async def test_only_the_browser_that_opened_the_address_gets_in(play: Play) -> None:
    async with play([say("Done.")]) as world:
        await _worked(world, "t")
        access = LocalAccess(8000)
        transport = httpx.ASGITransport(local_app(world.runtime, access))
        base = "http://127.0.0.1:8000"
        async with httpx.AsyncClient(transport=transport, base_url=base) as client:
            assert (await client.get("/api/inspector/home")).status_code == 403
            assert (await client.get("/enter/wrong")).status_code == 403
            address = access.address("a b/c")
            stranger = await client.get(address, headers={"host": "evil.example"})
            assert stranger.status_code == 403
            entered = await client.get(address)
            assert entered.status_code == 303
            assert entered.headers["location"] == "/#/threads/a%20b%2Fc"
            cookie = entered.headers["set-cookie"].lower()
            assert "httponly" in cookie
            assert "samesite=strict" in cookie
            home = await client.get("/api/inspector/home")
            assert home.status_code == 200
            assert home.json()["recent"][0]["thread"] == "t"
            for header in ({"host": "evil.example:8000"}, {"origin": "http://evil.example"}):
                refused = await client.get("/api/inspector/home", headers=header)
                assert refused.status_code == 403
            assert (await client.get("/static/..%2froutes.py")).status_code == 404
        async with httpx.AsyncClient(transport=transport, base_url=base) as other:
            assert (await other.get(address)).status_code == 403
            assert (await other.get("/api/inspector/home")).status_code == 403
        assert access.session not in repr(access)


@pytest.mark.backends("file")
async def test_the_person_acts_on_runs_through_the_database(play: Play) -> None:
    """Whichever program works on a run heeds what was said on the page."""
    script = [call("deploy", command="make all"), say("Deployed.")]
    agent = Agent(tools=[deploy])
    async with play(script) as world:
        waits = await world.runtime.run(agent, "Deploy.", thread="t")
        access = LocalAccess(8000)
        transport = httpx.ASGITransport(local_app(world.runtime, access))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as page:
            question = (await world.runtime.questions(thread="t"))[0]
            path = f"/api/questions/{question.id}/answer"
            decision = {"digest": question.digest, "allow": True, "reason": "", "remember": False}
            assert (await page.post(path, json=decision)).status_code == 403
            assert (await page.get(access.address())).status_code == 303
            evil = {"origin": "http://evil.example"}
            assert (await page.post(path, json=decision, headers=evil)).status_code == 403
            stale = await page.post(path, json=decision | {"digest": "0" * 64})
            assert stale.status_code == 409
            assert (await page.get("/api/agents")).json() == {"agents": []}
            steered = await page.post(f"/api/runs/{waits.run_id}/steer", json={"text": "Hurry."})
            assert steered.status_code == 204
            answered = await page.post(path, json=decision)
            assert answered.json() == {"resumable": True, "run_id": waits.run_id}
            resumed = await page.post(f"/api/runs/{waits.run_id}/resume", json={})
            assert resumed.status_code == 409
            assert f"agent-runtime resume {waits.run_id}" in resumed.json()["cure"]
            assert (await page.delete("/api/threads/t")).status_code in (404, 405)
            assert (await page.post("/api/runs", json={"task": "x"})).status_code in (404, 405)
            done = await world.runtime.resume(waits.run_id, agent)
            assert done.output == "Deployed."
            assert isinstance(world.model, ScriptedModel)
            assert "Hurry." in str(world.model.requests[-1].messages)
            cancelled = await page.post(f"/api/runs/{waits.run_id}/cancel", json={})
            assert cancelled.json() == {"run_ids": []}
            found = await page.get("/api/search", params={"q": "Hurry"})
            assert found.json()["hits"]


@pytest.mark.parametrize(
    "values",
    [[], [5], [0, 2**53 - 1, -1], list(range(300)), [0, 40_000, -40_000], [1_795_467_887_907] * 3],
)
def test_columns_are_read_back_as_written(values: list[int]) -> None:
    tables: dict[str, dict[str, Any]] = {"a": {"x": values, "y": [1] * len(values)}, "b": {}}
    header, read = decode_tables(encode_tables(tables).under({"é": "ü"}))
    assert read == {"a": {"x": values, "y": [1] * len(values)}, "b": {}}
    assert header["é"] == "ü"


def test_the_command_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AGENT_RUNTIME_DATABASE_URL", f"file:{tmp_path / 'a.db'}")
    result = CliRunner().invoke(main, ["view", "--export", "a.html"])
    assert result.exit_code == 2
    assert "--export writes one thread" in result.output
    taken = socket.socket()
    with taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(main, ["view", "--no-browser", "--port", port])
    assert f"port {port}" in result.output
    assert "--port" in result.output
    result = CliRunner().invoke(main, ["view", "none", "--no-browser"])
    assert result.exit_code != 0
    assert not (tmp_path / "a.html").exists()
