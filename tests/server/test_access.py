"""Who may do what: tokens, cookies, hosts, origins, sizes and rates, on every route."""

from __future__ import annotations

from typing import Any, cast

import httpx
import pytest
from starlette.requests import HTTPConnection

from agent_runtime import Agent, App, Runtime, Settings
from agent_runtime.errors import ConfigError
from agent_runtime.models.scripted import say
from agent_runtime.server import by_jwt, create_app
from agent_runtime.server.app import OPERATIONS
from agent_runtime.server.users import COOKIE, bearer_of
from tests.server.serving import Service, serving

pytestmark = pytest.mark.backends("file")
PRIVATE = [one for one in OPERATIONS if not one.public]


def path_of(template: str, thread: str = "t1", run: str = "r1") -> str:
    """Return the path of an operation with these ids."""
    ids = {"thread_id": thread, "run_id": run, "node_id": 1, "question_id": "q1", "file_id": "f1"}
    return "/api" + template.format(**ids)


async def refused(service: Service, headers: dict[str, str]) -> set[tuple[int, str]]:
    """Return how every operation answers a request with these headers and no valid body."""
    async with httpx.AsyncClient(base_url=service.url, headers=headers, timeout=None) as client:
        answers = [await client.request(one.method, path_of(one.path)) for one in PRIVATE]
    assert all(one.headers["content-type"] == "application/problem+json" for one in answers)
    return {(one.status_code, one.json()["type"]) for one in answers}


async def test_no_operation_answers_without_a_valid_token(database_url: str) -> None:
    wanted = {(401, "urn:agent-runtime:unauthenticated")}
    async with serving(database_url) as service:
        store = service.runtime.store.service
        for token in ("", "Bearer", "Bearer art_wrong", "Basic YTpi"):
            assert await refused(service, {"Authorization": token} if token else {}) == wanted
        expired = await store.make_token("ann", "art_expired", seconds=-1)
        assert expired.expires_at is not None
        assert await refused(service, {"Authorization": "Bearer art_expired"}) == wanted
        [own] = [one for one in await store.tokens() if one.id != expired.id]
        assert await store.revoke_token(own.id) and not await store.revoke_token(own.id)
        # At once: this very connection was let in before.
        assert (await service.client.get("/api/threads")).status_code == 401


async def test_the_use_of_a_token_is_noted_and_only_its_hash_is_stored(
    database_url: str, database_contents: Any
) -> None:
    async with serving(database_url) as service:
        await service.client.get("/api/threads")
        [row] = await service.runtime.store.service.tokens()
        assert row.used_at is not None and row.used_at >= row.created_at
        token = service.tokens["ann"]
        assert row.prefix == token[:11]
        assert token[11:].encode() not in database_contents()


async def test_another_users_rows_do_not_exist(database_url: str) -> None:
    async with serving(database_url, [say("Secret.")], users=("ann", "ben")) as service:
        started = await service.start(task="Of Ann.")
        await service.ended(started["run_id"])
        files = f"/api/threads/{started['thread_id']}/files"
        uploaded = await service.client.post(f"{files}?name=a.txt", content=b"Of Ann.")
        ids = {
            "thread_id": started["thread_id"],
            "run_id": started["run_id"],
            "file_id": uploaded.json()["id"],
            "node_id": 1,
            "question_id": "q1",
        }
        bodies: dict[str, Any] = {
            "fork_thread": {"node_id": 1},
            "edit_thread": {"node_id": 1},
            "steer_run": {"text": "Mine."},
            "set_budget": {"tokens": 1},
            "answer_question": {"digest": "0" * 64, "allow": True},
        }
        async with httpx.AsyncClient(
            base_url=service.url, headers=service.to("ben"), timeout=None
        ) as ben:
            for one in PRIVATE:
                name = one.name
                if "{" not in one.path or name == "upload_file":
                    continue
                path = "/api" + one.path.format(**ids)
                response = await ben.request(
                    one.method, path, json=bodies.get(name, {}) if one.body else None
                )
                assert response.status_code == 404, (name, response.text)
            lists = {"/api/threads": "threads", "/api/runs": "runs", "/api/search?q=Ann": "hits"}
            for path, key in lists.items():
                assert (await ben.get(path)).json()[key] == []
            stolen = {"task": "Read it.", "files": [uploaded.json()["uri"]]}
            assert (await ben.post("/api/runs", json=stolen)).status_code == 422
        assert (await service.client.get(files)).json()["files"][0]["id"] == ids["file_id"]


