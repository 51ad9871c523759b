"""The scripted server of the comparison, in a process of its own.

`python -m benchmarks.peers.server` speaks OpenAI's protocol on loopback and asks for one page after
another.  It is steered by lines of JSON on stdin, and answers each with one on stdout:

    {"do": "begin", "steps": 50, …}    a trial (`Script`); gives `{"url": …}`
    {"do": "victim", "pid": 1234}      the process to kill at `kill_at`
    {"do": "end"}                      gives `Served`

The first part of a request's path names the run, so that two at once can be distinguished.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any, cast

import anyio
import anyio.to_thread
import orjson

from agent_runtime.testing.model_server import OpenAIServer, Reply, failure, overflow
from agent_runtime.testing.observer import is_for_memory, notes_for
from agent_runtime.testing.prompt_meter import PromptMeter
from benchmarks.peers.prompts import (
    Volume,
    called_pages,
    noted_pages,
    orphans,
    visible_pages,
)
from benchmarks.peers.runners.pages import PAGE_BYTES

TOOL = "read_page"
FIRST_PAGE = {"a": 1, "b": 1001}
"""The first page of each book, where two runs read at once."""
BOOK = 1000
"""No book has more pages."""
SUMMARY_BYTES = 4000
"""About 1,000 tokens: what models write that are asked for a summary without a length."""
LINE_BYTES = PAGE_BYTES // 10
"""Of a summary's line for a page: as much as an observation says of it."""
DONE = "All pages are read."


@dataclass(frozen=True, slots=True)
class Script:
    """What a trial's server does.

    Attributes:
        steps: how many pages it asks for.
        by_prompt: whether the next page follows from the prompt, as with a real model, and not
            from how many the server asked for; needs prompts that hold the history.
        books: whether each run reads a book of its own.
        window: tokens of the longest prompt that is not refused; 0 for any.
        kill_at: kill the victim when its request of this number (from 1) arrives; 0 for never.
        mark: a part of the task.
        delay: seconds that each answer takes.
        record: write the requests of the steps to this file.
    """

    steps: int
    by_prompt: bool = False
    books: bool = False
    window: int = 0
    kill_at: int = 0
    mark: str = ""
    delay: float = 0.0
    record: str | None = None


@dataclass(slots=True)
class Served:
    """What the server saw of a trial.

    Attributes:
        first: when the first request arrived, by the clock `time.perf_counter`.
        busy: CPU seconds of the server after the first step's request.
        refused: prompts beyond the window.
        invalid: prompts refused as OpenAI refuses calls without results.
        without_task: prompts of steps in which the task does not stand.
        mixed: prompts of a run that hold pages of the other run's book.
        first_pages: of each run, the pages whose text its first prompt held.
        done: runs that were answered with the last answer.
        kept: pages of which the prompt of the last answer still holds the text or a note.
    """

    first: float = 0.0
    busy: float = 0.0
    refused: int = 0
    invalid: int = 0
    without_task: int = 0
    mixed: int = 0
    first_pages: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    done: list[str] = field(default_factory=list[str])
    kept: int = 0
    volume: dict[str, float] = field(default_factory=dict[str, float])


class Trial:
    """Answers the requests of one trial."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.served = Served()
        self.victim: int | None = None
        self.server = OpenAIServer(self.reply)
        self._volume = Volume()
        self._meter = PromptMeter(1.0)
        self._asked: dict[str, int] = {}
        self._began = 0.0
        self._record: IO[bytes] | None = None
        if script.record is not None:
            self._record = Path(script.record).open("wb")  # noqa: SIM115 - until the end

    def reply(self, request: dict[str, Any], n: int) -> Reply:
        """Answer a request."""
        served = self.served
        recorded = self.server.requests[n]
        run = recorded.path.split("/")[1]
        served.first = served.first or recorded.time
        # A long run's prompts would fill the memory.
        self.server.requests[n] = replace(recorded, body=b"", json={})
        if self.script.window and self._meter.measure(request).prompt > self.script.window:
            served.refused += 1
            return overflow(self.script.window)
        if _has_tool(request) and run not in served.first_pages:
            served.first_pages[run] = sorted(visible_pages(request))
        if trouble := orphans(request):
            served.invalid += 1
            return failure(400, trouble)
        if not _has_tool(request):
            text = notes_for(request) if is_for_memory(request) else summary_of(request)
            self._volume.summary(request, text)
            return Reply(text=text)
        return self._step(request, run)

    def _step(self, request: dict[str, Any], run: str) -> Reply:
        script, served = self.script, self.served
        self._volume.step(request, run)
        if self._record is not None:
            self._record.write(orjson.dumps(request) + b"\n")
        if self._volume.calls == 2:
            self._began = time.process_time()
        if script.books and run in FIRST_PAGE:
            pages = visible_pages(request)
            served.mixed += any((one > BOOK) != (FIRST_PAGE[run] > BOOK) for one in pages)
        if script.mark and script.mark.encode() not in orjson.dumps(request["messages"]):
            served.without_task += 1
        if self._volume.calls == script.kill_at and self.victim is not None:
            os.kill(self.victim, signal.SIGKILL)
            return Reply(stall_after=0)
        first = FIRST_PAGE.get(run, 0) if script.books else 1
        asked = self._asked[run] = self._asked.get(run, 0) + 1
        page = max(called_pages(request), default=0) + 1 if script.by_prompt else first + asked - 1
        if page >= first + script.steps or first == 0:
            served.done.append(run)
            served.kept = len(noted_pages(request))
            return Reply(text=DONE)
        return Reply(calls=((TOOL, {"number": page}),), delay=script.delay)

    def end(self) -> Served:
        """Return what was seen."""
        if self._began:
            self.served.busy = time.process_time() - self._began
        if self._record is not None:
            self._record.close()
        volume = self._volume
        self.served.volume = {
            "calls": volume.calls,
            "prompt": volume.prompt,
            "share": volume.share,
            "breaks": volume.breaks,
            "largest": volume.largest,
            "summaries": volume.summaries,
            "summary_bytes": volume.summary_bytes,
            "written": volume.written,
            "weighted": volume.weighted,
        }
        return self.served


def summary_of(request: dict[str, Any]) -> str:
    """Return what a model would write that is asked for a summary: of the newest pages a line each.

    It sees only what the request shows: pages, or lines of an earlier summary.
    """
    lines = [f"page {page}: {text}"[:LINE_BYTES] for page, text in noted_pages(request).items()]
    newest = lines[-(SUMMARY_BYTES // LINE_BYTES - 1) :]
    return "\n".join(["The agent reads a book page by page with its tool.", *newest])


def _has_tool(request: dict[str, Any]) -> bool:
    tools = cast("list[dict[str, Any]]", request.get("tools") or [])
    return any(one.get("function", {}).get("name") == TOOL for one in tools)


async def serve() -> None:
    """Serve one trial after another, until stdin ends."""
    while begin := await _line():
        script = {key: value for key, value in begin.items() if key != "do"}
        trial = Trial(Script(**script))
        async with trial.server as server:
            _say({"url": server.base_url.removesuffix("/v1")})
            while (given := await _line()) and given["do"] != "end":
                trial.victim = given["pid"]
                _say({})
        _say(asdict(trial.end()))


async def _line() -> dict[str, Any]:
    line = await anyio.to_thread.run_sync(sys.stdin.readline)
    return orjson.loads(line) if line.strip() else {}


def _say(answer: dict[str, Any]) -> None:
    print(orjson.dumps(answer).decode(), flush=True)


if __name__ == "__main__":
    anyio.run(serve)
