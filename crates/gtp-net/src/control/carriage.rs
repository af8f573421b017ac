//! A control connection that carries its session's datagrams as well.
//!
//! From [`Message::Carry`](crate::messages::Message::Carry) on, frames with a datagram stand
//! between those of messages. A task owns the connection then: it parts what comes, and puts out
//! what the engine has between whole messages, which go first. The channel goes on with the
//! messages over a pipe and knows of nothing else. Nothing is believed here: what comes in a
//! datagram's frame is for the session's key to open, and what a message's frame says is for the
//! channel to judge.

use std::io;
use std::time::Duration;

use gtp_proto::wire::{HEADER_LEN, TAG_LEN};
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex,
    split,
};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_rustls::TlsStream;

use super::line::Shared;
use crate::engine::{CARRIED_MOST, Carrier};
use crate::messages::{DATAGRAM, LENGTH_BYTES, PAGE_FRAME_MAX};

/// No datagram is shorter: a header and a tag.
const CARRIED_LEAST: usize = HEADER_LEN + TAG_LEN;
/// Bytes of messages that wait in the pipe, in each direction.
const PIPE_BYTES: usize = 64 << 10;
/// Bytes that are read at a time: so much goes to the engine with one message, at most.
const READ_BYTES: usize = 64 << 10;
/// Bytes that wait in the socket and were never sent, at most: 2.6 ms at 100 Mbit/s.
const UNSENT_BYTES: u32 = 32 << 10;
/// Time for what is left once the channel has said its last word: the peer takes it, and ends the
/// connection as well.
const CLOSE_SPAN: Duration = Duration::from_secs(2);

/// Takes a connection over, of which `begun` is read already. Returns the channel's end of the pipe
/// for messages. It ends when either of the two does, whether the peer still reads or not.
pub(super) fn start(stream: TlsStream<TcpStream>, begun: Vec<u8>, carrier: Carrier) -> Shared {
    if let Err(error) = gtp_sys::tcp::limit_unsent(stream.get_ref().0, UNSENT_BYTES) {
        tracing::debug!(%error, "what waits in a socket cannot be limited");
    }
    let (pipe, far) = duplex(PIPE_BYTES);
    let (held, dropped) = oneshot::channel();
    tokio::spawn(run(stream, (far, dropped), begun, carrier));
    Shared { pipe, _held: held }
}

/// Moves bytes until either end is over. A peer that takes nothing holds up what is put out, but
/// not for longer than [`CLOSE_SPAN`] once the channel's end of the pipe has been `dropped`.
async fn run<S>(
    stream: S,
    (pipe, dropped): (DuplexStream, oneshot::Receiver<()>),
    begun: Vec<u8>,
    carrier: Carrier,
) where
    S: AsyncRead + AsyncWrite,
{
    let moving = move_both(stream, pipe, begun, &carrier);
    let mut moving = std::pin::pin!(moving);
    tokio::select! {
        () = &mut moving => {}
        _ = dropped => {
            if timeout(CLOSE_SPAN, moving).await.is_err() {
                tracing::debug!("a peer has not taken the last of what it was sent");
            }
        }
    }
}

async fn move_both<S>(stream: S, pipe: DuplexStream, begun: Vec<u8>, carrier: &Carrier)
where
    S: AsyncRead + AsyncWrite,
{
    let (from_peer, to_peer) = split(stream);
    let (from_channel, to_channel) = split(pipe);
    let coming = take_in(from_peer, to_channel, begun, carrier);
    let mut coming = std::pin::pin!(coming);
    tokio::select! {
        ended = &mut coming => note(ended),
        ended = put_out(to_peer, from_channel, carrier) => {
            note(ended);
            // The channel has said its last word; the peer may still answer.
            if let Ok(ended) = timeout(CLOSE_SPAN, coming).await {
                note(ended);
            }
        }
    }
}

fn note(ended: io::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a carrier has ended");
    }
}

