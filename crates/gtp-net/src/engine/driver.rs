//! The host of the core: sessions, agents and transfers, without any input or output.
//!
//! The same contract as the core's: any number of `handle_*` at one time, then `poll_batch` until
//! it has nothing, then wait until `poll_timeout`. A simulator that hosts the core has the same
//! shape. It knows no sockets and waits for nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_laws::gtp2004;
use gtp_proto::agent::{Agent, AgentConfig, Side as AgentSide};
use gtp_proto::direction::Allot as _;
use gtp_proto::limits::INTERVAL_MAX;
use gtp_proto::sink::Received;
use gtp_proto::wire::{Header, Kind};
use gtp_proto::{Arrival, Direction, Discard, FlowId};
use gtp_sys::udp::Origin;

use super::allotter::Allotter;
use super::api::{Allowances, Blame, Drops, HostConfig, SessionOpen, SocketId, TransferEvent};
use super::batch::Batch;
use super::carrier::Parcel;
use super::command::{CarrierNotice, NewSource, Notice, Notices, TransferId};
use super::council::Decider;
use super::envelope::{Beside, Destination, Envelope, Refusal};
use super::intake::Junk;
use super::mates::{Place, Stray, Users};
use super::sink_side::{self, SinkSide};
use super::source_side::SourceSide;
use super::standing::Stands;
use super::stream::{StreamNotice, StreamSink, StreamSource};
use super::table::{Session, Side, Table};
use super::transfer::{self, Transfer, broke};

mod allowed;
mod round;
mod routing;

use round::tick;
pub(super) use routing::{Routing, SilentRouters};

/// Everything that a host runs.
pub(super) struct Driver {
    config: HostConfig,
    table: Table,
    transfers: BTreeMap<TransferId, Transfer>,
    out: Direction<Allotter>,
    in_: Direction<Allotter>,
    /// A grant may have been heard of by then.
    echo_due: Time,
    upkeep_due: Time,
    publish_due: Time,
    notices: Notices,
    drops: Arc<Drops>,
    /// Bytes of datagrams that no session's key opened.
    junk: Junk,
    place: Place,
    allowed: Arc<Allowances>,
    /// If it asks routers.
    routing: Option<Box<Routing>>,
    leaving: bool,
}

/// Who decides in each direction.
pub(super) struct Deciders {
    pub out: Decider,
    pub in_: Decider,
}

/// Anybody can forge what does not open, so no source is to blame for it.
const FORGED: &str = "too many forged datagrams";
/// Silence, ends and tails are looked for this often.
const UPKEEP: Span = Span::from_millis(20);
/// Progress is shown this often.
const PUBLISH: Span = Span::from_millis(50);
/// An echo of a grant counts after the core's guard time, which is a little shorter.
const ECHO: Span = Span::from_micros(1_200);

impl Driver {
    /// The only engine of its host.
    pub fn new(now: Time, config: HostConfig, notices: Notices, drops: Arc<Drops>) -> Driver {
        let [out, in_] = agents(now, config).map(Decider::own);
        let place = Place::alone(notices.clone(), config.memory);
        Driver::among(now, config, (place, Deciders { out, in_ }), notices, drops)
    }

    /// One engine among those of its host.
    pub fn among(
        now: Time,
        config: HostConfig,
        (place, deciders): (Place, Deciders),
        notices: Notices,
        drops: Arc<Drops>,
    ) -> Driver {
        let direction = |side, decider| Direction::new(side, Allotter::new(decider));
        Driver {
            out: direction(AgentSide::Source, deciders.out),
            in_: direction(AgentSide::Sink, deciders.in_),
            config,
            table: Table::default(),
            transfers: BTreeMap::new(),
            echo_due: Time::MAX,
            upkeep_due: now,
            publish_due: now,
            notices,
            drops,
            junk: Junk::default(),
            place,
            allowed: Arc::default(),
            routing: None,
            leaving: false,
        }
    }

