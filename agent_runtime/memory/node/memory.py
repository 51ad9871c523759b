"""Node memory: the turns of one node of a workflow in one conversation.

After Dify's `NodeTokenBufferMemory`, for any kind of node: an agent, a function, a tool, or a step
of a loop over its iterations.  It is one document in the object store, at
`{owner}/node_memory/{app_id}/{conversation_id}/{node_id}.json`; `owner` is a digest of the owner's
name, so that owners cannot read each other's.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import anyio
import anyio.to_thread

from agent_runtime.agent import MAX_MESSAGES, MAX_TOKENS
from agent_runtime.errors import (
    ConfigError,
    Conflict,
    CorruptDocument,
    CorruptThread,
)
from agent_runtime.files.references import EVERY_FILE, FilePolicy
from agent_runtime.log.branches import extract
from agent_runtime.memory.conversation.turns import History, newest_turns, turns_of, with_files
from agent_runtime.memory.node.document import (
    COMPRESSED,
    PLAIN,
    NodeDocument,
    NodeMessage,
    decode_node_document,
    encode_node_document,
    new_message,
)
from agent_runtime.messages import FileRef, PromptMessage, encodable
from agent_runtime.models.tokens import count_text, load_vocabulary
from agent_runtime_storage.contract.documents import NODE_MEMORY, Document, is_segment
from agent_runtime_storage.contract.records.files import FileKind
from agent_runtime_storage.contract.store import UserStore

TRIES = 200
"""Attempts of a write when other writers keep changing the document."""
_LONGEST_WAIT = 0.1
_USER = ":user"

Head: TypeAlias = Callable[[Sequence[NodeMessage]], Awaitable[str | None]]
"""Chooses the message at which a branch ends, from all messages of the memory."""


async def latest(messages: Sequence[NodeMessage]) -> str | None:
    """Return the id of the message added last, for a memory without branches."""
    return messages[-1].message_id if messages else None


@dataclass(frozen=True, slots=True)
class NodeKey:
    """Identifies a node memory.

    Raises `ConfigError` if an id is empty or cannot be part of a key.
    """

    app_id: str
    conversation_id: str
    node_id: str

    def __post_init__(self) -> None:
        for name in ("app_id", "conversation_id", "node_id"):
            value: str = getattr(self, name)
            if not value:
                raise ConfigError(
                    f"A node memory has no {name}.",
                    cure="Node memory needs an app, a conversation and a node; name each.",
                )
            if not is_segment(value):
                raise ConfigError(
                    f"The {name} {value[:80]!r} cannot be a part of a node memory's key.",
                    cure="Use up to 128 letters, digits and . _ - : @ = +, the first one a letter, "
                    "a digit or _.",
                )

    @property
    def path(self) -> str:
        """The document's key below the owner, without the ending."""
        return f"{NODE_MEMORY}/{self.app_id}/{self.conversation_id}/{self.node_id}"


@dataclass(frozen=True, slots=True)
class _Turn:
    message_id: str
    parent: str | Head | None
    messages: tuple[NodeMessage, NodeMessage]

    async def after(self, known: Sequence[NodeMessage]) -> list[NodeMessage]:
        """Return its messages to append to those of the memory; [] if it is there already."""
        # A flush whose answer was lost has written it; a repetition must not add it twice.
        if any(one.message_id == self.message_id for one in known):
            return []
        parent = await self.parent(known) if callable(self.parent) else self.parent
        user, assistant = self.messages
        return [user.model_copy(update={"parent_message_id": parent}), assistant]


@dataclass(frozen=True, slots=True)
class _Part:
    """A document as it was read, or None, and its content."""

    document: Document | None
    content: NodeDocument


@dataclass(frozen=True, slots=True)
class _Stored:
    """A memory as it was read, from its place and from the one of the other form."""

    content: NodeDocument
    own: _Part
    other: _Part


