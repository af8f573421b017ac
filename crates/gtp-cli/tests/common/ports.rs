//! Ports for programs that must be told one, and who listens on them.

use std::collections::HashSet;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// The first port that is given out here.
const FIRST: u16 = 10_000;
/// The fewest ports to choose from.
const LEAST: u16 = 2_000;
/// Ports that one process gives out before it comes to those of the next.
const EACH: u32 = 64;

/// A port of 127.0.0.1 on which nobody listens. The system gives it to nobody by itself, and no
/// other test gets it while this process lives: it is still free when a slow program comes to bind
/// it.
pub fn free_port() -> u16 {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let count = u32::from(end() - FIRST);
    let start = std::process::id().wrapping_mul(EACH) % count;
    let next = || (start + GIVEN.fetch_add(1, Ordering::Relaxed)) % count;
    let is_free = |port: &u16| {
        let at = ("127.0.0.1", *port);
        claim(*port) && TcpListener::bind(at).is_ok() && UdpSocket::bind(at).is_ok()
    };
    let mut ports = (0..count).map(|_| FIRST + next() as u16);
    ports.find(is_free).expect("a port is free")
}

/// Takes a port from all other tests of this host until this process ends. `false`: one has it.
fn claim(port: u16) -> bool {
    let name = SocketAddr::from_abstract_name(format!("gtp-test-port-{port}")).unwrap();
    // It is open as long as the process lives.
    UnixListener::bind_addr(&name).map(std::mem::forget).is_ok()
}

/// The first port above those that are given out: where those begin that the system chooses from
/// for whoever asks for any port. Where it may choose nearly all, there are none to spare.
fn end() -> u16 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let range = range.unwrap_or_default();
    let chosen = range.split_whitespace().next().and_then(|first| first.parse().ok());
    chosen.filter(|&first| first >= FIRST + LEAST).unwrap_or(u16::MAX)
}

/// Whether a process of this group listens on a port over IPv4.
pub fn is_listening(group: u32, port: u16) -> bool {
    let listening = listeners(port);
    !listening.is_empty() && members(group).any(|process| holds(&process, &listening))
}

/// The sockets that listen on a port, as links to descriptors name them.
fn listeners(port: u16) -> HashSet<String> {
    const LISTEN: &str = "0A";
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let port = format!(":{port:04X}");
    let row = |row: &str| {
        let words: Vec<&str> = row.split_ascii_whitespace().collect();
        let is_one = words[1].ends_with(&port) && words[3] == LISTEN;
        is_one.then(|| format!("socket:[{}]", words[9]))
    };
    table.lines().skip(1).filter_map(row).collect()
}

/// The processes of a group, by their numbers.
fn members(group: u32) -> impl Iterator<Item = String> {
    let group = group.to_string();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.filter_map(|entry| entry.file_name().into_string().ok()).filter(move |process| {
        // One that has ended meanwhile is in no group.
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // Behind the name, which may hold anything: state, parent, group.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        fields.split_whitespace().nth(2) == Some(&group)
    })
}

fn holds(process: &str, sockets: &HashSet<String>) -> bool {
    let descriptors = std::fs::read_dir(format!("/proc/{process}/fd"));
    descriptors.into_iter().flatten().flatten().any(|descriptor| {
        let target = std::fs::read_link(descriptor.path()).unwrap_or_default();
        target.to_str().is_some_and(|target| sockets.contains(target))
    })
}
