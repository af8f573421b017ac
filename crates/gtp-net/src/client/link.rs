//! One server's line: the task that connects it, tends its control channel and reports.
//!
//! It decides nothing. Orders come in, reports go out, keepalives happen by themselves; when the
//! orders' sender is gone it says farewell.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gtp_alloc::{Span, Time};
use gtp_store::Value;
use gtp_sys::Clock;
use tokio::sync::mpsc;

use super::connect::{Described, Granted, Units, ask, describe, left_out, reach};
use super::{Endpoint, Terms, Url};
use crate::control::{ControlChannel, ControlError, KEEPALIVE_SPAN};
use crate::engine::{Carrier, SessionOpen};
use crate::flows::{Failure, Questions};
use crate::messages::{Arrivals, Done, Message, Reason, Verb};

/// What a line is asked to do.
#[derive(Debug)]
pub(super) enum Order {
    /// Ask for the roots of `files` files from `first_file` on.
    AskRoots { first_file: u64, files: u32 },
    /// Ask whether this end's datagrams come.
    AskArrivals,
    /// Carry the session's datagrams.
    Carry(Carrier),
    /// Say that all is well, and end.
    Done(Done),
}

/// What a line reports.
pub(super) enum Report {
    /// The server has answered, and has listed this many entries so far.
    Listing { entries: u64 },
    /// The server looks for the object.
    Working,
    /// The server has described the object and waits for requests.
    Ready(Box<Ready>),
    /// It did not come to that.
    Refused(Failure),
    /// Roots, as asked for, in order.
    Roots { first_file: u64, roots: Vec<Value> },
    /// What has come of this end's datagrams, and how long the server took to say so.
    Arrivals { arrivals: Arrivals, took: Span },
    /// No datagram of this end comes there any more.
    Unheard,
    /// The server cannot give this file any more.
    FileLost { path: Vec<u8>, failure: Failure },
    /// There is something to say of a file that comes nevertheless.
    Remark(Failure),
    /// The line is gone.
    Ended(Failure),
}

/// A server that is ready to send.
pub(super) struct Ready {
    pub session: SessionOpen,
    pub described: Described,
    pub orders: mpsc::UnboundedSender<Order>,
}

/// Signs of life are told no more often than this: whoever hears them may be busy for minutes.
const SIGN_SPAN: Span = Span::from_millis(500);

/// Files that a source may say it fails at after it has described the object.
const FAULTS_MAX: usize = 1_000;

/// Where a line's reports go: with its number. They may lie there unread for minutes, so a line
/// tells a bounded number of each kind: signs of life by time, roots as asked for, faults by
/// number.
pub(super) type Reports = mpsc::UnboundedSender<(usize, Report)>;

/// Connects to a source after a pause and tends its line until its end.
pub(super) async fn run(
    number: usize,
    endpoint: Arc<Endpoint>,
    url: Url,
    (terms, units): (Terms, Units),
    pause: Duration,
    reports: Reports,
) {
    tokio::time::sleep(pause).await;
    let verb = Verb::Get { path: url.path().to_vec() };
    let tell = |report| {
        // Whoever asked may have ended.
        let _ = reports.send((number, report));
    };
    let clock = endpoint.host().clock();
    let signs = Signs::default();
    let sign = |report| {
        if signs.is_due(clock.now()) {
            tell(report);
        }
    };
    let working = || sign(Report::Working);
    let listed = |entries| sign(Report::Listing { entries });
    let opening = async {
        let channel = reach(&endpoint, &url, &terms).await?;
        tell(Report::Listing { entries: 0 });
        let mut granted = ask(channel, &endpoint, &url, verb, (&terms, units), &working).await?;
        let described = describe(&mut granted, &terms.listings, listed).await?;
        Ok::<_, Failure>((granted, described))
    };
    match opening.await {
        Err(failure) => tell(Report::Refused(failure)),
        Ok((Granted { channel, session, data_port, .. }, described)) => {
            let (orders, inbox) = mpsc::unbounded_channel();
            tell(Report::Ready(Box::new(Ready { session, described, orders })));
            if let Some(last) = tend((channel, data_port), inbox, clock, &tell).await {
                tell(last);
            }
        }
    }
}

/// When a sign of life was last told.
#[derive(Default)]
struct Signs {
    told: Mutex<Option<Time>>,
}

impl Signs {
    /// Whether one that comes now is to be told; it counts as told then.
    fn is_due(&self, now: Time) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let due = told.is_none_or(|at| now.since(at) >= SIGN_SPAN);
        if due {
            *told = Some(now);
        }
        due
    }
}

/// Serves a line; returns its last report unless it ended as ordered.
async fn tend(
    (mut channel, data_port): (ControlChannel, u16),
    mut orders: mpsc::UnboundedReceiver<Order>,
    clock: Clock,
    tell: &impl Fn(Report),
) -> Option<Report> {
    let mut keepalive = tokio::time::interval(KEEPALIVE_SPAN);
    let mut asked = Asked::default();
    loop {
        let sent = tokio::select! {
            order = orders.recv() => match order {
                Some(Order::AskRoots { first_file, files }) => {
                    asked.roots.add([(first_file, files)]);
                    channel.send_all(asked.roots.due()).await
                }
                Some(Order::AskArrivals) => {
                    asked.arrivals_at = Some(clock.now());
                    channel.send(&Message::ArrivalsWanted).await
                }
                Some(Order::Carry(_)) if channel.carries() => Ok(()),
                Some(Order::Carry(carrier)) => channel.carry(carrier, data_port).await,
                Some(Order::Done(done)) => {
                    end(channel, Message::Done(done)).await;
                    return None;
                }
                None => {
                    end(channel, Message::Cancel).await;
                    return None;
                }
            },
            message = channel.recv() => match message {
                Ok(message) => match heard(message, &mut asked, clock.now()) {
                    Ok(report) => {
                        tell(report);
                        channel.send_all(asked.roots.due()).await
                    }
                    Err(last) => return Some(Report::Ended(last)),
                },
                Err(error) => Err(error),
            },
            _ = keepalive.tick() => channel.send(&Message::Keepalive).await,
        };
        if let Err(error) = sent {
            return Some(Report::Ended(error.into()));
        }
    }
}

