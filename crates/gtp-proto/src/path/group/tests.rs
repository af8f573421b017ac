//! Sessions of a group, as their group sees them.

use std::vec::Vec;

use core::num::NonZeroU8;

use gtp_alloc::Bytes;

use super::*;
use crate::path::Receipts;

const INTERVAL: Span = Span::from_millis(20);
const PACKET: u64 = 1_500;

fn at(ms: u64) -> Time {
    Time::ZERO + Span::from_millis(ms)
}

fn mbps(rate: u64) -> Rate {
    Rate::from_mbps(rate)
}

/// A session that has sent so many packets, with what its last receipt said.
struct Member {
    pn: u64,
    weight: f64,
    claim: Rate,
    firm: Rate,
    rtt_least: Span,
    whole: Option<Piece>,
    machine: Keeps,
    bound: Rate,
}

impl Member {
    fn greedy() -> Member {
        let (claim, firm) = (Rate::UNLIMITED, Rate::UNLIMITED);
        let rtt_least = Span::from_millis(40);
        let (whole, machine, bound) = (None, Keeps::Session, Rate::UNLIMITED);
        Member { pn: 1_000, weight: 1.0, claim, firm, rtt_least, whole, machine, bound }
    }

    /// One that comes from another group, where it could have `bound`.
    fn orphan(bound: Rate) -> Member {
        Member { machine: Keeps::Group, bound, ..Member::greedy() }
    }

    /// Sends so many packets, of which `lost` are missing, and hears of them at once.
    fn send(&mut self, packets: u64, lost: u64, delay: Span) {
        let first_pn = self.pn;
        self.pn += packets;
        let sample = Sample {
            sent: Bytes(packets * PACKET),
            sent_in: INTERVAL,
            arrived: Bytes((packets - lost) * PACKET),
            arrived_in: INTERVAL,
            delay,
            peak: delay + Span::from_millis(1),
            first_pn,
            end_pn: self.pn,
            lost,
            marked: 0,
            receipts: Receipts::one(lost),
        };
        self.whole = Some(Piece { sample, packets });
    }

    fn facts(&self) -> Facts {
        let given = Conditions {
            aim: mbps(10_000),
            granted: mbps(10_000),
            rtt: self.rtt_least,
            rtt_least: self.rtt_least,
            interval: INTERVAL,
            next_pn: self.pn,
            idles: false,
            yields: false,
            flows: NonZeroU8::MIN,
        };
        let Member { weight, claim, firm, machine, bound, .. } = *self;
        Facts { weight, claim, firm, given, heard_at: Some(Time::ZERO), machine, bound }
    }
}

/// The first half of a round at `now`, in which these sessions are visited.
fn hear(group: &mut Group, now: Time, members: &mut [Member]) {
    for (id, member) in members.iter_mut().enumerate() {
        let pieces = [member.whole.take(), None];
        group.visit(now, id as FlowId, member.facts(), pieces);
    }
    group.given(now);
}

/// A round at `now` with these sessions.
fn round(group: &mut Group, now: Time, members: &mut [Member]) {
    hear(group, now, members);
    assert!(group.share_out(now));
}

/// A group of these sessions, the first of which has given its machine.
fn begun(members: &mut [Member]) -> Group {
    let mut group = Group::default();
    round(&mut group, at(0), members);
    let keeper = (0..members.len() as FlowId).find(|&id| group.wants_machine(id)).unwrap();
    group.take_machine(at(0), keeper, Box::new(PathBound::new(at(0))));
    group
}

/// What a node of this capacity gives each session.
fn targets(group: &Group, capacity: Rate) -> Vec<f64> {
    group.shares(capacity).iter().map(|share| (share.target / 1e4).round() / 100.0).collect()
}

#[test]
fn one_session_keeps_its_machine_and_of_two_one_gives_it() {
    let mut group = Group::default();
    round(&mut group, at(0), &mut [Member::greedy()]);
    assert!(!group.wants_machine(0) && !group.is_shared());
    let mut two = [Member::greedy(), Member::greedy()];
    round(&mut group, at(10), &mut two);
    let wanted: Vec<_> = (0..2).filter(|&id| group.wants_machine(id)).collect();
    assert_eq!(wanted.len(), 1);
}

