"""The service's tokens and requests over SQL."""

from __future__ import annotations

import hashlib
import secrets

from agent_runtime_config.errors import ConfigError
from agent_runtime_storage.contract.ids import new_id
from agent_runtime_storage.contract.names import name_problem
from agent_runtime_storage.contract.records.service import (
    Backlog,
    ClaimedRequest,
    TokenOwner,
    TokenRow,
)
from agent_runtime_storage.drivers.protocol import Driver, Row, Statement, Value
from agent_runtime_storage.sql.loader import load_queries

# Enough for a user to tell tokens apart, and useless without the rest.
_PREFIX_CHARS = 11


class SqlService:
    """`ServiceStore` over SQL.  Tokens are looked up over all owners; a token names its own."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._sql = load_queries(driver.dialect)

    async def make_token(
        self, user_id: str, token: str, *, name: str = "", seconds: float | None = None
    ) -> TokenRow:
        if problem := name_problem(user_id):
            raise ConfigError(f"The user of the token {problem}.", cure="Name the user.")
        values: dict[str, Value] = {
            "id": new_id(),
            "name": name,
            "prefix": token[:_PREFIX_CHARS],
            "hash": _hash(token),
            "seconds": seconds,
        }
        [[row]] = await self._write(user_id, "make_token", values)
        return TokenRow(*row)

    async def token_owner(self, token: str) -> TokenOwner | None:
        rows = await self._driver.read(
            self._sql["token_by_hash"], {"hash": _hash(token)}, owner=None
        )
        return TokenOwner(str(rows[0][0]), str(rows[0][1]), bool(rows[0][2])) if rows else None

    async def use_token(self, owner: TokenOwner) -> None:
        await self._write(owner.user_id, "use_token", {"id": owner.token_id})

    async def tokens(self) -> list[TokenRow]:
        rows = await self._driver.read(self._sql["tokens_of_all"], {}, owner=None)
        return [TokenRow(*row) for row in rows]

    async def any_token(self) -> bool:
        return bool(await self._driver.read(self._sql["tokens_usable"], {}, owner=None))

    async def revoke_token(self, token_id: str) -> bool:
        revoke = Statement(self._sql["revoke_token"], {"id": token_id})
        [rows] = await self._driver.batch([revoke], owner=None)
        return bool(rows)

    async def backlog(self) -> Backlog:
        rows = await self._driver.read(self._sql["backlog"], {}, owner=None)
        counts = {str(what): int(str(count)) for what, count in rows}
        return Backlog(counts.pop("questions", 0), counts)

    async def claim_request(
        self, user_id: str, key: str, digest: bytes, *, seconds: float, keep: float
    ) -> ClaimedRequest:
        claim = secrets.token_hex(16)
        names: dict[str, Value] = {"user_id": user_id, "key": key}
        claimed: dict[str, Value] = {
            **names, "digest": digest, "made_id": new_id(), "claim": claim, "seconds": seconds,
        }  # fmt: skip
        batch = [
            Statement(self._sql["forget_requests"], {"user_id": user_id, "seconds": keep}),
            Statement(self._sql["claim_request"], claimed),
            Statement(self._sql["request"], names, 1),
        ]
        *_, [row] = await self._driver.batch(
            batch, owner=user_id, locks=[f"request {key}"], repeatable=True
        )
        held = claim if row[2] == claim else ""
        return ClaimedRequest(bytes(row[0]) == digest, str(row[1]), held, row[3], row[4])

    async def answer_request(
        self, user_id: str, key: str, claim: str, status: int, body: bytes
    ) -> None:
        values: dict[str, Value] = {"key": key, "claim": claim, "status": status, "body": body}
        await self._write(user_id, "answer_request", values, repeatable=True)

    async def drop_request(self, user_id: str, key: str, claim: str) -> None:
        await self._write(user_id, "drop_request", {"key": key, "claim": claim}, repeatable=True)

    async def _write(
        self, user_id: str, name: str, values: dict[str, Value], *, repeatable: bool = False
    ) -> list[list[Row]]:
        statement = Statement(self._sql[name], {"user_id": user_id, **values})
        return await self._driver.batch([statement], owner=user_id, repeatable=repeatable)


def _hash(token: str) -> bytes:
    # A plain hash is enough: a token is random and long, so nobody can guess it from its hash.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
