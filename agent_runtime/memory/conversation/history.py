"""Conversation memory: a thread's newest turns within a budget of tokens.

After Dify's `TokenBufferMemory`.  It is for prompts of one's own, such as those of a classifier or
of a template; an agent's run on the thread has the thread's whole memory by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from agent_runtime.agent import MAX_MESSAGES, MAX_TOKENS, MemoryWindow
from agent_runtime.files.references import EVERY_FILE, FilePolicy
from agent_runtime.memory.conversation.turns import (
    History,
    RolePrefix,
    as_text,
    in_words,
    newest_turns,
    turns_of,
    with_files,
)
from agent_runtime.messages import Note, PromptMessage, decode_message
from agent_runtime.models.tokens import load_vocabulary
from agent_runtime.prompt.build import entry_of
from agent_runtime.prompt.render import render_entry
from agent_runtime.prompt.view import ActivationContent
from agent_runtime_storage.contract.records import FileKind, Node
from agent_runtime_storage.contract.store import UserStore

_NEWS = ("steer", "background")
"""Of the runtime's notes, those that tell something new; the others restate."""
_FIRST_PAGE = 64
_NEXT_PAGE = 8
"""How many times as many nodes are read if the first did not reach a limit."""


class ConversationMemory:
    """What was said on a thread, as its owner sees it. Nothing is kept, and nothing to close."""

    def __init__(self, store: UserStore, thread_id: str) -> None:
        self._store = store
        self._thread_id = thread_id

    async def history(
        self,
        *,
        max_token_limit: int = MAX_TOKENS,
        message_limit: int = MAX_MESSAGES,
        window: MemoryWindow | None = None,
        current_message_id: int | None = None,
        files: FilePolicy = EVERY_FILE,
        takes: Collection[FileKind] | None = None,
    ) -> History:
        """Return the newest whole turns of one branch, oldest first.

        A turn is a user's message with all that followed up to the next one, each tool call with
        its results.  The branch is taken before any limit.  The newest turn is left out while a
        run is at work on it; the turns of runs that ended are in, whatever they ended with.
        `left_out` says how many older turns did not fit.

        Args:
            max_token_limit: the most tokens, in our count; a newest turn with more gives nothing.
            message_limit: the most messages.
            window: where it is on, its size takes the place of `message_limit`.
            current_message_id: the node at which the branch ends, None for the thread's head; of
                a user's message it is what came before it, since that is the one to answer.
            files: which files are shown; for one that is not, or is broken, stands a text.
            takes: the kinds of files that the model takes; the others count for the limit as the
                line that names them. None for all kinds.

        Raises:
            NotFound: the owner has no such thread or node.
            CorruptThread: the chain of nodes is broken.
        """
        limit = window.limit(message_limit) if window else message_limit
        return await self._newest(
            max_token_limit, limit, current_message_id, files, takes, results=True
        )

    async def history_text(
        self,
        *,
        role_prefix: RolePrefix | None = None,
        max_token_limit: int = MAX_TOKENS,
        message_limit: int = MAX_MESSAGES,
        window: MemoryWindow | None = None,
        current_message_id: int | None = None,
        files: FilePolicy = EVERY_FILE,
    ) -> str:
        """Return the history as plain text for a prompt, a role before what each said.

        Tool calls and results are left out, and count for no limit.  Raises like `history`.
        """
        limit = window.limit(message_limit) if window else message_limit
        shown = await self._newest(
            max_token_limit, limit, current_message_id, files, None, results=False
        )
        return as_text(shown, role_prefix or RolePrefix())

    async def _newest(
        self,
        max_token_limit: int,
        message_limit: int,
        current: int | None,
        files: FilePolicy,
        takes: Collection[FileKind] | None,
        *,
        results: bool,
    ) -> History:
        await load_vocabulary()
        thread = await self._store.thread(self._thread_id)
        head = thread.head if current is None else current
        asked = None if head is None else await self._asked(thread.active_run, head, current)
        if asked is not None:
            head = (await self._store.node(self._thread_id, asked)).parent_id
        if head is None:
            return History()
        show = partial(self._show, files=files, results=results)
        size = _FIRST_PAGE
        while True:
            # The first turn of a page may be cut: if it fits all the same, a larger page is read.
            nodes = await self._store.branch(self._thread_id, head, limit=size)
            whole = nodes[0].parent_id is None
            turns = turns_of(nodes, begins=lambda node: node.role == "user")
            shown = await newest_turns(
                turns,
                show,
                max_tokens=max_token_limit,
                max_messages=message_limit,
                takes=takes,
            )
            if whole or shown.left_out:
                return shown
            size *= _NEXT_PAGE

    async def _asked(self, active_run: str | None, head: int, current: int | None) -> int | None:
        """Return the user's message that is still to be answered on the branch."""
        if active_run is not None:
            task = (await self._store.run(active_run)).task_id
            if task is not None and task in await self._store.lineage(
                self._thread_id, head, first=task
            ):
                return task
        if current is not None and (await self._store.node(self._thread_id, head)).role == "user":
            return current
        return None

    async def _show(
        self, turn: Sequence[Node], *, files: FilePolicy, results: bool
    ) -> list[PromptMessage]:
        shown: list[PromptMessage] = []
        for node in turn:
            message = decode_message(node.body)
            if node.status == "open":
                continue
            if isinstance(message, Note):
                if message.source in _NEWS:
                    shown.append(PromptMessage("user", message.text))
                continue
            for one in render_entry(entry_of(node), ActivationContent(), keep_opaque=False):
                if results or (one.role != "tool" and (one.text or not one.calls)):
                    known = await with_files(self._store, one, files)
                    # Plain text holds no file, so only the line that names it counts.
                    shown.append(known if results else in_words(known))
        return shown