#[test]
fn rates_and_losses_of_all_sessions_add_up_and_the_least_and_the_greatest_delay_count() {
    let mut members = [Member::greedy(), Member::greedy(), Member::greedy()];
    let mut group = begun(&mut members);
    let delays = [9, 7, 8].map(Span::from_millis);
    for (member, delay) in members.iter_mut().zip(delays) {
        member.send(10, 1, delay);
    }
    hear(&mut group, at(20), &mut members);
    let sample = group.sum(at(20), |party| &mut party.whole).unwrap();
    let rate = Bytes(30 * PACKET).per(INTERVAL);
    assert_eq!(sample.sent.per(sample.sent_in), rate);
    assert_eq!((sample.packets(), sample.lost), (30, 3));
    assert_eq!((sample.delay, sample.peak), (Span::from_millis(7), Span::from_millis(10)));
    assert_eq!(sample.end_pn, members[0].pn + 20, "numbers add up from where each came in");
}

#[test]
fn a_session_that_came_while_there_was_a_queue_does_not_hide_it() {
    let mut members = [Member::greedy(), Member::greedy()];
    members[1].rtt_least = Span::from_millis(70);
    let mut group = begun(&mut members);
    members[0].send(10, 0, Span::from_millis(35));
    members[1].send(10, 0, Span::ZERO);
    hear(&mut group, at(20), &mut members);
    let sample = group.sum(at(20), |party| &mut party.whole).unwrap();
    assert_eq!(sample.delay, Span::from_millis(30), "the queue that it took for the path");
}

#[test]
fn a_bound_is_shared_by_weights_and_what_one_cannot_use_goes_to_the_others() {
    let mut members = [Member::greedy(), Member::greedy(), Member::greedy()];
    members[1].weight = 2.0;
    (members[2].claim, members[2].firm) = (mbps(10), mbps(10));
    let group = begun(&mut members);
    assert_eq!(targets(&group, mbps(100)), [30.0, 60.0, 10.0]);
    assert_eq!(targets(&group, mbps(20)), [5.0, 10.0, 5.0]);
}

#[test]
fn idle_sessions_hold_a_64th_together_and_are_offered_their_share() {
    let mut members: Vec<Member> = (0..8).map(|_| Member::greedy()).collect();
    for idle in &mut members[1..] {
        (idle.claim, idle.firm) = (mbps(5), Rate::ZERO);
    }
    let group = begun(&mut members);
    let shares = group.shares(mbps(64));
    assert!(shares[0].target >= 63e6 - 1.0, "{}", shares[0].target);
    assert!(shares[7].offer >= 8e6, "{}", shares[7].offer);
}

#[test]
fn packets_of_a_session_that_has_left_stay_counted() {
    let mut members = [Member::greedy(), Member::greedy(), Member::greedy()];
    let mut group = begun(&mut members);
    round(&mut group, at(10), &mut members);
    members[2].send(500, 0, Span::ZERO);
    round(&mut group, at(20), &mut members);
    let before = group.given(at(20)).next_pn;
    round(&mut group, at(30), &mut members[..2]);
    assert_eq!(group.given(at(30)).next_pn, before);
}

#[test]
fn sessions_that_say_little_make_another_seem_neither_fast_nor_slow() {
    let mut members: Vec<Member> = (0..8).map(|_| Member::greedy()).collect();
    let mut group = begun(&mut members);
    let sends = Bytes(30 * PACKET).per(INTERVAL).as_f64();
    for (now, says) in [(20, true), (40, false), (60, true)] {
        members[0].send(30, 0, Span::ZERO);
        for idle in members[1..].iter_mut().filter(|_| says) {
            idle.send(1, 0, Span::ZERO);
            // It is the first for a tenth of a second.
            let piece = idle.whole.as_mut().unwrap();
            (piece.sample.sent, piece.sample.arrived) = (Bytes(60), Bytes(60));
            piece.sample.sent_in = Span::from_millis(100);
            piece.sample.arrived_in = Span::from_millis(100);
        }
        hear(&mut group, at(now), &mut members);
        let sample = group.sum(at(now), |party| &mut party.whole).unwrap();
        let part = sample.proven().as_f64() / sends;
        assert!((0.99..1.01).contains(&part), "{part} at {now} ms");
    }
}

