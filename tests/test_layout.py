"""Limits on the layout: modules in a folder, lines of a file, lines of a function."""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Module:
    """What the limits are about, of one module.

    Attributes:
        long: names of the functions that are too long.
        classes: names of the public classes.
    """

    lines: int
    docstring: str | None
    long: list[str]
    classes: list[str]


@functools.cache
def _module(path: Path) -> Module:
    text = path.read_text("utf-8")
    tree = ast.parse(text)
    functions = (
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return Module(
        len(text.splitlines()),
        ast.get_docstring(tree),
        [
            function.name
            for function in functions
            if (function.end_lineno or 0) - function.lineno + 1 > MAX_FUNCTION_LINES
        ],
        [
            node.name
            for node in tree.body
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        ],
    )


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
        assert _module(init).docstring, room


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_files_and_functions_are_short(package: Path) -> None:
    modules = _modules(package)
    files = [path for path in modules if _module(path).lines > MAX_FILE_LINES]
    long = [f"{path.name}: {name}" for path in modules for name in _module(path).long]
    assert not files and not long


def test_each_public_class_has_a_name_of_its_own() -> None:
    homes: dict[str, list[str]] = {}
    for package in PACKAGES:
        for path in _modules(package):
            for name in _module(path).classes:
                homes.setdefault(name, []).append(str(path.relative_to(package.parent)))
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}
