"""Explain where a message is now: in the prompt, observed, archived, or only in the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from agent_runtime.log.branch import load_view, observation_of
from agent_runtime.messages import call_id, searchable
from agent_runtime.prompt.build import entry_of
from agent_runtime.prompt.observation import Observation, ObservationLine
from agent_runtime.prompt.view import Entry, View
from agent_runtime_storage.contract.records.log import Node
from agent_runtime_storage.contract.records.observations import ObservationRow
from agent_runtime_storage.contract.store import UserStore
from agent_runtime_storage.search.query_expansion import forms_of
from agent_runtime_storage.search.query_groups import content_words
from agent_runtime_storage.search.tokenizer import query_words

NodeForm = Literal[
    "raw",
    "shortened",
    "task",
    "context",
    "observed",
    "archived",
    "condensed",
    "unobserved",
    "elsewhere",
    "open",
]
"""The form of a node: `raw`; `shortened`, with results cut; only the `task`, or a note of the
`context`, on top; `observed`, by lines that tell of it; `archived`, where the observation's lines
were replaced by a pointer; `condensed`, where no line mentions it now; `unobserved`, outside of the
prompt without an observation; on another branch (`elsewhere`); or `open`, an exchange in progress.
"""

_SAME = 1 / 3
"""A line is about a node if this share of its words are the node's."""
_READ = 20_000
_FORMS: Mapping[NodeForm, str] = {
    "raw": "in the prompt as it was written",
    "shortened": "in the prompt, with shortened results",
    "task": "in the prompt as the run's task, above the recent messages",
    "context": "in the prompt as a note of the context, after the system prompt",
    "observed": "an observation stands for it, with the lines below",
    "archived": "an observation points to it; its lines were archived",
    "condensed": "an observation stands for it, without a line of its own",
    "unobserved": "outside of the prompt; no observation stands for it",
    "elsewhere": "on another branch of the thread, not in the prompt",
    "open": "an exchange in progress",
}


@dataclass(frozen=True, slots=True)
class ShortenedResult:
    """A result of which prompts show a part.

    Attributes:
        shown: characters that are shown.
        of: characters that it has.
    """

    handle: str
    tool: str
    shown: int
    of: int


@dataclass(frozen=True, slots=True)
class NodeExplanation:
    """Where a message is now.

    Attributes:
        role: `user`, `assistant` or `note`.
        created_at: in seconds since the epoch.
        tokens: of the message and its results as they were logged, in our count.
        form: in what form the prompt has it.
        forks_from: the node from which its branch leaves the thread's; None on the thread's own.
        shortened: its results that the prompt shows in part.
        observations: those that stand for it: the one in the prompt first, then its parts down to
            the one of messages.  Without one in the prompt, those that are ready for it.
        active: whether the first of them is in the prompt.
        lines: the lines of the first that tell of it.
        replaced: the lines of the one of messages that tell of it, where these are others.
        constraint: the user's requirement in it, as prompts show it apart; empty for none.
        handle: what `recall` opens it by.
    """

    thread_id: str
    node: int
    role: str
    created_at: float
    tokens: int
    form: NodeForm
    handle: str
    forks_from: int | None = None
    shortened: tuple[ShortenedResult, ...] = ()
    observations: tuple[Observation, ...] = ()
    active: bool = False
    lines: tuple[ObservationLine, ...] = ()
    replaced: tuple[ObservationLine, ...] = ()
    constraint: str = ""

    @property
    def summary(self) -> str:
        """The form in words."""
        return _FORMS[self.form]


async def explain_node(store: UserStore, thread_id: str, number: int) -> NodeExplanation:
    """Return where a node of a thread is now.

    Raises:
        NotFound: there is no such thread or node.
    """
    head = (await store.threads.get(thread_id)).head
    return await explain_in(store, thread_id, number, head, await load_view(store, thread_id, head))


