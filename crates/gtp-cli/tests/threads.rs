//! The number of threads of a process, which does not follow from its sessions.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::{World, wait_for};
use gtp::{Get, Host, Rate, Transfer};

/// The threads of a process, by their names.
fn threads(process: u32) -> BTreeMap<String, usize> {
    let mut names = BTreeMap::new();
    for task in std::fs::read_dir(format!("/proc/{process}/task")).unwrap() {
        // One that has ended meanwhile has no name.
        if let Ok(name) = std::fs::read_to_string(task.unwrap().path().join("comm")) {
            *names.entry(name.trim().to_owned()).or_default() += 1;
        }
    }
    names
}

/// The threads for files and of the runtime that docs/ARCHITECTURE.md states.
fn stated() -> BTreeMap<String, usize> {
    let processors = std::thread::available_parallelism().unwrap().get();
    let (workers, hashers) = (processors.clamp(4, 16), processors.div_ceil(4));
    let stated = [("gtp-files", workers), ("gtp-hasher", hashers), ("gtp-watch", 1), (RUNTIME, 2)];
    stated.map(|(name, number)| (name.to_owned(), number)).into()
}

/// The threads of a process once those have ended that opened files for new sessions: these have
/// the name of the runtime's own.
fn settled(process: u32) -> BTreeMap<String, usize> {
    let is_settled = || {
        let now = threads(process);
        stated().iter().all(|(name, number)| now.get(name) == Some(number))
    };
    wait_for("the stated number of threads", is_settled);
    threads(process)
}

const RUNTIME: &str = "tokio-rt-worker";

#[test]
fn a_server_and_a_client_have_as_many_threads_with_64_sessions_as_with_8_and_with_1() {
    let world = World::new();
    let file = std::fs::File::create(world.path("export/large")).unwrap();
    file.set_len(256 << 20).unwrap();
    let server = world.serve("server", &["--public"]);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(2).enable_all().thread_keep_alive(Duration::from_millis(100));
    let runtime = runtime.build().unwrap();
    let _inside = runtime.enter();
    let host = Host::builder().config_dir(world.path("client")).start().unwrap();
    let get = |n: usize| {
        let get = Get::new(server.url("large").parse().unwrap()).to(world.path(&format!("got{n}")));
        let get = get.fingerprint(server.fingerprint.parse().unwrap());
        get.max_rate(Rate::from_mbps(1)).start(&host).unwrap()
    };
    let mut gets: Vec<Transfer> = Vec::new();
    let mut seen = Vec::new();
    for sessions in [1, 8, 64] {
        gets.extend((gets.len()..sessions).map(get));
        wait_for("all move", || gets.iter().all(|get| get.progress().bytes > 0));
        seen.push([server.id(), std::process::id()].map(settled));
    }
    assert_eq!(seen[0], seen[1], "with one session and with eight");
    assert_eq!(seen[0], seen[2], "with one session and with sixty-four");
    println!("{:?}", seen[2]);
}