class NodeMemory:
    """The memory of one node in one conversation. There is nothing to close.

    Added turns are buffered until `flush`.  Objects and processes may write to one memory at the
    same time: a write replaces only the version that it read, and is repeated on top of what others
    wrote since.  So no turn is lost or stored twice.

    Every method that reads or writes raises:
        CorruptDocument, UnknownVersion: the document cannot be read; it is not changed.
        ObjectsUnavailable, StoreFull: the object store cannot be used.

    Args:
        store: the owner's; files are looked up in it as well.
        compressed: store the document compressed, at `.json.zst`.  Both forms are read, and the
            next write moves the whole memory to this one.

    Raises:
        ConfigError: an id is empty or unsafe, or the database has no object store.
    """

    def __init__(
        self,
        store: UserStore,
        app_id: str,
        conversation_id: str,
        node_id: str,
        *,
        compressed: bool = False,
    ) -> None:
        self.key = NodeKey(app_id, conversation_id, node_id)
        self._store = store
        self._documents = store.documents
        self._compressed = compressed
        self._buffer: list[_Turn] = []

    async def add_messages(
        self,
        message_id: str,
        parent_message_id: str | Head | None,
        *,
        user_content: str,
        assistant_content: str,
        user_files: Sequence[FileRef] = (),
        assistant_files: Sequence[FileRef] = (),
    ) -> None:
        """Add a turn to the buffer; `flush` writes it.

        In the document the assistant's message has the turn's id, the user's that id and `:user`.
        A turn whose id is in the memory already is ignored.

        Args:
            parent_message_id: the turn that this one follows, or None.  `latest`, or another
                `Head`, finds it when the turn is written, so that turns written at the same time
                follow each other.

        Raises:
            ConfigError: the id is empty, ends with `:user`, or is that of the parent.
        """
        if not message_id or message_id.endswith(_USER) or message_id == parent_message_id:
            raise ConfigError(
                f"{message_id!r} cannot be the id of this turn.",
                cure=f"Give a new id that is not empty and does not end with `{_USER}`.",
            )
        await load_vocabulary()
        user, assistant = encodable(user_content), encodable(assistant_content)
        counts = [await _count(text) for text in (user, assistant)]
        question = new_message(message_id + _USER, None, "user", user, user_files, counts[0])
        answer = new_message(
            message_id, question.message_id, "assistant", assistant, assistant_files, counts[1]
        )
        self._buffer.append(_Turn(message_id, parent_message_id, (question, answer)))

    async def messages(self) -> list[NodeMessage]:
        """Return all messages of all branches, those of the buffer last."""
        return await self._with_buffer((await self._read()).content.messages)

    async def history(
        self,
        current_message_id: str | Head | None,
        *,
        parent_message_id: str | None = None,
        max_token_limit: int = MAX_TOKENS,
        message_limit: int = MAX_MESSAGES,
        files: FilePolicy = EVERY_FILE,
        takes: Collection[FileKind] | None = None,
    ) -> History:
        """Return the newest whole turns of one branch, oldest first, the buffer's included.

        Call it with the id of the turn that is about to be answered, before that turn is added, or
        with the id of a turn that the memory has.  The branch begins after a parent that the memory
        does not have.  A user's message without an answer at its end is left out.  The result's
        `left_out` counts the older turns that did not fit.

        Args:
            current_message_id: the turn or message that the branch ends with, or a `Head` such as
                `latest`; None for no history.  A turn that was not added yet follows its parent.
            parent_message_id: the parent of a turn that was not added yet.  The newest turn if it
                is None or not in the memory, since a node may have no part in a turn; give it where
                an answer is regenerated, because the newest turn is then the answer to replace.
            max_token_limit: the most tokens, by our count; [] if the newest turn has more.
            message_limit: the most messages.
            files: which files are shown; a line of text replaces the others, broken ones and those
                of other owners.
            takes: the kinds of files that the model takes, None for all; the others are counted as
                the line that names them.
        """
        await load_vocabulary()
        messages = await self.messages()
        head = current_message_id
        if callable(head):
            head = await head(messages)
        if head is None or not messages:
            return History()
        known = {message.message_id for message in messages}
        if head not in known:
            head = parent_message_id if parent_message_id in known else messages[-1].message_id
        turns = turns_of(self._branch(messages, head), begins=lambda one: one.role == "user")
        # The new task follows, and some providers refuse two user messages in a row.
        if turns[-1][-1].role == "user":
            del turns[-1]

        async def show(turn: Sequence[NodeMessage]) -> list[PromptMessage]:
            prompts = [PromptMessage(one.role, one.content, files=one.refs) for one in turn]
            return [await with_files(self._store, one, files) for one in prompts]

        return await newest_turns(
            turns, show, max_tokens=max_token_limit, max_messages=message_limit, takes=takes
        )

    async def flush(self) -> None:
        """Write the buffered turns; durable when it returns.

        If it fails or is cancelled, the turns stay in the buffer although they may have been
        written.  Calling it again is safe: nothing is written twice.

        Raises:
            Conflict: other writers changed the memory before each of many attempts.
        """
        # A copy: turns may be added while this one waits for the store.
        turns = list(self._buffer)
        if not turns:
            return
        for attempt in range(TRIES):
            if await self._write():
                self._buffer = [one for one in self._buffer if one not in turns]
                return
            # A random part of it, or writers that collided once would collide each time.
            await anyio.sleep(random.uniform(0, min(_LONGEST_WAIT, 0.002 * 2**attempt)))
        raise Conflict(
            f"Other writers keep changing the node memory {self.key.path}.",
            cure="Try again.",
        )

    async def clear(self) -> None:
        """Empty the buffer and delete the memory; durable when it returns.

        A turn that another object or process adds afterwards begins a new memory.
        """
        self._buffer.clear()
        for ending in (PLAIN, COMPRESSED):
            await self._documents.delete(self.key.path + ending)

    # Parts

    def _branch(self, messages: Sequence[NodeMessage], head: str) -> list[NodeMessage]:
        try:
            return extract(messages, head, ids=lambda one: (one.message_id, one.parent_message_id))
        except CorruptThread as error:
            raise CorruptDocument(
                f"The node memory {self.key.path} is damaged: {error.message}", cure=error.cure
            ) from error

    async def _with_buffer(self, messages: Sequence[NodeMessage]) -> list[NodeMessage]:
        known = list(messages)
        for turn in list(self._buffer):
            known += await turn.after(known)
        return known

    async def _read(self) -> _Stored:
        plain, compressed = self.key.path + PLAIN, self.key.path + COMPRESSED
        parts = {plain: await self._read_one(plain), compressed: await self._read_one(compressed)}
        if parts[compressed].document is not None and not parts[compressed].content.messages:
            # Emptied: the memory may have moved to the plain one since that was read.
            parts[plain] = await self._read_one(plain)
        own, other = parts[self._own], parts[self._other]
        known = {one.message_id for one in own.content.messages}
        # Messages in the other one are older.
        more = [one for one in other.content.messages if one.message_id not in known]
        extra = {**other.content.extra, **own.content.extra}
        return _Stored(NodeDocument([*more, *own.content.messages], extra), own, other)

    async def _read_one(self, place: str) -> _Part:
        document = await self._documents.read(place)
        content = (
            NodeDocument() if document is None else await decode_node_document(document.data, place)
        )
        return _Part(document, content)

    async def _write(self) -> bool:
        """Write the memory with the buffer; return False if another writer was faster."""
        stored = await self._read()
        messages = await self._with_buffer(stored.content.messages)
        moves = bool(stored.other.content.messages)
        # All turns may be there already, after a flush whose answer was lost.
        if moves or len(messages) > len(stored.content.messages):
            content = stored.content.with_messages(messages)
            data = await encode_node_document(content, compressed=self._compressed)
            # The new place is written before the old one is emptied: a crash in between leaves the
            # turns in both, where reading takes each once.
            if not await self._put(self._own, data, stored.own.document):
                return False
        if not moves:
            return True
        # Emptied, not deleted: buckets write only if the object is unchanged since it was read, but
        # delete without that condition.
        empty = await encode_node_document(NodeDocument(), compressed=not self._compressed)
        return await self._put(self._other, empty, stored.other.document)

    async def _put(self, place: str, data: bytes, there: Document | None) -> bool:
        replaces = None if there is None else there.version
        return await self._documents.write(place, data, replaces=replaces)

    @property
    def _own(self) -> str:
        return self.key.path + (COMPRESSED if self._compressed else PLAIN)

    @property
    def _other(self) -> str:
        return self.key.path + (PLAIN if self._compressed else COMPRESSED)


async def _count(text: str) -> int:
    if len(text) > 100_000:
        return await anyio.to_thread.run_sync(count_text, text)
    return count_text(text)
