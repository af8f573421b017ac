//! The end that takes: one object over several sessions, into memory.
//!
//! Every session has a control channel of its own, as if each went to another server; together
//! they bring one object. The clock runs from the first open path to the last block in its place.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;

use gtp_alloc::{Bytes, Rate, Time};
use gtp_net::control::{ControlChannel, KEEPALIVE_SPAN};
use gtp_net::crypto::Suite;
use gtp_net::engine::{
    Calls, Host, Law, RootPolicy, SessionKeys, SessionOpen, SocketId, TransferEvent,
    TransferHandle, TransferOpen,
};
use gtp_net::flows::Failure;
use gtp_net::identity::Fingerprint;
use gtp_net::messages::{Done, Law as WireLaw, Message, Open, SuiteList, VERSION, Verb};
use gtp_net::trust::{HostAddress, HostTrust};
use gtp_proto::Role;
use gtp_proto::limits::{UNIT_ETHERNET, UNIT_JUMBO, UNIT_MINIMUM};

use crate::cpu::cpu_seconds;
use crate::memory::{Arrived, Object};
use crate::serve::{PATH, SESSIONS_MOST, other, usage};
use crate::setup::{Ends, Strangers};

/// What to fetch, and how.
pub struct Fetch {
    /// The servers, one or several that give the same: many sources into one sink.
    pub servers: Vec<HostAddress>,
    /// Their keys, if they are known; otherwise the host's list decides.
    pub pinned: Vec<Fingerprint>,
    /// What becomes of a server that is not on the list.
    pub strangers: Strangers,
    /// How many sessions bring it from each server; 1 to 64 in all.
    pub sessions: usize,
    /// Memory that it may take: a server that offers more content is refused.
    pub size_most: u64,
}

/// How a run went.
#[derive(Clone, Debug)]
pub struct NetFigures {
    /// Bytes of content moved; the last copy of each block is compared with what was sent.
    pub bytes: u64,
    /// IP bytes of data packets received.
    pub wire_bytes: u64,
    /// From the first open path to the end.
    pub seconds: f64,
    /// What this process has used of the processors meanwhile.
    pub cpu_s: f64,
    /// What the engines' threads asked of the kernel meanwhile.
    pub calls: Calls,
    /// Payload bytes that came twice.
    pub duplicate_bytes: u64,
    /// Data packets lost of those sent, the mean of the sessions.
    pub loss_ratio: f64,
    /// Mean IP bit rate while the run was in its second half.
    pub steady: Rate,
    /// Mean IP bit rate of each session in that half, server by server.
    pub session_rates: Vec<Rate>,
    /// What limited the first session, for each part of the looks at it: the word and the part.
    pub limited_by: BTreeMap<&'static str, f64>,
}

/// Fetches once. The engine is the caller's, with its capacities.
///
/// # Errors
/// When the server is not to be had, offers too much, or what arrived is not what was sent.
pub async fn fetch(ends: &Ends, what: Fetch) -> Result<NetFigures, Failure> {
    let sessions = what.sessions.saturating_mul(what.servers.len());
    if !(1..=SESSIONS_MOST).contains(&sessions) {
        return Err(usage(format!("{sessions} sessions: expected 1 to {SESSIONS_MOST}")));
    }
    let trust = ends.trust(&what)?;
    let hosts: Vec<Host> = ends.host.at_each_engine().take(sessions).collect();
    let mut lines = Vec::new();
    for server in &what.servers {
        for _ in 0..what.sessions {
            let host = &hosts[lines.len() % hosts.len()];
            lines.push(line((host, ends), server, &trust).await?);
        }
    }
    let object = lines.first().map(|line| line.object).ok_or_else(|| other("no session"))?;
    if lines.iter().any(|line| line.object != object) {
        return Err(other("different sessions are offered different things"));
    }
    if object.bytes > what.size_most {
        let (offered, most) = (object.bytes, what.size_most);
        return Err(usage(format!("the server offers {offered} bytes, more than {most}")));
    }
    let arrived = tokio::task::spawn_blocking(move || Arrived::room(object)).await;
    let arrived = arrived.map_err(other)?;
    let mut parts = parts(&hosts, lines, &arrived, object)?;
    let figures = watch_all(&ends.host, &mut parts, object).await?;
    let done = Done { files: u64::from(object.times), content_bytes: object.total() };
    for mut channel in parts.into_iter().flat_map(|part| part.channels) {
        channel.send(&Message::Done(done.clone())).await?;
        channel.close().await;
    }
    tokio::task::spawn_blocking(move || arrived.verify()).await.map_err(other)?.map_err(other)?;
    Ok(figures)
}

/// A server that has agreed to one session.
struct Line {
    channel: ControlChannel,
    session: SessionOpen,
    object: Object,
}

