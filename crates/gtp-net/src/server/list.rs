//! Answers `list`: the names at a path, without a session for data.
//!
//! The listing is sent while the server walks through the directory, some entries at a time, and
//! the walk waits for a client that reads slowly. A listing therefore takes the same memory however
//! long it is. It needs the same permission as reading. This module must not know which walks go on
//! beside it.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use gtp_store::{Depth, NamesHeld, RelPath, SourceError, Step};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::Shared;
use super::scan::{NAMED_MAX, refuse, skipped_fault, skipped_more, wait};
use super::session::{Client, Ending};
use super::walks::{self, Asker, Nothing, Pace, Walks, beyond};
use crate::flows::{Failure, to_wire, wire_root};
use crate::messages::{Entry, EntryKind, Message, Page, PagesEnd};

pub(super) async fn serve(shared: &Arc<Shared>, mut client: Client) -> Ending {
    let mut parts = Parts::begin(&client.outlet.walks, client.path.clone(), client.asker());
    let first = match parts.next(&mut client, shared).await {
        Ok(first) => first,
        Err(failure) => return Ending::failed(failure),
    };
    let answered = match first {
        Part::Begun(object) => answer(shared, client, object, parts).await,
        Part::Failed(nothing) => return refuse(client, &nothing).await,
        Part::Said(_) | Part::Ended(_) => unreachable!("a listing begins with its object"),
    };
    Ending { failure: answered.err(), ..Ending::default() }
}

/// Lists names that lead to what the client may use; what else is there is not looked up.
pub(super) async fn tell(shared: &Shared, client: Client, names: Vec<String>) -> Ending {
    let told = tell_names(shared, client, names).await;
    Ending { failure: told.err(), ..Ending::default() }
}

async fn tell_names(
    shared: &Shared,
    mut client: Client,
    names: Vec<String>,
) -> Result<(), Failure> {
    let session = client.host.new_session_id();
    let entries_total = names.len() as u64;
    let opened = client.opened(shared, session, Some(EntryKind::Directory), (0, 0));
    let directory = |name: &String| Entry {
        path: name.as_bytes().to_vec(),
        kind: EntryKind::Directory,
        size: 0,
        mode: 0o755,
        mtime_s: 0,
        mtime_ns: 0,
    };
    let pages = names
        .chunks(PAGE_ENTRIES)
        .map(|names| Message::ListingPage(Page { entries: names.iter().map(directory).collect() }));
    let end = Message::ListingEnd(PagesEnd { entries_total, content_bytes: 0 });
    client.channel.send_all([opened].into_iter().chain(pages).chain([end])).await?;
    client.channel.close().await;
    Ok(())
}

/// Sends the parts of a listing as the walk finds them.
async fn answer(
    shared: &Shared,
    mut client: Client,
    object: EntryKind,
    mut parts: Parts,
) -> Result<(), Failure> {
    let session = client.host.new_session_id();
    // The number of entries is known only at the end.
    let opened = client.opened(shared, session, Some(object), (0, 0));
    client.channel.send(&opened).await?;
    let (last, ending) = loop {
        match parts.next(&mut client, shared).await? {
            Part::Begun(_) => unreachable!("a listing begins once"),
            Part::Said(messages) => client.channel.send_all(messages.into_iter()).await?,
            Part::Ended(end) => break (Message::ListingEnd(end), Ok(())),
            Part::Failed(Nothing { reason, text, failure, .. }) => {
                break (Message::fault(reason, text), Err(failure));
            }
        }
    };
    client.channel.send(&last).await?;
    client.channel.close().await;
    ending
}

/// A part of a listing. Parts come in the order of the variants.
enum Part {
    /// What the object is.
    Begun(EntryKind),
    /// Pages, and names that are left out, as messages for the client.
    Said(Vec<Message>),
    /// The end of a whole listing, with its sums.
    Ended(PagesEnd),
    /// The end of a listing that failed, perhaps in the middle.
    Failed(Nothing),
}

/// A listing under way. One part waits for the client, and the walk waits with the next one.
struct Parts {
    from: Receiver<Part>,
    /// The number of steps of the walk and of parts sent, which shows that the place is in use.
    progress: Arc<AtomicU64>,
}

