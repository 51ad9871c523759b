"""Read from a task's words which folder to survey, and into which file."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent_runtime.messages import PromptMessage
from agent_runtime.offline.tool_output import without_notes

DEFAULT_REPORT = "REPORT.md"

_SURVEY = re.compile(r"\b(survey|overview|describe|report (on|of|about))\b", re.IGNORECASE)
_PLACE = r"(?:folder|director(?:y|ies)|workspace|repo(?:sitory)?|project|code ?base|tree|files)"
_ABOUT_FILES = re.compile(
    rf"\b{_PLACE}\b|(?:^|\s)[`'\"]?\.{{0,2}}/|\w/|\s\.(?:\s|$)", re.IGNORECASE
)
_CALLED = r"\s+(?:(?:at|in|called|named)\s+)?"
# A name in quotes, or a path with a slash.
_FOLDER = re.compile(
    rf"\b(?:{_PLACE}{_CALLED}|(?:of|on|survey|describe)\s+(?:the\s+)?)"
    r"(?:([`'\"])([^`'\"\n]+)\1|(\.?[\w.-]*/[\w./-]*|\.)(?=[\s,;.]|$))",
    re.IGNORECASE,
)
# "The docs folder".  If it names none, as "the large folder" does, the error says how to name one.
_NAMED = re.compile(
    r"\bthe\s+(?!(?:whole|entire|current|working|given|same|root|project|workspace)\b)"
    r"([\w.-]+)\s+(?:folder|directory)\b",
    re.IGNORECASE,
)
_FILE = r"([\w./-]*\w\.(?:md|markdown|txt))\b"
_INTO = re.compile(rf"\b(?:to|into|in|as|called|named|write)\s+[`'\"]?{_FILE}", re.IGNORECASE)
_ANY_FILE = re.compile(_FILE, re.IGNORECASE)


def read_task(text: str) -> tuple[str, str] | None:
    """Return the folder, `.` for all of the workspace, and the report's file.

    None if the task does not ask for the survey of a folder.
    """
    if not (_SURVEY.search(text) and _ABOUT_FILES.search(text)):
        return None
    # The last one: a file to read first, such as a README, is named before the one to write.
    names = _INTO.findall(text) or _ANY_FILE.findall(text)
    report = names[-1] if names else DEFAULT_REPORT
    paths = [quoted or path for _, quoted, path in _FOLDER.findall(text)]
    folder = next((path for path in [*paths, *_NAMED.findall(text)] if path != report), ".")
    return folder.rstrip("/") or folder, report


def find_task(messages: Sequence[PromptMessage]) -> tuple[int, str]:
    """Return the place and the text of the run's task: the user's last message."""
    for place in reversed(range(len(messages))):
        if messages[place].role == "user":
            text = without_notes(messages[place].text).strip()
            if text:
                return place, text
    return -1, ""
