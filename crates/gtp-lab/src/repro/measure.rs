//! What is read off a run: times, means, deviations, distances, loads.
//!
//! A trajectory is what both engines leave behind: for each session its rate in steps, and for
//! each span between changes of membership or demand the exact max-min rates. Every measure is
//! a function of a trajectory to a list of numbers, so a criterion need not know what was run. What
//! was not there to be read is an error, never a number that some criterion might like.

use gtp_alloc::fairness::leximin_cmp;
use serde::Deserialize;
use std::cmp::Ordering;

/// A rate in bit/s from each of these moments, in seconds, until the next.
pub type Steps = Vec<(f64, f64)>;

/// One run as it is judged.
#[derive(Clone, Debug, Default)]
pub struct Trajectory {
    /// Which run of its scenario.
    pub label: String,
    /// Where it ends, in seconds.
    pub end: f64,
    /// The rate of each session.
    pub rates: Vec<Steps>,
    /// The exact max-min rates from each of these moments on; zero for a session that is not there.
    pub goals: Vec<(f64, Vec<f64>)>,
    /// The largest load of any sink as a part of its capacity, by moment.
    pub load: Steps,
    /// The least that waits before the sink that is worst off in each bin, by the bin's end, in
    /// seconds of its link; packets only.
    pub standing: Steps,
    /// Each session's bound by the path, infinite while there is none; packets only.
    pub bounds: Vec<Steps>,
    /// How often each session's timer for lost packets had rung, of rivals that have one; packets
    /// only.
    pub timeouts: Vec<Steps>,
    /// By these moments, how many packets of all sessions had arrived and how many had been lost;
    /// scenario files only.
    pub counts: Vec<(f64, f64, f64)>,
    /// What is shared out of a capacity that follows what is measured, as a part of it.
    pub shared: Steps,
    /// When each session had delivered all it was given; infinite if it had not.
    pub done: Vec<f64>,
    /// Lost packets as a part of those sent.
    pub lost: f64,
    /// The same of each session; packets only.
    pub losses: Vec<f64>,
    /// The longest time between cause and effect, T_max of thesis VI.3, in seconds.
    pub longest: f64,
    /// The largest rate that does not follow from those before it; no number if not looked for.
    pub unexplained: f64,
    /// Each node's capacity, in bit/s.
    pub capacity: f64,
}

/// What is to be read off every run of the entry's scenarios, and its name.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// Name of the quantity: the numbers of all runs one after another.
    pub name: String,
    /// Which scenario's runs; the only one's if left out.
    #[serde(default)]
    pub scenario: String,
    /// What to read.
    pub read: Reading,
    /// Which sessions, from one, of a reading that has one number for each; all if left out.
    #[serde(default)]
    pub sessions: Vec<usize>,
    /// What to make of the numbers of one run.
    #[serde(default)]
    pub fold: Fold,
}

