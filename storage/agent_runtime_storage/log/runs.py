"""Runs: reading them, their leases, and their cancellation."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from agent_runtime_storage.contract.errors import Conflict, LeaseLost, StoreInDoubt
from agent_runtime_storage.contract.records import Lease, LeaseOwner, Run, RunStatus
from agent_runtime_storage.drivers.protocol import BatchMissed
from agent_runtime_storage.log.commits import Commits
from agent_runtime_storage.log.threads import thread_busy
from agent_runtime_storage.queries.owner import not_found
from agent_runtime_storage.queries.row_decoding import to_run


class Runs(Commits):
    """The methods of `UserStore` for runs and leases."""

    async def run(self, run_id: str) -> Run:
        rows = await self._read("run", run_id=run_id)
        if not rows:
            raise not_found("run", run_id)
        return to_run(rows[0])

    async def runs(
        self,
        *,
        thread_id: str | None = None,
        root_run_id: str | None = None,
        parent_run_id: str | None = None,
        parent_thread_id: str | None = None,
        task_key: str | None = None,
        status: Sequence[RunStatus] | None = None,
        limit: int = 100,
    ) -> list[Run]:
        # One query for each index, the narrowest first; the filters are the same in all.
        if parent_thread_id is not None:
            name = "runs_of_parent_thread"
        elif parent_run_id is not None:
            name = "runs_of_parent"
        elif root_run_id is not None:
            name = "runs_of_root"
        else:
            name = "runs" if thread_id is None else "runs_of_thread"
        rows = await self._read(
            name,
            thread_id=thread_id,
            root_run_id=root_run_id,
            parent_run_id=parent_run_id,
            parent_thread_id=parent_thread_id,
            task_key=task_key,
            status=None if status is None else orjson.dumps(list(status)).decode(),
            limit=max(limit, 0),
        )
        return [to_run(row) for row in rows]

    async def take_lease(
        self,
        run_id: str,
        owner: LeaseOwner,
        *,
        seconds: float,
        replaces: int,
        was: RunStatus | None = None,
    ) -> Lease:
        values = {
            "run_id": run_id,
            "replaces": replaces,
            "was": was,
            "host": owner.host,
            "boot": owner.boot,
            "pid": owner.pid,
            "started": owner.started,
            "machine": owner.machine,
            "instance": owner.instance,
            "seconds": seconds,
        }
        thread, root = await self._place(run_id)
        batch = [
            self._statement("take_run", values, rows=1, miss="run"),
            self._statement("take_thread", {"run_id": run_id}, rows=1, miss="thread"),
            *self._unsettle_own(run_id),
        ]
        try:
            await self._batch(batch, thread=thread, tree=root)
        except StoreInDoubt:
            run = await self.run(run_id)
            if (run.epoch, run.owner, run.status) != (replaces + 1, owner, "running"):
                raise
        except BatchMissed as error:
            raise await self._why_not_taken(run_id, replaces, error.label) from error
        return Lease(run_id, thread, root, replaces + 1)

    async def _place(self, run_id: str) -> tuple[str, str]:
        """Return the thread and the root of a run; neither ever changes."""
        rows = await self._read("run_place", run_id=run_id)
        if not rows:
            raise not_found("run", run_id)
        [(thread_id, root)] = rows
        return str(thread_id), str(root)

    async def _why_not_taken(self, run_id: str, replaces: int, label: str) -> Exception:
        run = await self.run(run_id)
        if label == "thread":
            rows = await self._read("thread", thread_id=run.thread_id)
            if not rows:
                return not_found("thread", run.thread_id)
            return thread_busy(run.thread_id, str(rows[0][7]))
        if run.status == "succeeded":
            return Conflict(
                f"Run {run_id} has succeeded and cannot be resumed.",
                cure="Start a new run on its thread.",
            )
        if run.stop_reason == "imported":
            return Conflict(
                f"Run {run_id} was imported and cannot be resumed.",
                cure="Start a new run on its thread.",
            )
        if run.epoch == replaces:
            return LeaseLost(
                f"Run {run_id} has become {run.status} since it was read.",
                cure="Read the run again.",
            )
        return LeaseLost(
            f"Run {run_id} is at epoch {run.epoch}, not {replaces}: another process took it over.",
            cure="Leave the run to it, or read the run again.",
        )

    async def renew_lease(self, lease: Lease, *, seconds: float) -> bool:
        values = {"run_id": lease.run_id, "epoch": lease.epoch, "seconds": seconds}
        try:
            renew = self._statement("renew_lease", values, rows=1)
            [[row]] = await self._batch([renew], repeatable=True)
        except BatchMissed as error:
            raise await self._lost(lease) from error
        return bool(row[0])

    async def cancel_run(self, run_id: str) -> list[str]:
        _, root = await self._place(run_id)
        cancel = self._statement("cancel_runs", {"run_id": run_id})
        [rows] = await self._batch([cancel], tree=root, repeatable=True)
        for _, thread_id in rows:
            self._announce(str(thread_id))
        return [str(identity) for identity, _ in rows]

    async def poll(self, lease: Lease) -> tuple[bool, bool]:
        rows = await self._read("poll", run_id=lease.run_id, epoch=lease.epoch)
        if not rows:
            raise await self._lost(lease)
        [(cancel_requested, posted)] = rows
        return bool(cancel_requested), bool(posted)
