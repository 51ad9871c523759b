"""Check what whole runs with observational memory left: prompts, observations and jobs.

None of the product's own checks is used: a prompt is read as its model reads it, and compared with
the branch that the rows describe.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import orjson

from agent_runtime.messages import (
    AssistantMessage,
    LoggedMessage,
    Note,
    call_id,
    decode_message,
)
from agent_runtime_storage import EventRow, ObservationRow, Store, UserStore
from agent_runtime_storage.drivers.protocol import Driver, Row

MAIN = "main"
Message: TypeAlias = tuple[str, str, list[str], str]
"""A message of a prompt: role, text, ids of its calls, id of the call that it answers."""
_OBSERVED = re.compile(r"<observed (\w+) nodes (\d+) to (\d+)>\n.*\n</observed \1>", re.DOTALL)
_MISSING = re.compile(
    r"(?P<left>\d+) earlier messages of this thread are not shown"
    r"(?:; the observations above stand for (?P<all>them)"
    r"|; (?:the observations above stand for all but|nothing stands for) (?P<gaps>\d+) of them"
    r"(?: yet)?, nodes (?P<named>(?:\"\d+-\d+\"(?:, )?)+)(?: and (?P<more>\d+) more stretches)?)?"
)
_NAMED = re.compile(r"(\d+)-(\d+)")


@dataclass(slots=True)
class Sent:
    """A prompt as it was sent, and its answer's text, which no other answer has."""

    op: str
    messages: list[Message]
    answer: str


@dataclass(frozen=True, slots=True)
class Left:
    """Rows that an interleaving left in the database."""

    nodes: dict[int, tuple[int | None, LoggedMessage]]
    observations: dict[int, ObservationRow]
    activations: list[Row]
    jobs: list[Row]
    events: list[EventRow]


async def read_left(store: Store, driver: Driver, owner: str, thread: str = MAIN) -> Left:
    """Read a thread's rows."""

    async def rows(columns: str, table: str) -> list[Row]:
        return await driver.read(
            f"SELECT {columns} FROM {table} "
            "WHERE user_id = :user_id AND thread_id = :thread_id ORDER BY 1",
            {"user_id": owner, "thread_id": thread},
            owner=owner,
        )

    user = store.of(owner)
    nodes = await rows("id, parent_id, body", "nodes")
    return Left(
        nodes={
            seq: (parent, decode_message(bytes(body) or (await user.log.node(thread, seq)).body))
            for seq, parent, body in nodes
        },
        observations={row.id: row for row in await user.log.observations(thread, ending_from=0)},
        activations=await rows("id, anchor, body", "activations"),
        jobs=await rows("id, kind, key, status", "jobs"),
        events=await user.events.list(thread, limit=100_000),
    )


async def claim_all(user: UserStore, left: Left, thread: str = MAIN) -> list[str]:
    """Claim every unfinished job, and return the ids of those that could be claimed."""
    claimed: list[str] = []
    for _, kind, key, status in left.jobs:
        if status == "done":
            continue
        job = await user.jobs.claim(kind, seconds=60, thread_id=thread, key=key)
        if job is not None:
            claimed.append(job.id)
    return claimed


