"""Spanish."""

from agent_runtime.memory.observational.language.base import EndingWords, Language, NoteWords

TABLE = Language(
    code="es",
    name="spanish",
    letters="ñ¿¡áéíóú",
    lead="por favor|y|pero|entonces|ok|bueno|ahora|también|vale|pues|oye|favor de",
    rule_words=(
        "prohibido prohibida prohibidos permitido permitida necesario necesaria obligatorio "
        "obligatoria válido vale aplica regla hace falta debes debe puedes puede nunca siempre "
        "ahora evitar evita usar usa uses utilizar"
    ),
    ending=EndingWords(
        bans="prohibid* vedad* evit*",
        laws="regla reglas norma normas",
        duties=(
            "necesari* obligatori* falta debes debe deben usar usa uses utilizar "
            "utilices utiliza vale valen válid* aplica aplican vigor rige"
        ),
        hedges=(
            "si salvo excepto sino solo sólo solamente únicamente hasta cuando mientras "
            "apenas pero antes después quizá quizás tal acaso probablemente sería "
            "debería podría pronto mañana próxim* porque aunque"
        ),
        permits=(
            r"(?:ya|ahora) (?:puedes|podéis)|"
            r"puedes ya|"
            r"(?:ya|ahora) (?:se permite|(?:está|están) permitid[oa]s?)"
        ),
    ),
    patterns={
        "binds": r"""
(?<!¿)(?:debes|debe|deben|debéis|debería\w*|deberá\w*|deberás|habrá que)
(?:tienes|tiene|tienen|tenéis) que|hay que|has de|ha de|han de|es (?:obligatori\w+|imprescindible|necesario|preciso|imperativo)
obligatori\w+|imprescindible|sin (?:excepción|excepciones|falta)|forzosamente|en todo caso|pase lo que pase
siempre|cada vez|en todo momento
a partir de (?:ahora|hoy|este|esta|mañana|el|la|ya|enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre|octubre|noviembre|diciembre)|de ahora en adelante|de hoy en adelante|en adelante|en lo sucesivo|desde (?:ahora|hoy|ya)
@(?:asegúrate|asegúrese|recuerda|acuérdate|procura|no olvides|mantén|mantenga|respeta|usa|use|utiliza|utilice|limita|deja|deje|responde|responda|cíñete|sigue|conserva)
(?:todo|toda|todos|todas|cada|cualquier|cualquiera)\b.{1,70}(?:primero|antes|previamente|conmigo|por mí|me |mi (?:aprobación|visto|permiso|ok)|consulta\w*)
(?:nada|nadie|ningún|ninguna|ninguno)\b.{1,60}(?:sin|hasta|antes|salvo)
sin\b.{1,60}(?:no |nada|nadie|ningun\w*)
(?:como (?:mucho|máximo|mínimo)|a más tardar|no más de)
(?:solo|sólo|únicamente|solamente|exclusivamente) (?:si|después|con|cuando|por|en|tras|se)
(?:quiero|exijo|necesito|espero|insisto) (?:en )?(?:que|todo|cada)
importante:
""",
        "orders": r"""
(?:redacta|redacte|escribe|escriba|envía|envíe|envíame|manda|mande|mándame|pon|ponga|haz|haga|da|dame|ejecuta|ejecute|nombra|llama|formatea|sangra|pregunta|pregúntame|prueba|comprueba|compruebe|verifica|avisa|avísame|anota|guarda|guarde|reserva|pide|paga|redondea|cita|traduce|toma|habla|espera|añade|agrega|empieza|consulta|consúltame|crea|describe|revisa|muestra|informa|pasa)
me (?:mandas|envías|consultas|avisas|pasas|preguntas|enseñas|muestras|informas|dices|lo \w+)
""",
        "standing": r"""
en (?:español|castellano|inglés|francés|alemán|italiano|portugués|chino|japonés|ruso|árabe)
cada|todos los|todas las|siempre|los (?:lunes|martes|miércoles|jueves|viernes|sábados|domingos)|al (?:día|mes)|diari\w+|semanal\w*
aunque|incluso si|aun cuando|antes|después|primero|hasta|sin|salvo|solo|sólo|como mucho|como máximo|en vez|con (?:dos|cuatro|\d)|tras cada|para el
""",
        "forbids": r"""
nunca|jamás|bajo (?:ningún concepto|ninguna circunstancia)|en ningún caso|de ningún modo|de ninguna manera|ni se te ocurra|por nada del mundo|en absoluto
prohíb\w+|prohib\w+|vedad\w+|queda excluid\w+|excluid\w+|intocable\w*|ni (?:tocar\w*|mirar\w*|hablar|loco)|tabú|fuera de (?:discusión|lugar|límites)|descartad\w+|línea roja
@(?:\w+(?: \w+){0,3}, )?no (?:me |te |se |lo |la |les |le |nos |os )*\w+(?:es|as|éis|áis|e|a|en|an)(?= |[.!,]|$)
(?:no|nadie) (?:se )?(?:puede|pueden|debe|deben|permite|permiten|admite|admiten|acepta|toca|tocan|modifica|autoriza)
(?:no está|no están|no es|no son) (?:permitid\w+|autorizad\w+|admisible|aceptable|negociable)
que (?:nadie|no)\b.{0,10}
nadie (?:\w+ )?(?:llame|toque|modifique|cambie|envíe|abra|borre|entre|use|publique|puede|debe|llama|toca)
(?:evita|evite|eviten|evitad|abstente|absténgase|deja de|dejen de|prescinde)
no quiero|me niego|rechazo|no tolero|no admito|no consiento|te prohíbo
(?:manos|las manos) (?:fuera|quietas)|quita las manos|no tocar|ojo con tocar|aléjate|mantente lejos
@(?:nada|ningún|ninguna|cero) (?:de )?\w+(?: \w+)* (?:en|a|al|antes|después|sin|para|con|fuera)
@nada de \w+
@ningun\w* \w+
(?:se queda|debe quedar|queda|déjal\w+|deja\b.{1,30})\b.{0,30}(?:como está|intact\w+|tal cual|sin tocar|en paz)
ya no
""",
        "prefers": r"""
prefier\w+|prefer\w+|preferible\w*|preferiblemente|de preferencia|a ser posible|si (?:es|fuera) posible|si puede ser|si se puede|mejor|en lo posible|idealmente
(?:me|nos) (?:gusta\w*|gustaría|encanta\w*|agrada\w*|conviene|resulta más|va mejor|viene mejor|apaño|apañe|manejo|entiendo|siento más|quedo con)
en (?:vez|lugar) de|antes que|más bien
soy (?:más )?(?:de|fan|partidari\w+)|mi favorit\w+|lo mío es|estoy más (?:hech\w+|acostumbrad\w+|cómod\w+)|tengo más mano
""",
        "corrects": r"""
@(?:no|falso|error|perdón|perdona|corrección|espera|qué va)[,.:;–—-]
(?:me refería|quise decir|quería decir|digo|dije|hablaba|pregunto por|preguntaba|me refiero)
(?:entendido|entendiste|entendió|entendéis|interpretado|leído|interpretaste) mal|mal ?entend\w+|mal interpret\w+|me has malinterpretado|te (?:equivocas|confundes|has (?:equivocado|confundido|liado))|malentendido|confundid\w+
(?:está|es|estaba|eso es) (?:mal|incorrect\w+|falso|un error|equivocad\w+)|no es (?:así|eso|correcto|cierto|lo que)|no (?:fue|era) (?:eso|así|lo que)
@(?:es|se escribe|se llama|son|era|el apellido es)\b.{1,60}, no
@no (?:es |el |la )?.{1,50}, sino|sino
, (?:y )?no (?:el |la |los |las |del |de |con |a |al )?[\w.-]+(?: [\w.-]+){0,3}[.!]?$
(?:demasiad\w+|poc\w+|excesiv\w+|exagerad\w+|mucho|muchos|muchas)\b.{0,30}(?:déjal\w+|deja\w*|pon\w*|baja\w*|sube\w*|mejor|haz\w*|cámbial\w+|que sean|con \w+ basta|redúce\w*)
olvida (?:lo|el|la|mi)|olvídate|he cambiado de (?:idea|opinión)|cambié de|retiro lo
(?:se escribe|con|sin) (?:con )?(?:una? )?(?:tilde|hache|acento|be|uve|ge|jota|zeta|ese|ce|doble \w+|'?[a-z]'?)(?:,| y| no)
""",
        "exempt": r"""
(?:tienes|tiene|debes|debe) (?:que|de)? ?(?:estar (?:hart\w+|cansad\w+|loc\w+|content\w+|bromeando|riéndo\w+|mur\w+)|ser (?:broma|de)|haber|reírte|tener (?:paciencia|sueño))
debe (?:de )?(?:ser|haber|datar) (?:de|del)
(?:ya |otra vez |de nuevo )(?:le|me|les) (?:dejan|deja|permiten|permite)|le dejan conducir
no (?:sé|creo|tengo|hay|había|me digas|te preocupes|pasa nada|importa|puedo|entiendo|está mal|como|bebo|soy|vivo|estoy|es para tanto)
nunca (?:he|ha|había|hemos|fui|vi)|siempre (?:he|ha|es|ha sido|así|igual)|ya no (?:vive|trabaja|está|tengo|tiene|hay|viven)
nada nuevo|de nada|nada mal|para nada
""",
        "requests": r"""
@¿?(?:puedes|podrías|puede|podría|me puedes|quieres)
por favor
""",
        "decides": r"""
decid\w+|decisión|elegi\w+|elegimos|optamos|opto|quedamos en|nos quedamos|tiramos con|vamos (?:con|en|a usar|por)|usaremos|trato hecho|hecho|no se hable más|de acuerdo|acordad\w+|queda (?:decidido|acordado|así)|hecho|y punto|venga|zanjado
""",
        "finds": r"""
resulta|encontr\w+|descubr\w+|causa|motivo|porque|debido|confirm\w+|muestra\w*|demuestra|falta|faltan|proviene|viene de|al parecer|en realidad|se ve|solo (?:pasa|ocurre|sucede|falla)|no hay|ningun\w*|contiene|aparece|carece|se produce|ni un\w*
ya que|puesto que|por eso|por lo tanto|así que|pues
""",
        "fails": r"""
fall\w+|error\w*|rechazad\w+|denegad\w+|imposible|no (?:se pudo|pudo|puede|funciona|responde|encontrad\w+|logro|logra|consigo|carga|pasa\w*|arranca|compila)|ni .{1,40}logr\w+|rot\w+|cancelad\w+|abortad\w+|inválid\w+|caíd\w+|expirad\w+|agotad\w+|se cuelga|colgad\w+
""",
        "succeeds": r"""
pasad\w+|pasan|pasaron|terminad\w+|completad\w+|éxito|exitos\w+|correctamente|arreglad\w+|resuelt\w+|solucionad\w+|añadid\w+|eliminad\w+|cread\w+|actualizad\w+|aplicó|sin (?:contratiempos|errores|problemas|incidencias)|funciona|list\w+|superad\w+|instalad\w+|desplegad\w+|finalizad\w+|en verde
""",
        "negation": r"no|nunca|jamás|ningun\w*|ningún|nadie|nada|ni|tampoco",
        "denies": r"""
prohíb\w+|prohib\w+|rechaz\w+|nieg\w+|neg(?:ó|ar|aron)|vedad\w+|excluid\w+|imposible\w*|evit\w+|impid\w+|impedi\w+|abst\w+
inaccesible\w*|mud\w+|silenci\w+|caíd\w+|inalcanzable\w*|fuera de servicio|apagad\w+|intact\w+|intocable\w*|falt\w+|fall\w+
""",
        "without": "sin|salvo|excepto|a menos",
        "obliges": r"deb\w+|tien\w+ que|hay que|siempre|obligatori\w+|todo|toda|todos|todas|cada|exig\w+",
        "permits": r"puede\w*|puedes|permitid\w+|permite\w*|autorizad\w+|libre",
        "only": r"solo|sólo|solamente|únicamente|exclusivamente",
        "afternoon": r"horas?|tarde|noche|mediodía|p\. ?m\.?",
    },
    numerals="""
1 uno una un primer*
2 dos segund* ambos
3 tres tercer*
4 cuatro cuart*
5 cinco quint*
6 seis sext*
7 siete séptim*
8 ocho octav*
9 nueve noven*
10 diez décim*
11 once
12 doce mediodía docena
13 trece
14 catorce
15 quince
16 dieciséis
17 diecisiete
18 dieciocho
19 diecinueve
20 veinte veinti*
30 treinta media
40 cuarenta
50 cincuenta
60 sesenta
70 setenta
80 ochenta
90 noventa
100 cien ciento cientos
200 doscient*
500 quinient*
1000 mil miles
1000000 millón millones
""",
    months=(
        "enero/ene febrero/feb marzo/mar abril/abr mayo/may junio/jun julio/jul agosto/ago "
        "septiembre/sep/sept/setiembre octubre/oct noviembre/nov diciembre/dic"
    ),
    synonyms="""
modific* cambi* tocar toc* alter* edit*
respond* respuesta* contest* alcanz* responde*
plazo* convocator* cierra cierr* termin* entreg* venc*
borr* elimin* quit*
firm* aprob* aprueb* autoriz* valid*
us* utiliz* emple*
compr* ped* pid*
""",
    notes=NoteWords(
        critical="crítico|crítica|alta|alto|urgente|muy importante|prioritario",
        important="importante|media|medio|notable|aviso|advertencia",
        info="info|información|baja|bajo|normal|nota|informativo",
        done="hecho|terminado|completado|listo|resuelto|finalizado|concluido",
        task="tarea|tareas|tarea actual|encargo|misión",
        next="siguiente paso|siguientes pasos|próximo paso|próximos pasos|siguiente|luego|a continuación|próxima acción|después",
        nothing="nada que observar|nada que anotar|nada que registrar|nada que señalar|nada que reportar|nada|sin observaciones|sin novedad|nada destacable|nada relevante|sin novedades",
        unknown_time="hora desconocida|desconocida|desconocido|sin hora|fecha desconocida",
        clock="a las|a la|las|h|horas",
        morning="a. m.|a.m.|am|de la mañana",
        afternoon="p. m.|p.m.|pm|de la tarde|de la noche",
    ),
)
