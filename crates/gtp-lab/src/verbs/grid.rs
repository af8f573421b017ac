//! `gtp-lab grid`: many tests on many paths, judged against what is known to fail.
//!
//! Runs go on on all cores, and each is kept in a file as soon as it is done, so that a grid that
//! was interrupted goes on where it was. Verdicts follow from the kept runs alone, in the order of
//! tests and cells, whatever the cores do.

use std::fs;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::pool;
use crate::figures;
use crate::grid::misses::Misses;
use crate::grid::page::{self, Judged, Shown};
use crate::grid::store::{self, Store};
use crate::grid::{self, Cell, Claim, Measure, Seen, Test, Who};
use crate::refusal::Refusal;

/// Arguments of `gtp-lab grid`.
#[derive(Args)]
#[command(after_help = "\
A cell is RATE/RTT/QUEUE: Mbit/s of 20, 100, 500, 1000; ms of 10, 40, 100, 200; a queue of 10p
(packets), 0.25, 1 or 4 (bandwidth-delay products). In --cell each part may be *. Runs are kept in
DIR/path.jsonl; the page is DIR/path.html. docs/SIMULATOR.md says what each test claims.
Exit codes: 0 no claim fails that is not known to, 1 one does, 2 bad usage, 3 no file of misses.")]
pub struct Grid {
    /// Which grid
    #[arg(value_enum)]
    which: Which,
    /// Only tests whose names begin so; may be given several times
    #[arg(long, value_name = "NAME")]
    test: Vec<String>,
    /// Only these cells, such as 100/40/1 or 20/*/*; may be given several times
    #[arg(long, value_name = "CELL")]
    cell: Vec<String>,
    /// Only a fixed small set of cells, as continuous integration does
    #[arg(long, conflicts_with = "cell")]
    small: bool,
    /// Only the Kth of N parts of about the same work
    #[arg(long, value_name = "K/N")]
    part: Option<String>,
    /// Starts of each test; known misses are those of the usual number
    #[arg(long, value_name = "N", default_value_t = STARTS)]
    starts: u64,
    /// Do not play those in GTP's place that no claim needs, and whom only the page would show
    #[arg(long)]
    bare: bool,
    /// Where the page and the runs go
    #[arg(long, value_name = "DIR", default_value = "results")]
    out: PathBuf,
    /// The file of known misses
    #[arg(long, value_name = "FILE", default_value = MISSES)]
    misses: PathBuf,
    /// Write what is missed now into the file of known misses
    #[arg(long)]
    accept: bool,
    /// List tests and cells, and run nothing
    #[arg(long)]
    list: bool,
    /// Runs at a time; all cores where it is not given. Results do not depend on it
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

/// A grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Which {
    /// Paths with one bottleneck
    Path,
}

/// Starts of each test.
const STARTS: u64 = 5;
/// Starts that one command may ask for.
const STARTS_MAX: u64 = 100;
/// The file of known misses, from the root of the repository.
const MISSES: &str = "crates/gtp-lab/grid/path.tsv";
/// To be raised when figures are read off runs in another way: kept runs are of no use then.
const READING: u64 = 1;
/// The small set: a short and a usual queue at the rate that costs least.
const SMALL: [&str; 2] = ["20/40/10p", "20/40/1"];

/// A test on a cell.
#[derive(Clone, Copy)]
struct Station<'a> {
    test: &'a dyn Test,
    cell: Cell,
}

/// One run of a station.
#[derive(Clone, Copy)]
struct Job<'a> {
    station: Station<'a>,
    start: u64,
    who: Who,
}

/// Of what results follow beside their scenarios.
struct Stamps {
    program: u64,
    rivals: u64,
}

/// Runs what is asked for and not yet kept, judges, prints, writes.
///
/// # Errors
/// If a claim fails that is not known to, or something cannot be read or written.
pub fn run(arguments: &Grid) -> Result<(), Refusal> {
    if arguments.starts == 0 || arguments.starts > STARTS_MAX {
        return Err(Refusal::Input(format!("--starts is from 1 to {STARTS_MAX}")));
    }
    let tests = grid::tests();
    let stations = stations(arguments, &tests)?;
    if arguments.list {
        for station in &stations {
            gtp_lab::say!("{} {}", station.test.name(), station.cell);
        }
        return Ok(());
    }
    let mut misses = known(arguments)?;
    super::make(&arguments.out)?;
    let kept = arguments.out.join("path.jsonl");
    let store = Store::open(&kept).map_err(|e| super::unwritten(&kept, &e))?;
    let stamps = Stamps::new()?;
    play(arguments, &stations, &store, &stamps)?;
    let shown = shown(arguments, &tests, &stations, &store, &stamps, &misses);
    let failed = said(&shown);
    let written = page::page("Paths that nobody reserved", &shown);
    let failure = |e| super::unwritten(&arguments.out, &e);
    for path in figures::write(&written, &arguments.out, "path").map_err(failure)? {
        gtp_lab::aside!("wrote {}", path.display());
    }
    if arguments.accept {
        accept(&shown, &mut misses);
        let file = &arguments.misses;
        fs::write(file, misses.written()).map_err(|e| super::unwritten(file, &e))?;
        gtp_lab::aside!("wrote {}", file.display());
        return Ok(());
    }
    match failed {
        0 => Ok(()),
        n => Err(Refusal::Other(format!(
            "claims that fail and are not known to, or fail by more: {n}; see {}, or write what is \
             missed now with --accept",
            arguments.out.join("path.html").display()
        ))),
    }
}

