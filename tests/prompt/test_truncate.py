"""Truncating long tool results, and sharing a token budget among those of one exchange."""

from __future__ import annotations

import base64
import random
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.truncate import share_result_budget, truncate_text

HANDLE = "c0000016q"
MARKER = re.compile(
    r"\[\.\.\. ([\d,]+) of ([\d,]+) characters are left out here; "
    r'recall\(handle="c0000016q", offset=(\d+)\) opens them \.\.\.\]'
)
LONGEST_MARKER = 130


def parts(text: str, shown: str) -> tuple[str, int, str]:
    """Return head, number of omitted characters, and tail, checked against the whole text."""
    marker = MARKER.search(shown)
    assert marker is not None
    left_out, total = (int(marker[i].replace(",", "")) for i in (1, 2))
    stop = int(marker[3])
    assert total == len(text)
    head, tail = text[:stop], text[stop + left_out :]
    gap = "" if not head or head.endswith("\n") else "\n"
    assert shown == f"{head}{gap}{marker[0]}\n{tail}"
    return head, left_out, tail


def test_a_text_that_fits_stays_whole() -> None:
    assert truncate_text("short", 5, HANDLE) == "short"
    assert truncate_text("", 0, HANDLE) == ""


def test_a_text_that_a_cut_would_hardly_shorten_stays_whole() -> None:
    assert truncate_text("x" * 110, 100, HANDLE) == "x" * 110


def test_head_and_tail_stay_and_the_marker_counts_the_rest() -> None:
    text = "".join(f"line {number}\n" for number in range(1000))
    head, _, tail = parts(text, truncate_text(text, 1000, HANDLE))
    assert head.startswith("line 0\n")
    assert tail.endswith("line 999\n")
    assert 500 < len(head) <= 600
    assert 300 < len(tail) <= 400


def test_cuts_are_at_a_near_line_end() -> None:
    text = "".join(f"line {number}\n" for number in range(1000))
    head, _, tail = parts(text, truncate_text(text, 777, HANDLE))
    assert head.endswith("\n")
    assert tail.startswith("line ")


def test_without_a_near_line_end_cuts_are_inside_the_line() -> None:
    text = "x" * 5000
    head, left_out, tail = parts(text, truncate_text(text, 1000, HANDLE))
    assert (len(head), left_out, len(tail)) == (600, 4000, 400)


@pytest.mark.parametrize("chars", range(1000, 1010))
def test_no_cut_is_inside_a_surrogate_pair(chars: int) -> None:
    text = "\ud83d\ude00" * 2000
    head, _, tail = parts(text, truncate_text(text, chars, HANDLE))
    assert not head or head[-1] == "\ude00"
    assert not tail or tail[0] == "\ud83d"


@given(st.text(max_size=600), st.integers(-5, 700))
def test_a_truncated_text_never_exceeds_the_limit_plus_the_marker(text: str, chars: int) -> None:
    shown = truncate_text(text, chars, HANDLE)
    assert len(shown) <= max(chars, 0) + LONGEST_MARKER
    assert shown == truncate_text(text, chars, HANDLE)
    if shown != text:
        parts(text, shown)


KINDS: dict[str, Callable[[int], str]] = {
    "base64": lambda size: base64.b64encode(random.Random(size).randbytes(size)).decode(),
    "cjk": lambda size: "漢字仮名交じり文" * (size // 8),
    "spaces": lambda size: " " * size,
    "code": lambda size: "def function(x):\n    return x + 1\n" * (size // 33),
    "emoji": lambda size: "😀🏳️‍🌈" * (size // 7),
    "one letter": lambda size: "x" * size,
    "digits": lambda size: "".join(random.Random(size).choices("0123456789", k=size)),
}


def shown_tokens(texts: list[str], limits: list[int | None]) -> int:
    return sum(
        count_text(text if limit is None else truncate_text(text, limit, HANDLE))
        for text, limit in zip(texts, limits, strict=True)
    )


@pytest.mark.parametrize("budget", [400, 2000, 20_000])
@pytest.mark.parametrize("seed", range(8))
def test_all_together_stay_within_the_budget(seed: int, budget: int) -> None:
    rng = random.Random(seed)
    texts = [
        rng.choice(list(KINDS.values()))(int(10 ** rng.uniform(1, 4.8)))
        for _ in range(rng.randint(1, 5))
    ]
    limits = share_result_budget(texts, budget, count_text)
    assert shown_tokens(texts, limits) <= budget
    if sum(map(count_text, texts)) <= budget:
        assert limits == [None] * len(texts)


@pytest.mark.parametrize("kind", KINDS)
def test_a_single_long_text_uses_nearly_the_whole_budget(kind: str) -> None:
    texts = [KINDS[kind](50_000)]
    budget = min(2000, count_text(texts[0]) // 2)
    limits = share_result_budget(texts, budget, count_text)
    assert 0.8 * budget < shown_tokens(texts, limits) <= budget


def test_short_results_stay_whole_and_long_ones_share_the_rest_equally() -> None:
    short, long = "ok\n" * 20, "def function(x):\n    return x + 1\n" * 3000
    limits = share_result_budget([short, long, short, long], 2000, count_text)
    assert limits[0] is None
    assert limits[2] is None
    assert limits[1] is not None
    assert limits[1] == limits[3]
    assert shown_tokens([short, long, short, long], limits) <= 2000


def test_a_million_spaces_are_counted_and_not_refused() -> None:
    text = " " * 1_000_000
    limits = share_result_budget([text], 1000, count_text)
    assert limits[0] is not None
    assert shown_tokens([text], limits) <= 1000


def test_a_text_of_many_characters_a_token_is_not_counted_over_and_over() -> None:
    counted = 0

    def count(text: str) -> int:
        nonlocal counted
        counted += len(text)
        return len(text) // 128 + 1

    [chars] = share_result_budget([" " * 2_000_000], 8_000, count)
    assert chars is not None and chars > 100_000
    # Each count runs on the event loop.
    assert counted < 1_500_000


def test_short_results_stay_whole_under_a_budget_too_small_for_the_markers() -> None:
    limits = share_result_budget(["done"] * 50 + ["word " * 5000], 64, count_text)
    assert limits == [None] * 50 + [limits[-1]]
    assert limits[-1] is not None


def test_no_results_need_no_budget() -> None:
    assert share_result_budget([], 100, count_text) == []
