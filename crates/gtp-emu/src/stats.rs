//! What the emulator says of itself: per link, per path, and its own timing error.
//!
//! A [`Snapshot`] holds counters since the start; two of them make an interval. Both are written
//! as one JSON object per line.

use gtp_alloc::{Bytes, Span, Time};
use gtp_link::{Link, LinkState, Network};
use serde::Serialize;

use crate::timing::TimingError;

/// Everything at one time, counted from the start.
#[derive(Clone, Debug, PartialEq, Serialize, Default)]
pub struct Snapshot {
    /// Seconds since the start.
    pub t: f64,
    /// The links, in the order of the file.
    pub links: Vec<LinkRow>,
    /// The relay's paths or the router's routes, in the order of the file.
    pub paths: Vec<PathRow>,
    /// How late packets were sent.
    pub timing_error: TimingError,
    /// Packets refused because the emulator held all that it may.
    pub refused_packets: u64,
    /// Packets that the system did not take.
    pub failed_packets: u64,
    /// Packets that the router had no route for, as those by which hosts look for neighbours.
    pub unrouted_packets: u64,
}

/// One link. Sizes are of IP packets.
#[derive(Clone, Debug, PartialEq, Serialize, Default)]
pub struct LinkRow {
    /// Its name.
    pub name: String,
    /// Its rate in bit/s now; none if unlimited.
    pub rate_bps: Option<u64>,
    /// Whether it is up.
    pub up: bool,
    /// Packets that came.
    pub offered_packets: u64,
    /// Their bytes.
    pub offered_bytes: u64,
    /// Packets brought to the far end.
    pub carried_packets: u64,
    /// Their bytes.
    pub carried_bytes: u64,
    /// Second copies brought too.
    pub duplicated_packets: u64,
    /// Packets dropped by the full queue.
    pub dropped_queue: u64,
    /// Packets lost on the wire.
    pub dropped_loss: u64,
    /// Packets dropped because the link was down.
    pub dropped_down: u64,
    /// Packets too large.
    pub dropped_mtu: u64,
    /// Packets for which the policer had too few tokens.
    pub dropped_policer: u64,
    /// Most bytes that waited.
    pub queue_max_bytes: u64,
    /// Mean bytes that waited, over the whole time.
    pub queue_mean_bytes: u64,
    /// Integral of the bytes that waited, in byte seconds.
    pub queue_byte_seconds: f64,
    /// The longest wait in seconds.
    pub wait_max_s: f64,
    /// Seconds spent sending.
    pub busy_s: f64,
    /// The share of the time spent sending.
    pub utilisation: f64,
}

/// One path or route.
#[derive(Clone, Debug, PartialEq, Serialize, Default)]
pub struct PathRow {
    /// Its name.
    pub name: String,
    /// From client to target.
    pub up: WayRow,
    /// From target to client.
    pub down: WayRow,
    /// Clients with datagrams now.
    pub udp_clients: u64,
    /// Connections now.
    pub tcp_connections: u64,
}

/// One direction of a path. Sizes are of IP packets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Default)]
pub struct WayRow {
    /// Packets that entered.
    pub in_packets: u64,
    /// Their bytes.
    pub in_bytes: u64,
    /// Packets that left at the end.
    pub out_packets: u64,
    /// Their bytes.
    pub out_bytes: u64,
    /// Packets dropped on a link, or blocked.
    pub dropped_packets: u64,
}

impl WayRow {
    pub(crate) fn count_in(&mut self, size: Bytes) {
        self.in_packets += 1;
        self.in_bytes += size.0;
    }

    pub(crate) fn count_out(&mut self, size: Bytes) {
        self.out_packets += 1;
        self.out_bytes += size.0;
    }
}

impl Snapshot {
    /// One JSON object, without a line's end.
    pub fn to_json(&self) -> String {
        to_line("stats", self)
    }

    /// What happened between an `earlier` snapshot and this one.
    pub fn since(&self, earlier: &Snapshot) -> Interval {
        let seconds = self.t - earlier.t;
        let rows = self.links.iter().zip(&earlier.links);
        let links = rows.map(|(new, old)| IntervalRow::between(new, old, seconds)).collect();
        Interval { t: self.t, seconds, links }
    }
}