async fn line(
    (host, ends): (&Host, &Ends),
    server: &HostAddress,
    trust: &Arc<HostTrust>,
) -> Result<Line, Failure> {
    let mut channel = ControlChannel::connect(server, &ends.identity, trust).await?;
    let client_session = host.new_session_id();
    let open = Open {
        version: VERSION,
        verb: Verb::Get { path: PATH.to_vec() },
        suites: SuiteList(Suite::by_preference().map(Suite::code).to_vec()),
        law: WireLaw::Grant,
        weight_milli: 1_000,
        unit_payload_max: UNIT_JUMBO,
        client_session,
        interval_us: None,
    };
    let opened = channel.open(open).await?;
    let suite = Suite::from_code(opened.suite).ok_or_else(|| other("an unknown cipher"))?;
    let times = u32::try_from(opened.entries_total).unwrap_or(0);
    let bytes = opened.content_bytes.checked_div(u64::from(times)).unwrap_or(0);
    let object = Object::new(bytes, times).map_err(other)?;
    let secrets = channel.data_secrets(opened.server_session, client_session)?;
    let unit_payloads = [UNIT_JUMBO, UNIT_ETHERNET, UNIT_MINIMUM].into_iter();
    let session = SessionOpen {
        socket: bind(host, channel.ends().remote)?,
        peer: channel.ends().remote,
        local_session: client_session,
        peer_session: opened.server_session,
        keys: SessionKeys { suite, seal: secrets.send, open: secrets.receive },
        role: Role::Initiator {
            unit_payloads: unit_payloads.filter(|&unit| unit <= opened.unit_payload).collect(),
        },
        law: Law::Grant,
        weights: gtp_proto::Weights::ONE,
        max_rate: Rate::UNLIMITED,
        principal: 0,
        label: channel.ends().remote.to_string(),
    };
    Ok(Line { channel, session, object })
}

fn bind(host: &Host, peer: SocketAddr) -> Result<SocketId, Failure> {
    let any = if peer.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let (socket, _) = host.bind_udp(any.parse().map_err(other)?).map_err(other)?;
    Ok(socket)
}

/// What one engine brings: its part of the files.
struct Part {
    transfer: TransferHandle,
    channels: Vec<ControlChannel>,
    /// Content that it is to bring.
    bytes: u64,
}

/// One transfer for each engine that has sessions, and no more than there are files.
fn parts(
    hosts: &[Host],
    lines: Vec<Line>,
    arrived: &Arrived,
    object: Object,
) -> Result<Vec<Part>, Failure> {
    if (object.times as usize) < hosts.len() {
        let (times, engines) = (object.times, hosts.len());
        return Err(usage(format!("{engines} engines for {times} files: take fewer engines")));
    }
    let count = hosts.len() as u32;
    let manifest = object.manifest().map_err(other)?;
    let mut parts: Vec<Part> = hosts
        .iter()
        .zip(arrived.sinks(count))
        .zip(0..count)
        .map(|((host, sink), number)| {
            let (sink, manifest) = (Box::new(sink), manifest.clone());
            let roots = RootPolicy::TrustTrailers;
            let transfer = host.open_transfer(TransferOpen { sink, manifest, roots });
            let files = (0..object.times).filter(|file| file % count == number).count() as u64;
            Part { transfer, channels: Vec::new(), bytes: files * object.bytes }
        })
        .collect();
    for (i, line) in lines.into_iter().enumerate() {
        let part = &mut parts[i % hosts.len()];
        part.transfer.add_session(line.session);
        part.channels.push(line.channel);
    }
    Ok(parts)
}

/// What was seen of one part.
struct Seen {
    /// From the first open path to the end, with what had been asked of the processors.
    began: Effort,
    ended: Effort,
    /// In the middle: the time, and the wire bytes of each session.
    middle: (Time, Vec<u64>),
    wire: Vec<u64>,
    limits: BTreeMap<&'static str, u32>,
}

/// The time, and what all engines have used by then.
#[derive(Clone, Copy)]
struct Effort {
    at: Time,
    cpu: Option<f64>,
    calls: Calls,
}