/// What the arguments leave of all tests and cells.
fn stations<'a>(arguments: &Grid, tests: &'a [Box<dyn Test>]) -> Result<Vec<Station<'a>>, Refusal> {
    let cells = cells(arguments)?;
    let chosen = |test: &&dyn Test| {
        let begins = |name: &String| test.name().starts_with(name.as_str());
        arguments.test.is_empty() || arguments.test.iter().any(begins)
    };
    let mut stations = Vec::new();
    for test in tests.iter().map(AsRef::as_ref).filter(chosen) {
        let covered = cells.iter().copied().filter(|&cell| test.covers(cell));
        stations.extend(covered.map(|cell| Station { test, cell }));
    }
    if let Some(part) = &arguments.part {
        let (k, n) = part_of(part)?;
        // Cells follow each other by rate last, so that every part has some of each.
        let mut place = 0;
        stations.retain(|_| {
            place += 1;
            (place - 1) % n == k - 1
        });
    }
    if stations.is_empty() {
        let message = "no test on no cell: see `gtp-lab grid path --list` for what there is";
        return Err(Refusal::Input(message.to_owned()));
    }
    Ok(stations)
}

fn cells(arguments: &Grid) -> Result<Vec<Cell>, Refusal> {
    if arguments.small {
        return Ok(SMALL.iter().filter_map(|name| Cell::read(name)).collect());
    }
    let mut cells = Cell::all();
    for pattern in &arguments.cell {
        if !cells.iter().any(|cell| fits(pattern, *cell)) {
            let message =
                format!("no cell {pattern:?}: it is RATE/RTT/QUEUE, as 100/40/1 or 20/*/*");
            return Err(Refusal::Input(message));
        }
    }
    cells.retain(|cell| {
        arguments.cell.is_empty() || arguments.cell.iter().any(|pattern| fits(pattern, *cell))
    });
    Ok(cells)
}

fn fits(pattern: &str, cell: Cell) -> bool {
    let name = cell.to_string();
    let (words, parts): (Vec<&str>, Vec<&str>) =
        (pattern.split('/').collect(), name.split('/').collect());
    words.len() == parts.len() && words.iter().zip(parts).all(|(w, p)| *w == "*" || *w == p)
}

fn part_of(text: &str) -> Result<(usize, usize), Refusal> {
    let numbers = text.split_once('/').and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
    numbers.filter(|&(k, n)| (1..=n).contains(&k)).ok_or_else(|| {
        Refusal::Input(format!("--part {text}: it is K/N with K from 1 to N, such as 1/4"))
    })
}

