"""The store over a driver: one class, put together from a part for each subject."""

from __future__ import annotations

from agent_runtime_config.errors import ConfigError
from agent_runtime_storage.contract.names import name_problem
from agent_runtime_storage.contract.store import UserStore
from agent_runtime_storage.log.files import StoredFiles
from agent_runtime_storage.log.inbox import Inbox
from agent_runtime_storage.log.jobs import Jobs
from agent_runtime_storage.log.nodes import LogReader
from agent_runtime_storage.log.periodic_jobs import Periodic
from agent_runtime_storage.log.plans import Plans
from agent_runtime_storage.log.runs import Runs
from agent_runtime_storage.log.threads import Threads
from agent_runtime_storage.objects.documents import OwnedDocuments
from agent_runtime_storage.search.full_text import TextSearch
from agent_runtime_storage.search.vectors import Vectors
from agent_runtime_storage.upkeep.maintenance import Maintenance
from agent_runtime_storage.upkeep.transfer import Transfer


class SqlUserStore(
    Threads,
    LogReader,
    Plans,
    Runs,
    Inbox,
    Jobs,
    Periodic,
    StoredFiles,
    Transfer,
    TextSearch,
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
