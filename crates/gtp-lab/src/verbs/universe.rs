//! `gtp-lab universe`: random worlds, and the numbers of those that fail.
//!
//! Worlds run on all cores in batches; failures are printed in the order of their numbers, each
//! with the command that shows it again.

use std::path::PathBuf;

use clap::Args;

use super::pool;
use crate::course::Replayed;
use crate::refusal::Refusal;
use crate::universe::Kind;
use crate::{course, figures, report, universe};

/// Arguments of `gtp-lab universe`.
#[derive(Args)]
#[command(after_help = "\
World N of a universe with seed S is the world of seed S + N: a failing one runs again, alone, with
--seed (its number) --worlds 1 --verbose. Exit codes: 0 all well, 1 a world failed.")]
pub struct Universe {
    /// How many worlds
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    worlds: u64,
    /// What worlds are about
    #[arg(long, value_enum, default_value_t)]
    kind: Kind,
    /// The first world's seed
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Describe each world and print its table
    #[arg(long)]
    verbose: bool,
    /// Write the page of each failing world here
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run every world twice and replay its packets by the laws of nature, not one in sixteen only
    #[arg(long)]
    check: bool,
    /// Worlds at a time; all cores where it is not given. Results do not depend on it
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

/// What one world gave.
struct Seen {
    seed: u64,
    failures: Vec<String>,
    packets: u64,
    hash: u64,
    standard: universe::Standard,
    means: universe::Means,
}

/// By what the shares of many worlds were judged, and how much was not.
#[derive(Default)]
struct Shares {
    plain: u64,
    range: u64,
    most: u64,
    silent: u64,
    nobody: u64,
    /// Worlds in which a mean was excused.
    touched: u64,
    means: universe::Means,
}

impl Shares {
    fn count(&mut self, world: &Seen) {
        match world.standard {
            universe::Standard::Nobody => self.nobody += 1,
            universe::Standard::Plain => self.plain += 1,
            universe::Standard::Range => self.range += 1,
            universe::Standard::Most => self.most += 1,
            universe::Standard::Silent => self.silent += 1,
        }
        self.touched += u64::from(world.means.excused > 0);
        self.means.judged += world.means.judged;
        self.means.excused += world.means.excused;
        self.means.sessions.0 += world.means.sessions.0;
        self.means.sessions.1 += world.means.sessions.1;
        self.means.held += world.means.held;
    }
}

impl std::fmt::Display for Shares {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (left, unjudged) = self.means.sessions;
        writeln!(
            f,
            "shares: {} worlds by one value for each session, {} by a range beside limited \
             sessions, {} by none since all feedback was lost, in {} nobody was left",
            self.plain, self.range, self.silent, self.nobody
        )?;
        if self.most + self.means.held > 0 {
            let (most, held) = (self.most, self.means.held);
            writeln!(
                f,
                "routers: {held} sessions have less by their word; in {most} worlds some or all \
                 sessions are judged by what is permitted at most"
            )?;
        }
        write!(
            f,
            "means: {} judged, {} excused since all feedback was lost, in {} worlds; {unjudged} of \
             {left} sessions had no mean judged",
            self.means.judged, self.means.excused, self.touched
        )
    }
}

/// Worlds that one command may run.
const WORLDS_MAX: u64 = 1_000_000_000;
/// Every so manieth world is run twice and verified.
const CHECKED: u64 = 16;
/// Worlds between two reports of failures.
const BATCH: u64 = 4_096;

/// Runs all worlds.
///
/// # Errors
/// If a world fails, or something cannot be written.
pub fn run(arguments: &Universe) -> Result<(), Refusal> {
    let worlds = arguments.worlds;
    if worlds > WORLDS_MAX {
        return Err(Refusal::Input(format!("--worlds is at most {WORLDS_MAX}, not {worlds}")));
    }
    let threads = if arguments.verbose { 1 } else { arguments.threads.unwrap_or_else(pool::cores) };
    let bar = super::bar(worlds, "worlds");
    let (mut failed, mut packets, mut hash) = (Vec::new(), 0u64, 0u64);
    let (mut done, mut shares) = (0, Shares::default());
    while done < worlds {
        let batch = BATCH.min(worlds - done);
        let first = arguments.seed.wrapping_add(done);
        let part = if worlds <= BATCH { bar.clone() } else { indicatif::ProgressBar::hidden() };
        let seen = pool::run(batch as usize, threads, &part, |n| {
            look(first.wrapping_add(n as u64), arguments)
        });
        for world in seen {
            packets += world.packets;
            shares.count(&world);
            hash = hash.rotate_left(1) ^ world.hash;
            for failure in &world.failures {
                gtp_lab::say!("world {}: {failure}", world.seed);
            }
            if !world.failures.is_empty() {
                let (kind, seed) = (arguments.kind.option(), world.seed);
                gtp_lab::say!("  again: gtp-lab universe {kind}--seed {seed} --worlds 1 --verbose");
                failed.push(world.seed);
            }
        }
        done += batch;
        bar.set_position(done);
    }
    bar.finish_and_clear();
    gtp_lab::say!(
        "{} from seed {}, {packets} data packets, hash {hash:016x}: {} failed",
        gtp_text::count(worlds, "world"),
        arguments.seed,
        failed.len()
    );
    gtp_lab::say!("{shares}");
    match failed.first() {
        None => Ok(()),
        Some(first) => Err(Refusal::Other(format!(
            "{} of {} failed, first {first}",
            failed.len(),
            gtp_text::count(worlds, "world"),
        ))),
    }
}

fn look(seed: u64, arguments: &Universe) -> Seen {
    let scenario = arguments.kind.world(seed);
    let universe::Verdict { failures, standard, means, outcome } = universe::verdict(&scenario);
    let mut failures: Vec<String> = failures.into_iter().map(|failure| failure.what).collect();
    if arguments.check || seed.is_multiple_of(CHECKED) {
        match course::divergence(&scenario) {
            Ok(None) => {}
            Ok(Some(place)) => failures.push(format!("two runs part at {place}")),
            Err(refusal) => failures.push(refusal.to_string()),
        }
        match course::verified(&scenario) {
            Ok(Replayed::Lawful(_)) => {}
            Ok(Replayed::TooLong(why)) => failures.push(why),
            Err(refusal) => failures.push(refusal.to_string()),
        }
    }
    let (packets, hash) = outcome.as_ref().map_or((0, 0), |o| (o.packets.0, o.hash));
    if let Some(outcome) = &outcome {
        if arguments.verbose {
            gtp_lab::say!("{scenario:#?}\n");
            gtp_lab::output::text(report::summary(&scenario, outcome));
            for course in &outcome.sessions {
                let name = &scenario.sessions[course.number].name;
                let (grant, path) = (course.bounds.0 / 1e6, course.bounds.1 / 1e6);
                gtp_lab::say!(
                    "{name}: last grant {grant:.3} Mbit/s, bound by the path {path:.3} Mbit/s"
                );
            }
        }
        if let (Some(out), false) = (&arguments.out, failures.is_empty()) {
            let page = report::page(&scenario, outcome, &format!("{scenario:#?}"));
            if let Err(e) = figures::write(&page, out, &format!("world-{seed}")) {
                failures.push(format!("cannot write to {}: {e}", out.display()));
            }
        }
    }
    Seen { seed, failures, packets, hash, standard, means }
}
