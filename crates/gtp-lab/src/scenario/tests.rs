//! Good files, bad files with what is said of them, and sweeps.

use super::*;
use crate::scenario::model::{Event, NodeKind, Reach};
use gtp_alloc::{Bytes, Rate};
use gtp_link::Policer;
use proptest::prelude::*;

const GOOD: &str = r#"
title = "All there is"
level = "packet"
duration = "10s"
seed = 7
law = "endnode"
interval = "50ms"

[endnode]
alpha = 0.15
beta = 0.2

[emulator]
seed = 3
tick = "50us"

[[host]]
name = "src"
count = 2
capacity_out = ["1Gbit", "100Mbit"]
clock_skew = "-50ppm"
namespace = "ns"
address = "10.0.0.1/24"

[[host]]
name = "dst"
capacity_in = { from = "500Mbit", to = "600Mbit" }
coalesce = "100us"

[[switch]]
name = "sw"

[[link]]
name = "core"
from = "sw"
to = "dst"
duplex = true
rate = "700Mbit"
delay = "10ms"
queue = "20ms"
loss = "0.1%"
burst = { enter = "0.1%", leave = "25%" }
reorder = { chance = "1%", extra = "3ms" }
policer = { rate = "100Mbit", bucket = "10ms" }
[[link.change]]
at = "2s"
rate = "300Mbit"

[[link]]
name = "wire"
delay = "1ms"

[[route]]
from = "src*"
to = "dst"
links = ["wire", "core"]

[[route]]
from = "dst"
to = "src*"
links = ["wire"]

[[path]]
name = "relay"
listen = "127.0.0.1:5001"
target = "127.0.0.1:4810"
up = ["wire"]
down = ["wire", "core"]

[[session]]
name = "a"
source = "src*"
sink = "dst"
stagger = "1s"
lasts = "5s"
size = "1GiB"
demand = "50Mbit"
weight = 2
[[session.change]]
at = "3s"
demand = "unlimited"

[[session]]
name = "b"
source = "src1"
sink = "dst"
path = "relay"
count = 3

[[session]]
name = "c"
source = "src2"
sink = "dst"
rtt = "30ms"

[[background]]
source = "src1"
sink = "dst"
kind = "pareto"
rate = "100Mbit"
on = "500ms"
off = "500ms"

[[fault]]
at = "4s"
for = "1s"
kind = "link-down"
link = "core*"

[[fault]]
at = "5s"
for = "1s"
kind = "pause"
host = "dst"

[output]
every = "10ms"
curves = 8
"#;

/// What a file of this text says, or why it is refused.
pub(in crate::scenario) fn read(text: &str) -> Result<Scenario, Refusal> {
    Document::parse("file.toml", text)?.scenario(Overrides::default())
}

#[test]
fn a_good_file_is_read_whole() {
    let scenario = read(GOOD).expect("good");
    assert_eq!((scenario.seed, scenario.law), (7, LawName::EndNode));
    let names: Vec<_> = scenario.nodes.iter().map(|n| n.name.as_str()).collect();
    assert_eq!(names, ["src1", "src2", "dst", "sw"]);
    let NodeKind::Host(dst) = &scenario.nodes[2].kind else { panic!("a host") };
    assert!((500_000_000..=600_000_000).contains(&dst.capacity_in.as_bps()));
    assert_eq!(dst.coalesce, Span::from_micros(100));
    let links: Vec<_> = scenario.links.iter().map(|l| l.name.as_str()).collect();
    assert_eq!(links, ["core", "core-back", "wire"]);
    assert_eq!(scenario.links[1].ends, Some((2, 3)));
    assert_eq!(scenario.links[0].spec.queue, Bytes(1_750_000));
    let policer = Policer { rate: Rate::from_mbps(100), bucket: Bytes(125_000) };
    assert_eq!(scenario.links[0].spec.policer, Some(policer));
    assert_eq!(scenario.routes.len(), 4);
    let sessions: Vec<_> = scenario.sessions.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(sessions, ["a1", "a2", "b1", "b2", "b3", "c"]);
    let a2 = &scenario.sessions[1];
    assert_eq!((a2.source, a2.start, a2.stop), (1, Span::from_secs(1), Some(Span::from_secs(6))));
    assert_eq!(a2.demand_at(Span::from_secs(2)), Rate::from_mbps(50));
    assert!(a2.demand_at(Span::from_secs(3)).is_unlimited());
    assert_eq!(scenario.sessions[2].reach, Reach::Path(0));
    assert_eq!(scenario.paths[0].forth, [2, 0]);
    assert_eq!(scenario.sessions[5].reach, Reach::Wire(Span::from_millis(30)));
    // The link's change and both directions' downs and ups, and the pause, in order of time.
    let times: Vec<_> = scenario.events.iter().map(|(at, _)| at.as_millis()).collect();
    assert_eq!(times, [2_000, 2_000, 4_000, 4_000, 5_000, 5_000, 5_000]);
    assert!(scenario.events.iter().any(|(_, e)| *e == Event::Pause(2, Span::from_secs(1))));
}

