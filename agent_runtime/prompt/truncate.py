"""Truncate tool results to head and tail, with a line between them that names the handle."""

from __future__ import annotations

from collections.abc import Callable, Sequence

HEAD_SHARE = 0.6
"""The head's share of what is shown."""
NEAR = 0.25
"""A cut moves to the end of a line within this share of the head, or of the tail."""
BISECTIONS = 7
"""Steps of the search for the longest length that fits: within 1% of it."""

MOST_CHARS_A_TOKEN = 16
"""Of a long text with more, such as a run of blanks, only this many are shown: each place of the
search for what fits would count a megabyte, on the event loop."""
LONG_CHARS = 100_000
"""A text up to this length may have any number of characters a token."""

_WORST_HANDLE = "cz9x7q5w3"
_HANDLE_TOKENS = 9
"""A handle has nine characters, so never more tokens, whatever the vocabulary."""


def truncate_text(text: str, chars: int, handle: str) -> str:
    """Return about `chars` characters of a text, from its beginning and its end.

    A line between the two says how much is left out, and the handle for `recall`.  A text that
    would not become shorter is returned unchanged.
    """
    if len(text) <= chars:
        return text
    chars = max(0, chars)
    tail = int(chars * (1 - HEAD_SHARE))
    stop = _head_end(text, chars - tail)
    start = _tail_start(text, len(text) - tail)
    left_out = _marker(start - stop, len(text), handle, stop)
    # The line would take more room than what it stands for.
    if len(text) <= chars + len(left_out):
        return text
    head = text[:stop]
    gap = "" if not head or head.endswith("\n") else "\n"
    return f"{head}{gap}{left_out}\n{text[start:]}"


def share_result_budget(
    texts: Sequence[str],
    budget: int,
    count: Callable[[str], int],
    caps: Sequence[int] | None = None,
) -> list[int | None]:
    """Share a budget of tokens over the results of one exchange.

    Short texts stay whole; the long ones share the rest equally.

    Args:
        count: returns the tokens of a text.
        caps: for each text, the most tokens it may have in any case; None for no caps.

    Returns:
        For each text, how many characters `truncate_text` may leave, or None for all.  The
        truncated texts have at most `budget` tokens together, unless the lines about what is left
        out alone have more.
    """
    # No cap is below the line itself, with numbers as long as they get.
    sample = _marker(10**8, 10**9, _WORST_HANDLE, 10**8)
    floor = count(sample) + _HANDLE_TOKENS
    most = [max(floor, min(cap, budget)) for cap in caps or [budget] * len(texts)]
    needs = [_tokens(text, cap, count) for text, cap in zip(texts, most, strict=True)]
    wanted = [min(need, cap) for need, cap in zip(needs, most, strict=True)]
    if sum(wanted) > budget:
        share = _level(wanted, budget, floor)
        most = [min(cap, share) for cap in most]
    return [
        None if need <= cap else _most_chars(text, cap - _HANDLE_TOKENS, count)
        for text, need, cap in zip(texts, needs, most, strict=True)
    ]


def _marker(left_out: int, total: int, handle: str, offset: int) -> str:
    return (
        f"[... {left_out:,} of {total:,} characters are left out here; "
        f'recall(handle="{handle}", offset={offset}) opens them ...]'
    )


def _head_end(text: str, stop: int) -> int:
    line_end = text.rfind("\n", int(stop * (1 - NEAR)), stop)
    return line_end + 1 if line_end >= 0 else _between_characters(text, stop)


def _tail_start(text: str, start: int) -> int:
    # The character before may be a newline: then a line begins just here.
    near = int((len(text) - start) * NEAR)
    line_end = text.find("\n", max(0, start - 1), start + near)
    return line_end + 1 if line_end >= 0 else _between_characters(text, start, step=1)


def _between_characters(text: str, place: int, step: int = -1) -> int:
    """Move a place out of a surrogate pair."""
    inside = 0 < place < len(text) and "\udc00" <= text[place] <= "\udfff"
    return place + step if inside and "\ud800" <= text[place - 1] <= "\udbff" else place


def _tokens(text: str, enough: int, count: Callable[[str], int]) -> int:
    """Count a text, stopping once it has more than `enough` tokens."""
    # Megabytes need not be counted to know that they are too long.
    if len(text) > _longest(enough):
        return enough + 1
    size = max(1000, enough * 4)
    total = 0
    for start in range(0, len(text) if len(text) > size else 0, size):
        total += count(text[start : start + size])
        if total > enough:
            return total
    return count(text)


def _longest(tokens: int) -> int:
    return max(LONG_CHARS, tokens * MOST_CHARS_A_TOKEN)


def _level(needs: Sequence[int], budget: int, floor: int) -> int:
    """Return the most tokens for each text so that all together are within the budget.

    At least `floor`, the tokens of a text truncated to nothing.
    """
    left = budget
    waiting = sorted(needs)
    for done, need in enumerate(waiting):
        share = left // (len(waiting) - done)
        if need > share:
            return max(share, floor)
        # A text that needs less than its share leaves the rest to the longer ones.
        left -= need
    return max(left, floor)


def _most_chars(text: str, tokens: int, count: Callable[[str], int]) -> int:
    """Return about the most characters that `truncate_text` may leave within `tokens`.

    Tokens do not grow evenly with characters, so the result was itself counted (or is 0).
    """
    # First double until it is too long, then bisect: the text may have many characters a token.
    longest = min(len(text), _longest(tokens))
    fits, too_many = 0, max(1, min(longest, tokens * 4))
    while too_many < longest and count(truncate_text(text, too_many, _WORST_HANDLE)) <= tokens:
        fits, too_many = too_many, min(longest, too_many * 2)
    for _ in range(BISECTIONS):
        middle = (fits + too_many) // 2
        if count(truncate_text(text, middle, _WORST_HANDLE)) <= tokens:
            fits = middle
        else:
            too_many = middle
    return fits
