"""Switch the checks of requests on: for tests, since they encode each prompt once more."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

from agent_runtime.models.base import ModelRequest

_checking = 0


@contextlib.contextmanager
def checked_requests() -> Generator[None]:
    """Check each request of this process by its provider's rules, for the time of a `with`.

    A request that the provider would refuse raises an `InvariantError` instead of being sent, also
    where a scripted model answers: its requests are checked by the rules of all providers.
    """
    global _checking
    # Counted, because such blocks may be nested.
    _checking += 1
    try:
        yield
    finally:
        _checking -= 1


def check_if_asked(request: ModelRequest, model: str) -> None:
    """Check a request for a model by its name, within `checked_requests`.

    Raises:
        InvariantError: its provider would refuse it; without a wire of ours, any provider would.
    """
    if _checking:
        # Here, so that the rules are not loaded in production.
        from agent_runtime.models.wire.rules.check import check_request

        check_request(request, model)
