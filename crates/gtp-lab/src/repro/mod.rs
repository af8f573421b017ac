//! `gtp-lab repro`: what the papers report, computed again and judged.
//!
//! Each figure, table, example, theorem or number of a paper is an entry: a folder with a file that
//! says what the paper states, how it is computed here and what must be true of the result. The
//! code knows how to compute and to compare; it knows no entry. An entry passes, differs for a
//! reason that is itself checked, differs for a reason that nobody knows, fails, or waits for
//! something that this program lacks.

mod aecp;
mod aecp_packets;
mod case;
mod compute;
mod criterion;
mod data;
mod entry;
mod exact;
mod follow;
mod formula;
mod gtp2004;
mod hops;
mod lambdastream;
mod law;
mod lightpaths;
mod measure;
mod packet;
mod played;
mod plot;
mod rate;
mod real;
mod replay;
mod report;
mod response;
mod rivals;
mod sabul;
mod sabul_packets;
mod summary;
mod table;
mod verdict;

use crate::figures;
use crate::refusal::Refusal;
use crate::series::{Page, Part};
use crate::verbs::{self, pool};
use clap::Args;
use entry::Entry;
use indicatif::ProgressBar;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use verdict::Judged;

/// The papers: folders of entries, in the order of the report of all.
const PAPERS: [&str; 5] = ["thesis", "gtp2004", "aecp", "lambdastream", "sabul"];
/// What stands for all of them.
const ALL: &str = "all";

