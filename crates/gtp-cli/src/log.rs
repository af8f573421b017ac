//! Diagnostics of `gtp` and of `gtpd`, which are no results.
//!
//! They go to standard error, and a reader of it that goes away is no failure of the command. A
//! server puts a queue before it, so that a reader that stands still does not hold it up, and
//! rations warnings, as a client may cause any of them. Each place in the program that warns has a
//! ration of its own, so that many warnings of one kind do not hide another. Errors are always
//! written, and if `GTP_LOG` asks for details, so is everything. A service (`gtp serve`, `gtpd`)
//! writes each line with its time and level, in the form that its operator chose, and escapes what
//! commands a terminal or ends a line.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use clap::ValueEnum;
use gtp::{Span, Time};
use gtp_sys::Clock;
use tracing::Level;
use tracing::callsite::Identifier;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, reload};

use crate::lines::Lines;
use crate::patient::Patient;

/// How a service writes its diagnostics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Time (UTC), level, source, words and fields
    Text,
    /// One JSON object a line
    Json,
    /// Words and fields behind the level as systemd's journal reads it (`<6>`), which adds the time
    Journald,
}

/// The source of a server's own lines. They are written without being asked for, and rationed by
/// whom they are about, not here.
pub const SERVER: &str = "gtp_serve";

/// Diagnostics of a service go to standard error in this form, those that the filter wants;
/// warnings if there is none. Its `own` lines are written unless the filter names their source.
/// Returns what changes both while it runs.
pub fn of_service(
    own: &'static str,
    format: LogFormat,
    wanted: Option<&str>,
) -> impl Fn(LogFormat, Option<&str>) + Send + Sync + use<> {
    *lock(&FORMAT) = Some(format);
    let (filter, filters) = reload::Layer::new(filter(own, wanted));
    let (layer, layers) = reload::Layer::new(layer(format));
    tracing_subscriber::registry().with(filter).with(layer).init();
    move |format, wanted| {
        *lock(&FORMAT) = Some(format);
        // Both live as long as the process.
        let _ = filters.reload(self::filter(own, wanted));
        let _ = layers.reload(self::layer(format));
    }
}

fn filter(own: &str, wanted: Option<&str>) -> Targets {
    let wanted = wanted.unwrap_or("warn");
    let always = if wanted.contains(own) { String::new() } else { format!(",{own}=info") };
    read_filter(&format!("{wanted}{always}")).unwrap_or_else(|_| {
        Targets::new().with_default(LevelFilter::WARN).with_target(own, LevelFilter::INFO)
    })
}

/// Reads a filter: directives between commas. Spaces around them and empty ones count for nothing.
///
/// # Errors
/// What is wrong with a directive.
pub fn read_filter(text: &str) -> Result<Targets, ParseError> {
    let directives = text.split(',').map(str::trim).filter(|directive| !directive.is_empty());
    directives.collect::<Vec<_>>().join(",").parse()
}

/// The same for a filter that is kept as it was written.
///
/// # Errors
/// What is wrong with it.
pub fn kept_filter(text: &str) -> Result<String, String> {
    read_filter(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// Changes form and filter of what a service writes.
pub type Change = Box<dyn Fn(LogFormat, Option<&str>) + Send + Sync>;

fn layer<S>(format: LogFormat) -> Box<dyn Layer<S> + Send + Sync>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
{
    // It would print its errors where it just failed to print, and panic.
    let layer = tracing_subscriber::fmt::layer().with_writer(Diagnostics).with_ansi(false);
    let layer = layer.log_internal_errors(false);
    match format {
        LogFormat::Text => layer.boxed(),
        LogFormat::Json => {
            let layer = layer.json().flatten_event(true);
            layer.with_current_span(false).with_span_list(false).boxed()
        }
        LogFormat::Journald => layer.event_format(Journald::default()).boxed(),
    }
}

/// The time now, UTC, as RFC 3339 writes it.
pub fn now() -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut text));
    text
}

/// Writes an event's level as a priority of syslog, then its words and fields.
struct Journald(Format<Full, ()>);

impl Default for Journald {
    fn default() -> Journald {
        Journald(Format::default().without_time().with_level(false))
    }
}

