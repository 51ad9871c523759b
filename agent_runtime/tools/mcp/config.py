"""Servers in files: `.mcp.json` in the form of other clients, and whom to trust."""

from __future__ import annotations

import difflib
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import orjson
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from agent_runtime.errors import ConfigError
from agent_runtime.tools.fingerprint import json_digest
from agent_runtime.tools.mcp.definitions import MAX_DEPTH, depth_of
from agent_runtime.tools.mcp.records import TRUSTED, delete_record, read_record, write_record
from agent_runtime.tools.mcp.server import MAX_NAME, START_SECONDS, McpServer
from agent_runtime_config import load_settings

FILE = ".mcp.json"
VARIABLE = "AGENT_RUNTIME_MCP_SERVERS"
MAX_BYTES = 1 << 20
Origin = Literal["environment", "option", "user", "workspace"]

_EXPANSION = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_HTTP = ("http", "streamable-http", "streamable_http", "streamableHttp")
_Text = Annotated[str, StringConstraints(max_length=32_768)]
_Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]


class _Definition(BaseModel):
    """A server's definition in a file; other clients' fields are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, hide_input_in_errors=True)

    type: str = ""
    command: _Text = ""
    args: list[_Text] = []
    env: dict[str, _Text] = {}
    cwd: _Text | None = None
    url: _Text = ""
    headers: dict[str, _Text] = {}
    disabled: bool = False
    allow: list[str] = ["*"]
    deny: list[str] = []
    approve: bool | list[str] = False
    idempotent: list[str] = []
    timeout: _Seconds | None = None
    start_timeout: _Seconds = Field(default=START_SECONDS, alias="startTimeout")


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """A server as a file or a variable defines it; nothing of it is expanded.

    Attributes:
        origin: who defines it; what a workspace defines is not trusted by itself.
        file: None for what stands in a variable.
    """

    name: str
    definition: Mapping[str, Any]
    origin: Origin
    file: Path | None = None

    @property
    def disabled(self) -> bool:
        """Whether its file says that it is not used."""
        return self.definition.get("disabled") is True

    @property
    def key(self) -> str:
        """What trust is recorded for: this definition, in this file."""
        return json_digest(self.name, dict(self.definition), str(self.file))

    @property
    def trusted(self) -> bool:
        """Whether it may be started; reads the user's records."""
        return self.origin != "workspace" or read_record(TRUSTED, self.key) is not None

    def trust(self) -> None:
        """Record that the user trusts this definition.  Raises `ConfigError`."""
        about = {"name": self.name, "file": str(self.file), "at": time.time()}
        write_record(TRUSTED, self.key, about)

    def distrust(self) -> bool:
        """Forget that the user trusts it; return whether they did."""
        return delete_record(TRUSTED, self.key)

    def server(self, environ: Mapping[str, str] | None = None) -> McpServer:
        """Return the server, with `${VARIABLE}` replaced.

        Raises:
            ConfigError: it is not trusted, a value is not usable, or a variable is missing.
        """
        # First: a definition that cannot be used need not be trusted.
        found = self.check()
        if not self.trusted:
            raise ConfigError(
                f"The MCP server {self.name} is defined by {self.file}, and you have not said that "
                "you trust it. It was not started.",
                cure=f"Read the definition, then: agent-runtime mcp trust {self.name}; or give "
                "--no-mcp.",
            )
        expand = _Expander(self.name, os.environ if environ is None else environ)
        # Relative commands of a workspace's file are meant from there; others have no such place.
        folder = self.file.parent if self.file is not None and self.origin == "workspace" else None
        cwd = (
            folder
            if found.cwd is None
            else (folder or Path()) / Path(expand(found.cwd)).expanduser()
        )
        return McpServer(
            self.name,
            expand(found.command),
            [expand(one) for one in found.args],
            url=expand(found.url),
            env={name: expand(value) for name, value in found.env.items()},
            headers={name: expand(value) for name, value in found.headers.items()},
            cwd=cwd,
            allow=found.allow,
            deny=found.deny,
            idempotent=found.idempotent,
            needs_approval=found.approve,
            timeout=found.timeout,
            start_timeout=found.start_timeout,
            identity=json_digest(self.name, dict(self.definition)),
        )

    def check(self) -> _Definition:
        """Return the definition's fields; nothing is expanded, started or trusted.

        Raises:
            ConfigError: a field is misspelt or not usable, or says neither what to run nor where.
        """
        found = self._read()
        if found.type and found.type not in ("stdio", *_HTTP):
            raise ConfigError(
                f"The MCP server {self.name} talks {found.type[:40]!r}, which is not supported.",
                cure="Use a server on stdio (`command`), or on streamable HTTP (`url`).",
            )
        if not (found.command or found.url):
            raise self._wrong("neither a command nor a URL", "Give it `command` or `url`.")
        return found

    def _read(self) -> _Definition:
        known = [one.alias or name for name, one in _Definition.model_fields.items()]
        for key in self.definition:
            near = [] if key in known else difflib.get_close_matches(key, known, n=1, cutoff=0.8)
            if near:
                # A misspelt `deny` must not let everything pass.
                raise self._wrong(f"{key[:40]!r}, which is not known", f"Did you mean {near[0]!r}?")
        try:
            return _Definition.model_validate(self.definition)
        except ValidationError as error:
            detail = error.errors(include_input=False, include_url=False)[0]
            place = ".".join(map(str, detail["loc"]))
            raise self._wrong(f"a wrong {place}: {detail['msg']}", "Correct it.") from None

    def _wrong(self, what: str, cure: str) -> ConfigError:
        return ConfigError(
            f"The MCP server {self.name} in {self.file or VARIABLE} has {what}.", cure=cure
        )


