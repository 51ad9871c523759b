"""Node memory: what one node of a workflow said and was told in one conversation.

After Dify's `NodeTokenBufferMemory`, for whatever a node is: an agent, a function, a tool, or a
step of a loop that goes on over its iterations.  It is one document in the object store, at
`{owner}/node_memory/{app_id}/{conversation_id}/{node_id}.json`; `owner` is a digest of the owner's
name, so that nobody reads another's.
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
    NotFound,
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
from agent_runtime_storage.contract.records import FileKind
from agent_runtime_storage.contract.store import UserStore
from agent_runtime_storage.objects.documents import NODE_MEMORY, Document, is_segment

TRIES = 200
"""How often a write is tried again that others were quicker than."""
_LONGEST_WAIT = 0.1
_USER = ":user"

Head: TypeAlias = Callable[[Sequence[NodeMessage]], Awaitable[str | None]]
"""Says at which message a branch ends, of those that the memory has when it is asked."""


async def latest(messages: Sequence[NodeMessage]) -> str | None:
    """Return the id of the message that was added last: for a memory that has no branches."""
    return messages[-1].message_id if messages else None


def newest_of(message_ids: Collection[str]) -> Head:
    """Return what finds the newest of these messages that the memory has.

    For a node that does not take part in each turn: with the ids of the conversation's branch, it
    gives the last turn in which the node did.
    """

    async def head(messages: Sequence[NodeMessage]) -> str | None:
        found = (one.message_id for one in reversed(messages) if one.message_id in message_ids)
        return next(found, None)

    return head


@dataclass(frozen=True, slots=True)
class NodeKey:
    """Which node's memory it is.

    Raises `ConfigError` if an id cannot be a part of a key.
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
        """The key, without the ending and relative to the owner."""
        return f"{NODE_MEMORY}/{self.app_id}/{self.conversation_id}/{self.node_id}"


@dataclass(frozen=True, slots=True)
class _Turn:
    message_id: str
    parent: str | Head | None
    messages: tuple[NodeMessage, NodeMessage]

    async def after(self, known: Sequence[NodeMessage]) -> list[NodeMessage]:
        """Return its messages as they follow on those that are there."""
        if any(one.message_id == self.message_id for one in known):
            return []
        parent = await self.parent(known) if callable(self.parent) else self.parent
        user, assistant = self.messages
        return [user.model_copy(update={"parent_message_id": parent}), assistant]


@dataclass(frozen=True, slots=True)
class _Part:
    """A document as it was read, None if there is none, and what it holds."""

    document: Document | None
    content: NodeDocument


@dataclass(frozen=True, slots=True)
class _Found:
    """A memory as it was read, from where it belongs and from where it may have lain before."""

    content: NodeDocument
    own: _Part
    other: _Part


