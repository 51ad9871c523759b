"""A conversation on one thread: each line is a run, steering, or a command."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from typing import TYPE_CHECKING

from agent_runtime.cli import exit_codes as exits
from agent_runtime.cli import session
from agent_runtime.cli.agents import Spec
from agent_runtime.cli.chat.server_prompts import SEPARATOR
from agent_runtime.cli.chat.slash import SLASH, arguments_of, help_lines
from agent_runtime.cli.display.view import ViewOptions
from agent_runtime.cli.parameters.run_options import NO_MODEL
from agent_runtime.cli.report.next_steps import after_error
from agent_runtime.cli.runtime_calls import with_runtime
from agent_runtime.cli.terminal import say, say_step, write_row

if TYPE_CHECKING:
    from agent_runtime.cli.chat.editor import Lines
    from agent_runtime.cli.chat.steering import Steering
    from agent_runtime.cli.session import FollowedRun
    from agent_runtime.runtime import Runtime
    from agent_runtime_config import Settings

LEAVE = ("/exit", "/quit")


class Conversation:
    """The state of a chat.

    Attributes:
        code: the exit code of the last run.
        files: to attach to the next line.
        begun: whether something was said, so that there is a thread.
    """

    def __init__(
        self,
        settings: Settings,
        spec: Spec,
        thread: str,
        view: ViewOptions,
        steering: Steering | None,
    ) -> None:
        self.code = exits.SUCCESS
        self.files: list[str] = []
        self.begun = False
        self._settings = settings
        self._spec = spec
        self._thread = thread
        self._view = view
        self._steering = steering
        self._model_chosen = ""

    def hold(self, lines: Lines) -> None:
        """Take lines until the user leaves."""
        while (line := self._next(lines)) is not None:
            text = line.strip()
            if text in LEAVE:
                return
            # Two slashes say one: a line may begin with a path.
            if text.startswith("/") and not text.startswith("//"):
                self._command(text)
            # An empty line continues a run that was interrupted.
            elif text or self._paused():
                self._say(line.removeprefix("/") if text.startswith("//") else line)

    def _next(self, lines: Lines) -> str | None:
        if self._steering is not None and self._steering.waiting:
            return self._steering.waiting.pop(0)
        return lines.read()

    def _say(self, line: str) -> None:
        """Run a line; if a run waits on the thread, send it the line and continue it."""
        from agent_runtime.errors import AgentRuntimeError

        self.begun = True
        try:
            waiting = with_runtime(
                lambda runtime: self._sent_to_waiting(runtime, line), self._settings
            )
        except AgentRuntimeError as error:
            self._failed(error)
            return
        if waiting:
            self._main(self._with_model(["resume", waiting]))
        else:
            # Taken first, so that a line that fails does not attach them twice.
            files, self.files = self.files, []
            outcome = session.run_task(self._settings, self._spec, line, self._thread, files)
            self._ended(outcome)
        self._continue_steered()

    def _continue_steered(self) -> None:
        """Continue runs that were interrupted only to be sent something."""
        steering = self._steering
        while steering is not None and steering.steered and (run := self._paused()):
            steering.steered = False
            self._main(self._with_model(["resume", run]))

    def _ended(self, outcome: FollowedRun) -> None:
        # What was sent to an interrupted run continues it: there is no end to report.
        if not (self._steering is not None and self._steering.steered and self._paused()):
            session.report(outcome, as_json=False)
        self.code = outcome.exit_code

    def _paused(self) -> str:
        """Return the run that was interrupted last and waits; empty if there is none."""
        outcome = None if self._steering is None else self._steering.outcome
        result = None if outcome is None else outcome.result
        paused = result is not None and result.stop_reason == "paused"
        return result.run_id if paused and result is not None else ""

    async def _sent_to_waiting(self, runtime: Runtime, line: str) -> str:
        """Send a line to the run that waits on the thread; return its id, empty if none waits."""
        from agent_runtime.errors import NotFound

        try:
            active = (await runtime.threads.get(self._thread)).active_run
        except NotFound:
            return ""
        if active is None:
            return ""
        run = await runtime.store_of().runs.get(active)
        if run.status != "suspended":
            return ""
        if line.strip():
            await runtime.steer(active, line)
        return active

    def _command(self, text: str) -> None:
        name, _, rest = text.partition(" ")
        rest = rest.strip()
        command = SLASH.get(name)
        if name == "/prompts" or (command is None and SEPARATOR in name):
            self._prompt(name.removeprefix("/"), rest)
        elif command is None:
            say(f"There is no command {name}: /help lists them. For a message with / type //.")
        elif name == "/help":
            for line in help_lines():
                say(line)
        elif name == "/model":
            self._model(rest)
        elif name == "/files":
            self._list_files()
        elif (arguments := arguments_of(command, self._thread, rest)) is None:
            say(f"Write {name} {command.takes}.")
        elif name == "/attach":
            self.files.append(rest)
        else:
            self._main(self._with_model(arguments))
            self._continue_steered()

    def _model(self, name: str) -> None:
        from agent_runtime.models import OFFLINE, check_name

        if name:
            try:
                if name not in OFFLINE:
                    check_name(name)
            except Exception as error:
                self._failed(error)
                return
            self._spec = dataclasses.replace(self._spec, model="" if name in OFFLINE else name)
            self._model_chosen = name
        if self._spec.model:
            write_row(f"The model is {self._spec.model}.")
        else:
            say(NO_MODEL)

    def _with_model(self, arguments: list[str]) -> list[str]:
        """Return the arguments of a command, with the model that `/model` has chosen.

        An earlier run goes on, or is answered again, by that model, too.
        """
        runs = arguments[0] == "resume" or arguments[0] in ("edit", "regenerate")
        if not self._model_chosen or not runs or "--model" in arguments:
            return arguments
        # After `--` nothing is an option.
        at = arguments.index("--") if "--" in arguments else len(arguments)
        return [*arguments[:at], "--model", self._model_chosen, *arguments[at:]]

    def _prompt(self, name: str, rest: str) -> None:
        """Send a prompt of an MCP server to the agent, or list the prompts."""
        from agent_runtime.cli.chat import server_prompts

        try:
            text = server_prompts.chosen(self._spec, name, rest)
        except Exception as error:
            self._failed(error)
            return
        if text:
            self._say(text)

    def _list_files(self) -> None:
        from agent_runtime.errors import AgentRuntimeError

        try:
            stored = with_runtime(lambda runtime: runtime.files.of(self._thread), self._settings)
        except AgentRuntimeError:
            # There is no thread before the first line.
            stored = []
        for file in stored:
            write_row(f"{file.name or file.uri}  {file.media_type}")
        for path in self.files:
            write_row(f"{path}  (for the next line)")
        if not stored and not self.files:
            say("There are no files; /attach PATH adds one to the next line.")

    def _failed(self, error: BaseException) -> None:
        session.write_error(error)
        for line in after_error(error, chat=True):
            say_step(line)
        self.code = exits.code_of_error(error)

    def _main(self, arguments: list[str]) -> None:
        """Run a command of the command line; its errors are shown, and the chat goes on."""
        from agent_runtime.cli.main import main

        with suppress(SystemExit):
            code = main.main(
                arguments, prog_name="agent-runtime", standalone_mode=False, obj=self._view
            )
            self.code = code if isinstance(code, int) else exits.SUCCESS
