"""Sentences of users in sixteen languages: rules (`+`), and what is none (`-`); and statements.

Each statement stands with one that says the same, and one that says something else.
"""

SENTENCES = {
    "en": """
+ Always run the linter before you open a pull request.
+ Every invoice has to carry a purchase order number.
+ Keep answers under five sentences.
+ Amounts are to be shown in euros, rounded to two digits.
+ Don't delete the backups.
+ Nobody is to touch the billing table.
+ The staging database is off limits.
+ You may not share the draft with the press.
+ No emojis in commit messages, please.
+ I'd rather have tabs than spaces.
+ I find small commits much easier to review, so small ones if you can.
+ Wrong, the meeting is on Tuesday.
+ That's not what I asked for: I want the net amount.
+ Not Miller, Muller.
- The old boiler must be from 1987.
- We have two offices, one in Leeds and one in York.
- My sister can't eat nuts.
- Could it be that the port is taken?
- Which folder are the logs in?
- Fine, we'll take the smaller flat.
- Thanks, that's all for today.
- Don't make me laugh.
- The shop opens at nine and closes at six.
""",
    "de": """
+ Lass vor jedem Commit den Linter laufen.
+ Jede Rechnung muss eine Bestellnummer haben.
+ Halte die Antworten unter fünf Sätzen.
+ Beträge sind in Euro anzugeben.
+ Lösch die Sicherungen nicht.
+ Niemand fasst die Tabelle mit den Buchungen an.
+ Die Testdatenbank ist tabu.
+ Der Entwurf darf nicht an die Presse.
+ Bitte keine Emojis in Commit-Nachrichten.
+ Tabs sind mir lieber als Leerzeichen.
+ Am liebsten kleine Commits.
+ Falsch, die Besprechung ist am Dienstag.
+ Das meinte ich nicht, ich will den Nettobetrag.
+ Nicht Müller, sondern Möller.
- Der alte Kessel muss von 1987 sein.
- Wir haben zwei Büros, eins in Kiel und eins in Bonn.
- Meine Schwester verträgt keine Nüsse.
- Kann es sein, dass der Port belegt ist?
- In welchem Ordner liegen die Protokolle?
- Gut, wir nehmen die kleinere Wohnung.
- Danke, das war alles für heute.
- Das Geschäft öffnet um neun.
""",
    "fr": """
+ Lance toujours le linter avant d'ouvrir une demande de fusion.
+ Chaque facture doit porter un numéro de commande.
+ Garde des réponses de moins de cinq phrases.
+ Les montants doivent être donnés en euros.
+ Ne supprime pas les sauvegardes.
+ Personne ne touche à la table des factures.
+ La base de préproduction est intouchable.
+ Tu ne peux pas partager le brouillon avec la presse.
+ Pas d'émojis dans les messages de commit, s'il te plaît.
+ Je préfère les tabulations aux espaces.
+ Plutôt de petits commits, si possible.
+ Non, la réunion est mardi.
+ Ce n'est pas ce que j'ai demandé : je veux le montant net.
+ Pas Durand, Durant.
- La vieille chaudière doit dater de 1987.
- Nous avons deux bureaux, un à Lille et un à Nantes.
- Ma sœur est allergique aux noix.
- Se peut-il que le port soit occupé ?
- Dans quel dossier sont les journaux ?
- D'accord, on prend le petit appartement.
- Merci, c'est tout pour aujourd'hui.
- Le magasin ouvre à neuf heures.
""",
    "es": """
+ Ejecuta siempre el linter antes de abrir una petición.
+ Cada factura debe llevar un número de pedido.
+ Mantén las respuestas por debajo de cinco frases.
+ Los importes tienen que ir en euros.
+ No borres las copias de seguridad.
+ Nadie debe tocar la tabla de facturas.
+ La base de pruebas es intocable.
+ No puedes compartir el borrador con la prensa.
+ Nada de emojis en los mensajes de commit.
+ Prefiero tabuladores a espacios.
+ Mejor commits pequeños, si es posible.
+ No, la reunión es el martes.
+ Eso no es lo que pedí, quería el importe neto.
+ No es Pérez, sino Peres.
- La caldera vieja debe de ser de 1987.
- Tenemos dos oficinas, una en Vigo y otra en Cádiz.
- Mi hermana es alérgica a las nueces.
- ¿Puede ser que el puerto esté ocupado?
- ¿En qué carpeta están los registros?
- De acuerdo, nos quedamos con el piso pequeño.
- Gracias, eso es todo por hoy.
- La tienda abre a las nueve.
""",
    "pt": """
+ Rode sempre o linter antes de abrir um pull request.
+ Toda fatura deve ter um número de pedido.
+ Mantenha as respostas com menos de cinco frases.
+ Os valores têm que estar em reais.
+ Não apague os backups.
+ Ninguém mexe na tabela de faturas.
+ O banco de homologação é intocável.
+ Você não pode mostrar o rascunho à imprensa.
+ Nada de emojis nas mensagens de commit.
+ Prefiro tabulações a espaços.
+ De preferência, commits pequenos.
+ Não, a reunião é na terça.
+ Não foi isso que eu pedi, quero o valor líquido.
+ Não é Peres, é Pires.
- A caldeira velha deve ser de 1987.
- Temos dois escritórios, um em Recife e outro em Natal.
- Minha irmã é alérgica a nozes.
- Será que a porta está ocupada?
- Em que pasta estão os logs?
- Certo, ficamos com o apartamento menor.
- Obrigado, é só isso por hoje.
- A loja abre às nove.
""",
    "it": """
+ Esegui sempre il linter prima di aprire una richiesta.
+ Ogni fattura deve avere un numero d'ordine.
+ Mantieni le risposte sotto le cinque frasi.
+ Gli importi vanno indicati in euro.
+ Non cancellare le copie di sicurezza.
+ Nessuno deve toccare la tabella delle fatture.
+ Il database di prova è intoccabile.
+ Non puoi mostrare la bozza alla stampa.
+ Niente emoji nei messaggi di commit.
+ Preferisco i tab agli spazi.
+ Meglio commit piccoli, se possibile.
+ No, la riunione è martedì.
+ Non è quello che ho chiesto: voglio l'importo netto.
+ Non Rossi, ma Russo.
- La vecchia caldaia deve essere del 1987.
- Abbiamo due uffici, uno a Pisa e uno a Lucca.
- Mia sorella è allergica alle noci.
- Può darsi che la porta sia occupata?
- In quale cartella sono i log?
- Va bene, prendiamo l'appartamento piccolo.
- Grazie, per oggi è tutto.
- Il negozio apre alle nove.
""",
    "nl": """
+ Draai altijd de linter voordat je een pull request opent.
+ Elke factuur moet een bestelnummer hebben.
+ Houd antwoorden onder de vijf zinnen.
+ Bedragen moeten in euro's staan.
+ Verwijder de back-ups niet.
+ Niemand komt aan de tabel met facturen.
+ De testdatabase is verboden terrein.
+ Je mag het concept niet met de pers delen.
+ Geen emoji's in commitberichten, graag.
+ Ik heb liever tabs dan spaties.
+ Bij voorkeur kleine commits.
+ Nee, de vergadering is op dinsdag.
+ Dat vroeg ik niet, ik bedoel het nettobedrag.
+ Niet Jansen, maar Janssen.
- De oude ketel moet van 1987 zijn.
- We hebben twee kantoren, een in Breda en een in Zwolle.
- Mijn zus is allergisch voor noten.
- Kan het zijn dat de poort bezet is?
- In welke map staan de logs?
- Goed, we nemen de kleinere flat.
- Bedankt, dat was alles voor vandaag.
- De winkel gaat om negen uur open.
""",
    "pl": """
+ Zawsze uruchamiaj linter przed otwarciem zgłoszenia.
+ Każda faktura musi mieć numer zamówienia.
+ Trzymaj odpowiedzi poniżej pięciu zdań.
+ Kwoty należy podawać w złotych.
+ Nie usuwaj kopii zapasowych.
+ Nikt nie rusza tabeli z fakturami.
+ Baza testowa jest nietykalna.
+ Szkicu nie można pokazywać prasie.
+ Żadnych emotikonów w opisach commitów.
+ Wolę tabulatory niż spacje.
+ Najlepiej małe commity.
+ Nie, spotkanie jest we wtorek.
+ Nie o to prosiłem, chodzi mi o kwotę netto.
+ Nie Kowalski, tylko Kowalczyk.
- Stary kocioł musi być z 1987 roku.
- Mamy dwa biura, jedno w Opolu i jedno w Toruniu.
- Moja siostra jest uczulona na orzechy.
- Czy to możliwe, że port jest zajęty?
- W którym folderze są logi?
- Dobrze, bierzemy mniejsze mieszkanie.
- Dzięki, to wszystko na dziś.
- Sklep otwierają o dziewiątej.
""",
    "fi": """
+ Aja linteri aina ennen kuin avaat pyynnön.
+ Jokaisessa laskussa pitää olla tilausnumero.
+ Pidä vastaukset alle viidessä lauseessa.
+ Summat on ilmoitettava euroina.
+ Älä poista varmuuskopioita.
+ Kukaan ei saa koskea laskutauluun.
+ Testikantaan ei kosketa.
+ Luonnosta ei saa näyttää lehdistölle.
+ Ei emojeja commit-viesteihin, kiitos.
+ Haluaisin mieluummin sarkaimia kuin välilyöntejä.
+ Mieluiten pieniä muutoksia.
+ Ei, kokous on tiistaina.
+ En pyytänyt sitä, tarkoitin nettosummaa.
+ Ei Virtanen vaan Virta.
- Vanhan kattilan täytyy olla vuodelta 1987.
- Meillä on kaksi toimistoa, toinen Turussa ja toinen Oulussa.
- Siskoni on allerginen pähkinöille.
- Voisiko portti olla varattu?
- Missä kansiossa lokit ovat?
- Hyvä, otetaan pienempi asunto.
- Kiitos, siinä kaikki tältä päivältä.
- Kauppa aukeaa yhdeksältä.
""",
    "tr": """
+ İstek açmadan önce her zaman denetleyiciyi çalıştır.
+ Her faturada sipariş numarası olmalı.
+ Yanıtları beş cümlenin altında tut.
+ Tutarlar lira olarak yazılmalıdır.
+ Yedekleri silme.
+ Fatura tablosuna kimse dokunmasın.
+ Test veritabanına dokunmak yasak.
+ Taslağı basınla paylaşamazsın.
+ Commit mesajlarında emoji istemiyorum.
+ Boşluk yerine sekmeyi tercih ederim.
+ Mümkünse küçük değişiklikler olsun.
+ Hayır, toplantı salı günü.
+ Onu sormadım, net tutarı kastettim.
+ Yılmaz değil, Yıldırım.
- Eski kazan 1987 model olmalı.
- İki ofisimiz var, biri İzmir'de, biri Bursa'da.
- Kız kardeşim fındığa alerjik.
- Port dolu olabilir mi?
- Günlükler hangi klasörde?
- Tamam, küçük daireyi tutuyoruz.
- Teşekkürler, bugünlük bu kadar.
- Dükkân dokuzda açılıyor.
""",
    "ru": """
+ Всегда запускай линтер перед слиянием.
+ В каждом счёте должен стоять номер заказа.
+ Держи ответы в пределах пяти предложений.
+ Суммы указывать в рублях.
+ Не удаляй резервные копии.
+ Никто не должен трогать таблицу счетов.
+ Тестовую базу трогать запрещено.
+ Черновик нельзя показывать прессе.
+ Никаких эмодзи в сообщениях коммитов.
+ Предпочитаю табуляцию, а не пробелы.
+ Лучше небольшие коммиты.
+ Нет, совещание во вторник.
+ Я не об этом просил, имелась в виду сумма без налога.
+ Не Иванов, а Иванцов.
- Старый котёл, должно быть, 1987 года.
- У нас два офиса, один в Туле, другой в Омске.
- У сестры аллергия на орехи.
- Может ли быть, что порт занят?
- В какой папке лежат логи?
- Хорошо, берём квартиру поменьше.
- Спасибо, на сегодня всё.
- Магазин открывается в девять.
""",
    "ar": """
+ شغّل أداة الفحص دائمًا قبل فتح الطلب.
+ يجب أن تحمل كل فاتورة رقم طلب.
+ اجعل الإجابات أقل من خمس جمل.
+ ينبغي كتابة المبالغ بالريال.
+ لا تحذف النسخ الاحتياطية.
+ لا أحد يلمس جدول الفواتير.
+ ممنوع المساس بقاعدة الاختبار.
+ لا يمكنك عرض المسودة على الصحافة.
+ تجنب الرموز التعبيرية في الرسائل.
+ أفضّل علامات الجدولة على المسافات.
+ يستحسن أن تكون التغييرات صغيرة.
+ لا، الاجتماع يوم الثلاثاء.
+ لم أسأل عن هذا، أقصد المبلغ الصافي.
+ ليس سليم بل سالم.
- لا بد أن الغلاية القديمة من عام 1987.
- لدينا مكتبان، واحد في جدة وآخر في أبها.
- أختي عندها حساسية من المكسرات.
- هل يمكن أن يكون المنفذ مشغولًا؟
- في أي مجلد توجد السجلات؟
- حسنًا، سنأخذ الشقة الصغيرة.
- شكرًا، هذا كل شيء اليوم.
- المتجر يفتح في التاسعة.
""",
    "hi": """
+ अनुरोध खोलने से पहले हमेशा लिंटर चलाओ।
+ हर बिल पर ऑर्डर नंबर होना चाहिए।
+ जवाब पाँच वाक्यों से कम रखिए, हमेशा।
+ रकम रुपये में ही लिखना।
+ बैकअप मत हटाओ।
+ बिल वाली तालिका को कोई नहीं छुएगा।
+ टेस्ट डेटाबेस को छूना मना है।
+ मसौदा अख़बार को नहीं दिखाना है।
+ संदेशों में इमोजी नहीं चाहिए।
+ मुझे स्पेस से ज़्यादा टैब पसंद हैं।
+ हो सके तो छोटे बदलाव करो।
+ नहीं, बैठक मंगलवार को है।
+ मैंने यह नहीं पूछा था, मेरा मतलब शुद्ध रकम से था।
+ शर्मा नहीं, वर्मा।
- पुराना बॉयलर 1987 का होगा।
- हमारे दो दफ़्तर हैं, एक पुणे में और एक नागपुर में।
- मेरी बहन को मेवों से एलर्जी है।
- क्या पोर्ट व्यस्त हो सकता है?
- लॉग किस फ़ोल्डर में हैं?
- ठीक है, हम छोटा मकान लेंगे।
- धन्यवाद, आज के लिए इतना ही।
- दुकान नौ बजे खुलती है।
""",
    "zh": """
+ 提交合并请求之前一定要先跑检查工具。
+ 每张发票都必须有订单号。
+ 回答控制在五句话以内。
+ 金额一律用人民币表示。
+ 不要删除备份。
+ 谁也不许动账单表。
+ 测试数据库禁止访问。
+ 草稿不能给媒体看。
+ 提交信息里别用表情符号。
+ 比起空格我更喜欢制表符。
+ 提交最好小一点。
+ 不对，会议是星期二。
+ 我问的不是这个，是税后金额。
+ 不是李，是黎。
+ 請勿刪除這個資料夾。
- 那台旧锅炉应该是1987年的吧。
- 我们有两个办公室，一个在苏州，一个在无锡。
- 我妹妹对坚果过敏。
- 端口会不会被占用了？
- 日志在哪个文件夹？
- 好，就租小一点的那套。
- 谢谢，今天就到这里。
- 商店九点开门。
""",
    "ja": """
+ プルリクエストを開く前に必ずリンターを実行してください。
+ 請求書にはすべて注文番号を入れること。
+ 回答は五文以内にまとめてください。
+ 金額は円で表示しなければなりません。
+ バックアップを削除しないで。
+ 請求テーブルには誰も触らないこと。
+ 検証用データベースへのアクセスは禁止です。
+ 草稿を記者に見せてはいけません。
+ コミットメッセージに絵文字は使わないでください。
+ スペースよりタブのほうが好きです。
+ コミットはなるべく小さくしたい。
+ 違います、会議は火曜日です。
+ 聞いたのはそれではなく、税抜きの金額です。
+ 佐藤ではなく左藤です。
- 古いボイラーは1987年製のはずです。
- 事務所は仙台と盛岡の二か所です。
- 妹はナッツのアレルギーがあります。
- ポートが使用中なのでしょうか？
- ログはどのフォルダーにありますか？
- では、小さい部屋を借ります。
- ありがとう、今日は以上です。
- 店は九時に開きます。
""",
    "ko": """
+ 요청을 열기 전에 항상 린터를 실행해 주세요.
+ 모든 청구서에는 주문 번호가 있어야 합니다.
+ 답변은 다섯 문장 이내로 해 주세요.
+ 금액은 반드시 원화로 표시하세요.
+ 백업을 삭제하지 마세요.
+ 아무도 청구 테이블을 건드리면 안 됩니다.
+ 테스트 데이터베이스 접근 금지.
+ 초안을 기자에게 보여 주지 마십시오.
+ 커밋 메시지에 이모지는 쓰지 말아 주세요.
+ 공백보다 탭을 선호합니다.
+ 가능하면 커밋은 작게요.
+ 아니요, 회의는 화요일이에요.
+ 그걸 물은 게 아니라 세후 금액을 말한 거예요.
+ 정이 아니라 전입니다.
- 낡은 보일러는 1987년산일 거예요.
- 사무실은 대전과 광주 두 곳에 있어요.
- 여동생은 견과류 알레르기가 있어요.
- 포트가 사용 중일 수도 있나요?
- 로그는 어느 폴더에 있어요?
- 좋아요, 작은 집으로 합시다.
- 고마워요, 오늘은 여기까지예요.
- 가게는 아홉 시에 열어요.
""",
}