    /// What this engine is to the machine's daemon.
    pub fn stands(&self, now: Time) -> Stands {
        self.out.agent.stands(now)
    }

    /// Another thread wants something, or a worker has answered.
    pub fn handle_notice(&mut self, now: Time, notice: Notice) {
        match notice {
            // These concern the owner of the sockets and the loop.
            Notice::AddSocket(..)
            | Notice::Arrivals(..)
            | Notice::Beat(..)
            | Notice::AskRouters(..) => {}
            Notice::Carrier(notice) => self.handle_carrier_notice(now, notice),
            Notice::OpenSource(mut new) => {
                self.settle(&mut new.session);
                self.open_source(now, *new);
            }
            Notice::CloseSource(flow) => self.close_source(now, flow),
            Notice::OpenTransfer(new) => {
                let id = new.transfer;
                self.transfers.insert(id, Transfer::start(now, *new, self.notices.clone()));
                self.share_memory();
            }
            Notice::AddSession(id, flow, mut open) => {
                self.settle(&mut open);
                self.add_session(now, id, flow, *open);
            }
            Notice::RemoveSession(id, flow) => {
                self.change(now, id, |transfer, table| {
                    transfer.part(now, flow, table);
                });
            }
            Notice::Relay(id, notice) => self.change(now, id, |of, _| of.handle_relay(notice)),
            Notice::FinishFiles(id, expected) => {
                if let Some(transfer) = self.transfers.get_mut(&id) {
                    transfer.finish_files(expected);
                }
            }
            Notice::BeginAnew(id, file) => self.change(now, id, |of, _| of.begin_anew(file)),
            Notice::Suspend(id) => {
                if let Some(transfer) = self.transfers.get_mut(&id) {
                    transfer.stop(now, &mut self.table);
                }
            }
            Notice::SetCapacity { out, in_ } => self.set_capacity(out, in_),
            Notice::Allow(allowances) => self.allow(now, allowances),
            Notice::Daemon(news) => {
                self.out.agent.handle_news(now, &news);
                self.in_.agent.handle_news(now, &news);
            }
            Notice::Loaded(flow, loaded) => {
                if let Some(source) = self.table.source_mut(now, flow) {
                    source.handle_loaded(now, loaded);
                }
            }
            Notice::Written(id, written) => {
                if let Some(transfer) = self.transfers.get_mut(&id) {
                    transfer.handle_written(now, written, &mut self.table);
                }
            }
            Notice::Stream(notice) => self.handle_stream_notice(now, notice),
            Notice::Stray(stray) => {
                let came = self.place.handle_stray(now, &stray);
                let Stray { socket, origin, mut datagram, .. } = *stray;
                self.handle_datagram(came, socket, &origin, &mut datagram);
            }
            Notice::Shutdown => self.leave(now),
        }
    }

    /// Changes a transfer, if it is still there, in a way that may change what its sessions want.
    fn change(&mut self, now: Time, id: TransferId, how: impl FnOnce(&mut Transfer, &mut Table)) {
        if let Some(transfer) = self.transfers.get_mut(&id) {
            how(transfer, &mut self.table);
            self.in_.agent.wake(now);
        }
    }

    fn set_capacity(&mut self, out: Option<Rate>, in_: Option<Rate>) {
        if let Some(rate) = out {
            self.config.capacity_out = rate;
            self.out.agent.set_capacity(rate);
            self.table.sources_mut().for_each(|source| source.core.set_interface(rate));
        }
        in_.into_iter().for_each(|rate| self.in_.agent.set_capacity(rate));
    }