/// Replaces one piece of the good file; gives the refusal and the line of the piece.
fn refusal(from: &str, to: &str) -> (String, usize) {
    let place = GOOD.find(from).unwrap_or_else(|| panic!("{from:?} is in the file"));
    let line = GOOD[..place].matches('\n').count() + 1;
    let refused = read(&GOOD.replacen(from, to, 1)).expect_err(to);
    assert!(matches!(refused, Refusal::Input(_)), "{refused}");
    (refused.to_string(), line)
}

#[test]
fn bad_files_are_answered_with_the_line_and_what_was_expected() {
    let cases = [
        ("rate = \"700Mbit\"", "rate = 700", "`rate` is the number 700, expected a rate such as"),
        ("rate = \"700Mbit\"", "rate = \"700\"", "a bare number is refused, give its unit"),
        ("rate = \"700Mbit\"", "rate = \"0Mbit\"", "it must be more than zero"),
        (
            "delay = \"10ms\"",
            "dealy = \"10ms\"",
            "unknown key `dealy` in [[link]]: did you mean `delay`?",
        ),
        ("loss = \"0.1%\"", "loss = \"101%\"", "may not exceed 100%"),
        ("loss = \"0.1%\"", "loss = \"0.1\"", "a share such as 1%"),
        (
            "level = \"packet\"",
            "level = \"packets\"",
            "expected \"packet\" or \"rate\"; did you mean \"packet\"?",
        ),
        (
            "law = \"endnode\"",
            "law = 3",
            "`law` is the number 3, expected \"grant\" or \"endnode\"",
        ),
        ("seed = 7", "seed = -1", "a whole number from 0"),
        ("seed = 7", "seed = \"7\"", "`seed` is \"7\", expected a whole number"),
        ("seed = 7", "sed = 7", "unknown key `sed` in the scenario: did you mean `seed`?"),
        ("alpha = 0.15", "alpha = 1.5", "`alpha` is the number 1.5, expected a number from"),
        (
            "links = [\"wire\", \"core\"]",
            "links = [\"wire\", \"cor\"]",
            "no link \"cor\": did you mean \"core\"?",
        ),
        ("name = \"wire\"", "name = \"core\"", "a second link of the name \"core\""),
        ("name = \"sw\"", "name = \"s*w\"", "cannot be a name"),
        ("from = \"sw\"", "from = \"swich\"", "no host or switch \"swich\""),
        (
            "source = \"src1\"\nsink = \"dst\"\npath",
            "source = \"sw\"\nsink = \"dst\"\npath",
            "is a switch; only hosts",
        ),
        ("path = \"relay\"", "path = \"rely\"", "no path \"rely\": did you mean \"relay\"?"),
        ("path = \"relay\"", "path = \"relay\"\nrtt = \"1ms\"", "`path` and `rtt` say the same"),
        ("lasts = \"5s\"", "lasts = \"5s\"\nstop = \"9s\"", "say the same: keep one"),
        ("lasts = \"5s\"", "lasts = \"0s\"", "would stop before it starts"),
        ("kind = \"link-down\"", "kind = \"link-dwon\"", "did you mean \"link-down\"?"),
        ("kind = \"pareto\"", "kind = \"onof\"", "did you mean \"onoff\"?"),
        ("at = \"4s\"", "ta = \"4s\"", "[[fault]] has no `at`"),
        ("link = \"core*\"", "link = \"x*\"", "no link \"x*\""),
        ("from = \"500Mbit\", to", "from = \"700Mbit\", to", "goes from more to less"),
        ("every = \"10ms\"", "every = \"1ns\"", "points to a curve"),
        ("weight = 2", "weight = 0", "`weight` is the number 0, expected a number from 0.001"),
        ("count = 3", "count = 3.5", "expected a whole number from 1"),
        ("duplex = true", "duplex = \"yes\"", "`duplex` is \"yes\", expected true or false"),
        ("[[switch]]", "[switch]", "expected tables headed [[switch]]"),
        ("law = \"endnode\"", "law = \"endnode\"\npath_bound = \"of\"", "did you mean \"off\"?"),
        ("title = \"All there is\"", "title = \"All", "file.toml:2:"),
        ("duration = \"10s\"", "duration = \"0s\"", "from 1ms to 24h"),
    ];
    check_refusals(&cases);
}

