//! Something nasty between two hosts: forwards datagrams, and does to them what a test says.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What becomes of the `n`th datagram of a direction: these leave, in this order.
pub type Fate = fn(n: usize, datagram: &[u8], past: &mut Vec<Vec<u8>>) -> Vec<Vec<u8>>;

/// A relay between a sink and a source; it ends with the value.
pub struct Relay {
    /// What the sink takes for the source.
    pub sink_side: SocketAddr,
    /// Whether it forwards at all.
    pub open: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
}

impl Relay {
    /// Relays between `sink` and `source`, both of which `fate` applies to.
    pub fn new(sink: SocketAddr, source: SocketAddr, fate: Fate) -> Relay {
        let bind = || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            socket
        };
        let (to_sink, to_source) = (bind(), bind());
        let sink_side = to_sink.local_addr().unwrap();
        let (open, ended) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
        for (from, via, to) in [
            (to_sink.try_clone().unwrap(), to_source.try_clone().unwrap(), source),
            (to_source, to_sink, sink),
        ] {
            let (open, ended) = (open.clone(), ended.clone());
            std::thread::spawn(move || forward(&from, &via, to, fate, &open, &ended));
        }
        Relay { sink_side, open, ended }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

fn forward(
    from: &UdpSocket,
    via: &UdpSocket,
    to: SocketAddr,
    fate: Fate,
    open: &AtomicBool,
    ended: &AtomicBool,
) {
    let (mut buffer, mut past, mut n) = ([0; 65_536], Vec::new(), 0);
    while !ended.load(Ordering::Relaxed) {
        let Ok(len) = from.recv(&mut buffer) else { continue };
        if open.load(Ordering::Relaxed) {
            for datagram in fate(n, &buffer[..len], &mut past) {
                let _ = via.send_to(&datagram, to);
            }
            n += 1;
        }
    }
}

/// Every datagram as it is.
pub fn faithful(_: usize, datagram: &[u8], _: &mut Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    vec![datagram.to_vec()]
}

/// Nothing longer than packets with units of 1,400 bytes.
pub fn narrow(_: usize, datagram: &[u8], _: &mut Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    if datagram.len() <= 1_449 { vec![datagram.to_vec()] } else { Vec::new() }
}

/// Lets 60 data packets through, less than a block, and nothing after them.
pub fn dying_in_mid_block(_: usize, datagram: &[u8], past: &mut Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    if past.len() >= 60 {
        return Vec::new();
    }
    if datagram[0] == 0x10 {
        past.push(Vec::new());
    }
    vec![datagram.to_vec()]
}

/// Loses, repeats, cuts, bends, replays and reorders.
pub fn vicious(n: usize, datagram: &[u8], past: &mut Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    if n % 9 == 8 {
        past.push(datagram.to_vec()); // Comes later, as the seventh of a hundred.
    } else if n % 101 != 100 {
        out.push(datagram.to_vec());
    }
    if n.is_multiple_of(5) {
        out.push(datagram.to_vec());
    }
    if n.is_multiple_of(3) {
        out.push(datagram[..n % (datagram.len() + 1)].to_vec());
        let mut bent = datagram.to_vec();
        let at = (n * 31) % bent.len();
        bent[at] ^= 1 << (n % 8);
        out.push(bent);
        out.push((0..n % 200).map(|i| (i * n) as u8).collect());
    }
    if n.is_multiple_of(7) && past.len() > 3 {
        out.push(past[(n * 13) % past.len()].clone());
        out.push(past.remove(0));
    }
    out
}
