"""The parts that prompts begin with, and how many tokens each has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from agent_runtime.models.tokens import count_message, count_text
from agent_runtime.prompt.build import observations_start
from agent_runtime.prompt.render import constraints_note
from agent_runtime.prompt.view import View


@dataclass(frozen=True, slots=True)
class FrontParts:
    """Tokens before the raw nodes, in our count; they add up to the view's `front_tokens`.

    Attributes:
        system: the system prompt, with its repetition if there is one.
        context: notes of the context.
        constraints: what the user requires, as the state note says it.
        state: the rest of the state note.
    """

    system: int = 0
    tools: int = 0
    context: int = 0
    observed: int = 0
    constraints: int = 0
    state: int = 0

    @classmethod
    def of(cls, view: View) -> FrontParts:
        """Return the parts of a view."""
        sizes = list(map(count_message, view.front))
        begin = observations_start(view)
        end = begin + len(view.observations)
        context = begin - len(view.context)
        state = sum(sizes[end:])
        constraints = min(count_text(constraints_note(view.start)), state)
        return cls(
            system=sum(sizes[:context]),
            tools=view.front_tokens - sum(sizes),
            context=sum(sizes[context:begin]),
            observed=sum(sizes[begin:end]),
            constraints=constraints,
            state=state - constraints,
        )

    @classmethod
    def from_row(cls, row: Mapping[str, int]) -> FrontParts:
        """Return the parts that an activation's row stores."""
        return cls(**row)

    def to_row(self) -> Mapping[str, int]:
        """Return what an activation's row stores."""
        return asdict(self)
