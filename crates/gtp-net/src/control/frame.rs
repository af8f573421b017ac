//! Frames on a stream: what has come in but is no whole message yet, and what must go out whole.
//!
//! Lengths come from the peer, so a frame's limit is checked before its bytes are awaited. What a
//! frame means is not known here.

use std::fmt;
use std::pin::Pin;

use gtp_alloc::{Bucket, Span};
use gtp_sys::{Clock, clock};
use tokio::io::{self, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Sleep, sleep, timeout};

use super::{ControlError, FRAME_SPAN, SILENCE_SPAN};
use crate::messages::{LENGTH_BYTES, Malformed, Message, frame_limit};

/// Bytes asked for at a time: one TLS record.
const READ_BYTES: usize = 16 * 1024;

/// Memory kept between messages.
const KEEP_BYTES: usize = 64 * 1024;

/// Messages are written together until they are this long, as long as a TLS record.
const TOGETHER_BYTES: usize = 16 * 1024;

/// The receiving side.
///
/// Its memory follows what has really arrived, never what a length claims; its clock runs from
/// a frame's first byte, or from the last message while there is none, and is not set back when
/// a wait is abandoned.
pub(super) struct Inbox {
    arrived: Vec<u8>,
    /// How much of `arrived` has been taken off. It is moved away once for each read, not for each
    /// frame: a flood of tiny frames costs no more than its bytes.
    taken: usize,
    frame_max: usize,
    patience: Option<Patience>,
    /// Messages that cost the peer nothing, against how many may come.
    idle_words: Bucket,
    clock: Clock,
    /// Nothing is taken off before this is over: there were too many of them.
    rest: Option<Pin<Box<Sleep>>>,
}

/// Idle words that are heard in a second, and at once. An honest peer says a keepalive in a second
/// at most, that it hears nothing as rarely, and chooses its units a few times; a flood waits in
/// the peer's own memory.
const IDLE_WORDS: Bucket = Bucket::new(10, 100);

struct Patience {
    end: Pin<Box<Sleep>>,
    for_what: &'static str,
}

impl Inbox {
    pub(super) fn new(frame_max: usize) -> Inbox {
        let (idle_words, clock) = (IDLE_WORDS, Clock::start());
        let arrived = Vec::new();
        Inbox { arrived, taken: 0, frame_max, patience: None, idle_words, clock, rest: None }
    }

    pub(super) fn set_frame_max(&mut self, frame_max: usize) {
        self.frame_max = frame_max;
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.arrived.capacity()
    }

    /// The next message but keepalives.
    pub(super) async fn next<R: AsyncRead + Unpin>(
        &mut self,
        from: &mut R,
    ) -> Result<Message, ControlError> {
        loop {
            match self.next_sign(from).await? {
                Message::Keepalive => {}
                message => return Ok(message),
            }
        }
    }

    /// The next message, keepalives too.
    pub(super) async fn next_sign<R: AsyncRead + Unpin>(
        &mut self,
        from: &mut R,
    ) -> Result<Message, ControlError> {
        loop {
            if let Some(rest) = &mut self.rest {
                rest.await;
                self.rest = None;
            }
            match self.take_message()? {
                Some(message) => {
                    if matches!(
                        message,
                        Message::Keepalive | Message::UnitChoice(_) | Message::Unheard
                    ) {
                        self.count_idle_word();
                    }
                    return Ok(message);
                }
                None => self.read_more(from).await?,
            }
        }
    }

    fn count_idle_word(&mut self) {
        let wait = self.idle_words.debit(self.clock.now(), 1);
        self.rest = (wait > Span::ZERO).then(|| Box::pin(sleep(clock::duration(wait))));
    }

