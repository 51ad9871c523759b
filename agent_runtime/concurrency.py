"""Small helpers of structured concurrency."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager

from .errors import LeaseLost, StoreError


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)  # type: ignore[reportUnknownArgumentType]
        else:
            yield error


def _weight(error: BaseException) -> int:
    order = (LeaseLost, StoreError)
    return next((i for i, kind in enumerate(order) if isinstance(error, kind)), len(order))


@asynccontextmanager
async def single_error() -> AsyncGenerator[None]:
    """Raise the one error that counts instead of a task group's bundle of them.

    A lost lease comes first, then other errors of the store, then the first that was raised; the
    bundle stays as its cause.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        raise min(_leaves(group), key=_weight) from group
