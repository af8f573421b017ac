//! A bottleneck as a fluid, sinks that lie, and what the path bound makes of them.

use std::collections::VecDeque;

use core::num::NonZeroU8;

use super::*;

/// A link of `rate` in the path with a queue, as receipts show it a round trip later.
struct Fluid {
    rate: Rate,
    rtt: Span,
    queue: Bytes,
    arrived: Bytes,
    pn: u64,
    on_the_way: VecDeque<Sample>,
}

/// Packets of 100 bytes.
fn packets_in(sent: Bytes) -> u64 {
    (sent.0 / 100).max(1)
}

const TICK: Span = Span::from_millis(25);

impl Fluid {
    fn new(rate: Rate, rtt: Span) -> Fluid {
        let on_the_way = VecDeque::new();
        let (queue, arrived) = (Bytes::ZERO, Bytes::ZERO);
        Fluid { rate, rtt, queue, arrived, pn: 0, on_the_way }
    }

    /// A tick at `now` at what the path permits of `aim`.
    fn run(&mut self, now: Time, path: &mut PathBound, aim: Rate) {
        let (sent, carries) = (path.bound().min(aim).bytes_in(TICK), self.rate.bytes_in(TICK));
        let before = self.queue;
        let arrived = Bytes((before + sent).0.min(carries.0));
        self.queue = before + sent - arrived;
        self.arrived += arrived;
        let delay = |queue: Bytes| queue / self.rate;
        self.on_the_way.push_back(Sample {
            sent,
            sent_in: TICK,
            arrived,
            arrived_in: TICK,
            delay: delay(Bytes(before.0.min(self.queue.0))),
            peak: delay(Bytes(before.0.max(self.queue.0))),
            first_pn: self.pn,
            end_pn: self.pn + packets_in(sent),
            lost: 0,
            marked: 0,
            receipts: Receipts::one(0),
        });
        self.pn += packets_in(sent);
        if self.on_the_way.len() as u64 > self.rtt.as_nanos() / TICK.as_nanos()
            && let Some(sample) = self.on_the_way.pop_front()
        {
            let (rtt, rtt_least, next_pn, interval) = (self.rtt, self.rtt, self.pn, TICK);
            path.handle_sample(
                now,
                sample,
                &Conditions {
                    aim,
                    granted: aim,
                    rtt,
                    rtt_least,
                    interval,
                    next_pn,
                    idles: false,
                    yields: false,
                    flows: NonZeroU8::MIN,
                },
            );
        }
    }
}

/// Between hosts that are near.
const NEAR: Conditions = Conditions {
    aim: Rate::UNLIMITED,
    granted: Rate::UNLIMITED,
    rtt: Span::from_micros(60),
    rtt_least: Span::from_micros(60),
    interval: Span::from_millis(10),
    next_pn: 0,
    idles: false,
    yields: false,
    flows: NonZeroU8::MIN,
};

#[test]
fn the_ramp_rises_however_short_the_receipts_are() {
    for span in [Span::from_micros(300), Span::from_millis(1), Span::from_millis(10)] {
        let (mut path, mut now, mut pn) = (PathBound::new(Time::ZERO), Time::ZERO, 0);
        let first = path.ramp(now, NEAR.rtt);
        while path.ramp(now, NEAR.rtt) < first.scale(100.0) {
            let sent = path.ramp(now, NEAR.rtt).bytes_in(span);
            now += span;
            let sample = Sample::whole(sent, span, pn..pn + 10);
            pn += 10;
            path.note_proven(now, &sample, &NEAR);
            assert!(now < Time::ZERO + Span::from_millis(50), "{span:?}");
        }
    }
}

/// A source of 1 Gbit/s in packets of so many bytes, and a sink that says of each
/// millisecond's that all of it arrived in 20 us; or skips the last two of each.
fn ramp_of_a_liar(packet: u64, skips: bool) -> f64 {
    let (mut path, mut log) = (PathBound::new(Time::ZERO), SendLog::default());
    let rate = Rate::from_mbps(1_000);
    let gap = Bytes(packet) / rate;
    let packets = Span::from_millis(1).as_nanos() / gap.as_nanos();
    let (mut now, mut pn, mut most) = (Time::ZERO, 0, Rate::ZERO);
    for _ in 0..300 {
        let first_pn = pn;
        for _ in 0..packets {
            log.sent(now, pn, Bytes(packet));
            (now, pn) = (now + gap, pn + 1);
        }
        let end_pn = if skips { pn - 2 } else { pn };
        let (Some(from), Some(until)) = (log.at(first_pn), log.at(end_pn)) else { continue };
        let sample = Sample {
            sent: until.1 - from.1,
            sent_in: until.0.since(from.0),
            arrived: log.sent_at_most(from, end_pn),
            arrived_in: Span::from_micros(20),
            delay: Span::ZERO,
            peak: Span::ZERO,
            first_pn,
            end_pn,
            lost: 0,
            marked: 0,
            receipts: Receipts::one(0),
        };
        path.note_proven(now, &sample, &NEAR);
        most = most.max(path.proven.max(now));
    }
    most.as_f64() / rate.as_f64()
}

