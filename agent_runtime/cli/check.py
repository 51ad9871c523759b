"""`DoctorCheck`: what a check of `doctor` found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """The result of one check, and its cure."""

    name: str
    state: Literal["ok", "warn", "fail"]
    detail: str
    cure: str = ""
