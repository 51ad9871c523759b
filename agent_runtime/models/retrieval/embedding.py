"""Embedders: they turn texts into vectors whose similarity reflects meaning.

`LiteLLMEmbedder` calls any provider, through litellm; `ScriptedEmbedder` calls none.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast

import anyio

from agent_runtime.errors import ModelError, ModelProtocolError
from agent_runtime.models.catalog import embedding_price
from agent_runtime.models.retrieval.provider import RetrievalModel, field
from agent_runtime.models.tokens import count_text

Vector: TypeAlias = Sequence[float]


class _Zero(int):
    """A zero that is true: litellm reads a plain 0 as no number of retries given."""

    def __bool__(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Embeddings:
    """The vectors of texts, in their order.

    Attributes:
        tokens: as reported by the provider; None if it reported none.
        cost: in nanodollars; None if the price is unknown.
        lost: how many failed attempts may be billed.
    """

    vectors: Sequence[Vector]
    tokens: int | None = None
    cost: int | None = None
    lost: int = 0


class Embedder(Protocol):
    """A model that makes vectors of texts; vectors of one embedder are comparable."""

    @property
    def name(self) -> str:
        """The name under which vectors and usage are stored."""
        ...

    @property
    def price(self) -> int | None:
        """Nanodollars per token; None if unknown."""
        ...

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        """Return a vector for each text, all of the same length.

        Raises `ModelError` and its subclasses only.  Cancelling it ends the call.
        """
        ...


class LiteLLMEmbedder(RetrievalModel[int]):
    """An embedder called through litellm.

    Args:
        name: litellm's name of it, such as `openai/text-embedding-3-small`; also `provider:model`.
        base_url: where an OpenAI-compatible server listens; by default the provider's own.
        api_key: by default the provider's own variable, such as `OPENAI_API_KEY`.
        timeout: seconds that one attempt may take.
        retries: how often a failed call is tried again; waits are random and grow to 60 s.
        price: nanodollars per token, instead of the known price.
        local_only: refuse calls that would leave this machine.

    Raises:
        ConfigError: the name is empty.
    """

    function = "aembedding"
    gives = "vectors"
    variable = "AGENT_RUNTIME_EMBEDDER_TIMEOUT"

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = 30.0,
        retries: int = 4,
        price: int | None = None,
        local_only: bool = False,
    ) -> None:
        super().__init__(
            name,
            base_url=base_url,
            api_key=api_key,
            timeout=timeout,
            retries=retries,
            price=price,
            local_only=local_only,
        )

    def _known_price(self) -> int | None:
        return embedding_price(self.name)

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        """Return a vector for each text; retry failures that may pass.

        Raises:
            RealModelForbidden, ModelAuthError, ModelNotFound, ModelRejected, ModelOverflow: at
                once.
            ModelUnavailable, ModelStalled, ModelProtocolError: after all retries.
        """
        if not texts:
            return Embeddings(())

        def read(response: Any) -> tuple[int | None, list[Vector]]:
            return _tokens_of(response), vectors_of(_rows(response), len(texts), self.name)

        arguments = {
            "input": list(texts),
            # Larger than base64 (20 bytes a number instead of 4), but every server supports it.
            "encoding_format": "float",
            "max_retries": _Zero(),
            "num_retries": None,
        }
        (tokens, vectors), lost = await self._call(arguments, read)
        price = self.price
        cost = None if price is None or tokens is None else price * tokens
        return Embeddings(vectors, tokens, cost, lost)


def vectors_of(rows: Sequence[object], count: int, name: str) -> list[Vector]:
    """Check and return an embedder's vectors.

    Raises:
        ModelProtocolError: they are fewer or more than the texts, of different lengths, empty,
            all zeros, or not of finite numbers.
    """
    wrong = ""
    if len(rows) != count:
        wrong = f"{len(rows)} vectors for {count} texts"
    vectors = [cast("Vector", row) for row in rows if isinstance(row, Sequence)]
    if not wrong and (len(vectors) < count or not all(map(_is_finite, vectors))):
        wrong = "something that is no vector of finite numbers"
    elif not wrong and len({len(vector) for vector in vectors}) > 1:
        wrong = "vectors of different lengths"
    elif not wrong and not all(any(vector) for vector in vectors):
        wrong = "a vector without a direction"
    if wrong:
        raise ModelProtocolError(
            f"{name} gave {wrong}.",
            cure="Check that AGENT_RUNTIME_EMBEDDER_MODEL names an embedder; try another one.",
        )
    return vectors


def _is_finite(vector: Vector) -> bool:
    try:
        # One sum tells as much as a look at each number: NaN and infinities survive it.
        return math.isfinite(math.fsum(vector))
    except (TypeError, ValueError, OverflowError):
        return False


def _rows(response: Any) -> list[object]:
    """Return the vectors of litellm's response, in the order of the texts."""
    data = cast("list[Any]", getattr(response, "data", None) or [])
    found = [(field(one, "index"), field(one, "embedding")) for one in data]
    if all(isinstance(index, int) for index, _ in found):
        found.sort(key=lambda one: cast("int", one[0]))
    return [vector for _, vector in found]


