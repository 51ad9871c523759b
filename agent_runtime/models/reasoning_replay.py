"""What each model is sent back of its own reasoning, and until when.

Every provider keeps the state of a model's reasoning with its client, and each in its own way.
This is the one table of them.  What one model made never goes to another: signatures hold for the
model that gave them.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Literal

Reasoning = Literal["never", "given", "always"]


@dataclass(frozen=True, slots=True)
class ReasoningReplay:
    """What a model is sent back of its own reasoning.

    Attributes:
        reasoning: its text, as `reasoning_content`: `never`, because its provider refuses or
            ignores the field; where it was `given`; `always` with calls, even empty.
        blocks: signed thinking blocks, and items of reasoning.
        ordered: whether blocks, texts and calls go back in the order in which they came.

    Gemini's signatures go back at their calls in any case.
    """

    reasoning: Reasoning = "never"
    blocks: bool = True
    ordered: bool = False


_CLAUDE = ReasoningReplay(ordered=True)
_UNSIGNED = ReasoningReplay(blocks=False)
_COMPATIBLE = ReasoningReplay(reasoning="given")
_DEMANDING = ReasoningReplay(reasoning="always")

_BY_PROVIDER = {
    "anthropic": _CLAUDE,
    "azure_ai": _CLAUDE,
    "custom_openai": _COMPATIBLE,
    "deepseek": _DEMANDING,
    "gemini": _UNSIGNED,
    "mistral": _UNSIGNED,
    "minimax": _COMPATIBLE,
    "moonshot": _DEMANDING,
    "openai": _COMPATIBLE,
    "vertex_ai": _UNSIGNED,
    "zai": _COMPATIBLE,
}
_DEMANDING_MODEL = re.compile(r"deepseek|kimi|moonshot", re.IGNORECASE)
"""Models that demand their reasoning back on whatever compatible server they are."""
_REFUSING_HOSTS = ("groq.com", "cerebras.ai", "mistral.ai")
"""Compatible servers that stream reasoning by another name, and refuse it by this one."""
_CLAUDE_VERSION = re.compile(r"claude-[a-z]+-(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_FIRST_BOUND = (5, 1)


@functools.lru_cache(maxsize=256)
def reasoning_replay_of(model: str, provider: str, host: str = "") -> ReasoningReplay:
    """Return what a model is sent back.

    Args:
        provider: litellm's name of its provider.
        host: where it is called, if that is not the provider's own address.
    """
    if provider == "vertex_ai" and "claude" in model.lower():
        return _CLAUDE
    returns = _BY_PROVIDER.get(provider, ReasoningReplay())
    if returns is not _COMPATIBLE:
        return returns
    if any(host == name or host.endswith(f".{name}") for name in _REFUSING_HOSTS):
        return ReasoningReplay()
    return _DEMANDING if _DEMANDING_MODEL.search(model) else returns


@functools.lru_cache(maxsize=256)
def is_bound(model: str) -> bool:
    """Return whether a model's reasoning is void once what came before it has changed.

    Claude checks that from 5.1 on, and needs no reasoning in earlier answers then; before, it
    demands the reasoning of every tool loop that still goes on.
    """
    found = _CLAUDE_VERSION.search(model.lower())
    return found is not None and (int(found[1]), int(found[2] or 0)) >= _FIRST_BOUND
