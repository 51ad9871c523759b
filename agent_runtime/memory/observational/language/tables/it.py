"""Italian."""

from agent_runtime.memory.observational.language.base import EndingWords, Language, NoteWords

TABLE = Language(
    code="it",
    name="italian",
    letters="àèìòù",
    lead="per favore|per piacere|e|ma|allora|ok|bene|ora|adesso|anche|quindi|poi|senti|guarda",
    rule_words=(
        "vietato vietata vietati permesso permessa consentito necessario necessaria "
        "obbligatorio obbligatoria valido vale applica regola serve devi deve puoi può mai "
        "sempre ora adesso evitare usare usa utilizzare"
    ),
    ending=EndingWords(
        bans="vietat* proibit* evit*",
        laws="regola regole norma norme",
        duties=(
            "necessari* obbligatori* serve servono devi deve dovete bisogno bisogna "
            "usare usa usate utilizzare utilizza vale valgono valid* applica applicano "
            "vigore"
        ),
        hedges=(
            "mi ci se salvo tranne eccetto solo soltanto solamente unicamente finché "
            "fino quando mentre appena ma prima dopo forse probabilmente sarebbe "
            "dovrebbe potrebbe presto domani prossim* perché anche che"
        ),
        permits=(
            r"(?:ora|adesso) (?:puoi|potete)|"
            r"(?:puoi|potete) (?:ora|adesso|di nuovo)|"
            r"(?:ora|adesso) (?:è|sono) (?:permess|consentit)[oaei]|"
            r"(?:è|sono) (?:ora|adesso|di nuovo) (?:permess|consentit)[oaei]"
        ),
    ),
    patterns={
        "binds": r"""
(?:devi|deve|devono|dovete|dovrà|dovranno|dovrai|dovrebbe|dovresti|dovrebbero|dobbiamo)
(?:bisogna|occorre|va|vanno) (?:sempre |prima |tutti |tutte )*\w+(?:at|it|ut|ss|tt|st|rs|ns|s)[oaie]\b
bisogna|occorre|è (?:obbligatori\w|necessario|indispensabile|tassativo|d'obbligo)|obbligatori\w+|tassativ\w+|indispensabile|senza eccezioni?|in ogni caso
sempre|ogni volta|tutte le volte|di volta in volta
d'ora in (?:poi|avanti)|da (?:ora|oggi|adesso|domani|lunedì|questo|questa) (?:in poi|in avanti|mese|settimana|momento)?|a partire da\w*|in futuro|d'ora innanzi
@(?:assicurati|assicuratevi|ricorda|ricordati|bada|fai in modo|non dimenticare|mantieni|mantenga|rispetta|usa|usate|utilizza|limita|limitati|lascia|rispondi|segui|attieniti|tieni)
(?:ogni|qualsiasi|qualunque|tutti i|tutte le|tutto)\b.{1,70}(?:prima|con me|da me|a me|mi |il mio (?:ok|benestare|consenso)|la mia (?:approvazione|firma))
(?:niente|nulla|nessuno|nessuna|nessun)\b.{1,60}(?:senza|finché|prima|salvo|se non)
senza\b.{1,60}(?:non|niente|nulla|nessun\w*)
al massimo|al più tardi|non più (?:di|tardi)|entro e non oltre
(?:solo|soltanto|esclusivamente|unicamente) (?:se|dopo|con|quando|per|in|su|previa)
(?:voglio|esigo|pretendo|mi aspetto|insisto|desidero) (?:che|sempre|ogni|tutto)
importante:
""",
        "orders": r"""
(?:scrivi|scriva|redigi|manda|mandami|invia|inviami|metti|fai|fa'|dammi|dai|esegui|lancia|nomina|chiama|formatta|indenta|chiedi|chiedimi|prova|testa|verifica|controlla|avvisa|avvisami|annota|salva|prenota|ordina|paga|arrotonda|cita|traduci|prendi|parla|aspetta|aggiungi|comincia|consulta|crea|descrivi|rivedi|mostra|informa|passa|compra)
mi (?:mandi|invii|avvisi|consulti|passi|chiedi|mostri|informi|dici|fai avere|porti)
""",
        "standing": r"""
in (?:italiano|inglese|francese|tedesco|spagnolo|portoghese|cinese|giapponese|russo)
ogni|tutti i|tutte le|sempre|il (?:lunedì|martedì|mercoledì|giovedì|venerdì|sabato)|la domenica|al (?:giorno|mese)|giornalmente|settimanalmente
anche (?:se|quando)|prima|dopo|fino|senza|salvo|solo|soltanto|al massimo|invece|con (?:due|quattro|\d)|entro|purché
""",
        "forbids": r"""
mai|in nessun caso|per nessun motivo|per nessuna ragione|assolutamente no|neanche per (?:sogno|idea)|guai a
viet\w+|proib\w+|interdett\w+|intoccabil\w+|tabù|fuori (?:discussione|questione)|escluso|esclusa|off[- ]limits|linea rossa
(?:non (?:è|sono|sia|siano|viene|vengono)) (?:ammess\w+|consentit\w+|permess\w+|accettabil\w+|negoziabil\w+|autorizzat\w+|tollerat\w+)
@(?:\w+(?: \w+){0,3}, )?non (?:mi |ti |si |lo |la |li |le |ci |gli )*\w+(?:are|ere|ire|arlo|arla|arli|erlo|irlo|armi|atelo|ate|ete|ite|rre)\b
non (?:si )?(?:deve|devono|devi|dovete|può|possono|puoi|potete|va|vanno|voglio|ammetto|accetto|tollero|permetto|si tocca|si toccano|si modifica|si cambia)
(?:nessuno|nessuna) (?:\w+ )?(?:telefoni|tocchi|modifichi|cambi|chiami|apra|cancelli|entri|usi|mandi|pubblichi|può|deve|tocca|chiama|telefona|modifica)
(?:evita|evitate|evitare|astieniti|smetti|smettete|smettila|lascia perdere|rinuncia)
(?:giù|via) le mani|mani (?:a posto|lontane|giù)|stai alla larga|sta' lontano|stai lontano|non toccare
mi rifiuto|rifiuto|ti proibisco|ti vieto|mi oppongo
@(?:niente|nessun|nessuna|nessuno|zero) \w+
(?:resta|restano|rimane|rimangono|lascia|deve restare|deve rimanere)\b.{0,40}(?:com'è|così com'è|intatt\w+|invariat\w+|riservat\w+|in pace|stare)
non .{1,40} più|non più
""",
        "prefers": r"""
prefer\w+|preferibilmente|di preferenza|se (?:possibile|si può|puoi|è possibile)|possibilmente|meglio|idealmente|piuttosto
(?:mi|ci) (?:piac\w+|garba\w*|convien\w+|trovo (?:meglio|bene)|sento più|va meglio|vanno meglio|viene meglio)
vorrei|gradirei|gradisco
invece (?:di|del\w*|che)|anziché|al posto
sono più (?:tipo|uno|una|da|per|portat\w+|abituat\w+)|il mio preferito|tifo per|più a mio agio|ho più (?:mano|dimestichezza|confidenza)
""",
        "corrects": r"""
@(?:no|sbagliato|errore|scusa|correzione|macché|aspetta|ma no)[,.:;–—-]
(?:intendevo|volevo dire|dicevo|parlavo|mi riferivo|mi riferisco|ho detto|avevo detto|chiedevo)
(?:frainteso|capito male|capito (?:un'altra cosa)|letto male|equivocat\w+|confuso|fraintendimento|malinteso|equivoco|ti sbagli|si sbaglia)
(?:è|era|è stato|quello è) (?:sbagliat\w+|errat\w+|un errore|scorrett\w+|falso)|non (?:è|era) (?:così|quello|giusto|corretto|vero|ciò)
@(?:è|si scrive|si chiama|sono|era|il cognome è)\b.{1,60}, non
@non .{1,50}(?:, ma|, bensì)|bensì
, (?:e )?non (?:il |lo |la |i |gli |le |l'|del |della |di |con |al )?[\w.-]+(?: [\w.-]+){0,3}[.!]?$
(?:tropp\w+|poc\w+|esagerat\w+|eccessiv\w+)\b.{0,30}(?:facciamo|fai|metti|mettine|scendi|sali|porta\w*|meglio|cambia\w*|riduci\w*|bast\w+|\d)
(?:dimentica|scordati|lascia perdere) (?:quel|quanto|il|la|ciò)|ho cambiato idea|ritiro quel\w*
(?:si scrive|con|senza) (?:una |un |due )?(?:h|accento|acca|doppia|'?[a-z]'?)(?: sola)?(?:,| e| non)
""",
        "exempt": r"""
(?:devi|deve|dovete) (?:divertirti|proprio|essere (?:stanc\w+|stuf\w+|matt\w+|content\w+|del|morto)|aver \w+|avere (?:\w+ato|\w+ito|fame|sonno|ragione|\d+)|ridere|star\w* (?:scherzando|ridendo)|pensare|risalire)
deve (?:essere|risalire|venire) (?:del|al|dal|di)
può (?:di nuovo|nuovamente|finalmente|ancora)|può guidare
non (?:so|credo|ho|hai|c'è|c'era|ci sono|posso|capisco|preoccupart\w+|importa|fa niente|fa nulla|mi dire|sono|vivo|mangio|bevo|vedo l'ora|farmi ridere)
mai (?:visto|stato|avuto|sentito|successo)|non (?:ho|è|ha) mai|non (?:abita|lavora|vive|c'è) più|è sempre|sempre (?:stato|così)
niente male|di niente|niente di (?:che|nuovo|grave)|nessun problema
""",
        "requests": r"""
@(?:puoi|potresti|può|potrebbe|potete|vuoi)
per favore|per piacere|per cortesia
""",
        "decides": r"""
decis\w+|decid\w+|scelt\w+|scegliamo|optiamo|ho optato|procediamo|andiamo (?:con|in|per)|si va|useremo|usiamo|prendiamo|affare fatto|d'accordo|concordat\w+|fine|è deciso|resta così|stabilit\w+|aggiudicato|punto e basta|facciamo
""",
        "finds": r"""
risulta|trovat\w+|scopert\w+|scopr\w+|causa|motivo|perché|dovut\w+|conferm\w+|mostra\w*|dimostra|manca|mancano|deriva|viene da|in realtà|a quanto pare|si verifica|solo (?:con|se|quando)|non c'è|nessun\w*|contiene|emerge|emerso|nemmeno un\w*
poiché|siccome|dato che|quindi|perciò|per questo
""",
        "fails": r"""
fallit\w+|fallisc\w+|error\w*|rifiutat\w+|negat\w+|respint\w+|impossibile|non (?:passa\w*|funziona\w*|risponde|trovat\w+|riesc\w+|riusci\w+|si (?:carica|apre|avvia|connette)|carica|parte|va)|rott\w+|annullat\w+|interrott\w+|scadut\w+|bloccat\w+|crash\w*|neppure .{1,60}si|manc\w+
""",
        "succeeds": r"""
superat\w+|passan\w+|passat\w+|completat\w+|terminat\w+|riuscit\w+|successo|corrett\w+|risolt\w+|aggiunt\w+|rimoss\w+|creat\w+|aggiornat\w+|liscio|senza (?:intoppi|errori|problemi)|funziona|fatto|installat\w+|verde|conclus\w+|pubblicat\w+
""",
        "negation": r"non|mai|nessun\w*|niente|nulla|né|nemmeno|neanche|neppure",
        "denies": r"""
viet\w+|proib\w+|rifiut\w+|neg(?:a|ò|at\w+|ano)|esclus\w+|impossibil\w+|evit\w+|imped\w+|asten\w+|fuori discussione
irraggiungibil\w+|mut[oiae]|silenzi\w+|tacev\w+|tacquero|inaccessibil\w+|fuori servizio|spent\w+|intatt\w+|invariat\w+|intoccabil\w+|manc\w+|fallit\w+|offline
""",
        "without": "senza|salvo|tranne|eccetto|a meno",
        "obliges": r"dev\w+|dovr\w+|bisogna|occorre|sempre|obbligatori\w+|ogni|tutti|tutte|tutto|esig\w+",
        "permits": r"può|possono|puoi|permess\w+|consentit\w+|ammess\w+|libero",
        "only": r"solo|soltanto|solamente|unicamente|esclusivamente",
        "afternoon": r"ore|pomeriggio|sera|mezzogiorno|alle|all'una|dalle",
    },
    numerals="""
1 una uno un primo prima
2 due second* entrambi
3 tre terz*
4 quattro quart*
5 cinque quint*
6 sei sest*
7 sette settim*
8 otto ottav*
9 nove nono nona noni
10 dieci decim*
11 undici
12 dodici mezzogiorno dozzina
13 tredici
14 quattordici
15 quindici
16 sedici
17 diciassette
18 diciotto
19 diciannove
20 venti ventesim*
30 trenta mezza mezzo
40 quaranta
50 cinquanta
60 sessanta
70 settanta
80 ottanta
90 novanta
100 cento centinai*
200 duecento
500 cinquecento
1000 mille mila
1000000 milione milioni
""",
    months=(
        "gennaio/gen febbraio/feb marzo/mar aprile/apr maggio/mag giugno/giu luglio/lug agosto/ago "
        "settembre/set/sett ottobre/ott novembre/nov dicembre/dic"
    ),
    synonyms="""
modific* cambi* tocc* alter* edit*
rispond* rispost* raggiung* irraggiung* mut*
scaden* consegn* termin* chiud* scade*
cancell* elimin* rimuov* rimoss*
firm* approv* autorizz* conferm*
us* utilizz*
compr* acquist* ordin*
""",
    notes=NoteWords(
        critical="critico|critica|alta|alto|urgente|molto importante|prioritario",
        important="importante|media|medio|notevole|avviso|avvertenza",
        info="info|informazione|bassa|basso|normale|nota|informativo",
        done="fatto|completato|completata|terminato|finito|risolto|concluso",
        task="compito|compiti|compito attuale|attività|incarico",
        next="prossimo passo|prossimi passi|passo successivo|prossima azione|poi|successivo|in seguito|prossimo",
        nothing="niente da osservare|niente da annotare|niente da segnalare|nulla da osservare|nulla da segnalare|nulla da annotare|nulla da registrare|niente|nulla|nessuna osservazione|niente di rilevante|nessuna novità",
        unknown_time="ora sconosciuta|orario sconosciuto|sconosciuto|sconosciuta|senza ora|ora ignota|data sconosciuta",
        clock="alle|alle ore|ore|h",
        morning="di mattina|del mattino|am",
        afternoon="di pomeriggio|del pomeriggio|di sera|pm",
    ),
)
