//! The daemon's loop with connections of this process, at times that each test states.
//!
//! A test calls the loop's steps itself. It must not depend on how fast the machine is.

#[path = "../../tests/posted/mod.rs"]
mod shared;

use std::path::PathBuf;

use super::*;

use gtp_share::{Change, GrantsReader, Posted, ReportsWriter};

pub(super) const CAPACITY: Rate = Rate::from_mbps(1_000);

pub(super) fn config() -> DaemonConfig {
    DaemonConfig {
        hub: HubConfig {
            capacity_out: CAPACITY,
            capacity_in: CAPACITY,
            interval: Some(Span::from_millis(20)),
            grace: Span::from_millis(250),
            users: BTreeMap::new(),
            most: BTreeMap::new(),
            least: BTreeMap::new(),
            end_node: crate::EndNodeSessions::default(),
        },
        idle_end: None,
        metrics: None,
        web: None,
        interface: None,
        reserve: Rate::ZERO,
    }
}

/// A directory of this user alone, whatever mask another test's daemon has the process use now.
fn private_dir() -> tempfile::TempDir {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    tempfile::Builder::new().permissions(mode).tempdir().unwrap()
}

fn daemon(dir: &tempfile::TempDir) -> (Daemon, PathBuf) {
    let path = dir.path().join("gtpd.sock");
    (Daemon::new(Claim::at(&path).unwrap(), &config()).unwrap(), path)
}

#[test]
fn a_programs_name_turns_no_writing_round() {
    let dir = private_dir();
    let (mut daemon, path) = daemon(&dir);
    let connection = Connection::open(&path).unwrap();
    let program = "a\u{202e}b\u{1b}[2J".to_owned();
    let request = Request::Attach { version: VERSION, slots: 1, program, again: false };
    connection.send(&serde_json::to_vec(&request).unwrap(), &[]).unwrap();
    daemon.accept(Time::ZERO);
    daemon.listen(Time::ZERO);
    let names: Vec<&str> = daemon.hub.clients.values().map(|c| &*c.who.program).collect();
    assert_eq!(names, ["a?b?[2J"]);
}

#[test]
fn settings_that_are_read_again_unchanged_forget_nothing_of_what_others_leave() {
    let dir = private_dir();
    let (mut daemon, _) = daemon(&dir);
    let now = daemon.clock.now();
    let left = Rate::from_bps(CAPACITY.as_bps() / 3);
    daemon.hub.set_capacity(left, left);
    daemon.go_by(now, config());
    assert_eq!(daemon.hub.capacity(), (left, left));
    let reserve = Rate::from_bps(CAPACITY.as_bps() / 4);
    let idle_end = Some(Span::from_secs(7));
    daemon.go_by(now, DaemonConfig { reserve, idle_end, ..config() });
    let rest = CAPACITY.saturating_sub(reserve);
    assert_eq!((daemon.hub.capacity(), daemon.told.idle_end), ((rest, rest), idle_end));
}

#[test]
fn who_asks_is_told_the_last_hour_of_each_user_and_nothing_where_nothing_moved() {
    let dir = private_dir();
    let (mut daemon, path) = daemon(&dir);
    let ask = |daemon: &mut Daemon| {
        let connection = Connection::open(&path).unwrap();
        let request = Request::History { version: VERSION };
        connection.send(&serde_json::to_vec(&request).unwrap(), &[]).unwrap();
        let now = daemon.clock.now();
        daemon.accept(now);
        daemon.wait(now, Span::ZERO).unwrap();
        daemon.listen(now);
        let mut buffer = [0; gtp_share::LIST_PACKET];
        let mut packets = Vec::new();
        while let Ok(Incoming::Message(length, _)) = connection.receive(&mut buffer) {
            packets.push(String::from_utf8(buffer[..length].to_vec()).unwrap());
        }
        packets
    };
    assert_eq!(ask(&mut daemon), ["{\"sessions\":{\"bytes\":0}}"]);
    daemon.lists = Lists::default();
    let later = daemon.clock.now() + Span::from_secs(10);
    daemon.hub.history.turn(later, [(Some(7), gtp_share::Side::Sink, 60_000)]);
    let told = ask(&mut daemon);
    let expected = "{\"uid\":7,\"direction\":\"in\",\"rates\":[48000]}\n";
    assert_eq!(told[1..], [expected]);
    assert_eq!(told[0], format!("{{\"sessions\":{{\"bytes\":{}}}}}", expected.len()));
}