/// Waits for all parts.
async fn watch_all(host: &Host, parts: &mut [Part], object: Object) -> Result<NetFigures, Failure> {
    let mut watches: Vec<_> =
        parts.iter_mut().map(|part| Box::pin(watch(host, part, object))).collect();
    let mut seen: Vec<Option<Seen>> = watches.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (watch, seen) in watches.iter_mut().zip(&mut seen) {
            if seen.is_none()
                && let Poll::Ready(done) = watch.as_mut().poll(context)
            {
                match done {
                    Ok(done) => *seen = Some(done),
                    Err(failure) => return Poll::Ready(Err(failure)),
                }
            }
        }
        if seen.iter().all(Option::is_some) { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await?;
    drop(watches);
    let seen: Vec<Seen> = seen.into_iter().flatten().collect();
    figures(parts, &seen, object).ok_or_else(|| other("nothing was moved"))
}

/// Waits for the end of a part; knows the wire bytes of every moment to find the steady rate.
async fn watch(host: &Host, part: &mut Part, object: Object) -> Result<Seen, Failure> {
    let Part { transfer, channels, bytes } = part;
    let mut look = tokio::time::interval(LOOK);
    let mut keepalive = tokio::time::interval(KEEPALIVE_SPAN);
    let mut limits = BTreeMap::new();
    let (mut began, mut middle) = (None, None);
    let effort = || Effort { at: host.clock().now(), cpu: cpu_seconds(), calls: host.calls() };
    loop {
        tokio::select! {
            event = transfer.next_event() => match event {
                Some(TransferEvent::PathOpen { .. }) => {
                    began.get_or_insert_with(effort);
                }
                Some(TransferEvent::AllBlocks) => {
                    transfer.finish_files((0..object.times).map(|file| (file, None)).collect());
                }
                Some(TransferEvent::FileDone { .. }) => {}
                Some(TransferEvent::Complete(_)) => break,
                Some(event) => return Err(other(format!("the run has failed: {event:?}"))),
                None => return Err(other("the run has ended early")),
            },
            _ = keepalive.tick() => for channel in &mut *channels {
                channel.send(&Message::Keepalive).await?;
            },
            _ = look.tick() => {
                let progress = transfer.progress();
                if let Some(flow) = progress.flows.first() {
                    *limits.entry(flow.limited_by.as_str()).or_insert(0_u32) += 1;
                }
                let brought = progress.bytes - progress.resumed_bytes;
                if middle.is_none() && brought * 2 > *bytes {
                    middle = Some((host.clock().now(), wire(transfer)));
                }
            }
        }
    }
    let ended = effort();
    let began = began.unwrap_or(ended);
    let wire = wire(transfer);
    let middle = middle.unwrap_or_else(|| (began.at, vec![0; wire.len()]));
    Ok(Seen { began, ended, middle, wire, limits })
}

/// IP bytes of each session so far.
fn wire(transfer: &TransferHandle) -> Vec<u64> {
    transfer.progress().flows.iter().map(|flow| flow.wire_bytes).collect()
}

/// The sums over all parts; `None` without one.
fn figures(parts: &[Part], seen: &[Seen], object: Object) -> Option<NetFigures> {
    let began = seen.iter().map(|seen| seen.began).min_by_key(|effort| effort.at)?;
    let ended = seen.iter().map(|seen| seen.ended).max_by_key(|effort| effort.at)?;
    let flows: Vec<_> = parts.iter().flat_map(|part| part.transfer.progress().flows).collect();
    let later = |seen: &Seen| -> Vec<Rate> {
        let span = seen.ended.at.since(seen.middle.0);
        let counted = seen.middle.1.iter().copied().chain(std::iter::repeat(0));
        let rate = |(now, then): (&u64, u64)| Bytes(now - then).per(span);
        seen.wire.iter().zip(counted).map(rate).collect()
    };
    let rates: Vec<Vec<Rate>> = seen.iter().map(later).collect();
    // Sessions were dealt out to the parts in turn.
    let session = |i: usize| rates[i % rates.len()].get(i / rates.len()).copied();
    let session_rates: Vec<Rate> = (0..flows.len()).filter_map(session).collect();
    let first = &seen.first()?.limits;
    let looks = f64::from(first.values().sum::<u32>().max(1));
    Some(NetFigures {
        bytes: object.total(),
        wire_bytes: seen.iter().flat_map(|seen| &seen.wire).sum(),
        seconds: ended.at.since(began.at).as_secs_f64(),
        cpu_s: ended.cpu.zip(began.cpu).map_or(f64::NAN, |(now, then)| now - then),
        calls: ended.calls - began.calls,
        duplicate_bytes: flows.iter().map(|flow| flow.duplicate_bytes).sum(),
        loss_ratio: flows.iter().map(|f| f.loss_ratio).sum::<f64>() / flows.len().max(1) as f64,
        limited_by: first.iter().map(|(word, n)| (*word, f64::from(*n) / looks)).collect(),
        steady: session_rates.iter().fold(Rate::ZERO, |sum, &rate| sum.saturating_add(rate)),
        session_rates,
    })
}

/// Time between two looks at the engine's numbers, which are at most this old.
const LOOK: std::time::Duration = std::time::Duration::from_millis(20);
