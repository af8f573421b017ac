//! The live rates for a browser: one page that shows, and two of numbers that it reads.
//!
//! The page is whole in itself and asks nobody else. Everybody on this machine may read the rates,
//! as on the socket; names of clients, paths and programs are for their own user, for root and for
//! the daemon's user. This file must not know how a reader's user is found out.

use gtp_share::{HistoryView, HostView, KeyView, PathView, SessionView, limit};
use serde::Serialize;

use crate::http::{Page, Text};
use crate::hub::{Hub, Right};

/// What is served with it.
pub(crate) const LIVE: &[Page] = &[
    Page {
        path: "/",
        kind: "text/html; charset=utf-8",
        text: Text::ToAll(|_, _| include_bytes!("web.html").to_vec()),
    },
    Page { path: "/rates", kind: "application/json", text: Text::ToEach(rates) },
    Page { path: "/hour", kind: "application/json", text: Text::ToEach(hour) },
];

/// Sessions on the page: those that move most.
const SHOWN: usize = 200;

/// What the page reads.
#[derive(Serialize)]
struct Rates {
    host: HostView,
    sessions: Vec<Row>,
}

/// One session. Its texts are as long as a label and a program's name may be, and have no character
/// that hides or turns writing round.
#[derive(Serialize)]
struct Row {
    session: u32,
    uid: u32,
    serves: String,
    moves: String,
    program: String,
    direction: String,
    demand: Option<u64>,
    granted: Option<u64>,
    measured: u64,
    limited_by: String,
    limit: String,
    path: Option<PathView>,
    loss_ratio: f64,
    rtt_us: u64,
}

impl From<SessionView> for Row {
    fn from(s: SessionView) -> Row {
        Row {
            session: s.session,
            uid: s.uid,
            serves: s.serves(),
            moves: s.moves().to_owned(),
            limit: limit::of_session(&s),
            program: s.program,
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

fn rates(hub: &Hub, right: Right) -> Vec<u8> {
    let sessions = hub.busiest(SHOWN, right).into_iter().map(Row::from).collect();
    let rates = Rates { host: hub.host(), sessions };
    // Numbers and texts: there is nothing that JSON cannot say.
    serde_json::to_vec(&rates).unwrap_or_default()
}

/// The last hour.
#[derive(Serialize)]
struct Hour {
    users: Vec<HistoryView>,
    keys: Vec<Past>,
}

/// The last hour of a key, and what it is called on the page as in `gtp top`.
#[derive(Serialize)]
struct Past {
    called: String,
    #[serde(flatten)]
    key: KeyView,
}

/// The last hour by user, and by key of servers' clients.
fn hour(hub: &Hub, right: Right) -> Vec<u8> {
    let keys = hub.by_key.view(right).into_iter();
    let keys = keys.map(|key| Past { called: key.called(), key }).collect();
    let hour = Hour { users: hub.history.view(), keys };
    serde_json::to_vec(&hour).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::tests::hub;

    #[test]
    fn the_page_reads_the_numbers_that_are_served_and_nothing_from_elsewhere() {
        let page = include_str!("web.html");
        for read in &LIVE[1..] {
            assert!(page.contains(&format!("fetch(\"{}\"", read.path)), "{}", read.path);
        }
        assert!(!page.contains("http:") && !page.contains("https:") && !page.contains("src="));
        for field in
            ["capacity_in", "used_out", "granted", "measured", "limit", "serves", "moves", "called"]
        {
            assert!(page.contains(field), "{field} is not shown");
        }
    }

    #[test]
    fn a_row_says_whom_a_session_serves_what_it_moves_and_what_limits_it_in_words() {
        let mut view = SessionView {
            session: 7,
            uid: 1000,
            pid: 4242,
            program: "gtp serve".into(),
            label: "lab/run42.h5".into(),
            direction: "out".into(),
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
            client: Some(client("anna", "lab,two")),
        };
        let said = |view: &SessionView| {
            let row = Row::from(view.clone());
            [row.serves, row.moves, row.program, row.limit]
        };
        let named = ["anna [lab,two]", "lab/run42.h5", "gtp serve", "the client"];
        assert_eq!(said(&view), named);
        view.client = Some(client("", ""));
        view.label = "192.0.2.1:9 lab/run42.h5".into();
        assert_eq!(said(&view), ["192.0.2.1:9", "lab/run42.h5", "gtp serve", "the client"]);
        (view.client, view.label) = (None, "gtp://host/my file".into());
        assert_eq!(said(&view), ["", "gtp://host/my file", "gtp serve", "the other host"]);
        let text = serde_json::to_string(&Row::from(view)).unwrap();
        assert!(text.contains("\"measured\":4") && !text.contains("4242"), "{text}");
    }

    fn client(name: &str, groups: &str) -> gtp_share::ClientView {
        gtp_share::ClientView {
            name: name.into(),
            groups: groups.into(),
            weight: 1.0,
            max_rate: None,
            group_max_rate: None,
            group_guarantee: 0,
        }
    }

    #[test]
    fn the_host_is_said_without_sessions_too() {
        let text = String::from_utf8(rates(&hub(), Right::Nobodys)).unwrap();
        assert!(text.starts_with("{\"host\":{\"capacity_out\":null,\"capacity_in\":100000000,"));
        assert!(text.ends_with("\"sessions\":[]}"));
    }
}
