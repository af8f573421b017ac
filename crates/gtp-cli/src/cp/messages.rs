//! What the near end says to a far end that sends to another one, and what that reports.
//!
//! Each message is a frame with JSON, bounded by the frame. What the near end says comes from the
//! login's own user. What the far end reports is hostile: numbers that contradict each other are
//! refused, texts are bounded and escaped, and addresses and places are not taken from it, since
//! the near end knows them. docs/PROTOCOL.md, chapter 25, is the definition.

use std::net::SocketAddr;
use std::time::Duration;

use clap::ValueEnum;
use gtp::{
    Event, Failure, FailureKind, Fingerprint, Law, LimitedBy, Outcome, PathUse, Progress, Put,
    Rate, RootKind, SourceShare, Span, Udp, Value, Way,
};
use serde::{Deserialize, Serialize};

use super::hello::{Ability, as_text};
use super::tunnel::CONTENT_MOST;
use crate::args::{self, Control, StepArgs, TransferArgs};
use crate::verbs::transfer::{Options, law, udp};
use crate::words;

/// What the near end says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Say {
    /// Where to send; once.
    Send(Box<Order>),
    /// The transfer is to stop, for the reason of this name.
    Stop(String),
}

/// Where to send, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// The name of the other far end, for people.
    pub host: String,
    /// The key that it shows.
    #[serde(with = "as_text")]
    pub key: Fingerprint,
    /// Where it may be reached, the most likely address first.
    pub addresses: Vec<SocketAddr>,
    /// Its port.
    pub port: u16,
    /// The place beneath its export, without slashes at its ends.
    pub path: String,
    /// Whether what is sent goes beneath the place, whatever it is.
    pub beneath: bool,
    /// What is said if the data go through the near end.
    pub detour: String,
    /// The control law, as it is called on the command line, and its rate in bit/s.
    pub control: String,
    pub rate: Option<u64>,
    /// The steps of the end-node law, alpha and beta, if they are not the usual ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<(Option<f64>, Option<f64>)>,
    /// The weight against other sessions.
    pub weight: f64,
    /// The most that the session may send, in bit/s.
    pub max_rate: Option<u64>,
    /// Time without progress after which it fails.
    pub patience_ms: u64,
    /// Whether data go by UDP, as it is called on the command line.
    pub udp: String,
    /// How the session is to use the path, if not as one flow: its code in PROTOCOL.md.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_use: Option<u8>,
}

/// What the far end reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Report {
    /// The object is known.
    Started { is_dir: bool, files: u64, bytes: u64 },
    /// A failure that is tried to be mended.
    Retry { failure: Failed, after_ms: u64 },
    /// The data go by another way.
    Way { way: String, text: String },
    /// Something will not come.
    Skipped(Failed),
    /// Something cannot be done that data do not need.
    Warning(String),
    /// The newest numbers.
    Progress(Box<Numbers>),
    /// All is in place at the other far end.
    Done(Box<Done>),
    /// The transfer has failed.
    Failed(Failed),
}

/// A failure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failed {
    /// The kind, as in machine output.
    pub kind: String,
    /// The same for people.
    pub text: String,
}

/// How the transfer is doing: as in [`Progress`], whose one source is the other far end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Numbers {
    bytes: u64,
    resumed_bytes: u64,
    rechecked: u64,
    total: u64,
    wire_bytes: u64,
    duplicate_bytes: u64,
    rate: u64,
    granted: u64,
    limited_by: String,
    loss_ratio: f64,
    rtt_us: u64,
    way: String,
    alive: bool,
}

/// What a finished transfer has done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Done {
    numbers: Numbers,
    files_written: u64,
    files_unchanged: u64,
    /// How many entries are missing at the end. An entry that failed in an attempt before the last
    /// one is there.
    left_out: u64,
    /// The BLAKE3 hash of a single file, in hexadecimal.
    blake3: Option<String>,
}

/// What a report means to the code that shows the transfer.
#[derive(Debug)]
pub enum Heard {
    /// Something happened.
    Event(Event),
    /// New numbers.
    Progress(Progress),
    /// The end.
    Ended(Result<Outcome, Failure>),
}

