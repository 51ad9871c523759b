"""What counts as the same word in other languages, scripts and spellings."""

from __future__ import annotations

import pytest

from agent_runtime_storage import UserStore
from agent_runtime_storage.contract.records.search import NodeText
from agent_runtime_storage.search.numerals import han_numbers, han_pairs, in_other_digits
from agent_runtime_storage.search.query_groups import MOST_TERMS, WEAK, query_groups
from agent_runtime_storage.search.tokenizer import owner_key, terms_of
from tests.storage.helpers import begin

KEY = owner_key("ann")

# A text, and queries that have to find it though they hold none of its words as written.
FOUND = {
    "Die Häuser wurden gestern verkauft.": ["Haus", "haeuser", "verkaufte"],
    "Die Kartuschen liegen im Aktenschrank.": ["Kartusche", "Aktenschränke", "Wo ist der Schrank?"],
    "Fußgänger dürfen die Straße nicht betreten.": ["Fussgaenger", "Strassen"],
    "Het slaapzakken verhuren is nog niet begonnen.": ["slaapzak", "Waar zijn de zakken?"],
    "Les chevaux étaient déjà vendus.": ["vendu", "ETAIENT VENDUES"],
    "La informação não chegou aos escritórios.": ["informacao", "escritorio"],
    "Los trenes salieron ayer de la estación.": ["tren", "estaciones"],
    "Le stazioni della metropolitana sono chiuse.": ["stazione", "chiusa"],
    "Odwołaliśmy rezerwację na łódź do środy.": ["rezerwacja", "lodz", "rezerwacji"],
    "İşçiler kilidin düştüğünü bildirmiş değil.": ["isci", "işçilerin", "İŞÇİ"],
    "Toimitimme tuotteet eilen varastolle, mutta kaikki ei ole perillä.": ["tuote", "varastot"],
    "Мы ещё не согласовали возвраты.": ["возврат", "согласован"],
    "أُلغيت الرحلات بسبب العاصفة.": ["رحلة", "الغيت", "عاصفة"],
    "मुआवज़े की माँगें आती हैं।": ["मुआवजा", "मांग"],
    "我们按规定保存资料库四十八小时。": ["資料庫", "48", "規定"],
    "カニの料金は十二月二十日に払う。": ["かに", "12", "20日"],
    "회계팀이 테이블을 읽습니다": ["회계팀", "테이블에서"],
    "Η τιμή αυξήθηκε ξανά.": ["τιμές", "αυξηθηκε"],
    "Zapłacono ٤٨ złotych.": ["48"],
}


@pytest.mark.parametrize(
    ("text", "query"), [(text, query) for text, queries in FOUND.items() for query in queries]
)
async def test_other_forms_of_a_word_are_the_word(text: str, query: str) -> None:
    held = (await terms_of(text, KEY)).times.keys()
    strong = [group for group in query_groups(query, KEY) if group.weight >= WEAK / 4]
    assert any(not held.isdisjoint(group.terms) for group in strong)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Die Häuser wurden gestern verkauft.", "Hausarzt"),
        ("Le stazioni della metropolitana sono chiuse.", "stazza"),
        ("Мы ещё не согласовали возвраты.", "возраст"),
        ("我们按规定保存资料。", "版本"),
    ],
)
async def test_other_words_are_other_words(text: str, query: str) -> None:
    held = (await terms_of(text, KEY)).times.keys()
    assert all(held.isdisjoint(group.terms) for group in query_groups(query, KEY))


@pytest.mark.parametrize(
    "text",
    [
        "The invoices have been with the accountants since yesterday, and nobody paid them.",
        "for (int i = 0; i < n; i++) { total += values[i]; } return total;",
        " ".join(f"de0{number:x} wert{number} = {number}" for number in range(400)),
        "東京都の天気",
    ],
)
async def test_english_texts_and_code_have_words_only(text: str) -> None:
    assert (await terms_of(text, KEY)).keys == 0


async def test_words_of_several_scripts_have_keys_in_one_text() -> None:
    mixed = await terms_of("The error says: счета не оплачены", KEY)
    query = query_groups("счёт", KEY)[0]
    assert not mixed.times.keys().isdisjoint(query.terms)


async def test_a_long_query_has_a_bounded_number_of_terms() -> None:
    words = "Donaudampfschifffahrtsgesellschaftskapitän wurde nicht befördert und " * 40
    many = " ".join(f"wort{chr(97 + n % 26)}{chr(97 + n // 26)}lich" for n in range(600))
    for query in (words, many, "國" * 5_000, "一" * 5_000, "9" * 5_000, "oeaeue" * 2_000):
        groups = query_groups(query, KEY)
        assert sum(len(group.terms) for group in groups) <= MOST_TERMS


async def test_words_weigh_more_than_what_resembles_them(user: UserStore) -> None:
    await begin(user)
    await begin(user, "r2", "t2")
    await user.search.index("t1", [NodeText(1, None, "Der Vergleich ist noch nicht fertig.")])
    await user.search.index("t2", [NodeText(1, None, "Die Vergleichbarkeit ist nicht gegeben.")])

    hits = await user.search.find("Welche Vergleiche sind fertig?")

    assert [hit.thread_id for hit in hits] == ["t1", "t2"]


def test_numbers_in_the_digits_of_other_scripts() -> None:
    assert in_other_digits("48") == ["48", "٤٨", "۴۸", "४८"]
    assert in_other_digits("٤٨")[0] == "48"
    assert han_pairs("48") == ["四十", "十八"]
    assert han_pairs("15") == ["十五"]
    assert han_pairs("1105") == ["一千", "千一", "一百", "百零", "零五"]
    assert han_pairs("7") == [] == han_pairs("20000")
    assert han_numbers("四十八小时，二〇二四年，十一个，三人，百") == ["48", "2024", "11", "100"]
