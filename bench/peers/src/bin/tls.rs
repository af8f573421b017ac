//! TLS 1.3 over one TCP connection: what kernel TCP gives when it is encrypted.
//!
//! Records of 16 KiB with AES-128-GCM; the socket is written in pieces of many records. The
//! congestion control is the system's, or the one named.

use std::io::{BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use anyhow::{Context, Result};
use gtp_bench_peers::{Args, Meter, Role, content, room, say_ready, tls, verify};
use rustls::{ClientConnection, ServerConnection};

/// Bytes per write to the socket, and read from it at most: 16 records.
const PIECE: usize = 256 << 10;

fn main() -> Result<()> {
    let args = Args::of_process()?;
    let library = args.word("aead", "aws-lc").to_owned();
    let certificate = args.word("certificate", "bench.der").to_owned();
    match args.role {
        Role::Receive => receive(&args, &library, &certificate),
        Role::Send => send(&args, &library, &certificate),
    }
}

fn send(args: &Args, library: &str, certificate: &str) -> Result<()> {
    let content = content(args.bytes()?);
    let config = tls::client(library, certificate, "bench")?;
    let mut tcp = connect(args)?;
    let mut tls = ClientConnection::new(Arc::new(config), tls::NAME.try_into()?)?;
    tls.set_buffer_limit(None);
    while tls.is_handshaking() {
        tls.complete_io(&mut tcp)?;
    }
    let meter = Meter::start();
    for _ in 0..args.times()? {
        for piece in content.chunks(PIECE) {
            tls.writer().write_all(piece)?;
            while tls.wants_write() {
                tls.write_tls(&mut tcp)?;
            }
        }
    }
    // The receiver says one byte when it has everything.
    while tls.reader().read(&mut [0]).is_err() {
        tls.read_tls(&mut tcp)?;
        tls.process_new_packets()?;
    }
    meter.stop(content.len() as u64 * args.times()?, 0).print(None);
    Ok(())
}

fn connect(args: &Args) -> Result<TcpStream> {
    use socket2::{Domain, Socket, Type};
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    let law = args.word("law", "");
    if !law.is_empty() {
        socket.set_tcp_congestion(law.as_bytes()).with_context(|| format!("--law {law}"))?;
    }
    socket.connect(&args.address.into())?;
    Ok(socket.into())
}

fn receive(args: &Args, library: &str, certificate: &str) -> Result<()> {
    let total = args.bytes()? * args.times()?;
    let config = tls::server(library, certificate, "bench")?;
    let listener = TcpListener::bind(args.address)?;
    let mut arrived = room(args.bytes()?);
    say_ready();
    let (mut tcp, _) = listener.accept()?;
    let mut tls = ServerConnection::new(Arc::new(config))?;
    while tls.is_handshaking() {
        tls.complete_io(&mut tcp)?;
    }
    let (mut meter, mut got) = (None, 0);
    // One call to the system brings many records.
    let mut pieces = BufReader::with_capacity(PIECE, tcp.try_clone()?);
    while got < total {
        tls.read_tls(&mut pieces)?;
        meter.get_or_insert_with(Meter::start);
        let state = tls.process_new_packets()?;
        let mut ready = state.plaintext_bytes_to_read();
        while ready > 0 {
            let at = (got % arrived.len() as u64) as usize;
            let end = arrived.len().min(at + ready);
            tls.reader().read_exact(&mut arrived[at..end])?;
            (got, ready) = (got + (end - at) as u64, ready - (end - at));
        }
    }
    let measured = meter.context("nothing came")?.stop(total, 0);
    tls.writer().write_all(&[1])?;
    while tls.wants_write() {
        tls.write_tls(&mut tcp)?;
    }
    verify(&arrived)?;
    measured.print(Some(true));
    Ok(())
}