#[test]
fn misspelt_keys_that_are_missed_and_numbers_that_cannot_be_meant_are_refused() {
    let cases = [
        (
            "rate = \"700Mbit\"",
            "rte = \"700Mbit\"",
            "unknown key `rte` in [[link]]: did you mean `rate`?",
        ),
        ("name = \"sw\"", "nme = \"sw\"", "unknown key `nme` in [[switch]]: did you mean `name`?"),
        ("[[host]]\nname = \"src\"", "[[hots]]\nname = \"src\"", "unknown key `hots`"),
        ("[[host]]\nname = \"dst\"", "[[hosst]]\nname = \"dst\"", "did you mean `host`?"),
        ("[[switch]]", "[[swicth]]", "unknown key `swicth` in the scenario: did you mean"),
        ("duration = \"10s\"", "duraton = \"10s\"", "did you mean `duration`?"),
        ("delay = \"10ms\"", "delay = \"10ms\"\nmtu = \"0B\"", "a size from 68B to 65535B"),
        ("delay = \"10ms\"", "delay = \"10ms\"\nmtu = \"64KiB\"", "a size from 68B to 65535B"),
        ("bucket = \"10ms\"", "bucket = \"119us\"", "lets no full packet pass"),
        ("bucket = \"10ms\"", "bucket = \"1499B\"", "1500 at least"),
        (", bucket = \"10ms\"", "", "[policer] has no `bucket`"),
        ("delay = \"10ms\"", "delay = \"2h\"", "a time of at most 1h"),
        ("interval = \"50ms\"", "interval = \"0s\"", "a time from 100us to 1min"),
        ("interval = \"50ms\"", "interval = \"1ns\"", "a time from 100us to 1min"),
        ("coalesce = \"100us\"", "coalesce = \"9h\"", "a time of at most 1h"),
        ("namespace = \"ns\"", "mtu = \"0B\"", "a size from 576B to 65535B"),
    ];
    check_refusals(&cases);
}

