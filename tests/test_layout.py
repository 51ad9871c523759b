"""Limits on the layout: modules in a folder, lines of a file, lines of a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import agent_runtime
import agent_runtime_config
import agent_runtime_storage

MAX_FILE_LINES, MAX_FUNCTION_LINES, MAX_MODULES = 500, 60, 20
MAX_TOP_FILES, MAX_TOP_FOLDERS = 9, 15
PACKAGES = [
    Path(package.__path__[0])
    for package in (agent_runtime, agent_runtime_storage, agent_runtime_config)
]
ENGINE = PACKAGES[0]


def _modules(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def _rooms(folder: Path) -> list[Path]:
    return sorted({path.parent for path in _modules(folder)})


def _functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_the_top_of_the_engine_is_small() -> None:
    files = list(ENGINE.glob("*.py"))
    folders = [room for room in _rooms(ENGINE) if room.parent == ENGINE]
    assert len(files) <= MAX_TOP_FILES, [file.name for file in files]
    assert len(folders) <= MAX_TOP_FOLDERS, [folder.name for folder in folders]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_packages_are_small_and_have_a_docstring(package: Path) -> None:
    for room in _rooms(package):
        modules = list(room.glob("*.py"))
        assert len(modules) <= MAX_MODULES + 1, room
        init = room / "__init__.py"
        assert ast.get_docstring(ast.parse(init.read_text("utf-8"))), room


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_files_and_functions_are_short(package: Path) -> None:
    files = [path for path in _modules(package) if _lines(path) > MAX_FILE_LINES]
    long = [
        f"{path.name}: {function.name}"
        for path in _modules(package)
        for function in _functions(path)
        if (function.end_lineno or 0) - function.lineno + 1 > MAX_FUNCTION_LINES
    ]
    assert not files and not long


def test_each_public_class_has_a_name_of_its_own() -> None:
    homes: dict[str, list[str]] = {}
    for package in PACKAGES:
        for path in _modules(package):
            for node in ast.parse(path.read_text("utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    homes.setdefault(node.name, []).append(str(path.relative_to(package.parent)))
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def _lines(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines())
