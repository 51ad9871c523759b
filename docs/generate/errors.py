"""The table of errors, from the docstrings of their classes."""

from __future__ import annotations

import inspect
import re

from agent_runtime import errors
from agent_runtime.errors import AgentRuntimeError
from docs.generate.page import table


def explained(kind: type[AgentRuntimeError]) -> tuple[str, str, str]:
    """Return what an error says, its cause and its cure.

    Raises:
        ValueError: its docstring lacks one of them.
    """
    text = inspect.getdoc(kind) or ""
    match = re.match(r"(.+?)\n\nCause: (.+?)\nCure: (.+?)(?:\n\n|$)", text, re.DOTALL)
    if match is None:
        raise ValueError(f"the docstring of {kind.__name__} names no cause and cure")
    return match[1], _sentence(match[2]), _sentence(match[3])


def page() -> str:
    """Return the tree of errors, then a section with a table for each branch of it."""
    tree = (inspect.getdoc(errors) or "").partition("\n\n")[2]
    parts = [f"```text\n{tree.strip()}\n```\n\n"]
    classes: list[type[AgentRuntimeError]] = [getattr(errors, name) for name in errors.__all__]
    done: set[type[AgentRuntimeError]] = set()
    roots: tuple[tuple[str, type[Exception]], ...] = (
        ("Models", errors.ModelError),
        ("The store", errors.StoreError),
        ("Everything else", AgentRuntimeError),
    )
    for title, root in roots:
        rows: list[tuple[str, str, str, str]] = []
        for kind in sorted(classes, key=lambda one: [base.__name__ for base in one.__mro__[::-1]]):
            if root in kind.__mro__ and kind not in done:
                done.add(kind)
                rows.append((f"[`{kind.__name__}`][{_home(kind)}]", *explained(kind)))
        head = ("error", "what", "cause", "cure")
        parts.append(f"## {title}\n\n{table(head, rows)}\n")
    parts.append("## In full\n\n")
    for kind in sorted(classes, key=lambda one: one.__name__):
        parts.append(f"::: {_home(kind)}\n    options:\n      heading_level: 3\n\n")
    return "".join(parts)


def _home(kind: type[AgentRuntimeError]) -> str:
    return f"agent_runtime.errors.{kind.__name__}"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"
