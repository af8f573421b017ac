//! A put whose server reads from other sinks as well, and gives on what it has.
//!
//! The client is asked for what it gives this server, and the other sinks for what they say they
//! have, as far as the client has said what that is. A sink that sends something else twice is not
//! read from any more. What the client hears is which blocks are here and which sinks are reached,
//! so that it can give what comes from nobody else.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use gtp_proto::FlowId;
use gtp_store::{BlockRow, BlockSink, Manifest, RangeSet};
use gtp_sys::Clock;
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::peers::{Line, Report};
use super::shelf::{OnShelf, Shelf, common};
use crate::client::{Behalf, Terms, Udp};
use crate::control::{ControlChannel, ControlError, KEEPALIVE_SPAN};
use crate::engine::{Brings, TransferEvent, TransferHandle};
use crate::flows::{Failure, FailureKind, Law, known_law};
use crate::identity::Fingerprint;
use crate::messages::{
    BlockRanges, FetchSource, Message, Open, RELAY_SINKS_MAX, Reason, RelayHave, RelayJoin,
    RelayPeer, RelayValues, Relays, Verb,
};
use crate::server::Shared;
use crate::server::budget::Share;
use crate::server::fetch::{Fetching, judge};
use crate::server::put::Trouble;
use crate::server::renewed::Renewals;
use crate::server::session::Client;
use crate::ticket::Purpose;
use crate::trust::HostTrust;

/// Memory for what is known of a block, in bytes: its value at the engine and on the shelf, and its
/// place in the sets of what is here and shown.
const BLOCK_MEMORY: u64 = 256;

/// The same for what one other sink says of it: ranges that touch nothing take two blocks.
const OFFER_MEMORY: u64 = 96;

/// Reports of other sinks that wait: a sink that says much waits for this end to hear it.
const REPORTS_MOST: usize = 64;

/// Time between two words to the client on what is here.
const HAVE_SPAN: Duration = Duration::from_millis(100);

/// Bad blocks after which another sink is not read from any more. One may be damage.
const BAD_MOST: u32 = 2;

/// What a server says of relaying to a client that asks for this: nothing if it does not.
pub(in crate::server) fn relays(shared: &Shared, open: &Open) -> Option<Relays> {
    let is_put = matches!(open.verb, Verb::Put { .. });
    let asked = open.relay == Some(true) && known_law(open.law) == Law::Grant;
    if !is_put || !asked || shared.fetching.is_none() {
        return None;
    }
    let known = |rate: gtp_alloc::Rate| (!rate.is_unlimited()).then(|| rate.as_f64() as u64);
    let [out, in_] = shared.host.capacities();
    Some(Relays { in_bps: known(in_), out_bps: known(out) })
}

/// What there is to do about other sinks.
pub(in crate::server) enum Turn {
    /// The sink of this number has told something.
    Report(u32, Report),
    /// The client may be to hear what is here.
    Due,
}

/// What a put that is relayed has beside its transfer.
pub(in crate::server) struct Relaying<'a> {
    on_shelf: OnShelf<'a>,
    fetching: &'a Fetching,
    terms: Terms,
    join: RelayJoin,
    /// The client, and this server.
    keys: (Fingerprint, Fingerprint),
    blocks: BlockRow,
    share: Share,
    peers: BTreeMap<u32, Peer>,
    tell: mpsc::Sender<(u32, Report)>,
    reports: mpsc::Receiver<(u32, Report)>,
    /// Blocks of which the client has said what they are.
    valued: RangeSet,
    /// Blocks that are here, of which the client has not heard.
    unsaid: RangeSet,
    /// Blocks of files that are kept as they are: they are neither wanted nor given on.
    kept: RangeSet,
    reached_said: Option<u64>,
    due: Interval,
    /// How often the client has named other sinks.
    named: Renewals,
    clock: Clock,
}

/// Another sink.
struct Peer {
    /// Nothing if it is not read from any more.
    line: Option<Line>,
    flow: Option<FlowId>,
    /// Whether datagrams get through.
    is_reached: bool,
    /// What it says it has.
    has: RangeSet,
    bad: u32,
}

