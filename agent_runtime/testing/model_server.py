"""A real HTTP server on loopback that speaks OpenAI's protocol, by script: chats and embeddings.

It replaces the provider where none may be called: tests run the whole model path against it,
faults included, and benchmarks measure a runtime with it.

    async with OpenAIServer(lambda request, n: Reply(text="hello")) as server:
        ...  # any OpenAI client on server.base_url
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias, cast

import anyio
import anyio.abc
import h11
import orjson

from agent_runtime.models import tokens
from agent_runtime.testing.embeddings import Vectors, vectors_by_words
from agent_runtime.testing.loopback import Listener
from agent_runtime.testing.prompt_meter import MeteredUsage, PromptMeter


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one request.

    Attributes:
        calls: (tool, arguments) pairs; arguments given as text are sent unchanged.
        finish: the finish reason; by default `tool_calls` or `stop`.
        usage: whether the last chunk reports the usage.
        fragments: into how many pieces the text, and the arguments of each call, are streamed.
        delay: seconds to wait before the first byte.
        status: the HTTP status; any other than 200 sends `error` as the body.
        headers: more headers of the response.
        stall_after: send nothing after this many chunks until the client leaves; with 0 not even
            the status.
        cut_after: close the connection after this many chunks, in the middle of the body.
        raw_chunk: bytes to send instead of the last chunk's JSON.
        vectors: the answer of the embeddings route; by default vectors by the texts' words.
    """

    text: str = ""
    calls: tuple[tuple[str, Mapping[str, Any] | str], ...] = ()
    reasoning: str = ""
    finish: str | None = None
    usage: bool = True
    fragments: int = 3
    delay: float = 0.0
    status: int = 200
    error: Mapping[str, Any] = field(default_factory=dict[str, Any])
    headers: tuple[tuple[str, str], ...] = ()
    stall_after: int | None = None
    cut_after: int | None = None
    raw_chunk: bytes | None = None
    vectors: Sequence[Sequence[float | None]] | None = None


Script: TypeAlias = Callable[[dict[str, Any], int], Reply]
"""Maps a request's JSON and its number, counted from 0, to the reply."""


def failure(status: int, message: str, *, code: str | None = None, kind: str = "") -> Reply:
    """Return a reply with OpenAI's form of an error."""
    kind = kind or ("invalid_request_error" if status < 500 else "server_error")
    body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    return Reply(status=status, error=body)


def rate_limited(retry_after: str | None = None) -> Reply:
    """Return a 429, with the header `retry-after` if it is given."""
    headers = () if retry_after is None else (("retry-after", retry_after),)
    reply = failure(429, "Rate limit reached", code="rate_limit_exceeded", kind="requests")
    return Reply(status=429, error=reply.error, headers=headers)


def server_error(status: int = 500) -> Reply:
    """Return a failure on the provider's side."""
    return failure(status, "The server had an error while processing your request")


def unauthorized(key: str) -> Reply:
    """Return a 401 whose text repeats the key, as OpenAI's does in part."""
    return failure(401, f"Incorrect API key provided: {key}.", code="invalid_api_key")


def overflow(limit: int = 128_000) -> Reply:
    """Return the 400 for a prompt that is too long."""
    text = f"This model's maximum context length is {limit} tokens. Please reduce the length."
    return failure(400, text, code="context_length_exceeded")


