//! What the daemon has seen sessions do, added up for Prometheus.
//!
//! Users are told apart up to a bound, and so are the directions and whether a session serves a
//! client or is a client's own; sessions, programs and peers are not, because everybody on this
//! machine may read the numbers and because each label makes the page longer. What sessions say of
//! themselves is believed within what the host can move.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;

use gtp_alloc::{Rate, Span, Time};
use gtp_proto::LimitedBy;
use gtp_share::{Posted, Side};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::history::User;
use crate::refusal::Refusal;
use crate::seats::{Seat, direction};

/// Labels of a number.
pub(crate) type Labels = Vec<(&'static str, String)>;
type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

/// Users that are told apart at most; further ones count as `other`.
const USERS_MOST: usize = 100;

/// Reports may be late: a session may have moved as much as the host can in the time since the last
/// look and this span.
const LATE_MOST: Span = Span::from_secs(1);

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Its process said so.
    Closed,
    /// Its process ended or was killed, or has left the daemon.
    ProcessGone,
}

/// What was counted of a session.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    bytes: u64,
    lost_bytes: u64,
    at: Time,
    /// When it was first seen, and what it has moved since, as far as that was counted.
    came: Time,
    moved: u64,
    /// Where it counts. To look for that each time would take longer than all else that a look at a
    /// session does.
    places: Option<Places>,
}

/// The counters of sessions like one.
#[derive(Clone, Debug)]
struct Places {
    bytes: Counter,
    lost: Counter,
    limited: Seconds,
    /// What limits the sessions whose time `limited` is.
    by: LimitedBy,
}

type Seconds = Counter<f64, AtomicU64>;

impl Counted {
    /// Nothing yet: what it moved before counts elsewhere, if anywhere.
    pub fn from(now: Time, posted: &Posted) -> Counted {
        let bytes = posted.wire_bytes;
        Counted {
            bytes,
            lost_bytes: lost_bytes(posted),
            at: now,
            came: now,
            moved: 0,
            places: None,
        }
    }
}

/// All that was counted.
#[derive(Debug)]
pub(crate) struct Ledger {
    users: BTreeSet<u32>,
    bytes: Family<Labels, Counter>,
    lost: Family<Labels, Counter>,
    ended: Family<Labels, Counter>,
    limited: Family<Labels, Seconds>,
    seconds: Histograms,
    rates: Histograms,
    refused: Family<Labels, Counter>,
}

impl Ledger {
    pub fn new() -> Ledger {
        let seconds: fn() -> Histogram = || Histogram::new(exponential_buckets(0.01, 4.0, 12));
        let rates: fn() -> Histogram = || Histogram::new(exponential_buckets(1e5, 4.0, 11));
        let ledger = Ledger {
            users: BTreeSet::new(),
            bytes: Family::default(),
            lost: Family::default(),
            ended: Family::default(),
            limited: Family::default(),
            seconds: Family::new_with_constructor(seconds),
            rates: Family::new_with_constructor(rates),
            refused: Family::default(),
        };
        // An alert needs to see the first one as a change.
        Refusal::ALL.into_iter().for_each(|why| ledger.refuse(why, 0));
        ledger
    }

    /// Puts the numbers on a page.
    pub fn register(&self, all: &mut Registry) {
        let help = "IP bytes of data packets that sessions moved";
        all.register("gtp_wire_bytes", help, self.bytes.clone());
        let help = "IP bytes of data packets that were lost, an estimate";
        all.register("gtp_lost_bytes", help, self.lost.clone());
        all.register("gtp_sessions_ended", "Sessions that ended", self.ended.clone());
        let help = "Time that sessions ran, by what kept them from going faster";
        all.register("gtp_limited_seconds", help, self.limited.clone());
        all.register("gtp_session_seconds", "How long sessions took", self.seconds.clone());
        let help = "IP bits per time of sessions that moved some";
        all.register("gtp_session_bits_per_second", help, self.rates.clone());
        let help = "Processes and requests that were refused";
        all.register("gtpd_refused", help, self.refused.clone());
    }

