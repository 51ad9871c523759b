"""Answers that did not end normally, and what they mean for the run.

Only an answer that its provider reports as complete is final.  The model is asked to continue a
truncated or paused answer and to repeat a malformed call, each a limited number of times.  A
refused or filtered answer, or one that ended for an unknown reason, ends the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from agent_runtime.messages import AssistantMessage, Note
from agent_runtime.models.base import FinishReason, ModelAnswer
from agent_runtime.prompt.view import Entry
from agent_runtime_storage.contract.records.log import Finish, StopReason

CUTS = 3
"""How often a model may continue a truncated answer."""
PAUSES = 16
"""How often it may continue an answer that its provider paused."""
AGAIN = 3
"""How often it may repeat malformed calls."""
CUT: tuple[FinishReason, ...] = ("length", "window")
_NEARLY = 0.9
"""Share of the limit above which it counts as reached: providers stop early or count less."""

OutputLimit = Literal["model", "setting", "sub_agent_setting", "window", "budget"]
_LIMITS: dict[OutputLimit, tuple[str, str]] = {
    "model": ("the model's limit", "Ask for less in one answer, or use another model."),
    "setting": ("AGENT_RUNTIME_MAX_OUTPUT_TOKENS", "Raise AGENT_RUNTIME_MAX_OUTPUT_TOKENS."),
    "sub_agent_setting": (
        "AGENT_RUNTIME_SUB_AGENT_MAX_OUTPUT_TOKENS",
        "Raise AGENT_RUNTIME_SUB_AGENT_MAX_OUTPUT_TOKENS.",
    ),
    "window": ("the room in the context window", "Ask for less, or use a larger window."),
    "budget": ("what is left of the budget", "Raise the budget."),
}
_PARTS = "Write less at once: do it in several smaller calls, such as a long file in parts."
_GO_ON = (
    "Your answer was cut at {at}. Continue exactly where it ends, without any introduction and "
    "without repeating anything: what you write is joined to it."
)
_NOTHING = (
    "You used up {at} before you said anything. Think less, and answer in small steps: begin with "
    "the next one now."
)
GO_ON = (
    "Your answer is not complete. Continue exactly where it ends: what you write is joined to it."
)
_AGAIN = (
    "Your last answer was not a valid call of a tool ({word}), so nothing was called. Make the "
    "call again, with a tool that you have and one JSON object as its arguments."
)


@dataclass(frozen=True, slots=True)
class AnswerCutoff:
    """The limit at which an answer was truncated."""

    tokens: int
    by: OutputLimit

    @classmethod
    def of(cls, answer: ModelAnswer, allowed: int, by: OutputLimit) -> AnswerCutoff | None:
        """Return where an answer was truncated, or None; `allowed` is its limit in tokens."""
        if answer.finish not in CUT:
            return None
        # Without reported usage, assume that the whole limit was used.
        used = answer.usage.completion if answer.usage else allowed
        if answer.finish == "window":
            return cls(used, "window")
        # Below our limit it must have been the model's own, which not every provider states.
        return cls(allowed, by) if used >= _NEARLY * allowed else cls(used, "model")

    @property
    def at(self) -> str:
        """The limit, as text."""
        return f"{self.tokens:,} output tokens ({_LIMITS[self.by][0]})"

    @property
    def cure(self) -> str:
        """What the user can do."""
        return _LIMITS[self.by][1]

    @property
    def result(self) -> str:
        """The error result of an incomplete call."""
        return f"The answer was cut at {self.at} within this call, so it was not made. {_PARTS}"


def failed_answer(answer: ModelAnswer) -> Finish | None:
    """Return the end of a run whose answer was refused, filtered or failed; else None."""
    word = answer.word or answer.finish
    match answer.finish:
        case "refusal":
            return _failed(
                "refusal", f"{answer.model} refused to answer ({word}). Rephrase the task."
            )
        case "content_filter":
            what = f"The content filter of {answer.model} withheld the answer ({word})."
            return _failed("content_filter", f"{what} Rephrase the task, or use another model.")
        case "unknown" | "broken":
            # Not taken for a whole answer: nobody knows what is missing.
            what = f"{answer.model} ended its answer for an unknown reason: {word!r}."
            return _failed("error", f"{what} Try again, or use another model.")
        case _:
            return None


def _failed(reason: StopReason, detail: str) -> Finish:
    return Finish("failed", reason, detail)


@dataclass(slots=True)
class UnfinishedAnswer:
    """The parts of an answer that is not complete yet.

    Attributes:
        parts: their texts, in order.
    """

    parts: list[str] = field(default_factory=list[str])
    _cuts: int = 0
    _pauses: int = 0
    _again: int = 0

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> UnfinishedAnswer:
        """Return the unfinished answer at the end of a branch, without its last message."""
        unfinished = cls()
        asked = ""
        last = entries[-1].message
        whole = isinstance(last, AssistantMessage) and not last.calls
        # Backwards: an answer belongs to it if the note after it asks to continue.
        for entry in reversed(entries[:-1] if whole else entries):
            message = entry.message
            if isinstance(message, Note):
                asked = message.source if asks_again(entry) else asked
            elif isinstance(message, AssistantMessage) and not message.calls and asked:
                if asked == "cut":
                    unfinished.parts.insert(0, message.text)
                asked = ""
            else:
                break
        return unfinished

    def ends(self, last: Entry) -> bool:
        """Add the branch's last message as the final part, if it is one; return whether it is."""
        if not self.parts or not isinstance(last.message, AssistantMessage):
            return False
        self.parts.append(last.message.text)
        return True

    def joined(self, text: str) -> str:
        """Return the whole answer, given its last part."""
        return "".join([*self.parts, text])

    def clear(self) -> None:
        """Start over, because the model did something else."""
        self.parts.clear()
        self._cuts = self._pauses = self._again = 0

    def next(self, answer: ModelAnswer, cut: AnswerCutoff | None) -> Note | Finish | None:
        """Return the note that asks for more of an answer without calls, or the run's end.

        None for a complete answer.
        """
        has_text = bool(answer.text.strip())
        if answer.finish == "malformed":
            self._again += 1
            if self._again > AGAIN:
                return _failed(
                    "error",
                    f"{answer.model} made no valid call in {self._again} attempts ({answer.word}). "
                    "Use another model, or simpler tools.",
                )
            return Note(_AGAIN.format(word=answer.word), source="malformed")
        # Only malformed calls in a row count.
        self._again = 0
        if cut is not None:
            self._cuts += 1
            if self._cuts > CUTS:
                what = f"was cut {self._cuts} times, the last time at {cut.at}"
                return _failed("length", f"The answer of {answer.model} {what}. {cut.cure}")
            self.parts += [answer.text] if has_text else []
            return Note((_GO_ON if has_text else _NOTHING).format(at=cut.at), source="cut")
        if answer.finish == "pause":
            self._pauses += 1
            if self._pauses > PAUSES:
                what = f"paused {self._pauses} times without an end ({answer.word})"
                return _failed(
                    "error",
                    f"The answer of {answer.model} {what}. Try again, or use another model.",
                )
            self.parts.append(answer.text)
            return Note(GO_ON, source="cut")
        return None


def asks_again(entry: Entry) -> bool:
    """Return whether a note asks the model to continue its answer or to repeat a call."""
    return isinstance(entry.message, Note) and entry.message.source in ("cut", "malformed")
