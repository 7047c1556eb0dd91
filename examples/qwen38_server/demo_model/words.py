# SPDX-License-Identifier: Apache-2.0
"""Word lists of the generated documents, and words built from syllables.

`TRAIN` and `HELD_OUT` map a kind of word to a list. No word of a held-out list occurs in a training list
(`documents_test.py` checks it). Training also uses words that no list holds: `synthetic_word` builds them, so that the
model learns to copy spelling it has never seen instead of a vocabulary of names.
"""


def word_lists(text):
    """Parses lines of the form `kind: word word ...`; words of one entry are joined by `_`."""
    out = {}
    for line in text.strip().splitlines():
        kind, _, words = line.partition(":")
        out.setdefault(kind.strip(), []).extend(w.replace("_", " ") for w in words.split())
    return out


TRAIN = word_lists("""
first: Anna Ben Clara David Elena Felix Grace Hugo Irene Jonas Karin Louis Maria Nils Olga Peter Rosa Samuel Tara Umberto
first: Vera Walter Xenia Yusuf Zoe Amir Bella Carlos Dana Emil Farah Georg Hana Ivan Julia Kofi Lena Marco Nadia Omar
first: Paula Quentin Rahul Sofia Tomas Ursula Viktor Wanda Ximena Yara Zeno Aiko Björn Chloé Diego Eva Fernando Gitte Henrik
first: Ines José Kenji Léa Mehmet Noor Óscar Priya René Sanna Thabo Ulrich Vasile Wei Yan Zuzana Anne-Marie Jean-Luc Ana
last: Adams Berger Costa Dietrich Evans Fischer Garcia Hansen Ivanov Jensen Klein Larsen Moreau Novak Olsen Petrov Quinn
last: Rossi Schmidt Tanaka Ullman Vargas Weber Xu Young Zimmer Andersson Brown Castro Dubois Eriksen Ferrari Gupta Hoffmann
last: Ishida Johnson Kovács Lindgren Müller Nguyen O'Brien Park Ramirez Sørensen Taylor Urban Virtanen Walsh Yılmaz Zhang
last: Almeida Baker Chen Duarte El-Sayed Fontaine Grant Hughes Ito Jovanović Kumar Lopez Martin Nakamura Okafor Patel
company: Alpine Atlas Aurora Beacon Blue Bridge Bright Cedar Central City Clear Coast Copper Crystal Delta Eagle Eastern
company: Ember Falcon First Forest Fox Global Golden Granite Green Harbor Highland Horizon Iron Ivory Jade Lake Liberty
company: Lion Maple Meridian Metro Modern Moon Nordic North Nova Ocean Olive Omega Orion Pacific Pearl Phoenix Pine Pioneer
company: Polar Prime Quick Rapid Raven Red River Rock Royal Sigma Silver Sky Solar South Star Stone Summit Sun Swift Titan
company: Trade Union United Urban Valley Vector Vista West White Wild Wind Winter Wolf Works Zenith
trade: Bakery Books Cafe Chemicals Clinic Components Construction Consulting Controls Design Devices Electric Energy
trade: Engineering Farms Finance Foods Freight Furniture Garden Glass Hardware Health Holdings Hotels Imaging Industries
trade: Labs Lighting Machines Marine Markets Media Metals Mills Motors Networks Optics Paper Partners Pharma Plastics Press
trade: Print Pumps Records School Security Services Software Solutions Sports Steel Storage Studio Supplies Systems Textiles
trade: Tools Toys Trading Transport Travel Ventures
adjective: black blue brown compact deluxe digital double electric fine flat folding green grey hard heavy insulated large
adjective: light long magnetic mini narrow orange plain portable printed red round rubber short silver single slim small
adjective: soft solid square stainless steel strong thick thin white wide wireless wooden yellow plastic leather cotton
adjective: metal industrial premium standard basic organic fresh frozen clean safe smart quiet sharp smooth
noun: adapter bag battery belt board bolt book bottle box bracket brush bucket bulb cabinet cable camera card carpet case
noun: chain chair charger clamp clock cloth coat connector container cord cup cushion desk door drawer drill fan filter
noun: folder frame fuse glove hammer handle hat headset helmet hook hose jacket keyboard kit knife ladder lamp lens lid lock
noun: mask mat meter mirror monitor motor mouse nail notebook paint pan panel paper pen phone pipe plate plug pot printer
noun: pump rack radio rail ring roller rope ruler saw scale scanner screen screw seat sensor sheet shelf shirt shoe shovel
noun: sign sink sleeve sofa speaker spoon spring stand stapler stool strap switch table tablet tank tap tape tent ticket
noun: tile timer toner tool towel tray tripod trolley tube valve vase wallet washer watch wheel wire wrench
city: Amsterdam Athens Auckland Barcelona Berlin Bogotá Boston Brno Cairo Chicago Cologne Cork Dallas Delhi Denver Dublin
city: Geneva Ghent Graz Hamburg Helsinki Kyiv Kyoto Lagos Leeds Leipzig Lima Lisbon Ljubljana London Lyon Madrid Malmö
city: Manchester Milan Montréal Munich Nairobi Nantes Oslo Paris Porto Prague Quito Riga Rome Rotterdam São_Paulo Seoul
city: Seville Sofia Stockholm Tallinn Tokyo Toronto Turin Utrecht Valencia Vienna Vilnius Warsaw Zagreb Zürich New_York
city: Cape_Town Hong_Kong Los_Angeles San_José Tel_Aviv
service: api auth backup billing cache cart catalog checkout cluster config consumer core cron db deploy dns email events
service: export feed files gateway graph health image import index ingest inventory jobs ledger login mail media message
service: metrics monitor node notify orders parser payment pipeline profile proxy queue registry report router scheduler
service: search session shop signup sms stats storage stream sync tasks token tracker upload user video web worker
word: access account action address agent alert allowed already answer archive attempt bad batch block body branch broken
word: buffer build byte call cancelled certificate change channel check child client closed code command commit completed
word: configuration conflict connected connection copy corrupt count created customer data deadline deleted delivery denied
word: detected device disabled disk domain down driver dropped duplicate empty enabled entry error exceeded expired failed
word: field file finished flag flushed found frame full group handle handshake header heartbeat high host idle ignored
word: incoming internal invalid item job joined key large late leader level limit line link list loaded local lock lost low
word: map master match member memory merged method migration missing mode module moved name network new object offline old
word: open operation option order output owner packet page parent part password path peer pending permission policy pool
word: port primary process protocol query read ready rebuilt received record refused rejected released reload remote removed
word: renewed replica reply request reset resource response restarted result retry role root rotated row rule running saved
word: schema secondary selected sent server set shard shutdown signal size slow snapshot socket source space started state
word: step stopped store success table target task temporary thread timeout topic total traffic transaction type unknown
word: unreachable update url value version volume waiting warning window write zone
connector: after at before by during for from in into of on over to under with without
role: accountant analyst architect assistant buyer chemist clerk coach cook designer developer director driver editor
role: electrician engineer manager mechanic nurse planner producer sales_lead teacher technician tester translator welder
team: accounts audit cloud data design facilities finance hiring legal logistics marketing mobile operations payments
team: platform product purchasing quality research sales security support training
event: annual autumn board budget community design evening family holiday kitchen monthly music new open press product
event: project public quarterly regional safety science spring staff street summer team weekly winter
gathering: briefing call concert course dinner exhibition fair festival forum gala lecture lunch market meeting meetup party
gathering: picnic presentation review seminar session show tour training visit walk workshop
category: accessories appliances audio clothing electronics food furniture games garden home kitchen lighting office
category: outdoor pets sports stationery storage tools travel
carrier: AirLine BlueShip CargoOne DHL EuroPost FastMove FedEx GlobeFreight HomeBox InterTrans KurierPlus MailPoint NordExpress
carrier: ParcelGo QuickShip RoadRunner SeaBridge TNT TransCo UPS
status: arrived at_customs cancelled collected delayed delivered in_transit lost on_hold out_for_delivery packed pending
status: processing returned scheduled shipped
venue: Arena Auditorium Ballroom Canteen Casino Cinema Club Conference_Room Forum Gallery Hall Hotel Library Lobby Lounge
venue: Museum Office Park Pavilion Plaza Restaurant Room School Stadium Terrace Theatre Town_Hall
street: Avenue Boulevard Lane Road Square Street Way
""")

