"""Two providers on loopback, and models of both that replace each other."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from agent_runtime import FallbackModel, NativeModel
from agent_runtime.models.base import Price
from agent_runtime.testing.model_server import OpenAIServer, Reply, Script
from tests.support.worlds import KEY, in_turn

FIRST, SECOND = "openai/first", "openai/second"
CHEAP = Price(input=100, output=200, cache_read=100, cache_write=100)
DEAR = Price(input=3000, output=15_000, cache_read=300, cache_write=3000)
FOR_EVER = 1e9
"""Seconds of a cool-down that no test outlasts."""


@dataclass
class Clock:
    """A clock that only tests move."""

    now: float = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@dataclass
class Pair:
    """Two providers and the model of both."""

    first: OpenAIServer
    second: OpenAIServer
    model: FallbackModel
    clock: Clock


@asynccontextmanager
async def two_providers(
    first: Iterable[Reply] | Script,
    second: Iterable[Reply] | Script,
    *,
    cool_down: float = 60.0,
    prices: tuple[Price, Price] = (CHEAP, DEAR),
    factors: tuple[float, float] = (1.0, 1.0),
    retries: int = 0,
) -> AsyncGenerator[Pair]:
    """Serve two providers; each model gives up after its first failure."""
    scripts = [one if callable(one) else in_turn(one) for one in (first, second)]
    async with (
        OpenAIServer(scripts[0], factor=factors[0]) as one,
        OpenAIServer(scripts[1], factor=factors[1]) as other,
    ):
        models = [
            NativeModel(
                name,
                base_url=server.base_url,
                api_key=KEY,
                price=price,
                retries=retries,
            )
            for name, server, price in zip((FIRST, SECOND), (one, other), prices, strict=True)
        ]
        clock = Clock()
        yield Pair(one, other, FallbackModel(models, cool_down=cool_down, clock=clock), clock)
