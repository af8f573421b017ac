//! What `get`, `put` and `cp` share: the options of a transfer, watching it to its end, and summing
//! up ends.
//!
//! The first signal stops a transfer so that it can be resumed, the second one ends the process.
//! What is shown, and to whom, is not decided here.

use std::process::ExitCode;
use std::time::Duration;

use gtp::{
    Failure, FailureKind, Fingerprint, Get, Host, Law, Outcome, PathUse, Put, Rate, Transfer, Udp,
};

use crate::args::{self, Agreed, Control, StepArgs, TransferArgs};
use crate::show::Shower;
use crate::signals::Signals;

/// The library's name of a control law on which both ends agree.
pub fn agreed(control: Agreed) -> Law {
    match control {
        Agreed::Grant => Law::Grant,
        Agreed::Endnode => StepArgs::default().law(),
    }
}

/// The library's name of the control law that the options ask for, with its rate where it needs
/// one.
pub fn control(args: &TransferArgs) -> Result<Law, Failure> {
    law(args.control, args.rate, args.steps)
}

/// The library's name of a control law, with its rate or its steps where it needs them.
///
/// # Errors
/// [`FailureKind::Usage`] if the rate is missing, or the law takes no rate or no steps.
pub fn law(control: Control, rate: Option<Rate>, steps: StepArgs) -> Result<Law, Failure> {
    let usage = |text: &str| Failure::new(FailureKind::Usage, text);
    if control != Control::Endnode {
        check_no_steps(steps)?;
    }
    let rateless = |law| match rate {
        None => Ok(law),
        Some(_) => Err(usage(
            "--rate is for --control rbudp, sabul and tsunami; --max-rate limits the others",
        )),
    };
    let rate =
        || rate.ok_or_else(|| usage("--control rbudp, sabul and tsunami need a rate: --rate RATE"));
    match control {
        Control::Grant => rateless(agreed(Agreed::Grant)),
        Control::Endnode => rateless(steps.law()),
        Control::Gtp2004 => rateless(Law::Gtp2004),
        Control::Rbudp => Ok(Law::Rbudp(rate()?)),
        Control::Sabul => Ok(Law::Sabul(rate()?)),
        Control::Tsunami => Ok(Law::Tsunami(rate()?)),
    }
}

/// Checks that a law without steps is given none.
///
/// # Errors
/// [`FailureKind::Usage`] if there are some.
pub fn check_no_steps(steps: StepArgs) -> Result<(), Failure> {
    if steps.is_empty() {
        return Ok(());
    }
    Err(Failure::new(FailureKind::Usage, "--alpha and --beta are for --control endnode"))
}

/// The library's name of whether data go by UDP.
pub fn udp(udp: args::Udp) -> Udp {
    match udp {
        args::Udp::Auto => Udp::Auto,
        args::Udp::Only => Udp::Only,
        args::Udp::Off => Udp::Off,
    }
}

/// A [`Get`] or a [`Put`], which take the same options.
pub trait Options: Sized {
    fn control(self, law: Law) -> Self;
    fn weight(self, weight: f64) -> Self;
    fn max_rate(self, rate: Rate) -> Self;
    fn patience(self, patience: Duration) -> Self;
    fn udp(self, udp: Udp) -> Self;
    fn path(self, path: PathUse) -> Self;
    fn fingerprint(self, fingerprint: Fingerprint) -> Self;
    fn accept_new(self) -> Self;

    /// Applies the options that say how data are moved.
    ///
    /// # Errors
    /// [`FailureKind::Usage`] if the options contradict each other.
    fn with_options(self, args: &TransferArgs) -> Result<Self, Failure> {
        let described = self.control(control(args)?).weight(args.weight).patience(args.retry_for);
        let described = described.udp(udp(args.udp)).path(args.path.path_use());
        Ok(match args.max_rate {
            Some(rate) => described.max_rate(rate),
            None => described,
        })
    }

    /// Applies the options that say which keys of a server are trusted.
    fn with_trust(self, args: &TransferArgs) -> Self {
        let all = args.trust.fingerprint.iter().copied();
        let described = all.fold(self, Self::fingerprint);
        if args.trust.accept_new { described.accept_new() } else { described }
    }
}