impl<'a> Relaying<'a> {
    /// Puts an object that is about to be received on the shelf.
    ///
    /// # Errors
    /// If the destination cannot be read while it is written, or there is no room for what must be
    /// remembered of its blocks.
    pub fn begin(
        shared: &'a Shared,
        client: &Client,
        (join, mut share): (RelayJoin, Share),
        sink: &dyn BlockSink,
        manifest: &Arc<Manifest>,
    ) -> Result<Relaying<'a>, Trouble> {
        let blocks = BlockRow::of(manifest);
        let busy =
            |text: &str| Trouble::told(Reason::Busy, Failure::new(FailureKind::Temporary, text));
        let (Some(fetching), Some(reread)) = (&shared.fetching, sink.rereader()) else {
            return Err(busy("this destination cannot be read while it is written"));
        };
        if !share.take(blocks.len().saturating_mul(BLOCK_MEMORY)) {
            return Err(busy(crate::server::budget::USED_UP));
        }
        let (mut here, mut kept) = (RangeSet::new(), RangeSet::new());
        for have in sink.have() {
            let Some(all) = blocks.file(have.file) else { continue };
            let numbers = all.start + have.blocks.start..all.start + have.blocks.end;
            let set = if sink.is_kept(have.file) { &mut kept } else { &mut here };
            set.insert(numbers);
        }
        let client_key = client.channel.peer();
        let path = client.open.verb.path().to_vec();
        let shelf = Shelf::new(path, Arc::clone(manifest), reread, here.clone());
        let on_shelf = shared.shelves.put((client_key, join.transfer), shelf);
        let (tell, reports) = mpsc::channel(REPORTS_MOST);
        let mut due = interval(HAVE_SPAN);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Relaying {
            on_shelf,
            fetching,
            terms: terms(shared, client),
            join,
            keys: (client_key, shared.fingerprint),
            blocks,
            share,
            peers: BTreeMap::new(),
            tell,
            reports,
            valued: RangeSet::new(),
            unsaid: here,
            kept,
            reached_said: None,
            due,
            named: Renewals::new(RELAY_SINKS_MAX.into(), shared.host.clock().now()),
            clock: shared.host.clock(),
        })
    }

    /// Takes a message of the client's; gives back what is not about relaying.
    ///
    /// # Errors
    /// If the client names a sink that it may not name.
    pub fn hear(
        &mut self,
        message: Message,
        (transfer, flow): (&TransferHandle, FlowId),
    ) -> Result<Option<Message>, Trouble> {
        match message {
            Message::RelayPeer(peer) => self.add(peer)?,
            Message::RelayGive(give) => transfer.offer(flow, give.blocks.0),
            Message::RelayValues(values) => self.take_values(values, transfer),
            other => return Ok(Some(other)),
        }
        Ok(None)
    }

    /// The client names another sink, or has signed a newer ticket for one.
    fn add(&mut self, peer: RelayPeer) -> Result<(), Trouble> {
        let RelayPeer { number, host, ticket } = peer;
        self.named.count(self.clock.now())?;
        let source = FetchSource { host, ticket };
        let source = judge(&source, Purpose::Relay, self.keys)
            .map_err(|why| Trouble::told(Reason::NotAuthorised, why))?;
        if number == self.join.number {
            return Ok(());
        }
        if let Some(line) = self.peers.get(&number).and_then(|peer| peer.line.as_ref()) {
            if *line.url() != source.url {
                let text = "the newer ticket is for another sink";
                let failure = Failure::new(FailureKind::Authentication, text);
                return Err(Trouble::told(Reason::NotAuthorised, failure));
            }
            line.renew(source.ticket);
            return Ok(());
        }
        if self.peers.get(&number).is_some_and(|peer| peer.bad >= BAD_MOST) {
            return Ok(());
        }
        let is_new = !self.peers.contains_key(&number);
        if is_new && !self.share.take(self.blocks.len().saturating_mul(OFFER_MEMORY)) {
            // The client sees that this one is not reached, and gives what it would have given.
            return Ok(());
        }
        let Some(held) = self.fetching.hold() else { return Ok(()) };
        let trust = HostTrust::Each(vec![source.known()]);
        let terms = Terms { trust: Arc::new(trust), ..self.terms.clone() };
        let at = (number, self.join.transfer);
        let from = (self.fetching.endpoint(), held);
        let line = Line::to(source, at, from, terms, self.tell.clone());
        let peer = self.peers.entry(number).or_insert_with(Peer::new);
        peer.line = Some(line);
        Ok(())
    }

    fn take_values(&mut self, values: RelayValues, transfer: &TransferHandle) {
        let RelayValues { first, values } = values;
        let range = first..(first + values.0.len() as u64).min(self.blocks.len());
        self.on_shelf.shelf.note_values(first, &values.0);
        self.valued.insert(range.clone());
        transfer.must_have(first, values.0);
        for peer in self.peers.values() {
            if let Some(flow) = peer.flow {
                offer(transfer, flow, common(&peer.has, range.clone()));
            }
        }
    }

    /// Waits until there is something to do. Safe to cancel.
    pub async fn turn(&mut self) -> Turn {
        tokio::select! {
            // This end holds a sender itself.
            Some((number, report)) = self.reports.recv() => Turn::Report(number, report),
            _ = self.due.tick() => Turn::Due,
        }
    }

    /// Does what there is to do, and returns what the client is to be told.
    pub fn take(&mut self, turn: Turn, transfer: &TransferHandle) -> Vec<Message> {
        match turn {
            Turn::Report(number, report) => {
                self.take_report(number, report, transfer);
                Vec::new()
            }
            Turn::Due => self.news(),
        }
    }

    /// Does what a report asks for.
    fn take_report(&mut self, number: u32, report: Report, transfer: &TransferHandle) {
        let Some(peer) = self.peers.get_mut(&number) else { return };
        match report {
            Report::Ready(session) => {
                peer.leave(transfer);
                peer.flow = Some(transfer.add_part_session(*session, Brings::Others));
            }
            Report::Have(ranges) => {
                let Some(flow) = peer.flow else { return };
                for range in ranges {
                    // Said twice, or of no block: it would go on for ever.
                    let range = range.start..range.end.min(self.blocks.len());
                    if peer.has.insert(range.clone()) < range.end.saturating_sub(range.start) {
                        let url = peer.line.as_ref().map(|line| line.url().to_string());
                        tracing::warn!(url, "a sink says twice what it has: it is not read from");
                        peer.bad = BAD_MOST;
                        return peer.put_out(transfer);
                    }
                    offer(transfer, flow, common(&self.valued, range));
                }
            }
            Report::Gone => peer.leave(transfer),
            Report::Out(failure) => {
                let url = peer.line.as_ref().map(|line| line.url().to_string());
                tracing::info!(url, %failure, "a sink is not read from");
                peer.put_out(transfer);
            }
        }
    }

    /// Takes an event of the transfer; gives back what is not about other sinks.
    pub fn notice(
        &mut self,
        event: TransferEvent,
        (transfer, own): (&TransferHandle, FlowId),
    ) -> Option<TransferEvent> {
        let of = match &event {
            TransferEvent::BlockHere { number } => {
                self.on_shelf.shelf.note_here(*number);
                self.unsaid.insert_one(*number);
                return None;
            }
            TransferEvent::PathOpen { flow }
            | TransferEvent::NoPath { flow }
            | TransferEvent::Silent { flow }
            | TransferEvent::Lost { flow, .. }
            | TransferEvent::BadBlock { flow, .. } => *flow,
            TransferEvent::Unobtainable { .. }
            | TransferEvent::FileDone { .. }
            | TransferEvent::FileNamed { .. }
            | TransferEvent::GivenUp { .. }
            | TransferEvent::WrongRoot { .. }
            | TransferEvent::AllBlocks
            | TransferEvent::Fault(_)
            | TransferEvent::Warning(_)
            | TransferEvent::Stalled
            | TransferEvent::Complete(_)
            | TransferEvent::Suspended => return Some(event),
        };
        if of == own {
            return Some(event);
        }
        let peer = self.peers.values_mut().find(|peer| peer.flow == Some(of))?;
        if let TransferEvent::PathOpen { .. } = event {
            peer.is_reached = true;
        } else if let TransferEvent::BadBlock { .. } = event {
            peer.bad += 1;
            if peer.bad >= BAD_MOST {
                let url = peer.line.as_ref().map(|line| line.url().to_string());
                tracing::warn!(url, "a sink sends blocks that are wrong: it is not read from");
                peer.put_out(transfer);
            }
        } else {
            peer.lose(transfer);
        }
        None
    }

    /// What the client is to be told now.
    fn news(&mut self) -> Vec<Message> {
        let reached = self.peers.iter().filter(|(_, peer)| peer.is_reached);
        let reached = reached.fold(0, |bits, (number, _)| bits | 1_u64 << number);
        let is_first = self.reached_said.is_none();
        let unsaid = std::mem::take(&mut self.unsaid);
        let mut pages = BlockRanges::pages(unsaid.iter());
        if pages.is_empty() && self.reached_said != Some(reached) {
            pages.push(BlockRanges::default());
        }
        self.reached_said = Some(reached);
        let have = |blocks| RelayHave { blocks, reached: Some(reached), kept: None };
        let have = |blocks| Message::RelayHave(have(blocks));
        let mut news: Vec<Message> = pages.into_iter().map(have).collect();
        if is_first {
            let kept = BlockRanges::pages(self.kept.iter()).into_iter().map(|kept| {
                let blocks = BlockRanges::default();
                Message::RelayHave(RelayHave { blocks, reached: Some(reached), kept: Some(kept) })
            });
            news.splice(0..0, kept);
        }
        news
    }

    /// All is here: gives on what the others lack, until the client lets go.
    pub async fn linger(mut self, channel: &mut ControlChannel) {
        let lines = std::mem::take(&mut self.peers).into_values().filter_map(|peer| peer.line);
        lines.for_each(Line::finish);
        let mut keepalive = interval(KEEPALIVE_SPAN);
        loop {
            let said = tokio::select! {
                message = channel.recv() => match message {
                    Ok(Message::RelayValues(RelayValues { first, values })) => {
                        self.on_shelf.shelf.note_values(first, &values.0);
                        Ok(())
                    }
                    Ok(Message::RelayPeer(_) | Message::RelayGive(_)) => Ok(()),
                    Ok(Message::UnitChoice(_)) => Ok(()),
                    Ok(_) => Err(ControlError::Closed),
                    Err(error) => Err(error),
                },
                _ = self.due.tick() => channel.send_all(self.news().into_iter()).await,
                _ = keepalive.tick() => channel.send(&Message::Keepalive).await,
            };
            if said.is_err() {
                return;
            }
        }
    }
}

