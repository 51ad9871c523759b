"""The command line exports by OTLP what the variables OTEL_* ask for."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import httpx
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from agent_runtime.models.telemetry.export import exporting
from tests.support.command import COMMAND, clean_environ, run_command
from tests.support.http_server import serving

APP = """
from agent_runtime import Agent, App, ScriptedModel
from agent_runtime.models.scripted import say

app = App(agents={"worker": Agent(ScriptedModel(lambda request: say("Done.")))})
"""


class Collector:
    """A receiver of OTLP on loopback: the bodies by path, and the headers."""

    def __init__(self) -> None:
        self.bodies: dict[str, list[bytes]] = {}
        self.headers: list[str | None] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.bodies.setdefault(self.path, []).append(body)
                collector.headers.append(self.headers["x-api-key"])
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
                del code, size

        self.handler = Handler
        self.url = ""


@pytest.fixture
def collector() -> Generator[Collector]:
    """A collector that listens."""
    made = Collector()
    with serving(made.handler) as made.url:
        yield made


def test_what_a_service_runs_is_exported_before_it_ends(
    tmp_path: Path, collector: Collector
) -> None:
    (tmp_path / "mine.py").write_text(APP)
    environ = clean_environ(
        {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "XDG_STATE_HOME": str(tmp_path / "state")}
    )
    with subprocess.Popen(
        [*COMMAND, "serve", "mine:app", "--port", "0"],
        cwd=tmp_path, env=environ, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        url = next(line for line in process.stderr if "Serving on" in line).split()[-1]
        run = httpx.post(f"{url}/api/runs", json={"task": "Work."}).json()
        httpx.get(f"{url}/api/runs/{run['run_id']}/events", timeout=30)
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    names = {
        span.name
        for body in collector.bodies["/v1/traces"]
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    }
    assert "invoke_agent worker" in names and "/v1/metrics" in collector.bodies


def test_a_collector_gets_the_spans_and_metrics(tmp_path: Path, collector: Collector) -> None:
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_EXPORTER_OTLP_HEADERS": "x-api-key=k1",
        "OTEL_SERVICE_NAME": "my-agents",
    }
    task = "Survey this folder and write REPORT.md"
    done = run_command("run", "--workspace", ".", task, cwd=tmp_path, environ=environ)
    assert done.returncode == 0, done.stderr
    sent = [ExportTraceServiceRequest.FromString(one) for one in collector.bodies["/v1/traces"]]
    [resource] = {
        attribute.value.string_value
        for request in sent
        for group in request.resource_spans
        for attribute in group.resource.attributes
        if attribute.key == "service.name"
    }
    assert resource == "my-agents"
    names = [
        one.name
        for request in sent
        for group in request.resource_spans
        for scope in group.scope_spans
        for one in scope.spans
    ]
    assert any(name.startswith("invoke_agent") for name in names)
    assert any(name.startswith("chat ") for name in names)
    metrics = [
        ExportMetricsServiceRequest.FromString(one) for one in collector.bodies["/v1/metrics"]
    ]
    found = {
        metric.name
        for request in metrics
        for group in request.resource_metrics
        for scope in group.scope_metrics
        for metric in scope.metrics
    }
    assert {"gen_ai.client.operation.duration", "agent_runtime.steps"} <= found
    assert set(collector.headers) == {"k1"}


QUIET = """
import os

from agent_runtime.models.telemetry.export import exporting
from agent_runtime.models.telemetry.metrics import instruments
from agent_runtime.models.telemetry.spans import tracer

endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
none = {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"}
for environ in ({}, endpoint | {"OTEL_SDK_DISABLED": "true"}, endpoint | none):
    for name in ("OTEL_SDK_DISABLED", *endpoint, *none):
        os.environ.pop(name, None)
    os.environ.update(environ)
    with exporting():
        print(tracer(), instruments())
"""


def test_nothing_is_set_up_where_nothing_is_asked_for() -> None:
    # In a process of its own: a provider can be set only once in one.
    done = subprocess.run([sys.executable, "-c", QUIET], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["None"] * 6


def test_what_cannot_be_exported_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    with exporting():
        pass
    assert "only OTLP by http/protobuf is exported" in caplog.text


def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with exporting():
        pass
    assert "Install agent-runtime-om[otlp]" in caplog.text
