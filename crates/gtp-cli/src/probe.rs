//! `gtp probe`: what a path does to datagrams at a constant rate.
//!
//! The library probes; here options become a plan, and what came of it becomes lines for people or
//! one object for programs.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap::builder::BoolishValueParser;
use gtp::probe::{FRAME_BYTES, Measured, Probe, SPAN, Way};
use gtp::{Failure, FailureKind, LimitedBy, Rate, Url};
use serde_json::{Value, json};

use crate::args::{HostArgs, PathArgs, TrustArgs};
use crate::limit::Ends;
use crate::output;
use crate::signals::Signals;
use crate::words::{self, count, say_rate};

/// Options of `probe`.
#[derive(Debug, Args)]
pub struct ProbeArgs {
    /// A place at a server that this host may read; its rules hold for the probe
    #[arg(value_hint = clap::ValueHint::Hostname)]
    pub url: Url,
    /// Rate of the datagrams with all their headers
    #[arg(long, value_name = "RATE", default_value = "10Mbit", value_parser = words::rate,
        allow_hyphen_values = true)]
    pub rate: Rate,
    /// The server sends, and this host counts
    #[arg(long)]
    pub down: bool,
    /// Both send, at --rate each
    #[arg(long, conflicts_with = "down")]
    pub both: bool,
    /// How long datagrams count, once the session has reached the rate: 0.1 to 600 seconds
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    pub seconds: Duration,
    /// Bytes that each datagram carries beside its headers: 32 to 1,175
    #[arg(long, value_name = "BYTES", default_value_t = *FRAME_BYTES.end(),
        value_parser = clap::value_parser!(u16)
            .range(*FRAME_BYTES.start() as i64..=*FRAME_BYTES.end() as i64))]
    pub frame: u16,
    #[command(flatten)]
    pub path: PathArgs,
    #[command(flatten)]
    pub trust: TrustArgs,
    #[command(flatten)]
    pub host: HostArgs,
    /// One JSON object on standard output
    #[arg(long, env = "GTP_JSON", value_parser = BoolishValueParser::new())]
    pub json: bool,
}

/// Reads how long datagrams count.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
    seconds.filter(|span| SPAN.contains(span)).ok_or_else(|| "it is from 0.1 to 600".into())
}

pub fn run(args: ProbeArgs) -> Result<ExitCode, Failure> {
    let measured = crate::verbs::runtime()?.block_on(async {
        let mut signals = Signals::take().map_err(crate::verbs::other)?;
        tokio::select! {
            measured = probe(&args) => measured,
            () = signals.next() => Err(Failure::new(FailureKind::Interrupted, "interrupted")),
        }
    })?;
    match args.json {
        true => output::json(to_json(&args, &measured))?,
        false => say(&args, &measured)?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn probe(args: &ProbeArgs) -> Result<Measured, Failure> {
    let host = crate::verbs::start_client(crate::verbs::host(&args.host))?;
    let mut probe = Probe::new(args.url.clone())
        .frame(args.frame)
        .span(args.seconds)
        .path(args.path.path_use());
    if !args.down {
        probe = probe.up(args.rate);
    }
    if args.down || args.both {
        probe = probe.down(args.rate);
    }
    for &fingerprint in &args.trust.fingerprint {
        probe = probe.fingerprint(fingerprint);
    }
    if args.trust.accept_new {
        probe = probe.accept_new();
    }
    probe.start(&host).await
}

/// Tells people what came of it.
fn say(args: &ProbeArgs, measured: &Measured) -> Result<(), Failure> {
    let up = ("to the server", Ends::PUT, &measured.up);
    let down = ("from the server", Ends::GET, &measured.down);
    for (name, ends, way) in [up, down] {
        let Some(way) = way else { continue };
        lines(name, ends, args.rate, way).iter().try_for_each(output::line)?;
    }
    output::line(format_args!("round trip: {}", millis(measured.rtt_s)))
}

fn lines(name: &str, ends: Ends, asked: Rate, way: &Way) -> Vec<String> {
    let Way { sent, seen, datagram, limited_by } = way;
    let lost = sent.frames.saturating_sub(seen.frames);
    let of_ns = |ns: u64| millis(ns as f64 / 1e9);
    let mut lines = vec![
        format!(
            "{name}: {} of {datagram} bytes, {} sent, {} received",
            count(sent.frames, "datagram"),
            say_rate(way.sent_rate()),
            say_rate(way.seen_rate()),
        ),
        format!(
            "  lost: {lost} ({:.3} %); overtaken: {}",
            seen.loss_ratio(sent.frames) * 100.0,
            seen.overtaken
        ),
        format!(
            "  delay above the least: {} (median), {} (95 %), {} (99 %), {} (most); jitter {}",
            of_ns(seen.median_ns),
            of_ns(seen.p95_ns),
            of_ns(seen.p99_ns),
            of_ns(seen.most_ns),
            of_ns(seen.jitter_ns),
        ),
        format!(
            "  least one-way delay: {}, as far as both clocks agree",
            millis(seen.least_ns as f64 / 1e9)
        ),
    ];
    if sent.held > 0 {
        let why = limited_by.map_or_else(
            || "the hosts or the path allow less".to_owned(),
            |limit| match limit {
                LimitedBy::Demand => {
                    "this host was late, or one end was told a lower rate".to_owned()
                }
                limit => format!("limited by {}", ends.limit(limit)),
            },
        );
        let due = say_rate(asked);
        let held = count(sent.held, "datagram");
        lines.push(format!("  not sent, of what {due} makes due: {held}; {why}"));
    }
    lines
}

fn millis(seconds: f64) -> String {
    format!("{:.3} ms", seconds * 1e3)
}

fn to_json(args: &ProbeArgs, measured: &Measured) -> Value {
    let way = |way: &Way| {
        let Way { sent, seen, datagram, limited_by } = way;
        json!({
            "asked_bps": args.rate.as_bps(),
            "sent_bps": way.sent_rate().as_bps(),
            "received_bps": way.seen_rate().as_bps(),
            "datagram_bytes": datagram,
            "span_s": sent.span_ns as f64 / 1e9,
            "sent": sent.frames,
            "held_up": sent.held,
            "limited_by": limited_by.map(LimitedBy::as_str),
            "received": seen.frames,
            "loss_ratio": seen.loss_ratio(sent.frames),
            "overtaken": seen.overtaken,
            "delay_least_s": seen.least_ns as f64 / 1e9,
            "delay_above_median_s": seen.median_ns as f64 / 1e9,
            "delay_above_p95_s": seen.p95_ns as f64 / 1e9,
            "delay_above_p99_s": seen.p99_ns as f64 / 1e9,
            "delay_above_most_s": seen.most_ns as f64 / 1e9,
            "jitter_s": seen.jitter_ns as f64 / 1e9,
        })
    };
    json!({
        "event": "probed",
        "up": measured.up.as_ref().map(way),
        "down": measured.down.as_ref().map(way),
        "rtt_s": measured.rtt_s,
    })
}
