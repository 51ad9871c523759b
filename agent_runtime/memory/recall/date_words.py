"""The words by which languages name months, weekdays and times relative to today.

Entries are regular expressions of folded text (NFKC, lower case); where a word has several forms,
they are alternatives.  Months and weekdays stand in full: their abbreviations are words of other
languages too ("mar", "set", "do").
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DateWords:
    """A language's words for dates.

    Attributes:
        months: from January on.
        weekdays: from Monday on.
        days: today, yesterday, and the day before it.
        units: day, week, month, year; singular and plural.
        last, this: before a unit or a weekday; `last_after` and `this_after` behind it.
        ago: the forms of "N units ago", with `{n}` and `{unit}`.
        numbers: from one on.
        inside: prepositions before a month that stands alone.
    """

    months: str
    weekdays: str
    days: tuple[str, str, str]
    units: tuple[str, str, str, str]
    ago: str
    numbers: str
    last: str = ""
    this: str = ""
    last_after: str = ""
    this_after: str = ""
    inside: str = "in"


WORDS: dict[str, DateWords] = {
    "en": DateWords(
        months="january february march april may june july august september october november "
        "december",
        weekdays="monday tuesday wednesday thursday friday saturday sunday",
        days=(
            "today|this morning|this afternoon|this evening|tonight",
            "yesterday|last night",
            "(?:the )?day before yesterday",
        ),
        units=("days?", "weeks?", "months?", "years?"),
        last="last|previous|past",
        this="this",
        ago="{n} {unit} (?:ago|back|earlier)",
        numbers="an?|one (?:a )?couple(?: of)?|two three four five six seven eight nine ten",
    ),
    "de": DateWords(
        months="januar|jänner februar|feber märz|maerz april mai juni juli august september "
        "oktober november dezember",
        weekdays="montags? dienstags? mittwochs? donnerstags? freitags? samstags?|sonnabends? "
        "sonntags?",
        days=("heute", "gestern", "vorgestern"),
        units=("tage?n?", "wochen?", "monate?n?s?", "jahre?n?s?"),
        last="letzte[nrsm]?|vergangene[nrsm]?|vorige[nrsm]?",
        this="diese[nrsm]?",
        ago="vor {n} {unit}",
        numbers="einem|einer|ein zwei drei vier fünf sechs sieben acht neun zehn",
        inside="im|seit|ab",
    ),
    "fr": DateWords(
        months="janvier février|fevrier mars avril mai juin juillet août|aout septembre octobre "
        "novembre décembre|decembre",
        weekdays="lundi mardi mercredi jeudi vendredi samedi dimanche",
        days=("aujourd['’]hui|ce matin|ce soir", "hier", "avant[- ]hier"),
        units=("jours?", "semaines?", "mois", "ans?|années?"),
        last_after="derni[eè]re?|passée?",
        this="cette|ce",
        ago="il y a {n} {unit}",
        numbers="une?|1 deux trois quatre cinq six sept huit neuf dix",
        inside="en|début|fin|depuis|mois de",
    ),
    "es": DateWords(
        months="enero febrero marzo abril mayo junio julio agosto septiembre|setiembre octubre "
        "noviembre diciembre",
        weekdays="lunes martes miércoles|miercoles jueves viernes sábado|sabado domingo",
        days=("hoy|esta mañana|esta tarde|esta noche", "ayer|anoche", "anteayer|antes de ayer"),
        units=("días?|dias?", "semanas?", "mes(?:es)?", "años?"),
        last="últim[oa]|ultim[oa]",
        last_after="pasad[oa]",
        this="est[ea]",
        ago="hace {n} {unit}",
        numbers="una?|un dos tres cuatro cinco seis siete ocho nueve diez",
        inside="en|desde|mes de",
    ),
    "pt": DateWords(
        months="janeiro fevereiro março|marco abril maio junho julho agosto setembro outubro "
        "novembro dezembro",
        weekdays="segunda-feira terça-feira|terca-feira quarta-feira quinta-feira sexta-feira "
        "sábado|sabado domingo",
        days=("hoje", "ontem", "anteontem|antes de ontem"),
        units=("dias?", "semanas?", "m[eê]s(?:es)?", "anos?"),
        last="últim[oa]|ultim[oa]",
        last_after="passad[oa]",
        this="est[ea]|ess[ea]",
        ago="(?:há|ha|faz) {n} {unit}|{n} {unit} atr[aá]s",
        numbers="uma?|um dois|duas três|tres quatro cinco seis sete oito nove dez",
        inside="em|desde|mês de",
    ),
    "it": DateWords(
        months="gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre "
        "novembre dicembre",
        weekdays="luned[iì] marted[iì] mercoled[iì] gioved[iì] venerd[iì] sabato domenica",
        days=("oggi|stamattina|stasera", "ieri", "l['’]altro ieri|avantieri"),
        units=("giorn[oi]", "settiman[ae]", "mes[ei]", "ann[oi]"),
        last="ultim[oa]",
        last_after="scors[oa]|passat[oa]",
        this="quest[oa]",
        ago="{n} {unit} fa",
        numbers="una?|un due tre quattro cinque sei sette otto nove dieci",
        inside="a|in|ad|da|di",
    ),
    "nl": DateWords(
        months="januari februari maart april mei juni juli augustus september oktober november "
        "december",
        weekdays="maandag dinsdag woensdag donderdag vrijdag zaterdag zondag",
        days=("vandaag|vanochtend|vanavond", "gisteren", "eergisteren"),
        units=("dag(?:en)?", "we(?:ek|ken)", "maand(?:en)?", "ja(?:ar|ren)"),
        last="vorige?|afgelopen",
        this="deze|dit",
        ago="{n} {unit} geleden",
        numbers="een|één twee drie vier vijf zes zeven acht negen tien",
        inside="in|sinds|eind|begin",
    ),
    "pl": DateWords(
        months="stycze[nń]|styczni[au] lut(?:y|ego|ym) mar(?:zec|ca|cu) "
        "kwie(?:cie[nń]|tnia|tniu) maj[au]? czerw(?:iec|ca|cu) lip(?:iec|ca|cu) "
        "sierp(?:ie[nń]|nia|niu) wrze(?:sie[nń]|[sś]nia|[sś]niu) pa[zź]dziernik[au]? "
        "listopad(?:a|zie)? grud(?:zie[nń]|nia|niu)",
        weekdays="poniedzia[lł]ek wtorek [sś]rod[aęe] czwartek pi[aą]tek sobot[aęe] niedziel[aęe]",
        days=("dzisiaj|dziś|dzis", "wczoraj", "przedwczoraj"),
        units=(
            "dzie[nń]|dni",
            "tydzie[nń]|tygodni[ue]?a?",
            "miesi[aą]c[aeu]?|miesi[eę]cy",
            "rok|roku|lata?",
        ),
        last="(?:w )?(?:zesz[lł]|ubieg[lł])\\w+|ostatni\\w*",
        last_after="temu",
        this="(?:w )?t(?:en|ym|ej|ego)",
        ago="{n} {unit} temu",
        numbers="jeden|jedną dwa|dwie trzy cztery pięć sześć siedem osiem dziewięć dziesięć",
        inside="w|we|od",
    ),
    "ru": DateWords(
        months="январ[ьяе] феврал[ьяе] март[ае]? апрел[ьяе] ма[йяе] июн[ьяе] июл[ьяе] "
        "август[ае]? сентябр[ьяе] октябр[ьяе] ноябр[ьяе] декабр[ьяе]",
        weekdays="понедельник вторник сред[ау] четверг пятниц[ау] суббот[ау] воскресенье",
        days=("сегодня", "вчера", "позавчера"),
        units=("д(?:ень|ня|ней)", "недел[юяиеь]", "месяц(?:а|ев|е)?", "год(?:а|у)?|лет"),
        last="прошл\\w+",
        this="эт(?:от|ом|ой|у)",
        ago="{n} {unit} назад",
        numbers="один|одну два|две три четыре пять шесть семь восемь девять десять",
        inside="в|с",
    ),
    "tr": DateWords(
        months="ocak(?:ta)? şubat(?:ta)? mart(?:ta)? nisan(?:da)? mayıs(?:ta)? haziran(?:da)? "
        "temmuz(?:da)? ağustos(?:ta)? eylül(?:de)? ekim(?:de)? kasım(?:da)? aralık(?:ta)?",
        weekdays="pazartesi salı çarşamba perşembe cuma cumartesi pazar",
        days=("bugün", "dün", "evvelsi gün|önceki gün"),
        units=("gün", "hafta", "ay", "yıl|sene"),
        last="geçen|geçtiğimiz",
        this="bu",
        ago="{n} {unit} önce",
        numbers="bir iki üç dört beş altı yedi sekiz dokuz on",
        inside="geçen",
    ),
    "ar": DateWords(
        months="يناير فبراير مارس أبريل|ابريل مايو يونيو يوليو أغسطس|اغسطس سبتمبر أكتوبر|اكتوبر "
        "نوفمبر ديسمبر",
        weekdays="الاثنين|الإثنين الثلاثاء الأربعاء|الاربعاء الخميس الجمعة السبت الأحد|الاحد",
        days=("اليوم", "أمس|امس|البارحة", "أول أمس|اول امس"),
        units=(
            "يوم|أيام|ايام",
            "(?:ال)?أسبوع|(?:ال)?اسبوع|أسابيع",
            "(?:ال)?شهر|أشهر|شهور",
            "(?:ال)?سنة|(?:ال)?عام|سنوات",
        ),
        last_after="الماضية?",
        this="هذا|هذه",
        ago="(?:قبل|منذ) {n} {unit}",
        numbers="واحد|واحدة اثنين|اثنان ثلاثة أربعة خمسة ستة سبعة ثمانية تسعة عشرة",
        inside="في",
    ),
    "hi": DateWords(
        months="जनवरी फरवरी|फ़रवरी मार्च अप्रैल मई जून जुलाई अगस्त सितंबर|सितम्बर अक्टूबर|अक्तूबर "
        "नवंबर|नवम्बर दिसंबर|दिसम्बर",
        weekdays="सोमवार मंगलवार बुधवार गुरुवार शुक्रवार शनिवार रविवार",
        days=("आज", "बीते कल|कल", "परसों"),
        units=("दिन", "हफ्ते|हफ़्ते|सप्ताह", "महीने|माह", "साल|वर्ष"),
        last="पिछले|पिछली|बीते",
        this="इस",
        ago="{n} {unit} पहले",
        numbers="एक दो तीन चार पांच|पाँच छह सात आठ नौ दस",
        inside="पिछले|इस",
    ),
}

UNSPACED_DAYS = {
    0: "今天|今日|오늘",
    1: "昨天|昨日|昨晚|어제",
    2: "前天|一昨日|おととい|그저께|그제",
}
"""Today, yesterday and the day before, in Chinese, Japanese and Korean."""
UNSPACED_WEEKDAYS = (
    r"(?:上|这|這|本)?(?:周|週|星期|礼拜|禮拜)(?P<zh>[一二三四五六日天])"
    r"|(?P<ja>[月火水木金土日])曜日?|(?P<ko>[월화수목금토일])요일"
)
UNSPACED_UNITS = {
    "week": (
        r"上(?:个|個)?(?:周|週|星期|礼拜)|先週|지난 ?주",
        r"这(?:个|個)?(?:周|星期)|本周|今週|이번 ?주",
    ),
    "month": (r"上(?:个|個)?月|先月|지난 ?달", r"这个月|這個月|本月|今月|이번 ?달"),
    "year": (r"去年|昨年|작년|지난 ?해", r"今年|올해"),
}
"""For each unit the words for the last and for the current one."""
UNSPACED_AGO = (
    r"(?P<n>\d{1,3}|[一二两兩三四五六七八九十]|한|두|세|네|다섯)\s?(?:个|個|か|ヶ|ケ)?"
    r"(?:(?P<day>天|日|일)|(?P<week>星期|周|週間?|주)|(?P<month>月|달|개월)|(?P<year>年|년))"
    r"\s?(?:之前|以前|前|전)"
)
UNSPACED_NUMBERS = {
    one: value
    for value, names in enumerate(("一한", "二两兩두", "三세", "四네", "五", *"六七八九十"), 1)
    for one in names
} | {"다섯": 5}
