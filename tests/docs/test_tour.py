"""The tour of the code: every file and function that it names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _definitions(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}.{one.name}"
                for one in node.body
                if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return found


def test_each_stop_of_the_tour_is_where_it_says() -> None:
    text = (ROOT / "docs" / "tour.md").read_text("utf-8")
    walks = [part for part in text.split("\n## ") if "\n1. " in part]
    for walk in walks:
        stops = re.findall(r"^\d\. `(agent_runtime/[\w/]+\.py)`, `([\w.]+)`", walk, re.MULTILINE)
        assert 2 <= len(stops) <= 4
        for path, name in stops:
            assert name in _definitions(ROOT / path), (path, name)
        known = set[str]().union(*(_definitions(ROOT / path) for path, _ in stops))
        for name in re.findall(r"`([A-Z]\w+\.\w+)`", walk):
            assert name in known, name
    assert len(walks) == 3
