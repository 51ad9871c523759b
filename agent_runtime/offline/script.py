"""The default without a language model: it surveys a folder through the real loop and tools.

It is a script, not a language model: it can do this one task and says so for every other.  Like a
model it sees nothing but its prompt, from which old messages leave; so it carries what it knows
in its own answers (`offline_state`) and writes the report as it goes.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

import orjson

from agent_runtime.errors import UnsupportedTask
from agent_runtime.execution import CANCELLED, INTERRUPTED
from agent_runtime.messages import PromptMessage, ToolSpec
from agent_runtime.models.base import ModelAnswer, ModelRequest, RawCall
from agent_runtime.models.scripted import ScriptedModel

from . import parse, report
from . import planning as plan
from .state import PAGE, Phase, State, from_text, to_text
from .task import read_task

NAME = "offline"
MOST_READ = 320
"""So many files are read at most, spread evenly over the folder."""
MOST_PAGES = 100
"""So many pages are listed at most; of a folder with more entries the figures are of these."""
LARGE_PAGE = 1000
LARGE_FOLDER = 4000
"""Folders with more entries are listed in large pages."""
LEAST_PAGE = 1
TOLD_EVERY = 10
"""After so many files the plan tells how far the reading has come."""
QUEUE = 12
"""So many paths are kept for reading."""

STOPPED = (CANCELLED, INTERRUPTED, "The tool took longer than ")
"""How results begin of calls that were not made, or whose effect is not known."""
TOOLS = frozenset({"list_files", "read_file", "search_files", "write_file"})
CURE = (
    "Set a language model, as in AGENT_RUNTIME_MODEL=anthropic/claude-sonnet-4-5 with "
    "ANTHROPIC_API_KEY (any litellm name with its provider's key). Without one, ask for a survey: "
    "`agent-runtime run --workspace FOLDER 'Survey this folder and write REPORT.md'`."
)


def offline_model() -> ScriptedModel:
    """Return the model that is used where none is set; it costs nothing and calls nobody."""
    return ScriptedModel(survey, name=NAME)


def survey(request: ModelRequest) -> ModelAnswer:
    """Return the next answer of a survey, from the prompt alone.

    Raises:
        UnsupportedTask: the task is no survey of a folder, or the tools for it are missing.
    """
    place, task = _task(request.messages)
    last = max((i for i, one in enumerate(request.messages) if one.role == "assistant"), default=-1)
    state = from_text(request.messages[last].text) if last > place else None
    if state is None:
        return _begin(task, request.tools)
    results = [parse.unfenced(one.text) for one in request.messages[last + 1 :]]
    answer = _again(state, request.messages[: last + 1], results)
    return answer or _STEPS[state.phase](state, plan.without(request.messages[last], results))


# What is asked and answered, phase by phase


def _begin(task: str, tools: Sequence[ToolSpec]) -> ModelAnswer:
    wanted = read_task(task)
    if wanted is None:
        raise UnsupportedTask(
            "No language model is set, and the offline model can only survey a folder and write a "
            "report of it; this task is something else.",
            cure=CURE,
        )
    if missing := sorted(TOOLS - {tool.name for tool in tools}):
        raise UnsupportedTask(
            f"The offline model needs file tools for a survey; missing are {', '.join(missing)}.",
            cure="Give the agent `workspace_tools(folder)`, or on the command line --workspace.",
        )
    state = State("begin", wanted.folder, wanted.report, sure=wanted.sure)
    words = f"I survey {state.folder} and write {state.report}. First I look whether it is there."
    told = plan.begin(state, tools)
    return _ask(state, "begin", words, _list(state, limit=1), *told)


def _begun(state: State, results: Sequence[str]) -> ModelAnswer:
    if parse.listing(results[0]) is None:
        if not state.sure:
            state.folder, state.sure = ".", True
            return _ask(state, "begin", "Then it is the whole workspace.", _list(state, limit=1))
        raise UnsupportedTask(
            f"The folder {state.folder!r} cannot be surveyed: {results[0]}",
            cure="Name a folder of the workspace in the task, or none for all of it.",
        )
    follow = plan.follow(state, "start")
    words = "The report's place is taken first."
    return _write(state, "stub", words, report.STUB, *follow, whole=True)


def _list_page(state: State, results: Sequence[str]) -> ModelAnswer:
    if (failure := _not_written(state, results)) is not None:
        return failure
    told = plan.tell(state, list="in_progress")
    return _ask(state, "list", "Now I list the whole folder.", _list(state), *told)


def _listed(state: State, results: Sequence[str]) -> ModelAnswer:
    page = parse.listing(results[0])
    if page is None:
        return _say(f"The folder {state.folder} could not be listed to its end: {results[0]}")
    if parse.is_cut(results[0]) and state.page > LEAST_PAGE:
        return _smaller_page(state)
    state.changed = state.changed or (bool(state.total) and page.total != state.total)
    state.total = page.total
    state.notes = state.notes or _bounded(page.notes)
    for entry in page.entries:
        _count(state, entry)
    if parse.is_cut(results[0]):
        state.changed = True
    state.offset = page.following or state.offset + len(page.entries)
    state.pages += 1
    if page.following is not None and state.pages < MOST_PAGES:
        if page.total > LARGE_FOLDER and state.page == PAGE:
            state.page = LARGE_PAGE
        words = f"{state.offset:,} of {page.total:,} entries are listed."
        return _ask(state, "list", words, _list(state))
    calls = [
        _call("search_files", pattern=q.pattern, path=state.folder, glob=q.glob,
              limit=report.EXAMPLES if q.quoted else 1)
        for q in report.QUESTIONS
    ]  # fmt: skip
    words = f"All is listed: {state.files:,} files. Now I search them."
    listed = f"{state.files:,} files in {state.folders:,} folders"
    told = plan.follow(state, "search", plan.done("list", listed))
    return _ask(state, "search", words, *calls, *told)


def _searched(state: State, results: Sequence[str]) -> ModelAnswer:
    counts = [
        (_without_report(state, question, parse.found(result)), result)
        for question, result in zip(report.QUESTIONS, results, strict=True)
    ]
    text = report.figures(state, counts)
    state.extensions, state.biggest, state.notes = {}, [], []
    state.listed, state.offset = state.offset, 0
    state.more = state.files > 0
    state.stride = -(-state.files // MOST_READ) or 1
    follow = plan.follow(state, "figures")
    return _write(state, "figures", "I write the figures.", text, *follow, whole=True)


def _next_files(state: State, results: Sequence[str]) -> ModelAnswer:
    """After a part is written: read on, or find out what to read next, or end."""
    if (failure := _not_written(state, results)) is not None:
        return failure
    return _go_on(state)


def _queued(state: State, results: Sequence[str]) -> ModelAnswer:
    page = parse.listing(results[0])
    if page is None:
        state.more = False
        return _go_on(state)
    if parse.is_cut(results[0]) and state.page > LEAST_PAGE:
        return _smaller_page(state)
    entries = page.entries[: state.listed - state.offset]
    state.more = page.following is not None and state.offset + len(entries) < state.listed
    for entry in entries:
        chosen = _is_file(state, entry) and state.ordinal % state.stride == 0
        if chosen and (len(state.queue) >= QUEUE or not state.has_room(entry.path)):
            state.more = True
            break
        state.offset += 1
        if not _is_file(state, entry):
            continue
        state.ordinal += 1
        if chosen and entry.opens:
            state.queue.append(entry.path)
        elif chosen:
            state.failed += 1
    return _go_on(state)


def _read(state: State, results: Sequence[str]) -> ModelAnswer:
    outcomes: list[report.Outcome] = []
    for path, result in zip(state.reading, results, strict=True):
        seen = parse.reading(path, result)
        outcomes.append(report.Outcome(path, seen, report.one_line(result)))
        if seen is not None:
            state.opened += 1
            state.lines += seen.lines
        elif " is a binary file of " in result:
            state.binary += 1
        else:
            state.failed += 1
    state.reading = []
    done = state.opened + state.binary + state.failed
    return _write(state, "part", f"I note what I saw; {done:,} are done.", report.part(outcomes))


def _read_back(state: State, results: Sequence[str]) -> ModelAnswer:
    if (failure := _not_written(state, results)) is not None:
        return failure
    call = _call("read_file", path=state.report, limit=report.READ_LINES)
    words = "The report is written. I read it back."
    return _ask(state, "check", words, call, *plan.follow(state, "check"))


def _checked(state: State, results: Sequence[str]) -> ModelAnswer:
    seen = parse.reading(state.report, results[0])
    if seen is None:
        return _say(f"The report {state.report} was written but cannot be read: {results[0]}")
    if seen.bytes != state.size:
        return _say(
            f"The report {state.report} has {seen.bytes:,} bytes, but {state.size:,} were written: "
            "something else changed it, so it may not be right."
        )
    return _say(report.answer(state))


_STEPS: dict[Phase, Callable[[State, Sequence[str]], ModelAnswer]] = {
    "begin": _begun,
    "stub": _list_page,
    "list": _listed,
    "search": _searched,
    "figures": _next_files,
    "queue": _queued,
    "read": _read,
    "part": _next_files,
    "ending": _read_back,
    "check": _checked,
}


def _again(
    state: State, messages: Sequence[PromptMessage], results: Sequence[str]
) -> ModelAnswer | None:
    """Return how to go on after calls that were stopped; None if all have answers."""
    calls = messages[-1].calls
    if not any(one.startswith(STOPPED) for one in results):
        return _verified(state, messages, results) if state.verify else None
    if calls[0].arguments.get("append") and not results[0].startswith(CANCELLED):
        state.verify = True
        words = "It is not known whether this was written. I look how long the report is."
        return _ask(state, state.phase, words, _call("read_file", path=state.report, limit=1))
    return _ask(state, state.phase, "I was stopped, and do this again.", *map(_repeat, calls))


def _verified(
    state: State, messages: Sequence[PromptMessage], results: Sequence[str]
) -> ModelAnswer:
    state.verify = False
    seen = parse.reading(state.report, results[0])
    if seen is not None and seen.bytes == state.size:
        return _STEPS[state.phase](state, ["Appended"])
    if seen is None or seen.bytes != state.before:
        return _say(f"The report {state.report} was changed by something else: {results[0]}")
    wrote = next(
        call
        for message in reversed(messages)
        for call in message.calls
        if call.name == "write_file"
    )
    return _ask(state, state.phase, "It was not written. I write it again.", _repeat(wrote))


# Pieces


def _task(messages: Sequence[PromptMessage]) -> tuple[int, str]:
    """Return the place and the text of the run's task: the last that a user said."""
    for place in reversed(range(len(messages))):
        if messages[place].role == "user":
            text = parse.unfenced(messages[place].text).strip()
            if text:
                return place, text
    return -1, ""