fn known(arguments: &Grid) -> Result<Misses, Refusal> {
    let file = &arguments.misses;
    match fs::read_to_string(file) {
        Ok(text) => {
            Misses::read(&text).map_err(|why| Refusal::Input(format!("{}: {why}", file.display())))
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && arguments.accept => {
            Ok(Misses::default())
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(Refusal::Missing(format!(
            "{} is not there: run at the root of the repository, or give --misses FILE",
            file.display()
        ))),
        Err(e) => Err(Refusal::Other(format!("{}: {e}", file.display()))),
    }
}

/// Whom a station needs, and from how many starts.
fn places(station: Station<'_>, arguments: &Grid) -> Vec<(Who, u64)> {
    let all = arguments.starts;
    let cubic = match (station.test.measure(), arguments.bare) {
        (Measure::Cubic, _) => all,
        (Measure::Absolute, true) => 0,
        (Measure::Absolute, false) => 1,
    };
    let shown = if arguments.bare { 0 } else { 1 };
    vec![(Who::Gtp, all), (Who::Cubic, cubic), (Who::Bbr, shown), (Who::Bbr3, shown)]
}

/// Runs what is not kept yet.
fn play(
    arguments: &Grid,
    stations: &[Station<'_>],
    store: &Store,
    stamps: &Stamps,
) -> Result<(), Refusal> {
    let jobs = stations.iter().flat_map(|&station| {
        let places = places(station, arguments).into_iter();
        places
            .flat_map(move |(who, starts)| (0..starts).map(move |n| (who, n)))
            .map(move |(who, start)| Job { station, start, who })
    });
    let mut jobs: Vec<Job<'_>> =
        jobs.filter(|job| store.get(&job.name(), &stamps.of(job)).is_none()).collect();
    // The longest first, so that none is left alone at the end.
    jobs.sort_by_key(|job| std::cmp::Reverse(job.station.cell.mbps));
    let threads = arguments.threads.unwrap_or_else(pool::cores);
    let bar = super::bar(jobs.len() as u64, "runs");
    let done = pool::run(jobs.len(), threads, &bar, |n| jobs[n].run(store, stamps));
    done.into_iter().collect()
}

impl Job<'_> {
    fn name(&self) -> String {
        let Job { station, start, who } = self;
        format!("{} {} {} {start}", station.test.name(), station.cell, who.name())
    }

    fn run(&self, store: &Store, stamps: &Stamps) -> Result<(), Refusal> {
        let Station { test, cell } = self.station;
        let scene = test.scene(cell, self.start, self.who);
        let outcome = grid::run(&scene, self.name(), &mut |_| {})?;
        let seen = Seen::new(&scene, &outcome);
        let figures = test.figures(cell, self.start, &seen);
        let result = store::Result { figures, curves: seen.curves() };
        let kept = store.put(&self.name(), &stamps.of(self), result);
        kept.map_err(|e| Refusal::Other(format!("a result cannot be kept: {e}")))
    }
}

impl Stamps {
    fn new() -> Result<Stamps, Refusal> {
        let program = std::env::current_exe().and_then(fs::read);
        let program = program.map_err(|e| Refusal::Other(format!("this program's file: {e}")))?;
        Ok(Stamps { program: store::hash(&program), rivals: grid::rivals()? })
    }

    fn of(&self, job: &Job<'_>) -> String {
        let Station { test, cell } = job.station;
        let scene = test.scene(cell, job.start, job.who).scenario(job.name());
        let by = match job.who {
            Who::Gtp => self.program,
            Who::Cubic | Who::Bbr | Who::Bbr3 => self.rivals,
        };
        let scene = store::hash(format!("{scene:?}").as_bytes());
        format!("{:016x}", scene ^ by.rotate_left(1) ^ READING)
    }
}

fn shown(
    arguments: &Grid,
    tests: &[Box<dyn Test>],
    stations: &[Station<'_>],
    store: &Store,
    stamps: &Stamps,
    misses: &Misses,
) -> Vec<Shown> {
    let kept = |job: Job<'_>| store.get(&job.name(), &stamps.of(&job));
    let judged = |station: Station<'_>| {
        let runs = |who| -> Vec<grid::Figures> {
            let jobs = (0..arguments.starts).map(|start| Job { station, start, who });
            jobs.filter_map(kept).map(|result| result.figures).collect()
        };
        let cubics = runs(Who::Cubic);
        let claims_of = |who| match runs(who).as_slice() {
            [] => Vec::new(),
            some => station.test.claims(station.cell, some, &cubics),
        };
        let claims = claims_of(Who::Gtp);
        let standing = |claim: &Claim| misses.standing(station.test.name(), station.cell, claim);
        let picture = |who| kept(Job { station, start: 0, who }).map(|kept| (who, kept.curves));
        Judged {
            cell: station.cell,
            claims: claims.into_iter().map(|claim| (claim.clone(), standing(&claim))).collect(),
            beside: page::BESIDE.map(|who| (who, claims_of(who))),
            pictures: Who::ALL.into_iter().filter_map(picture).collect(),
        }
    };
    let show = |test: &dyn Test| {
        let played = stations.iter().filter(|station| station.test.name() == test.name());
        Shown {
            name: test.name().to_owned(),
            about: test.about().to_owned(),
            cells: played.map(|&station| judged(station)).collect(),
        }
    };
    tests.iter().map(|test| show(test.as_ref())).collect()
}

/// Prints what is to be said, and answers how many claims fail that are not known to.
fn said(shown: &[Shown]) -> u64 {
    use crate::grid::misses::Standing;
    let mut failed = 0;
    for test in shown.iter().filter(|test| !test.cells.is_empty()) {
        let holds = test.cells.iter().filter(|judged| judged.claims.iter().all(|(c, _)| c.holds()));
        gtp_lab::say!("{}: {} of {} cells hold", test.name, holds.count(), test.cells.len());
        for judged in &test.cells {
            for (claim, standing) in &judged.claims {
                failed += u64::from(standing.fails());
                match standing {
                    Standing::Holds | Standing::Known => {}
                    Standing::HoldsNow | Standing::Better | Standing::Worse | Standing::New => {
                        let word = page::word(*standing);
                        gtp_lab::say!("  {}: {claim}: {word}", judged.cell);
                    }
                }
            }
        }
    }
    failed
}

fn accept(shown: &[Shown], misses: &mut Misses) {
    for test in shown {
        for judged in &test.cells {
            let claims: Vec<_> = judged.claims.iter().map(|(claim, _)| claim.clone()).collect();
            misses.accept(&test.name, judged.cell, &claims);
        }
    }
}