/// What a server may still say.
#[derive(Default)]
struct Asked {
    /// To the questions for roots.
    roots: Questions,
    /// When it was asked whether datagrams come, and has not said.
    arrivals_at: Option<Time>,
    /// Files at which it has failed.
    faults: usize,
}

/// What a message that comes `now` means; roots only answer the question whose turn it is.
fn heard(message: Message, asked: &mut Asked, now: Time) -> Result<Report, Failure> {
    match message {
        Message::Roots(page) => {
            if !asked.roots.answered(page.first_file, page.roots.0.len()) {
                return Err(ControlError::Unexpected("roots that nobody asked for".into()).into());
            }
            Ok(Report::Roots { first_file: page.first_file, roots: page.roots.0 })
        }
        Message::Fault(fault) => {
            let failure = Failure::of_fault(&fault);
            let Some(path) = &fault.path else { return Err(failure) };
            asked.faults += 1;
            if asked.faults > FAULTS_MAX {
                let text = format!("faults of more than {FAULTS_MAX} files");
                return Err(ControlError::Unexpected(text).into());
            }
            let (path, failure) = (path.clone(), left_out(path, &fault.text));
            let remark = fault.reason == Reason::Other;
            Ok(if remark { Report::Remark(failure) } else { Report::FileLost { path, failure } })
        }
        Message::ArrivalsSeen(seen) => match asked.arrivals_at.take() {
            Some(at) => Ok(Report::Arrivals { arrivals: seen.arrivals, took: now.since(at) }),
            None => Err(ControlError::Unexpected("an answer that nobody asked for".into()).into()),
        },
        Message::Unheard => Ok(Report::Unheard),
        Message::Cancel => Err(ControlError::Closed.into()),
        other => Err(ControlError::Unexpected(format!("message {}", other.name())).into()),
    }
}

/// Says a last word and closes; whether it is heard changes nothing here.
async fn end(mut channel: ControlChannel, last: Message) {
    if channel.send(&last).await.is_ok() {
        channel.close().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{ArrivalsSeen, Fault, PeerText, Reason, Roots, RootsPage};

    fn hear(message: Message, asked: &mut Asked) -> Result<Report, Failure> {
        heard(message, asked, Time::from_nanos(7_000))
    }

    #[test]
    fn what_came_of_datagrams_is_believed_once_for_each_question() {
        let seen = || Message::ArrivalsSeen(ArrivalsSeen { arrivals: Arrivals::Some });
        let mut asked = Asked::default();
        assert!(hear(seen(), &mut asked).is_err());
        asked.arrivals_at = Some(Time::from_nanos(2_000));
        let told = hear(seen(), &mut asked);
        let took = Span::from_micros(5);
        assert!(
            matches!(told, Ok(Report::Arrivals { arrivals: Arrivals::Some, took: t }) if t == took)
        );
        assert!(hear(seen(), &mut asked).is_err());
    }

    #[test]
    fn roots_are_taken_once_and_only_as_asked() {
        let page = |first_file, count| {
            Message::Roots(RootsPage { first_file, roots: Roots(vec![[0; 32]; count]) })
        };
        let asked = |runs: &[(u64, u32)]| {
            let mut asked = Asked::default();
            asked.roots.add(runs.iter().copied());
            assert_eq!(asked.roots.due().count(), runs.len());
            asked
        };
        assert!(hear(page(0, 1), &mut asked(&[])).is_err());
        assert!(hear(page(0, 3), &mut asked(&[(0, 2)])).is_err());
        assert!(hear(page(1, 2), &mut asked(&[(0, 2)])).is_err());
        let mut asked = asked(&[(0, 2), (2, 1)]);
        assert!(hear(page(0, 2), &mut asked).is_ok());
        assert!(hear(page(2, 1), &mut asked).is_ok());
        assert!(hear(page(2, 1), &mut asked).is_err());
    }

    #[test]
    fn faults_without_end_end_the_line() {
        let mut asked = Asked::default();
        let mut fault = || {
            let path = Some(b"x".to_vec());
            let text = PeerText::new("gone");
            hear(Message::Fault(Fault { reason: Reason::Other, text, path }), &mut asked)
        };
        assert!((0..FAULTS_MAX).all(|_| matches!(fault(), Ok(Report::Remark(_)))));
        assert!(fault().is_err_and(|failure| failure.text.contains("faults")));
    }

    #[test]
    fn signs_of_life_without_end_are_told_twice_a_second() {
        let signs = Signs::default();
        let told = (0..100_000).filter(|&n| signs.is_due(Time::from_nanos(n * 100_000))).count();
        assert_eq!(told, 20, "in 10 s");
    }
}
