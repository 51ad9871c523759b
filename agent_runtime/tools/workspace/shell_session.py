"""What the commands of a run share: the folder, exported variables, commands in the background."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.to_thread

from agent_runtime.concurrency import DetachedTasks, finished
from agent_runtime.errors import AgentRuntimeError, ToolError
from agent_runtime.messages import call_place, decode_result
from agent_runtime.tools.context import ToolContext
from agent_runtime.tools.workspace import background_commands as background
from agent_runtime.tools.workspace import command_records as commands
from agent_runtime.tools.workspace.background_commands import BackgroundCommand
from agent_runtime.tools.workspace.command_output import OutputFile
from agent_runtime.tools.workspace.command_process import Supervised
from agent_runtime.tools.workspace.command_script import ShellState, changes
from agent_runtime_config.sandbox import VARIABLE
from agent_runtime_storage.contract.store import UserStore

BASH = "bash"
"""The name of the tool."""
MOST_RUNNING = 8
"""Commands of a run that may be in the background at once."""
MOST_ENDED = 16
"""Ended commands of a run whose output is kept."""
MOST_VARIABLES = 256 << 10
"""The most bytes of variables that are kept; beyond, a command's changes are dropped."""
MOST_NAMED = 30
"""Variables whose names a result keeps."""
SUSPENDED_SECONDS = 3600.0
"""How long the commands of a suspended run stay in the background."""
PAGE, PAGES = 25, 40
"""Nodes that are read at once, and how often, to find the folder of a run that is resumed."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SessionStart:
    """What a command begins with.

    Attributes:
        answer: the node of the answer that calls it.
    """

    answer: int
    folder: bytes | None
    variables: Mapping[bytes, bytes | None]


class ShellSession:
    """The session of one run.

    The folder is kept in the log, with the results of commands.  Variables may be secrets, so only
    this process's memory has their values; the log has the names of those that are set.

    Attributes:
        folder: where commands begin; None for the workspace.
        variables: those that commands exported; None for ones that they unset.
        background: the commands in the background, by handle.
        named_shell: whether a result has said that the shell is not the expected one.
    """

    def __init__(
        self,
        store: UserStore | None = None,
        thread_id: str = "",
        run_id: str = "",
        kept_by: ShellSessions | None = None,
    ) -> None:
        self.folder: bytes | None = None
        self.variables: dict[bytes, bytes | None] = {}
        self.background: dict[str, BackgroundCommand] = {}
        self.named_shell = False
        self._store = store
        self._thread_id = thread_id
        self._run_id = run_id
        self._kept_by = kept_by
        self._known = store is None
        self._reading = anyio.Lock()
        self._tasks = DetachedTasks()
        self._ending = False
        self._start: SessionStart | None = None
        self._news = ""

    @property
    def empty(self) -> bool:
        """Whether nothing would be lost with it."""
        return not (self.folder or self.variables or self.background)

    @property
    def running(self) -> list[BackgroundCommand]:
        """The commands that run in the background."""
        return [one for one in self.background.values() if one.end is None]

    async def begin(self, context: ToolContext, workspace: Path) -> SessionStart:
        """Return what a command begins with: the same for all calls of an answer.

        A call may wait for a person's approval while others of its answer run, and they must not
        move it to another folder than the question names.
        """
        await self._restore(context, workspace)
        answer = call_place(context.call_id)[0]
        if self._start is None or self._start.answer != answer:
            self._start = SessionStart(answer, self.folder, dict(self.variables))
        return self._start

    def take(self, place: bytes, before: Mapping[bytes, bytes], state: ShellState) -> None:
        """Take over what a command changed.

        Args:
            place, before: the folder and the variables that it began with.
        """
        # What it left as it was may have been changed meanwhile by another call of the answer.
        if state.folder and state.folder != place:
            self.folder = state.folder
        changed = self.variables | changes(before, state.variables)
        if sum(len(name) + len(value or b"") for name, value in changed.items()) <= MOST_VARIABLES:
            self.variables = changed

    def data(self) -> dict[str, Any]:
        """Return what the result of a command keeps of the session."""
        data: dict[str, Any] = {}
        try:
            if self.folder is not None:
                data["folder"] = self.folder.decode()
        except UnicodeDecodeError:
            # A resume begins in the workspace.
            pass
        names = [name.decode()[:64] for name, value in self.variables.items() if value is not None]
        if names:
            data["variables"] = sorted(names)[:MOST_NAMED]
        return data

    def news(self) -> str:
        """Return, once, what to tell the model of a session that was restored."""
        text, self._news = self._news, ""
        return text

    async def _restore(self, context: ToolContext, workspace: Path) -> None:
        """Read the folder from the log, where a dead process began the session.

        A folder outside of the workspace is not restored: the log may have been imported, and
        commands must not begin where nobody led them.
        """
        async with self._reading:
            if self._known:
                return
            data = await self._last_data(context)
            self._news = await self._restored(data, workspace) if data else ""
            self._known = True

    async def _restored(self, data: Mapping[str, Any], workspace: Path) -> str:
        if not (data.get("folder") or data.get("variables")):
            # A new shell is like the last.
            return ""
        where = "the workspace"
        folder = data.get("folder")
        if isinstance(folder, str) and await anyio.to_thread.run_sync(_within, folder, workspace):
            self.folder, where = os.fsencode(folder), "the folder of the last"
        text = f"The runtime was restarted: this is a new shell in {where}."
        # An imported log may hold anything there.
        given: object = data.get("variables")
        known = map(str, cast("list[object]", given)) if isinstance(given, list) else ()
        if names := [one for one in known if VARIABLE.fullmatch(one)]:
            text += f" Its variables are gone; set again what you need: {', '.join(names)}."
        return text

    async def _last_data(self, context: ToolContext) -> Mapping[str, Any] | None:
        """Return the data of the run's last command; None if it has none."""
        if context.step <= 1:
            return None
        place: int | None = call_place(context.call_id)[0]
        own = place
        for _ in range(PAGES):
            nodes = await context.store.log.branch(context.thread_id, place, limit=PAGE)
            for node in reversed(nodes):
                # Beyond the run's own nodes: an earlier run's shell has ended with it.
                if node.run_id not in (None, context.run_id):
                    return None
                done = [row for row in node.calls if row.tool == BASH and row.status == "done"]
                for row in reversed(done if node.seq != own else []):
                    if data := decode_result(row.body).data:
                        return data
            if not nodes or (place := nodes[0].parent_id) is None:
                return None
        return None

    # Commands in the background

    async def start(
        self,
        context: ToolContext,
        supervised: Supervised,
        command: str,
        script: bytes,
        limit: float | None,
    ) -> BackgroundCommand:
        """Run a command in the background, once the log owes a message about its end.

        The caller ends it if that fails.

        Raises:
            ToolError: as many as allowed are running.
            StoreError: it could not be recorded.
        """
        path = await anyio.to_thread.run_sync(commands.output_path, self._run_id, context.call_id)
        await anyio.to_thread.run_sync(commands.prune_outputs)
        output = OutputFile(path)
        # Of the same call before a crash.
        await anyio.to_thread.run_sync(output.remove)
        one = BackgroundCommand(context.call_id, command, supervised, output, limit)
        # Its place is taken first: the calls of an answer start together, and the log must not owe
        # a message about a command that there was no room for.
        self.check_room()
        self.background[one.handle] = one
        try:
            if self._store is not None:
                await background.owe_message(self._store, self._thread_id, self._run_id, one)
        except BaseException:
            del self.background[one.handle]
            raise
        self._tasks.start(self._follow(one, script))
        return one

    def check_room(self) -> None:
        """Refuse one command too many. Raises `ToolError`."""
        if len(running := self.running) >= MOST_RUNNING:
            names = ", ".join(one.handle for one in running)
            raise ToolError(
                f"{MOST_RUNNING} commands are in the background already: {names}.",
                cure="Kill one by `bash_output`.",
            )

    async def _follow(self, one: BackgroundCommand, script: bytes) -> None:
        await one.run(script)
        if self._ending:
            # Reported to whoever works on the thread next.
            return
        # A call that waits for the end tells it.
        text = "" if one.waiting else await background.end_message(one)
        try:
            if self._store is not None:
                key = background.key_of(self._run_id, one)
                await background.settle(self._store, self._thread_id, key, text)
        except AgentRuntimeError as error:
            _log.warning("The message of command %s will be sent later: %s", one.handle, error)
        await self._forget()

    async def _forget(self) -> None:
        """Drop the output of the oldest commands that have ended."""
        ended = [one for one in self.background.values() if one.end is not None]
        for one in ended[:-MOST_ENDED]:
            del self.background[one.handle]
            await anyio.to_thread.run_sync(one.output.remove)

    async def report_lost(self) -> None:
        """Post what became of the thread's commands whose run or process has ended."""
        if self._store is None:
            return
        try:
            own = frozenset(self.background)
            await background.report_lost(self._store, self._thread_id, self._run_id, own)
        except AgentRuntimeError as error:
            _log.warning("Messages of background commands will be sent later: %s", error)

    async def leave(self, *, suspended: bool) -> None:
        """End the session of a run that is over; keep that of a suspended one for a while."""
        if self._kept_by is not None:
            await self._kept_by.leave(self._run_id, suspended=suspended)

    async def end(self) -> None:
        """End the commands in the background; the thread's next run gets their messages.

        Cancellation: they are ended first.
        """
        self._ending = True
        for one in self.running:
            one.kill("killed with its run")
        await finished(self._tasks.wait())
        self.background.clear()


