//! The wire format of datagrams, before sealing and after opening.
//!
//! A datagram is a 13-byte header, which is authenticated but not encrypted, and a body, which is
//! both. Everything is big-endian. `docs/PROTOCOL.md` is the specification; this file is its only
//! implementation. It knows sizes and field order and nothing of what the fields are for.

mod fields;

use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::Range;

use gtp_alloc::Rate;

use crate::ecn::EcnCounts;
use crate::limits::{GAPS_PER_FEEDBACK, LOSS_MAP_BYTES, MAX_UNITS, RANGES_PER_REQUEST};
use crate::report::LimitedBy;

use fields::Fields;
pub use fields::Revision;

/// Bytes of the header.
pub const HEADER_LEN: usize = 13;
/// Bytes of a data packet's body before its unit.
pub const DATA_HEAD_LEN: usize = 20;
/// Bytes of the authentication tag that the host appends.
pub const TAG_LEN: usize = 16;
/// Bytes of header and body of a status that says all it usually may: 39, six of a unit and four of
/// a weight.
pub const STATUS_LEN: usize = HEADER_LEN + 49;
/// What a data packet adds to its unit's bytes, without UDP and IP.
pub const DATA_OVERHEAD: usize = HEADER_LEN + DATA_HEAD_LEN + TAG_LEN;
/// Longest body of a datagram that is neither data nor hello: with all around it, it fits into
/// the 1,280 bytes that every IPv6 path carries.
pub const MAX_CONTROL_BODY: usize = 1_120;

const VERSION_BITS: u8 = 0x10;
const KIND_HELLO: u8 = 0x80 | VERSION_BITS;
const KIND_HELLO_ACK: u8 = KIND_HELLO | 1;
const KIND_FEEDBACK: u8 = KIND_HELLO | 2;
const KIND_REQUEST: u8 = KIND_HELLO | 3;
const KIND_STATUS: u8 = KIND_HELLO | 4;
const KIND_CLOSE: u8 = KIND_HELLO | 5;
const KIND_DATA: u8 = VERSION_BITS;

/// Why bytes are not a datagram of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// Fewer bytes than the fields need.
    Truncated,
    /// Bytes are left over, or padding is not zero.
    Trailing,
    /// A version or kind this implementation does not speak.
    UnknownKind,
    /// A field outside its range.
    BadField,
}

/// The kind of a datagram, from its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One unit of the object.
    Data,
    /// Opens the path; padded to probe its packet size.
    Hello,
    /// Answers a hello.
    HelloAck,
    /// From sink to source, every control interval.
    Feedback,
    /// From sink to source: units wanted.
    Request,
    /// From source to sink, every control interval.
    Status,
    /// Either end is done with the session.
    Close,
}

impl Kind {
    const fn byte(self) -> u8 {
        match self {
            Kind::Data => KIND_DATA,
            Kind::Hello => KIND_HELLO,
            Kind::HelloAck => KIND_HELLO_ACK,
            Kind::Feedback => KIND_FEEDBACK,
            Kind::Request => KIND_REQUEST,
            Kind::Status => KIND_STATUS,
            Kind::Close => KIND_CLOSE,
        }
    }

    const fn from_byte(byte: u8) -> Option<Kind> {
        Some(match byte {
            KIND_DATA => Kind::Data,
            KIND_HELLO => Kind::Hello,
            KIND_HELLO_ACK => Kind::HelloAck,
            KIND_FEEDBACK => Kind::Feedback,
            KIND_REQUEST => Kind::Request,
            KIND_STATUS => Kind::Status,
            KIND_CLOSE => Kind::Close,
            0..=255 => return None,
        })
    }
}

/// The clear part of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the body is.
    pub kind: Kind,
    /// The receiver's number of the session.
    pub session: u32,
    /// Packet number: rises by at least one with each datagram of a session and direction.
    pub pn: u64,
}

impl Header {
    /// Where the session's number stands in a datagram: four bytes from here on, the highest first.
    pub const SESSION_AT: usize = 1;

    /// Appends the header to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut bytes = [0; HEADER_LEN];
        self.write(&mut Writer(&mut bytes));
        out.extend_from_slice(&bytes);
    }

    #[inline]
    fn write(&self, w: &mut Writer<'_>) {
        w.put::<{ Self::SESSION_AT }>([self.kind.byte()]);
        w.put(self.session.to_be_bytes());
        w.put(self.pn.to_be_bytes());
    }

    /// Reads the header at the start of `datagram`.
    pub fn decode(datagram: &[u8]) -> Result<Header, WireError> {
        let mut r = Reader(datagram);
        let kind = Kind::from_byte(r.u8()?).ok_or(WireError::UnknownKind)?;
        Ok(Header { kind, session: r.u32()?, pn: r.u64()? })
    }
}

