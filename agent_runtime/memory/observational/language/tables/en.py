"""English."""

from agent_runtime.memory.observational.language.base import EndingWords, Language, NoteWords

TABLE = Language(
    code="en",
    name="english",
    lead="please|and|also|so|then|now|but|ok|okay|again|just|well|right|really|actually|oh|hey",
    ending=EndingWords(
        bans=("forbid* prohibit* banned ban illegal taboo avoid avoiding off-limits disallow*"),
        laws=(
            "rule rules constraint constraints restriction restrictions requirement requirements"
        ),
        duties=(
            "necessary need_to needed no_need required require requires obligatory "
            "mandatory must have_to has_to use using keep hold holds valid appl* matter "
            "matters force"
        ),
        hedges=(
            "i if unless except but only just merely until till when whenever once "
            "while whether because before after maybe perhaps probably possibly "
            "apparently might would could should were soon long than later tomorrow "
            "next yet though although otherwise"
        ),
        permits=(
            r"you (?:may|can) now|"
            r"you(?:'re| are) now (?:allowed|permitted|free) to|"
            r"(?:is|are) now (?:allowed|permitted)|"
            r"it(?:'s| is) now (?:ok|okay|fine|allowed|permitted) to"
        ),
    ),
    patterns={
        "binds": r"""
always
must
mustn'?t
(?<!i )(?<!i'll )(?:has|have) to
(?<!i )needs? to be
you(?:'ll)? need to
should
shouldn'?t
(?:you|it|there|everything|they|nobody|no one) shall
shall (?:not|be)
(?:is|are) to be
(?:is|are|be) (?:required|compulsory|mandatory|obligatory)
mandatory|obligatory
(?:requires?|without) (?:my|a|the|her|his|their|\w+'s) (?:approval|signature|sign-?off|consent|ok|permission)
@(?:make sure|ensure|see to it|be sure|remember to|remember that|don'?t forget)
important:?
from (?:now|today|here) on(?:wards?)?
going forward|in (?:the )?future
as of (?:now|today|next|monday|tomorrow)
every time|each time|whenever
as a rule|under all circumstances|without exception|no exceptions
no (?:more|fewer|less|later|longer|earlier) than
@at (?:most|least)
@(?:keep|use|follow|respect|stick|stay|limit|treat|leave|assume|cap|refrain|answer|reply|respond)
i(?: really)? (?:want|need|expect|insist|require) (?:you|it|the|every|each|all|that|to (?:see|be|approve|check|know))
i insist
(?:any|every|all|each)(?:thing|one|body)?\b~ (?:first|beforehand|in advance|before|through me|by me|past me|with me|to me|my (?:approval|ok))
(?:nothing|nobody|no one|none|no \w+)\b~ (?:without|until|unless|before|except)
only (?:ever|use|after|with|if|when|once|in|on|by|through)
@only \w+(?: \w+){0,4} (?:when|if|once|after|with)
deadline
(?:below|under|within|up to|more than|less than|fewer than) \d~ (?:lines?|words?|chars?|characters?|minutes?|seconds?|files?|tokens?)
(?:goes?|run|check|clear) (?:everything |it |that |them )?(?:through|past|by|with) me
""",
        "orders": r"""
@(?:write|send|put|add|run|commit|push|name|call|format|indent|log|book|order|pay|check|test|ask|tell|show|report|wait|do|make|prefix|sign|back up|save|store|use|give|let|get|take|round|quote|cite|translate|include|start|end|speak|talk|address|deploy|update|notify|inform|copy|cc|review|read|document|describe|explain)
""",
        "standing": r"""
(?:in|into) (?:\w+ )?(?:english|german|french|spanish|italian|portuguese|dutch|polish|turkish|russian|arabic|hindi|chinese|japanese|korean|finnish)
(?:every|each|all|any|daily|weekly|monthly|always|per)
on (?:mon|tues|wednes|thurs|fri|satur|sun)days?
even (?:if|when|though)
(?:before|after|until|unless|without|within|only|first|at most|at least|no later|instead|whenever|never|twice|once a)
by (?:mon|tues|wednes|thurs|fri|satur|sun)day
by (?:noon|tomorrow|\d)
(?:two|four|2|4) spaces
(?:in|as|with) (?:utc|euros?|dollars?|pounds|utf-8|markdown|json|lower ?case|snake_case|camelcase|metric|bullet points|plain \w+)
""",
        "forbids": r"""
never
@(?:i'd rather you )?(?:don'?t|do not|no)(?! (?:i|problem|worries|idea|thanks|thank|wonder|need|one has|mention|know)\b) (?!,)\w+ing
@(?:please )?(?:don'?t|do not) (?:ever |even |just )?(?!worry|mention|you\b|i\b|we\b|know|think|have|see|mind|need|care|want|get me)\w+
(?:please|you|and|but|or|,) (?:don'?t|do not) (?:ever )?(?!have|know|need|worry|see|think|mind|seem|want to)\w+
you(?:'re| are) not (?:to|allowed)
(?:is|are|be|was|were) (?:strictly |absolutely )?(?:forbidden|prohibited|banned|off[- ]limits|taboo|out of bounds)
forbidden|prohibited|off[- ]limits|taboo|out of bounds|no-go
out of the question
(?:isn'?t|aren'?t|is not|are not|not) (?:allowed|permitted|acceptable|negotiable|an option|up for)
@(?:[\w /.-]{1,40}: ?)?(?:hands|keep) off
keep (?:your )?(?:hands off|away|out|clear)
(?:stay|keep|steer) (?:away|clear|out|off)
may not|must not|cannot be|can'?t be (?!sure|true|serious|bothered|right)
under no circumstances|in no case|on no account|at no time|by no means
(?:nobody|no one|none of you) (?:may|is to|should|must|gets to|touches|calls|changes|edits|writes|rings|opens)
(?:stop|avoid|refrain from|quit|no) \w+ing
(?:stop|avoid) (?:the|all|any|that|this)
i (?:forbid|refuse|won'?t have|will not have|don'?t want|do not want)(?! to know)
(?:refuses?|refused)(?: to|$)
@(?:absolutely )?no (?!one|problem|idea|worries|way i|wonder|thanks|doubt|luck|reply|answer|rush|hurry|joke|kidding|need)\w+(?: \w+){0,2} (?:to|on|in|at|before|after|for|from|outside|please|whatsoever|ever)
read[- ]only|untouched|unchanged|untouchable|sacrosanct
no longer|any ?more
(?:must|has to|have to|should|to) (?:stay|remain) (?:as|out|put|where|private|secret|confidential|internal)
(?:leave|left) (?:it|them|that|\w+) (?:alone|as (?:it|they))
""",
        "prefers": r"""
prefer(?:s|red|ably|ence)?
(?:i'd|i would|we'd|would) (?:much |really |far )?(?:rather|sooner|like (?!to know))
rather than|instead
if (?:at all |it'?s )?possible|where(?:ver)? possible|ideally|if you can
i (?:really |much |quite )?(?:like|love|favou?r|fancy|dislike|hate|can'?t stand) (?!the weather|it here|you)(?:\w+ )*?(?:better|more|best|short|long|simple|small|clear|plain|early|late|functions?|names?|when|it when|things)
i (?:like|love|favou?r) (?!you|it|this|that|to)
(?:i'm|i am) (?:more of |very much |not )?(?:a |an |much of a )(?:big )?[\w.-]+ (?:person|man|woman|guy|girl|fan|type|user)
(?:i'm|i am) (?:more|most) (?:at home|comfortable|used)
suits me (?:better|best)|works (?:better|best) for me
(?:i get on|i do|i work|i cope|i'm) (?:better|best) with
my (?:favou?rite|preference|choice)
better .{1,40} than
the (?:shorter|simpler|earlier|later|cheaper|smaller|fewer) the better
@(?:the )?\w+ (?:over|beats) \w+
""",
        "corrects": r"""
@(?:no|nope|wrong|correction|sorry)[,.;:–—-]
@(?:wrong|correction|nope|that'?s not (?:it|right|what|true)|not what i)
i (?:really )?(?:meant|said|was (?:talking|asking) about|asked (?:about|for))
(?:you )?(?:mis(?:understood|read|heard|took)|got (?:me|it|that) wrong|mixed (?:it|them|up))
(?:is|was|that'?s) (?:wrong|incorrect|not right|not correct|a mistake|a misunderstanding|the wrong)
@(?:it'?s|it is|that'?s|the name is|he'?s|she'?s|they'?re|spelled|spelt|make that|make it)\b.{1,60}(?:,| and) not
@not .{1,60}(?:, (?:but )?\w+|\bbut\b)
too (?:many|much|few|long|short|high|low|little)[,;:.]? .{0,30}(?:make it|make that|change|let'?s|try|go for|use)
(?:make|change) (?:it|that|them) (?:to )?(?:\d|\w+)(?= (?:instead|not|please)|[.!]?$)
changed my mind|forget (?:what|about|the|my|it)|scrap that|ignore (?:what|that|my)|strike that
you (?:may|can) now
on second thoughts?|contrary to what
(?:spelled|spelt|written) with
with (?:a|an|one|two|double) ['"]?[a-z]['"]?(?:,| (?:not|and))
instead of what|not the other way
""",
        "exempt": r"""
must (?:be|feel|look|think|have|love|hate|find) (?:having|kidding|joking|laughing|tired|hungry|proud|fun|nice|mad|crazy|hard|a |an |so |been|sick|fed|wondering|thinking|\w+ed\b|exhausted|funny)
must (?:be|date) (?:from|about|around|back)
must have
(?:that|you|they|he|she|those) must be (?:so|really|very|such|quite|pretty|super|incredibly)\b
@(?:(?:that|it|this|you|they|he|she|those) )?must feel
a must-(?:see|read|have|try|watch|visit|do)
(?:i'm|i am|we're|we are) always
i should (?:really|probably|definitely|totally)
@keep (?:it up|up the|going|your (?:chin|head) up|(?:me|us) posted|in touch|(?:your|those|my) fingers crossed|smiling)
@stay (?:safe|strong|tuned|motivated|positive|healthy|happy|well|warm|calm|awesome|true to)
you should (?:have seen|see|hear|have heard)
i (?:should|must) (?:have|say|admit|confess|be going)
(?:has|have|had) (?:always|never)
(?:i|he|she|we|they|it) never (?:(?!need|exceed|proceed|succeed|feed|embed)\w+ed|saw|found|got|was|were|did|went|came|made|took|gave|said|told|ran|wrote|met|heard)
(?:i'?ve|he'?s|she'?s|we'?ve|they'?ve|who|that) (?:always|never)
(?:is|are|was|were) (?:always|never) (?:\w+ing|so|late|nice|happy|there|open|closed)
never (?:mind|thought|been|seen|had|again in my|knew|a dull)
don'?t (?:worry|mention|make me laugh|tell me (?:you|it|that|about it)|know|get me started|we all)
@no (?:idea|problem|worries|wonder|way|kidding|rush|thanks|thank you)
no longer (?:lives?|works?|there|with us|needs? (?:a|the|his|her))
""",
        "requests": r"""
@(?:can|could|would|will) you
please
would you mind
""",
        "decides": r"""
decided?|decision|going with|chose|choose|chosen|instead|rather than|therefore|approach
we'?ll (?:use|take|go|do|keep)|i'?ll use|will use|plan is|the plan|trade-?off|must|should
(?:we're|we are) (?:taking|going|doing|using|keeping)
(?:it is|then)[.!]?$|full stop|deal|settled|agreed|opted|let'?s (?:go|do|take|use)
""",
        "finds": r"""
found|the (?:issue|problem|bug|cause|reason|key)|root cause|turns? out|turned out|discovered
confirm(?:s|ed)?|shows? that|means that|note that|because|caused? by|actually|i see
realiz\w+|realis\w+|the fix|in summary|conclusion|apparently|it appears|only (?:happens|occurs|fails|shows)
(?:line|row) \d+~ (?:has|lacks|is|does|misses)
(?:has|have|there is|there are|contains?|lacks?) (?:no|only|not a)
not (?:one|a single)|none of|(?:only )?reproduc\w+|due to|stems? from|comes? from|reveals?
@since(?! (?:then|yesterday|last|\d))
so that|which means|which is why|that'?s why|hence|thus|owing to|as a result
""",
        "fails": r"""
fail(?:s|ed|ing|ure|ures)?|errors?|broken|breaks?|(?:does|did|do|is|was)(?:n'?t| not)|cannot
can'?t|unable|missing|wrong|not found|unexpected|regression|crash\w*|timed? ?out
won'?t|refused?|denied|rejected|forbidden|aborted|invalid|gave up|couldn'?t|unreachable|stuck
""",
        "succeeds": r"""
fixed|resolved|implemented|added|removed|changed|updated|renamed|replaced|created
refactored|moved|works?|pass(?:es|ed|ing)?|done|completed?|committed|pushed|merged|finished
succe\w+|without (?:a hitch|errors?|problems?|incident)|went (?:in|through|live|fine|smoothly)|green|ready|ok
""",
        "negation": r"""
not(?! only)|no|never|none|nobody|nothing(?! else| more)|nowhere|neither|nor|cannot|hardly
(?:do|does|did|is|are|was|were|has|have|had|would|could|should|must|need|might|wo|ca|ai)n'?t
""",
        "denies": r"""
forbid\w*|forbad\w*|prohibit\w*|ban|bans|banned|refus\w+|reject\w*|den(?:y|ies|ied)|off[- ]limits|taboo
avoid\w*|hands off|keep off|stops?|stopped|fail(?:s|ed|ing|ure)?|unable|impossible|disallow\w*
unresponsive|unreachable|unavailable|offline|silent|mute|down|dead|excluded|lack\w*|missing|absent|out of the question
unchanged|untouched|unchangeable|read-only|refrain\w*
""",
        "without": "without|unless|except|but for",
        "obliges": r"""
must|always|mandatory|obligatory|compulsory|require[sd]?|(?:has|have|had|needs?) to|shall|should|every|each
""",
        "permits": "may|can|allowed|permitted|free to|optional(?:ly)?|could|might",
        "only": "only|solely|exclusively|nobody but|no one but|nothing but|just",
        "afternoon": r"p\.?m|in the (?:afternoon|evening)|at night|o'clock|tonight|evening|afternoon",
    },
    numerals="""
1 one first
2 two second both
3 three third
4 four fourth
5 five fifth
6 six sixth
7 seven seventh
8 eight eighth
9 nine ninth
10 ten tenth
11 eleven eleventh
12 twelve twelfth noon midday dozen
13 thirteen*
14 fourteen*
15 fifteen* quarter
16 sixteen*
17 seventeen*
18 eighteen*
19 nineteen*
20 twenty twentieth
30 thirty thirtieth half
40 forty fortieth
50 fifty fiftieth
60 sixty
70 seventy
80 eighty
90 ninety
100 hundred*
1000 thousand*
1000000 million*
""",
    months=(
        "january/jan february/feb march/mar april/apr may june/jun july/jul august/aug "
        "september/sep/sept october/oct november/nov december/dec"
    ),
    synonyms="""
chang* edit* modif* touch* alter* amend*
answer* respon* repl* reach* unresponsive unreachable silent
deadline* due clos* expir* submi* until by
delet* remov* eras* drop*
approv* sign* accept* confirm* clear*
use* using utili*
send* mail* forward* sent
buy* purchas* order*
start* begin* began launch*
end ends ended finish* complet*
run runs running execut* ran
show* display* present*
fix* repair* correct* mend*
""",
    notes=NoteWords(
        critical="critical|crit|high|highest|urgent|blocker|must|p0|🔴|!!",
        important="important|medium|med|moderate|notable|warning|p1|🟡|🟠|!",
        info="info|information|low|minor|normal|note|fyi|p2|p3|🟢",
        done="done|completed|complete|finished|resolved|✅|✔|+",
        task="task|tasks|current task|current tasks|primary task|open task|open tasks",
        next="next|next step|next steps|next action|next actions|suggested next response|suggested next step|suggested next steps|next response",
        nothing="nothing to observe|nothing|nothing worth noting|nothing to note|nothing to record|nothing to report|nothing noteworthy|nothing new|no observations|nothing of note",
        unknown_time="time n/a|n/a|unknown|time unknown|unknown time|no time|undated",
        clock="at|around|about|ca.",
        morning="am|a.m.",
        afternoon="pm|p.m.",
    ),
)