/// A report that no far end makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its report makes no sense")]
pub struct Senseless;

impl Order {
    /// To a far end of this name that shows this key, at these addresses and this port; all of its
    /// export, and on the usual terms.
    pub fn new(host: &str, key: Fingerprint, (addresses, port): (Vec<SocketAddr>, u16)) -> Order {
        Order {
            host: host.to_owned(),
            key,
            addresses,
            port,
            path: String::new(),
            beneath: false,
            detour: String::new(),
            control: named(&Control::Grant),
            rate: None,
            steps: None,
            weight: 1.0,
            max_rate: None,
            patience_ms: 60_000,
            udp: named(&args::Udp::Auto),
            path_use: None,
        }
    }

    /// Takes over the terms that a command line says.
    pub fn with_terms(mut self, terms: &TransferArgs) -> Order {
        self.control = named(&terms.control);
        self.rate = terms.rate.map(|rate| rate.as_bps());
        let StepArgs { alpha, beta } = terms.steps;
        self.steps = Some((alpha, beta)).filter(|_| !terms.steps.is_empty());
        self.weight = terms.weight;
        self.max_rate = terms.max_rate.map(|rate| rate.as_bps());
        self.patience_ms = u64::try_from(terms.retry_for.as_millis()).unwrap_or(u64::MAX);
        self.udp = named(&terms.udp);
        self.path_use = terms.path.path_use().code();
        self
    }

    /// Removes the terms that a far end of this release does not know, which would refuse all of
    /// the order. Returns, for each of them, what holds instead, for people: the session counts as
    /// one flow, or the end-node law has its usual steps.
    pub fn omit_unknown(&mut self, version: &str) -> Vec<&'static str> {
        let mut omitted = Vec::new();
        if !Ability::PathUse.is_of(version) && self.path_use.take().is_some() {
            omitted.push(
                "--path-flows and --no-path-bound; the data count as one TCP flow on the path",
            );
        }
        if !Ability::Steps.is_of(version) && self.steps.take().is_some() {
            omitted.push("--alpha and --beta; the law has its usual steps");
        }
        omitted
    }

    /// Puts the terms into a description.
    ///
    /// # Errors
    /// [`FailureKind::Usage`] if they contradict each other or have no such names.
    pub fn apply(&self, put: Put) -> Result<Put, Failure> {
        let unknown = |_: String| Failure::new(FailureKind::Usage, "the near end asks nonsense");
        let control = Control::from_str(&self.control, false).map_err(unknown)?;
        let udp_used = args::Udp::from_str(&self.udp, false).map_err(unknown)?;
        let (alpha, beta) = self.steps.unwrap_or_default();
        let steps = StepArgs { alpha, beta };
        let law: Law = law(control, self.rate.map(Rate::from_bps), steps)?;
        let udp: Udp = udp(udp_used);
        let put = Options::control(put, law).weight(self.weight.clamp(0.001, 1000.0));
        let put = Options::path(put, PathUse::of_code(self.path_use));
        let put = put.udp(udp).patience(Duration::from_millis(self.patience_ms));
        Ok(match self.max_rate {
            Some(rate) => put.max_rate(Rate::from_bps(rate)),
            None => put,
        })
    }
}

