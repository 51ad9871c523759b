"""The server of the loop's benchmark."""

from __future__ import annotations

from typing import Any

import httpx

from benchmarks.cost.loop import running_server

TOOL: dict[str, Any] = {"type": "function", "function": {"name": "read_page", "parameters": {}}}


def test_each_call_has_its_own_id_and_the_observer_gets_notes() -> None:
    task: dict[str, Any] = {"messages": [{"role": "user", "content": "Read."}], "tools": [TOOL]}
    shown = "[abc | node 1 | 2026-11-21 14:05 | user]\nRead it in French."
    transcript = f"The code is abc.\n\n<transcript abc>\n{shown}\n</transcript abc>"
    observe = {"messages": [{"role": "user", "content": transcript}]}

    with running_server(5) as (url, served), httpx.Client(base_url=url) as client:

        def ask(request: dict[str, Any]) -> dict[str, Any]:
            reply = client.post("/chat/completions", json={"model": "bench", **request})
            return reply.json()["choices"][0]["message"]

        ids = [ask(task)["tool_calls"][0]["id"] for _ in range(3)]
        notes = ask(observe)["content"]
        seen = served()

    assert len(set(ids)) == 3
    assert notes.startswith("2026-11-21 14:05 | critical | User says: Read it in French.\n")
    assert seen.calls == 3