class _Expander:
    """Replaces `${NAME}` and `${NAME:-default}`."""

    def __init__(self, server: str, environ: Mapping[str, str]) -> None:
        self._server, self._environ = server, environ

    def __call__(self, text: str) -> str:
        return _EXPANSION.sub(self._value, text)

    def _value(self, match: re.Match[str]) -> str:
        # A default also replaces an empty value, as in a shell.
        value = self._environ.get(match[1]) or match[2]
        if value is None:
            raise ConfigError(
                f"The MCP server {self._server} needs the variable {match[1]}, which is not set.",
                cure=f"Set {match[1]}, or write ${{{match[1]}:-default}}.",
            )
        return value


def mcp_servers(
    source: str | Path | None = None, *, environ: Mapping[str, str] | None = None
) -> list[McpServer]:
    """Return the servers of a file in the form of `.mcp.json`, for an agent's `tools`.

    Naming the file means trusting it.

    Args:
        source: a path, or the JSON itself; None for what `AGENT_RUNTIME_MCP_SERVERS` says.
        environ: for `${NAME}` in values; None for the process's own.

    Raises:
        ConfigError: the file cannot be read, or defines something that is not usable.
    """
    entries = setting_entries(None) if source is None else _entries_of(str(source), "option")
    return [one.server(environ) for one in entries if not one.disabled]


def setting_entries(workspace: Path | None) -> list[ServerEntry]:
    """Return the servers that `AGENT_RUNTIME_MCP_SERVERS` defines.  Raises `ConfigError`."""
    setting = load_settings().mcp_servers
    found = _entries_of(setting.get_secret_value(), "environment") if setting else []
    return [_within(one, workspace) for one in found]


def find_entries(workspace: Path | None, option: Path | None = None) -> list[ServerEntry]:
    """Return the servers of a run: of the setting, an option, the user's file and the workspace's.

    Of several with one name the first counts, so that no workspace replaces a server of the user.

    Raises:
        ConfigError: a file cannot be read.
    """
    found = setting_entries(workspace)
    if option is not None:
        found += [_within(one, workspace) for one in read_entries(option, "option")]
    if (own := user_file()) is not None and own.is_file():
        found += read_entries(own, "user")
    if workspace is not None and _exists(workspace / FILE):
        found += read_entries(workspace / FILE, "workspace")
    first: dict[str, ServerEntry] = {}
    for one in found:
        # Names of tools begin with it, and two that differ in case only would look alike.
        first.setdefault(one.name.lower(), one)
    return list(first.values())


