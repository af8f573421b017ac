//! One host: an agent for each direction, a network card, a clock, and the sessions it serves.
//!
//! The same turns as at a host with sockets, and in the same order: take in all that came, do what
//! is due (echoes, agents, upkeep), then let every session that was touched send all that it may.
//! Where packets go, and what time it is, is the world's business.

use std::collections::VecDeque;

use gtp_alloc::{Bytes, Span, Time};
use gtp_proto::router::Crossings;
use gtp_proto::{Activity, Agent, AgentConfig, Arrival, Direction, Side};

use super::allocators::{Allocator, Asking};
use super::clock::Clock;
use super::ends::Moment;
use super::parcel::ParcelId;
use super::schedule::ActorId;
use super::spec::{AgentState, HostSpec, NodeId};
use super::world::{End, Role};

/// What a host runs.
#[derive(Debug)]
pub(crate) struct Host {
    pub node: NodeId,
    pub actor: ActorId,
    /// Wakes the network card: a batch is complete, or a pause is over.
    pub card: ActorId,
    pub clock: Clock,
    pub out: Lane,
    pub in_: Lane,
    pub agents: AgentState,
    /// What it asks of routers, and the router that it is.
    pub asking: Asking,
    pub allocator: Option<Box<Allocator>>,
    /// The groups that it is the sink of.
    pub gathers: Vec<u32>,
    /// Times below are the host's own.
    pub echo_due: Time,
    pub upkeep_due: Time,
    pub inbox: Inbox,
    pub coalesce: Span,
    pub paused_until: Time,
    /// Ends to be polled in this turn.
    pub touched: Vec<u32>,
    /// It waits for its turn.
    pub dirty: bool,
    /// When it is in the schedule.
    pub booked: Time,
}

/// Packets that wait for the card or for the end of a pause.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// Each with when it came.
    pub parcels: VecDeque<(ParcelId, Time)>,
    pub bytes: Bytes,
    pub room: Bytes,
}

/// One direction of a host, and the ends that it serves.
#[derive(Debug)]
pub(crate) struct Lane {
    pub direction: Direction,
    /// Which of the world's ends these are.
    pub ends: Vec<u32>,
}

/// Silence, ends and tails are looked for this often.
pub(crate) const UPKEEP: Span = Span::from_millis(20);
/// An echo of a grant counts after the core's guard time, which is a little shorter.
pub(crate) const ECHO: Span = Span::from_micros(1_200);

impl Host {
    pub fn new(
        now: Time,
        node: NodeId,
        spec: &HostSpec,
        clock: Clock,
        [actor, card]: [ActorId; 2],
    ) -> Host {
        let local = clock.shows(now);
        let lane = |side, capacity| {
            let agent = Agent::new(local, AgentConfig { side, capacity, interval: spec.interval });
            Lane { direction: Direction::new(side, agent), ends: Vec::new() }
        };
        Host {
            node,
            actor,
            card,
            clock,
            out: lane(Side::Source, spec.out),
            in_: lane(Side::Sink, spec.in_),
            agents: AgentState::Running,
            asking: Asking::default(),
            allocator: None,
            gathers: Vec::new(),
            echo_due: Time::MAX,
            upkeep_due: local,
            inbox: Inbox { parcels: VecDeque::new(), bytes: Bytes::ZERO, room: spec.buffer },
            coalesce: spec.coalesce,
            paused_until: Time::ZERO,
            touched: Vec::new(),
            dirty: false,
            booked: Time::MAX,
        }
    }

    #[inline]
    pub fn moment(&self, world: Time) -> Moment {
        Moment { world, local: self.clock.shows(world) }
    }

    /// Whether a packet that comes at `now` must wait.
    #[inline]
    pub fn holds(&self, now: Time) -> bool {
        self.paused_until > now || self.coalesce > Span::ZERO
    }

    /// Does what is due but for sending.
    #[inline]
    pub fn handle_timeout(&mut self, now: Moment, ends: &mut [End]) {
        if self.earliest() <= now.local {
            self.do_due(now, ends);
        }
    }

    /// One datagram reaches the card at `came`, in the world's time, and is read at `now`. The card
    /// hands it over when its batch is complete; a pause is the program's, and the kernel goes on.
    #[inline]
    pub fn arrival(&self, now: Moment, came: Time) -> Arrival {
        if came == now.world {
            return now.local.into();
        }
        let at = self.clock.shows(came + self.coalesce).min(now.local);
        Arrival { at, ..now.local.into() }
    }

    /// When anything may be due, in its own time.
    #[inline]
    fn earliest(&self) -> Time {
        let agents = self.out.poll_timeout().min(self.in_.poll_timeout());
        let routers = self.asking.crossings.poll_timeout();
        agents.min(self.echo_due).min(self.upkeep_due).min(routers)
    }

