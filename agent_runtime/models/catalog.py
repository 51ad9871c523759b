"""Known facts of models: windows, output limits and prices, from the table in litellm's wheel.

The table is read as a file (about 20 ms), because importing litellm takes seconds.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import orjson

from agent_runtime.messages import FileKind
from agent_runtime.models.base import ModelInfo, Price
from agent_runtime.models.file_limits.providers import file_limits_of
from agent_runtime.models.pricing.regions import uplift_of
from agent_runtime.models.pricing.table import price_of

DEFAULT_WINDOW = 128_000
DEFAULT_MAX_OUTPUT = 8_192
CACHE_MARKS = 4
"""The most cache breakpoints that Anthropic takes in one request."""

_TABLE = "model_prices_and_context_window_backup.json"
_MODES = ("chat", "completion", "responses")
# Providers to which litellm passes a breakpoint for Claude.  Not Gemini: a breakpoint makes litellm
# call another API before each call.  OpenAI and DeepSeek cache without breakpoints.
_MARKING_PROVIDERS = ("anthropic", "bedrock", "vertex_ai", "openrouter")
_TAKES: dict[FileKind, str] = {
    "image": "supports_vision",
    "audio": "supports_audio_input",
    "video": "supports_video_input",
    "document": "supports_pdf_input",
}
_SPELLINGS = {"google": "gemini"}


def full_name(name: str) -> str:
    """Return a model's name as litellm spells it: `provider/model`.

    `provider:model` and `google/model` are converted.  A name without a provider is unchanged.
    """
    name = name.strip()
    provider, colon, model = name.partition(":")
    if colon and "/" not in provider:
        # In `ollama/llama3:8b` the colon is part of the model's own name.
        name = f"{provider}/{model}"
    provider, slash, model = name.partition("/")
    return f"{_SPELLINGS.get(provider, provider)}{slash}{model}"


def provider_of(name: str) -> str:
    """Return the provider in a name, or the table's provider for it; empty if unknown."""
    provider, slash, _ = name.partition("/")
    if slash:
        return provider
    found = str(entry_of(name).get("litellm_provider", ""))
    return "vertex_ai" if found.startswith("vertex_ai") else found


def model_info(
    name: str,
    *,
    price: Price | None = None,
    window: int | None = None,
    max_output: int | None = None,
    takes: Iterable[FileKind] | None = None,
    base_url: str | None = None,
) -> ModelInfo:
    """Return the facts of a model; arguments win over the table.

    A model that is not in the table has a window of 128,000 tokens and no price.

    Args:
        base_url: the user's, where it is called; None for its provider's own.
    """
    entry = entry_of(name)
    known = max_output or known_output(name)
    room = window or _int(entry.get("max_input_tokens")) or DEFAULT_WINDOW
    return ModelInfo(
        name=name,
        window=room,
        max_output=known or DEFAULT_MAX_OUTPUT,
        price=price or _price_at(name, entry, base_url),
        start_ratio=_start_ratio(name),
        cache_marks=CACHE_MARKS if takes_marks(name) else 0,
        takes=takes_files(name) if takes is None else frozenset(takes),
        output_known=bool(known),
        file_limits=file_limits_of(provider_of(name), name, room, own_host=base_url is None),
    )


def _price_at(name: str, entry: dict[str, Any], base_url: str | None) -> Price | None:
    price = price_of(entry)
    return price and price.times(uplift_of(provider_of(name), entry, base_url))


def known_output(name: str) -> int | None:
    """Return the most tokens of a model's answer; None if unknown."""
    return _int(entry_of(name).get("max_output_tokens")) or None


def takes_marks(name: str) -> bool:
    """Return whether cache breakpoints may be sent to a model."""
    return "claude" in name.lower() and provider_of(name) in _MARKING_PROVIDERS


def takes_files(name: str) -> frozenset[FileKind]:
    """Return the kinds of files that a model takes; documents are PDFs."""
    entry = entry_of(name)
    return frozenset(kind for kind, flag in _TAKES.items() if entry.get(flag))


def is_chat_model(name: str) -> bool:
    """Return whether a model uses the chat-completions API; unknown models do."""
    return entry_of(name).get("mode", "chat") == "chat" and "responses/" not in name


def embedding_price(name: str) -> int | None:
    """Return an embedder's price in nanodollars per token; None if unknown."""
    known = _embedders()
    entry = known.get(name) or known.get(name.partition("/")[2]) or {}
    price = entry.get("input_cost_per_token")
    return None if price is None else _nano(price)


@functools.cache
def language_models() -> dict[str, dict[str, Any]]:
    """Return the table's entries of language models, by name."""
    return {name: one for name, one in _whole_table().items() if one.get("mode") in _MODES}


@functools.cache
def _embedders() -> dict[str, dict[str, Any]]:
    return {name: one for name, one in _whole_table().items() if one.get("mode") == "embedding"}


@functools.cache
def _whole_table() -> dict[str, dict[str, Any]]:
    spec = importlib.util.find_spec("litellm")
    roots = spec.submodule_search_locations if spec else None
    if not roots:
        return {}
    path = Path(roots[0]) / _TABLE
    if not path.is_file():
        return {}
    table = cast("dict[str, dict[str, Any]]", orjson.loads(path.read_bytes()))
    return {
        name: entry for name, entry in table.items() if entry.get("mode") in (*_MODES, "embedding")
    }


@functools.lru_cache(maxsize=256)
def entry_of(name: str) -> dict[str, Any]:
    """Return the table's entry for a name, by its longest match; empty if there is none.

    It tries the whole name, then the name without its provider, then each without the dated or
    numbered parts at its end (`gpt-4.1-2025-04-14`), longest first, and never a shorter family
    name: `gpt-4.1-x` may match `gpt-4.1` but not `gpt-4`.
    """
    table = language_models()
    candidates = [name]
    while "/" in candidates[-1]:
        candidates.append(candidates[-1].split("/", 1)[1])
    for candidate in candidates:
        found = table.get(candidate)
        if found:
            return found
    for candidate in candidates:
        parts = candidate.split("-")
        for end in range(len(parts) - 1, 1, -1):
            found = table.get("-".join(parts[:end]))
            if found:
                return found
    return {}


def _nano(dollars: object) -> int:
    return round(float(cast("float", dollars)) * 1e9)


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0


def _start_ratio(name: str) -> float:
    if "claude" in name.lower():
        return 1.6
    return 1.05 if provider_of(name) in ("openai", "azure") else 1.3