def unknown_model(name: str) -> Reply:
    """Return the 404 for a model that the provider does not know."""
    return failure(404, f"The model `{name}` does not exist", code="model_not_found")


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request as it arrived."""

    n: int
    path: str
    headers: dict[str, str]
    body: bytes
    json: dict[str, Any]
    time: float
    """By `time.perf_counter`."""


class OpenAIServer(Listener):
    """The server, which runs while its `async with` lasts.

    Args:
        script: answers the chat route.
        factor: how many of the server's tokens make one of ours.
        port: 0 for any free port.

    Attributes:
        script: answers the chat route; may be replaced.
        embed: answers the embeddings route; may be replaced.
        requests: every request in order, but for those of the embeddings route.
        embeddings: every request of the embeddings route, in order.
        busy_seconds: the server's work (parsing, counting, writing) without waits; a benchmark in
            the same process subtracts it.
        open_connections: how many clients are connected now.
        waiting: how many of them wait for an answer, or its rest, now.
        billed: the usage of every answer, in OpenAI's form, even if it was not reported or did
            not arrive whole.
    """

    def __init__(
        self, script: Script, *, factor: float = 1.0, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        super().__init__(host, port)
        self.requests: list[Recorded] = []
        self.embeddings: list[Recorded] = []
        self.embed: Script = lambda request, n: Reply()
        self.busy_seconds = 0.0
        self.open_connections = 0
        self.waiting = 0
        self.billed: list[dict[str, Any]] = []
        self.script = script
        self._meter = PromptMeter(factor)
        self._changed = anyio.Event()

    @property
    def base_url(self) -> str:
        """The URL to give to a client."""
        return f"http://{self._host}:{self._port}/v1"

    async def __aenter__(self) -> Self:
        await tokens.load_vocabulary()
        return await super().__aenter__()

    async def wait_for_requests(self, count: int) -> None:
        """Wait until this many requests have arrived."""
        while len(self.requests) < count:
            await self._changed.wait()

    async def wait_for_connections(self, count: int) -> None:
        """Wait until exactly this many clients are connected."""
        while self.open_connections != count:
            await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def _serve(self, stream: anyio.abc.SocketStream) -> None:
        self.open_connections += 1
        self._notify()
        try:
            await _Connection(stream, self._reply, self._wait).serve()
        finally:
            self.open_connections -= 1
            self._notify()

    @contextmanager
    def _wait(self) -> Generator[None]:
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1

    async def wait_for_embeddings(self, count: int) -> None:
        """Wait until this many requests have arrived at the embeddings route."""
        while len(self.embeddings) < count:
            await self._changed.wait()

    def _reply(
        self, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[Reply, _Answer | Vectors]:
        began = time.perf_counter()
        request = orjson.loads(body)
        if path.endswith("/embeddings"):
            n = len(self.embeddings)
            self.embeddings.append(Recorded(n, path, headers, body, request, began))
            self._notify()
            reply = self.embed(request, n)
            given = vectors_by_words(request) if reply.vectors is None else reply.vectors
            return reply, Vectors(request, given, usage=reply.usage, body=reply.error or None)
        n = len(self.requests)
        self.requests.append(Recorded(n, path, headers, body, request, began))
        self._notify()
        if not path.endswith("/chat/completions"):
            reply = failure(404, f"Unknown path {path}")
        else:
            reply = self.script(request, n)
        if reply.status == 200:
            usage = self._meter.measure(request)
            answer = _Answer(n, request, reply, usage, self._meter.factor)
            self.billed.append(answer.usage_json())
        else:
            answer = _Answer(n, request, reply, MeteredUsage(0, 0), self._meter.factor)
        self.busy_seconds += time.perf_counter() - began
        return reply, answer


class _Answer:
    """The body of a reply, in OpenAI's form."""

    def __init__(
        self, n: int, request: Mapping[str, Any], reply: Reply, usage: MeteredUsage, factor: float
    ) -> None:
        self.streamed = bool(request.get("stream"))
        self._id = f"chatcmpl-{n}"
        self._model = str(request.get("model"))
        self._reply = reply
        self._usage = usage
        self._factor = factor
        options = cast("dict[str, Any]", request.get("stream_options") or {})
        self._report = reply.usage and (not self.streamed or bool(options.get("include_usage")))

    def whole(self) -> bytes:
        """Return the answer to a request that does not stream, or the error."""
        reply = self._reply
        if reply.status != 200:
            return orjson.dumps(reply.error)
        message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
        if reply.reasoning:
            message["reasoning_content"] = reply.reasoning
        if reply.calls:
            message["tool_calls"] = [
                {"id": self._call_id(i), "type": "function", "function": _function(call)}
                for i, call in enumerate(reply.calls)
            ]
        choice = {"index": 0, "message": message, "finish_reason": self._finish()}
        usage = self.usage_json() if self._report else None
        return orjson.dumps(self._frame("chat.completion", [choice]) | {"usage": usage})

    def chunks(self) -> list[bytes]:
        """Return the server-sent events of the answer, without the final `[DONE]`."""
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        reply = self._reply
        deltas += [{"reasoning_content": part} for part in _split(reply.reasoning, reply.fragments)]
        deltas += [{"content": part} for part in _split(reply.text, reply.fragments)]
        for index, call in enumerate(reply.calls):
            deltas += self._call_deltas(index, call)
        choices: list[dict[str, Any]] = [
            {"index": 0, "delta": delta, "finish_reason": None} for delta in deltas
        ]
        choices.append({"index": 0, "delta": {}, "finish_reason": self._finish()})
        frames = [self._frame("chat.completion.chunk", [choice]) for choice in choices]
        if self._report:
            frames.append(self._frame("chat.completion.chunk", []) | {"usage": self.usage_json()})
        lines = [orjson.dumps(frame) for frame in frames]
        if reply.raw_chunk is not None:
            lines[-1] = reply.raw_chunk
        return [b"data: " + line + b"\n\n" for line in lines]

    def _frame(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": kind,
            "created": int(time.time()),
            "model": self._model,
            "choices": choices,
        }

    def _finish(self) -> str:
        return self._reply.finish or ("tool_calls" if self._reply.calls else "stop")

    def _call_id(self, index: int) -> str:
        return f"call_{self._id[9:]}_{index}"

    def _call_deltas(
        self, index: int, call: tuple[str, Mapping[str, Any] | str]
    ) -> Iterable[dict[str, Any]]:
        function = _function(call)
        opening = {"name": function["name"], "arguments": ""}
        head = {"index": index, "id": self._call_id(index), "type": "function"}
        yield {"tool_calls": [{**head, "function": opening}]}
        for part in _split(function["arguments"], self._reply.fragments):
            yield {"tool_calls": [{"index": index, "function": {"arguments": part}}]}

    def usage_json(self) -> dict[str, Any]:
        """Return the usage in OpenAI's form."""
        texts = [self._reply.text, self._reply.reasoning]
        texts += [part for call in self._reply.calls for part in _function(call).values()]
        # One for the token that ends an answer.
        completion = int(self._factor * sum(map(tokens.count_text, texts))) + 1
        return {
            "prompt_tokens": self._usage.prompt,
            "completion_tokens": completion,
            "total_tokens": self._usage.prompt + completion,
            "prompt_tokens_details": {"cached_tokens": self._usage.cached},
        }


