//! Relays in virtual time: drawn worlds of a source and sinks that die, lie, withhold or are slow.
//!
//! The decisions are those of real hosts, the source's board and each sink's stock and others; what
//! is modelled is the network, as a fluid, and the engine that asks sessions for blocks. So these
//! worlds say nothing of congestion control, of packets, of disks or of TLS. Each is a function of
//! its seed, which every failure names.

mod machine;
mod plan;
mod sink;

use std::ops::Range;

use gtp_alloc::{Span, Time};

use machine::World;
use plan::{Nature, Plan};

/// The seeds to try: 240, or 4,000 with `GTP_LONG=1`, or the one that `GTP_WORLD` names.
fn seeds() -> Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    match (number("GTP_WORLD"), number("GTP_LONG")) {
        (Some(seed), _) => seed..seed + 1,
        (None, Some(1)) => 0..4_000,
        (None, _) => 0..240,
    }
}

/// The threads that share the worlds.
const THREADS: u64 = 4;

/// How a world ended.
struct Outcome {
    plan: Plan,
    seconds: f64,
    /// What the source sent to sinks that pass on what they get, and to the others, as parts of the
    /// object.
    sent: [f64; 2],
    /// The time that the slow sink takes to pass what it was sent on to one other sink.
    drain_seconds: f64,
    /// Sinks that were sent two bad blocks by another one and read from it to the end.
    credulous: Vec<usize>,
    /// Honest sinks that have not everything.
    lacking: Vec<usize>,
}

impl Outcome {
    fn of(plan: Plan) -> Outcome {
        let longest = Span::from_secs_f64(plan.best_seconds() * 50.0 + 200.0);
        let mut world = World::new(plan);
        world.run(longest);
        let honest = |place: &usize| world.plan.sinks[*place].nature.is_honest();
        let places = || (0..world.sinks.len()).filter(honest);
        let lacking = places().filter(|&place| world.sinks[place].done_at.is_none()).collect();
        let is_credulous = |place: &usize| {
            let mut bad = world.sinks[*place].bad.values();
            bad.any(|&(bad, is_out)| bad > 2 || bad == 2 && !is_out)
        };
        let ends = places().filter_map(|place| world.sinks[place].done_at);
        let seconds = ends.map(|at| at.since(Time::ZERO).as_secs_f64()).fold(0.0, f64::max);
        let drains =
            world.plan.sinks.iter().zip(&world.sent).map(|(sink, bits)| match sink.nature {
                Nature::Slow => bits / sink.capacity_out,
                Nature::Honest | Nature::Dies { .. } | Nature::Lies { .. } | Nature::Withholds => {
                    0.0
                }
            });
        Outcome {
            seconds,
            sent: [true, false]
                .map(|passes_on| world.times_sent(|n| (n == Nature::Honest) == passes_on)),
            drain_seconds: drains.fold(0.0, f64::max),
            credulous: places().filter(is_credulous).collect(),
            lacking,
            plan: world.plan,
        }
    }

    fn all_of(seeds: Range<u64>, plan: impl Fn(u64) -> Plan + Sync) -> Vec<Outcome> {
        let plan = &plan;
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|n| {
                    let mine = seeds.clone().filter(move |seed| seed % THREADS == n);
                    let run = move |seed| Outcome::of(plan(seed));
                    scope.spawn(move || mine.map(run).collect::<Vec<_>>())
                })
                .collect();
            let ended = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
            ended.flat_map(|outcomes| outcomes.expect("no world fails")).collect()
        })
    }

    /// The longest time that this world may take, in seconds: a seventh more than the best one, a
    /// start in which each sink must show that it passes on, and what each of those costs that do
    /// not.
    fn most_seconds(&self) -> f64 {
        let cost = |nature: Nature| match nature {
            Nature::Honest => 0.0,
            Nature::Slow => SLOW_COST + self.drain_seconds * (self.plan.sinks.len() - 1) as f64,
            Nature::Dies { silently: false, .. } => DEAD_COST,
            Nature::Dies { silently: true, .. } => SILENT_COST,
            Nature::Lies { .. } => LIAR_COST,
            Nature::Withholds => WITHHELD_COST,
        };
        let costs: f64 = self.plan.sinks.iter().map(|sink| cost(sink.nature)).sum();
        self.plan.best_seconds() * (1.0 + 1.0 / 7.0) + START + costs
    }

    /// What was found, and how to find it again.
    fn words(&self) -> String {
        let Outcome { plan, seconds, sent, .. } = self;
        let (best, most) = (plan.best_seconds(), self.most_seconds());
        format!(
            "{seconds:.2} s, {best:.2} s at best and {most:.2} s at most, sent {sent:.3?}: \
             {plan:?}; again: GTP_WORLD={} cargo test -p gtp-net --lib relaying::worlds",
            plan.seed
        )
    }
}

/// Seconds that a world may take beside those of the fluid.
const START: f64 = 3.0;

/// The same for each sink of a kind. A slow one gives each block to all others at once, lowest
/// first, as the engine asks; of one that falls silent the source learns after half a minute.
const SLOW_COST: f64 = 3.0;
const DEAD_COST: f64 = 5.0;
const SILENT_COST: f64 = 40.0;
const LIAR_COST: f64 = 6.0;
const WITHHELD_COST: f64 = 8.0;

/// How often the source sends the object to sinks that pass it on, all together.
const SENT_MOST: f64 = 1.1;

#[test]
fn every_honest_sink_gets_everything_in_a_bounded_time_whatever_others_do() {
    for outcome in Outcome::all_of(seeds(), Plan::drawn) {
        let words = outcome.words();
        assert!(outcome.lacking.is_empty(), "{:?} lack something: {words}", outcome.lacking);
        assert!(outcome.seconds <= outcome.most_seconds(), "{words}");
        assert!(outcome.credulous.is_empty(), "{:?} trust a liar: {words}", outcome.credulous);
        // What went to those that do not pass on is sent once more at most.
        let [passing, others] = outcome.sent;
        assert!(passing <= SENT_MOST + others, "{words}");
    }
}

#[test]
fn sinks_that_send_as_much_as_they_receive_take_hardly_longer_than_a_fluid() {
    let seeds = seeds();
    for outcome in Outcome::all_of(seeds.start..seeds.end.min(seeds.start + 60), Plan::of_equals) {
        let words = outcome.words();
        assert!(outcome.lacking.is_empty() && outcome.sent[0] <= SENT_MOST, "{words}");
        assert!(outcome.seconds <= outcome.plan.best_seconds() * 1.02 + START, "{words}");
    }
}
