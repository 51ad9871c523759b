"""Metrics of model calls by the conventions, and ours from the tally of the process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from agent_runtime.models.telemetry import conventions as names
from agent_runtime.models.telemetry.spans import SCOPE
from agent_runtime.models.telemetry.tally import NANO, TALLY

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""The conventions' buckets of durations."""
TOKENS = tuple(4**power for power in range(14))
"""The conventions' buckets of tokens."""

_made: tuple[MeterProvider, Instruments] | None = None


class Instruments:
    """The instruments of one provider."""

    def __init__(self, provider: MeterProvider) -> None:
        meter = provider.get_meter(SCOPE)
        self.duration = meter.create_histogram(
            names.DURATION,
            unit="s",
            description="GenAI operation duration.",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self.first_chunk = meter.create_histogram(
            names.TIME_TO_FIRST_CHUNK,
            unit="s",
            description="Time to receive the first chunk of an answer.",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self.tokens = meter.create_histogram(
            names.TOKEN_USAGE,
            unit="{token}",
            description="Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=TOKENS,
        )
        for name, unit, description, read in _OURS:
            meter.create_observable_counter(
                name, [_callback(read)], unit=unit, description=description
            )

    def called(
        self, attributes: Mapping[str, Any], seconds: float, first: float | None = None
    ) -> None:
        """Record a call of a model, successful or not."""
        self.duration.record(seconds, attributes)
        if first is not None:
            self.first_chunk.record(first, attributes)

    def used(self, attributes: Mapping[str, Any], *, prompt: int, completion: int = 0) -> None:
        """Record the tokens of a call, as the provider reported them."""
        self.tokens.record(prompt, {**attributes, names.TOKEN_TYPE: "input"})
        # Embeddings have no output.
        if completion:
            self.tokens.record(completion, {**attributes, names.TOKEN_TYPE: "output"})


def instruments() -> Instruments | None:
    """Return the instruments of the program's provider; None if it has set none."""
    global _made
    api = sys.modules.get("opentelemetry.metrics")
    if api is None:
        return None
    provider = api.get_meter_provider()
    # The API's own providers, which record nothing, are in a module of their own.
    if type(provider).__module__.startswith("opentelemetry.metrics"):
        return None
    if _made is None or _made[0] is not provider:
        _made = provider, Instruments(provider)
    return _made[1]


Values = Iterable[tuple[float, dict[str, str]]]


def _callback(read: Callable[[], Values]) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(options: CallbackOptions) -> Iterable[Observation]:
        from opentelemetry.metrics import Observation

        del options
        return [Observation(value, attributes) for value, attributes in read()]

    return observe


# Each a copy of the values: the reader's thread may not iterate over what the loop changes.
_OURS: tuple[tuple[str, str, str, Callable[[], Values]], ...] = (
    ("agent_runtime.steps", "{step}", "Steps of runs.", lambda: [(TALLY.steps, {})]),
    (
        "agent_runtime.runs",
        "{run}",
        "Runs that ended or were suspended.",
        lambda: [
            (n, {names.RUN_STATUS: status, names.STOP_REASON: reason})
            for (status, reason), n in TALLY.runs.copy().items()
        ],
    ),
    (
        "agent_runtime.cost",
        "{USD}",
        "Cost of model calls, where the price is known.",
        lambda: [(n / NANO, {"purpose": purpose}) for purpose, n in TALLY.cost.copy().items()],
    ),
    (
        "agent_runtime.stalled",
        "s",
        "Waits that model calls announced, in seconds.",
        lambda: [(n, {"why": why}) for why, n in TALLY.stalled.copy().items()],
    ),
    ("agent_runtime.questions", "{question}", "Questions.", lambda: [(TALLY.questions, {})]),
)