def _tokens_of(response: Any) -> int | None:
    usage: Any = getattr(response, "usage", None)
    tokens: Any = getattr(usage, "prompt_tokens", None) or getattr(usage, "total_tokens", None)
    return tokens if isinstance(tokens, int) and tokens > 0 else None


EmbedFunction: TypeAlias = Callable[
    [Sequence[str]], Sequence[Vector] | ModelError | Awaitable[Sequence[Vector] | ModelError]
]
"""From texts to their vectors, or to an error to raise."""


class ScriptedEmbedder:
    """An embedder without a model: for tests, examples, and work without a network.

    By default it hashes character trigrams: texts are similar if they share words or parts of
    words, whatever these mean.

    Args:
        function: sync or async, instead of that.
        delay: seconds to wait before each answer.

    Attributes:
        requests: the texts of every call, in order.
    """

    def __init__(
        self,
        function: EmbedFunction | None = None,
        *,
        name: str = "scripted-embedder",
        dimensions: int = 256,
        delay: float = 0.0,
        price: int | None = 0,
    ) -> None:
        self.requests: list[tuple[str, ...]] = []
        self._function = function
        self._dimensions = dimensions
        self._name = name
        self._delay = delay
        self._price = price

    @property
    def name(self) -> str:
        """The name given."""
        return self._name

    @property
    def price(self) -> int | None:
        """The price given; nothing by default."""
        return self._price

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        """Return the vectors by the function, and usage as `agent_runtime.models.tokens` counts it.

        Raises:
            ModelError: the function says so.
        """
        self.requests.append(tuple(texts))
        await anyio.sleep(self._delay)
        vectors = await self._made(texts)
        if isinstance(vectors, ModelError):
            raise vectors
        tokens = sum(map(count_text, texts))
        return Embeddings(vectors, tokens, None if self._price is None else self._price * tokens)

    async def _made(self, texts: Sequence[str]) -> Sequence[Vector] | ModelError:
        if self._function is None:
            return [hashed(text, self._dimensions) for text in texts]
        made = self._function(texts)
        return await made if inspect.isawaitable(made) else made


_WORD = re.compile(r"\w+")


def hashed(text: str, dimensions: int) -> list[float]:
    """Return a deterministic vector of length 1 from the words' character trigrams."""
    vector = [0.0] * dimensions
    # A text without words gets a vector too.
    for word in _WORD.findall(text.lower()) or [""]:
        padded = f" {word} "
        for start in range(max(1, len(padded) - 2)):
            digest = hashlib.blake2b(padded[start : start + 3].encode(), digest_size=8).digest()
            number = int.from_bytes(digest, "big")
            # With signs, so that two trigrams of one place cancel out as often as they add up.
            vector[number % dimensions] += 1.0 if number >> 63 else -1.0
    length = math.hypot(*vector)
    return [value / length for value in vector] if length else [1.0, *vector[1:]]
