//! The peers of this program's sockets as the program should see them.
//!
//! For the kernel the sockets are connected to the pump. The key is the kernel's number of a
//! socket, so that duplicates of its descriptor and forked processes find the same entry. The table
//! has a fixed size and no lock, since a signal or a fork may come at any moment; the pump knows
//! what it has lost.

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::atomic::{AtomicU64, Ordering};

/// Places in the table. A newer socket takes an older one's place.
const PLACES: usize = 1_024;
/// In place of a number: the entry is being written.
const WRITTEN: u64 = u64::MAX;

/// In place of an address: the socket does not lead to the pump. No port and scope are this.
const ELSEWHERE: [u64; 3] = [u64::MAX; 3];

struct Place {
    /// The socket's number; zero: none.
    socket: AtomicU64,
    /// Address, in two halves; scope and port.
    words: [AtomicU64; 3],
}

#[allow(clippy::declare_interior_mutable_const)] // It is copied into each place.
const EMPTY: Place = Place { socket: AtomicU64::new(0), words: [const { AtomicU64::new(0) }; 3] };

static TABLE: [Place; PLACES] = [EMPTY; PLACES];

fn place(socket: u64) -> &'static Place {
    &TABLE[(socket % PLACES as u64) as usize]
}

/// Takes note of where a socket is connected to; `None`: not by way of the pump.
pub fn note(socket: u64, to: Option<SocketAddr>) {
    let place = place(socket);
    if place.socket.swap(WRITTEN, Ordering::SeqCst) == WRITTEN {
        return; // Another thread writes there, and the place is its socket's.
    }
    for (word, value) in place.words.iter().zip(to.map_or(ELSEWHERE, words)) {
        word.store(value, Ordering::SeqCst);
    }
    place.socket.store(socket, Ordering::SeqCst);
}

/// Forgets where a socket was connected to.
pub fn forget(socket: u64) {
    let its = &place(socket).socket;
    // Where the place is another's, there is nothing to forget.
    let _ = its.compare_exchange(socket, 0, Ordering::SeqCst, Ordering::SeqCst);
}

/// Where a socket is connected to, if that is known here; `Some(None)`: not by way of the pump.
pub fn find(socket: u64) -> Option<Option<SocketAddr>> {
    let place = place(socket);
    let is_its = || place.socket.load(Ordering::SeqCst) == socket;
    let before = is_its();
    let [high, low, rest] = [0, 1, 2].map(|at: usize| place.words[at].load(Ordering::SeqCst));
    let known = [high, low, rest];
    (before && is_its()).then(|| (known != ELSEWHERE).then(|| address(high, low, rest)))
}

fn words(to: SocketAddr) -> [u64; 3] {
    let (ip, scope) = match to {
        SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped(), 0),
        SocketAddr::V6(v6) => (*v6.ip(), v6.scope_id()),
    };
    let bits = ip.to_bits();
    [(bits >> 64) as u64, bits as u64, u64::from(scope) << 16 | u64::from(to.port())]
}

fn address(high: u64, low: u64, rest: u64) -> SocketAddr {
    let ip = Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low));
    let (port, scope) = (rest as u16, (rest >> 16) as u32);
    match ip.to_ipv4_mapped() {
        Some(v4) => SocketAddr::from((v4, port)),
        None => SocketAddrV6::new(ip, port, 0, scope).into(),
    }
}