STATEMENTS = {
    "en": """
The backups must not be deleted. | Deleting the backups is prohibited. | The backups must be deleted.
The agent never writes to the archive. | The agent refuses to write to the archive. | The agent writes to the archive.
The report is due on Friday at 5 pm. | The deadline of the report is Friday, 17:00. | The report is due on Friday at 6 pm.
Anna checks the invoice that Bob wrote. | Bob wrote the invoice and Anna checks it. | Bob checks the invoice that Anna wrote.
It is not forbidden to restart the server. | Restarting the server is allowed. | It is forbidden to restart the server.
""",
    "de": """
Die Sicherungen dürfen nicht gelöscht werden. | Die Sicherungen zu löschen ist verboten. | Die Sicherungen dürfen gelöscht werden.
Der Bericht ist am 3. Mai um 17 Uhr fällig. | Fällig ist der Bericht am 3. Mai, fünf Uhr nachmittags. | Der Bericht ist am 5. Mai um 17 Uhr fällig.
Anna prüft die Rechnung, die Bernd schrieb. | Bernd schrieb die Rechnung und Anna prüft sie. | Bernd prüft die Rechnung, die Anna schrieb.
""",
    "fr": """
Il ne faut pas supprimer les sauvegardes. | La suppression des sauvegardes est interdite. | Il faut supprimer les sauvegardes.
Le rapport est attendu le 3 mai à 17 heures. | On attend le rapport le 3 mai, cinq heures de l'après-midi. | Le rapport est attendu le 13 mai à 17 heures.
""",
    "es": """
No se deben borrar las copias. | Borrar las copias está prohibido. | Se deben borrar las copias.
El informe se entrega el 3 de mayo a las 17:00. | La entrega del informe es el 3 de mayo a las cinco de la tarde. | El informe se entrega el 4 de mayo a las 17:00.
""",
    "pt": """
Não se devem apagar as cópias. | Apagar as cópias é proibido. | Devem-se apagar as cópias.
O relatório sai em 3 de maio às 17h. | Em 3 de maio, cinco da tarde, sai o relatório. | O relatório sai em 8 de maio às 17h.
""",
    "it": """
Le copie non vanno cancellate. | È vietato cancellare le copie. | Le copie vanno cancellate.
Il rapporto esce il 3 maggio alle 17. | Il 3 maggio alle cinque del pomeriggio esce il rapporto. | Il rapporto esce il 3 maggio alle 19.
""",
    "nl": """
De kopieën mogen niet verwijderd worden. | Het verwijderen van de kopieën is verboden. | De kopieën mogen verwijderd worden.
Het verslag komt op 3 mei om 17 uur. | Op 3 mei, vijf uur 's middags, komt het verslag. | Het verslag komt op 3 juni om 17 uur.
""",
    "pl": """
Nie wolno usuwać kopii. | Usuwanie kopii jest zabronione. | Wolno usuwać kopie.
Raport będzie 3 maja o 17. | O piątej po południu 3 maja będzie raport. | Raport będzie 6 maja o 17.
""",
    "fi": """
Varmuuskopioita ei saa poistaa. | Varmuuskopioiden poistaminen on kielletty. | Varmuuskopioita saa poistaa.
Raportti valmistuu 3. toukokuuta kello 17. | Toukokuun 3. päivänä viideltä iltapäivällä valmistuu raportti. | Raportti valmistuu 3. toukokuuta kello 19.
""",
    "tr": """
Yedekler silinmemeli. | Yedekleri silmek yasak. | Yedekler silinmeli.
Rapor 3 Mayıs saat 17.00'de hazır. | 3 Mayıs akşam beşte rapor hazır. | Rapor 3 Mayıs saat 18.00'de hazır.
""",
    "ru": """
Резервные копии удалять нельзя. | Удаление резервных копий запрещено. | Резервные копии удалять можно.
Отчёт будет 3 мая в 17 часов. | В пять вечера 3 мая будет отчёт. | Отчёт будет 4 мая в 17 часов.
Анна проверяет счёт, который написал Борис. | Борис написал счёт, а проверяет его Анна. | Борис проверяет счёт, который написала Анна.
""",
    "ar": """
لا يجوز حذف النسخ الاحتياطية. | حذف النسخ الاحتياطية محظور. | يجوز حذف النسخ الاحتياطية.
التقرير جاهز في 3 مايو الساعة الخامسة مساء. | يجهز التقرير في الثالث من مايو الساعة 17. | التقرير جاهز في 7 مايو الساعة الخامسة مساء.
""",
    "hi": """
बैकअप मिटाना मना है। | बैकअप मत मिटाओ। | बैकअप मिटाना मना नहीं है।
रिपोर्ट तीन मई को शाम पाँच बजे आएगी। | 3 मई को 17 बजे रिपोर्ट आएगी। | रिपोर्ट चार मई को शाम पाँच बजे आएगी।
""",
    "zh": """
备份不得删除。 | 禁止删除备份。 | 备份可以删除。
报告五月三日下午五点交。 | 5月3日17点前交报告。 | 报告五月八日下午五点交。
安娜检查鲍勃写的发票。 | 鲍勃写了发票，由安娜检查。 | 鲍勃检查安娜写的发票。
""",
    "ja": """
バックアップを削除してはいけない。 | バックアップの削除は禁止。 | バックアップを削除してもよい。
報告書は五月三日の十七時に提出する。 | 5月3日午後5時に報告書を提出する。 | 報告書は五月八日の十七時に提出する。
""",
    "ko": """
백업을 삭제하면 안 된다. | 백업 삭제는 금지다. | 백업을 삭제해도 된다.
보고서는 5월 3일 오후 다섯 시에 나온다. | 5월 3일 17시에 보고서가 나온다. | 보고서는 5월 8일 오후 다섯 시에 나온다.
""",
}
