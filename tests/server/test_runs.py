"""Runs by HTTP: they outlive their connection, and begin once for each key."""

from __future__ import annotations

from typing import Any

import pytest

from agent_runtime import Agent, ScriptedModel
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, say
from agent_runtime.server.protocols.live import live_of
from tests.server.serving import Gate, double, serving, until
from tests.support.stores import execute

pytestmark = pytest.mark.backends("file")


@pytest.mark.backends("file", "postgres")
async def test_a_run_from_its_start_to_its_output(database_url: str) -> None:
    async with serving(database_url, [call("double", number=4), say("Eight.")]) as service:
        started = await service.start(task="Double four.")
        run = await service.ended(started["run_id"])
        assert (run["status"], run["output"], run["agent"]) == ("succeeded", "Eight.", "worker")
        path = f"/api/threads/{started['thread_id']}"
        messages = (await service.client.get(f"{path}/messages")).json()["messages"]
        assert [one["role"] for one in messages if one["role"] != "note"] == [
            "user",
            "assistant",
            "assistant",
        ]
        [made] = [call for one in messages for call in one["calls"]]
        assert (made["tool"], made["arguments"], made["result"]) == ("double", {"number": 4}, "8")
        events = await service.events(f"/api/runs/{started['run_id']}/events")
        stored = await service.runtime.store_of("ann").events.list(started["thread_id"])
        assert [event["id"] for _, event in events] == [event.id for event in stored]


async def test_a_run_outlives_the_client_that_started_it(database_url: str) -> None:
    gate = Gate()
    agents = {"worker": Agent(tools=[gate.tool()])}
    async with serving(database_url, [call("wait"), say("Done.")], agents=agents) as service:
        started = await service.start()
        await gate.entered.wait()
        await service.client.aclose()
        gate.opened.set()
        store = service.runtime.store_of("ann")

        async def over() -> bool:
            return (await store.runs.get(started["run_id"])).status == "succeeded"

        await until(over)


async def test_a_key_starts_a_run_once(database_url: str) -> None:
    async with serving(database_url, lambda request: say("Done.")) as service:
        asked: dict[str, Any] = {"json": {"task": "Once."}, "headers": {"Idempotency-Key": "k1"}}
        first = await service.client.post("/api/runs", **asked)
        again = await service.client.post("/api/runs", **asked)
        assert (first.status_code, first.json()) == (201, again.json())
        assert again.headers["Idempotency-Replayed"] == "true"
        other = await service.client.post(
            "/api/runs", json={"task": "Other."}, headers=asked["headers"]
        )
        assert (other.status_code, other.json()["type"]) == (422, "urn:agent-runtime:key-reused")
        runs = (await service.client.get("/api/runs")).json()["runs"]
        assert [run["id"] for run in runs] == [first.json()["run_id"]]


async def test_an_attempt_after_a_crash_finds_the_run_that_the_first_one_began(
    database_url: str,
) -> None:
    async with serving(database_url, lambda request: say("Done.")) as service:
        asked: dict[str, Any] = {"json": {"task": "Once."}, "headers": {"Idempotency-Key": "k1"}}
        first = (await service.client.post("/api/runs", **asked)).json()
        # As if the process had died before it stored the answer, long ago.
        await service.ended(first["run_id"])
        await execute(
            database_url,
            "UPDATE requests SET status = NULL, body = NULL, "
            "claimed_at = (SELECT max(created_at) - 70 FROM tokens)",
        )
        again = await service.client.post("/api/runs", **asked)
        assert (again.status_code, again.json()) == (201, first)


