"""What is done for an owner from time to time: leased by who comes first, fenced by a token."""

from __future__ import annotations

import secrets

from agent_runtime_storage.contract.errors import LeaseLost, StoreInDoubt
from agent_runtime_storage.drivers.protocol import BatchMissed, Value
from agent_runtime_storage.queries.owner import OwnerScope


class Periodic(OwnerScope):
    """The methods of `UserStore` for periodic jobs."""

    async def claim_periodic(self, kind: str, *, seconds: float) -> str | None:
        token = secrets.token_hex(16)
        values: dict[str, Value] = {"kind": kind, "seconds": seconds, "token": token}
        try:
            [rows] = await self._batch([self._statement("claim_periodic", values)])
        except StoreInDoubt:
            rows = await self._read("claimed_periodic", kind=kind, token=token)
            if not rows:
                raise
        return token if rows else None

    async def finish_periodic(self, kind: str, token: str, *, again_after: float) -> None:
        values: dict[str, Value] = {"kind": kind, "token": token, "again_after": again_after}
        finish = self._statement("finish_periodic", values, rows=1)
        try:
            await self._batch([finish], repeatable=True)
        except BatchMissed as error:
            raise LeaseLost(
                f"The claim on the periodic job {kind!r} is void: it expired and another took it.",
                cure="Leave it to the other.",
            ) from error
