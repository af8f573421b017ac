//! One direction of the host: all its sessions' reports in a row, and what its agent answers.
//!
//! The row stays as it is from tick to tick: a session that says something new changes its own
//! report in it, and only who comes, goes or is set anew has it gathered again. What is granted is
//! written where it has changed. Whose reports these are is decided by the hub.

use std::collections::BTreeMap;

use gtp_alloc::grant::{Claim, Share};
use gtp_alloc::within::divide;
use gtp_alloc::{Rate, Time};
use gtp_proto::{Agent, FlowId, Grant, Law, Report, room};
use gtp_share::Granted;

use crate::hub::{Client, ClientId, EndNodeSessions};
use crate::limits::RowLimits;
use crate::seats::{Awake, Seat, a_little_more};

/// One direction.
#[derive(Debug)]
pub(crate) struct Desk {
    pub agent: Agent,
    /// Someone has come, gone, stopped or gone on, or something was set: the row does not hold.
    pub stale: bool,
    /// Whose sessions have limits together, by their places in the row.
    pub limits: RowLimits,
    end_node: EndNodeSessions,
    reports: Vec<(FlowId, Report)>,
    /// The same while nobody may be granted more than it has.
    lessened: Vec<(FlowId, Report)>,
    /// What each had before anything was granted here.
    had: Vec<Rate>,
    /// Where each comes from.
    places: Vec<Place>,
    /// What stands on the grants pages, if anything does.
    written: Vec<Option<Grant>>,
    /// The same in the row before this one.
    before: Vec<Option<Grant>>,
    grants: Vec<(FlowId, Grant)>,
    shares: Vec<Share>,
    claims: Vec<Claim>,
}

/// What may be granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Granting {
    /// What each is to have.
    All,
    /// Less than a session has, if that is more than its share of the capacity among those that are
    /// here; more of them may still come.
    Less,
}

/// Where a session's pages are.
#[derive(Debug)]
struct Place {
    client: ClientId,
    slot: u32,
    /// Its name in the process.
    id: u32,
}

impl Desk {
    pub fn new(agent: Agent, end_node: EndNodeSessions) -> Desk {
        Desk {
            agent,
            stale: false,
            limits: RowLimits::default(),
            end_node,
            reports: Vec::new(),
            lessened: Vec::new(),
            had: Vec::new(),
            places: Vec::new(),
            written: Vec::new(),
            before: Vec::new(),
            grants: Vec::new(),
            shares: Vec::new(),
            claims: Vec::new(),
        }
    }

    /// Changes the capacity. What sessions want that decide alone is told by it.
    pub fn set_capacity(&mut self, capacity: Rate) {
        self.agent.set_capacity(capacity);
        self.stale = true;
    }

    /// Whether there are no sessions.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Begins a new row.
    pub fn begin(&mut self) {
        self.stale = false;
        self.reports.clear();
        self.had.clear();
        self.places.clear();
        std::mem::swap(&mut self.written, &mut self.before);
        self.written.clear();
    }

    /// Puts a session at the row's end.
    pub fn seat(
        &mut self,
        (client, slot): (ClientId, u32),
        uid: u32,
        seat: &mut Seat,
        awake: Awake,
    ) {
        let written = self.before.get(seat.place).copied().flatten();
        let newest = written.map_or(seat.posted.held.number, |grant| grant.number);
        seat.place = self.reports.len();
        let law = seat.law(self.end_node);
        let report = seat.report(law, uid, awake, self.agent.capacity(), newest);
        self.reports.push((seat.flow, report));
        self.had.push(seat.had());
        self.places.push(Place { client, slot, id: seat.posted.id });
        self.written.push(written);
    }

    /// What a session has been granted.
    pub fn granted(&self, seat: &Seat) -> Option<Grant> {
        self.written.get(seat.place).copied().flatten()
    }

    /// A session of the row has said something new.
    #[inline]
    pub fn hear(&mut self, seat: &Seat, awake: Awake) {
        if !self.stale
            && let Some((_, report)) = self.reports.get_mut(seat.place)
            && let Some(written) = self.written.get(seat.place)
        {
            let newest = written.as_ref().map_or(seat.posted.held.number, |grant| grant.number);
            seat.refresh(report, awake, self.agent.capacity(), newest);
            self.had[seat.place] = seat.had();
        }
    }

    /// What a session has, as far as is known here.
    fn has(&self, at: usize) -> Rate {
        self.written[at].map_or(self.had[at], |grant| grant.rate)
    }

    /// Lets the agent decide; within limits, if there are any.
    pub fn decide(&mut self, now: Time, granting: Granting) {
        self.lessened.clear();
        if granting == Granting::Less {
            for (at, &(id, report)) in self.reports.iter().enumerate() {
                let demand = report.demand.min(self.has(at));
                self.lessened.push((id, Report { demand, ..report }));
            }
        }
        let reports = match granting {
            Granting::All => &self.reports,
            Granting::Less => &self.lessened,
        };
        if self.limits.is_empty() {
            self.agent.tick(now, reports, &mut self.grants);
            hold_to_limits(reports, &mut self.grants);
            return;
        }
        self.claims.clear();
        self.claims.extend(reports.iter().map(|(_, report)| claim(report)));
        self.limits.lower(&mut self.claims);
        let capacity = self.agent.capacity();
        if reports.iter().any(|(_, report)| room::is_shared(report)) {
            room::share(capacity, reports, &mut self.claims);
        }
        divide(capacity.as_f64(), &self.claims, &self.limits.users, &mut self.shares);
        self.limits.divide_parts(&self.claims, &mut self.shares);
        self.agent.tick_shared(now, reports, &self.shares, &mut self.grants);
        hold_to_limits(reports, &mut self.grants);
    }

    /// Writes grants that have changed; `news` hears of their processes.
    pub fn write(
        &mut self,
        granting: Granting,
        clients: &BTreeMap<ClientId, Client>,
        news: &mut Vec<ClientId>,
    ) {
        let mut owners = clients.iter();
        let mut owner = owners.next();
        for (at, (place, &(_, grant))) in self.places.iter().zip(&self.grants).enumerate() {
            let has = self.has(at);
            if self.written[at] == Some(grant) || (granting == Granting::Less && grant.rate >= has)
            {
                continue;
            }
            while owner.is_some_and(|(owner, _)| *owner < place.client) {
                owner = owners.next();
            }
            let Some((_, client)) = owner.filter(|(owner, _)| **owner == place.client) else {
                continue;
            };
            client.grants.grant(place.slot, &Granted { id: place.id, grant });
            self.written[at] = Some(grant);
            if news.last() != Some(&place.client) {
                news.push(place.client);
            }
        }
    }
}

/// What a session asks of its users' parts. One under the end-node law says nothing of that.
fn claim(report: &Report) -> Claim {
    match report.law {
        Law::EndNode { .. } => {
            let demand = report.demand.min(a_little_more(report.measured));
            room::claim(&Report { demand, ..*report })
        }
        Law::Grant | Law::SourceAlone | Law::SinkAlone | Law::SessionAlone => room::claim(report),
    }
}

/// Holds sessions under the end-node law to their limits, which that law does not read.
fn hold_to_limits(reports: &[(FlowId, Report)], grants: &mut [(FlowId, Grant)]) {
    for ((_, grant), (_, report)) in grants.iter_mut().zip(reports) {
        if let Law::EndNode { .. } = report.law {
            grant.rate = grant.rate.min(report.demand);
        }
    }
}
