//! The receiver of a group: frames to standard output as they are released.
//!
//! A frame is written as its parts one after another, each as long as `--frames` says: a part that
//! is shorter is filled up with zeros, and one that is missing is all zeros.

use std::time::Duration;

use gtp::in_step::{Gathering, Happened, Left, PART_HEAD, Released, SinkTerms};
use gtp::{Failure, FailureKind, Host, Span};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::report::Received;
use crate::args::StreamArgs;
use crate::output::aside;
use crate::verbs::stream;
use crate::words::{count, say_bytes};

/// How long a frame of several sources is held at most, if nobody says otherwise.
const DEADLINE: Duration = Duration::from_millis(500);

/// The same of one source, which says when frames are to be released: only a clock that is far off
/// comes to this.
const DEADLINE_OF_ONE: Duration = Duration::from_secs(10);

/// Zeros that are written at a time.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Gathers frames of so many parts until all sources have left.
///
/// # Errors
/// [`Failure`]; of kind `Temporary` if a source broke off and did not come again.
pub async fn receive(args: &StreamArgs, host: &Host, parts: u16) -> Result<(), Failure> {
    let part_bytes = args.frames.unwrap_or_default();
    stream::check_frame(part_bytes.saturating_add(PART_HEAD as u64))?;
    let span = |duration: Duration| Span::from_nanos(duration.as_nanos() as u64);
    let usual = if parts > 1 { DEADLINE } else { DEADLINE_OF_ONE };
    let terms = SinkTerms {
        parts,
        part_bytes,
        every: args.frame_every.map(span),
        deadline: span(args.group.deadline.unwrap_or(usual)),
    };
    // What cannot be is said before the port is taken.
    let frames_most = terms.frames_most()?;
    let gathering = stream::listening(args, host).await?.gather(host, terms)?;
    introduce(args, host, &gathering, &terms, frames_most);
    let mut report = Received::of(terms);
    let (gathering, ended) = gather(args, gathering, &mut report).await;
    report.tell(&gathering, args.frame_report.as_deref())?;
    let broke = (0..parts).find_map(|place| {
        let why = gathering.broke(place)?;
        Some(format!("part {} broke off: {why}", place + 1))
    });
    gathering.close().await;
    ended?;
    broke.map_or(Ok(()), |text| Err(Failure::new(FailureKind::Temporary, text)))
}

/// Says where it listens, and what it holds.
fn introduce(
    args: &StreamArgs,
    host: &Host,
    gathering: &Gathering,
    terms: &SinkTerms,
    frames_most: usize,
) {
    let address = gathering.address();
    let sources = count(u64::from(terms.parts), "source");
    aside(format_args!(
        "listening on {address} (TCP and UDP) for {sources}, {}",
        stream::whom(args)
    ));
    stream::say_who_is_missing(args);
    let held = frames_most as u64 * u64::from(terms.parts) * terms.part_bytes;
    aside(format_args!(
        "at most {} are held ({})",
        count(frames_most as u64, "frame"),
        say_bytes(held)
    ));
    let part = if terms.parts > 1 { " --part K" } else { "" };
    aside(format_args!(
        "elsewhere: gtp stream send gtp://HOST:{}/ --fingerprint {} --unreliable --frames {}B \
         --group {}{part}",
        address.port(),
        host.fingerprint(),
        terms.part_bytes,
        terms.parts
    ));
}

/// Writes frames to the end of the group, or as long as standard output takes them.
async fn gather(
    args: &StreamArgs,
    mut gathering: Gathering,
    report: &mut Received,
) -> (Gathering, Result<(), Failure>) {
    let mut output = match stream::output() {
        Ok(output) => output,
        Err(failure) => return (gathering, Err(failure)),
    };
    loop {
        match gathering.next().await {
            Err(failure) => return (gathering, Err(failure)),
            Ok(None) => break,
            Ok(Some(Happened::Frame { frame, at })) => {
                report.note(&frame, at);
                if args.group.whole && !frame.is_whole() {
                    continue;
                }
                if let Err(error) = write(&mut output, &frame, report.part_bytes()).await {
                    return (gathering, Err(stream::local(error)));
                }
            }
            Ok(Some(other)) => say(&other),
        }
    }
    let flushed = output.flush().await.map_err(stream::local);
    (gathering, flushed)
}

/// Tells people who comes and goes.
fn say(happened: &Happened) {
    match happened {
        Happened::Joined { place, peer, remote } => {
            aside(format_args!("part {}: {remote}, {peer}", place + 1));
        }
        Happened::Refused { remote, why } => aside(format_args!("{remote} was refused: {why}")),
        Happened::Begun(_) => aside(format_args!("all sources are there: the group begins")),
        Happened::Left { place, how } => match how {
            Left::Ended => aside(format_args!("part {} has ended", place + 1)),
            Left::Broke(why) => aside(format_args!("part {} broke off: {why}", place + 1)),
            Left::Replaced => aside(format_args!("part {} calls again", place + 1)),
        },
        Happened::Frame { .. } => {}
    }
}

/// Writes a frame: each part, filled up to its length.
async fn write(
    output: &mut (impl AsyncWrite + Unpin),
    frame: &Released<impl AsRef<[u8]>>,
    part_bytes: u64,
) -> std::io::Result<()> {
    for part in &frame.parts {
        let content = part.as_ref().map_or(&[][..], AsRef::as_ref);
        output.write_all(content).await?;
        let mut left = part_bytes.saturating_sub(content.len() as u64);
        while left > 0 {
            let zeros = &ZEROS[..left.min(ZEROS.len() as u64) as usize];
            output.write_all(zeros).await?;
            left -= zeros.len() as u64;
        }
    }
    output.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use gtp::Time;
    use gtp::in_step::Settled;

    #[tokio::test]
    async fn a_part_that_is_short_or_missing_is_filled_up_with_zeros() {
        let frame = Released {
            number: 0,
            parts: vec![Some(b"abc".to_vec()), None, Some(b"de".to_vec())],
            came: (Time::ZERO, Time::ZERO),
            settled: Settled::Due,
            absent: 0,
        };
        let mut out = Vec::new();
        write(&mut out, &frame, 3).await.unwrap();
        assert_eq!(out, b"abc\0\0\0de\0");
        let mut out = Vec::new();
        write(&mut out, &frame, 100_000).await.unwrap();
        assert_eq!(out.len(), 300_000);
    }
}
