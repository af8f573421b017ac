//! Whether what is left of a world has its max-min shares, at every moment of the time judged.
//!
//! Rates are means over half a second of what was sent, at every bin whose half second lies within
//! the last two seconds: a session that swings about its share fails as one that stays off it.
//! Under the grant law what a source says beside its data is in its share (docs/PROTOCOL.md, M61).
//! Packets are counted whole, so a count may be off by one of them besides. Where links lost all
//! feedback for so long that the source had to slow down, it may be below its share until the law
//! can have made up for it, but not above; a world with no mean left is counted as silent.

use gtp_alloc::{Rate, Span, Time};
use gtp_proto::limits::{DEMAND_ALPHA, DEMAND_FLOOR};

use super::permits::{self, Permits};
use super::witness::{Silence, Witness};
use super::{Failure, JUDGED, TOLERANCE, lasting, settling};
use crate::course::{self, Judged, Outcome};
use crate::scenario::model::{LawName, Scenario};

/// By what the shares of a world are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standard {
    /// No session is left, or the world failed before shares were looked at.
    Nobody,
    /// One share for each session.
    Plain,
    /// A range for at least one session, because of what limited sessions may claim.
    Range,
    /// For at least one session by what it may send at most, because of a link that carries less
    /// than is allowed, or of a router that says something else time and again.
    Most,
    /// Links lost all feedback so often that no mean is left to be judged.
    Silent,
}

/// Time over which what was sent is averaged.
pub const WINDOW: Span = Span::from_millis(500);
/// Heads of GTP, UDP and IP.
const HEADERS: f64 = 77.0;
/// Round trips after a silence in which the ramp regains any rate of these worlds: from 64 packets
/// a round trip, fourfold each.
const RAMP_TRIPS: u64 = 3;

/// What a session may send at least and at most.
pub struct Bounds {
    /// In bit/s.
    pub share: (f64, f64),
    /// Bits per second of one packet in a window.
    pub packet: f64,
    /// Its application supplies so much and no more: what is lost is sent besides.
    limited: bool,
}

/// Bits per second of one packet in a window, with a unit of so many bytes.
pub fn packet(unit: u16) -> f64 {
    (f64::from(unit) + HEADERS) * 8.0 / WINDOW.as_secs_f64()
}

impl Bounds {
    /// By the share of session `k` with all demands as they are, and with them as they are claimed.
    pub fn new(scenario: &Scenario, k: usize, (plain, claimed): (f64, f64)) -> Bounds {
        let session = &scenario.sessions[k];
        let demand = session.demand_at(scenario.duration);
        let limited = !demand.is_unlimited();
        let claimed = if limited { claimed.min(demand.as_f64()) } else { claimed };
        let packet = packet(session.unit);
        Bounds { share: (plain.min(claimed), plain.max(claimed)), packet, limited }
    }

    fn is_range(&self) -> bool {
        self.share.1 > self.share.0 * (1.0 + EQUAL)
    }
}

/// How many means there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Means {
    /// Held to a share.
    pub judged: u64,
    /// Excused, from below or altogether.
    pub excused: u64,
    /// Sessions that are left, and those of them with no mean that was held to a share.
    pub sessions: (u64, u64),
    /// Sessions that would have more without routers.
    pub held: u64,
}

/// What is said of a world's shares.
#[derive(Debug)]
pub struct Judgement {
    /// What is wrong with them.
    pub failures: Vec<Failure>,
    /// By what they were judged.
    pub standard: Standard,
    /// How much of them was judged.
    pub means: Means,
}

impl Judgement {
    /// Nothing was looked at, because of these failures or because nothing is left.
    pub fn none(failures: Vec<Failure>) -> Judgement {
        Judgement { failures, standard: Standard::Nobody, means: Means::default() }
    }
}

/// How a mean may be off its share while it is excused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Off {
    Below,
    Either,
}

