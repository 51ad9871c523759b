"""Runs that wait for people, in another process that a test can watch and kill.

Its first argument says whether this program asks, answers or resumes; it writes every event as a
line of JSON.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import orjson

from agent_runtime import Agent, Event, Model, Question, Runtime, ScriptedModel, Settings, tool
from agent_runtime.models.scripted import call, calls, raw_call, say
from tests.support.processes import Program, program

AT_ONCE = 1e-9
"""So few seconds that a question has expired as soon as it is asked, on any clock."""
hanging: list[bool] = []
"""Whether the effects of this process are followed by a wait for ever."""


def _tell(**line: object) -> None:
    sys.stdout.buffer.write(orjson.dumps(line) + b"\n")
    sys.stdout.buffer.flush()


@tool(needs_approval=True)
async def effect(path: str, text: str) -> str:
    """Append a text to a file."""
    async with await anyio.open_file(path, "a") as file:
        await file.write(text)
    _tell(kind="effect")
    if hanging:
        await anyio.sleep_forever()
    return "done"


again = tool(effect.function, name="again", needs_approval=True, idempotent=True)


def agent(model: Model) -> Agent:
    """Return the agent that asks, with effects that need approval."""
    return Agent(model, tools=[effect, again], asking=True, name="asks")


def asking() -> ScriptedModel:
    """Return a model that asks twice in one answer, then repeats the answers."""
    colour = raw_call("ask_user", question="Which?", kind="single", choices=["red", "blue"])
    return ScriptedModel(
        [calls(colour, raw_call("ask_user", question="Why?", kind="text")), say("Thanks.")]
    )


async def main(database_url: str, what: str, name: str) -> None:
    """Do what the first argument says."""

    def tell(event: Event) -> None:
        _tell(kind=event.kind, run_id=event.run_id)

    async def wait(question: Question) -> None:
        _tell(kind="asked", question=question.id)
        await anyio.sleep_forever()

    hanging.append(True)
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        match what:
            case "ask":
                await runtime.run(
                    agent(asking()), "Ask.", thread=name, on_event=tell, on_question=wait
                )
            case "answer":
                ready = await runtime.answer(name, "blue")
                _tell(kind="answered", ready=ready)
            case "work":
                script = [call("effect", path=f"{name}.{n}", text="x") for n in range(1000)]
                hanging.clear()
                model = ScriptedModel(script)
                own = Agent(model, tools=[tool(effect.function, name="effect")])
                await runtime.run(own, "Work.", thread="t", on_event=tell)
            case _:
                await runtime.resume(name, agent(ScriptedModel([say("Done.")])), on_event=tell)


@asynccontextmanager
async def started(database_url: str, what: str, name: str) -> AsyncGenerator[Program]:
    """Start the program; it is killed at the end if it still runs."""
    async with program("tests.human.elsewhere", database_url, what, name) as other:
        yield other


if __name__ == "__main__":
    _, database_url, what, name = sys.argv
    anyio.run(main, database_url, what, name)
