"""The Reflector that asks a language model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio

from agent_runtime.errors import ModelError, ModelProtocolError, ModelUnavailable
from agent_runtime.memory.observational.observer.base import MemoryCall, ObserverFailed
from agent_runtime.memory.observational.observer.model import LESS_REASONING
from agent_runtime.memory.observational.observer.model_call import (
    call_memory_model,
    cheaper_service,
    failure_reason,
)
from agent_runtime.memory.observational.observer.notes_format import format_notes, parse_notes
from agent_runtime.memory.observational.observer.repair import follow_up, salvage_notes
from agent_runtime.memory.observational.observer.validate import (
    SHARE,
    NotesRejected,
    NotesSource,
    validate_notes,
)
from agent_runtime.memory.observational.reflector.base import (
    Reflection,
    ReflectorResult,
    notes_tokens,
)
from agent_runtime.memory.observational.reflector.instructions import INSTRUCTIONS
from agent_runtime.memory.observational.reflector.retention import (
    lost_critical_lines,
    restore_lost_lines,
)
from agent_runtime.memory.transcript import nonce_for
from agent_runtime.messages import PromptMessage
from agent_runtime.models.base import Model, ModelAnswer, ModelInfo
from agent_runtime.models.cost import max_call_cost, scale_amount
from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.calendar import notes_in_utc, notes_in_zone
from agent_runtime.prompt.incomplete_answers import CUT
from agent_runtime.prompt.observation import ObservationNotes
from agent_runtime_config.request_settings import Effort

TEMPERATURE = 0.0
"""It should retain what is there, not invent."""
MOST_OUTPUT = 16_384
"""Enough for a reflection of a large memory; reasoning models think within it."""
STRENGTHS = (
    "Join what belongs together; leave out what was superseded and small steps on the way.",
    "Join more: one line for each piece of work, with its result. Leave out passing details.",
    "Join most: one line for each theme, and for each decision with its reason.",
    "Keep only what a successor could not do without. Drop all else.",
)
"""How each attempt is asked to condense."""
SHARES = (1.0, 0.8, 0.6, 0.4)
"""Share of the goal that each attempt is asked to write."""
MORE_OUTPUT = 2
"""The limit grows by this factor after reasoning has used up the whole of it."""
REJECTED_TOKENS = 2_000
"""Tokens of an answer that the next attempt shows."""
FRAME_TOKENS = 500
"""Tokens of a prompt apart from instructions, notes and an earlier answer."""
MOST_DENSE = 2
"""Attempts if what must be retained is too large to be progress by itself."""

WRITE = "Write the condensed notes now, in the required form."
"""Ends every message: the last word is the runtime's."""
SESSION = "agent-runtime-reflector"
"""The same for all threads: their prompts begin alike, and some providers route by it."""


