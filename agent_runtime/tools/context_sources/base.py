"""`ContextSource`: says something about a run's context that prompts keep."""

from __future__ import annotations

import hashlib
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent_runtime.models.tokens import count_text
from agent_runtime.tools.base import Tool
from agent_runtime.tools.workspace.root import show
from agent_runtime_config import Settings

LONGEST_NAME = 200
"""Characters of a path, or of another name, in a note."""
# Written by others and not seen by a person who reviews the file.
_INVISIBLE = frozenset(range(0xE0000, 0xE0080)) | frozenset(
    (0x061C, 0x180E, 0x200B, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2060, 0x206A), 0xFEFF)
)


@dataclass(frozen=True, slots=True)
class ContextNote:
    """What holds under one topic.

    Attributes:
        topic: what the note is about, in a few words; the newest note of a topic holds.
        text: as the model reads it.  What others wrote belongs between marks; see `quoted`.
    """

    topic: str
    text: str


@dataclass(frozen=True, slots=True)
class ContextRequest:
    """What a source is asked with.

    Attributes:
        tokens: about how many of our tokens its notes may have together; those of `notes_on` may
            have as many again.
        standing: the texts that hold on the thread so far, by topic.
        resumed: whether a run goes on, whose agent knows what it has changed itself.  Notes then
            void the provider's cache, so small changes are not worth one.
    """

    settings: Settings
    tokens: int
    standing: Mapping[str, str] = field(default_factory=dict[str, str])
    resumed: bool = False


class ContextSource(ABC):
    """Says something about the context of a run, such as the folder in which it works.

    Its notes are appended to the log before the task of each run, and when a run is resumed, as
    far as they are new or changed.  They stay in all prompts, whatever leaves them, until the
    source says something else.  A source has no state: one may serve many runs.

    A source that fails, or takes longer than 10 seconds, is passed over with a warning; what it
    said before stands.
    """

    @abstractmethod
    async def notes(self, request: ContextRequest) -> Sequence[ContextNote]:
        """Return everything that holds now; a standing topic that is missing holds no longer."""
        ...

    async def notes_on(
        self, request: ContextRequest, paths: Sequence[Path]
    ) -> Sequence[ContextNote]:
        """Return what holds in addition where these paths are, which tool calls have just named."""
        return ()


@dataclass(frozen=True, slots=True)
class ContextSources:
    """The sources of an agent, as its sub-agents share them."""

    sources: tuple[ContextSource, ...] = ()

    def for_tools(self, tools: Iterable[object]) -> tuple[ContextSource, ...]:
        """Return the sources for a sub-agent: all if one of its tools works in a folder."""
        works = any(isinstance(one, Tool) and one.folder is not None for one in tools)
        return self.sources if works else ()


def quoted(kind: str, text: str) -> str:
    """Return what others wrote between marks that it cannot contain.

    Equal texts have equal marks, so that a note changes only if its text does.
    """
    clean = cleaned(text)
    # A text cannot hold its own digest, and equal texts give equal notes, which a random mark
    # would not.
    mark = hashlib.sha256(clean.encode()).hexdigest()[:16]
    return f"<{kind} {mark}>\n{clean}\n</{kind} {mark}>"


def cleaned(text: str) -> str:
    """Return a text without control and invisible characters, but with its lines."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(one for one in lines if one in "\n\t" or not _is_invisible(one))


def _is_invisible(one: str) -> bool:
    return unicodedata.category(one) in ("Cc", "Cs", "Zl", "Zp") or ord(one) in _INVISIBLE


def shown_name(name: str) -> str:
    """Return a name on one line, shortened, as a note can show it."""
    whole = name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"
    return show(cleaned(whole).replace("\n", " ").replace("\t", " "))


def fitting(text: str, tokens: int) -> str:
    """Return as much of the beginning of a text as has about this many of our tokens."""
    # A token rarely has more than sixteen characters.
    part = text[: max(0, tokens) * 16]
    while part and count_text(part) > tokens:
        part = part[: len(part) * 3 // 4]
    return part
