"""The floors: bare httpx that appends to SQLite, with the full history or recorded prompts."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import httpx
import orjson
import protocol

TOOL = {
    "type": "function",
    "function": {
        "name": "read_page",
        "description": "Read a page of the book.",
        "parameters": {
            "type": "object",
            "properties": {"number": {"type": "integer"}},
            "required": ["number"],
        },
    },
}


class Bare(protocol.Peer):
    async def open(self) -> None:
        self.recorded = Path(protocol.PROMPTS)
        self.client = httpx.AsyncClient(timeout=60)
        self.file = sqlite3.connect(protocol.FOLDER / "data" / "log.db")
        self.file.execute("PRAGMA journal_mode=WAL")
        self.file.execute("PRAGMA synchronous=FULL")
        self.file.execute("CREATE TABLE IF NOT EXISTS log (id INTEGER PRIMARY KEY, body BLOB)")

    async def run(self, task: str, url: str) -> str:
        if protocol.VARIANT == "replay":
            return await self.replay(url)
        messages = [orjson.loads(body) for (body,) in self.file.execute("SELECT body FROM log")]
        messages = messages or [{"role": "system", "content": protocol.INSTRUCTIONS}]
        self.keep(messages, {"role": "user", "content": task})
        while True:
            request = {"model": protocol.MODEL, "messages": messages, "tools": [TOOL]}
            answer = await self.ask(url, orjson.dumps(request))
            self.keep(messages, answer)
            if not answer.get("tool_calls"):
                return str(answer["content"])
            for call in answer["tool_calls"]:
                text = await protocol.read_page(**json.loads(call["function"]["arguments"]))
                result = {"role": "tool", "tool_call_id": call["id"], "content": text}
                self.keep(messages, result)

    async def resume(self, url: str) -> str:
        messages = [orjson.loads(body) for (body,) in self.file.execute("SELECT body FROM log")]
        for call in messages[-1].get("tool_calls", ()):
            text = await protocol.read_page(**json.loads(call["function"]["arguments"]))
            self.keep([], {"role": "tool", "tool_call_id": call["id"], "content": text})
        return await self.run("Continue.", url)

    async def replay(self, url: str) -> str:
        """Send what the runtime sent, which streams, and keep each answer and result."""
        headers = {"content-type": "application/json"}
        with self.recorded.open("rb") as recorded:
            for number in range(1, protocol.STEPS + 2):
                # A loop has its messages as objects: serializing them is its work.
                body = orjson.dumps(orjson.loads(recorded.readline()))
                chunks: list[Any] = []
                async with self.client.stream(
                    "POST", f"{url}/chat/completions", content=body, headers=headers
                ) as reply:
                    async for line in reply.aiter_lines():
                        if line.startswith("data: {"):
                            chunks.append(orjson.loads(line[6:]))
                self.keep([], {"chunks": chunks[-1:]})
                if number <= protocol.STEPS:
                    self.keep([], {"content": await protocol.read_page(number)})
        return "All prompts are sent."

    async def ask(self, url: str, body: bytes) -> dict[str, Any]:
        headers = {"content-type": "application/json"}
        reply = await self.client.post(f"{url}/chat/completions", content=body, headers=headers)
        if reply.status_code != 200:
            raise RuntimeError(reply.text)
        return orjson.loads(reply.content)["choices"][0]["message"]

    def keep(self, messages: list[dict[str, Any]], message: dict[str, Any]) -> None:
        messages.append(message)
        self.file.execute("INSERT INTO log (body) VALUES (?)", (orjson.dumps(message),))
        self.file.commit()

    async def close(self) -> None:
        self.file.close()
        await self.client.aclose()


protocol.main(Bare())
