"""The loop of an agent: build the prompt, call the model, run its tools, record the step.

Read `AgentLoop` from the top: `drive`, `step`, `ask` and `call` are the whole way to the model.
Everything durable is a row that `RunLog` writes; what memory holds is a `RunState`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any

import orjson

from agent_runtime.delegation.background import TASKS, deliver_lost_results
from agent_runtime.errors import (
    BudgetExceeded,
    InboxWaiting,
    InvariantError,
    ModelError,
    ModelOverflow,
    ModelProtocolError,
    ModelRejected,
    ModelUnavailable,
    PromptTooLarge,
    UnsupportedTask,
)
from agent_runtime.files.attach import keep_made
from agent_runtime.human.pause import PAUSED, pause_requested
from agent_runtime.log.exchange import Billing
from agent_runtime.log.run_log import CLOSED, cancelled_finish
from agent_runtime.messages import AssistantMessage, Note, ToolResult
from agent_runtime.models.base import FilePart, ModelAnswer, ModelRequest, Retrying, SettingIgnored
from agent_runtime.models.cost import scale_amount, usage_of
from agent_runtime.models.telemetry.model_calls import chat
from agent_runtime.models.wire.rules.switch import check_if_asked
from agent_runtime.prompt.attachments import masked_parts
from agent_runtime.prompt.build import build_prompt, check_prompt
from agent_runtime.prompt.incomplete_answers import GO_ON as GO_ON_EXACTLY
from agent_runtime.prompt.incomplete_answers import AnswerCutoff, UnfinishedAnswer, failed_answer
from agent_runtime.prompt.normalise import normalise_answer
from agent_runtime.prompt.view import Prompt
from agent_runtime.run.inbox import inbox_notes
from agent_runtime.run.state import RunState
from agent_runtime.run.takeover import end_unresumed
from agent_runtime.run.tool_calls import abandoned_results, may_start, run_calls, still_running
from agent_runtime.tools import output as outputs
from agent_runtime_storage.contract.records.log import Amount, Finish, InboxItem, NewEvent

RECALL_SHARE = 8
"""Recalled messages fill at most this part of the prompt's limit."""
GO_ON = "The run continues from here: finish the task."


