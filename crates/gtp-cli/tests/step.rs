//! Frames in step, as a user has them: several sources at one receiver, one sender at several.
//!
//! What is checked is the outcome: which bytes come out, in which order, and what is said of those
//! that do not. A busy machine may make a source miss the time of a frame, so no test counts on
//! every frame.

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::{World, require_root};
use gtp_e2e::in_step::{address, network_file};
use gtp_e2e::lab::Lab;
use serde_json::Value;

/// Bytes of a part.
const PART: usize = 20_000;
const SIZE: &str = "20000B";

/// What every end says.
const FRAMES: [&str; 4] = ["--unreliable", "--repair-once", "--frames", SIZE];

/// Part `place` of frame `number`: its bytes say both.
fn part(place: usize, number: usize) -> Vec<u8> {
    (0..PART).map(|i| [place as u8 + 1, number as u8, i as u8][i % 3]).collect()
}

/// What a source reads: its part of so many frames.
fn film(dir: &Path, place: usize, frames: usize) -> File {
    let path = dir.join(format!("film-{place}"));
    let all: Vec<u8> = (0..frames).flat_map(|number| part(place, number)).collect();
    std::fs::write(&path, all).unwrap();
    File::open(path).unwrap()
}

/// The film's frame whose part this is; none if it is missing.
fn which(place: usize, bytes: &[u8]) -> Option<usize> {
    if bytes.iter().all(|&byte| byte == 0) {
        return None;
    }
    let number = usize::from(bytes[1]);
    assert!(bytes == part(place, number), "part {place} has bytes of its source alone");
    Some(number)
}

/// The parts of each frame that was written, as numbers of the sources' own frames.
fn shown(output: &[u8], parts: usize) -> Vec<Vec<Option<usize>>> {
    assert_eq!(output.len() % (parts * PART), 0, "frames are written whole");
    let frames = output.chunks(parts * PART);
    let frame = |bytes: &[u8]| {
        bytes.chunks(PART).enumerate().map(|(place, bytes)| which(place, bytes)).collect()
    };
    frames.map(frame).collect()
}

/// Every source's parts come out in their order, each once.
fn in_order(frames: &[Vec<Option<usize>>], place: usize) {
    let numbers: Vec<usize> = frames.iter().filter_map(|frame| frame[place]).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "part {place}: {numbers:?}");
}

/// A receiver, what it says, and the address to send to.
struct Receiver {
    child: Child,
    words: BufReader<ChildStderr>,
    url: String,
    out: std::path::PathBuf,
}

