"""Answers that come late or by another door, and archives that somebody changed."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import httpx
import zstandard

from agent_runtime import Agent
from agent_runtime.errors import AgentRuntimeError
from agent_runtime.models.scripted import ScriptedModel, say
from agent_runtime_storage.objects.archive_parts import part_keys
from agent_runtime_storage.objects.object_store import Objects
from benchmarks.proof.attack_cases.world import World
from benchmarks.proof.verdicts import Case
from tests.server.protocols.delegating import ERASED, Boss, boss

UNNAMED: tuple[dict[str, Any], ...] = (
    {"text": "yes"},
    {"text": "y"},
    {"text": " YES "},
    {"text": "#00000000 yes"},
    {"text": "#"},
    {"data": True},
    {"data": {"allow": True}},
    {"data": {"answers": {}}},
    {"data": {"answers": {"": True}}},
    {"data": {"answers": {"{call}": True}}},
    {"data": {"answers": {"{id}": True}, "digests": {"{id}": "0" * 64}}},
    {"data": {"answers": {"{id}": "yes, but later"}}},
)
"""What allows nothing; `{id}` and `{call}` are those of the question that is open."""


async def a_late_answer_allows_nothing(world: World) -> list[str]:
    """By A2A, no message allows a call unless it names the question as it was shown."""
    faults: list[str] = []
    async with boss(Path(world.new_folder())) as desk:
        task = await _sent(desk, {"text": "wait"}, "Go", contextId="t")
        question = await desk.asked("t")
        names = {"{id}": question.id, "{call}": question.call_id}
        for number, part in enumerate(UNNAMED):
            content = _filled(part, names)
            for user in ("ada", "eve"):
                await _sent(desk, content, f"{user} {number}", user=user, taskId=task["id"])
                if ERASED or not await desk.runtime.questions(thread="t", user="ada"):
                    return [*faults, f"{user} allowed it by {part}"]
        named = {"data": {"answers": {question.id: True}}}
        await _sent(desk, named, "eve knows the id", user="eve", taskId=task["id"])
        if ERASED:
            faults.append("another user allowed it by its name")
    return faults


async def a_changed_archive_restores_nothing(world: World) -> list[str]:
    """An archive whose object was changed, swapped or made a bomb brings no thread back."""
    faults: list[str] = []
    async with world.runtime() as runtime:
        agent = Agent(ScriptedModel([say("Yes.")] * 2))
        for user in ("ada", "eve"):
            await runtime.run(agent, f"I am {user}.", thread="t", user=user)
            await runtime.threads.archive("t", user=user)
        keys: dict[str, str] = {}
        for user in ("ada", "eve"):
            [kept] = await runtime.threads.archived(user=user)
            [keys[user]] = part_keys(kept.place, kept.digests)
        objects = cast("Objects", runtime.store.objects)
        true, other = [await objects.get(keys[user]) for user in ("ada", "eve")]
        changes = {
            "another owner's archive": other,
            "a bomb": zstandard.compress(b"\n" * 500_000_000),
            "a bomb behind it": true + zstandard.compress(b"\n" * 500_000_000),
            "nothing": b"",
            "a part of it": true[:-1],
            "another byte": true[:-1] + bytes([true[-1] ^ 1]),
        }
        for name, data in changes.items():
            await objects.put(keys["ada"], data)
            with suppress(AgentRuntimeError):
                await runtime.threads.restore("t", user="ada")
                faults.append(f"{name} was restored")
            if await runtime.threads.list(user="ada"):
                return [*faults, f"{name} left a thread"]
        await objects.put(keys["ada"], true)
        await runtime.threads.restore("t", user="ada")
        said = await runtime.threads.messages("t", user="ada")
        if "I am ada." not in [one.text for one in said]:
            faults.append("the true archive does not come back")
    return faults


def _filled(value: Any, names: dict[str, str]) -> Any:
    """Return a value with names filled in, in keys as well."""
    if isinstance(value, dict):
        given = cast("dict[str, Any]", value)
        return {names.get(key, key): _filled(one, names) for key, one in given.items()}
    return value


async def _sent(
    desk: Boss, content: dict[str, Any], key: str, *, user: str = "ada", **names: str
) -> dict[str, Any]:
    """Send a message to the agent; return the task, or nothing if it was refused."""
    message = {"messageId": key, "role": "ROLE_USER", "parts": [content], **names}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    async with httpx.AsyncClient(base_url=desk.url, headers={"x-user": user}, timeout=60) as http:
        answer = (await http.post("/a2a/boss", json=body)).json()
    return answer.get("result", {}).get("task", {})


CASES: tuple[Case[World], ...] = (a_late_answer_allows_nothing, a_changed_archive_restores_nothing)
