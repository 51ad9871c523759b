"""Ids as people type them: whole, by a unique beginning or end, or `last`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from agent_runtime.cli.display.short_ids import is_uuid, short_id
from agent_runtime.cli.runtime_calls import with_store
from agent_runtime.cli.terminal import printable, shorten, time_text

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from agent_runtime_storage import UserStore
    from agent_runtime_storage.contract.records.log import Run
    from agent_runtime_storage.contract.short_ids import IdKind, IdMatch

LAST = "last"
LEAST = 4
"""The least characters of a beginning or end."""
LEAST_OF_NEW = 6
"""The same where a name that does not exist would create a thread."""
_LISTED = 8


class IdType(click.ParamType[str]):
    """The id of a thread, run or question: whole, a unique beginning or end, or `last`.

    A text that matches nothing is kept: the command reports that there is no such id, or creates
    the thread of that name.

    Args:
        kind: what the id names.
        new: whether a name that does not exist creates a thread, so that only the end or the
            beginning of a UUID is taken for a short id.
    """

    def __init__(self, kind: IdKind, *, new: bool = False) -> None:
        self.name = kind
        self._kind: IdKind = kind
        self._new = new

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        text = str(value)
        # Completion parses half a line, and must not open the database for it.
        if is_uuid(text) or (ctx is not None and ctx.resilient_parsing):
            return text
        if text != LAST and not self._may_be_short(text):
            return text
        found = with_store(lambda store: find_id(store, self._kind, text))
        if self._new and text != LAST and not is_uuid(found):
            return text
        return found

    def _may_be_short(self, text: str) -> bool:
        if self._new:
            return len(text) >= LEAST_OF_NEW and not text.lower().strip("0123456789abcdef-")
        return len(text) >= LEAST

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the newest ids that begin or end as typed, with their titles."""
        from agent_runtime.cli.parameters.id_completion import complete_ids

        return complete_ids(self._kind, incomplete, LAST, short_id)


class NodeType(click.ParamType[int]):
    """The number of a node, or `LAST_NODE` for `last`."""

    name = "node"

    def __init__(self, least: int = 1) -> None:
        self._least = least

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if value in (LAST, LAST_NODE):
            return LAST_NODE
        convert: Callable[..., int] = click.IntRange(min=self._least).convert
        return convert(value, param, ctx)


LAST_NODE = -1
"""The node that `last` names: the head, or the newest message of the user."""
THREAD = IdType("thread")
NEW_THREAD = IdType("thread", new=True)
RUN = IdType("run")
QUESTION = IdType("question")


async def find_id(store: UserStore, kind: IdKind, text: str) -> str:
    """Return the id that a text names; the text itself if nothing matches.

    Raises:
        click.UsageError: several ids begin or end so.
        NotFound: `last` of nothing.
    """
    matches = await store.ids.find(kind, text, limit=_LISTED + 1)
    exact = [one.id for one in matches if one.id == text]
    if text == LAST and not exact:
        return await _LAST_OF[kind](store)
    if exact or len(matches) == 1:
        return (exact or [matches[0].id])[0]
    # An id that matches exactly may be older than those that only begin so.
    if not matches or await _exists(store, kind, text):
        return text
    raise click.UsageError(_ambiguous(kind, text, matches))


def _ambiguous(kind: IdKind, text: str, matches: list[IdMatch]) -> str:
    lines = [
        f"  {shorten(one.id, 80)}  {time_text(one.updated_at)}  {shorten(one.title, 60)}".rstrip()
        for one in matches[:_LISTED]
    ]
    more = ["  …"] if len(matches) > _LISTED else []
    head = f"{printable(text)!r} names several {kind}s; type more of one of them:"
    return "\n".join([head, *lines, *more])


async def _exists(store: UserStore, kind: IdKind, name: str) -> bool:
    from agent_runtime.errors import NotFound

    get: dict[IdKind, Callable[[str], Awaitable[object]]] = {
        "thread": store.threads.get,
        "run": store.runs.get,
        "question": store.questions.get,
    }
    try:
        await get[kind](name)
    except NotFound:
        return False
    return True


async def _last_thread(store: UserStore) -> str:
    from agent_runtime.cli.workspaces import MOST, is_other_folder, workspace_of

    for thread in await store.threads.list(limit=MOST, children=False):
        if not is_other_folder(workspace_of(thread)):
            return thread.id
    raise _nothing("thread")


async def _last_run(store: UserStore) -> str:
    return (await last_run(store)).id


async def last_run(store: UserStore) -> Run:
    """Return the newest run of this folder that a person began. Raises `NotFound`."""
    from agent_runtime.cli.workspaces import is_other_folder, workspaces
    from agent_runtime.log.run_spec import RunSpec

    runs = await store.runs.list(limit=1000)
    folders = await workspaces(store, runs)
    for run in runs:
        own = run.parent_run_id is None and not RunSpec.of(run).upkeep
        if own and not is_other_folder(folders[run.id]):
            return run
    raise _nothing("run")


async def _last_question(store: UserStore) -> str:
    from agent_runtime.cli.workspaces import is_other_folder, workspace_of

    for question in await store.questions.list(status="open", limit=100):
        run = await store.runs.get(question.run_id)
        root = await store.runs.get(run.root_run_id)
        if not is_other_folder(workspace_of(await store.threads.get(root.thread_id))):
            return question.id
    raise _nothing("question")


def _nothing(kind: str) -> Exception:
    from agent_runtime.errors import NotFound

    return NotFound(
        f"There is no {kind} in this folder that `{LAST}` could name.",
        cure=f"`agent-runtime {kind}s` lists those of all folders; name one by its id.",
    )


_LAST_OF: dict[IdKind, Callable[[UserStore], Awaitable[str]]] = {
    "thread": _last_thread,
    "run": _last_run,
    "question": _last_question,
}
