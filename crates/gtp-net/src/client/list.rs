//! Lists what a server has at a path. No datagram is sent.
//!
//! The server sends the entries of one level of a directory, or of a file, as it finds them. They
//! must obey the rules of manifests, so a hostile name never reaches a terminal. Whoever asks gets
//! them as they come, and nothing is kept here of a listing of a million names. This module must
//! not know how a listing is shown.

use gtp_store::{Entry, RootKind};
use tokio::time::timeout;

use super::connect::{self, SKIPPED_MAX, Units, ask, reach};
use super::{Endpoint, Terms, Url};
use crate::control::{ANSWER_SPAN, ControlChannel, ControlError};
use crate::flows::{BadListing, Failure, FailureKind, Passing, root_kind};
use crate::messages::{Message, Verb};

/// What is at a path.
#[derive(Clone, Debug)]
pub struct Listing {
    /// A file or a directory.
    pub kind: RootKind,
    /// Its entries, or the file itself; not what lies deeper.
    pub entries: Vec<Entry>,
    /// What is there too and cannot be fetched, each with the reason; a bounded number.
    pub left_out: Vec<Failure>,
}

/// A part of a listing.
#[derive(Clone, Debug)]
pub enum Listed {
    /// The next entries.
    Entries(Vec<Entry>),
    /// What is there too and cannot be fetched, with the reason; a bounded number in all.
    LeftOut(Failure),
}

/// Asks for a listing and returns it whole, as [`list_each`] gives it part by part.
///
/// # Errors
/// As there.
pub async fn list(endpoint: &Endpoint, url: &Url, terms: &Terms) -> Result<Listing, Failure> {
    let (mut entries, mut left_out) = (Vec::new(), Vec::new());
    let each = |listed| match listed {
        Listed::Entries(more) => entries.extend(more),
        Listed::LeftOut(failure) => left_out.push(failure),
    };
    let kind = list_each(endpoint, url, terms, each).await?;
    Ok(Listing { kind, entries, left_out })
}

/// Asks for a listing, hands each part of it on as it comes, and returns whether it is of a file or
/// a directory. It may fail in the midst. The client waits for a silent server as long as the
/// patience of `terms`. It waits ten times as long for a server that sends keepalives and no names.
///
/// # Errors
/// A [`Failure`] if the server does not answer in time, refuses, or breaks a rule.
pub async fn list_each(
    endpoint: &Endpoint,
    url: &Url,
    terms: &Terms,
    each: impl FnMut(Listed),
) -> Result<RootKind, Failure> {
    let late = |_| Failure::from(ControlError::TimedOut("the listing"));
    timeout(ANSWER_SPAN, patiently(endpoint, url, terms, each)).await.map_err(late)?
}

async fn patiently(
    endpoint: &Endpoint,
    url: &Url,
    terms: &Terms,
    mut each: impl FnMut(Listed),
) -> Result<RootKind, Failure> {
    let verb = Verb::List { path: url.path().to_vec() };
    let channel = reach(endpoint, url, terms).await?;
    let mut granted = ask(channel, endpoint, url, verb, (terms, Units::Ordinary), &|| {}).await?;
    let kind = granted.opened.object.map_or(RootKind::File, root_kind);
    let (mut passing, mut left_out) = (Passing::default(), 0);
    loop {
        let next = timeout(terms.patience * LOOKING, next_word(&mut granted.channel, terms));
        match next.await.map_err(|_| ControlError::TimedOut("the listing"))?? {
            Message::ListingPage(page) => each(Listed::Entries(passing.page(page).map_err(bad)?)),
            Message::ListingEnd(end) => {
                granted.channel.close().await;
                passing.end(&end).map_err(bad)?;
                return Ok(kind);
            }
            Message::Fault(fault) => match &fault.path {
                Some(path) if left_out < SKIPPED_MAX => {
                    left_out += 1;
                    each(Listed::LeftOut(connect::left_out(path, &fault.text)));
                }
                Some(_) => {}
                None => return Err(Failure::of_fault(&fault)),
            },
            other => {
                return Err(ControlError::Unexpected(format!("message {}", other.name())).into());
            }
        }
    }
}

/// Returns the next message that is not a keepalive. Each keepalive restarts the patience, so a
/// server that sends them may take longer than a silent one.
async fn next_word(channel: &mut ControlChannel, terms: &Terms) -> Result<Message, ControlError> {
    loop {
        let sign = timeout(terms.patience, channel.sign()).await;
        match sign.map_err(|_| ControlError::TimedOut("the listing"))?? {
            Message::Keepalive => {}
            message => return Ok(message),
        }
    }
}

/// A server may look for the next names for the patience times this: ten minutes by default.
const LOOKING: u32 = 10;

fn bad(why: BadListing) -> Failure {
    Failure::new(FailureKind::Other, why.to_string())
}