    /// Counts what a session did since it was last counted; the host can move `most`. Returns the
    /// bytes that it has moved.
    pub fn count(&mut self, now: Time, uid: u32, seat: &mut Seat, most: Rate) -> u64 {
        let by = seat.posted.limited_by;
        let known = seat.counted.places.take().filter(|places| places.by == by);
        let places = known.unwrap_or_else(|| self.places(uid, seat));
        let span = now.since(seat.counted.at);
        let movable = most.bytes_in(span + LATE_MOST).0;
        let (bytes, lost) = (seat.posted.wire_bytes, lost_bytes(&seat.posted));
        let new = |now: u64, before: u64| now.saturating_sub(before).min(movable);
        let moved = new(bytes, seat.counted.bytes);
        places.bytes.inc_by(moved);
        places.lost.inc_by(new(lost, seat.counted.lost_bytes));
        places.limited.inc_by(span.as_secs_f64());
        let counted = &mut seat.counted;
        (counted.bytes, counted.lost_bytes) = (bytes, lost.max(counted.lost_bytes));
        counted.moved = counted.moved.saturating_add(moved);
        (counted.at, counted.places) = (now, Some(places));
        moved
    }

    /// Looks for the counters of a session.
    fn places(&mut self, uid: u32, seat: &Seat) -> Places {
        let by = seat.posted.limited_by;
        let mut labels = self.labels(uid, seat);
        let bytes = self.bytes.get_or_create_owned(&labels);
        let lost = self.lost.get_or_create_owned(&labels);
        labels.push(("by", by.as_str().to_owned()));
        Places { bytes, lost, limited: self.limited.get_or_create_owned(&labels), by }
    }

    /// Counts the rest of a session, and its end. Returns the bytes of that rest.
    pub fn end(&mut self, now: Time, uid: u32, seat: &mut Seat, (end, most): (End, Rate)) -> u64 {
        let rest = self.count(now, uid, seat, most);
        let mut labels = self.labels(uid, seat);
        let how = match end {
            End::Closed => "closed",
            End::ProcessGone => "process_gone",
        };
        labels.push(("end", how.to_owned()));
        self.ended.get_or_create(&labels).inc();
        let way = vec![("direction", direction(seat.posted.side).to_owned())];
        let seconds = now.since(seat.counted.came).as_secs_f64();
        self.seconds.get_or_create(&way).observe(seconds);
        // What a process claims beyond what its host can move would spoil the sum of all.
        let bytes = seat.counted.moved;
        if bytes > 0 && seconds > 0.0 {
            self.rates.get_or_create(&way).observe(bytes as f64 * 8.0 / seconds);
        }
        rest
    }

    /// IP bytes that sessions moved since the start, by user and direction.
    pub fn totals(&self) -> Vec<(User, Side, u64)> {
        let users = self.users.iter().copied().map(Some).chain([None]);
        let both = users.flat_map(|user| [(user, Side::Source), (user, Side::Sink)]);
        let total = |(user, side): (User, Side)| {
            let of = |role: &str| {
                let uid = user.map_or_else(|| OTHER.to_owned(), |uid| uid.to_string());
                self.bytes.get(&labels(uid, side, role)).map(|bytes| bytes.get())
            };
            let sums: Vec<u64> = ["client", "server"].into_iter().filter_map(of).collect();
            (!sums.is_empty()).then(|| (user, side, sums.into_iter().sum()))
        };
        both.filter_map(total).collect()
    }

    /// Counts so many processes or requests that are refused.
    pub fn refuse(&self, why: Refusal, count: u64) {
        let labels = vec![("why", why.as_str().to_owned())];
        self.refused.get_or_create(&labels).inc_by(count);
    }

    /// The labels of a session.
    fn labels(&mut self, uid: u32, seat: &Seat) -> Labels {
        if self.users.len() < USERS_MOST {
            self.users.insert(uid);
        }
        self.labels_of(uid, seat)
    }

    /// The labels of a session, where no more users are to be told apart than there are.
    pub fn labels_of(&self, uid: u32, seat: &Seat) -> Labels {
        let role = if seat.posted.principal == 0 { "client" } else { "server" };
        labels(self.user(uid), seat.posted.side, role)
    }

    /// The name of a user.
    pub fn user(&self, uid: u32) -> String {
        if self.users.contains(&uid) { uid.to_string() } else { OTHER.to_owned() }
    }
}

/// Users that are not told apart.
const OTHER: &str = "other";

fn labels(uid: String, side: Side, role: &str) -> Labels {
    let direction = direction(side).to_owned();
    vec![("uid", uid), ("direction", direction), ("role", role.to_owned())]
}

/// IP bytes of a session's packets that did not arrive: of those that were sent, as many as of the
/// packets.
fn lost_bytes(posted: &Posted) -> u64 {
    let (lost, arrived) = (posted.lost as f64, posted.packets as f64);
    let of = match posted.side {
        Side::Source => lost + arrived,
        Side::Sink => arrived,
    };
    if of > 0.0 { (posted.wire_bytes as f64 * (lost / of)) as u64 } else { 0 }
}

#[cfg(test)]
mod tests;