/// What can be read off a run.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Reading {
    /// For each session, when its rate is first at least this part of its max-min rate.
    Reach {
        /// The part.
        part: f64,
    },
    /// From when on every session stays within this part of its max-min rate until the end.
    Settle {
        /// The part.
        band: f64,
    },
    /// When the distance to the max-min rates is first at most this part of that at the start.
    Near {
        /// The part.
        part: f64,
    },
    /// From when on that distance stays at most this part.
    StayNear {
        /// The part.
        part: f64,
    },
    /// The distance at these moments as parts of that at the start.
    Distance {
        /// The moments, in seconds.
        at: Vec<f64>,
    },
    /// Means of the distance over whole seconds, as parts of that at the start.
    DistanceMeans,
    /// Each session's mean rate over a span as a part of its max-min rate.
    Share {
        /// From, in seconds.
        from: f64,
        /// Until, in seconds.
        until: f64,
    },
    /// Each session's mean rate over a span, in Mbit/s.
    Mean {
        /// From, in seconds.
        from: f64,
        /// Until, in seconds.
        until: f64,
    },
    /// What each session's bound by the path leaves of its share over a span, in Mbit/s: the mean
    /// of the lesser.
    Bound {
        /// From, in seconds.
        from: f64,
        /// Until, in seconds.
        until: f64,
        /// The share, in Mbit/s.
        share: f64,
    },
    /// How often each session's timer for lost packets rang in a span.
    Timeouts {
        /// From, in seconds.
        from: f64,
        /// Until, in seconds.
        until: f64,
    },
    /// Of the packets of all sessions in a span, the part that was lost.
    LostIn {
        /// From, in seconds.
        from: f64,
        /// Until, in seconds.
        until: f64,
    },
    /// The least and the mean part that is shared out, in a span, of a capacity that follows what
    /// is measured.
    Shared {
        /// From, in seconds.
        from: f64,
        /// Until, in seconds.
        until: f64,
    },
    /// Each session's largest rate over a span, in Mbit/s.
    Largest {
        /// From, in seconds.
        from: f64,
        /// Until, in seconds.
        until: f64,
    },
    /// The largest deviation of any session from its max-min rate over a span, as a part of it.
    Worst {
        /// From, in seconds.
        from: f64,
        /// Until, in seconds.
        until: f64,
    },
    /// In the last seconds of each phase between changes, each present session's mean rate as a
    /// part of its max-min rate.
    PhaseShare {
        /// How many seconds.
        last: f64,
        /// Of which phases.
        #[serde(default)]
        phases: Phases,
    },
    /// In the last seconds of each phase, for each present session whose mean rate is further below
    /// its max-min rate than this part: the mean of its bound by the path as a part of that rate.
    PhaseHeld {
        /// How many seconds.
        last: f64,
        /// The part.
        band: f64,
        /// Of which phases.
        #[serde(default)]
        phases: Phases,
    },
    /// For the same sessions in the same seconds, the mean rate as a part of the mean bound by the
    /// path: near one if they send what the bound allows, zero without a bound.
    PhaseAtBound {
        /// How many seconds.
        last: f64,
        /// The part.
        band: f64,
        /// Of which phases.
        #[serde(default)]
        phases: Phases,
    },
    /// The least queue before the sink that is worst off in the last seconds of each phase, in ms.
    PhaseQueue {
        /// How many seconds.
        last: f64,
        /// Of which phases.
        #[serde(default)]
        phases: Phases,
    },
    /// In the last seconds of each phase, the largest deviation of any present session.
    PhaseWorst {
        /// How many seconds.
        last: f64,
    },
    /// The largest load of any sink as a part of its capacity.
    Overload,
    /// The longest span in which every session's one-second means are within this part of a rate.
    Together {
        /// The rate, in Mbit/s.
        mbps: f64,
        /// The part.
        band: f64,
        /// How many sessions at least.
        sessions: usize,
    },
    /// The highest sessions' mean rates over a span, in Mbit/s, from the highest down.
    Highest {
        /// How many.
        count: usize,
        /// From, in seconds.
        from: f64,
        /// Until, in seconds.
        until: f64,
    },
    /// The largest deviation at any time of the sessions that begin within a part in 10^9 of their
    /// max-min rates, as a part of the capacity.
    Kept,
    /// How often the leximin minimum of the rates over a window of `longest` is below that of the
    /// window before, while the latter is below the max-min rates.
    WindowFalls,
    /// The largest difference of a rate from what follows from the rates before it, as a part of
    /// the capacity, where the run was replayed.
    Unexplained,
    /// When the last session had delivered all.
    Done,
    /// Lost packets as a part of those sent.
    Lost,
    /// The same of each session.
    Losses,
}

/// Which phases between changes are read.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phases {
    /// All.
    #[default]
    All,
    /// All but the last in which somebody is present.
    ButLast,
    /// Those that begin with more sessions than were there before.
    Joins,
    /// Those that begin with fewer.
    Leaves,
    /// Those that begin with fewer, but the last in which somebody is present.
    LeavesButLast,
}

/// What to make of the numbers of one run.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fold {
    /// Keep them all.
    #[default]
    Each,
    /// Their least.
    Least,
    /// Their largest.
    Most,
    /// Their sum.
    Sum,
}

