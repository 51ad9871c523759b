"""A loopback server that plays a strict provider: it streams turns, and refuses bad requests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeAlias, cast

import anyio
import anyio.abc
import h11
import orjson

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Think:
    """A piece of reasoning; `hidden` is one that the provider shows nobody."""

    text: str
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class Say:
    """A text."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool."""

    name: str
    arguments: Mapping[str, Any]


Part: TypeAlias = Think | Say | Call
Turn: TypeAlias = tuple[Part, ...]
"""What a model answers at one step, in this order."""
Script: TypeAlias = Callable[[bool, int], Turn]
"""From whether a sub-agent asks, and how often it has asked before, to the turn."""


class RefusedError(Exception):
    """The provider refuses a request; the text is its own."""


class Provider(ABC):
    """How one provider streams, and what it refuses.

    Attributes:
        foreign: whether other models' answers may be among its own.
    """

    foreign = False

    @abstractmethod
    def check(self, body: Json, headers: Mapping[str, str]) -> None:
        """Look at a request.

        Raises:
            RefusedError: the provider would refuse it.
        """

    @abstractmethod
    def refusal(self, text: str) -> Json:
        """Return the body of a refusal."""

    @abstractmethod
    def stream(self, turn: Turn, n: int) -> list[bytes]:
        """Return the pieces of the answer's body; `n` is the number of the request."""

    @abstractmethod
    def prompt(self, body: Json) -> Sequence[object]:
        """Return what the prompt consists of, in order."""


class StrictServer:
    """The server, for the time of an `async with`.

    Attributes:
        violations: what was refused.
        prompts: of the agent's requests, without those of sub-agents, each part as it arrived.
    """

    def __init__(self, provider: Provider, script: Script) -> None:
        self.violations: list[str] = []
        self.prompts: list[list[bytes]] = []
        self.asked = {False: 0, True: 0}
        self._provider = provider
        self._script = script
        self._port = 0

    @property
    def url(self) -> str:
        """The URL to give to a model."""
        return f"http://127.0.0.1:{self._port}"

    def breaks(self) -> list[int]:
        """Return the numbers of the prompts that do not extend the one before."""
        pairs = enumerate(zip(self.prompts, self.prompts[1:], strict=False), 1)
        return [n for n, (old, new) in pairs if new[: len(old)] != old]

    def turn_to(self, provider: Provider) -> None:
        """Play this provider from now on."""
        self._provider = provider

    async def __aenter__(self) -> StrictServer:
        self._listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        self._port = self._listener.extra(anyio.abc.SocketAttribute.local_port)
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self._listener.serve, self._connection)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._tasks.cancel_scope.cancel()
        try:
            # What the test raises is to come out as it is.
            await self._tasks.__aexit__(None, None, None)
        finally:
            with anyio.CancelScope(shield=True):
                await self._listener.aclose()

    async def _connection(self, stream: anyio.abc.SocketStream) -> None:
        async with stream:
            try:
                await self._exchange(stream)
            except (anyio.BrokenResourceError, anyio.EndOfStream, h11.RemoteProtocolError):
                # The client left, which it may do at any time.
                return

    async def _exchange(self, stream: anyio.abc.SocketStream) -> None:
        """Answer one request; each connection serves one."""
        http = h11.Connection(h11.SERVER)
        body = b""
        headers: dict[str, str] = {}
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(await stream.receive(1 << 18))
            elif isinstance(event, h11.Request):
                headers = {key.decode(): value.decode() for key, value in event.headers}
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                break
            else:
                return
        status, kind, pieces = self._answer(orjson.loads(body), headers)
        sent = [("content-type", kind), ("connection", "close")]
        await stream.send(http.send(h11.Response(status_code=status, headers=sent)) or b"")
        for piece in pieces:
            await stream.send(http.send(h11.Data(data=piece)) or b"")
        await stream.send(http.send(h11.EndOfMessage()) or b"")

    def _answer(self, body: Json, headers: Mapping[str, str]) -> tuple[int, str, list[bytes]]:
        try:
            self._provider.check(body, headers)
        except RefusedError as refused:
            self.violations.append(str(refused))
            return 400, "application/json", [orjson.dumps(self._provider.refusal(str(refused)))]
        parts = [orjson.dumps(bare(part)) for part in self._provider.prompt(body)]
        child = any(b"You are a sub-agent. Another agent" in part for part in parts)
        if not child:
            self.prompts.append(parts)
        n = self.asked[child]
        self.asked[child] += 1
        turn = self._script(child, n)
        return 200, "text/event-stream", self._provider.stream(turn, n + 1000 * child)


def bare(value: object) -> object:
    """Return JSON without cache marks, which move from prompt to prompt."""
    if isinstance(value, dict):
        given = cast("Json", value)
        return {key: bare(one) for key, one in given.items() if key != "cache_control"}
    if isinstance(value, list):
        return [bare(one) for one in cast("list[object]", value)]
    return value


def refuse_if(refused: object, text: str) -> None:
    """Refuse a request if there is something wrong with it."""
    if refused:
        raise RefusedError(text)


def halves(text: str) -> list[str]:
    """Return a text in two pieces, without empty ones."""
    middle = len(text) // 2
    return [part for part in (text[:middle], text[middle:]) if part]
