"""Keep the values of a server's variables and headers out of errors, results and logs."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator

from agent_runtime.tools.mcp.definitions import clean
from agent_runtime.tools.mcp.server import McpServer

SHORTEST = 6
"""Shorter values do not count as secrets."""
# Characters of an error; servers may send whole pages.
MAX_SHOWN = 800
_SECRET_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|COOKIE|DSN|_PAT\b", re.IGNORECASE
)
_NAMED = re.compile(r"([\w-]+)\s*[=:]\s*(.*)", re.DOTALL)
_PASSWORD = re.compile(r"://[^\s/:@]*:([^\s/@]+)@")
_QUERY = re.compile(r"(\?)[^\s'\"]+")
_LOGGERS = (
    "client", "httpx2", "httpcore2", "mcp.client.streamable_http", "mcp.client.auth.oauth2",
    "mcp.client.auth.utils", "mcp.client.client", "mcp.client.session", "mcp.client.stdio",
    "mcp.shared.jsonrpc_dispatcher",
)  # fmt: skip


class Secrets:
    """The secret values of a server."""

    def __init__(self, server: McpServer) -> None:
        headers = [part for value in server.headers.values() for part in (value, *value.split())]
        named = [value for name, value in server.env.items() if _SECRET_NAME.search(name)]
        self._known = _longest(headers + named)
        # Arguments may be paths and numbers, which results need.
        self._all = _longest([*headers, *server.env.values(), *_in_arguments(server.args)])

    def mask(self, text: str) -> str:
        """Return a result's text without credentials."""
        for value in self._known:
            text = text.replace(value, "***")
        return text

    def shown(self, text: str) -> str:
        """Return what a server says for an error: without any value given to it, and short."""
        for value in self._all:
            text = text.replace(value, "***")
        # Queries of URLs often hold keys, whatever their names are.
        text = " ".join(clean(_QUERY.sub(r"\1***", text)).split())
        return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]} …"


def _in_arguments(arguments: Iterable[str]) -> Iterator[str]:
    """Yield the values of options, variables and headers with secret names, and passwords."""
    option = ""
    for one in arguments:
        named = _NAMED.fullmatch(one)
        if named is not None and _SECRET_NAME.search(named[1]):
            yield from (named[2], *named[2].split())
        elif option.startswith("-") and _SECRET_NAME.search(option):
            yield from (one, *one.split())
        yield from _PASSWORD.findall(one)
        option = one


def _longest(values: Iterable[str]) -> list[str]:
    # One value may be a part of another.
    return sorted({one for one in values if len(one) >= SHORTEST}, key=len, reverse=True)


class _Quiet(logging.Filter):
    """Drops what the SDK and its HTTP client log about messages, whose errors are raised anyway."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return False
        # Tracebacks and arguments repeat what was sent and received.
        record.msg, record.args = f"{record.name}: a message of an MCP server failed.", ()
        record.exc_info = record.exc_text = None
        return True


_QUIET = _Quiet()


def quiet_sdk() -> None:
    """Keep messages, addresses and headers out of the log; doing it again is harmless."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_QUIET)
