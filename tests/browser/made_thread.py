"""A thread of any length, as the inspector's endpoints answer it: made, not recorded.

The numbers agree with each other: bands add up to prompts, observations cover what left, and the
prompt of a step is the same whichever endpoint it is read from.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false
from __future__ import annotations

import hashlib
import itertools
import json
import struct
import threading
from collections.abc import Iterable, Sequence
from typing import Any

Json = dict[str, Any]

AT = 1_795_351_078.0
SYSTEM, STATE, EVERY, KEEP = 2665, 300, 16, 8
NOWHERE: list[int] = []
NONE: Json = {}
ERROR, QUESTION, STEERED, DELEGATED = 1, 2, 4, 8
TASK = "Move the store of this application from SQLite to Postgres without losing a row."


class MadeThread:
    """A thread whose every step calls one tool.

    Args:
        steps: how many there are; `grow` adds more.
        words: what stands in every text that a run may write.
        asks: whether the last step asks for an approval.
        long: whether what it asks about is too long to come with the question.
    """

    def __init__(
        self,
        steps: int,
        *,
        name: str = "made",
        words: str = "",
        asks: bool = True,
        long: bool = False,
    ) -> None:
        # A test adds steps while its service answers in another thread.
        self.lock = threading.Lock()
        self.long = long
        self.name, self.words, self.asks = name, words, asks
        self.status = "suspended" if asks else "running"
        self.answered: Json = {}
        self.nodes: list[tuple[int, int]] = [(0, 120)]
        self.steps: list[Json] = []
        self.activations: list[Json] = [
            {
                "id": 1,
                "anchor": None,
                "cause": "start",
                "first": None,
                "left": 0,
                "observed": NOWHERE,
            }
        ]
        self.observations: list[Json] = []
        self.grow(steps)

    def grow(self, steps: int) -> None:
        """Add steps at the end, between two answers."""
        with self.lock:
            self._grow(steps)

    def _grow(self, steps: int) -> None:
        for _ in range(steps):
            number = len(self.steps) + 1
            if number % 97 == 0:
                self.nodes.append((2, 20))
            if number % EVERY == 0 and number > 2 * EVERY:
                self._activate()
            now = self.activations[-1]
            first = now["first"] or 1
            raw = sum(tokens for _, tokens in self.nodes[first - 1 :])
            observed = sum(self.observations[one - 1]["tokens"] for one in now["observed"])
            constraints, state = (40, STATE) if now["first"] else (0, 0)
            prompt = SYSTEM + observed + constraints + state + raw
            before = self.steps[-1] if self.steps else None
            same = before is not None and before["activation"] == now["id"]
            cached = before["prompt"] if before and same else SYSTEM if before else 0
            self.nodes.append((1, 200 + number * 37 % 400))
            self.steps.append(
                {"node": len(self.nodes), "activation": now["id"], "system": SYSTEM}
                | {"observed": observed, "constraints": constraints, "state": state, "raw": raw}
                | {"prompt": prompt, "counted": prompt, "cached": cached, "answer": 40}
                | {"cost": 3000 * (prompt - cached) + 300 * cached, "at": int(AT * 1000) + number}
                | {"ms": 900, "first": 200, "retries": int(number % 90 == 0), "model": 0}
                | {"flags": self._flags(number)}
            )

    def _flags(self, number: int) -> int:
        return (
            (ERROR if number % 45 == 0 else 0)
            | (STEERED if number % 97 == 0 else 0)
            | (DELEGATED if number % 61 == 0 else 0)
        )

    def _activate(self) -> None:
        old = self.activations[-1]
        first, last = old["first"] or 1, len(self.nodes) - KEEP
        of = sum(tokens for _, tokens in self.nodes[first - 1 : last])
        observed = [*old["observed"], self._observe(0, first, last, of, [])]
        plain = [one for one in observed if not self.observations[one - 1]["level"]]
        if len(plain) > 6:
            parts = plain[:5]
            sizes = sum(self.observations[one - 1]["of"] for one in parts)
            ends = self.observations[parts[0] - 1], self.observations[parts[-1] - 1]
            made = self._observe(1, ends[0]["first"], ends[1]["last"], sizes, parts)
            at = observed.index(parts[0])
            observed[at : at + 5] = [made]
        reflections = [one for one in observed if self.observations[one - 1]["level"] == 1]
        if len(reflections) > 4:
            ends = self.observations[reflections[0] - 1], self.observations[reflections[-1] - 1]
            sizes = sum(self.observations[one - 1]["of"] for one in reflections)
            made = self._observe(2, ends[0]["first"], ends[1]["last"], sizes, reflections)
            older = [one for one in observed if self.observations[one - 1]["level"] == 2]
            rest = [one for one in observed if one not in reflections and one not in older]
            observed = [*older[-3:], made, *rest] if len(older) < 4 else [*older, made, *rest]
        self.activations.append(
            {"id": old["id"] + 1, "anchor": len(self.nodes), "cause": "observed", "first": last + 1}
            | {"left": last, "observed": observed}
        )

    def _observe(self, level: int, first: int, last: int, of: int, parts: list[int]) -> int:
        one = len(self.observations) + 1
        self.observations.append(
            {"id": one, "level": level, "first": first, "last": last, "parts": parts}
            | {"tokens": 250 if not level else 400, "of": of, "origin": "rules"}
            | {"provisional": False, "at": AT}
        )
        return one

    def home(self) -> Json:
        """Return what `GET home` answers."""
        run = self.run()
        active = [run] if run["status"] in ("running", "suspended") else []
        recent = [
            self.run()
            | {"run": f"old-{n}", "thread": f"old-{n}", "status": status, "title": title}
            | {"stop_reason": reason, "detail": detail, "finished_at": AT, "plan": None}
            for n, (title, status, reason, detail) in enumerate(ENDED)
        ]
        figures = {"running": len(active), "waiting": int(self.asks), "failed": 2}
        figures |= {"spent": 2_450_000_000, "cached": 95, "prompt": 100, "unpriced": 0}
        needs = [one for one in self.questions() if one["status"] == "open"]
        return {"needs": needs, "active": active, "recent": recent, "next": None} | {
            "figures": figures,
            "at": AT,
        }

    def run(self) -> Json:
        """Return the line of the run."""
        spark = [step["prompt"] for step in self.steps[:: max(1, len(self.steps) // 60)]][:60]
        tokens = sum(step["prompt"] for step in self.steps)
        return (
            {"run": "run-" + self.name, "thread": self.name, "parent": None}
            | {"root": "run-" + self.name, "agent": "mover" + self.words, "model": "scripted/one"}
            | {"title": TASK + self.words, "status": self.status, "alive": True}
            | {"stop_reason": "awaiting_user" if self.status == "suspended" else None}
            | {"way_on": "resume" if self.answered else "answer"}
            | {"detail": self.words, "steps": len(self.steps), "max_steps": len(self.steps) + 10}
            | {"created_at": AT, "updated_at": AT + 900, "finished_at": None, "tokens": tokens}
            | {"cached": tokens // 2, "prompt": tokens, "cost": 2_440_000_000, "unpriced": 0}
            | {"task_key": None, "children": 2, "plan": {"done": 2, "total": 4}, "spark": spark}
        )

    def questions(self) -> list[Json]:
        """Return the questions of the thread."""
        if not self.asks:
            return []
        arguments = [{"name": "command", "text": COMMAND + self.words, "json": False}]
        for one in arguments:
            one |= {"chars": len(COMMAND + self.words) + 9000 * self.long, "more": self.long}
        status = "answered" if self.answered else "open"
        return [
            {"id": "q1", "thread": self.name, "run": "run-" + self.name, "index": 0}
            | {"root": "run-" + self.name, "root_thread": self.name, "node": len(self.nodes)}
            | {
                "kind": "approval",
                "status": status,
                "text": "May it call run_command?" + self.words,
            }
            | {"choices": [], "tool": "run_command" + self.words, "agent": "mover" + self.words}
            | {"why": "All rows are on staging and equal by checksum." + self.words}
            | {"call_id": "c1", "arguments": arguments, "digest": "digest-1"}
            | {"default_pattern": {"command": "python *" + self.words}, "answer": self.answered}
            | {"asked_at": AT, "expires_at": 4e9, "answered_at": None}
        ]

    def summary(self) -> Json:
        """Return what `GET threads/T` answers."""
        run, last = self.run(), self.steps[-1] if self.steps else None
        child = run | {"run": "child", "thread": "child", "parent": run["run"], "agent": "reviewer"}
        child |= {"status": "failed", "stop_reason": "max_steps", "task_key": "part-1" + self.words}
        return {
            "thread": self.name,
            "title": run["title"],
            "created_at": AT,
            "updated_at": AT,
            "head": len(self.nodes),
            "open_node": None,
            "last_event": 1,
            "cursor": str(len(self.steps)),
            "at": AT,
            "active_run": run["run"],
            "run": run,
            "tree": [run, child],
            "questions": self.questions(),
            "plan": self._plan(),
            "window": 200_000,
            "memory": {"on": True, "observe_at": 9000, "reflect_at": 5200, "ratio": 1.0}
            | {"raw": last["raw"] if last else 0, "observed": last["observed"] if last else 0},
            "budgets": {
                "steps": [len(self.steps), len(self.steps) + 10],
                "tokens": [5_000_000, None],
            }
            | {"cost": [2_440_000_000, 2_500_000_000], "reserved": {"tokens": 0, "cost": 0}}
            | {"unsettled": {"tokens": 0, "cost": 0}, "worked": 320.5},
        }

    def _plan(self) -> Json:
        statuses = ["completed", "completed", "in_progress", "pending"]
        items = [
            {"id": f"i{n}", "description": PLAN[n] + self.words, "status": status, "result": ""}
            | {"phase": "plan", "depends_on": NOWHERE}
            for n, status in enumerate(statuses)
        ]
        return {"version": 2, "node": 2, "goal": TASK + self.words, "phase": "plan"} | {
            "iteration": 1,
            "items": items,
            "at": AT,
        }

    def opening(self) -> bytes:
        """Return what `GET opening` answers."""
        last = self.node_page(len(self.nodes) - 29, len(self.nodes))["nodes"]
        return self.columns(more={"summary": self.summary(), "last": last})

    def columns(self, after: int = 0, more: Json | None = None) -> bytes:
        """Return what `GET steps` answers: rows whose node is above `after`."""
        steps = [step for step in self.steps if step["node"] > after]
        stepped = {step["node"]: step for step in steps}
        nodes: list[Json] = []
        for seq, (role, tokens) in enumerate(self.nodes, 1):
            if seq > after:
                own = stepped.get(seq)
                flags = own["flags"] if own else STEERED if role == 2 else 0
                nodes.append(
                    {"node": seq, "role": role, "tokens": tokens, "calls": int(role == 1)}
                    | {"at": int(AT * 1000) + seq, "flags": flags}
                    | {"activation": own["activation"] if own else 1}
                )
        return _packed(
            {"version": 1, "thread": self.name, "head": len(self.nodes), "reset": not after}
            | {"models": ["scripted/one" + self.words], **(more or {})},
            {"steps": (STEP_COLUMNS, steps), "nodes": (NODE_COLUMNS, nodes)},
        )

    def activation_page(self, ids: Sequence[int], after: int = 0) -> Json:
        """Return what `GET activations` answers."""
        made = [self._activation(one) for one in self.activations if one["id"] > after]
        if ids:
            extra: Json = {
                "cuts": {"c1" + self.words: 1200},
                "state": self._state(),
                "gaps": NOWHERE,
            }
            extra |= {"system": "You move an application." + self.words, "zone": "UTC"}
            extra |= {"constraints": [{"node": 1, "text": "Never lose a row." + self.words}]}
            extra["tools"] = [
                {"name": name + self.words, "description": name + self.words, "tokens": 90}
                for name in ("read_file", "edit_file", "run_command", "recall")
            ]
            made = [one | extra for one in made if one["id"] in ids]
        return {"activations": made, "next": None}

    def _activation(self, one: Json) -> Json:
        return (
            one
            | {"at": AT, "task": 1 if one["first"] else None, "context": NOWHERE, "cut": 1}
            | {
                "parts": NONE,
                "model": "scripted/one",
                "last_messages": 4,
            }
        )

    def observation_page(self, ids: Sequence[int], after: int = 0) -> Json:
        """Return what `GET observations` answers."""
        made = [one for one in self.observations if one["id"] > after]
        if ids:
            made = [one | self._inside(one) for one in made if one["id"] in ids]
        return {"observations": made, "next": None}

    def _inside(self, one: Json) -> Json:
        lines = [
            {
                "at": "2026-11-22 12:37",
                "priority": priority,
                "node": one["first"] + n,
                "of": one["id"],
            }
            | {"text": f"{priority} of o{one['id']}: read module {n}{self.words}", "by_user": not n}
            for n, priority in enumerate(("critical", "important", "info", "done"))
        ]
        return {"model": None, "lines": lines, "left_out": lines[:2], "left_out_count": 2} | {
            "archive": {
                "lines": 29,
                "critical": 0,
                "first": 1,
                "last": 2,
                "since": "",
                "until": "",
            },
            "task": "",
            "next_step": "",
            "ledger": ["storage/jobs.py" + self.words, "ALTER TABLE" + self.words],
            "text": "",
        }

    def node_page(self, first: int, last: int) -> Json:
        """Return what `GET nodes` answers."""
        stepped = {step["node"]: n for n, step in enumerate(self.steps, 1)}
        nodes = [
            self._node(seq, stepped.get(seq))
            for seq in range(max(1, first), min(last, len(self.nodes), first + 199) + 1)
        ]
        return {"nodes": nodes, "next": None}

    def _node(self, seq: int, step: int | None) -> Json:
        role = ("user", "assistant", "note")[self.nodes[seq - 1][0]]
        text = {"user": TASK, "note": "The numbers of rows must be compared per table."}.get(
            role,
            f"`storage/module_{step}.py` builds statements; I read it first." if seq % 3 else "",
        )
        calls = [self._call(seq, step)] if step else []
        return {"seq": seq, "parent": seq - 1 or None, "kind": role, "status": "closed"} | {
            "role": role,
            "run": "run-" + self.name,
            "agent": "mover",
            "at": AT + seq,
            "activation": 1,
            "tokens": self.nodes[seq - 1][1],
            "files": [],
            "calls": calls,
            "source": "steer" if role == "note" else "",
            "siblings": [],
            "text": text + self.words if text else "",
            "chars": len(text + self.words),
        }

    def _call(self, seq: int, step: int) -> Json:
        flags = self.steps[step - 1]["flags"]
        asks = self.asks and not self.answered and step == len(self.steps)
        tool = "run_command" if asks else "delegate" if flags & DELEGATED else CALLS[seq % 4]
        given = {"command": COMMAND} if asks else {"path": f"storage/module_{step}.py"}
        if tool == "edit_file":
            given |= {"old": "import sqlite3", "new": "import psycopg"}
        arguments = [
            {"name": name, "text": text + self.words, "json": False, "more": False}
            | {"chars": len(text + self.words)}
            for name, text in given.items()
        ]
        result = "" if asks else f"module {step} has 40 lines\n" + "x = 1\n" * 30 + self.words
        return {
            "handle": f"c{seq}",
            "index": 0,
            "tool": tool + self.words,
            "arguments": arguments,
        } | {
            "status": "pending" if asks else "done",
            "outcome": None if asks else "error" if flags & ERROR else "ok",
            "text": result,
            "chars": len(result),
            "shown": None,
            "tokens": 180,
            "files": [],
            "run": "child" if flags & DELEGATED else None,
            "thread": "child" if flags & DELEGATED else None,
            "task_key": "part-1" if flags & DELEGATED else None,
            "question": "q1" if asks else None,
        }

    def _state(self) -> str:
        return f"Task: {TASK}\nPlan version 2: 2 of 4 done.{self.words}"

    def prompt(self, activation: int) -> Json:
        """Return what `GET prompt` answers."""
        one = self.activations[activation - 1]
        last = max(
            (step["node"] for step in self.steps if step["activation"] == activation), default=0
        )
        system = "You move an application." + self.words
        parts = [_part("system", None, 1665, system), _part("tools", None, 1000, "[]")]
        for each in one["observed"]:
            part = _part("observation", None, self.observations[each - 1]["tokens"], "", f"o{each}")
            parts.append(part | {"observation": each})
        if one["first"]:
            text = self._state() + str(activation)
            parts.append(_part("state", None, STATE + 40, text))
        for seq in range(one["first"] or 1, last + 1):
            role, tokens = self.nodes[seq - 1]
            kind = ("user", "assistant", "note")[role]
            parts.append(_part(kind, seq, tokens // 2 if role == 1 else tokens, "", f"n{seq}"))
            if role == 1:
                result = _part("tool", seq, tokens - tokens // 2, "", f"r{seq}")
                parts.append(result | {"call": 0})
        return {"activation": activation, "parts": parts, "counted": 0, "first": one["first"]} | {
            "anchor": one["anchor"],
            "model": "scripted/one",
        }

    def where(self, node: int, at: int) -> Json:
        """Return what `GET where` answers."""
        step = next(step for step in self.steps if step["node"] == at)
        one = self.activations[step["activation"] - 1]
        path: list[int] = []
        if one["first"] and node < one["first"]:
            path = next(filter(None, (self._way(each, node) for each in one["observed"])), NOWHERE)
        seen = [
            s["node"]
            for s in self.steps
            if s["node"] > node and (self.activations[s["activation"] - 1]["first"] or 1) <= node
        ]
        kind = "observed" if path else "raw"
        summary = f"Message {node} is {kind}." + self.words
        found = {"node": node, "at": at, "activation": one["id"], "kind": kind, "form": kind}
        return (
            found
            | {
                "summary": summary,
                "path": path,
                "lines": NOWHERE,
                "replaced": NOWHERE,
                "cut": NOWHERE,
            }
            | {
                "constraint": None,
                "last_raw": seen[-1] if seen else None,
                "forks_from": None,
            }
        )

    def _way(self, one: int, node: int) -> list[int]:
        made = self.observations[one - 1]
        if not made["first"] <= node <= made["last"]:
            return []
        ways = (self._way(part, node) for part in made["parts"])
        return [one, *next(filter(None, ways), NOWHERE)]


def _part(kind: str, node: int | None, tokens: int, text: str, same: str = "") -> Json:
    digest = hashlib.blake2b((same or kind + text).encode(), digest_size=8).hexdigest()
    return {"key": same or kind, "kind": kind, "role": kind, "node": node, "call": None} | {
        "observation": None,
        "tokens": tokens,
        "chars": len(text),
        "hash": digest,
        "text": text,
        "cut": False,
        "notes": [],
    }


def _packed(header: Json, tables: dict[str, tuple[Iterable[str], list[Json]]]) -> bytes:
    """Return tables in the binary form of `GET steps`: every column as differences."""
    data = bytearray()
    described: Json = {}
    for name, (columns, rows) in tables.items():
        described[name] = {"count": len(rows), "columns": []}
        for column in columns:
            values = [row[column] for row in rows]
            base = values[0] if values else 0
            steps = [0, *(b - a for a, b in itertools.pairwise(values))][: len(values)]
            described[name]["columns"].append(
                {"name": column, "type": "f8", "offset": len(data), "base": base}
            )
            data += struct.pack(f"<{len(steps)}d", *steps)
    text = json.dumps(header | {"tables": described}).encode()
    text += b" " * (-(len(text) + 4) % 8)
    return struct.pack("<I", len(text)) + text + bytes(data)


STEP_COLUMNS = [
    *("node", "activation", "system", "observed", "constraints", "state", "raw", "prompt"),
    *("counted", "cached", "answer", "cost", "at", "ms", "first", "retries", "model", "flags"),
]
NODE_COLUMNS = ["node", "role", "tokens", "calls", "at", "flags", "activation"]
CALLS = ["read_file", "edit_file", "run_tests", "search_files"]
COMMAND = "python -m move.copy --from /srv/app/app.db --to $DATABASE_URL --verify"
PLAN = ["Survey the database", "Write the schema", "Port the queries", "Switch over"]
ENDED = [
    ("Sort the invoices of October", "failed", "error", "The script has no more answers."),
    (
        "Collect prices of <b>all</b> vendors \u202e",
        "failed",
        "no_progress",
        "The same call 10 times.",
    ),
    ("What does ids.py do?", "succeeded", "completed", ""),
]