    /// Takes a whole frame off, if there is one. Its length and type are judged as soon as they
    /// are there.
    fn take_message(&mut self) -> Result<Option<Message>, ControlError> {
        let unread = self.arrived.get(self.taken..).unwrap_or_default();
        let Some((length, rest)) = unread.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length) as usize;
        let limit = match rest.first() {
            Some(&kind) => frame_limit(kind)?.min(self.frame_max),
            None => self.frame_max,
        };
        if length == 0 || length > limit {
            return Err(Malformed::Length { length: length as u64, limit }.into());
        }
        let Some(frame) = rest.get(..length) else { return Ok(None) };
        let message = Message::parse(frame)?;
        self.taken += LENGTH_BYTES + length;
        if self.taken == self.arrived.len() {
            self.forget_taken();
        }
        self.patience = None;
        Ok(Some(message))
    }

    /// What has come behind the last message.
    pub(super) fn take_rest(&mut self) -> Vec<u8> {
        self.forget_taken();
        self.patience = None;
        std::mem::take(&mut self.arrived)
    }

    fn forget_taken(&mut self) {
        if self.taken == 0 {
            return;
        }
        self.arrived.drain(..self.taken);
        self.taken = 0;
        if self.arrived.capacity() > KEEP_BYTES {
            self.arrived.shrink_to(KEEP_BYTES);
        }
    }

    async fn read_more<R: AsyncRead + Unpin>(&mut self, from: &mut R) -> Result<(), ControlError> {
        self.forget_taken();
        let frame_begun = !self.arrived.is_empty();
        let patience = self.patience.get_or_insert_with(|| Patience::for_state(frame_begun));
        self.arrived.reserve(READ_BYTES);
        let read = tokio::select! {
            biased;
            read = from.read_buf(&mut self.arrived) => read.map_err(ControlError::Lost)?,
            () = &mut patience.end => return Err(ControlError::TimedOut(patience.for_what)),
        };
        if read == 0 {
            return Err(if frame_begun {
                ControlError::Lost(io::ErrorKind::UnexpectedEof.into())
            } else {
                ControlError::Closed
            });
        }
        if !frame_begun {
            self.patience = None;
        }
        Ok(())
    }
}

impl Patience {
    fn for_state(frame_begun: bool) -> Patience {
        let (span, for_what) = if frame_begun {
            (FRAME_SPAN, "the rest of a message")
        } else {
            (SILENCE_SPAN, "a sign of life from the peer")
        };
        Patience { end: Box::pin(sleep(span)), for_what }
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inbox({} bytes of at most {})", self.arrived.len(), self.frame_max)
    }
}

/// The sending side: it remembers whether a frame was cut short.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    cut_short: bool,
}

impl Outbox {
    /// Whether a message was given up before its end.
    pub(super) fn is_cut_short(&self) -> bool {
        self.cut_short
    }

    pub(super) async fn send<W: AsyncWrite + Unpin>(
        &mut self,
        to: &mut W,
        message: &Message,
    ) -> Result<(), ControlError> {
        self.write(to, &message.to_frame()?).await
    }

    /// Sends messages in few writes: short ones leave together, or not at all if one of them may
    /// not be sent.
    pub(super) async fn send_all<W: AsyncWrite + Unpin>(
        &mut self,
        to: &mut W,
        mut messages: impl Iterator<Item = Message>,
    ) -> Result<(), ControlError> {
        loop {
            let frames = next_frames(&mut messages)?;
            if frames.is_empty() {
                return Ok(());
            }
            self.write(to, &frames).await?;
        }
    }

    async fn write<W: AsyncWrite + Unpin>(
        &mut self,
        to: &mut W,
        frames: &[u8],
    ) -> Result<(), ControlError> {
        if self.cut_short {
            let why = "an earlier message was not sent to its end";
            return Err(ControlError::Lost(io::Error::other(why)));
        }
        self.cut_short = true;
        let writing = async {
            to.write_all(frames).await?;
            to.flush().await
        };
        timeout(FRAME_SPAN, writing)
            .await
            .map_err(|_| ControlError::TimedOut("the peer to take a message"))?
            .map_err(ControlError::Lost)?;
        self.cut_short = false;
        Ok(())
    }
}

