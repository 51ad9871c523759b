"""The model for use without a language model: it surveys a folder through the real loop and tools.

It is a script: it does this one task, and refuses any other.  Like a language model it sees only
its prompt, from which old messages leave; so it carries its state in its own answers, and writes
the report as it works.  Where it has the tools for it, it makes a plan, hands the parts of the
folder over to sub-agents, and recalls their outcomes; else it reads the files itself.
"""

from __future__ import annotations

import math
import posixpath
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import orjson

from agent_runtime.errors import UnsupportedTask
from agent_runtime.messages import PromptMessage, ToolCall, ToolSpec
from agent_runtime.models.base import ModelAnswer, ModelEvent, ModelRequest, RawCall, TextDelta
from agent_runtime.models.scripted import ScriptedModel, raw_call, say
from agent_runtime.offline import report
from agent_runtime.offline.answers import STATE, answer, read_state, repeat, was_stopped
from agent_runtime.offline.reader import (
    PAGE,
    QUEUE,
    TOGETHER,
    TOGETHER_BYTES,
    FolderPart,
    delegate_call,
    is_reader,
    list_call,
    next_reader_answer,
    results_of,
)
from agent_runtime.offline.survey import Phase, Survey, create_plan, update_plan
from agent_runtime.offline.task import find_task, read_task
from agent_runtime.offline.tool_output import code, one_line, parse_file, parse_listing
from agent_runtime.plan.planner import PLAN
from agent_runtime_config.counted import counted

NAME = "offline"
MOST_READ = 320
"""Files to read at most, spread evenly over the folder."""
MOST_ENTRIES = 100_000
"""Entries to list at most."""
MOST_PARTS = 12
LEAST_ENTRIES = 10
"""A smaller folder is one part."""
MARGIN = 4 / 3
"""How many times the steps of an average part an attempt may take."""
INLINE_CHARS = 500
"""Length of findings at which they are written into the report, without sub-agents."""
OUTCOME_CHARS = 30_000
FIRST_CHARS = 300
"""How much of a sub-agent's outcome, and of the first listing, to recall."""
NEEDED = frozenset({"glob", "read_file", "search", "write_file"})
CURE = (
    "Set a language model, as in AGENT_RUNTIME_MODEL=anthropic/claude-sonnet-4-5 with "
    "ANTHROPIC_API_KEY (any litellm name with its provider's key). Without one, ask for a survey: "
    "`agent-runtime run --workspace FOLDER 'Survey this folder and write REPORT.md'`."
)


Calls: TypeAlias = Sequence[ToolCall]
Results: TypeAlias = Sequence[PromptMessage]


class OfflineModel(ScriptedModel):
    """The model that is used where none is set; it costs nothing and calls nobody."""

    def __init__(self) -> None:
        super().__init__(next_answer, name=NAME)

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelEvent]]:
        """Answer; what people see while it arrives leaves out the state, which the log has."""
        async with super().stream(request) as events:
            shown = (event async for event in events if not _is_state(event))
            async with aclosing(shown):
                yield shown


def _is_state(event: ModelEvent) -> bool:
    return isinstance(event, TextDelta) and event.text.startswith(STATE)


def next_answer(request: ModelRequest) -> ModelAnswer:
    """Return the next answer, from the prompt alone.

    Raises:
        UnsupportedTask: the task is not a survey of a folder, or the tools for it are missing.
    """
    messages = request.messages
    if is_reader(messages):
        return next_reader_answer(messages)
    place, task = find_task(messages)
    last = max((i for i, one in enumerate(messages) if one.role == "assistant"), default=-1)
    survey = read_state(messages[last].text, Survey) if last > place else None
    if survey is None:
        # Also where another version began: starting over costs nothing.
        return _begin(task, request.tools)
    calls = [call for call in messages[last].calls if call.name != PLAN]
    results = [one for one in results_of(messages[last + 1 :]) if one.name != PLAN]
    # Not all of `delegate`: outcomes that arrived would be lost.  `_read_on` repeats the others.
    if survey.phase != "delegate" and any(map(was_stopped, results)):
        return _again(survey, messages[last].calls, results)
    if calls[0].name == "read_file" and survey.phase in ("write", "ending"):
        seen = parse_file(results[0].text)
        if seen is None or seen.bytes != survey.size:
            return _write_again(survey, messages)
    elif calls[0].name == "write_file" and results[0].outcome != "ok":
        return say(f"The report {survey.report} could not be written: {results[0].text}")
    return _PHASES[survey.phase](survey, calls, results)


# Phase by phase: each function takes the results of the phase's calls