class AgentLoop:
    """Drives one run of an agent to its end."""

    def __init__(self, state: RunState) -> None:
        self.state = state
        self.log = state.log
        self.setup = state.setup
        self.unfinished = UnfinishedAnswer()
        self.cutoff: AnswerCutoff | None = None
        """How the last answer was cut off, if it was."""
        self.ignored: set[str] = set()
        """Settings that the model does not take, each reported once."""

    async def drive(self) -> Finish:
        """Run to the end and return how the run ended, which is recorded by then.

        Raises `ModelError`, `PromptTooLarge` and store errors; the caller then ends the run.
        If cancelled, it leaves the log valid and the run open, for `finish`.
        """
        # Of a resumed run; no prompt can be built before it is closed, which drains the inbox too.
        if (exchange := self.log.exchange) is not None:
            finish = await self.run_tools()
            await end_unresumed(self.log, exchange, finish)
            if finish is not None:
                return finish
        has_tasks = self.setup.tools.get(TASKS) is not None
        async with deliver_lost_results(self.state.context("")) if has_tasks else nullcontext():
            finish = await self.drain()
            while finish is None:
                finish = await self.step()
        return finish

    async def step(self) -> Finish | None:
        """Build the prompt, call the model, run its tools; each is recorded as it is done.

        Returns how the run ended, if it did.
        """
        if (finish := await self.end_before_step()) is not None:
            # With a question for a person the guard has ended the run itself.
            return finish if self.log.ended else await self.finish(finish)
        try:
            prompt, answer = await self.ask()
        except BudgetExceeded as error:
            reason = "max_steps" if error.budget == "steps" else "budget"
            return await self.finish(Finish("failed", reason, error.message))
        except ModelUnavailable as error:
            finish = await self.state.outage.wait(error)
            return finish and await self.finish(finish)
        finish = await self.record(prompt, answer)
        if finish is None and self.log.exchange is not None:
            finish = await self.run_tools() or await self.end_without_output()
        return finish

    async def ask(self) -> tuple[Prompt, ModelAnswer]:
        """Call the model with the next prompt; if the provider refuses it, with a smaller request.

        First files are only named, then the answer's limit is lowered, then the prompt shortened.
        """
        await self.state.choose_model()
        prompt, narrowed = await self.next_prompt(), False
        while True:
            files = await self.state.files.parts(prompt.messages)
            try:
                answer = await self.call(prompt, files)
            except (ModelOverflow, ModelRejected) as refused:
                # A refusal does not say what was refused: try without the files that are new.
                if isinstance(refused, ModelRejected) and self.state.files.refused(files):
                    continue
                # Some refuse a prompt and an answer limit that might not fit together, as an
                # overflow or as a bad request.  A lower limit costs nothing; try it first.
                if self.state.reservation.shorten():
                    await self.state.reservation.reserve()
                # Only once: the shortened prompt is well below the refused one (`TARGET`), so
                # another refusal has another reason.
                elif isinstance(refused, ModelOverflow) and not narrowed:
                    prompt, narrowed = await self.shorter_prompt(refused), True
                else:
                    raise
            except ModelError as failed:
                await self.state.fall_back(failed)
                # The other model gets a prompt of its own, under an activation for it.
                prompt, narrowed = await self.next_prompt(), False
            else:
                self.setup.choice.answered()
                self.state.files.accepted(files)
                return prompt, answer

    async def call(self, prompt: Prompt, files: Mapping[int, Sequence[FilePart]]) -> ModelAnswer:
        """Call the model once and return its answer; emit deltas as live events."""
        state, pending, model = self.state, self.state.reservation, self.setup.choice.model
        request = ModelRequest(
            messages=prompt.messages,
            tools=prompt.tools,
            max_output=pending.next_output,
            marks=prompt.marks,
            session=self.log.lease.thread_id,
            run=self.log.lease.root_run_id,
            prompt_tokens=self.setup.calibration.estimate(prompt.counted),
            settings=self.setup.model_settings,
            files=masked_parts(files, self.log.view.start.nonce),
        )
        check_if_asked(request, model.name)
        # Events count `lost` from the call's beginning; `counted` are in `pending.lost` already.
        counted = 0
        # Before the request leaves: whatever interrupts this, `finish` counts the call as billed.
        state.previous, state.sent, pending.calling = prompt, True, True
        state.timing.begin()
        try:
            async with chat(model, request) as events:
                async for event in events:
                    if isinstance(event, ModelAnswer):
                        pending.lost += event.lost - counted
                        return event
                    if isinstance(event, Retrying):
                        pending.lost, counted = pending.lost + event.lost - counted, event.lost
                        await pending.record_lost()
                    if isinstance(event, SettingIgnored):
                        if event.name in self.ignored:
                            continue
                        self.ignored.add(event.name)
                    self.log.tell(state.timing.live_event(event))
            ended = f"{model.name} ended its stream without an answer."
            raise ModelProtocolError(ended, lost=counted + 1)
        except UnsupportedTask:
            pending.calling = False  # Nothing was sent.
            raise
        except ModelError as error:
            state.timing.failed(error)
            # The error counts the last attempt itself, if that may be billed.
            pending.calling, pending.lost = False, pending.lost + error.lost - counted
            raise

    # Before the call

    async def end_before_step(self) -> Finish | None:
        """Return how the run ends instead of making another step, or None."""
        # Before the limits: an output that the last allowed step gave is still a success.
        if self.setup.output is not None:
            accepted = outputs.accepted_output(self.log.view)
            if accepted is not None:
                return Finish("succeeded", "completed", output=orjson.dumps(accepted))
        if self.log.steps >= self.state.step_limit:
            detail = f"It used up its {self.state.step_limit} steps."
            return await self.state.guard.stop_at_limit(detail)
        if self.log.closing:
            return CLOSED
        # One small read at most; the inbox itself is read only if there is anything in it.
        cancelled, posted = await self.log.asked()
        if cancelled:
            return cancelled_finish()
        if posted and pause_requested(await self.log.inbox(), self.log.lease):
            await self.state.allow_notes()
            return PAUSED
        return None

    async def next_prompt(self) -> Prompt:
        """Return the next prompt, checked, after an activation if one is due; reserve the call.

        Raises:
            InvariantError: an exchange is open, so the prompt would lack it.
        """
        state, log = self.state, self.log
        if log.exchange is not None:
            raise InvariantError(f"The exchange of node {log.exchange.seq} is still open.")
        recalled = await self.recall()
        if (cause := state.due(log.view)) is not None:
            await state.activate(cause)
        if state.memory is not None:
            # Not earlier: before the activation the worker would see what is about to leave.
            state.memory.wake()
        # The reservation of the last exchange does not include recalled messages.
        if state.reservation.missing or recalled:
            await state.reservation.reserve()
        prompt = build_prompt(log.view, cache_marks=self.setup.choice.info.cache_marks)
        check_prompt(
            log.view,
            prompt,
            state.previous,
            estimate=self.setup.calibration.estimate(prompt.counted),
            limit=state.reservation.room.limit,
        )
        return prompt

    async def recall(self) -> bool:
        """Append earlier messages that match the user's newest; return whether there are any."""
        retriever = self.state.context.retriever
        if retriever is None:
            return False
        recalled = await retriever.recall(most=self.state.reservation.room.limit // RECALL_SHARE)
        retriever.wake()  # Not earlier: now the new message has its vector, which is paid once.
        return recalled

    async def shorter_prompt(self, refused: ModelOverflow) -> Prompt:
        """Return a prompt that is shorter than the refused one; raise the refusal if none is."""
        self.state.narrow()
        try:
            await self.state.activate("overflow")
        except PromptTooLarge as error:
            # The narrowed window is an assumption; what the provider said is the fact.
            raise refused from error
        return await self.next_prompt()

    # After the call

    async def record(self, prompt: Prompt, answer: ModelAnswer) -> Finish | None:
        """Record the answer, before its calls run if it has any; return how it ended the run."""
        log, state, setup = self.log, self.state, self.setup
        pending = state.reservation
        self.cutoff = cutoff = AnswerCutoff.of(answer, pending.next_output, pending.limited_by)
        failed = failed_answer(answer)
        if failed is not None or answer.finish == "malformed":
            # Calls of an unfinished or refused answer are not run.
            answer = replace(answer, calls=(), opaque=None)
        message = normalise_answer(answer, log.next_seq, cutoff and cutoff.result)
        if answer.files:
            # Before the node that refers to them: a crash in between leaves unused files, not a
            # broken reference.
            files = await keep_made(answer.files, state.context("").keep)
            message = replace(message, files=files)
        reserved, spent = log.reserved or Amount(), Amount()
        usage = usage_of(
            answer,
            run_id=log.lease.run_id,
            root_run_id=log.lease.root_run_id,
            node_id=log.next_seq,
            counted=prompt.counted,
            bound=reserved,
        )
        if answer.usage is not None:
            setup.calibration.observe(prompt.counted, answer.usage.prompt)
            spent = Amount(answer.usage.prompt + answer.usage.completion, answer.cost or 0)
        # An answer without reported usage counts at its bound, like a lost attempt.
        lost = scale_amount(reserved, pending.lost + (answer.usage is None))
        billing = Billing(usage, spent, lost, self.answer_event(message, answer))
        if cutoff is not None and not (answer.text.strip() or answer.calls or answer.files):
            # Reasoning used up the limit.  The same prompt again, with a higher one if possible.
            reached = cutoff.tokens >= pending.next_output
            if reached and await pending.raise_output(spent):
                await log.append([], billing=billing.without_node())
                pending.recorded()
                return None
        else:
            pending.answered()
        if message.calls:
            self.unfinished.clear()
            state.sent = False
            start = may_start(message, setup.tools, state.gate)
            await log.open(message, billing, await pending.kept_for_root(), start=start)
            pending.recorded()
            return None
        follow_up = failed or self.unfinished.next(answer, cutoff)
        try:
            return await self.append_answer(message, billing, follow_up)
        except InboxWaiting:
            # A message came just before the answer would have ended the run.  Nothing was written;
            # this time the inbox is read, so the run continues.
            return await self.append_answer(message, billing, follow_up)

    def answer_event(self, message: AssistantMessage, answer: ModelAnswer) -> NewEvent:
        """Return the event of an answer."""
        usage = answer.usage
        data: dict[str, Any] = {
            "step": self.log.steps + 1,
            "calls": len(message.calls),
            "prompt_tokens": usage.prompt if usage else None,
            "cached_tokens": usage.cached if usage else None,
            "completion_tokens": usage.completion if usage else None,
            "cost": answer.cost,
        } | self.state.timing.take()
        if self.setup.choice.several:
            data["model"] = answer.model
        if (memory := self.state.memory) is not None:
            data["raw_tokens"], data["observed_tokens"] = memory.sizes(self.log.view)
        return NewEvent("answer", self.log.next_seq, data)

    async def append_answer(
        self, message: AssistantMessage, billing: Billing, follow_up: Note | Finish | None
    ) -> Finish | None:
        """Record an answer without calls, and the inbox; return how that ended the run.

        Args:
            follow_up: what to ask next because the answer is incomplete, or how it ends the run.

        Raises:
            InboxWaiting: it would end the run, and the inbox got an item since it was read.
        """
        items: Sequence[InboxItem] = ()
        notes: list[Note] = []
        if isinstance(follow_up, Finish):
            # The inbox stays as it is, for the run that resumes this one or follows it.
            finish = follow_up
        else:
            items = await self.log.inbox()
            notes = await self.state.fit_notes(inbox_notes(items, self.log.lease.run_id))
            finish, requests = self.outcome(message, follow_up, interrupted=bool(notes))
            notes += requests
            if finish is None and pause_requested(items, self.log.lease):
                finish = PAUSED
        # An answer is empty if reasoning used up its limit or the provider withheld all of it.
        # Providers refuse empty messages in later prompts, so it gets no node.
        answers = [message] if message.text.strip() or message.files else []
        self.state.sent &= not answers
        if finish is PAUSED:
            await self.state.allow_notes()
        if not answers:
            billing = billing.without_node()
        await self.log.append(
            [*answers, *notes],
            drained=items,
            finish=finish,
            billing=billing,
            # Only a success is final: a run that ended otherwise reads its inbox when it resumes.
            quiet_inbox=finish is not None and finish.status == "succeeded",
        )
        self.state.reservation.recorded()
        return finish

    def outcome(
        self, message: AssistantMessage, follow_up: Note | None, *, interrupted: bool
    ) -> tuple[Finish | None, list[Note]]:
        """Return how an answer ends the run, or else what the model is asked next.

        Args:
            interrupted: whether notes came in that the model has to read first.
        """
        # An incomplete answer is among the joined parts already.
        text = self.unfinished.joined("" if follow_up else message.text)
        output = self.setup.output
        if output is not None and not interrupted:
            arguments = output.from_text(text)
            if arguments is not None:
                return Finish("succeeded", "completed", output=orjson.dumps(arguments)), []
        if follow_up is not None:
            return None, [follow_up]
        requests: list[Note] = []
        if output is not None:
            # This answer is not in the view yet, so it is one more than what is counted.
            if outputs.count_rejected_outputs(self.log.view) >= outputs.RETRIES:
                return outputs.no_output(None), []
            requests.append(Note(outputs.ASK))
        elif not interrupted:
            return Finish("succeeded", "completed", output=orjson.dumps(text)), []
        self.unfinished.clear()
        return None, requests

    async def run_tools(self) -> Finish | None:
        """Run the open exchange's calls and close it; return how that ended the run."""
        state = self.state
        settled, state.settled = state.settled, {}
        suspended = await run_calls(
            self.log, self.setup.tools, state.context, self.close, settled, state.gate
        )
        if suspended is not None or self.log.ended:
            # `close` ends the run by itself only if it finds a pause in the inbox.
            return suspended or PAUSED
        stopped = await state.guard.stop()
        return stopped if stopped is None or self.log.ended else await self.finish(stopped)

    async def close(self, done: dict[int, ToolResult], finish: Finish | None = None) -> None:
        """Close the exchange: truncate its results, drain the inbox, reserve the next call.

        Args:
            done: the results that are not recorded yet, by call index.
            finish: ends the run instead.
        """
        log, state = self.log, self.state
        exchange = log.open_exchange()
        results = exchange.results | done
        ordered = [results[index] for index in range(len(exchange.message.calls))]
        shown = await state.fit(exchange.message.calls, [result.text for result in ordered])
        notes = await state.fit_notes(await state.gate.allowance_notes(exchange))
        if finish is None:
            # In the commit that closes the exchange: inside a tool loop a note is part of the last
            # result, which must not change once a prompt has shown it.
            notes += [*await state.guard.look(ordered), *await state.routine_notes(ordered)]
            with suppress(InboxWaiting):
                await log.close(
                    done, shown, notes=notes, reserve=state.reserve_ahead, undisturbed=True
                )
                return
        items = await self.log.inbox() if finish is None else ()
        notes = [*await state.fit_notes(inbox_notes(items, log.lease.run_id)), *notes]
        if pause_requested(items, log.lease):
            finish = PAUSED
        await log.close(
            done, shown, notes=notes, drained=items, reserve=state.reserve_ahead, finish=finish
        )

    async def end_without_output(self) -> Finish | None:
        """End the run if its model gave too many invalid outputs; else return None."""
        view, output = self.log.view, self.setup.output
        if output is None or outputs.accepted_output(view) is not None:
            return None
        if outputs.count_rejected_outputs(view) <= outputs.RETRIES:
            return None
        return await self.finish(outputs.no_output(self.cutoff))

    # Resuming and ending

    async def drain(self) -> Finish | None:
        """Append what came into the inbox while nobody worked on the thread.

        A run that is resumed after an answer which did not end it gets a note to continue: some
        providers refuse a prompt that ends in an answer.  Returns how the run ended, if it did.
        """
        log, state = self.log, self.state
        self.unfinished = UnfinishedAnswer.of(log.view.entries)
        items = await self.log.inbox()
        notes = inbox_notes(items, log.lease.run_id)
        # Only a resumed run has made steps; a new one has neither a guard's question nor a limit
        # that it came near.
        if log.steps:
            decision = await state.guard.answered()
            if isinstance(decision, Finish):
                return await self.finish(decision)
            notes = [*([decision] if decision else []), *notes, *await state.routine_notes()]
        last = log.view.entries[-1]
        if not notes and last.message.type == "assistant" and not last.results:
            ask = Note(outputs.ASK if self.setup.output else GO_ON)
            notes.append(Note(GO_ON_EXACTLY, source="cut") if self.unfinished.ends(last) else ask)
        finish = PAUSED if pause_requested(items, log.lease) else None
        if notes:
            await state.allow_notes()
        if notes or items:
            await log.append(await state.fit_notes(notes), drained=items, finish=finish)
        return finish

    async def finish(self, finish: Finish) -> Finish:
        """End the run; close an open exchange with what is known of each call.

        Attempts that may be billed without a report of their usage count at their bound.
        """
        if self.log.exchange is not None:
            tools = self.setup.tools
            if names := still_running(self.log.exchange, tools):
                running = f"Nothing can stop a thread: {', '.join(names)} may still be running."
                finish = replace(finish, detail=f"{finish.detail} {running}".strip())
            await self.close(abandoned_results(self.log.exchange, tools), finish)
            return finish
        pending = self.state.reservation
        # The call in progress, if there is one, counts as one more attempt.
        lost = scale_amount(self.log.reserved or Amount(), pending.lost + pending.calling)
        await self.log.append([], finish=finish, unsettle=lost)
        pending.recorded()
        return finish
