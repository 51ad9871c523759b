"""Recognise small talk: greetings, thanks and assent say nothing that could be looked up.

A word list decides, because statistics cannot: a "thanks!" resembles every earlier "thanks!" in
words and in meaning, and none of them helps.  A message is small talk if all of its words are of
one language's list, or of English, whose words other languages borrow.  The words come from
phrase books; the second line of each language holds the function words that stand between them.
"""

from __future__ import annotations

import functools
import re
import unicodedata

LONGEST = 16
"""Words; a longer message is about something, even if each of its words is listed."""

_SPACED = {
    "en": """
        hi hello hey heya hiya howdy yo greetings morning afternoon evening night day weekend bye
        goodbye cya later soon tomorrow farewell cheers thanks thank thx ty tysm thankyou welcome
        please sorry pardon oops congrats congratulations ok okay okey k kk okie yes yep yeah yup
        ya yay aye sure no nope nah alright right fine good great nice cool super awesome amazing
        excellent perfect wonderful fantastic brilliant lovely sweet neat wow whoa agreed exactly
        indeed absolutely definitely certainly understood gotcha noted true correct lol lmao rofl
        haha hehe hmm hm mhm uh um oh ah aha well done sounds looks works see talk got get got
        makes sense problem worries mind welcome pleasure glad happy appreciate appreciated help
        helped helpful job luck rest have had going doing been go ahead continue keep proceed wait
        moment minute second ready np
        i you we it that this is are am s re m ll ve t d a an the and or but so very too much
        many lot lots of for to in at on with my your me us all everyone there here up then now
        just
        again really quite how not don can will would be one more""",
    "de": """
        hallo hi hey moin moinsen servus grüezi gruezi grüß gruß grüße gott tag morgen mittag abend
        nacht feierabend wochenende tschüss tschüs ciao bis bald später dann wiedersehen danke
        dankeschön dank merci bitte bitteschön gern gerne entschuldigung sorry verzeihung ok okay
        ja jo jawohl jep nein nee klar genau gut guten gute guter schön schönen schöne schönes
        super toll
        klasse prima perfekt spitze wunderbar großartig fein cool passt stimmt richtig verstanden
        alles einverstanden aha achso ach naja hm freut mich gesundheit glückwunsch weiter los
        ich du ihr wir sie er es das ist sind der die den dem ein eine und oder aber so sehr
        viel vielen tausend lieben herzlichen herzlich dir euch ihnen mir uns mal noch nochmal
        schon
        auch für auf im in an zu wie geht geht's gehts einen doch ganz echt wirklich dass hilfe
        mach macht machen heute wieder""",
    "fr": """
        bonjour bonsoir salut coucou allô allo bonne bon nuit journée soirée matin après-midi
        week-end revoir bientôt demain tard plus tout adieu merci mercis remercie svp plaît plait
        prie pardon désolé désolée excuse excusez moi ok okay oui ouais si non nan bien d'accord
        accord daccord parfait super génial excellent excellente formidable magnifique cool top
        chouette compris entendu exact exactement vrai ça ca marche va noté bravo félicitations
        parfaitement volontiers rien ah oh hein mdr haha continue continuez vas-y
        je tu il elle on nous vous toi te me c'est est l le la les un une des de du et ou mais très
        trop beaucoup infiniment mille bcp à a au aux en pour votre ton ta aide comment
        s'il quoi pas j'ai""",
    "es": """
        hola buenas buenos buen día dias días tardes noches noche tarde mañana adiós adios chao
        chau hasta luego pronto vista gracias muchas mil favor perdón perdon disculpa disculpe
        siento ok okay vale sí si no claro bueno bien bueno perfecto genial excelente estupendo
        fantástico guay maravilloso exacto exactamente correcto cierto entendido acuerdo comprendo
        entiendo listo dale venga felicidades enhorabuena nada jaja saludos abrazo hey sigue
        continúa adelante qué que tal cómo como estás está están va todo
        yo tú tu te me lo la el los las un una de por para y o pero muy mucho tanto así más a en es
        su ayuda ti usted fin semana de""",
    "pt": """
        olá ola oi bom boa boas dia tarde noite madrugada tchau adeus até logo breve amanhã mais
        obrigado obrigada obrigadão valeu brigado brigada agradeço favor desculpa desculpe perdão
        ok okay sim não nao claro bem beleza certo perfeito ótimo otimo excelente legal bacana
        maravilha fantástico incrível exato exatamente correto entendi entendido combinado tudo
        parabéns nada haha kkk rsrs abraço abraços fixe continue prossiga
        eu você tu te me o a os as um uma de do da por pelo pela para e ou mas muito muita
        muitíssimo
        mesmo está como vai é isso ajuda que fim semana""",
    "it": """
        ciao salve buongiorno buonasera buonanotte buon buona giorno sera notte pomeriggio giornata
        serata arrivederci presto domani dopo addio grazie mille tante ringrazio prego favore
        piacere scusa scusi scusate spiace ok okay sì si no certo certamente va bene benissimo
        perfetto ottimo eccellente fantastico magnifico stupendo bello bravo brava esatto
        esattamente giusto vero capito inteso d'accordo accordo d'accordo figurati niente
        complimenti
        auguri ahah tutto come stai sta avanti continua
        io tu lei mi ti vi lo la il i le un una di a ci per e o ma molto davvero proprio così che è
        del tuo suo aiuto non c'è problema""",
    "nl": """
        hallo hoi hey dag goedemorgen goedemiddag goedenavond goedenacht goede goeden morgen middag
        avond nacht doei doeg tot ziens straks later morgen snel bedankt dank dankjewel dankuwel
        dankje merci alsjeblieft alstublieft graag gedaan sorry pardon excuses oké oke ok okay ja
        jawel
        nee zeker prima goed mooi leuk fijn super top geweldig perfect uitstekend fantastisch cool
        klopt precies juist begrepen snap akkoord afgesproken gefeliciteerd helemaal haha ga door
        ik je jij u we wij het dat is zijn de een en of maar zo heel erg zeer veel voor van weekend
        hoe gaat wel hulp jouw uw""",
    "sv": """
        hej hejsan tjena morgon kväll natt god godmorgon godnatt adjö då vi ses tack snälla ursäkta
        förlåt ja nej jo visst bra fint toppen perfekt okej ok precis absolut förstår
        så jag du det är mycket för hjälpen tusen en stort""",
    "pl": """
        cześć czesc hej witaj witam dzień dobry wieczór dobranoc pa papa widzenia zobaczenia jutra
        dzięki dzieki dziękuję dziekuje proszę przepraszam sorki ok okej tak nie jasne pewnie
        dobrze
        dobra super świetnie świetne doskonale wspaniale idealnie fajnie rozumiem zgoda racja
        dokładnie właśnie gratulacje spoko miłego dnia
        ja ty to jest i a ale bardzo wielkie za do się na pomoc co u słychać""",
    "ru": """
        привет здравствуй здравствуйте добрый доброе доброй утро день вечер ночи спокойной пока
        свидания встречи завтра спасибо благодарю спс пожалуйста извини извините простите ок окей
        да нет ага угу конечно хорошо отлично супер прекрасно замечательно здорово класс круто
        идеально понятно понял поняла ясно согласен согласна верно точно правильно ладно давай
        поздравляю ура хаха продолжай
        я ты вы мы это очень большое огромное за и а но так всё все как дела до вам тебе помощь
        не что""",
    "uk": """
        привіт вітаю добрий доброго день ранок ранку вечір ночі добраніч бувай дякую спасибі прошу
        вибач вибачте ок так ні ага звісно добре чудово супер відмінно зрозуміло зрозумів
        я ти ви це дуже велике за і й а але все як справи щиро до побачення""",
    "tr": """
        merhaba selam günaydın gunaydin iyi günler akşamlar geceler hoşça kal hoşçakal görüşürüz
        güle teşekkürler teşekkür ederim tesekkurler sağol sağ ol eyvallah lütfen pardon özür
        dilerim tamam tamamdır peki evet hayır tabii tabi elbette güzel harika süper mükemmel
        muhteşem anladım aynen doğru kesinlikle rica olur tebrikler
        ben sen siz bu o çok ve ama da de için bir şey nasılsın nasılsınız her""",
    "ar": """
        مرحبا أهلا اهلا وسهلا السلام عليكم وعليكم صباح مساء الخير النور تصبح على خير وداعا مع
        السلامة إلى اللقاء شكرا شكرًا جزيلا جزيلاً مشكور عفوا عفوًا آسف اسف فضلك نعم لا أجل حسنا
        حسنًا طيب تمام ممتاز رائع جيد جميل أكيد بالتأكيد صحيح مفهوم فهمت مبروك
        أنا أنت هذا جدا جدًا لك لكم على من كل شيء كيف حالك يا""",
    "fa": """
        سلام درود صبح بخیر شب روز عصر خداحافظ ممنون مرسی متشکرم تشکر سپاس لطفا ببخشید باشه بله
        آره نه خوب عالی حتما درسته فهمیدم
        من تو شما این خیلی از و هم""",
    "he": """
        שלום היי בוקר ערב לילה טוב להתראות ביי תודה רבה בבקשה סליחה כן לא אוקיי בסדר מעולה מצוין
        יופי נהדר הבנתי נכון בטח
        אני אתה את זה מאוד לך על מה שלומך""",
    "hi": """
        नमस्ते नमस्कार हैलो हाय सुप्रभात शुभ प्रभात रात्रि संध्या अलविदा फिर मिलेंगे धन्यवाद
        शुक्रिया
        कृपया माफ़ माफ करें क्षमा हाँ हां नहीं जी ठीक है अच्छा बढ़िया बहुत शानदार सही बिल्कुल समझ
        गया गई बधाई ओके
        मैं आप यह आपका आपकी का की के और भी कैसे हैं हो में""",
    "id": """
        halo hai selamat pagi siang sore malam tinggal jalan sampai jumpa dadah terima kasih
        makasih trims tolong maaf oke ok ya iya tidak nggak baik bagus hebat keren mantap sempurna
        betul benar tentu mengerti paham sip setuju sama
        saya kamu anda ini itu sangat banyak sekali dan atas bantuannya apa kabar""",
    "vi": """
        xin chào chao buổi sáng tối chúc ngủ ngon tạm biệt hẹn gặp lại cảm ơn cám ơn vui lòng lỗi
        vâng dạ ừ không được rồi tốt tuyệt vời hay đúng hiểu ok
        tôi bạn anh chị em rất nhiều này đó và nhé ạ""",
    "el": """
        γεια γειά σου σας καλημέρα καλησπέρα καληνύχτα αντίο ευχαριστώ ευχαριστούμε παρακαλώ
        συγγνώμη ναι όχι εντάξει οκ καλά ωραία τέλεια υπέροχα σωστά κατάλαβα βέβαια μπράβο
        εγώ εσύ αυτό πολύ είναι και τι κάνεις""",
    "cs": """
        ahoj čau nazdar dobrý den ráno večer dobrou noc nashledanou shledanou díky děkuji děkuju
        prosím promiň promiňte ano jo ne jasně dobře super skvělé skvěle výborně perfektní rozumím
        přesně souhlasím
        já ty vy to je moc a ale se na jak máš""",
    "ro": """
        bună buna salut ziua dimineața seara noapte pa revedere mulțumesc multumesc mersi poftim
        scuze da nu sigur bine perfect super excelent minunat înțeles exact corect
        eu tu e mult foarte și ce mai faci""",
    "hu": """
        szia sziasztok helló jó reggelt napot estét éjszakát viszlát köszönöm köszi kösz kérem
        bocs bocsánat igen nem rendben oké persze szuper remek tökéletes értem pontosan
        én te ez az nagyon szépen és hogy vagy""",
    "fi": """
        hei moi terve huomenta päivää iltaa hyvää yötä näkemiin kiitos kiitti ole hyvä anteeksi
        kyllä joo ei selvä hyvä hienoa loistavaa täydellistä ymmärrän ok okei juuri
        minä sinä se on paljon niin ja mitä kuuluu""",
}
_UNSPACED = {
    "zh": """
        你好 您好 大家好 嗨 哈喽 喂 早上好 早安 早 上午好 中午好 下午好 晚上好 晚安 再见 拜拜
        回头见
        明天见 谢谢 谢谢你 谢谢您 多谢 感谢 非常感谢 辛苦了 请 麻烦你了 不客气 没关系 没事 对不起
        抱歉
        不好意思 好 好的 好吧 好啊 行 可以 没问题 是 是的 对 对的 嗯 嗯嗯 哦 啊 呀 了 吧 呢 哈
        明白 明白了
        知道了 了解 收到 不错 很好 太好了 太棒了 真棒 完美 厉害 赞 恭喜 同意 继续 我 你 您 很 非常
        太 真
        謝謝 謝謝你 多謝 感謝 再見 對不起 沒問題 沒關係 對 明白 了解 收到 太棒了 你好嗎 你好吗 吗
        嗎 的""",
    "ja": """
        こんにちは こんばんは おはよう おはようございます おやすみ おやすみなさい さようなら
        じゃあね
        またね また また明日 ありがとう ありがとうございます ありがとうございました どうも どうぞ
        どういたしまして
        お願いします よろしく よろしくお願いします よろしくお願いいたします すみません ごめん
        ごめんなさい
        はい うん ええ いいえ いや いいね いいです いいですね オーケー オッケー 了解 了解です
        了解しました 承知しました
        わかった わかりました 分かりました なるほど そうですね そうです そう すごい 素晴らしい
        素晴らしいです 最高
        完璧 完璧です 大丈夫 大丈夫です お疲れ様 お疲れ様です お疲れ様でした 助かります
        助かりました おめでとう
        おめでとうございます です ね よ お元気ですか では とても 本当に 続けて 続けてください""",
    "ko": """
        안녕 안녕하세요 안녕히 가세요 계세요 좋은 아침 아침이에요 하루 되세요 잘 자 자요 주무세요
        고마워 고마워요 고맙습니다 감사 감사해요 감사합니다 정말 진짜 너무 미안 미안해 미안해요
        죄송합니다
        죄송해요 네 예 응 넵 넹 아니요 아니 오케이 좋아 좋아요 좋습니다 좋네요 알겠어 알겠어요
        알겠습니다
        알았어 알았어요 그래 그래요 맞아 맞아요 맞습니다 완벽해 완벽해요 완벽합니다 최고 최고예요
        최고입니다
        훌륭해요 훌륭합니다 대단해요 멋져요 수고하세요 수고하셨습니다 부탁해요 부탁드립니다
        축하해요
        축하합니다 괜찮아 괜찮아요 내일 봐요 다음에 또 아주 많이 계속 ㅋ ㅎ 요""",
    "th": """
        สวัสดี ครับ ค่ะ คะ หวัดดี อรุณสวัสดิ์ ราตรีสวัสดิ์ ลาก่อน ขอบคุณ ขอบคุณมาก มาก ขอโทษ ใช่
        ไม่ใช่ โอเค ได้ ตกลง ดี ดีมาก เยี่ยม เข้าใจแล้ว เข้าใจ แล้ว เลย นะ จ้า""",
}
_LAUGH = re.compile(r"(?:[hj][aeiou]){2,}h?|(?:ха|хе){2,}|l+o+l+|k{2,}|w{2,}|x+d+|5{3,}")
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


