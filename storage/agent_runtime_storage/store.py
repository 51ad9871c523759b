"""The store over a driver: one class, put together from a part for each subject."""

from __future__ import annotations

from agent_runtime_config.errors import ConfigError

from .contract import UserStore
from .documents import OwnedDocuments
from .files import Files
from .inbox import Inbox
from .jobs import Jobs
from .log import Log
from .maintenance import Maintenance
from .names import name_problem
from .periodic import Periodic
from .plans import Plans
from .runs import Runs
from .search import Search
from .threads import Threads
from .transfer import Transfer
from .vectors import Vectors


class SqlUserStore(
    Threads,
    Log,
    Plans,
    Runs,
    Inbox,
    Jobs,
    Periodic,
    Files,
    Transfer,
    Search,
    Vectors,
    OwnedDocuments,
):
    """`UserStore` over any driver, by the SQL of its dialect."""


class SqlStore(Maintenance):
    """`Store` over any driver."""

    def of(self, user_id: str) -> UserStore:
        """Return the store as one owner sees it.

        Raises:
            ConfigError: the owner is empty, or a name that not every database can hold.
        """
        if problem := name_problem(user_id):
            raise ConfigError(
                f"The owner (user_id) {problem}.", cure="Name the user, in at most 512 bytes."
            )
        return SqlUserStore(self._driver, user_id, self._objects)

    async def close(self) -> None:
        """Finish what was accepted, then release everything; calling it twice is harmless."""
        await self._driver.close()