@dataclass(slots=True)
class ModelReflector:
    """A Reflector that asks a model, up to four times, each time to condense more.

    The first answer within the goal is taken, or else the smallest usable one that is progress.
    Critical lines and open tasks that an answer has lost are put back as they were written; if it
    is then no progress, it is not usable.

    Attributes:
        info: the model's limits and prices.
        timeout: seconds that one `reflect` may take; the best answer by then is taken.
        thread: whose notes it condenses; threads take turns where a rate limit makes them wait.
        zone: the time zone of the times that it reads and writes.
        temperature: None for the model's default.
        batches: whether to ask at the price of batches while observations are within R.
    """

    model: Model
    info: ModelInfo
    timeout: float
    thread: str = ""
    zone: str = "UTC"
    temperature: float | None = TEMPERATURE
    most_output: int = MOST_OUTPUT
    batches: bool = True

    room: int = field(default=0, init=False)
    """Tokens of a prompt that are left for the notes; a small window has none."""

    def __post_init__(self) -> None:
        """Fit the limits to the model's window."""
        info = self.info
        self.most_output = min(self.most_output, self._greatest_output())
        self.room = int((info.window - self.most_output) / info.start_ratio) - self._frame()

    @property
    def rejected_tokens(self) -> int:
        """Tokens of an answer that the next attempt shows."""
        return min(REJECTED_TOKENS, self.info.window // 16)

    @property
    def raised_output(self) -> int:
        """The limit of an answer after reasoning has used up that of another."""
        return min(self.most_output * MORE_OUTPUT, self._greatest_output())

    def _greatest_output(self) -> int:
        # A quarter of a small window: the notes need most of it.
        return min(self.info.max_output, max(1, self.info.window // 4))

    def _frame(self) -> int:
        return count_text(INSTRUCTIONS) + self.rejected_tokens + FRAME_TOKENS

    async def reflect(self, reflection: Reflection, ledger: Sequence[str]) -> ReflectorResult:
        """Return notes that replace the parts.

        Raises:
            ObserverFailed: the model failed, or gave no usable notes in time.
        """
        attempts = _Attempts(self, reflection, tuple(ledger))
        why = ""
        try:
            with anyio.fail_after(self.timeout):
                await attempts.run()
        except Exception as error:
            why = failure_reason(error, self.model, self.timeout, "to reflect")
        calls = tuple(attempts.calls)
        # Even after a failure or the timeout: it is paid for and is progress.
        if attempts.best is not None:
            return ReflectorResult(attempts.best, calls, "model", self.model.name)
        why = why or f"{self.model.name} wrote no usable notes. {attempts.rejected}"
        raise ObserverFailed(why.strip(), calls=calls)

    def bound(self, reflection: Reflection) -> tuple[int, int]:
        """Return upper bounds of the cost of all attempts: the model's tokens and nanodollars."""
        # Prompts show observations with less per line than a model gets here: its time and
        # priority.
        lines = sum(len(part.notes.lines) for part in reflection.parts)
        frame = self._frame() + 40 * len(reflection.parts) + 12 * lines
        prompt = int((reflection.tokens + frame) * self.info.start_ratio) + 1
        first = max_call_cost(self.info, prompt, self.most_output)
        later = scale_amount(
            max_call_cost(self.info, prompt, self.raised_output), len(STRENGTHS) - 1
        )
        return first.tokens + later.tokens, first.cost + later.cost


class _Attempts:
    """The attempts at one reflection.

    Attributes:
        best: the smallest usable notes.
        rejected: why the last answer was not enough.
    """

    def __init__(
        self, reflector: ModelReflector, reflection: Reflection, ledger: tuple[str, ...]
    ) -> None:
        self._by = reflector
        self._of = reflection
        self._ledger = ledger
        read = [notes_in_zone(part.notes, reflector.zone) for part in reflection.parts]
        self._nonce = nonce_for(map(format_notes, read))
        self._text = _message(read, self._nonce, reflector.zone)
        times = (line.at for notes in read for line in notes.lines)
        # A date without a time lasts until its end.
        self._latest = max((f"{at} 24:00" if len(at) == 10 else at for at in times), default="")
        self.calls: list[MemoryCall] = []
        self.best: ObservationNotes | None = None
        self.rejected = ""
        self._output = reflector.most_output
        self._reasoning: Effort | None = None
        # Within R the result is not needed yet.
        early = reflector.batches and reflection.room
        self._service = cheaper_service(reflector.info) if early else ""
        self._following: tuple[PromptMessage, ...] = ()
        # Notes must be smaller than this to count: the limit of what is progress, plus one.
        self._size = reflection.most + 1
        # What is left if a model drops all it may: if that is no progress, many attempts are in
        # vain.
        floor = restore_lost_lines(ObservationNotes(()), reflection.parts, reflection.stated)
        self._dense = notes_tokens(floor, ledger) > reflection.most

    async def run(self) -> None:
        """Ask until notes are within the goal or the attempts are used up.

        Raises:
            ModelError: the model failed permanently, or twice.
        """
        by, failed = self._by, False
        first = f"{self._text}\n\n{self._request(0)}"
        for attempt in range(len(STRENGTHS)):
            try:
                answer = await call_memory_model(
                    by.model,
                    INSTRUCTIONS,
                    first,
                    self._output,
                    calls=self.calls,
                    temperature=by.temperature,
                    reasoning=self._reasoning,
                    session=SESSION,
                    run=by.thread,
                    following=self._following,
                    service=self._service,
                )
            except (ModelUnavailable, ModelProtocolError):
                if failed:
                    raise
                failed, self._service = True, ""
                continue
            except ModelError:
                if self.best is not None:
                    return
                raise
            self._service = ""
            before = self._size
            if self._take(answer.text, cut_off=answer.finish in CUT):
                return
            if self.best is not None and self._size >= before * 0.95:
                # No further progress.
                return
            if self.best is None and self._dense and attempt + 1 == MOST_DENSE:
                # Almost everything must be retained, and the model finds nothing to join.
                return
            self._prepare(answer, min(attempt + 1, len(STRENGTHS) - 1))

    def _request(self, attempt: int) -> str:
        ledger = notes_tokens(ObservationNotes(()), self._ledger)
        goal = max(64, int((self._of.goal - ledger) * SHARES[attempt]))
        # Models count words better than tokens; 15 words for 20 tokens, in round numbers.
        return f"{STRENGTHS[attempt]} Aim at {goal // 20 * 15:,} words or fewer. {WRITE}"

    def _prepare(self, answer: ModelAnswer, attempt: int) -> None:
        """Set what the next attempt sends after this answer."""
        if answer.finish in CUT and not parse_notes(answer.text).lines:
            # Reasoning, or an introduction, used up the limit: there is nothing to talk about.
            self.rejected = (
                f"It used up its limit of {self._output:,} tokens before the first line."
            )
            self._output, self._following = self._by.raised_output, ()
            thought = answer.reasoning or (answer.usage is not None and answer.usage.reasoning)
            self._reasoning = LESS_REASONING if thought else None
            return
        request = f"{self.rejected} {self._request(attempt)}"
        shown = self._by.rejected_tokens
        self._following = follow_up(answer.text, request.strip(), self._nonce, shown)

    def _take(self, text: str, *, cut_off: bool) -> bool:
        """Keep an answer if it is the best so far; return whether it is within the goal."""
        self.rejected = ""
        source = NotesSource(
            text=self._text,
            # So that the validator's limit is what counts as progress.
            tokens=int(self._of.most / SHARE),
            instructions=INSTRUCTIONS,
            nonce=self._nonce,
            latest=self._latest,
            noteworthy=True,
            zone=self._by.zone,
        )
        notes = validate_notes(text, source, cut_off=cut_off)
        if isinstance(notes, NotesRejected) and not cut_off:
            notes = salvage_notes(text, notes, source) or notes
        if notes is None or isinstance(notes, NotesRejected):
            self.rejected = notes.detail if notes else "There is something to note."
            return False
        known = (line.at for part in self._of.parts for line in part.notes.lines)
        notes = notes_in_utc(notes, self._by.zone, known)
        # Counted before they are put back: the model is asked to keep them itself, in fewer words.
        missing = len(lost_critical_lines(notes, self._of.parts, self._of.stated))
        notes = restore_lost_lines(notes, self._of.parts, self._of.stated)
        size = notes_tokens(notes, self._ledger)
        if size < self._size:
            self.best, self._size = notes, size
        if size > self._of.goal:
            again = f" {missing} critical lines were missing." if missing else ""
            self.rejected = f"It was too long.{again}"
        return size <= self._of.goal


def _message(read: Sequence[ObservationNotes], nonce: str, zone: str) -> str:
    parts = [
        f"<notes {nonce} {number}>\n{format_notes(notes)}\n</notes {nonce} {number}>"
        for number, notes in enumerate(read, start=1)
    ]
    when = f"The code is {nonce}. All times are in {zone}."
    return "\n\n".join([when, "The notes to condense:", *parts])
