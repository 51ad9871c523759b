"""The benchmark of search times: it fills a database once, and leaves it as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_runtime.errors import ConfigError
from benchmarks.retrieval.latency import LARGE, MODES, measure_latency


async def test_messages_are_written_once_and_searched_in_every_mode(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    databases = {"file": f"file:{tmp_path / 'kept.db'}"}
    for _ in range(2):
        rows = await measure_latency(databases, 36, queries=1)
        assert [(row["writer"], row["scope"], row["mode"]) for row in rows] == [
            (writer, scope, mode)
            for writer in (False, True)
            for scope in (LARGE, "user")
            for mode in MODES
        ]
        assert all(0 < row["p50 ms"] <= row["p95 ms"] <= row["max ms"] for row in rows)
    progress = capsys.readouterr().err
    assert progress.count("written in") == progress.count("written before") == 1
    with pytest.raises(ConfigError, match="something else"):
        await measure_latency(databases, 72, queries=1)
