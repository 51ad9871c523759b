"""Which parts of its reasoning each model gets back, and until when.

Providers leave the state of a model's reasoning to the client, each in its own form; this is the
table of them.  Reasoning never goes to another model: a signature is valid only for its model.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Literal

Reasoning = Literal["never", "given", "always"]


@dataclass(frozen=True, slots=True)
class ReasoningReplay:
    """The parts of its reasoning that a model gets back.

    Attributes:
        reasoning: its text, as `reasoning_content`: `never`, because the provider refuses or
            ignores the field; if it was `given`; `always` with calls, even empty.
        blocks: signed thinking blocks, and items of reasoning.
        ordered: whether blocks, texts and calls go back in their original order.

    Gemini's signatures always go back with their calls.
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
"""Models that demand their reasoning back on any compatible server."""
_REFUSING_HOSTS = ("groq.com", "cerebras.ai", "mistral.ai")
"""Compatible servers that stream reasoning under another name and refuse it under this one."""
_CLAUDE_VERSION = re.compile(r"claude-[a-z]+-(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
# The first version of Claude whose reasoning is void once earlier messages change.
_FIRST_BOUND = (5, 1)
_ENCRYPTED = re.compile(r"(?:^|[/:])(?:gpt-(?:[5-9]|\d\d)|o\d|codex|grok)")
"""Models whose reasoning is items between others, which refuse a part of them without the rest."""


@functools.lru_cache(maxsize=256)
def reasoning_replay_of(model: str, provider: str, host: str = "") -> ReasoningReplay:
    """Return which parts of its reasoning a model gets back.

    Args:
        provider: litellm's name of its provider.
        host: of its base URL; empty for the provider's own address.
    """
    if provider == "vertex_ai" and "claude" in model.lower():
        return _CLAUDE
    returns = _BY_PROVIDER.get(provider, ReasoningReplay())
    # Only of a compatible server does the host say more than the provider's name.
    if returns is not _COMPATIBLE:
        return returns
    if any(host == name or host.endswith(f".{name}") for name in _REFUSING_HOSTS):
        return ReasoningReplay()
    return _DEMANDING if _DEMANDING_MODEL.search(model) else returns


@functools.lru_cache(maxsize=256)
def is_bound(model: str) -> bool:
    """Return whether a model's reasoning is void once the messages before it change.

    Claude checks that from 5.1 on, and then needs no reasoning in earlier answers; older versions
    demand the reasoning of every unfinished tool loop.  OpenAI's and xAI's models need none either.
    """
    if _ENCRYPTED.search(model.lower()):
        return True
    found = _CLAUDE_VERSION.search(model.lower())
    return found is not None and (int(found[1]), int(found[2] or 0)) >= _FIRST_BOUND
