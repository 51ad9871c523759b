"""`agent-runtime memory`: show, export or update the memory of a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agent_runtime.cli.files import replacing
from agent_runtime.cli.groups import CommandGroup
from agent_runtime.cli.options import json_object_option
from agent_runtime.cli.parameters.ids import LAST_NODE, THREAD, NodeType
from agent_runtime.cli.runtime_calls import user_store, with_runtime
from agent_runtime.cli.session import usage_text
from agent_runtime.cli.terminal import (
    say,
    shorten,
    time_text,
    write_json,
    write_output,
    write_row,
)
from agent_runtime_config.counted import counted

if TYPE_CHECKING:
    from agent_runtime.agent import Agent
    from agent_runtime.events import Event
    from agent_runtime.memory.observational.explain import NodeExplanation
    from agent_runtime.memory.observational.report import (
        LeftOut,
        MemoryReport,
        ReportedObservation,
    )
    from agent_runtime.prompt.observation import Observation
    from agent_runtime.run.memory_maintenance import MaintenanceResult
    from agent_runtime.runtime import Runtime
    from agent_runtime_storage.contract.records.usage import UsageTotal

LINE_CHARS = 200
"""Most characters of the task, the next step and the ledger without `--full`."""

CAUSES = {
    "start": "the thread began",
    "agent": "the agent changed",
    "model": "another model took over",
    "messages": "too many messages",
    "tokens": "the prompt reached its limit",
    "overflow": "the provider refused the prompt as too long",
    "note": "a resumed run had a new note",
    "observed": "raw messages reached the threshold",
    "price": "keeping the messages would have cost more than removing them",
    "late": "observations were late, so results were shortened",
    "idle": "the provider's cache had expired",
}
"""Why a prompt was rewritten."""

model_option = click.option(
    "--model", help="A litellm name, or `offline`; by default the model of the thread's last run."
)


@click.group(cls=CommandGroup)
def memory() -> None:
    """Show a thread's memory, observe or reflect now, or export it."""


@memory.command()
@click.argument("thread", type=THREAD)
@click.option("--full", is_flag=True, help="Show the text of each observation, and the ledger.")
@click.option("--all", "everything", is_flag=True, help="Include those that were replaced.")
@model_option
@json_object_option
def show(thread: str, full: bool, everything: bool, model: str | None, as_json: bool) -> None:
    """Show what THREAD's prompt consists of, why it was rewritten, and what memory holds.

    Tokens are calibrated by the usage that the model's provider reported. Times of observations
    are in AGENT_RUNTIME_TIMEZONE, as in prompts; in JSON they are in UTC.
    """

    async def read(runtime: Runtime) -> tuple[MemoryReport, str]:
        agent = await _agent(runtime, thread, model)
        return await runtime.memory.report(agent, thread), runtime.settings.timezone

    found, zone = with_runtime(read)
    if as_json:
        write_json(report_json(found, everything=everything))
        return
    found = _in_zone(found, zone)
    for line in _head_lines(found, full=full):
        write_row(line)
    for one in found.held if everything else found.at("active", "prepared"):
        write_row(_held_line(one, zone))
        for line in one.observation.text.splitlines() if full else ():
            write_row(f"    {line}")
    if not found.held:
        say("This thread has no observations yet.")


@memory.command()
@click.argument("thread", type=THREAD)
@click.argument("node", type=NodeType())
@json_object_option
def explain(thread: str, node: int, as_json: bool) -> None:
    """Say where message NODE of THREAD, a number or `last`, is now.

    It may be in the prompt, as it was written or shortened; in lines of an observation; archived;
    outside of the prompt; or on another branch.
    """

    async def read(runtime: Runtime) -> tuple[NodeExplanation, str]:
        seq = node
        if node == LAST_NODE:
            seq = (await runtime.threads.get(thread)).head or 1
        return await runtime.memory.explain(thread, seq), runtime.settings.timezone

    found, zone = with_runtime(read)
    if as_json:
        write_json(_explanation_json(found))
        return
    for line in _explanation_lines(found, zone):
        write_row(line)