impl Receiver {
    fn start(mut command: Command, out: &Path) -> Receiver {
        command.stdout(File::create(out).unwrap()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut words = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        words.read_line(&mut line).unwrap();
        let url = format!("gtp://{}/", line.split_whitespace().nth(2).unwrap());
        Receiver { child, words, url, out: out.to_owned() }
    }

    fn of(world: &World, name: &str, options: &[&str]) -> Receiver {
        let own = ["stream", "receive", "--public", "--listen", "127.0.0.1:0"];
        let command = world.gtp(name, &[&own[..], options].concat());
        Receiver::start(command, &world.path(&format!("{name}.out")))
    }

    /// Waits until it has said this.
    fn hear(&mut self, words: &str) {
        let mut line = String::new();
        while !line.contains(words) {
            line.clear();
            assert!(self.words.read_line(&mut line).unwrap() > 0, "it has not said {words:?}");
        }
    }

    /// Its exit code, what it wrote, and the rest of what it said.
    fn end(mut self) -> (Option<i32>, Vec<u8>, String) {
        let mut said = String::new();
        self.words.read_to_string(&mut said).unwrap();
        let code = self.child.wait().unwrap().code();
        (code, std::fs::read(&self.out).unwrap(), said)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn sender(world: &World, name: &str, urls: &[&str], options: &[&str]) -> Command {
    let own = ["stream", "send", "--accept-new"];
    let mut sender = world.gtp(name, &[&own[..], options, urls].concat());
    sender.stdout(Stdio::null()).stderr(Stdio::piped());
    sender
}

fn part_options<'a>(group: &'a str, part: &'a str) -> Vec<&'a str> {
    [&FRAMES[..], &["--group", group, "--part", part]].concat()
}

fn report(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn parts_of_several_sources_come_out_as_frames_in_the_order_of_their_places() {
    let world = World::new();
    let told = ["--group", "3", "--frame-every", "20ms", "--frame-report", "report.json"];
    let receiver = Receiver::of(&world, "server", &[&FRAMES[..], &told].concat());
    // The order in which they call is not the order of the picture.
    let mut sources: Vec<Child> = [2, 0, 1]
        .map(|place: usize| {
            let number = (place + 1).to_string();
            let name = format!("client{place}");
            let mut source = sender(&world, &name, &[&receiver.url], &part_options("3", &number));
            source.stdin(film(&world.path(""), place, 50)).spawn().unwrap()
        })
        .into();
    for source in &mut sources {
        assert!(source.wait().unwrap().success());
    }
    let (code, output, said) = receiver.end();
    assert_eq!(code, Some(0), "{said}");
    let frames = shown(&output, 3);
    (0..3).for_each(|place| in_order(&frames, place));
    let whole = frames.iter().filter(|frame| frame.iter().all(Option::is_some)).count() as u64;
    let report = report(&world.path("report.json"));
    assert!(whole > 0 && report["frames_whole"] == whole, "{report}");
    assert_eq!(report["frames"].as_array().unwrap().len(), frames.len());
    for (place, part) in report["parts"].as_array().unwrap().iter().enumerate() {
        let there = frames.iter().filter(|frame| frame[place].is_some()).count() as u64;
        assert_eq!((&part["released"], &part["calls"]), (&there.into(), &1.into()), "{part}");
    }
}

#[test]
fn whole_frames_alone_are_written_where_that_is_wanted() {
    let world = World::new();
    let told = ["--group", "2", "--frame-every", "20ms", "--whole"];
    let receiver = Receiver::of(&world, "server", &[&FRAMES[..], &told].concat());
    let mut sources = [0, 1].map(|place: usize| {
        let (name, number) = (format!("client{place}"), (place + 1).to_string());
        let mut source = sender(&world, &name, &[&receiver.url], &part_options("2", &number));
        // One has less to say, and leaves.
        source.stdin(film(&world.path(""), place, 30 - 20 * place)).spawn().unwrap()
    });
    assert!(sources.iter_mut().all(|source| source.wait().unwrap().success()));
    let (code, output, said) = receiver.end();
    assert_eq!(code, Some(0), "{said}");
    let frames = shown(&output, 2);
    assert!(frames.iter().flatten().all(Option::is_some) && frames.len() <= 10, "{frames:?}");
}

#[test]
fn a_source_that_is_killed_holds_nobody_up_and_takes_its_place_again() {
    let world = World::new();
    let told = ["--group", "2", "--frame-every", "20ms", "--frame-report", "report.json"];
    let mut receiver = Receiver::of(&world, "server", &[&FRAMES[..], &told].concat());
    let source = |receiver: &Receiver, place: usize, frames: usize| {
        let (name, number) = (format!("client{place}"), (place + 1).to_string());
        let mut source = sender(&world, &name, &[&receiver.url], &part_options("2", &number));
        source.stdin(film(&world.path(""), place, frames)).spawn().unwrap()
    };
    let mut steady = source(&receiver, 0, 200);
    let mut killed = source(&receiver, 1, 200);
    receiver.hear("the group begins");
    common::wait_for("frames", || common::size_of(&receiver.out) > 10 * 2 * PART as u64);
    killed.kill().unwrap();
    killed.wait().unwrap();
    receiver.hear("part 2 broke off");
    let mut again = source(&receiver, 1, 30);
    assert!(again.wait().unwrap().success());
    assert!(steady.wait().unwrap().success());
    let (code, output, said) = receiver.end();
    assert_eq!(code, Some(0), "{said}");
    let frames = shown(&output, 2);
    in_order(&frames, 0);
    let alone = frames.iter().filter(|frame| frame[0].is_some() && frame[1].is_none()).count();
    assert!(alone > 0, "frames went on without the one that was killed");
    let report = report(&world.path("report.json"));
    assert_eq!(report["parts"][1]["calls"], 2, "{report}");
}

#[test]
fn who_means_another_picture_or_has_another_key_for_a_taken_part_is_refused() {
    let world = World::new();
    let told = ["--group", "2", "--frame-every", "20ms"];
    let mut receiver = Receiver::of(&world, "server", &[&FRAMES[..], &told].concat());
    let mut first = sender(&world, "client0", &[&receiver.url], &part_options("2", "1"));
    let mut first = first.stdin(film(&world.path(""), 0, 5)).spawn().unwrap();
    receiver.hear("part 1:");
    let small = ["--unreliable", "--frames", "10000B"];
    for (options, code, word) in [
        (part_options("3", "2"), 2, "--group"),
        ([&small[..], &["--group", "2", "--part", "2"]].concat(), 2, "--frames"),
        (part_options("2", "1"), 5, "part 1 is sent by"),
        (FRAMES.to_vec(), 2, "stream/receive"),
    ] {
        let mut other = sender(&world, "client1", &[&receiver.url], &options);
        let ended = other.stdin(film(&world.path(""), 1, 5)).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.code() == Some(code) && said.contains(word), "{options:?}: {said}");
        receiver.hear("was refused");
    }
    // The group is none the worse for it.
    let mut second = sender(&world, "client2", &[&receiver.url], &part_options("2", "2"));
    let mut second = second.stdin(film(&world.path(""), 1, 5)).spawn().unwrap();
    assert!(first.wait().unwrap().success() && second.wait().unwrap().success());
    let (code, _, said) = receiver.end();
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn options_of_a_group_that_do_not_go_together_are_refused_before_anything_is_opened() {
    let world = World::new();
    let url = "gtp://127.0.0.1:9/";
    for (arguments, word) in [
        (&["receive", "--group", "2"][..], "--frame-every"),
        (&["receive", "--group", "1", "--frame-every", "20ms"], "the sender keeps the time"),
        (&["receive", url, "--group", "2", "--frame-every", "20ms"], "takes no address"),
        (&["receive", "--group", "2", "--frame-every", "1ms", "--deadline", "99s"], "deadline"),
        (&["receive", url, url], "one address"),
        (&["send", "--group", "2", "--part", "1"], "URL"),
        (&["send", url, url, "--group", "2", "--part", "1"], "one receiver"),
        (&["send", url, "--group", "2"], "--part"),
        (&["send", url, "--group", "2", "--part", "3"], "beyond"),
        (&["send", url, "--group", "2", "--part", "1", "--frame-every", "1s"], "keeps the time"),
        (&["send", url, "--group", "1", "--deadline", "1s"], "--deadline"),
        (&["send", "gtp://127.0.0.1:9/path", "--group", "1"], "path"),
        (&["send", url, "--group", "65"], "65"),
    ] {
        let all = [&["stream"], arguments, &FRAMES[..]].concat();
        let ended = world.gtp("client", &all).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.code() == Some(2) && said.contains(word), "{arguments:?}: {said}");
    }
}

#[test]
fn one_sender_shows_the_same_frames_at_several_receivers() {
    let world = World::new();
    let names = ["one", "two", "three"];
    let receivers = names.map(|name| {
        let report = format!("{name}.json");
        let told = ["--group", "1", "--frame-report", &report];
        Receiver::of(&world, name, &[&FRAMES[..], &told].concat())
    });
    let urls: Vec<&str> = receivers.iter().map(|receiver| receiver.url.as_str()).collect();
    let told =
        ["--group", "1", "--frame-every", "20ms", "--release-after", "auto", "--frame-report"];
    let options = [&FRAMES[..], &told, &["sender.json"]].concat();
    let mut source = sender(&world, "client", &urls, &options);
    let ended = source.stdin(film(&world.path(""), 0, 50)).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.success() && said.contains("receivers release each frame"), "{said}");
    for (receiver, name) in receivers.into_iter().zip(names) {
        let (code, output, said) = receiver.end();
        assert_eq!(code, Some(0), "{said}");
        let frames = shown(&output, 1);
        in_order(&frames, 0);
        let report = report(&world.path(&format!("{name}.json")));
        assert_eq!(report["frames_whole"], frames.len(), "{report}");
        let part = &report["parts"][0];
        let sum: u64 =
            ["released", "late", "crowded"].map(|n| part[n].as_u64().unwrap()).iter().sum();
        assert!(sum > 0 && sum <= 50, "each frame is counted once: {part}");
    }
    let report = report(&world.path("sender.json"));
    let sinks = report["sinks"].as_array().unwrap();
    assert_eq!((sinks.len(), &report["frames"]), (3, &50.into()));
    for sink in sinks {
        let [sent, dropped] = ["sent", "dropped"].map(|name| sink[name].as_u64().unwrap());
        assert_eq!(sent + dropped, 50, "{sink}");
    }
}

#[test]
fn a_stream_to_several_receivers_is_whole_at_each_and_goes_on_without_one_that_is_gone() {
    let world = World::new();
    let content = world.export("a", 3_000_000);
    let input = || File::open(world.path("export/a")).unwrap();
    let [one, two, three] = ["one", "two", "three"].map(|name| Receiver::of(&world, name, &[]));
    let urls = [&*one.url, &*two.url];
    let ended = sender(&world, "client", &urls, &[]).stdin(input()).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    for receiver in [one, two] {
        let (code, output, said) = receiver.end();
        assert!(code == Some(0) && output == content, "{said}");
    }
    // One of two goes away while the sender still has something to say.
    let four = Receiver::of(&world, "four", &[]);
    let urls = [&*three.url, &*four.url];
    let mut source = sender(&world, "client", &urls, &[]);
    let mut source = source.stdin(Stdio::piped()).spawn().unwrap();
    let mut say = source.stdin.take().unwrap();
    std::io::Write::write_all(&mut say, &content).unwrap();
    common::wait_for("bytes", || common::size_of(&three.out) > 0);
    drop(three);
    let mut words = BufReader::new(source.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("is gone") {
        std::io::Write::write_all(&mut say, &content[..1_000]).unwrap();
        line.clear();
        // A line comes once the connection has broken, which writing shows.
        if !words.buffer().is_empty() || has_input(words.get_ref()) {
            assert!(words.read_line(&mut line).unwrap() > 0, "it ended");
        }
    }
    drop(say);
    assert_eq!(source.wait().unwrap().code(), Some(12));
    let (code, output, said) = four.end();
    assert!(code == Some(0) && output.starts_with(&content), "{said}");
}

/// Whether something can be read at once.
fn has_input(pipe: &ChildStderr) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let soon = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&soon)).unwrap() > 0
}

