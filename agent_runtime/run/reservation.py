"""Limit the next model call, by the window and by the budgets, and reserve what it may cost."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import anyio

from agent_runtime.errors import BudgetExceeded
from agent_runtime.log import leases
from agent_runtime.log.exchange import Exchange
from agent_runtime.log.run_log import RunLog
from agent_runtime.messages import FileKind, ToolResult
from agent_runtime.models.cost import (
    add_amounts,
    affordable_output,
    max_call_cost,
    negate_amount,
    scale_amount,
    unknown_price,
)
from agent_runtime.models.pricing.charge import FAST, CallTerms, affordable_prompt
from agent_runtime.prompt.build import extend_view
from agent_runtime.prompt.incomplete_answers import OutputLimit
from agent_runtime.prompt.view import Entry, View
from agent_runtime.prompt.window import PromptLimits
from agent_runtime.run.budget import (
    NO_END,
    BudgetState,
    allowances,
    held_by_the_dead,
    least_left,
    root_reserve,
)
from agent_runtime.run.resolve import RunSetup
from agent_runtime.run.takeover import end_if_dead
from agent_runtime_storage.contract.records.log import Amount, Commit, NewEvent

LEAST_OUTPUT = 256
"""A budget that affords a shorter answer than this counts as spent."""
BUDGET_WAIT = 0.1
"""Seconds between attempts to reserve what other runs of the tree hold."""
LOOK_EVERY = 10
"""Attempts between two checks whether one of those runs has died."""
ESTIMATE_MARGIN = 1.1
"""Factor on a prompt's estimate when the rest of the window is given to the answer: some providers
refuse a call whose prompt and longest answer do not fit together."""
BUDGET_SHARE = 8
"""A long answer reserves at most this part of a budget, so that other runs can call meanwhile."""
RAISES = 3
"""How often in a row the limit of an answer is doubled after reasoning used it up."""
LAST_OUTPUT = 1024
"""Output tokens reserved for the last answer of a run that has sub-agents."""
NOTES = 500
"""Tokens assumed for the notes that follow the results of an exchange."""
USUAL_RESULT = "word " * 200
"""Assumed as the result of a call that has none yet, when its next prompt is estimated."""


@dataclass(slots=True)
class Reservation:
    """What is reserved for the next model call of a run, and what limits that call.

    Attributes:
        room: the window; narrower than the model's once a provider refused a prompt.
        max_output: tokens of an answer, where window and budget have room; set by `output_limit`.
        next_output: tokens of the next answer by what is reserved; set by `limited_by`.
        raised: how often the limit was raised since the last answer that said something.
        calling: whether a model call is in progress, or was answered and is not recorded yet.
        lost: failed attempts of it that may be billed and are not recorded yet.
        bound_for: the model for which the last bound was made.
        limited: whether the run tree has a budget, or its runs have limits, as last seen.
    """

    log: RunLog
    setup: RunSetup
    room: PromptLimits
    max_output: int
    output_limit: OutputLimit
    next_output: int = 0
    limited_by: OutputLimit = "model"
    raised: int = 0
    calling: bool = False
    lost: int = 0
    bound_for: str = ""
    limited: bool = False

    @classmethod
    def of(cls, log: RunLog, setup: RunSetup) -> Reservation:
        """Return the reservation of a run's first call; nothing is reserved yet."""
        return cls(
            log, setup, setup.room, setup.max_output, setup.output_limit, limited=setup.limited
        )

    @property
    def usual_output(self) -> int:
        """The tokens of an answer for which the window always has room."""
        return min(self.max_output, self.room.reserve)

    def bound(self, view: View, left: Amount | None = None) -> Amount:
        """Return an upper bound of the next call, and set how long its answer may be.

        Args:
            left: what the budgets have left; the answer shrinks to it.
        """
        self.bound_for = self.setup.choice.model.name
        prompt_tokens = self.setup.calibration.estimate(view.tokens)
        self.next_output, self.limited_by = self._output(view, prompt_tokens, left)
        terms = self._terms(view)
        return max_call_cost(self.setup.info, prompt_tokens, self.next_output, terms)

    def _output(
        self, view: View, prompt_tokens: int, left: Amount | None
    ) -> tuple[int, OutputLimit]:
        """Return the most tokens of the next answer, and what limits it."""
        most, by = self.max_output, self.output_limit
        # At least the reserve, which no prompt fills, even if the margin says otherwise.
        room = self.room.window - int(prompt_tokens * ESTIMATE_MARGIN)
        if (room := max(room, self.usual_output)) < most:
            most, by = room, "window"
        if left is not None:
            affordable = affordable_output(self.setup.info, prompt_tokens, left, self._terms(view))
            # At least `LEAST_OUTPUT`, even if it is not affordable: then the reservation is refused
            # instead of paying for an answer that is of no use.
            # Each raise doubles the share: an eighth, a quarter, a half, then all that is left.
            part = max(1, BUDGET_SHARE >> self.raised)
            # An answer of the usual length may use up the budget; only longer ones have to leave
            # some.
            share = max(affordable // part, min(affordable, self.usual_output))
            if (share := max(share, LEAST_OUTPUT)) < most:
                most, by = share, "budget"
        return most, by

    async def raise_output(self, spent: Amount) -> bool:
        """Allow a longer answer after reasoning used up the limit; return whether that is possible.

        A budget's share is doubled, up to all that is left; so is the limit of a model whose own
        one is not known.  What the user, the window or the model itself limits stays.

        Args:
            spent: on the answer that said nothing, which is not recorded yet.
        """
        assumed = self.limited_by == "model" and not self.setup.info.output_known
        if not (assumed or self.limited_by == "budget"):
            return False
        left = None
        if self.limited:
            left = add_amounts(least_left(await self.budgets()), negate_amount(spent))
        view, before = self.log.view, (self.raised, self.max_output)
        prompt_tokens = self.setup.calibration.estimate(view.tokens)
        while self.raised < RAISES:
            self.raised += 1
            # `assumed` is 0 or 1: a limit that is known is not doubled.
            self.max_output *= 1 + assumed
            if self._output(view, prompt_tokens, left)[0] > self.next_output:
                return True
        # What is left of the budget or of the window is too small: it would be used up again.
        self.raised, self.max_output = before
        return False

    def usual_bound(self, view: View) -> Amount:
        """Return an upper bound of the next call if its answer has the usual length."""
        prompt_tokens = self.setup.calibration.estimate(view.tokens)
        return max_call_cost(self.setup.info, prompt_tokens, self.usual_output, self._terms(view))

    def _terms(self, view: View) -> CallTerms:
        """Return what sets the price of a call with a view, apart from its sizes."""
        settings = self.setup.model_settings
        prompt = (*view.front, *(message for one in view.entries for message in one.prompt))
        files = frozenset[FileKind](file.kind for message in prompt for file in message.files)
        fast = settings.extra_body.get("speed") == FAST
        return CallTerms(settings.service, settings.cache_ttl == "1h", files, fast)

    def shorten(self) -> bool:
        """Limit answers to the usual length from now on; return whether they could be longer."""
        if self.next_output <= self.usual_output:
            return False
        self.max_output, self.output_limit = self.usual_output, "window"
        return True

    async def reserve(self) -> None:
        """Reserve the next call; wait while other runs hold what it needs.

        Raises:
            BudgetExceeded: it would not fit even if all others gave back what they hold, or those
                that hold it have died; or dollars are limited, and a model has no price.
        """
        # Whether the last look found no live holder; one more refusal then is final.
        alone = False
        for waited in itertools.count():
            left = await self._left()
            wanted = self.bound(self.log.view, left)
            try:
                await self.log.reserve(wanted, unplanned=left is None)
                return
            except BudgetExceeded as error:
                if left is None:
                    # The tree has got a budget since the run last looked.
                    self.limited = True
                    continue
                # What is left counts reservations as unspent: waiting for others cannot help.
                if wanted.tokens > left.tokens or wanted.cost > left.cost:
                    raise
                if error.budget == "steps" and not await self._steps_may_return():
                    raise
                refused = error
            if waited % LOOK_EVERY == 0 or alone:
                await self._end_dead_runs()
                alive, dead = await self._holders()
                if alone and not alive:
                    raise held_by_the_dead(refused, dead)
                # The holders may have given it back since the refusal: try once more at once.
                alone = not alive
            if not alone:
                await anyio.sleep(BUDGET_WAIT)

    async def _steps_may_return(self) -> bool:
        """Return whether other runs of the tree have steps reserved that they may give back."""
        lease, limits = self.log.lease, self.log.limits
        kept = limits.kept_steps if lease.is_child else 0
        made = await self.log.store.runs.count_tree_steps(lease.root_run_id)
        return made + kept < (limits.steps or 0)

    async def _holders(self) -> tuple[list[str], list[str]]:
        """Return the user's runs that have reserved something: the live ones, and the dead."""
        store = self.log.store
        alive: list[str] = []
        dead: list[str] = []
        for run_id in await store.spending.reserving_runs():
            if run_id == self.log.lease.run_id:
                # This run holds more than the refused call only if its memory does.
                alive += [run_id] if self.log.held != Amount() else []
                continue
            run = await store.runs.get(run_id)
            (dead if leases.is_dead(run) else alive).append(run_id)
        return alive, dead

    async def _end_dead_runs(self) -> None:
        """End the tree's runs whose process is dead: they would never give back what they hold."""
        store, root = self.log.store, self.log.lease.root_run_id
        for run in await store.runs.list(root_run_id=root, status=["running"], limit=10_000):
            await end_if_dead(store, run)

    async def record_lost(self) -> None:
        """Record lost attempts at their bound and reserve the next one, if budgets are limited.

        Raises:
            BudgetExceeded: the next attempt might exceed the budget, so it must not be made.
        """
        if not self.limited or not self.lost:
            return
        amount = self.log.reserved or Amount()
        # If the reservation is refused, no attempt is in progress that `finish` has to count.
        self.calling = False
        await self.log.reserve(amount, unsettle=scale_amount(amount, self.lost))
        self.calling, self.lost = True, 0

    @property
    def missing(self) -> bool:
        """Whether nothing is reserved for a call of the model in use."""
        # A bound for one model says nothing of another, whose prices and limits differ.
        return self.log.reserved is None or self.bound_for != self.setup.choice.model.name

    async def give_up(self, event: NewEvent) -> None:
        """Record that another model takes over, and give back what was reserved.

        The lost attempts count at the bound of the model that failed, before one is made for
        another model, which may be cheaper.
        """
        amount = self.log.reserved
        lost = scale_amount(amount or Amount(), self.lost)
        await self.log.write(Commit(release=amount, unsettle=lost, events=(event,)))
        self.recorded()

    def recorded(self) -> None:
        """Note that the model call is in the log, with all its attempts."""
        self.calling, self.lost = False, 0

    def answered(self) -> None:
        """Note that the model said something: its next answer gets the usual part of a budget."""
        self.raised = 0

    async def budgets(self) -> list[BudgetState]:
        """Return the budgets that the run must keep to, as they are now."""
        return await allowances(self.log.store, self.log.lease, self.log.limits)

    async def _left(self) -> Amount | None:
        """Return what the budgets have left; None if the run has no limits as far as it knows.

        Raises:
            BudgetExceeded: dollars are limited, and the price of a model is not known.
        """
        if not self.limited:
            return None
        budgets = await self.budgets()
        if self.setup.unpriced is not None and any(one.limit.cost is not None for one in budgets):
            # The limit is newer than the run, which would have been refused with it.
            unknown = unknown_price(self.setup.unpriced)
            raise BudgetExceeded(unknown.message, budget="run", cure=unknown.cure)
        return least_left(budgets)

    # What a root leaves for its own next call

    async def affordable_results(self) -> int | None:
        """Return how many of our tokens of results leave a root enough for its next call.

        None for a child run, or if nothing is limited.
        """
        if not self.limited or self.log.lease.is_child:
            return None
        price, left = self.setup.info.price, NO_END
        bare = self._with_results(self.log.open_exchange(), "")
        terms = self._terms(bare)
        for budget in await self.budgets():
            # What other runs have reserved, such as background tasks, is not left for this one.
            reserved = budget.spending.reserved
            left = min(left, budget.left.tokens - reserved.tokens - LAST_OUTPUT)
            # Results are new in the prompt, so they are not read from the cache.
            if price is not None:
                rest = budget.left.cost - reserved.cost
                longest = affordable_prompt(price, rest, LAST_OUTPUT, terms)
                left = left if longest is None else min(left, longest)
        calibration = self.setup.calibration
        room = left - calibration.estimate(bare.tokens) - NOTES
        return max(0, int(room / calibration.safe_ratio))

    async def kept_for_root(self) -> Callable[[Exchange], Amount | None]:
        """Return a function that computes what child runs must leave unspent for a root.

        It applies while the exchange's calls run.
        """
        if not self.limited or self.log.lease.is_child:
            return lambda exchange: None
        budgets = await self.budgets()

        def keep(exchange: Exchange) -> Amount:
            view = self._with_results(exchange, USUAL_RESULT)
            prompt_tokens = self.setup.calibration.estimate(view.tokens)
            # The last answer is a summary, so it is not reserved at the full length of an answer.
            output = min(self.max_output, LAST_OUTPUT)
            call = max_call_cost(self.setup.info, prompt_tokens, output, self._terms(view))
            return root_reserve(call, budgets)

        return keep

    def _with_results(self, exchange: Exchange, text: str) -> View:
        """Return the view with an exchange whose results are all this text."""
        results = tuple(ToolResult(text) for _ in exchange.message.calls)
        shown = (None,) * len(results)
        entry = Entry(exchange.seq, self.log.head, exchange.message, results, shown)
        return extend_view(self.log.view, entry)