/// Arguments of `gtp-lab repro`.
#[derive(Args)]
#[command(after_help = "\
Each entry is a folder ENTRIES/PAPER/ID with a file entry.toml. Verdicts: pass, by construction
(it was put in), differs (for a reason that is stated and checked), unexplained (differs, and nobody
knows why), fail, waiting (for something that this program lacks), not applicable (nothing to
check).
Exit codes: 0 no entry failed, 1 some did, 2 bad input, 3 no such entries.")]
pub struct Repro {
    /// Ids of the entries to run; all if none is named
    ids: Vec<String>,
    /// The paper; `all` for all of them in one report, with the table of --summary
    #[arg(long, default_value = "thesis")]
    paper: String,
    /// Folder of the papers' entries
    #[arg(long, default_value = "repro")]
    entries: PathBuf,
    /// Print the entries and what each states; run nothing
    #[arg(long)]
    list: bool,
    /// Entries at a time; all cores where it is not given. Results do not depend on it
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Run no entries but all protocols side by side: which is efficient, fair, low in loss and
    /// independent of the round-trip time
    #[arg(long, conflicts_with_all = ["ids", "list"])]
    summary: bool,
    /// Print a line of JSON for each entry, and one with the number of each status
    #[arg(long, conflicts_with_all = ["list", "summary"])]
    json: bool,
    /// Write the report (HTML page, SVG figures, JSON, CSV) into this folder
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Runs the entries, prints what was found, writes the report.
pub fn run(arguments: &Repro) -> Result<(), Refusal> {
    if arguments.summary {
        return summarise(arguments);
    }
    let chosen = chosen(arguments)?;
    let chapters: Vec<_> = chosen.iter().map(|(paper, of)| (*paper, of.len())).collect();
    let entries: Vec<Entry> = chosen.into_iter().flat_map(|(_, of)| of).collect();
    if arguments.list {
        entries.iter().for_each(|entry| {
            let (kind, cost) = (entry.kind.word(), entry.cost.word());
            gtp_lab::say!("{:<28} {kind:<8} {cost:<6} {}", entry.id, entry.title);
        });
        return Ok(());
    }
    if let Some(folder) = &arguments.out {
        verbs::make(folder)?;
    }
    let threads = arguments.threads.unwrap_or_else(pool::cores);
    let line = if arguments.json { data::line } else { report::line };
    let judged = judge_all(entries, threads, |one| gtp_lab::say!("{}", line(one)));
    let totals = if arguments.json { data::totals_line } else { report::totals };
    gtp_lab::say!("{}", totals(&judged));
    if let Some(folder) = &arguments.out {
        let page = compose(&judged, &chapters, arguments.ids.is_empty())?;
        write(&judged, &page, &arguments.paper, folder)?;
        if !arguments.json {
            let page = folder.join(format!("{}.html", arguments.paper));
            gtp_lab::say!("report: {}", page.display());
        }
    }
    match judged.iter().filter(|one| one.failed()).count() {
        0 => Ok(()),
        failed => {
            let all = gtp_text::count(judged.len() as u64, "entry");
            Err(Refusal::Other(format!("{failed} of {all} failed")))
        }
    }
}

/// Judges entries on so many threads; says of each when it is done, and returns all in order.
fn judge_all(entries: Vec<Entry>, threads: usize, done: impl Fn(&Judged) + Sync) -> Vec<Judged> {
    let count = entries.len();
    let waiting: Vec<_> = entries.into_iter().map(|entry| Mutex::new(Some(entry))).collect();
    let judge = |number: usize| {
        let entry = waiting[number].lock().unwrap_or_else(PoisonError::into_inner).take();
        let one = verdict::judge(entry.expect("each number is worked on once"));
        done(&one);
        one
    };
    pool::run(count, threads, &ProgressBar::hidden(), judge)
}

/// The table over all protocols.
fn summarise(arguments: &Repro) -> Result<(), Refusal> {
    let page = side_by_side()?;
    let Some(folder) = &arguments.out else { return Ok(()) };
    let written = figures::write(&page, folder, "summary").map_err(|e| {
        Refusal::Other(format!("cannot write the page into {}: {e}", folder.display()))
    })?;
    written.iter().for_each(|path| gtp_lab::say!("page: {}", path.display()));
    Ok(())
}

/// Runs all protocols, prints a line of each, and makes the page.
fn side_by_side() -> Result<Page, Refusal> {
    gtp_lab::say!("{:<18} {:>13} {:>13} {:>13} {:>13}", "", "efficient", "fair", "loss", "RTT");
    summary::run(summary::USUAL, |line| gtp_lab::say!("{line}"))
}

/// The entries that were asked for, of each paper.
fn chosen(arguments: &Repro) -> Result<Vec<(&str, Vec<Entry>)>, Refusal> {
    let root = &arguments.entries;
    let papers = match arguments.paper.as_str() {
        ALL => PAPERS.to_vec(),
        one => vec![one],
    };
    let mut all = Vec::new();
    for paper in papers {
        if !root.join(paper).is_dir() {
            return Err(Refusal::Missing(format!(
                "{} has no folder {paper:?}: run this where the entries are, or name them with \
                 --entries",
                root.display(),
            )));
        }
        all.push((paper, entry::load(root, paper).map_err(Refusal::Input)?));
    }
    let known = |id: &String| all.iter().flat_map(|(_, of)| of).any(|entry| entry.id == *id);
    if let Some(id) = arguments.ids.iter().find(|id| !known(id)) {
        return Err(Refusal::Missing(format!("there is no entry {id:?}; --list prints them")));
    }
    let asked = |entry: &Entry| arguments.ids.is_empty() || arguments.ids.contains(&entry.id);
    all.iter_mut().for_each(|(_, entries)| entries.retain(asked));
    Ok(all)
}

/// What was found as a page: a paper's, or a chapter of each and the table over all protocols.
fn compose(judged: &[Judged], chapters: &[(&str, usize)], whole: bool) -> Result<Page, Refusal> {
    let [(paper, _)] = chapters else {
        let mut rest = judged;
        let split = |&(paper, count): &(_, usize)| {
            let (of, after) = rest.split_at(count);
            rest = after;
            (paper, of)
        };
        let mut page = report::book(&chapters.iter().map(split).collect::<Vec<_>>());
        if whole {
            let table = side_by_side()?;
            page.parts.extend([Part::Heading(table.title), Part::Text(table.lead)]);
            page.parts.extend(table.parts);
        }
        return Ok(page);
    };
    Ok(report::page(judged, paper))
}

fn write(judged: &[Judged], page: &Page, paper: &str, folder: &Path) -> Result<(), Refusal> {
    let failed = |e: std::io::Error| {
        Refusal::Other(format!("cannot write the report into {}: {e}", folder.display()))
    };
    figures::write(page, folder, paper).map_err(failed)?;
    let json = serde_json::to_string_pretty(&data::json(judged, paper))
        .map_err(|e| failed(std::io::Error::other(e)))?;
    let files = [
        (".json", json),
        ("-checks.csv", data::checks_csv(judged)),
        ("-quantities.csv", data::quantities_csv(judged)),
    ];
    for (ending, text) in files {
        std::fs::write(folder.join(format!("{paper}{ending}")), text).map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
