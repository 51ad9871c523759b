"""Language models called by a wire of ours, without litellm.

A message of a prompt is encoded once and kept while it stays in the prompt, so that a call costs
little more than copying its bytes to the socket.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import Literal, Unpack
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import orjson

from agent_runtime.errors import ConfigError, ModelAuthError, ModelProtocolError
from agent_runtime.messages import PromptMessage, ToolSpec
from agent_runtime.models.access import ModelAccess
from agent_runtime.models.attempts import (
    AttemptError,
    ModelOptions,
    ProviderModel,
    stalled,
    until,
    with_retries,
)
from agent_runtime.models.base import (
    FilePart,
    ModelAnswer,
    ModelEvent,
    ModelInfo,
    ModelRequest,
    SettingIgnored,
    TokenUsage,
    Waiting,
)
from agent_runtime.models.catalog import provider_of
from agent_runtime.models.error_bodies import ErrorBody, read_response
from agent_runtime.models.error_mapping import AttemptFailure, failure_of_body
from agent_runtime.models.rate_limits.limiter import Limiter, Need, Ticket, limiter_for
from agent_runtime.models.wire.base import (
    Decoder,
    HoppingDecoder,
    Piece,
    ServerEvent,
    StreamFailedError,
    Wire,
    WireRequest,
)
from agent_runtime.models.wire.choice import can_call, target_of, wire_for
from agent_runtime.models.wire.http import StreamedResponse, is_connection_error, post, prepare
from agent_runtime.models.wire.servers import key_of, server_of
from agent_runtime.models.wire.sse import SseParser

PINGS = 600.0
"""Seconds: the longest time in which a provider may send keep-alives and nothing else."""
THREADS = 64
"""The prompts of how many threads are kept encoded."""

CACHED = 240.0
"""Seconds in which a provider surely still has a prompt in its cache."""

_LONGEST_ERROR = 1_000_000
"""Bytes of an error response that are read."""
_LONGEST_ANSWER = 64_000_000
"""Bytes of an answer that is not streamed."""
# A rough figure of English text and JSON, for a prompt that nobody has counted.
_BYTES_A_TOKEN = 4
_NOTHING: tuple[FilePart, ...] = ()


class NativeModel(ProviderModel):
    """A language model called by a wire of ours; its arguments are those of `LiteLLMModel`.

    Args:
        rate_limits: whether calls `wait` for what the provider's headers say is left; `off` leaves
            its rate limits to the provider.

    Raises:
        ConfigError: the name is empty, there is no wire for its provider, or its server's address
            is missing.
    """

    def __init__(
        self,
        name: str,
        *,
        rate_limits: Literal["wait", "off"] = "wait",
        **options: Unpack[ModelOptions],
    ) -> None:
        super().__init__(name, **options)
        if not can_call(self._name, self._access.base_url):
            raise ConfigError(
                f"There is no native wire for {self._name}, or its server's address is missing.",
                cure="Use AGENT_RUNTIME_MODEL_TRANSPORT=litellm, or give the model a base URL.",
            )
        self._limits = rate_limits
        self._wire: Wire | None = None
        self._encoded: OrderedDict[str, _EncodedPrompt] = OrderedDict()

    async def check(self) -> None:
        """Check that the model can be called, without calling it.

        Raises:
            RealModelForbidden: it may not be called.
            ModelAuthError: its key is missing.
        """
        self._access.check_allowed()
        _key(self._access)

    async def _events(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        await self.check()
        info = await self.info()
        if self._wire is None:
            self._wire = await anyio.to_thread.run_sync(wire_of_access, self._access, info)
        wire = self._wire
        prompt = self._prompt(request)
        sent = prompt.request(wire, request)
        for name in sent.ignored:
            yield SettingIgnored(name)
        attempt = functools.partial(self._in_turn, wire, sent, request, prompt)
        service = "" if "service_tier" in sent.ignored else request.settings.service
        events = with_retries(attempt, retries=self._retries, info=info, service=service)
        async with aclosing(events):
            async for event in events:
                yield event

    def _prompt(self, request: ModelRequest) -> _EncodedPrompt:
        """Return what of the thread's last prompt is encoded already."""
        prompt = self._encoded.pop(request.session, None) or _EncodedPrompt()
        if request.session:
            self._encoded[request.session] = prompt
            if len(self._encoded) > THREADS:
                self._encoded.popitem(last=False)
        return prompt

    async def _in_turn(
        self, wire: Wire, sent: WireRequest, request: ModelRequest, prompt: _EncodedPrompt
    ) -> AsyncGenerator[ModelEvent]:
        """Call the model once, as soon as the provider's rate limits let it.

        Raises:
            AttemptError: with the failure and whether to retry.
        """
        ticket = self._limiter(sent).enter(
            request.run or request.session, prompt.need(request, sent)
        )
        try:
            if not ticket.passed.is_set():
                yield Waiting(ticket.reason, ticket.wait)
                await ticket.turn()
            async with aclosing(self._attempt(wire, sent, ticket)) as events:
                async for event in events:
                    if isinstance(event, ModelAnswer) and event.usage is not None:
                        ticket.finished(event.usage.completion)
                        prompt.answered(event.usage)
                    yield event
        finally:
            ticket.leave()

    def _limiter(self, sent: WireRequest) -> Limiter:
        if self._limits == "off":
            # One that knows nothing lets everything through.
            return Limiter()
        return limiter_for(urlsplit(sent.url).netloc, _key(self._access), self._name)

    async def _attempt(
        self, wire: Wire, sent: WireRequest, ticket: Ticket
    ) -> AsyncGenerator[ModelEvent]:
        """Call the model once.

        Raises:
            AttemptError: with the failure and whether to retry.
        """
        decoder = wire.decoder()
        response: StreamedResponse | None = None
        began = False
        try:
            following: WireRequest | None = sent
            while following is not None:
                start = anyio.current_time()
                with until(start + self._first_byte_timeout):
                    response = await post(following)
                _tell(ticket, response)
                if response.status != 200:
                    text = await response.text(_LONGEST_ERROR, start + self._first_byte_timeout)
                    raise AttemptError(self._refused(response, text, ticket))
                async with aclosing(self._read(response, decoder, start)) as events:
                    async for event in events:
                        began = True
                        yield event
                following = _next(decoder, sent)
                if following is not None:
                    await response.close()
            yield decoder.answer()
        except TimeoutError:
            late = stalled(self._name, self._first_byte_timeout, self._idle_timeout, began=began)
            raise AttemptError(late) from None
        except ModelProtocolError as error:
            raise AttemptError(AttemptFailure(error, retry=True, billed=True)) from None
        except StreamFailedError as error:
            raise AttemptError(self._failed(error, ticket, began=began)) from None
        except ValueError as error:
            broken = ModelProtocolError(
                f"{self._name} broke its protocol: {error}",
                cure="Try again; if it persists, check that the base URL is one of this provider.",
            )
            raise AttemptError(AttemptFailure(broken, retry=True, billed=True)) from None
        except Exception as error:
            if not is_connection_error(error):
                raise
            # Not chained: a proxy's URL may hold a password, and a traceback would show it.
            # Once its answer is on the way, the provider may charge for it.
            answered = response is not None
            raise AttemptError(self._unreachable(error, began=answered)) from None
        finally:
            if response is not None:
                # A connection is used again only if nothing of the answer is left on it.
                await response.close(whole=decoder.finished)

    async def _read(
        self, response: StreamedResponse, decoder: Decoder, start: float
    ) -> AsyncGenerator[ModelEvent]:
        """Yield the deltas of an answer.

        Until its first event only the deadline for the first byte counts, which keep-alives do not
        extend.  From then on any byte extends the deadline for silence, but keep-alives alone only
        up to a limit.
        """
        if "event-stream" not in response.headers.get("content-type", "event-stream"):
            text = await response.text(_LONGEST_ANSWER, start + self._first_byte_timeout)
            # Servers that do not stream send one JSON object.
            for event in _deltas(decoder, ServerEvent("", text.encode())):
                yield event
            return
        stream = SseParser()
        deadline = latest = start + self._first_byte_timeout
        while not decoder.finished:
            chunk = await response.chunk(min(deadline, latest))
            heard = False
            for event in _events_of(stream, chunk):
                heard = True
                for delta in _deltas(decoder, event):
                    yield delta
                if decoder.finished:
                    return
            if not chunk:
                return
            now = anyio.current_time()
            if heard:
                # Keep-alives extend the deadline, but only up to here: a server that sends
                # nothing else has lost the request.
                latest = now + max(PINGS, self._idle_timeout)
                deadline = now + self._idle_timeout
            elif latest > start + self._first_byte_timeout:
                deadline = now + self._idle_timeout

    def _refused(self, response: StreamedResponse, text: str, ticket: Ticket) -> AttemptFailure:
        """Return the failure of an error response."""
        said = read_response(response.status, response.headers, text)
        _hold_back(ticket, said)
        raw = said.message or f"HTTP status {response.status}"
        secrets = self._access.secrets()
        return failure_of_body(said, raw, self._name, streaming=False, secrets=secrets)

    def _failed(self, error: StreamFailedError, ticket: Ticket, *, began: bool) -> AttemptFailure:
        """Return the failure of an error in mid-stream."""
        said = read_response(200, {}, orjson.dumps(error.body).decode())
        _hold_back(ticket, said)
        raw = said.message or "no reason given"
        secrets = self._access.secrets()
        return failure_of_body(said, raw, self._name, streaming=began, secrets=secrets)

    def _unreachable(self, error: Exception, *, began: bool) -> AttemptFailure:
        """Return the failure of a connection."""
        said = read_response(0, {}, "")
        host = urlsplit(self._access.base_url or "").hostname or "its provider"
        raw = f"the connection to {host} failed: {error or type(error).__name__}"
        secrets = self._access.secrets()
        return failure_of_body(said, raw, self._name, streaming=began, secrets=secrets)


