//! One direction of a host: its agent, and the round of reports and grants.
//!
//! Every host runs the same round, whether it has sockets, is simulated or stands in a test: when
//! its agent is due, each session of this direction reports, the agent shares out the capacity, and
//! each session gets its grant. A host keeps its sessions where it likes and gives each a place, by
//! which it finds the session again. This module must not know sessions, packets or sockets.

use alloc::vec::Vec;

use gtp_alloc::Time;

use crate::agent::{Agent, Side};
use crate::limits::{INTERVAL_MAX, RECOMPUTE_MIN};
use crate::path::PathGroups;
use crate::report::{FlowId, Grant, Report};

/// Whatever shares out a host's capacity in one direction: the host's own agent, or one that passes
/// on what another agent decides.
pub trait Allot {
    /// Returns when the next round is due.
    fn poll_timeout(&self) -> Time;

    /// Takes all sessions' reports and writes a grant for each to `grants`, in the same order.
    fn tick(&mut self, now: Time, reports: &[(FlowId, Report)], grants: &mut Vec<(FlowId, Grant)>);

    /// Notes that nothing happens for now: unless something ends the rest, the next round may wait
    /// until `until`.
    fn rest(&mut self, until: Time);

    /// Notes that the next round should not be later than `until`.
    fn hurry(&mut self, until: Time);
}

impl Allot for Agent {
    fn poll_timeout(&self) -> Time {
        self.poll_timeout()
    }

    fn tick(&mut self, now: Time, reports: &[(FlowId, Report)], grants: &mut Vec<(FlowId, Grant)>) {
        self.tick(now, reports, grants);
    }

    fn rest(&mut self, until: Time) {
        self.rest(until);
    }

    fn hurry(&mut self, until: Time) {
        self.hurry(until);
    }
}

/// The agent of one direction, with the buffers that a round needs.
#[derive(Debug)]
pub struct Direction<A = Agent> {
    /// The agent that decides.
    pub agent: A,
    side: Side,
    paths: PathGroups,
    reports: Vec<(FlowId, Report)>,
    places: Vec<usize>,
    grants: Vec<(FlowId, Grant)>,
    unheard: bool,
    resting: bool,
}

/// Whether anything has moved over a session lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Something moves, or may at any time.
    Busy,
    /// Nothing has moved for some time.
    Resting,
}

/// A round that is due. The host adds each session's report, and then the agent decides.
#[derive(Debug)]
pub struct Round<'d, A> {
    direction: &'d mut Direction<A>,
    now: Time,
}

impl<A: Allot> Direction<A> {
    /// Makes a direction in which `agent` decides about sessions whose `side` is at this host.
    pub fn new(side: Side, agent: A) -> Direction<A> {
        let (reports, places, grants) = (Vec::new(), Vec::new(), Vec::new());
        let paths = PathGroups::default();
        Direction { agent, side, paths, reports, places, grants, unheard: false, resting: false }
    }

    /// Returns which end of its sessions this host is.
    pub fn side(&self) -> Side {
        self.side
    }

    /// Begins a round and returns it, if one is due at `now`.
    pub fn poll_round(&mut self, now: Time) -> Option<Round<'_, A>> {
        if self.agent.poll_timeout() > now {
            return None;
        }
        self.reports.clear();
        self.places.clear();
        self.resting = true;
        Some(Round { direction: self, now })
    }

    /// Whether a source has not yet echoed its session's grant of the last round, by the sessions'
    /// reports.
    pub fn is_unheard(&self) -> bool {
        self.unheard
    }

    /// Whether no session took part in the last round.
    pub fn is_empty(&self) -> bool {
        self.reports.is_empty()
    }

    /// Whether nothing moved over any session of the last round. It is true if there was no
    /// session.
    pub fn is_quiet(&self) -> bool {
        self.is_empty() || self.resting
    }

    /// Lets the agent rest for [`INTERVAL_MAX`] if nothing moved in the last round, or there was no
    /// session. A host to which rounds cost something calls this after a round.
    pub fn rest_if_quiet(&mut self, now: Time) {
        if self.is_quiet() {
            self.agent.rest(now + INTERVAL_MAX);
        }
    }

    /// Ends the rest of a direction all of whose sessions rested in the last round. Returns whether
    /// it rested. A direction without sessions returns `false`, because no session can end its
    /// rest.
    pub fn end_rest(&mut self) -> bool {
        let rested = self.is_resting();
        self.resting = false;
        rested
    }

    /// Whether all sessions of the last round rested. It is false if there was no session.
    pub fn is_resting(&self) -> bool {
        self.resting && !self.is_empty()
    }
}

impl<'d, A: Allot> Round<'d, A> {
    /// Returns the path groups. At a source's end the host shows them every session twice before
    /// the sessions report ([`PathGroups::visit`], [`PathGroups::tell`]).
    pub fn paths(&mut self) -> &mut PathGroups {
        &mut self.direction.paths
    }

    /// Adds a session of this direction, which the host keeps at `place`.
    pub fn add(&mut self, place: usize, id: FlowId, report: Report, activity: Activity) {
        self.direction.reports.push((id, report));
        self.direction.places.push(place);
        self.direction.resting &= activity == Activity::Resting;
    }

    /// Returns the agent that decides.
    pub fn agent(&mut self) -> &mut A {
        &mut self.direction.agent
    }

    /// Lets the agent decide. Returns each session's place and its grant, in the order in which the
    /// sessions reported.
    pub fn decide(self) -> impl Iterator<Item = (usize, Grant)> + use<'d, A> {
        let Round { direction, now } = self;
        direction.agent.tick(now, &direction.reports, &mut direction.grants);
        if let Some(due) = direction.paths.poll_timeout() {
            direction.agent.hurry(due.max(now + RECOMPUTE_MIN));
        }
        let mut issued = direction.grants.iter().zip(&direction.reports);
        direction.unheard = issued.any(|((_, grant), (_, report))| report.echoed < grant.number);
        let grants = direction.grants.iter().map(|(_, grant)| *grant);
        direction.places.iter().copied().zip(grants)
    }
}
