"""How large the prompts of a run are, and how much of each one a provider's cache would hold."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import orjson

CACHED = 0.1
"""What a cached byte costs, against an uncached one."""
_SHOWN = 300
"""Characters of a page that are of interest."""
_PAGE = re.compile(r"\bpage (\d+):")


@dataclass(slots=True)
class Volume:
    """The prompts of the model calls of one trial, in bytes.

    A step's prompt is compared with the one before it; a summary's is never cached.

    Attributes:
        cacheable: of `prompt`, the longest common prefix with the prompt before, summed.
        breaks: prompts that do not begin with all of the prompt before.
        summaries: calls that write summaries, observations and the like.
        written: bytes of their answers.
    """

    calls: int = 0
    prompt: int = 0
    cacheable: int = 0
    breaks: int = 0
    largest: int = 0
    summaries: int = 0
    summary_bytes: int = 0
    written: int = 0
    _before: dict[str, list[bytes]] = field(default_factory=dict[str, list[bytes]])

    def step(self, request: Mapping[str, Any], run: str = "") -> None:
        """Count the prompt of a step of a run."""
        found = pieces(request)
        before = self._before.get(run, [])
        size, common = sum(map(len, found)), common_prefix(before, found)
        self.calls += 1
        self.prompt += size
        self.cacheable += common
        self.breaks += common < sum(map(len, before))
        self.largest = max(self.largest, size)
        self._before[run] = found

    def summary(self, request: Mapping[str, Any], answer: str) -> None:
        """Count the prompt of a call that is no step, and its answer."""
        self.summaries += 1
        self.written += len(answer.encode())
        self.summary_bytes += sum(map(len, pieces(request)))

    @property
    def share(self) -> float:
        """The cacheable share of the steps' prompts."""
        return self.cacheable / self.prompt if self.prompt else 0.0

    @property
    def weighted(self) -> float:
        """Bytes by their price: uncached × 1, cached × `CACHED`, summaries × 1."""
        return self.prompt - self.cacheable + CACHED * self.cacheable + self.summary_bytes


def pieces(request: Mapping[str, Any]) -> list[bytes]:
    """Return a request's prompt in the order in which providers cache: the tools, the messages."""
    tools = request.get("tools")
    return [
        *([] if not tools else [orjson.dumps(tools)]),
        *(orjson.dumps(message) for message in request["messages"]),
    ]


def common_prefix(before: Sequence[bytes], after: Sequence[bytes]) -> int:
    """Return how many bytes the two have in common at the beginning."""
    total = 0
    for one, other in zip(before, after, strict=False):
        if one != other:
            return total + _common(one, other)
        total += len(one)
    return total


def _common(one: bytes, other: bytes) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def called_pages(request: Mapping[str, Any]) -> list[int]:
    """Return the pages that the prompt says were called for."""
    found: list[int] = []
    for message in cast("list[dict[str, Any]]", request["messages"]):
        for call in cast("list[dict[str, Any]]", message.get("tool_calls") or []):
            arguments = orjson.loads(call["function"]["arguments"] or "{}")
            if "number" in arguments:
                found.append(int(arguments["number"]))
    return found


def visible_pages(request: Mapping[str, Any]) -> set[int]:
    """Return the pages whose text stands in the prompt as a tool's result."""
    results = (m for m in request["messages"] if m.get("role") == "tool")
    return {int(n) for m in results for n in _PAGE.findall(_text(m.get("content")))}


def noted_pages(request: Mapping[str, Any]) -> dict[int, str]:
    """Return the pages that the prompt says anything of, in order, with what follows their name."""
    found: dict[int, str] = {}
    for message in cast("list[dict[str, Any]]", request["messages"]):
        _, *parts = _PAGE.split(_text(message.get("content")))
        for page, text in zip(parts[::2], parts[1::2], strict=True):
            found.setdefault(int(page), " ".join(text[:_SHOWN].split()))
    return dict(sorted(found.items()))


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = cast("list[dict[str, Any]]", content or [])
    return "".join(str(part.get("text", "")) for part in parts)


def orphans(request: Mapping[str, Any]) -> str:
    """Return what OpenAI says of a prompt whose calls and results do not match, or nothing."""
    open_calls: set[str] = set()
    for number, message in enumerate(cast("list[dict[str, Any]]", request["messages"])):
        if message.get("role") == "tool":
            if message.get("tool_call_id") not in open_calls:
                return (
                    f"Invalid parameter: messages[{number}] with role 'tool' must be a response "
                    "to a preceding message with 'tool_calls'."
                )
            open_calls.discard(str(message["tool_call_id"]))
            continue
        if open_calls:
            break
        calls = cast("list[dict[str, Any]]", message.get("tool_calls") or [])
        open_calls = {str(call["id"]) for call in calls}
    if not open_calls:
        return ""
    names = ", ".join(sorted(open_calls))
    return (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to "
        f"each 'tool_call_id'. The following tool_call_ids did not have response messages: {names}"
    )
