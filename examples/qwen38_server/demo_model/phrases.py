# SPDX-License-Identifier: Apache-2.0
"""Running text made up clause by clause, so that no two training documents need share a sentence.

A field has several cues; a sentence takes one cue for each field, in any order, with filler words between. The
hand-written sentences of documents.py stay as they are: this is the variety that a list of templates cannot give.
"""

# key: how a value may stand in a sentence; within one kind of record no cue fits two fields.
CUES = {
    "contact": {
        "name": ("{}", "this is {}", "my name is {}", "we met {}", "ask for {}", "the person is {}", "meet {}", "{} here", "I saw {}", "Mr or Mrs {}", "greet {}"),
        "company": ("of {}", "who works for {}", "from the firm {}", "({})", "on behalf of {}", "at {}", "whose employer is {}", "represents {}", "with {}"),
        "phone": ("phone {}", "call {}", "ring {}", "tel {}", "reachable on {}", "the number is {}", "{}", "mobile {}", "text {}"),
        "email": ("mail {}", "send mail to {}", "email {}", "{}", "drop a line to {}", "reply to {}", "their inbox is {}"),
        "city": ("in {}", "from {}", "based in {}", "near {}", "living in {}", "moved to {}", "the town is {}", "({})")},
    "order": {
        "order_id": ("order {}", "order number {}", "no. {}", "reference {}", "{}", "(order {})", "PO {}", "it is booked as {}"),
        "customer": ("for {}", "{} ordered", "ordered by {}", "by {}", "{} wants", "the customer is {}", "{} asked for", "{} buys", "sold to {}"),
        "product": ("{}", "the item {}", "product {}", "article: {}", "the goods are {}", "namely {}", "[{}]"),
        "quantity": ("{} x", "{} pcs", "{} units", "quantity {}", "{} pieces", "qty {}", "exactly {}"),
        "price": ("at {} each", "{} apiece", "{} per unit", "price {}", "costing {}", "unit price {}", "({} each)", "each for {}", "@ {}"),
        "city": ("to {}", "in {}", "deliver to {}", "shipped to {}", "near {}", "the destination is {}", "bound for {}")},
    "event": {
        "title": ("{}", "the {}", "there will be a {}", "come to the {}", "welcome to the {}", "our {}", "subject: {}", "we plan a {}"),
        "date": ("on {}", "{}", "the day is {}", "dated {}", "it is set for {}", "when: {}"),
        "time": ("at {}", "{}", "starting {}", "from {}", "doors open {}", "begins {}", "{} sharp"),
        "place": ("in {}", "at {}", "the venue is {}", "meet in {}", "place: {}", "inside {}", "next to {}"),
        "host": ("hosted by {}", "by {}", "your host is {}", "with {}", "organiser {}", "{} leads", "run by {}", "ask {}")},
    "product": {
        "name": ("{}", "the {}", "a {}", "product {}", "we sell {}", "[{}]", "called {}", "item: {}"),
        "sku": ("code {}", "SKU {}", "({})", "{}", "part number {}", "listed as {}", "article no {}"),
        "category": ("in {}", "under {}", "category {}", "group {}", "filed as {}", "belongs to {}", "type {}"),
        "price": ("for {}", "at {}", "costs {}", "price {}", "{} each", "sells for {}", "now {}"),
        "stock": ("{} in stock", "stock {}", "{} left", "{} available", "we have {}", "{} pcs ready", "count {}")},
    "shipment": {
        "tracking_id": ("parcel {}", "tracking {}", "{}", "package {}", "number {}", "(ref {})", "consignment {}", "your shipment {}"),
        "carrier": ("with {}", "by {}", "via {}", "carrier {}", "{} carries", "sent by {}", "handled by {}"),
        "destination": ("to {}", "for {}", "bound for {}", "destination {}", "going to {}", "heads for {}", "towards {}"),
        "weight_kg": ("{} kg", "weighs {} kg", "({} kg)", "of {} kg", "weight {} kg", "at {} kg", "a {} kg box"),
        "status": ("is {}", "status {}", "now {}", "currently {}", "state: {}", "it was {}", "marked as {}", "[{}]")},
    "employee": {
        "name": ("{}", "welcome {}", "our colleague {}", "this is {}", "{} here", "meet {}", "we employ {}", "named {}"),
        "role": ("as {}", "is {}", "works as {}", "role {}", "job: {}", "a {}", "position {}"),
        "team": ("in {}", "team {}", "for the {} team", "department {}", "part of {}", "joined {}", "with the {} team"),
        "start_date": ("since {}", "from {}", "starting {}", "began on {}", "first day {}", "on {}", "as of {}"),
        "email": ("mail {}", "({})", "{}", "write to {}", "email {}", "reach them at {}", "contact {}")},
    "invoice": {
        "n": ("invoice {}", "number {}", "bill {}", "no. {}", "invoice no {}", "document {}", "reference {}", "(invoice {})"),
        "c": ("for {}", "to {}", "customer {}", "sold to {}", "{} owes", "{} bought", "billed to {}", "dear {}", "client: {}"),
        "d": ("on {}", "of {}", "dated {}", "{}", "issued {}", "date {}", "as of {}", "written on {}")},
}
JOINS = (", ", ", ", ", ", " ", " ", "; ", ". ", " - ", ",\n", "\n", " / ", " | ", " and ")
OPENINGS = ("", "", "", "Note: ", "Hello, ", "Please ", "Dear all, ", "FYI: ", "New: ", "Update: ", "Well, ", "As agreed, ", "Today ", "Good morning! ")
CLOSINGS = ("", "", ".", ".", "!", " Thanks.", ". Best regards", ". See you", ", as discussed.", ". OK?")
# Lines of decoration and fences are made of these. The held-out fences repeat = and ~, so training never does.
SYMBOLS = "-*#+_.:^%&@!?/\\|<>$§°•·—–…→✓★☐😀📦🚚"
FENCES = "-*#+_.:^%&@!?/|<>$§°•·—"


def sentence(rng, kind, keys, word):
    """A template with a {key} for every key; `word()` gives filler words."""
    keys = list(keys)
    rng.shuffle(keys)
    out = rng.choice(OPENINGS) if rng.random() < 0.8 else word().capitalize() + rng.choice((": ", ", ", " "))
    join = rng.choice(JOINS) if rng.random() < 0.4 else None
    for i, key in enumerate(keys):
        cue = rng.choice(CUES[kind][key]).replace("{}", "{" + key + "}")
        between = join or rng.choice(JOINS)
        # A bare value or a filler word needs a mark before it, or nobody could say where the value before it ends.
        filler = rng.random() < 0.12
        if between in (" ", " and ") and (filler or cue[0] in "{[("):
            between = ", "
        if filler:
            cue = f"{word()}: {cue}" if cue[0] in "{[(" else f"{word()} {cue}"
        out += between * (i > 0) + cue
    out += rng.choice(CLOSINGS)
    return out[0].upper() + out[1:] if out[0] != "{" and rng.random() < 0.7 else out


def decoration(rng):
    """A line of symbols: one repeated, or a few mixed."""
    if rng.random() < 0.4:
        return "".join(rng.choice(SYMBOLS + "=~") for _ in range(rng.randint(2, 5))) + "."
    return rng.choice(SYMBOLS) * rng.randint(1, 12)


def fence(rng):
    """A template that puts a document between two lines."""
    mark = rng.choice(FENCES) * rng.randint(2, 8)
    return mark + "\n{}\n" + (mark if rng.random() < 0.8 else mark[::-1] + rng.choice(FENCES))
