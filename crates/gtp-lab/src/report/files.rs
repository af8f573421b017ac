//! A run's numbers as files for other programs: CSV tables and one JSON object.
//!
//! Units stand in the names of columns and are the plain ones: seconds, bit/s, bytes. The same run
//! gives the same bytes.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::course::{Judged, Outcome};
use crate::scenario::model::Scenario;

/// What to write besides page and figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `STEM-rates.csv` and, of packet-level runs, `STEM-links.csv`: one row a session or link and
    /// bin.
    Csv,
    /// `STEM.json`: the summary, without series.
    Json,
}

/// Writes the numbers of a run; answers the paths written.
///
/// # Errors
/// What the system says about the first file that cannot be written.
pub fn write(
    scenario: &Scenario,
    outcome: &Outcome,
    formats: &[Format],
    directory: &Path,
    stem: &str,
) -> io::Result<Vec<PathBuf>> {
    fs::create_dir_all(directory)?;
    let mut written = Vec::new();
    let mut put = |name: String, text: String| -> io::Result<()> {
        let path = directory.join(name);
        fs::write(&path, text)?;
        written.push(path);
        Ok(())
    };
    for format in formats {
        match format {
            Format::Csv => {
                put(format!("{stem}-rates.csv"), rates(scenario, outcome))?;
                if !outcome.links.is_empty() {
                    put(format!("{stem}-links.csv"), links(outcome))?;
                }
            }
            Format::Json => {
                put(format!("{stem}.json"), format!("{:#}\n", summary(scenario, outcome)))?
            }
        }
    }
    Ok(written)
}

fn rates(scenario: &Scenario, outcome: &Outcome) -> String {
    let mut csv = String::from("time_s,session,rate_bps,wanted_bps\n");
    for course in &outcome.sessions {
        let name = quoted(&scenario.sessions[course.number].name);
        let mut level = 0;
        for (t, rate) in outcome.times.iter().zip(&course.rate) {
            while course.wanted.get(level + 1).is_some_and(|(from, _)| from < t) {
                level += 1;
            }
            let wanted = course.wanted.get(level).filter(|(from, w)| from < t && w.is_finite());
            let wanted = wanted.map_or(String::new(), |(_, w)| format!("{w:.0}"));
            let _ = writeln!(csv, "{t:.6},{name},{rate:.0},{wanted}");
        }
    }
    csv
}

fn links(outcome: &Outcome) -> String {
    let mut csv = String::from("time_s,link,queue_s,dropped_packets\n");
    for link in &outcome.links {
        let name = quoted(&link.name);
        for (n, t) in outcome.times.iter().enumerate() {
            let _ = writeln!(csv, "{t:.6},{name},{:.9},{}", link.queue[n], link.drops[n]);
        }
    }
    csv
}

/// A field of a CSV file; names have no quotes or commas, by the rule for names.
fn quoted(name: &str) -> String {
    if name.contains([' ', ';']) { format!("\"{name}\"") } else { name.to_owned() }
}

/// The summary of a run for machines: rates in bit/s, times in seconds, sizes in bytes.
pub fn summary(scenario: &Scenario, outcome: &Outcome) -> Value {
    let name = |k: usize| &scenario.sessions[k].name;
    let phases = outcome.phases.iter().map(|phase| {
        let (settled, after) = match phase.judged {
            Judged::Settled(after) => ("yes", Some(after)),
            Judged::Unsettled => ("no", None),
            Judged::Unjudged => ("unjudged", None),
        };
        let shares = phase
            .shares
            .iter()
            .map(|(k, wanted, got)| json!({ "session": name(*k), "wanted": wanted, "got": got }));
        json!({
            "from": phase.time.0, "to": phase.time.1, "event": phase.event,
            "sessions": phase.sessions, "wanted": phase.sums.0, "got": phase.sums.1,
            "jain": phase.jain, "worst": phase.worst, "settled": settled, "settled_after": after,
            "last_off": phase.last_off.map(name),
            "shares": shares.collect::<Vec<_>>(),
        })
    });
    let sessions = outcome.sessions.iter().map(|course| {
        json!({
            "session": name(course.number), "from": course.life.0, "to": course.life.1,
            "arrived_packets": course.arrived, "lost_packets": course.lost,
            "payload": course.payload, "rtt": course.rtt, "ending": course.ending,
        })
    });
    let links = outcome.links.iter().map(|link| {
        json!({
            "link": link.name, "offered_packets": link.offered,
            "dropped_in_queue": link.dropped.0, "lost": link.dropped.1, "busy": link.busy,
            "wait_max": link.wait_max,
        })
    });
    json!({
        "title": scenario.title, "level": scenario.level.as_str(), "law": scenario.law.as_str(),
        "seed": scenario.seed, "duration": outcome.times.last(),
        "hash": format!("{:016x}", outcome.hash), "events": outcome.events,
        "phases": phases.collect::<Vec<_>>(), "sessions": sessions.collect::<Vec<_>>(),
        "links": links.collect::<Vec<_>>(), "notes": outcome.notes,
    })
}
