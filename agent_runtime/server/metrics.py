"""`/metrics`: what this process does, in the text format of Prometheus."""

from __future__ import annotations

import hmac
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from agent_runtime.errors import StoreError
from agent_runtime.models.telemetry.tally import NANO, TALLY, Tally
from agent_runtime.run.process.health import Health
from agent_runtime.server.access import runtime_of
from agent_runtime.server.guard import FORWARDED, is_loopback
from agent_runtime_storage import ACTIVE
from agent_runtime_storage.contract.records.service import Backlog

_BACKLOG_SECONDS = 5.0
"""How long the counts of the database are used again."""


def metrics_routes() -> list[Route]:
    """Return the route `/metrics`, for programs on this machine or with the metrics token.

    With `AGENT_RUNTIME_METRICS_TOKEN` set, a request needs it as its bearer token, wherever it
    comes from.  Without, it must come from loopback and through no proxy.  Users' own tokens do
    not count: the figures are those of all users together.
    """
    return [Route("/metrics", _metrics, methods=["GET"])]


async def _metrics(request: Request) -> Response:
    runtime = runtime_of(request)
    token = runtime.settings.metrics_token
    if token is not None:
        given = request.headers.get("authorization", "").encode()
        # In constant time, so that the time of an answer shows nothing of the token.
        if not hmac.compare_digest(given, f"Bearer {token.get_secret_value()}".encode()):
            return PlainTextResponse(
                "The metrics token is missing or wrong. Send it as a bearer token.\n",
                401,
                {"WWW-Authenticate": "Bearer"},
            )
    elif not _from_this_machine(request):
        return PlainTextResponse(
            "Metrics are for programs on the same machine. Set AGENT_RUNTIME_METRICS_TOKEN to "
            "read them from elsewhere.\n",
            403,
        )
    registry = CollectorRegistry(auto_describe=False)
    backlog = await _backlog(request)
    registry.register(_Process(runtime.health(), TALLY, backlog))
    return Response(generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


async def _backlog(request: Request) -> Backlog | None:
    """Return what waits in the database, at most some seconds old; None if it does not answer."""
    state = request.app.state
    known: _Counted | None = getattr(state, "backlog", None)
    if known is None or known.at < time.monotonic() - _BACKLOG_SECONDS:
        # Also a failure is kept: a database in trouble is not asked again by each scrape.
        state.backlog = known = _Counted(time.monotonic(), known and known.backlog)
        try:
            known.backlog = await runtime_of(request).store.service.backlog()
        except StoreError:
            known.backlog = None
    return known.backlog


@dataclass(slots=True)
class _Counted:
    at: float
    backlog: Backlog | None


def _from_this_machine(request: Request) -> bool:
    # Behind a proxy on this machine everybody seems to come from it.
    if request.client is None or any(name in request.headers for name in FORWARDED):
        return False
    return is_loopback(request.client.host)


class _Process(Collector):
    """The metrics of one scrape: figures in memory, and what waits in the database."""

    def __init__(self, health: Health, tally: Tally, backlog: Backlog | None) -> None:
        self._health, self._tally, self._backlog = health, tally, backlog

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        yield from self._now()
        yield from self._waiting()
        yield from self._so_far()

    def _now(self) -> Iterator[Metric]:
        health = self._health
        states = [(("running",), health.running), (("waiting",), health.waiting)]
        yield _gauge("runs", "Runs of this process, by state.", states, "state")
        yield _gauge("open_exchanges", "Runs whose tools are at work.", health.open_exchanges)
        yield _gauge("background_tasks", "Tasks in the background.", health.background)
        lags = [(("0.5",), health.loop_lag_p50), (("0.99",), health.loop_lag_p99)]
        about = "Seconds by which the event loop was late, over the last minutes."
        yield _gauge("loop_lag_seconds", about, lags, "quantile")
        about = "Seconds since the renewal of the lease renewed longest ago."
        yield _gauge("lease_age_seconds", about, health.lease_age)
        yield _gauge("closing", "1 if it admits no more runs.", health.closing)
        yield _counter("leases_lost", "Runs that others took over.", health.leases_lost)

    def _waiting(self) -> Iterator[Metric]:
        if self._backlog is None:
            return
        about = "Questions of the whole database that wait for an answer."
        yield _gauge("open_questions", about, self._backlog.questions)
        runs = self._backlog.runs
        states = [((state,), runs.get(state, 0)) for state in sorted(ACTIVE)]
        about = "Runs of the whole database that are not over; `queued` is the queue."
        yield _gauge("stored_runs", about, states, "status")

    def _so_far(self) -> Iterator[Metric]:
        tally = self._tally
        yield _counter("steps", "Steps of runs.", tally.steps)
        about = "Runs that ended or were suspended."
        yield _counter("runs_ended", about, tally.runs.items(), "status", "stop_reason")
        yield _counter("questions", "Questions to people.", tally.questions)
        calls = [((purpose,), n) for purpose, n in tally.calls.items()]
        yield _counter("model_calls", "Recorded calls of models.", calls, "purpose")
        about = "Tokens; the cached ones are part of `input`."
        yield _counter("tokens", about, tally.tokens.items(), "purpose", "kind")
        cost = [((purpose,), n / NANO) for purpose, n in tally.cost.items()]
        yield _counter("cost_dollars", "Cost, where the price is known.", cost, "purpose")
        yield _counter("unpriced_calls", "Calls whose price is unknown.", tally.unpriced)
        prompt = sum(n for (_, kind), n in tally.tokens.items() if kind == "input")
        cached = sum(n for (_, kind), n in tally.tokens.items() if kind == "cache_read")
        share = cached / prompt if prompt else 0.0
        yield _gauge("cache_share", "Share of input tokens that a cache served.", share)
        stalled = [((why,), n) for why, n in tally.stalled.items()]
        yield _counter("stalled_seconds", "Waits that model calls announced.", stalled, "why")
        yield _counter("commits", "Commits of runs.", tally.commits)


_Values = float | Iterable[tuple[tuple[str, ...], float]]


def _gauge(name: str, about: str, values: _Values, *labels: str) -> Metric:
    return _filled(GaugeMetricFamily(f"agent_runtime_{name}", about, labels=labels), values)


def _counter(name: str, about: str, values: _Values, *labels: str) -> Metric:
    return _filled(CounterMetricFamily(f"agent_runtime_{name}", about, labels=labels), values)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, values: _Values) -> Metric:
    rows = values if isinstance(values, Iterable) else [((), float(values))]
    for labels, value in rows:
        family.add_metric(labels, value)
    return family
