"""Runs with node memory: each begins with its node's history and adds a turn when it succeeds.

The history becomes messages of the run's own thread, before its task, so the log alone shows what
the model saw.  A durable job, queued before the run's first step, records that a turn is owed.  If
the process dies before the turn is written, the node's next run writes it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from agent_runtime.agent import MAX_MESSAGES, QUERY, Agent, MemoryConfig, MemoryMode, Runnable
from agent_runtime.errors import ConfigError, NotFound, StoreError
from agent_runtime.files.long_texts import MESSAGE_CHARS
from agent_runtime.log.run_log import RunLog
from agent_runtime.log.run_spec import RunSpec
from agent_runtime.memory.conversation.turns import as_text, in_words
from agent_runtime.memory.node.document import NodeMessage
from agent_runtime.memory.node.memory import Head, NodeKey, NodeMemory, latest
from agent_runtime.messages import (
    AssistantMessage,
    FileRef,
    LoggedMessage,
    Note,
    PromptMessage,
    UserMessage,
    decode_message,
    encodable,
)
from agent_runtime_storage.contract.records.files import FileKind
from agent_runtime_storage.contract.records.log import ACTIVE, Lease, Run
from agent_runtime_storage.contract.store import UserStore

# A process that dies while it writes a turn keeps others from it for this long.
CLAIM_SECONDS = 60.0
# Short: a run that was active a moment ago ends soon, and the node's next run waits for its turn.
RETRY_SECONDS = 1.0
HISTORY = "Earlier in this conversation:"
"""Precedes a history that is given as one text."""
SETTLED_AT_ONCE = 20
"""The most missing turns of earlier runs that are written before a run begins."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodeRun:
    """A run's part in its node's memory.

    Attributes:
        anchored: whether the conversation is the thread of the root run.  The node then remembers
            the turns on that thread's branch, otherwise all turns in their order.
        query: the task without the template that it is given in; None if there is no template.
        before: the messages that the run begins with; see `load_node_run`.
        left_out: how many older turns did not fit the limits.
    """

    key: NodeKey
    compressed: bool
    anchored: bool
    run_id: str
    root_run_id: str
    query: str | None = None
    before: tuple[LoggedMessage, ...] = ()
    left_out: int = 0
    _on_branch: dict[str, bool] = field(default_factory=dict[str, bool], repr=False, compare=False)
    """By root run; each answer takes reads of the log, and a history has many turns of few runs."""

    @property
    def spec(self) -> dict[str, Any]:
        """The part of the run's spec from which `resume_node_run` restores this."""
        return {
            "app_id": self.key.app_id,
            "conversation_id": self.key.conversation_id,
            "node_id": self.key.node_id,
            "compressed": self.compressed,
            "anchored": self.anchored,
            "query": self.query,
        }

    def memory(self, store: UserStore) -> NodeMemory:
        """Return the node's memory."""
        key = self.key
        return NodeMemory(
            store, key.app_id, key.conversation_id, key.node_id, compressed=self.compressed
        )

    @property
    def turn_id(self) -> str:
        """The id of the run's turn; if anchored, it begins with the id of the root run."""
        # `head` takes the root run from the id, without a read for each turn of a long history.
        return f"{self.root_run_id}.{self.run_id}" if self.anchored else self.run_id

    def head(self, store: UserStore) -> Head:
        """Return a function that finds the newest turn on the conversation's branch."""
        if not self.anchored:
            return latest

        async def head(messages: Sequence[NodeMessage]) -> str | None:
            for message in reversed(messages):
                root_run_id = message.message_id.partition(".")[0]
                if message.role == "assistant" and await self._is_on_branch(store, root_run_id):
                    return message.message_id
            return None

        return head

    async def _is_on_branch(self, store: UserStore, root_run_id: str) -> bool:
        """Return whether a root run's answer is on the branch that this run's root continues."""
        if root_run_id not in self._on_branch:
            self._on_branch[root_run_id] = root_run_id == self.root_run_id or await _leads_to(
                store, root_run_id, self.root_run_id
            )
        return self._on_branch[root_run_id]

    async def promise(self, store: UserStore, lease: Lease) -> None:
        """Queue the job that records that this run's turn is owed."""
        await store.jobs.enqueue(lease.thread_id, self.key.path, _job_key(lease), b"")

    async def keep(self, store: UserStore, lease: Lease) -> None:
        """Write the run's turn if it has succeeded, and end the job.

        Raises no `StoreError`, since the run is over: it is logged, the job stays, and the node's
        next run writes the turn.
        """
        kind, key = self.key.path, _job_key(lease)
        try:
            run = await store.runs.get(self.run_id)
            # The turn comes first.  It is written only once, so a crash between the two does no
            # harm: the node's next run tries to write it again.
            if run.status == "succeeded":
                await self.add(store, run)
            job = await store.jobs.claim(
                kind, seconds=CLAIM_SECONDS, thread_id=lease.thread_id, key=key
            )
            if job is not None:
                await store.jobs.finish(job)
        except StoreError as error:
            _log.warning("The turn of run %s is not in %s yet: %s", self.run_id, kind, error)

    async def add(self, store: UserStore, run: Run) -> None:
        """Write the turn of a run that has succeeded, once."""
        if run.task_id is None:
            return
        task = decode_message((await store.log.node(run.thread_id, run.task_id)).body)
        memory = self.memory(store)
        await memory.add_messages(
            self.turn_id,
            self.head(store),
            user_content=task.text if self.query is None else self.query,
            user_files=task.files if isinstance(task, UserMessage) else (),
            assistant_content=_answer(run.output),
            assistant_files=await _made(store, run),
        )
        await memory.flush()

    async def settle(self, store: UserStore) -> None:
        """Write the missing turns of runs that succeeded and whose process then died."""
        # Limited, because a run waits for this; the next runs write the rest.
        for _ in range(SETTLED_AT_ONCE):
            job = await store.jobs.claim(self.key.path, seconds=CLAIM_SECONDS)
            if job is None:
                return
            run = await store.runs.get(job.key.partition(" ")[0])
            if run.status in ACTIVE:
                # It writes the turn itself, or its process is dead and a resume decides.
                await store.jobs.fail(job, retry_after=RETRY_SECONDS, detail="The run is active.")
                continue
            if run.status == "succeeded":
                node = resume_node_run(run)
                if node is not None:
                    await node.add(store, run)
            await store.jobs.finish(job)