impl Measure {
    /// The numbers of one run, at least one.
    ///
    /// # Errors
    /// A sentence, if a session is named that the run or the reading does not have, or if there was
    /// nothing to read.
    pub fn of(&self, run: &Trajectory) -> Result<Vec<f64>, String> {
        let mut numbers = read(&self.read, run)?;
        if !self.sessions.is_empty() {
            if !has_one_for_each(&self.read) {
                return Err("this reading has not one number for each session".to_owned());
            }
            let one = |k: &usize| {
                let number = k.checked_sub(1).and_then(|k| numbers.get(k));
                number.copied().ok_or_else(|| format!("there is no session {k}"))
            };
            numbers = self.sessions.iter().map(one).collect::<Result<_, _>>()?;
        }
        if numbers.is_empty() {
            return nothing("has any number");
        }
        // Of two numbers, `min` and `max` would take the one that is a number.
        if numbers.iter().any(|x| x.is_nan()) && !matches!(self.fold, Fold::Each) {
            return Ok(vec![f64::NAN]);
        }
        Ok(match self.fold {
            Fold::Each => numbers,
            Fold::Least => vec![numbers.into_iter().fold(f64::INFINITY, f64::min)],
            Fold::Most => vec![numbers.into_iter().fold(f64::NEG_INFINITY, f64::max)],
            Fold::Sum => vec![numbers.into_iter().sum()],
        })
    }
}

fn nothing<T>(what: &str) -> Result<T, String> {
    Err(format!("nothing in this run {what}"))
}

/// Whether its numbers are the sessions', in their order.
fn has_one_for_each(reading: &Reading) -> bool {
    matches!(
        reading,
        Reading::Reach { .. }
            | Reading::Share { .. }
            | Reading::Losses
            | Reading::Mean { .. }
            | Reading::Bound { .. }
            | Reading::Timeouts { .. }
            | Reading::Largest { .. }
    )
}

/// Whether a span, in seconds, has a length and lies within the run.
fn inside(run: &Trajectory, from: f64, until: f64) -> Result<(), String> {
    // A run of whole intervals may end this much before the seconds that were asked for.
    let end = run.end + 1e-6;
    if from >= 0.0 && from < until && until <= end {
        return Ok(());
    }
    Err(format!("{from} s to {until} s is no span of a run of {} s", run.end))
}

const MEGA: f64 = 1e6;

/// What has to be there for a reading to mean something.
fn readable(reading: &Reading, run: &Trajectory) -> Result<(), String> {
    match reading {
        Reading::Share { from, until }
        | Reading::Mean { from, until }
        | Reading::Bound { from, until, .. }
        | Reading::Timeouts { from, until }
        | Reading::LostIn { from, until }
        | Reading::Shared { from, until }
        | Reading::Largest { from, until }
        | Reading::Highest { from, until, .. }
        | Reading::Worst { from, until } => inside(run, *from, *until)?,
        Reading::PhaseShare { last, .. }
        | Reading::PhaseWorst { last }
        | Reading::PhaseHeld { last, .. }
        | Reading::PhaseAtBound { last, .. }
        | Reading::PhaseQueue { last, .. } => inside(run, 0.0, *last)?,
        Reading::Distance { at } if at.iter().any(|t| !(0.0..=run.end).contains(t)) => {
            return Err(format!("a moment outside a run of {} s", run.end));
        }
        Reading::Near { .. }
        | Reading::StayNear { .. }
        | Reading::Distance { .. }
        | Reading::DistanceMeans
            if distance(run, 0.0) <= 0.0 =>
        {
            return nothing("is away from the max-min rates at the start");
        }
        Reading::Settle { .. } if !somebody(run, run.end) => {
            return nothing("has a max-min rate at the end");
        }
        Reading::Overload if run.load.is_empty() => return nothing("is known of loads"),
        Reading::Losses if run.losses.is_empty() => return nothing("is known of losses"),
        Reading::Done if run.done.is_empty() => return nothing("has a size"),
        Reading::Together { sessions, .. } if !(1..=run.rates.len()).contains(sessions) => {
            return Err(format!("there are not {sessions} sessions"));
        }
        Reading::Reach { .. }
        | Reading::Settle { .. }
        | Reading::Near { .. }
        | Reading::StayNear { .. }
        | Reading::Distance { .. }
        | Reading::DistanceMeans
        | Reading::Overload
        | Reading::Together { .. }
        | Reading::Kept
        | Reading::WindowFalls
        | Reading::Unexplained
        | Reading::Done
        | Reading::Losses
        | Reading::Lost => {}
    }
    Ok(())
}

