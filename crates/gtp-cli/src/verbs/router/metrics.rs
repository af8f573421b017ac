//! Numbers for Prometheus about a router's links and the hosts that ask.
//!
//! They are as old as what the router shows, a quarter of a second. Nothing that a host can say
//! makes the page grow: it has a few lines for each link, of which there are eight at most.

use std::sync::atomic::AtomicU64;

use gtp::{Rate, Shown};
use gtpd::http::{Page, Text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::pages;

type Labels = Vec<(&'static str, String)>;
type Gauges = Family<Labels, Gauge<f64, AtomicU64>>;

/// What is served.
pub const PAGE: &[Page<Shown>] = &[Page {
    path: "/metrics",
    kind: pages::OPEN_METRICS,
    text: Text::ToAll(|shown, _| pages::text(&registry(shown))),
}];

fn registry(shown: &Shown) -> Registry {
    let mut root = Registry::default();
    gtpd::process::register(&mut root);
    let all = root.sub_registry_with_prefix("gtp_router");
    let [capacity, granted, sessions] = [(); 3].map(|()| Gauges::default());
    for (at, link) in shown.links().iter().enumerate() {
        for (way, direction) in ["out", "in"].into_iter().enumerate() {
            let labels = vec![("link", (at + 1).to_string()), ("direction", direction.to_owned())];
            capacity.get_or_create(&labels).set(bps(link.capacity[way]));
            granted.get_or_create(&labels).set(bps(link.granted[way]));
            sessions.get_or_create(&labels).set(link.sessions[way] as f64);
        }
    }
    all.register("capacity_bits_per_second", "What a link carries by --link", capacity);
    all.register("granted_bits_per_second", "What sessions are granted of it", granted);
    all.register("sessions", "Sessions that cross it and are granted something", sessions);
    let datagrams = Family::<Labels, Counter>::default();
    for (name, count) in shown.counts() {
        if name == "hosts" {
            let hosts = Gauge::<i64>::default();
            hosts.set(i64::try_from(count).unwrap_or(i64::MAX));
            all.register("engines", "Engines of hosts that are known", hosts);
        } else {
            datagrams.get_or_create(&vec![("what", name.to_owned())]).inc_by(count);
        }
    }
    let help = "Datagrams that asked, that answered, without the key, and of no use otherwise";
    all.register("datagrams", help, datagrams);
    root
}

fn bps(rate: Rate) -> f64 {
    if rate.is_unlimited() { f64::INFINITY } else { rate.as_f64() }
}

#[cfg(test)]
mod tests {
    use gtp::{RouterKey, RouterServer};

    use super::*;

    #[test]
    fn each_way_of_each_link_has_its_numbers() {
        let links = [[Rate::from_mbps(40), Rate::from_mbps(90)], [Rate::from_mbps(1); 2]];
        let listen = "127.0.0.1:0".parse().unwrap();
        let server = RouterServer::bind(listen, &links, RouterKey::new(&[0; 32])).unwrap();
        let page = String::from_utf8(pages::text(&registry(&server.shown()))).unwrap();
        for line in [
            "gtp_router_capacity_bits_per_second{link=\"1\",direction=\"in\"} 90000000.0\n",
            "gtp_router_sessions{link=\"2\",direction=\"out\"} 0.0\n",
            "gtp_router_datagrams_total{what=\"forged\"} 0\n",
            "gtp_router_engines 0\n",
            "process_open_fds ",
        ] {
            assert!(page.contains(line), "{line}{page}");
        }
    }
}
