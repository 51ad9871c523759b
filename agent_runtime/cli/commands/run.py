"""`agent-runtime run`, `resume` and `cancel`."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agent_runtime.cli import session
from agent_runtime.cli.agents import Spec, build_agent, is_of_command
from agent_runtime.cli.answer_prompt import ask_all, can_ask, parse_value
from agent_runtime.cli.confinement import Confinement, confinement_options, require_sandbox
from agent_runtime.cli.display.view import view_options
from agent_runtime.cli.options import budget_option, json_object_option, timeout_option
from agent_runtime.cli.runtime_calls import user_store, with_runtime
from agent_runtime.cli.terminal import say, write_json, write_row
from agent_runtime.cli.workspaces import is_other_folder, workspaces

if TYPE_CHECKING:
    from agent_runtime.agent import Agent
    from agent_runtime.runtime import Runtime
    from agent_runtime_config import Settings
    from agent_runtime_storage import UserStore
    from agent_runtime_storage.contract.records.log import Run

NO_MODEL = (
    "No language model is set. The offline model can only survey a folder and write a report of "
    "it. To use a language model set AGENT_RUNTIME_MODEL=anthropic/claude-sonnet-4-5 (any litellm "
    "name) and its provider's key, such as ANTHROPIC_API_KEY."
)

steps_option = click.option(
    "--max-steps",
    type=click.IntRange(min=1),
    help="The most model calls; by default the setting, 500.",
)
model_option = click.option(
    "--model", help="A litellm name, or `offline`; by default AGENT_RUNTIME_MODEL."
)
thread_option = click.option("--thread", help="The thread to continue; by default a new one.")
workspace_option = click.option(
    "--workspace",
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    help="The folder for the agent's file tools; without it the agent has none.",
)
attach_option = click.option(
    "--attach",
    "files",
    multiple=True,
    metavar="PATH|URL",
    help="An image or document for the task. Can be given several times.",
)
shell_option = click.option(
    "--allow-shell",
    is_flag=True,
    help="Let the agent run commands in the workspace; --sandbox confines them.",
)
ask_shell_option = click.option(
    "--ask-shell", is_flag=True, help="The same, but every command waits for your approval."
)
read_only_option = click.option(
    "--read-only", is_flag=True, help="Let the agent read the workspace, and change nothing in it."
)


def resolution_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that decide what is to become of interrupted calls."""
    for option in (
        click.option(
            "--fail",
            type=(str, str),
            multiple=True,
            metavar="CALL REASON",
            help="Let an interrupted call count as failed.",
        ),
        click.option(
            "--accept",
            type=(str, str),
            multiple=True,
            metavar="CALL RESULT",
            help="Take a text, or JSON, as the result of an interrupted call.",
        ),
        click.option(
            "--rerun",
            multiple=True,
            metavar="CALL",
            help="Run an interrupted call again: a tool's name, or the id of the call.",
        ),
    ):
        command = option(command)
    return command