/// The frames of the next messages, until they are long enough to be written; none at the end.
fn next_frames(messages: &mut impl Iterator<Item = Message>) -> Result<Vec<u8>, ControlError> {
    let mut frames = Vec::new();
    while frames.len() < TOGETHER_BYTES {
        let Some(message) = messages.next() else { break };
        frames.extend_from_slice(&message.to_frame()?);
    }
    Ok(frames)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{FRAME_MAX, Fault, PATH_MAX, PeerText, Reason};

    #[test]
    fn frames_that_came_together_are_taken_off_without_moving_the_rest_each_time() {
        let frame = Message::Keepalive.to_frame().unwrap();
        let mut inbox = Inbox::new(FRAME_MAX);
        let whole = 2_000 * frame.len();
        for _ in 0..2_000 {
            inbox.arrived.extend_from_slice(&frame);
        }
        for taken in 1..2_000 {
            assert_eq!(inbox.take_message().unwrap(), Some(Message::Keepalive));
            assert_eq!((inbox.taken, inbox.arrived.len()), (taken * frame.len(), whole));
        }
        assert_eq!(inbox.take_message().unwrap(), Some(Message::Keepalive));
        assert!(inbox.arrived.is_empty() && inbox.take_message().unwrap().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn keepalives_beyond_their_number_wait_and_so_does_what_is_behind_them() {
        let mut inbox = Inbox::new(FRAME_MAX);
        for _ in 0..102 {
            inbox.arrived.extend_from_slice(&Message::Keepalive.to_frame().unwrap());
        }
        inbox.arrived.extend_from_slice(&Message::Cancel.to_frame().unwrap());
        let begun = tokio::time::Instant::now();
        let mut nobody = io::empty();
        for _ in 0..100 {
            assert_eq!(inbox.next_sign(&mut nobody).await.unwrap(), Message::Keepalive);
        }
        assert!(begun.elapsed().is_zero(), "so many may come at once");
        // Waiting may be abandoned and taken up again.
        let short = timeout(std::time::Duration::from_millis(50), inbox.next(&mut nobody)).await;
        assert!(short.is_err());
        assert_eq!(inbox.next(&mut nobody).await.unwrap(), Message::Cancel);
        // The words' clock is the real one: rests of one, two and three tenths of a second.
        let ms = begun.elapsed().as_millis();
        assert!((100..=600).contains(&ms), "{ms}");
    }

    #[tokio::test]
    async fn short_messages_leave_together_and_all_in_their_order() {
        let short = Message::Keepalive;
        let long = Message::fault(Reason::Other, "a".repeat(200));
        let (length, longer) = (short.to_frame().unwrap().len(), long.to_frame().unwrap().len());
        let longs = TOGETHER_BYTES.div_ceil(longer);
        let all = || (0..longs).map(|_| long.clone()).chain([short.clone(), short.clone()]);
        let mut rest = all();
        let lengths = [(); 3].map(|()| next_frames(&mut rest).unwrap().len());
        assert_eq!(lengths, [longs * longer, 2 * length, 0]);
        let (mut outbox, mut inbox) = (Outbox::default(), Inbox::new(FRAME_MAX));
        outbox.send_all(&mut inbox.arrived, all()).await.unwrap();
        for message in all() {
            assert_eq!(inbox.take_message().unwrap(), Some(message));
        }
        assert!(inbox.arrived.is_empty());
    }

    #[tokio::test]
    async fn what_was_to_leave_with_a_message_that_may_not_be_sent_is_not_sent_either() {
        let path = Some(vec![b'a'; PATH_MAX + 1]);
        let fault = Fault { reason: Reason::Other, text: PeerText::new("x"), path };
        let all = [Message::Keepalive, Message::Fault(fault)].into_iter();
        let mut sent = Vec::new();
        let outcome = Outbox::default().send_all(&mut sent, all).await;
        assert!(matches!(outcome, Err(ControlError::Malformed(_))), "{outcome:?}");
        assert!(sent.is_empty());
    }
}
