//! Prints what the thesis's VII.5 reports, under both laws: 30 random networks each of 32, 128
//! and 1,024 nodes, and how far from the max-min rates they are when.
//!
//! `rate_vii5 [STEP_MS]`: how finely distance is sampled; loads are exact whatever it is.

use gtp_alloc::{Span, Time};
use gtp_sim::rate::{Config, Record, networks};

const CASES: u64 = 30;

fn main() {
    let step = std::env::args().nth(1).map_or(5, |arg| arg.parse().expect("milliseconds"));
    let step = Span::from_millis(step);
    println!("the thesis's law: distance at 6 s as part of that at 0 s, and worst overloads");
    println!("nodes  at most 5 %  worst D(6)/D(0)  latest 5 %  latest 1 %  sinks    sources");
    for nodes in [32, 128, 1_024] {
        print_thesis(nodes, step);
    }
    println!("the grant law: until distance stays below part of its start, and worst overloads");
    println!("nodes  latest 5 %  latest 1 %  latest 0.1 %  sinks    sources");
    for nodes in [32, 128, 1_024] {
        print_grant(nodes, step);
    }
    println!("the thesis's law in step, slots of 1, 50, 100 ms: until 5 % of the start");
    for nodes in [32, 128, 1_024] {
        let settled = [1, 50, 100].map(|slot_ms| {
            let slot = Span::from_millis(slot_ms);
            let builder = networks::synchronous(Config::THESIS, nodes, 1, slot);
            let mut world = builder.build().expect("a sound network");
            Record::take(&mut world, seconds(12), step, &[]).settled(0.05)
        });
        println!(
            "{nodes:5}  {:.2} s  {:.2} s  {:.2} s",
            s(settled[0]),
            s(settled[1]),
            s(settled[2])
        );
    }
}

fn records(config: Config, nodes: u32, end: u64, step: Span) -> Vec<Record> {
    let record = |case| {
        let mut world = networks::random(config, nodes, case).build().expect("a sound network");
        Record::take(&mut world, seconds(end), step, &[])
    };
    (1..=CASES).map(record).collect()
}

fn print_thesis(nodes: u32, step: Span) {
    let records = records(Config::THESIS, nodes, 20, step);
    let at_6 = || records.iter().map(|r| r.distance_at(seconds(6)));
    let within = at_6().filter(|d| *d <= 0.05).count();
    let (sinks, sources) = overloads(&records);
    println!(
        "{nodes:5}  {within:2} of {CASES}     {:6.2} %         {:5.2} s     {:5.2} s     \
         {sinks:5.2} %  \
         {sources:5.2} %",
        100.0 * at_6().fold(0.0, f64::max),
        latest(&records, 0.05),
        latest(&records, 0.01),
    );
}

fn print_grant(nodes: u32, step: Span) {
    let records = records(Config::GRANT, nodes, 5, step);
    let (sinks, sources) = overloads(&records);
    println!(
        "{nodes:5}  {:6.3} s    {:6.3} s    {:6.3} s      {sinks:5.2} %  {sources:5.2} %",
        latest(&records, 0.05),
        latest(&records, 0.01),
        latest(&records, 0.001),
    );
}

/// The worst overload of any sink and of any source, in per cent.
fn overloads(records: &[Record]) -> (f64, f64) {
    let percent = |load: f64| ((load - 1.0) * 100.0).max(0.0);
    let worst = records.iter().map(Record::worst_loads);
    worst.fold((0.0, 0.0), |most: (f64, f64), (source, sink)| {
        (most.0.max(percent(sink)), most.1.max(percent(source)))
    })
}

fn latest(records: &[Record], part: f64) -> f64 {
    records.iter().map(|r| s(r.settled(part))).fold(0.0, f64::max)
}

fn seconds(n: u64) -> Time {
    Time::ZERO + Span::from_secs(n)
}

/// Seconds; infinity for never.
fn s(at: Option<Time>) -> f64 {
    at.map_or(f64::INFINITY, |at| at.since(Time::ZERO).as_secs_f64())
}
