"""The driver for libSQL servers over WebSockets: `ws:` and `wss:` URLs, through libsql-client."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import anyio

from agent_runtime_storage.contract.errors import StoreError, StoreUnavailable
from agent_runtime_storage.drivers.libsql.address import Address, parse_address
from agent_runtime_storage.drivers.libsql.error_mapping import (
    TransientFailure,
    map_libsql_error,
    not_a_server,
    refused_token,
)
from agent_runtime_storage.drivers.libsql.hrana import (
    BatchAnswer,
    HranaBatchPlan,
    HranaError,
    HranaStep,
    StepResult,
)
from agent_runtime_storage.drivers.libsql.remote import RemoteDriver

if TYPE_CHECKING:
    import aiohttp


# libsql-client is untyped and unmaintained; 0.3.1 is its last release.
_CLIENT = "libsql_client.hrana.conn"
# Two hundred concurrent requests worked on one socket, three hundred broke it.
_MOST_AT_ONCE = 64
# A server closes the socket on a message above 16 MiB.
_MESSAGE_BYTES = 15 * 2**20
_LOCK_SECONDS = 5.0
_HEARTBEAT = 20.0
# Seconds.
_FAREWELL = 1.0


class Stream(Protocol):
    """The part of a libsql-client stream that is used here."""

    def execute(self, stmt: Any) -> asyncio.Future[Any]: ...
    def batch(self, batch: Any) -> asyncio.Future[Any]: ...
    def close(self) -> None: ...


class WebSocketConnection(Protocol):
    """The part of a libsql-client connection that is used here."""

    exception: BaseException | None

    async def wait_connected(self) -> None: ...
    def open_stream(self) -> Stream: ...
    async def close(self) -> None: ...


class WebSocketDriver(RemoteDriver):
    """A libSQL server over one WebSocket; see `Driver`."""

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        auth_token: str | None = None,
        concurrency: int = 16,
        timeout: float = 30.0,
        patience: float = 60.0,
    ) -> WebSocketDriver:
        """Connect to a server and ask what it can do.

        Args:
            url: `ws://host:port` or `wss://host`.
            auth_token: the server's token, if the URL does not carry it.
            concurrency: the number of concurrent queries, at most 64.
            timeout: seconds that an answer may take.
            patience: seconds to wait for a server that is down or busy, once the store is open.

        Raises:
            StoreUnavailable: the server cannot be reached, or refuses the token.
            StoreError: the URL is wrong, the server too old, or libsql-client is not installed.
        """
        address = parse_address(url, auth_token=auth_token)
        if address.login is not None:
            raise StoreError(
                f"The database URL {address.shown} has a user name, which WebSockets cannot send.",
                cure="Use an auth token, or an `http:` URL.",
            )
        try:
            importlib.import_module(_CLIENT)
        except ImportError as error:
            raise StoreError(
                f"The database URL {address.shown} needs the package libsql-client.",
                cure="Install it with `pip install 'agent-runtime-om[libsql]'`, or use an "
                "`http:` or `libsql:` URL.",
            ) from error
        concurrency = min(concurrency, _MOST_AT_ONCE)
        transport = WebSocketTransport(address, concurrency=concurrency, timeout=timeout)
        driver = cls(transport, address.shown, patience=patience)
        await driver._begin()
        return driver


class _Session:
    """The aiohttp session for libsql-client, with limits that fit the messages."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def ws_connect(self, url: str, **options: Any) -> Any:
        connect: Any = self._session.ws_connect
        return await connect(
            url,
            **options,
            # The server limits its answers; aiohttp's default of 4 MiB would break the socket.
            max_msg_size=0,
            heartbeat=_HEARTBEAT,
        )


