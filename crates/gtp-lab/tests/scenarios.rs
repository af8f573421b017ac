//! The example scenarios and the verbs that run them, as a user would.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn lab(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gtp-lab"));
    command.args(arguments).output().expect("gtp-lab runs")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn example(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/scenarios");
    root.join(name).display().to_string()
}

/// Runs an example and gives its summary.
fn summary(name: &str, more: &[&str]) -> serde_json::Value {
    let mut arguments = vec!["run".to_owned(), example(name), "--dry".into(), "--json".into()];
    arguments.extend(more.iter().map(|s| (*s).to_owned()));
    let output = lab(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(output.status.success(), "{}", said(&output));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

fn phases(summary: &serde_json::Value) -> &[serde_json::Value] {
    summary["phases"].as_array().expect("phases")
}

#[test]
fn five_to_one_gives_everybody_the_same_share_in_every_phase() {
    let summary = summary("five-to-one.toml", &[]);
    assert_eq!(phases(&summary).len(), 9);
    for phase in phases(&summary) {
        assert_eq!(phase["settled"], "yes", "{phase}");
        assert!(phase["settled_after"].as_f64().is_some_and(|after| after < 1.0), "{phase}");
        assert!(phase["worst"].as_f64().is_some_and(|worst| worst < 0.01), "{phase}");
    }
    let lost = summary["sessions"].as_array().expect("sessions").iter();
    assert!(lost.map(|s| &s["lost_packets"]).all(|lost| lost == 0));
}

#[test]
fn links_that_grant_are_at_max_min_in_a_few_round_trips() {
    let summary = summary("links-grant.toml", &[]);
    assert_eq!(phases(&summary).len(), 2);
    for phase in phases(&summary) {
        // Four round trips of the long way, and what they overfilled.
        assert!(phase["settled_after"].as_f64().is_some_and(|after| after <= 0.4), "{phase}");
        for share in phase["shares"].as_array().expect("shares") {
            let (wanted, got) = (share["wanted"].as_f64(), share["got"].as_f64());
            assert!(got > wanted.map(|w| 0.99 * w) && got < wanted.map(|w| 1.01 * w), "{share}");
        }
    }
}

#[test]
fn border_gateways_share_out_their_links_max_min_and_lose_nothing() {
    let summary = summary("border-gateways.toml", &[]);
    let phases = phases(&summary);
    assert_eq!(phases.len(), 5);
    // All but the phase in which the router of the west is ignored, and the second before it.
    for phase in [&phases[0], &phases[1], &phases[4]] {
        assert!(phase["settled_after"].as_f64().is_some_and(|after| after < 1.5), "{phase}");
        assert!(phase["worst"].as_f64().is_some_and(|worst| worst < 0.01), "{phase}");
    }
    let of = |phase: usize, what: &str| phases[phase][what].as_f64().expect("a number");
    assert!(of(2, "worst") < 0.01, "rates stay in the first second");
    assert!(of(3, "got") > 0.9 * of(3, "wanted"), "the path is used without the router");
    let lost = summary["sessions"].as_array().expect("sessions").iter();
    assert!(lost.map(|s| &s["lost_packets"]).all(|lost| lost == 0));
}

#[test]
fn five_to_five_comes_to_the_global_shares() {
    let summary = summary("five-to-five.toml", &[]);
    let [phase] = phases(&summary) else { panic!("one phase: {summary}") };
    assert_eq!((&phase["settled"], &phase["sessions"]), (&"yes".into(), &26.into()));
}

#[test]
fn a_hidden_bottleneck_is_found_and_shared() {
    let mut jain = Vec::new();
    for seed in ["1", "2", "3", "4", "5"] {
        let summary = summary("hidden-bottleneck.toml", &["--seed", seed]);
        for phase in phases(&summary) {
            // Nobody told anybody of the link: a tenth is what its sessions may miss.
            let (wanted, got) = (phase["wanted"].as_f64(), phase["got"].as_f64());
            assert!(got > wanted.map(|w| 0.9 * w) && got <= wanted, "{phase}");
            jain.push(phase["jain"].as_f64().expect("an index"));
        }
    }
    // docs/PATH.md says how far strangers are from equal shares: a microsecond decides which of the
    // two takes the other's queue for a rival's, so a single run shows nothing.
    let mean = jain.iter().sum::<f64>() / jain.len() as f64;
    assert!(mean > 0.85, "{jain:?}");
}

#[test]
fn in_the_churn_every_session_moves_its_size() {
    let summary = summary("churn.toml", &[]);
    let sessions = summary["sessions"].as_array().expect("sessions");
    assert_eq!(sessions.len(), 16);
    assert!(sessions.iter().all(|s| s["ending"] == "done"), "{summary:#}");
}

#[test]
fn a_thousand_hosts_settle_at_the_rate_level() {
    let summary = summary("large-rate.toml", &[]);
    let [phase] = phases(&summary) else { panic!("one phase") };
    assert_eq!(phase["settled"], "yes", "{}", phase["worst"]);
    assert!(phase["worst"].as_f64().is_some_and(|worst| worst < 0.01), "{}", phase["worst"]);
}

#[test]
fn the_same_file_runs_at_both_levels_and_gives_the_same_shares() {
    let rates = summary("five-to-one.toml", &["--level", "rate"]);
    let packets = summary("five-to-one.toml", &["--seed", "3"]);
    for (rate, packet) in phases(&rates).iter().zip(phases(&packets)) {
        assert_eq!(rate["wanted"], packet["wanted"]);
        let (a, b) =
            (rate["got"].as_f64().expect("a rate"), packet["got"].as_f64().expect("a rate"));
        assert!((a / b - 1.0).abs() < 0.01, "{a} {b}");
    }
}

#[test]
fn a_run_writes_a_page_figures_and_data_and_the_same_ones_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = |to: &str| {
        let out: PathBuf = dir.path().join(to);
        let out = out.display().to_string();
        let file = dir.path().join("two.toml");
        std::fs::write(&file, TWO).expect("written");
        let output = lab(&["run", &file.display().to_string(), "--out", &out, "--csv", "--json"]);
        assert!(output.status.success(), "{}", said(&output));
        let mut files: Vec<(String, Vec<u8>)> = std::fs::read_dir(&out)
            .expect("a directory")
            .map(|entry| entry.expect("an entry").path())
            .map(|path| {
                (
                    path.file_name().expect("a name").to_string_lossy().into_owned(),
                    std::fs::read(&path).expect("read"),
                )
            })
            .collect();
        files.sort();
        files
    };
    let (first, second) = (run("a"), run("b"));
    assert_eq!(first, second);
    let names: Vec<_> = first.iter().map(|(name, _)| name.as_str()).collect();
    let expected = [
        "two-distance.svg",
        "two-jain.svg",
        "two-links.csv",
        "two-queues.svg",
        "two-rates.csv",
        "two-rates.svg",
        "two.html",
        "two.json",
    ];
    assert_eq!(names, expected);
}

const TWO: &str = r#"
duration = "2s"
[[host]]
name = "src"
count = 2
[[host]]
name = "dst"
capacity_in = "20Mbit"
[[link]]
name = "access"
rate = "30Mbit"
delay = "5ms"
[[route]]
from = "src*"
to = "dst"
links = ["access"]
[[route]]
from = "dst"
to = "src*"
links = []
[[session]]
source = "src*"
sink = "dst"
[sweep]
seed = "1..3"
link.access.delay = ["1ms", "5ms"]
"#;

fn two() -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("two.toml");
    std::fs::write(&file, TWO).expect("written");
    let file = file.display().to_string();
    (dir, file)
}

