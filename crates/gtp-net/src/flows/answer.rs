//! Answers the question for roots at the end that has the bytes.
//!
//! A hash may take as long as reading the file, so the peer hears keepalives meanwhile.
//! Whoever asks has checked every block already; this is about the files as wholes.

use gtp_store::Value;

use super::{Failure, FileIndex, reason_of_source};
use crate::control::{ControlChannel, ControlError, KEEPALIVE_SPAN};
use crate::engine::SourceHandle;
use crate::messages::{Message, Roots, RootsPage, RootsWanted};

/// Computes the roots that were asked for and sends them; a failure to read is told too.
pub(crate) async fn answer_roots(
    channel: &mut ControlChannel,
    source: &SourceHandle,
    index: &FileIndex,
    wanted: &RootsWanted,
) -> Result<(), Failure> {
    let Some(entries) = index.entries(wanted.first_file, wanted.files) else {
        return Err(ControlError::Unexpected("a question for files that are not".into()).into());
    };
    let mut roots: Vec<Value> = Vec::with_capacity(entries.len());
    let mut keepalive = tokio::time::interval(KEEPALIVE_SPAN);
    // Entries between files are directories; runs of files are asked for at once.
    for run in entries.chunk_by(|a, b| a + 1 == *b) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
        let computing = source.roots(*first..last + 1);
        tokio::pin!(computing);
        let answer = loop {
            tokio::select! {
                answer = &mut computing => break answer,
                _ = keepalive.tick() => channel.send(&Message::Keepalive).await?,
            }
        };
        match answer {
            Ok(values) => roots.extend(values),
            Err(error) => {
                let fault = Message::fault(reason_of_source(&error), error.to_string());
                channel.send(&fault).await?;
                return Err(error.into());
            }
        }
    }
    let page = RootsPage { first_file: wanted.first_file, roots: Roots(roots) };
    channel.send(&Message::Roots(page)).await?;
    Ok(())
}
