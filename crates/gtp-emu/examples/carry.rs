//! How much the relay carries beside a sender and a receiver on the same machine, and how late.
//!
//! `carry [RATE] [SECONDS] [RUNS] [DELAY]`, by default 1Gbit 5 3 30ms: datagrams of 1,472 bytes,
//! 1,500 as IP packets, are sent at RATE through a link of 1.2 times that rate, in bursts of a
//! millisecond's worth at most. Prints one line per run, then the medians.

use std::io::IoSliceMut;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gtp_alloc::{Bytes, Rate, Span};
use gtp_emu::units_text::{parse_rate, parse_span};
use gtp_emu::{Emulator, Handle, NetSpec, TimingError};
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};

const PAYLOAD: usize = 1_472;
const PACKET: u64 = 1_500;
const BURST: u64 = 16;

struct Run {
    sent: u64,
    received: u64,
    /// Lost in the link's queue, because the sender was held up and then hurried.
    queue_drops: u64,
    /// Lost before the relay read them.
    unread: u64,
    carried_bps: f64,
    timing: TimingError,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |n: usize, usual: &str| args.get(n).cloned().unwrap_or(usual.to_owned());
    let rate = parse_rate(&arg(0, "1Gbit")).expect("a rate");
    let seconds: u64 = arg(1, "5").parse().expect("seconds");
    let runs: usize = arg(2, "3").parse().expect("runs");
    let delay = parse_span(&arg(3, "30ms")).expect("a delay");
    let runs: Vec<Run> = (0..runs).map(|_| run(rate, seconds, delay)).collect();
    for run in &runs {
        println!(
            "sent {} received {} loss {:.4} % (queue {}, unread {}) carried {:.1} Mbit/s \
             late p50 {:.0} us p99 {:.0} us p99.9 {:.0} us max {:.0} us",
            run.sent,
            run.received,
            loss(run),
            run.queue_drops,
            run.unread,
            run.carried_bps / 1e6,
            run.timing.p50_s * 1e6,
            run.timing.p99_s * 1e6,
            run.timing.p999_s * 1e6,
            run.timing.max_s * 1e6
        );
    }
    let median = |value: &dyn Fn(&Run) -> f64| {
        let mut values: Vec<f64> = runs.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    println!(
        "median: loss {:.4} % carried {:.1} Mbit/s late p50 {:.0} us p99 {:.0} us max {:.0} us",
        median(&loss),
        median(&|r| r.carried_bps) / 1e6,
        median(&|r| r.timing.p50_s) * 1e6,
        median(&|r| r.timing.p99_s) * 1e6,
        median(&|r| r.timing.max_s) * 1e6
    );
}

fn loss(run: &Run) -> f64 {
    (run.sent - run.received) as f64 * 100.0 / run.sent as f64
}

fn run(rate: Rate, seconds: u64, delay: Span) -> Run {
    let receiver = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let spec = format!(
        "[[link]]\nname = \"l\"\nrate = \"{}bit\"\ndelay = \"{}ns\"\nqueue = \"50ms\"\n\
         [[path]]\nname = \"p\"\nlisten = \"127.0.0.1:0\"\ntarget = \"{}\"\n\
         up = [\"l\"]\ndown = []",
        rate.as_bps() * 12 / 10,
        delay.as_nanos(),
        receiver.local_addr().expect("an address")
    );
    let handle = Emulator::relay(&NetSpec::parse(&spec).expect("a spec")).expect("a relay");
    let done = Arc::new(AtomicBool::new(false));
    let counter = {
        let done = Arc::clone(&done);
        thread::spawn(move || receive(&receiver, &done))
    };
    let begun = Instant::now();
    let sent = send(handle.listen("p").expect("the path listens"), rate, seconds);
    let took = begun.elapsed().as_secs_f64();
    // Until everything has passed the link, and then the time that the receiver may need.
    let drained = |handle: &Handle| {
        let path = handle.stats().expect("the relay runs").paths.remove(0).up;
        path.out_packets + path.dropped_packets >= path.in_packets
    };
    while !drained(&handle) {
        thread::park_timeout(Duration::from_millis(50));
    }
    thread::park_timeout(Duration::from_millis(500));
    done.store(true, Ordering::Relaxed);
    let received = counter.join().expect("the receiver counts");
    let stats = handle.stop().expect("the relay ran");
    let carried_bps = stats.links[0].carried_bytes as f64 * 8.0 / took;
    let link = &stats.links[0];
    let (queue_drops, unread) = (link.dropped_queue, sent - link.offered_packets);
    Run { sent, received, queue_drops, unread, carried_bps, timing: stats.timing_error }
}

fn send(to: std::net::SocketAddr, rate: Rate, seconds: u64) -> u64 {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let state = UdpSocketState::new((&socket).into()).expect("its state");
    let burst = vec![0; PAYLOAD * BURST as usize];
    let (start, mut sent) = (Instant::now(), 0_u64);
    while start.elapsed().as_secs() < seconds {
        let due = Bytes(sent * PACKET) / rate;
        let now = start.elapsed();
        let due = Duration::from_nanos(due.as_nanos());
        if due > now {
            thread::park_timeout(due - now);
        }
        let transmit = Transmit {
            destination: to,
            ecn: None,
            contents: &burst,
            segment_size: Some(PAYLOAD),
            src_ip: None,
        };
        if state.try_send((&socket).into(), &transmit).is_ok() {
            sent += BURST;
        }
    }
    sent
}

fn receive(socket: &UdpSocket, done: &AtomicBool) -> u64 {
    let state = UdpSocketState::new(socket.into()).expect("its state");
    let _ = state.set_recv_buffer_size(socket.into(), 4 << 20);
    let mut buffers = vec![0; BATCH_SIZE * 65_536];
    let mut metas = [RecvMeta::default(); BATCH_SIZE];
    let mut received = 0;
    while !done.load(Ordering::Relaxed) {
        let mut slices: Vec<_> = buffers.chunks_mut(65_536).map(IoSliceMut::new).collect();
        match state.recv(socket.into(), &mut slices, &mut metas) {
            Ok(n) => {
                received += metas[..n].iter().map(|m| m.len.div_ceil(m.stride) as u64).sum::<u64>();
            }
            Err(_) => thread::park_timeout(Duration::from_micros(500)),
        }
    }
    received
}