fn read(reading: &Reading, run: &Trajectory) -> Result<Vec<f64>, String> {
    readable(reading, run)?;
    let all = 0..run.rates.len();
    let mean = |k: usize, from: f64, until: f64| mean(&run.rates[k], from, until);
    Ok(match reading {
        Reading::Reach { part } => all.map(|k| reach(run, k, *part)).collect(),
        Reading::Settle { band } => vec![settle(run, *band)],
        Reading::Near { part } => vec![near(run, *part)],
        Reading::StayNear { part } => vec![stay_near(run, *part)],
        Reading::Distance { at } => {
            let start = distance(run, 0.0);
            at.iter().map(|t| distance(run, *t) / start).collect()
        }
        Reading::DistanceMeans => distance_means(run),
        Reading::Share { from, until } => {
            all.map(|k| mean(k, *from, *until) / goal(run, k, *from)).collect()
        }
        Reading::Mean { from, until } => all.map(|k| mean(k, *from, *until) / MEGA).collect(),
        Reading::Timeouts { from, until } => timeouts(run, *from, *until)?,
        Reading::LostIn { from, until } => vec![lost_in(run, *from, *until)?],
        Reading::Shared { from, until } => shared(run, *from, *until)?,
        Reading::Bound { from, until, share } => bounds(run, *from, *until, share * MEGA)?,
        Reading::Largest { from, until } => {
            all.map(|k| within(&run.rates[k], *from, *until).fold(0.0, f64::max) / MEGA).collect()
        }
        Reading::Worst { from, .. } if !somebody(run, *from) => {
            return nothing("is present in the span");
        }
        Reading::Worst { from, until } => vec![worst(run, *from, *until)],
        Reading::PhaseShare { last, phases } => {
            let tails = tails(run, *last, *phases).into_iter();
            tails.flat_map(|tail| shares(run, tail)).map(|(_, share)| share).collect()
        }
        Reading::PhaseWorst { last } => {
            let tails = tails(run, *last, Phases::All).into_iter();
            tails.map(|(from, until)| worst(run, from, until)).collect()
        }
        Reading::PhaseHeld { .. } | Reading::PhaseAtBound { .. } if run.bounds.is_empty() => {
            return nothing("is known of bounds by the path");
        }
        Reading::PhaseQueue { .. } if run.standing.is_empty() => {
            return nothing("is known of queues");
        }
        Reading::PhaseHeld { last, band, phases } => {
            let tails = tails(run, *last, *phases).into_iter();
            tails.flat_map(|tail| held(run, tail, *band)).collect()
        }
        Reading::PhaseAtBound { last, band, phases } => {
            let tails = tails(run, *last, *phases).into_iter();
            tails.flat_map(|tail| at_bound(run, tail, *band)).collect()
        }
        Reading::PhaseQueue { last, phases } => {
            let tails = tails(run, *last, *phases).into_iter();
            tails.map(|tail| stands(run, tail) * 1e3).collect()
        }
        Reading::Overload => vec![run.load.iter().map(|(_, x)| *x).fold(0.0, f64::max)],
        Reading::Together { mbps, band, sessions } => {
            vec![together(run, mbps * MEGA, *band, *sessions)]
        }
        Reading::Highest { count, from, until } => highest(run, *count, *from, *until)?,
        Reading::Kept => vec![kept(run)?],
        Reading::WindowFalls => vec![window_falls(run)? as f64],
        Reading::Unexplained => vec![run.unexplained],
        Reading::Done => vec![run.done.iter().copied().fold(0.0, f64::max)],
        Reading::Lost => vec![run.lost],
        Reading::Losses => run.losses.clone(),
    })
}

/// The mean of each session's bound by the path, or of its share in bit/s where that is less, in
/// Mbit/s.
fn bounds(run: &Trajectory, from: f64, until: f64, share: f64) -> Result<Vec<f64>, String> {
    if run.bounds.is_empty() {
        return nothing("is known of bounds by the path");
    }
    let left = |steps: &Steps| -> Steps {
        steps.iter().map(|(t, bound)| (*t, bound.min(share))).collect()
    };
    Ok(run.bounds.iter().map(|steps| mean(&left(steps), from, until) / MEGA).collect())
}

/// How often each session's timer rang in a span.
fn timeouts(run: &Trajectory, from: f64, until: f64) -> Result<Vec<f64>, String> {
    if run.timeouts.is_empty() {
        return nothing("is known of timers");
    }
    Ok(run.timeouts.iter().map(|steps| at(steps, until) - at(steps, from)).collect())
}