impl Parts {
    fn begin(walks: &Arc<Walks>, path: Option<RelPath>, asker: Asker) -> Parts {
        let (to, from) = channel(1);
        let progress = Arc::new(AtomicU64::new(0));
        let (walks, walked) = (Arc::clone(walks), Arc::clone(&progress));
        // If there is no thread, the channel closes, which `next` reports.
        let _ = walks::spawn(move || {
            let _seat = asker.seat;
            let mut telling = Telling::of(to, Pace::begin(asker.party), walked);
            let names = walks.names(asker.holder);
            let last = match telling.walk(&walks, path.as_ref(), names) {
                Ok(end) => Part::Ended(end),
                Err(nothing) => Part::Failed(nothing),
            };
            telling.give(last);
        });
        Parts { from, progress }
    }

    async fn next(&mut self, client: &mut Client, shared: &Shared) -> Result<Part, Failure> {
        let progress = &self.progress;
        let part = wait(client, shared, self.from.recv(), || progress.load(Relaxed)).await?;
        client.seat.note(progress.fetch_add(1, Relaxed), shared.host.clock().now());
        Ok(part.unwrap_or_else(|| Part::Failed(Nothing::broken_off())))
    }
}

/// Entries in a page, so that a client that does not read costs some tens of kilobytes.
const PAGE_ENTRIES: usize = 256;
/// A page is full after this many bytes of paths.
const PAGE_PATHS: usize = 32 * 1024;
/// Names that are left out and sent together.
const TOLD_TOGETHER: usize = 64;

/// Walks through one level and gives what is there to a client, in parts.
struct Telling {
    to: Sender<Part>,
    pace: Pace,
    walked: Arc<AtomicU64>,
    page: Vec<Entry>,
    page_paths: usize,
    left_out: Vec<Message>,
    named: usize,
    unnamed: u64,
    paths: usize,
    sums: PagesEnd,
}

impl Telling {
    fn of(to: Sender<Part>, pace: Pace, walked: Arc<AtomicU64>) -> Telling {
        Telling {
            to,
            pace,
            walked,
            page: Vec::new(),
            page_paths: 0,
            left_out: Vec::new(),
            named: 0,
            unnamed: 0,
            paths: 0,
            sums: PagesEnd { entries_total: 0, content_bytes: 0 },
        }
    }

    fn walk(
        &mut self,
        walks: &Walks,
        path: Option<&RelPath>,
        names: NamesHeld,
    ) -> Result<PagesEnd, Nothing> {
        let lister = walks.export()?.lister(path, Depth::One, names);
        let mut lister = lister.map_err(Nothing::there)?;
        self.give(Part::Begun(wire_root(lister.kind())));
        while let Some(step) = lister.step() {
            match step.map_err(Nothing::there)? {
                Step::Entry(entry) => self.take(to_wire(&entry))?,
                Step::Skipped(name) if self.named < NAMED_MAX => {
                    self.named += 1;
                    self.left_out.push(skipped_fault(&name));
                }
                Step::Skipped(_) => self.unnamed += 1,
                Step::Nothing => {}
            }
            if self.is_full() {
                lister.rest();
                self.say();
            }
            if self.to.is_closed() {
                return Err(Nothing::there(SourceError::Unwanted));
            }
            self.walked.fetch_add(1, Relaxed);
            self.pace.step();
        }
        self.left_out.extend(skipped_more(self.unnamed));
        self.say();
        Ok(self.sums.clone())
    }

    fn take(&mut self, entry: Entry) -> Result<(), Nothing> {
        self.page_paths += entry.path.len();
        self.paths += entry.path.len();
        self.sums.entries_total += 1;
        self.sums.content_bytes = self.sums.content_bytes.saturating_add(entry.size);
        self.page.push(entry);
        let PagesEnd { entries_total, content_bytes } = self.sums;
        beyond(entries_total, self.paths, content_bytes).map_or(Ok(()), |text| {
            self.page.clear();
            Err(Nothing::beyond(text))
        })
    }

    fn is_full(&self) -> bool {
        self.page.len() >= PAGE_ENTRIES
            || self.page_paths >= PAGE_PATHS
            || self.left_out.len() >= TOLD_TOGETHER
    }

    /// Gives the page and the names left out so far.
    fn say(&mut self) {
        let mut messages = std::mem::take(&mut self.left_out);
        let entries = std::mem::take(&mut self.page);
        self.page_paths = 0;
        if !entries.is_empty() {
            messages.push(Message::ListingPage(Page { entries }));
        }
        if !messages.is_empty() {
            self.give(Part::Said(messages));
        }
    }

    /// Gives a part to the client. If the client has not taken the one before, this waits until it
    /// has, and others have their turns meanwhile.
    fn give(&mut self, part: Part) {
        if let Err(TrySendError::Full(part)) = self.to.try_send(part) {
            self.pace.rest();
            // If the client is gone, the walk ends soon.
            let _ = self.to.blocking_send(part);
        }
    }
}
