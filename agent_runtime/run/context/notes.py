"""Ask the sources of an agent's context, and make notes of what is new."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
import anyio.to_thread

from agent_runtime.messages import Note, ToolCall, ToolResult, encodable
from agent_runtime.prompt.context_notes import changed_notes, standing_notes
from agent_runtime.prompt.view import View
from agent_runtime.run.context.named_paths import named_paths
from agent_runtime.tools.context_sources.base import (
    ContextNote,
    ContextRequest,
    ContextSource,
)
from agent_runtime.tools.skills.find import SkillFolder, find_skills
from agent_runtime.tools.skills.open_skill import NAME, OpenSkill, SkillList
from agent_runtime.tools.skills.skill import Skill
from agent_runtime.tools.toolset import Toolset
from agent_runtime_config import Settings

SECONDS = 10.0
"""Timeout of one source."""
TOKENS = 8000
"""The most tokens, in our count, that a source's notes may have."""
SHARE = 8
"""The same as a part of a prompt's limit."""
# Outcomes of calls that reached the place they name; refused and cancelled ones did not.
_RAN = ("ok", "error")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ContextNotes:
    """Makes the notes about a run's context.

    Attributes:
        sources: the agent's.
        own: those of the runtime's own tools.
        tokens: what each source may take.
    """

    sources: tuple[ContextSource, ...] = ()
    own: tuple[ContextSource, ...] = ()
    settings: Settings = field(default_factory=Settings)
    tokens: int = TOKENS

    async def changed(self, view: View, *, resumed: bool = False) -> list[Note]:
        """Return notes of what changed on a branch since its last notes: all, on a new one."""
        standing = standing_notes(view)
        request = replace(self._request(standing), resumed=resumed)
        current: list[ContextNote] = []
        whole = True
        for source in (*self.sources, *self.own):
            found = await _asked(source, lambda source=source: source.notes(request))
            whole &= found is not None
            current += found or ()
        notes = list(map(_note, current))
        # What a source that failed said before is not known to have ended.
        kept = () if whole else standing.values()
        return changed_notes(standing, [*kept, *notes])

    async def on_calls(
        self, view: View, tools: Toolset, calls: Sequence[ToolCall], results: Sequence[ToolResult]
    ) -> list[Note]:
        """Return notes of what holds where an exchange's calls have been for the first time."""
        if not self.sources:
            return []
        ran = [call for call, one in zip(calls, results, strict=True) if one.outcome in _RAN]
        paths = named_paths(ran, tools)
        if not paths:
            return []
        standing = standing_notes(view)
        request = self._request(standing)
        notes: list[Note] = []
        for source in self.sources:
            found = await _asked(source, lambda source=source: source.notes_on(request, paths))
            notes += map(_note, found or ())
        return [one for one in notes if one.topic not in standing]

    def _request(self, standing: Mapping[str, Note]) -> ContextRequest:
        texts = {topic: note.text for topic, note in standing.items()}
        return ContextRequest(self.settings, self.tokens, texts)


def context_notes(
    sources: Sequence[ContextSource], tools: Toolset, settings: Settings, limit: int
) -> ContextNotes:
    """Return what makes the notes of an agent with these sources and tools.

    Args:
        limit: the most tokens of its prompts.
    """
    opener = tools.get(NAME)
    listed = (SkillList(opener.skills.values()),) if isinstance(opener, OpenSkill) else ()
    return ContextNotes(tuple(sources), listed, settings, min(TOKENS, limit // SHARE))


async def load_skills(given: Sequence[object]) -> tuple[Skill, ...]:
    """Return the skills in an agent's folders; those that are not valid give warnings."""
    if not given:
        return ()
    folders = [
        one if isinstance(one, Skill | SkillFolder) else SkillFolder(Path(str(one)), needed=True)
        for one in given
    ]
    found = await anyio.to_thread.run_sync(find_skills, folders)
    for problem in found.problems:
        _log.warning("%s", problem)
    return found.skills


async def _asked(
    source: ContextSource, ask: Callable[[], Awaitable[Sequence[ContextNote]]]
) -> Sequence[ContextNote] | None:
    """Return a source's notes; None, and a warning, if it fails."""
    name = type(source).__name__
    try:
        with anyio.fail_after(SECONDS):
            return await ask()
    except TimeoutError:
        _log.warning("The context source %s took longer than %g seconds.", name, SECONDS)
    except Exception as error:
        # The agent can work without: its tools show where it is.
        _log.warning("The context source %s failed: %s", name, type(error).__name__)
    return None


def _note(one: ContextNote) -> Note:
    return Note(encodable(one.text), "context", topic=encodable(one.topic))
