"""What memory holds of a run beside its log, and what follows from it for the next model call."""

from __future__ import annotations

import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from agent_runtime.errors import BudgetExceeded
from agent_runtime.human.gate import Gate
from agent_runtime.log import leases
from agent_runtime.log.exchange import Exchange
from agent_runtime.log.run_log import RunLog
from agent_runtime.memory.observational.constraint_reader import constraints_of
from agent_runtime.memory.observational.memory import ObservationalMemory
from agent_runtime.memory.observational.worker import MemoryWorker
from agent_runtime.memory.transcript import characters
from agent_runtime.messages import Note, ToolCall, ToolResult
from agent_runtime.models.base import Model, ModelInfo
from agent_runtime.models.cost import affordable_output, max_call_cost, scale_amount
from agent_runtime.models.tokens import Calibration, count_text
from agent_runtime.prompt.attachments import PromptFiles
from agent_runtime.prompt.build import extend_view
from agent_runtime.prompt.constraints import Constraints
from agent_runtime.prompt.fences import next_nonce
from agent_runtime.prompt.incomplete_answers import OutputLimit
from agent_runtime.prompt.truncate import share_result_budget
from agent_runtime.prompt.view import ActivationCause, Entry, Prompt, PromptPrefix, View
from agent_runtime.prompt.window import (
    TARGET,
    PromptLimits,
    overdue,
    plan_activation,
    prompt_too_large,
    results_budget,
)
from agent_runtime.run.budget import (
    NO_END,
    BudgetState,
    allowances,
    held_by_the_dead,
    least_left,
    root_reserve,
)
from agent_runtime.run.state_note import state_note
from agent_runtime.run.wrap_up import WrapUp
from agent_runtime.tools import output as outputs
from agent_runtime.tools.base import StateFunction, Toolset
from agent_runtime_storage.contract.records import Amount, Run
from agent_runtime_storage.contract.store import UserStore
from agent_runtime_storage.log.spending import is_below

if TYPE_CHECKING:
    from agent_runtime.memory.recall.retriever import Retriever
    from agent_runtime.run.guard.repeats import LoopGuard
    from agent_runtime.run.tool_context import ToolContexts

LEAST_OUTPUT = 256
"""With fewer tokens than that left to answer, a budget counts as spent."""
COUNT_IN_THREAD = 100_000
"""Results with more characters than that are counted off the event loop."""
PLAN_IN_THREAD = 200_000
"""With more characters than that raw, an activation is planned off the event loop."""
BUDGET_WAIT = 0.1
"""Seconds between attempts to reserve what other runs of the tree hold."""
LOOK_EVERY = 10
"""After so many attempts it is looked again whether one of those runs has died."""
ESTIMATE_MARGIN = 1.1
"""So much more than it is estimated at a prompt may take of the window, when room is left for a
long answer: some providers refuse a call whose prompt and answer do not fit together."""
BUDGET_SHARE = 8
"""No more than this part of a budget is reserved for a long answer: others may call meanwhile."""
LAST_OUTPUT = 1024
"""So many tokens of a last answer are kept for a run that has sub-agents."""
NOTES = 500
"""So many tokens of notes may come with the results of an exchange."""
USUAL_RESULT = "word " * 200
"""For a result of a call that is not known yet, so much is kept in its next prompt."""