/// A word of the command line.
fn named(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

impl Say {
    /// The order as a message.
    ///
    /// # Errors
    /// [`FailureKind::Destination`] if it does not fit into a frame: the receiver has found a place
    /// whose path is too long.
    pub fn send(order: Order) -> Result<Say, Failure> {
        let say = Say::Send(Box::new(order));
        if say.encode().len() <= CONTENT_MOST {
            return Ok(say);
        }
        let text = "the path of the place is too long to be told to the sending end";
        Err(Failure::new(FailureKind::Destination, text))
    }

    /// The message as bytes of a frame.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads one. Only the login's own user can have written it.
    pub fn decode(bytes: &[u8]) -> Option<Say> {
        serde_json::from_slice(bytes).ok()
    }
}

impl Report {
    /// What happened, as the near end hears of it; nothing if that is of no use to it.
    pub fn of_event(event: Event) -> Option<Report> {
        Some(match event {
            Event::Started { kind, files, bytes, .. } => {
                Report::Started { is_dir: kind == RootKind::Dir, files, bytes }
            }
            Event::Retry { failure, after, .. } => {
                let after_ms = after.as_micros() / 1_000;
                Report::Retry { failure: Failed::of(&failure), after_ms }
            }
            Event::Way { way, text, .. } => {
                Report::Way { way: way.as_str().into(), text: cut(&text) }
            }
            Event::Skipped(failure) => Report::Skipped(Failed::of(&failure)),
            Event::Warning(text) => Report::Warning(cut(&text)),
            // One that sends hears nothing of these.
            Event::Dropped { .. }
            | Event::BadBlock { .. }
            | Event::Renewed { .. }
            | Event::FileDone { .. } => return None,
        })
    }

    /// How the transfer is doing.
    pub fn of_progress(progress: &Progress) -> Report {
        Report::Progress(Box::new(Numbers::of(progress)))
    }

    /// How the transfer has ended.
    pub fn of_end(ended: &Result<Outcome, Failure>) -> Report {
        match ended {
            Ok(outcome) => Report::Done(Box::new(Done {
                numbers: Numbers::of(&outcome.progress),
                files_written: outcome.files_written.min(NUMBER_MOST),
                files_unchanged: outcome.files_unchanged.min(NUMBER_MOST),
                left_out: left_out(&outcome.skipped),
                blake3: outcome.blake3.as_ref().map(words::hex),
            })),
            Err(failure) => Report::Failed(Failed::of(failure)),
        }
    }

    /// The report as bytes of a frame.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads a report about a transfer to `url`, and checks it; `elapsed` is the time since its
    /// beginning.
    ///
    /// # Errors
    /// [`Senseless`].
    pub fn heard(bytes: &[u8], url: &str, elapsed: Span) -> Result<Heard, Senseless> {
        let report = serde_json::from_slice(bytes).map_err(|_| Senseless)?;
        let url = url.to_owned();
        Ok(match report {
            Report::Started { is_dir, files, bytes } => {
                let kind = if is_dir { RootKind::Dir } else { RootKind::File };
                let (files, bytes) = (number(files)?, number(bytes)?);
                Heard::Event(Event::Started { destination: url, kind, files, bytes })
            }
            Report::Retry { failure, after_ms } => {
                let after = Span::from_millis(number(after_ms)?.min(PAUSE_MOST_MS));
                Heard::Event(Event::Retry { url, failure: failure.failure(), after })
            }
            Report::Way { way, text } => {
                Heard::Event(Event::Way { url, way: way_of(&way)?, text: shown(&text) })
            }
            Report::Skipped(failure) => Heard::Event(Event::Skipped(failure.failure())),
            Report::Warning(text) => Heard::Event(Event::Warning(shown(&text))),
            Report::Progress(numbers) => Heard::Progress(numbers.progress(url, elapsed)?),
            Report::Done(done) => Heard::Ended(Ok(done.outcome(url, elapsed)?)),
            Report::Failed(failed) => Heard::Ended(Err(failed.failure())),
        })
    }
}

impl Failed {
    fn of(failure: &Failure) -> Failed {
        Failed { kind: failure.kind.as_str().into(), text: cut(&failure.text) }
    }

    fn failure(&self) -> Failure {
        Failure::new(kind_of(&self.kind), shown(&self.text))
    }
}

impl Numbers {
    fn of(progress: &Progress) -> Numbers {
        let source = progress.sources.first();
        let of = |what: fn(&SourceShare) -> u64| source.map_or(0, what);
        // The object may have shrunk between two attempts, and the receiver says how much it has.
        let bytes = progress.bytes.min(progress.total);
        Numbers {
            bytes,
            resumed_bytes: progress.resumed_bytes.min(bytes),
            rechecked: progress.rechecked,
            total: progress.total,
            wire_bytes: of(|source| source.wire_bytes),
            duplicate_bytes: of(|source| source.duplicate_bytes),
            rate: of(|source| source.rate.as_bps()),
            granted: of(|source| source.granted.as_bps()),
            limited_by: source.map_or(LimitedBy::Path, |s| s.limited_by).as_str().into(),
            loss_ratio: source.map_or(0.0, |source| source.loss_ratio),
            rtt_us: of(|source| source.rtt.as_micros()),
            way: source.map_or(Way::Udp, |source| source.way).as_str().into(),
            alive: source.is_some_and(|source| source.alive),
        }
    }

    fn progress(&self, url: String, elapsed: Span) -> Result<Progress, Senseless> {
        let fits = self.bytes <= self.total && self.resumed_bytes <= self.bytes;
        if !fits || !(0.0..=1.0).contains(&self.loss_ratio) {
            return Err(Senseless);
        }
        let share = SourceShare {
            url,
            bytes: number(self.bytes)?,
            wire_bytes: number(self.wire_bytes)?,
            duplicate_bytes: number(self.duplicate_bytes)?,
            rate: Rate::from_bps(self.rate),
            granted: Rate::from_bps(self.granted),
            limited_by: limit_of(&self.limited_by)?,
            path: None,
            loss_ratio: self.loss_ratio,
            rtt: Span::from_micros(self.rtt_us.min(RTT_MOST_US)),
            way: way_of(&self.way)?,
            alive: self.alive,
        };
        Ok(Progress {
            elapsed,
            bytes: self.bytes,
            resumed_bytes: self.resumed_bytes,
            rechecked: number(self.rechecked)?,
            total: number(self.total)?,
            // Far ends do not say how many files are whole.
            files_done: 0,
            files: 0,
            sources: vec![share],
        })
    }
}

impl Done {
    fn outcome(&self, url: String, elapsed: Span) -> Result<Outcome, Senseless> {
        let progress = self.numbers.progress(url, elapsed)?;
        Ok(Outcome {
            bytes: progress.total,
            resumed_bytes: progress.resumed_bytes,
            elapsed,
            files_written: number(self.files_written)?,
            files_unchanged: number(self.files_unchanged)?,
            blake3: self.blake3.as_deref().map(hash_of).transpose()?,
            progress,
            skipped: missing(number(self.left_out)?),
        })
    }
}

/// How many of these are missing at the destination; the others are only worth a word.
fn left_out(skipped: &[Failure]) -> u64 {
    skipped.iter().filter(|failure| failure.kind == FailureKind::Partial).count() as u64
}

/// What is missing, in one failure; each entry was reported by name before.
fn missing(left_out: u64) -> Vec<Failure> {
    let text = format!("{left_out} left out");
    (left_out > 0).then(|| Failure::new(FailureKind::Partial, text)).into_iter().collect()
}

/// A number that can be added to others without an overflow.
fn number(said: u64) -> Result<u64, Senseless> {
    if said <= NUMBER_MOST { Ok(said) } else { Err(Senseless) }
}

/// A text as it may be shown.
fn shown(text: &str) -> String {
    gtp_text::of_message(&cut(text))
}

/// The beginning of a text, which fits into a frame however it is written.
fn cut(text: &str) -> String {
    text.chars().take(TEXT_MOST).collect()
}

/// The kind of failure of this name; one that is unknown is another one.
pub fn kind_of(name: &str) -> FailureKind {
    FailureKind::ALL.into_iter().find(|kind| kind.as_str() == name).unwrap_or(FailureKind::Other)
}

fn way_of(name: &str) -> Result<Way, Senseless> {
    [Way::Udp, Way::Control].into_iter().find(|way| way.as_str() == name).ok_or(Senseless)
}

fn limit_of(name: &str) -> Result<LimitedBy, Senseless> {
    crate::limit::read(name).ok_or(Senseless)
}

fn hash_of(hex: &str) -> Result<Value, Senseless> {
    words::hash(hex).map_err(|_| Senseless)
}

/// Characters of a text: at six bytes each, as JSON may write them, two fit into a frame.
const TEXT_MOST: usize = 1_024;

/// More bytes than any object has, and less than what overflows.
const NUMBER_MOST: u64 = 1 << 60;

/// The longest pause and round trip that are shown: an hour, and a minute.
const PAUSE_MOST_MS: u64 = 3_600_000;
const RTT_MOST_US: u64 = 60_000_000;

#[cfg(test)]
mod tests {
    use gtp::Identity;
    use proptest::prelude::*;

    use super::super::hello::with_abilities;
    use super::*;

    const URL: &str = "gtp://b:1/x";

    fn heard(bytes: &[u8]) -> Result<Heard, Senseless> {
        Report::heard(bytes, URL, Span::from_secs(2))
    }

    fn numbers() -> Numbers {
        let mut numbers = Numbers::of(&Progress::default());
        (numbers.bytes, numbers.total, numbers.wire_bytes) = (7, 9, 11);
        numbers
    }

    fn done(numbers: Numbers) -> Done {
        Done { numbers, files_written: 1, files_unchanged: 0, left_out: 0, blake3: None }
    }

    #[test]
    fn what_is_reported_is_heard_with_the_near_ends_own_address() {
        let started = Report::Started { is_dir: true, files: 2, bytes: 9 };
        let Ok(Heard::Event(Event::Started { destination, files: 2, bytes: 9, .. })) =
            heard(&started.encode())
        else {
            panic!("not started");
        };
        assert_eq!(destination, URL);
        let progress = Report::Progress(Box::new(numbers()));
        let Ok(Heard::Progress(progress)) = heard(&progress.encode()) else {
            panic!("no progress")
        };
        assert_eq!((progress.bytes, progress.total, &*progress.sources[0].url), (7, 9, URL));
        let failed = Failure::new(FailureKind::NoUdpPath, "no\u{1b}[2J".to_owned());
        let Ok(Heard::Ended(Err(failure))) = heard(&Report::of_end(&Err(failed)).encode()) else {
            panic!("no failure");
        };
        assert_eq!(failure.kind, FailureKind::NoUdpPath);
        assert_eq!(failure.text, "no\\u{1b}[2J");
    }

    #[test]
    fn a_far_end_is_told_only_the_terms_that_it_knows() {
        let order = || Order {
            path_use: Some(4),
            steps: Some((Some(0.3), None)),
            ..Order::new("b", Identity::generate().fingerprint(), (Vec::new(), 1))
        };
        let with = |abilities: &[Ability]| with_abilities("0.1.0", abilities);
        for (version, path_use, steps) in [
            (with(&[Ability::PathUse, Ability::Steps]), true, true),
            (with(&[Ability::PathUse]), true, false),
            (with(&[Ability::Bare]), false, false),
            ("0.1.0".into(), false, false),
        ] {
            let mut order = order();
            let omitted = order.omit_unknown(&version).len();
            assert_eq!(omitted, usize::from(!path_use) + usize::from(!steps), "{version}");
            // It refuses a field that it does not know.
            let said = String::from_utf8(Say::send(order).unwrap().encode()).unwrap();
            assert_eq!(said.contains("path_use"), path_use, "{version}: {said}");
            assert_eq!(said.contains("steps"), steps, "{version}: {said}");
        }
        let mut plain = Order { path_use: None, steps: None, ..order() };
        assert!(plain.omit_unknown("0.1.0").is_empty());
    }

    #[test]
    fn steps_come_back_with_their_order_and_only_for_the_end_node_law() {
        let key = Identity::generate().fingerprint();
        let steps = Some((Some(0.3), None));
        let order = Order { steps, ..Order::new("b", key, (Vec::new(), 1)) };
        let put = || Put::new(["x"], URL.parse().unwrap());
        assert!(order.apply(put()).is_err(), "grant has no steps");
        let order = Order { control: "endnode".into(), ..order };
        assert!(order.apply(put()).is_ok());
        let said = Say::Send(Box::new(order));
        assert_eq!(Say::decode(&said.encode()), Some(said));
    }

    #[test]
    fn numbers_that_contradict_each_other_are_refused() {
        let bad = |change: &dyn Fn(&mut Numbers)| {
            let mut said = numbers();
            change(&mut said);
            assert!(heard(&Report::Progress(Box::new(said.clone())).encode()).is_err());
            assert!(heard(&Report::Done(Box::new(done(said))).encode()).is_err());
        };
        bad(&|said| said.bytes = 10);
        bad(&|said| said.resumed_bytes = 8);
        bad(&|said| said.total = u64::MAX);
        bad(&|said| said.wire_bytes = u64::MAX);
        bad(&|said| said.loss_ratio = 1.5);
        bad(&|said| said.way = "pigeon".into());
        bad(&|said| said.limited_by = "x".into());
        for bytes in [&b""[..], b"{}", b"{\"done\":{}}", b"{\"warning\":\"x\",\"y\":1}"] {
            assert!(heard(bytes).is_err());
        }
    }

    #[test]
    fn an_object_that_shrank_and_a_receiver_that_counts_too_much_leave_reports_that_make_sense() {
        let progress = Progress { bytes: 9, resumed_bytes: 8, total: 7, ..Progress::default() };
        let Ok(Heard::Progress(said)) = heard(&Report::of_progress(&progress).encode()) else {
            panic!("no progress");
        };
        assert_eq!((said.bytes, said.resumed_bytes, said.total), (7, 7, 7));
        let Ok(outcome) = done(numbers()).outcome(URL.into(), Span::ZERO) else { panic!() };
        let much = u64::MAX;
        let outcome = Outcome { progress, files_written: much, files_unchanged: much, ..outcome };
        assert!(matches!(heard(&Report::of_end(&Ok(outcome)).encode()), Ok(Heard::Ended(Ok(_)))));
    }

    #[test]
    fn what_is_missing_at_the_end_is_counted_in_the_last_report() {
        let failed = |kind| Failure::new(kind, "x");
        for (kind, missing) in [(FailureKind::Partial, 1), (FailureKind::Other, 0)] {
            let Ok(outcome) = done(numbers()).outcome(URL.into(), Span::ZERO) else { panic!() };
            let outcome = Outcome { skipped: vec![failed(kind)], ..outcome };
            let Ok(Heard::Ended(Ok(end))) = heard(&Report::of_end(&Ok(outcome)).encode()) else {
                panic!("no end");
            };
            assert_eq!(end.skipped.len(), missing);
        }
    }

    #[test]
    fn an_order_with_a_path_that_no_frame_holds_is_refused() {
        let key = Identity::generate().fingerprint();
        let order = Order::new("b", key, (vec!["10.0.0.1:7".parse().unwrap()], 7));
        // JSON writes each of these in six bytes.
        let path = |length: usize| "\u{1}".repeat(length);
        assert!(Say::send(Order { path: path(2_000), ..order.clone() }).is_ok());
        let refused = Say::send(Order { path: path(4_096), ..order }).unwrap_err();
        assert_eq!(refused.kind, FailureKind::Destination);
    }

    #[test]
    fn an_order_fits_into_a_frame_and_comes_back_with_its_terms() {
        let key = Identity::generate().fingerprint();
        let order = Order::new("b", key, (vec!["10.0.0.1:7".parse().unwrap()], 7));
        let order = Order { control: "rbudp".into(), rate: Some(1_000_000), ..order };
        let put = || Put::new(["x"], URL.parse().unwrap());
        assert!(order.apply(put()).is_ok());
        let said = Say::Send(Box::new(order.clone()));
        assert_eq!(Say::decode(&said.encode()), Some(said));
        assert!(Order { control: "none".into(), ..order.clone() }.apply(put()).is_err());
        assert!(Order { rate: None, ..order }.apply(put()).is_err());
        assert_eq!(Say::decode(b"{\"stop\":1}"), None);
    }

    proptest! {
        #[test]
        fn whatever_comes_is_refused_or_shown_plainly_and_what_leaves_fits_a_frame(text: String) {
            let report = Report::Warning(cut(&text)).encode();
            prop_assert!(report.len() <= CONTENT_MOST);
            let Ok(Heard::Event(Event::Warning(shown))) = heard(&report) else {
                return Err(TestCaseError::fail("no warning"));
            };
            prop_assert!(shown.chars().all(gtp_text::is_plain), "{shown:?}");
            prop_assert!(heard(text.as_bytes()).is_err());
        }
    }
}
