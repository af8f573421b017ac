//! `gtp get` killed at random moments and begun again: what it costs, and that nothing is lost.
//!
//! The server's word is what counts: IP bytes of data packets that it sent in all sessions, less
//! those that the file takes when it is sent once. GTP_LONG=1 asks for 50 kills instead of six;
//! GTP_SEED=… repeats a run's moments.

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use common::dice::{Dice, seed, times};
use common::{World, bytes, events, size_of, wait_for};
use serde_json::Value;

/// What the server may send, in bits per second, and as the option says it.
const RATE: (u64, &str) = (80_000_000, "80Mbit");

/// Content of a block, and the same on the wire: with its hash, in units of 1,400 bytes, each
/// with 49 bytes of protocol and 28 of UDP and IPv4.
const BLOCK: u64 = 262_144;
const BLOCK_ON_WIRE: u64 = (BLOCK + 32) + (BLOCK + 32).div_ceil(1_400) * 77;

/// A latest moment for a kill, counted from the start of the command.
const LATEST_MS: u64 = 900;

/// What may be fetched twice for one kill: a block, and what comes in 50 ms.
const TWICE_PER_KILL: u64 = BLOCK + RATE.0 / 8 / 20;

/// A server whose sessions' ends are heard.
struct Counting {
    child: Child,
    url: String,
    /// Bytes of content and on the wire.
    ends: Receiver<[u64; 2]>,
}

impl Counting {
    fn start(world: &World) -> Counting {
        let args = ["serve", "export", "--listen", "127.0.0.1:0", "--public", "--json"];
        let mut command = world.gtp("server", &args);
        command.args(["--max-rate", RATE.1]).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        let url = format!("gtp://{}/a", first["addr"].as_str().unwrap());
        let (tell, ends) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let event: Value = serde_json::from_str(&line).unwrap();
                let number = |name: &str| event[name].as_u64().unwrap();
                if event["event"] == "session_end"
                    && tell.send([number("bytes"), number("wire_bytes")]).is_err()
                {
                    return;
                }
            }
        });
        Counting { child, url, ends }
    }

    /// Bytes of content and IP bytes of the session that ends next.
    fn session_end(&self) -> [u64; 2] {
        self.ends.recv_timeout(Duration::from_secs(30)).expect("the session ends")
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        // A failed test leaves nothing behind; the child may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_get_that_is_killed_again_and_again_fetches_little_twice_and_ends_with_the_same_bytes() {
    let kills = times(50, 6);
    let seed = seed();
    println!("GTP_SEED={seed}, {kills} kills");
    let mut dice = Dice(seed);
    let world = World::new();
    let blocks = kills * 32;
    let content = bytes((blocks * BLOCK) as usize, seed);
    std::fs::write(world.path("export/a"), &content).unwrap();
    let server = Counting::start(&world);
    let args = ["get", &server.url, "out", "--accept-new", "--json"];
    // The first meeting writes known hosts, which is no part of this.
    world.expect(0, &["ls", &server.url, "--accept-new"]);
    server.session_end();
    let (mut on_wire, mut met) = (Vec::new(), 0);
    for _ in 0..kills {
        let moment = Duration::from_millis(dice.below(LATEST_MS));
        let mut get = world.gtp("client", &args);
        let mut get = get.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let ended = server.ends.recv_timeout(moment);
        assert!(ended.is_err(), "it ended by itself within {moment:?}: GTP_SEED={seed}");
        get.kill().unwrap();
        get.wait().unwrap();
        // Very early there was no session yet.
        if let Ok([_, bytes]) = server.ends.recv_timeout(Duration::from_millis(500)) {
            on_wire.push(bytes);
            met += u64::from(bytes > 0);
        }
    }
    let output = world.expect(0, &args);
    let [brought, wire_bytes] = server.session_end();
    on_wire.push(wire_bytes);
    assert!(std::fs::read(world.path("out")).unwrap() == content, "GTP_SEED={seed}");
    let done = events(&output).pop().unwrap();
    assert_eq!(done["blake3"], blake3::hash(&content).to_hex().as_str());
    let resumed = done["resumed_bytes"].as_u64().unwrap();
    assert_eq!(brought, content.len() as u64 - resumed, "GTP_SEED={seed}: the server's count");
    let sent: u64 = on_wire.iter().sum();
    let twice = sent.saturating_sub(blocks * BLOCK_ON_WIRE) * BLOCK / BLOCK_ON_WIRE;
    println!(
        "{kills} kills, {met} of them in the midst of data; {} bytes sent for {} of content; \
         {twice} bytes of content twice, {} a kill of at most {TWICE_PER_KILL}; resumed {}",
        sent,
        content.len(),
        twice / met.max(1),
        resumed,
    );
    assert!(met > 0, "no kill met data: GTP_SEED={seed}");
    assert!(twice <= met * TWICE_PER_KILL, "GTP_SEED={seed}: {twice} bytes came twice");
}

#[test]
fn to_a_sink_that_falls_silent_nothing_is_sent_after_a_second() {
    let world = World::new();
    world.export("a", 100_000_000);
    let server = Counting::start(&world);
    let args = ["get", &server.url, "out", "--accept-new"];
    let mut get = world.gtp("client", &args).stderr(Stdio::null()).spawn().unwrap();
    let journal = world.path("out.gtp-journal");
    wait_for("ten blocks", || size_of(&journal) > 10 * RECORD);
    let pid = rustix::process::Pid::from_child(&get);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let received = size_of(&journal) / RECORD * BLOCK_ON_WIRE;
    let silence = Duration::from_secs(4);
    assert!(server.ends.recv_timeout(silence).is_err(), "the session is not over yet");
    get.kill().unwrap();
    get.wait().unwrap();
    let [_, sent] = server.session_end();
    // What had come but was not journaled yet, and a second at the full rate, and a little.
    let bound = received + TWICE_PER_KILL + RATE.0 / 8 * 5 / 4;
    println!("{sent} bytes sent, {received} of them journaled when it fell silent");
    assert!(sent <= bound, "{sent} bytes, at most {bound}: it went on into the silence");
}

/// Bytes of the journal for a block.
const RECORD: u64 = 49;