#[test]
fn a_sweep_does_not_depend_on_the_number_of_threads() {
    let (dir, file) = two();
    let run = |threads: &str, to: &str| {
        let out = dir.path().join(to);
        let output =
            lab(&["sweep", &file, "--threads", threads, "--out", &out.display().to_string()]);
        assert!(output.status.success(), "{}", said(&output));
        let csv = std::fs::read_to_string(out.join("two-sweep.csv")).expect("numbers");
        assert!(out.join("two-sweep.html").is_file());
        (output.stdout, csv)
    };
    let (one, three) = (run("1", "a"), run("3", "b"));
    assert_eq!(one, three);
    assert_eq!(one.1.lines().count(), 7);
    assert!(one.1.starts_with("seed,link.access.delay,phases_settled_%,"), "{}", one.1);
}

#[test]
fn a_replay_takes_the_same_course_and_a_lawful_one() {
    let (_dir, file) = two();
    let output = lab(&["replay", &file]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("all lawful"), "{}", said(&output));
    let output = lab(&["replay", &file, "--level", "rate"]);
    assert!(output.status.success() && said(&output).contains("the same course"));
}

#[test]
fn a_link_with_a_trace_carries_it_lawfully_and_a_broken_trace_is_named_by_its_line() {
    let (dir, file) = two();
    let text = std::fs::read_to_string(&file).expect("written");
    std::fs::write(&file, text.replace("rate = \"30Mbit\"", "trace = \"cell\"")).expect("written");
    // Two opportunities in each third millisecond: 8 Mbit/s.
    std::fs::write(dir.path().join("cell"), "3\n3\n").expect("written");
    let output = lab(&["replay", &file]);
    assert!(output.status.success() && said(&output).contains("all lawful"), "{}", said(&output));
    let output = lab(&["run", &file, "--dry", "--json"]);
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).expect("an object");
    assert!(summary["phases"].is_array(), "{summary}");
    std::fs::write(dir.path().join("cell"), "3\n2\n").expect("written");
    let output = lab(&["run", &file]);
    assert_eq!(output.status.code(), Some(2));
    let words = said(&output);
    assert!(words.contains("two.toml:11:") && words.contains("line 2 of the trace"), "{words}");
}

