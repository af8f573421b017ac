//! The last word of a server that writes a stream to a file: whether the file is in place.
//!
//! It is all that the server says in its own stream, and comes once the file has its name or
//! cannot get it. An end without a verdict is a connection that broke.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::messages::{PeerText, TEXT_MAX};

/// What has become of a file that a stream was to be written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is whole, and has its name.
    InPlace,
    /// Nothing was kept, for this reason.
    Failed(String),
}

const IN_PLACE: u8 = 0;
const FAILED: u8 = 1;

impl Verdict {
    /// The verdict on an attempt to write the file.
    pub fn of(placed: &io::Result<()>) -> Verdict {
        match placed {
            Ok(()) => Verdict::InPlace,
            Err(error) => Verdict::Failed(error.to_string()),
        }
    }

    /// The verdict as bytes.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Verdict::InPlace => vec![IN_PLACE],
            Verdict::Failed(why) => {
                [&[FAILED], PeerText::new(why.as_str()).to_string().as_bytes()].concat()
            }
        }
    }

    /// Hears a verdict, up to the end of what the peer says.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] if the peer says none, [`io::ErrorKind::InvalidData`] if
    /// what it says is none, and what reading says.
    pub async fn hear(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Verdict> {
        let mut said = Vec::new();
        from.take(1 + TEXT_MAX as u64).read_to_end(&mut said).await?;
        match said.split_first() {
            Some((&IN_PLACE, [])) => Ok(Verdict::InPlace),
            Some((&FAILED, why)) => {
                Ok(Verdict::Failed(gtp_text::of_message(&String::from_utf8_lossy(why))))
            }
            Some(_) => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "what it says is no verdict"))
            }
            None => {
                let text = "it has not said what became of the file";
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, text))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn heard(bytes: &[u8]) -> io::Result<Verdict> {
        Verdict::hear(&mut &bytes[..]).await
    }

    #[tokio::test]
    async fn a_verdict_is_heard_as_it_was_said_and_nothing_else_is_one() {
        let failed = Verdict::Failed("no space".into());
        for verdict in [Verdict::InPlace, failed] {
            assert_eq!(heard(&verdict.encode()).await.unwrap(), verdict);
        }
        let kind = |bytes: &'static [u8]| async move { heard(bytes).await.unwrap_err().kind() };
        assert_eq!(kind(b"").await, io::ErrorKind::UnexpectedEof);
        assert_eq!(kind(b"\0x").await, io::ErrorKind::InvalidData);
        assert_eq!(kind(b"\x02").await, io::ErrorKind::InvalidData);
    }

    #[tokio::test]
    async fn a_long_and_hostile_reason_is_cut_and_escaped() {
        let said = [&[FAILED][..], "\u{1b}[2J".repeat(10_000).as_bytes()].concat();
        let Ok(Verdict::Failed(why)) = heard(&said).await else { panic!("no verdict") };
        assert!(why.chars().all(gtp_text::is_plain) && why.len() < 8 * TEXT_MAX, "{why}");
    }
}