#[test]
fn a_sink_that_leaves_receipts_out_or_hurries_proves_no_more_than_was_sent() {
    for packet in [200, 1_500] {
        for skips in [false, true] {
            let times = ramp_of_a_liar(packet, skips);
            assert!(times <= 1.6, "packets of {packet}, {skips}: {times:.1} times");
        }
    }
}

#[test]
fn a_link_in_the_path_is_used_to_97_percent_with_no_standing_queue_at_any_round_trip() {
    for rtt in [2, 27, 60, 140, 300] {
        let mut path = PathBound::new(Time::ZERO);
        let mut fluid = Fluid::new(Rate::from_mbps(300), Span::from_millis(rtt));
        // The longest time for which the queue was never shorter than 10 ms.
        let (mut now, mut emptied, mut stood) = (Time::ZERO, Time::ZERO, Span::ZERO);
        let mut run = |seconds: u64| {
            let begun = fluid.arrived;
            (emptied, stood) = (now, Span::ZERO);
            for _ in 0..seconds * 40 {
                now += TICK;
                fluid.run(now, &mut path, Rate::from_mbps(630));
                if fluid.queue / fluid.rate <= Span::from_millis(10) {
                    emptied = now;
                }
                stood = stood.max(now.since(emptied));
            }
            (fluid.arrived - begun).per(Span::from_secs(seconds)).as_f64()
        };
        run(3);
        let used = run(30) / 300e6;
        assert!(used >= 0.97, "{rtt} ms: {used:.3}");
        let often = Span::from_millis(8 * rtt + 200);
        assert!(stood <= often, "{rtt} ms: a queue stands for {stood:?}");
    }
}

#[test]
fn a_slow_session_regains_its_rate_once_a_policer_is_gone() {
    let rtt = Span::from_millis(27);
    let every = Span::from_millis(13);
    let mut path = PathBound::new(Time::ZERO);
    let (mut now, mut pn) = (Time::ZERO, 0);
    let mut run = |path: &mut PathBound, rate: Rate, arrives: u64| {
        now += every;
        let sent = rate.bytes_in(every);
        let sample = Sample {
            sent,
            sent_in: every,
            arrived: Bytes(sent.0 * arrives / 100),
            arrived_in: every,
            delay: Span::ZERO,
            peak: Span::ZERO,
            first_pn: pn,
            end_pn: pn + packets_in(sent),
            lost: packets_in(sent) * (100 - arrives) / 100,
            marked: 0,
            receipts: Receipts::one(100 - arrives),
        };
        pn += packets_in(sent);
        let given = Conditions {
            aim: Rate::from_mbps(4),
            granted: Rate::from_mbps(4),
            rtt,
            rtt_least: rtt,
            interval: every,
            next_pn: pn + 2,
            idles: false,
            yields: false,
            flows: NonZeroU8::MIN,
        };
        path.handle_sample(now, sample, &given);
        now
    };
    let sends = Rate::from_bps(1_500_000);
    while path.bound().is_unlimited() {
        run(&mut path, sends, 45);
    }
    let policed = run(&mut path, sends, 45);
    assert!(path.bound() <= sends);
    let mut free = policed;
    while path.bound() < Rate::from_mbps(4) {
        let bound = path.bound();
        free = run(&mut path, bound, 100);
    }
    assert!(free.since(policed) < Span::from_secs(5), "{:?}", free.since(policed));
}