class ShellSessions:
    """The sessions of the runs of a process."""

    def __init__(self) -> None:
        self._sessions: dict[str, ShellSession] = {}
        self._expiring = DetachedTasks()
        self._left: dict[str, object] = {}

    def of(self, store: UserStore, thread_id: str, run_id: str) -> ShellSession:
        """Return the session of a run; a run that is resumed has the one that it had before."""
        self._left.pop(run_id, None)
        if run_id not in self._sessions:
            self._sessions[run_id] = ShellSession(store, thread_id, run_id, self)
        return self._sessions[run_id]

    async def leave(self, run_id: str, *, suspended: bool) -> None:
        """End the session of a run that nobody works on now; keep it a while if it is suspended."""
        session = self._sessions.get(run_id)
        if session is None:
            return
        if session.empty or not suspended:
            del self._sessions[run_id]
            await session.end()
        else:
            # A mark of this leaving: if the run is resumed and suspended again, the earlier timer
            # finds another.
            self._left[run_id] = left = object()
            self._expiring.start(self._expire(run_id, left))

    async def _expire(self, run_id: str, left: object) -> None:
        await anyio.sleep(SUSPENDED_SECONDS)
        if self._left.get(run_id) is left:
            del self._left[run_id]
            await self._sessions.pop(run_id).end()

    async def close(self) -> None:
        """End all sessions; the threads' next runs get the messages."""
        await self._expiring.close()
        sessions, self._sessions = list(self._sessions.values()), {}
        async with anyio.create_task_group() as group:
            for session in sessions:
                group.start_soon(session.end)


async def commands_note(context: ToolContext) -> str:
    """List the commands in the background, for the state note."""
    session = context.service(ShellSession)
    if session is None or not session.running:
        return ""
    lines = [f"- {one.handle}: {one.name}" for one in session.running]
    return "\n".join(["Your commands in the background:", *lines])


def _within(folder: str, workspace: Path) -> bool:
    # Resolved, since it may be behind a link; a NUL or a missing folder is not within.
    try:
        return Path(folder).resolve(strict=True).is_relative_to(workspace)
    except (OSError, ValueError):
        return False


def folder_text(folder: bytes | None, workspace: Path) -> str:
    """Return where a session stands, as models name it; empty for the workspace."""
    if folder is None or folder == os.fsencode(workspace):
        return ""
    path = Path(os.fsdecode(folder))
    return str(path.relative_to(workspace) if path.is_relative_to(workspace) else path)
