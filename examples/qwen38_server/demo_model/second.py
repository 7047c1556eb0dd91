# SPDX-License-Identifier: Apache-2.0
"""Words, sentences, fences and requests of a second held-out set.

They were written without sight of the training phrases (phrases.py) or of the first set's results. No word occurs in a
list of words.py, and no sentence, fence, request verb or system prompt occurs in documents.py.
"""
from words import word_lists

WORDS = word_lists("""
first: Alasdair Beatrix Caspian Delphine Esteban Freya Giacomo Hyacinth Ingeborg Jarmila Kwame Linnea Matthias Nkechi
first: Octavia Piotr Quincy Rafael Saoirse Tobias Uchenna Valentina Wilhelmina Xavier Ysolde Zainab Anaïs Zoltán
first: Mei-Lin D'Arcy
last: Ashworth Blackwood Cavendish Dlamini Engström Fairbanks Goldberg Hollingsworth Ibáñez Jørgensen Kowalczyk Lefèvre
last: Mbeki Norwood O'Connell Papadopoulos Quintero Rasmussen Sokolov Tremblay Ueda Villanueva Wainwright Xenakis Yeats
last: Zieliński Brännström D'Angelo Horváth MacAllister
company: Acorn Bluebird Cascade Driftwood Equinox Flint Glacier Heron Ibex Jasper Keystone Lagoon Mistral Nectar Osprey
company: Pinnacle Quasar Redwood Sequoia Tidewater Umber Vortex Wildflower Xenon Yonder Zodiac Amethyst Bramble Cyclone
company: Griffin
trade: Aerospace Apparel Bindery Biotech Cabinetry Cosmetics Couriers Distillery Drones Elevators Fisheries Flooring
trade: Genetics Glazing Joinery Knitwear Lumber Masonry Millwork Orchards Plating Publishing Quarries Refrigeration
trade: Tannery Vending
adjective: aluminium bamboo beige bevelled collapsible cordless denim engraved ergonomic frosted handmade heated
adjective: lightweight linen mahogany marbled nylon oval perforated pleated polished purple reversible rustic telescopic
adjective: turquoise vintage walnut wicker rose_gold
noun: apron awning backpack barometer bookend broom cauldron colander compass corkscrew crowbar doormat flask flute
noun: funnel gazebo grater hammock hourglass jigsaw kayak ladle lawnmower locket mandolin mousetrap nutcracker ottoman
noun: parasol pestle pitchfork satchel sieve skillet sundial tankard toaster trowel wheelbarrow wok
city: Adelaide Ålesund Bergen Bilbao Brisbane Cardiff Córdoba Dresden Eindhoven Fukuoka Glasgow Hanoi Istanbul Jyväskylä
city: Košice L'Aquila Liège Limerick Łódź Medellín Nagoya Palermo Poznań Saint-Étienne Stuttgart Trondheim Verona
city: Kuala_Lumpur Rio_de_Janeiro Stratford-upon-Avon
service: aggregator allocator annotator bidding booking broadcaster chat compactor compiler concierge donation enrichment
service: escrow exporter fingerprint firewall geofence ingress linter locator moderation poller pricing provisioner
service: recommender reconciler refund replicator sandbox thumbnail
word: aborted acknowledged allocation ambiguous appended assertion atomic backlog backoff banned benchmark binary bypassed
word: ceiling cipher cleanup collision compacted congested credential cursor cyclic daemon dangling deferred deprecated
word: descriptor diverged dormant dumped encrypted escalated fallback forked fragmented hash hydrated interrupted invoked
word: lagging lease mounted muted nonce offset overloaded paused payload pinned pruned purged resumed revoked sealed
word: segment serialized stalled starved suspended tombstone toggled trimmed unresolved
connector: around behind beneath beyond near within
role: archaeologist auctioneer beekeeper blacksmith bricklayer cartographer choreographer curator economist illustrator
role: interpreter locksmith paralegal physiotherapist receptionist sommelier statistician veterinarian
team: acquisitions admissions analytics benefits bookkeeping branding communications editorial estates fundraising
team: governance helpdesk infrastructure merchandising payroll reliability sustainability treasury
event: astronomy bonfire candlelight choral coastal culinary farewell film folk heritage inaugural jazz lakeside medieval
event: neighbourhood poetry sailing sculpture sunrise vegetarian
gathering: barbecue bootcamp breakfast carnival ceremony congress contest convention expo fundraiser hike jamboree
gathering: luncheon marathon mixer pageant regatta rehearsal retreat showcase
category: baking camping carpentry collectibles cookware cutlery drinkware fishing fitness glassware haberdashery luggage
category: perfumery rugs skincare souvenirs
carrier: ArrowPost BadgerFreight CondorExpress FleetFoot GazelleMail JackrabbitCargo KoalaPost LynxLine MercuryParcel
carrier: NarwhalHaul OtterDispatch PostNL
status: accepted airborne backordered confiscated detained diverted impounded misplaced picked_up partly_unloaded weighed
status: withdrawn
venue: Academy Atrium Barn Basilica Bistro Chalet Clubhouse Conservatory Fort Marquee Monastery Palace Pier Playhouse
venue: Racecourse Tavern Velodrome Opera_House Ice_Rink
street: Arcade Bypass Circus Close Drive Esplanade Grove Parkway Passage Yard
""")

