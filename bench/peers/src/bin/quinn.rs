//! quinn from memory to memory: one QUIC connection, one stream.
//!
//! At its best: windows that never fill, packets as long as the path carries from the start and to
//! the end, segmentation offload (its default) in batches that the kernel takes, AES-128-GCM by
//! aws-lc.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Waiting, Poll};
use std::time::Duration;

use anyhow::{Context, Result};
use gtp_bench_peers::{Args, Meter, Role, content, place, room, say_ready, tls, verify};
use quinn::congestion::{BbrConfig, CubicConfig};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::udp::{RecvMeta, Transmit};
use quinn::{
    AsyncUdpSocket, Endpoint, EndpointConfig, MtuDiscoveryConfig, Runtime, TokioRuntime,
    TransportConfig, UdpPoller, VarInt,
};

const WINDOW: u32 = 64 << 20;
const BUFFER: usize = 32 << 20;
/// Bytes handed over at a time.
const PIECE: usize = 1 << 20;
/// Headers of IPv4 and UDP.
const HEADERS: u16 = 28;
/// Bytes that the kernel takes in one call to be cut into datagrams: as many as one has room for.
const BATCH: usize = 65_535 - HEADERS as usize;

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

/// The longest datagram that the path carries.
fn datagram(args: &Args) -> Result<u16> {
    Ok(args.number("mtu", 1_500)? as u16 - HEADERS)
}

fn transport(args: &Args) -> Result<(Arc<TransportConfig>, EndpointConfig)> {
    let mtu = datagram(args)?;
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(VarInt::from_u32(WINDOW))
        .receive_window(VarInt::from_u32(WINDOW))
        .send_window(u64::from(WINDOW))
        .initial_mtu(mtu)
        // The path is known: a burst of losses is no black hole.
        .min_mtu(mtu)
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

fn socket(args: &Args, bound: SocketAddr) -> Result<Arc<dyn AsyncUdpSocket>> {
    let socket = socket2::Socket::from(std::net::UdpSocket::bind(bound)?);
    socket.set_recv_buffer_size(BUFFER)?;
    socket.set_send_buffer_size(BUFFER)?;
    let inner = TokioRuntime.wrap_udp_socket(socket.into())?;
    Ok(Arc::new(Batched { inner, most: BATCH / usize::from(datagram(args)?) }))
}

/// A socket that says how many datagrams the kernel takes in one call. quinn gives it ten of any
/// length, and does not hear that more than 64 KiB are refused: with datagrams of more than 6,550
/// bytes each full batch would be lost, and what was sent again would go out in short ones.
#[derive(Debug)]
struct Batched {
    inner: Arc<dyn AsyncUdpSocket>,
    most: usize,
}

impl AsyncUdpSocket for Batched {
    fn max_transmit_segments(&self) -> usize {
        self.inner.max_transmit_segments().min(self.most)
    }

    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.inner).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.inner.try_send(transmit)
    }

    fn poll_recv(
        &self,
        waiting: &mut Waiting<'_>,
        into: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.inner.poll_recv(waiting, into, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_receive_segments(&self) -> usize {
        self.inner.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}

async fn send(args: &Args) -> Result<()> {
    let content = bytes::Bytes::from(content(args.bytes()?));
    let library = args.word("aead", "aws-lc");
    let tls = tls::client(library, args.word("certificate", "bench.der"), "bench")?;
    let (transport, config) = transport(args)?;
    let bound = socket(args, "0.0.0.0:0".parse()?)?;
    let runtime = Arc::new(TokioRuntime);
    let endpoint = Endpoint::new_with_abstract_socket(config, None, bound, runtime)?;
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
    let bound = socket(args, args.address)?;
    let runtime = Arc::new(TokioRuntime);
    let endpoint = Endpoint::new_with_abstract_socket(config, Some(server), bound, runtime)?;
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