    fn handle_carrier_notice(&mut self, now: Time, notice: CarrierNotice) {
        match notice {
            CarrierNotice::Carry { flow, carrier, outgoing } => {
                if let Some((index, session)) = self.table.find_mut(flow) {
                    let receives = session.direction() == AgentSide::Sink;
                    session.envelope.carry(now, (carrier, outgoing), receives);
                    self.table.touch(now, index);
                }
            }
            CarrierNotice::Carried(parcel) => self.handle_parcel(now, *parcel),
            CarrierNotice::Room(flow) => {
                if let Some((index, session)) = self.table.find_mut(flow) {
                    session.handle_room(now);
                    self.table.touch(now, index);
                }
            }
            CarrierNotice::Drop(carrier) => {
                for (_, session) in self.table.iter_mut() {
                    if session.envelope.drop_carrier(carrier) {
                        session.handle_room(now);
                    }
                }
            }
            CarrierNotice::GoFirst(carrier, port) => {
                for (_, session) in self.table.iter_mut() {
                    session.envelope.go_first(now, carrier, port);
                }
            }
            CarrierNotice::Unheard(flow) => {
                let session = self.table.find_mut(flow);
                if session.is_some_and(|(_, session)| session.envelope.handle_unheard(now)) {
                    self.tell_silence(flow);
                }
            }
        }
    }

    fn handle_parcel(&mut self, now: Time, mut parcel: Parcel) {
        let (came, origin) = (Arrival { at: parcel.came.min(now), ..now.into() }, parcel.origin());
        let carrier = parcel.carrier;
        for datagram in parcel.datagrams() {
            self.handle_datagram(came, carrier, &origin, datagram);
        }
    }

    /// Tells whose peers have been silent for too long, and have no way besides UDP.
    fn watch_silences(&mut self, now: Time) {
        let sessions = self.table.iter_mut();
        let silent = sessions.filter_map(|(_, session)| {
            session.note_way();
            let is_silent = session.envelope.is_silent(now) && !session.is_over(now);
            is_silent.then_some(session.flow)
        });
        for flow in silent.collect::<Vec<_>>() {
            self.tell_silence(flow);
        }
    }

    fn tell_silence(&mut self, flow: FlowId) {
        let Some((_, session)) = self.table.find_mut(flow) else { return };
        match &mut session.side {
            Side::Source(source) => source.tell_silence(),
            Side::Sink(sink) if sink.state != sink_side::State::Parting => {
                if let Some(transfer) = self.transfers.get_mut(&sink.transfer) {
                    transfer.outbox.push(TransferEvent::Silent { flow });
                }
            }
            Side::StreamSource(source) => source.tell_silence(),
            Side::StreamSink(sink) => sink.tell_silence(),
            Side::Sink(_) => {}
        }
    }

    fn handle_stream_notice(&mut self, now: Time, notice: StreamNotice) {
        match notice {
            StreamNotice::OpenSource(mut new) => {
                self.settle(&mut new.session);
                let (flow, envelope) = (new.flow, Envelope::new(&new.session));
                let source = StreamSource::new(now, *new, &envelope);
                let side = Side::StreamSource(Box::new(source));
                self.open_stream(now, Box::new(Session { flow, envelope, side }));
            }
            StreamNotice::OpenSink(mut new) => {
                self.settle(&mut new.session);
                let (flow, envelope) = (new.flow, Envelope::new(&new.session));
                let sink = StreamSink::new(now, *new, &envelope);
                let side = Side::StreamSink(Box::new(sink));
                self.open_stream(now, Box::new(Session { flow, envelope, side }));
            }
            StreamNotice::Supplied(flow) => {
                if let Some(Side::StreamSource(source)) = self.table.stream_mut(now, flow) {
                    source.handle_supplied(now);
                }
            }
            StreamNotice::Taken(flow) => {
                if let Some(Side::StreamSink(sink)) = self.table.stream_mut(now, flow) {
                    sink.ask();
                }
            }
            StreamNotice::Ended(flow, ended) => {
                if let Some(Side::StreamSink(sink)) = self.table.stream_mut(now, flow) {
                    sink.handle_ended(now, ended);
                }
            }
            StreamNotice::Close(flow) => {
                match self.table.stream_mut(now, flow) {
                    Some(Side::StreamSource(source)) => source.close(),
                    Some(Side::StreamSink(sink)) => sink.close(now),
                    Some(Side::Source(_) | Side::Sink(_)) | None => return,
                }
                self.out.agent.wake(now);
                self.in_.agent.wake(now);
            }
        }
    }

