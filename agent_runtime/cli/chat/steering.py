"""What a person types while the agent works: steering, and interruptions."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING

import anyio

from agent_runtime.cli.chat.editor import Editor
from agent_runtime.cli.chat.rows_above import RowsAbove
from agent_runtime.cli.display.progress import PlainProgress
from agent_runtime.cli.display.screen import LiveProgress
from agent_runtime.cli.display.view import current_view
from agent_runtime.cli.terminal import stdout_is_terminal
from agent_runtime.concurrency import single_error

if TYPE_CHECKING:
    from agent_runtime.cli.display.progress import Progress
    from agent_runtime.cli.session import FollowedRun, Stop
    from agent_runtime.runtime import Runtime

KEYS = "Enter tells the agent · Esc or Ctrl-C interrupts it"
# More waiting presses say nothing more; the second stops the run at once.
MOST_PRESSED = 10
INTERRUPTED = (
    "It stops after this step. Type a message to continue with; Ctrl-C again stops it at once."
)


class ChatProgress(LiveProgress):
    """The lines and the answer of a run above the line that is being edited."""

    def __init__(self, editor: Editor) -> None:
        self._editor = editor
        view = current_view()
        super().__init__(
            view,
            answers=stdout_is_terminal(),
            hint=KEYS,
            region=RowsAbove(editor, color=view.color),
        )
        self._above: AbstractContextManager[None] | None = None

    def __enter__(self) -> None:
        self._above = self._editor.lines_above()
        self._above.__enter__()
        super().__enter__()

    def __exit__(self, *_: object) -> None:
        super().__exit__(*_)
        # The last rows were handed over by the display's thread while this one waited for it.
        self._editor.flush()
        if self._above is not None:
            self._above.__exit__(None, None, None)


class QuietChatProgress(PlainProgress):
    """The keys alone, above the line that is being edited."""

    def __init__(self, editor: Editor) -> None:
        super().__init__(current_view())
        self._editor = editor
        self._above: AbstractContextManager[None] | None = None

    def __enter__(self) -> None:
        self._above = self._editor.lines_above()
        self._above.__enter__()
        self._editor.paint("", [KEYS])

    def __exit__(self, *_: object) -> None:
        self._editor.paint("", [])
        self._editor.flush()
        if self._above is not None:
            self._above.__exit__(None, None, None)


class Steering:
    """The companion of a chat's runs.

    Attributes:
        outcome: of the run that is followed, or was last.
        steered: whether an interrupted run was sent something, so that it continues.
        waiting: what was typed for after the run.
    """

    def __init__(self, editor: Editor) -> None:
        self.outcome: FollowedRun | None = None
        self.steered = False
        self.waiting: list[str] = []
        self._editor = editor
        self._interrupted = False
        self._early: list[str] = []
        self._progress: Progress = PlainProgress()

    def progress(self) -> Progress:
        """Return what shows the run."""
        quiet = current_view().quiet
        self._progress = (QuietChatProgress if quiet else ChatProgress)(self._editor)
        return self._progress

    async def accompany(self, runtime: Runtime, outcome: FollowedRun, stop: Stop) -> None:
        """Send what is typed to the run, and interrupt it, until it ends."""
        self.outcome = outcome
        self.steered = self._interrupted = False
        send, pressed = anyio.create_memory_object_stream[bool](MOST_PRESSED)

        def press(at_once: bool) -> None:
            with suppress(anyio.WouldBlock):
                send.send_nowait(at_once)

        self._editor.on_interrupt = press
        async with single_error(), send, pressed, anyio.create_task_group() as group:
            group.start_soon(self._read, runtime, outcome)
            group.start_soon(self._tell_early, runtime, outcome)
            async for at_once in pressed:
                if at_once or not self._interrupted:
                    await self._interrupt(runtime, outcome, stop, at_once=at_once)

    async def _read(self, runtime: Runtime, outcome: FollowedRun) -> None:
        while True:
            text = (await self._editor.read_at_work()).strip()
            if text.startswith("/"):
                self.waiting.append(text)
                self._progress.say(f"{text} waits until the agent has finished.")
            elif text:
                await self._tell(runtime, outcome, text)

    async def _tell(
        self, runtime: Runtime, outcome: FollowedRun, text: str, *, early: bool = False
    ) -> None:
        from agent_runtime.errors import AgentRuntimeError

        if not outcome.run_id:
            self._early.append(text)
            self._progress.say(f"> {text}\nThe agent reads it once the run has begun.")
            return
        try:
            await runtime.steer(outcome.run_id, text)
        except AgentRuntimeError as error:
            # It has just ended, or has too much to read: the text is not lost.
            self.waiting.append(text)
            self._progress.say(f"{error.message} It is said afterwards.")
            return
        self.steered = self.steered or self._interrupted
        if not early:
            self._progress.say(f"> {text}")

    async def _tell_early(self, runtime: Runtime, outcome: FollowedRun) -> None:
        """Send what was typed before the run began; if it never begins, keep that for later."""
        try:
            await outcome.begun.wait()
            while self._early:
                await self._tell(runtime, outcome, self._early.pop(0), early=True)
        finally:
            self.waiting += self._early
            self._early.clear()

    async def _interrupt(
        self, runtime: Runtime, outcome: FollowedRun, stop: Stop, *, at_once: bool
    ) -> None:
        from agent_runtime.errors import AgentRuntimeError

        if not (at_once or outcome.run_id):
            return
        if self._interrupted or not outcome.run_id:
            outcome.interrupted = True
            self.steered = False
            stop.work.cancel()
            return
        self._interrupted = True
        self._progress.say(INTERRUPTED)
        with suppress(AgentRuntimeError):
            # It may have ended meanwhile.
            await runtime.pause(outcome.run_id)