/// A policer of `rate` that passes on what it has saved up, `most` of it, as receipts show it a
/// round trip later. Sends what the path permits of `aim` for so long; returns the part that is
/// lost, and what arrives.
fn police(
    path: &mut PathBound,
    now: &mut Time,
    (rate, most): (Option<Rate>, Bytes),
    aim: Rate,
    lasts: Span,
) -> (f64, Rate) {
    let (rtt, begun) = (Span::from_millis(50), *now);
    let (mut saved, mut on_the_way) = (Bytes::ZERO, VecDeque::new());
    let (mut sent_in_all, mut arrived_in_all) = (Bytes::ZERO, Bytes::ZERO);
    let mut pn = path.changed_pn;
    while now.since(begun) < lasts {
        *now += TICK;
        let sent = path.bound().min(aim).bytes_in(TICK);
        let passes = rate.map_or(sent, |rate| saved + rate.bytes_in(TICK));
        let arrived = sent.min(passes);
        saved = Bytes(passes.0 - arrived.0).min(most);
        let lost = packets_in(sent) - packets_in(arrived);
        let (first_pn, end_pn) = (pn, pn + packets_in(sent));
        on_the_way.push_back(Sample {
            sent,
            sent_in: TICK,
            arrived,
            arrived_in: TICK,
            first_pn,
            end_pn,
            lost,
            marked: 0,
            receipts: Receipts::one(lost),
            ..Sample::default()
        });
        pn = end_pn;
        sent_in_all += sent;
        arrived_in_all += arrived;
        let given = Conditions {
            aim,
            granted: aim,
            rtt,
            rtt_least: rtt,
            interval: TICK,
            next_pn: pn,
            idles: false,
            yields: false,
            flows: NonZeroU8::MIN,
        };
        if on_the_way.len() > 2
            && let Some(sample) = on_the_way.pop_front()
        {
            path.handle_sample(*now, sample, &given);
        }
    }
    let lost = 1.0 - arrived_in_all.0 as f64 / sent_in_all.0.max(1) as f64;
    (lost, arrived_in_all.per(lasts))
}

#[test]
fn a_limit_that_stands_is_tested_ever_less_often_and_one_that_is_gone_is_found_out_soon() {
    for (saves, aim) in [(10, 60), (100, 60), (1_000, 60), (1_000, 400)] {
        let (mut path, mut now) = (PathBound::new(Time::ZERO), Time::ZERO);
        let (rate, aim) = (Rate::from_mbps(20), Rate::from_mbps(aim));
        let policer = (Some(rate), rate.bytes_in(Span::from_millis(saves)));
        police(&mut path, &mut now, policer, aim, Span::from_secs(8));
        let (lost, arrived) = police(&mut path, &mut now, policer, aim, Span::from_secs(30));
        assert!(lost < 0.01, "{saves} ms: {lost:.4} lost");
        assert!(arrived > rate.scale(0.9), "{saves} ms: {arrived}");
        police(&mut path, &mut now, (None, Bytes::ZERO), aim, Span::from_secs(25));
        let gone = police(&mut path, &mut now, (None, Bytes::ZERO), aim, Span::from_secs(1));
        assert!(gone.1 > aim.scale(0.95), "{saves} ms: {} once it is gone", gone.1);
    }
}

/// Whether losses that come with each train end the start of a session that sends at one pace,
/// because its application leaves it waiting or because the path carries no more.
fn start_ends(idles: bool) -> bool {
    let (mut path, mut now, mut pn) = (PathBound::new(Time::ZERO), Time::ZERO, 0);
    for n in 0..200 {
        now += TICK;
        let given =
            Conditions { interval: TICK, rtt: TICK, rtt_least: TICK, next_pn: pn, idles, ..NEAR };
        path.pace(now, TICK, given.granted, pn);
        let sent = Rate::from_mbps(2).bytes_in(TICK);
        let end_pn = pn + packets_in(sent);
        let lost = if n % 8 == 7 { 12 } else { 0 };
        let arrived = Bytes(sent.0 - lost * 100);
        let sample = Sample {
            sent,
            sent_in: TICK,
            arrived,
            arrived_in: TICK,
            delay: Span::ZERO,
            peak: Span::ZERO,
            first_pn: pn,
            end_pn,
            lost,
            marked: 0,
            receipts: Receipts::one(lost),
        };
        pn = end_pn;
        path.note_proven(now, &sample, &given);
        if !path.bound().is_unlimited() {
            return true;
        }
    }
    false
}

#[test]
fn a_train_that_the_application_does_not_fill_does_not_end_the_start() {
    assert!(start_ends(false));
    assert!(!start_ends(true));
}

/// A path of 20 Mbit/s with a queue of this length that somebody else keeps there, or none. Runs it
/// for so long with what a session of low weight sends, and returns what arrives of it.
fn beside(path: &mut PathBound, now: &mut Time, queue: Span, lasts: Span) -> Rate {
    sends_beside(path, now, queue, lasts, true)
}

