//! `gtp stream`: standard input to another host, or its stream to standard output.
//!
//! One end listens, for one caller, and the other names it; which of them sends is another
//! question. The caller asks for what it needs, an end that receives or one that sends, and an end
//! that is not that refuses. Success means that the other end has all of it.

use std::io;
use std::process::ExitCode;

use gtp::carry::{Carried, hear, hear_frames, say, say_frames};
use gtp::{
    Alone, BadUrl, Caller, Connect, Delivery, Failure, FailureKind, FrameStream, Host, Law, Line,
    Listen, Listening, Reason, Stream, Url, frame_most,
};

use super::frames::{Paced, Watched};
use super::serve::{missing_list, say_missing};
use super::transfer::{agreed, check_no_steps, udp};
use super::unhurried::Unhurried;
use crate::args::{Agreed, StreamArgs, StreamControl, Way};
use crate::output::{Data, aside};
use crate::signals::Signals;

pub fn run(args: StreamArgs) -> Result<ExitCode, Failure> {
    let runtime = super::runtime()?;
    let ended = runtime.block_on(async {
        let mut signals = Signals::take().map_err(super::other)?;
        tokio::select! {
            ended = carry(&args) => ended,
            () = signals.next() => Err(Failure::new(FailureKind::Interrupted, "interrupted")),
        }
    });
    // A read of standard input that waits must not keep the process.
    runtime.shutdown_background();
    ended.map(|()| ExitCode::SUCCESS)
}

async fn carry(args: &StreamArgs) -> Result<(), Failure> {
    super::step::check(args)?;
    // Before anybody is called, or called to.
    match args.way {
        Way::Send => crate::output::check_input()?,
        Way::Receive => drop(Data::open()?),
    }
    let host = super::host(&args.host).start()?;
    match (args.group.parts, args.way) {
        (Some(parts), Way::Send) => return super::step::send(args, &host, parts).await,
        (Some(parts), Way::Receive) => return super::step::receive(args, &host, parts).await,
        (None, _) if args.urls.len() > 1 => return super::spread::send(args, &host).await,
        (None, _) => {}
    }
    let line = match args.frames.filter(|_| args.unreliable) {
        Some(size) => carry_frames(args, &host, size).await?,
        None => carry_bytes(args, &host).await?,
    };
    // Not only until the other end has all: it waits for our word on its own, empty, direction.
    line.over().await;
    if args.way == Way::Receive || line.standing().delivered {
        return Ok(());
    }
    let text = "the connection broke before the other end had all";
    let text = line.why().map_or(text.to_owned(), |why| format!("{text}: {why}"));
    let kind = match line.standing().no_path {
        true => FailureKind::NoUdpPath,
        false => FailureKind::Temporary,
    };
    Err(Failure::new(kind, text))
}

/// Bytes, each of which arrives.
async fn carry_bytes(args: &StreamArgs, host: &Host) -> Result<Line, Failure> {
    let stream: Stream = match args.urls.first() {
        Some(url) => connect(args, url)?.start(host).await.map_err(of_the_far_end)?,
        None => listen(args, host).await?.accept()?,
    };
    let (reader, writer, line) = stream.into_split();
    say_if_carried(&line);
    match args.way {
        Way::Send => {
            drop(reader);
            let said = match args.frames {
                None => say(tokio::io::stdin(), writer).await,
                Some(size) => {
                    say(Paced::new(tokio::io::stdin(), size, args.frame_every), writer).await
                }
            };
            if let Carried::Left(_) = said {
                line.abort();
            }
            ended(said)?;
        }
        Way::Receive => {
            writer.finish();
            match args.frames {
                None => ended(hear(reader, &mut output()?).await)?,
                Some(size) => {
                    let mut watched = Watched::new(output()?, host, size);
                    let heard = hear(reader, &mut watched).await;
                    watched.tell(args.frame_report.as_deref())?;
                    ended(heard)?;
                }
            }
        }
    }
    Ok(line)
}

