"""Portuguese."""

from agent_runtime.memory.observational.language.base import EndingWords, Language, NoteWords

TABLE = Language(
    code="pt",
    name="portuguese",
    letters="ãõáâêçéíóúà",
    lead="por favor|favor|e|mas|então|ok|bom|agora|também|aí|tá|olha",
    rule_words=(
        "proibido proibida proibidos permitido permitida necessário necessária obrigatório "
        "obrigatória válido vale aplica regra preciso precisa precisas deve deves pode podes "
        "nunca sempre agora evitar evite usar use usa utilizar"
    ),
    ending=EndingWords(
        bans="proibid* vedad* evit*",
        laws="regra regras norma normas",
        duties=(
            "necessári* obrigatóri* precisa precisas deve deves devem usar usa use uses "
            "utilizar utilize vale valem válid* aplica aplicam vigor"
        ),
        hedges=(
            "se salvo exceto só somente apenas unicamente até quando enquanto logo mas "
            "antes depois talvez provavelmente seria deveria poderia breve amanhã "
            "próxim* porque embora que"
        ),
        permits=(
            r"(?:agora|já) (?:podes|podem|você pode|vocês podem)|"
            r"(?:você|tu) (?:agora|já) podes?|"
            r"(?:agora|já) (?:é|são|está|estão) permitid[oa]s?"
        ),
    ),
    patterns={
        "binds": r"""
(?:deve|devem|deverá|deverão|deveria|deveriam|deves)
(?:tem|têm|tens) (?:que|de)|é (?:preciso|obrigatório|necessário|imprescindível|para|pra)\b|há que|precisa(?:m)? (?:ser|estar|passar|ter)|você precisa
obrigatóri\w+|imprescindível|sem (?:exceção|exceções|falta)|em todo caso|de qualquer jeito
sempre|toda vez|todas as vezes|cada vez|a cada
daqui (?:pra|para|em) (?:frente|diante|a)|de agora em diante|a partir d[eao]\w*|de hoje em diante|doravante|no futuro|desde já
@(?:certifique-se|garanta|lembre-se|lembra|não (?:se )?esqueça|mantenha|mantém|respeite|use|usa|utilize|limite|deixe|deixa|responda|siga|conserve)
(?:todo|toda|todos|todas|cada|qualquer|quaisquer)\b.{1,70}(?:primeiro|antes|previamente|comigo|por mim|me |minha (?:aprovação|autorização)|meu (?:aval|ok))
(?:nada|ninguém|nenhum\w*)\b.{1,60}(?:sem|até|antes|salvo)
sem\b.{1,60}(?:não|nada|ninguém|nenhum\w*)
no máximo|no mínimo|o mais tardar|não mais (?:de|que)
(?:só|somente|apenas|unicamente) (?:se|depois|com|quando|por|em|após|mediante)
(?:quero|exijo|preciso|espero|faço questão) (?:de )?(?:que|tudo|cada|todo|toda)
importante:
(?:passa|passam) por mim
""",
        "orders": r"""
(?:escreva|escreve|redija|envie|envia|mande|manda|ponha|põe|bote|faça|faz|dê|execute|rode|roda|nomeie|chame|chama|formate|indente|pergunte|pergunta|teste|testa|verifique|confira|avise|avisa|anote|salve|salva|guarde|reserve|peça|pague|arredonde|cite|traduza|fale|espere|adicione|comece|consulte|crie|descreva|revise|mostre|informe|coloque|compre)
(?:você )?me (?:manda|mande|envia|avisa|consulta|passa|pergunta|mostra|informa|diz|traz)
""",
        "standing": r"""
em (?:português|inglês|espanhol|francês|alemão|italiano|chinês|japonês|russo)
cada|todos os|todas as|toda|todo|sempre|às (?:segundas|terças|quartas|quintas|sextas)|aos (?:sábados|domingos)|por (?:dia|semana|mês)|diari\w+|semanal\w*
mesmo (?:que|se|com|quando)|ainda que|antes|depois|primeiro|até|sem|salvo|só|apenas|no máximo|em vez|com (?:dois|duas|quatro|\d)|após
""",
        "forbids": r"""
nunca|jamais|em hipótese (?:alguma|nenhuma)|de jeito nenhum|de (?:modo|forma) (?:algum|nenhum\w*|alguma)|em caso algum|em nenhum (?:caso|momento)|nem pensar|sob nenhum\w*
proib\w+|vedad\w+|interdit\w+|intocável|intocáve\w+|fora de (?:questão|cogitação)|nem (?:encoste|toque|chegue|mexa)|tabu|terminantemente|excluíd\w+|descartad\w+
@(?:\w+(?: \w+){0,3}, )?não (?:me |te |se |o |a |lhe |nos )*(?:mexa|mexe|toque|toca|faça|faz|altere|altera|mude|muda|apague|apaga|use|usa|ligue|liga|mande|envie|escreva|publique|abra|delete|remova|compartilhe|divulgue|\w+(?:ar|er|ir))\b
@não \w+(?:e|a|em|am|es|as)\b (?:o |a |os |as |no |na |nos |nas |em |ao |nada|ninguém|de |do |da |com |por |para |pra |antes|depois|sem)
(?:não|ninguém) (?:se )?(?:pode|podem|deve|devem|permite|permitem|admite|admitem|toca|mexe|altera)
não (?:é|são|está|estão) (?:permitid\w+|autorizad\w+|admissível|aceitável|negociável)
ninguém (?:\w+ )?(?:liga|ligue|toca|toque|mexe|mexa|altera|altere|muda|mude|envia|abre|apaga|entra|usa|publica|pode|deve)
(?:evite|evita|evitem|abstenha-se|pare de|para de|deixe de|pare com|chega de)
não (?:quero|admito|aceito|tolero|permito)|me recuso|recuso
(?:tire|tira) (?:a mão|as mãos)|mãos (?:longe|fora)|fique longe|fica longe|passe longe
@(?:nada|nenhum|nenhuma) (?:de )?\w+
(?:fica|ficam|deixe|deixa|permanece|deve ficar)\b.{0,40}(?:como está|intact\w+|do jeito que|sem mexer|em paz|quiet\w+)
não .{1,40} mais|não mais
""",
        "prefers": r"""
prefir\w+|prefer\w+|preferencialmente|preferível|de preferência|se (?:possível|der|puder|for possível)|na medida do possível|idealmente|melhor
(?:me|nos) (?:agrada\w*|convém|viro|dou|sinto mais|entendo)\b
(?:gosto|gostaria|gostamos|curto|adoro) (?:mais |muito |mesmo )?(?:de|d[ao]s?)
em vez d\w+|em lugar d\w+|ao invés d\w+|do que
sou (?:mais )?(?:de|d[ao]|fã|adepto|adepta)|meu favorito|minha preferência|tenho mais (?:prática|jeito|intimidade|afinidade)|mais (?:à vontade|familiarizad\w+|acostumad\w+)
""",
        "corrects": r"""
@(?:não|errado|erro|desculpe?|correção|espera|opa|negativo)[,.:;–—-]
(?:eu )?(?:quis dizer|queria dizer|falei|disse|me referia|me refiro|estava falando|perguntei|falava)
(?:entendeu|entendeste|leu|interpretou|ouviu|pegou) (?:mal|errado)|mal[- ]?entend\w+|você (?:confundiu|trocou|se enganou|se confundiu)|engano
(?:está|é|estava|tá|isso é) (?:errad\w+|incorret\w+|fals\w+|um erro|um engano)|não (?:é|foi|era) (?:isso|assim|bem isso|correto|verdade|o que)
@(?:é|se escreve|escreve-se|se chama|são|era|o nome é|o sobrenome é)\b.{1,60}, não
@não .{1,50}(?:, mas|, e sim)|e sim
@não (?:é|era|são) .{1,30}, (?:é|era|são) \w+
, (?:e )?não (?:o |a |os |as |do |da |de |em |com |no |na )?[\w.-]+(?: [\w.-]+){0,3}[.!]?$
(?:demais|muito|muita|muitos|muitas|exager\w+|pouco|poucos|poucas|excessiv\w+)\b.{0,30}(?:bota|põe|ponha|coloque|coloca|deixe|deixa|faça|baixe|baixa|reduza|reduz|melhor|muda|mude|troque|troca|vamos|que sejam|bastam|\d)
esque(?:ça|ce) (?:o|a|isso|meu)|mudei de ideia|retiro o que
(?:se escreve|com|sem) (?:um |uma |dois |duas )?(?:acento|cedilha|til|h|'?[a-z]'?|agá)(?:,| e| no| não)
""",
        "exempt": r"""
(?:deve|devem|deves) (?:estar (?:rindo|cansad\w+|de saco|brincando|louc\w+|morrendo|achando)|ser (?:de|do|da|brincadeira)|ter|achar|datar)
tem que (?:rir|estar (?:brincando|de))|tem de (?:rir|estar)
já pode\w* (?:voltar a|de novo|novamente)|pode (?:voltar|de novo|novamente)|voltou a poder
não (?:sei|acho|tenho|tem|há|havia|posso|entendo|me diga|se preocupe|importa|foi nada|faz mal|estou|sou|moro|como|bebo|consigo|acredito)
nunca (?:vi|tive|fui|ouvi|foi|teve|mais)|sempre (?:foi|fui|é|assim)|não (?:mora|trabalha) mais
nada (?:mal|disso|de novo|demais)|de nada
""",
        "requests": r"""
@(?:você )?(?:pode|poderia|podes|quer|dá para|dá pra)
por favor
""",
        "decides": r"""
decid\w+|decisão|escolh\w+|optamos|optei|ficamos com|seguimos com|vamos (?:de|com|usar|em|por|pela|pelo)|usaremos|fechad\w+|combinad\w+|e pronto|de acordo|acertad\w+|está decidido|fica (?:assim|decidido|acertado)|batid\w+ o martelo|feito
""",
        "finds": r"""
acontece que|descobr\w+|encontr\w+|causa|motivo|porque|devido|confirm\w+|mostra\w*|revel\w+|falta|faltam|vem d\w+|na verdade|pelo visto|só (?:acontece|ocorre|falha|aparece)|não há|não tem|nenhum\w*|ninguém|contém|aparece|verific\w+|constat\w+|no fim das contas|nem um\w*
pois|já que|por isso|portanto|uma vez que|por causa
""",
        "fails": r"""
falh\w+|erros?|recusad\w+|negad\w+|rejeitad\w+|impossível|não (?:foi possível|funciona|responde|encontrad\w+|consegu\w+|carrega|passa\w*|sobe|roda|compila|abre)|quebr\w+|nem .{1,60}(?:sobe|funciona|carrega|passa|abre|roda)|cancelad\w+|abortad\w+|inválid\w+|expirad\w+|esgotad\w+|travad\w+|caiu|fora do ar
""",
        "succeeds": r"""
passaram|passando|passou|concluíd\w+|terminad\w+|completad\w+|sucesso|corretamente|corrigid\w+|resolvid\w+|adicionad\w+|removid\w+|criad\w+|atualizad\w+|sem (?:sustos|erros|problemas|incidentes)|funciona|funcionou|pront\w+|aprovad\w+|instalad\w+|finalizad\w+|no verde|deu certo|entrou
""",
        "negation": r"não|nunca|jamais|nenhum\w*|ninguém|nada|nem|tampouco",
        "denies": r"""
proib\w+|vedad\w+|recus\w+|neg(?:ou|ar|ad\w+)|rejeit\w+|excluíd\w+|impossíve\w+|evit\w+|imped\w+|abst\w+|fora de questão
inacessíve\w+|mud[oa]s?|silenc\w+|inalcançáve\w+|fora do ar|caíd\w+|desligad\w+|intact\w+|intocáve\w+|falt\w+|falh\w+|indisponíve\w+
""",
        "without": "sem|salvo|exceto|a menos",
        "obliges": r"dev\w+|tem que|têm que|tem de|é preciso|sempre|obrigatóri\w+|todo|toda|todos|todas|cada|exig\w+|precis\w+",
        "permits": r"pode\w*|podem|permitid\w+|permite\w*|autorizad\w+|livre|dá para",
        "only": r"só|somente|apenas|unicamente|exclusivamente",
        "afternoon": r"horas?|h|tarde|noite|meio-dia",
    },
    numerals="""
1 um uma primeir*
2 dois duas segund* ambos
3 três terceir*
4 quatro quart*
5 cinco quint*
6 seis sext*
7 sete sétim*
8 oito oitav*
9 nove nono nona
10 dez décim*
11 onze
12 doze meio-dia dúzia
13 treze
14 catorze quatorze
15 quinze
16 dezesseis dezasseis
17 dezessete dezassete
18 dezoito
19 dezenove dezanove
20 vinte
30 trinta meia
40 quarenta
50 cinquenta
60 sessenta
70 setenta
80 oitenta
90 noventa
100 cem cento centena*
200 duzent*
500 quinhent*
1000 mil milhar*
1000000 milhão milhões
""",
    months=(
        "janeiro/jan fevereiro/fev março/mar abril/abr maio/mai junho/jun julho/jul agosto/ago "
        "setembro/set outubro/out novembro/nov dezembro/dez"
    ),
    synonyms="""
mex* alter* modific* mud* toc* edit*
respond* respost* alcanç*
prazo* envi* termin* encerr* entreg* venc* inscri*
apag* remov* delet* exclu*
assin* aprov* autoriz* valid*
us* utiliz*
compr* ped* peç*
""",
    notes=NoteWords(
        critical="crítico|crítica|alta|alto|urgente|muito importante|prioritário",
        important="importante|média|médio|notável|aviso|atenção",
        info="info|informação|baixa|baixo|normal|nota|informativo",
        done="concluído|concluída|feito|terminado|completo|pronto|resolvido|finalizado",
        task="tarefa|tarefas|tarefa atual|missão",
        next="próximo passo|próximos passos|a seguir|em seguida|seguinte|próximo|próxima ação|depois",
        nothing="nada a registrar|nada a observar|nada a anotar|nada a relatar|nada a reportar|nada|sem observações|nada relevante|nada digno de nota|sem novidades|nada de novo",
        unknown_time="horário desconhecido|hora desconhecida|desconhecido|desconhecida|sem horário|sem hora|data desconhecida",
        clock="às|à|as|h|horas",
        morning="da manhã|am",
        afternoon="da tarde|da noite|pm",
    ),
)
