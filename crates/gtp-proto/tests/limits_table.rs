//! The specification's table of limits against the constants that enforce them.
//!
//! Both are read as text, so that crates above this one and private constants are covered too.

use std::fs;
use std::path::Path;

const CORE: &str = "gtp-proto/src/limits.rs";
const WIRE: &str = "gtp-proto/src/wire.rs";
const MESSAGES: &str = "gtp-net/src/messages/limits.rs";
const CONTROL: &str = "gtp-net/src/control/mod.rs";
const ADMISSION: &str = "gtp-net/src/server/admission.rs";
const BUDGET: &str = "gtp-net/src/server/budget.rs";
const WALKS: &str = "gtp-net/src/server/walks.rs";
const LIST: &str = "gtp-net/src/server/list.rs";
const NAME: &str = "gtp-store/src/name.rs";
const CARRIER: &str = "gtp-net/src/engine/carrier.rs";
const TICKET: &str = "gtp-net/src/ticket.rs";
const USED_TICKETS: &str = "gtp-net/src/server/used_tickets.rs";
const FETCHED: &str = "gtp-net/src/messages/fetch.rs";
const RELAYED: &str = "gtp-net/src/messages/relay.rs";
const RELAYING: &str = "gtp-net/src/server/relay/take.rs";
const PROBE: &str = "gtp-net/src/probe/plan.rs";
const IN_STEP: &str = "gtp-proto/src/in_step/mod.rs";
const PROBED: &str = "gtp-net/src/server/probed.rs";

/// Each row with its constants, in the order of its numbers; a factor turns the constant's unit
/// into the table's.
type Row = (&'static str, &'static [(&'static str, &'static str, f64)]);

