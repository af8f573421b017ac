//! The page's two figures.
//!
//! The first has the rates over the steps that the oracle says, what limits each session, and the
//! shared queue, over one axis of time. The second stacks what comes from five sources at once.
//! A figure is an SVG that is complete without a script, and the numbers for the pointer.

use std::fmt::Write as _;

use super::chart::{Frame, grid_step, number, rect, text};
use super::curves::{Curves, LIMITS};
use crate::demo::analysis::{Phase, Report};
use crate::demo::plan::{NAMES, SESSIONS};
use crate::demo::record::Record;

/// Name of a figure's numbers in the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Sessions that come and go.
    Steps,
    /// One file from all sources.
    Gather,
}

impl Figure {
    fn id(self) -> &'static str {
        match self {
            Figure::Steps => "steps",
            Figure::Gather => "gather",
        }
    }
}

/// Rates, limits and queue of the sessions that come and go.
pub fn steps(record: &Record, report: &Report) -> String {
    let begin = record.asked.iter().map(|a| a.from).fold(f64::INFINITY, f64::min);
    let end = record.asked.iter().map(|a| a.to).fold(begin + 1.0, f64::max);
    let time = (begin, end + 0.3);
    let curves = Curves::new(record, &report.flows, time);
    let main = frame(66.0, 400.0, time, rate_top(&curves));
    let limits = frame(main.bottom() + 62.0, ROW * SESSIONS as f64, time, 1.0);
    let queue = frame(limits.bottom() + 54.0, 92.0, time, queue_top(&curves));
    let mut svg = main.value_axis(100.0, "");
    svg += &text("title", main.x, main.y - 44.0, "Rate of each session at the sink, Mbit/s");
    svg += &main.time_axis(begin, 3.0);
    svg += &events(report, &[main, limits, queue]);
    let phases = report.phases.iter();
    svg += &path("step", &main.steps(phases.clone().flat_map(level)));
    svg += &path("sum", &main.line((0..curves.t.len()).map(|n| (curves.t[n], curves.sum(n)))));
    for k in 0..SESSIONS {
        let points = curves.t.iter().copied().zip(curves.rates[k].iter().copied());
        svg += &path(&format!("rate s{k}"), &main.line(points));
    }
    for k in 0..SESSIONS {
        svg += &path(&format!("rate strand s{k}"), &main.line(curves.strand(k)));
    }
    svg += &starts(report, main);
    svg += &limit_rows(&curves, limits);
    svg += &queue_and_drops(&curves, queue);
    svg += &queue.time_axis(begin, 3.0);
    let bottom = queue.bottom();
    let alt = "Rates of five sessions over time, over the steps of their max-min shares";
    figure(Figure::Steps, &svg, &curves, (main, bottom), begin, alt)
}

/// What came from each source of one file, one upon the other.
pub fn gather(record: &Record, report: &Report) -> String {
    let begin = record.gather.from;
    let time = (begin, record.gather.to.max(begin + 0.5) + 0.1);
    let curves = Curves::new(record, &report.gather_flows, time);
    let main = frame(34.0, 280.0, time, rate_top(&curves));
    let limits = frame(main.bottom() + 62.0, ROW * SESSIONS as f64, time, 1.0);
    let mut svg = main.value_axis(100.0, "Rates of the five sources at the sink, stacked, Mbit/s");
    svg += &main.time_axis(begin, 1.0);
    let mut below = vec![0.0; curves.t.len()];
    for k in 0..SESSIONS {
        let mut points = Vec::new();
        for (n, t) in curves.t.iter().enumerate() {
            let upper = below[n] + curves.rates[k][n].unwrap_or(0.0);
            points.push((*t, below[n], upper));
            below[n] = upper;
        }
        svg += &path(&format!("stack a{k}"), &main.area(&points));
    }
    let share = |phase: &Phase| (phase.begin, phase.end, phase.sum_wanted() / 1e6);
    svg += &path("step", &main.steps(report.gather.iter().map(share)));
    svg += &limit_rows(&curves, limits);
    svg += &limits.time_axis(begin, 1.0);
    let alt = "Rates of five sources of one file over time, stacked";
    figure(Figure::Gather, &svg, &curves, (main, limits.bottom()), begin, alt)
}

fn frame(y: f64, h: f64, time: (f64, f64), top: f64) -> Frame {
    Frame { x: LEFT, y, w: WIDTH - LEFT - RIGHT, h, time, top }
}

