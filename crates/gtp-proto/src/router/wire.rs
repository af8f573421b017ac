//! Datagrams between a host and a router, in clear but authenticated.
//!
//! Each has a fixed head, entries of one kind, and a tag over all before it. Whoever hosts the
//! machines computes tags ([`Tags`]): keys are none of this file's business. Everything is
//! big-endian. `docs/PROTOCOL.md`, chapter 27, is the specification.

use alloc::vec::Vec;

use gtp_alloc::{Rate, Span};

use crate::limits::{ROUTER_ENTRIES, RTT_MOST};

/// The name that an engine of a host has at a router: drawn at random when it starts.
pub type HostId = [u8; 16];
/// What a router hands to a host that it does not know, and the host shows it again.
pub type Pass = [u8; 16];
/// A tag's bytes.
pub const TAG_BYTES: usize = 32;
/// Bytes of the head.
pub const HEAD_BYTES: usize = 46;

const MAGIC: [u8; 5] = *b"gtpR\x01";
const ASK_BYTES: usize = 38;
const ANSWER_BYTES: usize = 30;

/// What a tag is for: tags for one use are no tags for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// A datagram from a host to a router.
    ToRouter,
    /// A datagram from a router to a host.
    ToHost,
    /// A router's own passes.
    Pass,
}

/// Computes tags by the key that a router shares with its hosts.
pub trait Tags {
    /// Returns the tag of `bytes` for this use.
    fn tag(&self, purpose: Use, bytes: &[u8]) -> [u8; TAG_BYTES];
}

/// What a datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// From a host: what its sessions could use.
    Ask,
    /// From a router: what they may have.
    Answer,
    /// From a router: the pass to ask with.
    Pass,
}

/// The head of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What it is.
    pub kind: Kind,
    /// The engine that asks, or is answered.
    pub host: HostId,
    /// The pass that the host has; zeros if none.
    pub pass: Pass,
    /// Counts up with each datagram of a sender. A pass has the number of the ask that it answers.
    pub number: u64,
}

/// Why a datagram is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// It is not of this format.
    Malformed,
    /// Its tag is wrong: the other end does not have the key.
    Forged,
    /// It came before, or a newer one did.
    Replayed,
    /// It is for another engine, or from another run of the router.
    Misdirected,
    /// There is no room for another host.
    Full,
}

/// Where a session is in its life, for a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It moves data, or wants to.
    Open,
    /// It wants nothing more, but what it was granted may still be under way.
    Closing,
    /// It is over.
    Gone,
}

/// What a host asks for one session on one link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ask {
    /// The session's name, the same at both its ends.
    pub session: u64,
    /// The one-way link.
    pub link: u8,
    /// Where it is in its life.
    pub stage: Stage,
    /// Its weight.
    pub weight: f32,
    /// What it could use if the link did not limit it.
    pub bound: Rate,
    /// The rate up to which it may be sending, as far as this host knows.
    pub held: Rate,
    /// The newest grant of the router that its source is known to keep to.
    pub echoed: u32,
    /// Its round-trip time; zero while unknown.
    pub rtt: Span,
}

/// Whether a router allocates for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It does.
    Granted,
    /// It does not: it has no room, or the session's other end has asked.
    PassedOver,
}

/// What a router answers for one session on one link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answer {
    /// The session's name.
    pub session: u64,
    /// The one-way link.
    pub link: u8,
    /// Whether what follows means anything.
    pub verdict: Verdict,
    /// Number of the newest grant.
    pub number: u32,
    /// The newest grant.
    pub rate: Rate,
    /// What the session could have on the link if nothing else limited it.
    pub offer: Rate,
}

/// Begins a datagram in `out`, which is cleared.
pub(super) fn begin(head: &Head, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&MAGIC);
    out.push(head.kind as u8);
    out.extend_from_slice(&head.host);
    out.extend_from_slice(&head.pass);
    out.extend_from_slice(&head.number.to_be_bytes());
}

/// Ends the datagram in `out` with its tag.
pub(super) fn end(tags: &dyn Tags, purpose: Use, out: &mut Vec<u8>) {
    let tag = tags.tag(purpose, out);
    out.extend_from_slice(&tag);
}

