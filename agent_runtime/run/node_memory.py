"""Runs in the mode `node`: each begins with its node's history and adds a turn at its end.

The history becomes messages of the run's own thread, before its task, so the log alone says what
the model saw.  The turn is written once the run has succeeded; a durable job, queued before the
run's first step, stands for it until then, and the next run of the node makes good what a crash
in between left undone.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from agent_runtime.agent import MAX_MESSAGES, Agent, MemoryConfig, MemoryMode
from agent_runtime.errors import ConfigError, NotFound, StoreError
from agent_runtime.log.run_log import RunLog
from agent_runtime.log.run_spec import RunSpec
from agent_runtime.memory.node.document import NodeMessage
from agent_runtime.memory.node.memory import Head, NodeKey, NodeMemory, latest
from agent_runtime.messages import (
    AssistantMessage,
    FileRef,
    LoggedMessage,
    PromptMessage,
    UserMessage,
    decode_message,
)
from agent_runtime.run.lifecycle import RunDriver
from agent_runtime_storage.contract.records import ACTIVE, FileKind, Finish, Lease, Run
from agent_runtime_storage.contract.store import UserStore

CLAIM_SECONDS = 60.0
RETRY_SECONDS = 1.0
SETTLED_AT_ONCE = 20
"""So many turns of earlier runs are made good before one begins."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodeRun:
    """What a run has to do with its node's memory.

    Attributes:
        anchored: whether the conversation is the thread of the run at the root of the tree.  Then
            its branch says which turns the node remembers; else they follow each other.
        before: what the run begins with; see `load_node_run`.
        left_out: how many older turns did not fit its limits.
    """

    key: NodeKey
    compressed: bool
    anchored: bool
    run_id: str
    root_run_id: str
    before: tuple[LoggedMessage, ...] = ()
    left_out: int = 0
    _stands: dict[str, bool] = field(default_factory=dict[str, bool], repr=False, compare=False)

    @property
    def spec(self) -> dict[str, Any]:
        """What is kept of it with the run."""
        return {
            "app_id": self.key.app_id,
            "conversation_id": self.key.conversation_id,
            "node_id": self.key.node_id,
            "compressed": self.compressed,
            "anchored": self.anchored,
        }

    def memory(self, store: UserStore) -> NodeMemory:
        """Return the node's memory."""
        key = self.key
        return NodeMemory(
            store, key.app_id, key.conversation_id, key.node_id, compressed=self.compressed
        )

    @property
    def turn_id(self) -> str:
        """The id of the run's turn; one that is anchored names its root."""
        return f"{self.root_run_id}.{self.run_id}" if self.anchored else self.run_id

    def head(self, store: UserStore) -> Head:
        """Return what finds the newest turn on the conversation's branch."""
        if not self.anchored:
            return latest

        async def head(messages: Sequence[NodeMessage]) -> str | None:
            for one in reversed(messages):
                root_run_id = one.message_id.partition(".")[0]
                if one.role == "assistant" and await self._is_on_branch(store, root_run_id):
                    return one.message_id
            return None

        return head

    async def _is_on_branch(self, store: UserStore, root_run_id: str) -> bool:
        """Return whether what a run said stands on the branch that this run's root goes on with."""
        if root_run_id not in self._stands:
            self._stands[root_run_id] = root_run_id == self.root_run_id or await _leads_to(
                store, root_run_id, self.root_run_id
            )
        return self._stands[root_run_id]

    async def promise(self, store: UserStore, lease: Lease) -> None:
        """Queue the job that stands for the turn of this run."""
        await store.enqueue(lease.thread_id, self.key.path, _job_key(lease), b"")

    async def keep(self, store: UserStore, lease: Lease) -> None:
        """Write the turn of the run if it has succeeded, and end its job.

        What fails is told in the program's log only, since the run is over: the job stays, and
        the node's next run makes it good.
        """
        kind, key = self.key.path, _job_key(lease)
        try:
            run = await store.run(self.run_id)
            if run.status == "succeeded":
                await self.add(store, run)
            job = await store.claim(kind, seconds=CLAIM_SECONDS, thread_id=lease.thread_id, key=key)
            if job is not None:
                await store.finish_job(job)
        except StoreError as error:
            _log.warning("The turn of run %s is not in %s yet: %s", self.run_id, kind, error)

    async def add(self, store: UserStore, run: Run) -> None:
        """Write the turn of a run that has succeeded, once."""
        if run.task_id is None:
            return
        task = decode_message((await store.node(run.thread_id, run.task_id)).body)
        memory = self.memory(store)
        await memory.add_messages(
            self.turn_id,
            self.head(store),
            user_content=task.text,
            user_files=task.files if isinstance(task, UserMessage) else (),
            assistant_content=_answer(run.output),
            assistant_files=await _made(store, run),
        )
        await memory.flush()

    async def settle(self, store: UserStore) -> None:
        """Write the turns of runs that succeeded and were cut off before they could."""
        for _ in range(SETTLED_AT_ONCE):
            job = await store.claim(self.key.path, seconds=CLAIM_SECONDS)
            if job is None:
                return
            run = await store.run(job.key.partition(" ")[0])
            if run.status in ACTIVE:
                await store.fail_job(job, retry_after=RETRY_SECONDS, detail="The run is not over.")
                continue
            if run.status == "succeeded":
                found = resume_node_run(run)
                if found is not None:
                    await found.add(store, run)
            await store.finish_job(job)


