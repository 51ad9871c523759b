"""Inputs: of any size at every door, and whatever a model or a tool answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio

from agent_runtime import Runtime, Tool, tool
from agent_runtime.errors import AgentRuntimeError, PromptTooLarge
from agent_runtime.models.base import ModelAnswer, RawCall
from agent_runtime.models.scripted import call, calls, raw_call, say
from benchmarks.proof.attack_cases.world import World, play
from benchmarks.proof.verdicts import Case

MEGABYTE = 1_000_000
LARGE: dict[str, Callable[[], str]] = {
    "words": lambda: "words " * 400_000,
    "one letter": lambda: "x" * 2 * MEGABYTE,
    "digits": lambda: "0123456789" * 200_000,
    "spaces": lambda: " " * 2 * MEGABYTE + "x",
    "lone surrogates": lambda: "\ud800" * 100_000,
    "zeros": lambda: "\0" * 100_000 + "x",
    "emoji": lambda: "\U0001f469\u200d" * 100_000,
}
MOST_LAG = 2.0
"""Seconds for which an input may hold up the event loop, on a busy machine."""
DEEP = '{"a":' * 100_000 + "1" + "}" * 100_000


async def _lag(done: anyio.Event, lags: list[float]) -> None:
    while not done.is_set():
        began = time.thread_time()
        await anyio.sleep(0.01)
        # What the loop's thread itself used: other programs do not count.
        lags.append(time.thread_time() - began)


async def no_input_bricks_a_thread(world: World) -> list[str]:
    """A task, a message or a result of any size leaves a thread that goes on, and a free loop."""
    faults, lags, done = list[str](), list[float](), anyio.Event()

    async def attack() -> None:
        for name, make in LARGE.items():
            text = make()
            async with world.runtime(context_window=20_000, max_inbox_messages=3) as runtime:
                faults.extend(f"{name}: {one}" for one in await _flood(runtime, text))
        done.set()

    async with anyio.create_task_group() as group:
        group.start_soon(_lag, done, lags)
        group.start_soon(attack)
    if max(lags) > MOST_LAG:
        faults.append(f"the event loop was held up for {max(lags):.1f} s")
    return faults


async def _flood(runtime: Runtime, text: str) -> list[str]:
    @tool
    async def flood() -> str:
        """Steer, and return as much."""
        run = (await runtime.store_of().runs.list(thread_id="t"))[0]
        for _ in range(5):
            # It may be refused, with a reason.
            with suppress(AgentRuntimeError):
                await runtime.steer(run.id, text)
        return text

    faults: list[str] = []
    for task in (text, "Go on."):
        try:
            result, _, _ = await play(
                runtime, [call("flood"), call("flood"), say("Done.")], [flood], task=task
            )
            if not result.ok:
                faults.append(f"the run {result.status}: {result.detail}")
        except AgentRuntimeError as error:
            if task == "Go on.":
                faults.append(f"the thread does not go on: {error}")
    for name, attempt in {
        "a title": lambda: runtime.threads.rename("t", text),
        "a file": lambda: runtime.files.upload("t", text.encode("utf-8", "replace")),
    }.items():
        try:
            await attempt()
        except (AgentRuntimeError, UnicodeError) as error:
            if not isinstance(error, AgentRuntimeError):
                faults.append(f"{name}: {type(error).__name__}")
    await runtime.threads.list()
    return faults


ANSWERS: dict[str, Callable[[], ModelAnswer]] = {
    "arguments that are no JSON": lambda: calls(RawCall("work", "{")),
    "arguments that are a list": lambda: calls(RawCall("work", "[1]")),
    "arguments that are null": lambda: calls(RawCall("work", "null")),
    "deep arguments": lambda: calls(RawCall("work", DEEP)),
    "infinite arguments": lambda: calls(RawCall("work", '{"a": 1e999, "b": NaN}')),
    "huge numbers": lambda: calls(RawCall("work", '{"a": ' + "9" * 10_000 + "}")),
    "large arguments": lambda: calls(RawCall("work", '{"a": "' + "x" * 2 * MEGABYTE + '"}')),
    "a thousand calls": lambda: calls(*(raw_call("work") for _ in range(1000))),
    "an unknown tool": lambda: calls(raw_call("no_such_tool")),
    "a tool without a name": lambda: calls(raw_call("")),
    "a long tool name": lambda: calls(raw_call("x" * MEGABYTE)),
    "a name that controls": lambda: calls(raw_call("work\n\x1b[2J<runtime-note>")),
    "a lone surrogate": lambda: say("\ud800 and \0"),
    "a huge answer": lambda: say("x" * 3 * MEGABYTE),
}


async def no_answer_of_a_model_breaks_a_thread(world: World) -> list[str]:
    """Whatever a model answers, the log is whole and the thread goes on, at worst from a fork."""

    @tool
    def work(a: Any = None, b: Any = None) -> str:
        """Work."""
        return "worked"

    faults: list[str] = []
    for name, answer in ANSWERS.items():
        async with world.runtime() as runtime:
            faults += [f"{name}: {one}" for one in await _survives(runtime, answer(), work)]
    return faults


RESULTS: dict[str, Callable[[], Any]] = {
    "20 MB": lambda: "x" * 20 * MEGABYTE,
    "a lone surrogate": lambda: "\ud800\0",
    "bytes": lambda: b"\xff\xfe",
    "a circle": lambda: _circle(),
    "an object without a text": lambda: _Unshown(),
    "a deep list": lambda: _deep(),
    "infinity": lambda: {"a": float("inf"), "b": float("nan")},
    "nothing": lambda: None,
}


def _working(make: Callable[[], Any], raised: bool) -> Tool:
    @tool
    def work() -> Any:
        """Work."""
        if raised:
            raise ValueError(make())
        return make()

    return work


class _Unshown:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def _circle() -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    return circle


def _deep() -> list[Any]:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    return deep


async def no_result_of_a_tool_breaks_a_thread(world: World) -> list[str]:
    """Whatever a tool returns or raises, the run goes on and its log is whole."""
    faults: list[str] = []
    for name, make in RESULTS.items():
        for raised in (False, True):
            work = _working(make, raised)
            async with world.runtime() as runtime:
                found = await _survives(runtime, call("work"), work)
                faults += [f"{name}{', raised' * raised}: {one}" for one in found]
    return faults


async def _survives(runtime: Runtime, answer: ModelAnswer, work: Any) -> list[str]:
    """Play a hostile answer, then another turn; return what is wrong."""
    faults: list[str] = []
    # The run may end with a reason; what counts is that the thread goes on.
    with suppress(AgentRuntimeError):
        await play(runtime, [answer, say("Done."), say("Done.")], [work])
    try:
        result, _, _ = await play(runtime, [say("Done.")], [work], task="Go on.")
    except PromptTooLarge:
        # An answer that fills the window can only be left out.
        await runtime.threads.fork("t", 1)
        result, _, _ = await play(runtime, [say("Done.")], [work], task="Go on.")
    if not result.ok:
        faults.append(f"the next turn {result.status}: {result.detail}")
    store = runtime.store_of()
    for run in await store.runs.list(thread_id="t"):
        if run.open_node is not None or run.status == "running":
            faults.append(f"a run is {run.status} with an open exchange")
    return faults + [one.detail for one in await runtime.store.maintenance.check()]


CASES: tuple[Case[World], ...] = (
    no_input_bricks_a_thread,
    no_answer_of_a_model_breaks_a_thread,
    no_result_of_a_tool_breaks_a_thread,
)
