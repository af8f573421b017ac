//! What a server asks of a put's client and tells it, without a network.
//!
//! Files are asked for in bounded steps, what cannot be written is named up to a bound, and an
//! opening that nobody waits for stops. These tests must not need a connection.

use std::sync::mpsc;

use gtp_alloc::{Bytes, Rate};
use gtp_store::{DiscardSink, Finished, Mode, Mtime, RootKind};

use super::*;
use crate::engine::{Host, HostConfig};

/// Photos, each beside a note that is named before it.
fn album(photos: u32) -> Arc<Manifest> {
    let entry = |name: String, size| Entry {
        path: RelPath::new(&name).unwrap(),
        kind: Kind::File,
        size,
        mode: Mode::new(0o644),
        mtime: Mtime::new(0, 0).unwrap(),
    };
    let pair = |n| [entry(format!("{n:05}.jpg"), 2 * BLOCK), entry(format!("{n:05}.json"), 1)];
    let entries = (0..photos).flat_map(pair).collect();
    Arc::new(Manifest { root_kind: RootKind::Dir, own: None, entries })
}

/// A session that receives this and discards it.
fn taking(manifest: Arc<Manifest>) -> Taking<'static> {
    let unlimited = Rate::UNLIMITED;
    let host = Host::start(HostConfig {
        capacity_out: unlimited,
        capacity_in: unlimited,
        interval: None,
        memory: Bytes(1 << 20),
        engines: 1,
    });
    Taking {
        transfer: host.unwrap().open_transfer(TransferOpen {
            sink: Box::new(DiscardSink::new(Arc::clone(&manifest))),
            manifest: Arc::clone(&manifest),
            roots: RootPolicy::TrustTrailers,
        }),
        flow: 0,
        path_questions: PathQuestions::default(),
        index: FileIndex::of(&manifest),
        waiting: manifest.entries.iter().map(|e| e.size > BLOCK).collect(),
        manifest,
        renewed: BTreeSet::new(),
        questions: Questions::default(),
        answer_by: None,
        refused: Vec::new(),
        refused_total: 0,
        lost_bytes: 0,
        files: 0,
        room: None,
        relaying: None,
    }
}

#[tokio::test]
async fn files_that_are_asked_for_one_by_one_are_not_all_asked_for_before_one_is_answered() {
    let mut taking = taking(album(2_000));
    taking.handle(Some(TransferEvent::AllBlocks)).ok().unwrap();
    let at_first = taking.questions.due().count() as u64;
    assert!((1..1_000).contains(&at_first), "{at_first}");
    for photo in 0..2_000 {
        assert!(taking.answer_by.is_some());
        taking.take_roots(2 * photo, &[[0; 32]]);
        let more = u64::from(photo + at_first < 2_000);
        assert_eq!(taking.questions.due().count() as u64, more, "{photo}");
    }
    assert!(taking.answer_by.is_none(), "all are answered");
}

#[tokio::test]
async fn entries_that_cannot_be_written_are_named_to_the_client_up_to_a_bound_and_counted() {
    let mut taking = taking(album(600));
    for file in 0..1_200 {
        let why = Some(SinkError::Stopped);
        taking.handle(Some(TransferEvent::GivenUp { file, why })).ok().unwrap();
    }
    let finished = Finished { files_written: 0, files_unchanged: 0, bytes_written: 0, root: None };
    let done = taking.handle(Some(TransferEvent::Complete(finished))).ok().unwrap().unwrap();
    assert_eq!((done.files, done.content_bytes), (0, 0));
    assert_eq!(taking.refused.len(), 901);
    let Some(Message::Fault(last)) = taking.refused.last() else { panic!("no fault") };
    assert!(last.text.to_string().contains("300 more"), "{}", last.text);
}

#[tokio::test]
async fn an_opening_that_nobody_waits_for_is_stopped_and_holds_its_share_to_its_end() {
    let (go_on, allowed) = mpsc::channel::<()>();
    let (tell, told) = tokio::sync::oneshot::channel();
    let share = Arc::new(());
    let opening = Opening::begin(Arc::clone(&share), move |recheck: Arc<Recheck>| {
        let _ = allowed.recv();
        tell.send(recheck.go_on()).unwrap();
    });
    drop(opening);
    assert_eq!(Arc::strong_count(&share), 2);
    drop(go_on);
    assert!(matches!(told.await.unwrap(), Err(SinkError::Stopped)));
}