HELD_OUT = word_lists("""
first: Abigail Bartholomew Cordelia Dmitri Eleanor Fiona Gideon Harriet Isidore Jocelyn Katarzyna Leopold Magnus Niamh
first: Ottavia Percival Rosalind Sigrid Thaddeus Ulyana Vincenzo Winifred Yevgeny Zelda Apolline Céline Jürgen Malachi
first: Mary-Beth Oluwaseun
last: Abernathy Bianchi Chatterjee Delacroix Eastwood Fitzgerald Gallagher Hawthorne Iglesias Jankowski Kensington
last: Lindqvist Montgomery Nightingale Oyelaran Pemberton Quarles Rutherford Santangelo Thornbury Underwood Vandermeer
last: Wojciech Yamaguchi Zapatero Björkman O'Sullivan Šimková Achterberg Whitcombe
company: Amberley Birch Cobalt Crimson Dolphin Dynamo Everest Firefly Galaxy Hazel Indigo Juniper Kestrel Lavender Mosaic
company: Nimbus Obsidian Paragon Quartz Ruby Sapphire Tangerine Ultra Velvet Willow Zephyr Lighthouse Marigold Monsoon
company: Thistle
trade: Acoustics Aviation Boatyard Brewing Carpets Ceramics Dairy Diagnostics Explorers Fabrication Forge Instruments
trade: Laundry Leasing Haulage Nurseries Outfitters Packaging Robotics Roofing Shipping Smithy Tailors Timber Vineyards
trade: Watches
adjective: antique brass ceramic chrome curved dusty embroidered floral glossy hollow inflatable knitted laminated matte
adjective: oak padded quilted recycled striped tinted transparent tungsten velvet waterproof woven zinc
noun: anvil banner bench blanket bobbin candle chisel crate curtain dustpan easel envelope faucet gasket goblet harness
noun: hinge jug kettle lantern mallet napkin oven paddle pillow pulley quill ratchet saddle spanner teapot thermostat
noun: thimble trellis umbrella ukulele varnish whistle wreath zipper
city: Aberdeen Antwerp Bratislava Bristol Calgary Caracas Dortmund Edinburgh Florence Galway Gdańsk Göteborg Houston
city: Innsbruck Jakarta Kraków Lausanne Marseille Melbourne Naples Odessa Tampere Reykjavík Salzburg Tromsø Wellington
city: Winnipeg Buenos_Aires Santa_Fe Den_Haag
service: archiver balancer crawler discount dispatcher encoder fraud geocoder heatmap invoicing janitor keystore loyalty
service: matchmaker navigator onboarding rostering quota renderer shipping telemetry transcoder uptime voucher warehouse
service: watchdog
word: abandoned adjusted anomaly ballooned bandwidth barcode blocked bounced calibrated capacity checksum clipped coupon
word: degraded discarded drained drifted elected evicted exhausted fetched firmware garbled halted hourly inconsistent
word: jitter kernel latency leaked malformed mismatch negotiated obsolete orphaned overflow panicked partition postponed
word: quarantined quorum recovered refreshed replayed saturated skewed spilled stale subscriber throttled truncated unplugged
word: upstream validated wedged widget yielded
connector: above across against below between despite inside through toward until
role: actuary astronomer barista botanist carpenter dentist florist geologist jeweller librarian midwife notary optician
role: pharmacist plumber surveyor tailor
team: archives catering compliance fleet forecasting grants innovation laboratory mapping outreach partnerships procurement
team: reception greenkeeping
event: alumni biennial botanical charity chess founders lantern harvest literary maritime midnight opening orchestra
event: photography rooftop startup volunteer
gathering: auction ball banquet bazaar camp colloquium debate hackathon masterclass matinee parade premiere quiz rally
gathering: recital reunion symposium tasting tournament vigil
category: antiques bathroom bedding bicycles ceramics crafts footwear gardening hobbies instruments jewellery laundry
category: photography plumbing upholstery
carrier: AlbatrossAir BoxKite CometCargo DroverLine Falkenpost GullFreight HarborHaul JetParcel LongRoad PelicanPost
carrier: SwallowMail TundraTrans
status: awaiting_pickup being_repacked damaged dispatched en_route forwarded held_at_depot reassigned rerouted sorted stranded
venue: Abbey Amphitheatre Aquarium Boathouse Castle Chapel Courtyard Greenhouse Gymnasium Manor Marina Observatory
venue: Orangery Planetarium Rotunda Winery
street: Alley Crescent Court Gate Hill Mews Promenade Quay Terrace_Walk
""")

