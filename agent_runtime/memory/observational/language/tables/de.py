"""German."""

from agent_runtime.memory.observational.language.base import EndingWords, Language, NoteWords

TABLE = Language(
    code="de",
    name="german",
    letters="äöüß",
    lead="bitte|und|also|dann|aber|ok|okay|nun|jetzt|auch|so|gut",
    rule_words=(
        "verboten untersagt erlaubt gestattet nötig notwendig erforderlich gültig regel "
        "vorgabe gilt gelten brauchst braucht brauchen musst muss müssen darfst darf dürfen "
        "sollst soll nie niemals immer jetzt benutze benutzen verwende verwenden nutze nutzen "
        "vermeiden vermeide"
    ),
    ending=EndingWords(
        bans="verboten* untersagt* vermeid* tabu",
        laws="regel regeln vorgabe vorgaben",
        duties=(
            "nötig* notwendig* erforderlich* brauchst braucht musst muss müssen sollst "
            "soll benutze benutzen verwende verwenden nutze nutzen gilt gelten gültig* "
            "bestand"
        ),
        hedges=(
            "ich wir wenn falls sofern solange außer nur bloß lediglich bis sobald ob "
            "weil bevor nachdem während vielleicht wohl womöglich angeblich wäre würde "
            "könnte sollte dürfte bald später morgen nächste* sonst obwohl aber als"
        ),
        permits=(
            r"(?:du (?:darfst|kannst)|ihr (?:dürft|könnt)) (?:ab )?(?:jetzt|nun|sofort|wieder)|"
            r"(?:jetzt|nun|sofort) (?:darfst du|kannst du|dürft ihr|könnt ihr|dürfen (?-i:Sie))|"
            r"(?:ist|sind) (?:ab )?(?:jetzt|nun|sofort|wieder) (?:erlaubt|gestattet|zulässig)"
        ),
    ),
    patterns={
        "binds": r"""
(?:muss|müssen|musst|müsst|müsste|hat|haben|ist|sind)\b.{0,60} zu \w+en
(?:muss|müssen|musst|müsst)
(?:soll|sollst|sollen|sollte|solltest|sollten)
immer|stets|grundsätzlich|ausnahmslos|ausschließlich|zwingend|unbedingt|jedes ?mal|jederzeit
(?:ist|sind)\b.{1,60} \w*zu\w+en\b
pflicht|verpflichtend|vorgeschrieben|erforderlich|obligatorisch|verbindlich
ab (?:jetzt|sofort|heute|morgen|nun|nächster|dem|kommender)|künftig|in zukunft|von (?:jetzt|nun|heute) an|fortan
(?:höchstens|maximal|mindestens|spätestens)
@(?:achte|sorge?|stell\w*|denk|vergiss nicht|halte?|beschränke?|verwende?|benutze?|nutze?|nimm|befolge?|behalte?|antworte)
(?:jede[rsmn]?|alle[srmn]?|sämtliche\w*)\b.{1,60}(?:zuerst|vorher|erst|mir|mich|gegengezeichnet|freigegeben|abgestimmt|genehmigt)
(?:nichts|niemand|keine?[rsmn]?)\b.{1,60}(?:ohne|bevor|außer|es sei denn)
(?:ohne|bevor)\b.{1,60}(?:nichts|niemand|keine?[rsmn]?|nicht)
erst (?:nach|wenn|dann|mit)
nur (?:mit|nach|wenn|auf|noch|über|per|durch)
ich (?:verlange|erwarte|bestehe|will(?! nicht)|möchte|brauche)\b
wichtig:
(?:erst|zuerst) (?:\w+ ){1,4}?dann
@(?:erst|zuerst) \w+(?: \w+)*, dann
ohne ausnahme|in jedem fall|auf jeden fall
\w+ nur (?:mit|nach)
""",
        "orders": r"""
@(?:schreibe?|schick|schicke|sende?|gib|mach|mache|leg|lege|setze?|nenne?|benenne?|formatiere?|führe?|frage?|teste?|prüfe?|melde?|speichere?|buche?|bestelle?|zahle?|runde?|zitiere?|übersetze?|verfasse?|stelle?|zeige?|lass|rufe?|informiere?|warte|sichere?|trage?|kürze?|fasse?|beginne|verwende|sprich|rede)
(?:schreibst|schickst|sendest|gibst|machst|legst|setzt|fragst|meldest|prüfst|führst|nimmst|informierst|bekomme ich|erhalte ich|kriege ich)
""",
        "standing": r"""
auf (?:deutsch|englisch|französisch|spanisch|italienisch|portugiesisch|niederländisch|polnisch|türkisch|russisch|arabisch|chinesisch|japanisch|koreanisch|finnisch)
(?:jede[rsmn]?|alle|täglich|wöchentlich|monatlich|immer|montags|dienstags|mittwochs|donnerstags|freitags|samstags|sonntags|zuerst|vorher|pro)
auch wenn|selbst wenn|sobald|solange|bevor|nachdem|bis (?:zum|spätestens|montag|dienstag|mittwoch|donnerstag|freitag|\d|morgen|mittag)
(?:vor|nach) (?:jede[rmn]|dem|der|allen)
ohne|nur|erst|höchstens|mindestens|statt|mit (?:zwei|vier|\d)
""",
        "forbids": r"""
nie|niemals|nimmer|auf keinen fall|keinesfalls|unter keinen umständen|in keinem fall
(?:darf|darfst|dürfen|dürft|soll|sollst|sollen|sollte|sollten|muss|müssen|kann|können)\b.{0,60}(?:nicht|kein\w{0,2}|nichts|nie|niemand)
(?:niemand|keiner|nichts|keine[rsmn]?)\b.{0,60}(?:darf|dürfen|soll|sollen|wird|werden|geht)
@(?:niemand|keiner) (?!hat|ist|war|weiß|kennt|kam|konnte|wollte|antwortet)\w+t
(?:wird|werden)\b.{0,60} nicht (?:mehr )?(?:ge|ver|be|er|an|aus|ab|ein|um|zu|über)?\w+(?:t|en|iert)$
wird\b.{0,60} nicht \w+(?:t|en)[.!]*$
@(?:\w+ )?(?:ruf|ändere?|änder|lösch|lösche|schreib|schreibe|fass|mach|mache|nimm|verwende|benutze|nutze|schick|schicke|lass|gib|geh|rühr|teile?|öffne|starte|verschiebe?|veröffentliche|nenne?|stell|stelle|sag|sage|fang|leg|lege|push|pushe|committe|installiere|überschreibe?|kopiere?|buche?)\b.{0,60}(?:nicht|kein\w{0,2}|nichts|niemand\w*)
(?:bitte|du|ihr|sie) (?:\w+ ){0,4}(?:nicht|keine\w?)(?: \w+)* (?:an|ab|aus|ein|um|weg|löschen|ändern|anfassen|verwenden|benutzen|anrufen|machen|schicken|teilen|weitergeben)$
nicht (?:anfassen|ändern|löschen|anrühren|überschreiben|verwenden|benutzen|weitergeben|veröffentlichen|verschieben|stören)
(?:verboten|untersagt|unzulässig|tabu|verbiete|untersage|unerwünscht|ausgeschlossen|unantastbar|gesperrt für)
(?:kommt|kommen)\b.{0,40}nicht (?:in frage|infrage|in die tüte)
finger (?:weg|von)|hände weg|pfoten weg|hände von|finger davon
nicht (?:erlaubt|gestattet|zulässig|zugelassen|gewünscht|verhandelbar)
(?:will|möchte|wünsche|dulde|brauche) ich (?:\w+ ){0,3}(?:nicht|keine\w?|nie)
ich (?:will|möchte|wünsche|dulde)\b.{0,50}(?:nicht|kein\w{0,2})(?! wissen)
(?:vermeide?|unterlass|unterlasse|lass (?:das|die|es)|hör auf|verzichte)
(?:bleibt|bleiben|bleib)\b.{0,40}(?:unverändert|unangetastet|unberührt|wie (?:es|sie|er)|außen vor|vertraulich|geheim|intern)
@keine?[rsmn]? \w+(?: \w+)*?(?: (?:vor|nach|an|auf|in|im|für|ohne|bei|ab|am|mehr|bitte)\b|[.!]?$)
nicht mehr|keine?[rsmn]? .{0,40}mehr
""",
        "prefers": r"""
lieber|am liebsten|bevorzug\w+|vorzugsweise|möglichst|nach möglichkeit|wenn möglich|wenn es geht|wenn's geht|idealerweise
sympathischer|angenehmer|besser als|passt mir (?:besser|eher)|gefällt mir|gefallen mir
mir (?:ist|sind|wäre|wären)\b.{0,60}lieber
ich (?:mag|schätze|favorisiere|bin eher|hätte gern\w*|würde gern\w*|bin ein \w*fan|stehe auf)
(?:mag|schätze|hätte|favorisiere) ich
mehr anfangen|komme ich (?:\w+ )?(?:besser|am besten)|liegt mir (?:mehr|eher|besser)|eher der typ|vertrauter|geläufiger
statt(?:dessen)?|anstatt|anstelle
(?:mein favorit|meine vorliebe|meine wahl)
""",
        "corrects": r"""
@(?:nein|nee|falsch|quatsch|moment|korrektur|sorry|stopp?|doch nicht)[,.:;–—-]
ich (?:meinte|meine|sagte|sprach|habe\b.{1,40} gemeint|habe\b.{1,40} gesagt|wollte)\b
(?:meinte|sagte) ich
(?:falsch|miss|nicht richtig|nicht)\s?verstanden|missverständnis|verwechselt|verlesen|vertan|verhört
(?:ist|war|das ist|stimmt) (?:falsch|so nicht|nicht richtig|ein fehler|nicht korrekt|nicht\b)
@nicht .{1,60}(?:, sondern|, \w+)|sondern
(?:, |und )nicht (?:der |die |das |den |dem |am |im |um )?[\w.]+(?: [\w.]+)?[.!]?$
vergiss,? (?:was|das|die|den|meine?|es)|nehme ich zurück|ziehe ich zurück|anders überlegt|hinfällig|gilt nicht mehr
(?:zu viel|zu viele|zu wenig|zu lang|zu kurz|zu hoch|zu niedrig|zu knapp|übertrieben)\b.{0,40}(?:mach|nimm|reich\w+|sag|setz|lieber|besser|\d|genüg\w+)
(?:schreibt sich|geschrieben|heißt|mit) .{1,40}(?:, nicht|und nicht|statt)
es geht um\b.{0,60}nicht
(?:korrigiere?|ändere?|mach (?:daraus|draus)|setz(?:e|en)?|senke?|erhöhe?)\b.{0,30}(?:auf|daraus|draus)\b
""",
        "exempt": r"""
(?:musst|müsst|muss|müssen|dürfte|müsste)\b.{0,30}(?:lachen|müde|lustig|schmunzeln|scherzen|witze|wahnsinn|komisch|verrückt|denken|gewesen|stolz)
muss(?:te)?\b.{0,40}(?:von|aus|um) (?:dem jahr )?(?:1[5-9]|20)\d\d
(?:darf|dürfen|kann|können)\b.{0,40} wieder
hat(?:te)? (?:noch )?nie|habe (?:noch )?nie|nie (?:gesehen|erlebt|gehört|da)|immer (?:so|noch|wieder)
(?:kann|glaub\w*|weiß|halte|fass\w*) (?:ich |es |das )*nicht(?: mehr)?(?: glauben| fassen)?[.!]?$
keine (?:ahnung|sorge|ursache|zeit|lust|eile|panik)|kein (?:problem|thema|ding|wunder|stress)
mach (?:dir )?(?:keine|nichts)|macht nichts|nichts zu danken|ich muss (?:los|weg|lachen|gehen|zugeben|sagen)|das darf (?:doch )?nicht wahr
""",
        "requests": r"""
bitte
@(?:kannst|könntest|würdest|können|könnten|würden) (?:du|sie)
""",
        "decides": r"""
entschieden|entscheid\w+|beschlossen|abgemacht|vereinbart|einigen|geeinigt|festgelegt|gewählt|wähle|ausgewählt|stattdessen|deshalb|daher
(?:dann )?(?:machen|nehmen|fahren|gehen|bleiben|setzen) wir|wir (?:nehmen|fahren|machen|bleiben|setzen|gehen)|punkt|ausgemacht|beschluss|steht fest|bleibt dabei
""",
        "finds": r"""
gefunden|ursache|grund|liegt (?:an|am|daran)|stellte sich|stellt sich|herausgestellt|zeigt|zeigte|bestätigt|fehlt|fehlen|offenbar|tatsächlich|weil|dadurch
tritt (?:nur )?auf|nur (?:auf|wenn|bei|mit)|enthält|ergab|ergibt|entdeckt|festgestellt|das problem|der fehler|keine[rsn]?|kein einzige\w*|hängt .{0,30}zusammen
@da(?! (?:ist|sind|war|waren|gibt|kommt|kommen|steht|stehen))
denn|daher|deshalb|deswegen|darum|somit|aufgrund|wegen|folglich
""",
        "fails": r"""
fehler\w*|fehlgeschlagen|schlägt|schlagen|schlug|scheiter\w+|gescheitert|verweigert|abgelehnt|abgebrochen|abgestürzt|kaputt|defekt|unmöglich|gesperrt
(?:ließ|lässt|lassen) sich\b.{0,60}nicht|nicht (?:gefunden|möglich|erreichbar|geklappt|funktioniert|hochladen|geladen)|(?:geht|ging|klappt|funktioniert|läuft|kann|konnte|konnten)\b.{0,40}nicht|zeitüberschreitung|ungültig|fehlt
""",
        "succeeds": r"""
erfolgreich|abgeschlossen|durchgelaufen|bestanden|fertig|erledigt|behoben|gelöst|eingespielt|gelungen|geklappt|funktioniert|läuft|hinzugefügt|entfernt|aktualisiert|erstellt|umgesetzt|grün|ohne (?:zwischenfälle|fehler|probleme)|angelegt|geändert|veröffentlicht|reibungslos
""",
        "negation": "nicht|nie|niemals|kein\\w{0,2}|nichts|niemand\\w*|nirgends|weder|keinesfalls|nimmer",
        "denies": r"""
verboten|verbiet\w*|untersag\w*|unzulässig|tabu|verweiger\w*|lehn\w+ .{0,30}ab|abgelehnt|ablehn\w*|ausgeschlossen|unmöglich|vermeid\w*
unerreichbar|stumm|schwieg\w*|schweig\w*|antwortlos|offline|tot|gescheitert|scheitert\w*|unterlass\w*|finger weg|hände weg|unverändert|unangetastet|fehl(?:t|en|te|ten)|ausgefallen|down
""",
        "without": "ohne|außer|es sei denn|sofern nicht",
        "obliges": r"muss|müssen|musst|müsst|immer|stets|pflicht|verpflichtet|zwingend|soll\w*|(?:ist|sind) zu|jede[rsmn]?|erforderlich|verlangt",
        "permits": r"darf|dürfen|darfst|kann|können|erlaubt|gestattet|zulässig|frei",
        "only": r"nur|ausschließlich|allein|lediglich|bloß",
        "afternoon": r"nachmittags?|abends?|mittags?|nachts?|uhr",
    },
    numerals="""
1 eins ein eine einer einem einen erste*
2 zwei zweit* beide*
3 drei dritt*
4 vier viert*
5 fünf fünft*
6 sechs sechst*
7 sieben siebt*
8 acht acht*
9 neun neunt*
10 zehn zehnt*
11 elf elft*
12 zwölf zwölft* mittag dutzend
13 dreizehn*
14 vierzehn*
15 fünfzehn* viertel
16 sechzehn*
17 siebzehn*
18 achtzehn*
19 neunzehn*
20 zwanzig*
30 dreißig* halb
40 vierzig*
50 fünfzig*
60 sechzig*
70 siebzig*
80 achtzig*
90 neunzig*
100 hundert einhundert
200 zweihundert
500 fünfhundert
1000 tausend* eintausend
2000 zweitausend
1000000 million*
""",
    months=(
        "januar/jan/jänner februar/feb märz april/apr mai juni/jun juli/jul august/aug "
        "september/sep/sept oktober/okt november/nov dezember/dez"
    ),
    synonyms="""
änder* geänder* veränder* bearbeit* anfass* angefass* modifizier* anrühr*
antwort* reagier* erreich* unerreich* stumm schwieg*
frist* termin* einreich* eingereich* abgab* abgeb* ablauf* abläuft läuft
lösch* gelösch* entfern*
freigeb* freigegeb* freigib* genehmig* unterschr* zustimm* freigabe*
prüf* kontroll* geprüft*
schick* send* gesend* geschick*
kauf* bestell* gekauf*
""",
    notes=NoteWords(
        critical="kritisch|hoch|dringend|sehr wichtig|höchste",
        important="wichtig|mittel|bedeutend|warnung",
        info="info|information|niedrig|gering|normal|hinweis|notiz",
        done="erledigt|fertig|abgeschlossen|getan|gelöst|behoben",
        task="aufgabe|aufgaben|aktuelle aufgabe|auftrag|offene aufgabe",
        next="nächster schritt|nächste schritte|als nächstes|weiter|danach|nächste aktion",
        nothing="nichts zu beobachten|nichts zu notieren|nichts zu vermerken|nichts zu berichten|nichts festzuhalten|nichts|keine beobachtungen|nichts bemerkenswertes|nichts neues",
        unknown_time="unbekannt|zeit unbekannt|uhrzeit unbekannt|ohne zeit|zeitpunkt unbekannt",
        clock="um|uhr|gegen|ca.",
        morning="morgens|vormittags",
        afternoon="nachmittags|abends",
    ),
)
