"""The threads and runs that an import has read, and the checks of each record against them.

A database would make these checks too late or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from agent_runtime_storage.contract.errors import InvalidExport
from agent_runtime_storage.contract.ids import new_id
from agent_runtime_storage.contract.names import name_problem
from agent_runtime_storage.upkeep.export_format import BROKEN_EXPORT_CURE, Fields, Section

_COUNTED = {
    "nodes": "last_seq",
    "activations": "last_activation",
    "events": "last_event",
    "usage": "last_usage",
}
"""Sections whose ids count up from 1, and the thread's counter that holds the last id."""


@dataclass(slots=True)
class ImportedThread:
    """A thread of the import, and how much of its log was read."""

    id: str
    fields: Fields
    next_id: dict[str, int] = field(default_factory=dict[str, int])
    last_inbox: int = 0
    last_call: tuple[int, int] = (0, -1)
    lacking: dict[int, int] = field(default_factory=dict[int, int])
    """For each exchange, the number of its calls that were not read yet."""


class ImportState:
    """The threads and runs that were read so far.

    Args:
        rename: the new id of the first thread; None leaves all ids unchanged.

    Attributes:
        members: the threads, in their order.
        logs: the threads whose log has begun.
        ids: the new id of each thread and run, by its id in the export.
    """

    def __init__(self, rename: str | None) -> None:
        self.members: list[ImportedThread] = []
        self.logs: list[ImportedThread] = []
        self.ids: dict[str, str] = {}
        self.open_nodes: list[tuple[str, int]] = []
        self.renames = rename is not None
        self._rename = rename
        self._roots: dict[str, str] = {}
        self._orphans: dict[str, str] = {}

    @property
    def current(self) -> ImportedThread:
        """The thread to which the next records belong."""
        return (self.logs or self.members)[-1]

    def name_thread(self, fields: Fields) -> str:
        """Check the record of a thread; return the thread's new id."""
        if self.logs:
            fields.fail("a thread comes after the first log.")
        old = str(fields.values["id"])
        if problem := name_problem(old):
            fields.fail(f"the thread's id {problem}.")
        if old in self.ids:
            fields.fail(f"thread {old} is there twice.")
        new = old
        if self._rename is not None:
            # The first thread is the one that was exported; its sub-agents' threads get ids of
            # their own.
            new = new_id() if self.members else self._rename
        self.ids[old] = new
        return new

    def next_log(self, fields: Fields) -> ImportedThread:
        """Return the thread whose log begins with this record."""
        member = next(iter(self.members[len(self.logs) :]), None)
        if member is None or member.fields.values["id"] != fields.values["thread"]:
            fields.fail("the log is not that of the next thread.")
        return member

    def check_log(self, line: int) -> None:
        """Check that every record of the last log was read.

        Raises:
            InvalidExport: one is missing.
        """
        member = self.logs[-1]
        for section, counter in _COUNTED.items():
            came, wanted = member.next_id.get(section, 1) - 1, member.fields.values[counter]
            if came != wanted:
                raise InvalidExport(
                    f"thread {member.fields.values['id']} has {came} {section}, not {wanted}.",
                    line=line,
                    cure=BROKEN_EXPORT_CURE,
                )
        if node := next(iter(member.lacking), None):
            raise InvalidExport(f"node {node} lacks calls.", line=line, cure=BROKEN_EXPORT_CURE)

    def check(self, section: Section, fields: Fields) -> None:
        """Check a record against those before it.  Raises `InvalidExport`."""
        member, values = self.current, fields.values
        # Ids without gaps, in order: the log's readers and its counters rely on that.
        if section.name in _COUNTED:
            wanted = member.next_id.get(section.name, 1)
            if values["id"] != wanted:
                fields.fail(f"the id of {section.name} is {values['id']}, not {wanted}.")
            member.next_id[section.name] = wanted + 1
        match section.name:
            case "runs":
                self._check_run(fields)
            case "nodes":
                parent = values["parent_id"]
                # Smaller than the node, so that no branch runs in a circle.
                if parent is not None and not 0 < parent < values["id"]:
                    fields.fail(f"the parent of node {values['id']} is node {parent}.")
            case "calls":
                node, position = values["node_id"], values["position"]
                before, last = member.last_call
                # The next call of the same node, or the first of a later one.
                if (node, position) != (before, last + 1) and not (node > before and not position):
                    fields.fail(f"call {position} of node {node} is out of order.")
                member.last_call = (node, position)
                self._check_node(fields, node)
            case "inbox":
                if not member.last_inbox < values["id"] <= member.fields.values["last_inbox"]:
                    fields.fail(f"the id of the inbox item is {values['id']}.")
                member.last_inbox = values["id"]
            case "files":
                if values["bytes"] != len(fields.bodies["content"]):
                    fields.fail(f"file {values['id']} has not the length that it should have.")
            case _:
                pass
        for name in ("node_id", "anchor"):
            if values.get(name) is not None:
                self._check_node(fields, values[name])
        if section.name != "runs" and values.get("run_id") is not None:
            self._check_known(section, fields)

    def continue_branch(self, section: Section, fields: Fields) -> None:
        """Move a thread's head to the open exchange after it, whose calls the import refuses."""
        if section.name != "nodes" or fields.values["status"] != "open" or not self.logs:
            return
        # The import closes the exchange; off the branch it would be lost to the conversation.
        thread = self.current.fields.values
        if fields.values["parent_id"] == thread["head"]:
            thread["head"] = fields.values["id"]

    def check_calls(self, section: Section, fields: Fields, calls: int) -> None:
        """Check that the calls in the records are those that their message names."""
        lacking = self.current.lacking
        if section.name == "nodes" and calls:
            lacking[fields.values["id"]] = calls
        elif section.name == "calls":
            node = fields.values["node_id"]
            if node not in lacking:
                fields.fail(f"node {node} has no call {fields.values['position']}.")
            lacking[node] -= 1
            if not lacking[node]:
                del lacking[node]

    def _check_node(self, fields: Fields, node: int) -> None:
        if not 0 < node <= self.current.fields.values["last_seq"]:
            fields.fail(f"it refers to node {node}, which is not there.")

    def _check_known(self, section: Section, fields: Fields) -> None:
        run_id = fields.values["run_id"]
        if run_id in self._roots:
            return
        if section.name != "inbox":
            fields.fail(f"it refers to run {run_id}, which is not there.")
        # Any run may post to an inbox, also one that is not in the export: the item stays.
        fields.values["run_id"] = None

    def _check_run(self, fields: Fields) -> None:
        """Check and register a run: its new id, its root, and its parent if that was read."""
        if self.logs:
            fields.fail("a run comes after the first log.")
        values = fields.values
        run_id, parent = values["id"], values["parent_run_id"]
        if run_id in self._roots:
            fields.fail(f"run {run_id} is there twice.")
        if (parent is None) != (values["root_run_id"] == run_id):
            fields.fail(f"run {run_id} is neither a root nor a child.")
        if problem := name_problem(run_id):
            fields.fail(f"the run's id {problem}.")
        self.ids[run_id] = run_id if self._rename is None else new_id()
        self._roots[run_id] = run_id
        if parent in self._roots:
            self._roots[run_id] = self._roots[parent]
        elif parent is not None:
            # The parent may follow, or be missing; `tie_runs` decides once all runs were read.
            # Until then the run is a root, because its row may not refer to a missing one.
            self._orphans[run_id] = parent
            values["parent_run_id"] = None
        if values["task_id"] is not None:
            self._check_node(fields, values["task_id"])
        if values["open_node"] is not None:
            # Set at the end: the nodes come after the runs.
            self._check_node(fields, values["open_node"])
            self.open_nodes.append((run_id, values["open_node"]))

    def root_of(self, run_id: str) -> str:
        """Return the new id of a run's root."""
        return self.ids[self._roots[run_id]]

    def tie_runs(self, line: int) -> list[tuple[str, str, str | None]]:
        """Find the root of every run, once all were read.

        Returns:
            For each run whose root changes: the run, its root, and its parent if that came after
            the run; all by their new ids.

        Raises:
            InvalidExport: a run is its own ancestor.
        """
        # From each provisional root upwards, over parents that came later.
        tops = {run_id: run_id for run_id in self._roots.values()}
        for run_id in tops:
            # A file may claim runs that are each other's parents, on which the search would go on
            # for ever.
            seen = {run_id}
            while (parent := self._orphans.get(tops[run_id])) in self._roots:
                tops[run_id] = self._roots[str(parent)]
                if tops[run_id] in seen:
                    raise InvalidExport(
                        f"run {run_id} is its own ancestor.", line=line, cure=BROKEN_EXPORT_CURE
                    )
                seen.add(tops[run_id])
        ties: list[tuple[str, str, str | None]] = []
        for run_id, root in self._roots.items():
            if tops[root] != root:
                parent = self.ids[self._orphans[run_id]] if root == run_id else None
                ties.append((self.ids[run_id], self.ids[tops[root]], parent))
        self._roots = {run_id: tops[root] for run_id, root in self._roots.items()}
        return ties