/// What precedes the unit's bytes in a data packet's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHead {
    /// Proof of receipt for this packet number.
    pub proof: u16,
    /// Sender's clock in microseconds, modulo 2^32.
    pub sent_at: u32,
    /// Newest grant number obeyed.
    pub grant: u32,
    /// The request that this unit answers.
    pub request: u32,
    /// Number of the unit, below 2^48.
    pub unit: u64,
}

impl DataHead {
    /// Appends the head to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut bytes = [0; DATA_HEAD_LEN];
        self.write(&mut Writer(&mut bytes));
        out.extend_from_slice(&bytes);
    }

    /// Appends `header` and the head to `out` at once: every packet comes by here.
    #[inline]
    pub(crate) fn encode_after(&self, header: &Header, out: &mut Vec<u8>) {
        let mut bytes = [0; HEADER_LEN + DATA_HEAD_LEN];
        let mut w = Writer(&mut bytes);
        header.write(&mut w);
        self.write(&mut w);
        out.extend_from_slice(&bytes);
    }

    #[inline]
    fn write(&self, w: &mut Writer<'_>) {
        let [_, _, unit @ ..] = self.unit.to_be_bytes();
        w.put(self.proof.to_be_bytes());
        w.put(self.sent_at.to_be_bytes());
        w.put(self.grant.to_be_bytes());
        w.put(self.request.to_be_bytes());
        w.put(unit);
    }

    /// Splits a data body into its head and the unit's bytes.
    pub fn decode(body: &[u8]) -> Result<(DataHead, &[u8]), WireError> {
        let (head, unit) = body.split_first_chunk::<DATA_HEAD_LEN>().ok_or(WireError::Truncated)?;
        if unit.is_empty() {
            return Err(WireError::Truncated);
        }
        let mut r = Reader(head);
        let head = DataHead {
            proof: r.u16()?,
            sent_at: r.u32()?,
            grant: r.u32()?,
            request: r.u32()?,
            unit: r.u48()?,
        };
        Ok((head, unit))
    }
}

/// From source to sink: where the source stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Status {
    /// Proof of receipt for this packet number.
    pub proof: u16,
    /// Sender's clock in microseconds, modulo 2^32.
    pub sent_at: u32,
    /// Newest grant number obeyed.
    pub grant: u32,
    /// What this session could send if the sink did not limit it.
    pub offer: Rate,
    /// First request number not yet accepted.
    pub requests_next: u32,
    /// All work requests numbered below this are sent in full.
    pub work_front: u32,
    /// All repair requests numbered below this are sent in full.
    pub repair_front: u32,
    /// Newest feedback time heard, and how long ago, in microseconds; zeros if none.
    pub echo_at: u32,
    /// See `echo_at`.
    pub echo_hold: u32,
    /// What keeps the source from sending faster, as it sees it.
    pub limited_by: LimitedBy,
    /// Of a stream: the first unit of request `work_front` that has not been sent. A stream's
    /// requests are not sent in full before the application has more to say.
    pub work_unit: Option<u64>,
    /// The source's factor of the session's weight, where it is not what the opening said:
    /// positive and finite.
    pub weight: Option<f32>,
}

/// From sink to source, every control interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Feedback {
    /// Sender's clock in microseconds, modulo 2^32.
    pub sent_at: u32,
    /// Number of the newest grant.
    pub grant: u32,
    /// The newest grant.
    pub rate: Rate,
    /// What the session could have at the sink if nothing else limited it.
    pub offer: Rate,
    /// The sink's control interval in microseconds.
    pub interval: u32,
    /// Newest source time heard, and how long ago, in microseconds.
    pub echo_at: u32,
    /// See `echo_at`.
    pub echo_hold: u32,
    /// Smallest queueing delay in the interval: one-way delay above the smallest known, µs.
    pub delay: u32,
    /// What arrived.
    pub receipt: Receipt,
    /// The sink's factor of the session's weight, where it is not what the opening said: positive
    /// and finite.
    pub weight: Option<f32>,
    /// Greatest queueing delay in the interval, measured as `delay` is, in microseconds; absent
    /// where the sink does not say it. Only for peers of [`Revision::Second`] or later.
    pub delay_most: Option<u32>,
    /// The ECN bits of the packets in all receipts up to this one; absent where the sink does not
    /// count them. Only for peers of [`Revision::Second`] or later.
    pub ecn: Option<EcnCounts>,
    /// Whether a router's link keeps the offer as low as it is. Only for peers of
    /// [`Revision::Second`] or later.
    pub router_binds: bool,
}