def task_message(agent: Runnable[Any], task: str | UserMessage | None) -> UserMessage | None:
    """Return a task as its message, in the agent's template.

    Raises:
        ConfigError: the template has no place for it.
    """
    message = UserMessage(task) if isinstance(task, str) else task
    template = config_of(agent).query_prompt_template if isinstance(agent, Agent) else None
    # An empty task stays empty, so that the run is refused.
    if not template or message is None or not message.text.strip():
        return message
    if QUERY not in template:
        raise ConfigError(
            "The `query_prompt_template` has no place for the task.",
            cure=f"Put {QUERY} where the task is to stand.",
        )
    return replace(message, text=template.replace(QUERY, message.text))


async def open_run(
    agent: Runnable[Any],
    store: UserStore,
    run_id: str,
    task: str | UserMessage | None,
    *,
    thread: str | None,
    parent: RunLog | None,
) -> NodeRun | None:
    """Return the part of a new run in a node's memory; None if it has none.

    Args:
        agent: the agent or workflow to run; only an agent has a memory mode.
        task: without the agent's template.
        thread: the thread given to the run.

    Raises:
        ConfigError: there is no conversation, an id is unsafe, or there is no object store.
        CorruptDocument, ObjectsUnavailable: the memory cannot be read.
    """
    if not isinstance(agent, Agent):
        return None
    config = config_of(agent)
    if config.mode is not MemoryMode.NODE:
        if config.role_prefix is not None:
            raise ConfigError(
                f"The agent {agent.name!r} has a `role_prefix`, but its thread is its "
                "memory, whose messages stay messages.",
                cure="Use the memory mode `node`, or `ConversationMemory.history_text`.",
            )
        return None
    root_run_id, conversation = run_id, config.conversation_id or thread
    anchored = False
    if parent is not None:
        root_run_id = parent.lease.root_run_id
        anchored = not config.conversation_id
        if anchored:
            conversation = (await store.runs.get(root_run_id)).thread_id
    if not conversation:
        raise ConfigError(
            f"The agent {agent.name!r} has the memory mode `node`, but its run belongs to no "
            "conversation.",
            cure="Give the run a thread, or set `MemoryConfig.conversation_id`.",
        )
    node = NodeRun(
        NodeKey(config.app_id, conversation, config.node_id or agent.name),
        config.compressed,
        anchored,
        run_id,
        root_run_id,
        _query(task) if config.query_prompt_template else None,
    )
    await node.settle(store)
    return node