def user_file() -> Path | None:
    """Return the file of the user's own servers, which may not be there; None without a home."""
    from platformdirs import user_config_path

    try:
        folder = user_config_path("agent-runtime", appauthor=False)
    except RuntimeError:
        return None
    return folder / "mcp.json" if folder.is_absolute() else None


def _within(entry: ServerEntry, workspace: Path | None) -> ServerEntry:
    """Return an entry as one of the workspace, if its file is in it: the agent can change that."""
    if entry.file is None or workspace is None:
        return entry
    # Resolved: a link outside may lead to a file that the agent can write.
    if not entry.file.resolve().is_relative_to(workspace.resolve()):
        return entry
    return ServerEntry(entry.name, entry.definition, "workspace", entry.file)


def _entries_of(source: str, origin: Origin) -> list[ServerEntry]:
    if source.lstrip().startswith("{"):
        return _parsed(source.encode(errors="replace"), origin, None)
    return read_entries(Path(source).expanduser(), origin)


def _exists(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def read_entries(path: Path, origin: Origin) -> list[ServerEntry]:
    """Return the servers that a file defines.  Raises `ConfigError`."""
    return _parsed(read_file(path), origin, path.absolute())


def read_file(path: Path) -> bytes:
    """Return what a file of servers holds.  Raises `ConfigError`."""
    try:
        # A pipe or a device of this name would hold up the reader for ever.
        if not path.is_file():
            raise FileNotFoundError(2, "there is no such file")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"The MCP servers of {path} cannot be read: {error.strerror}.",
            cure="Check the path and its permissions.",
        ) from None
    if len(data) > MAX_BYTES:
        raise ConfigError(
            f"{path} has more than {MAX_BYTES:,} bytes.", cure="Name a file of MCP servers."
        )
    return data


def _parsed(data: bytes, origin: Origin, file: Path | None) -> list[ServerEntry]:
    where = str(file) if file else VARIABLE
    try:
        whole = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise ConfigError(
            f"{where} is no JSON, at line {error.lineno}.", cure="Correct it; it has no comments."
        ) from None
    servers = cast("dict[str, Any]", whole).get("mcpServers") if isinstance(whole, dict) else None
    if not isinstance(servers, dict):
        raise ConfigError(
            f"{where} has no object `mcpServers`.",
            cure='Write {"mcpServers": {"NAME": {"command": "…"}}}.',
        )
    found: list[ServerEntry] = []
    for name, definition in cast("dict[str, Any]", servers).items():
        if not isinstance(definition, dict):
            raise ConfigError(
                f"The MCP server {name[:80]!r} in {where} is not an object.", cure="Correct it."
            )
        given = cast("dict[str, Any]", definition)
        if depth_of(given) > MAX_DEPTH:
            # Nothing needs it, and what digests or shows it would exhaust the stack.
            raise ConfigError(
                f"The MCP server {name[:80]!r} in {where} has more than {MAX_DEPTH} levels.",
                cure="Correct it.",
            )
        found.append(ServerEntry(plain_name(name), given, origin, file))
    _check_names(found, where)
    return found


def _check_names(entries: Sequence[ServerEntry], where: str) -> None:
    names = [one.name.lower() for one in entries]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"Two MCP servers in {where} are called {name!r} here.", cure="Rename one."
            )


def plain_name(name: str) -> str:
    """Return a name that names of tools can begin with; other clients allow any text."""
    plain = re.sub(r"[^a-zA-Z0-9-]+", "_", name).strip("_-")[:MAX_NAME].rstrip("_-")
    return plain if plain[:1].isalpha() else f"s_{plain}"[:MAX_NAME].rstrip("_-")