/// Of the packets in a span, the part that was lost.
fn lost_in(run: &Trajectory, from: f64, until: f64) -> Result<f64, String> {
    let by = |moment: f64| match run.counts.partition_point(|(t, ..)| *t <= moment + 1e-9) {
        0 => (0.0, 0.0),
        n => (run.counts[n - 1].1, run.counts[n - 1].2),
    };
    let ((arrived, lost), before) = (by(until), by(from));
    let (arrived, lost) = (arrived - before.0, lost - before.1);
    if arrived + lost > 0.0 { Ok(lost / (arrived + lost)) } else { nothing("was sent in the span") }
}

/// The least and the mean of what is shared out in a span.
fn shared(run: &Trajectory, from: f64, until: f64) -> Result<Vec<f64>, String> {
    if run.shared.is_empty() {
        return nothing("follows what is measured");
    }
    let least = within(&run.shared, from, until).fold(f64::INFINITY, f64::min);
    Ok(vec![least, mean(&run.shared, from, until)])
}

/// The value at a moment: that of the last step not after it; zero before the first.
pub fn at(steps: &[(f64, f64)], moment: f64) -> f64 {
    match steps.partition_point(|(t, _)| *t <= moment) {
        0 => 0.0,
        n => steps[n - 1].1,
    }
}

/// The mean over a span; no number for an empty one.
pub fn mean(steps: &[(f64, f64)], from: f64, until: f64) -> f64 {
    let mut area = 0.0;
    let first = steps.partition_point(|(t, _)| *t <= from);
    let (mut since, mut value) = (from, at(steps, from));
    for (t, next) in steps[first..].iter().take_while(|(t, _)| *t < until) {
        area += value * (t - since);
        (since, value) = (*t, *next);
    }
    (area + value * (until - since)) / (until - from)
}

/// The least that waited in a span, in seconds.
fn stands(run: &Trajectory, (from, until): (f64, f64)) -> f64 {
    let bins = run.standing.iter().filter(|(end, _)| *end > from && *end <= until);
    bins.map(|(_, least)| *least).fold(f64::INFINITY, f64::min)
}

/// All values that hold at some moment of a span, its end excluded.
fn within(steps: &[(f64, f64)], from: f64, until: f64) -> impl Iterator<Item = f64> + '_ {
    let inside = steps.iter().filter(move |(t, _)| *t > from && *t < until).map(|(_, x)| *x);
    std::iter::once(at(steps, from)).chain(inside)
}

/// The max-min rate of a session at a moment.
fn goal(run: &Trajectory, k: usize, moment: f64) -> f64 {
    let n = run.goals.partition_point(|(t, _)| *t <= moment).max(1);
    run.goals[n - 1].1[k]
}

fn reach(run: &Trajectory, k: usize, part: f64) -> f64 {
    let arrived = |(t, x): &&(f64, f64)| {
        let goal = goal(run, k, *t);
        goal > 0.0 && *x >= part * goal
    };
    run.rates[k].iter().find(arrived).map_or(f64::INFINITY, |(t, _)| *t)
}

/// Every moment at which a rate or a goal changes, once.
pub fn moments(run: &Trajectory) -> Vec<f64> {
    let mut all: Vec<f64> = run.rates.iter().flatten().map(|(t, _)| *t).collect();
    all.extend(run.goals.iter().map(|(t, _)| *t));
    all.retain(|t| *t < run.end);
    all.sort_by(f64::total_cmp);
    all.dedup();
    all
}

/// The rates of all sessions at every moment of change.
struct Walk<'a> {
    run: &'a Trajectory,
    next: Vec<usize>,
    rates: Vec<f64>,
}

