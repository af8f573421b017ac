//! quinn from memory to memory: one QUIC connection, one stream.
//!
//! At its best: windows that never fill, packets as long as the path carries from the start,
//! segmentation offload (its default), AES-128-GCM by aws-lc.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use gtp_bench_peers::{Args, Meter, Role, content, place, room, say_ready, tls, verify};
use quinn::congestion::{BbrConfig, CubicConfig};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{Endpoint, EndpointConfig, MtuDiscoveryConfig, TokioRuntime, TransportConfig, VarInt};

const WINDOW: u32 = 64 << 20;
const BUFFER: usize = 32 << 20;
/// Bytes handed over at a time.
const PIECE: usize = 1 << 20;

fn main() -> Result<()> {
    let args = Args::of_process()?;
    let mut runtime = match args.number("threads", 1)? {
        1 => tokio::runtime::Builder::new_current_thread(),
        n => {
            let mut several = tokio::runtime::Builder::new_multi_thread();
            several.worker_threads(n as usize);
            several
        }
    };
    runtime.enable_all().build()?.block_on(async {
        match args.role {
            Role::Receive => receive(&args).await,
            Role::Send => send(&args).await,
        }
    })
}

fn transport(args: &Args) -> Result<(Arc<TransportConfig>, EndpointConfig)> {
    let mtu = args.number("mtu", 1_500)? as u16 - 28;
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(VarInt::from_u32(WINDOW))
        .receive_window(VarInt::from_u32(WINDOW))
        .send_window(u64::from(WINDOW))
        .initial_mtu(mtu)
        .min_mtu(mtu.min(1_472))
        .max_idle_timeout(Some(Duration::from_secs(20).try_into()?));
    if args.word("law", "cubic") == "bbr" {
        transport.congestion_controller_factory(Arc::new(BbrConfig::default()));
    } else {
        transport.congestion_controller_factory(Arc::new(CubicConfig::default()));
    }
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(mtu);
    transport.mtu_discovery_config(Some(discovery));
    let mut endpoint = EndpointConfig::default();
    endpoint.max_udp_payload_size(mtu)?;
    Ok((Arc::new(transport), endpoint))
}

fn socket(bound: &str) -> Result<std::net::UdpSocket> {
    let socket = socket2::Socket::from(std::net::UdpSocket::bind(bound)?);
    socket.set_recv_buffer_size(BUFFER)?;
    socket.set_send_buffer_size(BUFFER)?;
    Ok(socket.into())
}

async fn send(args: &Args) -> Result<()> {
    let content = bytes::Bytes::from(content(args.bytes()?));
    let library = args.word("aead", "aws-lc");
    let tls = tls::client(library, args.word("certificate", "bench.der"), "bench")?;
    let (transport, config) = transport(args)?;
    let endpoint = Endpoint::new(config, None, socket("0.0.0.0:0")?, Arc::new(TokioRuntime))?;
    let mut client = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    client.transport_config(transport);
    let connection = endpoint.connect_with(client, args.address, tls::NAME)?.await?;
    let (mut out, mut back) = connection.open_bi().await?;
    let meter = Meter::start();
    for _ in 0..args.times()? {
        for at in (0..content.len()).step_by(PIECE) {
            out.write_chunk(content.slice(at..content.len().min(at + PIECE))).await?;
        }
    }
    out.finish()?;
    back.read_to_end(8).await?;
    let payload = usize::from(connection.stats().path.current_mtu);
    meter.stop(content.len() as u64 * args.times()?, payload).print(None);
    connection.close(VarInt::from_u32(0), b"");
    endpoint.wait_idle().await;
    Ok(())
}

async fn receive(args: &Args) -> Result<()> {
    let total = args.bytes()? * args.times()?;
    let library = args.word("aead", "aws-lc");
    let tls = tls::server(library, args.word("certificate", "bench.der"), "bench")?;
    let (transport, config) = transport(args)?;
    let mut server = quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    server.transport_config(transport);
    let bound = socket(&args.address.to_string())?;
    let endpoint = Endpoint::new(config, Some(server), bound, Arc::new(TokioRuntime))?;
    let mut arrived = room(args.bytes()?);
    say_ready();
    let connection = endpoint.accept().await.context("nobody came")?.await?;
    let (mut back, mut stream) = connection.accept_bi().await?;
    let (mut meter, mut got) = (None, 0);
    while let Some(chunk) = stream.read_chunk(1 << 20, false).await? {
        meter.get_or_insert_with(Meter::start);
        place(&mut arrived, chunk.offset, &chunk.bytes);
        got += chunk.bytes.len() as u64;
    }
    let measured = meter.context("nothing came")?.stop(total, 0);
    back.finish()?;
    connection.closed().await;
    verify(&arrived)?;
    measured.print(Some(got == total));
    Ok(())
}