/// What is wrong with the shares of a world, and by what they were judged.
///
/// A session whose application supplies less than its share claims somewhat more than it uses, so
/// that it can rise; what it claims is kept from others. So beside limited sessions one is right if
/// it has what it should have with all demands as they are, or with all of them as they are
/// claimed, or anything between. Where nobody is limited both are the same.
pub fn judge(scenario: &Scenario, outcome: &Outcome, witnesses: &[Witness]) -> Judgement {
    let active = lasting(scenario);
    if active.is_empty() {
        return Judgement::none(Vec::new());
    }
    let (permits, mut standard) = match permits(scenario, outcome, witnesses, &active) {
        Ok(permits) => permits,
        Err(what) => return Judgement::none(vec![Failure { what }]),
    };
    let excuses = excuses(scenario, &active, witnesses);
    let mut means = Means { held: permits.held as u64, ..Means::default() };
    let mut failures = Vec::new();
    for ((&k, bounds), excuses) in active.iter().zip(&permits.bounds).zip(&excuses) {
        let (mut samples, mut slow) = (Vec::new(), Vec::new());
        let mut count = 0;
        for sample in self::samples(scenario, &witnesses[k], bounds) {
            count += 1;
            match excuse(sample.at, excuses) {
                None => samples.push(sample),
                Some(Off::Below) => slow.push(Sample { least: 0.0, ..sample }),
                Some(Off::Either) => {}
            }
        }
        means.judged += samples.len() as u64;
        means.excused += count - samples.len() as u64;
        means.sessions.0 += 1;
        means.sessions.1 += u64::from(samples.is_empty());
        samples.append(&mut slow);
        if let Some(what) = complaint(&samples) {
            let (low, high) = (bounds.share.0 / 1e6, bounds.share.1 / 1e6);
            let (name, law) = (&scenario.sessions[k].name, scenario.law.as_str());
            failures.push(Failure {
                what: format!(
                    "{name} sends {what} in the end, not {low:.3} to {high:.3} Mbit/s, law {law}"
                ),
            });
        }
    }
    let of_active: Vec<&Witness> = active.iter().map(|&k| &witnesses[k]).collect();
    failures.extend(permits.exceeded(scenario, &of_active, |place, at| {
        excuse(at, &excuses[place]) == Some(Off::Either)
    }));
    if means.judged == 0 {
        standard = Standard::Silent;
    }
    Judgement { failures, standard, means }
}

/// What the active sessions may send, or why that cannot be said.
fn permits(
    scenario: &Scenario,
    outcome: &Outcome,
    witnesses: &[Witness],
    active: &[usize],
) -> Result<(Permits, Standard), String> {
    let claimed = claiming(scenario, witnesses);
    let permits = if scenario.allocators.is_empty() {
        Permits::exact(bounds(scenario, &claimed, outcome, active)?)
    } else {
        permits::permits(scenario, &claimed, active)?
    };
    let standard = match permits.bounds.iter().any(Bounds::is_range) {
        _ if permits.vague > 0 => Standard::Most,
        true => Standard::Range,
        false => Standard::Plain,
    };
    Ok((permits, standard))
}

/// What each active session may send where no router has a say.
fn bounds(
    scenario: &Scenario,
    claimed: &Scenario,
    outcome: &Outcome,
    active: &[usize],
) -> Result<Vec<Bounds>, String> {
    let end = scenario.duration;
    let (from, to) = (end.saturating_sub(JUDGED).as_secs_f64(), end.as_secs_f64());
    let covers = |time: (f64, f64)| time.0 <= from && time.1 >= to;
    match outcome.phases.iter().find(|phase| covers(phase.time)) {
        None => return Err(format!("what should be changes between {from} and {to} s")),
        Some(phase) if phase.judged == Judged::Unjudged => {
            return Err(format!("a fault is still on between {from} and {to} s"));
        }
        Some(_) => {}
    }
    let shares = |scenario: &Scenario| {
        course::shares(scenario, end, active).map_err(|refusal| refusal.to_string())
    };
    let both = shares(scenario)?.into_iter().zip(shares(claimed)?);
    Ok(active.iter().zip(both).map(|(&k, both)| Bounds::new(scenario, k, both)).collect())
}

