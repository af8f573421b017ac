//! Moves a synthetic object between two hosts of one process, over loopback, and prints how fast.
//!
//! `loopback [MBIT] [MIB] [SESSIONS]`: the sink's capacity in Mbit/s (default 1000), the object's
//! size in MiB (default 500), and how many sessions bring it (default 1).

use std::error::Error;
use std::time::Duration;

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_net::crypto::{Suite, TrafficSecret};
use gtp_net::engine::{
    Host, HostConfig, Law, RootPolicy, SessionKeys, SessionOpen, SourceHandle, SourceOpen,
    TransferEvent, TransferHandle, TransferOpen,
};
use gtp_proto::{PathUse, Revision, Role};
use gtp_store::{BlockSource, DiscardSink, Pattern, RelPath, SyntheticSource};

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let mut number = |default| args.next().map_or(Ok(default), |arg| arg.parse::<u64>());
    let (mbit, mib, sessions) = (number(1_000)?, number(500)?, number(1)?);
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run(
        Rate::from_mbps(mbit),
        mib << 20,
        sessions,
    ))
}

async fn run(capacity: Rate, size: u64, sessions: u64) -> Result<(), Failure> {
    let host = |out, in_| {
        let memory = Bytes(256 << 20);
        Host::start(HostConfig {
            capacity_out: out,
            capacity_in: in_,
            interval: None,
            memory,
            engines: 1,
        })
    };
    let sends = host(Rate::UNLIMITED, Rate::UNLIMITED)?;
    let receives = host(Rate::UNLIMITED, capacity)?;
    let name = RelPath::new("object").map_err(|error| error.to_string())?;
    let object = || SyntheticSource::file(name.clone(), size, Pattern::Zeros);
    let manifest = object().manifest().clone();
    let sink = Box::new(DiscardSink::new(manifest.clone()));
    let roots = RootPolicy::TrustTrailers;
    let began = receives.clock().now();
    let mut transfer = receives.open_transfer(TransferOpen { sink, manifest, roots });
    let mut sources: Vec<SourceHandle> = Vec::new();
    for _ in 0..sessions {
        let (there, here) = session(&sends, &receives)?;
        let source = Box::new(object());
        sources.push(sends.open_source(SourceOpen { session: there, source }));
        transfer.add_session(here);
    }
    watch(&mut transfer, &receives, began, size).await
}

/// What the two engines must know of a session between them.
fn session(sends: &Host, receives: &Host) -> Result<(SessionOpen, SessionOpen), Failure> {
    let (sink_socket, sink_addr) = receives.bind_udp("127.0.0.1:0".parse()?)?;
    let (source_socket, source_addr) = sends.bind_udp("127.0.0.1:0".parse()?)?;
    let (sink_id, source_id) = (receives.new_session_id(), sends.new_session_id());
    let open = |socket, peer, local_session, peer_session, seal: u8, open: u8, role| SessionOpen {
        socket,
        peer,
        local_session,
        peer_session,
        keys: SessionKeys {
            suite: Suite::Aes128Gcm,
            seal: TrafficSecret::new([seal; 32]),
            open: TrafficSecret::new([open; 32]),
        },
        revision: Revision::NEWEST,
        role,
        law: Law::Grant,
        weights: gtp_proto::Weights::ONE,
        path: PathUse::default(),
        max_rate: Rate::UNLIMITED,
        principal: 0,
        allowance: gtp_net::engine::Allowance::default(),
        label: "loopback".into(),
    };
    let there = open(source_socket, sink_addr, source_id, sink_id, 2, 1, Role::Responder);
    let role = Role::Initiator { unit_payloads: vec![1_400] };
    let here = open(sink_socket, source_addr, sink_id, source_id, 1, 2, role);
    Ok((there, here))
}

/// Prints a line every half second and a summary at the end.
async fn watch(
    transfer: &mut TransferHandle,
    host: &Host,
    began: Time,
    size: u64,
) -> Result<(), Failure> {
    let mut tick = tokio::time::interval(Duration::from_millis(500));
    let mut last = (began, Bytes::ZERO);
    let mut rates: Vec<f64> = Vec::new();
    loop {
        tokio::select! {
            event = transfer.next_event() => match event {
                Some(TransferEvent::AllBlocks) => transfer.finish_files(vec![(0, None)]),
                Some(TransferEvent::Complete(_)) => break,
                Some(event) => println!("{event:?}"),
                None => return Err("the transfer ended early".into()),
            },
            _ = tick.tick() => {
                let now = host.clock().now();
                let progress = transfer.progress();
                let bytes = Bytes(progress.flows.iter().map(|flow| flow.wire_bytes).sum());
                let rate = (bytes - last.1).per(now.since(last.0));
                last = (now, bytes);
                rates.push(rate.as_f64());
                let state: Vec<String> = progress.flows.iter().map(|f| format!(
                    "{} of {} by {} rtt {:?} loss {:.4}%",
                    f.rate, f.granted, f.limited_by.as_str(), f.rtt, 100.0 * f.loss_ratio,
                )).collect();
                println!("{rate} [{}]", state.join("; "));
            }
        }
    }
    summary(transfer, host, began, size, &rates);
    Ok(())
}

fn summary(transfer: &TransferHandle, host: &Host, began: Time, size: u64, rates: &[f64]) {
    let took: Span = host.clock().now().since(began);
    let flows = transfer.progress().flows;
    let wire: u64 = flows.iter().map(|flow| flow.wire_bytes).sum();
    let twice: u64 = flows.iter().map(|flow| flow.duplicate_bytes).sum();
    println!("{took:?}: goodput {}, on the wire {}", Bytes(size).per(took), Bytes(wire).per(took));
    // The first two samples hold the start, the last the end.
    if let Some(steady) = rates.get(3..) {
        let mean = steady.iter().sum::<f64>() / steady.len().max(1) as f64;
        println!("steady: {:.3} Mbit/s of IP bytes", mean / 1e6);
    }
    println!("received twice: {twice} B; drops: {:?}", host.drops());
    for line in threads() {
        println!("{line}");
    }
}

/// CPU time of each thread of this process, from the kernel's own count.
fn threads() -> Vec<String> {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    let stat = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("stat")).ok()?;
        let (name, rest) = text.split_once(") ")?;
        let mut fields = rest.split(' ').skip(11).map(|field| field.parse::<u64>().unwrap_or(0));
        let ticks = (fields.next()?, fields.next()?);
        let name = name.split_once('(').map_or("", |(_, name)| name);
        Some(format!("{name:>12}: user {:>5} ms, system {:>5} ms", ticks.0 * 10, ticks.1 * 10))
    };
    tasks.filter_map(|task| stat(task.ok()?)).collect()
}