@pytest.mark.parametrize("file", ["/etc/passwd", "file:///etc/passwd", "https://example.com/a"])
async def test_a_run_takes_no_paths_and_urls(database_url: str, file: str) -> None:
    async with serving(database_url) as service:
        response = await service.client.post("/api/runs", json={"task": "Read.", "files": [file]})
        assert response.json()["type"] == "urn:agent-runtime:no-such-file"


async def test_bodies_have_a_limit_with_and_without_a_length(database_url: str) -> None:
    settings = {"service_max_body_bytes": 1000, "max_file_bytes": 5000}
    async with serving(database_url, settings=settings) as service:

        async def pieces(size: int) -> Any:
            yield b'{"task": "'
            yield b"x" * size
            yield b'"}'

        contents: list[Any] = [b"x" * 1001, pieces(1001)]
        for content in contents:
            response = await service.client.post(
                "/api/runs", content=content, headers={"Content-Type": "application/json"}
            )
            assert response.status_code == 413
        small = await service.client.post("/api/threads/t/files?name=a", content=b"x" * 5000)
        large = await service.client.post("/api/threads/t/files?name=a", content=b"x" * 5001)
        assert (small.status_code, large.status_code) == (201, 413)


async def test_requests_have_a_rate(database_url: str) -> None:
    settings = {"service_rate": 0.001, "service_burst": 2}
    async with serving(database_url, users=("ann", "ben"), settings=settings) as service:
        statuses = [(await service.client.get("/api/runs")).status_code for _ in range(3)]
        assert statuses == [200, 200, 429]
        limited = await service.client.get("/api/runs")
        assert int(limited.headers["Retry-After"]) > 60
        other = await service.client.get("/api/runs", headers=service.to("ben"))
        assert other.status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:99"}, 200),
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
async def test_on_this_machine_strangers_pages_are_refused(
    database_url: str, headers: dict[str, str], status: int
) -> None:
    async with serving(database_url, [say("Done.")], local=True) as service:
        response = await service.client.post("/api/threads", json={"id": "t"}, headers=headers)
        assert response.status_code == (201 if status == 200 else status)
        if "Host" in headers:
            read = await service.client.get("/api/threads", headers=headers)
            assert read.status_code == status


async def test_a_browser_keeps_its_token_where_scripts_cannot_read_it(database_url: str) -> None:
    async with serving(database_url) as service:
        own = {"Origin": service.url}
        async with httpx.AsyncClient(base_url=service.url, timeout=None) as browser:
            wrong = await browser.post("/api/session", json={"token": "art_no"}, headers=own)
            assert wrong.status_code == 401 and COOKIE not in browser.cookies
            token = {"token": service.tokens["ann"]}
            begun = await browser.post("/api/session", json=token, headers=own)
            cookie = begun.headers["set-cookie"].lower()
            assert "httponly" in cookie and "samesite=strict" in cookie
            assert (await browser.get("/api/threads")).status_code == 200
            # A write by the cookie needs the page's origin.
            assert (await browser.post("/api/threads", json={})).status_code == 403
            other = {"Origin": "https://evil.example"}
            assert (await browser.post("/api/threads", json={}, headers=other)).status_code == 403
            assert (await browser.post("/api/threads", json={}, headers=own)).status_code == 201
            await browser.delete("/api/session", headers=own)
            assert (await browser.get("/api/threads")).status_code == 401


@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize("token", ["Ключ", "art_ü", "a b", "art_\u2028", "", "a\r\nSet-Cookie: b"])
async def test_a_token_that_no_header_holds_is_refused(
    database_url: str, token: str, local: bool
) -> None:
    async with serving(database_url, local=local) as service:
        headers = {"Origin": service.url}
        refused = await service.client.post("/api/session", json={"token": token}, headers=headers)
        assert refused.status_code == 422, refused.text
        assert "set-cookie" not in refused.headers


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", '[{"b": -1e999}]'])
async def test_a_number_that_is_not_finite_is_refused(database_url: str, number: str) -> None:
    async with serving(database_url) as service:
        for method, path, body in (
            ("POST", "/api/threads", f'{{"id": "t", "metadata": {{"a": {number}}}}}'),
            ("PATCH", "/api/threads/kept", f'{{"metadata": {{"a": {number}}}}}'),
            ("POST", "/api/runs", f'{{"task": "Go.", "user_context": {{"a": {number}}}}}'),
        ):
            await service.client.post("/api/threads", json={"id": "kept"})
            refused = await service.client.request(
                method, path, content=body, headers={"Content-Type": "application/json"}
            )
            assert refused.json()["type"] == "urn:agent-runtime:invalid-request", refused.text
            assert "no NaN" in refused.json()["cure"]
        threads = (await service.client.get("/api/threads")).json()["threads"]
        assert [(one["id"], one["metadata"]) for one in threads] == [("kept", {})]