    fn open_stream(&mut self, now: Time, session: Box<Session>) {
        if let Err(mut refused) = self.table.insert(now, session) {
            let why = "its session id is in use";
            match &mut refused.side {
                Side::StreamSource(source) => {
                    source.lose(why);
                    source.poll_done();
                }
                Side::StreamSink(sink) => sink.lose(now, why),
                Side::Source(_) | Side::Sink(_) => {}
            }
        }
        self.out.agent.wake(now);
        self.in_.agent.wake(now);
    }

    fn open_source(&mut self, now: Time, new: NewSource) {
        let (flow, envelope) = (new.flow, Envelope::new(&new.session));
        let side =
            Side::Source(Box::new(SourceSide::new(now, new, self.config.capacity_out, &envelope)));
        let session = Box::new(Session { flow, envelope, side });
        if let Err(refused) = self.table.insert(now, session)
            && let Side::Source(mut source) = refused.side
        {
            source.lose("its session id is in use");
            source.poll_done();
            return;
        }
        self.share_memory();
        self.out.agent.wake(now);
    }

    fn add_session(&mut self, now: Time, id: TransferId, flow: FlowId, open: SessionOpen) {
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        let envelope = Envelope::new(&open);
        let side = Side::Sink(Box::new(SinkSide::new(now, id, flow, open, &envelope)));
        transfer.add(flow);
        if self.table.insert(now, Box::new(Session { flow, envelope, side })).is_err() {
            transfer.refuse(flow, "its session id is in use");
        }
        self.in_.agent.wake(now);
    }

    /// A datagram arrived. Whatever it is, it harms nobody but the session whose key opens it.
    pub fn handle_datagram(
        &mut self,
        came: Arrival,
        socket: SocketId,
        origin: &Origin,
        datagram: &mut [u8],
    ) {
        let now = came.read;
        let length = Bytes(datagram.len() as u64);
        let Ok(header) = Header::decode(datagram) else {
            self.junk.add(length);
            return count(&self.drops.malformed);
        };
        let Some(index) = self.table.find_wire(header.session) else {
            // Whoever reads a buffer that others' datagrams fill learns nothing of its own limit.
            self.junk.add(length);
            if !self.place.pass_on(header.session, (came, socket, *origin), datagram) {
                count(&self.drops.unknown);
            }
            return;
        };
        let Some(session) = self.table.get_mut(index) else { return };
        let flow = session.flow;
        let body = match session.envelope.open(now, (socket, origin), header, datagram) {
            Ok(body) => body,
            Err(refusal) => {
                self.junk.add(length);
                return match refusal {
                    Refusal::Stranger => count(&self.drops.unknown),
                    Refusal::Forged => count(&self.drops.forged),
                    Refusal::Exhausted => self.lose(now, index, Blame::Nobody, FORGED),
                };
            }
        };
        let accepted = match &mut session.side {
            Side::Source(source) => source.handle_datagram(came, header, body),
            Side::Sink(sink) => match sink.core.handle_datagram(came, header, body) {
                Ok(Received::Control) => Ok(()),
                Ok(Received::Unit { number, payload }) => {
                    let transfer = self.transfers.get_mut(&sink.transfer);
                    let placed = transfer.map(|t| t.handle_unit(flow, number, payload));
                    if let Some(Err(why)) = placed {
                        self.lose(now, index, Blame::Source, &broke(why));
                    }
                    Ok(())
                }
                Err(why) => Err(why),
            },
            Side::StreamSource(source) => source.handle_datagram(came, header, body),
            Side::StreamSink(sink) => {
                let accepted = sink.handle_datagram(came, header, body);
                if sink.take_news() {
                    self.in_.agent.wake(now);
                }
                accepted
            }
        };
        if let Err(why) = accepted {
            // What comes again, from whomever, is nobody's.
            if why == Discard::Replayed {
                self.junk.add(length);
            }
            count(&self.drops.discarded);
        }
        self.table.touch(now, index);
        self.stir(now, index);
        self.after_datagram(now, index, header.kind);
    }