/// Laboratories of one process have hosts of the same names: one at a time.
static LABORATORY: Mutex<()> = Mutex::new(());

fn laboratory() -> (MutexGuard<'static, ()>, Lab) {
    let alone = LABORATORY.lock().unwrap_or_else(PoisonError::into_inner);
    let lab = Lab::open_file(&network_file(), Path::new(env!("CARGO_BIN_EXE_gtp"))).unwrap();
    (alone, lab)
}

/// A receiver on a host of a laboratory.
fn receiver_at(lab: &Lab, gtp: &Path, host: &str, options: &[&str]) -> Receiver {
    let mut command = lab.command(host, gtp);
    command.args(["stream", "receive", "--public", "--listen", "0.0.0.0:4810"]);
    command.args(FRAMES).args(options).arg("--frame-report");
    command.arg(lab.dir.path().join(format!("{host}.json")));
    Receiver::start(command, &lab.dir.path().join(format!("{host}.out")))
}

fn sender_at(lab: &Lab, gtp: &Path, (host, place): (&str, usize), options: &[&str]) -> Child {
    let mut command = lab.command(host, gtp);
    command.args(["stream", "send", "--accept-new"]).args(FRAMES).args(options);
    command.stdin(film(lab.dir.path(), place, 100)).stdout(Stdio::null());
    command.spawn().unwrap()
}