async def test_steer_pause_resume_and_cancel(database_url: str) -> None:
    gate = Gate()
    agents = {"worker": Agent(tools=[gate.tool(), double])}
    script = [call("wait"), call("double", number=1), say("Done.")]
    async with serving(database_url, script, agents=agents) as service:
        run_id = (await service.start())["run_id"]
        await gate.entered.wait()
        path = f"/api/runs/{run_id}"
        assert (await service.client.post(f"{path}/steer", json={"text": "Hurry."})).is_success
        assert (await service.client.post(f"{path}/pause")).status_code == 204
        gate.opened.set()
        assert (await service.ended(run_id))["stop_reason"] == "paused"
        assert (await service.client.post(f"{path}/resume", json={})).status_code == 201
        assert (await service.ended(run_id))["status"] == "succeeded"
        over = await service.client.post(f"{path}/steer", json={"text": "Late."})
        assert (over.status_code, over.json()["type"]) == (409, "urn:agent-runtime:conflict")
        assert "is over" in over.json()["detail"] and over.json()["cure"]


async def test_cancel_reaches_a_run_at_work(database_url: str) -> None:
    gate = Gate()
    agents = {"worker": Agent(tools=[gate.tool()])}
    async with serving(database_url, [call("wait")], agents=agents) as service:
        run_id = (await service.start())["run_id"]
        await gate.entered.wait()
        reached = await service.client.post(f"/api/runs/{run_id}/cancel")
        assert reached.json() == {"run_ids": [run_id]}
        assert (await service.ended(run_id))["status"] == "cancelled"


async def test_a_user_has_a_limit_of_runs_at_work(database_url: str) -> None:
    gate = Gate()
    agents = {"worker": Agent(tools=[gate.tool()])}
    settings = {"service_max_runs": 1}

    def script(request: ModelRequest) -> Scripted:
        return call("wait") if len(request.messages) < 4 else say("Done.")

    async with serving(database_url, script, agents=agents, settings=settings) as service:
        first = await service.start()
        await gate.entered.wait()
        more = await service.client.post("/api/runs", json={"task": "More."})
        assert (more.status_code, more.json()["type"]) == (429, "urn:agent-runtime:too-many")
        gate.opened.set()
        await service.ended(first["run_id"])
        # The place is given back when the run's work ends, just after its last commit.

        async def taken() -> bool:
            asked = await service.client.post("/api/runs", json={"task": "Now."})
            return asked.status_code == 201

        await until(taken)


async def test_a_question_is_answered_as_it_was_shown(database_url: str) -> None:
    agents = {"worker": Agent(tools=[double])}
    script = [call("double", number=4), say("Done.")]
    settings = {"approve": "double"}
    async with serving(database_url, script, agents=agents, settings=settings) as service:
        run_id = (await service.start())["run_id"]
        assert (await service.ended(run_id))["stop_reason"] == "awaiting_user"
        [question] = (await service.client.get("/api/questions")).json()["questions"]
        assert (question["kind"], question["arguments"]) == ("approval", {"number": 4})
        path = f"/api/questions/{question['id']}/answer"
        stale = await service.client.post(path, json={"digest": "0" * 64, "allow": True})
        assert (stale.status_code, stale.json()["type"]) == (
            409,
            "urn:agent-runtime:stale-question",
        )
        decided = {"digest": question["digest"], "allow": True}
        shown = f"/api/runs/{run_id}"
        assert (await service.client.get(shown)).json()["way_on"] == "answer"
        answered = await service.client.post(path, json=decided)
        assert answered.json() == {"resumable": True, "run_id": run_id}
        assert (await service.client.get(shown)).json()["way_on"] == "resume"
        again = await service.client.post(path, json=decided)
        assert again.json()["type"] == "urn:agent-runtime:question-closed"
        await service.client.post(f"/api/runs/{run_id}/resume", json={})
        over = await service.ended(run_id)
        assert (over["status"], over["way_on"]) == ("succeeded", None)


