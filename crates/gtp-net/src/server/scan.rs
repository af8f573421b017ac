//! Waits with a client while its object is looked up, and says what is left out of the listing.
//!
//! The walk itself is on another thread. Whoever waits says so to the client now and then, and
//! notes the walk's progress as a sign that the client's place is used.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use gtp_store::{Scanned, SkipReason, Skipped};

use super::Shared;
use super::session::{Client, Ending};
use super::walks::{Asker, Listing, Nothing};
use crate::control::SEARCH_SPAN;
use crate::engine::turns::Party;
use crate::flows::Failure;
use crate::messages::{Fault, Message, PATH_MAX, PeerText, Reason};

/// Looks up the whole object that the client asks for, and tells the client meanwhile that this
/// goes on. The listing takes memory for as long as somebody has it.
///
/// # Errors
/// How the session ends; the client knows.
pub(super) async fn scan(
    shared: &Arc<Shared>,
    mut client: Client,
) -> Result<(Client, Arc<Listing>), Ending> {
    let walks = Arc::clone(&client.outlet.walks);
    let mut waiting = walks.ask(client.path.clone(), client.asker());
    loop {
        let walked = waiting.walked();
        let progress = || walked.load(Ordering::Relaxed);
        let found = wait(&mut client, shared, waiting.outcome(), progress).await;
        match found.map_err(Ending::failed)? {
            Ok(listing) => return Ok((client, listing)),
            Err(nothing) => {
                let (path, asker) = (client.path.clone(), client.asker());
                match walks.ask_again(&nothing, path, asker) {
                    Some(again) => waiting = again,
                    None => return Err(refuse(client, &nothing).await),
                }
            }
        }
    }
}

/// Tells a client why there is no listing.
pub(super) async fn refuse(client: Client, nothing: &Nothing) -> Ending {
    client.channel.refuse(nothing.reason, nothing.text.clone()).await;
    Ending::failed(nothing.failure.clone())
}

impl Client {
    /// For whom its object is looked up.
    pub fn asker(&self) -> Asker {
        let party = Party::of(self.holder.principal(), self.channel.peer_ip());
        Asker { holder: self.holder, party, seat: Arc::clone(&self.seat) }
    }
}

/// Waits for something that takes longer than a client would wait in silence. Progress counts as a
/// sign of life of the client.
pub(super) async fn wait<T>(
    client: &mut Client,
    shared: &Shared,
    found: impl Future<Output = T>,
    progress: impl Fn() -> u64,
) -> Result<T, Failure> {
    let mut found = std::pin::pin!(found);
    let mut keepalive = tokio::time::interval(SEARCH_SPAN);
    keepalive.reset();
    loop {
        tokio::select! {
            found = &mut found => return Ok(found),
            _ = keepalive.tick() => {
                client.seat.note(progress(), shared.host.clock().now());
                client.channel.send(&Message::Keepalive).await?;
            }
        }
    }
}

/// What a client is told about names that exist and are not in the listing: the first by name, the
/// rest by number.
pub(super) fn skipped_faults(scanned: &Scanned) -> Vec<Message> {
    let named = scanned.skipped.iter().take(NAMED_MAX);
    let mut faults: Vec<Message> = named.map(skipped_fault).collect();
    faults.extend(skipped_more(scanned.skipped_total.saturating_sub(faults.len() as u64)));
    faults
}

/// What a client is told about names that are not told one by one.
pub(super) fn skipped_more(more: u64) -> Option<Message> {
    let text = PeerText::new(format!("{more} more"));
    let rest = Fault { reason: Reason::Other, text, path: Some(Vec::new()) };
    (more > 0).then_some(Message::Fault(rest))
}

/// Clients keep a thousand; the last says how many more there are.
pub(super) const NAMED_MAX: usize = 999;

/// What a client is told about a name that is not in the listing.
pub(super) fn skipped_fault(skipped: &Skipped) -> Message {
    let reason = match skipped.why {
        SkipReason::Link | SkipReason::Special => Reason::Other,
        SkipReason::Denied => Reason::Permission,
        SkipReason::Name(_) | SkipReason::Unreadable => Reason::Unreadable,
    };
    let mut path = skipped.path.clone();
    path.truncate(PATH_MAX);
    let text = PeerText::new(skipped.why.to_string());
    Message::Fault(Fault { reason, text, path: Some(path) })
}
