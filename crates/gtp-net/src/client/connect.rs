//! From an address to a session: connect, prove keys, ask, and derive what the engine needs.
//!
//! It is the only place where a client's wishes become a session. The UDP port is the one that TCP
//! reached, whatever the server calls its own: a forwarder between them passes on both alike.

use std::net::SocketAddr;
use std::sync::Arc;

use gtp_proto::limits::{UNIT_ETHERNET, UNIT_JUMBO, UNIT_MINIMUM};
use gtp_proto::{PathUse, Role, Weights};
use gtp_store::{Manifest, RootKind};
use gtp_sys::udp::route_mtu;

use super::{Counted, Endpoint, ListingRoom, Terms, Url, no_path_words};
use crate::control::{CONNECT_SPAN, ControlChannel, ControlError};
use crate::crypto::Suite;
use crate::engine::{Law, SessionOpen};
use crate::flows::{Failure, FailureKind, Gathering, keys, root_kind, wire_law};
use crate::messages::{
    self, INTERVAL_US, Message, Open, Opened, SuiteList, VERSION, Verb, WEIGHT_MILLI,
};
use crate::server::budget::USED_UP;

/// A server that has said yes.
pub(crate) struct Granted {
    pub channel: ControlChannel,
    pub opened: Opened,
    pub session: SessionOpen,
    /// This end's UDP port.
    pub data_port: u16,
}

/// How long the units of a session may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Units {
    /// As long as the path's packets: nobody else brings parts of the object.
    AsThePath,
    /// As long as on ordinary paths: several sources must agree on one length.
    Ordinary,
}

/// What the route must carry for the longest units: 8,900 bytes, 49 of GTP, 8 of UDP, 40 of IPv6.
const JUMBO_ROUTE: u32 = 8_997;

impl Units {
    /// The longest unit payload to ask for on the way to `peer`. A route that cannot carry long
    /// packets is not tried with them: waiting for their answers would cost time.
    fn longest(self, peer: SocketAddr) -> u16 {
        match self {
            Units::AsThePath if route_mtu(peer) >= Some(JUMBO_ROUTE) => UNIT_JUMBO,
            Units::AsThePath | Units::Ordinary => UNIT_ETHERNET,
        }
    }

    /// What opens the path for units no longer than these. Where several sources must agree on a
    /// length, none is asked before a path has shown what it carries; nor is one whose own law
    /// would send at full rate before anything is known of the path.
    fn role(self, longest: u16, law: Law) -> Role {
        let all = [UNIT_JUMBO, UNIT_ETHERNET, UNIT_MINIMUM];
        let unit_payloads = all.into_iter().filter(|&payload| payload <= longest).collect();
        match (self, law) {
            (Units::AsThePath, Law::Grant | Law::EndNode { .. }) => Role::Eager { unit_payloads },
            (Units::AsThePath | Units::Ordinary, _) => Role::Initiator { unit_payloads },
        }
    }
}

/// Connects to a server; both ends have proved their keys then. An IP version on which no datagram
/// got through before is avoided.
pub(crate) async fn reach(
    endpoint: &Endpoint,
    url: &Url,
    terms: &Terms,
) -> Result<ControlChannel, Failure> {
    let host = url.host();
    let introduced = endpoint.introduced().addresses(host);
    if let Some(addresses) = introduced {
        return super::introduced::reach(endpoint, host, addresses, terms).await;
    }
    // A patience shorter than this is the user's word on how long to wait.
    let limit = CONNECT_SPAN.min(terms.patience);
    let addresses = endpoint.resolve(host, limit).await?;
    let addresses = endpoint.families().admit(host, addresses, endpoint.host().clock().now());
    let avoiding = endpoint.families().is_avoiding(host);
    let stream = match endpoint.dial(host, &addresses, limit).await {
        // The other version answers over TCP, and carries no datagrams.
        Err(ControlError::Unreachable { .. }) if avoiding => {
            endpoint.families().clear(host);
            return Err(Failure::new(FailureKind::NoUdpPath, no_path_words(host)));
        }
        dialled => dialled?,
    };
    Ok(ControlChannel::client_over(stream, host, endpoint.identity(), &terms.trust).await?)
}

/// Asks a server for a session. It may look for the object for as long as it shows signs of life,
/// of which `heard` is told; silence is borne for the patience of `terms`.
pub(crate) async fn ask(
    channel: ControlChannel,
    endpoint: &Endpoint,
    url: &Url,
    verb: Verb,
    on: (&Terms, Units),
    heard: &(dyn Fn() + Sync),
) -> Result<Granted, Failure> {
    ask_at_once(channel, endpoint, url, (verb, None), on, heard).await
}

