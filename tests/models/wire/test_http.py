"""The HTTP client: kept connections, TLS, proxies, and what it does when a server misbehaves."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import anyio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from agent_runtime.errors import ModelProtocolError, ModelStalled, ModelUnavailable
from agent_runtime.messages import PromptMessage
from agent_runtime.models.base import ModelAnswer, ModelRequest
from agent_runtime.models.native import NativeModel
from agent_runtime.models.wire import http

KEY = "sk-test-0123456789abcdef"
CHUNK = b'data: {"choices":[{"index":0,"delta":{"content":"Hi."}}]}\n\n'
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"

Handle: TypeAlias = "Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]"


def chunked(data: bytes) -> bytes:
    """Return a chunk of HTTP's chunked encoding."""
    return b"%x\r\n%s\r\n" % (len(data), data)


WHOLE = HEAD + chunked(CHUNK) + chunked(END) + b"0\r\n\r\n"


async def read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Return the head and the body of a request.

    Raises:
        asyncio.IncompleteReadError: the client has left.
    """
    head = await reader.readuntil(b"\r\n\r\n")
    lines = [line.lower() for line in head.split(b"\r\n")]
    lengths = [line.partition(b":")[2] for line in lines if line.startswith(b"content-length:")]
    return head, await reader.readexactly(int(lengths[0]) if lengths else 0)


@dataclass
class Server:
    """A server that answers by a function for each connection.

    Attributes:
        connections: how many were opened.
        left: set when a client has closed a connection.
        heads: those of all requests.
    """

    answer: Handle | None = None
    connections: int = 0
    left: asyncio.Event = field(default_factory=asyncio.Event)
    heads: list[bytes] = field(default_factory=list[bytes])
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self.connections += 1
        try:
            while True:
                head, _ = await read_request(reader)
                self.heads.append(head)
                if self.answer is not None:
                    await self.answer(reader, writer)
                else:
                    writer.write(WHOLE)
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            self.left.set()
        finally:
            writer.close()


@asynccontextmanager
async def serving(
    answer: Handle | None = None, tls: ssl.SSLContext | None = None
) -> AsyncGenerator[Server]:
    """Run a server."""
    server = Server(answer)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        await http.close_connections()
        listener.close()
        await listener.wait_closed()


def model(server: Server, scheme: str = "http", **options: float) -> NativeModel:
    """Return a model at the server."""
    url = f"{scheme}://127.0.0.1:{server.port}/v1"
    return NativeModel("openai/test", base_url=url, api_key=KEY, **({"retries": 0} | options))  # pyright: ignore[reportArgumentType]


async def ask(model: NativeModel, text: str = "Hello.") -> ModelAnswer:
    """Return the answer to a prompt."""
    async with model.stream(ModelRequest((PromptMessage("user", text),))) as events:
        last = [event async for event in events][-1]
    assert isinstance(last, ModelAnswer)
    return last


async def test_a_connection_is_kept_for_the_next_call() -> None:
    async with serving() as server:
        for _ in range(3):
            assert (await ask(model(server))).text == "Hi."
        assert (server.connections, len(server.heads)) == (1, 3)
        assert b"authorization: Bearer " + KEY.encode() in server.heads[0]


async def test_calls_at_the_same_time_have_a_connection_each() -> None:
    begun = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(server.heads) == 5:
            begun.set()
        await begun.wait()
        writer.write(WHOLE)

    async with serving(answer) as server:
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(ask, model(server))
        assert server.connections == 5


async def test_a_connection_that_the_server_closed_while_idle_is_replaced() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(WHOLE)
        await writer.drain()
        writer.close()

    async with serving(answer) as server:
        for _ in range(2):
            assert (await ask(model(server))).text == "Hi."
            with anyio.fail_after(5):
                await server.left.wait()
            server.left.clear()
        assert server.connections == 2


async def test_a_long_prompt_arrives_whole_at_a_slow_reader() -> None:
    async with serving() as server:
        await ask(model(server), "x" * 8_000_000)
        assert b"content-length: 80" in server.heads[0]


async def test_cancelling_in_mid_stream_closes_the_connection() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + chunked(CHUNK))
        await reader.readexactly(1)

    async with serving(answer) as server:
        with anyio.CancelScope() as scope:
            async with model(server).stream(
                ModelRequest((PromptMessage("user", "Hello."),))
            ) as events:
                async for _ in events:
                    scope.cancel()
        with anyio.fail_after(5):
            await server.left.wait()


async def test_silence_before_the_first_event_ends_the_call_whatever_keep_alives_arrive() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        while not writer.is_closing():
            writer.write(chunked(b": keep-alive\n\n"))
            await asyncio.sleep(0.02)

    async with serving(answer) as server:
        with pytest.raises(ModelStalled, match=r"sent nothing for 0\.2 s"):
            await ask(model(server, first_byte_timeout=0.2))


async def test_silence_in_mid_answer_ends_the_call_and_keep_alives_do_not() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + chunked(CHUNK))
        # For longer than the silence that ends a call.
        for _ in range(60):
            writer.write(chunked(b": keep-alive\n\n"))
            await asyncio.sleep(0.05)
        if len(server.heads) == 1:
            writer.write(chunked(END) + b"0\r\n\r\n")
        else:
            await reader.readexactly(1)

    async with serving(answer) as server:
        assert (await ask(model(server, idle_timeout=2.0))).text == "Hi."
        with pytest.raises(ModelStalled, match=r"fell silent for 2 s"):
            await ask(model(server, idle_timeout=2.0))


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (b"", ModelUnavailable),
        (HEAD, ModelProtocolError),
        (HEAD + chunked(CHUNK), ModelProtocolError),
        (HEAD + chunked(CHUNK) + b"zz\r\n", ModelProtocolError),
        (b"no HTTP at all\r\n\r\n", ModelUnavailable),
        (HEAD + chunked(b"data: no json\n\n"), ModelProtocolError),
        (HEAD + chunked(b"data: [1]\n\n"), ModelProtocolError),
        (HEAD + chunked(b'data: {"choices": 7}\n\n'), ModelProtocolError),
    ],
)
async def test_a_server_that_breaks_off_or_speaks_nonsense(
    sent: bytes, error: type[Exception]
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        await writer.drain()
        raise ConnectionError

    async with serving(answer) as server:
        with pytest.raises(error) as failed:
            await ask(model(server))
    assert KEY not in str(failed.value)


async def test_nobody_listens() -> None:
    async with serving() as server:
        pass
    with pytest.raises(ModelUnavailable, match="cannot be reached"):
        await ask(model(server))


async def test_a_proxy_of_the_environment_is_used_except_for_hosts_that_it_excludes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving() as proxy, serving() as server:
        monkeypatch.setenv("http_proxy", f"http://ada:hunter2@127.0.0.1:{proxy.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert (await ask(model(server))).text == "Hi."
        assert (len(proxy.heads), len(server.heads)) == (1, 0)
        assert proxy.heads[0].startswith(b"POST http://127.0.0.1:")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert (await ask(model(server))).text == "Hi."
        assert (len(proxy.heads), len(server.heads)) == (1, 1)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Return a file with a key and a certificate of 127.0.0.1 that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(address, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path = tmp_path / "certificate.pem"
    path.write_bytes(private + signed.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.mark.parametrize("trusted", [True, False])
async def test_tls_is_spoken_with_servers_that_are_trusted_only(
    certificate: Path, trusted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    http.prepare.cache_clear()
    try:
        async with serving(tls=context) as server:
            if trusted:
                for _ in range(2):
                    assert (await ask(model(server, "https"))).text == "Hi."
                assert server.connections == 1
            else:
                with pytest.raises(ModelUnavailable, match=r"(?i)certificate"):
                    await ask(model(server, "https"))
                assert server.heads == []
    finally:
        http.prepare.cache_clear()


def test_connections_are_closed_with_their_event_loop() -> None:
    async def main() -> None:
        listener = await asyncio.start_server(Server().serve, "127.0.0.1", 0)
        server = Server(port=listener.sockets[0].getsockname()[1])
        assert (await ask(model(server))).text == "Hi."
        listener.close()

    # A socket that stays open is a warning, and so an error.
    for _ in range(2):
        anyio.run(main)