_ONSETS = ("b c d f g h j k l m n p r s t v w z " * 4 + "br cr dr fl fr gl gr kl kr pl pr sc sh sl sp st str sw th tr tw "
           "ch ph qu sk sm sn wh y x zh dw ts gn kn").split()
_VOWELS = ("a e i o u " * 6 + "ai au ea ee ei ia ie io oa oo ou ua y eu ay oy ow aw").split()
_CODAS = ("n r l s t m d k " * 3 + "ng nd nt rn rd ck st ll ss th x v z p b g f sk rk lm ld lt mp ft ff ch sh tt "
          "ns rs ks tz gh rth nge que").split()
_ACCENTED = "á à â ä ã å ă ą é è ê ë ę ě í î ï ı ó ò ô ö õ ø ő ú ù û ü ů ý ç č ć ñ ń ň ř š ś ş ß ž ź ż ł đ ð þ æ œ".split()


def synthetic_word(rng, accents=0.04):
    """A pronounceable lower-case word of one to four syllables, now and then with accents or without vowels."""
    if rng.random() < 0.05:
        return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(2, 7)))
    parts = []
    for _ in range(rng.choice((1, 2, 2, 2, 3))):
        parts.append(rng.choice(_ONSETS) if rng.random() < 0.9 else "")
        parts.append(rng.choice(_VOWELS))
        if rng.random() < 0.35:
            parts.append(rng.choice(_CODAS))
    word = "".join(parts)
    if rng.random() < accents:
        at = rng.randrange(len(word))
        word = word[:at] + rng.choice(_ACCENTED) + word[at + 1:]
    return word


