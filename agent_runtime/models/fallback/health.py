"""How long a model that failed is passed over."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass

from agent_runtime.errors import ModelError
from agent_runtime.models.fallback.failures import needs_a_person

COOL_DOWN = 30.0
"""Seconds for which a model is passed over after its first failure; doubled by each further one."""
LONGEST = 64
"""How many times as long as the first cool-down the longest one is."""
UNTIL_MENDED = 16
"""How many times as long as usual a model is passed over that a person has to mend."""
REMEMBERED = 256
"""The health of how many models made from names is kept."""


@dataclass(slots=True)
class ModelHealth:
    """How a model has done lately.

    Attributes:
        failures: how often it failed since it last answered.
        until: when its cool-down ends, by the clock of its `FallbackModel`.
        warned: whether a person was warned of what to mend.
    """

    failures: int = 0
    until: float = 0.0
    warned: bool = False

    def failed(self, error: ModelError, now: float, cool_down: float) -> bool:
        """Begin a cool-down; return whether a person is to be warned now."""
        factor = 2**self.failures * (UNTIL_MENDED if needs_a_person(error) else 1)
        self.failures += 1
        self.until = now + cool_down * min(factor, LONGEST)
        warn = needs_a_person(error) and not self.warned
        self.warned = self.warned or warn
        return warn

    def tried(self, now: float, cool_down: float) -> None:
        """Let only one run find out whether it works again; the others wait for what it finds."""
        if self.failures:
            # Set before the call: other runs that begin meanwhile pass it over.
            self.until = max(self.until, now + cool_down)

    def answered(self) -> None:
        """Forget its failures."""
        self.failures, self.until, self.warned = 0, 0.0, False


_shared: OrderedDict[str, ModelHealth] = OrderedDict()


def shared_health(*identity: str | None) -> ModelHealth:
    """Return the health of a model that each run makes again from its name.

    Args:
        identity: its name, address and key; one user's used-up quota is not another's.
    """
    # Hashed, because a key must not stay in memory longer than its model.
    key = hashlib.sha256(repr(identity).encode()).hexdigest()
    health = _shared.pop(key, None) or ModelHealth()
    _shared[key] = health
    if len(_shared) > REMEMBERED:
        # The least recently used, since each use moves its entry to the end.
        _shared.popitem(last=False)
    return health
