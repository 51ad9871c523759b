"""Attempts to reach another owner's rows, through every method of an owner's store."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from agent_runtime_config.errors import AgentRuntimeError
from agent_runtime_storage import (
    Amount,
    ArchivedThread,
    Budget,
    Commit,
    Finish,
    Job,
    LateObservation,
    NewApproval,
    NewEvent,
    NewObservation,
    NewPlan,
    NodeText,
    Usage,
    UserStore,
)
from agent_runtime_storage.contract.records.schedules import ScheduleRow
from agent_runtime_storage.objects.archive_parts import new_place
from tests.storage.helpers import LARGE, OTHER, done, new_run
from tests.storage.owners import (
    DIGEST,
    DOCUMENT,
    FILE,
    KEPT,
    OWN,
    QUESTION,
    SCHEDULE,
    SECRET,
    Target,
    file_of,
    queued_run,
    schedule_of,
    vector_of,
)

Attempt = Callable[[UserStore, Target], Awaitable[object]]


def _use(to: Target) -> Usage:
    return Usage(to.run, to.run, None, "step", "m", 1, 0, 0, 1, 1, 1)


async def _is_due(user: UserStore) -> bool:
    return await user.jobs.claim_periodic("tidy", seconds=60) is not None


def _late(job: Job) -> LateObservation:
    return LateObservation(NewObservation(2, 0, 1, 2, 2, b"mine", 1), job)


async def _on_own_thread(user: UserStore, **changes: object) -> object:
    await user.threads.ensure("t9")
    return await user.runs.begin(new_run("r9", "t9", **changes))


async def _same_run_id(user: UserStore, to: Target) -> object:
    await user.threads.ensure("t9")
    return await user.runs.begin(new_run(to.run, "t9"))


async def _first_event(user: UserStore, thread_id: str) -> object:
    async for event in user.events.follow(thread_id):
        return event
    return None


async def _first_of_tree(user: UserStore, run_id: str) -> object:
    async for event in user.events.follow_tree(run_id):
        return event
    return None


async def _export(user: UserStore, thread_id: str) -> object:
    # Without the checksum, which covers times as well.
    return [
        {key: value for key, value in record.items() if key not in ("checksum", "exported_at")}
        for record in [record async for record in user.upkeep.export_thread(thread_id)]
    ]


async def _parts(user: UserStore) -> list[bytes]:
    return [part async for part in user.upkeep.archive_parts(KEPT)]


async def _adopt(user: UserStore) -> bool:
    """Adopt an archive whose parts are to lie in the other owner's folder."""

    async def parts() -> AsyncGenerator[bytes]:
        yield b"mine"

    place = new_place("ann")
    return await user.upkeep.adopt_archive(
        ArchivedThread(KEPT, "", 1.0, 1.0, 1.0, place, b"0" * 32, 1, 1, 1, 1), parts()
    )


async def _import(user: UserStore, rename: str) -> object:
    """Import a thread of the attacker under the name of another owner's thread."""
    await user.threads.ensure("to export")

    async def records() -> AsyncIterator[Mapping[str, Any]]:
        async for record in user.upkeep.export_thread("to export"):
            yield record

    return await user.upkeep.import_thread(records(), rename=rename)


async def _document(user: UserStore) -> object:
    """Read, list, write and delete a document under another owner's key."""
    documents = user.documents
    listed = [chunk async for chunk in documents.list("node_memory")]
    read = await documents.read(DOCUMENT)
    written = await documents.write(DOCUMENT, b"mine", replaces=None)
    return [read, listed, written, await documents.delete(DOCUMENT)]


def _commits(**commits: Callable[[Target], Commit]) -> dict[str, Attempt]:
    """Return attempts to commit changes that name another owner's ids, with a valid lease."""

    def attempt(make: Callable[[Target], Commit]) -> Attempt:
        return lambda user, to: user.runs.commit(to.own, make(to))

    return {name: attempt(make) for name, make in commits.items()}