class _EncodedPrompt:
    """The pieces of a thread's last prompt, by the identity of their messages."""

    def __init__(self) -> None:
        self._pieces: dict[tuple[int, bool], tuple[PromptMessage, Sequence[FilePart], Piece]] = {}
        self._tools: tuple[ToolSpec, ...] | None = None
        self._encoded_tools = b""
        self._usage: TokenUsage | None = None
        self._answered = 0.0

    def request(self, wire: Wire, request: ModelRequest) -> WireRequest:
        """Return a request; only messages that are new are encoded."""
        marks = frozenset(request.marks)
        pieces: list[Piece] = []
        held = self._pieces
        now: dict[tuple[int, bool], tuple[PromptMessage, Sequence[FilePart], Piece]] = {}
        for index, message in enumerate(request.messages):
            mark = index in marks
            files = request.files.get(index, _NOTHING) if message.files else _NOTHING
            # By identity, as messages of a thread are the same objects from prompt to prompt; the
            # pieces keep them alive, so no id is used twice.
            known = held.get((id(message), mark))
            if known is None or known[0] is not message or known[1] != files:
                known = (message, files, wire.piece(message, files, mark=mark))
            now[id(message), mark] = known
            pieces.append(known[2])
        # What left the prompt is forgotten.
        self._pieces = now
        if self._tools != request.tools:
            self._tools, self._encoded_tools = request.tools, wire.tools(request)
        return wire.request(request, pieces, self._encoded_tools)

    def answered(self, usage: TokenUsage) -> None:
        """Remember what of the prompt the provider has in its cache now."""
        self._usage, self._answered = usage, anyio.current_time()

    def need(self, request: ModelRequest, sent: WireRequest) -> Need:
        """Return what a request takes of rate limits."""
        prompt = request.prompt_tokens or len(sent.body) // _BYTES_A_TOKEN
        cached, last = 0, self._usage
        # Usually a prompt extends the one before; a shorter one is another prompt.
        if last is not None and last.prompt <= prompt:
            fresh = anyio.current_time() - self._answered < CACHED
            cached = last.cached + last.cache_write if fresh else 0
        return Need(prompt, prompt - min(cached, prompt), request.max_output)


