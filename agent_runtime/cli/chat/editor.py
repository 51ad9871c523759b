"""The line editor of `chat`, and plain lines where there is no terminal for it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

import anyio

from agent_runtime.cli.display.live import BEGIN, END
from agent_runtime.cli.terminal import error_stream, is_terminal, say

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.formatted_text import AnyFormattedText
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

PROMPT = "> "
HISTORY = "chat_history"
"""The file with the lines of earlier chats, in the user's folder for state."""
# Beyond it the older half is dropped when the next chat begins.
HISTORY_BYTES = 1_000_000
ATTACH = "/attach"
Prompts: TypeAlias = Callable[[str], Awaitable[Mapping[str, str]]]
MENU_ROWS = 4
"""Rows that are kept free for the menu of completions while the agent works."""
ERASE_DOWN = "\x1b[K\x1b7\x1b[C\x1b[J\x1b8"
"""As `ERASE` of the live rows, but the cursor stays in its column."""


class Lines(Protocol):
    """Where the lines of a chat come from."""

    def read(self) -> str | None:
        """Return what the user says next; None when the user leaves."""
        ...


class PlainLines:
    """Lines of stdin, for pipes and terminals that cannot move the cursor."""

    def read(self) -> str | None:
        """Return the next line; None at the end of the input or when the user leaves."""
        if not sys.stdin.isatty():
            return sys.stdin.readline() or None
        try:
            return input(PROMPT)
        except (EOFError, KeyboardInterrupt):
            say("")
            return None


def can_edit() -> bool:
    """Return whether there is a terminal for the line editor."""
    return (
        sys.stdin.isatty() and is_terminal() and os.environ.get("TERM", "dumb") not in ("", "dumb")
    )


