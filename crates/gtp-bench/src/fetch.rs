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
    Calls, FlowProgress, Host, Law, RootPolicy, SessionKeys, SessionOpen, SocketId, TransferEvent,
    TransferHandle, TransferOpen,
};
use gtp_net::flows::Failure;
use gtp_net::identity::Fingerprint;
use gtp_net::messages::{Done, Law as WireLaw, Message, Open, SuiteList, VERSION, Verb};
use gtp_net::trust::{HostAddress, HostTrust};
use gtp_proto::limits::{UNIT_ETHERNET, UNIT_JUMBO, UNIT_MINIMUM};
use gtp_proto::{PathUse, Revision, Role};

use crate::cpu::cpu_seconds;
use crate::memory::{Arrived, MemorySink, Object};
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
    let lines = lines.into_iter().map(|line| (line.channel, line.session));
    let (mut channels, sessions): (Vec<_>, Vec<_>) = lines.unzip();
    let mut parts = parts(&hosts, sessions, &arrived, object)?;
    let figures = watch(&ends.host, &mut parts, &mut channels, object).await?;
    let done =
        Done { files: u64::from(object.times), content_bytes: object.total(), brought_bytes: None };
    for mut channel in channels {
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
        path: None,
        ticket: None,
        relay: None,
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
        revision: Revision::NEWEST,
        role: Role::Initiator {
            unit_payloads: unit_payloads.filter(|&unit| unit <= opened.unit_payload).collect(),
        },
        law: Law::Grant,
        weights: gtp_proto::Weights::ONE,
        path: PathUse::default(),
        max_rate: Rate::UNLIMITED,
        principal: 0,
        allowance: gtp_net::engine::Allowance::default(),
        label: channel.ends().remote.to_string(),
    };
    Ok(Line { channel, session, object })
}

fn bind(host: &Host, peer: SocketAddr) -> Result<SocketId, Failure> {
    let any = if peer.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let (socket, _) = host.bind_udp(any.parse().map_err(other)?).map_err(other)?;
    Ok(socket)
}

/// What the sessions of one engine bring.
struct Part {
    transfer: TransferHandle,
    complete: bool,
}

/// One transfer for each engine, with a part of every file by the number of its sessions.
fn parts(
    hosts: &[Host],
    sessions: Vec<SessionOpen>,
    arrived: &Arrived,
    object: Object,
) -> Result<Vec<Part>, Failure> {
    let manifest = object.manifest().map_err(other)?;
    let dealt = |engine: usize| (engine..sessions.len()).step_by(hosts.len()).count() as u64;
    let weights: Vec<u64> = (0..hosts.len()).map(dealt).collect();
    let open = |(host, sink): (&Host, MemorySink)| {
        let (sink, manifest) = (Box::new(sink), manifest.clone());
        let roots = RootPolicy::TrustTrailers;
        let transfer = host.open_transfer(TransferOpen { sink, manifest, roots });
        Part { transfer, complete: false }
    };
    let parts: Vec<Part> = hosts.iter().zip(arrived.sinks(&weights)).map(open).collect();
    for (i, session) in sessions.into_iter().enumerate() {
        parts[i % hosts.len()].transfer.add_session(session);
    }
    Ok(parts)
}

/// The next event of a part that is not complete.
async fn next_event(parts: &mut [Part]) -> (usize, Option<TransferEvent>) {
    std::future::poll_fn(|context| {
        for (i, part) in parts.iter_mut().enumerate().filter(|(_, part)| !part.complete) {
            let next = std::pin::pin!(part.transfer.next_event());
            if let Poll::Ready(event) = next.poll(context) {
                return Poll::Ready((i, event));
            }
        }
        Poll::Pending
    })
    .await
}