class WebSocketTransport:
    """One socket of libsql-client, reconnected when it breaks; a stream for each request."""

    def __init__(self, address: Address, *, concurrency: int, timeout: float) -> None:
        self.read_lanes = concurrency
        self.read_group = 1
        self._address = address
        self._shown = address.shown
        self._timeout = timeout
        self._session: aiohttp.ClientSession | None = None
        self._connection: WebSocketConnection | None = None
        self._connecting = anyio.Lock()

    async def query(self, steps: Sequence[HranaStep]) -> list[StepResult | Exception]:
        """Run reading statements; see `Transport`."""
        # One at a time: on a socket a request costs little and does not wait for others.
        [step] = steps
        batch: dict[str, Any] = {"steps": [step]}
        # Over WebSockets a server respects it in batches only.
        if (index := step["stmt"].get("replication_index")) is not None:
            batch["replication_index"] = index
        stream = (await self._connected()).open_stream()
        waiting = stream.batch(batch)
        stream.close()
        answer: BatchAnswer = await self._answer(waiting, self._timeout)
        [result], [error] = answer["step_results"], answer["step_errors"]
        if result is None:
            failed: HranaError = error or {}
            raise map_libsql_error(failed.get("code"), failed.get("message", ""), self._shown)
        return [result]

    async def write(self, plans: Sequence[HranaBatchPlan]) -> list[BatchAnswer | Exception]:
        """Run batches one after another; see `Transport`."""
        stream = (await self._connected()).open_stream()
        # All are sent before the first answer comes; a stream runs its batches in order.
        waiting = [self._send(stream, plan) for plan in plans]
        stream.close()
        answers: list[BatchAnswer | Exception] = []
        for place, answer in enumerate(waiting):
            if isinstance(answer, Exception):
                answers.append(answer)
                continue
            try:
                patience = self._timeout if place == 0 else _LOCK_SECONDS + self._timeout
                answers.append(await self._answer(answer, patience))
            except Exception as error:
                answers.append(error)
        return answers

    async def close(self) -> None:
        """Close the socket."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await _leave(connection)
        with anyio.CancelScope(shield=True):
            session, self._session = self._session, None
            if session is not None:
                await session.close()

    def _send(self, stream: Stream, plan: HranaBatchPlan) -> asyncio.Future[Any] | Exception:
        if plan.size > _MESSAGE_BYTES:
            return StoreError(
                f"The database {self._shown} takes no batch of {plan.size} bytes over a WebSocket.",
                cure="Use an `http:` URL, or set AGENT_RUNTIME_OBJECT_STORE_URL, which takes large "
                "bodies out of the database.",
            )
        return stream.batch({"steps": plan.steps})

    async def _answer(self, answer: asyncio.Future[Any], timeout: float) -> Any:
        """Wait for an answer; cancelling abandons it, and it is dropped when it comes."""
        # The client sets the future's result when the answer comes, even if nothing awaits it.
        answer.add_done_callback(_retrieve)
        try:
            with anyio.fail_after(timeout):
                return await asyncio.shield(answer)
        except TimeoutError as error:
            raise TransientFailure("lost", f"no answer within {timeout:g} seconds") from error
        except Exception as error:
            raise self._map(error, sent=True) from error

    async def _connected(self) -> WebSocketConnection:
        # Otherwise all requests that find a broken socket would open one each.
        async with self._connecting:
            if self._connection is not None:
                if self._connection.exception is None:
                    return self._connection
                broken, self._connection = self._connection, None
                await _leave(broken)
            self._connection = await self._connect()
            return self._connection

    async def _connect(self) -> WebSocketConnection:
        import aiohttp

        connect: Callable[..., WebSocketConnection] = importlib.import_module(_CLIENT).HranaConn
        if self._session is None:
            self._session = aiohttp.ClientSession()
        connection = connect(_Session(self._session), self._address.url, self._address.token)
        try:
            with anyio.fail_after(self._timeout):
                await connection.wait_connected()
                # A refused token is reported only after the handshake.
                stream = connection.open_stream()
                first = stream.execute({"sql": "SELECT 1", "want_rows": False})
                first.add_done_callback(_retrieve)
                stream.close()
                await asyncio.shield(first)
        except BaseException as error:
            await _leave(connection)
            if isinstance(error, TimeoutError):
                raise TransientFailure("unsent", "no answer to the handshake") from error
            if isinstance(error, Exception):
                raise self._map(error, sent=False) from error
            raise
        return connection

    def _map(self, error: Exception, *, sent: bool) -> Exception:
        import aiohttp

        if isinstance(error, aiohttp.WSServerHandshakeError):
            if error.status in (401, 403):
                return refused_token(self._shown)
            if error.status in (429,) or error.status >= 500:
                return TransientFailure("unsent", f"the server answered {error.status}")
            return not_a_server(self._shown, f"it answered {error.status} to a WebSocket")
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            return StoreUnavailable(
                f"The certificate of {self._shown} cannot be trusted.",
                cure="Check the host's name.",
            )
        # Only the client's error has a code: the server's, or the client's name for a broken
        # socket.
        code = getattr(error, "code", None)
        if isinstance(code, str) and code not in _BROKEN:
            return map_libsql_error(code, str(error).removeprefix(f"{code}: "), self._shown)
        why = f"{type(error).__name__}: {error}".rstrip(": ")
        return TransientFailure("lost" if sent else "unsent", why)


# libsql-client's report of a broken connection, not a server's of a statement.
_BROKEN = ("HRANA_WEBSOCKET_ERROR", "HRANA_PROTO_ERROR", "CLIENT_CLOSED", "STREAM_CLOSED")


async def _leave(connection: WebSocketConnection) -> None:
    # A dead server does not answer a close.
    with anyio.move_on_after(_FAREWELL, shield=True):
        await connection.close()


def _retrieve(answer: asyncio.Future[Any]) -> None:
    if not answer.cancelled():
        answer.exception()
