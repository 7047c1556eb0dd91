# SPDX-License-Identifier: Apache-2.0
"""Generates the demo model's conversations: a document in, JSON out. Standard library only.

Three tasks: an invoice, log lines, or a record (contact, order, event, product, shipment, employee). A document is laid
out by a combination of parts (order, separators, labels' form, ...). The combination's checksum assigns it to one split,
so that the layouts of 'train', 'dev' and 'held_out' are disjoint by construction; running sentences have a list per
split. 'held_out' and 'second' also draw their words from lists that training never sees (words.py, second.py).

    python3 documents.py held_out 200 > eval/heldout.jsonl      writes an evaluation set (second 200 > eval/second.jsonl)
    python3 documents.py train 5                                shows examples
"""
import json
import random
import sys
import zlib
from dataclasses import dataclass, field
from decimal import Decimal

import phrases
import second
import sentences
from prompt import completion, render
from words import HELD_OUT, TRAIN, Lexicon, word_halves


def to_json(value):
    """json.dumps with its default separators, non-ASCII kept, and Decimal written with all its places."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{to_json(k)}: {to_json(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(to_json, value)) + "]"
    if isinstance(value, Decimal):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


@dataclass
class Document:
    task: str            # invoice, log, or a kind of record
    text: str
    answer: object       # what the JSON holds
    layouts: list = field(default_factory=list)  # the combinations that made the text, for the disjointness test


def split_of(layout):
    """The split a layout belongs to: 1/16 of all combinations to held_out (and second), 1/16 to dev, the rest to train."""
    return {0: "held_out", 1: "dev"}.get(zlib.crc32(repr(layout).encode()) % 16, "train")


class Generator:
    """One stream of documents and conversations of a split, fixed by its seed.

    `tokens`, a list of letter sequences, asks for the variety that training needs: words made of these tokens, sentences
    made up clause by clause, fences and lines of symbols. Without it the stream is what the tokenizer was trained on.
    """

    def __init__(self, split, seed, tokens=()):
        self.split, self.varied = split, bool(tokens)
        self.rng = random.Random(f"{split}/{seed}")
        self.held_out = split in ("held_out", "second")
        self.lexicon = Lexicon(self.rng, split, {"held_out": HELD_OUT, "second": second.WORDS}.get(split, TRAIN))
        if tokens:
            self.lexicon.pieces = word_halves() * 2 + list(tokens)
            self.lexicon.odd = phrases.foreign_word
        self.layouts = []

    # Words and values ------------------------------------------------------------------------------------------

    def chance(self, p):
        return self.rng.random() < p

    def pick(self, *options):
        return self.rng.choice(options)

    def digits(self, low, high):
        """Low to high random digits, the first not zero."""
        n = self.rng.randint(low, high)
        return str(self.rng.randrange(10 ** (n - 1), 10 ** n))

    def person(self):
        name = self.lexicon.word("first", True)
        if self.chance(0.1):
            name += " " + self.rng.choice("ABCDEFGHIJKLMNOPRSTVW") + "."
        name += " " + self.lexicon.word("last", True)
        if self.varied and self.chance(0.05):
            name = name.replace(" ", self.pick(" O'", " D'", " Mc", " de ", " van "), 1)
        if self.chance(0.05):
            name += "-" + self.lexicon.word("last", True)
        return name

    def company(self):
        w = self.lexicon.word
        core = self.rng.choices((
            lambda: f"{w('company', True)} {w('trade', True)}",
            lambda: f"{w('company', True)} {w('company', True)} {w('trade', True)}",
            lambda: w("company", True) + w("trade", True).lower(),
            lambda: f"{w('last', True)} & {w('last', True)}",
            lambda: f"{w('last', True)} {w('trade', True)}",
            lambda: f"{w('company', True)} and {w('company', True)} {w('trade', True)}",
            lambda: f"{w('city', True)} {w('trade', True)}",
        ), (8, 3, 2, 2, 3, 1, 2))[0]()
        return core + self.rng.choices(("", " Ltd", " GmbH", " Inc", " AG", " LLC", " SA", " AB", " BV", " plc", " Co.", " S.L."),
                                       (12, 4, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1))[0]

    def item(self):
        name = self.lexicon.word("noun")
        for _ in range(self.rng.choices((0, 1, 2), (3, 6, 1))[0]):
            name = self.lexicon.word("adjective") + " " + name
        return name[0].upper() + name[1:] if self.chance(0.4) else name

    def code(self):
        """An identifier such as INV-2093, 2031/0042 or KX88-20B."""
        r = self.rng
        letters = lambda n: "".join(r.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(n))
        return r.choice((
            lambda: f"{letters(r.randint(1, 4))}-{self.digits(3, 6)}",
            lambda: f"{letters(r.randint(1, 3))}{self.digits(4, 7)}",
            lambda: f"20{r.randint(10, 49)}{self.pick('-', '/', '.')}{r.randint(0, 9999):04d}",
            lambda: self.digits(4, 8),
            lambda: f"{self.pick('INV', 'R', 'RE', 'BILL', 'NO', 'ORD', 'PO', 'SKU', 'TRK', 'DOC')}{self.pick('-', '', '_', '/')}{self.digits(3, 6)}",
            lambda: f"{letters(2)}{self.digits(2, 3)}-{self.digits(2, 3)}{letters(1)}",
        ))()

    def price(self, high=5):
        euros = self.rng.randrange(10 ** self.rng.randint(1, high - 1))
        return Decimal(f"{euros}.{self.rng.choice((0, 50, 99, 95, 25, self.rng.randrange(100), self.rng.randrange(100))):02d}")

    MONTHS = ("January February March April May June July August September October November December").split()

    def date(self):
        """(as written, ISO)."""
        y, m, d = self.rng.randint(2018, 2039), self.rng.randint(1, 12), self.rng.randint(1, 28)
        name = self.MONTHS[m - 1]
        written = self.rng.choices((
            f"{y}-{m:02d}-{d:02d}", f"{d} {name} {y}", f"{name} {d}, {y}", f"{d:02d}.{m:02d}.{y}", f"{y}/{m:02d}/{d:02d}",
            f"{d} {name[:3]} {y}", f"{name[:3]} {d}, {y}"), (5, 2, 2, 2, 2, 1, 1))[0]
        return written, f"{y}-{m:02d}-{d:02d}"

    def clock(self):
        return f"{self.rng.randrange(24):02d}:{self.rng.choice((0, 15, 30, 45, self.rng.randrange(60))):02d}"

    def layout(self, what, /, **parts):
        """A combination of one option of every part that belongs to this generator's split."""
        while True:
            chosen = {part: self.rng.choice(options) for part, options in parts.items()}
            signature = (what, *sorted(chosen.items()))
            if split_of(signature) == ("held_out" if self.held_out else self.split):
                self.layouts.append(signature)
                return chosen

    # What 'dev' uses instead of the sentences below, so that it measures unknown sentences as 'held_out' does.
    DEV_SENTENCES = {
        "contact": ("Spoke to {name} today. Works at {company}, {city} office, email {email}, phone {phone}.", "{email} belongs to {name}, {company}; town {city}, telephone {phone}."),
        "order": ("{order_id}: please pack {quantity} {product} for {customer}, going to {city}, at a price of {price}.", "Customer {customer} needs {product} ({quantity} pcs, {price} each) in {city}; see order {order_id}."),
        "event": ("Save the date: {date}, {time}, {title}. We meet at {place} and {host} is the host.", "{host} organises a {title} at {place}; it begins at {time} on {date}."),
        "product": ("Item {sku} is the {name}, sold under {category} for {price}. There are {stock} in the store.", "Only {stock} pieces of {name} remain (price {price}, {category}, number {sku})."),
        "shipment": ("The box {tracking_id} weighing {weight_kg} kg is on its way to {destination} and {status}; {carrier} has it.", "{carrier}: {weight_kg} kg for {destination}, number {tracking_id}, is {status}."),
        "employee": ("From {start_date} {name} is our {role} in the {team} department; send mail to {email}.", "{team}: {name}, {role}, {email}, here since {start_date}."),
        "invoice": ("For {c}: invoice no {n}, written on {d}.", "{d}, invoice {n}. Customer: {c}."),
    }

    def filler(self):
        """A word that means nothing here; braces would be read as fields of a template."""
        return self.lexicon.word(self.pick("word", "connector", "noun", "word"))

    def sentence(self, kind, keys, train, held_out):
        """A template of running text; evaluation documents have their own lists."""
        source = self.rng.random() if self.varied else 1.0
        if source < 0.5:
            template = phrases.reworded(self.rng, self.pick(*sentences.SENTENCES[kind]), self.filler)
        elif source < 0.9:
            template = phrases.sentence(self.rng, kind, keys, self.filler)
        else:
            template = self.rng.choice({"train": train, "dev": self.DEV_SENTENCES[kind], "held_out": held_out, "second": second.SENTENCES[kind]}[self.split])
        self.layouts.append((kind, template))
        return template

    # Blocks of labelled values ---------------------------------------------------------------------------------

    ARRANGEMENTS = ("lines", "lines", "lines", "- lines", "* lines", "• lines", "blank lines", "1. lines", "1) lines", "table",
                    " | ", "; ", ", ", " / ")
    SEPARATORS = (": ", ": ", ": ", " : ", " = ", " - ", "=", " -> ", ":  ", "\t", " | ", ":\n  ", " .. ", " is ")
    CASES = ("{}", "{}", "upper", "lower", "**{}**", "[{}]")

    def block(self, what, fields):
        """Lays out [(label, value)] in a random order."""
        fields = list(fields)
        if self.chance(0.7):
            self.rng.shuffle(fields)
        form = self.layout(what, arrange=self.ARRANGEMENTS, sep=self.SEPARATORS, case=self.CASES)
        arrange, sep = form["arrange"], form["sep"]
        case = {"upper": str.upper, "lower": str.lower}.get(form["case"], form["case"].format)
        if arrange == "table":
            return "\n".join(f"| {case(label)} | {value} |" for label, value in fields)
        in_one_row = not arrange.endswith("lines")
        if in_one_row and sep in (":\n  ", arrange):
            sep = ": "
        pairs = [f"{case(label)}{sep}{value}" for label, value in fields]
        if in_one_row:
            return arrange.join(pairs)
        if arrange == "blank lines":
            return "\n\n".join(pairs)
        bullet = arrange[:-len("lines")]
        return "\n".join(bullet.replace("1", str(i)) + pair for i, pair in enumerate(pairs, 1))

    # Invoices --------------------------------------------------------------------------------------------------

    SYMBOLS = {"EUR": "€", "USD": "$", "GBP": "£", "INR": "₹"}
    CURRENCIES = ("EUR", "USD", "GBP", "CHF", "SEK", "PLN", "CAD", "AUD", "NOK", "INR", "CZK", "DKK")

    def money(self, amount, mode, currency):
        symbol = self.SYMBOLS.get(currency, currency)
        return {"plain": f"{amount}", "symbol": f"{symbol}{amount}" if symbol != currency else f"{currency} {amount}",
                "symbol after": f"{amount} {symbol}", "code": f"{amount} {currency}", "code before": f"{currency} {amount}"}[mode]

    def items(self, items, mode, currency):
        """The lines of an invoice."""
        form = self.layout(
            "items", order=("qnp", "nqp", "npq", "qpn", "pqn", "pnq"),
            qty=("{}", "{} x", "x{}", "{}x", "qty {}", "{} pcs", "{} units", "quantity: {}", "({})", "{} ×", "Qty: {}", "{} of"),
            price=("{}", "@ {}", "at {}", "{} each", "{} apiece", "unit price {}", "price: {}", "{}/pc", "for {}", "à {}", "({})", "{} per unit"),
            name=("{}", "{}", "{}", "{}:", "item: {}", "[{}]"), sep=(" ", " ", " ", ", ", " | ", "; ", " - ", "\t", " / ", "  "),
            bullet=("", "", "- ", "* ", "• ", "#. ", "#) ", "+ ", "  "), tail=("", "", "", "", " = {}", " ({} total)", ", sum {}", " -> {}"))
        if self.chance(0.12):
            form_table = self.layout("item table", order=("qnp", "nqp", "npq", "qpn", "pqn", "pnq"), edge=("| ", ""), total=(False, True),
                                     qty=("Qty", "Quantity", "Count", "Pcs"), name=("Item", "Description", "Article", "Product"),
                                     price=("Price", "Unit price", "Each", "Rate"))
            cells = [[form_table[{"q": "qty", "n": "name", "p": "price"}[c]] for c in form_table["order"]] + ["Sum"] * form_table["total"]]
            for name, qty, price in items:
                row = {"q": str(qty), "n": name, "p": self.money(price, mode, currency)}
                cells.append([row[c] for c in form_table["order"]] + [self.money(qty * price, mode, currency)] * form_table["total"])
            end = " |" if form_table["edge"] else ""
            return "\n".join(form_table["edge"] + " | ".join(row) + end for row in cells)
        lines = []
        for i, (name, qty, price) in enumerate(items, 1):
            cell = {"q": form["qty"].format(qty), "n": form["name"].format(name), "p": form["price"].format(self.money(price, mode, currency))}
            lines.append(form["bullet"].replace("#", str(i)) + form["sep"].join(cell[c] for c in form["order"])
                         + form["tail"].format(self.money(qty * price, mode, currency)))
        return "\n".join(lines)

    def invoice(self):
        r = self.rng
        number, customer, (written, iso), currency = self.code(), self.pick(self.company, self.company, self.person)(), self.date(), self.pick(*self.CURRENCIES)
        items = [(self.item(), r.choice((1, 2, 3, 4, 5, 6, 8, 10, 12, r.randint(1, 250))), self.price())
                 for _ in range(r.choices((1, 2, 3, 4, 5), (3, 5, 4, 2, 1))[0])]
        total = sum((qty * price for _, qty, price in items), Decimal(0))
        where = self.pick("header", "prices", "total")
        mode = {"header": "plain", "total": "plain", "prices": self.pick("symbol", "symbol after", "code", "code before")}[where]
        total_mode = self.pick("code", "code before", "symbol") if where == "total" else mode
        header = [(self.pick("Invoice", "Invoice no", "Invoice number", "Invoice ID", "Bill no", "Number", "Document", "Ref", "No."), number),
                  (self.pick("Customer", "Bill to", "Billed to", "Sold to", "Client", "Buyer", "Account", "To", "Invoice to"), customer),
                  (self.pick("Date", "Invoice date", "Issued", "Dated", "Issue date", "Date of issue", "Billing date"), written)]
        if where == "header":
            header.append((self.pick("Currency", "Amounts in", "Prices in", "All amounts in", "Paid in"), currency))
        if self.chance(0.25):
            header.append(self.pick(("Seller", self.company()), ("From", self.company()), ("Issued by", self.company()), ("Terms", self.pick("30 days", "net 14", "cash", "prepaid")),
                                    ("Page", "1 of 1"), ("Your contact", self.person()), ("Shipping", self.lexicon.word("carrier", True))))
        if where != "header" and self.chance(0.4 if self.varied else 0.25):
            head = self.sentence("invoice", "ncd", (
                "Invoice {n} for {c}, issued {d}.", "{c} was billed on {d} under number {n}.", "This is invoice {n} dated {d} to {c}.", "On {d} we billed {c} (invoice {n}).",
                "Bill {n}, {d}, customer {c}", "Dear {c}, please find invoice {n} of {d}.", "INVOICE {n}\n{c}\n{d}", "{d}\nInvoice {n}\nTo: {c}",
                "{n} / {d} / {c}", "To {c}: invoice number {n}, date {d}.", "Invoice {n} ({d})\nCustomer {c}"), (
                "Hello {c}, on {d} we issued invoice {n} for the following.", "Invoice {n} | {c} | {d}", "{c}\nInvoice {n}\n{d}", "Dated {d}, invoice {n} is for {c}.",
                "Number {n}, billed to {c} on {d}:")).format(n=number, c=customer, d=written)
        else:
            head = self.block("invoice header", header)
        title = self.pick("", "", "Items:", "Items", "Lines:", "Positions:", "Goods:", "Ordered:", "Details", "ITEMS")
        body = (title + "\n" if title else "") + self.items(items, mode, currency)
        foot = (self.pick("Total", "Total", "Total due", "Amount due", "Grand total", "Sum", "To pay", "Balance due", "Invoice total", "TOTAL", "Total amount")
                + self.pick(": ", ": ", " ", " = ", " - ", "\t", " is ") + self.money(total, total_mode, currency))
        gap = self.pick("\n", "\n", "\n\n", "\n---\n")
        parts = [head, body, foot] if self.chance(0.8) else self.pick([head, foot, body], [body, foot, head])
        text = gap.join(parts)
        if self.chance(0.15):
            text += "\n" + self.pick("Thank you for your business.", "Please pay within 30 days.", "Thanks!", "Goods remain ours until paid.", "Kind regards", "Payment by bank transfer.")
        return Document("invoice", text, {
            "invoice_id": number, "customer": customer, "date": iso, "currency": currency,
            "items": [{"name": name, "qty": qty, "price": price} for name, qty, price in items], "total": total})

    # Logs ------------------------------------------------------------------------------------------------------

    def message(self):
        w, r = self.lexicon.word, self.rng
        words = [w("word") for _ in range(r.choice((1, 2, 2, 3, 3, 4)))]
        if self.chance(0.6):
            words += [w("connector"), w("word")]
        if self.chance(0.35):
            words.append(self.pick(f"{self.digits(1, 4)} ms", f"after {self.digits(1, 3)} s", f"code {self.digits(3, 4)}", f"id {self.digits(3, 6)}", f"by {w('first', True)}",
                                   f"({self.digits(1, 3)} retries)", f"{self.digits(1, 2)}%", f"port {self.digits(4, 5)}", f"user={w('last', True).lower()}"))
        text = " ".join(words)
        return text[0].upper() + text[1:] if self.chance(0.6) else text

    def service(self):
        name = self.lexicon.word("service")
        if self.chance(0.45):
            name += self.pick("-", "-", "_", ".") + self.lexicon.word("service")
        return name + self.pick("-", "") + self.digits(1, 2) if self.chance(0.15) else name

    def log(self):
        r = self.rng
        form = self.layout(
            "log line", order=("tlsm", "tslm", "ltsm", "lstm", "stlm", "sltm", "tlsm", "tslm"),
            level=("{}", "{}", "[{}]", "<{}>", "({})", "{}:", "level={}", "{} -", "lvl={}", "|{}|"),
            service=("{}", "[{}]", "{}:", "service={}", "<{}>", "({})", "{{{}}}", "@{}", "svc={}", "{} |"),
            message=("{}", "{}", "{}", "- {}", ": {}", '"{}"', 'msg="{}"', "| {}", "message: {}", "=> {}"),
            time=("{}", "{}", "[{}]", "time={}", "({})", "{} |", "ts={}", "{} -"), sep=(" ", " ", " ", "  ", "\t", " | ", "; ", ", "))
        stamp = self.pick("iso", "iso", "blank", "clock", "millis", "slashes", "syslog")
        lower = self.chance(0.25)
        y, m, d, hour = r.randint(2018, 2039), r.randint(1, 12), r.randint(1, 28), r.randrange(24)
        minute, second = r.randrange(60), r.randrange(40)
        lines, answer = [], []
        services = [self.service() for _ in range(3)]
        for _ in range(r.choices((1, 2, 3, 4), (1, 4, 4, 2))[0]):
            second += r.randint(0, 9)
            second, minute = second % 60, (minute + second // 60) % 60
            clock = f"{hour:02d}:{minute:02d}:{second:02d}"
            time = {"iso": f"{y}-{m:02d}-{d:02d}T{clock}Z", "blank": f"{y}-{m:02d}-{d:02d} {clock}", "clock": clock, "millis": f"{clock}.{r.randrange(1000):03d}",
                    "slashes": f"{y}/{m:02d}/{d:02d} {clock}", "syslog": f"{self.MONTHS[m - 1][:3]} {d} {clock}"}[stamp]
            level = r.choice(("DEBUG", "INFO", "INFO", "WARN", "ERROR", "FATAL"))
            record = {"time": time, "level": level, "service": r.choice(services), "message": self.message()}
            cell = {"t": form["time"].format(time), "l": form["level"].format(level.lower() if lower else level),
                    "s": form["service"].format(record["service"]), "m": form["message"].format(record["message"])}
            lines.append(form["sep"].join(cell[c] for c in form["order"]))
            answer.append(record)
        return Document("log", "\n".join(lines), answer)

    # Records ---------------------------------------------------------------------------------------------------

    def email(self):
        w = self.lexicon.word
        plain = lambda word: "".join(c for c in word.lower() if c.isascii() and c.isalnum()) or "info"
        user = plain(w("first")) + (self.pick(".", "_", "") + plain(w("last")) if self.chance(0.6) else "")
        return f"{user}@{plain(w('company'))}{self.pick('.com', '.org', '.net', '.de', '.eu', '.io', '.co')}"

    def phone(self):
        return self.pick(f"+{self.digits(2, 2)} {self.digits(3, 3)} {self.digits(4, 6)}", f"{self.digits(3, 3)}-{self.digits(4, 4)}", f"0{self.digits(2, 3)} {self.digits(5, 6)}",
                         f"({self.digits(3, 3)}) {self.digits(3, 3)}-{self.digits(4, 4)}", f"+{self.digits(10, 11)}")

    def place(self):
        return (f"{self.lexicon.word('venue', True)} {self.digits(1, 3)}" if self.chance(0.3) else
                f"{self.lexicon.word('company', True)} {self.lexicon.word('venue', True)}")

    def title(self):
        words = f"{self.lexicon.word('event')} {self.lexicon.word('gathering')}"
        return words.title() if self.chance(0.4) and words.isascii() else words[0].upper() + words[1:]

    # kind: [(key, labels, value maker)]; a maker returns the value, or (as written, value).
    RECORDS = {
        "contact": [("name", ("Name", "Full name", "Contact", "Person"), person), ("company", ("Company", "Employer", "Organisation", "Firm"), company),
                    ("phone", ("Phone", "Tel", "Telephone", "Mobile", "Call"), phone), ("email", ("Email", "E-mail", "Mail", "Email address"), email),
                    ("city", ("City", "Town", "Location", "Based in"), lambda g: g.lexicon.word("city", True))],
        "order": [("order_id", ("Order", "Order no", "Order ID", "Order number", "PO"), code), ("customer", ("Customer", "Ordered by", "Buyer", "Client"), person),
                  ("product", ("Product", "Item", "Article", "Goods"), item), ("quantity", ("Quantity", "Qty", "Count", "Pieces", "Units"), lambda g: int(g.digits(1, 3))),
                  ("price", ("Price", "Unit price", "Cost", "Price each"), price), ("city", ("City", "Ship to", "Deliver to", "Destination"), lambda g: g.lexicon.word("city", True))],
        "event": [("title", ("Title", "Event", "Subject", "What"), title), ("date", ("Date", "Day", "When", "On"), date), ("time", ("Time", "Starts", "Start", "Begins at"), clock),
                  ("place", ("Place", "Where", "Venue", "Location"), place), ("host", ("Host", "Organiser", "Hosted by", "Led by"), person)],
        "product": [("name", ("Name", "Product", "Product name", "Article"), item), ("sku", ("SKU", "Code", "Article no", "Part number"), code),
                    ("category", ("Category", "Type", "Group", "Section"), lambda g: g.lexicon.word("category")), ("price", ("Price", "Retail price", "Unit price", "Cost"), price),
                    ("stock", ("Stock", "In stock", "Available", "On hand"), lambda g: int(g.digits(1, 4)))],
        "shipment": [("tracking_id", ("Tracking", "Tracking ID", "Tracking number", "Parcel"), code), ("carrier", ("Carrier", "Shipped with", "Courier", "Sent by"), lambda g: g.lexicon.word("carrier", True)),
                     ("destination", ("Destination", "To", "Ship to", "Going to"), lambda g: g.lexicon.word("city", True)),
                     ("weight_kg", ("Weight", "Weight (kg)", "Weight in kg", "Kilograms"), lambda g: Decimal(g.digits(1, 2) + "." + g.digits(1, 1))),
                     ("status", ("Status", "State", "Current status", "Progress"), lambda g: g.lexicon.word("status"))],
        "employee": [("name", ("Name", "Employee", "Full name", "Colleague"), person), ("role", ("Role", "Position", "Job", "Job title"), lambda g: g.lexicon.word("role")),
                     ("team", ("Team", "Department", "Unit", "Works in"), lambda g: g.lexicon.word("team")), ("start_date", ("Start date", "Started", "Since", "Joined"), date),
                     ("email", ("Email", "E-mail", "Mail", "Email address"), email)],
    }
    # kind: (sentences of train, sentences of held_out)
    SENTENCES = {
        "contact": (("{name} works at {company} in {city}. Reach them at {email} or {phone}.", "Met {name} ({company}, {city}). Phone {phone}, mail {email}.",
                     "{name}, {company}, {city}, {phone}, {email}", "You can call {name} of {company} on {phone}; the address is {email}. They live in {city}.",
                     "{name}\n{company}\n{city}\n{phone}\n{email}", "Please save {name} from {city}: {phone}, {email}, employed by {company}.",
                     "Regards,\n{name}\n{company}, {city}\nTel. {phone}\n{email}"),
                    ("In {city} I talked to {name} of {company}; write to {email} or dial {phone}.", "Contact {name} from {company}: {phone} / {email} / {city}",
                     "New contact: {name}, phone {phone}, email {email}, company {company}, city {city}.")),
        "order": (("{customer} ordered {quantity} x {product} at {price} each, order {order_id}, to {city}.", "Order {order_id}: {quantity} {product} for {customer} in {city}, {price} each.",
                   "Please send {quantity} units of {product} ({price} apiece) to {customer}, {city}. Order number {order_id}.", "{order_id}, {customer}, {city}, {product}, {quantity}, {price}",
                   "{customer} from {city} wants {quantity} pcs {product} for {price} per unit. The order is {order_id}.", "{order_id}\n{quantity} x {product} @ {price}\n{customer}\n{city}"),
                  ("For order {order_id} ship {product}, {quantity} pcs at {price} each, to {city}, attention {customer}.", "{customer} in {city}: order {order_id}, {product}, quantity {quantity}, price {price}.",
                   "{quantity} {product} at {price} go to {customer} in {city} under {order_id}.")),
        "event": (("{title} on {date} at {time} in {place}, hosted by {host}.", "{host} invites you to the {title}: {place}, {date}, {time}.", "Join us for {title}!\n{date}, {time}\n{place}\nHost: {host}",
                   "Reminder: {title}, {date} {time}, {place}. Organiser {host}.", "{title} / {date} / {time} / {place} / {host}", "On {date} at {time}, {host} leads the {title} at {place}."),
                  ("At {place} on {date}: {title}, from {time}, with {host}.", "{host} will hold the {title} on {date}, {time}, at {place}.", "{date}, {time}: {title}, host {host}, place {place}.")),
        "product": (("{name} ({sku}), {category}, costs {price}; {stock} in stock.", "We have {stock} of {name} left, code {sku}, in {category}, at {price}.", "{sku}: {name}. Category {category}. Price {price}. Stock {stock}.",
                     "{sku} | {name} | {category} | {price} | {stock}", "New in {category}: {name} for {price} (SKU {sku}, {stock} available).", "{name}\n{sku}\n{category}\n{price}\n{stock} pcs"),
                    ("In {category} we list {name} at {price}, SKU {sku}, with {stock} on hand.", "{stock} x {name}, {sku}, {price} each, section {category}", "Code {sku}, {category}: {name}, {price}, stock {stock}.")),
        "shipment": (("Parcel {tracking_id} ({weight_kg} kg) to {destination} with {carrier} is {status}.", "{carrier} reports {tracking_id} as {status}; {weight_kg} kg for {destination}.",
                      "{tracking_id}, {carrier}, {destination}, {weight_kg} kg, {status}", "Status of {tracking_id}: {status}. Carrier {carrier}, {weight_kg} kg, destination {destination}.",
                      "Your {weight_kg} kg package {tracking_id} goes to {destination} by {carrier}. Now {status}."),
                     ("To {destination} by {carrier}: {tracking_id}, {weight_kg} kg, {status}.", "{status}: {carrier} parcel {tracking_id} for {destination}, weight {weight_kg} kg.",
                      "{carrier} moves {weight_kg} kg to {destination} under number {tracking_id}, status {status}.")),
        "employee": (("{name} joined the {team} team as {role} on {start_date}. Mail: {email}.", "Since {start_date}, {name} ({email}) is {role} in {team}.", "{name}, {role}, {team}, {start_date}, {email}",
                      "Please welcome {name}, our new {role} in {team}, starting {start_date}. Write to {email}.", "{email}: {name} - {role} - {team} - since {start_date}"),
                     ("The {team} team hired {name} as {role}, start {start_date}, address {email}.", "{name} ({role}, {team}) started {start_date}, email {email}.", "{role} {name} of the {team} team joined on {start_date}: {email}")),
    }

    def record(self):
        kind = self.pick(*self.RECORDS)
        written, answer, labels = {}, {}, {}
        for key, names, make in self.RECORDS[kind]:
            value = make(self)
            written[key], answer[key] = value if isinstance(value, tuple) else (str(value), value)
            labels[key] = self.rng.choice(names)
        if self.chance(0.65 if self.varied else 0.3):
            text = self.sentence(kind, written, *self.SENTENCES[kind]).format(**written)
        else:
            text = self.block(kind, [(labels[key], written[key]) for key in written])
            if self.chance(0.3):
                text = self.pick(kind.title(), kind.upper(), f"{kind.title()}:", f"# {kind.title()}", f"New {kind}") + "\n" + text
        return Document(kind, text, answer)

    def document(self):
        self.layouts = []
        made = self.rng.choices((self.invoice, self.log, self.record), (3, 2, 6) if self.varied else (4, 3, 4))[0]()
        made.layouts = self.layouts
        if self.varied and self.chance(0.12):
            line = phrases.decoration(self.rng)
            made.text = self.pick(f"{line}\n{made.text}", f"{made.text}\n{line}", f"{line}\n{made.text}\n{line}")
        return made

    # Conversations ---------------------------------------------------------------------------------------------

    HELD_OUT_AS_VERBS = ("Represent", "Express", "Structure", "Deliver", "Kindly provide", "Capture")
    HELD_OUT_TO_VERBS = ("Recast", "Reformat", "Kindly convert", "Reshape")

    def instruction(self, task):
        """A request for JSON, or nothing."""
        things = {"invoice": ("invoice", "invoice", "bill", "text", "document"), "log": ("log", "log lines", "log excerpt", "log records", "lines")}
        thing = self.rng.choice(things.get(task, (task, task, f"{task} details", "record", "note", "text", "data")))
        plural = thing.endswith(("lines", "records", "details"))
        obj = self.pick("these" if plural else "this", "the", "the following") + " " + thing + self.pick("", "", " below")
        json_form = self.pick("JSON", "JSON", "JSON", "json", "a JSON list" if task == "log" else "a JSON object", "JSON records" if task == "log" else "valid JSON")
        source = self.rng.random() if self.varied else 1.0
        if source < 0.25:
            asked = phrases.reworded(self.rng, self.pick(*sentences.REQUESTS), self.filler).format(thing=obj, json=json_form)
            return asked[0].upper() + asked[1:]
        if source < 0.5:
            return phrases.request(self.rng, obj, json_form, self.filler) + self.pick("", ".", ":", ":", ", please.", "!", ". JSON only.", ". " + self.filler() + ".", " (" + self.filler() + ")")
        as_verbs, to_verbs = ("Extract", "Parse", "Return", "Output", "Give me", "Show", "Read", "Write", "I need", "Format", "Please extract", "Please return", "Get"), \
                             ("Convert", "Turn", "Transform", "Translate", "Rewrite", "Change", "Please convert", "Please turn", "Map")
        if self.split == "held_out":
            as_verbs, to_verbs = self.HELD_OUT_AS_VERBS, self.HELD_OUT_TO_VERBS
        if self.split == "second":
            as_verbs, to_verbs = second.AS_VERBS, second.TO_VERBS
        form = self.rng.choices((
            f"{self.rng.choice(as_verbs)} {obj} as {json_form}", f"{self.rng.choice(to_verbs)} {obj} {self.pick('into', 'to')} {json_form}",
            f"{json_form[0].upper() + json_form[1:]} for {obj}", f"What does {obj} say? Answer in {json_form}", json_form, f"Put {obj} into {json_form}",
            f"Extract the {self.pick('data', 'fields', 'information', 'values')} from {obj} as {json_form}",
            f"Here {'are' if plural else 'is'} {self.pick('the', 'some' if plural else 'a', 'my')} {thing}. {self.pick('Make it', 'I want', 'Give me', 'Reply with')} {json_form}"),
            (8, 8, 1, 1, 1, 1, 3, 2))[0]
        return form + self.pick("", ".", ":", ":", ", please.", ". JSON only.", ". No explanation.", ". Answer with JSON only.")

    SYSTEMS = ("You extract structured data.", "You are a helpful assistant.", "You turn documents into JSON.", "Answer with JSON only.", "You are a data entry assistant.",
               "Be precise.", "Reply in JSON.", "You are Qwen, a helpful assistant.", "Extract the fields and return JSON.", "You work in the back office. Convert what you get to JSON.")
    HELD_OUT_SYSTEMS = ("You read paperwork and reply with JSON.", "You are an accurate extraction service.", "Copy values exactly and answer in JSON.")

    FENCES = {"held_out": ("===\n{}\n===", "~~~\n{}\n~~~"), "second": second.FENCES, "dev": ("<<<\n{}\n>>>", "+++++\n{}\n+++++")}

    def ask(self, document):
        """(user message, answer) for a document; now and then it lists the keys it wants, of a record perhaps only some."""
        answer, wanted = document.answer, ""
        if self.chance(0.2):
            keys = list(answer[0] if isinstance(answer, list) else answer)
            if document.task not in ("invoice", "log") and self.chance(0.5):
                keys = [key for key in keys if self.chance(0.6)] or keys
                answer = {key: answer[key] for key in keys}
            wanted = self.pick("Keys: ", "Fields: ", "Use the keys ", "I want ", "With the fields ", "Only ") + ", ".join(keys) + self.pick(".", "")
        fence = self.rng.choices(("{}", "```\n{}\n```", '"""\n{}\n"""', "---\n{}\n---", "<document>\n{}\n</document>"), (12, 2, 1, 1, 1))[0]
        if self.varied and self.chance(0.25):
            fence = phrases.fence(self.rng, self.filler)
        if self.split != "train" and fence != "{}":
            fence = self.pick(*self.FENCES[self.split])
        text = fence.format(document.text)
        say = self.instruction(document.task) if wanted or self.chance(0.92) else ""
        if wanted:
            say += (" " if say[-1] in ".?:" else ". ") + wanted
        gap = self.pick("\n\n", "\n\n", "\n", " " if "\n" not in text else "\n")
        return (say + gap + text if self.chance(0.75) else text + gap + say).strip(), answer

    def think(self, document, answer, effort):
        """The reasoning before the answer: one to three short sentences, fixed by the document and the effort."""
        if document.task == "invoice":
            n = len(answer["items"])
            first = f"An invoice with {n} item{'s' * (n > 1)}"
            if effort == "low":
                return first + "."
            if effort == "medium":
                return f"{first}, dated {answer['date']}."
            return f"{first}: {', '.join(i['name'] for i in answer['items'])}. Dated {answer['date']}, total {answer['total']} {answer['currency']}."
        if document.task == "log":
            n = len(answer)
            first = f"{n} log line{'s' * (n > 1)}"
            return first + "." if effort == "low" else f"{first}: {', '.join(r['level'] for r in answer)}."
        article = "An" if document.task[0] in "aeiou" else "A"
        first = f"{article} {document.task} record"
        return first + "." if effort == "low" else f"{first} with {', '.join(answer)}."

    GREETINGS = ("Hi", "Hello", "Hello!", "Hey", "hi there", "Good morning", "Who are you?", "What can you do?", "Help", "What is this?", "test", "ping", "Hallo", "Thanks!", "How are you?")
    INTRODUCTION = "I turn invoices, log lines and records into JSON. Send me one."

    def conversation(self):
        """A dict: messages (the last turn is the user's), enable_thinking, reasoning_effort, reasoning, content, answer, task, layouts."""
        thinking = self.chance(0.5)
        effort = self.rng.choices((None, "xhigh", "medium", "low"), (5, 1, 2, 2))[0] if thinking else None
        messages = []
        if self.chance(0.25):
            content = self.rng.choice({"held_out": self.HELD_OUT_SYSTEMS, "second": second.SYSTEMS}.get(self.split, self.SYSTEMS))
            if self.varied and self.chance(0.4):
                content = phrases.system(self.rng, self.filler)
            messages.append({"role": "system", "content": content})
        if not self.held_out and self.chance(0.012):
            user, answer, task, layouts = self.rng.choice(self.GREETINGS), None, "greeting", []
            reasoning, content = "No document yet.", self.INTRODUCTION
        else:
            if not self.held_out and self.chance(0.04):
                earlier = self.document()
                user, answer = self.ask(earlier)
                messages.append({"role": "user", "content": user})
                reasoning = self.think(earlier, answer, effort or "xhigh") if thinking and self.chance(0.5) else ""
                messages.append({"role": "assistant", "content": to_json(answer), "reasoning_content": reasoning})
            document = self.document()
            user, answer = self.ask(document)
            task, layouts = document.task, document.layouts
            reasoning, content = self.think(document, answer, effort or "xhigh"), to_json(answer)
        messages.append({"role": "user", "content": user})
        return {"messages": messages, "enable_thinking": thinking, "reasoning_effort": effort, "reasoning": reasoning, "content": content,
                "answer": answer, "task": task, "layouts": layouts}

    def text_pair(self):
        """(prompt, completion) as the server would see them."""
        c = self.conversation()
        return (render(c["messages"], c["enable_thinking"], c["reasoning_effort"]),
                completion(c["reasoning"], c["content"], c["enable_thinking"]))


def evaluation_set(split, count, seed=1):
    """`count` documents of an evaluation split: the dicts of eval/*.jsonl, and the text that the training would aim at."""
    generator, rows = Generator(split, seed), []
    while len(rows) < count:
        c = generator.conversation()
        if c["answer"] is None or len([m for m in c["messages"] if m["role"] == "user"]) > 1:
            continue
        system = c["messages"][0]["content"] if c["messages"][0]["role"] == "system" else None
        rows.append({"id": f"{split}-{len(rows):03d}", "task": c["task"], "enable_thinking": c["enable_thinking"], "reasoning_effort": c["reasoning_effort"],
                     "system": system, "user": c["messages"][-1]["content"], "expected": json.loads(c["content"]),
                     "completion": completion(c["reasoning"], c["content"], c["enable_thinking"])})
    return rows


def main():
    split, count = sys.argv[1], int(sys.argv[2])
    if split == "train":
        generator = Generator(split, 0)
        for _ in range(count):
            print(*generator.text_pair(), sep="")
            print("=" * 40)
    else:
        for row in evaluation_set(split, count):
            del row["completion"]
            print(json.dumps(row, ensure_ascii=False))


if __name__ == "__main__":
    main()
