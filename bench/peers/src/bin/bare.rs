//! The limit: UDP with segmentation offload and one AEAD seal per packet, and nothing else.
//!
//! It does what any encrypted transport of this kind must: copies each packet's payload once into
//! a batch of up to 64 KB, seals it in place, sends the batch with one call; receives batches,
//! opens each packet in place, and copies it to its own offset in the receiver's memory. Both ends
//! have the processor fetch the next packet's memory while they work on this one's. A word
//! of the receiver for every mebibyte keeps the sender within its buffer, so nothing is lost; what
//! a protocol adds (rates, repair, many sessions) is left out.

use std::io::IoSliceMut;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use gtp_bench_peers::{Args, Meter, Role, content, room, say_ready, verify};
use gtp_sys::prefetch;
use quinn_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};

/// Packet number and place of the payload, in the clear and authenticated.
const HEAD: usize = 16;
const TAG: usize = 16;
/// What an IPv4 datagram's length field can say, less headers.
const MOST: usize = 65_000;
/// The receiver speaks when this many more bytes have come.
const WORD_EVERY: u64 = 1 << 20;
const BUFFER: usize = 32 << 20;
const KEY: [u8; 16] = *b"a key that is no";

/// The AEAD, by one of two libraries, or none.
enum Aead {
    Ring(Box<ring::aead::LessSafeKey>),
    AwsLc(Box<aws_lc_rs::aead::LessSafeKey>),
    None,
}

impl Aead {
    fn named(name: &str) -> Result<Aead> {
        Ok(match name {
            "ring" => {
                use ring::aead::{AES_128_GCM, LessSafeKey, UnboundKey};
                let key = UnboundKey::new(&AES_128_GCM, &KEY).ok().context("a key")?;
                Aead::Ring(Box::new(LessSafeKey::new(key)))
            }
            "aws-lc" => {
                use aws_lc_rs::aead::{AES_128_GCM, LessSafeKey, UnboundKey};
                let key = UnboundKey::new(&AES_128_GCM, &KEY).ok().context("a key")?;
                Aead::AwsLc(Box::new(LessSafeKey::new(key)))
            }
            "none" => Aead::None,
            other => bail!("--aead {other}: expected ring, aws-lc or none"),
        })
    }

    /// Seals a body in place and returns its tag.
    fn seal(&self, number: u64, head: &[u8], body: &mut [u8]) -> Result<[u8; TAG]> {
        let mut tag = [0; TAG];
        match self {
            Aead::Ring(key) => {
                use ring::aead::{Aad, Nonce};
                let nonce = Nonce::assume_unique_for_key(nonce(number));
                let made = key.seal_in_place_separate_tag(nonce, Aad::from(head), body);
                tag.copy_from_slice(made.ok().context("sealing")?.as_ref());
            }
            Aead::AwsLc(key) => {
                use aws_lc_rs::aead::{Aad, Nonce};
                let nonce = Nonce::assume_unique_for_key(nonce(number));
                let made = key.seal_in_place_separate_tag(nonce, Aad::from(head), body);
                tag.copy_from_slice(made.ok().context("sealing")?.as_ref());
            }
            Aead::None => {}
        }
        Ok(tag)
    }

    /// Opens a body and its tag in place.
    fn open<'b>(&self, number: u64, head: &[u8], sealed: &'b mut [u8]) -> Result<&'b [u8]> {
        match self {
            Aead::Ring(key) => {
                use ring::aead::{Aad, Nonce};
                let nonce = Nonce::assume_unique_for_key(nonce(number));
                let body = key.open_in_place(nonce, Aad::from(head), sealed);
                Ok(body.ok().context("a packet does not open")?)
            }
            Aead::AwsLc(key) => {
                use aws_lc_rs::aead::{Aad, Nonce};
                let nonce = Nonce::assume_unique_for_key(nonce(number));
                let body = key.open_in_place(nonce, Aad::from(head), sealed);
                Ok(body.ok().context("a packet does not open")?)
            }
            Aead::None => Ok(&sealed[..sealed.len() - TAG]),
        }
    }
}

fn nonce(number: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    nonce
}

fn main() -> Result<()> {
    let args = Args::of_process()?;
    let aead = Aead::named(args.word("aead", "ring"))?;
    match args.role {
        Role::Receive => receive(&args, &aead),
        Role::Send => send(&args, &aead),
    }
}

/// A blocking socket with large buffers, and the state of its offloads.
fn socket(bound: SocketAddr) -> Result<(UdpSocket, UdpSocketState)> {
    let socket = socket2::Socket::from(UdpSocket::bind(bound)?);
    socket.set_recv_buffer_size(BUFFER)?;
    socket.set_send_buffer_size(BUFFER)?;
    let socket = UdpSocket::from(socket);
    let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
    socket.set_nonblocking(false)?;
    Ok((socket, state))
}

