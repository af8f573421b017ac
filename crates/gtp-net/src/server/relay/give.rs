//! Answers `relay`: gives blocks of an object that is being received here on to another sink.
//!
//! Whoever asks shows a ticket of the client that sends the object, and gets what is on the shelf
//! of that client's very transfer. It is told which blocks that are, and is to ask for no others.
//! The session ends with the transfer.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::shelf::{Shelf, ShelfSource};
use crate::control::{ControlError, KEEPALIVE_SPAN};
use crate::engine::{SourceEvent, SourceHandle, SourceOpen};
use crate::flows::{Failure, FailureKind};
use crate::messages::{BlockRanges, Message, Reason, RelayHave, Verb};
use crate::server::get::{Extent, moved};
use crate::server::session::{Client, Ending};
use crate::server::{Pace, Shared, Stop};

/// Time between two words on what is here.
const HAVE_SPAN: Duration = Duration::from_millis(50);

pub(in crate::server) async fn serve(
    shared: &Arc<Shared>,
    client: Client,
    stop: &mut Stop,
) -> Ending {
    let Some(shelf) = shelf(shared, &client) else {
        // The client may have connected here later than there.
        let text = "nothing of this transfer is given on here now";
        let failure = Failure::new(FailureKind::Temporary, text);
        client.seat.linger(client.channel.refuse(Reason::Busy, text)).await;
        return Ending::failed(failure);
    };
    let mut giving = match Giving::open(shared, client, shelf) {
        Ok(giving) => giving,
        Err(failure) => return Ending::failed(failure),
    };
    let verdict = tokio::select! {
        verdict = giving.run(shared) => verdict,
        why = stop.told() => {
            giving.client.channel.dismiss(why.reason(), why.failure().text).await;
            Err(why.failure())
        }
    };
    giving.end(verdict).await
}

/// What the client asks for, if it was put to the path that it names.
fn shelf(shared: &Shared, client: &Client) -> Option<Arc<Shelf>> {
    let Verb::Relay { path, transfer } = &client.open.verb else { return None };
    let shelf = shared.shelves.find((client.key, *transfer))?;
    (shelf.path == *path).then_some(shelf)
}

struct Giving {
    source: SourceHandle,
    shelf: Arc<Shelf>,
    changed: watch::Receiver<bool>,
    /// The number of the data session.
    session: u32,
    /// Of how many blocks the client knows.
    told: usize,
    client: Client,
}

impl Giving {
    fn open(shared: &Shared, mut client: Client, shelf: Arc<Shelf>) -> Result<Giving, Failure> {
        let open = client.session(shared)?;
        let session = open.local_session;
        let none = || Failure::new(FailureKind::Temporary, "no descriptor to read blocks with");
        let source = Box::new(ShelfSource::of(&shelf).ok_or_else(none)?);
        let source = client.host.open_source(SourceOpen { session: open, source });
        let sent = source.watch();
        client.told.measure(move || moved(&sent.progress(), None, Extent::UNKNOWN));
        let sent = source.watch();
        client.told.pace(move || Some(Pace::from(&sent.progress())));
        let changed = shelf.watch();
        Ok(Giving { source, shelf, changed, session, told: 0, client })
    }

    async fn run(&mut self, shared: &Shared) -> Result<(), Failure> {
        let opened = self.client.opened(shared, self.session, None, (0, 0));
        self.client.channel.send(&opened).await?;
        let mut keepalive = interval(KEEPALIVE_SPAN);
        let mut due = interval(HAVE_SPAN);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_heard = true;
        loop {
            let channel = &mut self.client.channel;
            tokio::select! {
                message = channel.recv() => match message? {
                    Message::Done(_) => return Ok(()),
                    Message::Cancel => {
                        let text = "given up by the client";
                        return Err(Failure::new(FailureKind::Interrupted, text));
                    }
                    Message::UnitChoice(_) => {}
                    other => {
                        let text = format!("message {}", other.name());
                        return Err(ControlError::Unexpected(text).into());
                    }
                },
                event = self.source.next_event(), if is_heard => match event {
                    Some(SourceEvent::Fault(error)) => {
                        // What is here changes: the client may come again, and is told anew.
                        channel.send(&Message::fault(Reason::Busy, error.to_string())).await?;
                        return Err(Failure::new(FailureKind::Temporary, error.to_string()));
                    }
                    Some(SourceEvent::Lost(why)) => {
                        channel.send(&Message::fault(Reason::TimedOut, why.clone())).await?;
                        return Err(Failure::new(FailureKind::Temporary, why));
                    }
                    Some(SourceEvent::NoPath) => {
                        let text = "no datagram came from the client";
                        channel.send(&Message::fault(Reason::NoUdpPath, text)).await?;
                        return Err(Failure::new(FailureKind::NoUdpPath, text));
                    }
                    Some(
                        SourceEvent::PathOpen
                        | SourceEvent::Silent
                        | SourceEvent::Closed
                        | SourceEvent::FileFault { .. },
                    ) => {}
                    None => is_heard = false,
                },
                _ = due.tick() => {
                    if *self.changed.borrow_and_update() {
                        let text = "the transfer is over here";
                        channel.send(&Message::fault(Reason::Busy, text)).await?;
                        // The client may show its ticket again to another attempt.
                        return Err(Failure::new(FailureKind::Temporary, text));
                    }
                    let news = self.shelf.news(&mut self.told);
                    for blocks in BlockRanges::pages(news.iter()) {
                        let have = RelayHave { blocks, reached: None, kept: None };
                        channel.send(&Message::RelayHave(have)).await?;
                    }
                }
                _ = keepalive.tick() => channel.send(&Message::Keepalive).await?,
            }
        }
    }

    async fn end(self, verdict: Result<(), Failure>) -> Ending {
        let moved = moved(&self.source.ended(ENDED_SPAN).await, None, Extent::UNKNOWN);
        let Client { channel, seat, .. } = self.client;
        seat.linger(channel.close()).await;
        Ending { moved, failure: verdict.err(), ..Ending::default() }
    }
}

/// How long the last figures of a session are waited for.
const ENDED_SPAN: Duration = Duration::from_millis(500);
