"""Streams of events: no gap and no double, whatever breaks in between."""

from __future__ import annotations

import contextlib
import random
import re
import socket
from collections.abc import AsyncGenerator, Callable
from typing import Any, cast

import anyio
import anyio.to_thread
import httpx
import pytest

from agent_runtime import Agent, Delegation, Event
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, calls, raw_call, say
from agent_runtime.server.feeds import EncodedEvent
from agent_runtime.server.live_batches import with_live
from agent_runtime.server.protocols.live import LiveEvents
from agent_runtime.server.streams import CursorWriter
from agent_runtime_storage import Commit, NewEvent
from tests.delegation.helpers import playing
from tests.server.serving import Gate, Service, double, serving, stream, until
from tests.storage.helpers import begin

pytestmark = pytest.mark.backends("file")


def counting(steps: int) -> Callable[[ModelRequest], Scripted]:
    """Return a script of this number of calls, then an answer."""

    def answer(request: ModelRequest) -> Scripted:
        made = sum(one.role == "assistant" for one in request.messages)
        return call("double", number=made) if made < steps else say("Done.")

    return answer


async def stored(service: Service, thread_id: str) -> list[int]:
    """Return the ids of the events that the store has."""
    rows = await service.runtime.store_of("ann").events.list(thread_id)
    return [row.id for row in rows]


@pytest.mark.backends("file", "postgres")
async def test_a_client_that_breaks_off_at_random_gets_every_event_once(database_url: str) -> None:
    chance = random.Random(7)
    async with serving(database_url, counting(20)) as service:
        started = await service.start()
        path, cursor, got = f"/api/runs/{started['run_id']}/events", None, list[int]()
        over = False
        while not over:
            left, over = chance.randint(1, 9), True
            async for at, event in stream(service.client, path, cursor):
                cursor = at
                got.append(event["id"])
                left -= 1
                if not left:
                    over = False
                    break
        assert got == await stored(service, started["thread_id"])
        assert await service.events(path, cursor) == []
        assert (
            await service.client.get(path, headers={"Last-Event-ID": str(cursor)})
        ).status_code == 204


async def test_a_client_goes_on_at_a_restarted_server(database_url: str) -> None:
    gate = Gate()
    agents = {"worker": Agent(tools=[gate.tool(), double])}
    got: list[int] = []
    cursor: str | None = None
    async with serving(database_url, [call("wait")], agents=agents) as service:
        started = await service.start()
        path = f"/api/runs/{started['run_id']}/events"
        await gate.entered.wait()
        events = stream(service.client, path)
        cursor, event = await anext(events)
        got.append(event["id"])
        token = service.tokens["ann"]
        # The server stops: the stream ends, and the run is suspended at its drain.
        service.server.should_exit = True
        async for at, event in events:
            cursor = at
            got.append(event["id"])
    async with serving(database_url, [say("Done.")], agents=agents) as service:
        service.client.headers["Authorization"] = f"Bearer {token}"
        run = await service.ended(started["run_id"])
        assert (run["status"], run["stop_reason"]) == ("suspended", "interrupted")
        resumed = await service.client.post(f"/api/runs/{started['run_id']}/resume", json={})
        assert resumed.status_code == 201
        got += [event["id"] for _, event in await service.events(path, cursor)]
        assert got == await stored(service, started["thread_id"])


async def test_a_tree_is_one_stream(database_url: str) -> None:
    orders = [
        raw_call("delegate", role="reader", instructions="Read.", briefing=part, task_key=part)
        for part in ("one", "two")
    ]
    answer = playing([calls(*orders), say("Done.")], lambda request, step: say("Read."))
    agents = {"worker": Agent(delegation=Delegation())}
    async with serving(database_url, answer, agents=agents) as service:
        started = await service.start(task="All of it.")
        path = f"/api/runs/{started['run_id']}/events"
        events = await service.events(path)
        assert len({event["thread_id"] for _, event in events}) == 3, events
        for thread in {event["thread_id"] for _, event in events}:
            ids = [event["id"] for _, event in events if event["thread_id"] == thread]
            assert ids == await stored(service, thread)
        # From every place on, the rest is exactly what is missing.
        for at, (cursor, _) in enumerate(events):
            rest = await service.events(path, cursor)
            assert sorted(str(one) for _, one in rest) == sorted(
                str(one) for _, one in events[at + 1 :]
            )


