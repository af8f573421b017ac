//! Hosts that say to a router whatever a test wants them to, and a router that hears nothing else.
//!
//! The datagrams are written byte by byte, as docs/PROTOCOL.md, chapter 27, has them: what a
//! hostile holder of the key could send. Nothing here keeps to any rule about when or what to ask.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use gtp_alloc::{Rate, Span, Time};
use gtp_proto::router::{Answer, Ask, Dropped, Router, RouterConfig, Stage, Use};

use super::{KEY, MS, signed};

/// A host's address and port: 256 addresses with as many ports as one likes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At(pub usize);

impl From<At> for SocketAddr {
    fn from(At(n): At) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, (n % 256) as u8], 1_000 + (n / 256) as u16))
    }
}

/// A router, and the time.
pub struct Table {
    pub router: Router<At>,
    pub now: Time,
}

impl Table {
    /// One that has begun long enough ago to grant.
    pub fn new(links: &[Rate]) -> Table {
        let begun = Time::from_nanos(1_000_000_000);
        let router = Router::new(begun, RouterConfig { links: links.to_vec(), secret: [1; 16] });
        Table { router, now: begun + MS * 300 }
    }

    pub fn run(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now += MS;
            self.router.handle_timeout(self.now);
        }
    }
}

/// All that a router has to say now.
pub fn drain(router: &mut Router<At>, now: Time) -> Vec<(At, Vec<u8>)> {
    let mut out = Vec::new();
    std::iter::from_fn(|| router.poll_transmit(now, &KEY, &mut out).map(|at| (at, out.clone())))
        .collect()
}

/// An ordinary ask.
pub fn ask(session: u64, bound: Rate) -> Ask {
    let (held, rtt) = (Rate::ZERO, Span::from_millis(10));
    Ask { session, link: 0, stage: Stage::Open, weight: 1.0, bound, held, echoed: 0, rtt }
}

/// A holder of the key.
#[derive(Clone)]
pub struct Raw {
    pub at: At,
    name: [u8; 16],
    pass: [u8; 16],
    number: u64,
    heard: BTreeMap<u64, Answer>,
    echoes: bool,
}

impl Raw {
    /// The name and, unless it is changed, the address follow from the number.
    pub fn new(number: usize) -> Raw {
        let mut name = [7; 16];
        name[..8].copy_from_slice(&number.to_be_bytes());
        let heard = BTreeMap::new();
        Raw { at: At(number), name, pass: [0; 16], number: 0, heard, echoes: false }
    }

    /// The same at another address.
    pub fn moved(self, at: At) -> Raw {
        Raw { at, ..self }
    }

    /// Its next ask.
    pub fn datagram(&mut self, asks: &[Ask]) -> Vec<u8> {
        self.number += 1;
        let mut entries = Vec::new();
        for ask in asks {
            let newest = self.heard.get(&ask.session).map_or(0, |answer| answer.number);
            let echoed = if self.echoes { newest } else { ask.echoed };
            Ask { echoed, ..*ask }.encode(&mut entries);
        }
        signed(KEY, Use::ToRouter, self.head(0, &entries))
    }

    /// Asks, and asks again with the pass if it gets one. The error is that of the last ask.
    pub fn ask(&mut self, table: &mut Table, asks: &[Ask]) -> Result<(), Dropped> {
        let said = self.datagram(asks);
        let first = table.router.handle_datagram(table.now, self.at, &said, &KEY);
        self.hear(&drain(&mut table.router, table.now));
        if first != Err(Dropped::Misdirected) {
            return first;
        }
        let said = self.datagram(asks);
        let second = table.router.handle_datagram(table.now, self.at, &said, &KEY);
        self.hear(&drain(&mut table.router, table.now));
        second
    }

    /// Takes in what is for it.
    pub fn hear(&mut self, said: &[(At, Vec<u8>)]) {
        let own = |said: &&(At, Vec<u8>)| said.0 == self.at && said.1[6..22] == self.name;
        for (_, datagram) in said.iter().filter(own) {
            if datagram[5] == 2 {
                self.pass.copy_from_slice(&datagram[22..38]);
            } else {
                let entries = &datagram[46..datagram.len() - 32];
                for answer in Answer::decode_all(entries).unwrap() {
                    self.heard.insert(answer.session, answer);
                }
            }
        }
    }

    /// Says from now on that its sources keep to what it has heard last.
    pub fn echo(&mut self) {
        self.echoes = true;
    }

    /// What it has heard last of a session.
    pub fn granted(&self, session: u64) -> Answer {
        self.heard[&session]
    }

    /// An answer from a router, for a host of the name that all bytes 1 make.
    pub fn answer(&mut self, answer: &Answer) -> Vec<u8> {
        (self.number, self.name) = (self.number + 1, [1; 16]);
        let mut entries = Vec::new();
        answer.encode(&mut entries);
        signed(KEY, Use::ToHost, self.head(1, &entries))
    }

    fn head(&self, kind: u8, entries: &[u8]) -> Vec<u8> {
        let number = self.number.to_be_bytes();
        [b"gtpR\x01", &[kind][..], &self.name, &self.pass, &number, entries].concat()
    }
}
