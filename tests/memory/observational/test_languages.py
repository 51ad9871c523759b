"""Sixteen languages: what binds, what says the same, and how notes are written."""

from __future__ import annotations

import re

import pytest

from agent_runtime.memory.observational.constraint_reader import required
from agent_runtime.memory.observational.language.base import (
    CODES,
    Code,
    PatternName,
    fold,
    language,
    pattern,
)
from agent_runtime.memory.observational.language.numerals import numbers_of
from agent_runtime.memory.observational.language.rules import may_be_rule, split
from agent_runtime.memory.observational.language.statement import covers, read_statement
from agent_runtime.memory.observational.observer.notes_format import parse_notes
from agent_runtime.memory.observational.observer.sentences import binding, sentences, weight_of
from agent_runtime.memory.observational.observer.validate import NotesSource, validate_notes
from agent_runtime.memory.observational.superseding import supersedes
from agent_runtime.prompt.observation import ObservationNotes
from tests.memory.observational.sentences_by_language import SENTENCES, STATEMENTS

AT = "2026-11-21 14:05"


def _marked(code: str, mark: str) -> list[str]:
    lines = SENTENCES[code].strip().splitlines()
    return [line[2:] for line in lines if line.startswith(mark)]


@pytest.mark.parametrize("code", CODES)
def test_rules_are_found_and_other_sentences_are_none(code: str) -> None:
    assert [text for text in _marked(code, "+") if not binding(text)] == []
    assert [text for text in _marked(code, "-") if binding(text)] == []


@pytest.mark.parametrize("code", CODES)
def test_a_rule_is_a_constraint_as_it_was_written(code: str) -> None:
    for text in _marked(code, "+")[:4]:
        assert list(required(text)) == split(text)


@pytest.mark.parametrize("code", CODES)
def test_the_same_statement_covers_another_and_an_inverted_one_does_not(code: str) -> None:
    for line in STATEMENTS[code].strip().splitlines():
        original, kept, inverted = (part.strip() for part in line.split("|"))
        statement = read_statement(original, kept)
        assert covers(statement, read_statement(kept, original)), kept
        assert not covers(statement, read_statement(inverted, original)), inverted


@pytest.mark.parametrize("code", CODES)
def test_every_pattern_compiles_and_is_linear(code: str) -> None:
    table = language(code)
    for name in table.patterns:
        compiled = pattern(table, name)
        assert compiled is not None
        assert not compiled.search("")
    # Quadratic patterns would exceed the test's timeout.
    for part in ("a ", "a, ", "not ", "不", "の", "न ", "لا ", "не ", "nicht ", "ne "):
        binding(part * (20_000 // len(part)))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Die Ursache ist eine falsche Zeitzone.", "important"),
        ("La compilation échoue à cause d'un module absent.", "important"),
        ("Decidimos usar SQLite.", "important"),
        ("原因是时区设置错误。", "important"),
        ("テストはすべて通りました。", "done"),
        ("모든 테스트를 통과했습니다.", "done"),
    ],
)
def test_findings_of_the_agent_are_informative_in_any_language(text: str, kind: str) -> None:
    weight, priority = weight_of(text)
    assert weight > 0
    assert priority == kind


@pytest.mark.parametrize(
    "text",
    [
        "Since the handler owns the file, the check belongs there.",
        "The cleanup comes first so that the tests begin empty.",
        "Der Aufruf steht dort, denn der Server startet später.",
        "Das Feld ist leer, deshalb kommt die Prüfung davor.",
        "Le contrôle vient avant, car le serveur démarre plus tard.",
        "El servidor arranca tarde, por eso la prueba espera.",
        "O servidor arranca tarde, por isso o teste espera.",
        "Il server parte tardi, quindi la prova aspetta.",
        "De server start laat, daarom wacht de test.",
        "Serwer startuje późno, dlatego test czeka.",
        "Palvelin käynnistyy myöhään, siksi testi odottaa.",
        "Sunucu geç başlıyor, bu yüzden test bekliyor.",
        "Сервер запускается поздно, поэтому тест ждёт.",
        "الخادم يبدأ متأخرا، لذلك ينتظر الاختبار.",
        "सर्वर देर से चालू होता है, इसलिए परीक्षण रुकता है।",
        "服务器启动得晚，所以测试要等。",
        "サーバーの起動が遅いので、テストは待ちます。",
        "서버가 늦게 켜져요. 그래서 테스트가 기다려요.",
    ],
)
def test_reasons_of_the_agent_are_informative_in_any_language(text: str) -> None:
    assert weight_of(text)[0] > 0


def test_since_when_is_no_reason() -> None:
    assert weight_of("The server has been running since yesterday.") == (0, "info")


def test_a_language_without_a_table_is_kept_and_no_rule() -> None:
    cause = "Η αιτία ήταν ένα λάθος στη ζώνη ώρας του διακομιστή."
    assert weight_of(cause) == (1, "info")
    rule = "Rör aldrig filen config.yaml igen."
    assert may_be_rule(rule)
    assert list(required(rule)) == [rule]