#[test]
fn refusals_have_the_exit_codes_that_are_documented() {
    let (dir, file) = two();
    let code = |arguments: &[&str]| lab(arguments).status.code();
    assert_eq!(code(&["run", "/nowhere/x.toml"]), Some(3));
    assert_eq!(code(&["run", &file, "--level", "flow"]), Some(2));
    let bad = dir.path().join("bad.toml");
    std::fs::write(&bad, TWO.replace("30Mbit", "30")).expect("written");
    let output = lab(&["run", &bad.display().to_string()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said(&output).contains("bad.toml:11:8: `rate` is \"30\", expected a rate"),
        "{}",
        said(&output)
    );
    std::fs::write(&bad, TWO.replace("to = \"src*\"", "to = \"dst\"")).expect("written");
    let output = lab(&["run", &bad.display().to_string()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("no way from \"dst\" to \"src1\""), "{}", said(&output));
    let blocked = dir.path().join("two.toml/x").display().to_string();
    let output = lab(&["run", &file, "--out", &blocked]);
    // Before anything runs, so that no long run is lost.
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{}", said(&output));
}

#[test]
fn an_empty_scenario_or_network_file_is_bad_usage_and_says_what_is_expected() {
    let dir = tempfile::tempdir().expect("a folder");
    let empty = dir.path().join("empty.toml");
    std::fs::write(&empty, "").expect("written");
    let over = dir.path().join("over.toml");
    std::fs::write(&over, "network = \"empty.toml\"\nduration = \"1s\"\n").expect("written");
    for (verb, file, expected) in [
        ("run", &empty, "empty.toml:1:1: the scenario has no `duration`"),
        ("replay", &empty, "empty.toml:1:1: the scenario has no `duration`"),
        ("sweep", &empty, "empty.toml:1:1: nothing to sweep"),
        ("run", &over, "empty.toml:1:1: the file is empty: expected a network's [[link]]s"),
    ] {
        let output = lab(&[verb, &file.display().to_string()]);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(expected), "{}", said(&output));
    }
}

#[test]
fn pages_mark_what_happens_and_name_who_never_settled() {
    let (dir, _) = two();
    let file = dir.path().join("more.toml");
    let more = "[[session.change]]\nat = \"1s\"\ndemand = \"2Mbit\"\n[[background]]\n\
                source = \"src2\"\nsink = \"dst\"\nrate = \"1Mbit\"\nkind = \"constant\"\n\
                start = \"1500ms\"\n[output]\ntolerance = 0.00001\n";
    std::fs::write(&file, TWO.replace("[sweep]\n", &format!("{more}[sweep]\n"))).expect("written");
    let out = dir.path().display().to_string();
    let output = lab(&["run", &file.display().to_string(), "--out", &out]);
    assert!(output.status.success() && said(&output).contains("never: s1"), "{}", said(&output));
    let page = std::fs::read_to_string(dir.path().join("more.html")).expect("a page");
    for mark in ["s1: demand", "+background1", "never: s1", "last share"] {
        assert!(page.contains(mark), "{mark}: {}", said(&output));
    }
}

#[test]
fn tcp_beside_gtp_fills_the_link_and_takes_what_gtp_leaves() {
    let summary = summary("tcp-beside-gtp.toml", &[]);
    let got: Vec<f64> = phases(&summary).iter().filter_map(|p| p["got"].as_f64()).collect();
    // 100 Mbit/s, of which GTP alone may have 80.
    assert!((79e6..81e6).contains(&got[0]), "{got:?}");
    assert!(got[1..].iter().all(|got| (97e6..100.1e6).contains(got)), "{got:?}");
}

#[test]
fn what_belongs_to_tcp_is_refused_without_it_and_tcp_is_refused_without_queues() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tcp.toml");
    let refused = |level: &str, session: &str| {
        let text = format!(
            "duration = \"1s\"\nlevel = {level:?}\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n\
             [[session]]\nsource = \"a\"\nsink = \"b\"\nrtt = \"10ms\"\n{session}\n"
        );
        std::fs::write(&file, text).expect("a file");
        let output = lab(&["run", &file.display().to_string(), "--dry"]);
        assert!(!output.status.success(), "{}", said(&output));
        said(&output)
    };
    assert!(refused("packet", "window = \"35KB\"").contains("protocol = \"cubic\""));
    assert!(refused("packet", "protocol = \"cubik\"").contains("did you mean \"cubic\""));
    assert!(refused("packet", "protocol = \"sack\"\nweight = 2.0").contains("weight"));
    assert!(refused("packet", "protocol = \"sack\"\nconnections = 300").contains("256"));
    assert!(refused("rate", "protocol = \"sack\"").contains("level = \"packet\""));
    assert!(refused("packet", "protocol = \"rbudp\"").contains("has no `rate`"));
    assert!(refused("packet", "protocol = \"sack\"\nrate = \"5Mbit\"").contains("rate-based"));
    assert!(refused("packet", "protocol = \"udt\"\nwindow = \"35KB\"").contains("is TCP's"));
    assert!(refused("packet", "protocol = \"sack\"\nrelays = \"x\"").contains("no session \"x\""));
    assert!(refused("packet", "wire = \"5ms\"").contains("keep one"));
    let link = "[[link]]\nname = \"l\"\nrate = \"5Mbit\"\n";
    let router = |keys: &str| refused("packet", &format!("{link}{keys}"));
    assert!(router("router = \"xpc\"").contains("did you mean \"xcp\""));
    assert!(router("router = \"xcp\"\nrouter_capacity = \"5Mbit\"").contains("xcp-node"));
    assert!(router("router = \"xcp\"\nred_min = \"5KB\"").contains("red"));
    let policed = "policer = { rate = \"5Mbit\", bucket = \"10KB\" }\nrouter = \"codel\"";
    assert!(router(policed).contains("policer"), "{}", router(policed));
}

