"""French."""

from agent_runtime.memory.observational.language.base import EndingWords, Language, NoteWords

TABLE = Language(
    code="fr",
    name="french",
    letters="éèêëçœùâàîïôû",
    lead="merci de|et|mais|alors|donc|ok|bon|puis|aussi|maintenant|svp|non",
    rule_words=(
        "interdit interdite interdits autorisé permis permise nécessaire obligatoire valable "
        "vaut applique règle consigne faut dois doit devez peux peut pouvez jamais toujours "
        "maintenant besoin éviter utilise utiliser utilisez"
    ),
    ending=EndingWords(
        bans="interdi* défendu* prohib* proscri* évite*",
        laws="règle règles consigne consignes",
        duties=(
            "nécessaire* obligatoire* faut dois doit devez devons utilise utiliser "
            "utilisez utilises vaut valent valable* applique* vigueur"
        ),
        hedges=(
            "si sauf hormis excepté seulement uniquement juste jusque jusqu jusqu'* "
            "tant dès quand lorsque lorsqu'* fois pendant avant après peut-être sans- "
            "doute probablement serait devrait pourrait bientôt demain plus-tard "
            "prochain* sinon mais que"
        ),
        permits=(
            r"(?:tu peux|vous pouvez) (?:maintenant|désormais|dorénavant|de nouveau)|"
            r"(?:maintenant|désormais|dorénavant),? (?:tu peux|vous pouvez)|"
            r"(?:est|sont) (?:maintenant|désormais|de nouveau) (?:autorisé|permis)e?s?"
        ),
    ),
    patterns={
        "binds": r"""
(?:dois|doit|doivent|devez|devra|devront|devras|devrez|devrait|devraient|devrais)
il (?:faut|faudra|faudrait|convient|est (?:impératif|indispensable|obligatoire|essentiel))
obligatoire\w*|impérati\w+|indispensable|requis\w*|exigé\w*|de rigueur|nécessairement|sans exception|sans faute
toujours|systématiquement|chaque fois|à chaque|en toute circonstance|dans tous les cas
désormais|dorénavant|à (?:partir|compter) (?:de|d'|du)|à l'avenir|dès (?:maintenant|demain|aujourd'hui|lundi)
@(?:veille[rz]?|assure[rz]?|assure-toi|assurez-vous|pense[rz]?|n'oublie[rz]?|tâche[rz]?|fais en sorte|faites en sorte|garde[rz]?|respecte[rz]?|utilise[rz]?|limite[rz]?|emploie|employez|laisse[rz]?|réponds|répondez|tiens-t'en)
(?:tout|toute|tous les|toutes les|chaque|n'importe quel\w*)\b.{1,70}(?:me |moi|à me|d'abord|au préalable|avant|mon (?:accord|aval|feu)|soumettre|valid\w+)
(?:rien|personne|aucun\w*)\b.{1,60}(?:sans|avant|tant que|sauf|si)
sans (?:mon|l'|le|la|son|ma|un)\b.{1,50}(?:rien|personne|aucun\w*|ne|on ne)
(?:au|pas) (?:plus tard|maximum|minimum)|au (?:plus|moins)
(?:uniquement|exclusivement|seulement) (?:si|après|avec|quand|en|par|sur)
ne .{1,40} qu(?:e|') ?(?:après|avec|si|sur|en|une fois)
je (?:veux|exige|tiens à|souhaite|demande|voudrais|t'oblige)
(?:est|sont) à (?:me )?\w+(?:er|ir|re)\b
important ?:
""",
        "orders": r"""
@(?:rédige[rz]?|écris|écrivez|envoie|envoyez|mets|mettez|fais|faites|donne[rz]?|lance[rz]?|exécute[rz]?|nomme[rz]?|appelle[rz]?|formate[rz]?|indente[rz]?|demande[rz]?|teste[rz]?|vérifie[rz]?|préviens|prévenez|signale[rz]?|note[rz]?|sauvegarde[rz]?|réserve[rz]?|commande[rz]?|paie|payez|arrondi[sr]?|cite[rz]?|tradui[st]|traduisez|prends|prenez|parle[rz]?|attends|attendez|range[rz]?|ajoute[rz]?|commence[rz]?|soumets|soumettez|consulte[rz]?|passe[rz]?|crée[rz]?|décri[st]|présente[rz]?)
tu (?:m'|me )\w+
vous (?:m'|me )\w+
""",
        "standing": r"""
en (?:français|anglais|allemand|espagnol|italien|portugais|néerlandais|polonais|russe|arabe|chinois|japonais|coréen)
chaque|tous les|toutes les|toujours|tout\w* |par (?:jour|semaine|mois)|le (?:lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche)
même (?:si|quand|lorsque)|avant|après|d'abord|au préalable|jusqu'|dès que|tant que|sans|seulement|uniquement|sauf|au plus|au moins|plutôt|avec (?:deux|quatre|\d)|d'ici
""",
        "forbids": r"""
jamais|en aucun cas|sous aucun prétexte|aucunement|nullement
(?:interdi[tsrec]\w*|défen[ds]\w* de|défendu\w*|prohib\w+|proscri\w+|exclu(?:e|s|es)?|hors de question|pas question|intouchable\w*|tabou\w*|chasse gardée|ligne rouge|prière de ne)
n(?:e |')(?:\w+[ '-]){1,4}?(?:pas|plus|rien|personne|jamais|aucun\w*)(?= (?:à|au|aux|le|la|les|de|du|des|d'|l'|avant|après|sur|dans|en|tant|sans|mon|ma|mes|ce|ces|cette|\w+er\b|toucher|que)|[.!, ]*$|\b)
@(?:ne|n')\b
(?:personne|aucun\w*|rien) (?:ne |n')\w+
on ne .{1,30}(?:pas|plus|jamais|rien)
il ne faut|tu ne (?:dois|peux)|vous ne (?:devez|pouvez)
@(?:pas|plus|point|zéro|aucun\w*|surtout pas) (?:de |d'|touche\w*|question|le |la |les |avant|sans)
je (?:refuse|t'interdis|vous interdis|m'oppose|ne veux (?:pas|plus)|ne tolère)
(?:évite[rz]?|abstien\w*|arrête[rz]?|cesse[rz]?|touche[rz]? pas|renonce[rz]?)
bas les pattes|pas touche|touche pas|on n'y touche
(?:reste|restent|rester|laisse[rz]?)\b.{0,40}(?:tel\w* quel\w*|intact\w*|inchangé\w*|confidentiel\w*|secret|tranquille)
non négociable|inadmissible|inacceptable|pas (?:permis|autorisé|admis|acceptable|négociable)\w*
""",
        "prefers": r"""
préfèr\w+|préfér\w+|de préférence|plutôt|si (?:c'est )?possible|dans la mesure du possible|autant que possible|idéalement|tant qu'à faire
(?:plaît|plaisent|convient|conviennent|va|vont|parle|parlent)\b.{0,20}(?:davantage|mieux|plus)
(?:aime|apprécie|aimerais|aimons) (?:mieux|bien|plus|autant|les|que|quand)|j'aime
au lieu d\w*|à la place
plus à l'aise|mieux avec|plutôt du genre|mon truc|j'ai un faible|à mon goût|je penche|je suis plus
mieux (?:vaut|vaudrait)|mieux .{1,40} que
""",
        "corrects": r"""
@(?:non|faux|erreur|pardon|stop|rectification|correction|au fait)[,.:;–—-]
(?:je )?(?:parlais|voulais dire|pensais à|voulais parler|demandais|disais|ai dit)
(?:mal|pas|rien) (?:compris|lu|entendu)|malentendu|tu confonds|vous confondez|te trompes|vous trompez|trompé
(?:c'est|c'était|est) (?:faux|inexact|incorrect|une erreur|pas (?:ça|cela|juste|exact|bon))
@pas .{1,60}, \w+
, (?:et )?(?:pas|non) (?:du |de |le |la |les |l'|d'|à |au )?[\w.-]+(?: [\w.-]+){0,3}[.!]?$
et non|mais (?:bien |plutôt )?(?:le|la|les|du|de)|il s'agit (?:de|du|des)
(?:trop|pas assez|exagéré|excessif)\b.{0,30}(?:met\w*|fai\w+|pren\w+|passe\w*|disons|rédui\w+|descend\w*|plutôt|baisse\w*|\d)
oublie[rz]? (?:ce|la|le|les|mon|ma)|j'ai changé d'avis|je retire|annule ce
(?:avec|à) (?:un|deux) (?:seul )?[a-z]\b
s'écrit|orthographi\w+|(?:avec|sans) (?:un |deux |une )?(?:accent|cédille|tréma|h|s|t|n|l|majuscule)\b
""",
        "exempt": r"""
(?:dois|devez|doit|doivent) (?:bien |bien te |te |vous |vraiment |sûrement )?(?:rigoler|rire|être (?:fatigué|content|mort|crevé|drôle)|plaisanter|me prendre|en avoir|te dire|dater|avoir)
(?:doit|devait) (?:dater|remonter|être (?:de|né))
de nouveau le droit|a (?:enfin |désormais |de nouveau )?le droit de
je (?:n'|ne (?:l'|les |la |le ))ai (?:jamais|pas|plus)|(?:n'a|n'avait|n'ai|n'est|n'ont) (?:jamais|pas|plus|rien) (?:été|vu|eu|de|le|un)
je ne (?:sais|suis|crois|pense|peux|comprends|vois|travaille|mange|bois) (?:pas|plus)
(?:ne|n')\b.{0,8} (?:t'inquiète|vous inquiétez|t'en fais|vous en faites)|pas de (?:problème|souci|quoi|panique|chance|nouvelles)|ce n'est (?:rien|pas grave)|y a pas
ne me (?:dis|dites|fais|faites) pas (?:que|rire)|n'est-ce pas
""",
        "requests": r"""
@(?:peux-tu|pourrais-tu|pouvez-vous|pourriez-vous|veux-tu|voulez-vous)
s'il (?:te|vous) plaît|merci de|svp
""",
        "questions": "est-ce que",
        "decides": r"""
décid\w+|décision|opt\w+ pour|choisi\w*|retenu\w*|retenons|on (?:part|prend|va|fait|reste|garde) (?:sur|avec|en|à|le|la|pour|donc)|nous (?:prenons|allons|partons|utiliserons)|marché conclu|d'accord pour|c'est (?:décidé|entendu|réglé|dit|parti)|va pour|adopt\w+|adjugé|convenu
""",
        "finds": r"""
s'avère|trouvé\w*|découvert\w*|cause|raison|à cause|parce que|en fait|confirm\w+|montre\w*|révèle\w*|provient|vient d\w*|manque\w*|constat\w+|rien ne|aucun\w*|ne .{1,40} que (?:si|quand|lorsque|sur|avec)|il n'y a|se produit|contient|apparemment|dû à|due à
car|puisque|c'est pourquoi|en raison d\w*|par conséquent|du coup|donc
""",
        "fails": r"""
échou\w+|échec\w*|erreurs?|refus\w+|rejet\w+|impossible|introuvable|cassé\w*|planté\w*|plante|interdit|invalide|expiré\w*|abandonné\w*|bloqué\w*|ne (?:fonctionne|marche|passe|répond|trouve|s'ouvre|part)\w* (?:pas|plus)|n'(?:a|ont|arrive|aboutit)\w* pas|manquant\w*|en panne|dépassé\w*
""",
        "succeeds": r"""
réussi\w*|termin\w+|passent|passe|au vert|succès|corrigé\w*|résolu\w*|ajouté\w*|supprimé\w*|créé\w*|mise? à jour .{0,30}(?:faite|déroulée|installée)|déployé\w*|fonctionne\w*|marche|sans (?:accroc|erreur|problème|encombre)|achevé\w*|abouti\w*|fini\w*|bien (?:passé|déroulé)\w*
""",
        "negation": r"pas|jamais|aucun\w*|personne|rien|nul|nulle|ni|non|ne|n'\w+",
        "denies": r"""
interdi\w+|prohib\w+|proscri\w+|refus\w+|défendu\w*|défense de|rejet\w+|exclu\w*|hors de question|impossible\w*|évit\w+|abstenir|abstien\w*
injoignable\w*|inaccessible\w*|muet\w*|silencieu\w+|indisponible\w*|hors ligne|en panne|échou\w+|intact\w*|inchangé\w*|intouchable\w*|manqu\w+
""",
        "without": "sans|sauf|excepté|hormis|à moins",
        "obliges": r"doi\w+|devez|devra|faut|toujours|obligatoire\w*|impérati\w+|exig\w+|tout|toute|tous|chaque|requis\w*",
        "permits": r"peut|peuvent|pouvez|peux|permis\w*|autorisé\w*|libre",
        "only": r"seul|seule|seuls|seulement|uniquement|exclusivement|que (?:si|après|par|avec)",
        "afternoon": r"heures?|h|après-midi|soir|midi",
    },
    numerals="""
1 un une premier*
2 deux deuxième second*
3 trois troisième
4 quatre quatrième
5 cinq cinquième
6 six sixième
7 sept septième
8 huit huitième
9 neuf neuvième
10 dix dixième
11 onze onzième
12 douze douzième midi douzaine
13 treize
14 quatorze
15 quinze quart quinzaine
16 seize
20 vingt* vingtaine
30 trente* demie
40 quarante*
50 cinquante*
60 soixante*
100 cent cents centaine*
1000 mille millier*
1000000 million*
""",
    months=(
        "janvier/janv février/févr/fév mars avril/avr mai juin juillet/juil août septembre/sept "
        "octobre/oct novembre/nov décembre/déc"
    ),
    synonyms="""
modifi* chang* touch* altér* édit*
répond* répons* joign* injoign* muet* joignable* accessible* injoignable*
délai* dossier* envoi* envoy* part échéance* clôtur* dépôt* dépos* termin* ferme
supprim* effac* retir*
valid* approuv* accept* sign* accord*
utilis* emploi* employ*
achet* command*
""",
    notes=NoteWords(
        critical="critique|élevée|élevé|haute|haut|urgent|urgente|très important|prioritaire",
        important="important|importante|moyen|moyenne|notable|avertissement",
        info="info|information|bas|basse|faible|normal|normale|note",
        done="terminé|terminée|fait|fini|achevé|résolu|accompli",
        task="tâche|tâches|tâche en cours|mission",
        next="suite|prochaine étape|étape suivante|ensuite|suivant|prochaines étapes|à suivre|prochaine action",
        nothing="rien à signaler|rien à observer|rien à noter|rien à consigner|rien|rien de notable|aucune observation|rien à retenir|rien de nouveau",
        unknown_time="heure inconnue|inconnu|inconnue|sans heure|date inconnue|moment inconnu",
        clock="à|vers|h",
        morning="du matin",
        afternoon="de l'après-midi|du soir",
    ),
)
