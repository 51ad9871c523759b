"""The store over a driver, composed of one part for each subject."""

from __future__ import annotations

from agent_runtime_config.errors import ConfigError
from agent_runtime_storage.contract.documents import Documents
from agent_runtime_storage.contract.files import FileStore
from agent_runtime_storage.contract.inspection import InspectionStore
from agent_runtime_storage.contract.leases import LeaseStore, RateShareStore
from agent_runtime_storage.contract.log import LogStore
from agent_runtime_storage.contract.names import MAX_TITLE_CHARS, name_problem
from agent_runtime_storage.contract.questions import QuestionStore
from agent_runtime_storage.contract.queue import QueueStore, WorkQueue
from agent_runtime_storage.contract.records.objects import ObjectStore
from agent_runtime_storage.contract.runs import JobStore, RunStore
from agent_runtime_storage.contract.schedules import DueSchedules, ScheduleStore
from agent_runtime_storage.contract.search import TextSearch, VectorStore
from agent_runtime_storage.contract.service import ServiceStore
from agent_runtime_storage.contract.short_ids import IdStore
from agent_runtime_storage.contract.spending import SpendingStore
from agent_runtime_storage.contract.store import UserStore
from agent_runtime_storage.contract.threads import EventStore, InboxStore, ThreadStore
from agent_runtime_storage.contract.upkeep import Maintenance, Upkeep
from agent_runtime_storage.drivers.protocol import Driver
from agent_runtime_storage.log.events import SqlEvents
from agent_runtime_storage.log.files import SqlFiles
from agent_runtime_storage.log.inbox import SqlInbox
from agent_runtime_storage.log.inspection import SqlInspection
from agent_runtime_storage.log.jobs import SqlJobs
from agent_runtime_storage.log.leases import SqlLeases, SqlRateShares
from agent_runtime_storage.log.questions import SqlQuestions
from agent_runtime_storage.log.queue import SqlQueue, SqlWorkQueue
from agent_runtime_storage.log.reader import SqlLog
from agent_runtime_storage.log.run_misses import RunMisses
from agent_runtime_storage.log.run_statements import RunStatements
from agent_runtime_storage.log.runs import SqlRuns
from agent_runtime_storage.log.schedules import SqlDueSchedules, SqlSchedules
from agent_runtime_storage.log.service import SqlService
from agent_runtime_storage.log.short_ids import SqlIds
from agent_runtime_storage.log.spending import SqlSpending
from agent_runtime_storage.log.threads import SqlThreads
from agent_runtime_storage.objects.documents import ObjectDocuments, objects_needed
from agent_runtime_storage.objects.object_store import Objects
from agent_runtime_storage.queries.owner import OwnerScope
from agent_runtime_storage.search.full_text import SqlTextSearch, TextIndexer
from agent_runtime_storage.search.vectors import SqlVectors


class SqlUserStore:
    """`UserStore` over any driver, by the SQL of its dialect."""

    def __init__(
        self,
        driver: Driver,
        user_id: str,
        objects: Objects | None = None,
        *,
        max_title_chars: int = MAX_TITLE_CHARS,
    ) -> None:
        scope = OwnerScope(driver, user_id, objects, max_title_chars=max_title_chars)
        indexer = TextIndexer(scope)
        statements = RunStatements(scope, indexer)
        questions = SqlQuestions(scope)
        spending = SqlSpending(scope, statements)
        vectors = SqlVectors(scope)
        misses = RunMisses(scope, questions, spending)
        self.user_id = user_id
        self.threads: ThreadStore = SqlThreads(scope)
        self.log: LogStore = SqlLog(scope)
        self.runs: RunStore = SqlRuns(scope, statements, misses)
        self.inbox: InboxStore = SqlInbox(scope)
        self.events: EventStore = SqlEvents(scope)
        self.spending: SpendingStore = spending
        self.jobs: JobStore = SqlJobs(scope)
        self.files: FileStore = SqlFiles(scope)
        self.questions: QuestionStore = questions
        queue = SqlQueue(scope, statements)
        self.queue: QueueStore = queue
        self.schedules: ScheduleStore = SqlSchedules(scope, queue)
        self.search: TextSearch = SqlTextSearch(scope, indexer)
        self.vectors: VectorStore = vectors
        self.ids: IdStore = SqlIds(scope)
        self.inspection: InspectionStore = SqlInspection(scope)
        self._upkeep = scope, vectors, indexer
        self._objects = objects

    @property
    def upkeep(self) -> Upkeep:
        # Not above, nor `maintenance` below: runs do without both.
        from agent_runtime_storage.upkeep.transfer import SqlUpkeep

        return SqlUpkeep(*self._upkeep)

    @property
    def documents(self) -> Documents:
        if self._objects is None:
            raise objects_needed()
        return ObjectDocuments(self._objects, self.user_id)


class SqlStore:
    """`Store` over any driver."""

    def __init__(
        self,
        driver: Driver,
        objects: Objects | None = None,
        *,
        max_title_chars: int = MAX_TITLE_CHARS,
    ) -> None:
        self._driver = driver
        self._objects = objects
        self._max_title_chars = max_title_chars
        self.leases: LeaseStore = SqlLeases(driver)
        self.rate_shares: RateShareStore = SqlRateShares(driver)
        self.service: ServiceStore = SqlService(driver)
        self.queue: WorkQueue = SqlWorkQueue(driver)
        self.schedules: DueSchedules = SqlDueSchedules(driver)

    @property
    def maintenance(self) -> Maintenance:
        from agent_runtime_storage.upkeep.maintenance import SqlMaintenance

        return SqlMaintenance(self._driver, self._objects)

    @property
    def objects(self) -> ObjectStore | None:
        return self._objects

    def of(self, user_id: str) -> UserStore:
        if problem := name_problem(user_id):
            raise ConfigError(
                f"The owner (user_id) {problem}.", cure="Name the user, in at most 512 bytes."
            )
        # Cheap: the parts hold no state, so callers need not cache them.
        return SqlUserStore(
            self._driver, user_id, self._objects, max_title_chars=self._max_title_chars
        )

    async def close(self) -> None:
        await self._driver.close()