/// Each rival alone on a link of 20 Mbit/s and 20 ms with the router that it asks, all in one run:
/// name, router, what else its session says, and what part of the link it has at least.
const RIVALS: [(&str, &str, &str, f64); 20] = [
    ("xcp", "xcp", "", 0.95),
    // These two begin with a packet and take most of the time to rise.
    ("vcp", "vcp", "", 0.4),
    ("aecp", "aecp", "", 0.6),
    ("sack", "red", "", 0.7),
    ("cubic", "pie", "", 0.8),
    ("cubic", "codel", "", 0.8),
    ("cubic", "fq-codel", "", 0.8),
    ("cubic", "dualpi2", "", 0.8),
    ("cubic-hystart", "", "", 0.9),
    ("rbudp", "", "rate = \"18Mbit\"", 0.89),
    ("tsunami", "", "rate = \"18Mbit\"", 0.89),
    ("tsunami-fixed", "", "rate = \"18Mbit\"", 0.89),
    ("netblt", "", "rate = \"18Mbit\"", 0.89),
    ("sabul", "", "rate = \"15Mbit\"", 0.7),
    ("sabul-2", "", "rate = \"15Mbit\"", 0.7),
    ("udt", "", "", 0.7),
    ("udt-1", "", "", 0.7),
    ("lambdastream", "", "", 0.7),
    ("gtp2004", "", "", 0.9),
    ("advertised", "advertised", "", 0.95),
];

