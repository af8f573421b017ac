//! The ends of flows: which machine stands at each, and what is noticed of the receiving one.
//!
//! A receiver of any protocol is held in one type, so that a run can ask each what only its
//! protocol knows, and frames are noticed of all of them by the same rule: when the application has
//! so many bytes. It knows no links.

use super::{Delivery, Flow, Network, Protocol, Skew};
use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_path::{End, START};
use gtp_peers::rate::gtp2004::{self, agent};
use gtp_peers::rate::sabul::law::{Excess, PR0};
use gtp_peers::rate::{Slow, Transfer, lambdastream, rbudp, sabul, udt};
use gtp_peers::tcp::{Flavour, ReceiverConfig, SenderConfig};
use gtp_peers::{Endpoint, Packet, Progress, tcp};

/// A receiving end behind its host's buffer.
pub type Receiving = Slow<Watched>;

/// A receiver whose frames are noticed.
pub struct Watched {
    end: Receiver,
    frame: Option<u64>,
    frames: Vec<Time>,
}

enum Receiver {
    Gtp(Box<gtp2004::Sink>),
    Tcp(Box<tcp::Receiver>),
    Rbudp(Box<rbudp::Receiver>),
    Udt(Box<udt::Receiver>),
    Sabul(Box<sabul::Receiver>),
    Lambda(Box<lambdastream::Receiver>),
}

impl Watched {
    /// When each frame was complete.
    pub fn frames(&self) -> &[Time] {
        &self.frames
    }

    /// LambdaStream's receiver.
    pub fn lambda(&self) -> Option<&lambdastream::Receiver> {
        match &self.end {
            Receiver::Lambda(end) => Some(end),
            Receiver::Gtp(_) | Receiver::Tcp(_) | Receiver::Rbudp(_) => None,
            Receiver::Udt(_) | Receiver::Sabul(_) => None,
        }
    }

    fn end(&mut self) -> &mut dyn Endpoint {
        match &mut self.end {
            Receiver::Gtp(end) => end.as_mut(),
            Receiver::Tcp(end) => end.as_mut(),
            Receiver::Rbudp(end) => end.as_mut(),
            Receiver::Udt(end) => end.as_mut(),
            Receiver::Sabul(end) => end.as_mut(),
            Receiver::Lambda(end) => end.as_mut(),
        }
    }

    fn seen(&self) -> &dyn Endpoint {
        match &self.end {
            Receiver::Gtp(end) => end.as_ref(),
            Receiver::Tcp(end) => end.as_ref(),
            Receiver::Rbudp(end) => end.as_ref(),
            Receiver::Udt(end) => end.as_ref(),
            Receiver::Sabul(end) => end.as_ref(),
            Receiver::Lambda(end) => end.as_ref(),
        }
    }
}