def test_sentences_end_at_the_full_stops_of_every_script() -> None:
    assert list(sentences("端口已经改成八四四三了。测试全部通过了！")) == [
        "端口已经改成八四四三了。",
        "测试全部通过了！",
    ]
    assert split("पहला काम हो गया। दूसरा बाकी है।") == ["पहला काम हो गया।", "दूसरा बाकी है।"]
    assert split("Am 12. Dezember. Nicht früher.") == ["Am 12. Dezember.", "Nicht früher."]


def test_emphasis_is_removed_and_code_is_not() -> None:
    text = "**Use** 2**20 with src/**/*.ts and foo(**kwargs) here."
    assert list(sentences(text)) == ["Use 2**20 with src/**/*.ts and foo(**kwargs) here."]


def test_numbers_are_read_in_words_and_scripts() -> None:
    for code, text, number in (
        ("en", "twenty-five", "25"),
        ("de", "fünfundzwanzig", "25"),
        ("fr", "vingt-deux", "22"),
        ("ru", "двадцать пять", "25"),
        ("ar", "٢٥", "25"),
        ("zh", "二十九", "29"),
        ("ja", "一月二十九日", "29"),
        ("hi", "पच्चीस", "25"),
        ("fi", "neljään", "4"),
    ):
        assert number in numbers_of(text, (language(code),)), text


@pytest.mark.parametrize(
    ("raw", "at", "priority"),
    [
        ("2026-11-21 15:05 CET | kritisch | x.", AT, "critical"),
        ("2026-11-21 09:05 -0500 | hoch | x.", AT, "critical"),
        ("2026-11-21 16:05–17:00 UTC+2 | wichtig | x.", AT, "important"),
        ("21. Nov. 2026, 14:05 Uhr – wichtig – x.", AT, "important"),
        ("21/11/2026 à 14h05 — terminé — x.", AT, "done"),
        ("2026年11月21日 下午2点05分 | 信息 | x.", AT, "info"),
        ("２０２６/１１/２１ １４：０５｜重大｜x.", AT, "critical"),
        ("2026년 11월 21일 오후 2시 05분 | 중요 | x.", AT, "important"),
        ("2026-11-21 14:05 (UTC) | crítico/importante | x.", AT, "critical"),
        ("21 ноября 2026 г., 17:05 МСК | важно | x.", AT, "important"),
        ("час не известен | важно | x.", "", "important"),
        ("الوقت غير معروف | حرج | x.", "", "critical"),
    ],
)
def test_times_and_priorities_are_read_in_other_languages(raw: str, at: str, priority: str) -> None:
    (line,) = parse_notes(raw).notes.lines
    assert (line.at, line.priority, line.text) == (at, priority, "x.")


@pytest.mark.parametrize(
    ("raw", "at"),
    [
        ("2026-11-21 14:05 | info | x.", "2026-11-21 14:05"),
        ("2026-11-21 14:05 UTC | info | x.", "2026-11-21 15:05"),
        ("2026-11-21 14:05 Europe/Berlin | info | x.", "2026-11-21 14:05"),
        ("2026-11-21 15:05 (Asia/Tokyo) | info | x.", "2026-11-21 07:05"),
        ("2026-11-21 14:05 Europe/Nowhere | info | x.", "2026-11-21 14:05"),
        ("2026-11-21 23:05 -0100 | info | x.", "2026-11-22 01:05"),
    ],
)
def test_times_that_name_a_zone_are_converted_to_that_of_the_notes(raw: str, at: str) -> None:
    (line,) = parse_notes(raw, "Europe/Berlin").notes.lines
    assert line.at == at


@pytest.mark.parametrize(
    "raw",
    [
        "AUFGABE: x\nNÄCHSTER SCHRITT: y",
        "Tâche : x\nProchaine étape : y",
        "任务：x\n下一步：y",
        "Задача: x\nСледующий шаг: y",
    ],
)
def test_the_task_and_the_next_step_are_read_in_other_languages(raw: str) -> None:
    assert parse_notes(raw).notes == ObservationNotes((), "x", "y")


@pytest.mark.parametrize(
    "raw",
    ["Hier gibt es nichts zu notieren.", "Rien à noter.", "没有什么值得记录的。", "특이 사항 없음"],
)
def test_the_verdict_is_read_in_other_languages(raw: str) -> None:
    assert parse_notes(raw).nothing
    assert not parse_notes("Nothing failed in the tests today.").nothing


def test_one_line_between_a_preamble_and_a_sign_off_is_accepted() -> None:
    raw = f"Voici les notes :\n\n{AT} | haute | Le port est 8443.\nBonne journée !"
    notes = validate_notes(raw, NotesSource("Le port est 8443.", 1000))
    assert isinstance(notes, ObservationNotes)
    assert [line.text for line in notes.lines] == ["Le port est 8443."]


