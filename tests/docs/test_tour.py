"""The tour of the code: every file and function that it names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _definitions(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}.{method.name}"
                for method in node.body
                if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return names


def test_every_definition_that_the_tour_names_exists() -> None:
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
