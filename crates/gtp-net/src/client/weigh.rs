//! What an object weighs, without fetching it.
//!
//! The server lists the object as for a `get`, and hears that nothing of it is needed. So it counts
//! exactly what a `get` would move, needs the same right, and no datagram is sent.

use gtp_proto::limits::UNIT_ETHERNET;
use gtp_proto::wire::DATA_OVERHEAD;
use gtp_store::{BLOCK, Kind, RootKind, TRAILER};
use tokio::time::timeout;

use super::connect::{Units, ask, describe, reach};
use super::{Endpoint, Terms, Url};
use crate::control::{ANSWER_SPAN, ControlError};
use crate::flows::Failure;
use crate::messages::{Done, Message, Verb};

/// What an object consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight {
    /// A file or a directory.
    pub kind: RootKind,
    /// Files in it.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Asks a server what an object weighs.
///
/// # Errors
/// As for a `get` of it that does not begin.
pub async fn weigh(endpoint: &Endpoint, url: &Url, terms: &Terms) -> Result<Weight, Failure> {
    let weighing = async {
        let channel = reach(endpoint, url, terms).await?;
        let verb = Verb::Get { path: url.path().to_vec() };
        let on = (terms, Units::Ordinary);
        let mut granted = ask(channel, endpoint, url, verb, on, &|| {}).await?;
        let manifest = describe(&mut granted, &terms.listings, |_| {}).await?.manifest;
        let files = manifest.entries.iter().filter(|entry| entry.kind == Kind::File).count();
        let (kind, bytes) = (manifest.root_kind, manifest.content_bytes());
        let mut channel = granted.channel;
        // Whether it is heard changes nothing here.
        if channel.send(&Message::Done(Done::NOTHING)).await.is_ok() {
            channel.close().await;
        }
        Ok(Weight { kind, files: files as u64, bytes })
    };
    timeout(ANSWER_SPAN, weighing).await.map_err(|_| ControlError::TimedOut("the listing"))?
}

/// Bytes of IP packets that carry so many bytes of content in units of the ordinary length, over
/// IPv4 and without loss: what rates and capacities count. Files that are shorter than a block
/// take a little more.
pub const fn wire_bytes(content: u64) -> u64 {
    let trailers = content.div_ceil(BLOCK).saturating_mul(TRAILER as u64);
    let units = content.saturating_add(trailers).div_ceil(UNIT_ETHERNET as u64);
    let heads = units.saturating_mul(DATA_OVERHEAD as u64 + IP_AND_UDP);
    content.saturating_add(trailers).saturating_add(heads)
}

/// Bytes of the headers of IPv4 and UDP.
const IP_AND_UDP: u64 = 28;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_takes_some_more_bytes_on_the_wire_than_it_has() {
        assert_eq!(wire_bytes(0), 0);
        assert_eq!(wire_bytes(1), 1 + 32 + 77);
        // A full block and its trailer are 188 units, the last one short.
        assert_eq!(wire_bytes(BLOCK), BLOCK + 32 + 188 * 77);
        let part = wire_bytes(1 << 30) as f64 / (1u64 << 30) as f64;
        assert!((1.05..1.06).contains(&part), "{part}");
        assert!(wire_bytes(u64::MAX) == u64::MAX);
    }
}
