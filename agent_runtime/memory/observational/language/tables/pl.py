"""Polish."""

from agent_runtime.memory.observational.language.base import EndingWords, Language, NoteWords

TABLE = Language(
    code="pl",
    name="polish",
    letters="ąęłńśźżćó",
    lead="proszę|i|ale|więc|ok|dobrze|teraz|a|no|to|też|nie",
    rule_words=(
        "dotycząca dotyczący dotyczące są zabronione zabroniony zabroniona zakazane zakazany dozwolone konieczne potrzebne "
        "obowiązuje obowiązkowe ważne reguła zasada trzeba musisz możesz nigdy zawsze teraz "
        "jest unikać unikaj używać używaj"
    ),
    ending=EndingWords(
        bans="zabron* zakazan* wzbronion* unika*",
        laws="reguła reguły zasada zasady",
        duties=(
            "konieczn* potrzebn* obowiązkow* trzeba musisz musimy musicie używać używaj "
            "obowiązuje obowiązują ważn*"
        ),
        hedges=(
            "mi nam jeśli jeżeli gdy kiedy chyba oprócz poza tylko jedynie wyłącznie "
            "dopóki póki dopiero czy ponieważ przed po może prawdopodobnie byłoby "
            "powinno wkrótce później jutro następn* inaczej ale niż"
        ),
        permits=(
            r"(?:teraz|już|znowu|znów) (?:możesz|możecie|wolno ci|wolno wam)|"
            r"(?:możesz|możecie) (?:teraz|już|znowu|znów)|"
            r"wolno ci (?:teraz|już|znowu|znów)|"
            r"(?:jest|są) (?:teraz|już|znowu|znów) dozwolon\w+"
        ),
    ),
    patterns={
        "binds": r"""
(?:musi|musisz|muszą|musicie|należy|trzeba|powinien|powinna|powinno|powinny|powinni|powinieneś|powinnaś|masz|macie|ma być|mają być|winien|winny)
zawsze|za każdym razem|każdorazowo|bezwzględnie|koniecznie|bez wyjątk\w+|obowiązkow\w+|wymag\w+|niezbędn\w+|konieczn\w+|w każdym (?:wypadku|przypadku)
od (?:teraz|dziś|dzisiaj|jutra|tej pory|tego|przyszłego|nowego|najbliższego|poniedziałku)|odtąd|w przyszłości|na przyszłość
(?:najwyżej|maksymalnie|co najwyżej|najpóźniej|co najmniej|minimum)|nie więcej niż
@(?:pamiętaj|upewnij|dopilnuj|zadbaj|nie zapomnij|trzymaj|używaj|stosuj|przestrzegaj|ogranicz|zostaw|odpowiadaj|zachowaj)
(?:każd\w+|wszystk\w+|wszelk\w+|jakikolwiek|jakakolwiek)\b.{1,70}(?:najpierw|wcześniej|uprzednio|ze mną|mnie|mi |przeze mnie|mojej zgody|moją zgod\w+|uzgad\w+|uzgodn\w+)
(?:nic|nikt|żad\w+)\b.{1,60}(?:bez|dopóki|zanim|przed|oprócz)
bez\b.{1,60}(?:nic|nikt|żad\w+|nie)
(?:tylko|wyłącznie|jedynie) (?:po|z|jeśli|gdy|w|na|przez|za)
dopiero (?:po|gdy|jak|kiedy)
(?:chcę|żądam|oczekuję|wymagam|nalegam|życzę sobie)\b.{0,6}(?:żeby|aby|by|,|każd\w+|wszystk\w+)?
ważne:
""",
        "orders": r"""
(?:pisz|napisz|wysyłaj|wyślij|przysyłaj|przyślij|dawaj|daj|rób|zrób|ustaw|nazywaj|nazwij|formatuj|pytaj|zapytaj|testuj|sprawdzaj|sprawdź|zgłaszaj|zgłoś|zapisuj|zapisz|rezerwuj|zamawiaj|płać|zaokrąglaj|cytuj|tłumacz|bierz|mów|czekaj|dodawaj|dodaj|zaczynaj|uzgadniaj|uzgodnij|konsultuj|twórz|opisuj|pokazuj|informuj|uruchamiaj|uruchom|podawaj|kupuj)
(?:przysyłasz|wysyłasz|uzgadniasz|pytasz|piszesz|dajesz|zgłaszasz|informujesz|pokazujesz|konsultujesz|robisz)
""",
        "standing": r"""
po (?:polsku|angielsku|niemiecku|francusku|hiszpańsku|włosku|rosyjsku|chińsku|japońsku)
każd\w+|wszystk\w+|zawsze|codziennie|co (?:tydzień|dzień|miesiąc|piątek|poniedziałek|rano|wieczór)|w (?:poniedziałki|wtorki|środy|czwartki|piątki)|na (?:dzień|tydzień)
choćby|nawet (?:jeśli|gdy|kiedy)|przed|po |najpierw|do |bez|chyba|tylko|najwyżej|zamiast|dwie|dwoma|czterema|zanim|dopóki
""",
        "forbids": r"""
nigdy|pod żadnym pozorem|w żadnym (?:razie|wypadku|przypadku)|za nic|absolutnie nie|ani (?:mi się|się waż)|przenigdy
(?:nie (?:wolno|można|należy|trzeba|może|mogą|możesz|powinien|powinno|powinna|powinny|ma prawa|wchodzi w grę|do przyjęcia))
zabran\w+|zabroni\w+|zakaz\w*|zakazuj\w*|wzbronion\w+|niedozwolon\w+|niedopuszczaln\w+|wyklucz\w+|tabu|nietykaln\w+|zabraniam
@(?:\w+(?: \w+){0,3} )?nie (?:\w+j|\w+(?:uj|aj|ij|yj|dź|cz|sz|ź|ń|rz|w|b|p|m|ł|gaj))\b
@nie (?:ruszaj|dotykaj|zmieniaj|dzwoń|pisz|usuwaj|kasuj|używaj|wysyłaj|rób|dawaj|otwieraj|wchodź|mów|bierz|kupuj|publikuj|udostępniaj|nadpisuj|przenoś|ważcie|waż)
(?:nikt|niech nikt|żad\w+) (?:\w+ )?nie
(?:unikaj|przestań|zaprzestań|powstrzymaj|daruj sobie|odpuść|zrezygnuj)
ręce precz|łapy precz|trzymaj się z dala|z dala od|wara od|precz od|nie ruszać|nie dotykać|nie zmieniać
nie (?:chcę|życzę|zgadzam|pozwalam|toleruję|zamierzam)\b
odmawiam|sprzeciwiam
@(?:żadn\w+|zero|bez) \w+
(?:zostaje|zostają|pozostaje|pozostają|zostaw|ma zostać|mają zostać)\b.{0,40}(?:bez zmian|nietknię\w+|jak (?:jest|są)|w spokoju|niezmien\w+|poufn\w+)
już nie|nie .{1,30} już|więcej nie
""",
        "prefers": r"""
wol\w+|wolał\w+|najchętniej|najlepiej|chętniej|w miarę możliwości|jeśli (?:się da|to możliwe|można)|o ile (?:się da|to możliwe)|raczej|lepiej
(?:bardziej )?lubię|lubimy|podoba\w*|odpowiada mi|pasuje mi|chciał\w+bym|przemawia do mnie
zamiast|niż
(?:bliż\w+|po drodze|lepiej mi|wygodniej|swobodniej|poręczniej)
preferuj\w+|mój ulubiony|jestem (?:raczej|bardziej|fanem|zwolennikiem|zwolenniczką)
""",
        "corrects": r"""
@(?:nie|źle|błąd|pomyłka|przepraszam|korekta|sprostowanie|chwila)[,.:;–—-]
chodzi(?:ło)? mi|miał\w+ na myśli|mówił\w+ o|mówię o|pytam o|pytał\w+ o|powiedział\w+
(?:źle|nie tak|opacznie|błędnie) (?:mnie |to )?(?:zrozumiał\w*|odczytał\w*|przeczytał\w*)|nieporozumieni\w+|pomyli\w+|mylisz|pomieszał\w*
(?:to|jest|był\w*) (?:błąd|nieprawda|źle|błędn\w+|pomyłka|nie tak|nie to)
@(?:to|jest|pisze się|nazywa się|nazwisko to)\b.{1,60}, (?:a )?nie
a nie|lecz
@nie .{1,50}(?:, tylko|, ale|, lecz) \w+
, (?:a )?nie (?:do |od |o |w |z |przez |na )?[\w.„”-]+(?: [\w.„”-]+){0,3}[.!]?$
(?:za (?:dużo|mało|długo|wysoko|nisko|wiele)|zbyt|przesada)\b.{0,30}(?:zrób|daj|ustaw|niech|lepiej|wystarczy|zmień|zmniejsz|zwiększ|obniż|skróć|\d)
zapomnij|zmieniłem zdanie|zmieniłam zdanie|cofam|wycofuję|nieaktualn\w+
(?:przez|pisane|piszemy|bez|z) (?:samo )?[„\"']?(?:ż|rz|u|ó|h|ch|[a-z])[”\"']?(?:,| i| nie)
""",
        "exempt": r"""
(?:musisz|musi|muszą|musicie) (?:się )?(?:ze mnie|nieźle|być (?:zmęczon\w+|głodn\w+|szalon\w+|dumn\w+|z)|mieć (?:racj\w+|dość|rację|wrażenie)|śmiać|żartować|pochodzić|myśleć)
musi (?:być|pochodzić) z
znów wolno|znowu wolno|znów może|znowu może|już (?:może|wolno) (?:znów|znowu)?
nie (?:wiem|mam|ma|było|byłem|byłam|rozumiem|sądzę|myślę|szkodzi|martw|mogę (?:uwierzyć|się doczekać)|przejmuj|żartuj|wierzę|mieszkam|mieszka|pracuje|jem|piję)
nie (?!pozw|zezw)\w{3,}(?:ał|ił|ył|ął|edł|ali|iły|ały|ałem|ałam|iłem|iłam)
nigdy (?:\w+ ){0,2}nie \w+(?:ł|li|łem|łam|liśmy|łyśmy)
nigdy (?:nie )?(?:byłem|byłam|widział\w+|miał\w+|słyszał\w+)|zawsze (?:był\w*|tak|jest)|nic (?:się nie stało|nowego|wielkiego)|nie ma (?:za co|sprawy|problemu)|żaden problem
""",
        "requests": r"""
@(?:czy )?(?:możesz|mógłbyś|mogłabyś|może pan|mógłby|zechcesz)
proszę
""",
        "questions": "czy",
        "decides": r"""
zdecydowa\w+|postanowi\w+|decyzja|wybier\w+|wybra\w+|ustalone|ustali\w+|robimy|jedziemy|bierzemy|zostajemy|używamy|umowa stoi|umówieni|zgoda|i kropka|stanęło|stoi|postawione|dlatego|niech będzie
""",
        "finds": r"""
okaza\w+|okazuje|znalaz\w+|znalezion\w+|odkry\w+|przyczyn\w+|powód|powodem|ponieważ|bo|potwierdz\w+|pokazuje|wynika|brak\w*|brakuje|tylko (?:przy|gdy|na|z|w)|pojawia się|nie ma|żad\w+|ani jed\w+|zawiera|ustali\w+|wskutek|przez to
gdyż|dlatego|skoro|więc|z powodu
""",
        "fails": r"""
błęd\w+|błąd|niepowodzeni\w+|nie (?:powiod\w+|uda\w+|przecho\w+|przesz\w+|działa\w*|można|znalezion\w+|odpowiada|wgrywa|ładuje|uruchamia|wczytuje)|się nie \w+|odmow\w+|odrzuc\w+|niemożliw\w+|zepsut\w+|przerwan\w+|padł\w*|zawiesi\w+|wygas\w+|nieprawidłow\w+|zabronion\w+|przekroczon\w+
""",
        "succeeds": r"""
przesz\w+|ukończon\w+|zakończon\w+|gotow\w+|uda\w+ się|powiod\w+|naprawion\w+|rozwiązan\w+|dodan\w+|usunięt\w+|utworzon\w+|zaktualizowan\w+|bez (?:problemów|błędów|przeszkód)|działa|zaliczon\w+|zainstalowan\w+|wdrożon\w+|weszł\w+|sukces\w*|zielon\w+|zrobion\w+
""",
        "negation": r"nie|nigdy|żad\w+|nic|nikt|nikogo|niczego|ani|nigdzie|nie\w+(?:aln|on|yjn)\w+",
        "denies": r"""
zabran\w+|zabroni\w+|zakaz\w*|wzbronion\w+|odmawia\w*|odmow\w+|odmówi\w+|odrzuc\w+|wyklucz\w+|unika\w*|tabu|precz
nieosiągaln\w+|niedostępn\w+|milcz\w+|milkł\w*|niem\w+|offline|padł\w*|martw\w+|brak\w*|zawiod\w+
""",
        "without": "bez|oprócz|chyba że|poza",
        "obliges": r"musi\w*|muszą|trzeba|należy|zawsze|powin\w+|każd\w+|wszys\w+|obowiązkow\w+|wymag\w+",
        "permits": r"wolno|można|może|mogą|możesz|dozwolon\w+|pozwol\w+",
        "only": "tylko|wyłącznie|jedynie",
        "afternoon": r"godzin\w*|godz|po południu|wieczorem|południ\w+",
    },
    numerals="""
1 jeden jedna jedno pierwsz*
2 dwa dwie dwóch dwu dwoma drug* dwoje oba obie
3 trzy trzech trzem trzema trzeci* troje
4 cztery czterech czterem czterema czwart*
5 pięć pięciu piąt*
6 sześć sześciu szóst*
7 siedem siedmiu siódm*
8 osiem ośmiu ósm*
9 dziewięć dziewięciu dziewiąt*
10 dziesięć dziesięciu dziesiąt*
11 jedenaśc* jedenast*
12 dwanaśc* dwunast* południe
13 trzynaśc* trzynast*
14 czternaśc* czternast*
15 piętnaśc* piętnast* kwadrans*
16 szesnaśc* szesnast*
17 siedemnaśc* siedemnast*
18 osiemnaśc* osiemnast*
19 dziewiętnaśc* dziewiętnast*
20 dwadzieścia dwudziest*
30 trzydzieści trzydziest* pół wpół
40 czterdzieści czterdziest*
50 pięćdziesiąt pięćdziesięciu
60 sześćdziesiąt sześćdziesięciu
70 siedemdziesiąt
80 osiemdziesiąt
90 dziewięćdziesiąt
100 sto stu setka*
200 dwieście
500 pięćset
1000 tysiąc tysiące tysięcy
1000000 milion*
""",
    months=(
        "stycznia/styczeń/styczniu lutego/luty/lutym marca/marzec/marcu "
        "kwietnia/kwiecień/kwietniu maja/maj/maju czerwca/czerwiec/czerwcu "
        "lipca/lipiec/lipcu sierpnia/sierpień/sierpniu września/wrzesień/wrześniu "
        "października/październik/październiku listopada/listopad/listopadzie "
        "grudnia/grudzień/grudniu"
    ),
    synonyms="""
zmieni* zmian* edyt* modyf* rusza* dotyk*
odpowi* odpowiad* milcz* reag* osiąg*
termin* składa* złoż* zgłosz* mija upływ*
usu* kas* skas*
zatwierdz* akcept* podpis* zgod*
uży* stosu*
kup* zam*
""",
    notes=NoteWords(
        critical="krytyczne|krytyczny|krytyczna|wysoki|wysoka|wysokie|pilne|bardzo ważne",
        important="ważne|ważny|ważna|istotne|średni|średnia|ostrzeżenie",
        info="info|informacja|niski|niska|normalny|notatka|informacyjne",
        done="zrobione|gotowe|ukończone|zakończone|wykonane|rozwiązane|załatwione",
        task="zadanie|zadania|bieżące zadanie|aktualne zadanie",
        next="następny krok|następne kroki|kolejny krok|dalej|następnie|potem|kolejne kroki",
        nothing="nic do odnotowania|nic do zanotowania|nic do zaobserwowania|brak obserwacji|nic|nic ważnego|nic godnego uwagi|brak uwag|nic nowego|nic do zapisania|nie ma czego notować",
        unknown_time="czas nieznany|nieznany|godzina nieznana|nieznana|brak czasu|bez godziny|pora nieznana",
        clock="o|godz.|godzina|ok.",
        morning="rano",
        afternoon="po południu|wieczorem",
    ),
)
