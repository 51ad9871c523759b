"""Rerankers: `LiteLLMReranker` calls any provider that litellm knows; tests script their own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from agent_runtime.errors import ModelProtocolError
from agent_runtime.models.catalog import RerankPrice, rerank_price
from agent_runtime.models.retrieval.provider import RetrievalModel, field

if TYPE_CHECKING:
    from agent_runtime_config import Settings

TEXTS_PER_SEARCH = 100
"""Providers that charge by the search count this many texts as one."""


@dataclass(frozen=True, slots=True)
class Reranked:
    """The scores of texts, in the texts' order; a higher one is better.

    Attributes:
        tokens: as reported by the provider; None if it reported none.
        cost: in nanodollars; None if it is unknown.
        lost: how many failed attempts may be billed.
    """

    scores: Sequence[float]
    tokens: int | None = None
    cost: int | None = None
    lost: int = 0


class Reranker(Protocol):
    """A model that scores texts by how well they answer a query."""

    @property
    def name(self) -> str:
        """The name under which usage is stored."""
        ...

    @property
    def price(self) -> RerankPrice | None:
        """What it costs; None if unknown."""
        ...

    async def rerank(self, query: str, texts: Sequence[str]) -> Reranked:
        """Return a score for each text.

        Raises `ModelError` and its subclasses only.  Cancelling it ends the call.
        """
        ...


class LiteLLMReranker(RetrievalModel[RerankPrice]):
    """A reranker called through litellm.

    Args:
        name: litellm's name of it, such as `cohere/rerank-v3.5`; also `provider:model`.
        base_url: where a server with the provider's API listens; by default the provider's own.
        api_key: by default the provider's own variable, such as `COHERE_API_KEY`.
        timeout: seconds that one attempt may take.
        retries: how often a failed call is tried again.
        price: instead of the known price.
        local_only: refuse calls that would leave this machine.

    Raises:
        ConfigError: the name is empty.
    """

    function = "arerank"
    gives = "scores"
    variable = "AGENT_RUNTIME_RERANKER_TIMEOUT"

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = 3.0,
        retries: int = 1,
        price: RerankPrice | None = None,
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

    def _known_price(self) -> RerankPrice | None:
        return rerank_price(self.name)

    async def rerank(self, query: str, texts: Sequence[str]) -> Reranked:
        """Return a score for each text; retry failures that may pass.

        Raises:
            RealModelForbidden, ModelAuthError, ModelNotFound, ModelRejected, ModelOverflow: at
                once.
            ModelUnavailable, ModelStalled, ModelProtocolError: after all retries.
        """
        if not texts:
            return Reranked(())

        def read(response: Any) -> tuple[list[float], int | None, int | None]:
            scores = _scores_of(response, len(texts), self.name)
            return scores, *_usage_of(response, len(texts))

        arguments = {"query": query, "documents": list(texts), "top_n": len(texts)}
        (scores, tokens, searches), lost = await self._call(arguments, read)
        cost = None if self.price is None else self.price.of(tokens, searches)
        return Reranked(scores, tokens, cost, lost)


def reranker_from_name(name: str, settings: Settings) -> LiteLLMReranker:
    """Return the reranker of a litellm name, without loading or calling anything.

    Raises:
        ConfigError: the name is empty or holds parameters.
    """
    from agent_runtime.models import check_name

    check_name(name)
    place = settings.place("reranker")
    given = place.price_input
    return LiteLLMReranker(
        name,
        base_url=place.base_url,
        api_key=None if place.api_key is None else place.api_key.get_secret_value(),
        timeout=settings.reranker_timeout,
        price=None if given is None else RerankPrice(per_token=round(given * 1000)),
        local_only=settings.forbid_real_models,
    )


def _scores_of(response: Any, count: int, name: str) -> list[float]:
    """Return the scores of a response, in the order of the texts.

    Raises:
        ModelProtocolError: they are not one finite number for each text.
    """
    rows = cast("list[Any]", getattr(response, "results", None) or [])
    scores: dict[int, float] = {}
    for row in rows:
        index, score = field(row, "index"), field(row, "relevance_score")
        if isinstance(index, int) and isinstance(score, int | float) and math.isfinite(score):
            scores[index] = float(score)
    # Each text once: some servers leave out texts with a low score.
    if len(rows) != count or sorted(scores) != list(range(count)):
        raise ModelProtocolError(
            f"{name} gave {len(scores)} usable scores for {count} texts.",
            cure="Check that AGENT_RUNTIME_RERANKER_MODEL names a reranker; try another one.",
        )
    return [scores[index] for index in range(count)]


def _usage_of(response: Any, count: int) -> tuple[int | None, int | None]:
    """Return the tokens and the searches that a response reports; None for what it does not."""
    meta = getattr(response, "meta", None)
    billed, tokens = field(meta, "billed_units"), field(meta, "tokens")
    searches, total = field(billed, "search_units"), field(billed, "total_tokens")
    if total is None:
        total = field(tokens, "input_tokens")
    if searches is None and total is None:
        return None, None
    read = total if isinstance(total, int) else 0
    units = searches if isinstance(searches, int) else searches_for(count)
    return read, units


def searches_for(count: int) -> int:
    """Return how many searches providers charge for texts."""
    return -(-count // TEXTS_PER_SEARCH)
