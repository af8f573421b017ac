//! Answers `get`: lists the object, registers the session, answers until the client is done.
//!
//! The client decides what it fetches and when it is done; this end only lists, reads and answers.
//! It keeps no state of the transfer, so a client that comes back starts a session like any other.

use std::sync::Arc;

use gtp_store::{BlockSource, FileSource};
use tokio::sync::watch;

use super::scan::{Extent, scan, skipped_faults};
use super::session::{Client, Ending};
use super::{Shared, stopping};
use crate::control::{ControlError, KEEPALIVE_SPAN};
use crate::engine::{SourceEvent, SourceHandle, SourceOpen};
use crate::flows::{
    Failure, FailureKind, FileIndex, RootAnswers, reason_of_source, to_messages, wire_root,
};
use crate::messages::{Message, Reason};

pub(super) async fn serve(
    shared: &Arc<Shared>,
    client: Client,
    stop: &mut watch::Receiver<bool>,
) -> Ending {
    let (mut client, scanned, _share) = match scan(shared, client, Extent::Whole).await {
        Ok(found) => found,
        Err(ending) => return ending,
    };
    let faults: Vec<Message> = skipped_faults(&scanned);
    let source = FileSource::new(scanned);
    let manifest = Arc::clone(source.manifest());
    let session = match client.session(shared) {
        Ok(session) => session,
        Err(failure) => return Ending::failed(failure),
    };
    let number = session.local_session;
    let open = SourceOpen { session, source: Box::new(source) };
    let mut giving = Giving {
        source: client.host.open_source(open),
        index: FileIndex::of(&manifest),
        answers: RootAnswers::default(),
        client,
    };
    let sums = (manifest.entries.len() as u64, manifest.content_bytes());
    let object = Some(wire_root(manifest.root_kind));
    let opened = giving.client.opened(shared, number, object, sums);
    let announced = [opened].into_iter().chain(faults).chain(to_messages(&manifest));
    let verdict = match giving.client.channel.send_all(announced).await {
        Ok(()) => giving.run(stop).await,
        Err(failure) => Err(failure.into()),
    };
    let wire_bytes = giving.source.progress().wire_bytes;
    giving.source.close();
    giving.client.channel.close().await;
    Ending { wire_bytes, failure: verdict.err() }
}

/// A session that sends.
struct Giving {
    source: SourceHandle,
    index: FileIndex,
    answers: RootAnswers,
    client: Client,
}

impl Giving {
    async fn run(&mut self, stop: &mut watch::Receiver<bool>) -> Result<(), Failure> {
        let mut keepalive = tokio::time::interval(KEEPALIVE_SPAN);
        let mut told = true;
        loop {
            self.answers.begin(&self.source, &self.index);
            let channel = &mut self.client.channel;
            tokio::select! {
                message = channel.recv(), if self.answers.has_room() => match message? {
                    Message::Done(_) => return Ok(()),
                    Message::Cancel => {
                        let text = "given up by the client";
                        return Err(Failure::new(FailureKind::Interrupted, text));
                    }
                    Message::RootsWanted(wanted) => {
                        self.answers.ask(wanted, &self.source, &self.index)?;
                    }
                    Message::UnitChoice(_) => {}
                    Message::Fault(fault) => return Err(Failure::of_fault(&fault)),
                    other => {
                        let text = format!("message {}", other.name());
                        return Err(ControlError::Unexpected(text).into());
                    }
                },
                answer = self.answers.next() => match answer {
                    Ok(roots) => channel.send(&roots).await?,
                    Err(error) => {
                        let fault = Message::fault(reason_of_source(&error), error.to_string());
                        channel.send(&fault).await?;
                        return Err(error.into());
                    }
                },
                event = self.source.next_event(), if told => match event {
                    Some(SourceEvent::PathOpen | SourceEvent::Closed) => {}
                    // The client hears of a dead path by itself, and of the end of a session.
                    None => told = false,
                    Some(SourceEvent::NoPath) => {
                        let text = "no datagram came from the client";
                        channel.send(&Message::fault(Reason::NoUdpPath, text)).await?;
                        return Err(Failure::new(FailureKind::NoUdpPath, text));
                    }
                    Some(SourceEvent::Fault(error)) => {
                        let fault = Message::fault(reason_of_source(&error), error.to_string());
                        channel.send(&fault).await?;
                        return Err(error.into());
                    }
                    Some(SourceEvent::Lost(why)) => {
                        channel.send(&Message::fault(Reason::TimedOut, why.clone())).await?;
                        return Err(Failure::new(FailureKind::Temporary, why));
                    }
                },
                _ = keepalive.tick() => channel.send(&Message::Keepalive).await?,
                () = stopping(stop) => {
                    let text = "the server stops";
                    channel.send(&Message::fault(Reason::Stopping, text)).await?;
                    return Err(Failure::new(FailureKind::Temporary, text));
                }
            }
        }
    }
}
