//! Lists what a server has at a path. No datagram is sent.
//!
//! The server sends the entries of one level of a directory, or of a file, as it finds them. They
//! must obey the rules of manifests, so a hostile name never reaches a terminal. This module must
//! not know how a listing is shown.

use gtp_store::{Entry, RootKind};
use tokio::time::timeout;

use super::connect::{SKIPPED_MAX, Units, ask, left_out, reach};
use super::{Endpoint, Terms, Url};
use crate::control::{ANSWER_SPAN, ControlChannel, ControlError};
use crate::flows::{BadListing, Failure, FailureKind, Gathering, root_kind};
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

/// Asks for a listing. The client waits for a silent server as long as the patience of `terms`. It
/// waits ten times as long for a server that sends keepalives and no names.
///
/// # Errors
/// A [`Failure`] if the server does not answer in time, refuses, or breaks a rule.
pub async fn list(endpoint: &Endpoint, url: &Url, terms: &Terms) -> Result<Listing, Failure> {
    let late = |_| Failure::from(ControlError::TimedOut("the listing"));
    timeout(ANSWER_SPAN, patiently(endpoint, url, terms)).await.map_err(late)?
}

async fn patiently(endpoint: &Endpoint, url: &Url, terms: &Terms) -> Result<Listing, Failure> {
    let verb = Verb::List { path: url.path().to_vec() };
    let channel = reach(endpoint, url, terms).await?;
    let mut granted = ask(channel, endpoint, url, verb, (terms, Units::Ordinary), &|| {}).await?;
    let kind = granted.opened.object.map_or(RootKind::File, root_kind);
    let mut gathering = Gathering::default();
    let mut left = Vec::new();
    loop {
        let next = timeout(terms.patience * LOOKING, next_word(&mut granted.channel, terms));
        match next.await.map_err(|_| ControlError::TimedOut("the listing"))?? {
            Message::ListingPage(page) => gathering.page(page).map_err(bad)?,
            Message::ListingEnd(end) => {
                granted.channel.close().await;
                let entries = gathering.end_of_listing(&end).map_err(bad)?;
                return Ok(Listing { kind, entries, left_out: left });
            }
            Message::Fault(fault) => match &fault.path {
                Some(path) if left.len() < SKIPPED_MAX => left.push(left_out(path, &fault.text)),
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
