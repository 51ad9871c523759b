"""The tokens that a policy sends over a recorded run, and their cost."""

from __future__ import annotations

from dataclasses import dataclass, fields

from agent_runtime.models.base import Price
from benchmarks.replay.recordings import Step, Trace

ACTOR = Price(input=3_000, output=15_000, cache_read=300, cache_write=3_750)
"""claude-sonnet-4-5, in nanodollars per token."""
OBSERVER = Price(input=300, output=2_500, cache_read=30, cache_write=300)
"""gemini-2.5-flash."""
CACHE_SECONDS = 300.0
"""How long a provider caches an unused prefix."""
NANO = 1e9


@dataclass(slots=True)
class Bill:
    """Tokens by the provider's count.

    Attributes:
        peak: the largest prompt.
        shared: of all prompts, the prefix in common with the prompt before.
        cached: of that, the part read from the cache: none where it had expired.
        cold: prompts that found it expired.
        over: prompts above the window, including the recorded agent's own system prompt and tool
            schemas, which are not in the recording.
        front: tokens of those in all prompts; `front_cached` of them came from the cache.
    """

    prompts: int = 0
    tokens: int = 0
    peak: int = 0
    shared: int = 0
    cached: int = 0
    cold: int = 0
    over: int = 0
    output: int = 0
    front: int = 0
    front_cached: int = 0
    observer_calls: int = 0
    observer_input: int = 0
    observer_output: int = 0
    _last: tuple[int, bool] = (0, True)

    def call(self, prompt: int, shared: int, *, cold: bool, output: int) -> None:
        """Add a call of the actor."""
        self.prompts += 1
        self.tokens += prompt
        self.peak = max(self.peak, prompt)
        self.shared += shared
        self.cached += 0 if cold else shared
        self.cold += cold
        self.output += output
        self._last = prompt, cold

    def add_front(self, tokens: int, window: int) -> None:
        """Add the recorded agent's own prefix of the last prompt."""
        prompt, cold = self._last
        self.front += tokens
        self.front_cached += 0 if cold else tokens
        self.over += prompt + tokens > window

    def observed(self, prompt: float, output: float) -> None:
        """Add a call of the observer."""
        self.observer_calls += 1
        self.observer_input += round(prompt)
        self.observer_output += round(output)

    def add(self, other: Bill) -> None:
        """Add another run's bill."""
        peak = max(self.peak, other.peak)
        for field in fields(self):
            if not field.name.startswith("_"):
                setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
        self.peak = peak

    @property
    def observing(self) -> float:
        """Dollars for the observer."""
        spent = self.observer_input * OBSERVER.input + self.observer_output * OBSERVER.output
        return spent / NANO

    def dollars(self, *, caching: bool = True, front: bool = False, answers: bool = False) -> float:
        """Return the cost of the prompts and the observer.

        Args:
            front: include the recorded agent's own system prompt and tool schemas.
            answers: include the actor's answers, which are the same for every policy.
        """
        tokens = self.tokens + (self.front if front else 0)
        cached = self.cached + (self.front_cached if front else 0)
        if caching:
            sent = cached * ACTOR.cache_read + (tokens - cached) * ACTOR.cache_write
        else:
            sent = tokens * ACTOR.input
        answered = self.output * ACTOR.output if answers else 0
        return (sent + answered) / NANO + self.observing


def output_of(step: Step, trace: Trace) -> int:
    """Return the tokens of an answer."""
    chars = len(step.text) + len(step.reasoning)
    chars += sum(len(call.name) + len(call.arguments) for call in step.calls)
    return round(chars * trace.rate)