/// Which packet numbers arrived, with proof.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// The packet numbers that this receipt is about.
    pub span: Range<u64>,
    /// Those of them that did not arrive, ascending and disjoint.
    pub gaps: Vec<Range<u64>>,
    /// Sum of the proofs of all that arrived, modulo 2^32.
    pub sum: u32,
    /// IP bytes that arrived.
    pub bytes: u64,
    /// Sink's clock in microseconds when the last of them arrived.
    pub arrived_at: u32,
}

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// New units, in this order.
    Work(Vec<Range<u64>>),
    /// Lost units, ahead of all work.
    Repair(Vec<Range<u64>>),
    /// Lost units as a map that begins with the first of them: a zero bit is a lost unit.
    LossMap {
        /// The first lost unit.
        first: u64,
        /// One bit a unit, most significant first; what lies beyond the last lost unit is ones.
        bits: Vec<u8>,
    },
    /// Forget everything asked for so far that is not yet sent.
    Drop,
    /// Units are of this length from here on: whatever was asked before, accepted or not, is void.
    Begin,
}

/// From sink to source: units wanted. Requests are numbered from 1 and repeated until accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Number of this request.
    pub number: u32,
    /// Payload bytes of a unit, the same in every request up to a [`Wanted::Begin`].
    pub unit_payload: u16,
    /// What is asked for.
    pub wanted: Wanted,
}

/// Opens the path. Hello and answer are both padded with zeros to the packet size that is probed,
/// so that it is known to pass in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Sender's clock in microseconds, modulo 2^32.
    pub sent_at: u32,
    /// Unit payload for which this datagram is as long as a data packet would be; not zero.
    pub unit_payload: u16,
}

/// A datagram's body.
#[derive(Clone, Debug, PartialEq)]
pub enum Control {
    /// See [`Hello`].
    Hello(Hello),
    /// The answer: the hello's fields, returned.
    HelloAck(Hello),
    /// See [`Feedback`].
    Feedback(Feedback),
    /// See [`Request`].
    Request(Request),
    /// See [`Status`].
    Status(Status),
    /// The sender of this is done with the session.
    Close,
}

impl Control {
    /// The kind that the header must name.
    pub const fn kind(&self) -> Kind {
        match self {
            Control::Hello(_) => Kind::Hello,
            Control::HelloAck(_) => Kind::HelloAck,
            Control::Feedback(_) => Kind::Feedback,
            Control::Request(_) => Kind::Request,
            Control::Status(_) => Kind::Status,
            Control::Close => Kind::Close,
        }
    }

    /// Appends the body to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Control::Hello(hello) | Control::HelloAck(hello) => encode_hello(hello, out),
            Control::Feedback(feedback) => encode_feedback(feedback, out),
            Control::Request(request) => encode_request(request, out),
            Control::Status(status) => encode_status(status, out),
            Control::Close => {}
        }
    }

    /// Reads a body of kind `kind`; `None` for data, which is not a control body.
    pub fn decode(kind: Kind, body: &[u8]) -> Result<Option<Control>, WireError> {
        let probes = matches!(kind, Kind::Data | Kind::Hello | Kind::HelloAck);
        if !probes && body.len() > MAX_CONTROL_BODY {
            return Err(WireError::Trailing);
        }
        let mut r = Reader(body);
        let control = match kind {
            Kind::Data => return Ok(None),
            Kind::Hello => Control::Hello(decode_hello(&mut r)?),
            Kind::HelloAck => Control::HelloAck(decode_hello(&mut r)?),
            Kind::Feedback => Control::Feedback(decode_feedback(&mut r)?),
            Kind::Request => Control::Request(decode_request(&mut r)?),
            Kind::Status => Control::Status(decode_status(&mut r)?),
            Kind::Close => Control::Close,
        };
        if r.0.is_empty() { Ok(Some(control)) } else { Err(WireError::Trailing) }
    }
}

/// Body of the hello that stands for data packets of `unit_payload` bytes.
const fn hello_len(unit_payload: u16) -> usize {
    DATA_HEAD_LEN + unit_payload as usize
}

