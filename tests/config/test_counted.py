"""Numbers with their nouns."""

from __future__ import annotations

import pytest

from agent_runtime_config.counted import counted


@pytest.mark.parametrize(
    ("number", "plural", "text"),
    [(0, "", "0 files"), (1, "", "1 file"), (2000, "", "2,000 files"), (2, "filae", "2 filae")],
)
def test_one_is_the_singular(number: int, plural: str, text: str) -> None:
    assert counted(number, "file", plural) == text