/// Splits a datagram for this use into its head and its entries, if its tag is right.
pub(super) fn open<'a>(
    tags: &dyn Tags,
    purpose: Use,
    datagram: &'a [u8],
) -> Result<(Head, &'a [u8]), Dropped> {
    let (signed, tag) = datagram.split_last_chunk::<TAG_BYTES>().ok_or(Dropped::Malformed)?;
    let (head, entries) = signed.split_first_chunk::<HEAD_BYTES>().ok_or(Dropped::Malformed)?;
    let mut r = Reader(head);
    if r.array::<5>() != Some(MAGIC) {
        return Err(Dropped::Malformed);
    }
    let head = r.head().ok_or(Dropped::Malformed)?;
    if !same(&tags.tag(purpose, signed), tag) {
        return Err(Dropped::Forged);
    }
    Ok((head, entries))
}

/// Whether two tags are the same, in a time that does not depend on where they differ.
pub(super) fn same(a: &[u8], b: &[u8]) -> bool {
    let differences = a.iter().zip(b).fold(0, |all, (x, y)| all | (x ^ y));
    a.len() == b.len() && core::hint::black_box(differences) == 0
}

impl Ask {
    /// Appends the entry.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.session.to_be_bytes());
        out.push(self.link);
        out.push(self.stage as u8);
        out.extend_from_slice(&self.weight.to_be_bytes());
        out.extend_from_slice(&self.bound.as_bps().to_be_bytes());
        out.extend_from_slice(&self.held.as_bps().to_be_bytes());
        out.extend_from_slice(&self.echoed.to_be_bytes());
        let rtt = self.rtt.min(RTT_MOST).as_micros() as u32;
        out.extend_from_slice(&rtt.to_be_bytes());
    }

    fn decode(r: &mut Reader<'_>) -> Option<Ask> {
        let ask = Ask {
            session: r.u64()?,
            link: r.u8()?,
            stage: r.stage()?,
            weight: f32::from_bits(r.u32()?),
            bound: Rate::from_bps(r.u64()?),
            held: Rate::from_bps(r.u64()?),
            echoed: r.u32()?,
            rtt: Span::from_micros(r.u32()?.into()).min(RTT_MOST),
        };
        (ask.weight.is_normal() && ask.weight > 0.0).then_some(ask)
    }

    /// Reads all entries of a datagram.
    ///
    /// # Errors
    /// If they are not whole entries within their ranges, or more than [`ROUTER_ENTRIES`].
    pub fn decode_all(entries: &[u8]) -> Result<Vec<Ask>, Dropped> {
        decode_all(entries, ASK_BYTES, Ask::decode)
    }
}

impl Answer {
    /// Appends the entry.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.session.to_be_bytes());
        out.push(self.link);
        out.push(self.verdict as u8);
        out.extend_from_slice(&self.number.to_be_bytes());
        out.extend_from_slice(&self.rate.as_bps().to_be_bytes());
        out.extend_from_slice(&self.offer.as_bps().to_be_bytes());
    }

    fn decode(r: &mut Reader<'_>) -> Option<Answer> {
        Some(Answer {
            session: r.u64()?,
            link: r.u8()?,
            verdict: match r.u8()? {
                0 => Verdict::Granted,
                1 => Verdict::PassedOver,
                2..=255 => return None,
            },
            number: r.u32()?,
            rate: Rate::from_bps(r.u64()?),
            offer: Rate::from_bps(r.u64()?),
        })
    }

    /// Reads all entries of a datagram.
    ///
    /// # Errors
    /// If they are not whole entries within their ranges, or more than [`ROUTER_ENTRIES`].
    pub fn decode_all(entries: &[u8]) -> Result<Vec<Answer>, Dropped> {
        decode_all(entries, ANSWER_BYTES, Answer::decode)
    }
}

fn decode_all<T>(
    entries: &[u8],
    each: usize,
    decode: impl Fn(&mut Reader<'_>) -> Option<T>,
) -> Result<Vec<T>, Dropped> {
    if !entries.len().is_multiple_of(each) || entries.len() / each > ROUTER_ENTRIES {
        return Err(Dropped::Malformed);
    }
    entries.chunks(each).map(|entry| decode(&mut Reader(entry)).ok_or(Dropped::Malformed)).collect()
}

/// Takes fields off the front of a slice.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn head(&mut self) -> Option<Head> {
        let kind = match self.u8()? {
            0 => Kind::Ask,
            1 => Kind::Answer,
            2 => Kind::Pass,
            3..=255 => return None,
        };
        Some(Head { kind, host: self.array()?, pass: self.array()?, number: self.u64()? })
    }

    fn stage(&mut self) -> Option<Stage> {
        Some(match self.u8()? {
            0 => Stage::Open,
            1 => Stage::Closing,
            2 => Stage::Gone,
            3..=255 => return None,
        })
    }
}
