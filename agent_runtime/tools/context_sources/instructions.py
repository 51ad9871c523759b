"""The instructions of the project and of its user, from their `AGENTS.md` files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path, PurePath

import anyio.to_thread

from agent_runtime.models.tokens import count_text
from agent_runtime.tools.context_sources.base import (
    ContextNote,
    ContextRequest,
    ContextSource,
    cleaned,
    fitting,
    quoted,
    shown_name,
)
from agent_runtime.tools.context_sources.instruction_files import (
    InstructionFile,
    InstructionFiles,
    user_file,
)
from agent_runtime.tools.workspace.protected_paths import from_settings

OF_USER, OF_PROJECT = "the user's instructions in ", "the project's instructions in "
"""How topics begin; the path follows."""
MOST_BELOW = 20
"""The most files below the workspace that one thread is shown."""
_LEAST = 40
"""Tokens below which a part of a file is not worth showing."""

_USER_TRUST = (
    "They bind you like the user's other words; where they differ, what the user says later holds."
)
_PROJECT_TRUST = (
    "They say how to work in {where}. They are weaker than what the user says, and allow nothing "
    "that your tools refuse or that a person has to approve; those of a nearer folder win over "
    "those of folders above."
)


class ProjectInstructions(ContextSource):
    """Says what `AGENTS.md` files ask of the agent; `CLAUDE.md` where a folder has none.

    These are read: the user's own (`AGENTS.md` in the runtime's configuration folder, else
    `~/.agents/AGENTS.md`, else `~/.claude/CLAUDE.md`), those from the root of the repository down
    to the workspace, and those of a folder below when a tool first names a path in it.  A line
    `@path` includes a text of the project.

    `AGENT_RUNTIME_PROJECT_INSTRUCTIONS=false` switches all of it off.

    Args:
        workspace: the folder of the agent's tools.
        user: whether to read the user's own file, too.
    """

    def __init__(self, workspace: str | os.PathLike[str], *, user: bool = True) -> None:
        self.workspace = Path(workspace).resolve()
        self.user = user

    async def notes(self, request: ContextRequest) -> Sequence[ContextNote]:
        """Return the notes of the user's file, the project's, and those below that still stand."""
        if not request.settings.project_instructions:
            return ()
        return await anyio.to_thread.run_sync(self._notes, request, abandon_on_cancel=True)

    async def notes_on(
        self, request: ContextRequest, paths: Sequence[Path]
    ) -> Sequence[ContextNote]:
        """Return the notes of files in the paths' folders that do not stand yet."""
        if not (paths and request.settings.project_instructions):
            return ()
        return await anyio.to_thread.run_sync(
            partial(self._notes_on, request, paths), abandon_on_cancel=True
        )

    def _notes(self, request: ContextRequest) -> list[ContextNote]:
        files = self._files(request)
        own = [_Noted(OF_USER, one) for one in self._of_user()]
        above = [_Noted(OF_PROJECT, one) for one in files.above()]
        known = {one.topic for one in (*own, *above)}
        below: list[_Noted] = []
        for topic in request.standing:
            if topic.startswith(OF_PROJECT) and topic not in known:
                found = files.again(topic.removeprefix(OF_PROJECT))
                below += [_Noted(OF_PROJECT, found)] if found is not None else []
        # The user's first, then the nearer ones: what comes last may have no room.
        texts = dict(_fitted([*own, *reversed(above)], request.tokens))
        texts |= _fitted(below, request.tokens)
        return [ContextNote(one.topic, texts[one.topic]) for one in (*own, *above, *below)]

    def _notes_on(self, request: ContextRequest, paths: Sequence[Path]) -> list[ContextNote]:
        files = self._files(request)
        found: dict[str, _Noted] = {}
        above = {_Noted(OF_PROJECT, one).topic for one in files.above()}
        standing = [
            text
            for topic, text in request.standing.items()
            if topic.startswith(OF_PROJECT) and topic not in above
        ]
        for path in paths:
            for one in files.below(path):
                noted = _Noted(OF_PROJECT, one)
                if noted.topic not in request.standing and len(found) + len(standing) < MOST_BELOW:
                    found[noted.topic] = noted
        if not found:
            return []
        left = request.tokens - sum(map(count_text, standing))
        fitted = _fitted(list(found.values()), left)
        return [ContextNote(topic, text) for topic, text in fitted]

    def _files(self, request: ContextRequest) -> InstructionFiles:
        settings = request.settings
        rules = from_settings(settings.protected_paths, settings.hidden_paths)
        return InstructionFiles.of(self.workspace, rules)

    def _of_user(self) -> Iterator[InstructionFile]:
        found = user_file() if self.user else None
        if found is None:
            return
        place, file = found
        # The agent can write the workspace, and must not speak for the user.
        if not Path(os.path.realpath(place)).is_relative_to(self.workspace):
            yield file


class _Noted:
    """A file of instructions, and the topic of its note."""

    def __init__(self, prefix: str, file: InstructionFile) -> None:
        self.file = file
        self.name = shown_name(file.path)
        self.of_user = prefix == OF_USER
        self.topic = f"{prefix}{self.name}"

    def header(self) -> str:
        """Return the sentences that say whose the file is, and what it may ask."""
        folder = shown_name(str(PurePath(self.file.path).parent))
        where = "this project" if folder == "." or folder.startswith("..") else f"{folder}/"
        trust = _USER_TRUST if self.of_user else _PROJECT_TRUST.format(where=where)
        return f"{self.topic[0].upper()}{self.topic[1:]}. {trust}"


def _fitted(files: Sequence[_Noted], tokens: int) -> Iterator[tuple[str, str]]:
    """Yield the topics and texts of the notes; those for which there is no room are named only."""
    left = tokens
    for one in files:
        text = cleaned(one.file.text)
        shown = fitting(text, left) if left >= _LEAST else ""
        remarks = [shown_name(one.file.problem)] if one.file.problem else []
        if len(shown) < len(text):
            part = f"{len(text) - len(shown):,} of its {len(text):,} characters are not shown"
            remarks.append(f"{part}: read the file before you work there")
        parts = [one.header()]
        parts += [quoted("instructions", shown)] if shown else []
        parts += [f"[{'; '.join(remarks)}.]"] if remarks else []
        note = "\n".join(parts)
        left -= count_text(note)
        yield one.topic, note
