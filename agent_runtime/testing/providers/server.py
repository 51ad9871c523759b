"""A loopback server that plays a provider: it streams turns, and refuses bad requests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import orjson

from agent_runtime.models.wire.rules.refusal import RefusedError, refuse_if
from agent_runtime.testing.loopback import Answer, Json, LoopbackServer


@dataclass(frozen=True, slots=True)
class Think:
    """A piece of reasoning; the provider does not show one that is `hidden`."""

    text: str
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class Say:
    """A piece of text."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool."""

    name: str
    arguments: Mapping[str, Any]


Part: TypeAlias = Think | Say | Call
Turn: TypeAlias = tuple[Part, ...]
"""The answer of a model at one step, its parts in order."""
TurnScript: TypeAlias = Callable[[bool, int], Turn]
"""Returns a turn. Arguments: whether a sub-agent asks, and the number of its earlier requests."""


class Provider(ABC):
    """How one provider streams, and which requests it refuses.

    Attributes:
        foreign: whether requests may contain answers of other models.
    """

    foreign = False

    @property
    def media_type(self) -> str:
        """The content type of its answers."""
        return "text/event-stream"

    def check_path(self, path: str) -> None:
        """Check the path of a request; by default every path is accepted.

        Raises:
            RefusedError: the provider does not know the path.
        """
        refuse_if(not path.startswith("/"), f"Unknown path {path}")

    @abstractmethod
    def check(self, body: Json, headers: Mapping[str, str]) -> None:
        """Check a request.

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
        """Return the parts of the prompt, in order."""


class StrictServer(LoopbackServer):
    """A server that plays a provider, and refuses the requests that the provider would refuse.

    Attributes:
        violations: the reasons of all refusals.
        prompts: the prompt of each request of the agent, in parts as they arrived; without
            sub-agents.
        asked: the number of requests, by whether a sub-agent sent them.
    """

    def __init__(self, provider: Provider, script: TurnScript) -> None:
        super().__init__()
        self.violations: list[str] = []
        self.prompts: list[list[bytes]] = []
        self.asked = {False: 0, True: 0}
        self._provider = provider
        self._script = script

    def breaks(self) -> list[int]:
        """Return the indexes of the prompts that do not extend the previous one."""
        pairs = enumerate(zip(self.prompts, self.prompts[1:], strict=False), 1)
        return [n for n, (old, new) in pairs if new[: len(old)] != old]

    def turn_to(self, provider: Provider) -> None:
        """Play this provider from now on."""
        self._provider = provider

    async def answer(self, path: str, headers: Mapping[str, str], body: Json) -> Answer:
        """Refuse the request, or answer with the script's next turn."""
        try:
            self._provider.check_path(path)
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
        return 200, self._provider.media_type, self._provider.stream(turn, n + 1000 * child)


def bare(value: object) -> object:
    """Return JSON without cache marks, which move from prompt to prompt."""
    if isinstance(value, dict):
        given = cast("Json", value)
        return {key: bare(one) for key, one in given.items() if key != "cache_control"}
    if isinstance(value, list):
        return [bare(one) for one in cast("list[object]", value)]
    return value
