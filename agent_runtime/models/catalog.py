"""Known facts of models: windows, output limits and prices, from the table in litellm's wheel.

The table is read as a file, because importing litellm takes seconds.  Only the entry that is asked
for is decoded: the whole table would take 30 ms and 15 MB.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
_EMBEDDING = ("embedding",)
_RERANK = ("rerank",)
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
# The begin of a table with a line for each key, and what stands before each model's name.
_FIRST_KEY = re.compile(rb'\{(\r?\n[ \t]+)"[^"\n]*": \{\1')


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


@functools.lru_cache(maxsize=1)
def chat_models() -> Sequence[str]:
    """Return the names of all known language models, those of their makers first."""
    table = cast("dict[str, dict[str, Any]]", orjson.loads(read_table()))
    own: list[str] = []
    others: list[str] = []
    for name, entry in table.items():
        provider = str(entry.get("litellm_provider", ""))
        if entry.get("mode") not in _MODES or not provider:
            continue
        if "/" in name:
            others.append(name)
        else:
            own.append(f"{provider}/{name}")
    return (*own, *others)


def is_chat_model(name: str) -> bool:
    """Return whether a model uses the chat-completions API; unknown models do."""
    return entry_of(name).get("mode", "chat") == "chat" and "responses/" not in name


def embedding_price(name: str) -> int | None:
    """Return an embedder's price in nanodollars per token; None if unknown."""
    table = read_table()
    entry = _entry(table, name, _EMBEDDING) or _entry(table, name.partition("/")[2], _EMBEDDING)
    price = entry.get("input_cost_per_token")
    return None if price is None else _nano(price)


@dataclass(frozen=True, slots=True)
class RerankPrice:
    """The price of a reranker, in nanodollars: most charge by the search, some by the token."""

    per_search: int = 0
    per_token: int = 0

    def of(self, tokens: int | None, searches: int | None) -> int | None:
        """Return what a call cost; None if the usage that decides was not reported."""
        if (self.per_search and searches is None) or (self.per_token and tokens is None):
            return None
        return self.per_search * (searches or 0) + self.per_token * (tokens or 0)


@functools.lru_cache(maxsize=64)
def rerank_price(name: str) -> RerankPrice | None:
    """Return a reranker's price; None if unknown."""
    table = read_table()
    entry = _entry(table, name, _RERANK) or _entry(table, name.partition("/")[2], _RERANK)
    search, token = entry.get("input_cost_per_query"), entry.get("input_cost_per_token")
    if not entry or (search is None and token is None):
        return None
    return RerankPrice(_nano(search or 0), _nano(token or 0))


@functools.lru_cache(maxsize=256)
def entry_of(name: str) -> dict[str, Any]:
    """Return the table's entry for a language model, by its longest match; empty if there is none.

    It tries the whole name, then the name without its provider, then each without the dated or
    numbered parts at its end (`gpt-4.1-2025-04-14`), longest first, and never a shorter family
    name: `gpt-4.1-x` may match `gpt-4.1` but not `gpt-4`.
    """
    table = read_table()
    candidates = [name]
    while "/" in candidates[-1]:
        candidates.append(candidates[-1].split("/", 1)[1])
    for candidate in candidates:
        if found := _entry(table, candidate, _MODES):
            return found
    for candidate in candidates:
        parts = candidate.split("-")
        # At least two parts stay, so that no model gets the facts of a whole family.
        for end in range(len(parts) - 1, 1, -1):
            if found := _entry(table, "-".join(parts[:end]), _MODES):
                return found
    return {}


def read_table() -> bytes:
    """Return the table in litellm's wheel, as JSON; an empty one if there is none."""
    spec = importlib.util.find_spec("litellm")
    roots = spec.submodule_search_locations if spec else None
    path = Path(roots[0]) / _TABLE if roots else None
    return path.read_bytes() if path is not None and path.is_file() else b"{}"


def _entry(table: bytes, name: str, modes: Sequence[str]) -> dict[str, Any]:
    """Return a model's entry in the table; empty if it has none of these modes."""
    key = b"%s:" % json.dumps(name).encode()
    # Far cheaper than decoding the table, and most names that are tried are not in it.
    if not (times := table.count(key)):
        return {}
    entry = _cut(table, key) if times == 1 else None
    if entry is None:
        entry = cast("dict[str, dict[str, Any]]", orjson.loads(table)).get(name, {})
    return entry if str(entry.get("mode")) in modes else {}


def _cut(table: bytes, key: bytes) -> dict[str, Any] | None:
    """Return the entry of a key that the table has once; None if it must be read as a whole."""
    if (first := _FIRST_KEY.match(table)) is None:
        # Written in another way than now.
        return None
    # No string holds a line break, and what is further in is indented more.
    line = first[1]
    start = table.find(b"%s%s {%s" % (line, key, line))
    end = table.find(line + b"}", start)
    if start < 0 or end < 0:
        # The table is edited by hand, and some of its entries are not indented.
        return None
    try:
        return orjson.loads(table[start + len(line) + len(key) : end + len(line) + 1])
    except orjson.JSONDecodeError:
        # The next entry's end, where this one's is not indented.
        return None


def _nano(dollars: object) -> int:
    return round(float(cast("float", dollars)) * 1e9)


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0


def _start_ratio(name: str) -> float:
    if "claude" in name.lower():
        # Safely high: a prompt that is estimated too small is refused by the provider.
        return 1.6
    return 1.05 if provider_of(name) in ("openai", "azure") else 1.3
