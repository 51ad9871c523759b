"""Translating the store's SQL and values into the form that Postgres takes."""

from __future__ import annotations

import pytest

from agent_runtime_storage import StoreError
from agent_runtime_storage.drivers.postgres.translation import (
    missed_statement_index,
    query_command,
    translate,
    translate_counted,
)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT :a, :b, :a", "SELECT $1, $2, $1"),
        ("SELECT :a::text, x::bigint", "SELECT $1::text, x::bigint"),
        ("SELECT ':a', 'it''s :b', :c", "SELECT ':a', 'it''s :b', $1"),
        (r"SELECT E'\':a', :b", r"SELECT E'\':a', $1"),
        ('SELECT ":a" FROM t WHERE x = :a', 'SELECT ":a" FROM t WHERE x = $1'),
        ("DO $$ BEGIN x := :a; END $$", "DO $$ BEGIN x := :a; END $$"),
        ("SELECT $q$ :a $$ :b $q$, :c", "SELECT $q$ :a $$ :b $q$, $1"),
        ("SELECT 1 -- of :a\n, :b", "SELECT 1 -- of :a\n, $1"),
        ("SELECT /* :a */ :b", "SELECT /* :a */ $1"),
        ("SELECT 5 % :a, '%s', x LIKE '%'", "SELECT 5 % $1, '%s', x LIKE '%'"),
        ("SELECT a[1 : :n]", "SELECT a[1 : $1]"),
    ],
)
def test_only_placeholders_are_replaced(sql: str, expected: str) -> None:
    assert translate(sql).sql.decode() == expected


def test_a_value_used_twice_has_one_number() -> None:
    assert translate("SELECT :a, :b, :a").names == ("a", "b")


@pytest.mark.parametrize(
    ("sql", "returns", "added"),
    [
        ("UPDATE t SET x = 1", False, True),
        ("DELETE FROM t WHERE id IN (SELECT id FROM u)", False, True),
        ("INSERT INTO t SELECT 'RETURNING' FROM u", False, True),
        ("WITH c AS (SELECT 1) UPDATE t SET x = (SELECT 1)", False, True),
        ("UPDATE t SET x = 1 RETURNING id", True, False),
        ("SELECT 1 FROM t WHERE x = 'UPDATE'", True, False),
        ("WITH c AS (SELECT 1) SELECT * FROM c", True, False),
    ],
)
def test_counted_statements_return_rows_or_a_count(sql: str, returns: bool, added: bool) -> None:
    text = translate_counted(sql)

    assert text.returns == returns
    assert text.sql.decode().endswith("FROM s") == added


def test_a_missed_statement_is_read_from_the_servers_message() -> None:
    message = 'invalid input syntax for type integer: "agent_runtime: statement 7 affected 0 rows"'

    assert missed_statement_index(message) == 7
    assert missed_statement_index('invalid input syntax for type integer: "7"') is None


@pytest.mark.parametrize("value", ["a\0b", "\ud800", 2**63])
def test_an_unsupported_value_is_refused_by_its_name(value: str | int) -> None:
    with pytest.raises(StoreError, match="title") as raised:
        query_command("SELECT :title", {"title": value})

    assert raised.value.cure
    assert raised.value.__context__ is None or raised.value.__suppress_context__ or value == 2**63


def test_a_statement_has_one_type_for_numbers_of_every_size() -> None:
    small, large = (query_command("SELECT :x", {"x": number}) for number in (1, 2**62))

    assert small.types == large.types
