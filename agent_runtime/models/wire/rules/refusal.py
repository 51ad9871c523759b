"""A provider's refusal of a request."""

from __future__ import annotations

from collections.abc import Iterable

from agent_runtime.models.file_limits.admission import FileAdmission, FileLimits, FileSize


class RefusedError(Exception):
    """The provider refuses a request; the text is its own."""


def refuse_if(refused: object, text: str) -> None:
    """Refuse a request if there is something wrong with it."""
    if refused:
        raise RefusedError(text)


def refuse_files(files: Iterable[FileSize], limits: FileLimits) -> None:
    """Refuse a request of which a file is more than the provider takes."""
    admission = FileAdmission(limits)
    for file in files:
        why = admission.problem(file)
        refuse_if(why, why)