#[test]
fn numbers_beyond_what_anything_takes_are_refused_with_their_value_and_what_is_allowed() {
    let stagger = "stagger = \"1s\"";
    let pareto = "kind = \"pareto\"";
    let cases = [
        (stagger, "start = \"25h\"", "`start` is \"25h\", expected a time of at most 24h"),
        (stagger, "start = \"-1s\"", "`start` is \"-1s\", expected a time"),
        (stagger, "start = nan", "`start` is the number NaN, expected a time"),
        (stagger, "start = { from = \"0s\", to = \"25h\" }", "`to` is \"25h\", expected a time of"),
        (stagger, "start = [\"1s\", \"25h\"]", "`start` is \"25h\", expected a time of at most"),
        (stagger, "stagger = \"25h\"", "`stagger` is \"25h\", expected a time of at most 24h"),
        (stagger, "stagger = \"-1s\"", "`stagger` is \"-1s\""),
        (stagger, "start = \"20h\"\nstagger = \"5h\"", "session \"a2\" would start at 90000 s"),
        ("lasts = \"5s\"", "stop = \"25h\"", "`stop` is \"25h\", expected a time of at most 24h"),
        ("lasts = \"5s\"", "lasts = \"25h\"", "`lasts` is \"25h\", expected a time of at most"),
        ("lasts = \"5s\"", "stop = \"1s\"", "at 1 s, and it starts at 1 s"),
        (
            "size = \"1GiB\"",
            "size = \"0B\"",
            "`size` is \"0B\", expected a size from 1B to 1024TiB",
        ),
        ("size = \"1GiB\"", "size = \"1025TiB\"", "`size` is \"1025TiB\", expected a size from"),
        ("size = \"1GiB\"", "size = \"-1GiB\"", "`size` is \"-1GiB\", expected a size"),
        ("size = \"1GiB\"", "size = 1e300", "`size` is the number 1e300, expected a size"),
        ("demand = \"50Mbit\"", "demand = \"1001Tbit\"", "it may not exceed 1000Tbit"),
        ("weight = 2", "weight = nan", "`weight` is the number NaN, expected a number from"),
        ("weight = 2", "unit = \"63B\"", "`unit` is \"63B\", expected a size from 64B to 8900B"),
        ("weight = 2", "wire = \"2h\"", "`wire` is \"2h\", expected a time of at most 1h"),
        ("rtt = \"30ms\"", "rtt = \"2h\"", "`rtt` is \"2h\", expected a time of at most 1h"),
        (
            "rtt = \"30ms\"",
            "window = \"0B\"\nprotocol = \"reno\"\nrtt = \"30ms\"",
            "`window` is \"0B\", expected a size from 1B to 1TiB",
        ),
        ("seed = 7", "seed = 99999999999999999999", "`seed` is the number 1e20, expected a whole"),
        ("rate = \"700Mbit\"", "rate = \"1001Tbit\"", "it may not exceed 1000Tbit"),
        (
            "queue = \"20ms\"",
            "queue = \"2h\"",
            "`queue` is \"2h\", expected a size of at most 1TiB",
        ),
        ("queue = \"20ms\"", "queue = \"2TiB\"", "`queue` is \"2TiB\", expected a size of at most"),
        ("leave = \"25%\"", "leave = \"0%\"", "`leave` is \"0%\", expected a share above 0%"),
        ("bucket = \"10ms\"", "bucket = \"2TiB\"", "`bucket` is \"2TiB\", expected a size of"),
        ("at = \"2s\"", "at = \"8761h\"", "`at` is \"8761h\", expected a time of at most 8760h"),
        ("at = \"3s\"", "at = \"25h\"", "`at` is \"25h\", expected a time of at most 24h"),
        ("at = \"4s\"", "at = \"25h\"", "`at` is \"25h\", expected a time of at most 24h"),
        ("for = \"1s\"", "for = \"0s\"", "`for` is \"0s\", expected a time above 0s"),
        ("for = \"1s\"", "for = \"25h\"", "`for` is \"25h\", expected a time above 0s"),
        (
            pareto,
            "kind = \"pareto\"\npacket = \"27B\"",
            "`packet` is \"27B\", expected a size from",
        ),
        (pareto, "kind = \"pareto\"\nstart = \"25h\"", "`start` is \"25h\""),
        (
            pareto,
            "stop = \"4s\"\nstart = \"5s\"\nkind = \"pareto\"",
            "`stop` is \"4s\", expected a time from `start` to 24h",
        ),
        ("off = \"500ms\"", "off = \"25h\"", "`off` is \"25h\", expected a time of at most 24h"),
        ("every = \"10ms\"", "every = \"0s\"", "`every` is \"0s\", which gives 10000000000 points"),
        ("every = \"10ms\"", "every = \"11s\"", "`every` is \"11s\", which gives 0 points"),
        (
            "policer = {",
            "red_max = \"1kB\"\nrouter = \"red\"\npolicer = {",
            "`red_min` is 291666 bytes and `red_max` 1000",
        ),
    ];
    check_refusals(&cases);
}