/// Wraps a drawing, its crosshair and its numbers up.
fn figure(
    which: Figure,
    drawing: &str,
    curves: &Curves,
    (main, bottom): (Frame, f64),
    zero: f64,
    alt: &str,
) -> String {
    let px = (main.x, main.x + main.w);
    let numbers = curves.for_script(px, main.time, zero);
    // Plain numbers and fixed words: the writer has nothing to refuse, and nothing ends a script.
    let json = serde_json::to_string(&numbers).unwrap_or_default();
    let id = which.id();
    let mut html = format!(r#"<div class="figure" data-series="{id}-series">"#);
    let view = format!("0 0 {WIDTH} {:.0}", bottom + 30.0);
    let _ = write!(html, r#"<svg viewBox="{view}" role="img" aria-label="{alt}" tabindex="0">"#);
    html += drawing;
    let way = format!("MX {:.1}V{bottom:.1}", main.y);
    let _ = write!(html, r#"<path class="cursor" data-way="{way}"/></svg>"#);
    html += r#"<div class="tip"></div></div>"#;
    let _ = write!(html, r#"<script type="application/json" id="{id}-series">{json}</script>"#);
    html
}

/// The oracle's level of a phase; the same for all that are active.
fn level(phase: &Phase) -> Option<(f64, f64, f64)> {
    let share = phase.wanted.iter().copied().fold(0.0, f64::max);
    (share > 0.0).then_some((phase.begin, phase.end, share / 1e6))
}

/// A line through all frames where a session joins or leaves.
fn events(report: &Report, frames: &[Frame; 3]) -> String {
    let mut svg = String::new();
    for flow in report.flows.iter().flatten() {
        for t in [flow.joined, flow.left] {
            let way: String = frames
                .iter()
                .map(|f| format!("M{:.1} {:.1}V{:.1}", f.px(t), f.y, f.bottom()))
                .collect();
            svg += &path("event", &way);
        }
    }
    svg
}

/// A letter above the place where each session comes and goes.
fn starts(report: &Report, main: Frame) -> String {
    let mut svg = String::new();
    for (k, flow) in report.flows.iter().enumerate() {
        let Some(flow) = flow else { continue };
        for (t, sign) in [(flow.joined, "+"), (flow.left, "−")] {
            let (x, y) = (main.px(t), main.y - 14.0);
            svg += &rect(&format!("a{k}"), (x - 13.0, y - 12.0), (26.0, 16.0), 5.0);
            svg += &text("tag", x, y + 0.5, &format!("{sign}{}", NAMES[k]));
        }
    }
    svg
}

/// A row for each session with what limits it.
fn limit_rows(curves: &Curves, frame: Frame) -> String {
    let mut svg =
        text("title", frame.x, frame.y - 10.0, "What limits each session, as the protocol says");
    for (n, word) in LIMITS.iter().enumerate() {
        let (x, y) = (frame.x + frame.w - 86.0 * (LIMITS.len() - n) as f64, frame.y - 10.0);
        svg += &rect(&format!("by-{word}"), (x, y - 10.5), (16.0, 12.0), 2.0);
        svg += &text("tick", x + 22.0, y, word);
    }
    for (k, name) in NAMES.iter().enumerate() {
        let y = frame.y + ROW * k as f64;
        svg += &rect(&format!("a{k}"), (frame.x - 32.0, y + 2.0), (22.0, 16.0), 5.0);
        svg += &text("tag", frame.x - 21.0, y + 14.5, name);
        for (from, to, word) in curves.limits(k) {
            let (x, w) = (frame.px(from), (frame.px(to) - frame.px(from)).max(1.0));
            svg += &rect(&format!("by-{word}"), (x, y + 1.0), (w, ROW - 3.0), 2.0);
            if w > 46.0 {
                svg += &text("word", x + 6.0, y + 14.0, word);
            }
        }
    }
    svg
}

/// The shared queue as an area, and a mark wherever it dropped packets.
fn queue_and_drops(curves: &Curves, frame: Frame) -> String {
    let step = grid_step(frame.top, 3.0);
    let mut svg = frame.value_axis(step, "Queue at the shared access link, ms; marks: drops");
    let queue = curves.t.iter().zip(&curves.queue_ms);
    let area: Vec<(f64, f64, f64)> = queue.map(|(t, ms)| (*t, 0.0, *ms)).collect();
    svg += &path("queue", &frame.area(&area));
    for (t, count) in curves.t.iter().zip(&curves.dropped) {
        if *count > 0 {
            let (x, y) = (frame.px(*t), frame.y + 6.0);
            let mark = format!("M{:.1} {y:.1}h8l-4 9Z", x - 4.0);
            let title = format!("<title>{count} packets</title>");
            let _ = write!(svg, r#"<path class="drop" d="{mark}">{title}</path>"#);
        }
    }
    svg
}

fn path(class: &str, way: &str) -> String {
    format!(r#"<path class="{class}" d="{way}"/>"#)
}

/// The upper end of a rate axis: the access link, or what was seen if that is more.
fn rate_top(curves: &Curves) -> f64 {
    let seen = (0..curves.t.len()).filter_map(|n| curves.sum(n)).fold(0.0, f64::max);
    ((seen / 100.0).ceil() * 100.0).clamp(700.0, 1_500.0)
}

/// The upper end of the queue's axis: a round number above all values.
fn queue_top(curves: &Curves) -> f64 {
    let seen = curves.queue_ms.iter().copied().fold(1.0, f64::max);
    let step = grid_step(seen, 3.0);
    let top = (seen / step).ceil() * step;
    number(top).parse().unwrap_or(top)
}

const WIDTH: f64 = 1_120.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 16.0;
/// Height of a session's row.
const ROW: f64 = 21.0;