def is_small_talk(text: str) -> bool:
    """Return whether a message only greets, thanks, agrees or the like; true without words."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
    # Combining marks belong to the words of many scripts, but are no word characters.
    folded = unicodedata.normalize("NFC", folded)
    if any(pattern.fullmatch(_without_marks(folded)) for pattern in _phrases().values()):
        return True
    words = [_plain(word) for word in _words(folded)]
    # Laughter is written in any length, so that no list can hold it.
    words = [word for word in words if not _LAUGH.fullmatch(word)]
    if len(words) > LONGEST:
        return False
    english = _lists()["en"]
    return any(all(word in known or word in english for word in words) for known in _all_known())


def _words(folded: str) -> list[str]:
    kept = "".join(
        one if one.isalnum() or one == "-" or unicodedata.category(one).startswith("M") else " "
        for one in folded.replace("'", " ")
    )
    return [word for part in kept.split() if (word := part.strip("-"))]


def _plain(word: str) -> str:
    """Return a word without stretched letters: `sooo`, `thankssss`."""
    return re.sub(r"([^\W\d_])\1{2,}", r"\1", word)


def _without_marks(folded: str) -> str:
    """Return the letters, digits and combining marks of a text alone."""
    return "".join(
        one for one in folded if one.isalnum() or unicodedata.category(one).startswith("M")
    )


@functools.cache
def _lists() -> dict[str, frozenset[str]]:
    # As the words of messages are split and folded, or `c'est` and `ß` would never match.
    return {
        language: frozenset(
            _plain(word)
            for listed in words.split()
            for word in _words(unicodedata.normalize("NFC", listed.casefold()))
        )
        for language, words in _SPACED.items()
    }


@functools.cache
def _all_known() -> tuple[frozenset[str], ...]:
    return tuple(_lists().values())


@functools.cache
def _phrases() -> dict[str, re.Pattern[str]]:
    """Return for each language without spaces the pattern of messages of listed phrases only."""
    patterns: dict[str, re.Pattern[str]] = {}
    for language, phrases in _UNSPACED.items():
        # The longest first: else a phrase's beginning would be taken for another one.
        known = sorted({_without_marks(one) for one in phrases.split()}, key=len, reverse=True)
        one = "|".join(map(re.escape, known))
        patterns[language] = re.compile(rf"(?:{one}|ok|okay|bye){{1,{LONGEST}}}")
    return patterns