async def test_a_stream_has_the_pieces_of_answers_where_it_is_asked_for_them(
    database_url: str,
) -> None:
    orders = [
        raw_call("delegate", role="reader", instructions="Read.", briefing=part, task_key=part)
        for part in ("one", "two")
    ]
    ends = say("Done.\nAll of it.\n")
    answer = playing([calls(*orders), ends], lambda request, step: say("Read.\nOnce.\n"))
    agents = {"worker": Agent(delegation=Delegation())}
    async with serving(database_url, answer, agents=agents) as service:
        started = await service.start(task="All of it.")
        path = f"/api/runs/{started['run_id']}/events"
        events = await service.events(f"{path}?live=true")
        texts: dict[str, str] = {}
        for _, event in events:
            if event["kind"] == "text-delta":
                assert event["id"] == 0
                name = event["thread_id"]
                texts[name] = texts.get(name, "") + event["data"]["text"]
        assert texts.pop(started["thread_id"]) == "Done.\nAll of it.\n"
        assert list(texts.values()) == ["Read.\nOnce.\n"] * 2
        # The rest is what is recorded.  Cursors tell how the threads of the tree took turns, which
        # another read may find otherwise.
        kept = [event for _, event in events if event["id"]]
        again = [event for _, event in await service.events(path)]
        assert sorted(map(str, kept)) == sorted(map(str, again))
        for thread in {event["thread_id"] for event in kept}:
            ids = [event["id"] for event in kept if event["thread_id"] == thread]
            assert ids == sorted(ids)
        kinds = [event["kind"] for _, event in events if event["thread_id"] == started["thread_id"]]
        last = len(kinds) - kinds[::-1].index("answer") - 1
        assert kinds[last - 2 : last] == ["text-delta", "text-delta"]


async def test_live_events_stand_between_the_recorded_ones() -> None:
    live, recorded = LiveEvents(), anyio.Event()

    def row(number: int, kind: str) -> EncodedEvent:
        return EncodedEvent("t", number, kind, b"%d" % number)

    async def batches() -> AsyncGenerator[list[EncodedEvent]]:
        yield [row(1, "run-start")]
        yield []
        await recorded.wait()
        yield [row(2, "note"), row(3, "answer"), row(4, "tool-start")]

    def piece(text: str) -> Event:
        return Event("text-delta", "t", "r", data={"text": text})

    with contextlib.closing(live.publisher("ann")) as publish:
        publish(Event("run-start", "t", "r", 1))
        publish(piece("a"))
        given = with_live(batches(), live, "ann", "t", {}, below=False)
        async with contextlib.aclosing(given):
            # Who comes in the middle of an answer gets its beginning.
            assert [one.id for one in await anext(given)] == [1, 0]
            assert not await anext(given)
            publish(piece("b"))
            [early] = await anext(given)
            assert b'"b"' in early.data
            publish(Event("note", "t", "r", 2))
            publish(piece("c"))
            publish(Event("answer", "t", "r", 3))
            publish(piece("d"))
            recorded.set()
            found = [one async for batch in given for one in batch]
            assert [one.id for one in found] == [2, 0, 3, 0, 4]


async def test_a_cursor_beyond_any_thread_of_a_tree_is_refused(database_url: str) -> None:
    order = raw_call("delegate", role="reader", instructions="Read.", briefing="a", task_key="a")
    answer = playing([calls(order), say("Done.")], lambda request, step: say("Read."))
    agents = {"worker": Agent(delegation=Delegation())}
    async with serving(database_url, answer, agents=agents) as service:
        started = await service.start(task="All of it.")
        path = f"/api/runs/{started['run_id']}/events"
        events = await service.events(path)
        last = {event["thread_id"]: event["id"] for _, event in events}
        store = service.runtime.store_of("ann")
        places = await store.events.places_of_tree(started["run_id"])
        assert {one: place.last_event for one, place in places.items()} == last
        assert len(last) == 2
        for thread, at in last.items():
            forged = CursorWriter(last, places).after(thread, at + 1)
            refused = await service.client.get(path, headers={"Last-Event-ID": forged})
            assert (refused.status_code, refused.json()["type"]) == (
                409,
                "urn:agent-runtime:cursor-ahead",
            )
            assert thread in refused.json()["detail"]
        ended = await service.client.get(path, headers={"Last-Event-ID": events[-1][0]})
        assert ended.status_code == 204


async def test_cursors_of_a_deleted_thread_are_refused_when_its_id_is_used_again(
    database_url: str,
) -> None:
    async with serving(database_url, counting(1)) as service:
        client, path = service.client, "/api/threads/t/events"
        started = await service.start(thread_id="t")
        await service.ended(started["run_id"])
        old = stream(client, path)
        cursor, _ = await anext(old)
        listed = (await client.get("/api/threads/t/messages", params={"limit": 1})).json()
        assert (await client.delete("/api/threads/t")).status_code == 200
        again = await service.start(thread_id="t", task="Another.")
        await service.ended(again["run_id"])
        longer = await service.start(thread_id="t", task="One more.")
        await service.ended(longer["run_id"])
        for kept in (
            await client.get(path, headers={"Last-Event-ID": cursor}),
            await client.get(path, params={"cursor": cursor}),
            await client.get(f"/api/runs/{again['run_id']}/events", params={"cursor": cursor}),
            await client.get("/api/threads/t/messages", params={"cursor": listed["next_cursor"]}),
        ):
            assert kept.status_code == 409
            assert kept.json()["type"] == "urn:agent-runtime:cursor-of-another-thread"
            assert "without a cursor" in kept.json()["cure"]
        # An open stream of it does not continue with the other one's events either.
        assert {event["run_id"] async for _, event in old} == {started["run_id"]}
        cursor, first = await anext(stream(client, path))
        assert first["id"] == 1
        _, second = await anext(stream(client, path, cursor))
        assert second["id"] == 2