/// The same for a session that gives way if it `yields`.
fn sends_beside(
    path: &mut PathBound,
    now: &mut Time,
    queue: Span,
    lasts: Span,
    yields: bool,
) -> Rate {
    let (begun, mut all) = (*now, Bytes::ZERO);
    while now.since(begun) < lasts {
        *now += TICK;
        let sent = path.bound().min(Rate::from_mbps(18)).bytes_in(TICK);
        let first_pn = path.changed_pn;
        let end_pn = first_pn + packets_in(sent);
        let (arrived, lost) = (sent, 0);
        let sample = Sample {
            sent,
            sent_in: TICK,
            arrived,
            arrived_in: TICK,
            delay: queue,
            peak: queue,
            first_pn,
            end_pn,
            lost,
            marked: 0,
            receipts: Receipts::one(lost),
        };
        let given = Conditions { rtt: TICK, rtt_least: TICK, next_pn: end_pn, yields, ..NEAR };
        path.handle_sample(*now, sample, &given);
        all += arrived;
    }
    all.per(lasts)
}

#[test]
fn a_session_of_low_weight_leaves_a_queue_that_stays_and_comes_back_once_it_is_gone() {
    let (mut path, mut now) = (PathBound::bounded(Time::ZERO, Rate::from_mbps(10)), Time::ZERO);
    let (queue, second) = (Span::from_millis(30), Span::from_secs(1));
    beside(&mut path, &mut now, queue, second);
    assert_eq!(path.standing().mode, Mode::Yield);
    let left = beside(&mut path, &mut now, queue, second * 60);
    assert!(left < Rate::from_mbps(1), "{left}");
    beside(&mut path, &mut now, Span::ZERO, second * 40);
    let back = beside(&mut path, &mut now, Span::ZERO, second);
    assert!(back > Rate::from_mbps(15), "{back}");
}

#[test]
fn a_session_that_joins_one_of_low_weight_does_not_give_way_with_it() {
    let (mut path, mut now) = (PathBound::bounded(Time::ZERO, Rate::from_mbps(10)), Time::ZERO);
    let (queue, second) = (Span::from_millis(30), Span::from_secs(1));
    beside(&mut path, &mut now, queue, second * 5);
    assert_eq!(path.standing().mode, Mode::Yield);
    sends_beside(&mut path, &mut now, queue, second * 5, false);
    assert_ne!(path.standing().mode, Mode::Yield);
    assert!(path.bound() > Rate::from_mbps(1), "{}", path.bound());
}

/// Receipts of a session that sends 20 Mbit/s, a round trip of two ticks behind.
struct Steady {
    path: PathBound,
    now: Time,
    pn: u64,
}

impl Steady {
    fn new() -> Steady {
        Steady { path: PathBound::new(Time::ZERO), now: Time::ZERO, pn: 0 }
    }

    /// Tells of `ticks` of which one packet in `nth` was lost; returns whether a test began.
    fn tell(&mut self, ticks: u32, nth: u64) -> bool {
        (0..ticks).fold(false, |probed, _| {
            self.tick(nth);
            probed || self.path.standing().mode == Mode::Probe
        })
    }

    fn tick(&mut self, nth: u64) {
        let sent = Rate::from_mbps(20).bytes_in(TICK);
        let packets = packets_in(sent);
        let (lost, first_pn) = (packets / nth, self.pn);
        self.now += TICK;
        self.pn += packets;
        let sample = Sample {
            sent,
            sent_in: TICK,
            arrived: Bytes(sent.0 - sent.0 / nth),
            arrived_in: TICK,
            first_pn,
            end_pn: self.pn,
            lost,
            marked: 0,
            receipts: Receipts::one(lost),
            ..Sample::default()
        };
        let granted = Rate::from_mbps(20);
        let (rtt, next_pn) = (TICK * 2, self.pn + packets * 2);
        let given = Conditions {
            aim: granted,
            granted,
            rtt,
            rtt_least: rtt,
            interval: TICK,
            next_pn,
            ..NEAR
        };
        self.path.handle_sample(self.now, sample, &given);
    }
}

const NONE_LOST: u64 = u64::MAX;

#[test]
fn losses_while_no_more_is_sent_than_for_a_second_before_are_tested_if_they_go_on() {
    let mut session = Steady::new();
    assert!(!session.tell(80, NONE_LOST));
    assert!(!session.tell(5, 8), "a burst");
    assert!(!session.tell(80, NONE_LOST));
    assert!(session.tell(10, 8), "losses that go on");
}

#[test]
fn losses_that_stay_when_less_is_sent_are_random_up_to_a_tenth_and_a_rivals_above() {
    for (nth, competes) in [(40, false), (12, false), (8, true), (4, true)] {
        let mut session = Steady::new();
        session.tell(20, NONE_LOST);
        session.tell(200, nth);
        let mode = session.path.standing().mode;
        assert_eq!(mode == Mode::Compete, competes, "one in {nth}: {mode:?}");
    }
}

