"""The default without a language model: it surveys a folder through the real loop and tools.

It is a script, not a language model: it can do this one task and says so for every other.  Like a
model it sees nothing but its prompt, from which old messages leave; so it carries what it knows
in its own answers (`offline_state`) and writes the report as it goes.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from agent_runtime.errors import UnsupportedTask
from agent_runtime.messages import PromptMessage, ToolSpec
from agent_runtime.models.base import ModelAnswer, ModelRequest, RawCall
from agent_runtime.models.scripted import ScriptedModel
from agent_runtime.offline import delegating_survey as parts
from agent_runtime.offline import planning as plan
from agent_runtime.offline import reader as reading
from agent_runtime.offline import report
from agent_runtime.offline import tool_output as parse
from agent_runtime.offline.answers import NAME, STOPPED, ask, call, repeat, say
from agent_runtime.offline.state import (
    LARGE_PAGE,
    LEAST_PAGE,
    PAGE,
    Phase,
    State,
    from_text,
    to_text,
)
from agent_runtime.offline.task import read_task
from agent_runtime.run.tool_calls import CANCELLED

MOST_READ = 320
"""So many files are read at most, spread evenly over the folder."""
MOST_PAGES = 100
"""So many pages are listed at most; of a folder with more entries the figures are of these."""
LARGE_FOLDER = 4000
"""Folders with more entries are listed in large pages."""
TOLD_EVERY = 10
"""After so many files the plan tells how far the reading has come."""
QUEUE = 12
"""So many paths are kept for reading."""
OUTCOME_CHARS = 30_000
FIRST_CHARS = 300
"""How much is opened again of a sub-agent's outcome, and of the first listing."""

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
    if reading.is_reader(request.messages):
        return reading.next_reader_answer(request.messages)
    place, task = _task(request.messages)
    last = max((i for i, one in enumerate(request.messages) if one.role == "assistant"), default=-1)
    state = from_text(request.messages[last].text) if last > place else None
    if state is None:
        return _begin(task, request.tools)
    results = [parse.unfenced(one.text) for one in request.messages[last + 1 :]]
    if state.phase == "delegate":
        parts.asked(state, request.messages[last].calls)
        return _go_on(state)
    if state.phase == "list" and not state.first_listing:
        state.first_listing = request.messages[last].calls[0].id
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
    state.delegated = parts.can_delegate(tools)
    state.planned, state.phased = plan.can_plan(tools)
    return _ask(state, "begin", words, *_look(state))


def _begun(state: State, results: Sequence[str]) -> ModelAnswer:
    if (page := parse.parse_listing(results[0])) is None:
        if not state.sure:
            state.folder, state.sure = ".", True
            return _ask(state, "begin", "Then it is the whole workspace.", *_look(state))
        raise UnsupportedTask(
            f"The folder {state.folder!r} cannot be surveyed: {results[0]}",
            cure="Name a folder of the workspace in the task, or none for all of it.",
        )
    if state.delegated:
        # The report's own file will be an entry, too.
        is_new = parse.parse_reading(state.report, results[1]) is None
        state.parts = parts.divide(page.total + (is_new and _inside(state)))
    words = "The report's place is taken first."
    return _write(state, "stub", words, report.STUB, whole=True)


def _list_page(state: State, results: Sequence[str]) -> ModelAnswer:
    if (failure := _not_written(state, results)) is not None:
        return failure
    words = "Now I list the whole folder."
    return _ask(state, "list", words, _list(state), *plan.plan_call(state))


def _listed(state: State, results: Sequence[str]) -> ModelAnswer:
    page = parse.parse_listing(results[0])
    if page is None:
        return say(f"The folder {state.folder} could not be listed to its end: {results[0]}")
    if parse.is_cut(results[0]) and state.page > LEAST_PAGE:
        return _smaller_page(state)
    state.changed = state.changed or (bool(state.total) and page.total != state.total)
    state.total = page.total
    state.notes = state.notes or _bounded(page.notes)
    for place, entry in enumerate(page.entries, state.offset):
        parts.mark(state, place, entry.path)
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
        call("search_files", pattern=q.pattern, path=state.folder, glob=q.glob,
              limit=report.EXAMPLES if q.quoted else 1)
        for q in report.QUESTIONS
    ]  # fmt: skip
    words = f"All is listed: {state.files:,} files. Now I search them."
    listed = f"{state.files:,} files in {state.folders:,} folders"
    told = plan.follow(state, "search", plan.completion_change("list", listed))
    return _ask(state, "search", words, *calls, *told)