/// Shares nearer than this part are the same.
const EQUAL: f64 = 1e-6;

/// For each active session the times over which it may be off its share: its own silences and the
/// ramp after them, over which it may be slow and, if its application waits, make good; those of
/// others if the law then gives their rates away, as the grant law does once a lease ends, until it
/// has settled.
fn excuses(
    scenario: &Scenario,
    active: &[usize],
    witnesses: &[Witness],
) -> Vec<Vec<(Silence, Off)>> {
    let end = Time::ZERO + scenario.duration;
    let trips = course::round_trips(scenario).unwrap_or_default();
    let trip = |k: usize| trips.get(k).copied().unwrap_or(Span::ZERO);
    let limited = |k: usize| !scenario.sessions[k].demand_at(scenario.duration).is_unlimited();
    let silences: Vec<(usize, Silence)> = (active.iter())
        .flat_map(|&k| witnesses[k].silences(end).into_iter().map(move |silence| (k, silence)))
        .collect();
    let settled = settling::after(scenario);
    let excuse = |k: usize, (whose, silence): &(usize, Silence)| {
        let ramp = trip(*whose).max(trip(k)) * RAMP_TRIPS;
        let (after, off) = match scenario.law {
            LawName::EndNode => (settled, Off::Either),
            LawName::Grant if *whose == k && !limited(k) => (ramp, Off::Below),
            LawName::Grant if *whose == k || silence.outlasts_lease(trip(*whose)) => {
                (ramp, Off::Either)
            }
            LawName::Grant => return None,
        };
        Some((Silence { from: silence.from, to: silence.to + after }, off))
    };
    active.iter().map(|&k| silences.iter().filter_map(|s| excuse(k, s)).collect()).collect()
}

/// How the mean of the window that ends at `at` may be off, if it may.
fn excuse(at: Time, excuses: &[(Silence, Off)]) -> Option<Off> {
    let mut touching = excuses.iter().filter(|(silence, _)| touches(silence, at));
    let first = touching.next()?.1;
    let both = touching.any(|(_, off)| *off == Off::Either);
    Some(if both { Off::Either } else { first })
}

/// Whether a window that ends at `at` has a part in a silence.
fn touches(silence: &Silence, at: Time) -> bool {
    at > silence.from && at.since(Time::ZERO).saturating_sub(WINDOW) < silence.to.since(Time::ZERO)
}

/// A mean over one window.
struct Sample {
    /// The window's end.
    at: Time,
    rate: f64,
    /// What it may be.
    least: f64,
    most: f64,
}

impl Sample {
    /// How far it is outside, in bit/s; not above zero if it is not.
    fn off(&self) -> f64 {
        (self.least - self.rate).max(self.rate - self.most)
    }
}

/// Ends of all windows within the time judged.
pub fn moments(scenario: &Scenario) -> impl Iterator<Item = Time> {
    moments_from(scenario, scenario.duration.saturating_sub(JUDGED) + WINDOW)
}

/// Ends of all windows that end from `first` on.
pub fn moments_from(scenario: &Scenario, first: Span) -> impl Iterator<Item = Time> {
    let (every, end) = (scenario.output.every, scenario.duration);
    let bins = 1..=end.as_nanos() / every.as_nanos().max(1);
    bins.map(move |n| every * n).filter(move |at| *at >= first).map(|at| Time::ZERO + at)
}

