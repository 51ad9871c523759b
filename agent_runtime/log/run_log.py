"""A run's write access to its thread's log: the branch as prompts see it, and every write.

The view in memory equals what a reload from the store would give; it only saves reading the branch
at each step.  Only the holder of the run's lease writes nodes, so the next `seq` is known here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import anyio

from agent_runtime.concurrency import run_shielded
from agent_runtime.errors import BudgetExceeded
from agent_runtime.events import Event, EventKind
from agent_runtime.log.branch import activation_event, activation_row, node_row
from agent_runtime.log.exchange import Billing, Exchange
from agent_runtime.log.lease_keeper import HeldRun, writing_for
from agent_runtime.messages import AssistantMessage, LoggedMessage, Note, ToolResult
from agent_runtime.models.cost import add_amounts
from agent_runtime.models.telemetry.commits import commit_counted
from agent_runtime.models.telemetry.tally import TALLY
from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.build import extend_view
from agent_runtime.prompt.render import shown_text
from agent_runtime.prompt.view import Entry, View, handles
from agent_runtime_storage.contract.records.log import (
    Amount,
    CallShown,
    Commit,
    Finish,
    InboxItem,
    Lease,
    NewEvent,
    NewNode,
    Thread,
)
from agent_runtime_storage.contract.records.spending import NO_LIMITS, Limits
from agent_runtime_storage.contract.store import UserStore

CLOSED = Finish("suspended", "interrupted", "Its runtime was closed.")
"""The end of a run that its process leaves to be resumed."""


@dataclass(slots=True)
class RunLog:
    """The log of one run's thread, as the run's lease holder writes it.

    Every method that writes is one transaction.  Once it begins, a cancellation of any kind waits
    until the log and this object agree, and an error of a listener is raised after that.  All raise
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
    """Limits checked on each reservation, in addition to the budget of the run's tree."""
    reserved: Amount | None = None
    held: Amount = field(default_factory=Amount)
    """Reserved by memory, apart from the loop; counts as spent when the run ends."""
    exchange: Exchange | None = None
    undisturbed: bool = False
    """Whether the last commit found an empty inbox and no cancel requested."""
    ended: bool = False
    """Whether the run's end is written; nothing more can be."""
    interrupted: asyncio.CancelledError | None = None
    """A cancellation that came while the run began; `announce` raises it."""
    writing: anyio.Lock = field(default_factory=lambda: anyio.Lock(fast_acquire=True))
    """Serialises the commits of the loop and of memory: each takes the next ids."""
    kept: HeldRun | None = None
    """The lease as the process keeps it, while the run is driven."""
    began: tuple[tuple[NewEvent, int], ...] = ()
    """The run's first events with their ids, until `announce` emits them."""

    @classmethod
    def of(
        cls,
        store: UserStore,
        lease: Lease,
        thread: Thread,
        view: View,
        *,
        last_observation: int,
        emit: Callable[[Event], None],
        steps: int = 0,
        limits: Limits = NO_LIMITS,
    ) -> RunLog:
        """Return the log of the run that holds this lease of a thread.

        Args:
            view: the branch of the thread's head, with its activation even if that is new.
            last_observation: the newest observation's id on the thread.
            emit: is called with each event, in order.
        """
        return cls(
            store=store,
            lease=lease,
            view=view,
            head=thread.head,
            last_seq=thread.last_seq,
            # On another branch the thread may have later activations than the head's.
            last_activation=max(thread.last_activation, view.activation_id),
            last_observation=last_observation,
            steps=steps,
            emit=emit,
            limits=limits,
        )

    async def write(
        self,
        commit: Commit,
        then: Callable[[], None] = lambda: None,
        live: Mapping[int, Mapping[str, Any]] | None = None,
    ) -> None:
        """Commit, then emit the commit's events.

        Args:
            then: brings this object up to date with the commit.
            live: by index of the event, data that listeners get and the store does not.
        """
        async with self.writing:
            # Nobody settles the reservations of memory jobs after the end: they count as spent.
            if commit.finish is not None and self.held != Amount():
                commit = replace(
                    commit,
                    release=add_amounts(commit.release or Amount(), self.held),
                    unsettle=add_amounts(commit.unsettle or Amount(), self.held),
                )
            # A cancelled commit may have been made all the same, and this object would not know.
            with writing_for(self.kept, ends=commit.finish is not None):
                committing = commit_counted(self.store, self.lease, commit)
                last, interrupted = await run_shielded(committing)
            self._advance(commit)
        # Without an await until the events are out, so no other task sees the state in between.
        then()
        first = last - len(commit.events) + 1
        for place, event in enumerate(commit.events):
            if live and place in live:
                event = replace(event, data={**event.data, **live[place]})
            self.tell(event, first + place)
        if interrupted is not None:
            raise interrupted

    def _advance(self, commit: Commit) -> None:
        self.last_seq += len(commit.nodes)
        self.last_activation += commit.activation is not None
        self.head = self.head if commit.head is None else commit.head
        self.steps = self.steps if commit.steps is None else commit.steps
        self.undisturbed = commit.undisturbed
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
        """Bring this object up to date with what began the run; `announce` emits the events."""
        self._appended(messages, rows)
        if rows:
            # Without any, the run answers the user's message at the head again.
            self.last_seq, self.head = rows[-1].seq, rows[-1].seq
        ids = range(last_event - len(events) + 1, last_event + 1)
        self.began = tuple(zip(events, ids, strict=True))

    def announce(self) -> None:
        """Emit the run's first events, then raise the cancellation that came meanwhile, if any."""
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
        """Emit an event; live events, which are not stored, have the id 0."""
        TALLY.heard(event)
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
        """Record an activation: the next prompts begin as the view does."""
        # Planned as the next of the branch, but another branch may have later activations.
        view = replace(view, activation_id=self.last_activation + 1)
        await self.write(
            Commit(
                activation=activation_row(view, cause),
                events=(activation_event(self.view, view, cause),),
            ),
            then=lambda: self._set(view, self.exchange),
        )

    def _set(self, view: View, exchange: Exchange | None) -> None:
        self.view, self.exchange = view, exchange

    async def has_ended(self) -> bool:
        """Return whether the run's end is written, after the write in progress if there is one."""
        async with self.writing:
            return self.ended

    async def asked(self) -> tuple[bool, bool]:
        """Return whether a cancel of this run was requested, and whether its inbox has items.

        Nothing is read if the last commit has just found neither.
        """
        if self.undisturbed:
            self.undisturbed = False
            return False, False
        return await self.store.runs.poll(self.lease)

    async def inbox(self) -> list[InboxItem]:
        """Return what is in the thread's inbox."""
        return await self.store.inbox.pending(self.lease.thread_id)

    async def reserve(
        self, amount: Amount, *, unsettle: Amount | None = None, unplanned: bool = False
    ) -> None:
        """Reserve the next call, or (with `unsettle`) the next attempt after a lost one.

        Args:
            unplanned: whether it was planned without a budget.

        Raises:
            BudgetExceeded: it does not fit, or there is a budget now; nothing was written.
        """
        # In one commit, so that no other run takes what this one gives back for its own next call.
        await self.write(
            Commit(
                release=self.reserved,
                unsettle=unsettle,
                reserve=amount,
                limits=self.limits,
                unplanned=unplanned,
            )
        )

    @property
    def closing(self) -> bool:
        """Whether the run has to stop at its next step, because its runtime closes."""
        return self.kept is not None and self.kept.closing

    @property
    def next_seq(self) -> int:
        """The seq of the next node to be written."""
        return self.last_seq + 1

    def _rows(self, messages: Sequence[LoggedMessage], parent_id: int | None) -> list[NewNode]:
        rows: list[NewNode] = []
        activation = self.view.activation_id
        for seq, message in enumerate(messages, self.next_seq):
            rows.append(node_row(message, seq=seq, parent_id=parent_id, activation_id=activation))
            parent_id = seq
        return rows

    async def append(
        self,
        messages: Sequence[LoggedMessage],
        *,
        drained: Sequence[InboxItem] = (),
        finish: Finish | None = None,
        billing: Billing | None = None,
        unsettle: Amount | None = None,
        events: Sequence[NewEvent] = (),
        quiet_inbox: bool = False,
    ) -> None:
        """Append messages without calls below the head; end the run if `finish` is given.

        Args:
            billing: of the step whose answer this is, if it is one.
            unsettle: bounds attempts that may be billed and have no answer.

        Raises:
            InboxWaiting: `quiet_inbox` is set and the inbox has items; nothing was written.
        """
        rows = self._rows(messages, self.head)
        step = billing is not None
        await self.write(
            Commit(
                nodes=tuple(rows),
                head=rows[-1].seq if rows else None,
                drained=tuple(item.id for item in drained),
                usage=(billing.usage,) if billing else (),
                # A note alone comes before the call that is reserved.
                release=self.reserved if step or finish is not None else None,
                settle=billing.spent if billing else None,
                unsettle=billing.lost if billing else unsettle,
                steps=self.steps + 1 if step else None,
                finish=finish,
                quiet_inbox=quiet_inbox,
                events=(*([billing.event] if billing else []), *events, *_end_events(finish)),
            ),
            then=lambda: self._appended(messages, rows),
        )

    async def open(
        self,
        message: AssistantMessage,
        billing: Billing,
        keep: Callable[[Exchange], Amount | None] = lambda exchange: None,
        *,
        start: bool = False,
    ) -> None:
        """Write an answer ahead of its calls: each call is pending, the head does not move.

        Args:
            start: whether all calls run at once: they are marked as started instead.
            keep: returns the amount that child runs must leave unspent for this run from now on;
                None leaves it as it was.
        """
        row = self._rows([message], self.head)[0]
        exchange = Exchange(row.seq, message, time.time())
        if start:
            exchange.marked.update(range(len(message.calls)))
        starting, live = exchange.start_events(sorted(exchange.marked))
        await self.write(
            Commit(
                nodes=(replace(row, started=start),),
                keep=keep(exchange),
                usage=(billing.usage,),
                release=self.reserved,
                settle=billing.spent,
                unsettle=billing.lost,
                steps=self.steps + 1,
                events=(billing.event, *starting),
            ),
            then=lambda: self._set(self.view, exchange),
            live={place + 1: data for place, data in live.items()},
        )

    async def start(self, indices: Sequence[int], done: dict[int, ToolResult]) -> None:
        """Mark calls as started and record results of calls that do not run."""
        exchange = self.open_exchange()
        rows = [exchange.done_row(i, result) for i, result in done.items()]
        events, live = exchange.start_events(indices)
        live |= exchange.live_results(done, first=len(events))

        def started() -> None:
            exchange.results.update(done)
            exchange.marked.update(indices)

        await self.write(
            Commit(
                start=tuple((exchange.seq, i) for i in indices),
                done=tuple(rows),
                events=(
                    *events,
                    *(exchange.finish_event(i, r, cut=False) for i, r in done.items()),
                ),
            ),
            then=started,
            live=live,
        )

    async def finish_call(self, index: int, result: ToolResult) -> None:
        """Record a result while other calls of the exchange have none yet."""
        exchange = self.open_exchange()
        await self.write(
            Commit(
                done=(exchange.done_row(index, result),),
                events=(exchange.finish_event(index, result, cut=False),),
            ),
            then=lambda: exchange.results.update({index: result}),
            live=exchange.live_results({index: result}),
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
        undisturbed: bool = False,
    ) -> None:
        """Record the last results, close the exchange and drain the inbox into notes.

        Args:
            done: the results that are not recorded yet, by call index.
            shown: for every call, how many characters of its result prompts show; None for all.
            reserve: returns what to reserve for the next call, given the view after this commit;
                None leaves that to `RunLog.reserve`.  If the tree has got a budget meanwhile,
                nothing is reserved either.
            finish: ends the run with this commit.
            undisturbed: whether to write nothing if other items wait in the inbox, or a cancel is
                requested.

        Raises:
            InboxWaiting: `undisturbed` is set, and something waits; nothing was written.
        """
        exchange = self.open_exchange()
        calls = exchange.message.calls
        # A new object: if the commit fails, the open exchange is as it was.
        results = exchange.results | done
        ordered = tuple(results[index] for index in range(len(calls)))
        entry = Entry(
            exchange.seq, self.head, exchange.message, ordered, tuple(shown), at=exchange.at
        )
        view = extend_view(self.view, entry)
        rows = self._rows(notes, exchange.seq)
        for note, row in zip(notes, rows, strict=True):
            view = extend_view(view, Entry(row.seq, row.parent_id, note, at=time.time()))
        events = [exchange.finish_event(i, r, cut=shown[i] is not None) for i, r in done.items()]
        events += [
            NewEvent("note", row.seq, {"source": n.source})
            for n, row in zip(notes, rows, strict=True)
        ]
        commit = Commit(
            done=tuple(exchange.done_row(i, result) for i, result in done.items()),
            # Recorded, because a reload must show the same as this prompt.
            shown=_truncations(entry),
            close=(exchange.seq,),
            nodes=tuple(rows),
            head=rows[-1].seq if rows else exchange.seq,
            drained=tuple(item.id for item in drained),
            release=self.reserved if finish is not None else None,
            reserve=None if finish is not None else reserve(view),
            unplanned=True,
            finish=finish,
            undisturbed=undisturbed,
            events=(*events, *_end_events(finish)),
        )
        live = exchange.live_results(done)
        await self._write_unplanned(commit, lambda: self._set(view, None), live)

    async def _write_unplanned(
        self, commit: Commit, then: Callable[[], None], live: Mapping[int, Mapping[str, Any]]
    ) -> None:
        try:
            await self.write(commit, then, live)
        except BudgetExceeded:
            # The results must not wait for the next call, which has to be planned again.
            await self.write(replace(commit, reserve=None), then, live)

    def open_exchange(self) -> Exchange:
        """Return the open exchange."""
        if self.exchange is None:
            raise RuntimeError("no exchange is open")
        return self.exchange


def _truncations(entry: Entry) -> tuple[CallShown, ...]:
    """Return how many characters, and of how many tokens, prompts show of truncated results."""
    return tuple(
        CallShown(entry.seq, i, chars, count_text(shown_text(entry.results[i].text, handle, chars)))
        for i, (handle, chars) in enumerate(zip(handles(entry), entry.shown, strict=True))
        if chars is not None
    )


def _end_events(finish: Finish | None) -> tuple[NewEvent, ...]:
    return () if finish is None else (finish_event(finish),)


def finish_event(finish: Finish) -> NewEvent:
    """Return the event of a run's end or suspension."""
    data = {"status": finish.status, "stop_reason": finish.stop_reason, "detail": finish.detail}
    return NewEvent("run-suspend" if finish.status == "suspended" else "run-finish", data=data)


def cancelled_finish() -> Finish:
    """Return the end of a cancelled run."""
    return Finish("cancelled", "cancelled", "It was cancelled.")