class NodeMemory:
    """The memory of one node in one conversation. There is nothing to close.

    What is added is buffered until `flush`.  Objects and processes may write to one memory at the
    same time: each write is made in the place of what was read, and made again on top of what
    others wrote meanwhile, so no turn is lost, and none is there twice.

    Every method that reads or writes raises:
        CorruptDocument, UnknownVersion: the document cannot be read; it is left as it is.
        ObjectsUnavailable, StoreFull: the object store cannot be used.

    Args:
        store: the owner's; files are looked up in it as well.
        compressed: keep the document compressed, at `.json.zst`.  Either is read whatever this
            says, and the next write moves the whole memory to where it belongs.

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
        self._documents = store.documents()
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
        """Add a turn, to be written by `flush`.

        In the document the assistant's message has the turn's id, the user's has it with `:user`.
        An id that is there already changes nothing: the first turn stands.

        Args:
            parent_message_id: the turn that this one follows (None: none does); `latest` or another
                `Head` finds it when the turn is written, so that turns that are written at once
                follow each other.

        Raises:
            ConfigError: the id is empty, ends with `:user`, or is that of the parent.
        """
        if not message_id or message_id.endswith(_USER) or message_id == parent_message_id:
            raise ConfigError(
                f"{message_id!r} cannot be the id of this turn.",
                cure=f"Give one of its own that is not empty and does not end with `{_USER}`.",
            )
        await load_vocabulary()
        user, assistant = encodable(user_content), encodable(assistant_content)
        counts = [await _count(text) for text in (user, assistant)]
        asked = new_message(message_id + _USER, None, "user", user, user_files, counts[0])
        answered = new_message(
            message_id, asked.message_id, "assistant", assistant, assistant_files, counts[1]
        )
        self._buffer.append(_Turn(message_id, parent_message_id, (asked, answered)))

    async def messages(self) -> list[NodeMessage]:
        """Return all messages of whatever branch, those of the buffer last."""
        return await self._with_buffer((await self._read()).content.messages)

    async def history(
        self,
        current_message_id: str | Head | None,
        *,
        max_token_limit: int = MAX_TOKENS,
        message_limit: int = MAX_MESSAGES,
        files: FilePolicy = EVERY_FILE,
        takes: Collection[FileKind] | None = None,
    ) -> History:
        """Return the newest whole turns of one branch, oldest first, the buffer's included.

        The branch is taken before any limit.  It begins behind a parent that the memory does not
        have.  A user's message at its end that has no answer yet is left out.  `left_out` says how
        many older turns did not fit.

        Args:
            current_message_id: the turn (or message) that the branch ends with; None for none,
                which has no history.  `latest` and `newest_of` find it.
            max_token_limit: the most tokens, in our count; a newest turn with more gives nothing.
            message_limit: the most messages.
            files: which files are shown; for one that is not, or is broken or another owner's,
                stands a text.
            takes: the kinds of files that the model takes; the others count for the limit as the
                line that names them. None for all kinds.

        Raises:
            NotFound: the memory has messages, but not this one.
        """
        await load_vocabulary()
        messages = await self.messages()
        head = current_message_id
        if callable(head):
            head = await head(messages)
        if head is None or not messages:
            return History()
        turns = turns_of(self._branch(messages, head), begins=lambda one: one.role == "user")
        if turns[-1][-1].role == "user":
            del turns[-1]

        async def show(turn: Sequence[NodeMessage]) -> list[PromptMessage]:
            prompts = [PromptMessage(one.role, one.content, files=one.refs) for one in turn]
            return [await with_files(self._store, one, files) for one in prompts]

        return await newest_turns(
            turns,
            show,
            max_tokens=max_token_limit,
            max_messages=message_limit,
            takes=takes,
        )

    async def flush(self) -> None:
        """Write what was added; durable when it returns.

        If it fails or is cancelled, what was added stays in the buffer, and may have been written
        all the same: calling it again writes nothing twice.

        Raises:
            Conflict: others kept writing to the memory, each time just before.
        """
        turns = list(self._buffer)
        if not turns:
            return
        for attempt in range(TRIES):
            if await self._write():
                self._buffer = [one for one in self._buffer if one not in turns]
                return
            await anyio.sleep(random.uniform(0, min(_LONGEST_WAIT, 0.002 * 2**attempt)))
        raise Conflict(
            f"The node memory {self.key.path} is written to by others all the time.",
            cure="Try again.",
        )

    async def clear(self) -> None:
        """Drop what was added, and delete the memory; durable when it returns.

        What another object or process adds from then on begins a new one.
        """
        self._buffer.clear()
        for ending in (PLAIN, COMPRESSED):
            await self._documents.delete(self.key.path + ending)

    # Parts

    def _branch(self, messages: Sequence[NodeMessage], head: str) -> list[NodeMessage]:
        try:
            return extract(messages, head, ids=lambda one: (one.message_id, one.parent_message_id))
        except NotFound as error:
            raise NotFound(
                f"The node memory {self.key.path} has no message {head!r}.",
                cure="Give a turn that was added, or `newest_of` the conversation's ids.",
            ) from error
        except CorruptThread as error:
            raise CorruptDocument(
                f"The node memory {self.key.path} is damaged: {error.message}", cure=error.cure
            ) from error

    async def _with_buffer(self, messages: Sequence[NodeMessage]) -> list[NodeMessage]:
        known = list(messages)
        for turn in list(self._buffer):
            known += await turn.after(known)
        return known

    async def _read(self) -> _Found:
        plain, compressed = self.key.path + PLAIN, self.key.path + COMPRESSED
        found = {plain: await self._read_one(plain), compressed: await self._read_one(compressed)}
        if found[compressed].document is not None and not found[compressed].content.messages:
            # It may have moved to the other one since that was read.
            found[plain] = await self._read_one(plain)
        own, other = found[self._own], found[self._other]
        known = {one.message_id for one in own.content.messages}
        # What is still in the other one was there first.
        more = [one for one in other.content.messages if one.message_id not in known]
        extra = {**other.content.extra, **own.content.extra}
        return _Found(NodeDocument([*more, *own.content.messages], extra), own, other)

    async def _read_one(self, place: str) -> _Part:
        document = await self._documents.read(place)
        content = (
            NodeDocument() if document is None else await decode_node_document(document.data, place)
        )
        return _Part(document, content)

    async def _write(self) -> bool:
        """Write the memory with what was added; return whether nobody else was quicker."""
        found = await self._read()
        messages = await self._with_buffer(found.content.messages)
        moves = bool(found.other.content.messages)
        if moves or len(messages) > len(found.content.messages):
            content = found.content.with_messages(messages)
            data = await encode_node_document(content, compressed=self._compressed)
            if not await self._put(self._own, data, found.own.document):
                return False
        if not moves:
            return True
        # Emptied, not deleted: a bucket refuses to write over what has changed since it was read,
        # but not to delete it.
        empty = await encode_node_document(NodeDocument(), compressed=not self._compressed)
        return await self._put(self._other, empty, found.other.document)

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
