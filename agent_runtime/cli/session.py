"""Follow one run from the command line: progress, signals, and the report at its end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    contextmanager,
    suppress,
)
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import click

from agent_runtime.cli import exit_codes as exits
from agent_runtime.cli.display.figures import Spent
from agent_runtime.cli.display.progress import Progress, new_progress
from agent_runtime.cli.display.short_ids import said_id
from agent_runtime.cli.display.view import current_view
from agent_runtime.cli.steering import can_steer, steer
from agent_runtime.cli.terminal import (
    say,
    say_step,
    say_traceback,
    stdout_is_terminal,
    terminal_columns,
    write_json,
    write_output,
    write_styled,
)
from agent_runtime_config.counted import counted

if TYPE_CHECKING:
    import anyio
    from anyio.abc import TaskStatus

    from agent_runtime.cli.agents import Spec
    from agent_runtime.human.questions import Question
    from agent_runtime.run.results import RunResult, RunStream
    from agent_runtime.runtime import Runtime
    from agent_runtime_config import Settings
    from agent_runtime_storage.contract.records.usage import UsageTotal

PLANNED = ("run-start", "run-suspend", "run-finish")
"""Events at which the stored plan is shown."""
STEP = "step"
"""The purpose of the run's own calls, as opposed to memory's."""

StartFunction = Callable[["Runtime"], AbstractAsyncContextManager["RunStream"]]
ResumeFunction = Callable[["Runtime", str], AbstractAsyncContextManager["RunStream"]]


@dataclass(slots=True)
class FollowedRun:
    """The outcome of following a run.

    Attributes:
        run_id: empty if the run never began.
        result: None if the run never began.
        error: the error that ended it.
        interrupted: whether a signal ended it.
        shown: whether the answer can be read on the terminal already.
        asked: whether the questions that are left were asked at the terminal.
        begun: set with `run_id`.
    """

    run_id: str = ""
    result: RunResult | None = None
    error: Exception | None = None
    interrupted: bool = False
    shown: bool = False
    asked: bool = False
    begun: anyio.Event = field(default_factory=lambda: _new_event(), repr=False)

    @property
    def exit_code(self) -> int:
        """The exit code of a command that only made this run."""
        if self.result is not None and self.result.ok:
            return exits.SUCCESS
        if self.interrupted:
            return exits.INTERRUPTED
        if self.error is not None:
            return exits.code_of_error(self.error)
        return exits.SUCCESS if self.result is None else exits.code_of_result(self.result)


def _new_event() -> anyio.Event:
    import anyio

    return anyio.Event()


def follow(settings: Settings, start: StartFunction, resume: ResumeFunction) -> FollowedRun:
    """Open the runtime, start a run, show its progress and return how it ended.

    At a terminal its questions are asked here, and the run is resumed.

    SIGINT cancels the run and waits until its work is recorded; at a terminal the first one asks
    for a message to the run instead.  SIGTERM and SIGHUP let it end its step, for
    `AGENT_RUNTIME_PAUSE_TIMEOUT` seconds, and suspend it, so that a sweep continues it.  Another
    signal after these ends the process at once.  Errors of the run are in the outcome; errors of
    opening the store are raised.
    """
    import anyio

    from agent_runtime.cli.state import misplaced
    from agent_runtime.models.telemetry.export import exporting

    for problem in misplaced(settings):
        say(f"warning: {problem.text}")
        say(f"cure: {problem.cure}")
    with exporting():
        return anyio.run(_follow, settings, start, resume)


def run_task(
    settings: Settings, spec: Spec, task: str, thread: str | None, files: Sequence[str] = ()
) -> FollowedRun:
    """Run a task to its end on a thread (None for a new one), with progress."""
    from agent_runtime.cli.agents import build_agent

    agent = build_agent(spec)
    return follow(
        settings,
        lambda runtime: runtime.stream(
            agent, task, files=files, thread=thread, spec=spec.to_json()
        ),
        lambda runtime, run_id: runtime.resume_stream(run_id, agent),
    )


async def _follow(settings: Settings, start: StartFunction, resume: ResumeFunction) -> FollowedRun:
    import anyio

    from agent_runtime.concurrency import single_error
    from agent_runtime.log.run_spec import COMMAND
    from agent_runtime.runtime import Runtime

    outcome = FollowedRun()
    companion = COMPANION.get()
    progress = companion.progress() if companion else new_progress()
    work = anyio.CancelScope()
    stop = Stop(work)
    async with single_error(), anyio.create_task_group() as group:
        # Before the store is opened, so that a signal cannot end the process in between.
        await group.start(_watch, stop, outcome, progress)
        async with Runtime.open(settings, program=COMMAND) as runtime:

            def drain() -> None:
                group.start_soon(runtime.drain)

            async def work_on(starting: AbstractAsyncContextManager[RunStream]) -> None:
                with progress:
                    async with single_error(), anyio.create_task_group() as company:

                        def offer() -> bool:
                            if companion or not outcome.run_id or not can_steer():
                                return False
                            company.start_soon(steer, runtime, outcome.run_id, progress, stop.back)
                            return True

                        if companion is not None:
                            company.start_soon(companion.accompany, runtime, outcome, stop)
                        with stop.draining(drain, offer):
                            await _consume(runtime, starting, outcome, progress)
                        company.cancel_scope.cancel()

            with work:
                await work_on(start(runtime))
                # Outside of `progress`: its rows would overwrite what the person types.
                while not outcome.interrupted and await _answered(runtime, outcome, progress):
                    # The earlier result says `suspended`; if the resumed run dies, its row is read
                    # instead.
                    resumed, outcome.result = resume(runtime, outcome.run_id), None
                    await work_on(resumed)
            if outcome.result is not None and outcome.result.output is not None:
                outcome.shown = progress.showed(str(outcome.result.output))
            if outcome.result is None and outcome.run_id:
                # Outside of the cancelled scope, or this read would be cancelled too.
                outcome.result = await _left(runtime, outcome.run_id)
        group.cancel_scope.cancel()
    return outcome


class Companion(Protocol):
    """What `chat` does while each run that it begins works."""

    def progress(self) -> Progress:
        """Return what shows the run."""
        ...

    async def accompany(self, runtime: Runtime, outcome: FollowedRun, stop: Stop) -> None:
        """Work as long as the run works; cancelled when it ends."""
        ...


COMPANION: ContextVar[Companion | None] = ContextVar("COMPANION", default=None)
"""The companion of the runs that begin from now on, whatever command begins them."""


@dataclass(slots=True)
class Stop:
    """How a signal stops the work.

    Attributes:
        drain: suspends the run at its next step; None while there is none that it could suspend.
        offer: asks a person for a message to the run; returns False where nobody can type one.
        asking: whether a person is being asked.
    """

    work: anyio.CancelScope
    drain: Callable[[], None] | None = None
    offer: Callable[[], bool] = lambda: False
    asking: bool = False

    @contextmanager
    def draining(self, drain: Callable[[], None], offer: Callable[[], bool]) -> Generator[None]:
        """Let a signal drain, or ask for a message, for as long as a run works."""
        self.drain, self.offer = drain, offer
        try:
            yield
        finally:
            self.drain, self.offer = None, lambda: False

    def offered(self, kind: signal.Signals) -> bool:
        """Return whether the signal asks a person for a message instead of stopping the work."""
        if kind != signal.SIGINT or self.asking:
            return False
        self.asking = self.offer()
        return self.asking

    def back(self) -> None:
        """Let the next SIGINT ask again."""
        self.asking = False

    def by(self, kind: signal.Signals) -> str:
        """Stop the work as the signal asks for; return what to say."""
        if kind == signal.SIGINT or self.drain is None:
            self.work.cancel()
            return "Stopping: recording what was done. Press Ctrl-C again to leave at once."
        self.drain()
        return "Stopping: the run ends its step and is suspended. Ctrl-C leaves at once."


async def _watch(
    stop: Stop,
    outcome: FollowedRun,
    progress: Progress,
    *,
    task_status: TaskStatus[None],
) -> None:
    import anyio

    kinds = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        # `nohup` ignores it, so that a closed terminal does not end the run.
        kinds.append(signal.SIGHUP)
    # Determined now: once the terminal is closed, it is no longer known which were one.
    terminals = [number for number in range(3) if _is_terminal(number)]
    with anyio.open_signal_receiver(*kinds) as signals:
        task_status.started()
        async for kind in signals:
            if kind == signal.SIGHUP:
                _discard_output(terminals)
                if outcome.interrupted:
                    # The kernel and the shell may both send it for one closed terminal.
                    continue
            if outcome.interrupted:
                # Every step is written ahead, so nothing completed is lost.
                os._exit(exits.INTERRUPTED)
            if stop.offered(kind):
                continue
            outcome.interrupted = True
            progress.say(stop.by(kind))


def _is_terminal(number: int) -> bool:
    try:
        return os.isatty(number)
    except OSError:
        return False


def _discard_output(terminals: Sequence[int]) -> None:
    """Discard further output: writing to a closed terminal is an error."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in terminals:
        os.dup2(null, number)
    os.close(null)


