"""What becomes of a run by how an answer of its model ended.

Only an answer that its provider calls complete counts as one.  What was cut, or paused, the model
is asked to go on with; a call that is none, to make again; each only a few times.  What was
refused or filtered, or ended for a reason that nobody knows, ends the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from agent_runtime.messages import AssistantMessage, Note
from agent_runtime.models.base import FinishReason, ModelAnswer
from agent_runtime.prompt.view import Entry
from agent_runtime_storage.contract.records import Finish, StopReason

CUTS = 3
"""How often a model may go on with an answer that was cut."""
PAUSES = 16
"""How often it may go on with one that its provider paused."""
AGAIN = 3
"""How often it may make calls again that were malformed."""
CUT: tuple[FinishReason, ...] = ("length", "window")
_NEARLY = 0.9
"""Providers stop a little before the limit that they were given, or count a little less."""

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
    "Your answer was cut at {at}. Go on exactly where it ends, without a word before and without "
    "repeating anything: what you write is joined to it."
)
_NOTHING = (
    "You used up {at} before you said anything. Think less, and answer in small steps: begin with "
    "the next one now."
)
GO_ON = (
    "Your answer is not at its end. Go on exactly where it ends: what you write is joined to it."
)
_AGAIN = (
    "Your last answer was no valid call of a tool ({word}), so nothing was called. Make the call "
    "again: of a tool that you have, with one JSON object as its arguments."
)


@dataclass(frozen=True, slots=True)
class AnswerCutoff:
    """The limit that an answer was cut at."""

    tokens: int
    by: OutputLimit

    @classmethod
    def of(cls, answer: ModelAnswer, allowed: int, by: OutputLimit) -> AnswerCutoff | None:
        """Return where an answer was cut, if it was, that might have so many tokens."""
        if answer.finish not in CUT:
            return None
        used = answer.usage.completion if answer.usage else allowed
        if answer.finish == "window":
            return cls(used, "window")
        return cls(allowed, by) if used >= _NEARLY * allowed else cls(used, "model")

    @property
    def at(self) -> str:
        """What to say of it."""
        return f"{self.tokens:,} output tokens ({_LIMITS[self.by][0]})"

    @property
    def cure(self) -> str:
        """What its user can do about it."""
        return _LIMITS[self.by][1]

    @property
    def result(self) -> str:
        """What to say of a call that is not whole."""
        return f"The answer was cut at {self.at} within this call, so it was not made. {_PARTS}"


def failed_answer(answer: ModelAnswer) -> Finish | None:
    """Return the end of a run whose model gave an answer that is none, whatever it says."""
    word = answer.word or answer.finish
    match answer.finish:
        case "refusal":
            return _failed(
                "refusal", f"{answer.model} refused to answer ({word}). Rephrase the task."
            )
        case "content_filter":
            said = f"The content filter of {answer.model} withheld the answer ({word})."
            return _failed("content_filter", f"{said} Rephrase the task, or use another model.")
        case "unknown" | "broken":
            said = f"{answer.model} ended its answer for a reason that is not known: {word!r}."
            return _failed("error", f"{said} Try again, or use another model.")
        case _:
            return None


def _failed(reason: StopReason, detail: str) -> Finish:
    return Finish("failed", reason, detail)


@dataclass(slots=True)
class UnfinishedAnswer:
    """What a model has said of an answer that is not at its end.

    Attributes:
        parts: its texts so far, in order.
    """

    parts: list[str] = field(default_factory=list[str])
    _cuts: int = 0
    _pauses: int = 0
    _again: int = 0

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> UnfinishedAnswer:
        """Return what a branch ends in; what nothing follows is no part yet."""
        unfinished = cls()
        asked = ""
        last = entries[-1].message
        whole = isinstance(last, AssistantMessage) and not last.calls
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
        """Return whether the last message of the branch is one more part, which nothing follows."""
        if not self.parts or not isinstance(last.message, AssistantMessage):
            return False
        self.parts.append(last.message.text)
        return True

    def joined(self, text: str) -> str:
        """Return the whole answer, of which this is the last part."""
        return "".join([*self.parts, text])

    def clear(self) -> None:
        """Take note that the model has done something else."""
        self.parts.clear()
        self._cuts = self._pauses = self._again = 0

    def next(self, answer: ModelAnswer, cut: AnswerCutoff | None) -> Note | Finish | None:
        """Return what to say to an answer without calls that is not at its end, or the end.

        None for an answer that is at its end.
        """
        said = bool(answer.text.strip())
        if answer.finish == "malformed":
            self._again += 1
            if self._again > AGAIN:
                return _failed(
                    "error",
                    f"{answer.model} made no valid call in {self._again} attempts ({answer.word}). "
                    "Use another model, or simpler tools.",
                )
            return Note(_AGAIN.format(word=answer.word), source="malformed")
        self._again = 0
        if cut is not None:
            self._cuts += 1
            if self._cuts > CUTS:
                what = f"was cut {self._cuts} times, the last time at {cut.at}"
                return _failed("length", f"The answer of {answer.model} {what}. {cut.cure}")
            self.parts += [answer.text] if said else []
            return Note((_GO_ON if said else _NOTHING).format(at=cut.at), source="cut")
        if answer.finish == "pause":
            self._pauses += 1
            if self._pauses > PAUSES:
                what = f"paused {self._pauses} times and came to no end ({answer.word})"
                return _failed(
                    "error",
                    f"The answer of {answer.model} {what}. Try again, or use another model.",
                )
            self.parts.append(answer.text)
            return Note(GO_ON, source="cut")
        return None


def asks_again(entry: Entry) -> bool:
    """Return whether a message asks the model to go on with its answer, or to repeat a call."""
    return isinstance(entry.message, Note) and entry.message.source in ("cut", "malformed")