/// Frames of `size` bytes, whole or not at all.
async fn carry_frames(args: &StreamArgs, host: &Host, size: u64) -> Result<Line, Failure> {
    check_frame(size)?;
    let FrameStream { reader, writer, line } = match args.urls.first() {
        Some(url) => {
            let frames = connect(args, url)?.start_frames(host, delivery(args)).await;
            frames.map_err(of_the_far_end)?
        }
        None => listen(args, host).await?.accept_frames()?,
    };
    say_if_carried(&line);
    match args.way {
        Way::Send => {
            drop(reader);
            let frames = Paced::new(tokio::io::stdin(), size, args.frame_every);
            let said = say_frames(frames, writer, size).await;
            if let Carried::Left(_) = said {
                line.abort();
            }
            ended(said)?;
        }
        Way::Receive => {
            writer.finish();
            let mut watched = Watched::new(output()?, host, size);
            let heard = hear_frames(reader, &mut watched, Watched::note_lost).await;
            watched.tell(args.frame_report.as_deref())?;
            ended(heard)?;
        }
    }
    Ok(line)
}

/// Refuses frames that no stream takes.
pub(super) fn check_frame(size: u64) -> Result<(), Failure> {
    if size > frame_most(gtp::STREAM_WINDOW) as u64 {
        let text = "a frame is longer than half a stream's window";
        return Err(Failure::new(FailureKind::Usage, text));
    }
    Ok(())
}

/// How frames are delivered.
pub(super) fn delivery(args: &StreamArgs) -> Delivery {
    if args.repair_once { Delivery::FramesOnce } else { Delivery::Frames }
}

/// Tells people when the control connection carries the datagrams.
pub fn say_if_carried(line: &Line) {
    let line = line.clone();
    tokio::spawn(async move {
        if let Some(words) = line.carried().await {
            aside(format_args!("gtp: {words}"));
        }
    });
}

/// Who may call, in words.
pub(super) fn whom(args: &StreamArgs) -> &'static str {
    if args.public { "whoever it is" } else { "with an authorized key" }
}

/// Warns where nobody may call, for want of a list.
pub(super) fn say_who_is_missing(args: &StreamArgs) {
    if let Some(list) = missing_list(args.public, args.authorized_keys.as_deref()) {
        say_missing(&list);
    }
}

/// Standard output, for asynchronous writing.
pub(super) fn output() -> Result<Unhurried, Failure> {
    Ok(Unhurried::to(Data::open()?.into_file()))
}

/// What became of one direction.
fn ended(carried: Carried) -> Result<(), Failure> {
    match carried {
        Carried::Whole => Ok(()),
        Carried::Broken(error) => Err(broken(error)),
        Carried::Left(error) => Err(local(error)),
    }
}

pub(super) fn broken(error: io::Error) -> Failure {
    let kind = match error.kind() {
        io::ErrorKind::HostUnreachable => FailureKind::NoUdpPath,
        _ => FailureKind::Temporary,
    };
    Failure::new(kind, error.to_string())
}

pub(super) fn local(error: io::Error) -> Failure {
    Failure::new(FailureKind::Destination, error.to_string())
}

/// The control law that a caller asks for.
fn law(args: &StreamArgs) -> Result<Law, Failure> {
    let usage = |text| Failure::new(FailureKind::Usage, text);
    if args.control != StreamControl::Endnode {
        check_no_steps(args.steps)?;
    }
    match args.control {
        StreamControl::Grant => Ok(agreed(Agreed::Grant)),
        StreamControl::Endnode => Ok(args.steps.law()),
        StreamControl::Lambdastream => {
            let link = args.link.ok_or_else(|| {
                usage("--control lambdastream needs the rate of the link: --link RATE")
            })?;
            Ok(Law::LambdaStream { link, first: args.rate.unwrap_or(link) })
        }
    }
}

/// Describes the connection to the end that listens here, for what this end does not do.
pub(super) fn connect(args: &StreamArgs, url: &Url) -> Result<Connect, Failure> {
    calling(args, asking(url.clone(), args.way)?)
}

