//! The physics verifier catches every kind of breach: an honest trace passes, and each planted
//! violation is named by its rule.

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_link::{Chance, Change, LinkSpec, Policer, Reason, Trace};
use gtp_sim::packet::{Action, BackgroundSpec, HostSpec, Pattern, World};
use gtp_sim::trace::{Fate, PacketTrace, Record, What};
use gtp_sim::verify::{Rule, verify};

const END: Time = Time::from_nanos(300_000_000);
const MICRO: Span = Span::from_micros(1);

/// Two flows that overfill a lossy link behind a fast one; the link's rate changes on the way.
fn honest() -> (PacketTrace, usize) {
    let mut world = World::new(4);
    let [a, b] = [(); 2].map(|()| world.add_host(HostSpec::default()));
    let middle = world.add_switch();
    let delay = Span::from_millis(7);
    let fast = LinkSpec { rate: Rate::from_mbps(100), delay, ..LinkSpec::default() };
    let loss = Chance::from_percent(2);
    let narrow = LinkSpec {
        rate: Rate::from_mbps(8),
        queue: Bytes(10_000),
        loss,
        duplicate: loss,
        mtu: Some(Bytes(1_500)),
        ..fast.clone()
    };
    world.connect(a, middle, fast).unwrap();
    let narrow = world.connect(middle, b, narrow).unwrap();
    world.trace_packets(1 << 20);
    for (rate, packet) in [(6, 1_200), (5, 700)] {
        let pattern = Pattern::Poisson { mean: Rate::from_mbps(rate) };
        let flow = BackgroundSpec { packet: Bytes(packet), ..BackgroundSpec::new(a, b, pattern) };
        world.add_background(flow).unwrap();
    }
    let faster = Change { rate: Some(Rate::from_mbps(9)), ..Change::default() };
    world.at(Time::from_nanos(100_000_000), Action::Link(narrow, faster)).unwrap();
    world.run_until(END);
    world.verify().unwrap();
    (world.packet_trace().clone(), world.packets_under_way().0)
}

/// Two flows over a link whose capacity is a trace, and how many bytes they left it with.
fn traced() -> (PacketTrace, usize) {
    let mut world = World::new(4);
    let [a, b] = [(); 2].map(|()| world.add_host(HostSpec::default()));
    let trace = Trace::read("3\n3\n4\n9\n9\n9\n14\n").expect("a trace");
    let rate = trace.mean_rate();
    let queue = Bytes(20_000);
    let spec = LinkSpec { rate, trace: Some(trace), queue, ..LinkSpec::default() };
    world.connect(a, b, spec).unwrap();
    world.trace_packets(1 << 20);
    for packet in [1_200, 300] {
        let pattern = Pattern::Poisson { mean: Rate::from_mbps(4) };
        let flow = BackgroundSpec { packet: Bytes(packet), ..BackgroundSpec::new(a, b, pattern) };
        world.add_background(flow).unwrap();
    }
    world.run_until(END);
    world.verify().unwrap();
    (world.packet_trace().clone(), world.packets_under_way().0)
}

#[test]
fn a_link_with_a_trace_is_lawful_and_one_that_leaves_between_opportunities_is_not() {
    let (trace, under_way) = traced();
    let full = trace.records.iter().filter(|r| r.what == What::Dropped(Reason::Queue)).count();
    assert!(full > 10, "more comes than the trace carries");
    let accepted = |r: &Record| matches!(r.what, What::Accepted { .. });
    let places: Vec<usize> =
        (0..trace.records.len()).filter(|&i| accepted(&trace.records[i])).collect();
    let breaks = |nanos: i64, rule: Rule| {
        places[..60].iter().any(|&place| {
            let mut trace = trace.clone();
            if let What::Accepted { leave, .. } = &mut trace.records[place].what {
                *leave = Time::from_nanos(leave.as_nanos().saturating_add_signed(nanos));
            }
            let breaches = verify(&trace, END, under_way).unwrap_err();
            breaches.iter().any(|breach| breach.rule == rule)
        })
    };
    assert!(breaks(-1, Rule::Rate) && breaks(6_000_000, Rule::Late));
}

/// The rules that `spoil` breaks, given the trace and the numbers of records that fit.
fn broken(fits: impl Fn(&Record) -> bool, spoil: impl Fn(&mut PacketTrace, &[usize])) -> Vec<Rule> {
    let (mut trace, under_way) = honest();
    let places: Vec<usize> =
        (0..trace.records.len()).filter(|&i| fits(&trace.records[i])).collect();
    assert!(places.len() > 10, "the trace has what the test spoils");
    spoil(&mut trace, &places);
    let mut rules: Vec<Rule> = match verify(&trace, END, under_way) {
        Ok(_) => Vec::new(),
        Err(breaches) => breaches.into_iter().map(|breach| breach.rule).collect(),
    };
    rules.sort_unstable();
    rules.dedup();
    rules
}