/// Means over all windows within the time judged.
fn samples(scenario: &Scenario, witness: &Witness, bounds: &Bounds) -> Vec<Sample> {
    moments(scenario)
        .map(|at| {
            let repairs = if bounds.limited { witness.lost_within(WINDOW * 2, at) } else { 0 };
            let packet = bounds.packet;
            let data = witness.sent_within(WINDOW, at) as f64 * packet;
            let rate = match scenario.law {
                LawName::Grant => {
                    // At most half of what it may send, so no more than data.
                    let said = witness.said_within(WINDOW, at) as f64 * 8.0 / WINDOW.as_secs_f64();
                    data.max((data + said.min(data)).min(bounds.share.0))
                }
                LawName::EndNode => data,
            };
            let least = bounds.share.0 * (1.0 - TOLERANCE) - packet;
            let most = bounds.share.1 * (1.0 + TOLERANCE) + packet * (1 + repairs) as f64;
            Sample { at, rate, least, most }
        })
        .collect()
}

/// The sample that is farthest outside, if one is, and how many are.
fn complaint(samples: &[Sample]) -> Option<String> {
    let outside = samples.iter().filter(|sample| sample.off() > 0.0).count();
    let worst = samples.iter().max_by(|a, b| a.off().total_cmp(&b.off()))?;
    if outside == 0 {
        return None;
    }
    let (rate, at) = (worst.rate / 1e6, worst.at.as_nanos() as f64 / 1e9);
    Some(format!("{rate:.3} Mbit/s at {at:.2} s ({outside} of {} samples)", samples.len()))
}

/// The scenario with demands as sessions claim them: by the most that they were seen to send,
/// repairs included, over the time that claims are worked out of.
fn claiming(scenario: &Scenario, witnesses: &[Witness]) -> Scenario {
    let mut claiming = scenario.clone();
    let from = Time::ZERO + scenario.duration.saturating_sub(JUDGED + CLAIM_WINDOW * 5);
    for (session, witness) in claiming.sessions.iter_mut().zip(witnesses) {
        let packet = f64::from(session.unit) + HEADERS;
        let most = witness.most_within(CLAIM_WINDOW, from) as f64 * packet * 8.0;
        let seen = Rate::from_f64(most / CLAIM_WINDOW.as_secs_f64());
        for (_, rate) in &mut session.demand {
            let used = (*rate).max(seen);
            *rate = used.scale(1.0 + DEMAND_ALPHA).saturating_add(DEMAND_FLOOR);
        }
    }
    claiming
}

