//! What a server is told of an object before anything moves: its listing, and values of its blocks.
//!
//! It only puts into messages what is known already. Which values are worth saying, and what the
//! server makes of them, is decided elsewhere.

use gtp_store::{Manifest, RelPath, RootKind, Value};

use crate::control::ControlChannel;
use crate::flows::{Failure, to_messages, unnamed_file};
use crate::messages::{BlockValues, Message, ROOTS_PER_PAGE, Roots};

/// Values of blocks, in messages that may be sent.
pub(super) fn block_values(
    values: &[(RelPath, Vec<Value>)],
) -> impl Iterator<Item = Message> + Send + '_ {
    values.iter().flat_map(|(path, values)| {
        (0_u64..).zip(values.chunks(ROOTS_PER_PAGE)).map(move |(page, values)| {
            Message::BlockValues(BlockValues {
                path: path.as_str().as_bytes().to_vec(),
                first: page * ROOTS_PER_PAGE as u64,
                values: Roots(values.to_vec()),
            })
        })
    })
}

/// Tells the server what the object is made of.
pub(super) async fn send_manifest(
    channel: &mut ControlChannel,
    manifest: &Manifest,
) -> Result<(), Failure> {
    let messages: Box<dyn Iterator<Item = Message> + Send + '_> = match manifest.root_kind {
        RootKind::File => Box::new(unnamed_file(manifest)),
        RootKind::Dir => Box::new(to_messages(manifest)),
    };
    Ok(channel.send_all(messages).await?)
}
