"""`agent-runtime questions`, `answer`, `approvals`, `pause`, `steer`: what people say to runs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from agent_runtime.cli.answer_prompt import asker, call_lines, patterns_text
from agent_runtime.cli.options import json_lines_option, json_object_option
from agent_runtime.cli.terminal import say, time_text, write_json, write_output

if TYPE_CHECKING:
    from agent_runtime.human.questions import Question
    from agent_runtime_config import Settings
    from agent_runtime_storage.contract.question_records import ApprovalRow


@click.command()
@click.option("--thread", help="Only those of this thread.")
@click.option("--all", "everything", is_flag=True, help="Those that are not open any more, too.")
@json_lines_option
def questions(thread: str | None, everything: bool, as_json: bool) -> None:
    """List the questions that runs wait for."""
    import anyio

    from agent_runtime.human.display import escape_invisible
    from agent_runtime_config import load_settings

    found = anyio.run(_questions, load_settings(), thread, everything)
    for question in found:
        if as_json:
            write_json(dataclasses.asdict(question))
            continue
        approval = question.kind == "approval"
        what = question.tool if approval else escape_invisible(question.text)
        who = f"{asker(question)}: " if question.role else ""
        write_output(
            f"{question.id}  {time_text(question.asked_at)}  {question.status:<9}  "
            f"{question.kind:<8}  run {question.run_id}  {who}{what}"
        )
        for line in call_lines(question) if approval else ():
            write_output(f"    {line}")
    if not found and not as_json:
        say("No run waits for an answer." if not everything else "Nothing was ever asked.")


async def _questions(settings: Settings, thread: str | None, everything: bool) -> list[Question]:
    from agent_runtime.runtime import Runtime

    async with Runtime.open(settings) as runtime:
        if thread is not None:
            await runtime.store.of(settings.user).thread(thread)
        return await runtime.questions(thread=thread, status=None if everything else "open")


@click.command()
@click.argument("question_id", metavar="QUESTION")
@click.argument("text", metavar="[ANSWER]", required=False)
@json_object_option
def answer(question_id: str, text: str | None, as_json: bool) -> None:
    """Answer QUESTION, which a run waits for.

    ANSWER is a choice or its number (several with commas between), a text, or for an approval
    `yes`, `always` (for the rest of the thread) or `no`, with a reason behind it if there is one.
    Without ANSWER the question is shown, and answered in the terminal.
    """
    import anyio

    from agent_runtime_config import load_settings

    run_id, ready = anyio.run(_answer, load_settings(), question_id, text)
    if as_json:
        write_json({"question": question_id, "run_id": run_id, "ready": ready})
    elif ready:
        say(f"Go on with: agent-runtime resume {run_id}")
    else:
        say(f"Run {run_id} is still at work, or waits for more answers: agent-runtime questions")


async def _answer(settings: Settings, question_id: str, text: str | None) -> tuple[str, bool]:
    from agent_runtime.cli.answer_prompt import ask_all, can_ask, hint, parse, show
    from agent_runtime.human.questions import Question
    from agent_runtime.runtime import Runtime

    async with Runtime.open(settings) as runtime:
        store = runtime.store.of(settings.user)
        question = Question.of(await store.question(question_id))
        root = (await store.run(question.run_id)).root_run_id
        if text is not None:
            return root, await runtime.answer(question_id, parse(question, text))
        if not can_ask():
            show(question)
            raise click.UsageError(f"Give the ANSWER: {hint(question)}.")
        await ask_all(runtime, [question])
        return root, not await runtime.questions(run_id=root)


@click.command()
@click.argument("thread")
@click.option("--forget", metavar="ID", help="Ask again for what this one allows.")
@json_lines_option
def approvals(thread: str, forget: str | None, as_json: bool) -> None:
    """List what is allowed for the rest of THREAD, or take some of it back."""
    import anyio

    from agent_runtime_config import load_settings

    found = anyio.run(_approvals, load_settings(), thread, forget)
    for one in found:
        if as_json:
            write_json(dataclasses.asdict(one))
        else:
            what = patterns_text(one.arguments) or "every call"
            write_output(f"{one.id}  {time_text(one.created_at)}  {one.tool}  {what}")
    if not found and not as_json:
        say(f"Nothing is allowed for the rest of thread {thread}.")


async def _approvals(settings: Settings, thread: str, forget: str | None) -> list[ApprovalRow]:
    from agent_runtime.runtime import Runtime

    async with Runtime.open(settings) as runtime:
        if forget is not None:
            await runtime.forget_approval(thread, forget)
        return await runtime.approvals(thread)


@click.command()
@click.argument("run_id", metavar="RUN")
def pause(run_id: str) -> None:
    """Suspend RUN at its next step, in whatever process it works; `resume` goes on with it."""
    import anyio

    from agent_runtime_config import load_settings

    anyio.run(_pause, load_settings(), run_id)
    say(f"It pauses at its next step. Go on with: agent-runtime resume {run_id}")


async def _pause(settings: Settings, run_id: str) -> None:
    from agent_runtime.runtime import Runtime

    async with Runtime.open(settings) as runtime:
        await runtime.pause(run_id)


@click.command()
@click.argument("run_id", metavar="RUN")
@click.argument("text")
def steer(run_id: str, text: str) -> None:
    """Tell RUN something; its model reads it at its next step."""
    import anyio

    from agent_runtime_config import load_settings

    if not text.strip():
        raise click.UsageError("The TEXT is empty.")
    anyio.run(_steer, load_settings(), run_id, text)


async def _steer(settings: Settings, run_id: str, text: str) -> None:
    from agent_runtime.runtime import Runtime

    async with Runtime.open(settings) as runtime:
        await runtime.steer(run_id, text)
