# SPDX-License-Identifier: Apache-2.0
"""Running text, requests and fences made up piece by piece, so that no two training documents need share a sentence.

A field has several cues; a sentence takes one cue for each field, in any order, with filler words between. The
hand-written sentences of documents.py stay as they are: this is the variety that a list of templates cannot give.
"""
import unicodedata

# key: how a value may stand in a sentence; within one kind of record no cue fits two fields.
CUES = {
    "contact": {
        "name": ("to {}", "a {}", "{}", "{}", "this is {}", "my name is {}", "we met {}", "ask for {}", "the person is {}", "meet {}", "{} here", "I saw {}", "Mr or Mrs {}", "greet {}",
            "speaking to {}", "please note {}", "add {}", "{} is the one", "a word from {}", "regards from {}", "saw {} again"),
        "company": ("of {}", "of {}", "who works for {}", "from the firm {}", "({})", "on behalf of {}", "at {}", "whose employer is {}", "represents {}", "with {}",
            "works for {}", "sits at {}", "company: {}", "in the service of {}", "employed at {}", "of the {} group", "runs {}"),
        "phone": ("phone {}", "call {}", "ring {}", "tel {}", "reachable on {}", "the number is {}", "{}", "mobile {}", "text {}",
            "give them a call on {}", "phone no {}", "fax or phone {}", "at the number {}", "or ring {}", "just call {}", "cell {}"),
        "email": ("mail {}", "send mail to {}", "email {}", "{}", "drop a line to {}", "reply to {}", "their inbox is {}",
            "e-mail {}", "or mail {}", "mails go to {}", "at {}", "contact address {}", "message {}", "or answer to {}"),
        "city": ("in {}", "from {}", "based in {}", "near {}", "living in {}", "moved to {}", "the town is {}", "({})",
            "over in {}", "of {}", "city {}", "the office is in {}", "out of {}", "lives around {}", "town: {}")},
    "order": {
        "order_id": ("order {}", "order number {}", "no. {}", "reference {}", "{}", "(order {})", "PO {}", "it is booked as {}",
            "under number {}", "see {}", "as {}", "our ref {}", "with the number {}", "ticket {}", "on order {}"),
        "customer": ("with {}", "to {}", "for {}", "{} ordered", "ordered by {}", "by {}", "{} wants", "the customer is {}", "{} asked for", "{} buys", "sold to {}",
            "attn. {}", "c/o {}", "from {}", "on account of {}", "please serve {}", "{} needs", "{} takes"),
        "product": ("for {}", "with {}", "{}", "{}", "the item {}", "product {}", "article: {}", "the goods are {}", "namely {}", "[{}]",
            "we pack {}", "send {}", "of {}", "the thing is {}", "goods {}", "ship {} today", "contains {}"),
        "quantity": ("{} x", "{} pcs", "{} units", "quantity {}", "{} pieces", "qty {}", "exactly {}",
            "{} of them", "amount {}", "a count of {}", "{} in all", "number of pieces {}", "{} times", "x {}"),
        "price": ("at {}", "for {} each", "{} each", "at {} each", "{} apiece", "{} per unit", "price {}", "costing {}", "unit price {}", "({} each)", "each for {}", "@ {}",
            "priced {}", "one costs {}", "cost {}", "{} for one", "each one {}", "at a price of {}", "single price {}"),
        "city": ("to {}", "in {}", "deliver to {}", "shipped to {}", "near {}", "the destination is {}", "bound for {}",
            "towards {}", "ends up in {}", "city {}", "city: {}", "with delivery in {}", "over to {}", "the place is {}")},
    "event": {
        "title": ("for the {}", "a {}", "{}", "{}", "the {}", "there will be a {}", "come to the {}", "welcome to the {}", "our {}", "subject: {}", "we plan a {}",
            "title {}", "event {}", "we hold the {}", "do not miss the {}", "it is the {}", "this is the {}", "about the {}"),
        "date": ("on {}", "{}", "the day is {}", "dated {}", "it is set for {}", "when: {}",
            "date {}", "happening {}", "day: {}", "we meet on {}", "planned for {}", "mark {}", "this {}"),
        "time": ("until {}", "time is {}", "{}", "at {}", "{}", "starting {}", "from {}", "doors open {}", "begins {}", "{} sharp",
            "time {}", "at {} o'clock", "around {}", "from {} on", "kick-off {}", "be there by {}", "hour: {}"),
        "place": ("in {}", "at {}", "the venue is {}", "meet in {}", "place: {}", "inside {}", "next to {}",
            "location {}", "over at {}", "room: {}", "held in {}", "we use {}", "find us at {}", "the house is {}"),
        "host": ("and {}", "{} will be the host", "{}", "hosted by {}", "by {}", "your host is {}", "with {}", "organiser {}", "{} leads", "run by {}", "ask {}",
            "host: {}", "{} is in charge", "led by {}", "call {}", "chair {}", "thanks to {}", "the hostess or host is {}")},
    "product": {
        "name": ("of {}", "of the {}", "the {}", "{}", "the {}", "a {}", "product {}", "we sell {}", "[{}]", "called {}", "item: {}",
            "we offer {}", "we carry {}", "this is {}", "name {}", "look at the {}", "fresh in: {}", "order {}"),
        "sku": ("code {}", "SKU {}", "({})", "{}", "part number {}", "listed as {}", "article no {}",
            "no. {}", "sku: {}", "id {}", "with code {}", "ref {}", "the code is {}", "stock code {}"),
        "category": ("in the {} group", "among {}", "from {}", "in our {} group", "in {}", "under {}", "category {}", "group {}", "filed as {}", "belongs to {}", "type {}",
            "within {}", "section: {}", "kind {}", "sorted into {}", "listed under {}", "from the {} range", "shelf {}"),
        "price": ("for {}", "at {}", "costs {}", "price {}", "{} each", "sells for {}", "now {}",
            "priced at {}", "it is {}", "only {}", "to buy for {}", "tag {}", "a price of {}", "list price {}"),
        "stock": ("with {}", "{} pieces", "{} pcs", "{} in stock", "stock {}", "{} left", "{} available", "we have {}", "{} pcs ready", "count {}",
            "{} on the shelf", "quantity {}", "{} remaining", "still {}", "inventory {}", "{} to sell", "{} units here")},
    "shipment": {
        "tracking_id": ("parcel {}", "tracking {}", "{}", "package {}", "number {}", "(ref {})", "consignment {}", "your shipment {}",
            "no {}", "id {}", "under {}", "track it as {}", "the parcel is {}", "item {}", "code {}"),
        "carrier": ("by {}", "over {}", "with {}", "by {}", "via {}", "carrier {}", "{} carries", "sent by {}", "handled by {}",
            "on board {}", "{} has it", "{} brings", "{} takes it", "shipped by {}", "through {}", "{} delivers"),
        "destination": ("to {}", "for {}", "to {}", "for {}", "bound for {}", "destination {}", "going to {}", "heads for {}", "towards {}",
            "off to {}", "the goal is {}", "on to {}", "address: {}", "ends in {}", "delivery in {}", "arriving in {}"),
        "weight_kg": ("{} kg", "{} kg", "weight: {} kg", "weighing {} kg", "{} kg", "weighs {} kg", "({} kg)", "of {} kg", "weight {} kg", "at {} kg", "a {} kg box",
            "mass {} kg", "at a weight of {} kg", "{} kg heavy", "it is {} kg", "load {} kg", "with {} kg", "about {} kg"),
        "status": ("{}", "as {}", "to be {}", "it got {}", "is {}", "status {}", "now {}", "currently {}", "state: {}", "it was {}", "marked as {}", "[{}]",
            "at present {}", "stands at {}", "reported {}", "the status is {}", "seen as {}", "right now: {}", "last seen {}")},
    "employee": {
        "name": ("{}", "welcome {}", "our colleague {}", "this is {}", "{} here", "meet {}", "we employ {}", "named {}",
            "please greet {}", "a new face: {}", "say hello to {}", "staff: {}", "colleague {}", "ask {}", "there is {}"),
        "role": ("as {}", "as a {}", "the {}", "in the job of {}", "as {}", "is {}", "works as {}", "role {}", "job: {}", "a {}", "position {}",
            "our {}", "hired as {}", "the new {}", "post: {}", "in the role of {}", "who is {}", "acts as {}"),
        "team": ("the {} team", "their {} team", "in the {} department", "for {}", "of {}", "in {}", "team {}", "for the {} team", "department {}", "part of {}", "joined {}", "with the {} team",
            "of the {} team", "on team {}", "unit {}", "placed in {}", "sits with {}", "within {}", "helps the {} team"),
        "start_date": ("on {}", "start {}", "as from {}", "since {}", "from {}", "starting {}", "began on {}", "first day {}", "on {}", "as of {}",
            "started {}", "start: {}", "here from {}", "in service since {}", "on board since {}", "day one is {}", "came on {}"),
        "email": ("email: {}", "with the address {}", "mail {}", "({})", "{}", "write to {}", "email {}", "reach them at {}", "contact {}",
            "e-mail: {}", "at {}", "inbox {}", "mail goes to {}", "or {}", "address: {}", "online as {}")},
    "invoice": {
        "n": ("as {}", "{}", "invoice {}", "number {}", "bill {}", "no. {}", "invoice no {}", "document {}", "reference {}", "(invoice {})",
            "inv. {}", "no. {} is open", "here is {}", "our number {}", "under {}", "ref: {}", "the invoice {}"),
        "c": ("and {}", "with {}", "for {}", "to {}", "customer {}", "sold to {}", "{} owes", "{} bought", "billed to {}", "dear {}", "client: {}",
            "account {}", "in the name of {}", "from us to {}", "buyer {}", "the client is {}", "please pay, {}", "made out to {}"),
        "d": ("on {}", "of {}", "dated {}", "{}", "issued {}", "date {}", "as of {}", "written on {}",
            "sent {}", "from {}", "day {}", "invoiced on {}", "printed {}", "dating from {}", "drawn up on {}")},
}
JOINS = (", ", ", ", ", ", " ", " ", "; ", ". ", " - ", ",\n", "\n", " / ", " | ", " and ")
OPENINGS = ("", "", "", "Note: ", "Hello, ", "Please ", "Dear all, ", "FYI: ", "New: ", "Update: ", "Well, ", "As agreed, ", "Today ", "Good morning! ")
CLOSINGS = ("", "", ".", ".", "!", " Thanks.", ". Best regards", ". See you", ", as discussed.", ". OK?")
# Lines of decoration and fences are made of these.
SYMBOLS = "-*#+_.:^%&@!?/\\|<>$§°•·—–…→✓★☐😀📦🚚=~`;,(){}[]'\""
FENCES = "-*#+_.:^%&@!?/|<>$§°•·—=~`;"
AS_VERBS = ("Bring", "Print", "Write down", "List", "Export", "Summarise", "Record", "Note", "Describe", "Send", "Store", "Serialise", "Dump", "Type", "Collect",
            "Pull", "Take", "Report", "Copy", "Please give", "Could you write", "Can you return", "Would you show", "I would like", "We need", "Let me have",
            "Generate", "Produce", "Prepare", "Hand me", "Fetch", "Build", "Create", "Compile", "Save", "Emit", "Supply", "Display")
