"""Providers as a program sets them, for one test."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from opentelemetry import metrics, trace

from tests.telemetry.recorded import Recorded


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Generator[Recorded]:
    """What the runtime records while the test runs."""
    made = Recorded()
    # A process can set its providers only once.
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: made.traces)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: made.metrics)
    yield made
    made.traces.shutdown()
    made.metrics.shutdown()
