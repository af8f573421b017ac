//! Two hosts on loopback, and sessions between them with keys made on the spot.
#![allow(dead_code)] // Each test file uses a part of it.

pub mod relay;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use gtp_alloc::{Bytes, Rate};
use gtp_net::crypto::{Suite, TrafficSecret};
use gtp_net::engine::{
    Host, HostConfig, Law, RootPolicy, SessionKeys, SessionOpen, SocketId, SourceEvent,
    SourceHandle, SourceOpen, TransferEvent, TransferHandle, TransferOpen,
};
use gtp_proto::{FlowId, PathUse, Revision, Role};
use gtp_store::{
    BlockSink, BlockSource, DiscardSink, Finished, Framed, Manifest, Pattern, RelPath, SourceError,
    SyntheticSource, Value,
};

/// Nothing here takes longer than a part of this.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn host_config(out: Rate, in_: Rate) -> HostConfig {
    HostConfig {
        capacity_out: out,
        capacity_in: in_,
        interval: None,
        memory: Bytes(64 << 20),
        engines: 1,
    }
}

/// One end.
pub struct End {
    pub host: Host,
    pub socket: SocketId,
    pub addr: SocketAddr,
}

impl End {
    pub fn new(config: HostConfig) -> End {
        let host = Host::start(config).unwrap();
        let (socket, addr) = host.bind_udp("127.0.0.1:0".parse().unwrap()).unwrap();
        End { host, socket, addr }
    }
}

/// A host that sends, a host that receives, and a runtime for their events.
pub struct World {
    pub sends: End,
    pub receives: End,
    pub runtime: Arc<tokio::runtime::Runtime>,
}

/// A transfer with its runtime.
pub struct Incoming {
    pub handle: TransferHandle,
    pub runtime: Arc<tokio::runtime::Runtime>,
}

/// A sending session with its runtime.
pub struct Outgoing {
    pub handle: SourceHandle,
    pub runtime: Arc<tokio::runtime::Runtime>,
    pub flow: FlowId,
}

impl World {
    pub fn new() -> World {
        let capacity = Rate::from_mbps(1_000);
        World::with(capacity, capacity)
    }

    pub fn with(out: Rate, in_: Rate) -> World {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        World {
            sends: End::new(host_config(out, Rate::UNLIMITED)),
            receives: End::new(host_config(Rate::UNLIMITED, in_)),
            runtime: Arc::new(runtime),
        }
    }

    /// A transfer of a synthetic file that is checked and dropped.
    pub fn transfer(&self, size: u64) -> Incoming {
        let manifest = synthetic(size).manifest().clone();
        self.transfer_into(Box::new(DiscardSink::new(manifest.clone())), manifest)
    }

    pub fn transfer_into(&self, sink: Box<dyn BlockSink>, manifest: Arc<Manifest>) -> Incoming {
        let open = TransferOpen { sink, manifest, roots: RootPolicy::TrustTrailers };
        Incoming { handle: self.receives.host.open_transfer(open), runtime: self.runtime.clone() }
    }

    /// A session that brings a synthetic file.
    pub fn source(&self, size: u64, transfer: &Incoming) -> Outgoing {
        self.source_of(Box::new(synthetic(size)), transfer)
    }

    pub fn source_of(&self, source: Box<dyn BlockSource>, transfer: &Incoming) -> Outgoing {
        self.source_from(&self.sends, self.receives.addr, self.sends.addr, source, transfer)
    }

    /// A session between any two addresses, which may be those of something between the hosts.
    pub fn source_from(
        &self,
        sends: &End,
        sink_addr: SocketAddr,
        source_addr: SocketAddr,
        source: Box<dyn BlockSource>,
        transfer: &Incoming,
    ) -> Outgoing {
        let (here, there) = self.session_pair(sends, sink_addr, source_addr);
        let handle = sends.host.open_source(SourceOpen { session: there, source });
        let flow = transfer.handle.add_session(here);
        Outgoing { handle, runtime: self.runtime.clone(), flow }
    }

