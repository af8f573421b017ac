//! The end that connects.
//!
//! From an address to a connection: the control channel as for any verb, the service's answer,
//! then a session for each direction.

use gtp_alloc::Span;
use gtp_proto::Revision;

use super::silence::{MayCarry, Silence};
use super::tend::{Sessions, start};
use super::{Breaking, Delivery, Ends, FrameStream, Stream};
use crate::client::connect::{Granted, Units, ask, reach};
use crate::client::families::Next;
use crate::client::{Endpoint, Terms, Url, no_path_words, way_words};
use crate::control::{ControlChannel, ControlError, SILENCE_SPAN};
use crate::crypto::Suite;
use crate::engine::{SessionOpen, Way};
use crate::flows::{Failure, FailureKind, keys};
use crate::messages::{Connected, Message, STREAM_WINDOW, Verb};

/// Connects to a service of a host, `gtp://host[:port]/service`: proves keys, and returns once the
/// service is there. Bytes may be written at once; they leave when the path is open. `window` is
/// the units that either sink may ask for ahead, from which a server may take off; 64 to 65,536.
///
/// # Errors
/// [`Failure`], as of any client; that there is no UDP path shows later, on the stream.
pub async fn connect(
    endpoint: &Endpoint,
    url: &Url,
    terms: &Terms,
    window: u32,
) -> Result<Stream, Failure> {
    connect_to(endpoint, url, url.path(), terms, window).await
}

/// As [`connect`], to a service that the address does not name.
pub(crate) async fn connect_to(
    endpoint: &Endpoint,
    url: &Url,
    service: &[u8],
    terms: &Terms,
    window: u32,
) -> Result<Stream, Failure> {
    let asked = Asked { service, window, delivery: None, patience: Span::ZERO };
    Ok(open(endpoint, url, terms, asked).await?.of_bytes())
}

/// The same for frames, which are delivered so.
///
/// # Errors
/// As of [`connect`].
pub async fn connect_frames(
    endpoint: &Endpoint,
    url: &Url,
    terms: &Terms,
    window: u32,
    delivery: Delivery,
) -> Result<FrameStream, Failure> {
    let on = (delivery, Span::ZERO);
    connect_frames_to(endpoint, url, url.path(), terms, window, on).await
}

/// As [`connect_frames`], to a service that the address does not name. It waits at least for the
/// `patience` for what others overtake.
pub(crate) async fn connect_frames_to(
    endpoint: &Endpoint,
    url: &Url,
    service: &[u8],
    terms: &Terms,
    window: u32,
    (delivery, patience): (Delivery, Span),
) -> Result<FrameStream, Failure> {
    let asked = Asked { service, window, delivery: Some(delivery), patience };
    Ok(open(endpoint, url, terms, asked).await?.of_frames())
}

/// What a connection is to be.
#[derive(Clone, Copy)]
struct Asked<'a> {
    service: &'a [u8],
    window: u32,
    delivery: Option<Delivery>,
    /// How long what others overtake is waited for at least.
    patience: Span,
}

/// Opens a connection. Where the host has addresses of both IP versions, it waits until datagrams
/// get through, and goes to the other version if they do not.
async fn open(
    endpoint: &Endpoint,
    url: &Url,
    terms: &Terms,
    asked: Asked<'_>,
) -> Result<Ends, Failure> {
    loop {
        let ends = attempt(endpoint, url, terms, asked).await?;
        let (host, line) = (url.host(), &ends.line);
        // Who gives up here has said nothing, not even an end.
        let breaking = Breaking::new(line);
        if !endpoint.has_choice(host) || line.opened().await || !line.standing().no_path {
            breaking.keep();
            return Ok(ends);
        }
        if endpoint.no_datagrams(host, line.remote()) == Next::None {
            return Err(Failure::new(FailureKind::NoUdpPath, no_path_words(host)));
        }
    }
}

/// Opens a connection, whether or not datagrams get through.
async fn attempt(
    endpoint: &Endpoint,
    url: &Url,
    terms: &Terms,
    Asked { service, window, delivery, patience }: Asked<'_>,
) -> Result<Ends, Failure> {
    let channel = reach(endpoint, url, terms).await?;
    let down_session = endpoint.host().new_session_id();
    let window = window.clamp(*STREAM_WINDOW.start(), *STREAM_WINDOW.end());
    let verb = Verb::Stream { service: service.to_vec(), down_session, window, delivery };
    let granted = ask(channel, endpoint, url, verb, (terms, Units::Ordinary), &|| {}).await?;
    let Granted { mut channel, opened, session: up, data_port } = granted;
    let connected = answered(&mut channel, (window, delivery)).await?;
    let suite = Suite::from_code(opened.suite)
        .ok_or_else(|| ControlError::Unexpected("an unknown cipher".into()))?;
    let secrets = channel.data_secrets(connected.down_session, down_session)?;
    let down = SessionOpen {
        local_session: down_session,
        peer_session: connected.down_session,
        keys: keys(suite, secrets),
        revision: up.revision,
        role: up.role.clone(),
        label: up.label.clone(),
        ..up
    };
    let window = connected.window;
    let revision = channel.revision();
    let carriage = may_carry(endpoint, url, terms, revision);
    let carried = carriage.before && endpoint.is_carried(url.host(), terms.udp);
    let (says, hears, greeting) = (up, down, None);
    let sessions =
        Sessions { says, hears, window, delivery, patience, greeting, carried, data_port };
    let silence = Silence::of_caller(url.host(), revision, endpoint.host().clock(), carriage);
    let mut ends = start(endpoint.host(), channel, sessions, silence, None);
    ends.line.carried_words = Some(way_words(endpoint, url.host(), Way::Control, terms.udp).into());
    Ok(ends)
}

/// Waits for the service's answer, which offers no more than was asked for.
async fn answered(
    channel: &mut ControlChannel,
    (window, delivery): (u32, Option<Delivery>),
) -> Result<Connected, Failure> {
    let answer = tokio::time::timeout(SILENCE_SPAN, channel.recv());
    let answer = answer.await.map_err(|_| ControlError::TimedOut("the service"))??;
    let why = match answer {
        Message::Connected(connected) if connected.window > window => {
            "a window that was not on offer".to_owned()
        }
        Message::Connected(connected) if connected.delivery != delivery => {
            "the host does not deliver frames as was asked".to_owned()
        }
        Message::Connected(connected) => return Ok(connected),
        Message::Fault(fault) => return Err(Failure::of_fault(&fault)),
        other => format!("message {}", other.name()),
    };
    Err(ControlError::Unexpected(why).into())
}

/// Whether the control connection may carry the datagrams, before one has come and after.
fn may_carry(endpoint: &Endpoint, url: &Url, terms: &Terms, revision: Revision) -> MayCarry {
    let may = |path_seen| {
        let may = endpoint.may_carry(url.host(), revision, terms.udp, path_seen);
        may && revision >= Revision::Sixth
    };
    MayCarry { before: may(false), after: may(true) }
}
