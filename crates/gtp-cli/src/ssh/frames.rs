//! What both ends of `gtp ssh` say to each other once a command is to run.
//!
//! One stream carries everything, as frames: a byte for the kind, the length of the content (u32),
//! the content. The standard streams, the command's end, and what stops being read are told apart
//! by the kind. docs/PROTOCOL.md, chapter 24, is the definition.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// Longest content of a frame: the longest word that Linux hands to a program.
pub const CONTENT_MOST: usize = 128 << 10;

/// Bytes of standard input that are under way, at most: they wait in the far end's memory for the
/// command, so that nothing else waits for it.
pub const INPUT_MOST: usize = 32 << 20;

/// The head of a frame: its kind, and the length of its content.
const HEAD: usize = 5;

/// One of the command's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Standard output.
    Out,
    /// Standard error.
    Error,
}

/// How a command has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With this exit code.
    Code(u8),
    /// By this signal.
    Signal(u8),
}

/// What a frame says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The command is to start; the near end says this first, and once.
    Start(Vec<u8>),
    /// Bytes of standard input.
    Input(Vec<u8>),
    /// Standard input has ended.
    InputEnd,
    /// Nobody reads this output any more.
    Unread(Output),
    /// Bytes of an output.
    Output(Output, Vec<u8>),
    /// So many bytes of standard input are under way no more.
    Taken(u32),
    /// The command reads no standard input any more.
    InputUnread,
    /// The command has ended, and all that it said has been told.
    End(End),
}

/// The bytes that name frames.
const START: u8 = b'S';
const INPUT: u8 = b'I';
const INPUT_END: u8 = b'Z';
const UNREAD: u8 = b'U';
const OUT: u8 = b'O';
const ERROR: u8 = b'E';
const TAKEN: u8 = b'T';
const INPUT_UNREAD: u8 = b'N';
const CODE: u8 = b'X';
const SIGNAL: u8 = b'K';

impl Frame {
    /// The frame as bytes; its content is [`CONTENT_MOST`] bytes at most.
    pub fn encode(&self) -> Vec<u8> {
        let few;
        let (kind, content) = match self {
            Frame::Start(command) => (START, &command[..]),
            Frame::Input(bytes) => (INPUT, &bytes[..]),
            Frame::InputEnd => (INPUT_END, &[][..]),
            Frame::Unread(Output::Out) => (UNREAD, &[OUT][..]),
            Frame::Unread(Output::Error) => (UNREAD, &[ERROR][..]),
            Frame::Output(Output::Out, bytes) => (OUT, &bytes[..]),
            Frame::Output(Output::Error, bytes) => (ERROR, &bytes[..]),
            Frame::Taken(bytes) => {
                few = bytes.to_be_bytes();
                (TAKEN, &few[..])
            }
            Frame::InputUnread => (INPUT_UNREAD, &[][..]),
            Frame::End(End::Code(code)) => (CODE, std::slice::from_ref(code)),
            Frame::End(End::Signal(signal)) => (SIGNAL, std::slice::from_ref(signal)),
        };
        debug_assert!(content.len() <= CONTENT_MOST, "a frame's content has a limit");
        let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let mut bytes = Vec::with_capacity(HEAD + content.len());
        bytes.push(kind);
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(content);
        bytes
    }

    fn decode(kind: u8, content: Vec<u8>) -> Option<Frame> {
        let frame = match (kind, &content[..]) {
            (START, _) => Frame::Start(content),
            (INPUT, [_, ..]) => Frame::Input(content),
            (INPUT_END, []) => Frame::InputEnd,
            (UNREAD, [OUT]) => Frame::Unread(Output::Out),
            (UNREAD, [ERROR]) => Frame::Unread(Output::Error),
            (OUT, [_, ..]) => Frame::Output(Output::Out, content),
            (ERROR, [_, ..]) => Frame::Output(Output::Error, content),
            (TAKEN, &[a, b, c, d]) => Frame::Taken(u32::from_be_bytes([a, b, c, d])),
            (INPUT_UNREAD, []) => Frame::InputUnread,
            (CODE, &[code]) => Frame::End(End::Code(code)),
            (SIGNAL, &[signal]) => Frame::End(End::Signal(signal)),
            _ => return None,
        };
        Some(frame)
    }
}

/// Reads the next frame; `None` at the end of the stream.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if what comes is no frame; what else reading says.
pub async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Frame>> {
    let mut head = [0; HEAD];
    if from.read(&mut head[..1]).await? == 0 {
        return Ok(None);
    }
    from.read_exact(&mut head[1..]).await?;
    let [kind, a, b, c, d] = head;
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    if length > CONTENT_MOST {
        return Err(no_frame());
    }
    let mut content = vec![0; length];
    from.read_exact(&mut content).await?;
    Frame::decode(kind, content).map(Some).ok_or_else(no_frame)
}

/// What comes breaks a rule of this exchange.
pub fn no_frame() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "what comes is no frame of gtp ssh")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_come_back_as_they_were() {
        let all = [
            Frame::Start(vec![]),
            Frame::Start(b"a \xff\0b".to_vec()),
            Frame::Input(vec![7; CONTENT_MOST]),
            Frame::InputEnd,
            Frame::Unread(Output::Out),
            Frame::Unread(Output::Error),
            Frame::Output(Output::Out, b"\n".to_vec()),
            Frame::Output(Output::Error, b"x".to_vec()),
            Frame::Taken(70_000),
            Frame::InputUnread,
            Frame::End(End::Code(255)),
            Frame::End(End::Signal(9)),
        ];
        let bytes: Vec<u8> = all.iter().flat_map(Frame::encode).collect();
        let mut from = &bytes[..];
        for frame in all {
            assert_eq!(read(&mut from).await.unwrap(), Some(frame));
        }
        assert_eq!(read(&mut from).await.unwrap(), None);
    }

    #[tokio::test]
    async fn what_is_no_frame_is_refused_before_memory_is_taken_for_it() {
        for bytes in [
            &b"q\0\0\0\0"[..],
            b"I\0\0\0\0",
            b"Z\0\0\0\x01x",
            b"U\0\0\0\x01Z",
            b"X\0\0\0\x02ab",
            b"T\0\0\0\x01a",
            b"I\xff\xff\xff\xff",
        ] {
            let error = read(&mut &bytes[..]).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{bytes:?}");
        }
        let cut = read(&mut &b"I\0\0\0\x05ab"[..]).await.unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
    }
}