def imported_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that continue an imported run."""
    flag = click.option(
        "--imported",
        is_flag=True,
        help="Resume an imported run, whose file you trust; you say again what its agent may do.",
    )
    return flag(workspace_option(shell_option(ask_shell_option(command))))


@click.command()
@click.argument("task", required=False)
@click.option(
    "--file",
    "task_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Read the task from a file.",
)
@attach_option
@thread_option
@model_option
@workspace_option
@steps_option
@budget_option
@timeout_option
@shell_option
@ask_shell_option
@confinement_options
@read_only_option
@json_object_option
@view_options
def run(
    task: str | None,
    task_file: Path | None,
    files: tuple[str, ...],
    thread: str | None,
    model: str | None,
    workspace: str | None,
    max_steps: int | None,
    budget_usd: float | None,
    timeout: float | None,
    allow_shell: bool,
    ask_shell: bool,
    confinement: Confinement,
    read_only: bool,
    as_json: bool,
) -> None:
    """Run TASK to its end, and print the agent's answer to stdout.

    TASK is read from stdin if it is `-`, or if it is missing and stdin is not a terminal.
    Progress goes to stderr. Ctrl-C stops the run; it can be resumed. At a terminal the agent may
    ask; without one, a call that needs an approval suspends the run (exit code 8). With
    --ask-shell every command needs an approval.
    """
    from agent_runtime_config import load_settings

    text = read_task(task, task_file)
    settings = limited(load_settings(), budget_usd, timeout)
    spec = new_spec(settings, model, workspace, max_steps, allow_shell, ask_shell, read_only)
    spec = confinement.on(spec, settings)
    if spec.model:
        say(limits(settings))
    session.finish(run_task(settings, spec, text, thread, files), as_json=as_json)


def read_task(task: str | None, task_file: Path | None) -> str:
    """Return the task from the argument, a file or stdin. Raises `click.UsageError`."""
    if task is not None and task_file is not None:
        raise click.UsageError("Give either TASK or --file, not both.")
    if task is None and task_file is None and sys.stdin.isatty():
        raise click.UsageError("Give a TASK, or --file, or pipe the task into stdin.")
    try:
        if task_file is not None:
            text = task_file.read_text(encoding="utf-8")
        else:
            text = sys.stdin.read() if task is None or task == "-" else task
    except UnicodeDecodeError:
        raise click.UsageError("The task is not UTF-8 text.") from None
    except OSError as error:
        raise click.UsageError(f"The task cannot be read: {error.strerror}.") from None
    if not text.strip():
        raise click.UsageError("The task is empty.")
    return text


def new_spec(
    settings: Settings,
    model: str | None,
    workspace: str | None,
    max_steps: int | None,
    allow_shell: bool,
    ask_shell: bool = False,
    read_only: bool = False,
) -> Spec:
    """Return the spec of a new run, and say what it lacks. Raises `click.UsageError`."""
    if read_only and (allow_shell or ask_shell):
        raise click.UsageError("--read-only excludes commands, which can write.")
    if (allow_shell or ask_shell) and workspace is None:
        option = "--ask-shell" if ask_shell else "--allow-shell"
        raise click.UsageError(f"{option} needs --workspace, the folder that commands run in.")
    name = _model_name(model or settings.model)
    spec = Spec(
        name,
        workspace,
        allow_shell or ask_shell,
        max_steps,
        ask_shell=ask_shell,
        read_only=read_only,
    )
    if not spec.model:
        say(NO_MODEL)
    if workspace is None:
        say("The agent has no file tools; --workspace PATH gives it tools for that folder.")
    # Without a terminal nobody would answer, and the run would be suspended.
    return dataclasses.replace(spec, asking=bool(spec.model) and can_ask())


def limited(
    settings: Settings, budget_usd: float | None = None, timeout: float | None = None
) -> Settings:
    """Return the settings with the limits of the options."""
    given = {"budget_usd": budget_usd, "run_timeout": timeout}
    return settings.model_copy(update={k: v for k, v in given.items() if v is not None})


def limits(settings: Settings) -> str:
    """Return the limits of a run other than its steps, and the options that set more."""
    dollars = {
        "${:g} for this run": settings.budget_usd,
        "${:g} for the thread": settings.thread_budget_usd,
        "${:g} a day": settings.day_budget_usd,
    }
    others = {
        "{:,} tokens for this run": settings.budget_tokens,
        "{:,} tokens for the thread": settings.thread_budget_tokens,
        "{:,} tokens a day": settings.day_budget_tokens,
        "{:,} steps with its sub-agents": settings.budget_steps,
    }
    seconds = {
        "{:g} seconds": settings.run_timeout,
        "{:g} seconds in all": settings.budget_seconds,
    }
    parts = [
        _known(dollars) or "any number of dollars (--budget-usd limits it)",
        _known(others),
        _known(seconds) or "any time (--timeout limits it)",
    ]
    return f"Limits other than steps: {'; '.join(filter(None, parts))}."


def _known(limits: Mapping[str, float | None]) -> str:
    return " and ".join(text.format(most) for text, most in limits.items() if most is not None)


def _model_name(name: str) -> str:
    """Return a model's name; empty for the offline model."""
    from agent_runtime.models import OFFLINE

    return "" if name in OFFLINE else name


def run_task(
    settings: Settings, spec: Spec, task: str, thread: str | None, files: Sequence[str] = ()
) -> session.FollowedRun:
    """Run a task to its end on a thread (None for a new one), with progress."""
    agent = build_agent(spec)
    return session.follow(
        settings,
        lambda runtime: runtime.stream(
            agent, task, files=files, thread=thread, spec=spec.to_json()
        ),
        lambda runtime, run_id: runtime.resume_stream(run_id, agent),
    )


def _check_choice(run_id: str | None, thread: str | None, imported: bool, *, permits: bool) -> None:
    """Refuse options of `resume` that contradict each other.

    Args:
        permits: whether an option says what the agent may do.
    """
    if run_id is not None and thread is not None:
        raise click.UsageError("Give either RUN or --thread, not both.")
    if imported and run_id is None:
        raise click.UsageError("--imported needs the RUN that you vouch for.")
    if permits and not imported:
        raise click.UsageError("--workspace and the shell can only be given with --imported.")


