"""The history of an interleaving: who did what, when, and how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from agent_runtime.errors import ConfigError
from agent_runtime_storage import Conflict, NotFound, StoreInDoubt, StoreUnavailable
from tests.support.prompt_judge import Sent


@dataclass(slots=True)
class Op:
    """One action: what it meant to do, when, and how it ended.

    Attributes:
        start, end: nanoseconds of the machine's monotonic clock; no end if its process was killed.
        outcome: `ok`, `nothing`, `refused`, `doubt`, `crashed`, `cancelled`, or `failed`, which
            must never be; `open` while nothing is known.
        error: the name of the error's class; of a failure with its message.
        facts: what it wrote or learned, by name.
    """

    id: str
    what: str
    side: str
    start: int = field(default_factory=time.monotonic_ns)
    end: int | None = None
    outcome: str = "open"
    error: str = ""
    facts: dict[str, Any] = field(default_factory=dict[str, Any])


Note = Callable[[Op], None]
"""Is handed an action before each of its writes, when all that it means to do is known."""


@contextmanager
def recorded(op: Op) -> Generator[None]:
    """Write into an action how the block ended; only a cancellation leaves it."""
    try:
        yield
        if op.outcome == "open":
            op.outcome = "ok"
    except (Conflict, NotFound, ConfigError) as error:
        op.outcome, op.error = "refused", type(error).__name__
    except StoreInDoubt:
        op.outcome = "doubt"
    except StoreUnavailable as error:
        op.outcome, op.error = "crashed", f"{type(error).__name__}: {error}"
    except Exception as error:
        op.outcome, op.error = "failed", f"{type(error).__name__}: {error}"
    except BaseException:
        op.outcome = "cancelled"
        raise
    finally:
        op.end = time.monotonic_ns()


class Journal:
    """What a process does and sends; each line survives a kill of the process."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("ab", buffering=0)  # noqa: SIM115  # it ends with the process

    def op(self, op: Op) -> None:
        """Write what is known of an action now."""
        self._file.write(orjson.dumps({"op": asdict(op)}) + b"\n")

    def sent(self, sent: Sent) -> None:
        """Write a prompt."""
        self._file.write(orjson.dumps({"sent": asdict(sent)}) + b"\n")


def read_journal(path: Path) -> tuple[list[Op], list[Sent]]:
    """Return the actions of a process, each as it was last known, and its prompts."""
    ops: dict[str, Op] = {}
    sent: list[Sent] = []
    # The kill cut short what follows the last line break.
    for line in path.read_bytes().split(b"\n")[:-1]:
        entry = orjson.loads(line)
        if "op" in entry:
            op = Op(**entry["op"])
            ops[op.id] = op
        else:
            sent.append(Sent(**entry["sent"]))
    return list(ops.values()), sent
