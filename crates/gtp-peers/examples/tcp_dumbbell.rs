//! Flows of TCP or XCP over one bottleneck, for comparison with other simulators: the counterpart
//! of `bench/referees/dumbbell.tcl` and `dumbbell.cc`, with their arguments and the same lines.

use gtp_alloc::{Bytes, Rate, Span};
use gtp_path::{START, World, bottleneck, wire};
use gtp_peers::tcp::laws::{Bic, Cubic, HTcp, HighSpeed, Leftover, Reno, Scalable, Vegas};
use gtp_peers::tcp::{
    AckDelay, AckView, Counting, Flavour, Law, LossView, Opening, Receiver, ReceiverConfig, Sender,
    SenderConfig, Window,
};
use gtp_peers::{Endpoint, Routed, xcp};

const USAGE: &str = "usage: tcp_dumbbell ns-2|ns-3 LAW MBPS RTT_MS QUEUE_PACKETS FLOWS SECONDS \
                     LOSE_EVERY LEAST_TIMEOUT_MS";

/// Which simulator it stands opposite.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Referee {
    Ns2,
    Ns3,
}

/// What decides over a flow's window.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ruler {
    Tcp(Flavour),
    /// The bottleneck's queue, too.
    Xcp,
}

impl Ruler {
    fn from_name(name: &str) -> Option<Ruler> {
        match name {
            "xcp" => Some(Ruler::Xcp),
            other => Flavour::from_name(other).map(Ruler::Tcp),
        }
    }
}

struct Case {
    referee: Referee,
    ruler: Ruler,
    mbps: u64,
    rtt_ms: u64,
    queue: u64,
    flows: u64,
    seconds: u64,
    lose_every: u64,
    least_timeout: Span,
}

fn parse() -> Option<Case> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize| args.get(i)?.parse::<u64>().ok();
    let referee = match args.first()?.as_str() {
        "ns-2" => Referee::Ns2,
        "ns-3" => Referee::Ns3,
        _ => return None,
    };
    Some(Case {
        referee,
        ruler: Ruler::from_name(args.get(1)?)?,
        mbps: number(2)?,
        rtt_ms: number(3)?,
        queue: number(4)?,
        flows: number(5)?,
        seconds: number(6)?,
        lose_every: number(7)?,
        least_timeout: Span::from_millis(number(8)?),
    })
}

/// The law, the sender and the receiver that stand opposite a simulator's.
type Parts = (Box<dyn Law>, SenderConfig, ReceiverConfig);

fn ends(case: &Case, seed: u64) -> Parts {
    match (case.referee, case.ruler) {
        (_, Ruler::Xcp) => beside_xcp(case),
        (Referee::Ns2, Ruler::Tcp(flavour)) => beside_ns2(case, flavour, seed),
        (Referee::Ns3, Ruler::Tcp(flavour)) => beside_ns3(case, flavour, seed),
    }
}

/// XCP has no slow start. In ns-2 it repairs as Reno does, its segments have timestamps, and it
/// measures in its own way. ns-3 has no XCP: beside that name the law itself runs.
fn beside_xcp(case: &Case) -> Parts {
    let plain = SenderConfig {
        initial_window: 2.0,
        least_timeout: case.least_timeout,
        opening: Opening::Open,
        ..SenderConfig::default()
    };
    let (law, config): (Box<dyn Law>, _) = match case.referee {
        Referee::Ns2 => {
            let stamped = SenderConfig { header: Bytes(50), ..plain };
            (Box::new(xcp::Law::as_in_ns2(plain.mss)), stamped)
        }
        Referee::Ns3 => (Routed::Xcp.law(), plain),
    };
    let receiver = ReceiverConfig { delay: AckDelay::None, ..ReceiverConfig::default() };
    (law, Routed::Xcp.adapt(config), receiver)
}

/// ns-3's NewReno adds whole bytes: at 335 segments 4 for 4.36.
#[derive(Clone, Copy, Debug)]
struct WholeBytes {
    mss: f64,
}