const ROWS: &[Row] = &[
    (
        "window of a stream",
        &[(MESSAGES, "STREAM_WINDOW_LEAST", 1.0), (MESSAGES, "STREAM_WINDOW_MOST", 1.0)],
    ),
    ("memory promised to the streams of a host", &[(MESSAGES, "STREAMS_MEMORY", 1.0)]),
    ("name of a service", &[(MESSAGES, "SERVICE_MAX", 1.0)]),
    (
        "bytes of a stream that wait to be sent for the first time",
        &[(MESSAGES, "STREAM_UNSENT", 1.0)],
    ),
    (
        "rate of a probe; bytes of its frames; its length; probes of a server at a time",
        &[
            (PROBE, "RATE_MOST_BPS", 1.0),
            (PROBE, "FRAME_LEAST", 1.0),
            (PROBE, "FRAME_MOST", 1.0),
            (PROBE, "SPAN_LEAST_MS", 0.001),
            (PROBE, "SPAN_MOST_MS", 0.001),
            (PROBED, "AT_ONCE", 1.0),
        ],
    ),
    ("parts of a frame in step", &[(IN_STEP, "PARTS_MOST", 1.0)]),
    (
        "time for which a ticket holds; sessions that it opens; time of one; clocks apart",
        &[
            (TICKET, "TICKET_SECONDS_MOST", 1.0),
            (USED_TICKETS, "SESSIONS_OF_TICKET", 1.0),
            (TICKET, "TICKET_SESSION_SECONDS_MOST", 1.0),
            (TICKET, "CLOCK_SKEW_SECONDS", 1.0),
        ],
    ),
    (
        "tickets remembered of one signer; in all",
        &[(USED_TICKETS, "TICKETS_OF_SIGNER", 1.0), (USED_TICKETS, "TICKETS", 1.0)],
    ),
    ("sources of a fetch for others", &[(FETCHED, "FETCH_SOURCES_MAX", 1.0)]),
    (
        "blocks of an object that is relayed; memory for one, and for what each other sink says",
        &[
            (RELAYED, "RELAY_BLOCKS_MAX", 1.0),
            (RELAYING, "BLOCK_MEMORY", 1.0),
            (RELAYING, "OFFER_MEMORY", 1.0),
        ],
    ),
    (
        "sinks of an object that is relayed; ranges of blocks in a message",
        &[(RELAYED, "RELAY_SINKS_MAX", 1.0), (RELAYED, "RELAY_RANGES_MAX", 1.0)],
    ),
    ("units in a row", &[(CORE, "MAX_UNITS", 1.0)]),
    (
        "unit payload",
        &[(CORE, "UNIT_MINIMUM", 1.0), (CORE, "UNIT_ETHERNET", 1.0), (CORE, "UNIT_JUMBO", 1.0)],
    ),
    ("bodies but data and hellos", &[(WIRE, "MAX_CONTROL_BODY", 1.0)]),
    ("ranges in a request", &[(CORE, "RANGES_PER_REQUEST", 1.0)]),
    ("loss map", &[(CORE, "LOSS_MAP_BYTES", 1.0), (CORE, "LOSS_MAP_BYTES", 8.0)]),
    (
        "gaps in a receipt; full receipts waiting",
        &[(CORE, "GAPS_PER_FEEDBACK", 1.0), (CORE, "RECEIPTS_WAITING", 1.0)],
    ),
    // Written there as twice the row after the next.
    ("packet numbers in a receipt", &[(CORE, "PN_AHEAD", 2.0)]),
    (
        "a carried datagram; those that wait to be sent; those that came and wait",
        &[
            (CARRIER, "CARRIED_MOST", 1.0),
            (CARRIER, "QUEUE_BYTES", 1.0),
            (CARRIER, "CONTENT_BYTES", 1.0),
            (CARRIER, "CONTENT_SPAN", 1.0),
            (CARRIER, "INBOUND_BYTES", 1.0),
        ],
    ),
    ("requests unaccepted", &[(CORE, "REQUEST_WINDOW", 1.0)]),
    ("pieces queued at a source", &[(CORE, "QUEUED_PIECES", 1.0)]),
    ("gaps remembered", &[(CORE, "GAPS_REMEMBERED", 1.0)]),
    ("packet number ahead", &[(CORE, "PN_AHEAD", 1.0)]),
    ("grants remembered per session", &[(CORE, "GRANTS_OUTSTANDING", 1.0)]),
    ("times of sending remembered", &[(CORE, "CHECKPOINTS", 1.0)]),
    (
        "weight of strangers; of listed keys",
        &[(ADMISSION, "WEIGHT_OF_STRANGERS", 1e-3), (ADMISSION, "WEIGHT_OF_LISTED", 1e-3)],
    ),
    ("factor of a weight believed, least", &[(CORE, "PEER_WEIGHT_LEAST", 1.0)]),
    ("factor of a weight that gives way on the path, most", &[(CORE, "WEIGHT_LOW", 1.0)]),
    (
        "steps of the end-node law, least; most",
        &[(CORE, "STEP_LEAST", 1.0), (CORE, "STEP_MOST", 1.0)],
    ),
    (
        "packets in the first round; growth in a round",
        &[(CORE, "INITIAL_PACKETS", 1.0), (CORE, "RAMP_FACTOR", 1.0)],
    ),
    ("burst in bytes; in time", &[(CORE, "BURST_BYTES", 1.0), (CORE, "BURST_SPAN", 1.0)]),
    (
        "caught up at once; made good slowly",
        &[(CORE, "CATCH_UP", 1.0), (CORE, "ARREARS_MOST", 1.0)],
    ),
    (
        "control interval, shortest; longest; after a change",
        &[(CORE, "INTERVAL_MIN", 1.0), (CORE, "INTERVAL_MAX", 1.0), (CORE, "RECOMPUTE_MIN", 1.0)],
    ),
    ("a session rests after", &[(CORE, "REST_AFTER", 1.0)]),
    ("hellos answered", &[(CORE, "HELLOS_ANSWERED", 1.0)]),
    ("round-trip time believed", &[(CORE, "RTT_MOST", 1.0)]),
    (
        "handshake on TCP, on UDP",
        &[(CONTROL, "OPENING_SPAN", 1.0), (CORE, "HANDSHAKE_TIMEOUT", 1.0)],
    ),
    (
        "first halving; stop and lease; end of session",
        &[(CORE, "LEASE_MIN", 1.0), (CORE, "SILENCE_STOP", 1.0), (CORE, "SESSION_TIMEOUT", 1.0)],
    ),
    ("frame; page", &[(MESSAGES, "FRAME_MAX", 1.0), (MESSAGES, "PAGE_FRAME_MAX", 1.0)]),
    (
        "entries; paths of a manifest",
        &[(MESSAGES, "ENTRIES_MAX", 1.0), (MESSAGES, "PATHS_MAX", 1.0)],
    ),
    ("memory for manifests, all sessions of a server", &[(MESSAGES, "LISTINGS_MEMORY", 1.0)]),
    (
        "names that one listing or walk holds by itself; bytes of shared names that it holds",
        &[(WALKS, "NAMES_EACH", 1.0), (BUDGET, "NAMES_MEMORY", 1.0)],
    ),
    // One page is being made, one waits and one is being sent.
    ("entries that wait for a client which lists", &[(LIST, "PAGE_ENTRIES", 3.0)]),
    (
        "listings of one listed key; of all strangers together: one part in",
        &[
            ("gtp-net/src/server/budget.rs", "PARTS", 1.0),
            ("gtp-net/src/server/budget.rs", "PARTS", 1.0),
        ],
    ),
    (
        "files that a source says it fails at once it has described the object",
        &[("gtp-net/src/client/link.rs", "FAULTS_MAX", 1.0)],
    ),
    (
        "connections whose client has proved no key or said nothing",
        &[
            (ADMISSION, "unproved", 1.0),
            (ADMISSION, "unproved_per_address", 1.0),
            (CONTROL, "OPENING_SPAN", 1.0),
        ],
    ),
    (
        "clients",
        &[
            (ADMISSION, "connections", 1.0),
            // Strangers may be half of them.
            (ADMISSION, "connections", 0.5),
            (ADMISSION, "connections_per_address", 1.0),
            (ADMISSION, "sessions_per_key", 1.0),
        ],
    ),
    (
        "time from the listing to the first datagram of a client that fetches; without anything \
         sent to a stranger",
        &[
            ("gtp-net/src/server/get.rs", "HELLO_SPAN", 1.0),
            ("gtp-net/src/server/get.rs", "SLOWEST", 1e-3),
            ("gtp-net/src/server/occupancy.rs", "DOZING_SPAN", 1.0),
        ],
    ),
    ("search before `Opened`", &[(CONTROL, "ANSWER_SPAN", 1.0)]),
    ("content of an object", &[(MESSAGES, "CONTENT_MAX", 1.0)]),
    (
        "text for people; suites offered",
        &[(MESSAGES, "TEXT_MAX", 1.0), (MESSAGES, "SUITES_MAX", 1.0)],
    ),
    (
        "roots in a page; entries in a page",
        &[(MESSAGES, "ROOTS_PER_PAGE", 1.0), (MESSAGES, "ENTRIES_PER_PAGE", 1.0)],
    ),
    (
        "path; component; depth",
        &[(NAME, "MAX_PATH", 1.0), (NAME, "MAX_COMPONENT", 1.0), (NAME, "MAX_DEPTH", 1.0)],
    ),
    (
        "rate that one end is asked to decide by alone",
        &[(MESSAGES, "ALONE_RATE_LEAST", 1.0), (MESSAGES, "ALONE_RATE_MOST", 1.0)],
    ),
    (
        "sessions on a control channel; questions queued on it; those without an answer",
        &[
            (CONTROL, "SESSIONS_MAX", 1.0),
            ("gtp-net/src/flows/answer.rs", "QUESTIONS_MAX", 1.0),
            ("gtp-net/src/flows/questions.rs", "QUESTIONS_OPEN", 1.0),
        ],
    ),
    (
        "questions of one session whether its datagrams come",
        &[("gtp-net/src/server/path_questions.rs", "ANSWERED_MOST", 1.0)],
    ),
    (
        "one-way links of a router; engines that ask it; of one address; sessions of all; of one \
         address",
        &[
            (CORE, "ROUTER_LINKS", 1.0),
            (CORE, "ROUTER_HOSTS", 1.0),
            (CORE, "ROUTER_HOSTS_OF_ADDRESS", 1.0),
            (CORE, "ROUTER_SESSIONS", 1.0),
            (CORE, "ROUTER_SESSIONS_OF_ADDRESS", 1.0),
        ],
    ),
    (
        "weights that a router believes",
        &[(CORE, "ROUTER_WEIGHT_LEAST", 1.0), (CORE, "ROUTER_WEIGHT_MOST", 1.0)],
    ),
    (
        "datagrams to a router, or from it to one engine; in",
        &[(CORE, "ROUTER_BURST", 1.0), (CORE, "ROUTER_PAUSE", 1.0)],
    ),
    ("sessions in a datagram to or from a router", &[(CORE, "ROUTER_ENTRIES", 1.0)]),
    (
        "what is asked of a router is repeated after; the router is ignored, or the session \
         forgotten, after",
        &[(CORE, "ROUTER_REPEATS", 1.0), (CORE, "ROUTER_SILENCE", 1.0)],
    ),
    ("least rate that a router can hold a session to", &[(CORE, "ROUTER_LEAST", 1.0)]),
    ("a pass opens a router's table for", &[(CORE, "ROUTER_PASS", 1.0)]),
    ("bad blocks from one source", &[("gtp-net/src/client/get.rs", "BAD_BLOCKS_MAX", 1.0)]),
];