fn encode_hello(hello: &Hello, out: &mut Vec<u8>) {
    let end = out.len() + hello_len(hello.unit_payload);
    out.extend_from_slice(&hello.sent_at.to_be_bytes());
    out.extend_from_slice(&hello.unit_payload.to_be_bytes());
    out.resize(end, 0);
}

/// A hello is exactly as long as it says, so that no answer is longer than its question.
fn decode_hello(r: &mut Reader<'_>) -> Result<Hello, WireError> {
    let whole = r.0.len();
    let hello = Hello { sent_at: r.u32()?, unit_payload: r.u16()? };
    if hello.unit_payload == 0 {
        return Err(WireError::BadField);
    }
    match whole.cmp(&hello_len(hello.unit_payload)) {
        Ordering::Less => Err(WireError::Truncated),
        Ordering::Equal => r.zeros().map(|()| hello),
        Ordering::Greater => Err(WireError::Trailing),
    }
}

fn encode_status(s: &Status, out: &mut Vec<u8>) {
    out.extend_from_slice(&s.proof.to_be_bytes());
    out.extend_from_slice(&s.sent_at.to_be_bytes());
    out.extend_from_slice(&s.grant.to_be_bytes());
    out.extend_from_slice(&s.offer.as_bps().to_be_bytes());
    for field in [s.requests_next, s.work_front, s.repair_front, s.echo_at, s.echo_hold] {
        out.extend_from_slice(&field.to_be_bytes());
    }
    out.push(s.limited_by.byte());
    let binds = s.limited_by == LimitedBy::Router;
    let unit = if binds { Some(s.work_unit.unwrap_or(NO_UNIT)) } else { s.work_unit };
    if let Some(unit) = unit {
        out.extend_from_slice(&unit.to_be_bytes()[2..]);
    }
    if binds {
        put_weight(out, Some(s.weight.unwrap_or(UNCHANGED)));
        fields::put(out, fields::ROUTER_BINDS, &[]);
    } else {
        put_weight(out, s.weight);
    }
}

fn decode_status(r: &mut Reader<'_>) -> Result<Status, WireError> {
    let mut status = Status {
        proof: r.u16()?,
        sent_at: r.u32()?,
        grant: r.u32()?,
        offer: Rate::from_bps(r.u64()?),
        requests_next: r.u32()?,
        work_front: r.u32()?,
        repair_front: r.u32()?,
        echo_at: r.u32()?,
        echo_hold: r.u32()?,
        limited_by: LimitedBy::from_byte(r.u8()?).ok_or(WireError::BadField)?,
        // Its six bytes come before the weight's four. Where fields follow, both are there.
        work_unit: match r.0.len() {
            0..=5 => None,
            6..=10 => Some(r.u48()?),
            11.. => Some(r.u48()?).filter(|&unit| unit != NO_UNIT),
        },
        weight: r.weight()?,
    };
    let mut fields = Fields::new(r);
    while let Some((tag, _)) = fields.next()? {
        if tag == fields::ROUTER_BINDS {
            status.limited_by = LimitedBy::Router;
        }
    }
    Ok(status)
}

fn encode_feedback(f: &Feedback, out: &mut Vec<u8>) {
    out.extend_from_slice(&f.sent_at.to_be_bytes());
    out.extend_from_slice(&f.grant.to_be_bytes());
    out.extend_from_slice(&f.rate.as_bps().to_be_bytes());
    out.extend_from_slice(&f.offer.as_bps().to_be_bytes());
    for field in [f.interval, f.echo_at, f.echo_hold, f.delay] {
        out.extend_from_slice(&field.to_be_bytes());
    }
    let receipt = &f.receipt;
    out.extend_from_slice(&receipt.span.start.to_be_bytes());
    out.extend_from_slice(&((receipt.span.end - receipt.span.start) as u32).to_be_bytes());
    out.extend_from_slice(&receipt.sum.to_be_bytes());
    out.extend_from_slice(&receipt.bytes.to_be_bytes());
    out.extend_from_slice(&receipt.arrived_at.to_be_bytes());
    out.push(receipt.gaps.len() as u8);
    for gap in &receipt.gaps {
        out.extend_from_slice(&((gap.start - receipt.span.start) as u32).to_be_bytes());
        out.extend_from_slice(&((gap.end - gap.start) as u32).to_be_bytes());
    }
    if f.delay_most.is_none() && f.ecn.is_none() && !f.router_binds {
        return put_weight(out, f.weight);
    }
    put_weight(out, Some(f.weight.unwrap_or(UNCHANGED)));
    if let Some(delay_most) = f.delay_most {
        fields::put(out, fields::DELAY_MOST, &delay_most.to_be_bytes());
    }
    if let Some(counts) = &f.ecn {
        fields::put_counts(out, counts);
    }
    if f.router_binds {
        fields::put(out, fields::ROUTER_BINDS, &[]);
    }
}

