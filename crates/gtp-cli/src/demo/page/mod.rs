//! One HTML page that holds everything: figures, numbers, what they mean and how they came about.
//!
//! Nothing is fetched from anywhere, so the page can be kept and sent. The figures are complete
//! without a script; the script adds values under the pointer and a switch between light and
//! dark. The page says what was measured, also when it is not as it should be.

mod chart;
mod curves;
mod figures;

use std::fmt::Write as _;

use super::analysis::{Change, Phase, Report, TOLERANCE};
use super::plan::{NAMES, RTT_MS, SESSIONS};
use super::record::{Arrival, Record};
use super::summary::{Summary, percent};
use chart::escaped;

/// The page.
pub fn render(record: &Record, report: &Report) -> String {
    let summary = Summary::of(record, report);
    let mut html = String::with_capacity(256 << 10);
    html += "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
    html += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
    html += "<title>GTP: five sources, one sink</title>\n<style>\n";
    html += STYLE;
    html += "</style>\n</head>\n<body>\n";
    html += HEADER;
    html += &tiles(&summary);
    if let Some(warning) = record.conditions.warning() {
        let _ = writeln!(html, r#"<p class="warning">{}</p>"#, escaped(&warning));
    }
    html += "<h2>Five sessions come and go</h2>\n";
    html += STEPS_TEXT;
    html += &legend();
    html += &figures::steps(record, report);
    html += "<h2>One file from all five sources at once</h2>\n";
    html += &gather_text(record, &summary);
    html += &figures::gather(record, report);
    html += "<h2>Numbers</h2>\n";
    html += &phase_table(report);
    html += &file_table(record);
    html += "<h2>How this was measured</h2>\n";
    html += &method(record);
    html += "<script>\n";
    html += SCRIPT;
    html += "</script>\n</body>\n</html>\n";
    html
}

fn tiles(summary: &Summary) -> String {
    let mut html = String::from("<section class=\"tiles\">");
    let mut tile = |value: String, class: &str, text: &str| {
        let _ = write!(
            html,
            r#"<div class="tile"><b class="{class}">{value}</b><span>{text}</span></div>"#
        );
    };
    let settled = format!("{} of {}", summary.settled, summary.phases);
    let fine = |good: bool| if good { "good" } else { "" };
    tile(
        settled,
        fine(summary.settled == summary.phases),
        "joins and leaves after which all came within 5 % of their shares",
    );
    let seconds = |s: Option<f64>| s.map_or("–".into(), |s| format!("{s:.2} s"));
    tile(seconds(summary.settling_median), "", "median time until then");
    tile(seconds(summary.settling_longest), "", "longest time until then");
    let jain = summary.jain_worst.map_or("–".into(), |j| format!("{j:.4}"));
    tile(jain, "", "Jain's index of the worst steady second; 1 is perfectly fair");
    tile(percent(summary.loss), "", "of packets lost in the shared queue");
    let verified = format!("{} of {}", summary.verified, SESSIONS + 1);
    let class = if summary.verified == SESSIONS + 1 { "good" } else { "bad" };
    tile(verified, class, "files verified, read again from disk");
    html += "</section>\n";
    html
}

fn legend() -> String {
    let mut html = String::from("<ul class=\"legend\">");
    for (k, (name, rtt)) in NAMES.iter().zip(RTT_MS).enumerate() {
        html += &legend_item(&format!("rate thick s{k}"), &format!("{name}, {rtt} ms away"));
    }
    for (class, text) in [("step", "max-min share of each"), ("sum", "sum of all")] {
        html += &legend_item(class, text);
    }
    html += "</ul>\n";
    html
}

fn legend_item(class: &str, text: &str) -> String {
    let line = format!(r#"<path class="{class}" d="M0 6H26"/>"#);
    format!(r#"<li><svg viewBox="0 0 26 12" aria-hidden="true">{line}</svg>{text}</li>"#)
}

fn gather_text(record: &Record, summary: &Summary) -> String {
    let arrival = &record.gather_arrival;
    let mut html = format!(
        "<p>The same five sources hold the same file of {:.0} MB. One <code>get</code> names all \
         of them; blocks are spread over the sources by their rates. It took <b>{:.1} s</b>: \
         <b>{:.0} Mbit/s</b> of file content from the request to the last verified byte",
        arrival.bytes as f64 / 1e6,
        arrival.seconds,
        arrival.goodput() / 1e6,
    );
    if let Some(rate) = summary.gather_rate {
        let _ = write!(html, "; {:.0} Mbit/s on the wire while all five sent", rate / 1e6);
    }
    html += ".</p>\n";
    html
}

fn phase_table(report: &Report) -> String {
    let mut html = String::from(
        "<div class=\"scroll\"><table><thead><tr><th>Event</th><th>at</th><th>share</th>",
    );
    for (k, name) in NAMES.iter().enumerate() {
        let _ = write!(html, r#"<th><i class="swatch b{k}"></i>{name}</th>"#);
    }
    html += "<th>sum</th><th>of sink</th><th>Jain</th><th>worst second</th><th>settled after</th>\
             <th>held</th><th>queue loss</th></tr></thead><tbody>";
    let zero = report.phases.first().map_or(0.0, |p| p.begin);
    for phase in &report.phases {
        let verb = match phase.change {
            Change::Join => "joins",
            Change::Leave => "leaves",
        };
        let event = format!("{} {verb}", NAMES[phase.whose]);
        html += &phase_row(&event, phase, phase.begin - zero);
    }
    if let Some(phase) = &report.gather {
        html += &phase_row("one file from all", phase, phase.begin - zero);
    }
    html += "</tbody></table></div>\n<p class=\"soft\">Rates in Mbit/s on the wire, means over the \
             steady part of each phase.</p>\n";
    html
}

fn phase_row(event: &str, phase: &Phase, at: f64) -> String {
    let share = phase.wanted.iter().copied().fold(0.0, f64::max);
    let mut html = format!("<tr><td>{event}</td><td>{at:.1} s</td><td>{:.1}</td>", share / 1e6);
    for k in 0..SESSIONS {
        if phase.active[k] {
            let off = (phase.got[k] / phase.wanted[k] - 1.0).abs();
            let class = if off > TOLERANCE { "bad" } else { "" };
            let _ = write!(html, r#"<td class="{class}">{:.1}</td>"#, phase.got[k] / 1e6);
        } else {
            html += "<td class=\"none\">·</td>";
        }
    }
    let settled = phase.settled.map_or("never".into(), |s| format!("{s:.2} s"));
    let class = if phase.settled.is_none() { "bad" } else { "" };
    let _ = write!(
        html,
        "<td>{:.1}</td><td>{:.1} %</td><td>{:.4}</td><td>{:.4}</td>\
         <td class=\"{class}\">{settled}</td>\
         <td>{:.0} %</td><td>{}</td></tr>",
        phase.sum() / 1e6,
        phase.sum() / phase.sum_wanted().max(1.0) * 100.0,
        phase.jain,
        phase.jain_worst,
        phase.held * 100.0,
        percent(phase.loss),
    );
    html
}

fn file_table(record: &Record) -> String {
    let mut html = String::from(
        "<div class=\"scroll\" style=\"margin-top:18px\"><table><thead><tr><th>File</th>\
         <th>bytes</th><th>took</th><th>goodput, Mbit/s</th><th>lost packets</th>\
         <th>sent twice</th><th>verified</th><th>BLAKE3</th></tr></thead><tbody>",
    );
    for (k, arrival) in record.arrivals.iter().enumerate() {
        html += &file_row(&curves::name(k), arrival);
    }
    html += &file_row("from all five", &record.gather_arrival);
    html += "</tbody></table></div>\n";
    html
}

fn file_row(name: &str, arrival: &Arrival) -> String {
    let (class, word) = if arrival.verified { ("good", "yes") } else { ("bad", "NO") };
    let twice = arrival.duplicate_bytes as f64 / (arrival.bytes as f64).max(1.0);
    format!(
        "<tr><td>{}</td><td>{}</td><td>{:.2} s</td><td>{:.1}</td><td>{}</td><td>{}</td>\
         <td class=\"{class}\">{word}</td><td><code>{}…</code></td></tr>",
        escaped(name),
        arrival.bytes,
        arrival.seconds,
        arrival.goodput() / 1e6,
        percent(arrival.loss_ratio),
        percent(twice),
        escaped(arrival.blake3.get(..16).unwrap_or("–")),
    )
}

fn method(record: &Record) -> String {
    let c = &record.conditions;
    let idle = c.idle.map_or("an unknown part".into(), |idle| format!("{:.0} %", idle * 100.0));
    format!(
        "{METHOD}<p>This run: steps of {} s; {} processors, on which the five servers, the sink \
         and the emulator all ran; in the minute before, {:.1} processes on average wanted one, \
         and they were idle for {idle} of the run. \
         The emulator sent half of all packets at most {:.2} ms late and all but one in a hundred \
         at most {:.2} ms late.</p>\n",
        record.step,
        c.processors,
        c.load_before,
        c.late_p50 * 1e3,
        c.late_p99 * 1e3,
    )
}

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

const HEADER: &str = include_str!("header.html");
const STEPS_TEXT: &str = include_str!("steps.html");
const METHOD: &str = include_str!("method.html");

#[cfg(test)]
mod tests;
