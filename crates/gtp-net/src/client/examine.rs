//! Looks at the way to a server step by step: its name, TCP of each IP version, keys and versions,
//! and which datagrams get through in which direction.
//!
//! Each step is one question with one answer, and nothing is kept. A session that is opened to try
//! datagrams is dropped as soon as it is known whether they come. What an answer means for a user
//! is decided elsewhere.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub use gtp_proto::Revision;
use gtp_proto::Role;
use gtp_proto::limits::{UNIT_ETHERNET, UNIT_MINIMUM};
use gtp_store::DiscardSink;
use tokio::time::timeout;

use super::connect::{Granted, Units, ask, describe};
use super::{Endpoint, Terms, Url};
use crate::control::reach::{dial, resolve};
use crate::control::{CONNECT_SPAN, ControlChannel};
use crate::engine::{RootPolicy, TransferEvent, TransferHandle, TransferOpen};
use crate::flows::{Failure, FailureKind};
use crate::identity::Fingerprint;
use crate::messages::{Arrivals, Message, Verb};

/// A server that was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Met {
    /// Its key, which is believed.
    pub fingerprint: Fingerprint,
    /// The revision of the messages that both ends understand.
    pub revision: Revision,
    /// What became of datagrams.
    pub datagrams: Datagrams,
    /// How many seconds its clock is ahead of this host's; `None` if it does not tell its time.
    pub ahead_s: Option<i64>,
}

/// Which datagrams get through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datagrams {
    /// Those of both ends.
    Pass,
    /// The server has heard this end, and its answers do not come.
    NotBack,
    /// The server has heard nothing. Whether its own would come is not known.
    NotThere,
    /// The server does not read what comes, or does not say whether something came.
    Unsaid,
}

/// How long the datagrams are with which a path is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// As long as Ethernet carries, which is what data have.
    Full,
    /// The shortest that data have.
    Short,
}

/// The addresses of a server, the preferred one first.
///
/// # Errors
/// [`FailureKind::Usage`] if there is no such host, another kind if the resolver fails.
pub async fn addresses(url: &Url) -> Result<Vec<SocketAddr>, Failure> {
    Ok(resolve(url.host(), CONNECT_SPAN, ()).await?)
}

/// Whether a server takes a TCP connection at one of its addresses.
///
/// # Errors
/// What stands in the way.
pub async fn connect(url: &Url, address: SocketAddr) -> Result<(), Failure> {
    Ok(dial(url.host(), &[address], CONNECT_LIMIT).await.map(drop)?)
}

/// Meets a server at one of its addresses, opens a session for the object, and looks whether
/// datagrams of this length get through. What the session brings is dropped.
///
/// # Errors
/// Those of a transfer: its key is not believed, no version in common, nothing there, not allowed.
pub async fn meet(
    endpoint: &Endpoint,
    url: &Url,
    terms: &Terms,
    (address, length): (SocketAddr, Length),
) -> Result<Met, Failure> {
    let stream = dial(url.host(), &[address], CONNECT_LIMIT).await?;
    let channel =
        ControlChannel::client_over(stream, url.host(), endpoint.identity(), &terms.trust).await?;
    let fingerprint = channel.peer();
    let verb = Verb::Get { path: url.path().to_vec() };
    let mut granted = ask(channel, endpoint, url, verb, (terms, Units::Ordinary), &|| {}).await?;
    let here = gtp_sys::clock::unix_seconds();
    let ahead_s = granted.opened.time_s.map(|there| difference(there, here));
    let manifest = describe(&mut granted, &terms.listings, |_| {}).await?.manifest;
    let Granted { mut channel, mut session, .. } = granted;
    let unit = match length {
        Length::Full => UNIT_ETHERNET,
        Length::Short => UNIT_MINIMUM,
    };
    session.role = Role::Initiator { unit_payloads: vec![unit] };
    let revision = channel.revision();
    let sink = Box::new(DiscardSink::new(Arc::clone(&manifest)));
    let roots = RootPolicy::TrustTrailers;
    let mut transfer = endpoint.host().open_transfer(TransferOpen { sink, manifest, roots });
    transfer.add_session(session);
    let datagrams = match opens(&mut transfer).await? {
        true => Datagrams::Pass,
        false if revision < Revision::Third => Datagrams::Unsaid,
        false => ask_arrivals(&mut channel).await?,
    };
    if channel.send(&Message::Cancel).await.is_ok() {
        channel.close().await;
    }
    Ok(Met { fingerprint, revision, datagrams, ahead_s })
}

/// How much later one time is than another, as far as a number can say it.
fn difference(one: u64, other: u64) -> i64 {
    let seconds = |time| i64::try_from(time).unwrap_or(i64::MAX);
    seconds(one) - seconds(other)
}

/// Whether the path of the transfer's session opens in time.
async fn opens(transfer: &mut TransferHandle) -> Result<bool, Failure> {
    let opening = async {
        loop {
            let Some(event) = transfer.next_event().await else {
                return Err(Failure::new(FailureKind::Other, "the engine has ended"));
            };
            if matches!(event, TransferEvent::PathOpen { .. }) {
                return Ok(true);
            }
            if matches!(event, TransferEvent::NoPath { .. }) {
                return Ok(false);
            }
            if let TransferEvent::Lost { why, .. } = event {
                return Err(Failure::new(FailureKind::Temporary, why));
            }
        }
    };
    timeout(OPEN_LIMIT, opening).await.unwrap_or(Ok(false))
}

/// Asks the server what has come of this end's datagrams.
async fn ask_arrivals(channel: &mut ControlChannel) -> Result<Datagrams, Failure> {
    channel.send(&Message::ArrivalsWanted).await?;
    let answer = async {
        loop {
            let message = channel.recv().await?;
            if let Message::ArrivalsSeen(seen) = message {
                return Ok(seen.arrivals);
            }
            if let Message::Fault(fault) = message {
                return Err(Failure::of_fault(&fault));
            }
        }
    };
    Ok(match timeout(CONNECT_LIMIT, answer).await {
        Ok(Ok(Arrivals::Some)) => Datagrams::NotBack,
        Ok(Ok(Arrivals::None)) => Datagrams::NotThere,
        // It ends a session to which nothing comes.
        Ok(Err(failure)) if failure.kind == FailureKind::NoUdpPath => Datagrams::NotThere,
        Ok(Err(failure)) => return Err(failure),
        Ok(Ok(Arrivals::Unread)) | Err(_) => Datagrams::Unsaid,
    })
}

/// Time for one TCP connection, and for one answer over it.
const CONNECT_LIMIT: Duration = Duration::from_secs(4);

/// Time for a path to open: hellos are repeated for some four seconds.
const OPEN_LIMIT: Duration = Duration::from_secs(6);
