"""The dates that a question names, and the moments that match them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.memory.recall.dates import NamedDate, best_fit, dates_named


def at(year: int, month: int, day: int) -> float:
    return datetime(year, month, day, 12, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "dates"),
    [
        ("What did we watch on 1 May, 2022?", [NamedDate(2022, 5, 1)]),
        ("the 3rd of June", [NamedDate(None, 6, 3)]),
        ("on Sept. 3, 2021", [NamedDate(2021, 9, 3)]),
        ("in July 2022 or in March", [NamedDate(2022, 7), NamedDate(None, 3)]),
        ("on 2022-05-01 and in 2021", [NamedDate(2022, 5, 1), NamedDate(2021)]),
        ("May I ask what we may do, and who will march?", []),
        ("room 2022b, 13/45, 99 March", [NamedDate(None, 3)]),
        ("", []),
    ],
)
def test_dates_are_parsed_in_their_written_forms(text: str, dates: list[NamedDate]) -> None:
    assert dates_named(text) == dates


def test_a_moment_matches_within_and_soon_after_and_never_before() -> None:
    july = NamedDate(2022, 7)
    assert [july.fit(at(2022, 7, day)) for day in (1, 31)] == [1, 1]
    assert july.fit(at(2022, 6, 30)) == 0
    assert 1 > july.fit(at(2022, 8, 2)) > july.fit(at(2022, 8, 9)) > 0
    assert july.fit(at(2022, 8, 31)) == 0
    assert july.fit(at(2023, 7, 5)) == 0


def test_a_date_without_a_year_matches_any_year_across_new_year() -> None:
    assert NamedDate(None, 3).fit(at(2019, 3, 5)) == 1
    assert NamedDate(None, 12, 31).fit(at(2022, 1, 2)) > 0.5


def test_an_impossible_day_matches_nothing() -> None:
    assert NamedDate(2021, 2, 30).fit(at(2021, 3, 1)) == 0
    assert NamedDate(None, 2, 29).fit(at(2024, 2, 29)) == 1


def test_without_a_date_or_a_time_nothing_matches() -> None:
    assert best_fit([], at(2022, 7, 1)) == 0
    assert best_fit([NamedDate(1970, 1)], 0.0) == 0


@given(st.text(), st.floats(0, 4e9))
def test_any_text_and_any_moment_have_a_share(text: str, moment: float) -> None:
    assert 0 <= best_fit(dates_named(text), moment) <= 1
