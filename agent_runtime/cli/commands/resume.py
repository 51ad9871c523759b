"""`agent-runtime resume`: continue a run that stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from agent_runtime.cli import session
from agent_runtime.cli.agents import Spec, build_agent, is_of_command
from agent_runtime.cli.answer_prompt import ask_all, can_ask, parse_value
from agent_runtime.cli.options import json_object_option
from agent_runtime.cli.parameters.confinement import require_sandbox
from agent_runtime.cli.parameters.ids import LAST, THREAD, IdType
from agent_runtime.cli.parameters.run_options import RunOptions, run_options, say_widened
from agent_runtime.cli.runtime_calls import user_store, with_runtime
from agent_runtime.cli.workspaces import is_other_folder, workspaces

if TYPE_CHECKING:
    from agent_runtime.runtime import Runtime
    from agent_runtime_config import Settings
    from agent_runtime_storage import UserStore
    from agent_runtime_storage.contract.records.log import Run


class _ResumableRun(IdType):
    """The id of a run; `last` is the last one that can be resumed."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        return LAST if value == LAST else super().convert(value, param, ctx)


def resolution_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that decide how interrupted calls end."""
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


@click.command()
@click.argument("run_id", metavar="[RUN]", required=False, type=_ResumableRun("run"))
@click.option("--thread", type=THREAD, help="The thread whose last run to resume.")
@resolution_options
@click.option(
    "--imported",
    is_flag=True,
    help="Resume an imported run, if you trust its file. Options say what its agent may do.",
)
@run_options
@json_object_option
def resume(
    run_id: str | None,
    thread: str | None,
    rerun: tuple[str, ...],
    accept: tuple[tuple[str, str], ...],
    fail: tuple[tuple[str, str], ...],
    imported: bool,
    options: RunOptions,
    as_json: bool,
) -> None:
    """Resume RUN, or the last run of this folder that did not succeed.

    Completed steps stay. An interrupted tool runs again only if it is idempotent, or with --rerun.

    The run keeps the options with which it started; those given now replace them, for later
    resumes too. Only an option lets the agent do more than before, and the command then says what.
    The task, the thread, and whether the agent may ask stay as they are.

    \b
    Examples:
      agent-runtime resume
      agent-runtime resume 3f9a2b1c --budget-usd 5
      agent-runtime resume last --model openai/gpt-5 --no-allow-shell
    """
    from agent_runtime_config import load_settings

    if run_id is not None and thread is not None:
        raise click.UsageError("Give either RUN or --thread, not both.")
    if imported and run_id is None:
        raise click.UsageError("--imported needs RUN, an imported run whose file you trust.")
    loaded = load_settings()
    run_id = None if run_id == LAST and not imported else run_id
    found, spec = with_runtime(
        lambda runtime: _prepare(runtime, run_id, thread, options, imported=imported), loaded
    )
    settings = options.limited(loaded, spec)
    agent = build_agent(spec)
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


async def _prepare(
    runtime: Runtime, run_id: str | None, thread: str | None, options: RunOptions, *, imported: bool
) -> tuple[Run, Spec]:
    """Return the run to resume and its spec, after its questions are asked and it is stored."""
    import anyio.to_thread

    from agent_runtime.run.queue.background_tasks import agent_run_of

    settings = runtime.settings
    found = await _find(user_store(runtime), run_id, thread, imported=imported)
    if options.budget_usd is not None and not imported:
        await runtime.set_budget(found.id, usd=options.budget_usd)
    if can_ask():
        # Asked first: a run that is resumed with open questions is only suspended again.
        await ask_all(runtime, await runtime.questions(run_id=found.id))
    if imported:
        # The imported file must not decide what the agent may do.
        return found, await anyio.to_thread.run_sync(options.new_spec, settings)
    begun = await agent_run_of(user_store(runtime), found)
    spec = await anyio.to_thread.run_sync(respecified, begun, options, settings)
    # Build the agent before the change is stored, because it may be impossible.
    build_agent(spec)
    if begun is found and spec != Spec.from_json(found.spec):
        await runtime.change_spec(found.id, spec.to_json())
    return found, spec


def respecified(run: Run, options: RunOptions, settings: Settings) -> Spec:
    """Return the spec with which a run is resumed, and say what its agent may do from now on.

    Raises:
        click.UsageError: the options contradict each other or the run.
        ConfigError: its sandbox cannot be used on this machine.
    """
    before = Spec.from_json(run.spec)
    spec = options.on(before, settings)
    require_sandbox(spec, settings)
    say_widened(before, spec)
    return spec


async def _find(store: UserStore, run_id: str | None, thread: str | None, *, imported: bool) -> Run:
    """Return the run to resume.

    Raises:
        ConfigError: its agent is unknown here, or --imported names a run that was not imported.
    """
    from agent_runtime.errors import ConfigError
    from agent_runtime.run.queue.background_tasks import agent_run_of
    from agent_runtime.run.takeover import check_own

    found = await store.runs.get(run_id) if run_id else await _last(store, thread)
    if imported:
        # An imported run has no spec. The spec of any other run limits its agent.
        if found.spec:
            raise ConfigError(
                f"Run {found.id} was not imported.", cure="Resume it without --imported."
            )
        return found
    check_own(found)
    if not is_of_command(await agent_run_of(store, found)):
        raise ConfigError(
            f"Run {found.id} was not started from the command line, so its agent is unknown here.",
            cure="Resume it with `Runtime.resume` in the program that started it.",
        )
    return found


async def _last(store: UserStore, thread: str | None) -> Run:
    """Return the newest run that can be resumed: last on its thread, neither done nor active.

    Without a thread, only runs of this folder count; resume those of other folders by id.
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
        # An active run of a named thread is returned too: the error of resuming it names the
        # process that works on it.
        if not over and (thread is not None or not active):
            return run
    raise NotFound(
        "There is no run to resume" + (f" on thread {thread}." if thread else " in this folder."),
        cure="`agent-runtime runs` lists the runs of other folders, too; resume one by its id, or "
        "start a run with `agent-runtime run`.",
    )