class Editor:
    """A line editor with history and completion, at rest and while the agent works.

    Enter sends; Alt-Enter, or a backslash at the end of a line, begins a new line, and pasted lines
    stay together. What is typed when a run ends is kept for the next line.

    Args:
        commands: what the commands of a chat mean, by name.
        prompts: returns the same of the commands that begin with a text and are not known at once.

    Attributes:
        on_interrupt: called for each Ctrl-C, and for Esc, while the agent works; gets whether the
            key may stop the run at once.
    """

    def __init__(self, commands: Mapping[str, str], prompts: Prompts | None = None) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.application import get_app_session

        from agent_runtime.cli.chat.cursor import CursorFirst

        self.on_interrupt: Callable[[bool], None] = lambda _: None
        self._draft = ""
        self._rows: list[str] = []
        self._frames: deque[tuple[str, list[str]]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        # stdout may be a pipe that takes the answers.  The output is that of the session, since
        # what is written above the line comes from a thread that knows no other session.
        with redirect_stdout(error_stream()):
            output = self._output = get_app_session().output
        completer, history = _completer(commands, prompts), _history()
        self._at_rest: PromptSession[str] = PromptSession(
            history=history,
            completer=completer,
            multiline=True,
            key_bindings=_keys(),
            output=output,
        )
        self._at_work: PromptSession[str] = PromptSession(
            history=history,
            completer=completer,
            multiline=True,
            erase_when_done=True,
            reserve_space_for_menu=MENU_ROWS,
            key_bindings=_keys(lambda at_once: self.on_interrupt(at_once)),
            output=output,
        )
        output.erase_down = lambda: output.write_raw(ERASE_DOWN)
        for session in (self._at_rest, self._at_work):
            session.app.layout.container = CursorFirst(session.app.layout.container)

    def read(self) -> str | None:
        """Return what the user says next; None for Ctrl-D, or Ctrl-C on an empty line."""
        while True:
            draft, self._draft = self._draft, ""
            try:
                return self._at_rest.prompt(PROMPT, default=draft, handle_sigint=False)
            except EOFError:
                return None
            except KeyboardInterrupt:
                if not self._at_rest.default_buffer.text:
                    return None

    async def read_at_work(self) -> str:
        """Return what the user says while the agent works; a cancellation keeps the draft."""
        session, draft = self._at_work, self._draft
        self._draft = ""
        prompt = session.prompt_async(self._message, default=draft, handle_sigint=False)
        task = asyncio.ensure_future(prompt)
        try:
            return await asyncio.shield(task)
        except EOFError:
            # Ctrl-D leaves nothing while a run works.
            return ""
        except asyncio.CancelledError:
            self._draft = session.default_buffer.text
            with anyio.CancelScope(shield=True), suppress(EOFError):
                # Ended and not cancelled, so that it restores the terminal.
                if session.app.is_running:
                    session.app.exit(exception=EOFError())
                else:
                    task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            raise

    def _message(self) -> AnyFormattedText:
        """Return the rows above the line and, below them, the prompt."""
        from prompt_toolkit.formatted_text import ANSI

        # Not as a toolbar, which is missing on terminals that do not tell where the cursor is.
        return ANSI("".join(f"{row}\n" for row in self._rows) + PROMPT)

    def paint(self, above: str, rows: list[str]) -> None:
        """Print printable rows above the line, and show others right above it; from any thread."""
        self._frames.append((above, rows))
        if self._loop is not None:
            with suppress(RuntimeError):
                # The loop may have been closed; `flush` follows.
                self._loop.call_soon_threadsafe(self.flush)

    def flush(self) -> None:
        """Show what was given to `paint`; only from the thread of the editor."""
        above = ""
        while self._frames:
            printed, self._rows = self._frames.popleft()
            above += printed
        app = self._at_work.app
        if not app.is_running:
            self._output.write_raw(above)
            self._output.flush()
        elif not above:
            app.invalidate()
        else:
            # At once: what moves from the rows below to those above is never missing, or twice.
            self._output.write_raw(BEGIN)
            app.renderer.erase(leave_alternate_screen=False)
            self._output.write_raw(above)
            app.renderer.render(app, app.layout)
            self._output.write_raw(END)
            self._output.flush()

    @contextmanager
    def lines_above(self) -> Generator[None]:
        """Let what is written appear above the line that is being edited."""
        from prompt_toolkit.patch_stdout import patch_stdout

        self._loop = asyncio.get_running_loop()
        try:
            with patch_stdout(raw=True):
                yield
        finally:
            self._loop = None


def _keys(on_interrupt: Callable[[bool], None] | None = None) -> KeyBindings:
    from prompt_toolkit.filters import has_completions
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    def enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        # As shells do: a backslash at the end continues the line.
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    def new_line(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    keys.add("enter")(enter)
    keys.add("escape", "enter")(new_line)
    if on_interrupt is not None:

        def interrupt(event: KeyPressEvent) -> None:
            # The line stays: without it the terminal would turn the next Ctrl-C into a signal.
            on_interrupt(True)

        def escape(event: KeyPressEvent) -> None:
            # People press it more than once, and lose nothing by it.
            on_interrupt(False)

        keys.add("c-c")(interrupt)
        keys.add("escape", filter=~has_completions)(escape)
    return keys


def _completer(commands: Mapping[str, str], prompts: Prompts | None) -> Completer:
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
    from prompt_toolkit.document import Document

    paths = PathCompleter(expanduser=True)

    class Commands(Completer):
        """Completes commands and the paths of attachments, and nothing that is said."""

        def get_completions(
            self, document: Document, complete_event: CompleteEvent
        ) -> Iterator[Completion]:
            text = document.text_before_cursor
            name, space, rest = text.partition(" ")
            if not text.startswith("/"):
                return
            if not space:
                for one, meaning in commands.items():
                    if one.startswith(name):
                        yield Completion(one, -len(name), display_meta=meaning)
            elif name == ATTACH:
                yield from paths.get_completions(Document(rest), complete_event)

        async def get_completions_async(
            self, document: Document, complete_event: CompleteEvent
        ) -> AsyncGenerator[Completion, None]:
            for one in self.get_completions(document, complete_event):
                yield one
            text = document.text_before_cursor
            if prompts is not None and text.startswith("/") and " " not in text:
                for one, meaning in (await prompts(text)).items():
                    yield Completion(one, -len(text), display_meta=meaning)

    return Commands()


def _history() -> History:
    """Return the history of chats; of this one only if it cannot be stored."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    from agent_runtime_config.state import known_state_folder

    if (folder := known_state_folder()) is None:
        return InMemoryHistory()
    path = folder / HISTORY
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        # Before anything is written, since lines may hold what nobody else should read.
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
        path.chmod(0o600)
        _shorten(path)
    except OSError as error:
        say(f"The history of chats cannot be stored in {path}: {error.strerror}.")
        return InMemoryHistory()
    return FileHistory(str(path))


def _shorten(path: Path) -> None:
    """Keep only the newest half of a history that has become too large."""
    if path.stat().st_size <= HISTORY_BYTES:
        return
    text = path.read_bytes()[-HISTORY_BYTES // 2 :]
    # An entry begins with a comment after an empty line.
    path.write_bytes(text[max(0, text.find(b"\n\n# ")) :])
