"""The model for use without a language model: it surveys a folder through the real loop and tools.

It is a script: it does this one task, and refuses any other.  Like a language model it sees only
its prompt, from which old messages leave; so it carries its state in its own answers, and writes
the report as it works.  Where it has the tools for it, it makes a plan, hands the parts of the
folder over to sub-agents, and recalls their outcomes; else it reads the files itself.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson

from agent_runtime.errors import UnsupportedTask
from agent_runtime.messages import PromptMessage, ToolCall, ToolSpec
from agent_runtime.models.base import ModelAnswer, ModelEvent, ModelRequest, RawCall, TextDelta
from agent_runtime.models.scripted import ScriptedModel, raw_call, say
from agent_runtime.offline import report
from agent_runtime.offline.answers import STATE, answer, read_state, repeat, was_stopped
from agent_runtime.offline.reader import (
    INSTRUCTIONS,
    PAGE,
    QUEUE,
    READ_LINES,
    ROLE,
    TOGETHER,
    TOGETHER_BYTES,
    TOOLS,
    Reader,
    is_reader,
    list_call,
    next_reader_answer,
    results_of,
)
from agent_runtime.offline.survey import FolderPart, Phase, Survey, create_plan, update_plan
from agent_runtime.offline.task import find_task, read_task
from agent_runtime.offline.tool_output import (
    code,
    counted,
    one_line,
    parse_file,
    parse_listing,
    title,
)
from agent_runtime.plan.planner import PLAN

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


@dataclass(frozen=True, slots=True)
class LastTurn:
    """The last calls and their results, without those of the tool `plan`."""

    calls: list[ToolCall]
    results: list[PromptMessage]

    @property
    def text(self) -> str:
        """The first result."""
        return self.results[0].text


class OfflineModel(ScriptedModel):
    """The model that is used where none is set; it costs nothing and calls nobody."""

    def __init__(self) -> None:
        super().__init__(next_answer, name=NAME)

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelEvent]]:
        """Answer; what people see while it arrives leaves out the state, which the log has."""
        async with super().stream(request) as events, aclosing(_without_state(events)) as shown:
            yield shown


async def _without_state(events: AsyncIterator[ModelEvent]) -> AsyncGenerator[ModelEvent]:
    words = True
    async for event in events:
        if isinstance(event, TextDelta):
            words = words and not event.text.startswith(STATE)
            if not words:
                continue
        yield event


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
        return _begin(task, request.tools, again=last > place)
    calls = [call for call in messages[last].calls if call.name != PLAN]
    results = [one for one in results_of(messages[last + 1 :]) if one.name != PLAN]
    turn = LastTurn(calls, results)
    # Not all of `delegate`: outcomes that arrived would be lost.  `_read_on` repeats the others.
    if survey.phase != "delegate" and any(map(was_stopped, results)):
        return _again(survey, messages[last].calls, turn)
    if survey.verify:
        if (failure := _verify(survey, messages, turn.text)) is not None:
            return failure
    elif calls[0].name == "write_file" and results[0].outcome != "ok":
        return say(f"The report {survey.report} could not be written: {turn.text}")
    return _PHASES[survey.phase](survey, turn)


# Phase by phase: each function takes the results of the phase's calls


def _begin(task: str, tools: Sequence[ToolSpec], *, again: bool) -> ModelAnswer:
    wanted = read_task(task)
    if wanted is None:
        raise UnsupportedTask(
            "No language model is set, and the offline model can only survey a folder and write a "
            "report of it; this task is something else.",
            cure=CURE,
        )
    names = {tool.name for tool in tools}
    if missing := sorted(NEEDED - names):
        raise UnsupportedTask(
            f"The offline model needs file tools for a survey; missing are {', '.join(missing)}.",
            cure="Give the agent `workspace_tools(folder)`, or on the command line --workspace.",
        )
    survey = Survey("begin", wanted.folder, wanted.report, sure=wanted.sure)
    survey.planned, survey.delegated = PLAN in names, {"delegate", "recall"} <= names
    words = f"I survey {survey.folder} and write {survey.report}. First I check that it exists."
    if again:
        # Its state has another form.  Starting over costs nothing, and the report stays true.
        words = f"Another version began this survey, so I start it over. {words}"
    return _ask(survey, "begin", words, list_call(survey.folder, 0, 1))


def _begun(survey: Survey, turn: LastTurn) -> ModelAnswer:
    if parse_listing(turn.text) is not None:
        # Written before anything is listed: the places of entries must not shift when it appears
        # later.
        return _write(survey, "stub", "I reserve the report's place.", report.STUB, append=False)
    if survey.sure:
        raise UnsupportedTask(
            f"The folder {survey.folder!r} cannot be surveyed: {turn.text}",
            cure="Name a folder of the workspace in the task, or none for all of it.",
        )
    survey.folder, survey.sure = ".", True
    return _ask(survey, "begin", "Then it is the whole workspace.", list_call(".", 0, 1))


def _look(survey: Survey, turn: LastTurn) -> ModelAnswer:
    searches = [
        raw_call("search", pattern=pattern, path=survey.folder, globs=glob)
        for _, pattern, glob in report.SEARCHES
    ]
    # One entry is enough: the first line of a listing counts all of them.
    look = list_call(survey.folder, 0, 1)
    return _ask(survey, "look", "I look how large it is, and search it.", look, *searches)


def _looked(survey: Survey, turn: LastTurn) -> ModelAnswer:
    listing = parse_listing(turn.text)
    if listing is None:
        return say(f"The folder {survey.folder} cannot be listed any more: {turn.text}")
    survey.total, survey.listing = listing.total, turn.calls[0].id
    # An empty folder holds at most the report itself: there is nothing to hand over.
    survey.delegated = survey.delegated and listing.total > 1
    listed = min(listing.total, MOST_ENTRIES)
    stride = math.ceil(listed / MOST_READ) or 1
    count = max(1, min(MOST_PARTS, listed // LEAST_ENTRIES)) if survey.delegated else 1
    size = math.ceil(listed / count) or 1
    survey.parts = [
        FolderPart(f"part-{number}", Reader(survey.folder, survey.report, stride, first, end))
        for number, first in enumerate(range(0, listed, size), 1)
        if (end := min(first + size, listed)) > first
    ]
    # Steps to list and read an average part.
    files, data = (one / stride / count for one in (listing.files, listing.bytes))
    reads = max(files / TOGETHER, min(files, data / TOGETHER_BYTES))
    survey.steps = 1 + math.ceil(MARGIN * (reads + size / min(PAGE, QUEUE * stride)))
    text = report.beginning(survey.folder, survey.report, listing, turn.results[1:])
    plan = create_plan(survey, _counts(turn.text))
    return _write(survey, "write", "I write what the searches found.", text, *plan, append=False)


def _read_on(survey: Survey, turn: LastTurn) -> ModelAnswer:
    """Take the next outcome; hand over what is left to read; or end."""
    if survey.outcomes:
        place, handle = survey.outcomes[0]
        opened = raw_call("recall", handle=handle, limit=OUTCOME_CHARS)
        return _ask(survey, "outcome", f"I open the outcome of {survey.parts[place].id}.", opened)
    left = [part for part in survey.parts if not part.done]
    if left and survey.delegated:
        calls = [_delegate(survey, part) for part in left]
        return _ask(
            survey, "delegate", f"I hand over {counted(len(calls), 'part')} to readers.", *calls
        )
    if left:
        return _read_here(survey, left[0])
    if not survey.delegated:
        return _end(survey, *update_plan(survey, *(part.id for part in survey.parts)))
    opened = raw_call("recall", handle=survey.listing, limit=FIRST_CHARS)
    done = update_plan(survey, follows="recall")
    return _ask(survey, "recall", "All parts are read. I recall the first list.", opened, *done)


def _read_here(survey: Survey, part: FolderPart) -> ModelAnswer:
    """Read without sub-agents."""
    if calls := part.reader.next_calls(INLINE_CHARS):
        return _ask(survey, "read", f"I read on; {survey.found.opened:,} are noted.", *calls)
    words = f"I note {counted(part.reader.found.opened, 'file')}."
    text = _take(survey, part, part.reader)
    return _write(survey, "write", words, text)


def _read(survey: Survey, turn: LastTurn) -> ModelAnswer:
    part = survey.parts[0]
    if problem := part.reader.take(turn.calls, turn.results):
        return say(f"The folder {survey.folder} cannot be listed any more: {problem}")
    return _read_on(survey, turn)


def _delegated(survey: Survey, turn: LastTurn) -> ModelAnswer:
    places = {part.id: place for place, part in enumerate(survey.parts)}
    survey.outcomes = [
        (places[call.arguments["task_key"]], call.id)
        for call, result in zip(turn.calls, turn.results, strict=True)
        # A call that was stopped with the run has no outcome, and is made again.
        if result.text.startswith("{") or not was_stopped(result)
    ]
    return _read_on(survey, turn)


def _outcome(survey: Survey, turn: LastTurn) -> ModelAnswer:
    place, _ = survey.outcomes.pop(0)
    part = survey.parts[place]
    part.attempts += 1
    # The first line is what `recall` says of the text.
    text = turn.text.partition("\n")[2]
    try:
        outcome: dict[str, Any] = orjson.loads(text)
    except orjson.JSONDecodeError:
        outcome = {"blockers": [text]}
    reader = read_state(str(outcome.get("result")), Reader)
    further = reader is not None and (reader.found.opened or reader.offset > part.reader.offset)
    opened = reader.found.opened if reader else 0
    lines = _take(survey, part, reader) if reader else ""
    if not part.done:
        # A second attempt that comes no further is the last.
        part.done = part.attempts > 1 and not further
        why = outcome.get("stop_reason") or one_line("; ".join(outcome.get("blockers") or []))
        early = "given up" if part.done else "stopped"
        part.stops.append(
            f"attempt {part.attempts} {early} after {counted(opened, 'file')} ({why})"
        )
    if lines:
        return _write(survey, "write", f"I note what was seen of {part.id}.", lines)
    return _read_on(survey, turn)


def _recalled(survey: Survey, turn: LastTurn) -> ModelAnswer:
    if turn.results[0].outcome == "ok":
        about, _, text = turn.text.partition("\n")
        survey.recalled_from, survey.recalled = about.partition(": ")[0], _counts(text)
    return _end(survey)


def _end(survey: Survey, *more: RawCall) -> ModelAnswer:
    found = survey.found
    left = sum(part.reader.end - part.reader.offset for part in survey.parts)
    listed = survey.parts[-1].reader.end - left if survey.parts else 0
    lines = report.figures(found, listed, survey.total)
    lines += [
        "",
        "## How it was read",
        "",
        f"- Opened: {found.opened:,} of {found.entries['file']:,} files.",
        f"- Read: {counted(found.read, 'file')}; together they have "
        f"{counted(found.lines, 'line')}.",
        f"- Not read, because they are binary or because of an error: "
        f"{counted(found.opened - found.read, 'file')}.",
    ]
    if survey.parts and survey.parts[0].reader.stride > 1:
        lines.append(f"- Of every {survey.parts[0].reader.stride} entries, only one was chosen.")
    if survey.attempts:
        parts, tried = counted(len(survey.parts), "part"), counted(survey.attempts, "attempt")
        lines.append(f"- By sub-agents: {parts}, {tried}.")
    lines += [f"- {code(part.id)}: {'; '.join(part.stops)}." for part in survey.parts if part.stops]
    if survey.recalled:
        lines.append(f"- Recalled from the log, the first listing said: “{survey.recalled}”")
    words = "I write the figures."
    return _write(survey, "ending", words, "\n".join([*lines, ""]), *more)


def _ended(survey: Survey, turn: LastTurn) -> ModelAnswer:
    again = raw_call("read_file", path=survey.report, limit=READ_LINES)
    done = update_plan(survey, "figures", follows="check")
    return _ask(survey, "check", "I read the report back.", again, *done)


def _checked(survey: Survey, turn: LastTurn) -> ModelAnswer:
    seen = parse_file(survey.report, turn.text)
    if seen is None:
        return say(f"The report {survey.report} was written but cannot be read: {turn.text}")
    if seen.bytes != survey.size:
        return say(
            f"The report {survey.report} has {seen.bytes:,} bytes, but {survey.size:,} were "
            "written: something else changed it, so it may be wrong."
        )
    found = survey.found
    text = (
        f"The survey of {survey.folder} is in {survey.report} ({survey.size:,} bytes). The folder "
        f"has {counted(found.entries['file'], 'file')} and "
        f"{counted(found.entries['folder'], 'folder')}. "
        f"{found.read:,} of {found.opened:,} files opened could be read ({found.lines:,} lines)."
    )
    if survey.attempts:
        text += f" Sub-agents read them, in {counted(survey.attempts, 'attempt')}."
    if survey.recalled:
        text += f" The first listing was recalled from the log ({survey.recalled_from})."
    return say(f"{text} No language model was used.")


_PHASES: dict[Phase, Callable[[Survey, LastTurn], ModelAnswer]] = {
    "begin": _begun,
    "stub": _look,
    "look": _looked,
    "write": _read_on,
    "read": _read,
    "delegate": _delegated,
    "outcome": _outcome,
    "recall": _recalled,
    "ending": _ended,
    "check": _checked,
}


# Pieces


def _again(survey: Survey, calls: Sequence[ToolCall], turn: LastTurn) -> ModelAnswer:
    """Make stopped calls again, but check first if text was appended."""
    # Appended twice, its lines would count twice; only the file knows whether it was written.
    if turn.calls[0].arguments.get("append") and turn.results[0].outcome == "interrupted":
        survey.verify = True
        words = "It is not known if this was written. I check how long the report is."
        return answer(words, survey, raw_call("read_file", path=survey.report, limit=1))
    return answer("I was stopped, and do this again.", survey, *map(repeat, calls))


def _verify(survey: Survey, messages: Sequence[PromptMessage], text: str) -> ModelAnswer | None:
    """Return the answer that writes again what was not written; None if it was."""
    survey.verify = False
    seen = parse_file(survey.report, text)
    if seen is None or seen.bytes not in (survey.before, survey.size):
        return say(f"The report {survey.report} was changed by something else: {text}")
    if seen.bytes == survey.size:
        return None
    calls = (call for message in reversed(messages) for call in message.calls)
    write = next(call for call in calls if call.name == "write_file")
    return answer("It was not written. I write it again.", survey, repeat(write))


def _take(survey: Survey, part: FolderPart, reader: Reader) -> str:
    """Take what a reader found; return its lines, and leave to the part what is left to read."""
    survey.found.add(reader.found)
    part.reader = reader.rest()
    part.done = reader.done
    return "".join(f"{line}\n" for line in reader.found.text)


def _delegate(survey: Survey, part: FolderPart) -> RawCall:
    known: dict[str, Any] = {}
    if part.stops:
        fix = f"Begin at entry {part.reader.offset}, with the files of the queue, and more steps."
        known = {"diagnosis": part.stops[-1], "fix_applied": fix}
    words = (
        "The part lies in the recursive listing of `folder`: its entries from `offset` on and "
        "before `end`. `queue` has files to read first. A file is read if its place in the "
        "listing is a multiple of `stride`. `report` is passed over."
    )
    return raw_call(
        "delegate",
        role=ROLE,
        instructions=INSTRUCTIONS,
        # A path may look like the tag of a block, which briefings escape; in JSON it means the
        # same.
        briefing=answer(words, part.reader).text.replace("<", "\\u003c"),
        tools=list(TOOLS),
        task_key=part.id,
        # More for each attempt: the estimate was too low for this part.
        max_steps=survey.steps << min(part.attempts, 3),
        **known,
    )


def _counts(listing: str) -> str:
    """Return what a listing says of the whole folder."""
    return title("", listing.partition(" Entries ")[0])


def _write(
    survey: Survey, phase: Phase, words: str, text: str, *more: RawCall, append: bool = True
) -> ModelAnswer:
    survey.before = survey.size if append else 0
    survey.size = survey.before + len(text.encode())
    write = raw_call("write_file", path=survey.report, content=text, append=append)
    return _ask(survey, phase, words, write, *more)


def _ask(survey: Survey, phase: Phase, words: str, *calls: RawCall) -> ModelAnswer:
    survey.phase = phase
    return answer(words, survey, *calls)
