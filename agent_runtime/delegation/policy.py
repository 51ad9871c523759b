"""What an agent's sub-agents may have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Delegation:
    """What the sub-agents of an agent may have, that are made by the tool `delegate`.

    Attributes:
        tools: the names of the agent's own tools that they may be given; None for all.  Never
            those by which the runtime plans, delegates or asks the user.  A call of theirs that
            needs an approval waits for it, and the agent's run with it; in the background it is
            refused.
        models: the names of the models that they may run beside the agent's own.
    """

    tools: Sequence[str] | None = None
    models: Sequence[str] = ()