/// Passes on what comes: messages to the channel, datagrams to the engine.
async fn take_in<S>(
    mut from: ReadHalf<S>,
    mut to: WriteHalf<DuplexStream>,
    begun: Vec<u8>,
    carrier: &Carrier,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite,
{
    let (mut arrived, mut parting) = (begun, Parting::default());
    loop {
        let Parted { messages, datagrams, ends } = parting.part(&mut arrived)?;
        if !ends.is_empty() {
            carrier.deliver(datagrams, ends).await;
        }
        to.write_all(&messages).await?;
        arrived.reserve(READ_BYTES);
        if from.read_buf(&mut arrived).await? == 0 {
            return to.shutdown().await;
        }
        // Bytes that are already there are handled together with these.
        while arrived.len() < READ_BYTES {
            match timeout(Duration::ZERO, from.read_buf(&mut arrived)).await {
                Ok(Ok(1..)) => {}
                Ok(Ok(0) | Err(_)) | Err(_) => break,
            }
        }
    }
}

/// Puts out the channel's messages, and between them the engine's datagrams, until the channel
/// ends.
async fn put_out<S>(
    mut to: WriteHalf<S>,
    mut from: ReadHalf<DuplexStream>,
    carrier: &Carrier,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite,
{
    let (mut messages, mut border) = (Vec::with_capacity(PIPE_BYTES), Border::default());
    loop {
        tokio::select! {
            biased;
            read = from.read_buf(&mut messages) => {
                if read? == 0 {
                    return to.shutdown().await;
                }
                border.pass(&messages);
                to.write_all(&messages).await?;
                messages.clear();
            }
            frames = carrier.next_frames(), if border.is_between() => to.write_all(&frames).await?,
        }
        to.flush().await?;
    }
}

/// Where frames end in bytes that pass by in pieces.
#[derive(Debug, Default)]
struct Border {
    /// Of the length at the beginning of a frame, what has passed.
    length: Vec<u8>,
    /// Bytes of a frame that are still to come.
    rest: usize,
}

impl Border {
    fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.rest == 0 {
                let (head, more) =
                    bytes.split_at(bytes.len().min(LENGTH_BYTES - self.length.len()));
                self.length.extend_from_slice(head);
                bytes = more;
                if let Ok(length) = <[u8; LENGTH_BYTES]>::try_from(&self.length[..]) {
                    self.rest = u32::from_be_bytes(length) as usize;
                    self.length.clear();
                }
            } else {
                let passed = bytes.len().min(self.rest);
                (self.rest, bytes) = (self.rest - passed, &bytes[passed..]);
            }
        }
    }

    /// Whether a frame has ended and none has begun.
    fn is_between(&self) -> bool {
        self.rest == 0 && self.length.is_empty()
    }
}

/// Parts frames of messages from frames with datagrams.
#[derive(Debug, Default)]
pub struct Parting {
    /// Bytes of a message's frame that are still to come.
    rest: usize,
}

/// What bytes from the peer consist of.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Parted {
    /// Frames of messages, or pieces of them, as they came.
    pub messages: Vec<u8>,
    /// Datagrams, one after the other.
    pub datagrams: Vec<u8>,
    /// Where each ends.
    pub ends: Vec<usize>,
}

impl Parting {
    /// Parts what has come, and leaves what is no whole datagram yet.
    ///
    /// # Errors
    /// If a frame is longer than any may be, or shorter than one of its kind can be.
    pub fn part(&mut self, arrived: &mut Vec<u8>) -> io::Result<Parted> {
        let (mut parted, mut taken) = (Parted::default(), 0);
        loop {
            let unread = arrived.get(taken..).unwrap_or_default();
            if self.rest > 0 {
                let passed = unread.len().min(self.rest);
                parted.messages.extend_from_slice(&unread[..passed]);
                (self.rest, taken) = (self.rest - passed, taken + passed);
                if self.rest > 0 {
                    break;
                }
                continue;
            }
            let Some((length, body)) = unread.split_first_chunk::<LENGTH_BYTES>() else { break };
            let Some(&kind) = body.first() else { break };
            let length = u32::from_be_bytes(*length) as usize;
            if kind != DATAGRAM {
                self.rest = LENGTH_BYTES + within(length, PAGE_FRAME_MAX)?;
                continue;
            }
            if length <= CARRIED_LEAST {
                return Err(invalid(format!("a datagram's frame of {length} bytes")));
            }
            let Some(frame) = body.get(..within(length, CARRIED_MOST + 1)?) else { break };
            parted.datagrams.extend_from_slice(&frame[1..]);
            parted.ends.push(parted.datagrams.len());
            taken += LENGTH_BYTES + length;
        }
        arrived.drain(..taken);
        Ok(parted)
    }
}

