"""A run's hold on its thread's log: the branch as prompts see it, and every write for the run.

The view in memory is what a reload from the store would give; it only saves reading it again at
each step.  Only the holder of the run's lease writes nodes, so the next `seq` is known here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import anyio

from agent_runtime.concurrency import run_shielded
from agent_runtime.events import Event, EventKind
from agent_runtime.log.branch import activation_event, activation_row, node_row
from agent_runtime.log.exchange import Exchange as Exchange
from agent_runtime.messages import (
    AssistantMessage,
    LoggedMessage,
    Note,
    ToolResult,
    encode_result,
    searchable,
)
from agent_runtime.models.cost import add_amounts
from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.build import extend_view
from agent_runtime.prompt.render import shown_text
from agent_runtime.prompt.view import Entry, View
from agent_runtime_storage.contract.records import (
    Amount,
    CallDone,
    CallShown,
    Commit,
    Finish,
    InboxItem,
    Lease,
    NewEvent,
    NewNode,
    Usage,
)
from agent_runtime_storage.contract.spending_records import NO_LIMITS, Limits
from agent_runtime_storage.contract.store import UserStore


def _tokens(text: str) -> int:
    # A text this long is cut when its exchange closes, and counted again then.
    return count_text(text) if len(text) <= 200_000 else len(text) // 4


@dataclass(slots=True)
class RunLog:
    """The log of one run's thread, as the run's lease holder writes it.

    Every method that writes is one transaction: once it begins, a cancellation of any kind waits
    until the log and this object agree, and an error of a listener comes after that.  All raise
    `LeaseLost` when another process took over.
    """

    store: UserStore
    lease: Lease
    view: View
    head: int | None
    last_seq: int
    last_activation: int
    last_observation: int
    steps: int
    emit: Callable[[Event], None]
    limits: Limits = NO_LIMITS
    """What its reservations keep to, beside the budget of its tree."""
    reserved: Amount | None = None
    held: Amount = field(default_factory=Amount)
    """What memory has reserved beside the loop; the run's end counts it as spent."""
    exchange: Exchange | None = None
    ended: bool = False
    """Whether the run's end is written; nothing more can be."""
    interrupted: asyncio.CancelledError | None = None
    """A cancellation that came while the run began; `announce` raises it."""
    writing: anyio.Lock = field(default_factory=anyio.Lock)
    """The loop and memory commit one after the other: each takes the ids that come next."""
    began: tuple[tuple[NewEvent, int], ...] = ()
    """The events of the run's beginning, with their ids; `announce` tells of them."""

    async def write(
        self,
        commit: Commit,
        then: Callable[[], None] = lambda: None,
        live: Mapping[int, Mapping[str, Any]] | None = None,
    ) -> None:
        """Commit, then tell of its events.

        Args:
            then: brings this object up to date with the commit.
            live: by place among the events, what listeners are told beside what is kept.
        """
        async with self.writing:
            if commit.finish is not None and self.held != Amount():
                commit = replace(
                    commit,
                    release=add_amounts(commit.release or Amount(), self.held),
                    unsettle=add_amounts(commit.unsettle or Amount(), self.held),
                )
            last, interrupted = await run_shielded(self.store.commit(self.lease, commit))
            self._advance(commit)
        then()
        first = last - len(commit.events) + 1
        for place, event in enumerate(commit.events):
            more = live.get(place) if live else None
            told = replace(event, data={**event.data, **more}) if more else event
            self.tell(told, first + place)
        if interrupted is not None:
            raise interrupted

    def _advance(self, commit: Commit) -> None:
        self.last_seq += len(commit.nodes)
        self.last_activation += commit.activation is not None
        self.head = self.head if commit.head is None else commit.head
        self.steps = self.steps if commit.steps is None else commit.steps
        self.ended = commit.finish is not None
        if commit.finish is not None:
            self.held = Amount()
        if commit.release is not None:
            self.reserved = None
        if commit.reserve is not None:
            self.reserved = commit.reserve

    def begun(
        self,
        messages: Sequence[LoggedMessage],
        rows: Sequence[NewNode],
        events: Sequence[NewEvent],
        last_event: int,
    ) -> None:
        """Take over what the beginning of the run wrote."""
        self._appended(messages, rows)
        if rows:
            # Without any, the run answers the user's message at the head again.
            self.last_seq, self.head = rows[-1].seq, rows[-1].seq
        ids = range(last_event - len(events) + 1, last_event + 1)
        self.began = tuple(zip(events, ids, strict=True))

    def announce(self) -> None:
        """Tell of the run's beginning; raise the cancellation that came meanwhile, if one did."""
        began, self.began = self.began, ()
        for event, event_id in began:
            self.tell(event, event_id)
        interrupted, self.interrupted = self.interrupted, None
        if interrupted is not None:
            raise interrupted

    def _appended(self, messages: Sequence[LoggedMessage], rows: Sequence[NewNode]) -> None:
        for message, row in zip(messages, rows, strict=True):
            self.view = extend_view(
                self.view, Entry(row.seq, row.parent_id, message, at=time.time())
            )

    async def tell_of(self, event: NewEvent) -> None:
        """Record an event by itself."""
        await self.write(Commit(events=(event,)))

    def tell(self, event: NewEvent, event_id: int = 0) -> None:
        """Hand an event to whoever listens; id 0 is for those that are live only."""
        self.emit(
            Event(
                kind=cast(EventKind, event.kind),
                thread_id=self.lease.thread_id,
                run_id=self.lease.run_id,
                id=event_id,
                node_id=event.node_id,
                data=event.data,
            )
        )

    async def activate(self, view: View, cause: str) -> None:
        """Begin prompts anew as the view says."""
        # On another branch the thread may have later activations than this one's.
        view = replace(view, activation_id=self.last_activation + 1)
        await self.write(
            Commit(
                activation=activation_row(view, cause),
                events=(activation_event(self.view, view, cause),),
            ),
            then=lambda: self._see(view),
        )

    def _see(self, view: View) -> None:
        self.view = view

    async def has_ended(self) -> bool:
        """Return whether the run's end is written, once what is being written now is known."""
        async with self.writing:
            return self.ended

    async def asked(self) -> tuple[bool, bool]:
        """Return whether a cancel of this run was asked for, and whether its inbox is filled."""
        return await self.store.poll(self.lease)

    async def reserve(self, amount: Amount, *, unsettle: Amount | None = None) -> None:
        """Reserve the next call, or (with `unsettle`) the next attempt after one that was lost.

        Raises:
            BudgetExceeded: it does not fit; nothing was written.
        """
        await self.write(
            Commit(release=self.reserved, unsettle=unsettle, reserve=amount, limits=self.limits)
        )

    @property
    def next_seq(self) -> int:
        """The seq of the next node to be written."""
        return self.last_seq + 1

    def _rows(self, messages: Sequence[LoggedMessage], parent_id: int | None) -> list[NewNode]:
        rows: list[NewNode] = []
        for seq, message in enumerate(messages, self.next_seq):
            rows.append(
                node_row(
                    message,
                    seq=seq,
                    parent_id=parent_id,
                    activation_id=self.view.activation_id,
                )
            )
            parent_id = seq
        return rows

    async def append(
        self,
        messages: Sequence[LoggedMessage],
        *,
        drained: Sequence[InboxItem] = (),
        finish: Finish | None = None,
        events: Sequence[NewEvent] = (),
        usage: Sequence[Usage] = (),
        settle: Amount | None = None,
        unsettle: Amount | None = None,
        step: bool = False,
        quiet_inbox: bool = False,
    ) -> None:
        """Append messages without calls under the head, or none; or end the run.

        Raises:
            InboxWaiting: `quiet_inbox` is set, and something is in the inbox; nothing was written.
        """
        rows = self._rows(messages, self.head)
        await self.write(
            Commit(
                nodes=tuple(rows),
                head=rows[-1].seq if rows else None,
                drained=tuple(item.id for item in drained),
                usage=tuple(usage),
                release=self.reserved if settle is not None or finish is not None else None,
                settle=settle,
                unsettle=unsettle,
                steps=self.steps + 1 if step else None,
                finish=finish,
                quiet_inbox=quiet_inbox,
                events=tuple(events),
            ),
            then=lambda: self._appended(messages, rows),
        )

    async def open(
        self,
        message: AssistantMessage,
        usage: Usage,
        settle: Amount,
        unsettle: Amount,
        event: NewEvent,
        keep: Callable[[Exchange], Amount | None] = lambda exchange: None,
    ) -> None:
        """Write an answer with calls ahead: each call pending, the head where it was.

        Args:
            keep: what the runs below it have to leave for it from then on; None for as before.
        """
        row = self._rows([message], self.head)[0]
        exchange = Exchange(row.seq, message, time.time())
        await self.write(
            Commit(
                nodes=(row,),
                keep=keep(exchange),
                usage=(usage,),
                release=self.reserved,
                settle=settle,
                unsettle=unsettle,
                steps=self.steps + 1,
                events=(event,),
            ),
            then=lambda: self._begin(exchange),
        )

    def _begin(self, exchange: Exchange) -> None:
        self.exchange = exchange

    async def start(self, indices: Sequence[int], done: dict[int, ToolResult]) -> None:
        """Mark calls as started, and record results that need no run, in one transaction."""
        exchange = self.open_exchange()
        calls = exchange.message.calls
        events = [
            NewEvent("tool-start", exchange.seq, {"call_id": calls[i].id, "tool": calls[i].name})
            for i in indices
        ]
        rows = [self._done(i, result) for i, result in done.items()]

        def started() -> None:
            exchange.results.update(done)
            exchange.started.update(indices)

        await self.write(
            Commit(
                start=tuple((exchange.seq, i) for i in indices),
                done=tuple(rows),
                events=(*events, *(self._finished(i, r, cut=False) for i, r in done.items())),
            ),
            then=started,
            live={place: {"arguments": calls[i].arguments} for place, i in enumerate(indices)},
        )

    async def finish_call(self, index: int, result: ToolResult) -> None:
        """Record one result of several."""
        exchange = self.open_exchange()
        await self.write(
            Commit(
                done=(self._done(index, result),),
                events=(self._finished(index, result, cut=False),),
            ),
            then=lambda: exchange.results.update({index: result}),
        )

    async def close(
        self,
        done: dict[int, ToolResult],
        shown: Sequence[int | None],
        *,
        notes: Sequence[Note] = (),
        drained: Sequence[InboxItem] = (),
        reserve: Callable[[View], Amount | None] = lambda view: None,
        finish: Finish | None = None,
        events: Sequence[NewEvent] = (),
    ) -> None:
        """Record the last results, close the exchange and drain the inbox into notes.

        Args:
            done: the results that are not recorded yet, by call index.
            shown: for every call, how many characters of its result prompts show; None for all.
            reserve: gives what to reserve for the next call by the view to come; None leaves it
                to `reserve`.

        Raises:
            BudgetExceeded: the reservation does not fit; nothing was written.
        """
        exchange = self.open_exchange()
        calls = exchange.message.calls
        results = exchange.results | done
        ordered = tuple(results[index] for index in range(len(calls)))
        entry = Entry(
            exchange.seq, self.head, exchange.message, ordered, tuple(shown), at=exchange.at
        )
        view = extend_view(self.view, entry)
        rows = self._rows(notes, exchange.seq)
        for note, row in zip(notes, rows, strict=True):
            view = extend_view(view, Entry(row.seq, row.parent_id, note, at=time.time()))
        cut = tuple(
            CallShown(
                exchange.seq, i, chars, count_text(shown_text(ordered[i].text, call.id, chars))
            )
            for i, (call, chars) in enumerate(zip(calls, shown, strict=True))
            if chars is not None
        )
        told = [self._finished(i, r, cut=shown[i] is not None) for i, r in done.items()]
        told += [
            NewEvent("note", row.seq, {"source": n.source})
            for n, row in zip(notes, rows, strict=True)
        ]
        await self.write(
            Commit(
                done=tuple(self._done(i, result) for i, result in done.items()),
                shown=cut,
                close=(exchange.seq,),
                nodes=tuple(rows),
                head=rows[-1].seq if rows else exchange.seq,
                drained=tuple(item.id for item in drained),
                release=self.reserved if finish is not None else None,
                reserve=None if finish is not None else reserve(view),
                finish=finish,
                events=(*told, *events),
            ),
            then=lambda: self._closed(view),
        )

    def _closed(self, view: View) -> None:
        self.view, self.exchange = view, None

    def open_exchange(self) -> Exchange:
        """Return the exchange under way."""
        if self.exchange is None:
            raise RuntimeError("no exchange is open")
        return self.exchange

    def _done(self, index: int, result: ToolResult) -> CallDone:
        exchange = self.open_exchange()
        return CallDone(
            node_id=exchange.seq,
            index=index,
            outcome=result.outcome,
            body=encode_result(result),
            tokens=_tokens(result.text),
            text=searchable(result, exchange.message.calls[index].name),
        )

    def _finished(self, index: int, result: ToolResult, *, cut: bool) -> NewEvent:
        call = self.open_exchange().message.calls[index]
        data = {
            "call_id": call.id,
            "tool": call.name,
            "outcome": result.outcome,
            "chars": len(result.text),
            "cut": cut,
        }
        return NewEvent("tool-finish", self.open_exchange().seq, data)


def finish_event(finish: Finish) -> NewEvent:
    """Return the event that tells of a run's end, or of its suspension."""
    data = {
        "status": finish.status,
        "stop_reason": finish.stop_reason,
        "detail": finish.detail,
    }
    return NewEvent("run-suspend" if finish.status == "suspended" else "run-finish", data=data)


def cancelled_finish() -> Finish:
    """Return the end of a cancelled run."""
    return Finish("cancelled", "cancelled", "It was cancelled.")
