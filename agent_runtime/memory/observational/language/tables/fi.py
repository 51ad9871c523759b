"""Finnish."""

from agent_runtime.memory.observational.language.base import EndingWords, Language, NoteWords

TABLE = Language(
    code="fi",
    name="finnish",
    letters="äö",
    lead="ja|mutta|niin|ok|no|nyt|sitten|ole hyvä|hei|siis|kiitos",
    rule_words=(
        "kielletty kiellettyä sallittu tarpeen pakollinen voimassa sääntö täytyy pitää saa voi "
        "nyt koskaan aina välttää vältä käyttää käytä ole ei"
    ),
    ending=EndingWords(
        bans="kiellet* kieltä* vältä* välttä*",
        laws="sääntö säännöt",
        duties=(
            "tarpeen tarvitse tarvita pakolli* täytyy pitää käyttää käytä käytetä "
            "voimassa päde päteä"
        ),
        hedges=(
            "jos ellei paitsi vain ainoastaan kunnes kun milloin niin vai ennen jälkeen "
            "ehkä kenties luultavasti olisi pitäisi voisi pian myöhemmin huomenna ensi "
            "muuten mutta vaikka kuin"
        ),
        permits=(
            r"(?:saat|voit|saatte|voitte) nyt|"
            r"nyt (?:saat|voit|saatte|voitte)|"
            r"(?:on|ovat) nyt sallittu\w*"
        ),
    ),
    patterns={
        "binds": r"""
(?:pitää|täytyy|on pakko|tulee|pitäisi|täytyisi|tulisi|kuuluu)(?= )
on (?:\w+ )?(?:\w+(?:ttava|ttävä)|oltava|tehtävä|saatava|annettava|kysyttävä|hyväksytettävä)
\w+(?:ttava|ttävä)\b
aina|joka kerta|poikkeuksetta|ehdottomasti|välttämättä|pakolli\w+|vaaditaan|vaadin|edellyt\w+|joka tapauksessa
tästä (?:lähtien|eteenpäin|alkaen|päivästä)|jatkossa|vastedes|ensi (?:viikosta|kuusta) (?:lähtien|alkaen)|huomisesta|tulevaisuudessa|nyt alkaen
enintään|korkeintaan|vähintään|viimeistään
@(?:varmista|huolehdi|muista|älä unohda|pidä|käytä|noudata|rajoita|jätä|vastaa|säilytä|pysy)
(?:kaik\w+|jokai\w+|joka \w+|kaikista|\w+sta)\b.{1,70}(?:ensin|etukäteen|minun kanssani|kanssani|minulta|minulle|kauttani|hyväksyn\w+)
(?:mikään|mitään|kukaan|ketään|yhtään\w*|ei)\b.{1,60}(?:ilman|ennen|kunnes|paitsi)
(?:ilman|ennen kuin)\b.{1,60}(?:ei|mikään|mitään|kukaan)
(?:vain|ainoastaan) (?:jos|kun|jälkeen|luvalla|\w+lla|\w+llä)
vasta (?:kun|sitten|\w+n jälkeen)
(?:haluan|vaadin|edellytän|odotan|toivon), että
tärkeää:
""",
        "orders": r"""
@(?:\w+ )?(?:kirjoita|lähetä|laita|tee|anna|aja|nimeä|muotoile|kysy|testaa|tarkista|ilmoita|tallenna|varaa|tilaa|maksa|pyöristä|siteeraa|käännä|ota|puhu|odota|lisää|aloita|esitä|näytä|kerro|luo|kuvaa|osta|soita|sisennä|merkitse)
(?:lähetät|kirjoitat|kysyt|ilmoitat|annat|teet|näytät|saan sinulta|sovitaan|hyväksytät)
""",
        "standing": r"""
(?:suomeksi|englanniksi|ruotsiksi|saksaksi|ranskaksi|espanjaksi|italiaksi|venäjäksi|kiinaksi|japaniksi)
joka|aina|kaikki|jokai\w+|päivittäin|viikoittain|kuukausittain|maanantaisin|tiistaisin|keskiviikkoisin|torstaisin|perjantaisin
vaikka|ensin|ennen|jälkeen|mennessä|ilman|vain|enintään|korkeintaan|sijasta|sijaan|kunnes|paitsi|kahdella|neljällä|\w+iin mennessä|saakka|asti
""",
        "forbids": r"""
älä|älkää|älköön|älköön kukaan|en halua|emme halua|ei koskaan|milloinkaan|ikinä|koskaan
ei (?:\w+ )?(?:saa|voi|pidä|tule|kannata|sallita|hyväksytä|suvaita|käytetä|muuteta|kosketa|poisteta|lähetetä|julkaista|jaeta|soiteta|tehdä|anneta|oteta|avata|avata)\b
(?:eivät|et|ette|kukaan ei|mikään ei) (?:\w+ )?(?:saa|voi|pidä|tule)
kielle\w+|kiellän|kieltä\w+|tabu|sallimaton\w*|sallittua?|ei tule kysymykseen|ei tule kuuloonkaan|poissuljett\w+|pois laskuista|koskematon\w*|pannassa|ei käy
(?:näpit|kädet|sormet|hyppyset) (?:irti|pois)|pysy (?:kaukana|erossa|poissa)|anna olla
missään tapauksessa|millään ehdolla|missään nimessä|missään olosuhteissa
(?:kukaan|mikään|yksikään|kenenkään) ei|(?:kukaan|mikään) (?:\w+ )?ei
(?:vältä|välttäkää|lopeta|lopettakaa|lakkaa|pidättäydy|luovu)
kieltäydyn|vastustan
(?:pysyy|pysyvät|säilyy|jätä|jätetään|jää|jäävät)\b.{0,40}(?:ennallaan|ennalleen|koskematta|rauhaan|sellaisena\w*|salassa|luottamuksellis\w+)
@ei \w+(?:ia|iä|ja|jä|ta|tä|a|ä)\b
ei enää|en enää|ei .{1,30} enää
""",
        "prefers": r"""
mieluummin|mieluiten|mieluisa\w*|ensisijaisesti|jos (?:vain )?mahdollista|mahdollisuuksien mukaan|jos voi\w*|parempi|paremmin|parhaiten|ennemmin|mielellään
(?:pidän|tykkään|tykkäisin|pitäisin) (?:enemmän|eniten|\w+sta|\w+stä|siitä)|haluaisin|ottaisin|suosin|suosi\w*|mieleen|miellyttä\w+|sopii (?:minulle|paremmin)
sijaan|sijasta|eikä (?:\w+en|\w+lla|\w+llä)
(?:tutumpi|kotoisampi|luontevampi|istuu|käteen|suosikki\w*|olen (?:enemmän|pikemminkin))
""",
        "corrects": r"""
@(?:ei|väärin|virhe|anteeksi|korjaus|hetkinen|eikun)[,.:;–—-]
(?:tarkoitin|tarkoitan|sanoin|puhuin|kysyin|meinasin|kyse on|kyseessä on)
(?:ymmärsit|käsitit|luit|tulkitsit|kuulit|sait) (?:\w+ )?(?:väärin|virheellisesti)|väärinkäsity\w+|väärinymmärry\w+|erehdy\w+|erehdyit|sekoitit|sekoitat|olet väärässä
(?:on|oli|se on) (?:väärin|virhe|virheelli\w+|väärä)|ei pidä paikkaansa|ei ole (?:oikein|totta|niin)
@(?:se on|nimi on|kirjoitetaan|nimeni on|ne ovat)\b.{1,60}, (?:ei|eikä)
@ei .{1,50}(?:, vaan|vaan)|vaan \w+
, (?:ei|eikä|enkä) [\w.-]+(?: [\w.-]+){0,3}[.!]?$
enkä \w+|eikä \d+
(?:liikaa|liian|liioit\w+|vähän)\b.{0,30}(?:laita|tee|pane|muuta|vaihda|laske|nosta|pudota|riittä\w+|otetaan|parempi|\d)
unohda (?:se|mitä|aiempi|edellinen)|muutin mieleni|peru\w* (?:sen|mitä)|perun
(?:kaksois\w+|ilman \w-?kirjain\w*|\w:llä|\w-kirjaim\w+)
""",
        "exempt": r"""
(?:sinua|teitä) varmaan|täytyy olla (?:väsyny\w+|hullu\w*|vuodelta|peräisin)|täytyy (?:nauraa|sanoa|myöntää|vitsailla)|(?:on|oli) varmaan
saa (?:taas|jälleen)|voi (?:taas|jälleen)
(?:en|ei|emme) (?:tiedä|ole(?: koskaan)?|ollut|usko|muista|ymmärrä|jaksa|haittaa|se mitään|hätää|huolta|asu|syö|juo|kestä|näe|voi uskoa|kuulosta|huono|ongelmaa|kiitos|onnistu\w*|mennyt)
älä (?:huoli|välitä|naurata|viitsi|muuta sano|hätäile)|(?:en|ei) (?:ole )?koskaan (?:ollut|nähnyt|käynyt)|ei enää (?:asu|ole|työskentele)|aina ollut|ei mitään (?:uutta|erikoista)
""",
        "requests": r"""
@(?:voisitko|voitko|voisitteko|voitteko|viitsisitkö)
kiitos|ole hyvä|ole kiltti
""",
        "decides": r"""
päät\w+|valits\w+|valit\w+|sovittu|sovimme|mennään|otetaan|tehdään|edetään|jatketaan|käytetään|kättä päälle|sillä selvä|asia selvä|selvä on|lyödään lukkoon|näin tehdään|siksi|ratkais\w+
""",
        "finds": r"""
ilmi|osoittautu\w+|löyt\w+|löysin|syy|syynä|syystä|koska|johtu\w+|vahvist\w+|näyttää|puuttu\w+|ilmen\w+|paljast\w+|havait\w+|esiintyy|ainoastaan|ei ole|yhtään|yksikään|sisältää|todellisuudessa|selvisi|itse asiassa
sillä|siksi|joten|takia|vuoksi|näin ollen
""",
        "fails": r"""
virhe\w*|epäonnistu\w+|kaatu\w+|evätty|evättiin|hylätty|hylättiin|kielletty|ei (?:\w+ )?(?:onnistu\w*|toimi\w*|löydy|löytynyt|vastaa|lataudu|lataantunut|käynnisty|mene|mennyt|aukea|voitu)|mahdoton\w*|rikki|keskeyty\w+|aikakatkais\w*|vanhentu\w+|jumi\w*|puuttu\w+|estetty|virheelli\w+
""",
        "succeeds": r"""
läpi|valmis|valmistu\w+|onnistu\w+|korja(?:ttu|tiin|ttiin)|ratkaistu|lisätty|lisättiin|poistettu|poistettiin|luotu|päivitetty|päivitettiin|asentui|asennettu|ongelmitta|toimii|ilman (?:ongelmia|virheitä)|suoritettu|tehty|vihreä\w*|julkaistu|hoidettu
""",
        "negation": r"ei|en|et|emme|ette|eivät|älä|älkää|älköön|eikä|enkä|etkä|eivätkä|koskaan|kukaan|mikään|mitään|yksikään|ketään",
        "denies": r"""
kielle\w+|kielt\w+|evät\w+|evätt\w+|hylä\w+|kieltäyt\w+|vält\w+|mahdoton\w*|est(?:ää|etty|ettiin)|näpit irti
saavuttamat\w+|mykk\w+|hilja\w+|vaiken\w+|tavoittamat\w+|poissa|nurin|kaatu\w+|puuttu\w+|ennallaan|koskemat\w+
""",
        "without": "ilman|paitsi|lukuun ottamatta|ellei",
        "obliges": r"täytyy|pitää|on pakko|\w+ttava|\w+ttävä|aina|kaik\w+|joka\w*|pakolli\w+|vaadit\w+|vaatii",
        "permits": r"saa|saavat|voi|voivat|sallittu\w*|lupa|voidaan",
        "only": "vain|ainoastaan|pelkästään|yksinomaan",
        "afternoon": r"kello|klo|iltapäivä\w*|illalla|ilta|päivällä",
    },
    numerals="""
1 yksi yhde* yhtä ensimmäi*
2 kaksi kahde* kahta kahte* toinen toise* molem*
3 kolm*
4 neljä*
5 viisi viide* viittä viite*
6 kuusi kuude* kuutta kuute*
7 seitsem* seitsemä*
8 kahdeksa*
9 yhdeksä*
10 kymmene* kymmenen
11 yksitoista yhdentoista
12 kaksitoista kahdentoista keskipäivä* puolipäivä* tusina
13 kolmetoista
14 neljätoista
15 viisitoista vartti* varttia
20 kaksikymmentä
30 kolmekymmentä puoli
40 neljäkymmentä
50 viisikymmentä
60 kuusikymmentä
100 sata sada* sataa
1000 tuhat tuhan*
1000000 miljoon*
""",
    months=(
        "tammikuu* helmikuu* maaliskuu* huhtikuu* toukokuu* kesäkuu* heinäkuu* elokuu* syyskuu* "
        "lokakuu* marraskuu* joulukuu*"
    ),
    synonyms="""
muut* muok* kosk* vaiht*
vasta* vastau* tavoit* mykk* hilja*
hak* määräaik* päätt* jätt* toimit*
poist* hävi*
hyväk* allekirj* vahvist*
käyt* käyttä*
ost* tila*
""",
    notes=NoteWords(
        critical="kriittinen|korkea|kiireellinen|erittäin tärkeä|tärkein",
        important="tärkeä|keskitaso|huomattava|varoitus|merkittävä",
        info="info|tieto|tiedoksi|matala|normaali|huomio",
        done="valmis|tehty|suoritettu|hoidettu|ratkaistu|päättynyt",
        task="tehtävä|tehtävät|nykyinen tehtävä",
        next="seuraavaksi|seuraava askel|seuraavat askeleet|seuraava vaihe|sitten|seuraava",
        nothing="ei havaittavaa|ei mitään havaittavaa|ei mitään kirjattavaa|ei kirjattavaa|ei huomioitavaa|ei mitään|ei havaintoja|ei mitään merkittävää|ei muistiinpantavaa|ei mitään uutta|ei mitään raportoitavaa",
        unknown_time="aika tuntematon|tuntematon|aika ei tiedossa|ei aikaa|ajankohta tuntematon|kellonaika tuntematon",
        clock="klo|kello|noin",
        morning="aamulla|ap.",
        afternoon="iltapäivällä|illalla|ip.",
    ),
)