SENTENCES = {
    "contact": (
        "You asked for someone in {city}: try {name} at {company}, whose number is {phone} and whose email is {email}.",
        "I met {name} at the trade show; the business card says {company}, {city}, and lists {email} and {phone}.",
        "{phone} is the direct line of {name}, who represents {company} out of {city} and answers mail sent to {email}."),
    "order": (
        "Hi, {customer} just phoned from {city} and would like {quantity} of the {product}, price per piece {price}; I filed it as order {order_id}.",
        "We still owe {customer} an answer on order {order_id}: {product}, unit price {price}, {quantity} pieces, delivery address in {city}.",
        "Under order reference {order_id} we will deliver {quantity} pieces of {product} to {city} next week, each costing {price}, and {customer} pays on arrival."),
    "event": (
        "Doors open at {time} on {date} for the {title}, which {host} is organising at {place}.",
        "Mark your calendar for {date}: {host} is putting on the {title} at {place}, and we begin at {time} sharp.",
        "Our next {title} takes place at {place} on {date}. Please arrive by {time} and ask for our host, {host}."),
    "product": (
        "We now carry the {name} in our {category} range; its item number is {sku}, it sells for {price}, and {stock} pieces are on the shelf.",
        "Customers keep asking for article {sku}: that is the {name} from the {category} aisle, priced at {price}, with {stock} left.",
        "Stock check: {stock} pieces of the {name} counted. It belongs to {category}, carries the code {sku} and retails at {price}."),
    "shipment": (
        "A quick update on {tracking_id}, the {weight_kg} kg parcel bound for {destination}: according to {carrier} it is now {status}.",
        "The current state of our consignment to {destination} is {status}. It weighs {weight_kg} kg, travels with {carrier} and can be followed under {tracking_id}.",
        "I looked up {tracking_id} on the {carrier} website: listed as {status}, {weight_kg} kg, addressed to {destination}."),
    "employee": (
        "Starting {start_date} you will find {name} in {team}, working as {role}; the address for messages is {email}.",
        "A warm welcome to {name}! Their job is {role}, their department is {team}, their first day was {start_date} and their mailbox is {email}.",
        "{email} is the mailbox of {name}, hired on {start_date} to fill the post of {role} in the {team} department."),
    "invoice": (
        "Here is what we charged {c} on {d}; the invoice number is {n}.",
        "This bill, no. {n}, was made out to {c} on {d}.",
        "Our invoice of {d} carries the number {n}; {c} is the customer.",
        "{c} received invoice {n} from us, written on {d}.",
        "Thank you for your purchase, {c}! We wrote it up as invoice {n} on {d}."),
}

FENCES = ("*****\n{}\n*****", "[begin]\n{}\n[end]")

AS_VERBS = ("Present", "Render", "Encode", "Send back", "Please supply", "Transcribe")
TO_VERBS = ("Restructure", "Transfer", "Distil", "Please rework")

SYSTEMS = ("Your job is to read business documents and hand back JSON.", "Act as a parser: the user sends text, you send JSON.",
           "You digitise office mail as JSON and keep every value as it is spelled.")