/// Each is a piece of the good file, what it becomes, and a part of what is said then.
fn check_refusals(cases: &[(&str, &str, &str)]) {
    let mut wrong = Vec::new();
    for &(from, to, expected) in cases {
        let (said, line) = refusal(from, to);
        if !said.contains(expected) {
            wrong.push(format!("{from} -> {to}:\n{said}"));
        }
        // Complaints about a table as a whole stand at its head, those about a value at its line.
        let at: usize = said.split(':').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
        assert!(at > 0 && (at <= line + 1), "{from} -> {to}: line {line}:\n{said}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_range_at_its_key_is_sent_to_the_sweep() {
    for (from, to) in [
        ("seed = 7", "seed = \"1..7\""),
        ("delay = \"10ms\"", "delay = \"1ms..9ms step 1ms\""),
        ("delay = \"10ms\"", "delay = { from = \"1ms\", to = \"9ms\" }"),
        ("demand = \"50Mbit\"", "demand = \"1Mbit..9Mbit\""),
    ] {
        let (said, _) = refusal(from, to);
        assert!(said.contains("a range to sweep over stands in [sweep]"), "{to}:\n{said}");
    }
    let (said, _) = refusal("delay = \"10ms\"", "delay = \"10\"");
    assert!(!said.contains("sweep"), "{said}");
}

#[test]
fn a_complaint_shows_the_place_itself() {
    let (said, _) = refusal("rate = \"700Mbit\"", "rate = 700");
    assert!(said.starts_with("file.toml:38:8: `rate` is"), "{said}");
    assert!(said.ends_with("\n   |\n38 | rate = 700\n   |        ^^^"), "{said}");
    for impossible in ["0s", "8000h"] {
        let (said, _) = refusal("duration = \"10s\"", &format!("duration = \"{impossible}\""));
        assert!(said.starts_with("file.toml:4:12: `duration` is"), "{said}");
    }
}

#[test]
fn a_scenario_without_sessions_or_duration_is_refused() {
    let said = read("duration = \"1s\"").expect_err("no sessions").to_string();
    assert!(said.contains("no `session`"), "{said}");
    assert!(read("").expect_err("empty").to_string().contains("no `duration`"));
}

#[test]
fn the_same_seed_draws_the_same_and_another_other_things() {
    let of = |seed| {
        let overrides = Overrides { seed: Some(seed), level: None };
        Document::parse("f", GOOD).and_then(|d| d.scenario(overrides)).expect("good").nodes
    };
    assert_eq!(of(1), of(1));
    assert!((2..20).any(|seed| of(seed) != of(1)));
}

fn swept(sweep: &str) -> Result<Swept, Refusal> {
    let document = Document::parse("f.toml", &format!("{GOOD}\n[sweep]\n{sweep}\n"))?;
    document.cases(Overrides::default())
}

#[test]
fn a_sweep_makes_every_combination_and_the_last_key_varies_fastest() {
    let text = "seed = \"1..3\"\nlaw = [\"grant\", \"endnode\"]\n\
                link.core.delay = \"10ms..30ms step 10ms\"";
    let swept = swept(text).expect("a sweep");
    assert_eq!(swept.count(), 18);
    let values: Vec<_> = (0..18).map(|n| swept.case(n).values.join(" ")).collect();
    assert_eq!(&values[..4], ["1 grant 10ms", "1 grant 20ms", "1 grant 30ms", "1 endnode 10ms"]);
    assert_eq!(values[17], "3 endnode 30ms");
    let document = Document::parse("f.toml", &format!("{GOOD}\n[sweep]\n{text}\n")).expect("TOML");
    let last = document.case(&swept.case(17), Overrides::default()).expect("a scenario");
    assert_eq!((last.seed, last.links[0].spec.delay), (3, Span::from_millis(30)));
}

#[test]
fn swept_values_come_as_lists_ranges_and_steps() {
    let made = |text: &str| {
        let swept =
            swept(&format!("x = {text}").replace("x =", "\"session.c.rtt\" =")).expect(text);
        (0..swept.count()).map(|n| swept.case(n).values[0].clone()).collect::<Vec<_>>()
    };
    assert_eq!(made("[\"5ms\", \"1s\"]"), ["5ms", "1s"]);
    assert_eq!(made("\"1ms..2ms step 0.5ms\""), ["1.0ms", "1.5ms", "2.0ms"]);
    assert_eq!(
        made("{ from = \"1ms\", to = \"100ms\", steps = 3, spacing = \"log\" }"),
        ["1ms", "10ms", "100ms"]
    );
    assert_eq!(made("{ from = \"0ms\", to = \"10ms\", steps = 3 }"), ["0ms", "5ms", "10ms"]);
}

#[test]
fn bad_sweeps_are_refused_before_anything_runs() {
    let cases = [
        ("sed = \"1..3\"", "unknown key `sed`"),
        ("link.cor.delay = [\"1ms\"]", "did you mean \"core\"?"),
        ("link.core.dealy = [\"1ms\"]", "did you mean `delay`?"),
        ("link.core = [1]", "expected a table [[link]]"),
        ("link = [1]", "is a list of tables"),
        ("seed = 3", "expected a list, a range"),
        ("seed = \"3..1\"", "upwards, by a step above zero"),
        ("seed = \"1..1000000\"", "too many values"),
        ("seed = \"1..9 step 0\"", "upwards, by a step above zero"),
        ("link.core.delay = \"1ms..9ms\"", "with a unit it needs a step"),
        ("link.core.delay = \"1ms..9s step 1ms\"", "ends and step have one unit"),
        ("seed = []", "sweeps 0 values"),
        ("seed = \"-3..3\"", "expected a list, a range"),
        ("seed = [3, -1]", "`seed` is the number -1, expected a whole number from 0"),
        ("seed = [nan]", "`seed` is the number NaN, expected a whole number from 0"),
        ("seed = [1e300]", "`seed` is the number 1e300, expected a whole number from 0"),
        ("seed = \"9007199254740993..9007199254740999\"", "at most 9007199254740992"),
        ("seed = { from = 1, to = nan, steps = 3 }", "`to` is the number NaN, expected a number"),
        ("seed = { from = 1, to = 3, steps = 1 }", "`steps` is the number 1, expected a whole"),
        ("session.a.start = [\"0s\", \"25h\"]", "`start` is \"25h\", expected a time of at most"),
        ("session.a.stagger = \"1h..30h step 1h\"", "`stagger` is \"25h\", expected a time of"),
        ("session.a.size = { from = \"0B\", to = \"8B\", steps = 2 }", "`size` is \"0B\""),
        ("session.b.count = [1, 200000]", "sessions are too many"),
        ("seed = \"1..9000\"\ninterval = \"1ms..100ms step 1ms\"", "more than 100000 combinations"),
        ("level = [\"packet\", \"flow\"]", "`level` is \"flow\""),
        ("seed.x = [1]", "beyond a single value"),
    ];
    for (text, expected) in cases {
        let said = swept(text).expect_err(text).to_string();
        assert!(said.contains(expected), "{text}:\n{said}");
        assert!(said.starts_with("f.toml:"), "{said}");
    }
}

#[test]
fn what_a_file_would_make_too_much_of_is_refused() {
    let cases = [
        (
            "source = \"src1\"\nsink = \"dst\"\nkind",
            "source = \"src*\"\nsink = \"dst\"\nkind",
            "\"src*\" stands for 2 hosts: a background flow joins two, name one",
        ),
        ("on = \"500ms\"", "on = \"1us\"", "shorter than a packet takes at `rate`"),
        ("count = 3", "count = 131071", "131073 sessions are too many"),
        ("count = 3", "count = 4194304", "level = \"packet\" takes 131072 at most"),
        ("count = 3", "count = 4194305", "a whole number from 1 to 4194304"),
    ];
    for (from, to, expected) in cases {
        let (said, _) = refusal(from, to);
        assert!(said.contains(expected), "{from} -> {to}:\n{said}");
    }
}

#[test]
fn changes_of_demand_are_bounded_over_all_sessions() {
    let many = "[[session.change]]\nat = \"1s\"\ndemand = \"none\"\n".repeat(5);
    let text = format!(
        "duration = \"1s\"\nlevel = \"rate\"\n[[host]]\nname = \"a\"\n[[host]]\n\
         name = \"b\"\n[[session]]\nsource = \"a\"\nsink = \"b\"\nrtt = \"1ms\"\n\
         count = 2000000\n{many}"
    );
    let said = read(&text).expect_err("ten million").to_string();
    assert!(said.contains("more than 8388608 changes of all sessions' demands"), "{said}");
}

#[test]
fn a_run_with_too_many_points_is_refused_before_anything_is_made() {
    let text = "duration = \"1000s\"\n[output]\nevery = \"1ms\"\n[[host]]\nname = \"a\"\n\
                [[host]]\nname = \"b\"\n[[session]]\nsource = \"a\"\nsink = \"b\"\n\
                rtt = \"1ms\"\ncount = 12\n";
    // Twelve sessions alone would fit; each has a wire of two links.
    let scenario = read(text).expect("a scenario");
    let refused = crate::course::run(&scenario, &mut |_| {}).expect_err("36 curves");
    assert!(refused.to_string().contains("1000000 points for each of 36 sessions"), "{refused}");
}

proptest! {
    #[test]
    fn no_text_breaks_the_reader(text in "[a-z\\[\\]\"=.0-9{}, \n]{0,200}") {
        let _ = read(&text);
    }

    #[test]
    fn no_change_of_one_piece_breaks_the_reader(
        from in 0..GOOD.len(),
        length in 0usize..30,
        put in "[a-zA-Z0-9\"\\[\\]{}=.,% \n*-]{0,12}",
    ) {
        let mut text = GOOD.to_owned();
        text.replace_range(from..(from + length).min(GOOD.len()), &put);
        if let Err(refused) = read(&text) {
            let said = refused.to_string();
            prop_assert!(said.starts_with("file.toml:"), "{}", said);
        }
    }
}