async def _consume(
    runtime: Runtime,
    starting: AbstractAsyncContextManager[RunStream],
    outcome: FollowedRun,
    progress: Progress,
) -> None:
    from agent_runtime.concurrency import single_error
    from agent_runtime.errors import AgentRuntimeError

    try:
        async with single_error(), starting as stream:
            async for event in stream:
                # The first event is of the run itself; later ones may be of its sub-agents.
                if not outcome.run_id:
                    outcome.run_id = event.run_id
                    outcome.begun.set()
                progress.show(event)
                # An earlier run may have left the plan, and steps that were in progress end with
                # the run.
                if event.run_id == outcome.run_id and event.kind in PLANNED:
                    # A plan that cannot be read must not end the run.
                    with suppress(AgentRuntimeError):
                        progress.plan(await runtime.plans.current(event.thread_id))
            outcome.result = stream.result
    except AgentRuntimeError as error:
        # Any other error is a bug: it ends the command, and `main` reports it as internal.
        outcome.error = error


async def _answered(runtime: Runtime, outcome: FollowedRun, progress: Progress) -> bool:
    """Ask the run's questions; return whether it can be resumed."""
    from agent_runtime.cli.answer_prompt import ask_all, can_ask

    result = outcome.result
    if result is None or not result.questions or not can_ask():
        return False
    answered = await ask_all(runtime, result.questions, progress.showed)
    outcome.asked = not answered
    return answered