/// As [`ask`], with the first question of the session right behind the opening.
pub(crate) async fn ask_at_once(
    mut channel: ControlChannel,
    endpoint: &Endpoint,
    url: &Url,
    (verb, question): (Verb, Option<Message>),
    (terms, units): (&Terms, Units),
    heard: &(dyn Fn() + Sync),
) -> Result<Granted, Failure> {
    let client_session = endpoint.host().new_session_id();
    // A detour leads there for TCP alone.
    let peer = endpoint.beside_detour(url.host()).unwrap_or(channel.ends().remote);
    let unit_payload_max = units.longest(peer);
    let ticket = ticket(terms, url)?;
    let asked = open_message(endpoint, verb, terms, client_session);
    let relay = terms.relaying.asked(&asked.verb);
    let open = Open { unit_payload_max, ticket, relay, ..asked };
    let opened = channel.open_and_ask(open, question, terms.patience, heard).await?;
    let suite = Suite::from_code(opened.suite)
        .ok_or_else(|| Failure::new(FailureKind::Other, "the server chose an unknown cipher"))?;
    let secrets = channel.data_secrets(opened.server_session, client_session)?;
    let (socket, data_port) = endpoint.socket_for(peer.ip()).map_err(|error| {
        Failure::new(FailureKind::Other, format!("cannot open a UDP socket: {error}"))
    })?;
    let session = SessionOpen {
        socket,
        peer,
        local_session: client_session,
        peer_session: opened.server_session,
        keys: keys(suite, secrets),
        revision: channel.revision(),
        role: units.role(opened.unit_payload, terms.law),
        law: terms.law,
        weights: Weights { own: f64::from(opened.weight_milli) / 1000.0, peer: 1.0 },
        // A server cannot allow more than was asked for.
        path: terms.path.agreed(PathUse::of_code(opened.path)),
        max_rate: terms.max_rate,
        principal: terms.behalf.principal,
        allowance: terms.behalf.allowance,
        label: url.to_string(),
    };
    Ok(Granted { channel, opened, session, data_port })
}

/// The ticket by which this end asks, if its terms say that it does so by tickets.
///
/// # Errors
/// [`FailureKind::Authentication`] if there is none for this object: its own key may have more
/// rights than whoever signed the others, so it must not ask by that instead.
fn ticket(terms: &Terms, url: &Url) -> Result<Option<Vec<u8>>, Failure> {
    let Some(tickets) = &terms.tickets else { return Ok(None) };
    let missing = || Failure::new(FailureKind::Authentication, format!("no ticket for {url}"));
    tickets.get(url).map(Some).ok_or_else(missing)
}

pub(super) fn open_message(
    endpoint: &Endpoint,
    verb: Verb,
    terms: &Terms,
    client_session: u32,
) -> Open {
    let weight = (terms.weight * 1000.0).round() as u32;
    let interval = endpoint.interval.map(|span| {
        let micros = u32::try_from(span.as_micros()).unwrap_or(u32::MAX);
        micros.clamp(*INTERVAL_US.start(), *INTERVAL_US.end())
    });
    Open {
        version: VERSION,
        verb,
        suites: SuiteList(Suite::by_preference().map(Suite::code).to_vec()),
        law: wire_law(terms.law),
        weight_milli: weight.clamp(*WEIGHT_MILLI.start(), *WEIGHT_MILLI.end()),
        unit_payload_max: UNIT_ETHERNET, // The caller knows the route.
        client_session,
        interval_us: interval,
        path: terms.path.code(),
        ticket: None, // Nor which address it is for.
        relay: None,
    }
}

/// What an object at a server consists of, and what is there but will not come.
pub(super) struct Described {
    pub manifest: Arc<Manifest>,
    pub skipped: Vec<Failure>,
    /// Memory that the listing takes here.
    _counted: Counted,
}

impl Described {
    #[cfg(test)]
    pub fn of(manifest: Arc<Manifest>, skipped: Vec<Failure>) -> Described {
        Described { manifest, skipped, _counted: Counted::default() }
    }
}

/// Receives the manifest that follows a granted `get`, as far as there is room for it; `listed`
/// hears how many entries came.
pub(super) async fn describe(
    granted: &mut Granted,
    room: &ListingRoom,
    listed: impl Fn(u64),
) -> Result<Described, Failure> {
    let mut counted = room.begin();
    let mut entries = 0;
    let kind = granted.opened.object.map_or(RootKind::File, root_kind);
    let mut gathering = Gathering::default();
    let mut skipped = Vec::new();
    loop {
        match granted.channel.recv().await? {
            Message::ManifestPage(page) => {
                entries += page.entries.len() as u64;
                if !counted.take(&page) {
                    return Err(Failure::new(FailureKind::Temporary, USED_UP));
                }
                gathering.page(page).map_err(bad_listing)?;
                listed(entries);
            }
            Message::ManifestEnd(end) => {
                let manifest = gathering.end(&end, kind).map_err(bad_listing)?;
                return Ok(Described { manifest, skipped, _counted: counted });
            }
            Message::Fault(fault) => match &fault.path {
                Some(path) if skipped.len() < SKIPPED_MAX => {
                    skipped.push(left_out(path, &fault.text));
                }
                Some(_) => {}
                None => return Err(Failure::of_fault(&fault)),
            },
            other => {
                return Err(ControlError::Unexpected(format!("message {}", other.name())).into());
            }
        }
    }
}

/// What a server says about something that is there and will not come. A fault without a name
/// counts those that it does not name.
pub(super) fn left_out(path: &[u8], text: &messages::PeerText) -> Failure {
    let failure = Failure::new(FailureKind::Partial, text.to_string());
    if path.is_empty() { failure } else { failure.about(messages::printable(path)) }
}

fn bad_listing(why: impl std::fmt::Display) -> Failure {
    Failure::new(FailureKind::Other, why.to_string())
}

/// Entries that a server calls skipped and that are remembered; more are dropped.
pub(super) const SKIPPED_MAX: usize = 1_000;
