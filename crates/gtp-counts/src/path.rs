//! A data path from memory to memory in virtual time: two engines, and what they send each other.
//!
//! As `gtp bench` has it, with real keys, agents, batches and blocks; only the kernel is left out.
//! Nothing is lost, and nothing here reads a clock or has another thread.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes as Shared;
use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_net::crypto::{Suite, TrafficSecret};
use gtp_net::engine::{
    HostConfig, Law, RootPolicy, SessionKeys, SessionOpen, SocketId, SourceOpen, TransferOpen,
    Unthreaded,
};
use gtp_proto::{Codepoint, PathUse, Revision, Role, Weights};
use gtp_store::{
    BLOCK, BlockSink, BlockSource, Entry, Finished, Framed, Have, Kind, Lender, Manifest, Mode,
    Mtime, RelPath, RootKind, SinkError, SourceError, TRAILER, Value, Window, Written,
};

use crate::callgrind;

/// An end of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Sender,
    Receiver,
}

const ENDS: [End; 2] = [End::Sender, End::Receiver];

/// Datagrams of one length but for the last, on their way.
struct Flying {
    arrives: Time,
    bytes: Vec<u8>,
    segment: usize,
    ecn: Codepoint,
}

/// Both ends, and what flies to each.
pub(crate) struct Path {
    now: Time,
    engines: [Unthreaded; 2],
    flying: [VecDeque<Flying>; 2],
    spare: Vec<Vec<u8>>,
    sent: u64,
    wanted: u64,
}

/// Each way takes so long.
const DELAY: Span = Span::from_micros(50);
/// At each end, in each direction.
const CAPACITY: Rate = Rate::from_mbps(10_000);
const START: Time = Time::from_nanos(1_000_000_000);
/// Longer than any run.
const BLOCKS: u64 = 10_000;
/// What fits into 1,500 bytes, in round numbers, as the bare program of docs/BENCH.md has it.
const UNIT: u16 = 1_400;

impl Path {
    /// Two ends that have not yet said a word.
    ///
    /// # Errors
    /// When the system gives no descriptors.
    pub(crate) fn new() -> io::Result<Path> {
        Path::lending(BLOCKS)
    }

    /// The same, where the sender has only the first so many blocks at hand, and never more.
    fn lending(blocks: u64) -> io::Result<Path> {
        let config = HostConfig {
            capacity_out: CAPACITY,
            capacity_in: CAPACITY,
            interval: None,
            memory: Bytes(256 << 20),
            engines: 1,
        };
        let engine = || Unthreaded::new(START, config);
        let [mut sender, mut receiver] = [engine()?, engine()?];
        let lent = Lent::new(blocks);
        let open = TransferOpen {
            sink: Box::new(Gone),
            manifest: lent.manifest.clone(),
            roots: RootPolicy::TrustTrailers,
        };
        let source = Box::new(lent);
        sender.open_source(START, SourceOpen { session: session(End::Sender), source });
        receiver.open_transfer(START, open, session(End::Receiver));
        Ok(Path {
            now: START,
            engines: [sender, receiver],
            flying: Default::default(),
            spare: Vec::new(),
            sent: 0,
            wanted: 0,
        })
    }

    /// Lets the sender send so many packets more, to the next batch's end, and callgrind count what
    /// one end does.
    pub(crate) fn carry(&mut self, packets: u64, counted: Option<End>) {
        self.wanted += packets;
        while self.sent < self.wanted {
            self.turn(counted);
        }
    }

    /// Both ends do what there is to do, and time goes on.
    fn turn(&mut self, counted: Option<End>) {
        for end in ENDS {
            self.arrive(end, counted == Some(end));
        }
        for end in ENDS {
            self.leave(end, counted == Some(end));
        }
        self.pass();
    }

    /// What has come to one end is read there.
    fn arrive(&mut self, end: End, counted: bool) {
        let (now, place) = (self.now, end as usize);
        while self.flying[place].front().is_some_and(|flying| flying.arrives <= now)
            && let Some(mut come) = self.flying[place].pop_front()
        {
            let origin = (address(end.other()), come.arrives, come.ecn);
            let engine = &mut self.engines[place];
            perhaps(counted, &mut || engine.receive(now, origin, &mut come.bytes, come.segment));
            self.spare.push(come.bytes);
        }
    }

    /// One end does what is due, and sends all that may leave.
    fn leave(&mut self, end: End, counted: bool) {
        let (now, engine) = (self.now, &mut self.engines[end as usize]);
        perhaps(counted, &mut || engine.handle_timeout(now));
        while end == End::Receiver || self.sent < self.wanted {
            let mut more = false;
            perhaps(counted, &mut || more = engine.poll_batch(now));
            if !more {
                return;
            }
            for (datagrams, segment, ecn) in engine.runs() {
                let mut bytes = self.spare.pop().unwrap_or_default();
                bytes.clear();
                bytes.extend_from_slice(datagrams);
                if end == End::Sender {
                    self.sent += bytes.len().div_ceil(segment) as u64;
                }
                let flying = Flying { arrives: now + DELAY, bytes, segment, ecn };
                self.flying[end.other() as usize].push_back(flying);
            }
        }
    }

