"""A service that answers the page with a made thread, on loopback, under the page's own policy."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.browser.made_thread import MadeThread
from tests.services.process import free_port

STATIC = Path(__file__).parents[2] / "agent_runtime/server/inspector/static"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)


class MadeService:
    """The service; `thread` is what it shows, `posts` what it was asked to do.

    While `down` is true, every request but those for files fails as a proxy without its service.
    """

    def __init__(self, thread: MadeThread) -> None:
        self.thread = thread
        self.posts: list[tuple[str, dict[str, Any], str]] = []
        self.refusal: dict[str, Any] | None = None
        self.down = False
        self.streams = 0
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/"
        routes = [
            Route("/", self._index),
            Route("/static/{name}", self._static),
            Route("/api/inspector/home", self._home),
            Route("/api/inspector/threads/{thread}", self._thread),
            Route("/api/inspector/threads/{thread}/{rest:path}", self._thread),
            Route("/api/search", self._search),
            Route("/api/agents", self._agents),
            Route("/api/threads/{thread}/events", self._events),
            Route("/api/runs/{run}/events", self._events),
            Route("/api/{path:path}", self._post, methods=["POST"]),
        ]
        app = Starlette(routes=routes)
        config = uvicorn.Config(app, port=self.port, log_level="error", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._runner = threading.Thread(target=self._server.run, daemon=True)

    def start(self) -> None:
        """Start; returns once it listens."""
        self._runner.start()
        while not self._server.started:
            time.sleep(0.005)

    def stop(self) -> None:
        """End it and its streams."""
        self._server.should_exit = True
        self._runner.join(10)

    async def _index(self, request: Request) -> Response:
        return FileResponse(STATIC / "index.html", headers={"Content-Security-Policy": POLICY})

    async def _static(self, request: Request) -> Response:
        return FileResponse(STATIC / request.path_params["name"])

    async def _home(self, request: Request) -> Response:
        return self._gone() or JSONResponse(self.thread.home())

    def _gone(self) -> Response | None:
        return Response(status_code=502) if self.down else None

    async def _thread(self, request: Request) -> Response:
        if gone := self._gone():
            return gone
        with self.thread.lock:
            return self._part_of_thread(request)

    def _part_of_thread(self, request: Request) -> Response:
        path, query, made = request.path_params, request.query_params, self.thread
        if path["thread"] not in (made.name, "child"):
            return JSONResponse({"detail": "There is no such thread."}, 404)
        number = {key: int(text) for key, text in query.items() if text.isdecimal()}
        ids = [int(one) for one in query.get("ids", "").split(",") if one]
        match path.get("rest", ""):
            case "":
                return JSONResponse(made.summary())
            case "opening":
                return Response(made.opening())
            case "steps":
                return Response(made.columns(number.get("after", 0)))
            case "activations":
                return JSONResponse(made.activation_page(ids, number.get("after", 0)))
            case "observations":
                return JSONResponse(made.observation_page(ids, number.get("after", 0)))
            case "nodes":
                return JSONResponse(made.node_page(number["from"], number["to"]))
            case "prompt":
                return JSONResponse(made.prompt(number["activation"]))
            case "where":
                return JSONResponse(made.where(number["node"], number["at"]))
            case rest:
                return JSONResponse({"detail": f"{rest} is not made."}, 404)

    async def _search(self, request: Request) -> Response:
        text = request.query_params["q"]
        hit = {"thread_id": self.thread.name, "title": text, "node_id": 2, "text": text}
        return JSONResponse({"hits": [hit]})

    async def _agents(self, request: Request) -> Response:
        return JSONResponse({"agents": ["mover"]})

    async def _events(self, request: Request) -> Response:
        if gone := self._gone():
            return gone
        begin = request.headers.get("Last-Event-ID") or request.query_params["cursor"]
        return StreamingResponse(self._stream(int(begin)), media_type="text/event-stream")

    async def _stream(self, known: int) -> AsyncIterator[str]:
        self.streams += 1
        try:
            yield ": hello\n\n"
            while not self._server.should_exit and not self.down:
                if len(self.thread.steps) != known:
                    known = len(self.thread.steps)
                    yield f"id: {known}\ndata: {{}}\n\n"
                await anyio.sleep(0.02)
        finally:
            self.streams -= 1

    async def _post(self, request: Request) -> Response:
        if gone := self._gone():
            return gone
        key = request.headers["Idempotency-Key"]
        self.posts.append((request.path_params["path"], await request.json(), key))
        if self.refusal:
            return JSONResponse(self.refusal, 409, media_type="application/problem+json")
        if request.path_params["path"].endswith("/answer"):
            self.thread.answered = await request.json()
            return JSONResponse({"resumable": True, "run_id": "run-" + self.thread.name})
        if request.path_params["path"].endswith("/resume"):
            self.thread.status = "running"
        return Response(status_code=204)