#[test]
fn four_sources_at_different_distances_make_whole_frames_at_one_sink_over_lossy_paths() {
    if !require_root() {
        return;
    }
    let gtp = Path::new(env!("CARGO_BIN_EXE_gtp"));
    let (_alone, lab) = laboratory();
    let told = ["--group", "4", "--frame-every", "50ms", "--deadline", "2s"];
    let hub = receiver_at(&lab, gtp, "hub", &told);
    let url = format!("gtp://{}:4810/", address("hub"));
    let mut sources: Vec<Child> = (0..4)
        .map(|place| {
            let number = (place + 1).to_string();
            let options = [&*url, "--group", "4", "--part", &number];
            sender_at(&lab, gtp, (&format!("end{place}"), place), &options)
        })
        .collect();
    assert!(sources.iter_mut().all(|source| source.wait().unwrap().success()));
    let (code, output, said) = hub.end();
    assert_eq!(code, Some(0), "{said}");
    let frames = shown(&output, 4);
    (0..4).for_each(|place| in_order(&frames, place));
    let whole = frames.iter().filter(|frame| frame.iter().all(Option::is_some)).count();
    assert!(whole > frames.len() / 2, "{whole} of {}: {said}", frames.len());
}

#[test]
fn one_source_shows_its_frames_at_four_sinks_at_different_distances_over_lossy_paths() {
    if !require_root() {
        return;
    }
    let gtp = Path::new(env!("CARGO_BIN_EXE_gtp"));
    let (_alone, lab) = laboratory();
    let names: Vec<String> = (0..4).map(|i| format!("end{i}")).collect();
    let told = ["--group", "1", "--deadline", "3s"];
    let sinks: Vec<Receiver> =
        names.iter().map(|name| receiver_at(&lab, gtp, name, &told)).collect();
    let urls: Vec<String> =
        names.iter().map(|name| format!("gtp://{}:4810/", address(name))).collect();
    let mut options: Vec<&str> = urls.iter().map(String::as_str).collect();
    options.extend(["--group", "1", "--frame-every", "50ms", "--release-after", "2s"]);
    assert!(sender_at(&lab, gtp, ("hub", 0), &options).wait().unwrap().success());
    for (sink, name) in sinks.into_iter().zip(&names) {
        let (code, output, said) = sink.end();
        assert_eq!(code, Some(0), "{name}: {said}");
        let frames = shown(&output, 1);
        in_order(&frames, 0);
        let report = report(&lab.dir.path().join(format!("{name}.json")));
        assert_eq!(report["frames_whole"], frames.len(), "{report}");
        assert!(frames.len() > 50, "{name}: {said}");
    }
}