/// What a session claims is worked out of windows so long (docs/PROTOCOL.md, 10.3, Demand).
const CLAIM_WINDOW: Span = Span::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::model::{Event, NodeKind};

    /// What a session with packets at these times is told, its share being 2.9540 Mbit/s: 125
    /// packets of 1,477 bytes in half a second.
    fn said(sent: Vec<Time>) -> Option<String> {
        let scenario = super::super::world(1);
        let packet = (1_400.0 + HEADERS) * 16.0;
        let bounds = Bounds { share: (packet * 125.0, packet * 125.0), packet, limited: false };
        complaint(&samples(&scenario, &Witness::sending(sent), &bounds))
    }

    #[test]
    fn a_mean_in_the_middle_does_not_hide_a_swing() {
        let every = |us: u64| (0..).map(move |n| Time::from_nanos(n * us * 1_000));
        let end = Time::from_nanos(11_000_000_000);
        assert_eq!(said(every(4_000).take_while(|at| *at <= end).collect()), None);
        let swing = |at: &Time| (at.as_nanos() / 1_000_000_000).is_multiple_of(2);
        let swings: Vec<Time> = every(2_000).take_while(|at| *at <= end).filter(swing).collect();
        assert!(said(swings).is_some());
        assert!(said(Vec::new()).is_some_and(|what| what.contains("76 of 76")));
    }

    #[test]
    fn a_window_is_excused_by_a_silence_that_it_has_a_part_in() {
        let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
        let silence = Silence { from: at(1_000), to: at(1_200) };
        assert!(!touches(&silence, at(1_000)) && touches(&silence, at(1_001)));
        assert!(touches(&silence, at(1_699)) && !touches(&silence, at(1_700)));
    }

    /// A world's run as it was, and judged again after `spoil` has changed what a session sent.
    fn spoilt(seed: u64, spoil: impl Fn(&[Time]) -> Vec<Time>) -> Option<(usize, usize)> {
        let scenario = super::super::world(seed);
        let (outcome, witnesses) = course::run_watched(&scenario, |trace| {
            super::super::witness::witnesses(&scenario, trace)
        })
        .expect("it runs");
        let honest = judge(&scenario, &outcome, &witnesses);
        let all = honest.failures.is_empty() && honest.means.sessions.1 == 0;
        if !all || honest.standard != Standard::Plain {
            return None;
        }
        let active = lasting(&scenario);
        let caught = active.iter().filter(|&&k| {
            let mut witnesses = witnesses.clone();
            witnesses[k].sent = spoil(&witnesses[k].sent);
            let failures = judge(&scenario, &outcome, &witnesses).failures;
            let name = format!("{} sends ", scenario.sessions[k].name);
            failures.iter().any(|failure| failure.what.starts_with(&name))
        });
        Some((caught.count(), active.len()))
    }

    #[test]
    fn a_session_that_sends_four_fifths_of_its_share_or_six_fifths_is_caught_in_every_world() {
        let fewer = |sent: &[Time]| {
            sent.iter().zip(0..).filter(|(_, n)| n % 5 != 0).map(|(at, _)| *at).collect()
        };
        let more = |sent: &[Time]| {
            sent.iter()
                .zip(0..)
                .flat_map(|(at, n)| vec![*at; 1 + usize::from(n % 5 == 0)])
                .collect()
        };
        let (mut worlds, mut sessions) = (0, 0);
        for seed in 1..=40 {
            let Some(low) = spoilt(seed, fewer) else { continue };
            let Some(high) = spoilt(seed, more) else { continue };
            assert_eq!((low.0, high.0), (low.1, high.1), "world {seed}");
            worlds += 1;
            sessions += low.1;
        }
        assert!(worlds >= 20 && sessions >= 40, "{worlds} worlds, {sessions} sessions");
    }

    #[test]
    fn hosts_that_give_four_fifths_of_their_capacity_are_caught() {
        let mut caught = 0;
        for seed in 1..=40 {
            let scenario = super::super::world(seed);
            let plain = lasting(&scenario)
                .iter()
                .any(|&k| scenario.sessions[k].demand_at(scenario.duration).is_unlimited());
            if !plain || scenario.law == LawName::EndNode {
                continue;
            }
            let poorer = poorer(&scenario);
            let (outcome, witnesses) = course::run_watched(&poorer, |trace| {
                super::super::witness::witnesses(&poorer, trace)
            })
            .expect("it runs");
            let judgement = judge(&scenario, &outcome, &witnesses);
            if judgement.means.judged > 0 && judgement.means.excused == 0 {
                assert!(!judgement.failures.is_empty(), "world {seed}");
                caught += 1;
            }
        }
        assert!(caught >= 15, "{caught}");
    }

    /// The same with four fifths of each host's capacity.
    fn poorer(scenario: &Scenario) -> Scenario {
        let less = |rate: &mut Rate| *rate = rate.scale(0.8);
        let mut poorer = scenario.clone();
        for node in &mut poorer.nodes {
            if let NodeKind::Host(host) = &mut node.kind {
                less(&mut host.capacity_out);
                less(&mut host.capacity_in);
            }
        }
        for (_, event) in &mut poorer.events {
            if let Event::Capacity { out, in_, .. } = event {
                out.iter_mut().chain(in_).for_each(less);
            }
        }
        poorer
    }

    #[test]
    fn a_source_that_heard_nothing_may_be_slow_but_not_fast() {
        let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
        let silence = |from, to, off| (Silence { from: at(from), to: at(to) }, off);
        let excuses = [silence(1_000, 1_200, Off::Below), silence(2_000, 2_100, Off::Either)];
        assert_eq!(excuse(at(1_100), &excuses), Some(Off::Below));
        assert_eq!(excuse(at(1_800), &excuses), None);
        assert_eq!(excuse(at(2_050), &excuses), Some(Off::Either));
    }
}
