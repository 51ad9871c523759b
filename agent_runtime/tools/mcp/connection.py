"""A connection to a server: started when it is needed, and started again when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import anyio
import anyio.to_thread
import httpx2
import mcp_types as types
from mcp import MCPError
from mcp.client._transport import TransportStreams
from mcp.client.auth.exceptions import OAuthFlowError
from mcp.client.client import Client
from mcp.client.session import IncomingMessage, MessageHandlerFnT
from mcp.shared.dispatcher import ProgressFnT
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from agent_runtime.concurrency import DetachedTasks
from agent_runtime.errors import AgentRuntimeError, McpServerFailed
from agent_runtime.tools.fingerprint import json_digest
from agent_runtime.tools.mcp.bounds import MAX_MESSAGE_BYTES, bounded
from agent_runtime.tools.mcp.client import client_over
from agent_runtime.tools.mcp.definitions import MAX_TOOLS, ToolDefinition, definitions_of
from agent_runtime.tools.mcp.elicitation import ElicitationReply
from agent_runtime.tools.mcp.failures import CallLost, McpErrorAnswer, ToolChanged
from agent_runtime.tools.mcp.http import HttpState, http_streams
from agent_runtime.tools.mcp.oauth import LoginNeeded, stored_login
from agent_runtime.tools.mcp.records import pinned
from agent_runtime.tools.mcp.secrets import Secrets, quiet_sdk
from agent_runtime.tools.mcp.server import McpServer
from agent_runtime.tools.mcp.stdio import NOT_NEEDED, Ending, stdio_streams

MAX_FAILURES = 5
"""After this many failures in a row a server is tried only once in `REST_SECONDS`."""
REST_SECONDS = 60.0
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 8.0
"""Seconds before a server that failed is started again; doubled with each failure."""
ASKED_SECONDS = 3600.0
"""How long a connection stays open for a call that has asked a person."""
IDLE_SECONDS = 60.0
"""How long a connection stays open after the last run that holds it."""
LIST_PAUSE = 1.0
"""The least seconds between two readings of a list that a server says has changed."""
# A server may give cursors without an end.
PAGES = 200
NO_SESSION = 404
"""What a server over HTTP answers when it does not know the session."""

T = TypeVar("T")
_CALLED: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)


@dataclass(frozen=True, slots=True)
class Listing:
    """What a server offers.

    Attributes:
        tools: those that agents get.
        digests: of the definitions of all its tools.
        resources: whether it has resources.
    """

    tools: list[ToolDefinition]
    digests: Mapping[str, str]
    resources: bool = False


@dataclass(slots=True)
class _Session:
    """One life of a connection."""

    settled: anyio.Event = field(default_factory=anyio.Event)
    over: anyio.Event = field(default_factory=anyio.Event)
    stop: anyio.Event = field(default_factory=anyio.Event)
    outdated: anyio.Event = field(default_factory=anyio.Event)
    current: anyio.Event = field(default_factory=anyio.Event)
    http: HttpState = field(default_factory=HttpState)
    ending: Ending = field(default_factory=Ending)
    client: Client | None = None
    error: McpServerFailed | None = None
    late: bool = False

    def announce(self) -> None:
        """Note that the server says that its list of tools has changed."""
        if self.current.is_set():
            self.current = anyio.Event()
        self.outdated.set()

    def end(self, why: str) -> None:
        """Note that the server sends nothing more."""
        self.ending.why = self.ending.why or why
        self.stop.set()


class McpConnection:
    """A server, as the runs of one owner use it.

    Args:
        tasks: where the task that holds the connection lives.
        login: what authorizes HTTP requests; None for an earlier login's tokens.
        idle: called when nobody has held it for a while.
    """

    def __init__(
        self,
        server: McpServer,
        tasks: DetachedTasks,
        login: httpx2.Auth | None = None,
        idle: Callable[[], None] = lambda: None,
    ) -> None:
        quiet_sdk()
        self.server = server
        self.secrets = Secrets(server)
        self.listing = Listing([], {})
        self.pins: Mapping[str, str] = {}
        self._tasks, self._login, self._when_idle = tasks, login, idle
        self._session: _Session | None = None
        self._failures = 0
        self._last_failure: McpServerFailed | None = None
        self._not_before = 0.0
        self._holders = 0
        self._idle: asyncio.TimerHandle | None = None

    # Use

    async def started(self) -> Listing:
        """Start the server unless it runs; return what it offers.

        Raises:
            McpServerFailed: it does not start, or describes a tool that is not usable.
            ConfigError: what it offers cannot be recorded.
        """
        await self._connected()
        return self.listing

    async def current(self) -> Listing:
        """Return what the server offers now: wait until it runs, and a changed list is read.

        Raises:
            McpServerFailed: it cannot be started.
        """
        session = await self._connected()
        while not session.current.is_set():
            await session.current.wait()
        return self.listing

    async def call(
        self,
        tool: str,
        digest: str | None,
        arguments: dict[str, Any],
        on_progress: ProgressFnT,
        reply: ElicitationReply,
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Call a tool, if its definition still has this digest.

        Cancellation: the server is notified.

        Raises:
            ToolChanged: the definition has another one; the call was not made.
            CallLost: the connection ended during the call.
            McpServerFailed: the server cannot be started; the call was not made.
            ServerError: the server answers with an error.
        """
        params = types.CallToolRequestParams(
            name=tool,
            arguments=arguments,
            input_responses=dict(reply.responses) or None,
            request_state=reply.state,
        )
        # The session's own `call_tool` checks results against the server's schema, whose patterns
        # may keep the event loop busy without an end.
        request = types.CallToolRequest(params=params)

        async def send(client: Client) -> types.CallToolResult | types.InputRequiredResult:
            # Only now: the server may have ended, and been started again, since any check before.
            if self.listing.digests.get(tool) != digest:
                raise ToolChanged
            return await client.session.send_request(
                request, _CALLED, progress_callback=on_progress
            )

        await self.current()
        return await self._request(send)

    async def read_resource(self, uri: str) -> types.ReadResourceResult:
        """Read a resource.  Raises as `call` does."""
        return await self._request(lambda client: client.session.read_resource(uri))

    async def resources(self) -> list[types.Resource]:
        """Return the first page of the server's resources.  Raises as `call` does."""
        found = await self._request(lambda client: client.session.list_resources())
        return found.resources

    async def prompts(self) -> list[types.Prompt]:
        """Return the first page of the server's prompts.  Raises as `call` does."""

        async def send(client: Client) -> list[types.Prompt]:
            if client.server_capabilities.prompts is None:
                return []
            return (await client.session.list_prompts()).prompts

        return await self._request(send)

    async def prompt(self, name: str, arguments: dict[str, str]) -> types.GetPromptResult:
        """Return the messages of a prompt.  Raises as `call` does."""
        return await self._request(lambda client: client.session.get_prompt(name, arguments))

    def changed(self, tool: str, digest: str) -> bool:
        """Return whether a tool is not, or no longer, what was recorded and what a model saw."""
        return not (self.pins.get(tool) == self.listing.digests.get(tool) == digest)

    async def _request(self, send: Callable[[Client], Awaitable[T]]) -> T:
        session = await self._connected()
        assert session.client is not None
        try:
            result = await send(session.client)
        except MCPError as error:
            if error.code == types.CONNECTION_CLOSED or session.stop.is_set():
                session.end("it closed the connection")
                raise CallLost(self._why(session)) from None
            if session.http.refused:
                raise McpErrorAnswer(self._login_text()) from None
            if session.http.status == NO_SESSION:
                # It was restarted, and does not know this session.
                session.end("it has ended the session")
            raise McpErrorAnswer(self.secrets.shown(error.message) or "an error") from None
        except ValidationError:
            raise McpErrorAnswer("a result that the protocol does not have") from None
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            session.end("it closed the connection")
            raise CallLost(self._why(session)) from None
        self._failures = 0
        return result

    # Life

    def hold(self) -> None:
        """Keep the connection open until `release`."""
        self._holders += 1
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def release(self) -> None:
        """Let the connection end some time after its last holder."""
        self._holders -= 1
        # Not at once: the next run of a chat mostly comes soon, and starting a server takes
        # seconds.
        if not self._holders:
            self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._end_idle)

    def linger(self) -> None:
        """Keep the connection open while a person is asked: some servers' state ends with it."""
        self.hold()
        asyncio.get_running_loop().call_later(ASKED_SECONDS, self.release)

    def stop(self) -> None:
        """Let the connection end; the next use starts it again."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if self._session is not None:
            self._session.end(NOT_NEEDED)

    def _end_idle(self) -> None:
        self.stop()
        self._when_idle()

    async def _connected(self) -> _Session:
        session = self._session
        if session is None or session.stop.is_set() or session.over.is_set():
            session = await self._start()
        await session.settled.wait()
        if session.error is not None:
            raise session.error
        return session

    async def _start(self) -> _Session:
        """Return a new session, once it may be tried, or one that another call has started."""
        before = self._session
        if before is not None:
            # Its program must be gone before the next one may use the same files.
            await before.over.wait()
        while (pause := self._not_before - anyio.current_time()) > 0:
            if self._failures >= MAX_FAILURES and self._last_failure is not None:
                raise self._last_failure
            await anyio.sleep(pause)
        # Of several calls that waited, the first one has made the new session.
        if self._session is before:
            self._session = _Session()
            self._tasks.start(self._live(self._session))
        assert self._session is not None
        return self._session

    async def _live(self, session: _Session) -> None:
        """Connect, and stay connected until the session has to stop.  Raises nothing."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._limit_start, session, group.cancel_scope)
                async with (
                    self._streams(session) as streams,
                    bounded(streams, session.end) as limited,
                    client_over(limited, _watch(session)) as client,
                ):
                    session.client = client
                    await self._list(client)
                    session.current.set()
                    session.settled.set()
                    group.start_soon(_subscribe, client, session)
                    group.start_soon(self._relist, client, session)
                    await session.stop.wait()
                group.cancel_scope.cancel()
        except Exception as error:
            session.error = self._failure(session, error)
        finally:
            if session.error is None and not session.settled.is_set():
                session.error = self._failure(session, None)
            # In this order: whoever waits for the session sees why it ended, and the next start
            # its pause.
            session.stop.set()
            self._count(session)
            session.over.set()
            session.settled.set()
            session.current.set()

    def _count(self, session: _Session) -> None:
        """Put off the next start if this session failed, or ended by itself."""
        # A server that ends while nobody uses it has done nothing wrong.
        if self._holders or session.error is not None:
            self._failures += 1
            self._last_failure = session.error or McpServerFailed(self._why(session))
            pause = min(FIRST_PAUSE * 2 ** (self._failures - 1), LONGEST_PAUSE)
            pause = REST_SECONDS if self._failures >= MAX_FAILURES else pause
            self._not_before = anyio.current_time() + pause

    async def _limit_start(self, session: _Session, scope: anyio.CancelScope) -> None:
        with anyio.move_on_after(self.server.start_timeout):
            await session.settled.wait()
            return
        session.late = True
        scope.cancel()

    @asynccontextmanager
    async def _streams(self, session: _Session) -> AsyncGenerator[TransportStreams]:
        if self.server.command:
            async with stdio_streams(self.server, session.ending) as streams:
                yield streams
            return
        login = self._login
        if login is None and "authorization" not in map(str.lower, self.server.headers):
            login = await stored_login(self.server)
        async with http_streams(self.server, session.http, login) as streams:
            yield streams

    async def _list(self, client: Client) -> None:
        described: list[dict[str, Any]] = []
        size = 0
        cursor: str | None = None
        for _ in range(PAGES):
            page = await client.session.list_tools(
                params=types.PaginatedRequestParams(cursor=cursor)
            )
            described += [
                one.model_dump(mode="json", by_alias=True, exclude_none=True) for one in page.tools
            ]
            size += len(page.model_dump_json())
            cursor = page.next_cursor
            if len(described) > MAX_TOOLS or size > MAX_MESSAGE_BYTES or not cursor:
                break
        if len(described) > MAX_TOOLS or size > MAX_MESSAGE_BYTES or cursor:
            raise McpServerFailed(
                f"The MCP server {self.server.name} lists more than {MAX_TOOLS:,} tools, or more "
                f"than {MAX_MESSAGE_BYTES:,} bytes of them.",
                cure="Use one that has fewer.",
            )
        resources = await _has_resources(client)
        self.listing = await anyio.to_thread.run_sync(self._checked, described, resources)
        # Those of the first reading count until a person accepts others.
        self.pins = await anyio.to_thread.run_sync(
            pinned, self.server.pin_key, self.listing.digests
        )

    def _checked(self, described: list[dict[str, Any]], resources: bool) -> Listing:
        digests = {str(one.get("name")): json_digest(one) for one in described}
        return Listing(definitions_of(self.server, described), digests, resources)

    async def _relist(self, client: Client, session: _Session) -> None:
        """Read the list of tools again whenever the server says that it has changed."""
        while True:
            await session.outdated.wait()
            # Before the list is read, so that a change in the meantime is read as well.
            session.outdated = anyio.Event()
            with anyio.move_on_after(self.server.start_timeout) as limit:
                try:
                    await self._list(client)
                except MCPError as error:
                    why = self.secrets.shown(error.message)
                    session.end(f"it cannot list its tools any more: {why}")
            if limit.cancelled_caught:
                session.end("it does not list the tools that it says have changed")
            if not session.outdated.is_set():
                session.current.set()
            await anyio.sleep(LIST_PAUSE)

    # Failures

    def _failure(self, session: _Session, error: BaseException | None) -> McpServerFailed:
        name = self.server.name
        error = _first(error)
        if isinstance(error, LoginNeeded | OAuthFlowError) or session.http.refused:
            return McpServerFailed(
                self._login_text(), cure=f"Log in: agent-runtime mcp login {name}"
            )
        if isinstance(error, AgentRuntimeError):
            return McpServerFailed(error.message, cure=error.cure)
        if session.late:
            limit = self.server.start_timeout
            why = f"it did not list its tools within {limit:g} s"
        elif isinstance(error, OSError):
            # Such as a folder to run in that does not exist.
            why = self.secrets.shown(": ".join(map(str, error.args[1:] or error.args)))
            why = f"{why} ({self.secrets.shown(str(error.filename))})" if error.filename else why
        elif isinstance(error, httpx2.TransportError):
            why = session.http.problem or "it cannot be reached"
        elif isinstance(error, MCPError) and error.code != types.CONNECTION_CLOSED:
            status = f" (HTTP {session.http.status})" if session.http.status else ""
            why = f"it answers with an error{status}: {self.secrets.shown(error.message)}"
        elif isinstance(error, ValidationError):
            why = "what it says is not the protocol's"
        else:
            why = session.ending.why or "it closed the connection"
        text = f"The MCP server {name} cannot be used: {why}.{self._tail(session)}"
        cure = f"Check its definition; agent-runtime mcp test {name} tries it."
        if session.late:
            # Starters such as npx download the program first.
            cure = "Try again, or give it more seconds by `startTimeout` in its definition."
        return McpServerFailed(text, cure=cure)

    def _login_text(self) -> str:
        return f"The MCP server {self.server.name} asks for a login, or refuses the one it got."

    def _why(self, session: _Session) -> str:
        name, why = self.server.name, session.ending.why or "it closed the connection"
        return f"The MCP server {name} was lost: {why}.{self._tail(session)}"

    def _tail(self, session: _Session) -> str:
        tail = self.secrets.shown(session.ending.tail.decode(errors="replace"))
        return f" It wrote: {tail}" if tail else ""


def _first(error: BaseException | None) -> BaseException | None:
    """Return the first error of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


async def _has_resources(client: Client) -> bool:
    """Return whether the server has any; many say that they may have some."""
    if client.server_capabilities.resources is None:
        return False
    try:
        listed = await client.session.list_resources()
        return bool(listed.resources) or bool(
            (await client.session.list_resource_templates()).resource_templates
        )
    except (MCPError, ValidationError):
        return False


def _watch(session: _Session) -> MessageHandlerFnT:
    async def handle(message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            session.announce()

    return handle


async def _subscribe(client: Client, session: _Session) -> None:
    """Hear of changed lists where the protocol asks for a subscription."""
    if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return
    try:
        async with client.listen(tools_list_changed=True) as changes:
            async for _ in changes:
                session.announce()
    except Exception:
        # The server offers no subscriptions, or has ended; its list is read at each start.
        return
