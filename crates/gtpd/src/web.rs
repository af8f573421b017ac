//! The live rates for a browser: one page that shows, and two of numbers that it reads.
//!
//! The page is whole in itself and asks nobody else. Like the numbers for Prometheus it is for
//! everybody on this machine, so it names no peer, no file and no program.

use gtp_share::{HistoryView, HostView, KeyView, PathView, SessionView};
use serde::Serialize;

use crate::http::Page;
use crate::hub::{Hub, Right};

/// What is served with it.
pub(crate) const LIVE: &[Page] = &[
    Page {
        path: "/",
        kind: "text/html; charset=utf-8",
        text: |_, _| include_bytes!("web.html").to_vec(),
    },
    Page { path: "/rates", kind: "application/json", text: |hub, _| rates(hub) },
    Page { path: "/hour", kind: "application/json", text: |hub, _| hour(hub) },
];

/// Sessions on the page: those that move most.
const SHOWN: usize = 200;

/// What the page reads.
#[derive(Serialize)]
struct Rates {
    host: HostView,
    sessions: Vec<Row>,
}

/// One session, without names.
#[derive(Serialize)]
struct Row {
    session: u32,
    uid: u32,
    direction: String,
    demand: Option<u64>,
    granted: Option<u64>,
    measured: u64,
    limited_by: String,
    path: Option<PathView>,
    loss_ratio: f64,
    rtt_us: u64,
}

impl From<SessionView> for Row {
    fn from(s: SessionView) -> Row {
        Row {
            session: s.session,
            uid: s.uid,
            direction: s.direction,
            demand: s.demand,
            granted: s.granted,
            measured: s.measured,
            limited_by: s.limited_by,
            path: s.path,
            loss_ratio: s.loss_ratio,
            rtt_us: s.rtt_us,
        }
    }
}

fn rates(hub: &Hub) -> Vec<u8> {
    let sessions = hub.busiest(SHOWN).into_iter().map(Row::from).collect();
    let rates = Rates { host: hub.host(), sessions };
    // Numbers and short words: there is nothing that JSON cannot say.
    serde_json::to_vec(&rates).unwrap_or_default()
}

/// The last hour.
#[derive(Serialize)]
struct Hour {
    users: Vec<HistoryView>,
    keys: Vec<KeyView>,
}

/// The last hour by user, and by key of servers' clients, without names.
fn hour(hub: &Hub) -> Vec<u8> {
    let hour = Hour { users: hub.history.view(), keys: hub.by_key.view(Right::Nobodys) };
    serde_json::to_vec(&hour).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::tests::hub;

    #[test]
    fn the_page_reads_the_numbers_that_are_served_and_nothing_from_elsewhere() {
        let page = String::from_utf8((LIVE[0].text)(&hub(), Default::default())).unwrap();
        for read in &LIVE[1..] {
            assert!(page.contains(&format!("fetch(\"{}\"", read.path)), "{}", read.path);
        }
        assert!(!page.contains("http:") && !page.contains("https:") && !page.contains("src="));
        for field in ["capacity_in", "used_out", "granted", "measured", "limited_by", "loss_ratio"]
        {
            assert!(page.contains(field), "{field} is not shown");
        }
    }

    #[test]
    fn rows_name_no_peer_file_or_program() {
        let view = SessionView {
            session: 7,
            uid: 1000,
            pid: 4242,
            program: "secret-program".into(),
            label: "gtp://secret-peer/secret-file".into(),
            direction: "in".into(),
            weight: 1.0,
            flat_weight: 1.0,
            peer_weight: 1.0,
            max_rate: None,
            transfer_max_rate: None,
            transfer_guarantee: 0,
            policy: gtp_share::Policy::Normal,
            demand: None,
            peer_offer: None,
            granted: Some(5),
            measured: 4,
            limited_by: "sink".into(),
            path: None,
            carrier: "udp".into(),
            loss_ratio: 0.0,
            rtt_us: 1_000,
            wire_bytes: 9,
            client: None,
        };
        let text = serde_json::to_string(&Row::from(view)).unwrap();
        assert!(text.contains("\"measured\":4"));
        assert!(!text.contains("secret") && !text.contains("4242"), "{text}");
    }

    #[test]
    fn the_host_is_said_without_sessions_too() {
        let text = String::from_utf8(rates(&hub())).unwrap();
        assert!(text.starts_with("{\"host\":{\"capacity_out\":null,\"capacity_in\":100000000,"));
        assert!(text.ends_with("\"sessions\":[]}"));
    }
}
