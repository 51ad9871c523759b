"""What the HTTP service keeps in the database."""

from __future__ import annotations

from typing import Protocol

from agent_runtime_storage.contract.records.service import (
    Backlog,
    ClaimedRequest,
    TokenOwner,
    TokenRow,
)


class ServiceStore(Protocol):
    """Tokens of users, and the answers to requests that may be sent twice."""

    async def make_token(
        self, user_id: str, token: str, *, name: str = "", seconds: float | None = None
    ) -> TokenRow:
        """Store the hash of a token.

        Args:
            token: random, with at least 128 bits.
            seconds: after which it expires; None for never.

        Raises:
            ConfigError: the user is empty, or no valid name.
        """
        ...

    async def token_owner(self, token: str) -> TokenOwner | None:
        """Return whose token it is; None if it is unknown, revoked or expired."""
        ...

    async def use_token(self, owner: TokenOwner) -> None:
        """Note that a token was used; writes at most once a minute."""
        ...

    async def tokens(self) -> list[TokenRow]:
        """Return the tokens of all users, the oldest first."""
        ...

    async def any_token(self) -> bool:
        """Return whether there is a token that can be used."""
        ...

    async def revoke_token(self, token_id: str) -> bool:
        """Revoke a token at once; return False if none with this id can be used."""
        ...

    async def backlog(self) -> Backlog:
        """Return how much waits for people and for machines, over all owners."""
        ...

    async def claim_request(
        self, user_id: str, key: str, digest: bytes, *, seconds: float, keep: float
    ) -> ClaimedRequest:
        """Claim a request of a user under a key, or return what became of it.

        Args:
            digest: SHA-256 of the request.
            seconds: after which a claim without an answer can be taken over.
            keep: seconds after which answers are forgotten.
        """
        ...

    async def answer_request(
        self, user_id: str, key: str, claim: str, status: int, body: bytes
    ) -> None:
        """Store the answer to a claimed request; a lost claim stores nothing."""
        ...

    async def drop_request(self, user_id: str, key: str, claim: str) -> None:
        """Give up a claim without an answer, so that the request can be sent again at once."""
        ...