    /// Whether a datagram of this session has come. A session that has ended, and whose client is
    /// still there, was ended by one.
    pub fn has_heard(&self, flow: FlowId) -> bool {
        self.table.find(flow).is_none_or(|session| session.envelope.has_heard())
    }

    /// This process keeps up with so much of what arrives.
    pub fn handle_intake(&mut self, limit: Rate) {
        tracing::debug!(%limit, "keeps up with");
        self.in_.agent.set_limit(limit);
    }

    /// Whether what this process keeps up with bounds what is shared out: its own agent decides,
    /// and there is a session that receives.
    pub fn heeds_intake(&self) -> bool {
        self.in_.agent.decides() && !self.in_.is_empty()
    }

    /// Datagrams so far that no session's key opened, or that came again.
    pub fn junk(&self) -> Junk {
        self.junk
    }

    /// How often what is received is looked after: once in a control interval, and in long ones as
    /// often as its sessions speak.
    pub fn interval(&self) -> Span {
        self.in_.agent.interval().min(INTERVAL_MAX)
    }

    /// Whether nothing has moved over this session for some time.
    fn rests(&mut self, now: Time, index: usize) -> bool {
        self.table.get_mut(index).is_some_and(|session| session.is_resting(now))
    }

    /// An agent at rest wakes with the first of its sessions over which something moves.
    fn stir(&mut self, now: Time, index: usize) {
        if !(self.out.is_resting() || self.in_.is_resting()) || self.rests(now, index) {
            return;
        }
        let Some(session) = self.table.get_mut(index) else { return };
        let direction = match session.direction() {
            AgentSide::Source => &mut self.out,
            AgentSide::Sink => &mut self.in_,
        };
        if direction.end_rest() {
            direction.agent.wake(now);
            self.look_soon(now);
        }
    }

    /// What rested is looked after as often as is usual again.
    fn look_soon(&mut self, now: Time) {
        self.upkeep_due = self.upkeep_due.min(now + UPKEEP);
        self.publish_due = self.publish_due.min(now + PUBLISH);
    }

    fn is_quiet(&self) -> bool {
        self.out.is_quiet() && self.in_.is_quiet()
    }

    /// A grant that a source has yet to say it heard may be in its next datagram.
    fn await_echo(&mut self, now: Time) {
        if self.in_.is_unheard() {
            self.echo_due = self.echo_due.min(now + ECHO);
        }
    }

    /// How often to look after what rests, where something else is usual.
    fn pause(&self, usual: Span) -> Span {
        if self.is_quiet() { usual.max(INTERVAL_MAX) } else { usual }
    }

    /// What a datagram of this kind may mean to the agents and to the transfer.
    fn after_datagram(&mut self, now: Time, index: usize, kind: Kind) {
        match kind {
            Kind::Data => {
                self.await_echo(now);
                return;
            }
            // What a session at rest says is not news.
            Kind::Feedback if self.rests(now, index) => {}
            Kind::Status if self.rests(now, index) => self.await_echo(now),
            Kind::Feedback => self.out.agent.wake(now),
            Kind::Status => {
                self.in_.agent.wake(now);
                self.echo_due = self.echo_due.min(now + ECHO);
            }
            // A sink claims nothing before it has heard its source.
            Kind::Hello | Kind::HelloAck => self.in_.agent.wake(now),
            Kind::Request | Kind::Close => {}
        }
        self.relay_events(now, index);
    }

    /// Takes a receiving session's events to its transfer.
    fn relay_events(&mut self, now: Time, index: usize) {
        loop {
            let Some(session) = self.table.get_mut(index) else { return };
            let Side::Sink(sink) = &mut session.side else { return };
            let (flow, id) = (session.flow, sink.transfer);
            let Some(event) = sink.core.poll_event() else { return };
            if let Some(transfer) = self.transfers.get_mut(&id) {
                transfer.handle_event(now, flow, event, &mut self.table);
                self.in_.agent.wake(now);
            }
        }
    }