def _query(task: str | UserMessage | None) -> str | None:
    """Return the beginning of a task's text as a run's row can hold it."""
    text = task.text if isinstance(task, UserMessage) else task
    return None if text is None else encodable(text[:MESSAGE_CHARS].replace("\0", ""))


async def load_node_run(
    node: NodeRun, agent: Agent[Any], store: UserStore, takes: Collection[FileKind]
) -> NodeRun:
    """Return the node's run with the messages that it begins with.

    Args:
        takes: the kinds of files that the agent's model takes; other files count as their names.

    Raises:
        CorruptDocument, ObjectsUnavailable: the memory cannot be read.
    """
    config = config_of(agent)
    history = await node.memory(store).history(
        node.head(store),
        max_token_limit=config.max_token_limit,
        message_limit=config.window.limit(MAX_MESSAGES),
        takes=takes,
    )
    before = tuple(logged for message in history if (logged := _logged(message)) is not None)
    if config.role_prefix is not None and history:
        # A note, because a user message with the agent's words would make them the user's.
        text = as_text([in_words(message) for message in history], config.role_prefix)
        before = (Note(f"{HISTORY}\n{text}"),)
    return replace(node, before=before, left_out=history.left_out)


def resume_node_run(run: Run) -> NodeRun | None:
    """Return the part of a resumed run in a node's memory; None if it has none."""
    spec = RunSpec.of(run).node_memory
    if spec is None:
        return None
    key = NodeKey(*(str(spec.get(name, "")) for name in ("app_id", "conversation_id", "node_id")))
    compressed, anchored = bool(spec.get("compressed")), bool(spec.get("anchored"))
    query = spec.get("query")
    query = query if isinstance(query, str) else None
    return NodeRun(key, compressed, anchored, run.id, run.root_run_id, query)


def config_of(agent: Agent[Any]) -> MemoryConfig:
    """Return an agent's memory configuration. Raises `ConfigError` if its mode is unknown."""
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
    """Return whether one run's answer is an ancestor of the other's task on their thread."""
    try:
        old, new = await store.runs.get(earlier), await store.runs.get(later)
    except NotFound:
        return False
    if old.task_id is None or new.task_id is None or old.thread_id != new.thread_id:
        return False
    # The branch between the two tasks; an answer of the earlier run is the child of its task.
    line = await store.log.lineage(new.thread_id, new.task_id, first=old.task_id)
    answers = await store.log.children(old.thread_id, old.task_id)
    return any(node.run_id == earlier and node.seq in line for node in answers)


def _job_key(lease: Lease) -> str:
    # Each takeover queues a job of its own, because the former owner may still end the first one.
    return f"{lease.run_id} {lease.epoch}"


def _answer(output: bytes) -> str:
    value = orjson.loads(output) if output else ""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


async def _made(store: UserStore, run: Run) -> tuple[FileRef, ...]:
    """Return the files that a run's answer contains."""
    head = (await store.threads.get(run.thread_id)).head
    node = None if head is None else await store.log.node(run.thread_id, head)
    if node is None or node.run_id != run.id:
        return ()
    answer = decode_message(node.body)
    return answer.files if isinstance(answer, AssistantMessage) else ()


def _logged(message: PromptMessage) -> LoggedMessage | None:
    """Return a message of the history for the log; None for an empty answer."""
    if message.role == "user":
        return UserMessage(message.text, files=message.files)
    if not message.text and not message.files:
        return None
    return AssistantMessage(message.text, files=message.files)