async def test_a_run_of_another_program_is_not_resumed(database_url: str) -> None:
    async with serving(database_url, [say("One."), say("Two.")]) as service:
        store = service.runtime.store_of("ann")
        service.runtime.program = "elsewhere"
        result = await service.runtime.run(Agent(name="worker"), "Work.", user="ann")
        response = await service.client.post(f"/api/runs/{result.run_id}/resume", json={})
        assert response.status_code == 409
        assert "another program" in response.json()["detail"]
        assert (await store.runs.get(result.run_id)).status == "succeeded"


async def test_a_run_can_be_left_to_a_worker(database_url: str) -> None:
    async with serving(database_url, lambda request: say("Done.")) as service:
        asked: dict[str, Any] = {
            "json": {"task": "Later.", "queue": True}, "headers": {"Idempotency-Key": "k1"},
        }  # fmt: skip
        answers = [await service.client.post("/api/runs", **asked) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [201, 201]
        run_id = answers[0].json()["run_id"]
        run = (await service.client.get(f"/api/runs/{run_id}")).json()
        assert (run["status"], answers[1].json()["run_id"]) == ("queued", run_id)
        [row] = await service.runtime.queue.list(user="ann")
        assert (row.run_id, row.agent, row.state) == (run_id, "worker", "waiting")

        later = {"task": "Later.", "at": "2100-01-01T09:00:00Z", "priority": 4}
        refused = await service.client.post("/api/runs", json=later)
        assert refused.status_code == 422
        response = await service.client.post("/api/runs", json={**later, "queue": True})
        rows = {row.run_id: row for row in await service.runtime.queue.list(user="ann")}
        delayed = rows[response.json()["run_id"]]
        assert (delayed.state, delayed.tag - row.tag) == ("delayed", 0.25)


async def test_answers_of_runs_that_the_api_begins_or_resumes_are_live(database_url: str) -> None:
    script = [call("ask_user", question="Which?", kind="text"), say("One.\nTwo.")]
    agents = {"worker": Agent(asking=True)}
    async with serving(database_url, script, agents=agents) as service:
        seen: list[str] = []
        live = live_of(service.runtime)
        with live.following(("ann", "t"), lambda one: seen.append(one.event.kind)):
            started = await service.start(thread_id="t")
            assert (await service.ended(started["run_id"]))["status"] == "suspended"
            [asked] = (await service.client.get("/api/questions")).json()["questions"]
            answer = {"digest": asked["digest"], "text": "This."}
            await service.client.post(f"/api/questions/{asked['id']}/answer", json=answer)
            await service.client.post(f"/api/runs/{started['run_id']}/resume", json={})
            assert (await service.ended(started["run_id"]))["status"] == "succeeded"
        assert "text-delta" in seen


async def test_what_is_found_in_a_call_is_shown(database_url: str) -> None:
    script = [call("double", number=48_211), say("Done.")]
    agent = Agent(ScriptedModel(script), tools=[double])
    async with serving(database_url, agents={"worker": agent}) as service:
        await service.ended((await service.start())["run_id"])
        (hit,) = (await service.client.get("/api/search", params={"q": "48211"})).json()["hits"]
        assert hit["call"] is None
        assert hit["text"].split() == ["double", "number", "48211"]


async def test_a_message_is_answered_again(database_url: str) -> None:
    async with serving(database_url, [say("One."), say("Two.")]) as service:
        path = "/api/threads/t/regenerate"
        assert (await service.client.post(path, json={})).status_code == 404
        first = await service.start(thread_id="t")
        await service.ended(first["run_id"])
        key = {"Idempotency-Key": "again"}
        answers = [await service.client.post(path, json={}, headers=key) for _ in range(2)]
        assert [one.status_code for one in answers] == [201, 201]
        assert answers[0].json() == answers[1].json()
        assert (await service.ended(answers[0].json()["run_id"]))["output"] == "Two."
        messages = (await service.client.get("/api/threads/t/messages")).json()["messages"]
        assert [one["text"] for one in messages] == ["Work.", "Two."]
        assert len((await service.client.get("/api/threads/t/branches")).json()["heads"]) == 2
