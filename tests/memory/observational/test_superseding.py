"""What ends a user's rule, and what only looks like it: a rule that ends by mistake is lost."""

from __future__ import annotations

import pytest

from agent_runtime.memory.observational.constraint_reader import read_constraints
from agent_runtime.memory.observational.language.base import CODES, language
from agent_runtime.memory.observational.superseding import supersedes
from agent_runtime.messages import UserMessage
from agent_runtime.prompt.constraints import Constraints

# They tell how things are, hold in some case, are others' words, or forbid once more.
LOOKS_LIKE_AN_END = [
    ("I no longer have time, but keep never pushing to main.", "Never push to main."),
    ("I no longer push to main.", "Never push to main."),
    ("We can no longer push to main.", "Never push to main."),
    ("Pushing to main is no longer allowed.", "Never push to main."),
    ("The tests no longer pass.", "Make sure the tests pass."),
    ("The build is no longer green.", "Keep the build green."),
    ("Don't forget about port 8443.", "Never use port 8443."),
    ("Never forget the rule about port 8443.", "Never use port 8443."),
    ("Port 8443 is no longer required.", "Never use port 8443."),
    ("Port 8443 is no longer forbidden.", "Always use port 8443."),
    ("If port 8443 is no longer forbidden, tell me.", "Never use port 8443."),
    ("Once the proxy is gone, port 8443 is no longer forbidden.", "Never use port 8443."),
    ("Port 8443 is no longer forbidden, in staging only.", "Never use port 8443."),
    ("Port 8443 should no longer be forbidden soon.", "Never use port 8443."),
    ("Bob thinks port 8443 is no longer forbidden.", "Never use port 8443."),
    ("Pushing to main is no longer forbidden.", "Never push to main or deploy on Fridays."),
    (
        "Tabs are no longer required.",
        "Always use tabs for indentation and 80 columns for comments.",
    ),
    ("If you can now push to main, ask me first.", "Never push to main."),
    ("Are there any more tests? Do not write any more dependencies", "Write tests."),
    ("Do not add any more dependencies.", "Add dependencies to requirements.txt."),
    ("From now on write docs in German instead.", "Write tests."),
    ("From now on use spaces instead of tabs.", "Never use tabs."),
    ("From now on never use spaces instead of tabs.", "Use tabs for indentation."),
    ("Die Tests laufen nicht mehr.", "Achte darauf, dass die Tests laufen."),
    ("Ich benutze Port 8443 nicht mehr.", "Benutze niemals Port 8443."),
    ("Wenn Port 8443 nicht mehr verboten ist, sag Bescheid.", "Benutze niemals Port 8443."),
    ("Port 8443 ist nicht mehr erlaubt.", "Benutze niemals Port 8443."),
    ("Les tests ne passent plus.", "Assure-toi que les tests passent."),
    ("Je n'utilise plus le port 8443.", "N'utilise jamais le port 8443."),
    ("Le port 8443 n'est plus autorisé.", "N'utilise jamais le port 8443."),
    ("Ya no pasan las pruebas.", "Asegúrate de que pasan las pruebas."),
    ("Ya no uso el puerto 8443.", "No uses nunca el puerto 8443."),
    ("Si el puerto 8443 ya no está prohibido, avísame.", "No uses nunca el puerto 8443."),
    ("O porto 8443 já não é permitido.", "Nunca use o porto 8443."),
    ("Os testes já não passam.", "Garanta que os testes passam."),
    ("Non uso più la porta 8443.", "Non usare mai la porta 8443."),
    ("I test non passano più.", "Assicurati che i test passano."),
    ("Poort 8443 is niet meer toegestaan.", "Gebruik nooit poort 8443."),
    ("De tests slagen niet meer.", "Zorg dat de tests slagen."),
    ("Port 8443 już nie jest dozwolony.", "Nigdy nie używaj portu 8443."),
    ("Testy już nie przechodzą.", "Upewnij się, że testy przechodzą."),
    ("Порт 8443 больше не используется.", "Никогда не используй порт 8443."),
    ("Тесты больше не проходят.", "Следи, чтобы тесты проходили."),
    ("Если порт 8443 больше не запрещён, скажи мне.", "Никогда не используй порт 8443."),
    ("Artık testler geçiyor.", "Testler geçmeli."),
    ("Artık 8443 portunu kullanma.", "8443 portunu asla kullanma."),
    ("Portti 8443 ei ole enää käytössä.", "Älä koskaan käytä porttia 8443."),
    ("Testit eivät mene enää läpi.", "Varmista että testit menevät läpi."),
    ("لم يعد المنفذ 8443 مسموحاً.", "لا تستخدم المنفذ 8443 أبداً."),
    ("لم تعد الاختبارات تنجح.", "تأكد أن الاختبارات تنجح دائما."),
    ("पोर्ट 8443 अब तक नहीं चला।", "पोर्ट 8443 का उपयोग कभी मत करो।"),
    ("पोर्ट 8443 का उपयोग अब नहीं करना है।", "पोर्ट 8443 का उपयोग कभी मत करो।"),
    ("端口8443不再使用。", "不要使用端口8443。"),
    ("端口8443不再可用。", "不要使用端口8443。"),
    ("如果不再禁止使用端口8443，告诉我。", "不要使用端口8443。"),
    ("测试不再通过。", "确保测试通过。"),
    ("もう一度ポート8443を使わないでください。", "ポート8443を使ってください。"),
    ("ポート8443はもう使えません。", "ポート8443を使わないでください。"),
    ("テストはもう通りません。", "テストが通るようにしてください。"),
    ("포트 8443은 더 이상 사용하지 않습니다.", "포트 8443을 사용하지 마세요."),
    ("테스트가 더 이상 통과하지 않습니다.", "테스트가 항상 통과하게 하세요."),
    (
        "The linter no longer complains about unused imports.",
        "Remove unused imports before linting.",
    ),
    ("Staging is no longer reachable.", "Deploy to staging."),
    ("It is not true that port 8443 is no longer forbidden.", "Never use port 8443."),
    ("As far as I know, port 8443 is no longer forbidden.", "Never use port 8443."),
    ("Pretend that port 8443 is no longer forbidden.", "Never use port 8443."),
    ("Write in the docs that port 8443 is no longer forbidden.", "Never use port 8443."),
    ("Write in the docs: port 8443 is no longer forbidden.", "Never use port 8443."),
    ("Port 8443 must no longer be used.", "Never use port 8443."),
    ("Nobody may use port 8443 any more.", "Never use port 8443."),
    ("Don't ever touch config.yaml any more.", "Never touch config.yaml."),
    ("Stop pushing to main.", "Never push to main."),
    ("No longer push to main without a review.", "Never push to main."),
    ("I don't need port 8443 any more, keep it closed.", "Keep port 8443 closed."),
    ("We no longer use main.", "Never use main for experiments."),
    ("The rule about tabs no longer applies to port 8443.", "Never use port 8443."),
    ("You may now and then push to develop.", "Never push to develop."),
    ("You can now see the docs, never edit them.", "Never edit the docs."),
    ("Vergiss nicht: Port 8443 ist nicht mehr als ein Test.", "Benutze niemals Port 8443."),
    ("Port 8443 ist in Produktion nicht mehr verboten.", "Benutze niemals Port 8443."),
    ("Angeblich ist Port 8443 nicht mehr verboten.", "Benutze niemals Port 8443."),
    ("Wir brauchen Port 8443 nicht mehr.", "Benutze niemals Port 8443."),
    ("Ne garde plus que trois copies.", "Garde trois copies."),
    ("Le port 8443 n'est plus interdit que le dimanche.", "N'utilise jamais le port 8443."),
    ("Quand le port 8443 ne sera plus interdit, dis-le-moi.", "N'utilise jamais le port 8443."),
    ("Cuando el puerto 8443 ya no esté prohibido, avísame.", "No uses nunca el puerto 8443."),
    ("Quizás el puerto 8443 ya no está prohibido.", "No uses nunca el puerto 8443."),
    ("Ya no necesito el puerto 8443.", "No uses nunca el puerto 8443."),
    ("Talvez a porta 8443 já não seja proibida.", "Nunca use a porta 8443."),
    ("Quando la porta 8443 non sarà più vietata, dimmelo.", "Non usare mai la porta 8443."),
    ("Forse la porta 8443 non è più vietata.", "Non usare mai la porta 8443."),
    ("Misschien is poort 8443 niet meer verboden.", "Gebruik nooit poort 8443."),
    ("Als poort 8443 niet meer verboden is, zeg het.", "Gebruik nooit poort 8443."),
    ("Może port 8443 już nie jest zabroniony.", "Nigdy nie używaj portu 8443."),
    ("Jeśli port 8443 już nie jest zabroniony, daj znać.", "Nigdy nie używaj portu 8443."),
    ("Когда порт 8443 больше не запрещён, скажи.", "Никогда не используй порт 8443."),
    ("Порт 8443 больше не нужен.", "Никогда не используй порт 8443."),
    ("Ehkä portti 8443 ei ole enää kielletty.", "Älä koskaan käytä porttia 8443."),
    ("Jos portti 8443 ei ole enää kielletty, kerro.", "Älä koskaan käytä porttia 8443."),
    ("Eğer 8443 portu artık yasak değilse söyle.", "8443 portunu asla kullanma."),
    ("إذا لم يعد المنفذ 8443 ممنوعاً أخبرني.", "لا تستخدم المنفذ 8443 أبداً."),
    ("ربما لم يعد المنفذ 8443 ممنوعاً.", "لا تستخدم المنفذ 8443 أبداً."),
    ("अगर पोर्ट 8443 अब मना नहीं है तो बताओ।", "पोर्ट 8443 का उपयोग कभी मत करो।"),
    ("शायद पोर्ट 8443 अब मना नहीं है।", "पोर्ट 8443 का उपयोग कभी मत करो।"),
    ("也许不再禁止使用端口8443。", "不要使用端口8443。"),
    ("不再允许使用端口8443。", "不要使用端口8443。"),
    ("ポート8443はもう禁止ではないかもしれません。", "ポート8443を使わないでください。"),
    ("ポート8443がもう禁止ではない場合は教えてください。", "ポート8443を使わないでください。"),
    ("포트 8443이 더 이상 금지가 아니라면 알려 주세요.", "포트 8443을 사용하지 마세요."),
    ("포트 8443은 더 이상 허용되지 않습니다.", "포트 8443을 사용하지 마세요."),
    ("Port 8443 is no longer valid.", "Never use port 8443."),
    ("Port 8443 no longer matters to the tests.", "Never use port 8443."),
    ("Le port 8443 n'est plus valable.", "N'utilise jamais le port 8443."),
    ("Port 8443 ist nicht mehr gültig.", "Benutze niemals Port 8443."),
    ("El puerto 8443 ya no es válido.", "No uses nunca el puerto 8443."),
    ("端口8443不再有效。", "不要使用端口8443。"),
    ("ポート8443はもう有効ではありません。", "ポート8443を使わないでください。"),
    ("Config.yaml ya no se aplica.", "Nunca edites config.yaml."),
    ("Did you forget about port 8443? It stays closed.", "Never use port 8443."),
    ("Don't let me forget about port 8443.", "Never use port 8443."),
    ("Please do not ever forget the rule about port 8443.", "Never use port 8443."),
    ("The rule about port 8443 is no longer optional.", "Never use port 8443."),
    ("The rule about port 8443 can no longer be ignored.", "Never use port 8443."),
    ("The client no longer uses tabs.", "Use tabs."),
    ("Le client ne doit plus utiliser le port 8443.", "Le serveur doit utiliser le port 8443."),
]
ENDS = [
    ("Port 8443 is no longer forbidden.", "Never use port 8443."),
    ("You no longer need to avoid port 8443.", "Never use port 8443."),
    ("You may now push to main.", "Never push to main."),
    ("Forget about the tabs.", "Use tabs."),
    ("Ok, please forget about the tabs.", "Use tabs."),
    ("The rule about port 8443 no longer applies.", "Never use port 8443."),
    ("Du musst keine Tabs mehr verwenden.", "Verwende immer Tabs."),
    ("Tabs sind nicht mehr nötig.", "Verwende immer Tabs."),
    ("Il n'est plus interdit d'utiliser le port 8443.", "N'utilise jamais le port 8443."),
    ("N'utilise plus de tabulations.", "Utilise toujours des tabulations."),
    ("Ya no es necesario usar tabuladores.", "Usa siempre tabuladores."),
    ("Já não é necessário usar tabulações.", "Use sempre tabulações."),
    ("Non è più necessario usare le tabulazioni.", "Usa sempre le tabulazioni."),
    ("Tabs zijn niet meer nodig.", "Gebruik altijd tabs."),
    ("Tabulatory już nie są potrzebne.", "Zawsze używaj tabulatorów."),
    ("Табуляция больше не нужна.", "Всегда используй табуляцию."),
    ("不再需要使用制表符。", "总是使用制表符。"),
    ("タブはもう必要ありません。", "必ずタブを使ってください。"),
    ("The restriction on config.yaml no longer applies.", "Never edit config.yaml."),
    ("Die Regel zu Port 8443 gilt nicht mehr.", "Benutze niemals Port 8443."),
    ("De regel over poort 8443 geldt niet meer.", "Gebruik nooit poort 8443."),
    ("Правило о порте 8443 больше не действует.", "Никогда не используй порт 8443."),
    ("端口8443的规则不再适用。", "不要使用端口8443。"),
    ("포트 8443 규칙은 더 이상 적용되지 않습니다.", "포트 8443을 사용하지 마세요."),
]


@pytest.mark.parametrize(("new", "old"), LOOKS_LIKE_AN_END)
def test_what_only_looks_like_an_end_leaves_the_rule(new: str, old: str) -> None:
    assert not supersedes(new, old)


@pytest.mark.parametrize(("new", "old"), ENDS)
def test_a_rule_ends_if_the_user_says_so(new: str, old: str) -> None:
    assert supersedes(new, old)
    assert not supersedes(old, new)


def test_a_rule_outlives_a_report_in_the_prompt_and_ends_by_its_name() -> None:
    said = ["Never push to main.", "I no longer have time, but keep never pushing to main."]
    said += ["We can no longer push to main.", "The tests no longer pass."]
    kept = read_constraints(Constraints(), list(enumerate(map(UserMessage, said), 1)))
    assert said[0] in [item.text for item in kept.items]
    ended = read_constraints(kept, [(9, UserMessage("You may now push to main."))])
    assert said[0] not in [item.text for item in ended.items]


@pytest.mark.parametrize("code", CODES)
def test_each_language_has_the_words_of_an_end(code: str) -> None:
    ending = language(code).ending
    assert all((ending.bans, ending.laws, ending.duties, ending.hedges))
