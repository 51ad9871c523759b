"""A loopback server that streams as providers do, event for event, by script.

async with ProviderServer([anthropic("Hello.", end="refusal")]) as server:
    ...  # a model on server.url
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

import orjson

from agent_runtime.testing.loopback import Answer, Json, LoopbackServer, halves

Call: TypeAlias = tuple[str, str]
"""A tool, and the text of its arguments."""
Pieces: TypeAlias = list[bytes]
Answers: TypeAlias = (
    "Sequence[Pieces] | Callable[[Json, int], Pieces] | Callable[[Json, int], Awaitable[Pieces]]"
)
"""The pieces of each answer's body; or what makes them of a request and its number."""


def anthropic(
    text: str = "",
    *calls: Call,
    end: str | None = "end_turn",
    thinking: str = "",
    output: int = 7,
    prompt: int = 9,
) -> list[bytes]:
    """Return an answer as Anthropic's messages API streams it; `end=None` breaks it off."""
    usage = {"input_tokens": prompt, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude"}
    start: Json = {
        **message,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    events: list[Json] = [{"type": "message_start", "message": start}, {"type": "ping"}]
    blocks: list[tuple[Json, list[Json]]] = []
    if thinking:
        deltas = [
            {"type": "thinking_delta", "thinking": thinking},
            {"type": "signature_delta", "signature": "c2lnbmVk"},
        ]
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, deltas))
    if text:
        deltas = [{"type": "text_delta", "text": part} for part in halves(text)]
        blocks.append(({"type": "text", "text": ""}, deltas))
    for number, (name, arguments) in enumerate(calls):
        block: Json = {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": {}}
        parts = halves(arguments)
        blocks.append(
            (block, [{"type": "input_json_delta", "partial_json": part} for part in parts])
        )
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        for delta in deltas:
            events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    if end is not None:
        delta = {"stop_reason": end, "stop_sequence": None}
        last = {"input_tokens": prompt, "output_tokens": output}
        events.append({"type": "message_delta", "delta": delta, "usage": last})
        events.append({"type": "message_stop"})
    return [b"event: %s\ndata: %s\n\n" % (one["type"].encode(), _dumps(one)) for one in events]


def gemini(
    text: str = "",
    *calls: Call,
    end: str | None = "STOP",
    blocked: str = "",
    late_usage: bool = False,
    output: int = 7,
    prompt: int = 9,
) -> list[bytes]:
    """Return an answer as Gemini streams it; `end=None` breaks it off."""
    usage = {"promptTokenCount": prompt, "candidatesTokenCount": output}
    usage |= {"totalTokenCount": prompt + output}
    about: Json = {"modelVersion": "gemini-2.5-flash", "responseId": "r1"}
    parts: list[Json] = [{"text": part} for part in halves(text)]
    parts += [{"functionCall": {"name": name, "args": orjson.loads(args)}} for name, args in calls]
    chunks: list[Json] = [
        {"candidates": [{"content": {"parts": [part], "role": "model"}, "index": 0}], **about}
        for part in parts
    ]
    if blocked:
        chunks = [{"promptFeedback": {"blockReason": blocked}, **about, "usageMetadata": usage}]
    elif end is not None:
        if not chunks:
            chunks.append({"candidates": [{"index": 0}], **about})
        chunks[-1]["candidates"][0]["finishReason"] = end
        if late_usage:
            chunks.append(dict(about))
        chunks[-1]["usageMetadata"] = usage
    return [b"data: " + _dumps(chunk) + b"\r\n\r\n" for chunk in chunks]


def openai_chat(
    text: str = "",
    *calls: Call,
    end: str | None = "stop",
    refusal: str = "",
    reasoning: str = "",
    output: int = 7,
    prompt: int = 9,
) -> list[bytes]:
    """Return an answer as OpenAI's chat completions stream it; `end=None` breaks it off."""
    deltas: list[Json] = [{"role": "assistant", "content": "", "refusal": None}]
    deltas += [{"reasoning_content": part} for part in halves(reasoning)]
    deltas += [{"content": part} for part in halves(text)]
    deltas += [{"refusal": part} for part in halves(refusal)]
    for index, (name, arguments) in enumerate(calls):
        head = {"index": index, "id": f"call_{index}", "type": "function"}
        deltas.append({"tool_calls": [{**head, "function": {"name": name, "arguments": ""}}]})
        for part in halves(arguments):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
    frame = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "gpt"}
    choices: list[Json] = [{"index": 0, "delta": one, "finish_reason": None} for one in deltas]
    frames: list[Json] = []
    if end is not None:
        choices.append({"index": 0, "delta": {}, "finish_reason": end})
        usage = {"prompt_tokens": prompt, "completion_tokens": output}
        usage |= {"total_tokens": prompt + output}
        frames = [{**frame, "choices": [], "usage": usage}]
    frames = [{**frame, "choices": [choice]} for choice in choices] + frames
    done = [] if end is None else [b"data: [DONE]\n\n"]
    return [b"data: " + _dumps(one) + b"\n\n" for one in frames] + done


