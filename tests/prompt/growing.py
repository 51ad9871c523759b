"""A branch that grows by moves as a run's branch does, by pure functions alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from agent_runtime.log.branch import empty_view
from agent_runtime.messages import (
    AssistantMessage,
    LoggedMessage,
    Note,
    ToolCall,
    ToolResult,
    UserMessage,
    call_id,
)
from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.build import build_prompt, check_prompt, extend_view
from agent_runtime.prompt.truncate import share_result_budget
from agent_runtime.prompt.view import ActivationCause, Entry, Prompt, PromptPrefix, View
from agent_runtime.prompt.window import PromptLimits, overdue, plan_activation, results_budget
from agent_runtime.run.start import opening

PREFIX = PromptPrefix("You are careful.")


@dataclass(frozen=True, slots=True)
class Say:
    """The user begins a run with a text of `words` words."""

    words: int


@dataclass(frozen=True, slots=True)
class Reply:
    """The model answers with text, after `notes` notes arrived."""

    words: int
    notes: int = 0


@dataclass(frozen=True, slots=True)
class Work:
    """The model calls tools in parallel; `results` has the number of words of each result."""

    results: tuple[int, ...]
    notes: int = 0


@dataclass(frozen=True, slots=True)
class Tell:
    """Notes arrived while no run was active."""

    notes: int


@dataclass(frozen=True, slots=True)
class Begin:
    """An activation for a cause that the branch does not show."""

    cause: ActivationCause


Move: TypeAlias = Say | Reply | Work | Tell | Begin


def mark(seq: int) -> str:
    """Return the text that identifies a node and occurs once in its message."""
    return f"<node {seq}>"


def user(seq: int, words: int) -> UserMessage:
    return UserMessage(f"{mark(seq)} {'ask ' * words}")


def answer(seq: int, words: int) -> AssistantMessage:
    return AssistantMessage(f"{mark(seq)} {'say ' * words}")


def note(seq: int) -> Note:
    return Note(f"{mark(seq)} by the way")


def work(seq: int, results: Sequence[int]) -> AssistantMessage:
    calls = tuple(ToolCall(call_id(seq, i), "look", {"at": i}) for i in range(len(results)))
    return AssistantMessage(mark(seq), calls)


def seen(words: int) -> ToolResult:
    return ToolResult(" ".join(f"line{i}\n" for i in range(words)))


@dataclass(slots=True)
class Growing:
    """A branch that grows as the orchestrator grows it.

    Attributes:
        ratio: tokens of the provider per token of ours.
        log: all nodes.
    """

    room: PromptLimits
    ratio: float
    view: View = field(init=False)
    task: Entry | None = None
    log: list[Entry] = field(default_factory=list[Entry])
    previous: Prompt | None = None

    def __post_init__(self) -> None:
        self.view = empty_view()
        self.activate("start")

    @property
    def next_seq(self) -> int:
        return len(self.log) + 1

    def estimate(self, tokens: int) -> int:
        return round(tokens * self.ratio)

    def activate(self, cause: ActivationCause) -> None:
        self.view = plan_activation(
            self.view,
            self.room,
            cause=cause,
            estimate=self.estimate,
            nonce=f"n{self.view.activation_id}",
            task=self.task,
            model="m",
            prefix=PREFIX,
        )

    def append(self, message: LoggedMessage, *results: ToolResult) -> Entry:
        texts = [result.text for result in results]
        shown = share_result_budget(texts, results_budget(self.room, self.ratio), count_text)
        parent = self.log[-1].seq if self.log else None
        entry = Entry(self.next_seq, parent, message, results, tuple(shown))
        self.log.append(entry)
        self.view = extend_view(self.view, entry)
        return entry

    def move(self, move: Move) -> None:
        """Apply the move as the orchestrator does."""
        match move:
            case Say(words):
                for message in opening(self.view, user(0, words)):
                    mine = isinstance(message, UserMessage)
                    entry = self.append(user(self.next_seq, words) if mine else message)
                    self.task = entry if mine else self.task
            case Reply(words, notes):
                self.append(answer(self.next_seq, words))
                self.append_notes(notes)
            case Work(results, notes):
                self.append(work(self.next_seq, results), *map(seen, results))
                self.append_notes(notes)
            case Tell(notes):
                self.append_notes(notes)
                self.activate("note")
            case Begin(cause):
                self.activate(cause)

    def append_notes(self, notes: int) -> None:
        for _ in range(notes):
            self.append(note(self.next_seq))

    def prepare(self) -> Prompt:
        """Return the next prompt after the checks that precede a model call."""
        cause = overdue(self.view, self.room, self.estimate(self.view.tokens))
        if cause is not None:
            self.activate(cause)
        prompt = build_prompt(self.view, cache_marks=4)
        check_prompt(
            self.view,
            prompt,
            self.previous,
            estimate=self.estimate(prompt.counted),
            limit=self.room.limit,
        )
        self.previous = prompt
        return prompt