impl<S, N> FormatEvent<S, N> for Journald
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &tracing::Event<'_>,
    ) -> fmt::Result {
        write!(writer, "<{}>", priority(*event.metadata().level()))?;
        self.0.format_event(context, writer, event)
    }
}

/// The priority of syslog (RFC 5424, 6.2.1) that a level has in the journal.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

/// How this process writes its diagnostics, if it is a service.
static FORMAT: Mutex<Option<LogFormat>> = Mutex::new(None);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A line of this module's own, in the form of the others.
fn own_line(level: Level, text: &str) -> String {
    match *lock(&FORMAT) {
        None => format!("{text}\n"),
        Some(LogFormat::Text) => format!("{} {level:>5} gtp_log: {text}\n", now()),
        Some(LogFormat::Json) => {
            let (time, level) = (now(), level.to_string());
            let line = serde_json::json!({
                "timestamp": time, "level": level, "message": text, "target": "gtp_log",
            });
            format!("{line}\n")
        }
        Some(LogFormat::Journald) => format!("<{}>gtp_log: {text}\n", priority(level)),
    }
}

/// A line as it may be written: one line, which commands no terminal.
fn escaped(line: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(line);
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let shown = match *lock(&FORMAT) {
        None => return line.to_vec(),
        Some(LogFormat::Json) => gtp_text::escape_json(text),
        Some(LogFormat::Text | LogFormat::Journald) => gtp_text::of_message(text),
    };
    format!("{shown}\n").into_bytes()
}

/// From now on lines for standard error wait in a queue, and their writers do not wait.
///
/// # Errors
/// When the system gives no thread.
pub fn never_wait() -> io::Result<()> {
    let missing = |lines| {
        let lines = gtp_text::count(lines, "line");
        own_line(Level::WARN, &format!("not shown here: {lines} not read in time"))
    };
    // A second call finds both set.
    let _ = RATION.set((Clock::start(), Mutex::default()));
    let _ = QUEUE.set(Lines::to(Patient(io::stderr()), missing, |_| {})?);
    Ok(())
}

/// Says what was left out since, and waits until all is written, for a second at most.
pub fn drain() {
    if let Some((_, ration)) = RATION.get() {
        let rest = ration.lock().unwrap_or_else(PoisonError::into_inner).take_rest();
        for (module, more) in rest {
            say_left_out(&module, more);
        }
    }
    if let Some(queue) = QUEUE.get() {
        queue.drain(DRAIN_SPAN);
    }
}

/// Standard error, behind the queue if there is one. Whole lines must be written at once.
pub struct Errors;

impl Write for Errors {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match QUEUE.get() {
            Some(queue) => queue.push(line),
            None => return Patient(io::stderr().lock()).write(line),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

static QUEUE: OnceLock<Lines> = OnceLock::new();

/// Makes writers for diagnostics.
pub struct Diagnostics;

impl<'a> MakeWriter<'a> for Diagnostics {
    type Writer = Diagnostic;

    fn make_writer(&'a self) -> Diagnostic {
        Diagnostic::Wanted
    }

