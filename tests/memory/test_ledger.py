"""The ledger: what it finds, its order, its text, and its cost."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.ledger import (
    MOST_READ,
    LedgerSource,
    compile_ledger,
    identifiers,
    left_out,
    merge_ledgers,
    spelled_out,
)


def own(text: str) -> LedgerSource:
    return LedgerSource(text, own=True)


def result(text: str) -> LedgerSource:
    return LedgerSource(text, own=False)


def tokens(ledger: tuple[str, ...]) -> int:
    return count_text(" ".join(ledger))


# Finding


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("open app/[slug]/page.tsx, then", ["app/[slug]/page.tsx"]),
        ("app/(shop)/cart.ts and @scope/pkg", ["app/(shop)/cart.ts", "@scope/pkg"]),
        ("(see src/a.py:12)", ["src/a.py"]),
        ("[the page](docs/a.md).", ["docs/a.md"]),
        ("load(src/b.py)", ["src/b.py"]),
        ("tests/test_a.py::TestCart::test_add", ["tests/test_a.py", "TestCart", "test_add"]),
        ("~/.ssh/config and ../up/x.go", ["~/.ssh/config", "../up/x.go"]),
        ("/srv/shop/cart.go-123-\treturn nil", ["/srv/shop/cart.go"]),
        ("self.total_price = parseCart(HTTPServer)", ["total_price", "parseCart", "HTTPServer"]),
        ("see https://example.org/a?b=1#c.", ["https://example.org/a?b=1#c"]),
        ("commit deadbeef1, PROJ-12, #45", ["deadbeef1", "PROJ-12", "#45"]),
        ("git push --force-with-lease -v origin", ["--force-with-lease"]),
        ("0f8fad5b-d9cb-469f-a165-70867728950e", ["0f8fad5b-d9cb-469f-a165-70867728950e"]),
        ("the well-known, read-only order 48213 of 12", ["48213"]),
        ("branch fix-login-bug of gpt-4o", ["fix-login-bug", "gpt-4o"]),
        ("端口8443，提交a1b2c3d4e。", ["8443", "a1b2c3d4e"]),
        ("  1201\tdef a_b():\n  1202\t  c_d()", ["a_b", "c_d"]),
        ("12041  row_a\n48213  row_b", ["12041", "row_a", "48213", "row_b"]),
        ("src/a.py:1201:7: B_1\n1202:x_y\n@@ -1203,7 +1204,9 @@", ["src/a.py", "B_1", "x_y"]),
        ('File "a.py", line 1201, lines 1300-1400 of b.ts(1201,5)', ["a.py", "b.ts"]),
        ("<ul></section></tool_result> localhost:8443", ["8443"]),
        ("请修改src/shop/cart.py文件", ["src/shop/cart.py"]),
        ("config_fileを変更、PROJ-12も", ["config_file", "PROJ-12"]),
        ("naïve_größe in Übersicht/größe.py", ["naïve_größe", "Übersicht/größe.py"]),
    ],
)
def test_identifiers_are_found_verbatim(text: str, expected: list[str]) -> None:
    assert list(identifiers(text)) == expected


def test_prose_has_no_identifiers() -> None:
    text = "Nothing here is one: it ended, 12 times in 3.5 hours (or so); we went on... Right?"
    assert list(identifiers(text)) == []


# Order


def test_own_identifiers_come_before_those_of_results() -> None:
    listing = result(" ".join(f"helper_{index}" for index in range(300)))
    ledger = compile_ledger([listing, own("fix cart_total in src/shop/cart.py")], 40)
    assert {"cart_total", "src/shop/cart.py"} <= set(ledger)
    assert tokens(ledger) <= 40


def test_frequent_identifiers_come_first() -> None:
    once = " ".join(f"name_{index}" for index in range(100))
    ledger = compile_ledger([result(once), result("cart_total " * 5), result("cart_total")], 12)
    assert "cart_total" in ledger


def test_identifiers_elsewhere_in_the_prompt_are_not_listed() -> None:
    before = ("$=/srv/shop", "$/src/cart.py", "$/src/user.py", "cart_total")
    texts = [own("/srv/shop/src/cart.py src/user.py user.py cart_total tax_rate")]
    assert compile_ledger(texts, 100, listed=" ".join(before)) == ("tax_rate",)
    assert compile_ledger(texts, 100, listed="\n".join(before)) == ("tax_rate",)


@pytest.mark.parametrize(
    "name",
    ["--dry-run", "#123", "~/shop/a.py", "@scope/pkg", "(shop)/cart.ts", "über_maß", "x·y/b_c"],
)
def test_no_name_is_listed_twice_whatever_it_begins_with(name: str) -> None:
    (found, *_) = identifiers(name)
    assert compile_ledger([own(name)], 100)
    assert compile_ledger([own(name)], 100, listed=f"other_name {found} src/a.py") == ()


def test_a_part_of_another_name_is_not_that_name() -> None:
    ledger = compile_ledger([own("cart_total")], 100, listed="cart_total_sum src/cart_totals.py")
    assert ledger == ("cart_total",)


def test_a_path_replaces_its_shorter_forms() -> None:
    ledger = compile_ledger([own("cart.py"), own("shop/cart.py"), own("src/shop/cart.py")], 100)
    assert ledger == ("src/shop/cart.py",)


def test_a_folder_of_several_paths_is_listed_once() -> None:
    paths = [f"/home/ann/code/shop/src/{name}.py" for name in ("cart", "user", "tax")]
    ledger = compile_ledger([own(" ".join(paths))], 100)
    assert ledger[0] == "$=/home/ann/code/shop/src"
    assert sorted(spelled_out(ledger)) == sorted(paths)
    assert tokens(ledger) < count_text(" ".join(paths))


def test_a_single_path_is_written_in_full() -> None:
    path = "/home/ann/code/shop/src/cart.py"
    assert compile_ledger([own(f"{path} cart_total")], 100) in (
        (path, "cart_total"),
        ("cart_total", path),
    )


def test_a_path_with_a_similar_prefix_is_not_under_that_root() -> None:
    assert list(spelled_out(("$=/srv/shop", "$/a.py"))) == ["/srv/shop/a.py"]
    assert list(identifiers("cat $/etc/hosts")) == ["/etc/hosts"]


@pytest.mark.parametrize("budget", [-5, 0, 1, 7, 30, 109, 1000])
def test_a_ledger_stays_within_its_budget(budget: int) -> None:
    texts = [own(" ".join(f"/srv/shop/p{i}/file_{i}.py value_{i} c0ffee{i:03}" for i in range(99)))]
    ledger = compile_ledger(texts, budget)
    assert tokens(ledger) <= max(0, budget)
    assert bool(ledger) == (budget >= 30) or budget == 7


def test_the_same_passages_give_the_same_ledger() -> None:
    texts = [own("b_two a_one"), result("c_three d_four /x/y/z.py /x/y/w.py /x/y/v.py")]
    assert compile_ledger(texts, 30) == compile_ledger(list(texts), 30)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.text(st.characters(), max_size=60), st.booleans()), max_size=6),
    st.integers(0, 60),
)
def test_any_text_has_a_ledger_of_its_own_words(texts: list[tuple[str, bool]], budget: int) -> None:
    ledger = compile_ledger([LedgerSource(text, is_own) for text, is_own in texts], budget)
    assert tokens(ledger) <= budget
    assert len(set(ledger)) == len(ledger)
    for name in spelled_out(ledger):
        assert any(name in text for text, _ in texts)


@pytest.mark.parametrize(
    "piece", ["a/", "(", "a_", "-", "a.", "a-", "\ud800/a_b ", "0", "[](", "a1-", "x.y/z:1:"]
)
def test_a_huge_text_is_read_in_pieces_of_bounded_length(piece: str) -> None:
    # These would take hours in quadratic time.
    text = piece * (4_000_000 // len(piece))
    assert tokens(compile_ledger([result(text)], 100)) <= 100
    assert all(len(name) <= 200 for name in identifiers(text))


def test_only_the_start_and_the_end_of_a_huge_text_are_read() -> None:
    text = f"first_name {'x ' * MOST_READ} last_name"
    assert set(compile_ledger([result(text)], 100)) == {"first_name", "last_name"}


def test_a_truncated_results_hidden_identifiers_are_listed() -> None:
    text = " ".join(f"/home/ann/code/shop/file_{index}.py is a file." for index in range(99))
    shown = text[:400]
    names = left_out(text, shown)
    assert names
    assert all(name in text and name not in shown for name in names)
    assert tokens(names) <= (count_text(text) - count_text(shown)) * 25 / 1000
    assert left_out(text, text) == ()


# Merging


def test_merged_ledgers_list_each_identifier_once() -> None:
    old = ("$=/srv/shop", "$/src/cart.py", "$/src/user.py", "cart_total")
    new = ("$=/srv/shop/src", "$/cart.py", "$/tax.py", "tax_rate")
    merged = merge_ledgers([old, new], 100)
    paths = {f"/srv/shop/src/{name}.py" for name in ("cart", "user", "tax")}
    assert sorted(spelled_out(merged)) == sorted({*paths, "cart_total", "tax_rate"})
    assert merged[0] == "$=/srv/shop/src"


def test_preferred_identifiers_survive_merging() -> None:
    old = tuple(f"old_{index}" for index in range(40))
    new = tuple(f"new_{index}" for index in range(40))
    merged = merge_ledgers([old, new], 30, lambda name: name == "old_39")
    assert merged[:3] == ("old_39", "new_0", "old_0")
    assert tokens(merged) <= 30


def test_merging_a_single_ledger_returns_it() -> None:
    ledger = ("$=/home/ann/code/shop", "$/src/cart.py", "$/docs/user.md", "cart_total")
    assert merge_ledgers([ledger], 100) == ledger
    assert merge_ledgers([], 100) == ()