fn within(length: usize, most: usize) -> io::Result<usize> {
    if (1..=most).contains(&length) {
        return Ok(length);
    }
    let text = format!("a frame of {length} bytes where at most {most} are allowed");
    Err(invalid(text))
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::messages::Message;

    fn framed(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut frame = (body.len() as u32 + 1).to_be_bytes().to_vec();
        frame.push(kind);
        frame.extend_from_slice(body);
        frame
    }

    proptest! {
        #[test]
        fn frames_are_parted_in_order_however_they_are_cut(
            made in vec((any::<bool>(), vec(any::<u8>(), 0..50)), 0..20),
            cuts in vec(1_usize..40, 1..20),
        ) {
            let (mut stream, mut messages, mut datagrams) = (Vec::new(), Vec::new(), Vec::new());
            for (is_datagram, body) in &made {
                if *is_datagram {
                    let datagram = [&[7; CARRIED_LEAST][..], body].concat();
                    stream.extend(framed(DATAGRAM, &datagram));
                    datagrams.push(datagram);
                } else {
                    stream.extend(framed(12, body));
                    messages.extend(framed(12, body));
                }
            }
            let (mut parting, mut border, mut arrived) =
                (Parting::default(), Border::default(), Vec::new());
            let (mut parted_messages, mut parted_datagrams) = (Vec::new(), Vec::new());
            let (mut cuts, mut rest) = (cuts.iter().cycle(), &stream[..]);
            while !rest.is_empty() {
                let (piece, more) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
                rest = more;
                border.pass(piece);
                arrived.extend_from_slice(piece);
                let Parted { messages, datagrams, ends } = parting.part(&mut arrived).unwrap();
                parted_messages.extend(messages);
                let begins = std::iter::once(&0).chain(&ends);
                let each = begins.zip(&ends).map(|(&from, &to)| datagrams[from..to].to_vec());
                parted_datagrams.extend(each);
            }
            prop_assert!(arrived.is_empty() && border.is_between());
            prop_assert_eq!(parted_messages, messages);
            prop_assert_eq!(parted_datagrams, datagrams);
        }
    }

    #[test]
    fn frames_longer_than_any_may_be_end_the_connection_before_they_are_there() {
        let part = |bytes: &[u8]| Parting::default().part(&mut bytes.to_vec());
        let head = |length: u32, kind: u8| [&length.to_be_bytes()[..], &[kind]].concat();
        assert!(part(&head(CARRIED_MOST as u32 + 2, DATAGRAM)).is_err());
        assert!(part(&head(CARRIED_MOST as u32 + 1, DATAGRAM)).is_ok());
        assert!(part(&head(PAGE_FRAME_MAX as u32 + 1, 8)).is_err());
        assert!(part(&head(0, DATAGRAM)).is_err() && part(&head(0, 12)).is_err());
    }

    #[test]
    fn a_datagram_too_short_for_header_and_tag_ends_the_connection() {
        let part = |length| Parting::default().part(&mut framed(DATAGRAM, &vec![0; length]));
        assert!(part(CARRIED_LEAST - 1).is_err() && part(0).is_err());
        assert_eq!(part(CARRIED_LEAST).unwrap().ends, [CARRIED_LEAST]);
    }

    #[tokio::test]
    async fn it_ends_though_the_peer_takes_nothing_once_the_channel_is_dropped() {
        let (ours, theirs) = duplex(1 << 10);
        let (mut pipe, far) = duplex(PIPE_BYTES);
        let (held, dropped) = oneshot::channel();
        let mut task = tokio::spawn(run(ours, (far, dropped), Vec::new(), Carrier::alone()));
        // More than the connection takes, so that its last bytes wait in the pipe.
        pipe.write_all(&framed(12, &[0; 2 * PIPE_BYTES - 8])).await.unwrap();
        assert!(timeout(CLOSE_SPAN / 2, &mut task).await.is_err(), "the session goes on");
        drop((pipe, held));
        timeout(2 * CLOSE_SPAN, task).await.expect("it ends").unwrap();
        drop(theirs);
    }

    #[test]
    fn a_message_that_has_begun_ends_before_a_datagram_may_follow() {
        let frame = Message::Keepalive.to_frame().unwrap();
        let mut border = Border::default();
        for byte in &frame[..frame.len() - 1] {
            border.pass(&[*byte]);
            assert!(!border.is_between());
        }
        border.pass(&frame[frame.len() - 1..]);
        assert!(border.is_between());
    }
}