@memory.command()
@click.argument("thread", type=THREAD)
@model_option
@json_object_option
def observe(thread: str, model: str | None, as_json: bool) -> None:
    """Observe now everything that may leave THREAD's prompt, below the threshold too.

    The observations replace their messages at the next activation. Observations that rules wrote
    while the model failed are written again. Refused while a run of the thread is active.
    """

    from agent_runtime_config import load_settings

    async def observe_now(runtime: Runtime) -> MaintenanceResult:
        agent = await _agent(runtime, thread, model)
        return await runtime.memory.observe(agent, thread, on_event=_event_writer())

    done = with_runtime(observe_now)
    nothing = (
        f"There is nothing to observe: the prompt keeps the newest messages as they are "
        f"(AGENT_RUNTIME_LAST_MESSAGES={load_settings().last_messages}), and all older ones are "
        "observed."
    )
    _write_done(done, nothing, as_json=as_json)


@memory.command()
@click.argument("thread", type=THREAD)
@model_option
@json_object_option
def reflect(thread: str, model: str | None, as_json: bool) -> None:
    """Condense THREAD's oldest observations now, below the threshold too.

    The result enters the prompt once observations exceed the threshold. Refused while a run of
    the thread is active.
    """

    async def reflect_now(runtime: Runtime) -> MaintenanceResult:
        agent = await _agent(runtime, thread, model)
        return await runtime.memory.reflect(agent, thread, on_event=_event_writer())

    done = with_runtime(reflect_now)
    _write_done(done, "There is nothing to condense yet.", as_json=as_json)


@memory.command()
@click.argument("thread", type=THREAD)
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "markdown"]),
    default="jsonl",
    show_default=True,
    help="JSON lines with everything, or text for people.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write or replace; by default stdout.",
)
@model_option
def export(thread: str, form: str, output: Path | None, model: str | None) -> None:
    """Write THREAD's whole memory: its state, all activations, all observations with ledgers.

    Keep it as private as the thread itself.
    """
    lines = with_runtime(lambda runtime: _export(runtime, thread, model, form))
    if output is None:
        for line in lines:
            write_output(line)
        return
    with replacing(output) as file:
        file.writelines(f"{line}\n".encode() for line in lines)


async def _export(runtime: Runtime, thread: str, model: str | None, form: str) -> list[str]:
    import orjson

    report = await runtime.memory.report(await _agent(runtime, thread, model), thread)
    rows = await user_store(runtime).log.activations(thread)
    if form == "markdown":
        zone = runtime.settings.timezone
        return list(_markdown(_in_zone(report, zone), zone))
    head = report_json(report, everything=True)
    held = head.pop("observations")
    records = [{"type": "memory", "version": 1, **head}]
    for row in rows:
        activation = {"id": row.id, "cause": row.cause, "anchor": row.anchor, "run_id": row.run_id}
        # Exported as it is stored, so that later versions of the body need no change here.
        begins = orjson.loads(row.body)
        records.append(
            {"type": "activation", **activation, "created_at": row.created_at, "start": begins}
        )
    records += [{"type": "observation", **one} for one in held]
    return [orjson.dumps(record).decode() for record in records]


async def _agent(runtime: Runtime, thread: str, model: str | None) -> Agent[Any]:
    """Return an agent with the model given, of the thread's last run, or of the settings."""
    from agent_runtime.cli.agents import Spec, build_agent, is_of_command
    from agent_runtime.models import OFFLINE

    name = model
    if name is None:
        # Window, prices and calibration must be those of the model that the thread uses.
        runs = await user_store(runtime).runs.list(thread_id=thread, limit=20)
        specs = (Spec.from_json(run.spec).model for run in runs if is_of_command(run))
        name = str(next(specs, runtime.settings.model) or "")
    return build_agent(Spec("" if name in OFFLINE else name))


def _event_writer() -> Callable[[Event], None]:
    """Return a function that writes events to stderr, except the start and end of the run."""
    from agent_runtime.cli.display.tally import RunTally

    tally = RunTally()

    def write(event: Event) -> None:
        lines = tally.update(event)
        # A maintenance run is internal, and makes no steps.
        if event.kind not in ("run-start", "run-finish"):
            for line in lines:
                say(line.plain())

    return write


# Output