fn send(args: &Args, aead: &Aead) -> Result<()> {
    let payload = args.number("payload", 1_400)? as usize;
    let window = args.number("window", 8 << 20)?;
    let content = content(args.bytes()?);
    let (socket, state) = socket("0.0.0.0:0".parse()?)?;
    socket.connect(args.address)?;
    // GSO needs whole segments; a batch is as many as fit into one call.
    let segment = HEAD + payload + TAG;
    let most = (MOST / segment).min(state.max_gso_segments()).max(1);
    let (mut batch, mut number) = (Vec::with_capacity(MOST), 0_u64);
    let mut told = 0;
    let total = content.len() as u64 * args.times()?;
    let meter = Meter::start();
    let mut at = 0;
    while at < total {
        wait_for_room(&socket, at, window, &mut told)?;
        batch.clear();
        for _ in 0..most {
            let begin = (at % content.len() as u64) as usize;
            let end = content.len().min(begin + payload);
            prefetch::soon(&content[end..content.len().min(end + payload)]);
            seal(aead, number, begin as u64, &content[begin..end], &mut batch)?;
            (number, at) = (number + 1, at + (end - begin) as u64);
            if end == content.len() {
                break; // It is shorter, so it must be the batch's last.
            }
        }
        let transmit = Transmit {
            destination: args.address,
            ecn: None,
            contents: &batch,
            segment_size: (segment < batch.len()).then_some(segment),
            src_ip: None,
        };
        state.try_send(UdpSockRef::from(&socket), &transmit).context("sending")?;
    }
    wait_for_room(&socket, total, 0, &mut told)?;
    meter.stop(total, payload).print(None);
    Ok(())
}

fn seal(aead: &Aead, number: u64, at: u64, payload: &[u8], batch: &mut Vec<u8>) -> Result<()> {
    let start = batch.len();
    batch.extend_from_slice(&number.to_be_bytes());
    batch.extend_from_slice(&at.to_be_bytes());
    batch.extend_from_slice(payload);
    let (head, body) = batch[start..].split_at_mut(HEAD);
    let tag = aead.seal(number, head, body)?;
    batch.extend_from_slice(&tag);
    Ok(())
}

/// Waits until no more than `window` bytes are under way.
fn wait_for_room(socket: &UdpSocket, sent: u64, window: u64, told: &mut u64) -> Result<()> {
    while *told + window < sent {
        let mut word = [0; 8];
        socket.set_read_timeout(Some(Duration::from_secs(2)))?;
        socket.recv(&mut word).context("the receiver is silent: packets were lost")?;
        *told = (*told).max(u64::from_be_bytes(word));
    }
    Ok(())
}

fn receive(args: &Args, aead: &Aead) -> Result<()> {
    let total = args.bytes()? * args.times()?;
    let (socket, state) = socket(args.address)?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    let calls = args.number("buffers", 4)?.clamp(1, 16) as usize;
    let mut buffers = vec![0; calls << 16];
    let mut metas = vec![RecvMeta::default(); calls];
    let mut arrived = room(args.bytes()?);
    let (mut meter, mut got, mut said, mut most) = (None, 0, 0, 0);
    say_ready();
    while got < total {
        let mut slices: Vec<_> = buffers.chunks_mut(1 << 16).map(IoSliceMut::new).collect();
        let filled = state.recv(UdpSockRef::from(&socket), &mut slices, &mut metas)?;
        meter.get_or_insert_with(Meter::start);
        for (buffer, meta) in buffers.chunks_mut(1 << 16).zip(&metas[..filled]) {
            for packet in buffer[..meta.len].chunks_mut(meta.stride) {
                let payload = keep(aead, packet, &mut arrived)?;
                most = payload.max(most);
                got += payload as u64;
            }
        }
        if got - said >= WORD_EVERY || got == total {
            said = got;
            socket.send_to(&got.to_be_bytes(), metas[0].addr)?;
        }
    }
    let measured = meter.context("nothing came")?.stop(got, most);
    verify(&arrived)?;
    measured.print(Some(true));
    Ok(())
}

/// Opens a packet, puts it in its place, and returns how many bytes that were. Nothing comes twice,
/// so when as many have come as were sent, and all are right, all are there.
fn keep(aead: &Aead, packet: &mut [u8], arrived: &mut [u8]) -> Result<usize> {
    ensure!(packet.len() > HEAD + TAG, "a packet is too short");
    let (head, sealed) = packet.split_at_mut(HEAD);
    let number = u64::from_be_bytes(head[..8].try_into()?);
    let at = u64::from_be_bytes(head[8..].try_into()?) as usize;
    let body = aead.open(number, head, sealed)?;
    let place = arrived.get_mut(at..at + body.len()).context("a packet is out of place")?;
    place.copy_from_slice(body);
    let (end, len) = (at + body.len(), body.len());
    prefetch::soon(&arrived[end..arrived.len().min(end + len)]);
    Ok(len)
}
