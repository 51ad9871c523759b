"""A provider's refusal of a request."""

from __future__ import annotations


class RefusedError(Exception):
    """The provider refuses a request; the text is its own."""


def refuse_if(refused: object, text: str) -> None:
    """Refuse a request if there is something wrong with it."""
    if refused:
        raise RefusedError(text)