def responses(
    text: str = "", *, incomplete: str = "", refusal: str = "", output: int = 7
) -> list[bytes]:
    """Return an answer as OpenAI's responses API streams it."""
    usage = {"input_tokens": 9, "output_tokens": output, "total_tokens": 9 + output}
    status = "incomplete" if incomplete else "completed"
    content: Json = {"type": "output_text", "text": text, "annotations": []}
    kind = "response.output_text.delta"
    if refusal:
        content, kind = {"type": "refusal", "refusal": refusal}, "response.refusal.delta"
    item = {"id": "msg_1", "type": "message", "role": "assistant", "content": [content]}
    whole = {"id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-5"}
    whole |= {"output": [{**item, "status": status}], "parallel_tool_calls": True}
    whole |= {"tool_choice": "auto", "tools": []}
    details = {"reason": incomplete} if incomplete else None
    done = {**whole, "status": status, "incomplete_details": details, "usage": usage}
    begun = {**whole, "output": [], "status": "in_progress"}
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    events: list[Json] = [{"type": "response.created", "response": begun}]
    added = {**item, "content": [], "status": "in_progress"}
    events.append({"type": "response.output_item.added", "output_index": 0, "item": added})
    events += [{"type": kind, **place, "delta": part} for part in halves(refusal or text)]
    finished = {**item, "status": status}
    events.append({"type": "response.output_item.done", "output_index": 0, "item": finished})
    events.append({"type": f"response.{status}", "response": done})
    lines: list[bytes] = []
    for number, event in enumerate(events):
        line = _dumps({**event, "sequence_number": number})
        lines.append(b"event: %s\ndata: %s\n\n" % (event["type"].encode(), line))
    return lines


def ollama(text: str = "", *, end: str | None = "stop") -> list[bytes]:
    """Return an answer as Ollama's own API streams it; `end=None` breaks it off."""
    frame = {"model": "llama3", "created_at": "2026-01-01T00:00:00Z"}
    lines: list[Json] = [
        {**frame, "message": {"role": "assistant", "content": part}, "done": False}
        for part in halves(text)
    ]
    if end is not None:
        message = {"role": "assistant", "content": ""}
        counts = {"prompt_eval_count": 9, "eval_count": 7}
        lines.append({**frame, "message": message, "done": True, "done_reason": end, **counts})
    return [_dumps(line) + b"\n" for line in lines]


class ProviderServer(LoopbackServer):
    """A server that answers by script.

    Attributes:
        answers: what it answers; may be replaced.
        requests: the JSON of every request, in order.
        paths: the path of every request.
    """

    def __init__(self, answers: Answers) -> None:
        super().__init__()
        self.requests: list[Json] = []
        self.paths: list[str] = []
        self.answers = answers

    async def answer(self, path: str, headers: Mapping[str, str], body: Json) -> Answer:
        """Record the request, and return the script's answer to it."""
        n = len(self.requests)
        self.paths.append(path)
        self.requests.append(body)
        answers = self.answers
        pieces = answers(body, n) if callable(answers) else answers[n]
        if inspect.isawaitable(pieces):
            pieces = await pieces
        return 200, "text/event-stream", pieces


def _dumps(value: Json) -> bytes:
    return orjson.dumps(value)