fn decode_feedback(r: &mut Reader<'_>) -> Result<Feedback, WireError> {
    let mut feedback = Feedback {
        sent_at: r.u32()?,
        grant: r.u32()?,
        rate: Rate::from_bps(r.u64()?),
        offer: Rate::from_bps(r.u64()?),
        interval: r.u32()?,
        echo_at: r.u32()?,
        echo_hold: r.u32()?,
        delay: r.u32()?,
        receipt: decode_receipt(r)?,
        weight: r.weight()?,
        delay_most: None,
        ecn: None,
        router_binds: false,
    };
    let mut fields = Fields::new(r);
    while let Some((tag, mut value)) = fields.next()? {
        match tag {
            fields::DELAY_MOST => feedback.delay_most = Some(value.u32()?),
            fields::ECN_COUNTS => {
                let (ect0, ect1, ce) = (value.u32()?, value.u32()?, value.u32()?);
                feedback.ecn = Some(EcnCounts { ect0, ect1, ce });
            }
            fields::ROUTER_BINDS => feedback.router_binds = true,
            0..=255 => {}
        }
    }
    Ok(feedback)
}

fn decode_receipt(r: &mut Reader<'_>) -> Result<Receipt, WireError> {
    let start = r.u64()?;
    let end = start.checked_add(u64::from(r.u32()?)).ok_or(WireError::BadField)?;
    let (sum, bytes, arrived_at) = (r.u32()?, r.u64()?, r.u32()?);
    let count = usize::from(r.u8()?);
    if count > GAPS_PER_FEEDBACK {
        return Err(WireError::BadField);
    }
    let mut gaps = Vec::with_capacity(count);
    let mut at = start;
    for _ in 0..count {
        let from = start.checked_add(u64::from(r.u32()?)).ok_or(WireError::BadField)?;
        let until = from.checked_add(u64::from(r.u32()?)).ok_or(WireError::BadField)?;
        if from < at || until <= from || until > end {
            return Err(WireError::BadField);
        }
        gaps.push(from..until);
        at = until;
    }
    Ok(Receipt { span: start..end, gaps, sum, bytes, arrived_at })
}

const WANTED_WORK: u8 = 0;
const WANTED_REPAIR: u8 = 1;
const WANTED_LOSS_MAP: u8 = 2;
const WANTED_DROP: u8 = 3;
const WANTED_BEGIN: u8 = 4;

fn encode_request(q: &Request, out: &mut Vec<u8>) {
    out.extend_from_slice(&q.number.to_be_bytes());
    out.extend_from_slice(&q.unit_payload.to_be_bytes());
    match &q.wanted {
        Wanted::Work(ranges) => encode_ranges(WANTED_WORK, ranges, out),
        Wanted::Repair(ranges) => encode_ranges(WANTED_REPAIR, ranges, out),
        Wanted::LossMap { first, bits } => {
            out.push(WANTED_LOSS_MAP);
            put_u48(out, *first);
            out.extend_from_slice(bits);
        }
        Wanted::Drop => out.push(WANTED_DROP),
        Wanted::Begin => out.push(WANTED_BEGIN),
    }
}

fn encode_ranges(tag: u8, ranges: &[Range<u64>], out: &mut Vec<u8>) {
    out.push(tag);
    for range in ranges {
        put_u48(out, range.start);
        out.extend_from_slice(&((range.end - range.start) as u32).to_be_bytes());
    }
}