impl<'a> Walk<'a> {
    fn new(run: &'a Trajectory) -> Walk<'a> {
        Walk { run, next: vec![0; run.rates.len()], rates: vec![0.0; run.rates.len()] }
    }

    /// The rates at a moment not before the last one asked for.
    fn to(&mut self, moment: f64) -> &[f64] {
        for (k, steps) in self.run.rates.iter().enumerate() {
            while steps.get(self.next[k]).is_some_and(|(t, _)| *t <= moment) {
                self.rates[k] = steps[self.next[k]].1;
                self.next[k] += 1;
            }
        }
        &self.rates
    }
}

/// The distance to the max-min rates in steps, in bit/s.
pub fn distances(run: &Trajectory) -> Steps {
    let mut walk = Walk::new(run);
    let goals = |t: f64| &run.goals[run.goals.partition_point(|(s, _)| *s <= t).max(1) - 1].1;
    let moments = moments(run);
    moments.into_iter().map(|t| (t, gap(walk.to(t), goals(t)))).collect()
}

fn gap(rates: &[f64], goals: &[f64]) -> f64 {
    gtp_alloc::fairness::distance(rates, goals)
}

fn distance(run: &Trajectory, moment: f64) -> f64 {
    let rates: Vec<f64> = run.rates.iter().map(|steps| at(steps, moment)).collect();
    let goals: Vec<f64> = (0..rates.len()).map(|k| goal(run, k, moment)).collect();
    gap(&rates, &goals)
}

fn near(run: &Trajectory, part: f64) -> f64 {
    let steps = distances(run);
    let start = steps.first().map_or(0.0, |(_, d)| *d);
    steps.iter().find(|(_, d)| *d <= part * start).map_or(f64::INFINITY, |(t, _)| *t)
}

fn stay_near(run: &Trajectory, part: f64) -> f64 {
    let steps = distances(run);
    let start = steps.first().map_or(0.0, |(_, d)| *d);
    since_last(&steps, |d| d <= part * start)
}

/// From when on the condition holds until the end; infinite if it does not at the end.
fn since_last(steps: &[(f64, f64)], good: impl Fn(f64) -> bool) -> f64 {
    match steps.iter().rposition(|(_, x)| !good(*x)) {
        None => steps.first().map_or(f64::INFINITY, |(t, _)| *t),
        Some(last) => steps.get(last + 1).map_or(f64::INFINITY, |(t, _)| *t),
    }
}

fn distance_means(run: &Trajectory) -> Vec<f64> {
    let steps = distances(run);
    let start = steps.first().map_or(0.0, |(_, d)| *d);
    (0..run.end as usize).map(|s| mean(&steps, s as f64, s as f64 + 1.0) / start).collect()
}

/// The largest deviation of any present session, as a part of its max-min rate, in steps.
pub fn deviations(run: &Trajectory) -> Steps {
    let mut walk = Walk::new(run);
    let goals = |t: f64| &run.goals[run.goals.partition_point(|(s, _)| *s <= t).max(1) - 1].1;
    let off = |t: f64, rates: &[f64]| {
        let pairs = rates.iter().zip(goals(t)).filter(|(_, goal)| **goal > 0.0);
        pairs.map(|(x, goal)| (x / goal - 1.0).abs()).fold(0.0, f64::max)
    };
    moments(run).into_iter().map(|t| (t, off(t, walk.to(t)))).collect()
}

fn settle(run: &Trajectory, band: f64) -> f64 {
    since_last(&deviations(run), |off| off <= band)
}

fn worst(run: &Trajectory, from: f64, until: f64) -> f64 {
    within(&deviations(run), from, until).fold(0.0, f64::max)
}

/// Whether any session has a max-min rate at a moment.
fn somebody(run: &Trajectory, moment: f64) -> bool {
    (0..run.rates.len()).any(|k| goal(run, k, moment) > 0.0)
}

/// Begin and end of each span without changes of membership or demand.
fn spans(run: &Trajectory) -> impl Iterator<Item = (f64, f64)> + '_ {
    let ends = run.goals.iter().skip(1).map(|(t, _)| *t).chain(std::iter::once(run.end));
    run.goals.iter().map(|(t, _)| *t).zip(ends).filter(|(begin, end)| end > begin)
}

/// The last seconds of each phase in which somebody is present.
fn tails(run: &Trajectory, last: f64, which: Phases) -> Vec<(f64, f64)> {
    let many = |t: f64| (0..run.rates.len()).filter(|k| goal(run, *k, t) > 0.0).count();
    let mut before = 0;
    let mut tails: Vec<((f64, f64), Ordering)> = Vec::new();
    for (begin, end) in spans(run) {
        let now = many(begin);
        if now > 0 {
            tails.push((((end - last).max(begin), end), now.cmp(&before)));
        }
        before = now;
    }
    match which {
        Phases::All | Phases::Joins | Phases::Leaves => {}
        Phases::ButLast | Phases::LeavesButLast => drop(tails.pop()),
    }
    tails.retain(|(_, change)| match which {
        Phases::All | Phases::ButLast => true,
        Phases::Joins => change.is_gt(),
        Phases::Leaves | Phases::LeavesButLast => change.is_lt(),
    });
    tails.into_iter().map(|(tail, _)| tail).collect()
}