def _function(call: tuple[str, Mapping[str, Any] | str]) -> dict[str, str]:
    name, arguments = call
    text = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
    return {"name": name, "arguments": text}


def _split(text: str, parts: int) -> list[str]:
    size = max(1, -(-len(text) // parts))
    return [text[start : start + size] for start in range(0, len(text), size)]


class _Connection:
    """One client's connection, which serves one request after another."""

    def __init__(
        self,
        stream: anyio.abc.SocketStream,
        reply: Callable[[str, dict[str, str], bytes], tuple[Reply, _Answer | Vectors]],
        wait: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._stream = stream
        self._reply = reply
        self._wait = wait
        self._http = h11.Connection(h11.SERVER)

    async def serve(self) -> None:
        """Answer requests until the client leaves, or a script cuts the connection."""
        while True:
            request = await self._event()
            if not isinstance(request, h11.Request):
                return
            reply, answer = self._reply(
                request.target.decode(),
                {name.decode(): value.decode() for name, value in request.headers},
                await self._body(),
            )
            with self._wait():
                if reply.delay:
                    await anyio.sleep(reply.delay)
                again = await self._send(reply, answer)
            if not again:
                return
            if self._http.our_state is not h11.DONE:
                return
            self._http.start_next_cycle()

    async def _event(self) -> h11.Event | type[h11.PAUSED]:
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return cast("h11.Event | type[h11.PAUSED]", event)
            try:
                data = await self._stream.receive(1 << 18)
            except anyio.EndOfStream:
                data = b""
            self._http.receive_data(data)

    async def _body(self) -> bytes:
        parts: list[bytes] = []
        while isinstance(event := await self._event(), h11.Data):
            parts.append(bytes(event.data))
        return b"".join(parts)

    async def _send(self, reply: Reply, answer: _Answer | Vectors) -> bool:
        """Send the reply; return whether the connection may serve another request."""
        if reply.stall_after == 0:
            await self._until_the_client_leaves()
            return False
        headers = [("content-type", "application/json"), *reply.headers]
        if reply.status != 200 or not answer.streamed:
            body = answer.whole()
            headers.append(("content-length", str(len(body))))
            await self._write(h11.Response(status_code=reply.status, headers=headers), body)
            await self._write(h11.EndOfMessage())
            return True
        headers = [("content-type", "text/event-stream"), *reply.headers]
        response = h11.Response(
            status_code=200, headers=[*headers, ("transfer-encoding", "chunked")]
        )
        chunks = answer.chunks()
        sent = next((n for n in (reply.stall_after, reply.cut_after) if n is not None), None)
        await self._write(response, *chunks[:sent])
        if reply.stall_after is not None:
            await self._until_the_client_leaves()
        if sent is not None:
            return False
        await self._write(h11.Data(data=b"data: [DONE]\n\n"), end=True)
        return True

    async def _write(self, *parts: h11.Event | bytes, end: bool = False) -> None:
        out: list[bytes] = []
        for part in parts:
            event = h11.Data(data=part) if isinstance(part, bytes) else part
            out.append(self._http.send(event) or b"")
        if end:
            out.append(self._http.send(h11.EndOfMessage()) or b"")
        await self._stream.send(b"".join(out))

    async def _until_the_client_leaves(self) -> None:
        # A client that waits sends nothing: whatever ends this read ends the connection.
        try:
            await self._stream.receive()
        except anyio.EndOfStream:
            return


def call_then_answer(steps: int, answer: str = "Done.") -> Script:
    """Return a script that calls the request's first tool `steps` times and answers, repeatedly.

    The arguments fit the tool's schema and differ from call to call.
    """

    def script(request: dict[str, Any], n: int) -> Reply:
        tools = cast("list[dict[str, Any]]", request.get("tools") or [])
        if not tools or n % (steps + 1) == steps:
            return Reply(text=answer)
        function = tools[0]["function"]
        return Reply(calls=((function["name"], example(function.get("parameters") or {}, n)),))

    return script


def example(schema: Mapping[str, Any], n: int) -> dict[str, Any]:
    """Return an object with the required properties of a flat JSON schema, numbered by `n`."""
    made: dict[str, Any] = {"integer": n, "number": float(n), "boolean": n % 2 == 0, "array": []}
    properties = cast("dict[str, dict[str, Any]]", schema.get("properties") or {})
    required = cast("list[str]", schema.get("required") or [])
    return {
        name: made.get(properties.get(name, {}).get("type", "string"), f"{name} {n}")
        for name in itertools.islice(required, 50)
    }
