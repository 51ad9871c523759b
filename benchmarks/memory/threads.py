"""Recorded conversations as threads of the product: with its memory at work, or only logged.

`remember` runs a turn for each user message, with a model that gives the recorded answer, so
observations are made and take effect as they do for a user.  Between two turns it waits for the
memory: months lie between the recorded ones.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import anyio

from agent_runtime import Agent, Event, Runtime, ScriptedModel
from agent_runtime.errors import ConfigError
from agent_runtime.log.branch import activation_row, load_view, node_row, observation_of
from agent_runtime.log.leases import this_process_owner
from agent_runtime.log.run_log import finish_event
from agent_runtime.memory.observational.reflector.base import apply_reflections, plan_reflection
from agent_runtime.memory.observational.thresholds import MemoryThresholds, measure, next_chunk
from agent_runtime.messages import AssistantMessage, LoggedMessage, UserMessage
from agent_runtime.models.base import ModelRequest, Price
from agent_runtime.models.catalog import DEFAULT_WINDOW
from agent_runtime.models.scripted import FREE, Scripted, ScriptFunction
from agent_runtime.offline import OfflineModel
from agent_runtime.prompt.build import view_of
from agent_runtime.prompt.fences import new_nonce
from agent_runtime.prompt.view import ActivationContent, PromptPrefix
from agent_runtime.prompt.window import covered
from agent_runtime.run.resolve import resolve_run
from agent_runtime_storage import Commit, NewRun, UserStore
from agent_runtime_storage.contract.ids import new_id
from agent_runtime_storage.contract.records.log import Finish
from benchmarks.memory.data import UNANSWERED, Exchange

RECORDED = "recorded"
"""The name of the model that gives the recorded answers."""
GRACE = 60.0
"""Seconds to wait for the memory beyond its deadline."""
ALL = 1_000_000
"""More recent messages than any thread has."""


@dataclass(slots=True)
class Fed:
    """The memory's work on a conversation.

    Attributes:
        seconds: of wall time.
        observations: including reflections.
        provisional: observations by rules, because the model returned no usable notes.
        why: the last reason for that.
        late: turns that continued although the memory made no progress for a long time.
    """

    seconds: float = 0.0
    observations: int = 0
    provisional: int = 0
    why: str = ""
    late: int = 0


class Replayer:
    """Gives the recorded answers, each once the memory has nothing left to do."""

    def __init__(
        self, store: UserStore, thread_id: str, bands: MemoryThresholds, patience: float
    ) -> None:
        self.fed = Fed()
        self.answer = ""
        self._store = store
        self._thread_id = thread_id
        self._bands = bands
        self._patience = patience
        self._heard = anyio.Event()

    async def __call__(self, request: ModelRequest) -> Scripted:
        """Return the recorded answer."""
        del request
        while True:
            # Taken before the check: an observation that ends during it must not be missed.
            heard = self._heard
            if not await self._due():
                break
            with anyio.move_on_after(self._patience) as waiting:
                await heard.wait()
            if waiting.cancelled_caught:
                self.fed.late += 1
                break
        return self.answer

    def hear(self, event: Event) -> None:
        """Record an observation."""
        if event.kind != "observation":
            return
        self.fed.observations += 1
        if event.data["provisional"]:
            self.fed.provisional += 1
            self.fed.why = str(event.data["why"])
        self._heard.set()
        self._heard = anyio.Event()

    async def _due(self) -> bool:
        """Return whether something is to be observed or condensed, as the run's own worker decides.

        A scripted model's tokens are counted as ours, so their ratio is one.
        """
        thread = await self._store.threads.get(self._thread_id)
        view = await load_view(self._store, thread.id, thread.head)
        rows = await self._store.log.observations(thread.id, ending_from=0)
        stored = [observation_of(row) for row in rows]
        base = [observation for observation in stored if not observation.level]
        raw = measure(view.entries, base, 1.0, view.anchor)
        if next_chunk(raw, self._bands):
            return True
        ready, _ = covered(view.entries, base)
        reflections = [observation for observation in stored if observation.level]
        present = apply_reflections((*view.observations, *ready), reflections)
        return plan_reflection(present, self._bands.reflect) is not None


async def remember(
    runtime: Runtime,
    thread_id: str,
    exchanges: Sequence[Exchange],
    agent: Agent,
    price: Price | None = None,
) -> Fed:
    """Have a conversation on a thread, with the runtime's observational memory at work.

    Args:
        agent: gives instructions, tools, window and recent messages; its model is not called.
        price: of the model that will be asked later; activation may depend on it.

    Raises:
        ConfigError: a model of the memory cannot be called, so rules would replace it.
    """
    began = time.perf_counter()
    store = runtime.store_of()
    speaking = replace(agent, model=_recorded(_silent, agent, price))
    resolved = await resolve_run(
        speaking, runtime.settings, None, OfflineModel, store, thread_id=thread_id, child=False
    )
    remembering = resolved.memory
    if remembering is None:
        raise ValueError("the runtime's observational memory is off")
    if remembering.warnings:
        raise ConfigError(
            f"The memory would not be the one to be measured: {remembering.warnings[0]}",
            cure="To measure rules, say so: --observer extractive. Choose thresholds that the "
            "window allows: --observe-at, --reflect-at.",
        )
    patience = runtime.settings.observer_timeout + GRACE
    replayer = Replayer(store, thread_id, remembering.thresholds, patience)
    for exchange in exchanges:
        replayer.answer = exchange.answer
        # A scripted model stores every request, so each turn has its own.
        turn = replace(agent, model=_recorded(replayer, agent, price))
        await runtime.run(turn, exchange.said, thread=thread_id, on_event=replayer.hear)
    replayer.fed.seconds = time.perf_counter() - began
    return replayer.fed


def _silent(request: ModelRequest) -> Scripted:
    del request
    return UNANSWERED


def _recorded(script: ScriptFunction, agent: Agent, price: Price | None) -> ScriptedModel:
    window = agent.context_window or DEFAULT_WINDOW
    return ScriptedModel(script, name=RECORDED, window=window, price=price or FREE)


async def log_only(store: UserStore, thread_id: str, exchanges: Sequence[Exchange]) -> None:
    """Write a conversation into a new thread's log, all of it raw, in one transaction."""
    await store.threads.ensure(thread_id)
    start = ActivationContent(nonce=new_nonce(), model=RECORDED, last_messages=ALL)
    view = view_of(1, None, start, PromptPrefix(""), None, ())
    messages: list[LoggedMessage] = []
    for exchange in exchanges:
        messages += [UserMessage(exchange.said), AssistantMessage(exchange.answer)]
    nodes = [
        node_row(message, seq=seq, parent_id=seq - 1 or None, activation_id=1)
        for seq, message in enumerate(messages, 1)
    ]
    run = NewRun(
        id=new_id(),
        thread_id=thread_id,
        agent=RECORDED,
        max_steps=1,
        spec={},
        owner=this_process_owner(),
        lease_seconds=60.0,
        expect_head=None,
        expect_seq=0,
        nodes=tuple(nodes),
        activation=activation_row(view, "start"),
    )
    lease, _ = await store.runs.begin(run)
    finish = Finish("succeeded", "completed")
    await store.runs.commit(lease, Commit(finish=finish, events=(finish_event(finish),)))