    /// What the sink's and the source's engine must know of a session.
    pub fn session_pair(
        &self,
        sends: &End,
        sink_addr: SocketAddr,
        source_addr: SocketAddr,
    ) -> (SessionOpen, SessionOpen) {
        let sink_id = self.receives.host.new_session_id();
        let source_id = sends.host.new_session_id();
        let keys = |seal: u8, open: u8| SessionKeys {
            suite: Suite::Aes128Gcm,
            seal: TrafficSecret::new([seal; 32]),
            open: TrafficSecret::new([open; 32]),
        };
        let session = |socket, peer, local_session, peer_session, keys, role| SessionOpen {
            socket,
            peer,
            local_session,
            peer_session,
            keys,
            revision: Revision::NEWEST,
            role,
            law: Law::Grant,
            weights: gtp_proto::Weights::ONE,
            path: PathUse::default(),
            max_rate: Rate::UNLIMITED,
            principal: 0,
            allowance: gtp_net::engine::Allowance::default(),
            label: "test".into(),
        };
        // One length alone: a responder that its engine has not opened yet would miss the longest.
        let initiator = Role::Initiator { unit_payloads: vec![1_400] };
        let (sink_socket, source_socket) = (self.receives.socket, sends.socket);
        let here = session(sink_socket, source_addr, sink_id, source_id, keys(1, 2), initiator);
        let role = Role::Responder;
        let there = session(source_socket, sink_addr, source_id, sink_id, keys(2, 1), role);
        (here, there)
    }
}

impl Incoming {
    /// The next event.
    pub fn next(&mut self) -> Option<TransferEvent> {
        let next = async { tokio::time::timeout(PATIENCE, self.handle.next_event()).await };
        self.runtime.block_on(next).expect("an event comes in time")
    }

    /// Finishes files when all blocks are here, and returns all events up to the last.
    pub fn until_end(&mut self) -> Vec<TransferEvent> {
        self.until(|event| {
            matches!(
                event,
                TransferEvent::Complete(_) | TransferEvent::Fault(_) | TransferEvent::Suspended
            )
        })
    }

    /// Finishes files when all blocks are here, and returns all events up to the one wanted.
    pub fn until(&mut self, last: impl Fn(&TransferEvent) -> bool) -> Vec<TransferEvent> {
        let mut events = Vec::new();
        while let Some(event) = self.next() {
            if matches!(event, TransferEvent::AllBlocks) {
                self.handle.finish_files(vec![(0, None)]);
            }
            let done = last(&event);
            events.push(event);
            if done {
                return events;
            }
        }
        panic!("the transfer ended early: {events:?}");
    }
}

impl Outgoing {
    /// Waits for the session's last event, which must be that all is well.
    pub fn until_closed(mut self) {
        let last = self.last_event();
        assert!(matches!(last, Some(SourceEvent::Closed)), "{last:?}");
    }

    /// Waits for the session's last event.
    pub fn last_event(&mut self) -> Option<SourceEvent> {
        let mut last = None;
        let runtime = self.runtime.clone();
        loop {
            let next = async { tokio::time::timeout(PATIENCE, self.handle.next_event()).await };
            match runtime.block_on(next).expect("an event comes in time") {
                Some(event) => last = Some(event),
                None => return last,
            }
        }
    }
}

pub fn synthetic(size: u64) -> SyntheticSource {
    let name = RelPath::new("object").unwrap();
    SyntheticSource::file(name, size, Pattern::Random { seed: 5 })
}

/// The end of a transfer, which must be a good one.
pub fn complete(events: &[TransferEvent]) -> Finished {
    match events.last() {
        Some(TransferEvent::Complete(finished)) => finished.clone(),
        other => panic!("not complete: {other:?}"),
    }
}

/// A source that does to some blocks what a test says.
pub struct Twisted<F> {
    pub inner: SyntheticSource,
    pub twist: F,
}

impl<F> BlockSource for Twisted<F>
where
    F: FnMut(u64, &mut Framed) -> Result<(), SourceError> + Send,
{
    fn manifest(&self) -> &Arc<Manifest> {
        self.inner.manifest()
    }

    fn load_block(&mut self, file: u32, block: u64, out: &mut Framed) -> Result<(), SourceError> {
        self.inner.load_block(file, block, out)?;
        (self.twist)(block, out)
    }

    fn file_root_while(
        &mut self,
        file: u32,
        wanted: &dyn Fn() -> bool,
    ) -> Result<Value, SourceError> {
        self.inner.file_root_while(file, wanted)
    }
}

/// A host that knows no capacity.
pub fn unlimited() -> HostConfig {
    host_config(Rate::UNLIMITED, Rate::UNLIMITED)
}
