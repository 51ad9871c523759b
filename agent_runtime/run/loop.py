"""The loop: build the context, call the model, record its answer, run its tools.

`AgentLoop.drive` reads from top to bottom; from its entry to the model call it is one file.
Everything durable is a row that `RunLog` writes; what is kept in memory is a `RunState`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from agent_runtime.delegation.background import JOB, TASKS, deliver_lost_results
from agent_runtime.errors import (
    BudgetExceeded,
    InboxWaiting,
    InvariantError,
    ModelError,
    ModelOverflow,
    ModelRejected,
    PromptTooLarge,
)
from agent_runtime.files.attach import keep_made
from agent_runtime.human.pause import PAUSE, PAUSED, pause_requested
from agent_runtime.log.run_log import cancelled_finish, finish_event
from agent_runtime.messages import AssistantMessage, Note, ToolResult
from agent_runtime.models.base import (
    FilePart,
    ModelAnswer,
    ModelRequest,
    ReasoningDelta,
    Retrying,
    TextDelta,
)
from agent_runtime.models.cost import scale_amount, usage_of
from agent_runtime.prompt.attachments import masked_parts
from agent_runtime.prompt.build import build_prompt, check_prompt
from agent_runtime.prompt.incomplete_answers import GO_ON as GO_ON_EXACTLY
from agent_runtime.prompt.incomplete_answers import AnswerCutoff, UnfinishedAnswer, failed_answer
from agent_runtime.prompt.normalise import normalise_answer
from agent_runtime.prompt.view import Prompt, View
from agent_runtime.run.state import RunState
from agent_runtime.run.tool_calls import abandoned_results, run_calls, still_running
from agent_runtime.tools import output as outputs
from agent_runtime_storage.contract.records import Amount, Finish, InboxItem, NewEvent, Usage

RECALL_SHARE = 8
"""What is recalled has at most so small a part of what a prompt may have."""
GO_ON = "The run goes on from here: finish the task."


@dataclass(frozen=True, slots=True)
class AnswerBilling:
    """What is recorded of an answer, beside the answer itself."""

    usage: Usage
    spent: Amount
    lost: Amount
    event: NewEvent


class AgentLoop:
    """Drives one run to its end."""

    def __init__(self, state: RunState) -> None:
        self.state = state
        self.log = state.log
        self.unfinished = UnfinishedAnswer()

    async def drive(self) -> Finish:
        """Run to the end and return how it ended, written already.

        Raises `ModelError`, `PromptTooLarge` and store errors as they come; the caller ends the
        run for them. Cancelled, it leaves the log valid and the run open, for `finish`.
        """
        if self.log.exchange is not None and (waits := await self.run_tools()) is not None:
            return waits
        if self.state.tools.get(TASKS) is None:
            return await self.drain() or await self._steps()
        async with deliver_lost_results(self.state.context("")):
            return await self.drain() or await self._steps()

    async def _steps(self) -> Finish:
        while True:
            if (arguments := self.final()) is not None:
                return await self.complete(arguments)
            if self.log.steps >= self.state.step_limit:
                detail = f"It used up its {self.state.step_limit} steps."
                return await self.finish(Finish("failed", "max_steps", detail))
            requested, posted = await self.log.asked()
            if requested:
                return await self.finish(cancelled_finish())
            if posted and await self.pausing():
                return await self.finish(PAUSED)
            try:
                prompt, answer = await self.step()
            except BudgetExceeded as error:
                reason = "max_steps" if error.budget == "steps" else "budget"
                return await self.finish(Finish("failed", reason, error.message))
            finish = await self.record(prompt, answer)
            if finish is not None:
                return finish

    async def step(self) -> tuple[Prompt, ModelAnswer]:
        """Call the model with the next prompt; once more with a shorter one if it is too long."""
        prompt = await self.prepare()
        try:
            return prompt, await self.attempt(prompt)
        except ModelOverflow as refused:
            self.state.narrow()
            try:
                await self.state.activate("overflow")
            except PromptTooLarge as uncut:
                # The narrowed window is only a belief: what the provider says is the truth.
                raise refused from uncut
            prompt = await self.prepare()
            return prompt, await self.ask(prompt)

    async def attempt(self, prompt: Prompt) -> ModelAnswer:
        """Call the model, once more with a smaller answer if it refuses as long a one.

        Some providers refuse a prompt and an answer that might not fit into the window together,
        and limits that are larger than their own.
        """
        try:
            return await self.ask(prompt)
        except (ModelOverflow, ModelRejected):
            if not self.state.shorten():
                raise
        await self.state.reserve()
        return await self.ask(prompt)

    async def prepare(self) -> Prompt:
        """Return the next prompt, activated anew where it is due, reserved and checked.

        Raises:
            InvariantError: an exchange is open: the prompt would be without it.
        """
        if self.log.exchange is not None:
            raise InvariantError(f"The exchange of node {self.log.exchange.seq} is still open.")
        recalled = await self.recall()
        cause = self.state.due(self.log.view)
        if cause is not None:
            await self.state.activate(cause)
        if self.state.memory is not None:
            # Only now: before the activation it would see what is about to leave.
            self.state.memory.wake()
        if self.log.reserved is None or recalled:
            await self.state.reserve()
        prompt = build_prompt(self.log.view, cache_marks=self.state.info.cache_marks)
        check_prompt(
            self.log.view,
            prompt,
            self.state.previous,
            estimate=self.state.calibration.estimate(prompt.counted),
            limit=self.state.room.limit,
        )
        return prompt

    async def recall(self) -> bool:
        """Append what was said earlier on what the user has just said; return whether it did."""
        recalling = self.state.recalling
        if recalling is None:
            return False
        recalled = await recalling.recall(most=self.state.room.limit // RECALL_SHARE)
        # Only now, when the vector of what the user says is known: it is paid for once.
        recalling.wake()
        return recalled

    async def ask(self, prompt: Prompt) -> ModelAnswer:
        """Call the model and return its answer.

        Files that its provider refuses are named only, and it is called once more.
        """
        files = self.state.files
        while files is not None and (shown := await files.parts(prompt.messages)):
            try:
                answer = await self.call(prompt, shown)
            except ModelRejected:
                if not files.refused(shown):
                    raise
                continue
            files.accepted(shown)
            return answer
        return await self.call(prompt)

    async def call(
        self, prompt: Prompt, files: Mapping[int, Sequence[FilePart]] | None = None
    ) -> ModelAnswer:
        """Call the model once; deltas go to whoever listens."""
        state = self.state
        request = ModelRequest(
            messages=prompt.messages,
            tools=prompt.tools,
            max_output=state.next_output,
            marks=prompt.marks,
            session=self.log.lease.thread_id,
            temperature=state.temperature,
            files=masked_parts(files or {}, self.log.view.start.nonce),
        )
        told = 0
        state.previous, state.calling = prompt, True
        try:
            async with state.model.stream(request) as events:
                async for event in events:
                    if isinstance(event, ModelAnswer):
                        state.lost += event.lost - told
                        return event
                    if isinstance(event, Retrying):
                        state.lost, told = state.lost + event.lost - told, event.lost
                        await state.book()
                    self.tell(event)
            raise ModelError(f"{state.model.name} ended its stream without an answer.")
        except ModelError as error:
            state.calling, state.lost = False, state.lost + error.lost - told
            raise

    def tell(self, event: TextDelta | ReasoningDelta | Retrying) -> None:
        """Hand what is live only to whoever listens."""
        match event:
            case TextDelta(text):
                self.log.tell(NewEvent("text-delta", data={"text": text}))
            case ReasoningDelta(text):
                self.log.tell(NewEvent("reasoning-delta", data={"text": text}))
            case Retrying(reason, attempt, wait):
                data = {"reason": reason, "attempt": attempt, "wait": wait}
                self.log.tell(NewEvent("model-retry", data=data))

    async def record(self, prompt: Prompt, answer: ModelAnswer) -> Finish | None:
        """Write the answer ahead and run its calls; return the end if it was the last."""
        log, state = self.log, self.state
        cut = AnswerCutoff.of(answer, state.next_output, state.limited_by)
        failed = failed_answer(answer)
        if failed is not None or answer.finish == "malformed":
            # What was not finished, or was refused, is not called; what was thought of it stands
            # where the calls would.
            answer = replace(answer, calls=(), opaque=None)
        message = normalise_answer(answer, log.next_seq, cut and cut.result)
        if answer.files:
            files = await keep_made(answer.files, state.context("").keep)
            message = replace(message, files=files)
        reserved = log.reserved or Amount()
        usage = usage_of(
            answer,
            run_id=log.lease.run_id,
            root_run_id=log.lease.root_run_id,
            node_id=log.next_seq,
            counted=prompt.counted,
            bound=reserved,
        )
        if answer.usage is not None:
            state.calibration.observe(prompt.counted, answer.usage.prompt)
        spent = Amount()
        if answer.usage is not None:
            spent = Amount(answer.usage.prompt + answer.usage.completion, answer.cost or 0)
        lost = scale_amount(reserved, state.lost + (answer.usage is None))
        event = self.answered(message, answer)
        if not message.calls:
            goes_on = failed or self.unfinished.next(answer, cut)
            billed = AnswerBilling(usage, spent, lost, event)
            return await self.answer(message, billed, goes_on)
        self.unfinished.clear()
        await log.open(message, usage, spent, lost, event, await state.keeping())
        state.recorded()
        if (waits := await self.run_tools()) is not None:
            return waits
        if state.output is None or self.final() is not None:
            return None
        if outputs.count_rejected_outputs(log.view) > outputs.RETRIES:
            return await self.finish(self.no_output(cut))
        return None

    async def run_tools(self) -> Finish | None:
        """Run the calls of the open exchange and close it; return how that ended the run, if so."""
        state = self.state
        settled, state.settled = state.settled, {}
        waits = await run_calls(
            self.log, state.tools, state.context, self.close, settled, state.gate
        )
        if waits is not None or self.log.ended:
            return waits or PAUSED
        stopped = await state.guard.stop()
        return stopped if stopped is None or self.log.ended else await self.finish(stopped)

    async def close(self, done: dict[int, ToolResult], finish: Finish | None = None) -> None:
        """Close the exchange: cap its results, drain the inbox, reserve the next call."""
        log = self.log
        exchange = log.open_exchange()
        results = exchange.results | done
        texts = [results[index].text for index in range(len(exchange.message.calls))]
        shown = await self.state.fit(exchange.message.calls, texts)
        items = await log.store.inbox(log.lease.thread_id) if finish is None else []
        notes = notes_of(items, log.lease.run_id)
        if finish is None:
            notes += await self.state.guard.look([results[i] for i in sorted(results)])
            notes += await self.state.wrapping_up()
            finish = PAUSED if pause_requested(items, log.lease) else None
        events = [finish_event(finish)] if finish else []

        async def close(reserve: Callable[[View], Amount | None]) -> None:
            await log.close(
                done,
                shown,
                notes=notes,
                drained=items,
                reserve=reserve,
                finish=finish,
                events=events,
            )

        if finish is not None or self.state.limited:
            # A limited tree may have to shrink the answer or to wait: `prepare` does both.
            await close(lambda view: None)
        else:
            await close(self.state.ahead)

    async def answer(
        self, message: AssistantMessage, billed: AnswerBilling, goes_on: Note | Finish | None
    ) -> Finish | None:
        """Record an answer without calls; it ends the run, unless something came in meanwhile.

        Args:
            goes_on: what the model is asked because it is not at its end, or how it ends the run.
        """
        try:
            return await self.append_answer(message, billed, goes_on)
        except InboxWaiting:
            return await self.append_answer(message, billed, goes_on)

    async def append_answer(
        self, message: AssistantMessage, billed: AnswerBilling, goes_on: Note | Finish | None
    ) -> Finish | None:
        """Record an answer with what waits in the inbox.

        Raises:
            InboxWaiting: it was to end the run, and something came in since the inbox was read.
        """
        items: Sequence[InboxItem] = ()
        notes: list[Note] = []
        finish = goes_on if isinstance(goes_on, Finish) else None
        if finish is None:
            items = await self.log.store.inbox(self.log.lease.thread_id)
            notes = notes_of(items, self.log.lease.run_id)
            finish = self.ended(message, notes, goes_on)
        if finish is None and pause_requested(items, self.log.lease):
            finish = PAUSED
        # Nothing is said where reasoning used up all that there was, or all was withheld.
        said = [message] if message.text.strip() or message.files else []
        if not said:
            billed = replace(
                billed,
                usage=replace(billed.usage, node_id=None),
                event=replace(billed.event, node_id=None),
            )
        await self.log.append(
            [*said, *notes],
            drained=items,
            finish=finish,
            events=[billed.event, *([finish_event(finish)] if finish else [])],
            usage=[billed.usage],
            settle=billed.spent,
            unsettle=billed.lost,
            step=True,
            quiet_inbox=finish is not None and finish.status == "succeeded",
        )
        self.state.recorded()
        return finish

    def ended(
        self, message: AssistantMessage, notes: list[Note], goes_on: Note | Finish | None
    ) -> Finish | None:
        """Return how an answer ends the run, or add to the notes what the model is asked next."""
        # What is not at its end is one of the parts already.
        text = self.unfinished.joined("" if isinstance(goes_on, Note) else message.text)
        if self.state.output is not None:
            arguments = self.state.output.from_text(text)
            if arguments is not None and not notes:
                return Finish("succeeded", "completed", output=orjson.dumps(arguments))
        if isinstance(goes_on, Note):
            notes.append(goes_on)
            return None
        if self.state.output is not None:
            if outputs.count_rejected_outputs(self.log.view) >= outputs.RETRIES:
                return self.no_output()
            notes.append(Note(outputs.ASK))
        elif not notes:
            return Finish("succeeded", "completed", output=orjson.dumps(text))
        self.unfinished.clear()
        return None

    def answered(self, message: AssistantMessage, answer: ModelAnswer) -> NewEvent:
        """Return the event that tells of an answer."""
        usage = answer.usage
        data = {
            "step": self.log.steps + 1,
            "calls": len(message.calls),
            "prompt_tokens": usage.prompt if usage else None,
            "cached_tokens": usage.cached if usage else None,
            "completion_tokens": usage.completion if usage else None,
            "cost": answer.cost,
        }
        if (memory := self.state.memory) is not None:
            data["raw_tokens"], data["observed_tokens"] = memory.sizes(self.log.view)
        return NewEvent("answer", self.log.next_seq, data)

    async def drain(self) -> Finish | None:
        """Bring what came in while nobody worked on the thread into the log.

        A run that is resumed after an answer which did not end it is told to go on: some
        providers refuse a prompt that ends in an answer.  Returns how the run ended, if it did.
        """
        self.unfinished = UnfinishedAnswer.of(self.log.view.entries)
        items = await self.log.store.inbox(self.log.lease.thread_id)
        notes = notes_of(items, self.log.lease.run_id)
        said = await self.state.guard.answered() if self.log.steps else None
        if isinstance(said, Finish):
            return await self.finish(said)
        notes = [said, *notes] if said else notes
        if self.log.steps:
            notes += await self.state.wrapping_up()
        last = self.log.view.entries[-1]
        if not notes and last.message.type == "assistant" and not last.results:
            ask = Note(outputs.ASK if self.state.output else GO_ON)
            notes.append(Note(GO_ON_EXACTLY, source="cut") if self.unfinished.ends(last) else ask)
        finish = PAUSED if pause_requested(items, self.log.lease) else None
        if notes or items:
            events = [finish_event(finish)] if finish else []
            await self.log.append(notes, drained=items, finish=finish, events=events)
        if notes and finish is None:
            await self.state.activate("note")
        return finish

    async def pausing(self) -> bool:
        """Return whether it was asked to pause the run, and something waits for its next step."""
        items = await self.log.store.inbox(self.log.lease.thread_id)
        return pause_requested(items, self.log.lease)

    # Ends

    def final(self) -> dict[str, Any] | None:
        """Return the output's arguments if the branch ends in an accepted output."""
        return outputs.accepted_output(self.log.view) if self.state.output is not None else None

    def no_output(self, cut: AnswerCutoff | None = None) -> Finish:
        """Return the end of a run whose model never gave a valid output."""
        detail = f"The model gave no valid output in {outputs.RETRIES + 1} attempts."
        if cut is None:
            return Finish("failed", "error", detail)
        return Finish("failed", "length", f"{detail} The last was cut at {cut.at}. {cut.cure}")

    async def complete(self, arguments: dict[str, Any]) -> Finish:
        """End a run whose output was accepted."""
        return await self.finish(Finish("succeeded", "completed", output=orjson.dumps(arguments)))

    async def finish(self, finish: Finish) -> Finish:
        """End the run; an exchange under way is closed, with what is known of each call.

        Attempts that may be billed without a report of their usage are kept at their bound.
        """
        if self.log.exchange is not None:
            tools = self.state.tools
            if names := still_running(self.log.exchange, tools):
                running = f"Nothing can stop a thread: {', '.join(names)} may still be running."
                finish = replace(finish, detail=f"{finish.detail} {running}".strip())
            await self.close(abandoned_results(self.log.exchange, tools), finish)
            return finish
        state = self.state
        await self.log.append(
            [],
            finish=finish,
            events=[finish_event(finish)],
            unsettle=scale_amount(self.log.reserved or Amount(), state.lost + state.calling),
        )
        state.recorded()
        return finish


def notes_of(items: Sequence[InboxItem], run_id: str) -> list[Note]:
    """Return what came into the inbox as notes for the model of a run."""
    notes: list[Note] = []
    for item in items:
        text = item.body.decode()
        if item.kind == "steer":
            when = "while you work" if item.run_id in (None, run_id) else "to an earlier run"
            notes.append(Note(f"The user says, {when}: {text}", source="steer"))
        elif item.kind == PAUSE:
            continue
        elif item.kind == JOB:
            notes.append(Note(text, source="background"))
        else:
            notes.append(Note(text))
    return notes
