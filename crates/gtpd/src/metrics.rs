//! Numbers for Prometheus.
//!
//! They name users by number, as many as the ledger tells apart, and no session. Only the text is
//! made here; who asks, and how often it is made, [`crate::http`] knows.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use gtp_alloc::Rate;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::http::{Page, Text, Work};
use crate::hub::Hub;
use crate::ledger::Labels;
use crate::process;

/// What is served with them.
pub(crate) const NUMBERS: &[Page] = &[Page {
    path: "/metrics",
    kind: "application/openmetrics-text; version=1.0.0; charset=utf-8",
    text: Text::ToAll(|hub, work| numbers(hub, work).into_bytes()),
}];

type Gauges = Family<Labels, Gauge<f64, AtomicU64>>;

/// The numbers in the text format of OpenMetrics.
fn numbers(hub: &Hub, work: Work) -> String {
    let mut all = Registry::default();
    of_host(hub, &mut all);
    of_users(hub, &mut all);
    hub.ledger.register(&mut all);
    let turns = Counter::<u64>::default();
    turns.inc_by(work.turns);
    all.register("gtpd_turns", "Turns of the daemon's loop", turns);
    let busy = Counter::<f64, AtomicU64>::default();
    busy.inc_by(work.spent.as_secs_f64());
    all.register("gtpd_busy_seconds", "Time spent in them", busy);
    process::register(&mut all);
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = encode(&mut text, &all);
    // As the format has it.
    text.replace(" inf\n", " +Inf\n")
}

/// What the host has, and what is used of it.
fn of_host(hub: &Hub, all: &mut Registry) {
    let host = hub.host();
    let both = |out: f64, in_: f64| {
        let gauges = Gauges::default();
        for (way, value) in [("out", out), ("in", in_)] {
            gauges.get_or_create(&vec![("direction", way.to_owned())]).set(value);
        }
        gauges
    };
    let limit = |rate: Option<u64>| rate.map_or(f64::INFINITY, |bps| bps as f64);
    let capacity = both(limit(host.capacity_out), limit(host.capacity_in));
    all.register("gtp_capacity_bits_per_second", "What is shared out", capacity);
    let used = both(host.used_out as f64, host.used_in as f64);
    all.register("gtp_used_bits_per_second", "Sum of measured rates", used);
    let guaranteed = Gauge::<f64, AtomicU64>::default();
    guaranteed.set(host.guaranteed as f64);
    let help = "What is guaranteed to users and transfers together, in each direction";
    all.register("gtp_guaranteed_bits_per_second", help, guaranteed);
    let processes = Gauge::<i64>::default();
    processes.set(host.processes.into());
    all.register("gtp_processes", "Processes attached", processes);
}

/// What users have now.
fn of_users(hub: &Hub, all: &mut Registry) {
    let mut sums: BTreeMap<Labels, [f64; 3]> = BTreeMap::new();
    let mut processes: BTreeMap<String, i64> = BTreeMap::new();
    for client in hub.clients.values() {
        *processes.entry(hub.ledger.user(client.who.uid)).or_default() += 1;
        for (_, seat) in client.seats.iter() {
            let sum = sums.entry(hub.ledger.labels_of(client.who.uid, seat)).or_default();
            let granted = hub.granted(seat).map_or(Rate::ZERO, |grant| grant.rate);
            sum[0] += 1.0;
            sum[1] += seat.rate(granted).as_f64();
            sum[2] += if granted.is_unlimited() { f64::INFINITY } else { granted.as_f64() };
        }
    }
    let [sessions, rates, granted] = [(); 3].map(|()| Gauges::default());
    for (labels, sum) in sums {
        for (gauges, value) in [&sessions, &rates, &granted].into_iter().zip(sum) {
            gauges.get_or_create(&labels).set(value);
        }
    }
    all.register("gtp_sessions", "Sessions of a user", sessions);
    let help = "Measured rates of a user's sessions";
    all.register("gtp_user_bits_per_second", help, rates);
    all.register("gtp_user_granted_bits_per_second", "What they are granted", granted);
    let of_users = Family::<Labels, Gauge>::default();
    for (uid, count) in processes {
        of_users.get_or_create(&vec![("uid", uid)]).set(count);
    }
    all.register("gtp_user_processes", "Processes of a user", of_users);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::tests::hub;
    use gtp_alloc::Span;

    #[test]
    fn capacities_are_said_and_infinity_as_prometheus_reads_it() {
        let work = Work { turns: 3, spent: Span::from_millis(5) };
        let page = numbers(&hub(), work);
        assert!(page.contains("gtp_capacity_bits_per_second{direction=\"out\"} +Inf\n"), "{page}");
        assert!(page.contains("gtp_capacity_bits_per_second{direction=\"in\"} 100000000.0\n"));
        assert!(page.contains("gtpd_turns_total 3\n"));
        assert!(page.contains("gtpd_busy_seconds_total 0.005\n"));
        assert!(page.contains("process_open_fds ") && page.ends_with("# EOF\n"));
    }
}
