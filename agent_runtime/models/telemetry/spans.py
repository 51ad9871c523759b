"""Spans: made where the program has set a provider, current while their work runs."""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal

import anyio

from agent_runtime.models.telemetry import conventions as names

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Span, Tracer, TracerProvider

SCOPE = "agent_runtime"
"""The name of the instrumentation scope."""

_made: tuple[TracerProvider, Tracer] | None = None
_with_contents: ContextVar[bool] = ContextVar("telemetry_contents", default=False)


def tracer() -> Tracer | None:
    """Return the tracer of the program's provider; None if it has set none."""
    global _made
    # Not imported here: who sets a provider has imported it, and all others are spared the time.
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return None
    provider = api.get_tracer_provider()
    if isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider):
        return None
    # An SDK makes a new tracer at each request.
    if _made is None or _made[0] is not provider:
        _made = provider, provider.get_tracer(SCOPE)
    return _made[1]


@contextmanager
def contents(show: bool) -> Generator[None]:
    """Let the spans made inside show contents: messages, arguments, results."""
    token = _with_contents.set(show)
    try:
        yield
    finally:
        _with_contents.reset(token)


def shows_contents() -> bool:
    """Return whether spans made here show contents."""
    return _with_contents.get()


@contextmanager
def span(
    name: str,
    attributes: Mapping[str, Any],
    *,
    kind: Literal["internal", "client"] = "internal",
    links: tuple[Link, ...] = (),
) -> Generator[Span | None]:
    """Make a span that is current inside the `with`; yield None where nobody records it.

    An error becomes the span's status and `error.type`; its text may quote contents, so it is left
    out.  A cancellation is an outcome and not an error.
    """
    made_by = tracer()
    if made_by is None:
        yield None
        return
    from opentelemetry.trace import SpanKind, use_span

    current = made_by.start_span(
        name,
        kind=SpanKind.CLIENT if kind == "client" else SpanKind.INTERNAL,
        attributes=dict(attributes),
        links=links,
    )
    with use_span(current, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        if not current.is_recording():
            # It was not sampled; what is made inside must know, so it is current all the same.
            yield None
            return
        try:
            yield current
        except anyio.get_cancelled_exc_class():
            current.set_attribute(names.OUTCOME, "cancelled")
            raise
        # The consumer of a stream has stopped reading, which is no failure.
        except GeneratorExit:
            raise
        except BaseException as error:
            fail(current, type(error).__name__)
            raise


def fail(current: Span, kind: str) -> None:
    """Mark a span as failed, by a word that has few values."""
    from opentelemetry.trace import StatusCode

    current.set_status(StatusCode.ERROR)
    current.set_attribute(names.ERROR_TYPE, kind)


def annotate(attributes: Mapping[str, Any]) -> None:
    """Add attributes to the current span, if there is one."""
    if (current := current_span()) is not None:
        current.set_attributes(attributes)


def current_span() -> Span | None:
    """Return the current span; None if nobody records it."""
    if tracer() is None:
        return None
    from opentelemetry.trace import get_current_span

    current = get_current_span()
    return current if current.is_recording() else None


def traceparent() -> str:
    """Return the current span in W3C's form, to be stored; empty if there is none."""
    if tracer() is None:
        return ""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent", "")


def link_to(stored: str) -> tuple[Link, ...]:
    """Return the link to a span that `traceparent` stored; none if it cannot be read."""
    if not stored or tracer() is None:
        return ()
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, get_current_span
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    # An empty context: a text that cannot be read must not give the current span.
    found = TraceContextTextMapPropagator().extract({"traceparent": stored}, Context())
    before = get_current_span(found).get_span_context()
    return (Link(before),) if before.is_valid else ()
