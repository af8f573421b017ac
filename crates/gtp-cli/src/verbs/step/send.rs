//! The sender of a group: frames of standard input to one receiver, or to several at once.
//!
//! A receiver that is gone is left out, and the others go on. How the command ends says whether
//! all have got everything.

use gtp::in_step::{After, PART_HEAD, Picture, Sending, SinkEnd, SourceTerms, sending};
use gtp::{Failure, FailureKind, FrameStream, Host, Span, Url};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinSet;

use super::report::{Said, named, say_after};
use crate::args::StreamArgs;
use crate::output::aside;
use crate::verbs::stream;

/// Sends frames of so many parts until standard input ends.
///
/// # Errors
/// [`Failure`]; of kind `Partial` if some receivers have got all and others are gone.
pub async fn send(args: &StreamArgs, host: &Host, parts: u16) -> Result<(), Failure> {
    let part_bytes = args.frames.unwrap_or_default();
    stream::check_frame(part_bytes.saturating_add(PART_HEAD as u64))?;
    let place = args.group.part.unwrap_or(1) - 1;
    let picture = Picture::new(place, parts, part_bytes);
    let picture = picture.ok_or_else(|| usage("there is no such part"))?;
    let shown: Vec<String> = args.urls.iter().map(Url::to_string).collect();
    let streams = connect(args, host, picture).await?;
    let terms = SourceTerms {
        picture,
        every: args.frame_every.map(|every| Span::from_nanos(every.as_nanos() as u64)),
        after: args.group.release_after.unwrap_or(After::Whole),
    };
    let mut sending = sending(host, streams, terms)?;
    aside(format_args!("connected; the group begins when all sources are there"));
    sending.begun().await?;
    say_after(&sending);
    let mut said = Said { frames: 0, skipped: 0 };
    let read = say(tokio::io::stdin(), part_bytes, &mut sending, &mut said).await;
    let after = sending.after();
    // What cannot be read has no end: dropping it breaks the connections off.
    let ends = match &read {
        Ok(()) => sending.finish().await,
        Err(_) => sending.sinks(),
    };
    let ends = named(&shown, &ends);
    said.tell(&ends, after, args.frame_report.as_deref())?;
    read?;
    judge(&ends)
}

/// Connects to all receivers at once.
async fn connect(
    args: &StreamArgs,
    host: &Host,
    picture: Picture,
) -> Result<Vec<FrameStream>, Failure> {
    let mut connecting = JoinSet::new();
    for (number, url) in args.urls.iter().enumerate() {
        if !url.path().is_empty() {
            return Err(usage("an address of a group has no path"));
        }
        let calling = stream::calling(args, url.clone())?;
        let (host, delivery) = (host.clone(), stream::delivery(args));
        connecting
            .spawn(async move { (number, calling.start_in_step(&host, picture, delivery).await) });
    }
    let mut streams: Vec<Option<FrameStream>> = args.urls.iter().map(|_| None).collect();
    while let Some(connected) = connecting.join_next().await {
        let (number, connected) = connected.map_err(crate::verbs::other)?;
        let connected = connected
            .map_err(|failure| stream::of_the_far_end(failure).about(&args.urls[number]))?;
        stream::say_if_carried(&connected.line);
        streams[number] = Some(connected);
    }
    Ok(streams.into_iter().flatten().collect())
}

/// Sends frames to the reader's end; what is left then makes the last one.
async fn say(
    mut from: impl AsyncRead + Unpin,
    bytes: u64,
    sending: &mut Sending,
    said: &mut Said,
) -> Result<(), Failure> {
    let (mut frame, mut gone) = (Vec::new(), 0);
    let mut next = 0;
    loop {
        sending.turn().await;
        frame.clear();
        let read = (&mut from).take(bytes).read_to_end(&mut frame).await;
        if read.map_err(stream::local)? == 0 {
            return Ok(());
        }
        let sent = sending.send(&frame).map_err(stream::broken)?;
        // A source that comes later than others begins with the frame that is due then.
        said.skipped += if said.frames > 0 { sent.number.saturating_sub(next) } else { 0 };
        said.frames += 1;
        next = sent.number.saturating_add(1);
        gone = say_gone(sending, gone);
    }
}

/// Names receivers that are gone, once; returns how many are.
fn say_gone(sending: &Sending, known: usize) -> usize {
    let ends = sending.sinks();
    let gone = ends.iter().filter(|end| end.gone.is_some()).count();
    if gone > known {
        let left = ends.len() - gone;
        aside(format_args!("gtp: {gone} of {} receivers are gone; {left} go on", ends.len()));
    }
    gone
}

/// How the command ends, by what became of its receivers.
fn judge(ends: &[(String, SinkEnd)]) -> Result<(), Failure> {
    let gone: Vec<String> = ends
        .iter()
        .filter_map(|(shown, end)| end.gone.as_ref().map(|why| format!("{shown}: {why}")))
        .collect();
    let kind = match gone.len() {
        0 => return Ok(()),
        all if all == ends.len() => FailureKind::Temporary,
        _ => FailureKind::Partial,
    };
    Err(Failure::new(kind, gone.join("; ")))
}

fn usage(text: &str) -> Failure {
    Failure::new(FailureKind::Usage, text)
}