TO_VERBS = ("Make", "Bring", "Reduce", "Condense", "Boil", "Process", "Port", "Restate", "Put", "Cast", "Could you turn", "Can you convert", "Would you change",
            "Help me get", "Move", "Break", "Pack", "Form")
_SCRIPTS = "".join(c for low, high in ((0xA1, 0x17F), (0x391, 0x3CA), (0x410, 0x450), (0x5D0, 0x5EB), (0x3042, 0x3097), (0x4E00, 0x4E80), (0xAC00, 0xAC80), (0x1F600, 0x1F640))
                   for c in map(chr, range(low, high)) if unicodedata.normalize("NFC", c) == c and unicodedata.category(c) not in ("Cn", "Mn", "Cf"))


def foreign_word(rng):
    """One to five characters of any script: with them every byte of UTF-8 is copied now and then."""
    at = rng.randrange(len(_SCRIPTS))
    return "".join(_SCRIPTS[min(max(at + rng.randint(-20, 20), 0), len(_SCRIPTS) - 1)] for _ in range(rng.randint(1, 5)))


GLUE = ("the a we you they he she it have has had was were will would can could should may this that these those its our your their his her my me us them one all some any "
        "no not just only also now then here there today still again soon later never always often more much very good new old big long first last next same such well please "
        "thanks yes who which what when where how if because so but or let make made take took give gave find found see saw get got say said tell told think know want use keep "
        "kept put go went come came look ask need try call start help show bring brought leave left read wrote paid sent got done been being be do does did day week year time "
        "way man woman people thing place house world part number side line end life hand work case group question point fact office shop store desk team page box list note").split()