#[test]
fn losses_are_heard_of_however_rare_receipts_are() {
    let mut members = [Member::greedy(), Member::greedy()];
    let mut group = begun(&mut members);
    for now in [20, 420, 820] {
        members[0].send(40, 30, Span::ZERO);
        hear(&mut group, at(now), &mut members);
        let sample = group.sum(at(now), |party| &mut party.whole).unwrap();
        assert_eq!((sample.packets(), sample.lost), (40, 30), "at {now} ms");
    }
}

#[test]
fn what_a_silent_session_sent_makes_no_sample_of_the_others_old() {
    let mut members = [Member::greedy(), Member::greedy()];
    let mut group = begun(&mut members);
    members[1].send(10, 0, Span::ZERO);
    hear(&mut group, at(20), &mut members);
    group.sum(at(20), |party| &mut party.whole);
    // Nothing more is said of this session.
    members[1].pn += 5_000;
    let mut behind = Vec::new();
    for ms in (40..1_000).step_by(20) {
        members[0].send(10, 0, Span::ZERO);
        hear(&mut group, at(ms), &mut members);
        let sample = group.sum(at(ms), |party| &mut party.whole).unwrap();
        behind.push(group.given(at(ms)).next_pn - sample.end_pn);
    }
    assert_eq!((behind[0], behind.last()), (5_000, Some(&0)));
}

#[test]
fn sessions_whose_path_has_another_name_keep_what_bounded_them() {
    let mut members = [Member::orphan(mbps(10)), Member::orphan(mbps(12))];
    let mut group = Group::default();
    round(&mut group, at(0), &mut members);
    assert_eq!(group.machine.as_ref().unwrap().bound(), mbps(10));
    let mut own = [Member::orphan(mbps(10)), Member::greedy()];
    let mut group = Group::default();
    round(&mut group, at(0), &mut own);
    assert!(group.machine.is_none() && group.wants_machine(1) && !group.wants_machine(0));
    // The session that waited there does not free them.
    group.take_machine(at(0), 1, Box::new(PathBound::new(at(0))));
    assert_eq!(group.machine.as_ref().unwrap().bound(), mbps(10));
}

#[test]
fn no_machine_is_made_before_all_sessions_have_been_visited() {
    let mut members = [Member::orphan(mbps(12)), Member::orphan(mbps(10))];
    let mut group = Group::default();
    // In the first round those before the one that shows that this is a group are only counted.
    group.count(Keeps::Group);
    let facts = members[0].facts();
    group.visit(at(0), 0, facts, [None, None]);
    group.share_out(at(0));
    assert!(group.machine.is_none());
    round(&mut group, at(1), &mut members);
    assert_eq!(group.machine.as_ref().unwrap().bound(), mbps(10));
}

#[test]
fn a_session_without_a_machine_that_leaves_at_once_leaves_no_group_behind() {
    let mut group = Group::default();
    group.count(Keeps::Session);
    group.count(Keeps::Group);
    assert!(group.share_out(at(0)) && group.is_shared());
    for ms in 1..3 {
        group.count(Keeps::Session);
        assert!(group.share_out(at(ms)));
    }
    assert!(!group.is_shared() && group.poll_timeout(at(3)).is_none());
}

#[test]
fn without_a_bound_no_session_has_one() {
    let mut members = [Member::greedy(), Member::greedy()];
    let mut group = begun(&mut members);
    round(&mut group, at(10), &mut members);
    assert!(group.share(0).unwrap().bound.is_unlimited());
}