def _head_lines(found: MemoryReport, *, full: bool) -> Iterator[str]:
    tokens = found.tokens
    yield f"thread    {found.thread_id}, observational memory {'on' if found.on else 'off'}"
    yield (
        f"prompt    {tokens.total:,} tokens: {tokens.system:,} system, {tokens.tools:,} tools, "
        f"{tokens.observations:,} observations, {tokens.state:,} state, {tokens.raw:,} raw"
    )
    prepared = [one for one in found.at("prepared") if not one.observation.level]
    more = f"; {sum(one.of for one in prepared):,} of them are observed"
    yield f"raw       {_of(tokens.raw, found.observe_at)}{more if prepared else ''}"
    yield f"observed  {_of(tokens.observations, found.reflect_at)}"
    if found.activation is not None:
        one = found.activation
        at = "the beginning" if one.anchor is None else f"node {one.anchor}"
        cause = CAUSES.get(one.cause, one.cause)
        yield f"since     {time_text(one.created_at)}, activation {one.id} at {at}: {cause}"
    yield from _left_out_lines(found.left_out)
    for purpose, spent in found.usage.items():
        yield f"{purpose:<9} {_usage_text(spent)}"
    names = " ".join(found.ledger)
    listed = f"{counted(len(found.ledger), 'identifier')}: {names}" if names else ""
    for name, text in (("task", found.task), ("next", found.next_step), ("ledger", listed)):
        if text:
            yield f"{name:<9} {text if full else shorten(text, LINE_CHARS)}"


def _left_out_lines(left: LeftOut) -> Iterator[str]:
    """Say what left the prompt, and which observations replace it."""
    if left.messages:
        stands = "observations stand for them"
        if left.gaps:
            named = ", ".join(f"{first}-{last}" for first, last in left.gaps[:5])
            more = f" and {len(left.gaps) - 5} more" if len(left.gaps) > 5 else ""
            stands = f"no observation stands for nodes {named}{more} yet"
        yield f"left      {counted(left.messages, 'message')} left the prompt; {stands}"
    if left.shortened:
        named = " ".join(left.shortened[:5])
        more = f" and {len(left.shortened) - 5} more" if len(left.shortened) > 5 else ""
        results = counted(len(left.shortened), "result")
        yield f"shortened {results}, whole by `recall`: {named}{more}"
    if left.constraints:
        yield f"named     {left.constraints} of the user's requirements: no room for their texts"
    for one in left.archived:
        critical = f", {one.critical} of them critical" if one.critical else ""
        yield f"archived  nodes {one.first}-{one.last}: {counted(one.lines, 'line')}{critical}"


def _of(tokens: int, limit: int) -> str:
    return f"{tokens:,} of {limit:,} tokens, {tokens / max(1, limit):.0%}"


def _in_zone(found: MemoryReport, zone: str) -> MemoryReport:
    """Return a report with the times of its observations in a zone, as prompts show them."""
    from dataclasses import replace

    from agent_runtime.prompt.calendar import observation_in_zone

    held = (
        replace(one, observation=observation_in_zone(one.observation, zone)) for one in found.held
    )
    return replace(found, held=tuple(held))


def _held_line(one: ReportedObservation, zone: str) -> str:
    seen = one.observation
    times = sorted({line.at for line in seen.notes.lines if line.at})
    when = f"{' to '.join(times[:: max(1, len(times) - 1)])} {zone}" if times else "time unknown"
    by = seen.model or {"model": "a model", "rules": "rules", "archive": "archived"}[seen.origin]
    nodes = f"nodes {seen.first}-{seen.last}" if seen.first < seen.last else f"node {seen.first}"
    marks = [by]
    marks += [one.place] if one.place != "active" else []
    marks += ["provisional"] if seen.provisional else []
    return (
        f"o{seen.id:<4} level {seen.level}  {nodes}  {when}  "
        f"{one.tokens:,} tokens for {one.of:,} ({one.ratio:.1f} x)  {', '.join(marks)}"
    )


