//! A network path emulator in userspace, for real packets.
//!
//! One file describes links, which have rate, delay, queue and loss, and the paths over them;
//! paths share links, so that flows really meet. What happens to a packet is decided by
//! `gtp-link`; this crate brings real packets in, waits until they are due, and sends them out.
//! It has two faces: a relay for UDP and TCP that needs no root ([`Emulator::relay`]), and a
//! router between network namespaces for everything that is IP ([`Emulator::router`]).
//!
//! It knows nothing of the protocol whose packets it carries, and states its own timing error.

mod control;
mod poller;
mod relay;
mod router;
mod run;
pub mod spec;
pub mod stats;
mod timing;
mod udp;
pub mod units_text;

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc;

use gtp_alloc::Time;
use gtp_link::{LinkId, Network};

use control::Command;
use poller::Waker;

pub use control::{ControlError, Handle, Protocol};
pub use gtp_link::{Chance, Change, LinkState};
pub use run::{Face, Progress, RunOptions, run};
pub use spec::{Carriage, NetSpec, SpecError};
pub use stats::{Interval, Snapshot};
pub use timing::TimingError;

/// Starts emulators.
#[derive(Clone, Copy, Debug)]
pub struct Emulator;

impl Emulator {
    /// Starts the relay of this network in a thread of its own. When it returns, all paths listen.
    ///
    /// # Errors
    /// If the network has no path, an address cannot be bound, or the system gives no thread.
    pub fn relay(spec: &NetSpec) -> io::Result<Handle> {
        spec.serves(Face::Relay).map_err(unfit)?;
        start(spec, "gtp-relay", |spec, orders| {
            let relay = relay::Relay::open(spec, orders)?;
            let (waker, paths) = (relay.waker(), relay.listening()?);
            Ok((waker, paths, move || relay.run()))
        })
    }

    /// Starts the router of this network in a thread of its own. When it returns, all namespaces
    /// and devices stand. Namespaces that it made go away when it stops.
    ///
    /// # Errors
    /// If the network has no route, the privilege or iproute2 is missing, or the system refuses a
    /// namespace or device.
    pub fn router(spec: &NetSpec) -> io::Result<Handle> {
        spec.serves(Face::Tun).map_err(unfit)?;
        start(spec, "gtp-router", |spec, orders| {
            let router = router::Router::open(spec, orders)?;
            Ok((router.waker(), Vec::new(), move || router.run()))
        })
    }
}

/// Opens a face in a thread of its own, because what it holds may not change threads, waits until
/// it is open, and lets it run.
fn start<R: FnOnce() -> io::Result<Snapshot>>(
    spec: &NetSpec,
    name: &str,
    open: impl FnOnce(&NetSpec, mpsc::Receiver<Command>) -> io::Result<(Waker, Paths, R)>
    + Send
    + 'static,
) -> io::Result<Handle> {
    let (spec, links) = (spec.clone(), link_names(spec));
    let (commands, orders) = mpsc::channel();
    let (opened, opening) = mpsc::channel();
    let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
        // The opener waits for this word, whatever it is.
        match open(&spec, orders) {
            Ok((waker, paths, run)) => {
                let _ = opened.send(Ok((waker, paths)));
                run()
            }
            Err(error) => {
                let _ = opened.send(Err(error));
                Ok(Snapshot::default())
            }
        }
    })?;
    let gone = |_| io::Error::other("the emulator's thread ended at once");
    let (waker, paths) = opening.recv().map_err(gone)??;
    Ok(Handle { commands, waker, thread: Some(thread), links, paths })
}

/// Paths with the addresses that they listen on.
type Paths = Vec<(String, SocketAddr)>;

fn unfit(refused: SpecError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, refused)
}

fn link_names(spec: &NetSpec) -> Vec<String> {
    spec.links.iter().map(|link| link.name.clone()).collect()
}

/// The links of a network, with their changes counted from `start`; no routes yet.
fn network<P: Clone>(spec: &NetSpec, start: Time) -> Network<P> {
    let mut net = Network::new(spec.emulator.memory);
    for link in &spec.links {
        net.add_link(link.spec.clone(), link.seed);
    }
    for (n, link) in spec.links.iter().enumerate() {
        for (after, change) in &link.changes {
            net.schedule(start + *after, LinkId(n), *change);
        }
    }
    net
}