#[test]
fn once_losses_that_no_less_sending_ended_have_stopped_a_session_goes_on_from_what_arrived() {
    let mut session = Steady::new();
    session.tell(20, NONE_LOST);
    while session.path.standing().mode != Mode::Compete {
        session.tick(4);
    }
    let competed = session.path.bound();
    while session.path.standing().mode == Mode::Compete {
        session.tick(NONE_LOST);
    }
    // Three quarters of 20 Mbit/s had arrived.
    let resumed = session.path.bound();
    assert!(resumed > Rate::from_mbps(14), "{competed}, then {resumed}");
}

#[test]
fn an_outage_does_not_answer_whether_losses_follow_the_rate() {
    let mut session = Steady::new();
    session.tell(20, NONE_LOST);
    while session.path.standing().mode != Mode::Probe {
        session.tick(8);
    }
    session.tell(4, 1);
    assert_eq!(session.path.standing().mode, Mode::Probe);
    session.tell(20, NONE_LOST);
    let bound = session.path.bound();
    assert!(bound > Rate::from_mbps(12), "{bound}");
}

#[test]
fn an_outage_is_over_when_what_left_after_it_at_the_same_rate_arrives() {
    let mut session = Steady::new();
    session.tell(20, NONE_LOST);
    while session.path.standing().mode != Mode::Probe {
        session.tick(1);
    }
    session.tick(NONE_LOST);
    assert_ne!(session.path.standing().mode, Mode::Probe);
    let bound = session.path.bound();
    assert!(bound >= Rate::from_mbps(20), "{bound}");
}

/// The pace of a session to which both ends allow `granted` and 10 Mbit/s are proven, after so many
/// receipts in a row with a queue.
fn pace_after(queued: u64, granted: Rate) -> Rate {
    let (mut path, mut now) = (PathBound::new(Time::ZERO), Time::ZERO);
    let given = |pn| Conditions {
        aim: granted,
        granted,
        interval: TICK,
        rtt: TICK,
        rtt_least: TICK,
        next_pn: pn,
        ..NEAR
    };
    let sent = Rate::from_mbps(10).bytes_in(TICK);
    let mut pn = 0;
    for n in 1..=40 {
        now += TICK;
        let end_pn = pn + packets_in(sent);
        let delay = if n > 40 - queued { Span::from_millis(30) } else { Span::ZERO };
        let sample = Sample { delay, peak: delay, ..Sample::whole(sent, TICK, pn..end_pn) };
        pn = end_pn;
        path.note_proven(now, &sample, &given(pn));
    }
    path.pace(now, TICK, granted, pn)
}

#[test]
fn one_receipt_with_a_queue_makes_a_session_send_less_only_while_it_explores() {
    let (proven, more) = (Rate::from_mbps(10), Rate::from_mbps(100));
    assert!(pace_after(0, proven) >= proven);
    assert!(pace_after(1, proven) >= proven);
    assert!(pace_after(2, proven) < proven.scale(0.95));
    assert!(pace_after(1, more) < proven.scale(0.95));
}

/// What bounds a session that has sent a status in each tick, and loses most of its first data for
/// so long.
fn bound_after_outage(lasts: Span) -> Rate {
    let (mut path, mut pn) = (PathBound::new(Time::ZERO), 0);
    let (rtt, begins) = (TICK * 4, Time::ZERO + Span::from_millis(250));
    let mut now = Time::ZERO;
    while now < begins + lasts {
        now += TICK;
        let given = Conditions { interval: TICK, rtt, rtt_least: rtt, next_pn: pn, ..NEAR };
        path.pace(now, rtt, given.granted, pn);
        let (packets, lost) = if now > begins { (10, 8) } else { (1, 0) };
        let sample = Sample {
            sent: Bytes(packets * 100),
            sent_in: TICK,
            arrived: Bytes((packets - lost) * 100),
            arrived_in: TICK,
            first_pn: pn,
            end_pn: pn + packets,
            lost,
            marked: 0,
            receipts: Receipts::one(lost),
            ..Sample::default()
        };
        pn += packets;
        path.note_proven(now, &sample, &given);
    }
    path.bound()
}

#[test]
fn a_first_train_that_falls_into_an_outage_does_not_end_the_start() {
    assert!(bound_after_outage(Span::from_secs(1)).is_unlimited());
    assert!(!bound_after_outage(Span::from_secs(5)).is_unlimited(), "this is no outage");
}
