"""What OpenAI's and xAI's models take: efforts, sampling, verbosity.

Rules by the model's generation, because the table of models knows few of these, and not for new
models.  A model that no rule knows is sent what was asked for.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from agent_runtime_config.request_settings import Effort

EFFORTS: tuple[Effort, ...] = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_USUAL: tuple[Effort, ...] = ("low", "medium", "high")
_VERBOSITIES = ("low", "medium", "high")
# A limit of tokens as an effort: each needs at least these.
_BY_TOKENS: tuple[tuple[int, Effort], ...] = (
    (10_000, "high"),
    (5_000, "medium"),
    (2_000, "low"),
    (1, "minimal"),
    (0, "none"),
)
_GPT = re.compile(r"(?:ft:)?gpt-(\d+)(?:\.(\d+))?")
_O_SERIES = re.compile(r"(?:ft:)?o\d")
_GROK = re.compile(r"grok(?:-(\d+(?:\.\d+)?))?")


@dataclass(frozen=True, slots=True)
class Traits:
    """What a model takes.

    Attributes:
        reasons: whether it reasons, unless its effort is `none`.
        efforts: in rising order; empty if none may be sent.
        default: its effort if none is sent; empty if unknown.
        samples: whether it takes sampling parameters at any effort, not only at `none`.
        verbosities: empty if none may be sent.
        parallel: whether parallel calls may be switched on and off.
        phases: whether each of its messages has a phase, which it needs back.
    """

    reasons: bool
    efforts: tuple[Effort, ...] = ()
    default: Effort | None = None
    samples: bool = True
    verbosities: tuple[str, ...] = ()
    parallel: bool = True
    phases: bool = False

    def effort(self, asked: Effort | int) -> Effort | None:
        """Return the effort that is next to the one asked for; None if none may be sent."""
        if isinstance(asked, int):
            asked = next(effort for least, effort in _BY_TOKENS if max(0, asked) >= least)
        if not self.efforts:
            return None
        place = EFFORTS.index(asked)
        return min(self.efforts, key=lambda one: abs(EFFORTS.index(one) - place))

    def takes_sampling(self, effort: Effort | None) -> bool:
        """Return whether sampling parameters may be sent with this effort; None: not sent."""
        return self.samples or (effort or self.default) == "none"


def traits_of(model: str, entry: Mapping[str, Any]) -> Traits:
    """Return what a model takes.

    Args:
        model: the name that the provider is sent.
        entry: the model's entry in the table of models; empty if it has none.
    """
    name = model.rpartition("/")[2].lower()
    if grok := _GROK.match(name):
        return _grok(name, float(grok[1] or 0), entry)
    if _O_SERIES.match(name):
        return _o_series(name)
    if gpt := _GPT.match(name):
        return _gpt(name, (int(gpt[1]), int(gpt[2] or 0)), entry)
    reasons = bool(entry.get("supports_reasoning"))
    return Traits(reasons, efforts=EFFORTS, verbosities=_VERBOSITIES)


def _gpt(name: str, version: tuple[int, int], entry: Mapping[str, Any]) -> Traits:
    if version < (5, 0) or name.startswith("gpt-5-chat"):
        return Traits(reasons=False)
    efforts = _gpt_efforts(name, version)
    refused = {one for one in EFFORTS if entry.get(f"supports_{one}_reasoning_effort") is False}
    if version >= (6, 0) and not entry.get("supports_none_reasoning_effort"):
        # Some of these always reason; those that need not are known to the table.
        refused.add("none")
    efforts = _without(efforts, refused)
    narrow = "codex" in name or "chat" in name
    silent = (5, 1) <= version <= (5, 4) and "none" in efforts
    return Traits(
        reasons=True,
        efforts=efforts,
        default="none" if silent else "medium",
        samples=False,
        verbosities=("medium",) if narrow else _VERBOSITIES,
        phases=version >= (5, 4) or name.startswith("gpt-5.3-codex"),
    )


def _gpt_efforts(name: str, version: tuple[int, int]) -> tuple[Effort, ...]:
    if "chat" in name:
        return ("medium",)
    if "-pro" in name:
        return ("high",) if version == (5, 0) else ("medium", "high", "xhigh")
    if "codex" in name:
        return (*_USUAL, "xhigh") if version >= (5, 2) or "codex-max" in name else _USUAL
    if version == (5, 0):
        return ("minimal", *_USUAL)
    if version == (5, 1):
        return ("none", *_USUAL)
    highest: tuple[Effort, ...] = ("xhigh",) if version < (5, 6) else ("xhigh", "max")
    return ("none", *_USUAL, *highest)


def _o_series(name: str) -> Traits:
    efforts = _USUAL
    if "deep-research" in name:
        efforts = ("medium",)
    elif name.startswith(("o1-mini", "o1-preview")):
        efforts = ()
    return Traits(reasons=True, efforts=efforts, samples=False, parallel=False)


def _grok(name: str, version: float, entry: Mapping[str, Any]) -> Traits:
    """Return the traits of one of xAI's models; 4.20 is older than 4.3."""
    if "non-reasoning" in name:
        return Traits(reasons=False)
    efforts: tuple[Effort, ...] = ()
    if name.startswith("grok-3-mini"):
        efforts = ("low", "high")
    elif "multi-agent" in name:
        efforts = (*_USUAL, "xhigh")
    elif version == 4.3:
        efforts = ("none", *_USUAL, "xhigh")
    elif version > 4.3:
        # Others refuse the parameter, whatever its value.
        efforts = (*_USUAL, "xhigh") if version >= 4.7 else _USUAL
    reasons = version >= 4 or bool(efforts) or bool(entry.get("supports_reasoning"))
    return Traits(reasons, efforts=efforts)


def _without(efforts: tuple[Effort, ...], refused: Collection[str]) -> tuple[Effort, ...]:
    return tuple(one for one in efforts if one not in refused)