def wire_of_access(access: ModelAccess, info: ModelInfo) -> Wire:
    """Return the wire for a model; loads its module and the HTTP client."""
    prepare()
    target, wire = target_of(
        access.name,
        base_url=access.base_url,
        key=_key(access),
        takes=info.takes,
        marks=info.cache_marks > 0,
        max_output=info.max_output if info.output_known else 0,
    )
    return wire_for(target, wire)


def _tell(ticket: Ticket, response: StreamedResponse) -> None:
    """Pass on what the headers of a response say about rate limits."""
    limited = response.status == 429
    wait = read_response(429, response.headers, "").wait if limited else None
    ticket.answered(response.headers, limited=limited, wait=wait)


def _hold_back(ticket: Ticket, said: ErrorBody) -> None:
    """Hold back other requests too if a provider refuses one for its rate."""
    if said.limited and not said.used_up:
        ticket.refused(said.wait)


def _deltas(decoder: Decoder, event: ServerEvent) -> Iterator[ModelEvent]:
    """Yield the deltas of an event.

    Raises:
        ValueError: a field has another type than the provider's API defines.
    """
    try:
        yield from decoder.feed(event)
    except (AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"an event of another form ({type(error).__name__})") from error


def _next(decoder: Decoder, sent: WireRequest) -> WireRequest | None:
    """Return the request whose stream continues an answer; None if nothing does."""
    return decoder.next_request(sent) if isinstance(decoder, HoppingDecoder) else None


def _events_of(stream: SseParser, chunk: bytes) -> Iterator[ServerEvent]:
    return stream.feed(chunk) if chunk else stream.close()


def _key(access: ModelAccess) -> str:
    """Return the key to send; empty where a server needs none.

    The environment's key goes to the provider's own address only, or to a base URL of the
    environment's that is meant for it.

    Raises:
        ModelAuthError: it is missing.
    """
    if access.api_key is not None:
        return access.api_key
    server = server_of(provider_of(access.name))
    assert server is not None
    key = key_of(server)
    if key or server.keyless or access.base_url is not None:
        return key
    names = " or ".join(server.keys[:2])
    raise ModelAuthError(
        f"{access.name} needs a key, and {names} is not set.", cure=f"Set {server.keys[0]}."
    )
