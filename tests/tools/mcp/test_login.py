"""Logins: tokens that are stored for the user, renewed, and never sent to anybody else."""

from __future__ import annotations

import logging
import stat
import threading
import urllib.request
from collections.abc import Generator
from pathlib import Path

import pytest

from agent_runtime import McpServer
from agent_runtime.errors import ConfigError, McpServerFailed
from agent_runtime.tools.mcp import login
from agent_runtime.tools.mcp.login import log_in
from agent_runtime_config.state import state_folder
from tests.tools.calling import text
from tests.tools.mcp.guarded_server import Guarded, guarded
from tests.tools.mcp.serving import opened, served, sums_over_http

OAUTH_SERVER = Path(__file__).with_name("oauth_server.py")


@pytest.fixture
def asked() -> Generator[Guarded]:
    with guarded() as server:
        yield server


def browser(url: str) -> None:
    """Open an address as a browser does, whose user says yes."""
    threading.Thread(target=lambda: urllib.request.urlopen(url).read(), daemon=True).start()


async def test_without_a_login_the_error_names_the_command(asked: Guarded) -> None:
    with pytest.raises(McpServerFailed, match="asks for a login") as error:
        async with opened(McpServer("docs", url=f"{asked.url}/mcp")):
            pass
    assert "agent-runtime mcp login docs" in error.value.cure


async def test_a_login_is_kept_renewed_and_bound_to_its_address(
    asked: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server = McpServer("docs", url=f"{asked.url}/mcp")
    asked.lasting = -1
    await log_in(server, browser)
    [path] = (state_folder() / "mcp" / "tokens").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    # They have expired: another process renews them, at the address that the login named.
    asked.lasting = 3600
    asked.granted.clear()
    for _ in range(2):
        async with opened(server) as tools:
            assert await text(tools["docs__whoami"]) == "you"
    assert asked.granted == ["refresh_token"]
    assert "secret" in path.read_text() and "-secret" not in caplog.text
    with guarded() as other:
        other.valid = asked.valid
        with pytest.raises(McpServerFailed, match="asks for a login"):
            async with opened(McpServer("docs", url=f"{other.url}/mcp")):
                pass


@pytest.mark.slow
async def test_a_login_at_a_server_with_the_sdks_own_routes() -> None:
    """It registers, is asked with a challenge, and gets tokens for that resource and scope."""
    async with served(OAUTH_SERVER, "-10") as url:
        server = McpServer("docs", url=url)
        with pytest.raises(McpServerFailed, match="asks for a login"):
            async with opened(server):
                pass
        await log_in(server, browser)
        # Another process renews what has expired, by a token that is worth one renewal.
        for _ in range(2):
            async with opened(server) as tools:
                assert await text(tools["docs__whoami"]) == "ada by refresh"


async def test_a_browser_of_the_terminal_is_answered_before_it_is_left(asked: Guarded) -> None:
    def lynx(url: str) -> None:
        with urllib.request.urlopen(url, timeout=30) as page:
            assert b"return to the terminal" in page.read()

    server = McpServer("docs", url=f"{asked.url}/mcp")
    await log_in(server, lynx)
    async with opened(server) as tools:
        assert await text(tools["docs__whoami"]) == "you"


async def test_tokens_that_nobody_takes_any_more_ask_for_a_login(asked: Guarded) -> None:
    server = McpServer("docs", url=f"{asked.url}/mcp")
    await log_in(server, browser)
    asked.valid.clear()
    with pytest.raises(McpServerFailed, match="asks for a login"):
        async with opened(server):
            pass


@pytest.mark.parametrize(("odd", "why"), [("huge", "too large"), ("packed", "compressed")])
async def test_an_answer_over_http_is_bounded(odd: str, why: str, asked: Guarded) -> None:
    asked.odd = odd
    asked.valid.add("known")
    server = McpServer("docs", url=f"{asked.url}/mcp", headers={"Authorization": "Bearer known"})
    with pytest.raises(McpServerFailed, match=why):
        async with opened(server):
            pass


async def test_nobody_logs_in(asked: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "LOGIN_SECONDS", 0.1)
    with pytest.raises(McpServerFailed, match="Nobody logged in"):
        await log_in(McpServer("docs", url=f"{asked.url}/mcp"), lambda url: None)
    assert not asked.granted


async def test_a_server_that_asks_for_no_login() -> None:
    async with sums_over_http() as url:
        with pytest.raises(ConfigError, match="asks for no login"):
            await log_in(McpServer("sums", url=url), browser)
