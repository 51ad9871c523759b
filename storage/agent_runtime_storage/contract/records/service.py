"""Records of the HTTP service: tokens of its users, and requests that may be sent twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token, without the token itself, of which only the hash is stored.

    Attributes:
        prefix: its beginning, by which its owner recognises it.
        used_at: when it was last used, within a minute; None if it never was.
    """

    id: str
    user_id: str
    name: str
    prefix: str
    created_at: float
    expires_at: float | None
    used_at: float | None
    revoked_at: float | None


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits in the whole database.

    Attributes:
        questions: how many wait for an answer.
        runs: how many are not over, by status.
    """

    questions: int
    runs: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TokenOwner:
    """Whose token it is.

    Attributes:
        stale: whether its last use was more than a minute ago, so that it is to be noted.
    """

    token_id: str
    user_id: str
    stale: bool


@dataclass(frozen=True, slots=True)
class ClaimedRequest:
    """A request under a key: claimed by this caller, in progress elsewhere, or answered.

    Attributes:
        same: whether the key was used for the same request.
        made_id: the id of what the request creates, the same for each attempt.
        claim: what ends the claim; empty if another caller has it.
        status, body: the answer; None while there is none.
    """

    same: bool
    made_id: str
    claim: str
    status: int | None
    body: bytes | None