/// Waits for the end; knows the wire bytes of every moment to find the steady rate.
async fn watch(
    host: &Host,
    parts: &mut [Part],
    channels: &mut [ControlChannel],
    object: Object,
) -> Result<NetFigures, Failure> {
    let clock = host.clock();
    let mut look = tokio::time::interval(LOOK);
    let mut keepalive = tokio::time::interval(KEEPALIVE_SPAN);
    let mut limits = BTreeMap::new();
    let (mut began, mut middle) = (None, None);
    let look_at_effort = || (clock.now(), cpu_seconds(), host.calls());
    while parts.iter().any(|part| !part.complete) {
        tokio::select! {
            (at, event) = next_event(parts) => match event {
                Some(TransferEvent::PathOpen { .. }) => {
                    began.get_or_insert_with(look_at_effort);
                }
                Some(TransferEvent::AllBlocks) => {
                    let files = (0..object.times).map(|file| (file, None)).collect();
                    parts[at].transfer.finish_files(files);
                }
                Some(
                    TransferEvent::FileDone { .. }
                    | TransferEvent::FileNamed { .. }
                    | TransferEvent::Silent { .. },
                ) => {}
                Some(TransferEvent::Complete(_)) => parts[at].complete = true,
                Some(event) => return Err(other(format!("the run has failed: {event:?}"))),
                None => return Err(other("the run has ended early")),
            },
            _ = keepalive.tick() => for channel in &mut *channels {
                channel.send(&Message::Keepalive).await?;
            },
            _ = look.tick() => {
                let flows = flows(parts);
                if let Some(flow) = flows.first() {
                    *limits.entry(flow.limited_by.as_str()).or_insert(0_u32) += 1;
                }
                let brought: u64 = flows.iter().map(|flow| flow.bytes).sum();
                if middle.is_none() && brought * 2 > object.total() {
                    middle = Some((clock.now(), wire(&flows)));
                }
            }
        }
    }
    let (now, cpu, calls) = look_at_effort();
    let (began, cpu_began, calls_began) = began.unwrap_or((now, None, calls));
    let looks = f64::from(limits.values().sum::<u32>().max(1));
    let limited_by = limits.into_iter().map(|(word, n)| (word, f64::from(n) / looks)).collect();
    let made = figures(&flows(parts), object, (began, now), middle, cpu.zip(cpu_began));
    Ok(NetFigures { limited_by, calls: calls - calls_began, ..made })
}

/// Each session, in the order in which they were dealt out to the parts in turn.
fn flows(parts: &[Part]) -> Vec<FlowProgress> {
    let each: Vec<_> = parts.iter().map(|part| part.transfer.progress().flows).collect();
    let most = each.iter().map(Vec::len).max().unwrap_or(0);
    let nth = |n: usize| each.iter().filter_map(move |flows| flows.get(n).cloned());
    (0..most).flat_map(nth).collect()
}

/// IP bytes of each session so far.
fn wire(flows: &[FlowProgress]) -> Vec<u64> {
    flows.iter().map(|flow| flow.wire_bytes).collect()
}

fn figures(
    flows: &[FlowProgress],
    object: Object,
    (began, ended): (Time, Time),
    middle: Option<(Time, Vec<u64>)>,
    cpu: Option<(f64, f64)>,
) -> NetFigures {
    let wire = wire(flows);
    let (since, counted) = middle.unwrap_or((began, Vec::new()));
    let counted = counted.into_iter().chain(std::iter::repeat(0));
    let later: Vec<_> = wire.iter().zip(counted).map(|(now, then)| now - then).collect();
    let rate = |bytes| Bytes(bytes).per(ended.since(since));
    NetFigures {
        bytes: object.total(),
        wire_bytes: wire.iter().sum(),
        seconds: ended.since(began).as_secs_f64(),
        cpu_s: cpu.map_or(f64::NAN, |(now, then)| now - then),
        calls: Calls::default(),
        duplicate_bytes: flows.iter().map(|flow| flow.duplicate_bytes).sum(),
        loss_ratio: flows.iter().map(|f| f.loss_ratio).sum::<f64>() / flows.len().max(1) as f64,
        limited_by: BTreeMap::new(),
        steady: rate(later.iter().sum()),
        session_rates: later.into_iter().map(rate).collect(),
    }
}

/// Time between two looks at the engine's numbers, which are at most this old.
const LOOK: std::time::Duration = std::time::Duration::from_millis(20);