@dataclass(slots=True)
class RunState:
    """Everything that memory holds of a run, beside its log."""

    log: RunLog
    model: Model
    info: ModelInfo
    room: PromptLimits
    prefix: PromptPrefix
    tools: Toolset
    context: ToolContexts
    calibration: Calibration
    step_limit: int
    max_output: int
    """How many tokens an answer may have, where the window and the budget have room for them."""
    max_result_tokens: int
    task: Entry | None
    limited: bool
    """Whether the run tree has a budget, or its runs have limits."""
    end_dead: Callable[[UserStore, Run], Awaitable[bool]]
    """Ends a run whose process is dead, unless somebody else was quicker."""
    gate: Gate
    """What lets calls wait for a person."""
    guard: LoopGuard
    """What looks whether the run repeats itself."""
    output_limit: OutputLimit = "model"
    """What sets `max_output`."""
    output: outputs.OutputType | None = None
    memory: ObservationalMemory | None = None
    """Observational memory, where it is on."""
    worker: MemoryWorker | None = None
    """What prepares observations in the background, where it is on."""
    recalling: Retriever | None = None
    """Semantic recall, where it is on."""
    idle: float | None = None
    """After so many seconds without a model call its provider's cache has expired."""
    restating: Sequence[StateFunction] = ()
    """What says what is current of the run, for the state note."""
    repeat_system: bool = False
    temperature: float | None = None
    files: PromptFiles | None = None
    """What prompts show of their files; None names them only."""
    wrap_up: WrapUp = field(default_factory=WrapUp)
    settled: dict[int, ToolResult] = field(default_factory=dict[int, ToolResult])
    """Results of an exchange that was reopened, for calls that must not run again."""
    previous: Prompt | None = None
    next_output: int = 0
    """How many tokens the next answer may have, by what is reserved for it."""
    limited_by: OutputLimit = "model"
    """What sets that limit."""
    calling: bool = False
    """Whether a model call is under way, or has answered and is not recorded yet."""
    lost: int = 0
    """How many failed attempts of it may be billed, and are not recorded yet."""

    # Context

    def due(self, view: View) -> ActivationCause | None:
        """Return why the next prompt needs an activation, or None."""
        changed = view.prefix != self.prefix or view.start.model != self.model.name
        if changed or view.start.repeat_system != self.repeat_system:
            return "agent"
        estimate = self.calibration.estimate(view.tokens)
        if self.memory is None:
            return "agent" if view.start.remembers else overdue(view, self.room, estimate)
        if not view.start.remembers:
            return "agent"
        if estimate > self.room.limit:
            return "tokens"
        return self.memory.due(view, cold=self._cold(view))

    def _cold(self, view: View) -> bool:
        """Return whether the provider's cache has expired since the last model call."""
        answers = (one.at for one in reversed(view.entries) if one.message.type == "assistant")
        last = next(answers, None)
        return last is not None and self.idle is not None and time.time() - last > self.idle

    async def activate(self, cause: ActivationCause) -> None:
        """Begin prompts anew: what leaves and what is cut is decided by `memory.recent`."""
        self.calibration.reset_anchor()
        state = await state_note(self.restating, self.context(""))
        required = await self._required()
        view = await self._plan(cause, state, required)
        goal = int(self.room.limit * TARGET) if cause == "overflow" else self.room.limit
        while self.memory is not None and self.calibration.estimate(view.tokens) > goal:
            # Nothing leaves unobserved, so what has to leave at once is observed by rules.
            remembered = await self.memory.observe_now(self.log.view)
            if not (remembered or await self.memory.reflect_now(self.log.view)):
                if self.calibration.estimate(view.tokens) > self.room.limit:
                    raise prompt_too_large(view, self.room, self.calibration.estimate)
                break
            view = await self._plan(cause, state, required)
        await self.log.activate(view, cause)
        if self.memory is not None:
            self.memory.activated()

    async def _required(self) -> Constraints:
        required = await constraints_of(self.log)
        if self.memory is None:
            return required
        return replace(required, budget=self.memory.constraint_tokens)

    async def _plan(self, cause: ActivationCause, state: str, required: Constraints) -> View:
        old = self.log.view
        standing = () if self.memory is None else self.memory.standing(old)
        planned = partial(
            plan_activation,
            old,
            self.room,
            cause=cause,
            estimate=self.calibration.estimate,
            nonce=next_nonce(old.start.nonce),
            task=self.task,
            model=self.model.name,
            prefix=self.prefix,
            repeat_system=self.repeat_system,
            state=state,
            required=required,
            remembers=self.memory is not None,
            ready=() if self.memory is None else self.memory.ready(old),
            standing=standing,
            gaps=() if self.memory is None else self.memory.gaps(standing),
        )
        if characters(old.entries) > PLAN_IN_THREAD:
            return await anyio.to_thread.run_sync(planned)
        return planned()

    def narrow(self) -> None:
        """Believe for the rest of the run that the window is smaller than the prompt refused."""
        # The shorter prompt is estimated without an anchor: so has to be what it is compared with.
        self.calibration.reset_anchor()
        refused = self.calibration.estimate(self.log.view.tokens)
        window = min(self.room.window, refused + self.room.reserve)
        self.room = replace(self.room, window=window)
        if self.memory is not None:
            self.memory.thresholds = self.memory.thresholds.within(self.room.limit)

    async def fit(self, calls: Sequence[ToolCall], texts: Sequence[str]) -> list[int | None]:
        """Return how many characters of each call's result prompts show, so that none floods them.

        A result has at most the tokens that its tool sets, or the setting, at any window; those of
        one exchange have together at most a share of the window.
        """
        found = [self.tools.get(call.name) for call in calls]
        own = [tool.max_result_tokens if tool else None for tool in found]
        caps = [int((one or self.max_result_tokens) / self.calibration.ratio) for one in own]
        tokens = results_budget(self.room, self.calibration.ratio)
        if self.limited and not is_below(self.log.lease):
            tokens = min(tokens, await self._affordable_results())
        if sum(map(len, texts)) > COUNT_IN_THREAD:
            return await anyio.to_thread.run_sync(
                share_result_budget, texts, tokens, count_text, caps
            )
        return share_result_budget(texts, tokens, count_text, caps)

    # Budget

    async def reserve(self) -> None:
        """Reserve the next call; wait while others hold what it needs.

        Raises:
            BudgetExceeded: it would not fit even if they gave everything back, or those that hold
                it have died.
        """
        alone = False
        for waited in itertools.count():
            left = least_left(await self.allowed()) if self.limited else None
            wanted = self.wanted(self.log.view, left)
            try:
                await self.log.reserve(wanted)
                return
            except BudgetExceeded as error:
                if left is None or wanted.tokens > left.tokens or wanted.cost > left.cost:
                    raise
                if error.budget == "steps" and not await self.steps_under_way():
                    raise
                refused = error
            if waited % LOOK_EVERY == 0 or alone:
                await self.end_dead_others()
                alive, dead = await self.holders()
                if alone and not alive:
                    raise held_by_the_dead(refused, dead)
                # What they held may have been given back since it was refused.
                alone = not alive
            if not alone:
                await anyio.sleep(BUDGET_WAIT)

    async def steps_under_way(self) -> bool:
        """Return whether a step may become free that others of the tree are at."""
        lease, limits = self.log.lease, self.log.limits
        kept = limits.kept_steps if is_below(lease) else 0
        made = await self.log.store.tree_steps(lease.root_run_id)
        return made + kept < (limits.steps or 0)

    async def holders(self) -> tuple[list[str], list[str]]:
        """Return the user's runs that have reserved something: those at work, and the dead."""
        store = self.log.store
        alive: list[str] = []
        dead: list[str] = []
        for run_id in await store.holders():
            if run_id == self.log.lease.run_id:
                # Its memory works beside it.
                alive += [run_id] if self.log.held != Amount() else []
                continue
            run = await store.run(run_id)
            (dead if leases.is_dead(run) else alive).append(run_id)
        return alive, dead

    async def end_dead_others(self) -> None:
        """End the runs of the tree whose process is dead: they never give back what they hold."""
        store, own = self.log.store, self.log.lease
        tree = await store.runs(root_run_id=own.root_run_id, status=["running"], limit=10_000)
        for run in tree:
            await self.end_dead(store, run)

    async def book(self) -> None:
        """Record lost attempts at their bound, and reserve the next one, where there is a budget.

        Raises:
            BudgetExceeded: the next attempt might exceed the budget, so it is not made.
        """
        if not self.limited or not self.lost:
            return
        amount = self.log.reserved or Amount()
        self.calling = False
        await self.log.reserve(amount, unsettle=scale_amount(amount, self.lost))
        self.calling, self.lost = True, 0

    def recorded(self) -> None:
        """Take note that the model call is in the log, with all its attempts."""
        self.calling, self.lost = False, 0

    async def allowed(self) -> list[BudgetState]:
        """Return the budgets that the run keeps to, as they stand."""
        log = self.log
        return await allowances(log.store, log.lease, log.limits)

    async def wrapping_up(self) -> list[Note]:
        """Return what the model is told when the run comes near its limits, or away from them."""
        log = self.log
        steps = [(log.steps, self.step_limit)]
        if (most := log.limits.steps) is not None:
            steps.append((await log.store.tree_steps(log.lease.root_run_id), most))
        return self.wrap_up.notes(
            steps=steps,
            budgets=await self.allowed() if self.limited else (),
            call=self._usual(log.view),
        )

    async def _affordable_results(self) -> int:
        """Return how many of our tokens of results leave a root enough for its next call."""
        exchange, price = self.log.open_exchange(), self.info.price
        bare = self._with_results(exchange, "")
        left = NO_END
        for one in await self.allowed():
            rest = Amount(
                one.left.tokens - one.spending.reserved.tokens,
                one.left.cost - one.spending.reserved.cost,
            )
            left = min(left, rest.tokens - LAST_OUTPUT)
            if price is not None and (each := max(price.input, price.cache_write)):
                left = min(left, (rest.cost - LAST_OUTPUT * price.output) // each)
        room = left - self.calibration.estimate(bare.tokens) - NOTES
        return max(0, int(room / self.calibration.safe_ratio))

    def _with_results(self, exchange: Exchange, text: str) -> View:
        """Return the view with an exchange of which each result is this text."""
        results = tuple(ToolResult(text) for _ in exchange.message.calls)
        shown = (None,) * len(results)
        entry = Entry(exchange.seq, self.log.head, exchange.message, results, shown)
        return extend_view(self.log.view, entry)

    async def keeping(self) -> Callable[[Exchange], Amount | None]:
        """Return what says what the runs below have to leave, while an exchange's calls run."""
        lease = self.log.lease
        if not self.limited or is_below(lease):
            return lambda exchange: None
        budgets = await self.allowed()

        def keep(exchange: Exchange) -> Amount:
            view = self._with_results(exchange, USUAL_RESULT)
            prompt_tokens = self.calibration.estimate(view.tokens)
            output = min(self.max_output, LAST_OUTPUT)
            return root_reserve(max_call_cost(self.info, prompt_tokens, output), budgets)

        return keep

    def wanted(self, view: View, left: Amount | None = None) -> Amount:
        """Return an upper bound of the next call; its answer shrinks to what is left."""
        prompt_tokens = self.calibration.estimate(view.tokens)
        most, self.limited_by = self.max_output, self.output_limit
        room = self.room.window - int(prompt_tokens * ESTIMATE_MARGIN)
        if (room := max(room, self.usual_output)) < most:
            most, self.limited_by = room, "window"
        affordable = affordable_output(self.info, prompt_tokens, left)
        if left is not None:
            share = max(affordable // BUDGET_SHARE, min(affordable, self.usual_output))
            if (share := max(share, LEAST_OUTPUT)) < most:
                most, self.limited_by = share, "budget"
        self.next_output = most
        return max_call_cost(self.info, prompt_tokens, most)

    @property
    def usual_output(self) -> int:
        """How many tokens of answer there is always room for."""
        return min(self.max_output, self.room.reserve)

    def _usual(self, view: View) -> Amount:
        """Return what the next call may take of a budget that has little left."""
        prompt_tokens = self.calibration.estimate(view.tokens)
        return max_call_cost(self.info, prompt_tokens, self.usual_output)

    def shorten(self) -> bool:
        """Ask for usual answers for the rest of the run; return whether they were longer."""
        if self.next_output <= self.usual_output:
            return False
        self.max_output, self.output_limit = self.usual_output, "window"
        return True

    def ahead(self, view: View) -> Amount | None:
        """Return what to reserve for the next call, unless an activation comes before it."""
        return None if self.due(view) is not None else self.wanted(view)
