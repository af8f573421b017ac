//! Runs one large network for some simulated seconds, for timing from outside.
//!
//! `rate_large NODES SESSIONS LAW [HOSTING [SECONDS]]`, law `grant` or `endnode`, hosting `laws` or
//! `agents`. Control intervals of 20 ms, everything else as in the thesis's Table VII.2.

use gtp_alloc::endnode::CapAtTarget;
use gtp_alloc::{Span, Time};
use gtp_proto::Side;
use gtp_sim::rate::{Config, Hosting, Record, networks};

fn main() {
    let mut args = std::env::args().skip(1);
    let nodes = number(args.next(), 1_024);
    let sessions = number(args.next(), 2_048);
    let law = args.next().unwrap_or_else(|| "grant".to_owned());
    let hosting = args.next().unwrap_or_else(|| "laws".to_owned());
    let mut config = match law.as_str() {
        "grant" => Config::GRANT,
        "endnode" => Config::THESIS,
        other => panic!("`{other}` is no law: grant or endnode"),
    };
    if hosting == "agents" {
        config.hosting = Hosting::Agents;
    }
    let mut builder = networks::large(config, nodes, sessions, Span::from_millis(20), 1);
    if hosting == "agents" {
        builder.nodes.iter_mut().for_each(|n| n.params.cap_at_target = CapAtTarget::Yes);
    }
    let mut world = builder.build().expect("a sound network");
    let seconds = number(args.next(), 10).into();
    let end = Time::ZERO + Span::from_secs(seconds);
    let record = Record::take(&mut world, end, Span::from_millis(100), &[]);
    let (ticks, words) = world.counters();
    let (source, sink) = (world.worst_load(Side::Source).part, world.worst_load(Side::Sink).part);
    println!("{nodes} nodes, {sessions} sessions, {law}, {hosting}: {ticks} ticks, {words} words");
    println!("worst load: sources {source:.6}, sinks {sink:.6}; hash {:016x}", world.hash());
    for part in [0.05, 0.01, 0.001] {
        let settled = record.settled(part).map_or(f64::NAN, |t| t.as_nanos() as f64 / 1e9);
        println!("within {:5.1} % from {settled:.1} s", part * 100.0);
    }
}

fn number(arg: Option<String>, usual: u32) -> u32 {
    arg.map_or(usual, |arg| arg.parse().expect("a number of nodes or sessions"))
}