@dataclass
class Judge:
    """Collects the problems of one interleaving.

    Args:
        claimed: ids of the jobs that could be claimed after all claims had ended.
    """

    left: Left
    sent: Sequence[Sent]
    claimed: frozenset[str]
    problems: list[str] = field(default_factory=list[str])

    def judge(self) -> list[str]:
        """Return the problems, a sentence each."""
        self._fencing()
        self._observations()
        self._jobs()
        self._activations()
        for number, sent in enumerate(self.sent):
            if wrong := self.prompt(sent):
                self._add(f"prompt {number} of {sent.op}: {wrong}")
        return self.problems

    def _add(self, problem: str) -> None:
        self.problems.append(problem)

    def _parent(self, node: int) -> int | None:
        return self.left.nodes[node][0]

    def branch(self, head: int | None) -> list[int]:
        """Return the chain of parents that ends at a node, oldest first."""
        chain: list[int] = []
        while head is not None:
            chain.append(head)
            head = self._parent(head)
        return chain[::-1]

    def _fencing(self) -> None:
        newest: dict[str, int] = {}
        for event in self.left.events:
            # The first events of a run are written before it has a lease.
            run, epoch = event.data.get("run", ""), event.data.get("epoch", 0)
            if epoch < newest.get(run, 0):
                self._add(f"event {event.id} was written with epoch {epoch} after {newest[run]}")
            newest[run] = max(epoch, newest.get(run, 0))

    # Observations and their jobs

    def _observations(self) -> None:
        rows = self.left.observations
        if list(rows) != list(range(1, len(rows) + 1)):
            self._add(f"the observations are {list(rows)}")
        for row in rows.values():
            branch = self.branch(row.last)
            if row.first not in branch or self._parent(row.first) != row.parent_id:
                self._add(f"observation {row.id} of {row.first} to {row.last} is on no branch")
            if row.level:
                self._parts(row)

    def _parts(self, row: ObservationRow) -> None:
        parts = [self.left.observations[part] for part in row.parts]
        ends = [row.parent_id, *(part.last for part in parts)]
        if [part.parent_id for part in parts] != ends[:-1] or ends[-1] != row.last:
            self._add(f"the parts {row.parts} of observation {row.id} do not follow each other")
        if row.first != parts[0].first or row.level != 1 + max(part.level for part in parts):
            self._add(f"observation {row.id} does not cover its parts {row.parts}")

    def _jobs(self) -> None:
        reported = [event.data for event in self.left.events if event.kind == "observation"]
        if sorted(data["observation"] for data in reported) != list(self.left.observations):
            self._add("the events report other observations than there are")
        commits = Counter(data["job"] for data in reported if data["job"])
        jobs = {row[0]: row for row in self.left.jobs}
        for job, count in commits.items():
            if count != 1 or job not in jobs or jobs[job][3] != "done":
                self._add(f"job {jobs.get(job)} was committed {count} times")
        for job, kind, key, status in jobs.values():
            if status == "done" and not commits[job]:
                self._add(f"the {kind} job {key} is done without a commit")
            if status != "done" and job not in self.claimed:
                self._add(f"the {kind} job {key} is lost: it is {status}")
        for data in reported:
            # Where the loop cannot wait for the job, rules write the observation without one.
            if not data["job"] and data["origin"] == "model":
                self._add(f"observation {data['observation']} was committed without its job")

    # Activations and prompts

    def _activations(self) -> None:
        for identity, anchor, body in self.left.activations:
            start: dict[str, Any] = orjson.loads(bytes(body))
            seen = [self.left.observations[number] for number in start["observed"]]
            branch = self.branch(anchor)
            if any(row.last not in branch for row in seen):
                self._add(f"activation {identity} has observations of another branch")
            if not start["remembers"]:
                continue
            stretches = [(row.first, row.parent_id, row.last) for row in seen]
            stretches += [(gap["first"], gap["parent_id"], gap["last"]) for gap in start["gaps"]]
            stretches.sort()
            ends = [None, *(last for _, _, last in stretches)]
            if [parent for _, parent, _ in stretches] != ends[:-1]:
                self._add(
                    f"the observations and gaps of activation {identity} do not follow each other"
                )
            first = start["first"]
            if first is not None and self._parent(first) != ends[-1]:
                self._add(f"activation {identity} begins at {first}, is observed to {ends[-1]}")

    def prompt(self, sent: Sent) -> str:
        """Return the problem of a prompt, or "".

        It must show each node of its branch exactly once, or count and name it as missing.
        """
        messages = sent.messages[1:]
        intervals: list[tuple[int, int]] = []
        while messages and (observed := _OBSERVED.fullmatch(messages[0][1])):
            intervals.append((int(observed[2]), int(observed[3])))
            messages = messages[1:]
        heads = self._heads(sent)
        if not heads:
            return f"its last message is no node's: {sent.messages[-1]}"
        wrong = ""
        for head in heads:
            wrong = self._covers(self.branch(head), intervals, messages)
            if not wrong:
                return ""
        return wrong

    def _covers(
        self, branch: list[int], intervals: list[tuple[int, int]], messages: list[Message]
    ) -> str:
        reached, observed = 0, set[int]()
        for first, last in intervals:
            if first not in branch[reached:] or last not in branch[branch.index(first) :]:
                return f"it has observations of {intervals} on the branch {branch}"
            reached = branch.index(last) + 1
            observed.update(range(branch.index(first), reached))
        missing = _MISSING.search(messages[0][1]) if messages else None
        wrong = self._raw(messages, branch[reached:], stated=reached > 0)
        if missing is None and not wrong and len(observed) < reached:
            return f"it has observations of {intervals} on the branch {branch} and names no gap"
        if (missing is None and not wrong) or not messages:
            return wrong
        for place in range(reached, len(branch)):
            if not self._raw(messages, branch[place:], stated=True):
                return self._claims(branch[:place], observed, messages[0][1], missing)
        return wrong

    def _claims(
        self, branch: list[int], observed: set[int], note: str, missing: re.Match[str] | None
    ) -> str:
        """Return what is wrong with what a state note says of the nodes before the raw ones."""
        # The task stands in front of the note, and is not counted as missing.
        task = {node for node in branch if note.startswith(self.left.nodes[node][1].text + "\n\n")}
        left = int(missing["left"]) if missing else 0
        if (size := self._size(branch) - len(task)) != left:
            return f"it says that {left} messages are not shown, not {size}"
        if missing is None:
            return ""
        stretches: list[list[int]] = []
        for place, node in enumerate(branch):
            if place in observed:
                continue
            if stretches and place and (place - 1) not in observed:
                stretches[-1].append(node)
            else:
                stretches.append([node])
        stretches = [nodes for nodes in stretches if set(nodes) - task]
        if missing["gaps"] is None:
            return "it says that observations stand for all" if missing["all"] and stretches else ""
        gone = sum(map(self._size, stretches)) - len(task & {n for one in stretches for n in one})
        if gone != int(missing["gaps"]):
            return f"it says that nothing stands for {missing['gaps']} messages, not {gone}"
        named = [(int(first), int(last)) for first, last in _NAMED.findall(missing["named"])]
        ends = [(nodes[0], nodes[-1]) for nodes in stretches]
        rest = len(ends) - len(named)
        if ends[: len(named)] != named or rest != int(missing["more"] or 0):
            return f"it names the gaps {named} and {missing['more']} more, which are {ends}"
        return ""

    def _size(self, nodes: Sequence[int]) -> int:
        messages = [self.left.nodes[node][1] for node in nodes]
        calls = [one.calls for one in messages if isinstance(one, AssistantMessage)]
        return len(messages) + sum(map(len, calls))

    def _heads(self, sent: Sent) -> list[int]:
        """Return the nodes that may be the newest of a prompt: several may read alike."""
        answered = [
            parent
            for parent, message in self.left.nodes.values()
            if sent.answer and message.text == sent.answer
        ]
        if answered:
            return [node for node in answered if node is not None]
        _, text, _, call = sent.messages[-1]
        return [
            seq for seq, (_, message) in self.left.nodes.items() if _shows(message, seq, text, call)
        ]

    def _raw(self, messages: list[Message], nodes: list[int], *, stated: bool) -> str:
        # After observations, the state note precedes the raw nodes as a message of the user.
        place = int(stated and bool(messages) and messages[0][0] == "user")
        for node in nodes:
            message = self.left.nodes[node][1]
            if isinstance(message, Note) and place and messages[place - 1][0] == "tool":
                if messages[place - 1][1].count(message.text) != 1:
                    return f"note {node} is not in the last result"
                continue
            if place >= len(messages):
                return f"node {node} is missing"
            role, text, ids, _ = messages[place]
            requested = message.calls if isinstance(message, AssistantMessage) else ()
            expected = [call_id(node, index) for index in range(len(requested))]
            shown = message.text in text if isinstance(message, Note) else message.text == text
            if (
                not shown
                or ids != expected
                or (role == "assistant") != (message.type == "assistant")
            ):
                return f"node {node} is shown as {messages[place]}"
            results = [result[3] for result in messages[place + 1 : place + 1 + len(requested)]]
            if results != expected:
                return f"the results of node {node} are {results}"
            place += 1 + len(requested)
        rest = messages[place:]
        return f"it shows more than its branch, or shows it twice: {rest}" if rest else ""


def _shows(message: LoggedMessage, seq: int, text: str, call: str) -> bool:
    """Return whether the last message of a prompt shows a node."""
    if isinstance(message, Note):
        return bool(message.text) and message.text in text
    if isinstance(message, AssistantMessage) and message.calls:
        return call == call_id(seq, len(message.calls) - 1)
    return not call and message.text == text