/// One interval of the time series.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// Seconds from the start to its end.
    pub t: f64,
    /// Its length.
    pub seconds: f64,
    /// The links.
    pub links: Vec<IntervalRow>,
}

/// One link in one interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IntervalRow {
    /// Its name.
    pub name: String,
    /// Mean rate offered, in bit/s.
    pub offered_bps: f64,
    /// Mean rate carried, in bit/s.
    pub carried_bps: f64,
    /// Packets offered.
    pub offered_packets: u64,
    /// Packets dropped by the queue.
    pub dropped_queue: u64,
    /// Packets dropped for other reasons.
    pub dropped_other: u64,
    /// Mean bytes that waited.
    pub queue_mean_bytes: f64,
}

impl IntervalRow {
    fn between(new: &LinkRow, old: &LinkRow, seconds: f64) -> IntervalRow {
        let rate = |new: u64, old: u64| new.saturating_sub(old) as f64 * 8.0 / seconds;
        let other = |row: &LinkRow| {
            row.dropped_loss + row.dropped_down + row.dropped_mtu + row.dropped_policer
        };
        IntervalRow {
            name: new.name.clone(),
            offered_bps: rate(new.offered_bytes, old.offered_bytes),
            carried_bps: rate(new.carried_bytes, old.carried_bytes),
            offered_packets: new.offered_packets - old.offered_packets,
            dropped_queue: new.dropped_queue - old.dropped_queue,
            dropped_other: other(new) - other(old),
            queue_mean_bytes: (new.queue_byte_seconds - old.queue_byte_seconds) / seconds,
        }
    }
}

impl Interval {
    /// One JSON object, without a line's end.
    pub fn to_json(&self) -> String {
        to_line("interval", self)
    }
}

/// The rows of all links of a network.
pub(crate) fn link_rows<P: Clone>(
    net: &Network<P>,
    names: &[String],
    elapsed: Span,
) -> Vec<LinkRow> {
    let ids = (0..net.links()).map(gtp_link::LinkId);
    ids.zip(names).map(|(id, name)| link_row(net.link(id), name, elapsed)).collect()
}

fn link_row(link: &Link, name: &str, elapsed: Span) -> LinkRow {
    let (spec, stats) = (link.spec(), link.stats());
    LinkRow {
        name: name.to_owned(),
        rate_bps: (!spec.rate.is_unlimited()).then_some(spec.rate.as_bps()),
        up: spec.state == LinkState::Up,
        offered_packets: stats.offered.packets,
        offered_bytes: stats.offered.bytes.0,
        carried_packets: stats.carried.packets,
        carried_bytes: stats.carried.bytes.0,
        duplicated_packets: stats.duplicated.packets,
        dropped_queue: stats.drops.queue.packets,
        dropped_loss: stats.drops.loss.packets,
        dropped_down: stats.drops.down.packets,
        dropped_mtu: stats.drops.mtu.packets,
        dropped_policer: stats.drops.policer.packets,
        queue_max_bytes: stats.queue_max.0,
        queue_mean_bytes: stats.queue_mean(elapsed).0,
        queue_byte_seconds: stats.byte_nanos as f64 / 1e9,
        wait_max_s: stats.wait_max.as_secs_f64(),
        busy_s: stats.busy.as_secs_f64(),
        utilisation: stats.busy.as_secs_f64() / elapsed.as_secs_f64().max(1e-9),
    }
}

/// Seconds from `start` to `now`.
pub(crate) fn seconds(start: Time, now: Time) -> f64 {
    now.since(start).as_secs_f64()
}

fn to_line<T: Serialize>(event: &str, body: &T) -> String {
    #[derive(Serialize)]
    struct Line<'a, T> {
        event: &'a str,
        #[serde(flatten)]
        body: &'a T,
    }
    // Plain structures of numbers and strings: the writer has nothing to refuse.
    serde_json::to_string(&Line { event, body }).unwrap_or_default()
}