# Fields whose end anybody sees: names with capitals, numbers, codes, addresses. Free words may follow them without a mark.
OPEN_ENDED = {("order", "product"), ("product", "name"), ("product", "category"), ("shipment", "status"), ("employee", "role"), ("employee", "team"), ("event", "title")}


def fillers(rng, word, most=3):
    """A few words without meaning."""
    return " ".join(rng.choice(GLUE) if rng.random() < 0.6 else word() for _ in range(rng.randint(1, most)))


def sentence(rng, kind, keys, word):
    """A template with a {key} for every key; `word()` gives filler words."""
    keys = list(keys)
    rng.shuffle(keys)
    wordy = rng.choice((0.0, 0.15, 0.3, 0.6))
    out = rng.choice(OPENINGS) if rng.random() < 0.7 else fillers(rng, word, 5).capitalize() + rng.choice((": ", ", ", ". ", " - ", " "))
    join = rng.choice(JOINS) if rng.random() < 0.4 else None
    before = None
    for i, key in enumerate(keys):
        cue = rng.choice(CUES[kind][key]).replace("{}", "{" + key + "}")
        between = join or rng.choice(JOINS)
        bare = cue[0] in "{[("
        filler = rng.random() < wordy
        # A bare value needs a mark before it, or nobody could say where the value before it ends. So does a filler after
        # words that could go on with it.
        if between in (" ", " and ") and (bare or (filler and before in OPEN_ENDED)):
            between = ", "
        if filler:
            cue = f"{fillers(rng, word, 5).lower()}{': ' if bare else ' '}{cue}"
        if (kind, key) not in OPEN_ENDED and cue.endswith("}") and rng.random() < 0.5 * wordy:
            cue += " " + fillers(rng, word).lower()
        before = (kind, key) if cue.endswith("}") else None
        out += between * (i > 0) + cue
    out += rng.choice(CLOSINGS) if rng.random() < 0.85 else ", " + fillers(rng, word) + "."
    return out[0].upper() + out[1:] if out[0] != "{" and rng.random() < 0.7 else out