/// Accepted by the narrow link, long before the end.
fn accepted(record: &Record) -> bool {
    matches!(record.what, What::Accepted { fate: Fate::Carried, .. }) && record.place == 1
}

fn arrived(record: &Record) -> bool {
    record.what == What::Arrived && record.place == 1
}

#[test]
fn a_packet_that_vanishes_or_appears_breaks_conservation() {
    let rules = broken(
        |r| r.what == What::Delivered,
        |trace, at| {
            trace.records.remove(at[5]);
        },
    );
    assert_eq!(rules, [Rule::Conservation]);
    let rules = broken(
        |r| r.what == What::Delivered,
        |trace, at| {
            let again = trace.records[at[5]];
            trace.records.insert(at[5], again);
            let later = trace.links.iter_mut().filter(|change| change.record > at[5]);
            later.for_each(|change| change.record += 1);
        },
    );
    assert_eq!(rules, [Rule::Conservation]);
    let rules = broken(
        |r| r.what == What::Delivered,
        |trace, at| {
            trace.records[at[5]].size = Bytes(9);
        },
    );
    assert_eq!(rules, [Rule::Conservation]);
    let rules = broken(
        |r| r.what == What::Delivered,
        |trace, at| {
            trace.records[at[5]].place += 2;
        },
    );
    assert_eq!(rules, [Rule::Conservation], "delivered to somebody else");
    let (trace, under_way) = honest();
    let breaches = verify(&trace, END, under_way + 1).unwrap_err();
    assert_eq!(breaches[0].rule, Rule::Conservation, "one is said to be under way and is not");
}

#[test]
fn a_packet_before_its_time_is_early() {
    let rules = broken(arrived, |trace, at| {
        // Its delivery is at the same time and follows it: both happen before they can.
        let (record, next) = (at[7], at[7] + 1);
        assert_eq!(trace.records[next].what, What::Delivered);
        let early = trace.records[record - 1].at;
        assert!(early < trace.records[record].at);
        trace.records[record].at = early;
        trace.records[next].at = early;
    });
    assert_eq!(rules, [Rule::Early]);
}

#[test]
fn a_packet_that_arrives_after_its_time_or_never_is_late() {
    let rules = broken(arrived, |trace, at| {
        let record = at[7];
        let late = trace.records[record + 2].at;
        assert!(late > trace.records[record].at);
        trace.records[record].at = late;
        trace.records[record + 1].at = late;
    });
    assert_eq!(rules, [Rule::Late]);
    let (mut trace, under_way) = honest();
    let at = trace.records.iter().position(arrived).unwrap();
    trace.records.drain(at..at + 2);
    let rules: Vec<_> =
        verify(&trace, END, under_way + 1).unwrap_err().iter().map(|b| b.rule).collect();
    assert!(rules.contains(&Rule::Late), "{rules:?}");
}

#[test]
fn a_service_shorter_than_its_bytes_take_breaks_the_rate() {
    let rules = broken(accepted, |trace, at| {
        let What::Accepted { leave, .. } = &mut trace.records[at[3]].what else { return };
        *leave = leave.saturating_sub(MICRO);
    });
    assert!(rules.contains(&Rule::Rate), "{rules:?}");
}

/// A flow that leaves its link idle most of the time, and all of it arrived.
fn idle() -> PacketTrace {
    let mut world = World::new(4);
    let [a, b] = [(); 2].map(|()| world.add_host(HostSpec::default()));
    let delay = Span::from_millis(7);
    let spec = LinkSpec { rate: Rate::from_mbps(8), delay, ..LinkSpec::default() };
    world.connect(a, b, spec).unwrap();
    world.trace_packets(1 << 20);
    let pattern = Pattern::Constant { rate: Rate::from_mbps(2) };
    let stop = Some(Time::from_nanos(200_000_000));
    world.add_background(BackgroundSpec { stop, ..BackgroundSpec::new(a, b, pattern) }).unwrap();
    world.run_until(END);
    assert_eq!(world.packets_under_way().0, 0);
    world.packet_trace().clone()
}

#[test]
fn a_departure_that_an_idle_link_could_have_made_sooner_is_late() {
    // A whole service, as if the queue were counted twice; and the least that can be told.
    for later in [Span::from_millis(1), Span::from_nanos(1)] {
        let mut trace = idle();
        assert!(verify(&trace, END, 0).unwrap().delivered > 40);
        for record in &mut trace.records {
            match &mut record.what {
                What::Accepted { leave, .. } => *leave += later,
                What::Arrived | What::Delivered => record.at += later,
                What::Sent => {}
                other => panic!("{other:?} on an idle link"),
            }
        }
        trace.records.sort_by_key(|record| record.at);
        let breaches = verify(&trace, END, 0).unwrap_err();
        assert!(breaches.iter().all(|breach| breach.rule == Rule::Late), "{breaches:?}");
        assert!(breaches.iter().all(|breach| breach.text.contains("too late")), "{breaches:?}");
    }
}

