"""Conversation memory: a thread's newest turns within a token budget.

After Dify's `TokenBufferMemory`.  For prompts that a program builds itself, such as those of a
classifier or a template; an agent's run needs none of this.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from agent_runtime.agent import MAX_MESSAGES, MAX_TOKENS, MemoryWindow, RolePrefix
from agent_runtime.files.references import EVERY_FILE, FilePolicy
from agent_runtime.memory.conversation.turns import (
    History,
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
from agent_runtime_storage.contract.records.files import FileKind
from agent_runtime_storage.contract.records.log import Node
from agent_runtime_storage.contract.store import UserStore

_NEWS = ("steer", "background")
"""Sources of the notes that say something new; the others restate."""
_FIRST_PAGE = 64
_NEXT_PAGE = 8
"""Factor by which the page grows until a limit is reached."""


class ConversationMemory:
    """Reads what was said on a thread. It holds nothing, so there is nothing to close."""

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

        A turn is a user's message and everything up to the next one.  The newest turn is left out
        while a run is working on it; turns of runs that failed or were cancelled are included.
        The result's `left_out` counts the older turns that did not fit.

        Args:
            max_token_limit: the most tokens, by our count; [] if the newest turn has more.
            message_limit: the most messages.
            window: if on, its size replaces `message_limit`.
            current_message_id: the node at which the branch ends, None for the thread's head.  A
                user's message there is left out, since it is the one to answer.
            files: which files are shown; a line of text replaces the others, and broken ones.
            takes: the kinds of files that the model takes, None for all; the others are counted as
                the line that names them.

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
        """Return the history as plain text, each message after its role.

        Tool calls and results are left out and not counted.  Raises like `history`.
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
        thread = await self._store.threads.get(self._thread_id)
        head = thread.head if current is None else current
        open_task = (
            None if head is None else await self._open_task(thread.active_run, head, current)
        )
        if open_task is not None:
            head = (await self._store.log.node(self._thread_id, open_task)).parent_id
        if head is None:
            return History()
        show = partial(self._show, files=files, results=results)
        size = _FIRST_PAGE
        while True:
            # The first turn of a page may lack its beginning; if it fits, read a larger page.
            nodes = await self._store.log.branch(self._thread_id, head, limit=size)
            whole = nodes[0].parent_id is None
            turns = turns_of(nodes, begins=lambda node: node.role == "user")
            shown = await newest_turns(
                turns, show, max_tokens=max_token_limit, max_messages=message_limit, takes=takes
            )
            if whole or shown.left_out:
                return shown
            size *= _NEXT_PAGE

    async def _open_task(
        self, active_run: str | None, head: int, current: int | None
    ) -> int | None:
        """Return the user's message on the branch that has no answer yet."""
        if active_run is not None:
            # Only if the branch has it: another branch is not what the run works on.
            task = (await self._store.runs.get(active_run)).task_id
            if task and task in await self._store.log.lineage(self._thread_id, head, first=task):
                return task
        if (
            current is not None
            and (await self._store.log.node(self._thread_id, head)).role == "user"
        ):
            return current
        return None

    async def _show(
        self, turn: Sequence[Node], *, files: FilePolicy, results: bool
    ) -> list[PromptMessage]:
        shown: list[PromptMessage] = []
        for node in turn:
            message = decode_message(node.body)
            # Its results are missing, and a call without a result cannot be sent.
            if node.status == "open":
                continue
            if isinstance(message, Note):
                if message.source in _NEWS:
                    shown.append(PromptMessage("user", message.text))
                continue
            for one in render_entry(entry_of(node), ActivationContent(), keep_opaque=False):
                if results or (one.role != "tool" and (one.text or not one.calls)):
                    known = await with_files(self._store, one, files)
                    # Plain text holds no files, so the lines that name them are counted.
                    shown.append(known if results else in_words(known))
        return shown
