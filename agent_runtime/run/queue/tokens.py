"""Workers on Procrastinate: its jobs are tokens, each of which lets one worker look for work.

A token is bound to no run.  Whoever takes one picks what is due, or finds nothing.  So it does no
harm if a token is lost, doubled or late: the rows of the queue say what is to be done, and each
worker looks at them from time to time without a token.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import random
from collections.abc import Awaitable, Callable
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, LiteralString, cast

import anyio

from agent_runtime.concurrency import cancel
from agent_runtime_config import Settings
from agent_runtime_storage.sql.loader import parse_blocks
from agent_runtime_storage.urls import backend_of

if TYPE_CHECKING:
    import psycopg
    from procrastinate import App

QUEUE, TASK = "agent_runtime", "pick"
FETCH_SECONDS = 5.0
"""How long a token waits whose notification was lost."""
LONGEST_PAUSE = 60.0
"""Seconds until a worker whose tokens failed tries again, at most; it polls meanwhile."""

_log = logging.getLogger(__name__)


def carrier_of(settings: Settings) -> TokenCarrier | None:
    """Return what brings tokens to a worker; None without Postgres or the extra `workers`."""
    if backend_of(settings.database_url) != "postgres":
        return None
    if importlib.util.find_spec("procrastinate") is None:
        return None
    return TokenCarrier(settings.database_url)


class TokenCarrier:
    """Runs a worker of Procrastinate in this process, whose one task wakes ours."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def carry(
        self, wake: Callable[[], Awaitable[None]], carrying: Callable[[bool], None]
    ) -> None:
        """Call `wake` for each token that this process takes, until it is cancelled.

        Args:
            carrying: called with whether tokens arrive, whenever that changes.
        """
        pause = 1.0
        while True:
            try:
                # It takes a second, which the event loop does not have.
                app = await asyncio.to_thread(self._app, wake)
                await self._install()
                carrying(True)
                pause = 1.0
                await _work(app)
            except Exception as error:
                # The text may quote the URL.
                _log.warning(
                    "No tokens of Procrastinate, so this worker polls: %s", type(error).__name__
                )
            finally:
                carrying(False)
            # Random, so that workers that lost the database together do not come back together.
            await anyio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, LONGEST_PAUSE)

    def _app(self, wake: Callable[[], Awaitable[None]]) -> App:
        from procrastinate import App, PsycopgConnector

        connector = PsycopgConnector(
            conninfo=self._url,
            min_size=1,
            max_size=2,
            # Not by `options`, which PgBouncer does not pass on.
            configure=_set_path,
            kwargs={"application_name": "agent_runtime_tokens"},
        )
        app = App(connector=connector)

        # Procrastinate runs other callables than plain coroutine functions in a thread.
        @app.task(name=TASK, queue=QUEUE)
        async def pick() -> None:  # pyright: ignore[reportUnusedFunction]
            await wake()

        return app

    async def _install(self) -> None:
        """Create the tables of the tokens, or those of another version again.

        Raises:
            psycopg.Error: the login may not.
            RuntimeError: a newer version of Procrastinate has made them.
        """
        # Here, as nothing above: only workers on Postgres need these.
        from importlib.metadata import version as installed

        import psycopg

        own = installed("procrastinate")
        async with await psycopg.AsyncConnection.connect(self._url) as connection:
            # Workers that start together would otherwise create the schema twice.
            await _execute(connection, "lock")
            found = await (await _execute(connection, "installed")).fetchone()
            version = str(found[0] or "") if found else ""
            if _ordered(version) > _ordered(own):
                raise RuntimeError("A newer version of Procrastinate works on this database.")
            if version != own:
                # Nothing in them has to last.
                for step in ("remove", "create", "path"):
                    await _execute(connection, step)
                await connection.execute(_schema())
                await _execute(connection, "create_wake")
                await _execute(connection, "share")
                comment = cast(
                    "LiteralString", f"COMMENT ON SCHEMA agent_runtime_tokens IS '{own}'"
                )
                await connection.execute(comment)
            # The triggers of the tables name others without their schema.
            await _execute(connection, "path")
            await _execute(connection, "clear")


async def _work(app: App) -> None:
    async with app.open_async():
        # A task of its own: Procrastinate survives one cancellation, and a scope would send more.
        working = asyncio.create_task(
            app.run_worker_async(
                queues=[QUEUE],
                # A token only wakes this process's one loop, which fills all of its slots.
                concurrency=1,
                # The program handles signals itself, and drains its runs first.
                install_signal_handlers=False,
                fetch_job_polling_interval=FETCH_SECONDS,
                shutdown_graceful_timeout=0,
                # A token that was used says nothing to anybody.
                delete_jobs="always",
            )
        )
        try:
            await asyncio.wait([working])
            await working
        finally:
            await cancel(working)
            # Its connection may break by that; asyncio would report it at the exit.
            if not working.cancelled():
                working.exception()


async def _set_path(connection: psycopg.AsyncConnection[Any]) -> None:
    await _execute(connection, "path")
    await connection.commit()


async def _execute(connection: psycopg.AsyncConnection[Any], name: str) -> psycopg.AsyncCursor[Any]:
    return await connection.execute(cast("LiteralString", _queries()[name]))


@cache
def _queries() -> dict[str, str]:
    file = resources.files(__package__ or "").joinpath("tokens.sql")
    return parse_blocks(file.read_text("utf-8"))


def _schema() -> LiteralString:
    from procrastinate.schema import SchemaManager

    return SchemaManager.get_schema()


def _ordered(version: str) -> tuple[int, ...]:
    """Return a version's numbers, by which versions compare."""
    return tuple(int(part) for part in version.split(".") if part.isdecimal())