/// In the file of limits, and no limit of what a peer does: what a session claims of its own.
const OWN: [&str; 6] =
    ["ALONE_GROWS", "ALONE_LEAST", "DEMAND_FLOOR", "DEMAND_ALPHA", "DEMAND_HOLD", "RECEIPT_SPAN"];

fn crates() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// What a constant, or a field of a default, is set to, as its source says it.
fn expression(file: &str, name: &str) -> String {
    let text = fs::read_to_string(crates().join(file)).unwrap();
    if let Some(at) = text.find(&format!("const {name}: ")) {
        let (_, tail) = text[at..].split_once("= ").unwrap();
        return tail.split_once(';').unwrap().0.to_owned();
    }
    let head = format!(" {name}: ");
    let fields = text.match_indices(&head).map(|(at, _)| &text[at + head.len()..]);
    let mut set = fields.filter(|tail| tail.starts_with(|c: char| c.is_ascii_digit()));
    let tail = set.next().unwrap_or_else(|| panic!("no {name} in {file}"));
    tail.chars().take_while(|c| c.is_ascii_digit() || *c == '_').collect()
}

/// The value of a product, a shift, or a span of time in seconds.
fn value(expression: &str) -> f64 {
    let expression = match expression.strip_prefix("Bytes(") {
        Some(inner) => inner.trim_end_matches(')'),
        None => expression,
    };
    let word = expression.trim_end_matches(')').rsplit("::").next().unwrap();
    if let Some((unit, number)) = word.split_once('(') {
        let seconds = match unit {
            "from_secs" => 1.0,
            "from_millis" => 1e-3,
            "from_bps" => 1.0, // Bits per second stay what they are.
            other => panic!("{other} is not understood"),
        };
        return seconds * value(number);
    }
    if let Some((base, places)) = expression.split_once("<<") {
        return value(base) * value(places).exp2();
    }
    let number = |part: &str| part.trim().replace('_', "").parse::<f64>().unwrap();
    expression.split('*').map(number).product()
}

