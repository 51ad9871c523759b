"""What Gemini's generations take: how their thinking is set, and what they refuse or ignore."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent_runtime.models.base import Json
from agent_runtime_config.request_settings import Effort

_VERSION = re.compile(r"gemini-(\d+)(?:\.(\d+))?(?![\d.])")
_NEWEST: tuple[int, int] = (99, 0)
"""Of names without a version, such as `gemini-flash-latest`."""
_THIRD: tuple[int, int] = (3, 0)
_FIRST_THINKING: tuple[int, int] = (2, 5)
_FIRST_WITHOUT_MINIMAL: tuple[int, int] = (3, 7)
_FIRST_WITHOUT_SAMPLING: tuple[int, int] = (3, 6)
_SCALE = ("MINIMAL", "LOW", "MEDIUM", "HIGH")
_LEVELS: Mapping[Effort, str] = {
    "none": "MINIMAL",
    "minimal": "MINIMAL",
    "low": "LOW",
    "medium": "MEDIUM",
    "high": "HIGH",
    "xhigh": "HIGH",
    "max": "HIGH",
}
# As Google's own OpenAI-compatible server converts them; `minimal` is what every model takes.
_BUDGETS: Mapping[Effort, int] = {
    "none": 0,
    "minimal": 512,
    "low": 1024,
    "medium": 8192,
    "high": 24_576,
    "xhigh": 32_768,
    "max": 32_768,
}


@dataclass(frozen=True, slots=True)
class Family:
    """What a model of some generation takes.

    Attributes:
        signs: whether it demands signatures on its calls, and takes files inside of results.
        thinks: whether it takes a thinking configuration at all.
        samples: whether it takes sampling parameters; newer ones ignore them.
        levels: the thinking levels that it takes; empty if it takes a budget of tokens.
        budgets: the least and the largest budget.
        always_thinks: whether a budget of 0 is refused.
    """

    signs: bool = False
    thinks: bool = False
    samples: bool = True
    levels: tuple[str, ...] = ()
    budgets: tuple[int, int] = (0, 0)
    always_thinks: bool = False

    def thinking(self, reasoning: Effort | int | None, max_output: int) -> Json | None:
        """Return the thinking configuration; None if the model takes none.

        Thoughts are asked for unless the model shall not think: without them a long thought is
        a silence that looks like a stalled connection.
        """
        if not self.thinks:
            return None
        if reasoning is None:
            return {"includeThoughts": True}
        config: Json = {"includeThoughts": reasoning not in ("none", 0)}
        if self.levels:
            config["thinkingLevel"] = self._level(reasoning)
        else:
            config["thinkingBudget"] = self._budget(reasoning, max_output)
        return config

    def _level(self, reasoning: Effort | int) -> str:
        """Return the nearest level that the model takes; the lower one of two."""
        level = _level_of(reasoning) if isinstance(reasoning, int) else _LEVELS[reasoning]
        wanted = _SCALE.index(level)
        return min(
            self.levels, key=lambda one: (abs(_SCALE.index(one) - wanted), _SCALE.index(one))
        )

    def _budget(self, reasoning: Effort | int, max_output: int) -> int:
        budget = reasoning if isinstance(reasoning, int) else _BUDGETS[reasoning]
        # The models named "pro" refuse 0, and get the least that they take.
        if budget <= 0 and not self.always_thinks:
            return 0
        least, most = self.budgets
        # Thinking counts towards the limit of the answer: half of it stays for the answer.
        return max(least, min(budget, most, max_output // 2))


def family_of(model: str, entry: Mapping[str, Any]) -> Family:
    """Return what a model takes.

    Args:
        model: Google's name of it.
        entry: the model's entry in the table of models; empty if it has none.
    """
    name = model.lower()
    if "gemma" in name:
        return Family()
    found = _VERSION.search(name)
    version: tuple[int, int] = (int(found[1]), int(found[2] or 0)) if found else _NEWEST
    thinks = bool(entry.get("supports_reasoning")) if entry else version >= _FIRST_THINKING
    samples = entry.get("supports_sampling_params")
    if samples is None:
        samples = version < _FIRST_WITHOUT_SAMPLING and "3.5-flash-lite" not in name
    if version < _THIRD:
        # Models of images and speech refuse it; the table may know only the model of their name.
        thinks = thinks and not re.search("image|tts", name)
        pro, lite = "pro" in name, "lite" in name
        budgets = (128, 32_768) if pro else (512 if lite else 1, 24_576)
        return Family(thinks=thinks, samples=bool(samples), budgets=budgets, always_thinks=pro)
    minimal = (
        "flash" in name
        and version < _FIRST_WITHOUT_MINIMAL
        and entry.get("supports_minimal_reasoning_effort") is not False
    )
    levels = _SCALE if minimal else _SCALE[1:]
    if version == _THIRD and "pro" in name:
        levels = ("LOW", "HIGH")
    return Family(signs=True, thinks=thinks, samples=bool(samples), levels=levels)


def _level_of(tokens: int) -> str:
    """Return the level for a budget of tokens, which these generations refuse."""
    bounds = ((0, "MINIMAL"), (1024, "LOW"), (8192, "MEDIUM"))
    return next((level for most, level in bounds if tokens <= most), "HIGH")
