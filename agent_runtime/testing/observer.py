"""What a scripted server answers where it plays the Observer or the Reflector.

Both are called by the run's own model unless the settings name another one, so a script that
serves a run with observational memory has to tell their requests from the agent's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_WHEN = re.compile(r"\b\d{4}-\d\d-\d\d(?: \d\d:\d\d)?\b")


def is_for_memory(request: Mapping[str, Any]) -> bool:
    """Return whether a request comes from an Observer or a Reflector: they have no tools."""
    return not request.get("tools")


def notes_for(request: Mapping[str, Any]) -> str:
    """Return notes in the format that the memory parses, dated like the text to observe."""
    text = str(request["messages"][-1]["content"])
    when = (_WHEN.findall(text) or ["2026-11-21"])[-1]
    return f"{when} | info | The agent read page after page.\nTASK: read all pages\nNEXT: none"
