"""Shortening tool results: head, a line that says what is left out and how to open it, tail."""

from __future__ import annotations

from collections.abc import Callable, Sequence

HEAD_SHARE = 0.6
"""How much of what is shown comes from the text's beginning."""
NEAR = 0.25
"""A cut moves to a line's end if one lies within this share of the head, or of the tail."""
BISECTIONS = 7
"""How often the length of a cut text is halved in on: to within 1% of what would fit."""

_WORST_HANDLE = "cz9x7q5w3"
_HANDLE_TOKENS = 9


def truncate_text(text: str, chars: int, handle: str) -> str:
    """Return the text with about `chars` characters of it left, from its beginning and its end.

    Between the two stands one line that says how much is left out and how `recall` opens it by
    the handle.  A text that is no longer than that whole is returned as it is.
    """
    if len(text) <= chars:
        return text
    chars = max(0, chars)
    tail = int(chars * (1 - HEAD_SHARE))
    stop = _head_end(text, chars - tail)
    start = _tail_start(text, len(text) - tail)
    left_out = _marker(start - stop, len(text), handle, stop)
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

    Short texts stay whole; what they leave is shared equally by the long ones.

    Args:
        count: returns how many tokens a text has.
        caps: for each text, the most tokens that it may have whatever the budget; None for the
            budget alone.

    Returns:
        For each text, how many characters `truncate_text` may leave of it; None for all.  Cut so,
        all together have at most `budget` tokens, unless there are so many that the lines which say
        what is left out need more than that by themselves.
    """
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
    """Move a place out of the middle of a surrogate pair."""
    inside = 0 < place < len(text) and "\udc00" <= text[place] <= "\udfff"
    return place + step if inside and "\ud800" <= text[place - 1] <= "\udbff" else place


def _tokens(text: str, enough: int, count: Callable[[str], int]) -> int:
    """Count a text, but of a long one only so much as shows that it has more than `enough`."""
    size = max(1000, enough * 4)
    total = 0
    for start in range(0, len(text) if len(text) > size else 0, size):
        total += count(text[start : start + size])
        if total > enough:
            return total
    return count(text)


def _level(needs: Sequence[int], budget: int, floor: int) -> int:
    """Return how many tokens each text may have so that all together have at most the budget.

    Never less than `floor`, what a text has that is cut down to nothing.
    """
    left = budget
    waiting = sorted(needs)
    for done, need in enumerate(waiting):
        share = left // (len(waiting) - done)
        if need > share:
            return max(share, floor)
        left -= need
    return max(left, floor)


def _most_chars(text: str, tokens: int, count: Callable[[str], int]) -> int:
    """Return about the most characters that `truncate_text` may leave so that it has at most so
    many tokens.

    Tokens do not grow evenly with characters, so what is returned was itself counted (or is 0).
    """
    fits, too_many = 0, max(1, min(len(text), tokens * 4))
    while too_many < len(text) and count(truncate_text(text, too_many, _WORST_HANDLE)) <= tokens:
        fits, too_many = too_many, min(len(text), too_many * 2)
    for _ in range(BISECTIONS):
        middle = (fits + too_many) // 2
        if count(truncate_text(text, middle, _WORST_HANDLE)) <= tokens:
            fits = middle
        else:
            too_many = middle
    return fits