def _searched(state: State, results: Sequence[str]) -> ModelAnswer:
    counts = [
        (_without_report(state, question, parse.parse_search(result)), result)
        for question, result in zip(report.QUESTIONS, results, strict=True)
    ]
    text = report.figures(state, counts)
    state.extensions, state.biggest, state.notes = {}, [], []
    state.listed, state.offset = state.offset, 0
    state.more = state.files > 0
    state.stride = -(-state.files // MOST_READ) or 1
    changes = parts.fit_parts(state) if state.delegated else []
    follow = plan.follow(state, "figures", *changes)
    return _write(state, "figures", "I write the figures.", text, *follow, whole=True)


def _next_files(state: State, results: Sequence[str]) -> ModelAnswer:
    """After a part is written: read on, or find out what to read next, or end."""
    if (failure := _not_written(state, results)) is not None:
        return failure
    return _go_on(state)


def _queued(state: State, results: Sequence[str]) -> ModelAnswer:
    page = parse.parse_listing(results[0])
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
    outcomes: list[report.FileOutcome] = []
    for path, result in zip(state.reading, results, strict=True):
        seen = parse.parse_reading(path, result)
        outcomes.append(report.FileOutcome(path, seen, parse.unread(result)))
        if seen is not None:
            state.opened += 1
            state.lines += seen.lines
        elif parse.is_binary(result):
            state.binary += 1
        else:
            state.failed += 1
    state.reading = []
    done = state.opened + state.binary + state.failed
    return _write(state, "part", f"I note what I saw; {done:,} are done.", report.part(outcomes))


def _read_back(state: State, results: Sequence[str]) -> ModelAnswer:
    if (failure := _not_written(state, results)) is not None:
        return failure
    again = call("read_file", path=state.report, limit=report.READ_LINES)
    words = "The report is written. I read it back."
    return _ask(state, "check", words, again, *plan.follow(state, "check"))


def _opened(state: State, results: Sequence[str]) -> ModelAnswer:
    """After the outcome of a part was opened: note it."""
    part = state.parts[state.outcomes[0][0]]
    if text := parts.gather(state, results[0]):
        return _write(state, "part", f"I note what was seen of {part.id}.", text)
    return _go_on(state)


def _recalled(state: State, results: Sequence[str]) -> ModelAnswer:
    found = parse.recalled(results[0])
    if found is not None:
        state.whereabouts, text = found
        state.recalled = f"“{parse.summary(text)}”"
    return _end(state)


def _checked(state: State, results: Sequence[str]) -> ModelAnswer:
    seen = parse.parse_reading(state.report, results[0])
    if seen is None:
        return say(f"The report {state.report} was written but cannot be read: {results[0]}")
    if seen.bytes != state.size:
        return say(
            f"The report {state.report} has {seen.bytes:,} bytes, but {state.size:,} were written: "
            "something else changed it, so it may not be right."
        )
    return say(report.final_answer(state))


_STEPS: dict[Phase, Callable[[State, Sequence[str]], ModelAnswer]] = {
    "begin": _begun,
    "stub": _list_page,
    "list": _listed,
    "search": _searched,
    "figures": _next_files,
    "queue": _queued,
    "read": _read,
    "part": _next_files,
    "outcome": _opened,
    "recall": _recalled,
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
        return _ask(state, state.phase, words, call("read_file", path=state.report, limit=1))
    return _ask(state, state.phase, "I was stopped, and do this again.", *map(repeat, calls))


def _verified(
    state: State, messages: Sequence[PromptMessage], results: Sequence[str]
) -> ModelAnswer:
    state.verify = False
    seen = parse.parse_reading(state.report, results[0])
    if seen is not None and seen.bytes == state.size:
        return _STEPS[state.phase](state, ["Appended"])
    if seen is None or seen.bytes != state.before:
        return say(f"The report {state.report} was changed by something else: {results[0]}")
    wrote = next(
        call
        for message in reversed(messages)
        for call in message.calls
        if call.name == "write_file"
    )
    return _ask(state, state.phase, "It was not written. I write it again.", repeat(wrote))


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
    if state.delegated:
        return _next_part(state)
    if state.queue:
        together = 1 if state.files <= 30 else 2 if state.files <= 100 else 4
        state.reading, state.queue = state.queue[:together], state.queue[together:]
        calls = [call("read_file", path=path, limit=report.READ_LINES) for path in state.reading]
        seen = state.opened + state.binary + state.failed
        told = plan.reading(state, seen) if seen % TOLD_EVERY < together else ()
        return _ask(state, "read", f"I read {', '.join(state.reading)}.", *calls, *told)
    if state.more:
        limit = min(state.page, QUEUE * state.stride * 2)
        words = "I look which files come next."
        return _ask(state, "queue", words, _list(state, limit=limit))
    return _end(state)


def _next_part(state: State) -> ModelAnswer:
    """Open the next outcome; hand over what is left to read where there is none."""
    if state.outcomes:
        place, handle = state.outcomes[0]
        words = f"I open what came of {state.parts[place].id}."
        return _ask(state, "outcome", words, call("recall", handle=handle, limit=OUTCOME_CHARS))
    if calls := parts.wave(state):
        return _ask(state, "delegate", f"I hand over {len(calls)} parts to readers.", *calls)
    again = call("recall", handle=state.first_listing, limit=FIRST_CHARS)
    words = "All parts are read. I look again at what was listed first."
    return _ask(state, "recall", words, again, *plan.follow(state, "recall"))


def _end(state: State) -> ModelAnswer:
    read = f"{state.opened:,} files read, {state.binary:,} binary, {state.failed:,} not readable"
    if state.delegated:
        return _write(state, "ending", "I write the end of the report.", report.ending(state))
    told = plan.change(state, plan.completion_change("read", read))
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
    state: State, question: report.SurveySearch, found: parse.SearchSummary | None
) -> parse.SearchSummary | None:
    """Take the report's own file, which holds nothing yet, out of what was searched."""
    if found is None or not _holds_report(state, question.glob):
        return found
    return parse.SearchSummary(
        found.matches,
        found.files,
        found.searched - 1,
        found.candidates - 1,
        found.stopped,
        found.examples,
    )


def _holds_report(state: State, glob: str) -> bool:
    return _inside(state) and fnmatchcase(
        posixpath.basename(posixpath.normpath(state.report)), glob
    )


def _inside(state: State) -> bool:
    """Return whether the report lies in the folder."""
    folder, path = posixpath.normpath(state.folder), posixpath.normpath(state.report)
    return folder == "." or path.startswith(f"{folder}/")


def _smaller_page(state: State) -> ModelAnswer:
    state.page = max(LEAST_PAGE, state.page // 2)
    words = "The list was cut, so I take a shorter one."
    return _ask(state, state.phase, words, _list(state))


def _bounded(notes: Sequence[str], most: int = 3, chars: int = 150) -> list[str]:
    kept = [note if len(note) <= chars else note[: chars - 1] + "…" for note in notes[:most]]
    return kept + ([f"And {len(notes) - most} more such."] if len(notes) > most else [])


def _look(state: State) -> list[RawCall]:
    """Return the calls that tell whether the folder is there, and the report."""
    report_too = [call("read_file", path=state.report, limit=1)] if state.delegated else []
    return [_list(state, limit=1), *report_too]


def _list(state: State, limit: int | None = None) -> RawCall:
    return call(
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
    write = call("write_file", path=state.report, content=text, append=not whole)
    return _ask(state, phase, words, write, *more)


def _not_written(state: State, results: Sequence[str]) -> ModelAnswer | None:
    if results[0].startswith(("Wrote ", "Appended")):
        return None
    return say(f"The report {state.report} could not be written: {results[0]}")


def _ask(state: State, phase: Phase, words: str, *calls: RawCall) -> ModelAnswer:
    state.phase = phase
    return ask(to_text(words, state), *calls)