/// The same for whatever the address names.
pub(super) fn calling(args: &StreamArgs, url: Url) -> Result<Connect, Failure> {
    let mut connect = Connect::new(url).control(law(args)?).weight(args.weight);
    connect = connect.udp(udp(args.udp));
    for fingerprint in &args.trust.fingerprint {
        connect = connect.fingerprint(*fingerprint);
    }
    if args.trust.accept_new {
        connect = connect.accept_new();
    }
    if let Some(rate) = args.max_rate {
        connect = connect.max_rate(rate);
    }
    Ok(connect)
}

/// The address with the service that the other end is to give: to receive what this one sends, or
/// to send. An address that names a service of its own leads to another program.
fn asking(url: Url, own: Way) -> Result<Url, Failure> {
    if !url.path().is_empty() {
        return Ok(url);
    }
    let text = format!("{}{}", url.encoded(), service(opposite(own)));
    text.parse().map_err(|error: BadUrl| Failure::new(FailureKind::Usage, error.to_string()))
}

/// An end that does not do what is asked of it was called by mistake.
pub(super) fn of_the_far_end(failure: Failure) -> Failure {
    match failure.kind == FailureKind::Missing {
        true => Failure { kind: FailureKind::Usage, ..failure },
        false => failure,
    }
}

/// What the end of `gtp stream` that goes this way is called by.
const fn service(way: Way) -> &'static str {
    match way {
        Way::Send => "stream/send",
        Way::Receive => "stream/receive",
    }
}

const fn opposite(way: Way) -> Way {
    match way {
        Way::Send => Way::Receive,
        Way::Receive => Way::Send,
    }
}

/// Refuses a caller that wants something else than this end does. Other programs than `gtp stream`
/// may name no service.
async fn suits(caller: Caller, own: Way) -> Result<Caller, Failure> {
    let asked = caller.service();
    if asked.is_empty() || asked == service(own).as_bytes() {
        return Ok(caller);
    }
    let text = if asked != service(opposite(own)).as_bytes() {
        let shown = caller.shown_service();
        format!("the caller asks for {shown:?}, which gtp stream does not offer")
    } else {
        match own {
            Way::Send => "both ends send: one of them has to be gtp stream receive".into(),
            Way::Receive => "both ends receive: one of them has to be gtp stream send".into(),
        }
    };
    caller.refuse(Reason::Missing, text.clone()).await;
    Err(Failure::new(FailureKind::Usage, text))
}

/// Listens as the options say.
pub(super) async fn listening(args: &StreamArgs, host: &Host) -> Result<Listening, Failure> {
    let mut listen = Listen::new().at(&args.listen);
    listen = match args.group.parts {
        Some(parts) => listen.frames_in_step(parts),
        None if args.unreliable => listen.frames(),
        None => listen,
    };
    if args.public {
        listen = listen.anyone();
    }
    if let Some(keys) = &args.authorized_keys {
        listen = listen.authorized_keys(keys);
    }
    if let Some(rate) = args.max_rate {
        listen = listen.max_rate(rate);
    }
    listen = match args.control {
        StreamControl::Grant => listen,
        StreamControl::Endnode => listen.allow_end_node(),
        StreamControl::Lambdastream => listen.allow(Alone::LambdaStream),
    };
    listen.start(host).await
}

async fn listen(args: &StreamArgs, host: &Host) -> Result<Caller, Failure> {
    let mut listening = listening(args, host).await?;
    let (address, key) = (listening.address(), host.fingerprint());
    aside(format_args!("listening on {address} (TCP and UDP) for one caller, {}", whom(args)));
    say_who_is_missing(args);
    let port = address.port();
    let way = match opposite(args.way) {
        Way::Send => "send",
        Way::Receive => "receive",
    };
    aside(format_args!("elsewhere: gtp stream {way} gtp://HOST:{port}/ --fingerprint {key}"));
    let caller = listening.next().await;
    let gone = || Failure::new(FailureKind::Other, "nobody listens any more");
    let caller = caller.ok_or_else(gone)?;
    aside(format_args!("{}: called by {}", caller.remote(), caller.peer()));
    suits(caller, args.way).await
}
