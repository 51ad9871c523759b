"""Dutch."""

from agent_runtime.memory.observational.language.base import EndingWords, Language, NoteWords

TABLE = Language(
    code="nl",
    name="dutch",
    letters="ëï",
    lead="graag|en|dus|dan|maar|ok|oké|nu|ook|alsjeblieft|svp|nee",
    rule_words=(
        "verboden toegestaan nodig verplicht geldig geldt regel hoeft hoef moet mag nooit "
        "altijd nu vermijden gebruiken gebruik"
    ),
    ending=EndingWords(
        bans="verboden taboe vermijd*",
        laws="regel regels voorschrift",
        duties=(
            "nodig verplicht hoeft hoef hoeven moet moeten gebruik gebruiken gebruikt "
            "geldt gelden geldig* toepassing"
        ),
        hedges=(
            "ik als indien tenzij behalve alleen slechts enkel tot totdat wanneer zodra "
            "zolang terwijl of omdat voordat nadat misschien waarschijnlijk zou kunnen "
            "binnenkort later morgen volgende anders maar hoewel dan"
        ),
        permits=(
            r"(?:je|u) mag (?:nu|voortaan|weer)|"
            r"jullie mogen (?:nu|voortaan|weer)|"
            r"(?:nu|voortaan) (?:mag (?:je|u)|mogen jullie)|"
            r"(?:is|zijn) (?:nu|voortaan|weer) toegestaan"
        ),
    ),
    patterns={
        "binds": r"""
(?:moet|moeten|dient|dienen|hoort|horen|behoort)
altijd|steeds|telkens|elke keer|iedere keer|zonder uitzondering|beslist|per se|in elk geval|hoe dan ook
verplicht\w*|vereist\w*|noodzakelijk|vaste regel
voortaan|vanaf (?:nu|vandaag|morgen|volgende|deze|maandag|heden)|van nu af|in het vervolg|in de toekomst
(?:hoogstens|maximaal|hooguit|minstens|uiterlijk)|niet meer dan
@(?:zorg|let op|denk eraan|vergeet niet|houd|hou|gebruik|volg|respecteer|beperk|laat|antwoord|bewaar|blijf bij)
(?:elke?|iedere?|alle|alles|iedereen)\b.{1,70}(?:eerst|vooraf|aan mij|bij mij|via mij|langs mij|met mij|mijn (?:akkoord|goedkeuring|toestemming))
(?:niets|niks|niemand|geen)\b.{1,60}(?:zonder|voordat|tenzij|voor)
zonder\b.{1,60}(?:niets|niks|niemand|geen|niet)
(?:alleen|enkel|slechts) (?:met|na|als|wanneer|via|op|in|indien)
pas (?:na|als|wanneer|nadat)
ik (?:wil|eis|verwacht|sta erop|verlang)\b
belangrijk:
""",
        "orders": r"""
@(?:schrijf|stuur|zet|doe|geef|maak|leg|noem|vraag|test|controleer|check|meld|bewaar|sla|boek|bestel|betaal|rond|citeer|vertaal|neem|spreek|wacht|voeg|begin|stel|toon|informeer|voer|commit|push|draai|deel|beschrijf|overleg|koop|bel|mail)
(?:stuur je|leg je|vraag je|meld je|krijg ik|geef je|je (?:stuurt|legt|vraagt|meldt|geeft|maakt))
""",
        "standing": r"""
in het (?:nederlands|engels|duits|frans|spaans|italiaans|portugees|chinees|japans|russisch|arabisch)
elke?|iedere?|alle|altijd|dagelijks|wekelijks|per (?:dag|week|maand)|eerst|vooraf|op (?:maandag|dinsdag|woensdag|donderdag|vrijdag)
ook (?:als|al|wanneer)|zelfs als|voordat|nadat|voor|na|tot|zonder|tenzij|alleen|hoogstens|maximaal|in plaats|met (?:twee|vier|\d)|uiterlijk|zodra
""",
        "forbids": r"""
nooit|nimmer|in geen geval|onder geen (?:beding|voorwaarde|enkele voorwaarde)|absoluut niet|geen sprake van|in geen enkel geval
verboden|verbied\w*|taboe|uit den boze|niet aan de orde|uitgesloten|onaanvaardbaar|off[- ]limits|verboden terrein|onaantastbaar
(?:mag|mogen|kan|kunnen|hoeft|moet|moeten|zal|zullen|hoort)\b.{0,60}(?:niet|geen|niets|niks|niemand|nooit)
(?:niemand|niets|niks|geen \w+)\b.{0,40}(?:mag|mogen|moet|moeten|gaat|komt|zal)
@(?:\w+ )?(?:bel|wijzig|verander|verwijder|schrijf|raak|maak|neem|gebruik|stuur|laat|geef|deel|open|start|verplaats|publiceer|zet|doe|push|commit|installeer|kopieer|noem|vertel|zeg|ga|kom|koop|boek)\b.{0,60}(?:niet|geen|niets|niks|niemand)
niet (?:aanraken|wijzigen|veranderen|verwijderen|aankomen|overschrijven|gebruiken|delen|publiceren|bellen|storen|doen|openen|pushen)
niet (?:toegestaan|toelaatbaar|geoorloofd|acceptabel|onderhandelbaar|toegelaten)
blijf(?: je)? (?:\w+ )?(?:af|weg|uit|buiten)|(?:handen|vingers|poten) (?:af|weg|thuis)|afblijven|van .{1,40} blijf je af|met je (?:handen|vingers) van
ik wil (?:\w+ ){0,4}(?:niet|geen|nooit)|wil ik (?:\w+ )?(?:niet|geen)|ik weiger|ik verbied
(?:vermijd|stop met|hou op|laat dat|onthoud je|zie af)
@(?:geen|niet) \w+(?: [\w`'-]+)*
(?:blijft|blijven|laat)\b.{0,40}(?:ongewijzigd|onaangeroerd|zoals (?:het|ze|hij|die)|met rust|vertrouwelijk|geheim)
niet (?:meer|langer)|geen .{0,30}meer
""",
        "prefers": r"""
liever|het liefst|bij voorkeur|prefereer|voorkeur|als het (?:kan|even kan)|indien mogelijk|zo mogelijk|als het mogelijk is|idealiter|prettiger|fijner|handiger|beter
(?:ik )?(?:hou|houd) (?:meer |het meest )?van|hou ik|vind ik (?:\w+ )?(?:prettig\w*|fijn\w*|beter|mooi\w*|handig\w*|leuk\w*)|ik (?:zou graag|vind|heb liever|ben (?:meer|eerder|zelf))|spreekt me|bevalt me|ligt me|werk ik (?:liever|beter)|voel me meer
in plaats van|eerder dan|boven
mijn (?:favoriet\w*|voorkeur|keus)
""",
        "corrects": r"""
@(?:nee|fout|onjuist|sorry|correctie|wacht|klopt niet)[,.:;–—-]
(?:bedoelde|bedoel|zei|had het over|vroeg naar|doelde|heb .{1,20} gezegd)
(?:verkeerd|niet goed|mis) ?(?:begrepen|begrijpt|gelezen|verstaan|begreep|opgevat)|begrijpt me verkeerd|misverstand|vergis\w*|verward|haalt .{1,30} door elkaar
(?:is|was|dat is|klopt) (?:fout|verkeerd|onjuist|niet (?:goed|juist|waar|wat)|een vergissing|niet$)
@(?:het is|het zijn|dat is|je schrijft|schrijf|de naam is)\b.{1,60}(?:,|en) niet
@niet .{1,60}(?:, maar|, \w+)
, (?:en )?niet (?:de |het |op |van |met |in )?[\w.-]+(?: [\w.-]+){0,3}[.!]?$
te (?:veel|weinig|lang|kort|hoog|laag|gek)\b.{0,30}(?:maak|doe|zet|neem|liever|beter|verlaag|verhoog|is genoeg|volsta\w*|\d)
vergeet (?:wat|de|het|mijn)|van gedachten veranderd|ik neem .{1,20} terug|vervalt
(?:met|zonder) (?:een |twee |dubbele )?(?:lange |korte |hoofdletter )?'?(?:ij|[a-z])'?(?:,| en| niet)
""",
        "exempt": r"""
moet(?:en)? (?:vast|wel|haast|bijna|toch|zeker)\b.{0,40}(?:lachen|gek|moe|denken|zijn|hebben|grap\w*|leuk\w*)|moet ik (?:lachen|zeggen|toegeven|gaan)
moet\b.{0,30}(?:uit|van) (?:1[5-9]|20)\d\d
(?:mag|kan)\b.{0,40}(?:weer|opnieuw)
(?:ik )?(?:heb|heeft|ben|is|was) (?:nog )?(?:nooit|niet|geen)|weet (?:ik )?niet|geen (?:idee|probleem|zorgen|dank|zin|paniek|wonder|haast)|maakt niet uit|niet erg|niks aan de hand|nooit (?:eerder|gezien|geweest)|woont niet meer|werkt niet meer|kan niet geloven|maak je geen
""",
        "requests": r"""
@(?:kun|kan|kunt|wil|zou|wilt) (?:je|u|jij)
alsjeblieft|alstublieft|a\.?u\.?b
""",
        "decides": r"""
beslo\w+|beslis\w+|besluit|gekozen|kiezen|kies|afgesproken|akkoord|we (?:gaan|doen|nemen|gebruiken|houden)|klaar|punt uit|vastgelegd|wordt het|deal|staat vast|doen we|nemen we|daarom
""",
        "finds": r"""
blijkt|bleek|gevonden|ontdekt|oorzaak|reden|omdat|doordat|door|bevestig\w+|toont|laat zien|ontbreekt|ontbreken|kennelijk|eigenlijk|treedt .{0,20}op|alleen (?:op|als|bij|met)|bevat|geen enkele?|geen|vastgesteld|komt door|ligt aan
want|aangezien|daarom|daardoor|dus|vanwege|zodat
""",
        "fails": r"""
mislukt\w*|mislukken|fouten?|geweigerd|afgewezen|faalt|falen|gefaald|onmogelijk|kapot|vastgelopen|afgebroken|lukt\b.{0,60}niet|(?:werkt|gaat|kan|kon|start|laadt|reageert|wil|komt)\b.{0,50}niet|niet (?:gevonden|gelukt|bereikbaar)|ongeldig|verlopen|crasht\w*|geblokkeerd|ontbreekt
""",
        "succeeds": r"""
geslaagd\w*|voltooid|gelukt|afgerond|klaar|opgelost|verholpen|toegevoegd|verwijderd|gemaakt|bijgewerkt|doorgevoerd|zonder (?:haperen|fouten|problemen)|werkt|gereed|groen|geïnstalleerd|succes\w*|slagen|gefixt
""",
        "negation": "niet|nooit|geen|niets|niks|niemand|nergens|noch",
        "denies": r"""
verboden|verbied\w*|weiger\w*|geweigerd|afgewezen|afwij\w+|uitgesloten|onmogelijk|vermijd\w*|uit den boze|taboe|voorkom\w*
onbereikbaar|stil|zweeg|zwegen|stom|offline|dood|ongewijzigd|onaangeroerd|ontbre\w+|mislukt\w*|uitgevallen|plat
""",
        "without": "zonder|behalve|tenzij|uitgezonderd",
        "obliges": r"moet|moeten|altijd|verplicht\w*|vereist|elke?|iedere?|alle|dient|dienen",
        "permits": r"mag|mogen|kan|kunnen|toegestaan|vrij|toestemming",
        "only": "alleen|enkel|slechts|uitsluitend",
        "afternoon": r"'s middags|'s avonds|middags|avonds|uur",
    },
    numerals="""
1 een eerste
2 twee tweede* beide*
3 drie derde drieën
4 vier vierde
5 vijf vijfde
6 zes zesde
7 zeven zevende
8 acht achtste
9 negen negende
10 tien tiende
11 elf elfde
12 twaalf twaalfde dozijn
13 dertien*
14 veertien*
15 vijftien* kwart
16 zestien*
17 zeventien*
18 achttien*
19 negentien*
20 twintig*
30 dertig* half
40 veertig*
50 vijftig*
60 zestig*
70 zeventig*
80 tachtig*
90 negentig*
100 honderd*
200 tweehonderd
500 vijfhonderd
1000 duizend*
1000000 miljoen*
""",
    months=(
        "januari/jan februari/feb maart/mrt april/apr mei juni/jun juli/jul augustus/aug "
        "september/sep/sept oktober/okt november/nov december/dec"
    ),
    synonyms="""
wijzig* gewijzig* verander* aanrak* bewerk* aanpass* aangepast
reageer* antwoord* bereik* onbereik* stil zweeg* gereageer*
inschrijv* inzend* deadline* termijn* sluit* indien*
verwijder* wis* gewis*
keur* goedkeur* goedgekeur* teken* akkoord
gebruik* benut*
koop* bestel* kocht*
""",
    notes=NoteWords(
        critical="kritiek|kritisch|hoog|dringend|urgent|cruciaal|zeer belangrijk",
        important="belangrijk|gemiddeld|middel|opmerkelijk|waarschuwing",
        info="info|informatie|laag|normaal|notitie|ter info",
        done="klaar|gedaan|voltooid|afgerond|gereed|opgelost|afgehandeld",
        task="taak|taken|huidige taak|opdracht",
        next="volgende stap|volgende stappen|vervolg|daarna|hierna|volgende|volgende actie|vervolgens",
        nothing="niets te noteren|niets te observeren|niets te melden|niets op te merken|niets|geen observaties|geen bijzonderheden|niets nieuws|niets bijzonders|niets vast te leggen",
        unknown_time="tijd onbekend|onbekend|tijdstip onbekend|zonder tijd|onbekende tijd",
        clock="om|uur|rond",
        morning="'s ochtends|'s morgens",
        afternoon="'s middags|'s avonds",
    ),
)
