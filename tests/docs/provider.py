"""A provider on loopback that speaks Anthropic's protocol and answers by a script."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support import http_server


@dataclass(frozen=True, slots=True)
class Answer:
    """The provider's answer to one request.

    Attributes:
        calls: pairs of a tool's name and its arguments.
    """

    text: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()


def say(text: str) -> Answer:
    """Return an answer of text, which ends a run."""
    return Answer(text)


def call(tool: str, /, **arguments: Any) -> Answer:
    """Return an answer that calls a tool."""
    return Answer(calls=((tool, arguments),))


def calls(*answers: Answer) -> Answer:
    """Return one answer with the calls of several."""
    return Answer(calls=tuple(requested for answer in answers for requested in answer.calls))


@dataclass(slots=True)
class Provider:
    """The remaining answers, and the received requests.

    A request beyond the script is answered "Done.".
    """

    url: str
    answers: deque[Answer] = field(default_factory=deque[Answer])
    requests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def script(self, answers: Sequence[Answer]) -> None:
        """Append answers to the script."""
        self.answers.extend(answers)


def stream(answer: Answer) -> bytes:
    """Return an answer as the provider streams it."""
    usage = {"input_tokens": 100, "output_tokens": 20}
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    events: list[dict[str, Any]] = [{"type": "message_start", "message": message}]
    blocks: list[tuple[dict[str, Any], dict[str, Any]]] = []
    if answer.text or not answer.calls:
        blocks.append(
            ({"type": "text", "text": ""}, {"type": "text_delta", "text": answer.text or " "})
        )
    for number, (name, arguments) in enumerate(answer.calls):
        start: dict[str, Any] = {
            "type": "tool_use",
            "id": f"toolu_{number}",
            "name": name,
            "input": {},
        }
        delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
        blocks.append((start, delta))
    for index, (block, delta) in enumerate(blocks):
        events += [
            {"type": "content_block_start", "index": index, "content_block": block},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    reason = "tool_use" if answer.calls else "end_turn"
    events.append(
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": None},
            "usage": {"output_tokens": 20},
        }
    )
    events.append({"type": "message_stop"})
    parts = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    return "".join(parts).encode()


@contextmanager
def serving() -> Generator[Provider]:
    """Serve on a port of loopback until the context ends."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with lock:
                provider.requests.append(request)
                answer = provider.answers.popleft() if provider.answers else say("Done.")
            body = stream(answer)
            self.send_response(200)
            self.send_header("content-type", "text/event-stream; charset=utf-8")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # its base's name
            """Suppress the log."""

    with http_server.serving(Handler) as url:
        provider = Provider(url)
        yield provider