#[test]
fn in_a_flood_of_connections_each_process_that_says_what_it_wants_is_taken_in() {
    let dir = private_dir();
    let (mut daemon, path) = daemon(&dir);
    let request =
        Request::Attach { version: VERSION, slots: 1, program: "test".to_owned(), again: false };
    let request = serde_json::to_vec(&request).unwrap();
    let (mut flood, mut honest) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        flood.extend((0..50).map(|_| Connection::open(&path).unwrap()));
        let one = Connection::open(&path).unwrap();
        one.send(&request, &[]).unwrap();
        honest.push(one);
    }
    daemon.accept(Time::ZERO);
    assert!(!daemon.crowded, "nobody waits any more");
    let mut buffer = [0; MESSAGE_MOST];
    for one in &honest {
        let Incoming::Message(length, fds) = one.receive(&mut buffer).unwrap() else {
            panic!("no answer");
        };
        let answer = serde_json::from_slice(&buffer[..length]).unwrap();
        assert!(matches!(answer, Answer::Attached { .. }) && fds.len() == 2, "{answer:?}");
    }
    assert_eq!(daemon.callers.len(), honest.len() + crate::comers::ASKING_OF_ONE);
    let Incoming::Message(length, _) = flood[0].receive(&mut buffer).unwrap() else {
        panic!("the first of the flood was let go without a word");
    };
    let answer = serde_json::from_slice(&buffer[..length]).unwrap();
    assert!(matches!(answer, Answer::Busy { .. }), "{answer:?}");
}

#[test]
fn a_process_that_has_ended_is_let_go_at_once_however_many_bells_it_has_left() {
    let dir = private_dir();
    let (mut daemon, path) = daemon(&dir);
    let request =
        Request::Attach { version: VERSION, slots: 1, program: "get".to_owned(), again: false };
    let process = Connection::open(&path).unwrap();
    process.send(&serde_json::to_vec(&request).unwrap(), &[]).unwrap();
    daemon.accept(Time::ZERO);
    assert_eq!(daemon.hub.clients.len(), 1);
    let rung = (0..1_000).take_while(|_| process.send(BELL, &[]).is_ok()).count();
    assert!(rung > 10 * MESSAGES, "{rung} bells wait");
    daemon.wait(daemon.clock.now(), Span::ZERO).unwrap();
    daemon.listen(Time::ZERO);
    assert_eq!(daemon.hub.clients.len(), 1, "it is there, and slow to be heard");
    drop(process);
    daemon.wait(daemon.clock.now(), Span::ZERO).unwrap();
    daemon.listen(Time::ZERO);
    assert_eq!((daemon.hub.clients.len(), daemon.callers.len()), (0, 0));
}

#[test]
fn a_change_says_what_came_of_it_and_why_nothing_did() {
    let dir = private_dir();
    let (mut daemon, _) = daemon(&dir);
    let begin = Time::ZERO + Span::from_secs(1_000);
    let (page, _) = attach(&mut daemon.hub, begin, 1);
    let weight = |w| Change { weight: Some(w), ..Change::default() };
    let set = |hub: &mut Hub, change: Change| {
        let session = hub.sessions_for(Right::Anybodys)[0].session;
        let had = hub.has(session);
        hub.set(begin, Right::Anybodys, session, change).unwrap();
        hub.effect(session, change, had).unwrap_or_default()
    };
    page.post(0, &posted(0));
    daemon.hub.wake(begin);
    daemon.hub.tick(begin, &mut Vec::new());
    let alone = set(&mut daemon.hub, weight(2.0));
    assert!(alone.contains("the only session that this host receives"), "{alone}");
    page.post(1, &Posted { id: 2, transfer: 1, ..posted(0) });
    daemon.hub.wake(begin + Span::from_millis(100));
    daemon.hub.tick(begin + Span::from_millis(100), &mut Vec::new());
    let more = set(&mut daemon.hub, weight(3.0));
    assert!(more.contains("is 75.0 %, and was 66.7 %"), "{more}");
    let (other, _) = attach(&mut daemon.hub, begin, 2);
    page.clear(1);
    other.post(0, &posted(0));
    daemon.hub.wake(begin + Span::from_millis(200));
    daemon.hub.tick(begin + Span::from_millis(200), &mut Vec::new());
    let same = set(&mut daemon.hub, weight(9.0));
    assert!(same.contains("its part stays"), "{same}");
    let limit = Change { max_rate: Some(1_000_000), ..Change::default() };
    let less = set(&mut daemon.hub, limit);
    assert!(less.contains("less than its new limit"), "{less}");
}