#[test]
fn every_rival_moves_data_over_the_link_with_the_router_that_it_asks() {
    let mut text = "duration = \"20s\"\n[[host]]\nname = \"src\"\ncount = 20\n\
                    [[host]]\nname = \"dst\"\ncount = 20\n"
        .to_owned();
    for (n, (protocol, router, more, _)) in RIVALS.into_iter().enumerate() {
        let n = n + 1;
        let router = if router.is_empty() { String::new() } else { format!("router = {router:?}") };
        text += &format!(
            "[[link]]\nname = \"l{n}\"\nfrom = \"src{n}\"\nto = \"dst{n}\"\nduplex = true\n\
             rate = \"20Mbit\"\nqueue = \"50KB\"\n{router}\n\
             [[session]]\nname = \"s{n}\"\nsource = \"src{n}\"\nsink = \"dst{n}\"\n\
             wire = \"20ms\"\nprotocol = {protocol:?}\n{more}\n"
        );
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("rivals.toml");
    std::fs::write(&file, text).expect("a file");
    let output = lab(&["run", &file.display().to_string(), "--dry", "--json"]);
    assert!(output.status.success(), "{}", said(&output));
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let sessions = summary["sessions"].as_array().expect("sessions");
    for ((protocol, _, _, least), session) in RIVALS.into_iter().zip(sessions) {
        let payload = session["payload"].as_f64().expect("a number");
        let part = payload * 8.0 / 20.0 / 20e6;
        assert!((least * 0.9..1.0).contains(&part), "{protocol}: {part}");
    }
}

#[test]
fn a_relay_has_what_the_session_before_it_brought() {
    let text = "duration = \"10s\"\n[[host]]\nname = \"a\"\n[[host]]\nname = \"proxy\"\n\
                [[host]]\nname = \"b\"\n\
                [[link]]\nname = \"near\"\nfrom = \"a\"\nto = \"proxy\"\nduplex = true\n\
                rate = \"20Mbit\"\n\
                [[link]]\nname = \"far\"\nfrom = \"proxy\"\nto = \"b\"\nduplex = true\n\
                rate = \"5Mbit\"\n\
                [[session]]\nname = \"first\"\nsource = \"a\"\nsink = \"proxy\"\n\
                protocol = \"sack\"\nwindow = \"100KB\"\n\
                [[session]]\nname = \"second\"\nsource = \"proxy\"\nsink = \"b\"\n\
                protocol = \"sack\"\nrelays = \"first\"\n";
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("relay.toml");
    std::fs::write(&file, text).expect("a file");
    let output = lab(&["run", &file.display().to_string(), "--dry", "--json"]);
    assert!(output.status.success(), "{}", said(&output));
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let payload = |k: usize| summary["sessions"][k]["payload"].as_f64().expect("a number");
    // The slower second half is full, and the proxy holds no more than its buffer.
    assert!(payload(1) * 8.0 / 10.0 > 4e6, "{}", payload(1));
    assert!((0.0..=110e3).contains(&(payload(0) - payload(1))), "{} {}", payload(0), payload(1));
}

/// Routers that tell sources their rates, with what sources speak and what else the link says.
const TELLING: [(&str, &str, &str); 4] = [
    ("advertised", "advertised", ""),
    ("meter", "advertised", "meter_interval = \"100ms\"\n"),
    ("slice", "advertised", "router_capacity = \"30Mbit\"\n"),
    ("perc", "perc", ""),
];

#[test]
fn what_a_told_session_leaves_behind_goes_to_the_others() {
    let folder = tempfile::tempdir().expect("a folder");
    for (router, protocol, more) in TELLING {
        let mut text = format!(
            "duration = \"24s\"\n[[host]]\nname = \"src\"\ncount = 3\n[[host]]\nname = \"dst\"\n\
             [[link]]\nname = \"neck\"\nrate = \"30Mbit\"\nqueue = \"100ms\"\n\
             router = {router:?}\n{more}\
             [[link]]\nname = \"back\"\ndelay = \"5ms\"\n\
             [[route]]\nfrom = \"src*\"\nto = \"dst\"\nlinks = [\"neck\"]\n\
             [[route]]\nfrom = \"dst\"\nto = \"src*\"\nlinks = [\"back\"]\n"
        );
        for (n, stop) in [(1, "stop = \"8s\"\n"), (2, ""), (3, "")] {
            text += &format!(
                "[[session]]\nname = \"s{n}\"\nsource = \"src{n}\"\nsink = \"dst\"\n\
                 wire = \"20ms\"\nprotocol = {protocol:?}\n{stop}"
            );
        }
        let file = folder.path().join(format!("{router}.toml"));
        std::fs::write(&file, text).expect("a file");
        let output = lab(&["run", &file.display().to_string(), "--dry", "--json"]);
        assert!(output.status.success(), "{router}: {}", said(&output));
        let summary: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let mbits =
            |k: usize| summary["sessions"][k]["payload"].as_f64().expect("a number") / 125e3;
        // A third of the link each for eight seconds, then half of it each for sixteen. Without
        // the half they would have 240. A meter needs three seconds to find its first rate.
        assert!((45.0..=96.0).contains(&mbits(0)), "{router}: {}", mbits(0));
        for k in [1, 2] {
            assert!((270.0..=330.0).contains(&mbits(k)), "{router}: {}", mbits(k));
        }
    }
}