#[test]
fn services_that_overlap_break_the_rate() {
    let rules = broken(accepted, |trace, at| {
        // One packet is held in service longer, the next one leaves when it did.
        let What::Accepted { leave, .. } = &mut trace.records[at[8]].what else { return };
        *leave += MICRO;
    });
    assert!(rules.contains(&Rule::Rate), "{rules:?}");
}

#[test]
fn overtaking_where_nobody_asked_for_it_breaks_the_order() {
    let rules = broken(arrived, |trace, at| {
        let (first, second) = (at[6], at[7]);
        let (a, b) = (trace.records[first].packet, trace.records[second].packet);
        for record in [first, first + 1] {
            trace.records[record].packet = b;
        }
        for record in [second, second + 1] {
            trace.records[record].packet = a;
        }
        let (x, y) = (trace.records[first].size, trace.records[second].size);
        for (record, size) in [(first, y), (first + 1, y), (second, x), (second + 1, x)] {
            trace.records[record].size = size;
        }
    });
    assert!(rules.contains(&Rule::Order), "{rules:?}");
}

#[test]
fn a_queue_beyond_its_size_is_seen() {
    let (mut trace, under_way) = honest();
    for link in &mut trace.links {
        link.spec.queue = Bytes(link.spec.queue.0.min(9_999));
    }
    let breaches = verify(&trace, END, under_way).unwrap_err();
    assert!(breaches.iter().any(|breach| breach.rule == Rule::Queue), "{breaches:?}");
}

#[test]
fn drops_without_a_reason_are_seen() {
    let full = |r: &Record| r.what == What::Dropped(Reason::Queue);
    let rules = broken(full, |trace, _| {
        for link in &mut trace.links {
            link.spec.queue += Bytes(1_200);
        }
    });
    assert_eq!(rules, [Rule::Drop], "there was room");
    for reason in [Reason::Down, Reason::Mtu] {
        let rules = broken(full, |trace, at| {
            trace.records[at[2]].what = What::Dropped(reason);
        });
        assert_eq!(rules, [Rule::Drop], "{reason:?}");
    }
    let (mut trace, under_way) = honest();
    trace.links.iter_mut().for_each(|link| link.spec.loss = Chance::NEVER);
    let breaches = verify(&trace, END, under_way).unwrap_err();
    assert!(breaches.iter().all(|breach| breach.rule == Rule::Drop));
}

#[test]
fn a_trace_that_was_cut_or_goes_back_in_time_is_not_believed() {
    let rules = broken(arrived, |trace, _| trace.cut = true);
    assert_eq!(rules, [Rule::Complete]);
    let rules = broken(
        |r| r.what == What::Sent,
        |trace, at| {
            trace.records[at[9]].at = Time::ZERO;
        },
    );
    assert!(rules.contains(&Rule::Complete), "{rules:?}");
}

#[test]
fn a_policer_that_drops_too_much_or_too_little_breaks_the_rule_of_drops() {
    let mut world = World::new(4);
    let [a, b] = [(); 2].map(|()| world.add_host(HostSpec::default()));
    let policer = Policer { rate: Rate::from_mbps(8), bucket: Bytes(5_000) };
    world.connect(a, b, LinkSpec { policer: Some(policer), ..LinkSpec::default() }).unwrap();
    world.trace_packets(1 << 20);
    let pattern = Pattern::Poisson { mean: Rate::from_mbps(12) };
    world.add_background(BackgroundSpec::new(a, b, pattern)).unwrap();
    world.run_until(END);
    world.verify().unwrap();
    let (honest, under_way) = (world.packet_trace().clone(), world.packets_under_way().0);
    let policed = |r: &Record| r.what == What::Dropped(Reason::Policer);
    assert!(honest.records.iter().filter(|r| policed(r)).count() > 20);
    // A larger bucket would not have dropped, a smaller one would have dropped more.
    for bucket in [9_000, 1_500] {
        let mut trace = honest.clone();
        let policer = Policer { bucket: Bytes(bucket), ..policer };
        trace.links.iter_mut().for_each(|change| change.spec.policer = Some(policer));
        let breaches = verify(&trace, END, under_way).unwrap_err();
        assert!(breaches.iter().all(|breach| breach.rule == Rule::Drop), "{breaches:?}");
    }
    let mut trace = honest;
    trace.links.iter_mut().for_each(|change| change.spec.policer = None);
    assert_eq!(verify(&trace, END, under_way).unwrap_err()[0].rule, Rule::Drop);
}
