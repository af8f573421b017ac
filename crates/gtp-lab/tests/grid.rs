//! The grid of paths: a small set of its cells is judged against the known misses, and the command
//! keeps runs, says what is new and refuses what makes no sense.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Runs the grid with its results in `out`.
fn grid(out: &Path, misses: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gtp-lab"));
    command.args(["grid", "path", "--out"]).arg(out).arg("--misses").arg(misses);
    command.args(arguments).output().expect("gtp-lab runs")
}

fn said(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

#[test]
fn no_claim_on_the_small_set_of_paths_fails_that_is_not_known_to() {
    let out = tempfile::tempdir().expect("a directory");
    let misses = Path::new(env!("CARGO_MANIFEST_DIR")).join("grid/path.tsv");
    let output = grid(out.path(), &misses, &["--small", "--bare"]);
    assert!(output.status.success(), "{}", said(&output));
    let page = fs::read_to_string(out.path().join("path.html")).expect("a page");
    assert!(page.contains("joins-cubic-4") && page.contains("<polyline"), "pictures");
}

/// One cheap station.
const ONE: [&str; 7] = ["--test", "alone", "--cell", "20/10/10p", "--starts", "1", "--bare"];

/// Puts a run that used this part of the path in the place of the kept one. What GTP does does not
/// matter then.
fn as_if_used(kept: &Path, part: f64) {
    let text = fs::read_to_string(kept).expect("runs");
    let row = text.lines().next().expect("a run");
    let mut row: serde_json::Value = serde_json::from_str(row).expect("a row");
    row["figures"] = serde_json::json!({ "use": part, "loss": 0.0, "queue": 0.0 });
    fs::write(kept, format!("{row}\n")).expect("written");
}

#[test]
fn a_miss_fails_until_it_is_accepted_and_again_when_it_grows() {
    let out = tempfile::tempdir().expect("a directory");
    let (misses, kept) = (out.path().join("misses.tsv"), out.path().join("path.jsonl"));
    let lacking = grid(out.path(), &misses, &ONE);
    assert_eq!(lacking.status.code(), Some(3), "{}", said(&lacking));
    fs::write(&misses, "").expect("written");
    grid(out.path(), &misses, &ONE);
    as_if_used(&kept, 0.5);
    let fails_by = |words: &str| {
        let output = grid(out.path(), &misses, &ONE);
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(said(&output).contains(words), "{}", said(&output));
    };
    fails_by("a new miss");
    let accepted = grid(out.path(), &misses, &[&ONE[..], &["--accept"]].concat());
    assert!(accepted.status.success(), "{}", said(&accepted));
    let before = fs::read(&kept).expect("runs");
    let again = grid(out.path(), &misses, &ONE);
    assert!(again.status.success(), "{}", said(&again));
    assert_eq!(fs::read(&kept).expect("runs"), before, "nothing ran again");
    as_if_used(&kept, 0.49);
    fails_by("a larger miss than known");
}

#[test]
fn bad_arguments_are_answered_with_what_there_is() {
    let out = tempfile::tempdir().expect("a directory");
    let misses = out.path().join("misses.tsv");
    for (arguments, words) in [
        (["--cell", "30/10/1"], "RATE/RTT/QUEUE"),
        (["--part", "5/4"], "K from 1 to N"),
        (["--test", "nothing"], "--list"),
        (["--starts", "0"], "from 1 to 100"),
    ] {
        let output = grid(out.path(), &misses, &arguments);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(words), "{}", said(&output));
    }
    fs::write(&misses, "alone\t20/10/1\n").expect("written");
    let output = grid(out.path(), &misses, &ONE);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("line 1"), "{}", said(&output));
}

#[test]
fn parts_share_all_stations_among_them() {
    let out = tempfile::tempdir().expect("a directory");
    let misses = out.path().join("misses.tsv");
    let list = |arguments: &[&str]| {
        let output = grid(out.path(), &misses, &[arguments, &["--list"]].concat());
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let mut all = list(&[]);
    let mut parts: Vec<String> =
        ["1/3", "2/3", "3/3"].iter().flat_map(|part| list(&["--part", part])).collect();
    all.sort();
    parts.sort();
    assert!(all.len() > 1_000 && all == parts, "{} and {}", all.len(), parts.len());
}
