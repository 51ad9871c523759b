"""`McpServer`: a server whose tools an agent gets, as a value."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import urlsplit

from agent_runtime.errors import ConfigError
from agent_runtime.tools.fingerprint import json_digest

START_SECONDS = 30.0
"""How long a server may take to start and to list its tools."""

_NAME = re.compile(r"[a-zA-Z](?:_?[a-zA-Z0-9-])*")
MAX_NAME = 32
_LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True, repr=False)
class McpServer:
    """A server of tools that speaks the Model Context Protocol; put it into an agent's `tools`.

    The runtime starts it, or connects to it, for the first run that has it, separately for each
    owner, and ends it a minute after the last.  Its tools are named `name__tool`.

        McpServer("files", "npx", ["-y", "@modelcontextprotocol/server-filesystem", "."])
        McpServer("docs", url="https://example.com/mcp", headers={"Authorization": token})

    Args:
        name: the first part of its tools' names: letters, digits, `-` and single `_`, at most 32.
        command: the program of a server that talks over stdin and stdout.
        args: the program's arguments.
        url: instead of a program, the address of a server that talks streamable HTTP.
        env: variables for the program, in addition to PATH, HOME and the like; nothing else of this
            process's environment reaches it.
        headers: sent with each HTTP request.
        cwd: the folder in which the program runs; None for the process's.
        allow, deny: patterns (`*`, `?`) of the server's names of tools; `deny` wins.
        idempotent: patterns of the tools that may run again after a crash that left their effect
            unknown.  What the server says about itself does not count.
        needs_approval: whether calls need an approval, or patterns of the tools whose calls do.
            `AGENT_RUNTIME_APPROVE` has its say as for other tools.
        timeout: seconds of a call; None for the run's default.
        start_timeout: seconds until the server has listed its tools.
        max_result_tokens: how much of a result prompts show; None for the setting.

    Raises:
        ConfigError: a value is not usable.
    """

    name: str
    command: str = ""
    args: Sequence[str] = ()
    _: KW_ONLY
    url: str = ""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: str | Path | None = None
    allow: Sequence[str] = ("*",)
    deny: Sequence[str] = ()
    idempotent: Sequence[str] = ()
    needs_approval: bool | Sequence[str] = False
    timeout: float | None = None
    start_timeout: float = START_SECONDS
    max_result_tokens: int | None = None
    identity: str = ""
    """What its recorded definitions of tools belong to; by default its program or address."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or len(self.name) > MAX_NAME:
            raise ConfigError(
                f"{self.name[:80]!r} is not a valid name for an MCP server.",
                cure="Use 1 to 32 letters (a-z), digits, `-` and single `_`, a letter first.",
            )
        if bool(self.command) == bool(self.url):
            raise ConfigError(
                f"The MCP server {self.name} has {'both' if self.url else 'neither'} a command "
                f"{'and' if self.url else 'nor'} a URL.",
                cure="Give the command of a local server, or the URL of one that talks HTTP.",
            )
        if self.url:
            self._check_url()
        texts = (self.command, *self.args, *self.env, *self.env.values())
        if any("\0" in text for text in texts) or any("=" in name for name in self.env):
            raise ConfigError(
                f"The MCP server {self.name} has a NUL, or a variable with `=` in its name.",
                cure="Correct its command, arguments and variables.",
            )
        for label, seconds in (("timeout", self.timeout), ("start_timeout", self.start_timeout)):
            if seconds is not None and not seconds > 0:
                raise ConfigError(
                    f"The {label} of the MCP server {self.name} is {seconds!r}.",
                    cure="Give seconds above 0.",
                )

    def _check_url(self) -> None:
        try:
            parts = urlsplit(self.url)
            host = parts.hostname or ""
        except ValueError:
            host, parts = "", urlsplit("")
        if parts.scheme not in ("http", "https") or not host:
            raise ConfigError(
                f"The URL of the MCP server {self.name} is not an http(s) address.",
                cure="Write it as https://host/path.",
            )
        if parts.scheme == "http" and self.headers and host not in _LOCAL:
            # Headers carry credentials, which anybody on the way could read.
            raise ConfigError(
                f"The MCP server {self.name} has headers, and its URL is not encrypted.",
                cure="Use https, or leave the headers out.",
            )

    def __repr__(self) -> str:
        # Arguments, variables, headers and addresses may hold secrets.
        return f"McpServer({self.name!r}, {'url' if self.url else 'command'}=…)"

    @property
    def pin_key(self) -> str:
        """What the definitions of its tools are recorded under."""
        # Without variables and headers: a renewed key is no other server.
        return self.identity or json_digest(self.name, self.command, list(self.args), self.url)

    @property
    def key(self) -> str:
        """A digest of all that makes a connection to it different from another one."""
        return json_digest(
            self.pin_key, self.name, self.command, list(self.args), self.url, dict(self.env),
            dict(self.headers), str(self.cwd), self.start_timeout, list(self.allow),
            list(self.deny),
        )  # fmt: skip

    def offers(self, tool: str) -> bool:
        """Return whether an agent gets a tool of the server."""
        return _any(self.allow, tool) and not _any(self.deny, tool)

    def is_idempotent(self, tool: str) -> bool:
        """Return whether the user says that a tool may run again."""
        return _any(self.idempotent, tool)

    def asks_about(self, tool: str) -> bool:
        """Return whether calls of a tool need an approval."""
        wanted = self.needs_approval
        return wanted if isinstance(wanted, bool) else _any(wanted, tool)


def _any(patterns: Sequence[str], tool: str) -> bool:
    return any(fnmatchcase(tool, one) for one in patterns)


def is_web_page(url: str) -> bool:
    """Return whether an address that a server names may be given to a browser."""
    try:
        return urlsplit(url).scheme in ("http", "https")
    except ValueError:
        return False
