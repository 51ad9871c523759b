"""A person's part in runs: `questions`, `answer`, `approvals`, `cancel`, `pause`, `steer`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from agent_runtime.cli.answer_prompt import (
    ask_all,
    asker,
    call_lines,
    can_ask,
    hint,
    parse,
    patterns_text,
    show,
)
from agent_runtime.cli.display.short_ids import said_id, short_id
from agent_runtime.cli.options import json_lines_option, json_object_option
from agent_runtime.cli.parameters.ids import LEAST, QUESTION, RUN, THREAD
from agent_runtime.cli.runtime_calls import user_store, with_runtime
from agent_runtime.cli.terminal import say, say_step, shorten, time_text, write_json, write_row

if TYPE_CHECKING:
    from agent_runtime.human.questions import Question
    from agent_runtime.runtime import Runtime
    from agent_runtime_storage.contract.records.questions import ApprovalRow


@click.command()
@click.option("--thread", type=THREAD, help="Only those of this thread.")
@click.option("--all", "everything", is_flag=True, help="Include those that are no longer open.")
@json_lines_option
def questions(thread: str | None, everything: bool, as_json: bool) -> None:
    """List the questions that runs wait for."""
    from agent_runtime.human.display import escape_invisible

    async def read(runtime: Runtime) -> list[Question]:
        if thread is not None:
            await user_store(runtime).threads.get(thread)
        return await runtime.questions(thread=thread, status=None if everything else "open")

    found = with_runtime(read)
    for question in found:
        if as_json:
            write_json(dataclasses.asdict(question))
            continue
        approval = question.kind in ("approval", "interrupted")
        what = question.tool if approval else escape_invisible(question.text)
        who = f"{asker(question)}: " if question.role else ""
        write_row(
            f"{short_id(question.id)}  {time_text(question.asked_at)}  {question.status:<9}  "
            f"{question.kind:<8}  run {short_id(question.run_id)}  {who}{what}"
        )
        for line in call_lines(question) if approval else ():
            write_row(f"    {line}")
    if not found and not as_json:
        say("There are no questions." if everything else "No run waits for an answer.")


@click.command()
@click.argument("question_id", metavar="QUESTION", type=QUESTION)
@click.argument("text", metavar="[ANSWER]", required=False)
@json_object_option
def answer(question_id: str, text: str | None, as_json: bool) -> None:
    """Answer QUESTION, which a run waits for.

    ANSWER is a choice or its number (several are separated by commas) or a text. For an approval
    it is `yes`, `always` (for the rest of the thread) or `no`, optionally followed by a reason;
    for an interrupted call `rerun`, `accept RESULT` or `fail REASON`.
    Without ANSWER the question is shown and answered in the terminal.
    """
    from agent_runtime.human.questions import Question
    from agent_runtime.human.waiting import questions_of, resumed_by_itself

    async def give(runtime: Runtime) -> tuple[str, bool]:
        store = user_store(runtime)
        question = Question.of(await store.questions.get(question_id))
        # The root of a sub-agent is resumed instead of it, unless it works in the background.
        root = (await resumed_by_itself(store, await store.runs.get(question.run_id))).id
        if text is not None:
            return root, await runtime.answer(question_id, parse(question, text))
        if not can_ask():
            show(question)
            raise click.UsageError(f"Give the ANSWER: {hint(question)}.")
        await ask_all(runtime, [question])
        # The person may have left some open.
        return root, not await questions_of(store, root)

    run_id, ready = with_runtime(give)
    if as_json:
        write_json({"question": question_id, "run_id": run_id, "ready": ready})
    elif ready:
        say_step(f"Resume it with: agent-runtime resume {said_id(run_id)}")
    else:
        say(
            f"Run {said_id(run_id)} is still running, or waits for more answers: "
            "agent-runtime questions"
        )


@click.command()
@click.argument("thread", type=THREAD)
@click.option("--forget", metavar="ID", help="Revoke this one.")
@json_lines_option
def approvals(thread: str, forget: str | None, as_json: bool) -> None:
    """List what is allowed for the rest of THREAD, or revoke some of it."""

    async def read(runtime: Runtime) -> list[ApprovalRow]:
        if forget is not None:
            await runtime.forget_approval(thread, await _approval(runtime, thread, forget))
        return await runtime.approvals(thread)

    found = with_runtime(read)
    for row in found:
        if as_json:
            write_json(dataclasses.asdict(row))
        else:
            what = patterns_text(row.arguments) or "every call"
            agent = f"  by {shorten(row.agent, 60)}" if row.agent else ""
            write_row(f"{short_id(row.id)}  {time_text(row.created_at)}  {row.tool}  {what}{agent}")
    if not found and not as_json:
        say(f"Nothing is allowed for the rest of thread {thread}.")


async def _approval(runtime: Runtime, thread: str, text: str) -> str:
    """Return the id of the approval that a text names; the text itself unless it names one."""
    ids = [row.id for row in await runtime.approvals(thread)]
    found = [one for one in ids if one.startswith(text) or one.endswith(text)]
    # The text itself then gives the error that names it.
    return found[0] if len(found) == 1 and len(text) >= LEAST else text


@click.command()
@click.argument("run_id", metavar="RUN", type=RUN)
@json_object_option
def cancel(run_id: str, as_json: bool) -> None:
    """Cancel RUN and its sub-agents, whichever process runs them.

    A cancelled run can be resumed.
    """
    reached = with_runtime(lambda runtime: runtime.cancel(run_id))
    if as_json:
        write_json({"run_id": run_id, "cancelled": reached})
    elif not reached:
        say(f"Run {said_id(run_id)} is not active, so nothing was cancelled.")
    for one in () if as_json else reached:
        write_row(one)


@click.command()
@click.argument("run_id", metavar="RUN", type=RUN)
def pause(run_id: str) -> None:
    """Suspend RUN at its next step, whichever process runs it; `resume` continues it."""
    with_runtime(lambda runtime: runtime.pause(run_id))
    say_step(f"It pauses at its next step. Resume it with: agent-runtime resume {said_id(run_id)}")


@click.command()
@click.argument("run_id", metavar="RUN", type=RUN)
@click.argument("text")
def steer(run_id: str, text: str) -> None:
    """Send TEXT to RUN; its model reads it at its next step."""
    if not text.strip():
        raise click.UsageError("The TEXT is empty.")
    with_runtime(lambda runtime: runtime.steer(run_id, text))