async def explain_in(
    store: UserStore, thread_id: str, number: int, head: int | None, view: View | None
) -> NodeExplanation:
    """Return where a node of a thread is in a prompt.

    Args:
        head: the last node of the prompt's branch.
        view: the prompt's; None for a branch without an activation.

    Raises:
        NotFound: there is no such thread or node.
    """
    node = await store.log.node(thread_id, number)
    view = await load_view(store, thread_id, head) if view is None else view
    # All of them, since a reflection of any age may stand for it.
    rows = await store.log.observations(thread_id, ending_from=number)
    forks_from = await _fork(store, thread_id, number, head)
    on_branch = forks_from is None
    standing = _standing(number, rows, view) if on_branch else ()
    active = bool(standing) and standing[0].id in {one.id for one in view.observations}
    entry = next((one for one in view.entries if one.seq == number), None)
    whole = entry_of(node) if node.status != "open" else None
    lines = _lines(standing[0], node, whole) if standing else ()
    at_first = _lines(standing[-1], node, whole) if standing else ()
    shortened = _shortened(entry, view)
    required = {one.node: one.text for one in view.start.constraints.items}
    return NodeExplanation(
        thread_id=thread_id,
        node=number,
        role=node.role,
        created_at=node.created_at,
        tokens=node.tokens,
        form=_form(node, view, entry, standing, lines, shortened, here=on_branch, active=active),
        handle=str(number),
        forks_from=forks_from,
        shortened=shortened,
        observations=standing,
        active=active,
        lines=lines,
        replaced=() if at_first == lines else at_first,
        constraint=required.get(number, "") if on_branch else "",
    )


async def _fork(store: UserStore, thread_id: str, number: int, head: int | None) -> int | None:
    """Return the last common node with the thread's branch; None if the node is on it."""
    if head is None:
        return None
    # Numbers rise along a branch, so the thread's is read from the node on only.
    if number in (await store.log.lineage(thread_id, head, first=number))[:1]:
        return None
    own = await store.log.lineage(thread_id, number)
    # The exchange in progress follows the head.
    if len(own) > 1 and own[-2] == head:
        return None
    shared = set(own) & set(await store.log.lineage(thread_id, head))
    return max(shared, default=0)


def _standing(number: int, rows: Sequence[ObservationRow], view: View) -> tuple[Observation, ...]:
    """Return the observations that stand for a node, from the one in the prompt downwards."""
    around = {one.id: one for one in rows if one.first <= number <= one.last}
    top = next((one for one in view.observations if one.first <= number <= one.last), None)
    if top is None:
        # Ready, but not in the prompt: the newest, which a model wrote again if rules did before.
        ready = [one for one in around.values() if not one.level]
        return (observation_of(ready[-1]),) if ready else ()
    chain = [top]
    while (below := next((one for one in chain[-1].parts if one in around), None)) is not None:
        chain.append(observation_of(around[below]))
    return tuple(chain)


def _form(
    node: Node,
    view: View,
    entry: Entry | None,
    standing: Sequence[Observation],
    lines: Sequence[ObservationLine],
    shortened: Sequence[ShortenedResult],
    *,
    here: bool,
    active: bool,
) -> NodeForm:
    if node.status == "open":
        return "open"
    if not here:
        return "elsewhere"
    if entry is not None:
        return "shortened" if shortened else "raw"
    if node.seq in view.start.context:
        return "context"
    if active and lines:
        return "observed"
    if node.seq == view.start.task:
        return "task"
    if not active:
        return "unobserved"
    archive = standing[0].archive
    gone = archive is not None and archive.first <= node.seq <= archive.last
    return "archived" if gone else "condensed"


def _shortened(entry: Entry | None, view: View) -> tuple[ShortenedResult, ...]:
    if entry is None:
        return ()
    calls = getattr(entry.message, "calls", ())
    short: list[ShortenedResult] = []
    for index, (call, result) in enumerate(zip(calls, entry.results, strict=False)):
        handle = call_id(entry.seq, index)
        cut = view.start.cuts.get(handle)
        limits = [entry.shown[index] if index < len(entry.shown) else None]
        limits.append(cut.chars if cut else None)
        shown = min((one for one in limits if one is not None), default=len(result.text))
        if shown < len(result.text):
            short.append(ShortenedResult(handle, call.name, shown, len(result.text)))
    return tuple(short)


def _lines(
    observation: Observation, node: Node, entry: Entry | None
) -> tuple[ObservationLine, ...]:
    """Return the lines that tell of a node: that name it, or else share its words."""
    named = [line for line in observation.notes.lines if line.node == node.seq]
    if named or entry is None:
        return tuple(named)
    texts = [searchable(entry.message), *(searchable(result) for result in entry.results)]
    words = set(query_words(" ".join(texts)[:_READ], plain=True)) | {
        word for text in texts for word in text[:_READ].lower().split()
    }

    def tells(line: ObservationLine) -> bool:
        wanted = content_words(query_words(line.text, plain=True))
        shared = sum(any(form in words for form in forms_of(word)) for word in wanted)
        return not line.node and bool(shared) and shared >= _SAME * len(wanted)

    return tuple(line for line in observation.notes.lines if tells(line))