def _explanation_lines(found: NodeExplanation, zone: str) -> Iterator[str]:
    from agent_runtime.prompt.calendar import named_time

    yield (
        f"node      {found.node}, {found.role}, {time_text(found.created_at)}, "
        f"{found.tokens:,} tokens"
    )
    yield f"now       {found.summary}"
    if found.forks_from is not None:
        yield f"branch    leaves the thread's at node {found.forks_from}"
    for one in found.shortened:
        yield f"result    {one.handle} of {one.tool}: {one.shown:,} of {one.of:,} characters"
    for place, one in enumerate(found.observations):
        ready = "" if found.active else ", not in the prompt yet"
        of = f"nodes {one.first}-{one.last}, level {one.level}, {one.tokens:,} tokens"
        yield f"{'stands' if not place else 'made of':<9} o{one.id}, {of}{ready}"
        lines = found.lines if not place else ()
        if place and place == len(found.observations) - 1:
            lines = found.replaced
        for line in lines:
            yield f"          {named_time(line.at, zone)} {line.priority}: {line.text}"
    if found.constraint:
        yield f"required  {found.constraint}"
    yield f"recall    handle {found.handle} opens it"


def _explanation_json(found: NodeExplanation) -> dict[str, Any]:
    import dataclasses

    shown = {
        field.name: getattr(found, field.name)
        for field in dataclasses.fields(found)
        if field.name not in ("shortened", "observations", "lines", "replaced")
    }
    return shown | {
        "summary": found.summary,
        "shortened": [dataclasses.asdict(one) for one in found.shortened],
        "observations": [
            {"id": one.id, "level": one.level, "first": one.first, "last": one.last}
            for one in found.observations
        ],
        "lines": [dataclasses.asdict(line) for line in found.lines],
        "replaced": [dataclasses.asdict(line) for line in found.replaced],
    }


def _write_done(done: MaintenanceResult, nothing: str, *, as_json: bool) -> None:
    if as_json:
        import dataclasses

        write_json(
            {
                "run_id": done.run_id,
                "written": [_observation_json(one) for one in done.written],
                "usage": dataclasses.asdict(done.usage),
            }
        )
        return
    if not done.written:
        say(nothing)
        return
    for one in done.written:
        parts = f" instead of {len(one.parts)} observations" if one.parts else ""
        write_row(
            f"o{one.id}  nodes {one.first}-{one.last}{parts}, {one.tokens:,} tokens, "
            f"by {one.model or one.origin}{', provisional' if one.provisional else ''}"
        )
    say(f"Memory used {_usage_text(done.usage)}." if done.usage.calls else "No model was called.")


def _usage_text(usage: UsageTotal) -> str:
    return f"{counted(usage.calls, 'call')}, {usage_text(usage)}"


def report_json(found: MemoryReport, *, everything: bool) -> dict[str, Any]:
    """Return a thread's memory as `show --json` prints it."""
    import dataclasses

    held = found.held if everything else found.at("active", "prepared")
    return {
        "thread_id": found.thread_id,
        "on": found.on,
        "thresholds": {"observe": found.observe_at, "reflect": found.reflect_at},
        "ratio": found.ratio,
        "activation": found.activation and dataclasses.asdict(found.activation),
        "tokens": {**dataclasses.asdict(found.tokens), "total": found.tokens.total},
        "left_out": dataclasses.asdict(found.left_out),
        "task": found.task,
        "next_step": found.next_step,
        "ledger": found.ledger,
        "usage": {name: dataclasses.asdict(one) for name, one in found.usage.items()},
        "observations": [
            {
                **_observation_json(one.observation),
                "place": one.place,
                "tokens": one.tokens,
                "of": one.of,
                "ratio": round(one.ratio, 2),
                "created_at": one.created_at,
            }
            for one in held
        ],
    }


def _observation_json(one: Observation) -> dict[str, Any]:
    import dataclasses

    return {**dataclasses.asdict(one), "tokens": one.tokens, "text": one.text}


def _markdown(found: MemoryReport, zone: str) -> Iterator[str]:
    yield f"# Memory of thread {found.thread_id}"
    yield ""
    for line in _head_lines(found, full=True):
        name, _, text = line.partition(" ")
        yield f"- {name}: {text.strip()}"
    for one in found.held:
        yield ""
        yield f"## {_held_line(one, zone)}"
        yield ""
        yield "```text"
        # The text of an observation must not end the code block.
        yield one.observation.text.replace("```", "`\u200b``")
        yield "```"