def _go_on(state: State) -> ModelAnswer:
    if state.queue:
        together = 1 if state.files <= 30 else 2 if state.files <= 100 else 4
        state.reading, state.queue = state.queue[:together], state.queue[together:]
        calls = [_call("read_file", path=path, limit=report.READ_LINES) for path in state.reading]
        seen = state.opened + state.binary + state.failed
        told = plan.reading(state, seen) if seen % TOLD_EVERY < together else ()
        return _ask(state, "read", f"I read {', '.join(state.reading)}.", *calls, *told)
    if state.more:
        limit = min(state.page, QUEUE * state.stride * 2)
        words = "I look which files come next."
        return _ask(state, "queue", words, _list(state, limit=limit))
    read = f"{state.opened:,} files read, {state.binary:,} binary, {state.failed:,} not readable"
    told = plan.change(state, plan.done("read", read))
    return _write(state, "ending", "All chosen files are read.", report.ending(state), *told)


def _count(state: State, entry: parse.Listed) -> None:
    if entry.kind == "folder":
        state.folders += 1
    elif entry.kind == "link":
        state.links += 1
    elif entry.kind == "special":
        state.special += 1
    elif _is_file(state, entry):
        state.add(entry.path, entry.size)


def _is_file(state: State, entry: parse.Listed) -> bool:
    return entry.kind == "file" and not parse.same_path(entry.path, state.report)