macro_rules! take_options {
    ($($kind:ty),*) => {$(
        impl Options for $kind {
            fn control(self, law: Law) -> Self {
                <$kind>::control(self, law)
            }
            fn weight(self, weight: f64) -> Self {
                <$kind>::weight(self, weight)
            }
            fn max_rate(self, rate: Rate) -> Self {
                <$kind>::max_rate(self, rate)
            }
            fn patience(self, patience: Duration) -> Self {
                <$kind>::patience(self, patience)
            }
            fn udp(self, udp: Udp) -> Self {
                <$kind>::udp(self, udp)
            }
            fn path(self, path: PathUse) -> Self {
                <$kind>::path(self, path)
            }
            fn fingerprint(self, fingerprint: Fingerprint) -> Self {
                <$kind>::fingerprint(self, fingerprint)
            }
            fn accept_new(self) -> Self {
                <$kind>::accept_new(self)
            }
        }
    )*};
}

take_options!(Get, Put);

/// Shows the one transfer of a command until its end; obeys signals and the time limit.
pub async fn watch(
    host: &Host,
    transfer: Transfer,
    args: &TransferArgs,
    shower: &mut Shower,
) -> Result<Outcome, Failure> {
    let mut signals = Signals::take().map_err(super::other)?;
    watch_with(&mut signals, host, transfer, args, shower).await
}

/// As [`watch`], for one of several parts of a command. The signals are the whole command's: one
/// that came between two parts stops the next one.
pub async fn watch_with(
    signals: &mut Signals,
    host: &Host,
    mut transfer: Transfer,
    args: &TransferArgs,
    shower: &mut Shower,
) -> Result<Outcome, Failure> {
    let stopper = transfer.stopper();
    let mut limit = std::pin::pin!(time_limit(args));
    let (mut over, mut interrupted) = (false, false);
    let mut look = tokio::time::interval(LOOK_SPAN);
    shower.begin();
    loop {
        tokio::select! {
            biased;
            event = transfer.next_event() => match event {
                Some(event) => shower.event(&event),
                None => break,
            },
            () = signals.next() => {
                if interrupted {
                    std::process::exit(i32::from(FailureKind::Interrupted.exit_code()));
                }
                interrupted = true;
                stopper.stop(FailureKind::Interrupted);
            }
            () = &mut limit, if !over => {
                over = true;
                stopper.stop(FailureKind::TimeLimit);
            }
            _ = look.tick() => {
                shower.stands(host.stands());
                shower.progress(&transfer.progress());
            }
        }
    }
    let ended = transfer.wait().await;
    shower.end(&ended);
    ended
}

/// Waits until the time that the user allows (`--time-limit`) is over; for ever if that is not
/// limited. It runs beside the transfer, whose end comes first if it is in time.
pub async fn time_limit(args: &TransferArgs) {
    match args.time_limit {
        Some(limit) => tokio::time::sleep(limit).await,
        None => std::future::pending().await,
    }
}

/// How several transfers ended, as one.
#[derive(Default)]
pub struct Ends {
    done: usize,
    failed: usize,
    partial: usize,
    /// Files of those that are done.
    files: u64,
    /// Failures of those whose source was not there.
    missing: usize,
    /// The failure that the command ends with: the first one, unless a signal or the time limit
    /// stopped it.
    first: Option<Failure>,
    /// The same among the failures of another kind than a missing source.
    graver: Option<Failure>,
}

impl Ends {
    /// Takes an end in and tells it; says whether to go on with the next transfer.
    pub fn take(&mut self, ended: Result<Outcome, Failure>, shower: &mut Shower) -> bool {
        if let Err(failure) = &ended {
            shower.failed(failure);
        }
        self.note(ended)
    }

    /// Takes an end in that was told before; says whether to go on with the next transfer.
    pub fn note(&mut self, ended: Result<Outcome, Failure>) -> bool {
        match ended {
            Ok(outcome) => {
                self.done += 1;
                self.files += outcome.files_written + outcome.files_unchanged;
                let missed = outcome.skipped.iter().any(|f| f.kind == FailureKind::Partial);
                self.partial += usize::from(missed);
                true
            }
            Err(failure) => self.count(failure),
        }
    }

    /// Counts a failure; says whether to go on with the next transfer.
    fn count(&mut self, failure: Failure) -> bool {
        self.failed += 1;
        let stopped = matches!(failure.kind, FailureKind::Interrupted | FailureKind::TimeLimit);
        if failure.kind == FailureKind::Missing {
            self.missing += 1;
        } else if stopped || self.graver.is_none() {
            self.graver = Some(failure.clone());
        }
        if stopped || self.first.is_none() {
            self.first = Some(failure);
        }
        !stopped
    }

    /// Files of the transfers that are done: those that were written, and those that were there.
    pub fn files(&self) -> u64 {
        self.files
    }

    /// Whether one of them has failed.
    pub fn has_failed(&self) -> bool {
        self.first.is_some()
    }

