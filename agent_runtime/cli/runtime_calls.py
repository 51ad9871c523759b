"""Open the runtime, or only its store, for the one call that a command makes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from agent_runtime.runtime import Runtime
    from agent_runtime_config import Settings
    from agent_runtime_storage import UserStore

T = TypeVar("T")


def with_runtime(work: Callable[[Runtime], Awaitable[T]], settings: Settings | None = None) -> T:
    """Return the result of `work`, which gets a runtime of the settings given or loaded."""
    import anyio

    from agent_runtime.runtime import Runtime
    from agent_runtime_config import load_settings

    # Before the event loop, so that wrong settings are reported before anything is opened.
    chosen = settings or load_settings()

    async def call() -> T:
        async with Runtime.open(chosen) as runtime:
            return await work(runtime)

    return anyio.run(call)


def with_store(work: Callable[[UserStore], Awaitable[T]], settings: Settings | None = None) -> T:
    """Return the result of `work`, which gets the store of the settings' user.

    It does not import the runtime, which takes longer than most commands take for their work.
    """
    import anyio

    from agent_runtime.run.process.connect import store_connector
    from agent_runtime_config import load_settings

    chosen = settings or load_settings()

    async def call() -> T:
        store = await store_connector(chosen)()
        try:
            return await work(store.of(chosen.user))
        finally:
            await store.close()

    return anyio.run(call)


def user_store(runtime: Runtime) -> UserStore:
    """Return the store of the settings' user."""
    return runtime.store_of()
