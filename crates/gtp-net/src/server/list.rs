//! Answers `list`: the names at a path, without a session for data.
//!
//! A listing is cheap for both ends: one level of names, no content, no key for datagrams. It needs
//! the same permission as reading.

use std::sync::Arc;

use super::Shared;
use super::scan::{Extent, scan, skipped_faults};
use super::session::{Client, Ending};
use crate::flows::{Failure, to_wire, wire_root};
use crate::messages::{Message, Pages, PagesEnd};

pub(super) async fn serve(shared: &Arc<Shared>, client: Client) -> Ending {
    let (client, scanned, _share) = match scan(shared, client, Extent::OneLevel).await {
        Ok(found) => found,
        Err(ending) => return ending,
    };
    match answer(shared, client, &scanned).await {
        Ok(()) => Ending::default(),
        Err(failure) => Ending::failed(failure),
    }
}

async fn answer(
    shared: &Shared,
    mut client: Client,
    scanned: &gtp_store::Scanned,
) -> Result<(), Failure> {
    let manifest = &scanned.manifest;
    let total = manifest.entries.len() as u64;
    let object = Some(wire_root(manifest.root_kind));
    let session = client.host.new_session_id();
    let opened = client.opened(shared, session, object, (total, 0));
    let pages = Pages::new(manifest.entries.iter().map(to_wire)).map(Message::ListingPage);
    let content_bytes = manifest.content_bytes();
    let end = Message::ListingEnd(PagesEnd { entries_total: total, content_bytes });
    let faults = skipped_faults(scanned);
    let (seat, clock) = (Arc::clone(&client.seat), shared.host.clock());
    let mut sent = 0;
    let answer = [opened].into_iter().chain(faults).chain(pages).chain([end]).inspect(|_| {
        sent += 1;
        seat.note(sent, clock.now());
    });
    client.channel.send_all(answer).await?;
    client.channel.close().await;
    Ok(())
}
