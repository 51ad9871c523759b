"""What the providers get of the Observer: the same bytes first, marked for their caches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from agent_runtime.memory.observational.observer.base import ObserverInput
from agent_runtime.memory.observational.observer.instructions import INSTRUCTIONS as OBSERVER
from agent_runtime.memory.observational.observer.model import ModelObserver
from agent_runtime.memory.observational.reflector.instructions import INSTRUCTIONS as REFLECTOR
from agent_runtime.messages import UserMessage
from agent_runtime.models.native import NativeModel
from agent_runtime.models.tokens import count_text, load_vocabulary
from agent_runtime.prompt.view import Entry
from agent_runtime.testing import Anthropic, Gemini, OpenAI, Provider, Say, StrictServer
from agent_runtime.testing.loopback import Answer

WHEN = "2026-11-21 14:05"
TEXTS = ("Set the port to 8443. " * 30, "端口改为8443。请不要动配置文件。" * 20)


class Recording(StrictServer):
    """A strict server that keeps each request whole, cache marks included."""

    def __init__(self, provider: Provider, texts: Sequence[str]) -> None:
        super().__init__(provider, lambda child, n: (Say(texts[n]),))
        self.bodies: list[dict[str, Any]] = []

    async def answer(self, path: str, headers: Mapping[str, str], body: dict[str, Any]) -> Answer:
        self.bodies.append(body)
        return await super().answer(path, headers, body)


def interval(text: str) -> ObserverInput:
    return ObserverInput((Entry(1, None, UserMessage(text), at=1_795_269_900.0),))


@pytest.mark.parametrize("instructions", [OBSERVER, REFLECTOR])
async def test_instructions_are_longer_than_the_least_that_is_cached(instructions: str) -> None:
    await load_vocabulary()
    assert count_text(instructions) > 1024


def of_anthropic(body: dict[str, Any]) -> Any:
    return body["system"]


def of_openai(body: dict[str, Any]) -> Any:
    return body["messages"][:1]


def of_gemini(body: dict[str, Any]) -> Any:
    return body["systemInstruction"]


@pytest.mark.parametrize(
    ("provider", "name", "path", "system"),
    [
        (Anthropic(thinking=False), "anthropic/claude-sonnet-4-5", "", of_anthropic),
        (OpenAI(), "openai/gpt-4o", "/v1", of_openai),
        (
            Gemini("gemini-2.5-flash"),
            "gemini/gemini-2.5-flash",
            "/v1beta",
            of_gemini,
        ),
    ],
    ids=["anthropic", "openai", "gemini"],
)
async def test_every_request_begins_with_the_same_bytes(
    provider: Provider, name: str, path: str, system: Callable[[dict[str, Any]], Any]
) -> None:
    note = f"{WHEN} | critical | User wants port 8443."
    async with Recording(provider, [note, "Hm, I see.", note]) as server:
        model = NativeModel(name, base_url=f"{server.url}{path}", api_key="unused")
        for thread, (text, zone) in enumerate(zip(TEXTS, ("UTC", "Asia/Tokyo"), strict=True)):
            observer = ModelObserver(
                model, await model.info(), 60, thread=f"thread-{thread}", zone=zone
            )
            seen = await observer.observe(interval(text))
            assert seen.notes is not None

    assert server.violations == [] and len(server.bodies) == 3
    # Across calls, threads, zones and languages.
    first = system(server.bodies[0])
    assert OBSERVER[:40] in str(first)
    assert all(system(body) == first for body in server.bodies)
    # The second thread's first answer was rejected: its conversation goes on.
    assert server.prompts[2][: len(server.prompts[1])] == server.prompts[1]
    assert len(server.prompts[2]) == len(server.prompts[1]) + 2
    marked = [str(body).count("cache_control") for body in server.bodies]
    if name.startswith("anthropic"):
        assert marked == [1, 1, 1]
        assert first[-1]["cache_control"] == {"type": "ephemeral"}
    else:
        # They cache without marks, and refuse them.
        assert marked == [0, 0, 0]