ATTACKS: Mapping[str, Mapping[str, Attempt]] = {
    "threads.ensure": {"": lambda user, to: user.threads.ensure(to.thread)},
    "threads.get": {"": lambda user, to: user.threads.get(to.thread)},
    "threads.list": {"": lambda user, to: user.threads.list(limit=10_000)},
    "threads.update": {"": lambda user, to: user.threads.update(to.thread, title="mine")},
    "threads.move_head": {
        "": lambda user, to: user.threads.move_head(to.thread, None, expect=1),
        "to a node": lambda user, to: user.threads.move_head(to.thread, 1, expect=1),
    },
    "log.branch": {
        "": lambda user, to: user.log.branch(to.thread, 1),
        "from": lambda user, to: user.log.branch(to.thread, 2, first=1),
    },
    "log.outlines": {
        "": lambda user, to: user.log.outlines([(to.thread, 1), (to.thread, 2)]),
        "near": lambda user, to: user.log.outlines([(to.thread, 1)], before=1, after=1),
    },
    "log.lineage": {
        "": lambda user, to: user.log.lineage(to.thread, 1),
        "from": lambda user, to: user.log.lineage(to.thread, 1, first=2),
    },
    "log.node": {"": lambda user, to: user.log.node(to.thread, 1)},
    "log.children": {
        "": lambda user, to: user.log.children(to.thread, 1),
        "roots": lambda user, to: user.log.children(to.thread, None),
    },
    "log.call": {"": lambda user, to: user.log.call(to.thread, 2, 0)},
    "log.activation": {
        "": lambda user, to: user.log.activation(to.thread, 1),
        "first": lambda user, to: user.log.activation(to.thread, None),
    },
    "log.activations": {"": lambda user, to: user.log.activations(to.thread)},
    "log.observations": {
        "": lambda user, to: user.log.observations(to.thread, ids=[1]),
        "from a node": lambda user, to: user.log.observations(to.thread, ending_from=0),
    },
    "log.plan": {"": lambda user, to: user.log.plan(to.thread, 2)},
    "log.plans": {"": lambda user, to: user.log.plans(to.thread, 2)},
    "log.last_plan_id": {"": lambda user, to: user.log.last_plan_id(to.thread)},
    "log.last_observation_id": {"": lambda user, to: user.log.last_observation_id(to.thread)},
    "runs.begin": {
        "on the thread": lambda user, to: user.runs.begin(new_run("r9", to.thread)),
        "of the parent": lambda user, to: _on_own_thread(user, parent_run_id=to.run),
        "in the tree": lambda user, to: _on_own_thread(
            user, parent_run_id=to.run, root_run_id=to.run
        ),
        "of an own parent, in the tree": lambda user, to: _on_own_thread(
            user, parent_run_id="own-run", root_run_id=to.run
        ),
        "at the root": lambda user, to: _on_own_thread(user, root_run_id=to.run),
        "paid by the tree": lambda user, to: _on_own_thread(
            user, root_run_id=to.run, reserve=Amount(1, 1)
        ),
        "of the same id": _same_run_id,
    },
    "runs.commit": {
        "with the lease": lambda user, to: user.runs.commit(to.lease, Commit(steps=9)),
        "in the tree": lambda user, to: user.runs.commit(
            dataclasses.replace(to.own, root_run_id=to.run), Commit(reserve=Amount(1, 1))
        ),
        "on the thread": lambda user, to: user.runs.commit(
            dataclasses.replace(to.own, thread_id=to.thread), Commit(steps=9)
        ),
        **_commits(
            usage=lambda to: Commit(usage=(_use(to),)),
            drain=lambda to: Commit(drained=(2,)),
            start=lambda to: Commit(start=((2, 1),)),
            result=lambda to: Commit(done=(done(2, 1),)),
            event=lambda to: Commit(events=(NewEvent("x", 99),)),
            plan=lambda to: Commit(plan=NewPlan(2, 2, "", b"mine")),
        ),
    },
    "runs.commit_late": {
        "with the lease and the job": lambda user, to: user.runs.commit_late(
            to.lease, _late(to.job)
        ),
        "on the own thread": lambda user, to: user.runs.commit_late(
            to.own, _late(dataclasses.replace(to.job, thread_id=OWN))
        ),
        "for the run": lambda user, to: user.runs.commit_late(
            dataclasses.replace(to.own, run_id=to.run), _late(to.job)
        ),
    },
    "spending.record_late": {
        "": lambda user, to: user.spending.record_late(to.lease, [_use(to)]),
        "on the own thread": lambda user, to: user.spending.record_late(
            dataclasses.replace(to.own, run_id=to.run), [_use(to)]
        ),
        "for the run": lambda user, to: user.spending.record_late(to.own, [_use(to)]),
    },
    "runs.get": {
        "": lambda user, to: user.runs.get(to.run),
        "child": lambda user, to: user.runs.get(to.child),
    },
    "runs.list": {
        "": lambda user, to: user.runs.list(limit=10_000),
        "of the thread": lambda user, to: user.runs.list(thread_id=to.thread),
        "of the tree": lambda user, to: user.runs.list(root_run_id=to.run),
        "of the parent": lambda user, to: user.runs.list(parent_run_id=to.run),
        "of the parent thread": lambda user, to: user.runs.list(parent_thread_id=to.thread),
        "active": lambda user, to: user.runs.list(status=("running",)),
    },
    "runs.take_lease": {
        "": lambda user, to: user.runs.take_lease(to.run, OTHER, seconds=60, replaces=1),
        "stale": lambda user, to: user.runs.take_lease(to.run, OTHER, seconds=60, replaces=7),
    },
    "runs.renew_lease": {"": lambda user, to: user.runs.renew_lease(to.lease, seconds=60)},
    "runs.adopt": {"": lambda user, to: user.runs.adopt(to.run, Budget())},
    "runs.replace_spec": {
        "": lambda user, to: user.runs.replace_spec(to.run, {}, {}, replaces=1),
    },
    "inspection.skeleton": {"": lambda user, to: user.inspection.skeleton(to.thread)},
    "inspection.nodes": {"": lambda user, to: user.inspection.nodes(to.thread)},
    "inspection.activations": {"": lambda user, to: user.inspection.activations(to.thread, [1])},
    "inspection.parts": {"": lambda user, to: user.inspection.parts(to.thread)},
    "inspection.children": {"": lambda user, to: user.inspection.children(to.thread, [1, 2])},
    "inspection.active_roots": {"": lambda user, to: user.inspection.active_roots()},
    "inspection.ended_roots": {"": lambda user, to: user.inspection.ended_roots()},
    "inspection.last_start": {"": lambda user, to: user.inspection.last_start(to.thread)},
    "inspection.last_prompts": {
        "": lambda user, to: user.inspection.last_prompts(to.thread, to.run),
    },
    "inspection.last_model": {"": lambda user, to: user.inspection.last_model(to.thread, to.run)},
    "ids.find": {
        "thread": lambda user, to: user.ids.find("thread", to.thread),
        "run": lambda user, to: user.ids.find("run", to.run),
        "question": lambda user, to: user.ids.find("question", QUESTION),
        "any": lambda user, to: user.ids.find("run", ""),
    },
    "runs.cancel": {
        "": lambda user, to: user.runs.cancel(to.run),
        "child": lambda user, to: user.runs.cancel(to.child),
    },
    "inbox.post": {
        "to the thread": lambda user, to: user.inbox.post(to.thread, "steer", b"mine"),
        "for the run": lambda user, to: user.inbox.post(OWN, "steer", b"mine", run_id=to.run),
        "large": lambda user, to: user.inbox.post(to.thread, "steer", LARGE),
    },
    "inbox.pending": {"": lambda user, to: user.inbox.pending(to.thread)},
    "runs.poll": {"": lambda user, to: user.runs.poll(to.lease)},
    "events.list": {
        "": lambda user, to: user.events.list(to.thread),
        "later": lambda user, to: user.events.list(to.thread, after=99),
    },
    "events.follow": {"": lambda user, to: _first_event(user, to.thread)},
    "events.of_tree": {
        "": lambda user, to: user.events.of_tree(to.run),
        "later": lambda user, to: user.events.of_tree(to.run, after={to.thread: 1}),
    },
    "events.places_of_tree": {"": lambda user, to: user.events.places_of_tree(to.run)},
    "events.follow_tree": {"": lambda user, to: _first_of_tree(user, to.run)},
    "spending.usage_total": {
        "of the tree": lambda user, to: user.spending.usage_total(root_run_id=to.run),
        "of the run": lambda user, to: user.spending.usage_total(run_id=to.run),
        "of the thread": lambda user, to: user.spending.usage_total(thread_id=to.thread),
    },
    "spending.usage_by_purpose": {
        "of the tree": lambda user, to: user.spending.usage_by_purpose(root_run_id=to.run),
        "of the run": lambda user, to: user.spending.usage_by_purpose(run_id=to.run),
        "of the thread": lambda user, to: user.spending.usage_by_purpose(thread_id=to.thread),
    },
    "spending.unpriced_calls": {
        "": lambda user, to: user.spending.unpriced_calls(),
        "of the tree": lambda user, to: user.spending.unpriced_calls(root_run_id=to.run),
        "of the thread": lambda user, to: user.spending.unpriced_calls(thread_id=to.thread),
    },
    "spending.usage_by_run": {"": lambda user, to: user.spending.usage_by_run(to.run)},
    "spending.recent_usage": {"": lambda user, to: user.spending.recent_usage("m", limit=10_000)},
    "jobs.enqueue": {
        "the same": lambda user, to: user.jobs.enqueue(to.thread, "observe", "a", b""),
        "another": lambda user, to: user.jobs.enqueue(to.thread, "observe", "b", LARGE),
    },
    "jobs.claim": {
        "": lambda user, to: user.jobs.claim("observe", seconds=60),
        "of the thread": lambda user, to: user.jobs.claim(
            "observe", seconds=60, thread_id=to.thread
        ),
        "by its key": lambda user, to: user.jobs.claim("observe", seconds=60, key="a"),
    },
    "jobs.standing": {"": lambda user, to: user.jobs.standing(to.thread, "other")},
    "jobs.claim_periodic": {"": lambda user, to: _is_due(user)},
    "jobs.finish_periodic": {
        "": lambda user, to: user.jobs.finish_periodic("tidy", "0" * 32, again_after=0)
    },
    "search.find": {
        "": lambda user, to: user.search.find(SECRET, limit=10_000),
        "every word": lambda user, to: user.search.find(SECRET, every_word=True),
        "in the thread": lambda user, to: user.search.find(SECRET, thread_id=to.thread),
        "own words": lambda user, to: user.search.find("my own words that only its owner may find"),
    },
    "search.index": {
        "": lambda user, to: user.search.index(to.thread, [NodeText(1, None, "mine")]),
        "of a call": lambda user, to: user.search.index(to.thread, [NodeText(2, 0, "mine")]),
    },
    "vectors.upsert": {
        "": lambda user, to: user.vectors.upsert("e", [vector_of(to.thread)]),
        "of other dimensions": lambda user, to: user.vectors.upsert("e", [vector_of(to.thread, 3)]),
        "own ones": lambda user, to: user.vectors.upsert("e", [vector_of(OWN, 3, source_id=9)]),
        "of their model": lambda user, to: user.vectors.upsert("theirs", [vector_of(OWN, 5)]),
    },
    "vectors.nearest": {
        "": lambda user, to: user.vectors.nearest("e", [1, 0.5], limit=10_000),
        "in the thread": lambda user, to: user.vectors.nearest("e", [1, 0.5], thread_id=to.thread),
        "of their model": lambda user, to: user.vectors.nearest("theirs", [1.0] * 5),
        "of other dimensions": lambda user, to: user.vectors.nearest("theirs", [1.0] * 4),
    },
    "vectors.delete": {
        "": lambda user, to: user.vectors.delete(to.thread),
        "of a source": lambda user, to: user.vectors.delete(
            to.thread, model="e", source="message", source_ids=[1]
        ),
    },
    "vectors.by_digest": {
        "": lambda user, to: user.vectors.by_digest("e", [DIGEST]),
        "of their model": lambda user, to: user.vectors.by_digest("theirs", [DIGEST]),
    },
    "vectors.embedded_ids": {
        "": lambda user, to: user.vectors.embedded_ids(to.thread, "e", "message", [1, 2])
    },
    "vectors.models": {"": lambda user, to: user.vectors.models()},
    "vectors.missing": {
        "": lambda user, to: user.vectors.missing("a new model"),
        "of their model": lambda user, to: user.vectors.missing("theirs"),
    },
    "vectors.of_thread": {"": lambda user, to: user.vectors.of_thread(to.thread)},
    "files.put": {
        "": lambda user, to: user.files.put(to.thread, file_of(b"mine")),
        "of the same id": lambda user, to: user.files.put(OWN, file_of(b"mine")),
    },
    "files.list": {"": lambda user, to: user.files.list(to.thread)},
    "files.find": {"": lambda user, to: user.files.find([FILE])},
    "files.content": {
        "": lambda user, to: user.files.content(to.thread, FILE),
        "by an own thread": lambda user, to: user.files.content(OWN, FILE),
    },
    "questions.get": {"": lambda user, to: user.questions.get(QUESTION)},
    "questions.list": {
        "": lambda user, to: user.questions.list(limit=10_000),
        "of the thread": lambda user, to: user.questions.list(thread_id=to.thread),
        "of the run": lambda user, to: user.questions.list(run_id=to.run),
        "open": lambda user, to: user.questions.list(status="open"),
    },
    "questions.answer": {
        "": lambda user, to: user.questions.answer(QUESTION, {"text": "mine"}),
        "and allow": lambda user, to: user.questions.answer(
            QUESTION, {}, remember=NewApproval("mine", "shell")
        ),
    },
    "questions.approvals": {"": lambda user, to: user.questions.approvals(to.thread)},
    "spending.of_day": {"": lambda user, to: user.spending.of_day()},
    "spending.of_thread": {"": lambda user, to: user.spending.of_thread(to.thread)},
    "runs.count_tree_steps": {"": lambda user, to: user.runs.count_tree_steps(to.run)},
    "spending.set_budget": {
        "": lambda user, to: user.spending.set_budget(to.run, tokens=1),
        "child": lambda user, to: user.spending.set_budget(to.child, tokens=1),
    },
    "spending.reserving_runs": {"": lambda user, to: user.spending.reserving_runs()},
    "runs.active_seconds": {"": lambda user, to: user.runs.active_seconds(to.run)},
    "questions.revoke_approval": {
        "": lambda user, to: user.questions.revoke_approval(to.thread, "a1")
    },
    "documents": {"": lambda user, to: _document(user)},
    "upkeep.delete_thread": {
        "": lambda user, to: user.upkeep.delete_thread(to.thread),
        "child": lambda user, to: user.upkeep.delete_thread("t2"),
        "of the past": lambda user, to: user.upkeep.delete_thread(to.thread, unchanged_since=0),
    },
    "upkeep.idle_threads": {"": lambda user, to: user.upkeep.idle_threads(seconds=0)},
    "upkeep.clean_up": {"": lambda user, to: user.upkeep.clean_up()},
    "upkeep.reindex": {"": lambda user, to: user.upkeep.reindex(lambda kind, body: "")},
    "upkeep.export_thread": {
        "": lambda user, to: _export(user, to.thread),
        "child": lambda user, to: _export(user, "t2"),
    },
    "upkeep.import_thread": {
        "over the thread": lambda user, to: _import(user, to.thread),
        "over the child": lambda user, to: _import(user, "t2"),
    },
    "upkeep.archive_thread": {
        "": lambda user, to: user.upkeep.archive_thread(to.thread),
        "child": lambda user, to: user.upkeep.archive_thread("t2"),
        "archived": lambda user, to: user.upkeep.archive_thread(KEPT),
    },
    "upkeep.restore_thread": {"": lambda user, to: user.upkeep.restore_thread(KEPT)},
    "upkeep.archivable_threads": {
        "": lambda user, to: user.upkeep.archivable_threads(seconds=0),
    },
    "upkeep.archived_threads": {"": lambda user, to: user.upkeep.archived_threads()},
    "upkeep.archived_thread": {"": lambda user, to: user.upkeep.archived_thread(KEPT)},
    "upkeep.archive_parts": {"": lambda user, to: _parts(user)},
    "upkeep.adopt_archive": {"": lambda user, to: _adopt(user)},
    "upkeep.clean_up_archives": {"": lambda user, to: user.upkeep.clean_up_archives()},
    "jobs.finish": {"": lambda user, to: user.jobs.finish(to.job)},
    "queue.enqueue": {
        "the run": lambda user, to: user.queue.enqueue(queued_run(to.run, OWN)),
        "the thread": lambda user, to: user.queue.enqueue(queued_run("own-queued", to.thread)),
        "below the run": lambda user, to: user.queue.enqueue(
            dataclasses.replace(queued_run("own-queued", OWN), parent=to.lease)
        ),
    },
    "queue.withdraw": {
        "": lambda user, to: user.queue.withdraw(
            to.run, Finish("cancelled", "cancelled"), NewEvent("run-finish")
        ),
    },
    "queue.list": {"": lambda user, to: user.queue.list(run_id=to.run)},
    "queue.wake": {"": lambda user, to: user.queue.wake(to.run, "mine")},
    "queue.postpone": {"": lambda user, to: user.queue.postpone(to.run, 60.0, "mine")},
    "queue.drop": {"": lambda user, to: user.queue.drop(to.run)},
    "schedules.add": {"": lambda user, to: user.schedules.add(schedule_of("own"))},
    "schedules.list": {"": lambda user, to: _ids_of(user)},
    "schedules.pause": {
        "": lambda user, to: user.schedules.pause(SCHEDULE, paused=True, next_at=1.0)
    },
    "schedules.remove": {"": lambda user, to: user.schedules.remove(SCHEDULE)},
    "schedules.start": {"": lambda user, to: _start(user)},
    "jobs.fail": {
        "retry": lambda user, to: user.jobs.fail(to.job, retry_after=0, detail="mine"),
        "for good": lambda user, to: user.jobs.fail(to.job, retry_after=None, detail="mine"),
    },
}


async def _ids_of(user: UserStore) -> list[str]:
    return [row.id for row in await user.schedules.list()]


async def _start(user: UserStore) -> bool:
    row = ScheduleRow(
        user.user_id,
        SCHEDULE,
        "0 9 * * *",
        "UTC",
        "once",
        False,
        4e9,
        None,
        queued_run("", ""),
        0,
        0,
    )
    return await user.schedules.start(row, [queued_run("own-started", "own-started")], next_at=5e9)


async def outcome(attempt: Attempt, user: UserStore, to: Target) -> object:
    """Return the result or the error of an attempt, without times and the job's random id."""
    try:
        return plain(await attempt(user, to))
    except AgentRuntimeError as error:
        texts = [str(error), error.cure, *(str(part) for part in error.args)]
        return [type(error).__name__, *(part.replace(to.job.id, "JOB") for part in texts)]


def plain(value: object) -> object:
    """Return a value with all its times as None, for comparison."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {
            field.name: None if field.name.endswith("_at") else plain(getattr(value, field.name))
            for field in fields
        }
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in cast("Sequence[object]", value)]
    return value