_PORT = re.compile("port\\w*|puerto|poort|ポート|端口|포트|порт|पोर्ट|المنفذ", re.IGNORECASE)
PORT_RULES = {
    "de": ("Benutze niemals Port 8443.", "Port 8443 ist nicht mehr verboten."),
    "fr": ("N'utilise jamais le port 8443.", "La règle du port 8443 ne vaut plus."),
    "es": ("No uses nunca el puerto 8443.", "Ya no hace falta evitar el puerto 8443."),
    "pt": ("Nunca use a porta 8443.", "A porta 8443 já não é proibida."),
    "it": ("Non usare mai la porta 8443.", "La porta 8443 non è più vietata."),
    "nl": ("Gebruik nooit poort 8443.", "Poort 8443 is niet meer verboden."),
    "pl": ("Nigdy nie używaj portu 8443.", "Port 8443 już nie jest zabroniony."),
    "ru": ("Никогда не используй порт 8443.", "Порт 8443 больше не запрещён."),
    "ar": ("لا تستخدم المنفذ 8443 أبداً.", "لم يعد المنفذ 8443 ممنوعاً."),
    "hi": ("पोर्ट 8443 का उपयोग कभी मत करो।", "पोर्ट 8443 अब मना नहीं है।"),
    "zh": ("不要使用端口8443。", "不再禁止使用端口8443。"),
    "ja": ("ポート8443を使わないでください。", "ポート8443はもう禁止ではありません。"),
    "ko": ("포트 8443을 사용하지 마세요.", "포트 8443은 더 이상 금지가 아닙니다."),
    "fi": ("Älä koskaan käytä porttia 8443.", "Portti 8443 ei ole enää kielletty."),
}


@pytest.mark.parametrize("code", PORT_RULES)
def test_a_rule_ends_in_the_users_language_if_it_is_named(code: str) -> None:
    old, new = PORT_RULES[code]
    assert supersedes(new, old)
    # Another port, another subject, and no word that ends it.
    assert not supersedes(new, old.replace("8443", "9000"))
    assert not supersedes(new, _PORT.sub("X", old))
    assert not supersedes(old, new)


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ("Não use mais de três portas.", "Use três portas."),
        ("Gebruik niet meer dan drie poorten.", "Gebruik drie poorten."),
        ("ポート8443はもう開けてください。", "ポート8443を開けないでください。"),
    ],
)
def test_more_and_already_end_no_rule(new: str, old: str) -> None:
    assert not supersedes(new, old)


def test_a_rule_ends_in_other_languages() -> None:
    assert supersedes("Verwende Tabs nicht mehr.", "Verwende immer Tabs.")
    assert not supersedes("Verwende Tabs nicht mehr.", "Verwende immer Leerzeichen.")
    assert supersedes("Tabs gebruiken we niet meer.", "Tabs gebruiken we altijd.")


@pytest.mark.parametrize(
    "raw",
    [
        "2026-11-21 14:05 local time | critical | x.",
        "2026-11-21 14:05 (Berliner Zeit) | critical | x.",
        "2026-11-21 14:05\tcritical\tx.",
        "2026-11-21 14:05 | 🔵 critical | x.",
        "\ufeff2026-11-21 14:05 | critical | x.",
        "\u200f2026-11-21 14:05\u200e | \u200bcritical | x.",
        "> 2026-11-21 14:05 | critical | x.",
        "2026年11月21日 下午2点5分 | 严重 | x.",
    ],
)
def test_a_priority_is_read_behind_what_hides_it(raw: str) -> None:
    [line] = parse_notes(raw, "Europe/Berlin").lines
    assert (line.at, line.priority, line.text) == ("2026-11-21 14:05", "critical", "x.")


@pytest.mark.parametrize(
    "text",
    [
        "We never found the cause.",
        "She never answered.",
        "Wczoraj serwer nie działał.",
        "Test nie przeszedł.",
        "Nigdy tego nie widziałem.",
        "Я никогда этого не видел.",
        "Je ne l'ai jamais vu.",
        "En ole koskaan nähnyt sitä.",
    ],
)
def test_what_never_was_is_no_rule(text: str) -> None:
    assert not binding(text)


@pytest.mark.parametrize(
    "text",
    [
        "We never need eval.",
        "We never use tabs.",
        "Nigdy nie usuwaj pliku, który działał.",
        "Nie pozwól, żeby test upadł.",
        "Никогда не меняй то, что работало.",
        "Bajo ninguna circunstancia borres la tabla.",
    ],
)
def test_what_never_may_be_is_a_rule(text: str) -> None:
    assert binding(text)


@pytest.mark.parametrize("code", CODES)
def test_words_before_an_order_are_bounded(code: Code) -> None:
    table = language(code)
    lead = re.escape(f"(?:{fold(table.lead)})")
    # Each clause of "please, please, …" would read the whole rest of the text.
    unbounded = re.compile(rf"{lead}[^()]*\)[*+]")
    names: tuple[PatternName, ...] = ("binds", "orders", "forbids", "questions", "requests")
    for name in names:
        compiled = pattern(table, name)
        assert compiled is None or not table.lead or not unbounded.search(compiled.pattern)
