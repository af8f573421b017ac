//! A put whose server reads from other sinks as well, and gives on what it has.
//!
//! The client is asked for what it gives this server, and the other sinks for what they say they
//! have, as far as the client has said what that is. What the client hears is which blocks are here
//! and which sinks are reached, so that it can give what comes from nobody else. This module
//! connects, asks and tells; it must not decide whom to believe, which [`Others`] does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gtp_proto::FlowId;
use gtp_store::{BlockRow, BlockSink, Manifest, RangeSet};
use gtp_sys::Clock;
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::peers::{Line, Report};
use super::shelf::{OnShelf, Shelf};
use crate::client::{Behalf, Terms, Udp};
use crate::control::{ControlChannel, ControlError, KEEPALIVE_SPAN};
use crate::engine::{Brings, TransferEvent, TransferHandle};
use crate::flows::{Failure, FailureKind, Law, known_law};
use crate::identity::Fingerprint;
use crate::messages::{
    FetchSource, Message, Open, RELAY_SINKS_MAX, Reason, RelayJoin, RelayPeer, RelayValues, Relays,
    Verb,
};
use crate::relaying::{Deed, Others};
use crate::server::Shared;
use crate::server::budget::Share;
use crate::server::fetch::{Fetching, Source, judge};
use crate::server::put::Trouble;
use crate::server::renewed::Renewals;
use crate::server::session::Client;
use crate::ticket::{Purpose, TICKET_MAX};
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
    others: Others,
    /// Where they are, and the newest tickets for them.
    sources: BTreeMap<u32, Source>,
    lines: BTreeMap<u32, Line>,
    tell: mpsc::Sender<(u32, Report)>,
    reports: mpsc::Receiver<(u32, Report)>,
    due: Interval,
    /// How often the client has named other sinks.
    named: Renewals,
    clock: Clock,
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
        let (mut here, mut unwanted) = (RangeSet::new(), RangeSet::new());
        for have in sink.have() {
            let Some(all) = blocks.file(have.file) else { continue };
            let numbers = all.start + have.blocks.start..all.start + have.blocks.end;
            let set = if sink.is_kept(have.file) { &mut unwanted } else { &mut here };
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
            others: Others::new(join.number, blocks.len(), here, unwanted),
            join,
            keys: (client_key, shared.fingerprint),
            blocks,
            share,
            sources: BTreeMap::new(),
            lines: BTreeMap::new(),
            tell,
            reports,
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
            Message::RelayGive(give) => self.others.handle_give(flow, give.blocks.0),
            Message::RelayValues(values) => self.take_values(values, transfer),
            other => return Ok(Some(other)),
        }
        self.perform(transfer);
        Ok(None)
    }

    /// The client names another sink, or has signed a newer ticket for one.
    fn add(&mut self, peer: RelayPeer) -> Result<(), Trouble> {
        let RelayPeer { number, host, ticket } = peer;
        self.named.count(self.clock.now())?;
        let source = FetchSource { host, ticket };
        let source = judge(&source, Purpose::Relay, self.keys)
            .map_err(|why| Trouble::told(Reason::NotAuthorised, why))?;
        if let Some(line) = self.lines.get(&number) {
            if *line.url() != source.url {
                let text = "the newer ticket is for another sink";
                let failure = Failure::new(FailureKind::Authentication, text);
                return Err(Trouble::told(Reason::NotAuthorised, failure));
            }
            line.renew(source.ticket.clone());
        }
        let memory = self.blocks.len().saturating_mul(OFFER_MEMORY) + TICKET_MAX as u64;
        if !self.others.knows(number) && !self.share.take(memory) {
            // The client sees that this one is not reached, and gives what it would have given.
            return Ok(());
        }
        self.sources.insert(number, source);
        self.others.handle_peer(self.clock.now(), number);
        Ok(())
    }

    /// Makes a line to another sink, if there is a place for it.
    fn connect(&mut self, number: u32) {
        let (Some(source), Some(held)) = (self.sources.get(&number), self.fetching.hold()) else {
            return self.others.handle_no_place(self.clock.now(), number);
        };
        let trust = HostTrust::Each(vec![source.known()]);
        let terms = Terms { trust: Arc::new(trust), ..self.terms.clone() };
        let at = (number, self.join.transfer);
        let from = (self.fetching.endpoint(), held);
        let line = Line::to(source.clone(), at, from, terms, self.tell.clone());
        self.lines.insert(number, line);
    }

    fn take_values(&mut self, values: RelayValues, transfer: &TransferHandle) {
        let RelayValues { first, values } = values;
        if self.others.handle_values(first..first.saturating_add(values.0.len() as u64)) {
            self.on_shelf.shelf.note_values(first, &values.0);
            // Before anything of it is offered.
            transfer.must_have(first, values.0);
        }
    }

    /// Does what there is to do.
    fn perform(&mut self, transfer: &TransferHandle) {
        while let Some(deed) = self.others.poll_deed() {
            match deed {
                Deed::Connect(number) => self.connect(number),
                Deed::Offer(flow, blocks) => transfer.offer(flow, blocks),
                Deed::Remove(flow) => transfer.remove_session(flow),
                Deed::Renew(number) => {
                    self.lines.get(&number).into_iter().for_each(Line::note_lost)
                }
                Deed::PutOut(number, why) => {
                    let line = self.lines.remove(&number);
                    let url = line.map(|line| line.url().to_string());
                    tracing::warn!(url, why, "no longer reading from this sink");
                }
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
                self.perform(transfer);
                Vec::new()
            }
            Turn::Due => {
                self.others.handle_time(self.clock.now());
                self.perform(transfer);
                self.news()
            }
        }
    }

    /// Does what a report asks for. One of a line that was put out is not heard.
    fn take_report(&mut self, number: u32, report: Report, transfer: &TransferHandle) {
        if !self.others.is_read(number) {
            return;
        }
        match report {
            Report::Ready(session) => {
                if self.others.handle_ready(number) {
                    self.perform(transfer);
                    let flow = transfer.add_part_session(*session, Brings::Others);
                    self.others.handle_session(number, flow);
                }
            }
            Report::Have(ranges) => self.others.handle_have(number, ranges),
            Report::Gone => self.others.handle_gone(number),
            Report::Out(failure, failing) => {
                let line = self.lines.remove(&number);
                let url = line.map(|line| line.url().to_string());
                tracing::info!(url, %failure, ?failing, "a sink is not read from");
                self.others.handle_end(self.clock.now(), number, failing);
            }
        }
    }

    /// Takes an event of the transfer; gives back what is not about other sinks.
    pub fn notice(
        &mut self,
        event: TransferEvent,
        (transfer, own): (&TransferHandle, FlowId),
    ) -> Option<TransferEvent> {
        type Act = fn(&mut Others, FlowId);
        let (of, act): (FlowId, Act) = match &event {
            TransferEvent::BlockHere { number } => {
                match self.on_shelf.shelf.note_here(*number) {
                    true => self.others.handle_here(*number),
                    false => self.others.handle_unwanted(*number..*number + 1),
                }
                return None;
            }
            TransferEvent::GivenUp { file, .. } => {
                if let Some(blocks) = self.blocks.file(*file) {
                    self.on_shelf.shelf.take_off(blocks.clone());
                    self.others.handle_unwanted(blocks);
                }
                return Some(event);
            }
            TransferEvent::PathOpen { flow } => (*flow, Others::handle_open),
            TransferEvent::BadBlock { flow, .. } => (*flow, Others::handle_bad),
            TransferEvent::NoPath { flow }
            | TransferEvent::Silent { flow }
            | TransferEvent::Lost { flow, .. } => (*flow, Others::handle_lost),
            TransferEvent::Unobtainable { .. }
            | TransferEvent::FileDone { .. }
            | TransferEvent::FileNamed { .. }
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
        act(&mut self.others, of);
        self.perform(transfer);
        None
    }

    /// What the client is to be told now.
    fn news(&mut self) -> Vec<Message> {
        for blocks in self.on_shelf.shelf.taken_off().iter() {
            self.others.handle_unwanted(blocks);
        }
        self.others.poll_news().into_iter().map(Message::RelayHave).collect()
    }

    /// All is here: gives on what the others lack, until the client lets go.
    pub async fn linger(mut self, channel: &mut ControlChannel) {
        // Lines that wait to be heard hear that they are done.
        self.reports.close();
        std::mem::take(&mut self.lines).into_values().for_each(Line::finish);
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