    /// Time goes on to whatever is next.
    fn pass(&mut self) {
        let due = self.engines.iter().map(Unthreaded::poll_timeout);
        let arrivals = self.flying.iter().filter_map(VecDeque::front).map(|flying| flying.arrives);
        let next = due.chain(arrivals).min().expect("two ends");
        self.now = next.max(self.now + Span::from_micros(1));
    }
}

fn perhaps(counted: bool, work: &mut dyn FnMut()) {
    match counted {
        true => callgrind::counted(work),
        false => work(),
    }
}

impl End {
    fn other(self) -> End {
        match self {
            End::Sender => End::Receiver,
            End::Receiver => End::Sender,
        }
    }
}

fn address(end: End) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, end as u8], 4_810))
}

fn session(end: End) -> SessionOpen {
    let secret = |from: End| TrafficSecret::new([from as u8; 32]);
    SessionOpen {
        socket: SocketId(0),
        peer: address(end.other()),
        local_session: end as u32,
        peer_session: end.other() as u32,
        keys: SessionKeys { suite: Suite::Aes128Gcm, seal: secret(end), open: secret(end.other()) },
        revision: Revision::NEWEST,
        role: match end {
            End::Sender => Role::Responder,
            End::Receiver => Role::Initiator { unit_payloads: vec![UNIT] },
        },
        law: Law::Grant,
        weights: Weights { own: 1.0, peer: 1.0 },
        path: PathUse::default(),
        max_rate: Rate::UNLIMITED,
        principal: 0,
        allowance: gtp_net::engine::Allowance::default(),
        label: String::new(),
    }
}

/// One block of memory, lent for each block of a file.
#[derive(Clone)]
struct Lent {
    manifest: Arc<Manifest>,
    framed: Shared,
    blocks: u64,
}

impl Lent {
    fn new(blocks: u64) -> Lent {
        let file = Entry {
            path: RelPath::new("file").expect("a name"),
            kind: Kind::File,
            size: BLOCKS * BLOCK,
            mode: Mode::new(0o644),
            mtime: Mtime::new(0, 0).expect("the epoch"),
        };
        let manifest = Manifest { root_kind: RootKind::File, own: None, entries: vec![file] };
        let framed = Shared::from(vec![7; BLOCK as usize + TRAILER]);
        Lent { manifest: Arc::new(manifest), framed, blocks }
    }
}

impl Lender for Lent {
    fn lend(&self, _: u32, block: u64) -> Option<Shared> {
        (block < self.blocks).then(|| self.framed.clone())
    }
}

impl BlockSource for Lent {
    fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    fn load_block(&mut self, file: u32, block: u64, _: &mut Framed) -> Result<(), SourceError> {
        Err(SourceError::NoSuchBlock { file, block })
    }

    fn lender(&self) -> Option<Box<dyn Lender>> {
        Some(Box::new(self.clone()))
    }

    fn file_root_while(&mut self, file: u32, _: &dyn Fn() -> bool) -> Result<Value, SourceError> {
        Err(SourceError::NoSuchBlock { file, block: 0 })
    }
}

/// Takes every block for good, and keeps none.
struct Gone;

impl BlockSink for Gone {
    fn have(&self) -> &[Have] {
        &[]
    }

    fn window(&self) -> Window {
        Window::Any
    }

    fn write_block(&mut self, _: u32, _: u64, _: &[u8]) -> Result<Written, SinkError> {
        Ok(Written::Good)
    }

    fn checkpoint(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn finish_file(&mut self, _: u32, _: Option<Value>) -> Result<Option<Value>, SinkError> {
        Ok(None)
    }

    fn finish(&mut self) -> Result<Finished, SinkError> {
        Ok(Finished { files_written: 1, files_unchanged: 0, bytes_written: 0, root: None })
    }

    fn suspend(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_has_found_its_rate_is_full() {
        let mut path = Path::new().unwrap();
        path.carry(5_000, None);
        let (begun, before) = (path.now, path.sent);
        path.carry(50_000, None);
        let bits = (path.sent - before) as f64 * f64::from(UNIT + 77) * 8.0;
        let rate = bits / path.now.since(begun).as_secs_f64();
        assert!((0.98..1.01).contains(&(rate / CAPACITY.as_f64())), "{rate:.3e} bit/s");
    }
    #[test]
    fn two_ends_over_which_nothing_moves_are_hardly_ever_awake() {
        let mut path = Path::lending(4).unwrap();
        path.wanted = u64::MAX;
        let mut until = |seconds| {
            let (end, mut turns, sent) = (START + Span::from_secs(seconds), 0, path.sent);
            while path.now < end {
                path.turn(None);
                turns += 1;
            }
            (turns, path.sent - sent)
        };
        let (_, sent) = until(3);
        assert!(sent > 4 * BLOCK / u64::from(UNIT), "{sent}");
        // Each 100 ms: a status and a feedback, each of which arrives, and what rests is looked
        // after at both ends.
        let (turns, said) = until(5);
        assert!((15..=25).contains(&said), "statuses of two seconds: {said}");
        assert!(turns <= 250, "in two seconds: {turns}");
    }
}