impl Law for WholeBytes {
    fn name(&self) -> &'static str {
        "reno"
    }

    fn grow(&mut self, ack: &AckView, window: &mut Window) {
        if let Some(credit) = window.slow_start(ack.credit) {
            window.size += credit * (self.mss / window.size).floor() / self.mss;
        }
    }

    fn shrink(&mut self, loss: &LossView) -> f64 {
        Reno.shrink(loss)
    }
}

/// Linux's Scalable of 2007 counts acknowledgments, here of two segments: with every 51st, or, in a
/// window of less than 50, with one more than the window has segments, comes a segment.
#[derive(Clone, Copy, Debug)]
struct CountingScalable;

impl Law for CountingScalable {
    fn name(&self) -> &'static str {
        "scalable"
    }

    fn grow(&mut self, ack: &AckView, window: &mut Window) {
        if let Some(credit) = window.slow_start(ack.credit) {
            window.size += credit / 2.0 / (window.size.min(50.0) + 1.0);
        }
    }

    fn shrink(&mut self, loss: &LossView) -> f64 {
        Scalable.shrink(loss)
    }
}

/// ns-3's laws are today's. Its segments have timestamps and two bytes of a point-to-point link,
/// and each is acknowledged, with blocks under every law.
fn beside_ns3(case: &Case, flavour: Flavour, seed: u64) -> Parts {
    let (flavour, counting) = match flavour {
        Flavour::NewReno => (Flavour::Sack, Counting::Acks),
        other => (other, Counting::Segments),
    };
    let config = SenderConfig {
        header: Bytes(54),
        initial_window: 2.0,
        least_timeout: case.least_timeout,
        counting,
        ..SenderConfig::default()
    };
    let receiver = ReceiverConfig { delay: AckDelay::None, ..ReceiverConfig::default() };
    let law: Box<dyn Law> = match flavour {
        Flavour::Cubic => Box::new(Cubic::default().in_whole_segments(Leftover::Kept)),
        Flavour::Sack => Box::new(WholeBytes { mss: config.mss.0 as f64 }),
        other => other.law(seed),
    };
    (law, flavour.adapt(config), flavour.adapt_receiver(receiver))
}

fn beside_ns2(case: &Case, flavour: Flavour, seed: u64) -> Parts {
    let common = SenderConfig {
        initial_window: 2.0,
        least_timeout: case.least_timeout,
        opening: Opening::Open,
        ..SenderConfig::default()
    };
    let receiver = ReceiverConfig { delay: AckDelay::None, ..ReceiverConfig::default() };
    match flavour {
        Flavour::Reno | Flavour::NewReno | Flavour::Sack | Flavour::HighSpeed => {
            let config = SenderConfig { counting: Counting::Acks, ..common };
            let law: Box<dyn Law> = match flavour {
                Flavour::HighSpeed => Box::new(HighSpeed::as_in_ns2()),
                other => other.law(seed),
            };
            (law, flavour.adapt(config), flavour.adapt_receiver(receiver))
        }
        Flavour::Scalable
        | Flavour::Bic
        | Flavour::HTcp
        | Flavour::Vegas
        | Flavour::Fast
        | Flavour::Cubic
        | Flavour::CubicHyStart
        | Flavour::Bbr
        | Flavour::Bbr3
        | Flavour::Ledbat
        | Flavour::Copa => {
            // ns-2 runs Linux's code of 2007 for these: timestamps, delayed acknowledgments, and
            // some parameters that later versions and the RFC changed.
            let law: Box<dyn Law> = match flavour {
                Flavour::Scalable => Box::new(CountingScalable),
                Flavour::Vegas => Box::new(Vegas::default().stepping_every(2)),
                Flavour::Cubic => {
                    Box::new(Cubic::keeping(0.8).in_whole_segments(Leftover::Dropped))
                }
                Flavour::Bic => Box::new(Bic::in_whole_segments(Leftover::Dropped)),
                Flavour::HTcp => Box::new(HTcp::in_whole_segments(Leftover::Dropped)),
                other => other.law(seed),
            };
            let config = SenderConfig { header: Bytes(50), ..common };
            let delay = AckDelay::Second { wait: Span::from_millis(100) };
            let receiver = flavour.adapt_receiver(ReceiverConfig { delay, ..receiver });
            (law, flavour.adapt(config), receiver)
        }
    }
}