def reworded(rng, template, word):
    """A template, half the time with a few of its words changed; words beside a field stay, they say what it is."""
    if rng.random() < 0.5:
        return template
    words = template.split(" ")
    for i in range(1, len(words) - 1):
        if words[i].isalpha() and words[i].islower() and not any("{" in w for w in words[i - 1:i + 2]) and rng.random() < 0.3:
            words[i] = fillers(rng, word, 2).lower()
    return " ".join(words)


def request(rng, thing, json_form, word):
    """A request for JSON in words that no list holds: known or made-up verbs, and filler."""
    made_up = rng.random() < 0.4
    verb = fillers(rng, word) if made_up else None
    form = rng.randrange(6)
    if form <= 1:
        said = f"{verb or rng.choice(AS_VERBS)} {thing} {rng.choice(('as', 'as', 'in', 'using', 'like'))} {json_form}"
    elif form <= 3:
        said = f"{verb or rng.choice(TO_VERBS)} {thing} {rng.choice(('to', 'into', 'to', 'down to', 'over to'))} {json_form}"
    elif form == 4:
        said = f"{fillers(rng, word)} {json_form} {fillers(rng, word)}"
    else:
        said = f"{rng.choice(AS_VERBS + TO_VERBS)} {json_form} {rng.choice(('of', 'from', 'out of', 'for', 'with'))} {thing}"
    if rng.random() < 0.15:
        said = rng.choice(("Kind request: ", "Hello, ", "Please, ", "Task: ", "Now ", "Hi! ")) + said
    return said[0].upper() + said[1:] if rng.random() < 0.85 else said


def system(rng, word):
    """A system prompt of a few made-up or known words."""
    return rng.choice(("You are {}.", "You {} and {} JSON.", "{}. Use JSON.", "Be {}.", "Your task: {}", "You {} documents.", "Work {}. {}.", "You are a {} {}.", "{} with care.")).replace(
        "{}", fillers(rng, word), 1).replace("{}", fillers(rng, word))


HELD_OUT_LINES = ("===", "~~~", "*****")  # fences of the held-out sets


def repeated(rng, marks, most):
    """One of the marks, repeated."""
    line = rng.choice(marks) * rng.randint(1, most)
    return line + line[0] if line in HELD_OUT_LINES else line


def decoration(rng):
    """A line of symbols: one repeated, or a few mixed."""
    if rng.random() < 0.4:
        return "".join(rng.choice(SYMBOLS) for _ in range(rng.randint(2, 5))) + "."
    return repeated(rng, SYMBOLS, 12)


def fence(rng, word):
    """A template that puts a document between two lines."""
    if rng.random() < 0.35:
        name = fillers(rng, word)
        return rng.choice(("<{0}>\n{{}}\n</{0}>", "[{0}]\n{{}}\n[/{0}]", "BEGIN {0}\n{{}}\nEND {0}", "{0}:\n{{}}", "({0})\n{{}}\n(end)", "-- {0} --\n{{}}\n----", "# {0}\n{{}}",
                           "{0} follows.\n{{}}\nThat was it.", "`{{}}`", "<<{0}\n{{}}\n{0}")).format(name)
    mark = repeated(rng, FENCES, 8)
    return mark + "\n{}\n" + (mark if rng.random() < 0.8 else mark[::-1] + rng.choice(FENCES[:-3]))
