"""The history of an interleaving: each action, its times and its outcome."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Mapping
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
    """One action: its intent, its times, and its outcome.

    Attributes:
        start, end: nanoseconds of the machine's monotonic clock; no end if its process was killed.
        outcome: `ok`, `nothing`, `refused`, `doubt`, `crashed`, `cancelled`, or `failed`, which is
            always a fault; `open` until it is known.
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
"""Gets an action before each of its writes, with all that it intends to write."""


def choose(weights: Mapping[str, int], chance: random.Random) -> str:
    """Return the name of an action, drawn by weight."""
    return chance.choices(list(weights), list(weights.values()))[0]


@contextmanager
def recorded(op: Op) -> Generator[None]:
    """Record in an action how the block ended; only a cancellation propagates."""
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
    """The actions and prompts of a process; each line survives a kill of the process."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("ab", buffering=0)  # noqa: SIM115  # it ends with the process

    def op(self, op: Op) -> None:
        """Write the current state of an action."""
        self._file.write(orjson.dumps({"op": asdict(op)}) + b"\n")

    def sent(self, sent: Sent) -> None:
        """Write a prompt."""
        self._file.write(orjson.dumps({"sent": asdict(sent)}) + b"\n")


def read_journal(path: Path) -> tuple[list[Op], list[Sent]]:
    """Return the actions of a process in their last known state, and its prompts."""
    ops: dict[str, Op] = {}
    sent: list[Sent] = []
    # The kill may have cut the last line.
    for line in path.read_bytes().split(b"\n")[:-1]:
        entry = orjson.loads(line)
        if "op" in entry:
            op = Op(**entry["op"])
            ops[op.id] = op
        else:
            sent.append(Sent(**entry["sent"]))
    return list(ops.values()), sent