def _without_report(
    state: State, question: report.Question, found: parse.Found | None
) -> parse.Found | None:
    """Take the report's own file, which holds nothing yet, out of what was searched."""
    if found is None or not _holds_report(state, question.glob):
        return found
    return parse.Found(
        found.matches,
        found.files,
        found.searched - 1,
        found.candidates - 1,
        found.stopped,
        found.examples,
    )


def _holds_report(state: State, glob: str) -> bool:
    folder, path = posixpath.normpath(state.folder), posixpath.normpath(state.report)
    inside = folder == "." or path.startswith(f"{folder}/")
    return inside and fnmatchcase(posixpath.basename(path), glob)


def _smaller_page(state: State) -> ModelAnswer:
    state.page = max(LEAST_PAGE, state.page // 2)
    words = "The list was cut, so I take a shorter one."
    return _ask(state, state.phase, words, _list(state))


def _bounded(notes: Sequence[str], most: int = 3, chars: int = 150) -> list[str]:
    kept = [note if len(note) <= chars else note[: chars - 1] + "…" for note in notes[:most]]
    return kept + ([f"And {len(notes) - most} more such."] if len(notes) > most else [])


def _list(state: State, limit: int | None = None) -> RawCall:
    return _call(
        "list_files",
        path=state.folder,
        recursive=True,
        offset=state.offset,
        limit=limit or state.page,
    )


def _write(
    state: State, phase: Phase, words: str, text: str, *more: RawCall, whole: bool = False
) -> ModelAnswer:
    state.before = 0 if whole else state.size
    state.size = state.before + len(text.encode())
    call = _call("write_file", path=state.report, content=text, append=not whole)
    return _ask(state, phase, words, call, *more)


def _not_written(state: State, results: Sequence[str]) -> ModelAnswer | None:
    if results[0].startswith(("Wrote ", "Appended")):
        return None
    return _say(f"The report {state.report} could not be written: {results[0]}")


def _ask(state: State, phase: Phase, words: str, *calls: RawCall) -> ModelAnswer:
    state.phase = phase
    return ModelAnswer(to_text(words, state), calls, "tool_calls", NAME)


def _say(text: str) -> ModelAnswer:
    return ModelAnswer(text, (), "stop", NAME)


def _call(tool: str, /, **arguments: Any) -> RawCall:
    return RawCall(tool, orjson.dumps(arguments).decode())


def _repeat(call: Any) -> RawCall:
    return _call(call.name, **call.arguments)