async def test_the_events_of_a_thread_follow_all_its_runs(database_url: str) -> None:
    async with serving(database_url, counting(1)) as service:
        started = await service.start(thread_id="t")
        await service.ended(started["run_id"])
        events = stream(service.client, "/api/threads/t/events")
        first = [await anext(events) for _ in await stored(service, "t")]
        again = await service.start(thread_id="t", task="Again.")
        await service.ended(again["run_id"])
        whole = await stored(service, "t")
        first += [await anext(events) for _ in whole[len(first) :]]
        assert [event["id"] for _, event in first] == whole


async def test_an_idle_stream_has_a_heartbeat_and_leaves_with_its_client(
    database_url: str,
) -> None:
    settings = {"service_heartbeat": 0.01, "service_max_streams": 1}
    async with serving(database_url, settings=settings) as service:
        await service.client.post("/api/threads", json={"id": "t"})
        path = "/api/threads/t/events"
        async with service.client.stream("GET", path) as response:
            lines = response.aiter_lines()
            assert await anext(lines) == "retry: 1000"
            while await anext(lines) != ": ":
                pass
            more = await service.client.get(path)
            assert (more.status_code, more.json()["type"]) == (429, "urn:agent-runtime:too-many")
        limits = service.state.limits
        await until(lambda: not limits.open_streams)


@pytest.mark.parametrize("cursor", ["?", "AAAA", "ä"])
async def test_a_cursor_that_is_none_is_refused(database_url: str, cursor: str) -> None:
    async with serving(database_url) as service:
        await service.client.post("/api/threads", json={"id": "t"})
        response = await service.client.get("/api/threads/t/events", params={"cursor": cursor})
        assert response.json()["type"] == "urn:agent-runtime:invalid-cursor"


async def test_streams_end_when_the_service_closes(database_url: str) -> None:
    async with serving(database_url) as service:
        await service.client.post("/api/threads", json={"id": "t"})
        async with service.client.stream("GET", "/api/threads/t/events") as response:
            lines = response.aiter_lines()
            await anext(lines)
            service.server.should_exit = True
            rest: list[Any] = [line async for line in lines]
            assert ": the service closes" in rest
    async with httpx.AsyncClient() as late:
        with pytest.raises(httpx.ConnectError):
            await late.get(f"{service.url}/health")


async def test_a_client_that_reads_nothing_is_cut_off_and_goes_on(database_url: str) -> None:
    async with serving(database_url, settings={"service_stall": 0.3}) as service:
        user = service.runtime.store_of("ann")
        lease = await begin(user)
        host, port = service.url.removeprefix("http://").split(":")
        with socket.socket() as client:
            # Before the connection, which tells the server how much it may send.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            await anyio.to_thread.run_sync(client.connect, (host, int(port)))
            head = f"GET /api/threads/t1/events HTTP/1.1\r\nHost: {host}\r\n"
            token = service.tokens["ann"]
            client.sendall(f"{head}Authorization: Bearer {token}\r\n\r\n".encode())
            await until(lambda: service.state.limits.open_streams == 1)
            [connection] = [
                one.transport
                for one in cast("set[Any]", service.server.server_state.connections)
                if one.transport.get_extra_info("peername")[1] == client.getsockname()[1]
            ]
            waiting: list[int] = []
            for _ in range(24):
                event = NewEvent("note", data={"text": "x" * 50_000})
                await user.runs.commit(lease, Commit(events=(event,) * 10))
                waiting.append(connection.get_write_buffer_size())
            assert 0 < max(waiting) < 1 << 20
            await until(lambda: not service.state.limits.open_streams)
            client.settimeout(10)
            taken = await anyio.to_thread.run_sync(_all_of, client)
        cursors = re.findall(rb"id: (\S+)\ndata: {[^\n]*\n\n", taken)
        whole = await stored(service, "t1")
        assert len(cursors) < len(whole) == 240
        cursor = cursors[-1].decode() if cursors else None
        rest = stream(service.client, "/api/threads/t1/events", cursor)
        assert [(await anext(rest))[1]["id"] for _ in whole[len(cursors) :]] == whole[
            len(cursors) :
        ]


def _all_of(client: socket.socket) -> bytes:
    """Read to the end of a connection."""
    taken = b""
    with contextlib.suppress(ConnectionResetError):
        while part := client.recv(1 << 16):
            taken += part
    return taken
