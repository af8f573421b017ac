//! One server's line: the task that connects it, tends its control channel and reports.
//!
//! It decides nothing. Orders come in, reports go out, keepalives happen by themselves; when the
//! orders' sender is gone it says farewell.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use gtp_store::Value;
use tokio::sync::mpsc;

use super::connect::{Described, Granted, ask, describe, reach};
use super::{Endpoint, Terms, Url};
use crate::control::{ControlChannel, ControlError, KEEPALIVE_SPAN};
use crate::engine::SessionOpen;
use crate::flows::Failure;
use crate::messages::{self, Done, Message, RootsWanted, Verb};

/// What a line is asked to do.
#[derive(Debug)]
pub(super) enum Order {
    /// Ask for the roots of `files` files from `first_file` on.
    AskRoots { first_file: u64, files: u32 },
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
    /// One file of the object fails.
    FileFault(Failure),
    /// The line is gone.
    Ended(Failure),
}

/// A server that is ready to send.
pub(super) struct Ready {
    pub session: SessionOpen,
    pub described: Described,
    pub orders: mpsc::UnboundedSender<Order>,
}

/// Where a line's reports go: with its number.
pub(super) type Reports = mpsc::UnboundedSender<(usize, Report)>;

/// Connects to a source after a pause and tends its line until its end.
pub(super) async fn run(
    number: usize,
    endpoint: Arc<Endpoint>,
    url: Url,
    terms: Terms,
    pause: Duration,
    reports: Reports,
) {
    tokio::time::sleep(pause).await;
    let verb = Verb::Get { path: url.path().to_vec() };
    let tell = |report| {
        // Whoever asked may have ended.
        let _ = reports.send((number, report));
    };
    let working = || tell(Report::Working);
    let listed = |entries| tell(Report::Listing { entries });
    let opening = async {
        let channel = reach(&endpoint, &url, &terms).await?;
        listed(0);
        let mut granted = ask(channel, &endpoint, &url, verb, &terms, &working).await?;
        let described = describe(&mut granted, listed).await?;
        Ok::<_, Failure>((granted, described))
    };
    match opening.await {
        Err(failure) => tell(Report::Refused(failure)),
        Ok((Granted { channel, session, .. }, described)) => {
            let (orders, inbox) = mpsc::unbounded_channel();
            tell(Report::Ready(Box::new(Ready { session, described, orders })));
            if let Some(last) = tend(channel, inbox, &tell).await {
                tell(last);
            }
        }
    }
}

/// Serves a line; returns its last report unless it ended as ordered.
async fn tend(
    mut channel: ControlChannel,
    mut orders: mpsc::UnboundedReceiver<Order>,
    tell: &impl Fn(Report),
) -> Option<Report> {
    let mut keepalive = tokio::time::interval(KEEPALIVE_SPAN);
    let mut asked = VecDeque::new();
    loop {
        let sent = tokio::select! {
            order = orders.recv() => match order {
                Some(Order::AskRoots { first_file, files }) => {
                    asked.push_back((first_file, files as usize));
                    channel.send(&Message::RootsWanted(RootsWanted { first_file, files })).await
                }
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
                Ok(message) => match heard(message, &mut asked) {
                    Ok(report) => { tell(report); Ok(()) }
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

/// What a message means; roots only answer the question whose turn it is.
fn heard(message: Message, asked: &mut VecDeque<(u64, usize)>) -> Result<Report, Failure> {
    match message {
        Message::Roots(page) => {
            if asked.pop_front() != Some((page.first_file, page.roots.0.len())) {
                return Err(ControlError::Unexpected("roots that nobody asked for".into()).into());
            }
            Ok(Report::Roots { first_file: page.first_file, roots: page.roots.0 })
        }
        Message::Fault(fault) => {
            let failure = Failure::of_fault(&fault);
            match &fault.path {
                Some(path) => Ok(Report::FileFault(failure.about(messages::printable(path)))),
                None => Err(failure),
            }
        }
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
    use crate::messages::{Roots, RootsPage};

    #[test]
    fn roots_are_taken_once_and_only_as_asked() {
        let page = |first_file, count| {
            Message::Roots(RootsPage { first_file, roots: Roots(vec![[0; 32]; count]) })
        };
        assert!(heard(page(0, 1), &mut VecDeque::new()).is_err());
        assert!(heard(page(0, 3), &mut VecDeque::from([(0, 2)])).is_err());
        assert!(heard(page(1, 2), &mut VecDeque::from([(0, 2)])).is_err());
        let mut asked = VecDeque::from([(0, 2), (2, 1)]);
        assert!(heard(page(0, 2), &mut asked).is_ok());
        assert!(heard(page(2, 1), &mut asked).is_ok());
        assert!(heard(page(2, 1), &mut asked).is_err());
    }
}
