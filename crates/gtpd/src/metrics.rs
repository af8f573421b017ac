//! Numbers for Prometheus.
//!
//! They name users by number and no session, so that the page stays small however many there are.
//! Only the text is made here; who asks, and how often it is made, [`crate::http`] knows.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use gtp_share::SessionView;

use crate::http::{Page, Work};
use crate::hub::{Hub, Right};

/// What is served with them.
pub(crate) const NUMBERS: &[Page] = &[Page {
    path: "/metrics",
    kind: "text/plain; version=0.0.4",
    text: |hub, work| numbers(hub, work).into_bytes(),
}];

/// The numbers in Prometheus's text format.
fn numbers(hub: &Hub, work: Work) -> String {
    let host = hub.host();
    let sessions = hub.sessions_for(Right::Anybodys);
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, lines: Vec<(String, f64)>| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in lines {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    };
    let both = |out: f64, in_: f64| {
        vec![("{direction=\"out\"}".to_owned(), out), ("{direction=\"in\"}".to_owned(), in_)]
    };
    let limit = |rate: Option<u64>| rate.map_or(f64::INFINITY, |bps| bps as f64);
    let capacity = both(limit(host.capacity_out), limit(host.capacity_in));
    family("gtp_capacity_bits_per_second", "gauge", "What is shared out.", capacity);
    let used = both(host.used_out as f64, host.used_in as f64);
    family("gtp_used_bits_per_second", "gauge", "Sum of measured rates.", used);
    let processes = vec![(String::new(), f64::from(host.processes))];
    family("gtp_processes", "gauge", "Processes attached.", processes);
    let of = |value: fn(&SessionView) -> f64| {
        let mut sums: BTreeMap<(u32, &str), f64> = BTreeMap::new();
        for session in &sessions {
            *sums.entry((session.uid, &session.direction)).or_default() += value(session);
        }
        let line = |((uid, way), sum)| (format!("{{uid=\"{uid}\",direction=\"{way}\"}}"), sum);
        sums.into_iter().map(line).collect::<Vec<_>>()
    };
    family("gtp_sessions", "gauge", "Sessions of a user.", of(|_| 1.0));
    let rates = of(|session| session.measured as f64);
    family("gtp_user_bits_per_second", "gauge", "Measured rates of a user's sessions.", rates);
    let granted = of(|session| session.granted.map_or(f64::INFINITY, |bps| bps as f64));
    family("gtp_user_granted_bits_per_second", "gauge", "What they are granted.", granted);
    let turns = vec![(String::new(), work.turns as f64)];
    family("gtpd_turns_total", "counter", "Turns of the daemon's loop.", turns);
    let spent = vec![(String::new(), work.spent.as_secs_f64())];
    family("gtpd_busy_seconds_total", "counter", "Time spent in them.", spent);
    text.replace(" inf\n", " +Inf\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::tests::hub;
    use gtp_alloc::Span;

    #[test]
    fn capacities_are_said_and_infinity_as_prometheus_writes_it() {
        let work = Work { turns: 3, spent: Span::from_millis(5) };
        let page = numbers(&hub(), work);
        assert!(page.contains("gtp_capacity_bits_per_second{direction=\"out\"} +Inf\n"));
        assert!(page.contains("gtp_capacity_bits_per_second{direction=\"in\"} 100000000\n"));
        assert!(page.contains("gtpd_turns_total 3\n"));
        assert!(page.contains("gtpd_busy_seconds_total 0.005\n"));
    }
}