    /// The same ends of transfers to a place on the way, where nothing has been delivered: the
    /// first failure is the whole command's. A missing source alone would have been left out, so
    /// any other failure comes before it.
    pub fn undelivered(self) -> Ends {
        let first = self.graver.clone().or(self.first);
        Ends { done: 0, first, ..self }
    }

    /// Whether nothing has failed but sources that were not there.
    pub fn has_missed_only(&self) -> bool {
        self.missing > 0 && self.missing == self.failed
    }

    /// Counts sources that were not there as left out if nothing else has failed. Returns the
    /// first one's failure.
    pub fn leave_out_missing(&mut self) -> Option<Failure> {
        if !self.has_missed_only() {
            return None;
        }
        (self.failed, self.missing, self.partial) = (0, 0, self.partial + 1);
        self.first.take()
    }

    /// Takes in a failure that was told before.
    pub fn fail_by(&mut self, failure: Failure) {
        self.count(failure);
    }

    /// Counts what others have left out as left out here.
    pub fn add_partial(&mut self, others: &Ends) {
        self.partial += others.partial;
    }

    /// Ends the command, for which so many objects were named at least; if there were several,
    /// programs hear how.
    pub fn code(&self, named: usize, shower: &Shower) -> ExitCode {
        let (code, objects) = (self.exit_code(), named.max(self.done + self.failed));
        if objects > 1 {
            shower.ended(code, objects, self.done);
        }
        if code == 0 { super::done() } else { ExitCode::from(code) }
    }

    /// The exit code of all of them.
    pub fn exit_code(&self) -> u8 {
        match &self.first {
            Some(failure) if self.done == 0 => failure.exit_code(),
            Some(failure) => match failure.kind {
                FailureKind::Interrupted | FailureKind::TimeLimit => failure.exit_code(),
                FailureKind::Other
                | FailureKind::Usage
                | FailureKind::Missing
                | FailureKind::Destination
                | FailureKind::Temporary
                | FailureKind::Unreachable
                | FailureKind::Integrity
                | FailureKind::Authentication
                | FailureKind::OutsideHours
                | FailureKind::Quota
                | FailureKind::Revoked
                | FailureKind::NoUdpPath
                | FailureKind::Partial => FailureKind::Partial.exit_code(),
            },
            None if self.partial > 0 => FailureKind::Partial.exit_code(),
            None => 0,
        }
    }
}

/// Time between two looks at a transfer's numbers.
pub const LOOK_SPAN: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    fn after(kinds: &[FailureKind]) -> Ends {
        let mut ends = Ends::default();
        for kind in kinds {
            ends.count(Failure::new(*kind, "it failed"));
        }
        ends
    }

    #[test]
    fn the_end_node_law_has_the_steps_that_are_given_and_the_theses_otherwise() {
        let of = |steps| law(Control::Endnode, None, steps).unwrap();
        let (alpha, beta) = (Some(0.3), Some(0.4));
        assert_eq!(of(StepArgs { alpha, beta }), Law::EndNode { alpha: 0.3, beta: 0.4 });
        assert_eq!(of(StepArgs { alpha, beta: None }), Law::EndNode { alpha: 0.3, beta: 0.2 });
        assert_eq!(of(StepArgs::default()), Law::EndNode { alpha: 0.1, beta: 0.2 });
        assert!(law(Control::Grant, None, StepArgs { alpha, beta: None }).is_err());
    }

    #[test]
    fn only_sources_that_are_missing_are_left_out_and_no_other_failure_hides_behind_them() {
        let missing = FailureKind::Missing;
        let mut ends = after(&[missing, missing]);
        assert_eq!(ends.leave_out_missing().map(|failure| failure.kind), Some(missing));
        assert!(!ends.has_failed() && ends.leave_out_missing().is_none());
        assert_eq!(ends.exit_code(), FailureKind::Partial.exit_code());
        let stops = [FailureKind::Interrupted, FailureKind::TimeLimit];
        for kind in stops.into_iter().chain([FailureKind::Unreachable]) {
            let mut ends = after(&[missing, kind]);
            assert!(ends.leave_out_missing().is_none() && ends.has_failed(), "{kind:?}");
            assert_eq!(ends.undelivered().exit_code(), kind.exit_code(), "{kind:?}");
        }
        for kind in stops {
            let mut ends = after(&[missing, FailureKind::Unreachable, kind]);
            ends.done = 1;
            assert_eq!(ends.exit_code(), kind.exit_code(), "a stop is told even if some are done");
        }
    }
}