/// The numbers of a table's cell, in seconds, bytes or pieces. What follows a colon explains.
fn numbers(cell: &str) -> Vec<f64> {
    let mut found = Vec::new();
    let cell = cell.split(':').next().unwrap_or_default();
    for word in cell.split(|c: char| c.is_whitespace() || c == ';') {
        let plain = word.trim_end_matches(',').replace(',', "");
        let (base, power) = plain.split_once('^').unwrap_or((&plain, "1"));
        if let (Ok(base), Ok(power)) = (base.parse::<f64>(), power.parse()) {
            found.push(base.powi(power));
        } else if let Some(last) = found.last_mut() {
            *last *= match plain.as_str() {
                "ms" => 1e-3,
                "KiB" => 1024.0,
                "MiB" => 1024.0 * 1024.0,
                "GiB" => 1024.0 * 1024.0 * 1024.0,
                "min" => 60.0,
                _ => 1.0,
            };
        }
    }
    found
}

/// The first two cells of each row of the table.
fn table() -> Vec<(String, String)> {
    let text = fs::read_to_string(crates().join("../docs/PROTOCOL.md")).unwrap();
    let (_, section) = text.split_once("\n## 14. Limits\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| "));
    let cells = |line: &str| line.split('|').map(|c| c.trim().to_owned()).collect::<Vec<_>>();
    rows.skip(1).map(cells).map(|c| (c[1].clone(), c[2].clone())).collect()
}

#[test]
fn the_specification_states_every_limit_as_it_is_enforced() {
    let table = table();
    assert!(table.len() == ROWS.len(), "a row without constants, or constants without a row");
    for ((what, limit), (row, constants)) in table.iter().zip(sorted_as(&table)) {
        assert_eq!(what, row);
        let enforced: Vec<f64> = constants
            .iter()
            .map(|(f, name, factor)| value(&expression(f, name)) * factor)
            .collect();
        let stated = numbers(limit);
        assert_eq!(stated.len(), enforced.len(), "{what}: {limit}");
        for (stated, enforced) in stated.iter().zip(&enforced) {
            let near = (stated - enforced).abs() <= 1e-9 * enforced;
            assert!(near, "{what}: {stated} stated, {enforced} enforced");
        }
    }
}

/// The rows above in the order of the table.
fn sorted_as(table: &[(String, String)]) -> Vec<Row> {
    let row = |what: &str| {
        let found = ROWS.iter().find(|(row, _)| *row == what);
        *found.unwrap_or_else(|| panic!("the row \"{what}\" names no constant here"))
    };
    table.iter().map(|(what, _)| row(what)).collect()
}

#[test]
fn no_limit_of_the_core_is_missing_from_the_specification() {
    let text = fs::read_to_string(crates().join(CORE)).unwrap();
    let names: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("pub const ")?.split(':').next())
        .collect();
    assert!(names.len() > 20, "the constants are found");
    for name in names {
        let stated =
            ROWS.iter().any(|(_, c)| c.iter().any(|(file, n, _)| (*file, *n) == (CORE, name)));
        assert!(stated || OWN.contains(&name), "{name} has no row");
    }
}