def word_halves():
    """Beginnings and ends of the training words, for new words that look like real ones."""
    words = sorted({w for kind in TRAIN.values() for w in kind if len(w) >= 5 and w.isalpha()})
    return [w[:len(w) // 2] for w in words] + [w[len(w) // 2:] for w in words]


class Lexicon:
    """Source of words of a split: 'train' and 'dev' mix list words and made-up ones, an evaluation split uses its lists only.

    `pieces`, where set, are joined into more made-up words: training sets them to halves of words and to the tokens of
    the tokenizer, so that every token is copied now and then. `odd` gives rarer ones still.
    """

    SEVERAL_WORDS = {"city", "status", "venue", "role", "team", "category", "event", "carrier", "first", "last", "noun", "street"}

    def __init__(self, rng, split, lists, made_up=0.55):
        self.rng = rng
        self.lists = lists
        self.made_up = {"train": made_up, "dev": 0.8}.get(split, 0.0)
        self.pieces = word_halves() if split == "dev" else []
        self.odd = None

    def made_up_word(self, capital):
        if self.odd and self.rng.random() < 0.02:
            return self.odd(self.rng)
        if self.pieces and self.rng.random() < 0.45:
            word = "".join(self.rng.choice(self.pieces) for _ in range(self.rng.choice((1, 2, 2, 3))))
        else:
            word = synthetic_word(self.rng)
        return word[0].upper() + word[1:] if capital else word

    def word(self, kind, capital=False):
        """A word of `kind`; lists keep their own capitals, made-up words get one where `capital` says so."""
        if self.rng.random() < self.made_up:
            word = self.made_up_word(capital)
            if self.odd and self.rng.random() < 0.15:  # names of two parts, BothCapitals, ACRONYMS
                if kind in self.SEVERAL_WORDS:
                    word += self.rng.choice(" -  ") + self.made_up_word(capital)
                if capital and self.rng.random() < 0.5:
                    word = word.replace(" ", "") + self.made_up_word(True) if self.rng.random() < 0.6 else word.upper()[:self.rng.randint(2, 8)].strip() + "X"
            return word
        return self.rng.choice(self.lists[kind])
