"""Judge cases: each is an async function that returns what was broken, nothing if it held."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeAlias, TypeVar

import anyio

from benchmarks.frame import Report, Row, at_most

World = TypeVar("World")
Case: TypeAlias = Callable[[World], Awaitable[list[str]]]
"""Its docstring is the promise."""


class NotHere(Exception):
    """The case needs a right or a program that this machine does not give."""


def judged(
    name: str, cases: Mapping[str, Case[World]], only: Iterable[str], world: World
) -> Report:
    """Run cases one after the other; return the report `name`. Blocks until it is done."""
    rows: list[Row] = []
    violations = 0
    for one in only:
        begun = time.monotonic()
        verdict, found = _judge(cases[one], world)
        violations += len(found)
        for fault in found:
            print(f"{one}: {fault}", file=sys.stderr)
        rows.append(
            {
                "case": one,
                "promise": (cases[one].__doc__ or "").strip(),
                "verdict": verdict,
                "what happened": "; ".join(found[:3]),
                "seconds": round(time.monotonic() - begun, 1),
            }
        )
    return Report(name, rows, [at_most("broken promises", violations, 0)])


def _judge(case: Case[World], world: World) -> tuple[str, list[str]]:
    try:
        found = anyio.run(case, world)
    except NotHere as error:
        return f"not run: {error}", []
    except Exception as error:
        traceback.print_exception(error)
        return "broken", [f"{type(error).__name__}: {error}"]
    return ("broken" if found else "held"), found
