"""`TokenUsage`: what a provider reports of a call."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """The tokens that the provider reported for a call; `prompt` includes all cached ones.

    Attributes:
        cache_write_hour: those of `cache_write` that are kept for an hour, which cost more.
        reasoning: those of `completion` that the model thought with.
        audio: those of `prompt` that are audio, cached ones included.
        cached_audio: those of `cached` that are audio.
        image: those of `prompt` that are images.
        audio_output: those of `completion` that are audio.
        image_output: those of `completion` that are images.
        service: the service tier that served the call, in the provider's word; empty if unknown.
        factors: Anthropic's words for where and how fast the call was computed, which can raise
            the price.
    """

    prompt: int
    completion: int
    cached: int = 0
    cache_write: int = 0
    cache_write_hour: int = 0
    reasoning: int = 0
    audio: int = 0
    cached_audio: int = 0
    image: int = 0
    audio_output: int = 0
    image_output: int = 0
    service: str = ""
    factors: tuple[str, ...] = ()

    @property
    def possible(self) -> bool:
        """Whether it can be true; some servers report negative numbers, or parts above the whole.

        What is impossible counts as not reported, and so at the call's upper bound.
        """
        return self.prompt >= self.cached >= 0 and self.completion >= 0 and self.cache_write >= 0