async def _left(runtime: Runtime, run_id: str) -> RunResult:
    """Return the result of a run that returned none, by its row."""
    from agent_runtime.run.results import RunResult
    from agent_runtime_storage.contract.records.usage import UsageTotal

    store = runtime.store_of()
    run = await store.runs.get(run_id)
    usage = await store.spending.usage_by_purpose(root_run_id=run.root_run_id)
    return RunResult(
        run_id=run.id,
        thread_id=run.thread_id,
        status=run.status,
        stop_reason=run.stop_reason or "error",
        detail=run.detail,
        output=None,
        steps=run.steps,
        usage=UsageTotal.of(usage.values()),
        usage_by_purpose=usage,
    )


def report(outcome: FollowedRun, *, as_json: bool) -> None:
    """Write the result to stdout, and to stderr how the run ended and how to resume it."""
    result = outcome.result
    if result is not None and as_json:
        write_json(result_json(result))
    elif result is not None and result.output is not None and not outcome.shown:
        _write_answer(str(result.output))
    if result is None and outcome.interrupted:
        say("It was stopped before the run began: nothing is recorded.")
    if result is not None and not (result.ok and current_view().quiet):
        # The error, which follows, says the same, and names its cure in a row of its own.
        error = outcome.error
        repeated = result.detail in (str(error), getattr(error, "message", ""))
        say(_summary(result, detail="" if repeated else result.detail))
    if outcome.error is not None:
        write_error(outcome.error)
    for question in result.questions if result is not None else ():
        _write_question(question, asked=outcome.asked)
    for line in _next_steps(outcome):
        say_step(line)


