"""The dates that a question names, and the moments that match them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.memory.recall.dates import DateSpan, NamedDate, best_fit, dates_named


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


WEDNESDAY = at(2023, 6, 14)
LAST_WEEK = DateSpan(date(2023, 6, 5), date(2023, 6, 11))
TWO_WEEKS_AGO = DateSpan(date(2023, 5, 28), date(2023, 6, 3))


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        (
            "yesterday|gestern|hier|ayer|ontem|ieri|gisteren|wczoraj|вчера|dün|أمس|昨天|어제",
            (6, 13),
        ),
        (
            "two days ago|vor zwei Tagen|il y a 2 jours|hace dos días|há dois dias|due giorni fa",
            (6, 12),
        ),
        (
            "twee dagen geleden|dwa dni temu|два дня назад|iki gün önce|2 दिन पहले|2天前|2日前",
            (6, 12),
        ),
        ("last Friday|letzten Freitag|vendredi dernier|el viernes pasado|venerdì scorso", (6, 9)),
        ("vrijdag|w piątek|в пятницу|geçen cuma|الجمعة|शुक्रवार|上周五|金曜日|금요일", (6, 9)),
    ],
)
def test_days_relative_to_the_question_are_read_in_many_languages(
    texts: str, named: tuple[int, int]
) -> None:
    for text in texts.split("|"):
        assert dates_named(f"? {text}!", now=WEDNESDAY) == [NamedDate(2023, *named)], text


@pytest.mark.parametrize(
    "texts, dates",
    [
        ("last week|letzte Woche|la semaine dernière|la semana pasada|上周|지난주", [LAST_WEEK]),
        ("two weeks ago|vor zwei Wochen|il y a deux semaines|hace dos semanas", [TWO_WEEKS_AGO]),
        ("last month|letzten Monat|le mois dernier|прошлом месяце|上个月", [NamedDate(2023, 5)]),
        ("last year|letztes Jahr|l'année dernière|去年|작년", [NamedDate(2022)]),
        (
            "on 3 May|am 3. Mai|le 3 mai|3 de mayo|3 maja|3 мая|5月3日|5월 3일",
            [NamedDate(None, 5, 3)],
        ),
        ("3.5.2022|2022-05-03|2022年5月3日|3. Mai 2022", [NamedDate(2022, 5, 3)]),
        ("03/05/2022", [NamedDate(2022, 3, 5), NamedDate(2022, 5, 3)]),
        ("Mars is red|version 3.5.1|what we may do|il va en maison|Sundance", []),
    ],
)
def test_spans_and_days_are_read_in_many_languages(
    texts: str, dates: list[NamedDate | DateSpan]
) -> None:
    for text in texts.split("|"):
        assert dates_named(text, now=WEDNESDAY) == dates, text


def test_the_users_zone_decides_what_yesterday_is() -> None:
    tokyo, late = ZoneInfo("Asia/Tokyo"), datetime(2023, 6, 14, 20, tzinfo=UTC).timestamp()
    assert dates_named("yesterday", now=late) == [NamedDate(2023, 6, 13)]
    [there] = dates_named("yesterday", now=late, zone=tokyo)
    assert there == NamedDate(2023, 6, 14)
    assert there.fit(late, UTC) == 1 and there.fit(late, tokyo) < 1