    /// Ends a session because of its peer.
    fn lose(&mut self, now: Time, index: usize, blame: Blame, why: &str) {
        let Some(session) = self.table.get_mut(index) else { return };
        let flow = session.flow;
        match &mut session.side {
            Side::Source(source) => source.lose(why),
            Side::StreamSource(source) => source.lose(why),
            Side::StreamSink(sink) => sink.lose(now, why),
            Side::Sink(sink) => {
                let id = sink.transfer;
                if let Some(transfer) = self.transfers.get_mut(&id) {
                    transfer.lose(now, flow, (blame, why), &mut self.table);
                    self.in_.agent.wake(now);
                }
            }
        }
    }

    /// Does what is due at `now`: agents, work for sessions, ends.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.echo_due <= now {
            self.echo_due = Time::MAX;
            if self.in_.is_unheard() {
                self.in_.agent.wake(now);
            }
        }
        let was_quiet = self.is_quiet();
        self.watch_routers(now);
        let routing = &mut self.routing;
        tick(&mut self.out, now, &mut self.table, routing.as_deref_mut());
        tick(&mut self.in_, now, &mut self.table, routing.as_deref_mut());
        if was_quiet && !self.is_quiet() {
            self.look_soon(now);
        }
        let interval = self.interval();
        let upkeep = self.upkeep_due <= now;
        for transfer in self.transfers.values_mut() {
            if upkeep {
                transfer.upkeep(now, interval, &mut self.table);
            } else if transfer.dirty {
                transfer.top_up(now, interval, &mut self.table);
            }
        }
        if upkeep {
            self.watch_silences(now);
            self.upkeep_due = now + self.pause(UPKEEP);
            self.forget_finished(now);
            if self.place.is_stale() {
                self.share_memory();
            }
        }
        if self.publish_due <= now {
            self.publish_due = now + self.pause(PUBLISH);
            self.publish(now);
        }
    }

    fn close_source(&mut self, now: Time, flow: FlowId) {
        if let Some(source) = self.table.source_mut(now, flow) {
            source.close();
            source.publish();
            self.out.agent.wake(now);
        }
    }

    fn forget_finished(&mut self, now: Time) {
        let over = self.table.iter_mut().filter(|(_, session)| session.is_over(now));
        let gone: Vec<usize> = over.map(|(index, _)| index).collect();
        for index in gone {
            self.remove(now, index);
        }
    }

    fn remove(&mut self, now: Time, index: usize) {
        let Some(session) = self.table.remove(index) else { return };
        self.leave_routers(&session);
        match session.side {
            Side::Source(source) => {
                source.publish();
                self.out.agent.wake(now);
                self.share_memory();
            }
            Side::Sink(sink) => {
                if let Some(transfer) = self.transfers.get_mut(&sink.transfer) {
                    transfer.forget(session.flow, sink.progress(0, None));
                }
                self.in_.agent.wake(now);
            }
            Side::StreamSource(source) => {
                source.publish();
                self.out.agent.wake(now);
            }
            Side::StreamSink(sink) => {
                sink.publish();
                self.in_.agent.wake(now);
            }
        }
    }

    fn publish(&mut self, now: Time) {
        for (_, session) in self.table.iter_mut() {
            match &session.side {
                Side::Source(source) => source.publish(),
                Side::StreamSource(source) => source.publish(),
                Side::StreamSink(sink) => sink.publish(),
                Side::Sink(_) => {} // Its transfer shows it.
            }
        }
        for transfer in self.transfers.values_mut() {
            transfer.publish(now, &self.table);
        }
    }

    /// The next datagrams to send at `now`, all to one destination; and what goes by UDP beside
    /// them.
    pub fn poll_batch(&mut self, now: Time, batch: &mut Batch) -> Option<(Destination, Beside)> {
        loop {
            batch.clear();
            let index = self.table.next_due(now)?;
            let session = self.table.get_mut(index)?;
            let more = session.poll_batch(now, batch);
            batch.finish();
            let due = if more { now } else { session.poll_timeout(now) };
            let destination = session.envelope.destination();
            let beside = session.envelope.beside(now, batch);
            let over = session.direction() == AgentSide::Source && session.is_over(now);
            self.table.polled(index, due);
            self.stir(now, index);
            if over {
                self.remove(now, index);
            } else {
                self.relay_events(now, index);
            }
            // Without a destination nothing has been heard, so nobody is there to be told.
            if let Some(destination) = destination
                && !batch.is_empty()
            {
                return Some((destination, beside));
            }
        }
    }

    /// When to call [`Driver::handle_timeout`] and [`Driver::poll_batch`] next.
    pub fn poll_timeout(&self) -> Time {
        let posting = self.out.agent.is_posting() || self.in_.agent.is_posting();
        if self.table.is_empty() && self.transfers.is_empty() && !posting {
            return self.routers_due();
        }
        let agents = self.out.agent.poll_timeout().min(self.in_.agent.poll_timeout());
        let regular = self.upkeep_due.min(self.publish_due).min(self.echo_due);
        self.table.poll_timeout().min(agents).min(regular).min(self.routers_due())
    }

    /// Tells the handles what happened, once what is due has been sent.
    pub fn flush_events(&mut self, now: Time) {
        let mut ended = Vec::new();
        for (id, transfer) in &mut self.transfers {
            if transfer.has_news() {
                transfer.publish(now, &self.table);
                transfer.flush();
            }
            if transfer.phase == transfer::Phase::Over {
                ended.push(*id);
            }
        }
        for id in ended {
            self.transfers.remove(&id);
            self.share_memory();
        }
    }

    /// Whether everything has ended after [`Notice::Shutdown`].
    pub fn has_left(&self) -> bool {
        self.leaving && self.table.is_empty() && self.transfers.is_empty()
    }

    /// Whether the host is ending.
    pub fn is_leaving(&self) -> bool {
        self.leaving
    }

    fn leave(&mut self, now: Time) {
        self.leaving = true;
        for transfer in self.transfers.values_mut() {
            transfer.stop(now, &mut self.table);
        }
        let slots: Vec<usize> = self.table.iter_mut().map(|(index, _)| index).collect();
        for index in slots {
            self.table.touch(now, index);
        }
        for (_, session) in self.table.iter_mut() {
            match &mut session.side {
                Side::Source(source) => source.close(),
                Side::StreamSource(source) => source.close(),
                Side::StreamSink(sink) => sink.close(now),
                Side::Sink(_) => {} // Its transfer has parted with it.
            }
        }
    }

    /// Each session gets an equal part of the memory of its direction.
    fn share_memory(&mut self) {
        let part = self.place.share(Users::Sources, self.table.sources_mut().count());
        self.table.sources_mut().for_each(|source| source.set_memory(part));
        let part = self.place.share(Users::Transfers, self.transfers.len());
        self.transfers.values_mut().for_each(|transfer| transfer.set_memory(part));
    }
}

#[cfg(test)]
impl Driver {
    /// All its sessions.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Whether each unit of a transfer is in exactly one place.
    ///
    /// # Errors
    /// The first that is not, in words.
    pub fn account(&self, id: TransferId) -> Result<(), String> {
        self.transfers.get(&id).map_or(Ok(()), |transfer| transfer.account(&self.table))
    }
}

/// A host's agents, out and in.
pub(super) fn agents(now: Time, config: HostConfig) -> [Agent; 2] {
    let agent =
        |side, capacity| Agent::new(now, AgentConfig { side, capacity, interval: config.interval });
    let law = Box::new(gtp2004::Host::new(config.capacity_in));
    let in_ = agent(AgentSide::Sink, config.capacity_in).deciding_by(law);
    [agent(AgentSide::Source, config.capacity_out), in_]
}

fn count(counter: &std::sync::atomic::AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