async def test_a_json_body_must_say_that_it_is_one(database_url: str) -> None:
    async with serving(database_url, local=True) as service:
        response = await service.client.post(
            "/api/threads", content=b"{}", headers={"Content-Type": "text/plain"}
        )
        assert response.status_code == 415


async def test_json_web_tokens(database_url: str) -> None:
    import jwt

    key = "a secret of at least thirty-two bytes"
    hook = by_jwt(key, algorithms=["HS256"], audience="agents", issuer="us")
    claims = {"sub": "ann", "aud": "agents", "iss": "us", "exp": 4_000_000_000}
    cases = {
        jwt.encode(claims, key, "HS256"): 200,
        jwt.encode(claims | {"exp": 1}, key, "HS256"): 401,
        jwt.encode(claims | {"aud": "others"}, key, "HS256"): 401,
        jwt.encode({**claims, "sub": ""}, key, "HS256"): 401,
        jwt.encode(claims, "another secret of thirty-two bytes ", "HS256"): 401,
        jwt.encode(claims, cast("Any", None), "none"): 401,
        "art_no": 401,
    }
    app = App(agents={"worker": Agent()})
    settings = Settings(database_url=database_url)
    async with Runtime.open(settings, program=app.program, agents=app.of_run) as runtime:
        made = create_app(app, runtime=runtime, authenticate=hook)
        transport = httpx.ASGITransport(made)
        async with httpx.AsyncClient(transport=transport, base_url="http://a") as client:
            for token, status in cases.items():
                headers = {"Authorization": f"Bearer {token}"}
                response = await client.get("/api/threads", headers=headers)
                assert response.status_code == status
    with pytest.raises(ConfigError, match="Unsigned"):
        by_jwt(key, algorithms=["none"], audience="agents", issuer="us")


async def test_a_runtime_of_another_program_is_refused(database_url: str) -> None:
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        with pytest.raises(ConfigError, match="could not continue its own runs"):
            create_app(App(agents={"worker": Agent()}), runtime=runtime)


async def test_health_needs_no_token_and_errors_tell_no_secret(database_url: str) -> None:
    async with serving(database_url) as service:
        async with httpx.AsyncClient(base_url=service.url, timeout=None) as client:
            for path in ("/health", "/ready", "/api/openapi.json"):
                response = await client.get(path)
                assert response.status_code == 200
                assert response.headers["x-content-type-options"] == "nosniff"
            assert (await client.get("/nothing")).status_code == 401
        missing = await service.client.get("/api/nothing")
        assert missing.json()["type"] == "urn:agent-runtime:not-found"
        wrong = await service.client.put("/api/runs")
        assert (wrong.status_code, wrong.json()["type"]) == (
            405,
            "urn:agent-runtime:method-not-allowed",
        )
        service.state.registry = cast("Any", None)
        failed = await service.client.get("/api/agents")
        assert failed.status_code == 500
        assert "NoneType" not in failed.text and failed.json()["reference"]


async def test_titles_may_be_as_long_as_the_setting_says(database_url: str) -> None:
    async with serving(database_url, settings={"max_title_chars": 600}) as service:
        for chars, status in ((600, 201), (601, 422), (10_001, 422)):
            body = {"id": f"t{chars}", "title": "x" * chars}
            response = await service.client.post("/api/threads", json=body)
            assert response.status_code == status, response.text
        change = await service.client.patch("/api/threads/t600", json={"title": "x" * 601})
        assert change.status_code == 422 and "601 characters" in change.json()["detail"]


def test_of_two_tokens_none_counts() -> None:
    # A proxy that has checked one of them may have checked the other.
    one, other = (b"authorization", b"Bearer art_a"), (b"authorization", b"Bearer art_b")
    for headers, found in (([one], "art_a"), ([one, other], None), ([one, one], None)):
        assert bearer_of(HTTPConnection({"type": "http", "headers": headers})) == found
