"""An Observer with well-formed answers that are filtered, cut off, or end for an unknown reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_runtime.testing.model_server import Reply
from tests.memory.observational.served import serve, well


@pytest.mark.parametrize("finish", ["content_filter", "length", "bored"])
async def test_incomplete_notes_are_rejected_and_rules_write(
    finish: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unfinished(request: dict[str, Any]) -> Reply:
        return replace(well(request), finish=finish)

    async def look(number: int) -> str:
        if number == 30:
            await served.until(lambda: bool(served.observations()))
        return f"src/part_{number}.py:\n" + "what was seen there, in a few words\n" * 20

    url = f"file:{tmp_path / 'run.db'}"
    async with serve(url, unfinished, patch=monkeypatch) as served:
        served.look = look
        result = await served.run()
        assert result.ok
        assert await served.wrong() == []
    observations = served.observations()
    assert {observation.data["origin"] for observation in observations} == {"rules"}
    why = "cut" if finish == "length" else finish
    assert any(why in observation.data["why"].lower() for observation in observations), (
        observations[0].data
    )
