//! A tree at a far end that the near end follows: the far end watches it and tells of changes.
//!
//! Both send messages in JSON over ssh's pipe. A message says that something may have changed, not
//! what, and sometimes nothing has.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::tunnel::{Frame, Links};
use crate::sync::{LONGEST_WAIT, Watched};
use crate::verbs::other;

/// What the near end asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// To watch what was found.
    Watch,
}

/// What the far end tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    /// The tree may have changed.
    Changed,
    /// It is not watched at present, for this reason.
    Unwatched(String),
}

impl Ask {
    /// The message as bytes of a frame.
    pub fn encode(self) -> Vec<u8> {
        serde_json::to_vec(&self).unwrap_or_default()
    }

    /// Reads one; `None` if it is none.
    pub fn decode(bytes: &[u8]) -> Option<Ask> {
        serde_json::from_slice(bytes).ok()
    }
}

impl Told {
    fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads one; `None` if it is none.
    pub fn decode(bytes: &[u8]) -> Option<Told> {
        serde_json::from_slice(bytes).ok()
    }
}

/// Watches a directory or file and tells of changes. Never ends.
pub async fn tell_changes(root: PathBuf, links: Links) {
    let say = async |told: Told| links.say(&Frame::Message(told.encode())).await;
    loop {
        let place = root.clone();
        // It looks at each directory of the tree.
        let beginning = spawn_blocking(move || Watched::begin(&place)).await;
        let watched = match beginning.map_err(other).and_then(|begun| begun) {
            Ok(watched) => watched,
            Err(failure) => {
                say(Told::Unwatched(failure.text)).await;
                // The system does not say when it would watch again: each such look is a try.
                sleep(LONGEST_WAIT).await;
                continue;
            }
        };
        // It may have changed before it was watched.
        say(Told::Changed).await;
        while watched.lost(&root).is_none() {
            watched.settled().await;
            say(Told::Changed).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_as_they_were_and_others_are_none() {
        assert_eq!(Ask::decode(&Ask::Watch.encode()), Some(Ask::Watch));
        for told in [Told::Changed, Told::Unwatched("a \" reason".into())] {
            assert_eq!(Told::decode(&told.encode()), Some(told));
        }
        for other in [&b""[..], b"{}", b"\"other\"", b"\xff"] {
            assert!(Ask::decode(other).is_none() && Told::decode(other).is_none());
        }
    }
}
