//! Frames of a stream, as a user counts them.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Stdio};

use common::World;

/// A receiver that listens with these options, its words so far, and the address to send to.
fn listening(world: &World, options: &[&str]) -> (Child, BufReader<ChildStderr>, String) {
    let common = ["stream", "receive", "--public", "--listen", "127.0.0.1:0"];
    let mut receiver = world.gtp("server", &[&common[..], options].concat());
    let mut receiver = receiver.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut words = BufReader::new(receiver.stderr.take().unwrap());
    let mut line = String::new();
    words.read_line(&mut line).unwrap();
    let address = line.split_whitespace().nth(2).unwrap();
    let url = format!("gtp://{address}/");
    (receiver, words, url)
}

/// A sender of the export's file `a` with these options.
fn sending(world: &World, url: &str, options: &[&str]) -> Child {
    let common = ["stream", "send", url, "--accept-new"];
    let mut sender = world.gtp("client", &[&common[..], options].concat());
    sender.stdin(std::fs::File::open(world.path("export/a")).unwrap());
    sender.stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_stream_says_how_evenly_its_frames_came() {
    let world = World::new();
    let content = world.export("a", 1_050_000);
    let told = ["--frames", "100KiB", "--frame-report", "report.json"];
    let (receiver, mut words, url) = listening(&world, &told);
    let mut sender = sending(&world, &url, &["--frames", "100KiB"]);
    let output = receiver.wait_with_output().unwrap();
    assert!(sender.wait().unwrap().success());
    assert!(output.status.success() && output.stdout == content);
    let mut said = String::new();
    words.read_to_string(&mut said).unwrap();
    assert!(said.contains("10 frames of"), "{said}");
    let report = std::fs::read_to_string(world.path("report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!((&report["frames"], &report["frame_bytes"]), (&10.into(), &102_400.into()));
    let at: Vec<f64> =
        report["at_s"].as_array().unwrap().iter().map(|t| t.as_f64().unwrap()).collect();
    assert!(at.len() == 10 && at.is_sorted());
    for field in ["interval_median_s", "deviation_median_s", "deviation_p99_s", "jitter_s"] {
        assert!(report[field].is_number(), "{field}");
    }
}

#[test]
fn frames_arrive_whole_over_an_unreliable_stream_and_its_report_says_that_none_is_missing() {
    let world = World::new();
    let content = world.export("a", 1_050_000);
    let told = ["--unreliable", "--frames", "100KiB", "--frame-report", "report.json"];
    let (receiver, _words, url) = listening(&world, &told);
    // A loopback that drops nothing brings every frame.
    let slow = ["--unreliable", "--frames", "100KiB", "--max-rate", "40Mbit"];
    let mut sender = sending(&world, &url, &slow);
    let output = receiver.wait_with_output().unwrap();
    assert!(sender.wait().unwrap().success());
    assert!(output.status.success() && output.stdout == content);
    let report = std::fs::read_to_string(world.path("report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!((&report["frames"], &report["frames_lost"]), (&10.into(), &0.into()));
}

#[test]
fn a_stream_of_frames_is_refused_by_a_receiver_of_bytes_and_the_other_way_round() {
    let world = World::new();
    world.export("a", 1_000);
    let frames = ["--unreliable", "--frames", "1KiB"];
    for (receives, sends) in [(&[][..], &frames[..]), (&frames[..], &[][..])] {
        let (mut receiver, _words, url) = listening(&world, receives);
        let refused = sending(&world, &url, sends).wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains("--unreliable"), "{said}");
        receiver.kill().unwrap();
        receiver.wait().unwrap();
    }
}

#[test]
fn a_stream_by_lambdastreams_law_brings_every_byte_where_both_ends_agree_on_it() {
    let world = World::new();
    let content = world.export("a", 3_000_000);
    let law = ["--control", "lambdastream"];
    let (receiver, _words, url) = listening(&world, &law);
    let link = [&law[..], &["--link", "80Mbit", "--rate", "40Mbit"]].concat();
    let mut sender = sending(&world, &url, &link);
    let output = receiver.wait_with_output().unwrap();
    assert!(sender.wait().unwrap().success());
    assert!(output.status.success() && output.stdout == content);
}

#[test]
fn a_stream_says_what_it_uses_where_the_settings_name_a_law_that_streams_do_not_have() {
    let world = World::new();
    let content = world.export("a", 100_000);
    std::fs::create_dir_all(world.path("client")).unwrap();
    let settings = "control = \"rbudp\"\nrate = \"100Mbit\"\n";
    std::fs::write(world.path("client/config.toml"), settings).unwrap();
    let (receiver, _words, url) = listening(&world, &[]);
    let sender = sending(&world, &url, &[]).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&sender.stderr).into_owned();
    assert!(sender.status.success(), "{said}");
    assert!(said.contains("not for `gtp stream`: it uses grant"), "{said}");
    let output = receiver.wait_with_output().unwrap();
    assert!(output.status.success() && output.stdout == content);
}

#[test]
fn lambdastreams_law_is_refused_where_only_one_end_wants_it_and_without_a_link() {
    let world = World::new();
    world.export("a", 1_000);
    let law = ["--control", "lambdastream"];
    let (mut receiver, _words, url) = listening(&world, &[]);
    let refused = sending(&world, &url, &[&law[..], &["--link", "80Mbit"]].concat());
    let refused = refused.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(4), "{said}");
    assert!(said.contains("control law lambdastream"), "{said}");
    let told = sending(&world, &url, &law).wait_with_output().unwrap();
    assert_eq!(told.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&told.stderr).contains("--link RATE"));
    receiver.kill().unwrap();
    receiver.wait().unwrap();
}

#[test]
fn two_ends_that_both_send_or_both_receive_are_refused_and_say_so() {
    let world = World::new();
    world.export("a", 1_000);
    for options in [&[][..], &["--unreliable", "--frames", "1KiB"]] {
        for (way, said) in [("send", "both ends send:"), ("receive", "both ends receive:")] {
            let own = ["stream", way, "--public", "--listen", "127.0.0.1:0"];
            let (codes, words) = met(&world, &[&own, options].concat(), &[way], "", options);
            assert_eq!(codes, [Some(2), Some(2)], "{words:?}");
            assert!(words.iter().all(|words| words.contains(said)), "{words:?}");
        }
    }
}

#[test]
fn an_end_of_a_stream_refuses_a_caller_that_asks_for_something_else() {
    let world = World::new();
    world.export("a", 1_000);
    let own = ["stream", "receive", "--public", "--listen", "127.0.0.1:0"];
    let (codes, words) = met(&world, &own, &["send"], "notes.txt", &[]);
    assert_eq!(codes, [Some(2), Some(2)], "{words:?}");
    assert!(words.iter().all(|words| words.contains("notes.txt")), "{words:?}");
}

/// How an end that listens and one that calls it end, and what each says. Each has the export's
/// file `a` for standard input.
fn met(
    world: &World,
    listens: &[&str],
    calls: &[&str],
    path: &str,
    options: &[&str],
) -> ([Option<i32>; 2], [String; 2]) {
    let input = || std::fs::File::open(world.path("export/a")).unwrap();
    let mut one = world.gtp("server", listens);
    one.stdin(input()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut one = one.spawn().unwrap();
    let mut words = BufReader::new(one.stderr.take().unwrap());
    let mut line = String::new();
    words.read_line(&mut line).unwrap();
    let url = format!("gtp://{}/{path}", line.split_whitespace().nth(2).unwrap());
    let calling = [&["stream"], calls, &[&url, "--accept-new"], options].concat();
    let two = world.gtp("client", &calling).stdin(input()).output().unwrap();
    let mut said = String::new();
    words.read_to_string(&mut said).unwrap();
    let codes = [one.wait().unwrap().code(), two.status.code()];
    (codes, [said, String::from_utf8(two.stderr).unwrap()])
}
