"""The Observer that asks a language model."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

import anyio
import anyio.to_thread

from agent_runtime.errors import ModelOverflow, ModelProtocolError, ModelUnavailable
from agent_runtime.memory.observational.observer.base import (
    MemoryCall,
    ObserverFailed,
    ObserverInput,
    ObserverResult,
)
from agent_runtime.memory.observational.observer.instructions import INSTRUCTIONS
from agent_runtime.memory.observational.observer.model_call import (
    call_memory_model,
    cheaper_service,
    failure_reason,
)
from agent_runtime.memory.observational.observer.notes_format import format_notes, parse_notes
from agent_runtime.memory.observational.observer.repair import follow_up, salvage_notes
from agent_runtime.memory.observational.observer.validate import (
    NotesRejected,
    NotesSource,
    validate_notes,
)
from agent_runtime.memory.transcript import (
    LEAST,
    RESULT_TOKENS,
    TranscriptPart,
    characters,
    nonce_for,
    pieces,
    time_of,
    transcript_messages,
)
from agent_runtime.messages import PromptMessage, repeats
from agent_runtime.models.base import Model, ModelAnswer, ModelInfo
from agent_runtime.models.cost import max_call_cost
from agent_runtime.models.tokens import MESSAGE_OVERHEAD, count_message, count_text
from agent_runtime.prompt.calendar import local_time, named_day, notes_in_utc, notes_in_zone
from agent_runtime.prompt.incomplete_answers import CUT
from agent_runtime.prompt.observation import ObservationLine, ObservationNotes
from agent_runtime_config.request_settings import Effort

TEMPERATURE = 0.3
"""Above zero, because that makes repetition loops rarer."""
MOST_INPUT = 32_000
"""Tokens of a transcript; a longer one is read in pieces, because models overlook more of it."""
MOST_OUTPUT = 8_192
"""Notes need less; reasoning models think within this limit as well."""
MORE_OUTPUT = 2
"""The limit grows by this factor after reasoning has used up the whole of it."""
LESS_REASONING: Effort = "low"
"""What the model is then asked for, if it reasoned."""
EARLIER_TOKENS = 2_000
"""Tokens of the newest earlier notes that the model reads."""
OPEN_TOKENS = 500
"""Tokens of older critical lines that it reads in addition."""
FRAME_TOKENS = 300
"""Tokens of a prompt apart from instructions, notes and transcript."""
REJECTED_TOKENS = 1_000
"""Tokens of a rejected answer that the next attempt shows."""
ATTEMPTS = 2
"""Attempts for each piece."""
MOST_PIECES = 16
"""The most pieces of one interval: with more, instructions would cost more than transcripts."""
SESSION = "agent-runtime-observer"
"""The same for all threads: their prompts begin alike, and some providers route by it."""
WAIT = 1.0
"""Seconds before a retry after a transient failure."""
OFF_LOOP = 200_000
"""Above this many characters a transcript is made in a thread."""

READ = "The transcript to take notes of:"
WRITE = "Write the notes of the transcript now, in the required form."
"""Ends every message: the last word is the runtime's, not the transcript's."""


class _UnusableError(Exception):
    """No attempt gave usable notes."""


@dataclass(frozen=True, slots=True)
class _Reading:
    interval: ObserverInput
    limit: int
    nonce: str
    pieces: tuple[TranscriptPart, ...]


@dataclass(slots=True)
class ModelObserver:
    """An Observer that asks a model.

    A transcript that is too long for one call is read in pieces, in order; the notes of one piece
    are among the earlier notes of the next.  Of a rejected answer the good lines are taken if they
    suffice, or else it is asked for once more in the same conversation, with the reason; a
    transient failure is retried once.

    Attributes:
        info: the model's limits and prices.
        timeout: seconds that one `observe` may take, including all calls and waits.
        thread: whose transcripts it reads; threads take turns where a rate limit makes them wait.
        zone: the time zone of the times that it reads and writes.
        temperature: None for the model's default.
        batches: whether notes that are made ahead of need are asked for at the price of batches.
        wait: seconds before a retry after a transient failure.
        limit: tokens of one transcript, in our count; halved when the model finds one too long.
    """

    model: Model
    info: ModelInfo
    timeout: float
    thread: str = ""
    zone: str = "UTC"
    temperature: float | None = TEMPERATURE
    result_limit: int = RESULT_TOKENS
    most_output: int = MOST_OUTPUT
    wait: float = WAIT
    batches: bool = True
    limit: int = MOST_INPUT
    room: int = field(default=0, init=False)
    """Tokens of a prompt that are left for a transcript; a small window has none."""
    _latest: _Reading | None = field(default=None, init=False, repr=False)
    """The last interval as it was read: `bound` and `observe` read the same one."""
    _thought: bool = field(default=False, init=False, repr=False)
    """Whether reasoning has used up the limit of an answer since that was set."""

    def __post_init__(self) -> None:
        """Fit the limits to the model's window."""
        self.most_output = min(self.most_output, self._greatest_output())
        self._fit()

    def _fit(self) -> None:
        info = self.info
        self.room = int((info.window - self.most_output) / info.start_ratio) - self._frame()
        self.limit = max(LEAST, min(self.limit, self.room))

    def _greatest_output(self) -> int:
        # A quarter of a small window: the transcript needs most of it.
        return min(self.info.max_output, max(1, self.info.window // 4))

    def _raised_output(self) -> int:
        return min(self.most_output * MORE_OUTPUT, self._greatest_output())

    async def observe(self, interval: ObserverInput) -> ObserverResult:
        """Return notes of the interval, or that there is nothing to observe.

        Raises:
            ObserverFailed: the model failed, gave no usable notes, or took too long.
        """
        calls: list[MemoryCall] = []
        try:
            with anyio.fail_after(self.timeout):
                notes = await self._observe(interval, calls)
        except _UnusableError as error:
            raise ObserverFailed(str(error), calls=tuple(calls)) from None
        except Exception as error:
            why = failure_reason(error, self.model, self.timeout, "to observe")
            raise ObserverFailed(why, calls=tuple(calls)) from error
        finally:
            self._latest = None
            if self._thought:
                # Not earlier: `bound` counted with the limit that held.
                self.most_output, self._thought = self._raised_output(), False
                self._fit()
        return ObserverResult(notes, tuple(calls), "model", self.model.name)

    def bound(self, interval: ObserverInput) -> tuple[int, int]:
        """Return upper bounds of the cost of all attempts: the model's tokens and nanodollars."""
        tokens = cost = 0
        read = self._read(interval)[1]
        for piece in read if len(read) <= MOST_PIECES else ():
            prompt = int((piece.tokens + self._frame()) * self.info.start_ratio) + 1
            # One for each attempt: the second may have the raised limit.
            for output in (self.most_output, self._raised_output()):
                most = max_call_cost(self.info, prompt, output)
                tokens, cost = tokens + most.tokens, cost + most.cost
        return tokens, cost

    def _frame(self) -> int:
        """Return the most tokens a prompt has apart from its transcript."""
        return _instruction_tokens() + sum(self._budgets()) + self.rejected_tokens + FRAME_TOKENS

    @property
    def rejected_tokens(self) -> int:
        """Tokens of a rejected answer that the next attempt shows."""
        return min(REJECTED_TOKENS, self.info.window // 16)

    def _budgets(self) -> tuple[int, int]:
        """Return the token budgets of the newest earlier notes and of older critical lines."""
        window = self.info.window
        return min(EARLIER_TOKENS, window // 8), min(OPEN_TOKENS, window // 32)

    async def _observe(
        self, interval: ObserverInput, calls: list[MemoryCall]
    ) -> ObservationNotes | None:
        while True:
            try:
                return await self._write_all(interval, calls)
            # Our count underestimates some texts.  The new limit stays: the next interval is much
            # like it.
            except ModelOverflow:
                if self.limit <= LEAST:
                    raise
                self.limit = max(LEAST, self.limit // 2)

    async def _write_all(
        self, interval: ObserverInput, calls: list[MemoryCall]
    ) -> ObservationNotes | None:
        """Return the notes of all pieces; None if there is nothing to observe in any."""
        if characters(interval.entries) > OFF_LOOP:
            nonce, read = await anyio.to_thread.run_sync(self._read, interval)
        else:
            nonce, read = self._read(interval)
        if len(read) > MOST_PIECES:
            raise _UnusableError(
                f"{self.model.name} would read this in {len(read)} calls, each of at most "
                f"{self.limit:,} tokens; {MOST_PIECES} are allowed."
            )
        earlier = [notes_in_zone(one.notes, self.zone) for one in interval.earlier]
        written: list[ObservationNotes] = []
        for piece in read:
            service = cheaper_service(self.info) if self.batches and interval.early else ""
            notes = await self._write_piece(piece, nonce, [*earlier, *written], calls, service)
            if notes is not None:
                written.append(notes)
        known = (time_of(entry.at) for entry in interval.entries)
        return notes_in_utc(_joined(written), self.zone, known) if written else None

    def _read(self, interval: ObserverInput) -> tuple[str, tuple[TranscriptPart, ...]]:
        """Return a mark that occurs in none of the texts, and the transcript in pieces."""
        latest = self._latest
        if latest is not None and latest.interval is interval and latest.limit == self.limit:
            return latest.nonce, latest.pieces
        # Recalled messages happened before and have been observed.
        entries = [one for one in interval.entries if not repeats(one.message)]
        messages = [
            replace(one, at=local_time(one.at, self.zone))
            for one in transcript_messages(entries, result_limit=self.result_limit)
        ]
        texts = [text for one in messages for text in (one.text, one.speaker)]
        nonce = nonce_for([*texts, *(format_notes(one.notes) for one in interval.earlier)])
        read = pieces(messages, limit=self.limit, nonce=nonce)
        self._latest = _Reading(interval, self.limit, nonce, read)
        return nonce, read

    async def _write_piece(
        self,
        piece: TranscriptPart,
        nonce: str,
        earlier: Sequence[ObservationNotes],
        calls: list[MemoryCall],
        service: str,
    ) -> ObservationNotes | None:
        """Return the notes of one piece.

        Args:
            service: the service tier of the first attempt.

        Raises:
            ModelError: the model failed, and there is no attempt or no time left.
            _UnusableError: no attempt gave usable notes.
        """
        # Also the source to check names against: notes may repeat one from earlier notes.
        when = _when(nonce, self.zone, piece.latest)
        context = _context_text(when, nonce, *_context(earlier, *self._budgets()))
        text = f"{context}\n\n{READ}\n{piece.text}"
        # The parts are counted already; together they have a few tokens less.
        counted = 2 * MESSAGE_OVERHEAD + _instruction_tokens() + piece.tokens
        counted += count_text(context) + count_text(READ)
        source = NotesSource(
            text=text,
            tokens=piece.tokens,
            instructions=INSTRUCTIONS,
            nonce=nonce,
            latest=piece.latest,
            noteworthy=piece.noteworthy,
            zone=self.zone,
        )
        counted += count_text(WRITE)
        attempt = _Attempt(self, f"{text}\n\n{WRITE}", counted, source, service)
        for left in reversed(range(ATTEMPTS)):
            try:
                answer = await attempt.ask(calls)
            except (ModelUnavailable, ModelProtocolError):
                # The usual service may have the room that the cheaper one had not.
                wait, service = 0.0 if service else self.wait, ""
                # Sleeping into the deadline would replace the model's own error by a timeout.
                if not left or not _time_for(wait):
                    raise
                await anyio.sleep(wait)
                continue
            notes = attempt.notes(answer)
            if not isinstance(notes, NotesRejected):
                return notes
        raise _UnusableError(f"{self.model.name} wrote no usable notes. {attempt.rejected}")

    def after_reasoning(self) -> int:
        """Return the limit of the next answer after reasoning has used up that of one."""
        self._thought = True
        return self._raised_output()


@dataclass(slots=True)
class _Attempt:
    """The attempts at the notes of one piece.

    Attributes:
        text: the first message, of `counted` tokens with the instructions.
        service: the service tier of the next call.
        rejected: why the last answer was not taken.
    """

    by: ModelObserver
    text: str
    counted: int
    source: NotesSource
    service: str = ""
    rejected: str = ""
    _following: tuple[PromptMessage, ...] = ()
    _output: int = 0
    _reasoning: Effort | None = None

    async def ask(self, calls: list[MemoryCall]) -> ModelAnswer:
        """Call the model."""
        by = self.by
        service, self.service = self.service, ""
        return await call_memory_model(
            by.model,
            INSTRUCTIONS,
            self.text,
            self._output or by.most_output,
            calls=calls,
            counted=self.counted + sum(map(count_message, self._following)),
            temperature=by.temperature,
            reasoning=self._reasoning,
            session=SESSION,
            run=by.thread,
            following=self._following,
            service=service,
        )

    def notes(self, answer: ModelAnswer) -> ObservationNotes | NotesRejected | None:
        """Return the answer's notes, or else prepare the next attempt."""
        cut_off = answer.finish in CUT
        notes = validate_notes(answer.text, self.source, cut_off=cut_off)
        if not isinstance(notes, NotesRejected):
            return notes
        if not cut_off and (good := salvage_notes(answer.text, notes, self.source)) is not None:
            return good
        if cut_off and not parse_notes(answer.text).lines:
            # Reasoning, or an introduction, used up the limit: there is nothing to talk about.
            limit = self._output or self.by.most_output
            self.rejected = f"It used up {limit:,} tokens before the first line."
            self._output, self._following = self.by.after_reasoning(), ()
            thought = answer.reasoning or (answer.usage is not None and answer.usage.reasoning)
            self._reasoning = LESS_REASONING if thought else None
            return notes
        self.rejected = notes.detail
        request = f"Your answer was rejected. {notes.detail} {WRITE}"
        self._following = follow_up(
            answer.text, request, self.source.nonce, self.by.rejected_tokens
        )
        return notes


@functools.cache
def _instruction_tokens() -> int:
    return count_text(INSTRUCTIONS)


def _time_for(seconds: float) -> bool:
    return anyio.current_time() + seconds < anyio.current_effective_deadline()


# Earlier notes


def _when(nonce: str, zone: str, latest: str) -> str:
    """Return the first line of a message: its code, and how to read its times."""
    day = named_day(date.fromisoformat(latest[:10])) if latest else ""
    ends = f" The transcript ends on {day}." if day else ""
    return f"The code is {nonce}. All times are in {zone}.{ends}"


def _context_text(
    when: str, nonce: str, newest: ObservationNotes, still_open: tuple[ObservationLine, ...]
) -> str:
    parts = [when]
    if still_open:
        parts.append(
            "Older notes of problems and wishes, for context; do not repeat them:\n"
            f"<older {nonce}>\n{format_notes(ObservationNotes(still_open))}\n</older {nonce}>"
        )
    if shown := format_notes(newest):
        parts.append(
            "The newest earlier notes, for context; do not repeat them:\n"
            f"<earlier {nonce}>\n{shown}\n</earlier {nonce}>"
        )
    return "\n\n".join(parts)


def _context(
    earlier: Sequence[ObservationNotes], budget: int, open_budget: int
) -> tuple[ObservationNotes, tuple[ObservationLine, ...]]:
    """Return the newest notes, and the critical lines that are older, within their budgets."""
    task = next((one.task for one in reversed(earlier) if one.task), "")
    following = next((one.next_step for one in reversed(earlier) if one.next_step), "")
    # A token rarely has less than a character, so these take about a quarter of the budget.
    last = ObservationNotes((), task[: budget // 8], following[: budget // 8])
    lines = [line for one in earlier for line in one.lines]
    newest = _within(reversed(lines), budget - count_text(format_notes(last)))
    older = lines[: len(lines) - len(newest)]
    critical = (line for line in reversed(older) if line.priority == "critical")
    return replace(last, lines=newest), _within(critical, open_budget)


def _within(newest_first: Iterable[ObservationLine], budget: int) -> tuple[ObservationLine, ...]:
    """Return the newest lines that fit into a token budget, oldest first."""
    lines: list[ObservationLine] = []
    for line in newest_first:
        budget -= count_text(format_notes(ObservationNotes((line,)))) + 1
        if budget < 0:
            break
        lines.append(line)
    return tuple(reversed(lines))


def _joined(written: Sequence[ObservationNotes]) -> ObservationNotes:
    """Join the notes of all pieces; the task and the next step are the last known ones."""
    return ObservationNotes(
        tuple(line for one in written for line in one.lines),
        next((one.task for one in reversed(written) if one.task), ""),
        next((one.next_step for one in reversed(written) if one.next_step), ""),
    )