class NodeMemoryDriver:
    """Drives a run as another driver does, once the job for its turn is queued."""

    def __init__(self, driver: RunDriver, node: NodeRun) -> None:
        self.state, self.log = driver.state, driver.log
        self.node = node
        self._driver = driver

    async def drive(self) -> Finish:
        """Run to the end, as the driver does."""
        await self.node.promise(self.log.store, self.log.lease)
        return await self._driver.drive()

    async def finish(self, finish: Finish) -> Finish:
        """End the run, as the driver does."""
        return await self._driver.finish(finish)


def with_node_memory(driver: RunDriver, node: NodeRun | None) -> RunDriver:
    """Return what drives a run whose turn belongs into a node's memory, if it does."""
    return driver if node is None else NodeMemoryDriver(driver, node)


async def open_node_run(
    agent: object, store: UserStore, run_id: str, *, thread: str | None, parent: RunLog | None
) -> NodeRun | None:
    """Return what a run that is to begin has to do with a node's memory; None if nothing.

    Args:
        agent: what is to run; only an agent has a memory mode.
        thread: the thread that was given to the run.

    Raises:
        ConfigError: there is no conversation, an id is unsafe, or there is no object store.
        CorruptDocument, ObjectsUnavailable: the memory cannot be read.
    """
    if not isinstance(agent, Agent):
        return None
    config = config_of(agent)
    if config.mode is not MemoryMode.NODE:
        return None
    root_run_id, conversation = run_id, config.conversation_id or thread
    anchored = False
    if parent is not None:
        root_run_id = parent.lease.root_run_id
        anchored = not config.conversation_id
        if anchored:
            conversation = (await store.run(root_run_id)).thread_id
    if not conversation:
        raise ConfigError(
            f"The agent {agent.name!r} has the memory mode `node`, and its run has no conversation "
            "whose node it could be.",
            cure="Give the run a thread, or set `MemoryConfig.conversation_id`.",
        )
    node = NodeRun(
        NodeKey(config.app_id, conversation, config.node_id or agent.name),
        config.compressed,
        anchored,
        run_id,
        root_run_id,
    )
    await node.settle(store)
    return node


async def load_node_run(
    node: NodeRun, agent: Agent, store: UserStore, takes: Collection[FileKind]
) -> NodeRun:
    """Return the node's run with what its memory holds; see `open_node_run` for what it raises.

    Args:
        takes: the kinds of files that the agent's model takes; the others count as their names.
    """
    config = config_of(agent)
    history = await node.memory(store).history(
        node.head(store),
        max_token_limit=config.max_token_limit,
        message_limit=config.window.limit(MAX_MESSAGES),
        takes=takes,
    )
    before = tuple(message for one in history if (message := _logged(one)) is not None)
    return replace(node, before=before, left_out=history.left_out)


def resume_node_run(run: Run) -> NodeRun | None:
    """Return what a run that was begun earlier has to do with a node's memory."""
    spec = RunSpec.of(run).node_memory
    if spec is None:
        return None
    key = NodeKey(*(str(spec.get(name, "")) for name in ("app_id", "conversation_id", "node_id")))
    compressed, anchored = bool(spec.get("compressed")), bool(spec.get("anchored"))
    return NodeRun(key, compressed, anchored, run.id, run.root_run_id)


def config_of(agent: Agent) -> MemoryConfig:
    """Return how an agent remembers.

    Raises:
        ConfigError: its mode is none.
    """
    if isinstance(agent.memory, MemoryConfig):
        return agent.memory
    try:
        return MemoryConfig(MemoryMode(agent.memory))
    except ValueError as error:
        modes = ", ".join(f"`{mode}`" for mode in MemoryMode)
        raise ConfigError(
            f"The agent {agent.name!r} has an unknown memory mode.", cure=f"Use one of {modes}."
        ) from error


async def _leads_to(store: UserStore, earlier: str, later: str) -> bool:
    """Return whether what one run said lies before the task of another on their thread."""
    try:
        old, new = await store.run(earlier), await store.run(later)
    except NotFound:
        return False
    if old.task_id is None or new.task_id is None or old.thread_id != new.thread_id:
        return False
    line = await store.lineage(new.thread_id, new.task_id, first=old.task_id)
    answers = await store.children(old.thread_id, old.task_id)
    return any(one.run_id == earlier and one.seq in line for one in answers)


def _job_key(lease: Lease) -> str:
    # Each time that a run is taken up it is a promise of its own.
    return f"{lease.run_id} {lease.epoch}"


def _answer(output: bytes) -> str:
    value = orjson.loads(output) if output else ""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


async def _made(store: UserStore, run: Run) -> tuple[FileRef, ...]:
    """Return the files of a run's answer."""
    head = (await store.thread(run.thread_id)).head
    node = None if head is None else await store.node(run.thread_id, head)
    if node is None or node.run_id != run.id:
        return ()
    answer = decode_message(node.body)
    return answer.files if isinstance(answer, AssistantMessage) else ()


def _logged(message: PromptMessage) -> LoggedMessage | None:
    """Return a message of the history as the log holds it; None for an empty answer."""
    if message.role == "user":
        return UserMessage(message.text, files=message.files)
    if not message.text and not message.files:
        return None
    return AssistantMessage(message.text, files=message.files)
