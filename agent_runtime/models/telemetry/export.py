"""Set up OpenTelemetry for a program of ours, as the variables OTEL_* say."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

_log = logging.getLogger(__name__)

_ENDPOINTS = {
    "traces": "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "metrics": "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
}

SECONDS = 2.0
"""How long an export may take where the variables do not say: a person waits for the command."""


@contextmanager
def exporting() -> Generator[None]:
    """Export spans and metrics by OTLP over HTTP while inside, if an endpoint is set.

    What is left is sent at the end, which a collector that does not answer delays by up to
    `OTEL_EXPORTER_OTLP_TIMEOUT` seconds for each of the two.  Nothing is set up where the program
    has set a provider already.
    """
    signals = [signal for signal in _ENDPOINTS if _wanted(signal)]
    if not signals:
        yield
        return
    try:
        ends = [_export_traces() if signal == "traces" else _export_metrics() for signal in signals]
    except ImportError:
        _log.warning(
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, and what exports to it is not installed. "
            "Install agent-runtime-om[otlp], or set OTEL_SDK_DISABLED=true."
        )
        yield
        return
    try:
        yield
    finally:
        for end in ends:
            end()


def _wanted(signal: str) -> bool:
    disabled = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    exporter = os.environ.get(f"OTEL_{signal.upper()}_EXPORTER", "otlp").strip().lower()
    endpoint = os.environ.get(_ENDPOINTS[signal]) or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    if disabled or not endpoint or exporter == "none":
        return False
    specific = os.environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL")
    protocol = specific or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") or "http/protobuf"
    if exporter != "otlp" or protocol != "http/protobuf":
        _log.warning(
            "Telemetry (%s) is off: only OTLP by http/protobuf is exported, and the variables "
            "OTEL_* ask for %s by %s.",
            signal,
            exporter,
            protocol,
        )
        return False
    return True


def _export_traces() -> Callable[[], None]:
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # The program that embeds us has set its own, which stays.
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return lambda: None
    provider = TracerProvider(resource=_resource())
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=_timeout("TRACES"))))
    trace.set_tracer_provider(provider)
    return provider.shutdown


def _export_metrics() -> Callable[[], None]:
    from opentelemetry import metrics
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    if not type(metrics.get_meter_provider()).__module__.startswith("opentelemetry.metrics"):
        return lambda: None
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(timeout=_timeout("METRICS")))
    provider = MeterProvider([reader], resource=_resource())
    metrics.set_meter_provider(provider)
    return provider.shutdown


def _timeout(signal: str) -> float | None:
    names = (f"OTEL_EXPORTER_OTLP_{signal}_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")
    return None if any(os.environ.get(name) for name in names) else SECONDS


def _resource() -> Resource:
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource

    # The variables OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win.
    named = Resource({SERVICE_NAME: "agent-runtime"})
    given = "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    own = Resource.create()
    return own if given or os.environ.get("OTEL_SERVICE_NAME") else own.merge(named)