def _begin(task: str, tools: Sequence[ToolSpec]) -> ModelAnswer:
    wanted = read_task(task)
    if wanted is None:
        raise UnsupportedTask(
            "The offline model can only survey a folder and write a report of it; this task is "
            "something else.",
            cure=CURE,
        )
    names = {tool.name for tool in tools}
    if missing := sorted(NEEDED - names):
        raise UnsupportedTask(
            f"The offline model needs file tools for a survey; missing are {', '.join(missing)}.",
            cure="Give the agent `workspace_tools(folder)`, or on the command line --workspace.",
        )
    survey = Survey("look", *wanted)
    survey.planned, survey.delegated = PLAN in names, {"delegate", "recall"} <= names
    words = f"I survey {survey.folder} and write {survey.report}. First I list and search it."
    # The searches must not find what an earlier survey wrote.
    without = f",!./{posixpath.relpath(survey.report, survey.folder)}"
    searches = [
        raw_call("search", pattern=pattern, path=survey.folder, globs=glob + without)
        for _, pattern, glob in report.SEARCHES
    ]
    # One entry is enough: the first line of a listing counts all of them.
    return _ask(survey, "look", words, list_call(survey.folder, 0, 1), *searches)


def _looked(survey: Survey, calls: Calls, results: Results) -> ModelAnswer:
    listing = parse_listing(results[0].text)
    if listing is None:
        raise UnsupportedTask(
            f"The folder {survey.folder!r} cannot be surveyed: {results[0].text}",
            cure="Name a folder of the workspace in the task, or none for all of it.",
        )
    survey.total, survey.listing = listing.total, calls[0].id
    survey.delegated = survey.delegated and listing.total > 0
    # One more, as the report may be new.  It is written before a page is listed: the places of
    # entries must not shift later.
    listed = min(listing.total + 1, MOST_ENTRIES)
    stride = math.ceil(listed / MOST_READ)
    count = max(1, min(MOST_PARTS, listed // LEAST_ENTRIES)) if survey.delegated else 1
    size = math.ceil(listed / count)
    survey.parts = {
        f"part-{number}": FolderPart(
            survey.folder, survey.report, stride, first, min(first + size, listed)
        )
        for number, first in enumerate(range(0, listed, size), 1)
    }
    # Steps to list and read an average part.
    files, data = (one / stride / count for one in (listing.files, listing.bytes))
    reads = max(files / TOGETHER, min(files, data / TOGETHER_BYTES))
    survey.steps = 1 + math.ceil(MARGIN * (reads + size / min(PAGE, QUEUE * stride)))
    text = report.beginning(survey.folder, survey.report, listing, results[1:])
    plan = create_plan(survey, _counts(results[0].text))
    return _write(survey, "write", "I write what the searches found.", text, *plan, append=False)


def _read_on(survey: Survey, *_: object) -> ModelAnswer:
    """Take the next outcome; hand over what is left to read; or end."""
    if survey.outcomes:
        name, handle = survey.outcomes[0]
        opened = raw_call("recall", handle=handle, limit=OUTCOME_CHARS)
        return _ask(survey, "outcome", f"I open the outcome of {name}.", opened)
    # What was found of a part that is done may still have to be written.
    left = {name: one for name, one in survey.parts.items() if not one.done or one.counts}
    if not left:
        return _end(survey)
    if survey.delegated:
        calls = [delegate_call(name, part, survey.steps) for name, part in left.items()]
        words = f"I hand over {counted(len(calls), 'part')} to readers."
        return _ask(survey, "delegate", words, *calls)
    # Without sub-agents there is one part, which is read here.
    ((name, part),) = left.items()
    if calls := part.next_calls(INLINE_CHARS):
        noted = survey.counts["opened"]
        return _ask(survey, "read", f"I read on; {noted:,} are noted.", *calls)
    words = f"I note {counted(part.counts['opened'], 'file')}."
    return _write(survey, "write", words, _take(survey, name, part))


def _read(survey: Survey, calls: Calls, results: Results) -> ModelAnswer:
    if problem := survey.parts["part-1"].take(calls, results):
        return say(f"The folder {survey.folder} cannot be listed any more: {problem}")
    return _read_on(survey)


def _delegated(survey: Survey, calls: Calls, results: Results) -> ModelAnswer:
    survey.outcomes = [
        (call.arguments["task_key"], call.id)
        for call, result in zip(calls, results, strict=True)
        # A call that was stopped with the run has no outcome, and is made again.
        if result.text.startswith("{") or not was_stopped(result)
    ]
    return _read_on(survey)


def _outcome(survey: Survey, calls: Calls, results: Results) -> ModelAnswer:
    name, _ = survey.outcomes.pop(0)
    before = survey.parts[name]
    # The first line is what `recall` says of the text.
    text = results[0].text.partition("\n")[2]
    try:
        outcome: dict[str, Any] = orjson.loads(text)
    except orjson.JSONDecodeError:
        outcome = {"blockers": [text]}
    after = read_state(str(outcome.get("result")), FolderPart) or before
    opened = after.counts["opened"]
    lines = _take(survey, name, after)
    left = survey.parts[name]
    left.attempts += 1
    if not left.done:
        # A second attempt that comes no further is the last.
        left.given_up = left.attempts > 1 and not opened and after.offset == before.offset
        early = "given up" if left.given_up else "stopped"
        why = outcome.get("stop_reason") or one_line("; ".join(outcome.get("blockers") or []))
        left.stop = f"attempt {left.attempts} {early} after {counted(opened, 'file')} ({why})"
    if lines:
        return _write(survey, "write", f"I note what was seen of {name}.", lines)
    return _read_on(survey)


def _end(survey: Survey) -> ModelAnswer:
    counts, parts = survey.counts, survey.parts.values()
    partial = survey.total >= MOST_ENTRIES or any(part.offset < part.end for part in parts)
    lines = report.figures(counts, survey.total, partial=partial)
    lines += [
        "",
        "## How it was read",
        "",
        f"- Opened: {counts['opened']:,} of {counts['file']:,} files.",
        f"- Read: {counted(counts['read'], 'file')}; together they have "
        f"{counted(counts['lines'], 'line')}.",
    ]
    if (stride := survey.parts["part-1"].stride) > 1:
        lines.append(f"- Of every {stride} entries, only one was chosen.")
    if tried := sum(part.attempts for part in parts):
        parts_tried = f"{counted(len(parts), 'part')}, {counted(tried, 'attempt')}"
        lines.append(f"- By sub-agents: {parts_tried}.")
    lines += [f"- {code(name)}: {part.stop}." for name, part in survey.parts.items() if part.stop]
    # What sub-agents read, the runtime notes in the plan.
    done = () if survey.delegated else update_plan(survey, *survey.parts)
    return _write(survey, "ending", "I write the figures.", "\n".join([*lines, ""]), *done)


def _ended(survey: Survey, *_: object) -> ModelAnswer:
    calls = [raw_call("read_file", path=survey.report, limit=1)]
    words, follows = "I read the report back.", ["check"]
    if survey.delegated:
        calls.append(raw_call("recall", handle=survey.listing, limit=FIRST_CHARS))
        words, follows = "I read the report back, and recall the first list.", ["check", "recall"]
    return _ask(survey, "check", words, *calls, *update_plan(survey, "figures", follows=follows))


def _checked(survey: Survey, calls: Calls, results: Results) -> ModelAnswer:
    seen = parse_file(results[0].text)
    if seen is None:
        return say(f"The report {survey.report} was written but cannot be read: {results[0].text}")
    if seen.bytes != survey.size:
        return say(
            f"The report {survey.report} has {seen.bytes:,} bytes, but {survey.size:,} were "
            "written: something else changed it, so it may be wrong."
        )
    counts = survey.counts
    text = (
        f"The survey of {survey.folder} is in {survey.report} ({survey.size:,} bytes). The folder "
        f"has {counted(counts['file'], 'file')} and {counted(counts['folder'], 'folder')}. "
        f"{counts['read']:,} of {counts['opened']:,} files opened could be read "
        f"({counts['lines']:,} lines)."
    )
    for recalled in results[1:]:
        about, _, listing = recalled.text.partition("\n")
        if recalled.outcome == "ok":
            text += f" Recalled from the log ({about.partition(': ')[0]}), the first listing said: "
            text += f"“{_counts(listing)}”"
    return say(f"{text} No language model was used.")


_PHASES: dict[Phase, Callable[[Survey, Calls, Results], ModelAnswer]] = {
    "look": _looked,
    "write": _read_on,
    "read": _read,
    "delegate": _delegated,
    "outcome": _outcome,
    "ending": _ended,
    "check": _checked,
}


# Pieces


def _again(survey: Survey, calls: Calls, results: Results) -> ModelAnswer:
    """Make stopped calls again, but check first if text was appended."""
    # Appended twice, its lines would count twice; only the file knows whether it was written.
    if calls[0].arguments.get("append") and results[0].outcome == "interrupted":
        words = "It is not known if this was written. I check how long the report is."
        return answer(words, survey, raw_call("read_file", path=survey.report, limit=1))
    return answer("I was stopped, and do this again.", survey, *map(repeat, calls))


def _write_again(survey: Survey, messages: Sequence[PromptMessage]) -> ModelAnswer:
    # If something else changed the report, the last check says so.
    calls = (call for message in reversed(messages) for call in message.calls)
    write = next(call for call in calls if call.name == "write_file")
    return answer("It was not written. I write it again.", survey, repeat(write))


def _take(survey: Survey, name: str, part: FolderPart) -> str:
    """Take what was found of a part; return its lines, and keep of it what is left to read."""
    survey.counts += part.counts
    survey.parts[name] = replace(part, notes=[], counts=Counter())
    return "".join(f"{line}\n" for line in part.notes)


def _counts(listing: str) -> str:
    """Return what a listing says of the whole folder."""
    return one_line(listing.partition(" Entries ")[0])


def _write(
    survey: Survey, phase: Phase, words: str, text: str, *more: RawCall, append: bool = True
) -> ModelAnswer:
    survey.size = (survey.size if append else 0) + len(text.encode())
    write = raw_call("write_file", path=survey.report, content=text, append=append)
    return _ask(survey, phase, words, write, *more)


def _ask(survey: Survey, phase: Phase, words: str, *calls: RawCall) -> ModelAnswer:
    survey.phase = phase
    return answer(words, survey, *calls)