impl Peer {
    fn new() -> Peer {
        Peer { line: None, flow: None, is_reached: false, has: RangeSet::new(), bad: 0 }
    }

    /// Its session is over, or will be another one.
    fn leave(&mut self, transfer: &TransferHandle) {
        if let Some(flow) = self.flow.take() {
            transfer.remove_session(flow);
        }
        self.is_reached = false;
        self.has = RangeSet::new();
    }

    /// Its data session is lost.
    fn lose(&mut self, transfer: &TransferHandle) {
        self.leave(transfer);
        self.line.iter().for_each(Line::note_lost);
    }

    /// It is not read from any more.
    fn put_out(&mut self, transfer: &TransferHandle) {
        self.leave(transfer);
        self.line = None;
    }
}

fn offer(transfer: &TransferHandle, flow: FlowId, blocks: Vec<Range<u64>>) {
    if !blocks.is_empty() {
        transfer.offer(flow, blocks);
    }
}

/// On what terms other sinks are read from: what is brought counts as the client's own.
fn terms(shared: &Shared, client: &Client) -> Terms {
    Terms {
        law: Law::Grant,
        weight: f64::from(client.weight_milli) / 1000.0,
        max_rate: shared.terms().max_rate,
        behalf: Behalf { principal: client.holder.principal(), allowance: client.allowance },
        path: client.path_use,
        patience: PATIENCE,
        udp: Udp::Only,
        ..Terms::new(HostTrust::Each(Vec::new()))
    }
}

/// How long another sink may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