def _next_steps(outcome: FollowedRun) -> list[str]:
    """Return what a person can do next; nothing after a success."""
    from agent_runtime.cli.report.next_steps import after_error, after_result

    result, chat = outcome.result, current_view().chat
    if outcome.error is not None:
        thread = "" if result is None else result.thread_id
        return after_error(outcome.error, run=outcome.run_id, thread=thread, chat=chat)
    return [] if result is None else after_result(result, chat=chat)


def _write_answer(text: str) -> None:
    """Write an answer to stdout: as it is to a pipe, its Markdown laid out on a terminal."""
    if not stdout_is_terminal():
        write_output(text)
        return
    from agent_runtime.cli.display.markdown import markdown_rows

    color = current_view().color
    write_styled(
        row.shown(color=color) for row in markdown_rows(text, terminal_columns() - 1, indent=0)
    )


def _write_question(question: Question, *, asked: bool) -> None:
    """Write a question that is left, and how to answer it.

    Args:
        asked: whether it stands on the terminal already.
    """
    from agent_runtime.cli.answer_prompt import hint, show

    if not asked:
        show(question)
    if not current_view().chat:
        name = said_id(question.id)
        say_step(f"Answer with: agent-runtime answer {name} ANSWER   ({hint(question)})")


def write_error(error: BaseException) -> None:
    """Write an error and its cure to stderr."""
    from agent_runtime.errors import text_of
    from agent_runtime_config.errors import AgentRuntimeError
    from agent_runtime_config.log_filter import mask_secrets

    if not isinstance(error, AgentRuntimeError):
        # Its text is not ours, and may quote a URL with a password.
        say(f"error: internal error: {type(error).__name__}: {mask_secrets(text_of(error))}")
        say("cure: Run the command again as `agent-runtime --debug …` and report its output.")
        return
    say(f"error: {error.message}")
    if error.cure:
        say(f"cure: {error.cure}")


def result_json(result: RunResult) -> dict[str, Any]:
    """Return a result as `--json` prints it."""
    import dataclasses

    return {
        "run_id": result.run_id,
        "thread_id": result.thread_id,
        "status": result.status,
        "stop_reason": result.stop_reason,
        "detail": result.detail,
        "output": result.output,
        "steps": result.steps,
        "questions": [dataclasses.asdict(one) for one in result.questions],
        "usage": dataclasses.asdict(result.usage),
        "usage_by_purpose": {
            purpose: dataclasses.asdict(usage) for purpose, usage in result.usage_by_purpose.items()
        },
        "cost_usd": result.cost_usd,
    }


def _summary(result: RunResult, *, detail: str) -> str:
    steps = counted(result.steps, "step")
    paused = result.stop_reason == "paused"
    detail = "" if paused else detail
    end = "Done" if result.ok else "Paused" if paused else f"Stopped ({result.stop_reason})"
    text = usage_text(result.usage)
    for purpose, usage in result.usage_by_purpose.items():
        if purpose != STEP and usage.calls:
            text += f"; of these {purpose} ({counted(usage.calls, 'call')}): {usage_text(usage)}"
    return f"{end} after {steps}: {text}. {detail}".rstrip()


def usage_text(usage: UsageTotal) -> str:
    """Return tokens, cache share and cost on one line."""
    return Spent.of(usage).text()


def finish(outcome: FollowedRun, *, as_json: bool) -> None:
    """Report the outcome and leave the command with its exit code."""
    report(outcome, as_json=as_json)
    context = click.get_current_context()
    if outcome.error is not None and context.find_root().params.get("debug"):
        say_traceback(outcome.error)
    context.exit(outcome.exit_code)