fn decode_request(r: &mut Reader<'_>) -> Result<Request, WireError> {
    let (number, unit_payload) = (r.u32()?, r.u16()?);
    let wanted = match r.u8()? {
        WANTED_WORK => Wanted::Work(decode_ranges(r)?),
        WANTED_REPAIR => Wanted::Repair(decode_ranges(r)?),
        WANTED_LOSS_MAP => {
            let first = r.u48()?;
            let bits = core::mem::take(&mut r.0);
            let lost_first = bits.first().is_some_and(|b| b & 0x80 == 0);
            // The map's last byte may reach beyond the last unit, but name nothing there.
            let beyond = first + 8 * bits.len() as u64 > MAX_UNITS
                && loss_map_ranges(first, bits).any(|lost| lost.end > MAX_UNITS);
            if !lost_first || bits.len() > LOSS_MAP_BYTES || beyond {
                return Err(WireError::BadField);
            }
            Wanted::LossMap { first, bits: bits.to_vec() }
        }
        WANTED_DROP => Wanted::Drop,
        WANTED_BEGIN => Wanted::Begin,
        _ => return Err(WireError::BadField),
    };
    if unit_payload == 0 || number == 0 {
        return Err(WireError::BadField);
    }
    Ok(Request { number, unit_payload, wanted })
}

fn decode_ranges(r: &mut Reader<'_>) -> Result<Vec<Range<u64>>, WireError> {
    const RANGE_LEN: usize = 10;
    let count = r.0.len() / RANGE_LEN;
    if count == 0 || count > RANGES_PER_REQUEST {
        return Err(WireError::BadField);
    }
    let mut ranges = Vec::with_capacity(count);
    for _ in 0..count {
        let start = r.u48()?;
        let end = start + u64::from(r.u32()?);
        if end <= start || end > MAX_UNITS {
            return Err(WireError::BadField);
        }
        ranges.push(start..end);
    }
    Ok(ranges)
}

/// The lost units that a loss map names, as ranges.
pub fn loss_map_ranges(first: u64, bits: &[u8]) -> impl Iterator<Item = Range<u64>> + '_ {
    let lost = move |i: u64| bits[(i / 8) as usize] & (0x80 >> (i % 8)) == 0;
    let count = 8 * bits.len() as u64;
    let mut at = 0;
    core::iter::from_fn(move || {
        while at < count && !lost(at) {
            at += 1;
        }
        let start = at;
        while at < count && lost(at) {
            at += 1;
        }
        (start < at).then(|| first + start..first + at)
    })
}

fn put_u48(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_be_bytes()[2..]);
}

/// The weight of a body in which fields follow it, where it is what the opening said.
const UNCHANGED: f32 = 0.0;
/// The work unit of a status in which fields follow it, where there is none.
const NO_UNIT: u64 = MAX_UNITS - 1;

/// A factor of the weight ends the fixed part of a body, or nothing does.
fn put_weight(out: &mut Vec<u8>, weight: Option<f32>) {
    out.extend(weight.into_iter().flat_map(f32::to_be_bytes));
}

/// Takes fields off the front of a slice.
struct Reader<'a>(&'a [u8]);

/// Room for fields of known length, one after the other.
struct Writer<'a>(&'a mut [u8]);

impl Writer<'_> {
    #[inline]
    fn put<const N: usize>(&mut self, field: [u8; N]) {
        if let Some((place, rest)) = core::mem::take(&mut self.0).split_first_chunk_mut() {
            *place = field;
            self.0 = rest;
        }
    }
}

impl Reader<'_> {
    #[inline]
    fn take<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(WireError::Truncated)?;
        self.0 = rest;
        Ok(*head)
    }

    #[inline]
    fn u8(&mut self) -> Result<u8, WireError> {
        self.take::<1>().map(|[b]| b)
    }

    #[inline]
    fn u16(&mut self) -> Result<u16, WireError> {
        self.take().map(u16::from_be_bytes)
    }

    #[inline]
    fn u32(&mut self) -> Result<u32, WireError> {
        self.take().map(u32::from_be_bytes)
    }

    #[inline]
    fn u48(&mut self) -> Result<u64, WireError> {
        let [a, b, c, d, e, f] = self.take()?;
        Ok(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }

    #[inline]
    fn u64(&mut self) -> Result<u64, WireError> {
        self.take().map(u64::from_be_bytes)
    }

    fn weight(&mut self) -> Result<Option<f32>, WireError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let weight = self.take().map(f32::from_be_bytes)?;
        let followed = !self.0.is_empty();
        if followed && weight.to_bits() == UNCHANGED.to_bits() {
            return Ok(None);
        }
        let means_something = weight.is_normal() && weight > 0.0;
        if means_something { Ok(Some(weight)) } else { Err(WireError::BadField) }
    }

    fn zeros(&mut self) -> Result<(), WireError> {
        let rest = core::mem::take(&mut self.0);
        if rest.iter().all(|&b| b == 0) { Ok(()) } else { Err(WireError::Trailing) }
    }
}
