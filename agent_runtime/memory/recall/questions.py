"""How much of a message asks: an answer is more often looked for than a question."""

from __future__ import annotations

import re

# A mark of another script needs no space behind it.
_SENTENCE = re.compile(r"(?:[^.!?…。！？؟।\n]|[.!?…؟](?!\s|$))+[.!?…。！？؟।]*\s*")
_ASKS = ("?", "？", "؟")


def share_asked(text: str) -> float:
    """Return the share of a text's characters that are in sentences with a question mark."""
    sentences = [match[0].strip() for match in _SENTENCE.finditer(text)]
    total = sum(map(len, sentences))
    return sum(len(one) for one in sentences if one.endswith(_ASKS)) / total if total else 0.0
