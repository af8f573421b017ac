//! s2n-quic from memory to memory: one QUIC connection, one stream.
//!
//! At its best: windows that never fill, packets as long as the path carries from the start and to
//! the end, segmentation offload (its default), AES-128-GCM by aws-lc.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context, Result};
use bytes::Bytes;
use gtp_bench_peers::{Args, Meter, Role, content, place, room, say_ready, tls, verify};
use s2n_quic::client::Connect;
use s2n_quic::provider::event::{ConnectionInfo, ConnectionMeta, Subscriber, events};
use s2n_quic::provider::io::tokio as io;
use s2n_quic::provider::{congestion_controller as cc, limits::Limits};
use s2n_quic::{Client, Connection, Server};

const WINDOW: u64 = 64 << 20;
const BUFFER: usize = 32 << 20;
/// Bytes handed over at a time.
const PIECE: usize = 1 << 20;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let args = Args::of_process()?;
    match args.role {
        Role::Receive => receive(&args).await,
        Role::Send => send(&args).await,
    }
}

fn limits() -> Result<Limits> {
    Ok(Limits::new()
        .with_data_window(WINDOW)?
        .with_bidirectional_local_data_window(WINDOW)?
        .with_bidirectional_remote_data_window(WINDOW)?
        .with_max_send_buffer_size(u32::try_from(WINDOW)?)?)
}

fn path(args: &Args, bound: std::net::SocketAddr) -> Result<io::Provider> {
    let mtu = args.number("mtu", 1_500)? as u16;
    Ok(io::Builder::default()
        .with_receive_address(bound)?
        .with_max_mtu(mtu)?
        .with_initial_mtu(mtu)?
        // The path is known: a burst of losses is no black hole.
        .with_base_mtu(mtu)?
        .with_send_buffer_size(BUFFER)?
        .with_recv_buffer_size(BUFFER)?
        .build()?)
}

/// The longest datagram that the connection sends now.
#[derive(Clone, Default)]
struct Longest(Arc<AtomicU16>);

impl Subscriber for Longest {
    type ConnectionContext = ();

    fn create_connection_context(&mut self, _: &ConnectionMeta, _: &ConnectionInfo) {}

    fn on_mtu_updated(&mut self, (): &mut (), _: &ConnectionMeta, now: &events::MtuUpdated) {
        self.0.store(now.mtu, Ordering::Relaxed);
    }
}

async fn send(args: &Args) -> Result<()> {
    let content = Bytes::from(content(args.bytes()?));
    let tls = tls::client("aws-lc", args.word("certificate", "bench.der"), "bench")?;
    let tls = s2n_quic::provider::tls::rustls::Client::from(tls);
    let longest = Longest::default();
    let builder = Client::builder()
        .with_tls(tls)?
        .with_event(longest.clone())?
        .with_io(path(args, "0.0.0.0:0".parse()?)?)?
        .with_limits(limits()?)?;
    let mut client = if args.word("law", "cubic") == "bbr" {
        builder.with_congestion_controller(cc::Bbr::default())?.start()?
    } else {
        builder.with_congestion_controller(cc::Cubic::default())?.start()?
    };
    let to = Connect::new(args.address).with_server_name(tls::NAME);
    let mut connection: Connection = client.connect(to).await?;
    let stream = connection.open_bidirectional_stream().await?;
    let (mut back, mut out) = stream.split();
    let meter = Meter::start();
    for _ in 0..args.times()? {
        for at in (0..content.len()).step_by(PIECE) {
            out.send(content.slice(at..content.len().min(at + PIECE))).await?;
        }
    }
    out.finish()?;
    while back.receive().await?.is_some() {}
    let payload = usize::from(longest.0.load(Ordering::Relaxed));
    meter.stop(content.len() as u64 * args.times()?, payload).print(None);
    connection.close(0_u32.into());
    client.wait_idle().await?;
    Ok(())
}

async fn receive(args: &Args) -> Result<()> {
    let total = args.bytes()? * args.times()?;
    let tls = tls::server("aws-lc", args.word("certificate", "bench.der"), "bench")?;
    let tls = s2n_quic::provider::tls::rustls::Server::from(tls);
    let mut server = Server::builder()
        .with_tls(tls)?
        .with_io(path(args, args.address)?)?
        .with_limits(limits()?)?
        .start()?;
    let mut arrived = room(args.bytes()?);
    say_ready();
    let mut connection = server.accept().await.context("nobody came")?;
    let stream = connection.accept_bidirectional_stream().await?.context("no stream came")?;
    let (mut stream, mut back) = stream.split();
    let (mut meter, mut got) = (None, 0);
    while let Some(chunk) = stream.receive().await? {
        meter.get_or_insert_with(Meter::start);
        place(&mut arrived, got, &chunk);
        got += chunk.len() as u64;
    }
    let measured = meter.context("nothing came")?.stop(got, 0);
    back.finish()?;
    // The sender closes when it has seen the end.
    while connection.accept().await.is_ok_and(|stream| stream.is_some()) {}
    verify(&arrived)?;
    measured.print(Some(got == total));
    Ok(())
}