fn build(case: &Case) -> (World, usize, Vec<usize>) {
    let mut world = World::new();
    let near = Span::from_millis(2);
    let rtt = Span::from_millis(case.rtt_ms);
    let far = (rtt / 2).saturating_sub(near);
    let rate = Rate::from_mbps(case.mbps);
    let segment = ends(case, 0).1.header + Bytes(1_460);
    let there = world.link(bottleneck(rate, far, Bytes(case.queue * segment.0)));
    if case.ruler == Ruler::Xcp {
        world.control(there, Box::new(xcp::Queue::new()));
    }
    if case.lose_every > 0 {
        world.lose_every(there, case.lose_every);
    }
    let back = world.link(bottleneck(rate, far, Bytes(u64::MAX)));
    let access = Rate::from_mbps(10_000);
    let flows = (0..case.flows)
        .map(|k| {
            let after = Span::from_millis(370 * k);
            let first = world.link(bottleneck(access, near / 2, Bytes(u64::MAX)));
            let last = world.link(wire(near / 2));
            let (back_first, back_last) = (world.link(wire(near / 2)), world.link(wire(near / 2)));
            let (law, config, receiver) = ends(case, k);
            let sender = Sender::new(START + after, config, law);
            let receiver = Receiver::new(receiver);
            let (to, from) = ([first, there, last], [back_first, back, back_last]);
            world.flow(after, Box::new(sender), Box::new(receiver), &to, &from)
        })
        .collect();
    (world, there, flows)
}

/// The first flow's window and what waits, sampled.
#[derive(Default)]
struct Course {
    windows: Vec<f64>,
    waiting: f64,
    cuts: u32,
}

impl Course {
    fn note(&mut self, window: f64, queued: f64) {
        let before = self.windows.last().copied().unwrap_or(0.0);
        self.cuts += u32::from(window < 0.95 * before);
        self.windows.push(window);
        self.waiting += queued;
    }

    fn print(&self) {
        let count = self.windows.len() as f64;
        println!("queue_mean {}", self.waiting / count);
        println!("window_mean {}", self.windows.iter().sum::<f64>() / count);
        println!("window_most {}", self.windows.iter().copied().fold(0.0, f64::max));
        println!("window_least {}", self.windows.iter().copied().fold(1e9, f64::min));
        println!("cuts {}", self.cuts);
        let all: Vec<String> = self.windows.iter().map(|w| format!("{w:.2}")).collect();
        println!("course {}", all.join(" "));
    }
}

fn main() -> std::process::ExitCode {
    let Some(case) = parse() else {
        eprintln!("{USAGE}");
        return std::process::ExitCode::FAILURE;
    };
    let (mut world, there, flows) = build(&case);
    let warm = Span::from_secs(case.seconds) / 3;
    world.run_for(warm);
    let acked = |world: &World| -> Vec<u64> {
        let segments = |&flow: &usize| world.sent(flow).delivered.0 / 1_460;
        flows.iter().map(segments).collect()
    };
    let timeouts = |world: &World| -> u64 {
        flows.iter().map(|&flow| world.sender::<Sender>(flow).timeouts()).sum()
    };
    let (base, offered, dropped) = (acked(&world), world.seen(there), world.lost(there));
    let timeouts_before = timeouts(&world);
    let segment = ends(&case, 0).1.header + Bytes(1_460);
    let mut course = Course::default();
    let rest = Span::from_secs(case.seconds).saturating_sub(warm);
    world.watch(rest, Span::from_millis(20), |world| {
        let window = world.sender::<Sender>(flows[0]).progress().window;
        course.note(window, world.queued(there).0 as f64 / segment.0 as f64);
    });
    for (k, (now, then)) in acked(&world).iter().zip(&base).enumerate() {
        println!("flow {k} {}", now - then);
    }
    println!("offered {}", world.seen(there) - offered);
    println!("dropped {}", world.lost(there) - dropped);
    course.print();
    println!("timeouts {}", timeouts(&world) - timeouts_before);
    println!("timeouts_before {timeouts_before}");
    std::process::ExitCode::SUCCESS
}