#[test]
fn a_user_whose_processes_come_and_go_without_end_is_told_to_wait() {
    let dir = private_dir();
    let (mut daemon, _) = daemon(&dir);
    let uid = rustix::process::geteuid().as_raw();
    let refused = |daemon: &mut Daemon, now| {
        (0..2_000).filter(|_| daemon.is_full(now, uid).is_some()).count()
    };
    let begin = Time::from_nanos(1_000_000_000);
    let often = refused(&mut daemon, begin);
    assert!((1_000..2_000).contains(&often), "{often}");
    assert!(daemon.is_full(begin, uid + 1).is_none(), "others come in");
    assert!(daemon.is_full(begin + Span::from_secs(1), uid).is_none(), "and so does it later");
}

pub(crate) fn posted(wire_bytes: u64) -> Posted {
    Posted { wire_bytes, ..shared::session() }
}

pub(super) fn attach(hub: &mut Hub, now: Time, id: ClientId) -> (ReportsWriter, GrantsReader) {
    let who = Who { uid: id as u32, pid: 1, program: "test".into() };
    let ([reports, grants], slots) = hub.attach(now, id, who, 4).unwrap();
    (ReportsWriter::open(reports, slots).unwrap(), GrantsReader::open(grants, slots).unwrap())
}

/// Connections that have asked for the list.
fn askers(daemon: &mut Daemon, path: &std::path::Path, now: Time, count: usize) -> Vec<Connection> {
    let request = serde_json::to_vec(&Request::Sessions { version: VERSION }).unwrap();
    let open = || {
        let connection = Connection::open(path).unwrap();
        connection.send(&request, &[]).unwrap();
        connection
    };
    let all = (0..count).map(|_| open()).collect();
    daemon.accept(now);
    daemon.listen(now);
    all
}

/// A daemon whose list is longer than a connection takes at once.
fn with_a_long_list(dir: &tempfile::TempDir) -> (Daemon, PathBuf, u32) {
    const SESSIONS: u32 = 4_096;
    let (mut daemon, path) = daemon(dir);
    let who = Who { uid: 1, pid: 1, program: "test".into() };
    let ([reports, _], slots) = daemon.hub.attach(Time::ZERO, 1 << 40, who, SESSIONS).unwrap();
    let page = ReportsWriter::open(reports, slots).unwrap();
    (0..SESSIONS).for_each(|slot| page.post(slot, &posted(0)));
    // Long after the daemon's own clock, however slow the machine is.
    let begin = Time::ZERO + Span::from_secs(1_000);
    daemon.hub.wake(begin);
    daemon.hub.tick(begin, &mut Vec::new());
    (daemon, path, SESSIONS)
}

#[test]
fn a_list_comes_without_descriptors_beside_readers_that_do_not_read() {
    let dir = private_dir();
    let (mut daemon, path, sessions) = with_a_long_list(&dir);
    let lazy = askers(&mut daemon, &path, Time::ZERO, 20);
    let mut buffer = [0; MESSAGE_MOST];
    let Incoming::Message(length, fds) = lazy[0].receive(&mut buffer).unwrap() else {
        panic!("no answer");
    };
    let answer = serde_json::from_slice(&buffer[..length]).unwrap();
    assert!(matches!(answer, Answer::Sessions { .. }) && fds.is_empty());
    let reading = {
        let path = path.clone();
        std::thread::spawn(move || gtp_share::client::sessions(&path))
    };
    while !reading.is_finished() {
        daemon.accept(Time::ZERO);
        daemon.callers.values_mut().for_each(|caller| caller.ready = true);
        daemon.listen(Time::ZERO);
        std::thread::yield_now();
    }
    let (host, listed) = reading.join().unwrap().unwrap();
    assert_eq!((host.sessions, listed.len()), (sessions, sessions as usize));
    daemon.listen(Time::ZERO + ASKING_MOST + Span::from_secs(1));
    assert!(daemon.callers.is_empty(), "who does not read is let go");
}

#[test]
fn lists_that_nobody_reads_are_few() {
    let dir = private_dir();
    let (mut daemon, path, _) = with_a_long_list(&dir);
    let mut buffer = [0; MESSAGE_MOST];
    let mut refused = 0;
    let mut all = Vec::new();
    for round in 0..10 {
        let now = Time::ZERO + Span::from_millis(200) * round;
        let asker = askers(&mut daemon, &path, now, 1).remove(0);
        let Incoming::Message(length, _) = asker.receive(&mut buffer).unwrap() else {
            panic!("no answer");
        };
        let answer = serde_json::from_slice(&buffer[..length]).unwrap();
        refused += u32::from(matches!(answer, Answer::Refused { .. }));
        all.push(asker);
    }
    assert_eq!(refused, 6, "four are kept");
}
