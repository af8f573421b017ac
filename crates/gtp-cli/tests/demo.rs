//! The demo from start to end, in small: real processes, real files, a page, and nothing left.

use std::path::Path;
use std::process::{Command, Output};

fn demo(out: &Path, workplace: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gtp"))
        .args(["demo", "--seconds-per-step", "0.2", "--json", "--open", "never", "--out"])
        .arg(out)
        .env("TMPDIR", workplace)
        .output()
        .expect("the demo runs")
}

#[test]
fn the_demo_verifies_every_file_writes_its_page_and_leaves_nothing_behind() {
    let place = tempfile::tempdir().expect("a directory");
    let (out, workplace) = (place.path().join("out"), place.path().join("tmp"));
    std::fs::create_dir(&workplace).expect("a directory");
    let ended = demo(&out, &workplace);
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{said}{complaints}");
    let lines: Vec<serde_json::Value> =
        said.lines().map(|line| serde_json::from_str(line).expect("proper JSON")).collect();
    let files: Vec<_> = lines.iter().filter(|line| line["event"] == "file").collect();
    assert!(files.len() == 6 && files.iter().all(|file| file["verified"] == true), "{said}");
    assert_eq!(lines.last().map(|done| &done["verified"]), Some(&serde_json::Value::Bool(true)));
    let page = std::fs::read_to_string(out.join("demo.html")).expect("a page");
    assert!(page.contains("6 of 6") && page.ends_with("</html>\n"));
    assert!(out.join("demo.json").is_file());
    let left: Vec<_> = std::fs::read_dir(&workplace).expect("readable").collect();
    assert!(left.is_empty(), "{left:?}");
}