    fn do_due(&mut self, now: Moment, ends: &mut [End]) {
        let news = self.asking.crossings.handle_timeout(now.local);
        self.hear_routers(now, [news.out, news.in_]);
        if self.echo_due <= now.local {
            self.echo_due = Time::MAX;
            if self.in_.direction.is_unheard() {
                self.in_.wake(now.local);
            }
        }
        if self.agents == AgentState::Running {
            let Host { out, in_, asking, touched, .. } = self;
            out.tick(now, ends, &mut asking.crossings, touched);
            in_.tick(now, ends, &mut asking.crossings, touched);
        }
        if self.upkeep_due <= now.local {
            self.upkeep_due = now.local + UPKEEP;
            self.upkeep(now, ends);
        }
    }

    /// Wakes the agents whose sessions routers have said something of.
    pub fn hear_routers(&mut self, now: Moment, [out, in_]: [bool; 2]) {
        if out {
            self.out.wake(now.local);
        }
        if in_ {
            self.in_.wake(now.local);
        }
    }

    /// A datagram of a talk with a router has come, for the end `to`.
    pub fn hear_talk(&mut self, now: Moment, to: u32, datagram: &[u8]) {
        if let Some(allocator) = &mut self.allocator {
            return allocator.handle_datagram(now.local, to, datagram);
        }
        let news = self.asking.handle_datagram(now.local, to, datagram);
        self.hear_routers(now, news);
    }

    fn upkeep(&mut self, now: Moment, ends: &mut [End]) {
        let mut gone = false;
        for &index in &self.in_.ends {
            let end = &mut ends[index as usize];
            let Role::Sink(sink) = &mut end.role else { continue };
            if !sink.needs_upkeep() {
                continue;
            }
            sink.top_up(now);
            if sink.is_finished(now) {
                end.open = false;
                gone = true;
            } else {
                end.touch(index, &mut self.touched);
            }
        }
        if gone {
            self.forget_closed(now, ends);
        }
    }

    /// Lets go of ends that are not open any more.
    pub fn forget_closed(&mut self, now: Moment, ends: &[End]) {
        for lane in [&mut self.out, &mut self.in_] {
            let (before, side) = (lane.ends.len(), lane.direction.side());
            lane.ends.retain(|&index| {
                let open = ends[index as usize].open;
                if !open {
                    self.asking.crossings.close(side, index);
                }
                open
            });
            if lane.ends.len() < before {
                lane.wake(now.local);
            }
        }
    }

    /// When it must have its turn next, in its own time.
    #[inline]
    pub fn poll_timeout(&self) -> Time {
        let allocator = self.allocator.as_ref().map_or(Time::MAX, |a| a.poll_timeout());
        let routers = self.asking.crossings.poll_timeout().min(allocator);
        if self.out.ends.is_empty() && self.in_.ends.is_empty() {
            return routers;
        }
        let agents = match self.agents {
            AgentState::Running => self.out.poll_timeout().min(self.in_.poll_timeout()),
            AgentState::Dead => Time::MAX,
        };
        agents.min(self.upkeep_due).min(self.echo_due).min(routers)
    }
}

impl Lane {
    /// Wakes the agent.
    pub fn wake(&mut self, now: Time) {
        self.direction.agent.wake(now);
    }

    fn poll_timeout(&self) -> Time {
        self.direction.agent.poll_timeout()
    }

    /// Has the agent decide, if it is time, and the sessions hear what.
    fn tick(
        &mut self,
        now: Moment,
        ends: &mut [End],
        crossings: &mut Crossings,
        touched: &mut Vec<u32>,
    ) {
        let side = self.direction.side();
        let Some(mut round) = self.direction.poll_round(now.local) else { return };
        for &index in &self.ends {
            if let Role::Source(source) = &mut ends[index as usize].role {
                round.paths().visit(now.local, index, source.path, &mut source.core);
            }
        }
        round.paths().share_out(now.local);
        for &index in &self.ends {
            let report = match (&mut ends[index as usize].role, side) {
                (Role::Source(source), Side::Source) => {
                    round.paths().tell(now.local, index, source.path, &mut source.core);
                    source.core.report(now.local)
                }
                (Role::Sink(sink), Side::Sink) => sink.core.report(now.local),
                (Role::Source(_) | Role::Sink(_), _)
                | (Role::Waiting | Role::Background(_) | Role::Peer(_) | Role::Talk, _) => continue,
            };
            let report = crossings.bound(side, index, report);
            round.add(index as usize, index, report, Activity::Busy);
        }
        for (place, grant) in round.decide() {
            let end = &mut ends[place];
            let grant = crossings.settle(side, place as u32, grant);
            let offer = crossings.offer(side, place as u32);
            match &mut end.role {
                Role::Source(source) => {
                    source.core.handle_routers(offer);
                    source.core.handle_grant(now.local, grant);
                }
                Role::Sink(sink) => {
                    sink.core.handle_routers(offer);
                    sink.core.handle_grant(grant);
                }
                Role::Waiting | Role::Background(_) | Role::Peer(_) | Role::Talk => {}
            }
            end.touch(place as u32, touched);
        }
    }
}