/// Each present session and its mean rate over a span as a part of its max-min rate.
fn shares(run: &Trajectory, (from, until): (f64, f64)) -> Vec<(usize, f64)> {
    let present = (0..run.rates.len()).filter(|k| goal(run, *k, from) > 0.0);
    present.map(|k| (k, mean(&run.rates[k], from, until) / goal(run, k, from))).collect()
}

/// The mean bounds by the path of the sessions that are further below their max-min rates than
/// the band, as parts of those.
fn held(run: &Trajectory, tail: (f64, f64), band: f64) -> Vec<f64> {
    let short = shares(run, tail).into_iter().filter(|(_, share)| *share < 1.0 - band);
    short.map(|(k, _)| mean(&run.bounds[k], tail.0, tail.1) / goal(run, k, tail.0)).collect()
}

/// So many of the highest mean rates over a span, in Mbit/s, from the highest down.
fn highest(run: &Trajectory, count: usize, from: f64, until: f64) -> Result<Vec<f64>, String> {
    if count > run.rates.len() {
        return Err(format!("there are not {count} sessions"));
    }
    let mut means: Vec<f64> = run.rates.iter().map(|r| mean(r, from, until) / MEGA).collect();
    means.sort_by(|a, b| b.total_cmp(a));
    means.truncate(count);
    Ok(means)
}

/// The mean rates of the same sessions as parts of their mean bounds.
fn at_bound(run: &Trajectory, tail: (f64, f64), band: f64) -> Vec<f64> {
    let short = shares(run, tail).into_iter().filter(|(_, share)| *share < 1.0 - band);
    let mean = |steps: &Steps| mean(steps, tail.0, tail.1);
    short.map(|(k, _)| mean(&run.rates[k]) / mean(&run.bounds[k])).collect()
}

fn kept(run: &Trajectory) -> Result<f64, String> {
    let goal = |k: usize| goal(run, k, 0.0);
    let settled = |k: &usize| (at(&run.rates[*k], 0.0) / goal(*k) - 1.0).abs() <= 1e-9;
    let off = |k: usize| run.rates[k].iter().map(move |(_, x)| (x - goal(k)).abs() / run.capacity);
    let largest = (0..run.rates.len()).filter(settled).flat_map(off).reduce(f64::max);
    largest.ok_or_else(|| "no session begins at its max-min rate".to_owned())
}

/// Rates within a millionth of the capacity count as equal.
fn window_falls(run: &Trajectory) -> Result<usize, String> {
    let blurred =
        |x: &[f64]| -> Vec<f64> { x.iter().map(|x| (x / run.capacity * 1e6).round()).collect() };
    let is_less = |x: &Vec<f64>, y: &Vec<f64>| leximin_cmp(x, y) == Ordering::Less;
    let goal = blurred(&run.goals[0].1);
    let mut walk = Walk::new(run);
    let mut window = 0;
    let (mut falls, mut compared) = (0, 0);
    let (mut before, mut lowest): (Option<Vec<f64>>, Option<Vec<f64>>) = (None, None);
    for t in moments(run) {
        if (t / run.longest) as usize > window {
            window = (t / run.longest) as usize;
            let pair = before.as_ref().zip(lowest.as_ref()).filter(|(b, _)| is_less(b, &goal));
            compared += usize::from(pair.is_some());
            falls += usize::from(pair.is_some_and(|(b, l)| is_less(l, b)));
            // What held when the window began belongs to it.
            before = lowest.replace(blurred(&walk.rates));
        }
        let now = blurred(walk.to(t));
        if lowest.as_ref().is_none_or(|lowest| is_less(&now, lowest)) {
            lowest = Some(now);
        }
    }
    match compared {
        0 => nothing("is below the max-min rates for two windows"),
        _ => Ok(falls),
    }
}

/// The longest run of whole seconds in which so many sessions had means near a rate at once.
fn together(run: &Trajectory, rate: f64, band: f64, sessions: usize) -> f64 {
    let near = |k: usize, s: usize| {
        (mean(&run.rates[k], s as f64, s as f64 + 1.0) / rate - 1.0).abs() <= band
    };
    let (mut longest, mut current) = (0, 0);
    for s in 0..run.end as usize {
        let many = (0..run.rates.len()).filter(|k| near(*k, s)).count() >= sessions;
        current = if many { current + 1 } else { 0 };
        longest = longest.max(current);
    }
    longest as f64
}

#[cfg(test)]
mod tests;
