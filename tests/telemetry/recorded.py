"""The SDK's exporter in memory, over real runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class Recorded:
    """What a program's providers got."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        self.traces = TracerProvider()
        self.traces.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.metrics = MeterProvider([self.reader])

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        """The spans that have ended."""
        return self.exporter.get_finished_spans()

    def named(self, start: str) -> list[ReadableSpan]:
        """Return the spans whose names begin so, in the order of their beginning."""
        found = [one for one in self.spans if one.name.startswith(start)]
        return sorted(found, key=lambda one: one.start_time or 0)

    def one(self, start: str) -> ReadableSpan:
        """Return the only span whose name begins so."""
        [found] = self.named(start)
        return found

    def points(self) -> list[Point]:
        """Return the points of all metrics."""
        data: Any = self.reader.get_metrics_data()
        return [
            Point(metric.name, dict(point.attributes), point)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in metric.data.data_points
        ]


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a metric."""

    name: str
    attributes: Mapping[str, Any]
    data: Any


def parent_of(child: ReadableSpan) -> int | None:
    """Return the id of a span's parent."""
    return child.parent.span_id if child.parent else None


def id_of(one: ReadableSpan) -> int:
    """Return a span's id."""
    context = one.get_span_context()
    assert context is not None
    return context.span_id


def facts(one: ReadableSpan) -> Mapping[str, Any]:
    """Return a span's attributes."""
    return one.attributes or {}


def trace_of(one: ReadableSpan) -> int:
    """Return the id of a span's trace."""
    context = one.get_span_context()
    assert context is not None
    return context.trace_id
