"""Turkish."""

from agent_runtime.memory.observational.language.base import EndingWords, Language, NoteWords

TABLE = Language(
    code="tr",
    name="turkish",
    letters="ğşıçöü",
    lead="lütfen|ve|ama|peki|tamam|şimdi|bir de|ayrıca|hayır",
    rule_words=(
        "yasak yasaktır serbest izin gerekli gerek gerekmiyor zorunlu geçerli kural değil asla "
        "hiçbir her zaman şimdi zorunda zorundasın mecbur değilsin değilsiniz ilgili hakkında "
        "hakkındaki kuralı serbest izin yap yapma yapabilirsin yapabilirsiniz kullanabilirsiniz kullanma kullan kullanmak kullanabilirsin kaçın kaçınmak"
    ),
    ending=EndingWords(
        bans="yasak* kaçın*",
        laws="kural kuralı kurallar",
        duties=(
            "gerekli gerek gerekmiyor zorunlu* zorunda* mecbur* lazım kullanma kullan kullanmak "
            "kullanmayın geçerli* geçmiyor"
        ),
        hedges=(
            "eğer ise sadece yalnızca yalnız ancak hariç dışında kadar sürece zaman "
            "sonra önce belki muhtemelen olabilir olurdu yakında yarın gelecek ama "
            "fakat çünkü olursa ederse yoksa varsa"
        ),
        permits=(
            r"\b(?:artık|şimdi|bundan sonra) (.{0,60}\w(?<!may|mey)[ae]bilirsin(?:iz)?)(?!\w)|"
            r"\b(?:artık|şimdi) (.{0,60}) ?\b(?:serbest|izin var)(?!\w)"
        ),
    ),
    patterns={
        "binds": r"""
\w+(?:meli|malı)(?:s[iı]n(?:iz|ız)?|y[iı]z|dır|dir|lar|ler)?
(?:gerek|gerekir|gerekiyor|gerekli|lazım|şart|zorunlu\w*|mecbur\w*|mutlaka|muhakkak|kesinlikle|zorunda\w*|elzem)
her (?:zaman|defasında|seferinde|durumda)|daima|istisnasız|hep
bundan (?:böyle|sonra)|artık (?:her|hep)|şu andan itibaren|\w+(?:dan|den|tan|ten) itibaren|bugünden|gelecekte|ileride
en (?:fazla|çok|az|geç)
(?:altında|üstünde|içinde|sınırında|olarak|uygun|kısa|ayrı|aynı) (?:tut|yaz|bırak|kal|koy|ver|göster|kullan)\w*
\w+(?:eceks[iı]n|acaks[iı]n|eceks[iı]n[iı]z|acaks[iı]n[iı]z)
(?:her|bütün|tüm)\b.{1,70}(?:önce bana|önce|benim|bana|benden|onay\w*|izn\w*)
(?:hiçbir|hiç kimse|kimse|hiç)\b.{1,60}(?:olmadan|alınmadan|önce|\w+madan|\w+meden)
(?:olmadan|\w+madan|\w+meden|\w+m[aı]dıkça|\w+medikçe)\b.{1,60}(?:hiçbir|kimse|hiç|\w+maz|\w+mez|\w+mayacak|\w+meyecek)
(?:sadece|yalnızca|yalnız|ancak)\b.{1,40}(?:kullan\w*|sonra|ise|izniyle|onayıyla|\w+ınca|\w+ince|olsun)
(?:istiyorum|talep ediyorum|bekliyorum|rica ediyorum|beklerim|isterim)
unutma\w*|dikkat et|emin ol|özen göster|uy|uyun
önemli:
\w+(?:lsın|lsin|nsın|nsin|lsun|lsün|nsun|nsün)(?:lar|ler)?
""",
        "orders": r"""
(?:yaz|yazın|yazınız|gönder|gönderin|yolla|koy|yap|yapın|ver|verin|çalıştır|adlandır|sor|sorun|test et|kontrol et|bildir|kaydet|sakla|ayır|sipariş et|öde|yuvarla|çevir|al|konuş|bekle|ekle|başla|danış|oluştur|göster|anlat|kullan|kullanın|tut|tutun|bırak|sınırla|cevapla|yanıtla|haber ver|uygula|izle|yuvarla|taşı|bölme)[.!]*$
(?:yaz|gönder|koy|yap|ver|sor|ekle|kullan|bildir|kaydet|bekle|tut)\b
""",
        "standing": r"""
(?:türkçe|ingilizce|almanca|fransızca|ispanyolca|italyanca|rusça|arapça|çince|japonca)
her|bütün|tüm|daima|hep|günlük|haftalık|pazartesi\w*|salı\w*|çarşamba\w*|perşembe\w*|cuma\w*
olsa (?:da|bile)|\w+sa (?:da|bile)|\w+se (?:de|bile)|önce|sonra|kadar|olmadan|sadece|yalnızca|en (?:fazla|çok|az|geç)|yerine|iki|dört|\w+madan|\w+meden|dikkat
""",
        "forbids": r"""
asla|katiyen|hiçbir (?:şekilde|zaman|koşulda|surette|durumda)|sakın|kesinlikle .{1,60}(?:ma|me|maz|mez|yok)
yasak\w*|yasaktır|yasaklıyorum|men ed\w+|tabu|dokunulmaz\w*|kırmızı çizgi\w*|söz konusu (?:değil|olamaz|bile)|kabul edilemez|olmaz
izin (?:yok|verm\w+|verilm\w+|verilmez)|iznin yok|izni yok|müsaade\w* (?:yok|etm\w+|edilm\w+)
\w+(?:mayacak|meyecek|mayacaks[iı]n\w*|meyeceks[iı]n\w*|mamalı\w*|memeli\w*|mayın|meyin|mayınız|meyiniz|masın|mesin|masınlar|mesinler|mayalım|meyelim|amaz\w*|emez\w*|ılmaz|ilmez|ulmaz|ülmez|nmaz|nmez)
(?:arama|dokunma|değiştirme|silme|kullanma|gönderme|yapma|yazma|açma|elleme|paylaşma|verme|koyma|söyleme|çalıştırma|ekleme|unutma|bozma|taşıma|kopyalama|girme|alma|satma|konuşma|başlatma|deneme|karıştırma|bakma|ellemeyin|yükleme|kurma|yayınlama|kaldırma|atlama|etme|rahatsız etme)[.!]*$
elini (?:çek|sürme)|ellerini çek|el sürme\w*|uzak dur\w*|yaklaşma\w*|bulaşma\w*
(?:kimse|hiç kimse|hiçbir \w+)\b.{1,50}(?:maz|mez|masın|mesin|mayacak|meyecek)\b
istemiyorum|istemem|reddediyorum|kabul etm\w+|karşıyım
(?:kaçın\w*|vazgeç|kes artık|bırak artık|uzak tut)
\w+ yok[.!]*$
(?:olduğu gibi|aynen|gizli|dokunulmadan) (?:kalsın|kalacak|bırak\w*|kalmalı)
artık .{1,60}(?:ma|me|mayın|meyin|mayacak|meyecek|yok|değil)\b
""",
        "prefers": r"""
tercih\w*|yeğl\w+|mümkünse|mümkün olduğunca|olabilirse|imkan varsa|tercihen|daha (?:iyi|çok|sıcak|yatkın|rahat|uygun|güzel|kolay)|en iyisi
(?:severim|seviyorum|hoşuma gid\w+|hoşlan\w+|beğen\w+|sıcak gel\w+|yatkın\w*|bana uy\w+|içime sin\w+)
yerine|değil\b.{1,30}olsun|\w+ değil de
isterdim|isterim|\w+ olsa (?:iyi|daha iyi|güzel) olur|favorim|elim .{1,20}alış\w+|taraftarıyım|\w+ciyim|\w+cıyım
""",
        "corrects": r"""
@(?:hayır|yanlış|pardon|düzeltme|yok|öyle değil|dur)[,.:;–—-]
(?:demek istedi\w+|demiştim|dedim|kastet\w+|kastım|söyledim|soruyorum|sormuştum|bahsediyor\w*|bahsetmiştim|diyorum)
yanlış (?:anla\w+|oku\w+|duy\w+|hatırl\w+|yaz\w+)|yanlış anlaşıl\w+|karıştır(?:dın|ıyorsun|mışsın|dınız)|yanıldın|yanılıyorsun
(?:yanlış|hatalı|doğru değil|öyle değil|hata)[.!]*$
değil,? .{1,40}|; .{1,40} değil
\w+ değil[.!]*$
(?:çok|az|fazla|uzun|kısa|yüksek|düşük|abartı\w*)\b.{0,30}(?:indir|düşür|yap|çıkar|olsun|yeter|değiştir|azalt|artır|kısalt|ayarla|çek)
unut|fikrimi değiştirdim|vazgeçtim|geri alıyorum|geçersiz
(?:\w ile|\w'yle|harfiyle|noktasız|noktalı|çift \w)
""",
        "exempt": r"""
gülüyorsundur|\w+(?:yorsundur|muşsundur|mışsındır|mişsindir|yordur|mıştır|miştir)|kesin (?:gül\w+|dalga)|şaka (?:yapıyor|olmalı)
(?:olmalı|gerek|olsa gerek)[.!]*$(?<=yorgun olmalı)|(?:şaka|yorgun|deli|eski|\d+ (?:yılından|model)) (?:olmalı\w*|kalma olmalı)|(?:1[5-9]|20)\d\d\w* (?:yılından |model |kalma )?olmalı
izin (?:çıktı|verildi|aldı)|yeniden izin|tekrar izin|artık (?:araba|yeniden|tekrar) .{1,20}(?:bilir|biliyor)
bilmiyorum|sanmıyorum|hatırlamıyorum|anlamadım|önemli değil|sorun değil|sorun yok|merak etme\w*|üzülme|dert etme|hiç (?:görmedim|gitmedim|olmadı)|güldürme|(?:param|vaktim|zamanım|fikrim|arabam|haberim|işim) yok|boş ver|bir şey değil|acelesi yok
""",
        "requests": r"""
lütfen|rica
\w+(?:r mısın|r misin|r mısınız|r misiniz|bilir mi\w*)
""",
        "questions": r"\w* ?(?:mi|mı|mu|mü)(?:yim|yım|sin|sın|yiz|yız|siniz|sınız|dir|dır)?[.!]*$",
        "decides": r"""
karar\w*|seç\w+|anlaştık|ilerleyelim|gidiyoruz|yapıyoruz|kullanacağız|kullanıyoruz|gidelim|yapalım|kullanalım|alalım|bitti|tamamdır|kesinleşti|belirle\w+|bu yüzden|uzlaş\w+|mutabık\w*|oldu bu iş
""",
        "finds": r"""
meğer|bulundu|buldum|bulduk|keşfet\w+|neden\w*|sebep|sebebi|çünkü|doğrula\w+|gösteriyor|anlaşıldı|anlaşılan|ortaya çık\w+|yalnızca|sadece|yok|eksik|kaynaklan\w+|aslında|görünüşe göre|içeriyor|hiçbir\w*|tespit
bu yüzden|bu nedenle|dolayısıyla|yüzünden
""",
        "fails": r"""
hata\w*|başarısız\w*|reddedil\w+|engellen\w+|kaldı|bozuk|çök\w+|yüklenmiyor|yüklenemedi|bulunamadı|çalışmıyor|çalışmadı|açılmıyor|yapılamadı|olmadı|\w+(?:amadı|emedi|amıyor|emiyor|mıyor|miyor|muyor|müyor)|imkansız|geçersiz|zaman aşımı|kesildi|iptal|takıldı|patladı|yasak
""",
        "succeeds": r"""
geçti|başarıyla|başarılı|tamamlan\w+|bitti|bitirildi|çözüldü|düzeltildi|eklendi|silindi|kaldırıldı|oluşturuldu|güncellendi|kuruldu|sorunsuz|çalışıyor|çalıştı|hazır|yeşil|yayınlandı|halloldu|yapıldı
""",
        "negation": r"""
değil|yok|asla|hiç|hiçbir\w*|kimse|ne
\w+(?:mıyor|miyor|muyor|müyor|madı|medi|mamış|memiş|mayacak|meyecek|mamalı|memeli|mayın|meyin|maz|mez|masın|mesin)\w*
\w+(?:amadı|emedi|mama|meme|mamak|memek|maya|meye)\w{0,4}
""",
        "denies": r"""
yasak\w*|yasakl\w+|engel\w*|reddet\w*|reddedil\w+|men|kaçın\w*|imkansız|olanaksız|tabu
yanıtsız|cevapsız|ulaşılamaz|erişilemez|sessiz|suskun|kapalı|çevrimdışı|eksik|başarısız\w*|çöktü|dokunulmaz\w*|\w+(?:sız|siz|suz|süz)
""",
        "without": r"olmadan|\w+(?:madan|meden)|hariç|dışında|olmaksızın",
        "obliges": r"gerek\w*|zorun\w+|şart|lazım|mutlaka|her|daima|bütün|tüm|\w+(?<!me)(?<!ma)(?:meli|malı)\w*",
        "permits": r"olur|serbest|izin (?:var|verildi)|\w+(?:abilir|ebilir)\w*|mümkün",
        "only": "sadece|yalnızca|yalnız|ancak",
        "afternoon": "akşam|öğleden sonra|saat|gece|öğlen",
    },
    numerals="""
1 bir birinci*
2 iki ikisi* ikinci* ikiye ikide
3 üç üçü üçe üçte üçünc* üçün
4 dört dördü dörde dörtte dördünc*
5 beş beşi beşe beşte beşinc*
6 altı altıya altıda altınc*
7 yedi yediye yedide yedinc*
8 sekiz sekize sekizde sekizi*
9 dokuz dokuza dokuzda dokuzu* dokuzdan
10 on ona onda onu onunc*
12 öğle öğlen düzine
15 çeyrek
20 yirmi*
30 otuz* buçuk yarım
40 kırk*
50 elli*
60 altmış*
70 yetmiş*
80 seksen*
90 doksan*
100 yüz yüze yüzü yüzünc*
1000 bin bini bine
1000000 milyon*
""",
    months=(
        "ocak* şubat* mart/martta/marta/marttan nisan* mayıs* haziran* temmuz* ağustos* eylül* "
        "ekim/ekimde kasım* aralık/aralıkta"
    ),
    synonyms="""
değiş* değişt* düzenl* dokun*
yanıt* cevap* ulaş*
başvur* son süre* teslim* bitiş*
sil* kaldır*
onay* imza* kabul*
kullan*
iste* talep*
""",
    notes=NoteWords(
        critical="kritik|yüksek|acil|çok önemli|hayati",
        important="önemli|orta|dikkate değer|uyarı",
        info="bilgi|düşük|normal|not|info",
        done="tamamlandı|bitti|yapıldı|tamam|çözüldü|hazır",
        task="görev|görevler|mevcut görev|şu anki görev",
        next="sonraki adım|sonraki adımlar|sıradaki adım|sonraki|sırada|ardından|sonra|bir sonraki adım",
        nothing="kaydedilecek bir şey yok|gözlemlenecek bir şey yok|not edilecek bir şey yok|bir şey yok|hiçbir şey|kayda değer bir şey yok|gözlem yok|yeni bir şey yok|belirtilecek bir şey yok|raporlanacak bir şey yok|kaydedilecek şey yok",
        unknown_time="saat bilinmiyor|bilinmiyor|zaman bilinmiyor|saati belirsiz|belirsiz|tarih bilinmiyor",
        clock="saat|saati",
        morning="sabah|öö",
        afternoon="öğleden sonra|akşam|ös",
    ),
)
