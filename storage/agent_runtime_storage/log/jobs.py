"""Durable jobs: queued once for each key, claimed under a lease, fenced by a token."""

from __future__ import annotations

import secrets

from agent_runtime_storage.contract.errors import LeaseLost, StoreInDoubt
from agent_runtime_storage.contract.ids import new_id
from agent_runtime_storage.contract.records.log import Job, StandingClaim
from agent_runtime_storage.drivers.protocol import BatchMissed, Statement, Value
from agent_runtime_storage.objects.bodies import unpack_body
from agent_runtime_storage.queries.owner import OwnerScope, not_found


class SqlJobs:
    """`JobStore` over SQL."""

    def __init__(self, scope: OwnerScope) -> None:
        self._scope = scope

    async def enqueue(self, thread_id: str, kind: str, key: str, payload: bytes) -> bool:
        bodies = self._scope.bodies(thread_id)
        await bodies.pack([payload])
        packed = bodies.get(payload)
        values = {
            "id": new_id(),
            "thread_id": thread_id,
            "kind": kind,
            "key": key,
            "payload": packed.inline,
            "blob": packed.hash,
        }
        batch = [
            # A foreign key would accept a hidden thread, one that is being imported or deleted.
            self._scope.statement("thread_exists", {"thread_id": thread_id}, rows=1),
            *bodies.statements(),
            self._scope.statement("enqueue_job", values),
        ]
        try:
            rows = await self._scope.batch(batch, thread=thread_id, repeatable=True)
        except BatchMissed as error:
            raise not_found("thread", thread_id) from error
        return bool(rows[-1])

    async def claim(
        self,
        kind: str,
        *,
        seconds: float,
        thread_id: str | None = None,
        key: str | None = None,
        holder: str = "",
        void: str = "",
    ) -> Job | None:
        values: dict[str, Value] = {
            "kind": kind,
            "seconds": seconds,
            "thread_id": thread_id,
            "key": key,
            # The random part fences this claim; the holder tells others whether its process still
            # lives.
            "token": f"{secrets.token_hex(16)} {holder}".rstrip(),
            "void": void,
        }
        try:
            [rows] = await self._scope.batch([self._scope.statement("claim_job", values)])
        except StoreInDoubt:
            # The token is this call's own, so a job that carries it was claimed here.
            rows = await self._scope.read("claimed_job", kind=kind, token=values["token"])
            if not rows:
                raise
        if not rows:
            return None
        [(identity, thread, job_kind, job_key, payload, blob, attempts, token)] = rows
        codec, data = "", None
        if blob is not None:
            # RETURNING cannot join, so a large payload takes a second query.
            blobs = await self._scope.read("blob", thread_id=thread, hash=blob)
            codec, data = blobs[0] if blobs else ("lost", None)
        payload = unpack_body(payload, codec, data, {"job": identity})
        return Job(identity, thread, job_kind, job_key, payload, attempts, token)

    async def standing(self, thread_id: str, kind: str) -> list[StandingClaim]:
        rows = await self._scope.read("standing_claims", thread_id=thread_id, kind=kind)
        return [
            StandingClaim(str(key), str(token).partition(" ")[2], str(token)) for key, token in rows
        ]

    async def finish(self, job: Job) -> None:
        await self._end(job, self._scope.statement("finish_job", _key(job), rows=1))

    async def fail(self, job: Job, *, retry_after: float | None, detail: str) -> None:
        if retry_after is None:
            values = {**_key(job), "detail": detail}
            await self._end(job, self._scope.statement("give_up_job", values, rows=1))
        else:
            retry = {**_key(job), "detail": detail, "retry_after": retry_after}
            await self._end(job, self._scope.statement("retry_job", retry, rows=1))

    async def claim_periodic(self, kind: str, *, seconds: float) -> str | None:
        token = secrets.token_hex(16)
        values: dict[str, Value] = {"kind": kind, "seconds": seconds, "token": token}
        try:
            [rows] = await self._scope.batch([self._scope.statement("claim_periodic", values)])
        except StoreInDoubt:
            # As in `claim`: only this call knows the token.
            rows = await self._scope.read("claimed_periodic", kind=kind, token=token)
            if not rows:
                raise
        return token if rows else None

    async def finish_periodic(self, kind: str, token: str, *, again_after: float) -> None:
        values: dict[str, Value] = {"kind": kind, "token": token, "again_after": again_after}
        finish = self._scope.statement("finish_periodic", values, rows=1)
        try:
            await self._scope.batch([finish], repeatable=True)
        except BatchMissed as error:
            raise LeaseLost(
                f"The claim on the periodic job {kind!r} is void: it expired and another took it.",
                cure="Leave it to the other.",
            ) from error

    async def _end(self, job: Job, statement: Statement) -> None:
        # Repeatable: the statements accept a row that the same token has ended before.
        try:
            await self._scope.batch([statement], repeatable=True)
        except BatchMissed as error:
            raise LeaseLost(
                f"The claim on job {job.id} is void: it expired and another took the job, or the "
                "job is over.",
                cure="Drop the result.",
            ) from error


def _key(job: Job) -> dict[str, str]:
    return {"id": job.id, "token": job.token}