@click.command()
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--thread", help="The thread whose last run to resume.")
@resolution_options
@imported_options
@model_option
@steps_option
@budget_option
@timeout_option
@json_object_option
def resume(
    run_id: str | None,
    thread: str | None,
    rerun: tuple[str, ...],
    accept: tuple[tuple[str, str], ...],
    fail: tuple[tuple[str, str], ...],
    imported: bool,
    workspace: str | None,
    allow_shell: bool,
    ask_shell: bool,
    model: str | None,
    max_steps: int | None,
    budget_usd: float | None,
    timeout: float | None,
    as_json: bool,
) -> None:
    """Resume RUN, or the last run of this folder that did not succeed.

    Completed steps stay. An interrupted tool runs again only if it is idempotent, or with --rerun.
    A run keeps its sandbox, and the budget with which it started, unless an option sets another
    one.
    """
    import anyio.to_thread

    from agent_runtime_config import load_settings

    _check_choice(run_id, thread, imported, permits=bool(workspace or allow_shell or ask_shell))
    settings = limited(load_settings(), budget_usd if imported else None, timeout)

    async def prepare(runtime: Runtime) -> tuple[Run, Agent]:
        found = await _find(user_store(runtime), run_id, thread, imported=imported)
        if budget_usd is not None and not imported:
            await runtime.set_budget(found.id, usd=budget_usd)
        if can_ask():
            # Before the run is resumed: it would only be suspended again.
            await ask_all(runtime, await runtime.questions(run_id=found.id))
        if imported:
            # Nothing of the file says what the agent may do.
            spec = new_spec(settings, model, workspace, max_steps, allow_shell, ask_shell)
        else:
            spec = respecified(Spec.from_json(found.spec), model, max_steps)
        await anyio.to_thread.run_sync(require_sandbox, spec, settings)
        return found, build_agent(spec)

    found, agent = with_runtime(prepare, settings)
    outcome = session.follow(
        settings,
        lambda runtime: runtime.resume_stream(
            found.id,
            agent,
            rerun=rerun,
            accept={name: parse_value(value) for name, value in accept},
            fail=dict(fail),
            imported=imported,
        ),
        lambda runtime, run_id: runtime.resume_stream(run_id, agent),
    )
    session.finish(outcome, as_json=as_json)


async def _find(store: UserStore, run_id: str | None, thread: str | None, *, imported: bool) -> Run:
    """Return the run to resume.

    Raises:
        ConfigError: its agent is unknown here, or it is to be vouched for and was not imported.
    """
    from agent_runtime.errors import ConfigError
    from agent_runtime.run.takeover import check_own

    found = await store.runs.get(run_id) if run_id else await _last(store, thread)
    if imported:
        # An import has no spec.  That of another run says what its agent may do at most.
        if found.spec:
            raise ConfigError(
                f"Run {found.id} was not imported.", cure="Resume it without --imported."
            )
        return found
    check_own(found)
    if not is_of_command(found):
        raise ConfigError(
            f"Run {found.id} was not started from the command line, so its agent is unknown here.",
            cure="Resume it with `Runtime.resume` in the program that started it.",
        )
    return found


def respecified(
    spec: Spec,
    model: str | None,
    max_steps: int | None,
    *,
    workspace: str | None = None,
    allow_shell: bool = False,
) -> Spec:
    """Return a run's spec, changed by the options, and say what it lacks."""
    spec = dataclasses.replace(
        spec,
        model=_model_name(model or spec.model),
        max_steps=max_steps or spec.max_steps,
        workspace=workspace or spec.workspace,
        allow_shell=allow_shell or spec.allow_shell,
    )
    if spec.allow_shell and spec.read_only:
        raise click.UsageError("The run may only read, and --allow-shell would let it write.")
    if spec.allow_shell and spec.workspace is None:
        raise click.UsageError("--allow-shell needs --workspace, the folder that commands run in.")
    if not spec.model:
        say(NO_MODEL)
    return spec


async def _last(store: UserStore, thread: str | None) -> Run:
    """Return the newest run that can be resumed: the last of its thread, not done, not active.

    Without a thread only runs of this folder count; those of other folders are resumed by id.
    """
    from agent_runtime.errors import NotFound
    from agent_runtime.log.leases import is_dead
    from agent_runtime.log.run_spec import RunSpec
    from agent_runtime_storage.contract.records.log import ACTIVE

    if thread is not None:
        await store.threads.get(thread)
    seen: set[str] = set()
    runs = await store.runs.list(thread_id=thread, limit=1000)
    folders = await workspaces(store, runs)
    for run in runs:
        if thread is None and is_other_folder(folders[run.id]):
            continue
        # A sub-agent continues with its root, and a maintenance run has no task.
        if run.parent_run_id is not None or run.thread_id in seen or RunSpec.of(run).upkeep:
            continue
        # Newest first, so any further run of the thread is an earlier one: its branch has moved on.
        seen.add(run.thread_id)
        active = run.status in ACTIVE and not is_dead(run)
        over = run.status == "succeeded" or run.stop_reason == "imported"
        # An active run of the thread that was named is returned too: resuming it says who works on
        # it.
        if not over and (thread is not None or not active):
            return run
    raise NotFound(
        "There is no run to resume" + (f" on thread {thread}." if thread else " in this folder."),
        cure="`agent-runtime runs` lists the runs of other folders, too; resume one by its id, or "
        "start a run with `agent-runtime run`.",
    )


@click.command()
@click.argument("run_id", metavar="RUN")
@json_object_option
def cancel(run_id: str, as_json: bool) -> None:
    """Cancel RUN and its sub-agents, whichever process runs them."""
    reached = with_runtime(lambda runtime: runtime.cancel(run_id))
    if as_json:
        write_json({"run_id": run_id, "cancelled": reached})
    elif not reached:
        say(f"Run {run_id} is not active, so nothing was cancelled.")
    for one in () if as_json else reached:
        write_row(one)