    fn make_writer_for(&'a self, of: &tracing::Metadata<'_>) -> Diagnostic {
        let is_rationed = *of.level() == Level::WARN
            && of.target() != SERVER
            && LevelFilter::current() < LevelFilter::DEBUG;
        let ration = RATION.get().filter(|_| is_rationed);
        let Some((clock, ration)) = ration else { return Diagnostic::Wanted };
        let mut ration = ration.lock().unwrap_or_else(PoisonError::into_inner);
        match ration.take(of.callsite(), of.target(), clock.now()) {
            None => Diagnostic::LeftOut,
            Some(0) => Diagnostic::Wanted,
            Some(more) => {
                say_left_out(of.target(), more);
                Diagnostic::Wanted
            }
        }
    }
}

/// Where one diagnostic goes.
pub enum Diagnostic {
    /// To standard error.
    Wanted,
    /// Nowhere: there were too many.
    LeftOut,
}

impl Write for Diagnostic {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self {
            Diagnostic::Wanted => Errors.write_all(&escaped(line)).map(|()| line.len()),
            Diagnostic::LeftOut => Ok(line.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes how many warnings of one kind were left out.
fn say_left_out(module: &str, more: u64) {
    let line = own_line(Level::WARN, &format!("and {more} more like this from {module}"));
    // If standard error cannot be written, there is no one to tell.
    let _ = Errors.write_all(line.as_bytes());
}

/// Which warnings of a server are written. `K` tells kinds apart.
struct Ration<K> {
    kinds: HashMap<K, Kind>,
}

/// What was written of one kind of warning.
struct Kind {
    module: String,
    /// When the present period began.
    since: Time,
    /// Warnings written in it.
    written: u32,
    /// Warnings left out, and not told.
    left_out: u64,
}

/// Warnings of one kind that are written in a period. All kinds together, and what is said of those
/// left out, stay below two lines a second: there are about twenty.
const WRITTEN_MOST: u32 = 2;
/// The length of a period, which begins with a warning.
const PERIOD: Span = Span::from_secs(30);

impl<K> Default for Ration<K> {
    fn default() -> Ration<K> {
        Ration { kinds: HashMap::new() }
    }
}

impl<K: Eq + Hash> Ration<K> {
    /// Counts a warning. Returns how many of its kind were left out before it, and not told, if it
    /// is to be written.
    fn take(&mut self, kind: K, module: &str, now: Time) -> Option<u64> {
        let new = || Kind { module: module.into(), since: now, written: 0, left_out: 0 };
        let kind = self.kinds.entry(kind).or_insert_with(new);
        if now.since(kind.since) >= PERIOD {
            (kind.since, kind.written) = (now, 0);
        }
        if kind.written == WRITTEN_MOST {
            kind.left_out += 1;
            return None;
        }
        kind.written += 1;
        Some(std::mem::take(&mut kind.left_out))
    }

    /// Returns how many were left out of each kind, and not told, with the module of each.
    fn take_rest(&mut self) -> Vec<(String, u64)> {
        let rest = self.kinds.values_mut();
        let rest = rest.map(|kind| (kind.module.clone(), std::mem::take(&mut kind.left_out)));
        rest.filter(|(_, more)| *more > 0).collect()
    }
}

static RATION: OnceLock<(Clock, Mutex<Ration<Identifier>>)> = OnceLock::new();

/// A live reader takes what waits in much less time; a stopped one must not keep the process.
pub const DRAIN_SPAN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_has_the_priority_that_the_journal_gives_it() {
        let levels = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];
        assert_eq!(levels.map(priority), [3, 4, 6, 7, 7]);
    }

    #[test]
    fn a_filter_may_have_spaces_and_commas_to_spare() {
        for text in ["gtp=debug,warn,", " gtp=debug , warn ", ",,gtp=debug,,warn"] {
            let filter = read_filter(text).unwrap();
            assert!(filter.would_enable("gtp", &Level::DEBUG), "{text}");
            assert_eq!(filter.default_level(), Some(LevelFilter::WARN), "{text}");
            assert!(super::filter(SERVER, Some(text)).would_enable("gtp", &Level::DEBUG), "{text}");
        }
        assert!(read_filter("gtp=loud").is_err());
    }

    #[test]
    fn the_time_is_written_as_rfc_3339_wants_it() {
        let time = now();
        let shape: String =
            time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(shape, "0000-00-00T00:00:00.000000Z");
    }

    #[test]
    fn a_flood_of_one_warning_hides_no_other_and_each_that_was_left_out_is_counted() {
        let (mut ration, start) = (Ration::default(), Time::from_nanos(1));
        let (mut written, mut told) = (0, 0);
        for ms in 0..100_000 {
            let before = ration.take("flood", "net", start + Span::from_millis(ms));
            written += u64::from(before.is_some());
            told += before.unwrap_or(0);
        }
        let now = start + Span::from_secs(100);
        assert_eq!(written, 8, "two in each of four periods");
        assert_eq!(ration.take("another", "store", now), Some(0));
        let more = 100_000 - written - told;
        assert_eq!(ration.take_rest(), [("net".to_owned(), more)]);
        assert_eq!(ration.take_rest(), []);
        assert_eq!(ration.take("flood", "net", now), None);
    }
}