impl Endpoint for Watched {
    fn handle_packet(&mut self, now: Time, packet: &Packet) {
        self.end().handle_packet(now, packet);
        let Some(frame) = self.frame else { return };
        let delivered = self.seen().progress().delivered.0;
        while (self.frames.len() as u64 + 1) * frame <= delivered {
            self.frames.push(now);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.end().handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Packet> {
        self.end().poll_transmit(now)
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.seen().poll_timeout()
    }

    fn set_demand(&mut self, now: Time, rate: Option<Rate>) {
        self.end().set_demand(now, rate);
    }

    fn progress(&self) -> Progress {
        self.seen().progress()
    }
}

/// A rate in Mbit/s.
pub fn mbps(rate: f64) -> Rate {
    Rate::from_f64(rate * 1e6)
}

/// So many thousand bytes.
pub fn kilobytes(kb: f64) -> Bytes {
    Bytes((kb * 1e3) as u64)
}

/// Makes the ends of one network's flows.
pub struct Makers<'a> {
    network: &'a Network,
    capacity: Rate,
    agent: agent::Shared,
}

impl<'a> Makers<'a> {
    /// For this network.
    pub fn new(network: &'a Network) -> Makers<'a> {
        let capacity = mbps(network.capacity_mbps.unwrap_or(network.port_mbps));
        let skew = match network.skew {
            Skew::Compensated => agent::Skew::Compensated,
            Skew::Ignored => agent::Skew::Ignored,
        };
        Makers { network, capacity, agent: agent::Agent::shared(capacity, skew) }
    }

    /// The two ends of a flow, the `number`-th of its network.
    pub fn pair(&self, flow: &Flow, number: usize) -> (Box<dyn End>, Box<dyn End>) {
        let transfer = match flow.megabytes {
            Some(megabytes) => Transfer::of(kilobytes(megabytes * 1e3)),
            None => Transfer::ENDLESS,
        };
        let rate = flow.mbps.map_or(self.capacity, mbps);
        let (sender, end): (Box<dyn End>, Receiver) = match flow.protocol {
            Protocol::Gtp2004 => {
                let link = self.network.access_mbps.map_or(self.capacity, mbps);
                let terms = gtp2004::Terms::of(link);
                let sink = gtp2004::Sink::new(transfer, terms, self.agent.clone());
                let offer = flow.mbps.map_or(Rate::UNLIMITED, mbps);
                let source = gtp2004::Source::new(transfer, offer);
                (Box::new(source), Receiver::Gtp(Box::new(sink)))
            }
            Protocol::Tcp => {
                let (sender, receiver) = tcp_ends(flow);
                (Box::new(sender), Receiver::Tcp(Box::new(receiver)))
            }
            Protocol::Rbudp | Protocol::Constant => {
                // Without an end there are no later rounds: an endless blast is a constant stream.
                let line = line(flow);
                let end = Box::new(rbudp::Receiver::new(transfer).over(line));
                let piece = flow.piece_mb.map_or(transfer, |mb| Transfer::of(kilobytes(mb * 1e3)));
                let sender = rbudp::Sender::in_pieces(transfer, rate, piece.blocks());
                (Box::new(sender.over(line)), Receiver::Rbudp(end))
            }
            Protocol::Udt1 => {
                let seed = self.network.seed * 100 + number as u64;
                let sender = udt::Sender::new(transfer, udt::law::Version::One, UDT_WINDOW, seed);
                (Box::new(sender), Receiver::Udt(Box::new(udt::Receiver::new(transfer))))
            }
            Protocol::Sabul => {
                let interface = self.network.access_mbps.map_or(self.capacity, mbps);
                let law = sabul::Law::Paper { parameters: PR0, interface, excess: Excess::Never };
                let sender = sabul::Sender::new(transfer, law, rate);
                let receiver = sabul::Receiver::new(transfer, SABUL_ROUND);
                (Box::new(sender), Receiver::Sabul(Box::new(receiver)))
            }
            Protocol::Lambdastream => {
                let delivery = match flow.delivery {
                    Delivery::Reliable => lambdastream::Delivery::Reliable,
                    Delivery::Unreliable => lambdastream::Delivery::Unreliable,
                };
                let terms = lambdastream::Terms { link: self.capacity, initial: rate, delivery };
                let end = Box::new(lambdastream::Receiver::new(transfer, terms, None));
                (Box::new(lambdastream::Sender::new(transfer, terms)), Receiver::Lambda(end))
            }
        };
        let frame = flow.frame_kb.map(|kb| kilobytes(kb).0.max(1));
        let watched = Watched { end, frame, frames: Vec::new() };
        let buffer = flow.reader.map_or(Bytes(u64::MAX), |reader| kilobytes(reader.buffer_kb));
        (sender, Box::new(Slow::new(watched, buffer)))
    }
}

/// What the hosts' TCP is like.
fn line(flow: &Flow) -> rbudp::Line {
    let usual = rbudp::Line::default();
    let timeout = flow.timeout_ms.map(|ms| Span::from_secs_f64(ms / 1e3));
    rbudp::Line {
        buffer: flow.window_kb.map_or(usual.buffer, kilobytes),
        initial_window: flow.initial_window.unwrap_or(usual.initial_window),
        least_timeout: timeout.unwrap_or(usual.least_timeout),
    }
}

fn tcp_ends(flow: &Flow) -> (tcp::Sender, tcp::Receiver) {
    let length = flow.megabytes.map(|megabytes| kilobytes(megabytes * 1e3));
    let rbudp::Line { buffer, initial_window, least_timeout } = line(flow);
    let config = SenderConfig { length, initial_window, least_timeout, ..SenderConfig::default() };
    let receiver = ReceiverConfig { buffer, ..ReceiverConfig::default() };
    let start = START + Span::from_secs_f64(flow.start);
    (Flavour::Sack.sender(start, config, 1), Flavour::Sack.receiver(receiver))
}

/// SABUL's round: S, section II.
const SABUL_ROUND: Span = Span::from_millis(200);
/// UDT's flow window in packets, its release's own number.
const UDT_WINDOW: u64 = 25_600;
