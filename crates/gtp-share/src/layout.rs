//! The records on the pages, word by word, and the checks of what strangers wrote there.
//!
//! Words are 64 bits in the machine's own order: the pages never leave it. Everything that is read
//! from a process's page may be any bits at all; what no honest process writes is no record, and
//! numbers are brought into the range in which they mean something. What changes while a session
//! lives stands first, so that a look at it touches little memory. Offsets are part of the layout's
//! version; `docs/DAEMON.md` lists them.

use core::net::SocketAddr;
use core::num::NonZeroU8;

use gtp_alloc::led::Counts;
use gtp_alloc::tree::WEIGHT_MOST;
use gtp_alloc::{Bytes, Rate, Span};
use gtp_proto::ecn::{EcnFailure, EcnStanding, EcnState};
use gtp_proto::limits::{PEER_WEIGHT_LEAST, RTT_MOST};
use gtp_proto::path::{Mode, Queue, Standing};
use gtp_proto::{Grant, Law, LimitedBy, Phase, Report};

use crate::message::VERSION;

/// Which way a session's data go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// This host sends.
    Source,
    /// This host receives.
    Sink,
}

/// What a session at a sink was granted by whoever allocated before this daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outstanding {
    /// Number of the newest grant; zero if there was none.
    pub number: u32,
    /// Its rate.
    pub rate: Rate,
    /// The largest rate of all grants that may still be arriving.
    pub committed: Rate,
}

/// What a host that serves gives to the client of a session, and to the client's group. It may
/// change while the session lives, unlike the session's name, owner and label.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// What multiplies the client's weight among the clients of its server's user.
    pub weight: f32,
    /// The most that all sessions of the client may have together in this direction.
    pub each: Rate,
    /// The number of its group at the server; zero if it is in none that has something together.
    pub group: u32,
    /// What all members of the group are served first of what their server has.
    pub least: Rate,
    /// The most that they may have together in this direction.
    pub most: Rate,
}

impl Terms {
    /// Those of a session to which nobody gives anything in particular.
    pub const NONE: Terms = Terms {
        weight: 1.0,
        each: Rate::UNLIMITED,
        group: 0,
        least: Rate::ZERO,
        most: Rate::UNLIMITED,
    };

    fn encode(&self) -> [u64; TERMS_WORDS] {
        let head = u64::from(self.weight.to_bits()) << 32 | u64::from(self.group);
        [head, self.each.as_bps(), self.least.as_bps(), self.most.as_bps()]
    }

    /// What these words say, brought into the range in which it means something.
    fn decode(words: &[u64; TERMS_WORDS]) -> Terms {
        let (weight, least) = (f32::from_bits((words[0] >> 32) as u32), 1.0 / WEIGHT_MOST as f32);
        let most = Rate::from_bps(words[3]);
        Terms {
            // What is no number counts as the least.
            weight: if weight >= least { weight.min(WEIGHT_MOST as f32) } else { least },
            each: Rate::from_bps(words[1]),
            group: words[0] as u32,
            // No more is promised than allowed, and it is a number, so that sums are.
            least: Rate::from_bps(words[2]).min(most).min(Rate::from_bps(u64::MAX - 1)),
            most,
        }
    }
}

/// The bit of [`Posted::principal`] that tells keys on a server's list from addresses of strangers.
pub const KEYS: u64 = 1 << 63;

/// Bytes of a label.
pub const LABEL_BYTES: usize = 8 * LABEL_WORDS;

/// How people name a session. Text from elsewhere: it is escaped before it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label([u8; LABEL_BYTES]);

/// What a process posts of one of its sessions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Posted {
    /// Its name in the process, used once.
    pub id: u32,
    /// Which way its data go.
    pub side: Side,
    /// What the agent wants to know.
    pub report: Report,
    /// On whose behalf it runs here: zero for this process's own user, else a hash of the client
    /// that this host serves.
    pub principal: u64,
    /// Sessions with the same number here belong to one transfer.
    pub transfer: u64,
    /// What it was granted before.
    pub held: Outstanding,
    /// What keeps it from going faster.
    pub limited_by: LimitedBy,
    /// How its path stands, if it sends.
    pub path: PostedPath,
    /// Data packets that arrived since its start, as far as this end knows.
    pub packets: u64,
    /// Those that did not.
    pub lost: u64,
    /// IP bytes moved since its start.
    pub wire_bytes: u64,
    /// How people name it.
    pub label: Label,
    /// What its client has, if it serves one and both ends of the page know terms.
    pub terms: Terms,
}

/// What a second look at a [`Posted`] brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// What had changed has been changed.
    Done,
    /// Another session stands there.
    Another,
    /// No session does any more.
    Gone,
}

/// What the daemon answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Granted {
    /// The session's name in the process.
    pub id: u32,
    /// The grant.
    pub grant: Grant,
}

/// Sessions of one process at most, both directions together: 1 MiB of reports.
pub const SLOTS_MOST: u32 = 4_096;
/// Words before the first slot of either page.
pub(crate) const HEAD_WORDS: usize = 64;
/// Words of a report's slot, its sequence word first.
pub(crate) const POSTED_WORDS: usize = 32;
/// Of them, those that change, after the sequence word.
pub(crate) const LIVE_WORDS: usize = 12;
/// Words of a grant's slot, its sequence word first.
pub(crate) const GRANTED_WORDS: usize = 8;
/// Words of a report's label.
const LABEL_WORDS: usize = 12;
/// Where it begins, the sequence word not counted.
const LABEL_AT: usize = POSTED_WORDS - 1 - LABEL_WORDS;
/// Words of a session's terms, which take the place of the label's last ones.
const TERMS_WORDS: usize = 4;
/// Where they begin.
const TERMS_AT: usize = POSTED_WORDS - 1 - TERMS_WORDS;
/// Bytes of a label before terms.
const SHORT_LABEL_BYTES: usize = LABEL_BYTES - 8 * TERMS_WORDS;

/// First word of a page: `gtp` and the layout's version.
pub(crate) const MAGIC: u64 = 0x6774_7000_0000_0000 | VERSION as u64;

impl Label {
    /// The first bytes of `text`, as many as there is room for, cut between characters.
    pub fn new(text: &str) -> Label {
        Label::cut(text, LABEL_BYTES)
    }

    /// The same as far as there is room beside terms.
    #[must_use]
    pub fn beside_terms(&self) -> Label {
        let all = String::from_utf8_lossy(self.bytes_of(0));
        match address_and_path(&all) {
            Some((address, path)) => {
                let room = SHORT_LABEL_BYTES.saturating_sub(address.len() + 1);
                Label::cut(&format!("{address} {}", shortened(path, room)), SHORT_LABEL_BYTES)
            }
            None => *self,
        }
    }

    /// The same with a client's name behind it and the groups that it is in, as far as there is
    /// room. Who knows no names sees what was there before alone. Where it is known what is moved,
    /// this takes the place of the address, which the name makes dispensable.
    #[must_use]
    pub fn of_client(&self, name: &str, groups: &str) -> Label {
        let before = String::from_utf8_lossy(self.bytes_of(0));
        let before = match address_and_path(&before) {
            Some((_, path)) => {
                let others = name.len() + groups.len() + 2;
                let room = SHORT_LABEL_BYTES.saturating_sub(others).max(PATH_LEAST);
                shortened(path, room)
            }
            None => before.into_owned(),
        };
        Label::cut(&[&before, name, groups].join("\0"), SHORT_LABEL_BYTES)
    }

    fn cut(text: &str, most: usize) -> Label {
        let mut cut = text.len().min(most);
        while !text.is_char_boundary(cut) {
            cut -= 1;
        }
        let mut bytes = [0; LABEL_BYTES];
        bytes[..cut].copy_from_slice(&text.as_bytes()[..cut]);
        Label(bytes)
    }

    /// The text as far as it can be shown: what is no printable character becomes `?`.
    pub fn printable(&self) -> String {
        self.part(0)
    }

    /// Who the client is, as far as it can be shown; empty if that is not said.
    pub fn name(&self) -> String {
        self.part(1)
    }

    /// The groups of the client, as far as they can be shown; empty if it is in none.
    pub fn groups(&self) -> String {
        self.part(2)
    }

    fn part(&self, number: usize) -> String {
        printable(&String::from_utf8_lossy(self.bytes_of(number)))
    }

    fn bytes_of(&self, part: usize) -> &[u8] {
        self.0.split(|&b| b == 0).nth(part).unwrap_or_default()
    }
}

/// How a host that serves names a session: by the client's address and by the path of what it
/// moves, whose middle is left out where it is too long for a label.
pub fn served(client: SocketAddr, path: &str) -> String {
    let client = client.to_string();
    let path = shortened(path, LABEL_BYTES.saturating_sub(client.len() + 1));
    format!("{client} {path}")
}

/// The parts of what [`served`] makes.
pub(crate) fn address_and_path(label: &str) -> Option<(&str, &str)> {
    label.split_once(' ').filter(|(address, _)| address.parse::<SocketAddr>().is_ok())
}

/// A path of so many bytes at most: where it is longer its middle is left out. Its first name, the
/// export, stays if there is room, and so does its end, which tells files apart.
fn shortened(path: &str, most: usize) -> String {
    if path.len() <= most {
        return path.to_owned();
    }
    let first = path.find('/').map_or("", |end| &path[..=end]);
    let first = if first.len() + OMITTED.len() <= most / 2 { first } else { "" };
    let room = most.saturating_sub(first.len() + OMITTED.len());
    let mut from = path.len() - room;
    while !path.is_char_boundary(from) {
        from += 1;
    }
    // The mark alone may have no room.
    if most < OMITTED.len() { String::new() } else { [first, OMITTED, &path[from..]].concat() }
}

/// What stands for the part of a path that is left out.
const OMITTED: &str = "…";

/// Bytes of a path that have room however long a client's name is.
const PATH_LEAST: usize = 24;

/// A text from elsewhere as far as it can be shown: what is no printable character becomes `?`.
pub fn printable(text: &str) -> String {
    gtp_text::replaced(text)
}

impl Posted {
    pub(crate) fn encode(&self) -> [u64; POSTED_WORDS - 1] {
        let mut words = [0; POSTED_WORDS - 1];
        let phase: u64 = match self.report.phase {
            Phase::Open => 1,
            Phase::Closing => 2,
        };
        let side: u64 = match self.side {
            Side::Source => 1,
            Side::Sink => 2,
        };
        let (law, alpha, beta): (u64, f64, f64) = match self.report.law {
            Law::Grant => (1, 0.0, 0.0),
            Law::EndNode { alpha, beta } => (2, alpha, beta),
            Law::SourceAlone => (3, 0.0, 0.0),
            Law::SinkAlone => (4, 0.0, 0.0),
            Law::SessionAlone => (5, 0.0, 0.0),
        };
        let limit = limit_code(self.limited_by);
        words[0] = phase | side << 8 | law << 16 | limit << 24 | u64::from(self.id) << 32;
        words[1] = self.report.peer_offer.as_bps();
        words[2] = self.report.demand.as_bps();
        words[3] = self.report.measured.as_bps();
        let rtt = self.report.rtt.min(RTT_MOST).as_nanos();
        words[4] = rtt | (self.report.firm.as_bps() >> COARSE_BITS).min(COARSE_ALL) << 32;
        words[5] = u64::from(self.report.echoed) | u64::from(self.held.number) << 32;
        words[6] = self.report.peer_weight.to_bits();
        words[7] = self.lost;
        words[8] = self.wire_bytes;
        words[9] = self.packets;
        (words[10], words[11]) = (self.path.path, self.path.ecn);
        words[12] = self.report.weight.to_bits();
        words[13] = alpha.to_bits();
        words[14] = beta.to_bits();
        words[15] = self.held.rate.as_bps();
        words[16] = self.held.committed.as_bps();
        words[17] = self.principal;
        words[18] = self.transfer;
        for (word, bytes) in words[LABEL_AT..].iter_mut().zip(self.label.0.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        words
    }

    /// The same for a page whose ends know terms.
    pub(crate) fn encode_with_terms(&self) -> [u64; POSTED_WORDS - 1] {
        let mut words = self.encode();
        if self.principal != 0 {
            words[TERMS_AT..].copy_from_slice(&self.terms.encode());
        }
        words
    }

    /// What these words say on a page whose ends know terms, if an honest process could have meant
    /// them so.
    pub(crate) fn decode_with_terms(words: &[u64; POSTED_WORDS - 1]) -> Option<Posted> {
        let mut posted = Posted::decode(words)?;
        if posted.principal != 0 {
            posted.label.0[SHORT_LABEL_BYTES..].fill(0);
            posted.terms = Terms::decode(words.last_chunk()?);
        }
        Some(posted)
    }

    /// As [`Posted::update`], on a page whose ends know terms.
    #[inline]
    pub(crate) fn update_with_terms(&mut self, words: &[u64; POSTED_WORDS - 1]) -> Update {
        let Some(live) = words.first_chunk() else { return Update::Gone };
        let update = self.update(live);
        if update == Update::Done
            && self.principal != 0
            && let Some(now) = Posted::decode_with_terms(words)
        {
            (self.terms, self.label) = (now.terms, now.label);
        }
        update
    }

    /// What these words say, if an honest process could have meant them so.
    pub(crate) fn decode(words: &[u64; POSTED_WORDS - 1]) -> Option<Posted> {
        let live = Live::decode(words.first_chunk()?)?;
        let law = match law_code(words[0]) {
            1 => Law::Grant,
            2 => Law::EndNode { alpha: f64::from_bits(words[13]), beta: f64::from_bits(words[14]) },
            3 => Law::SourceAlone,
            4 => Law::SinkAlone,
            5 => Law::SessionAlone,
            0 | 6..=255 => return None,
        };
        let mut label = [0; LABEL_BYTES];
        for (bytes, word) in label.as_chunks_mut().0.iter_mut().zip(&words[LABEL_AT..]) {
            *bytes = word.to_le_bytes();
        }
        let weight = f64::from_bits(words[12]);
        let least = 1.0 / WEIGHT_MOST;
        Some(Posted {
            id: live.id,
            side: live.side,
            report: Report {
                // What is no number counts as the least.
                weight: if weight >= least { weight.min(WEIGHT_MOST) } else { least },
                peer_weight: live.peer_weight,
                law: law.believed(),
                phase: live.phase,
                peer_offer: live.peer_offer,
                demand: live.demand,
                firm: live.firm,
                party: 0,
                owner: gtp_proto::Owner::NOBODY,
                measured: live.measured,
                echoed: live.echoed,
                rtt: live.rtt,
                // For laws that a process runs by itself.
                counts: Counts::default(),
                packet: Bytes::ZERO,
            },
            principal: words[17],
            transfer: words[18],
            held: Outstanding {
                number: (words[5] >> 32) as u32,
                rate: Rate::from_bps(words[15]),
                committed: Rate::from_bps(words[16].max(words[15])),
            },
            limited_by: live.limited_by,
            path: live.path,
            packets: live.packets,
            lost: live.lost,
            wire_bytes: live.wire_bytes,
            label: Label(label),
            terms: Terms::NONE,
        })
    }

    /// What may change in a session's life does, by the first words of a report.
    #[inline]
    pub(crate) fn update(&mut self, words: &[u64; LIVE_WORDS]) -> Update {
        let Some(live) = Live::decode(words) else { return Update::Gone };
        if (self.id, self.side) != (live.id, live.side) {
            return Update::Another;
        }
        let report = &mut self.report;
        report.phase = live.phase;
        report.peer_offer = live.peer_offer;
        report.demand = live.demand;
        report.firm = live.firm;
        report.measured = live.measured;
        report.rtt = live.rtt;
        report.echoed = live.echoed;
        report.peer_weight = live.peer_weight;
        self.limited_by = live.limited_by;
        self.path = live.path;
        self.packets = live.packets;
        self.lost = live.lost;
        self.wire_bytes = live.wire_bytes;
        Update::Done
    }
}

/// What changes of a [`Posted`] while its session lives.
struct Live {
    id: u32,
    side: Side,
    phase: Phase,
    limited_by: LimitedBy,
    path: PostedPath,
    peer_offer: Rate,
    demand: Rate,
    firm: Rate,
    measured: Rate,
    rtt: Span,
    echoed: u32,
    peer_weight: f64,
    packets: u64,
    lost: u64,
    wire_bytes: u64,
}

impl Live {
    /// What the first words of a report say, if an honest process could have meant them so.
    #[inline(always)]
    fn decode(words: &[u64; LIVE_WORDS]) -> Option<Live> {
        let byte = |at: u32| (words[0] >> at) as u8;
        let phase = match byte(0) {
            1 => Phase::Open,
            2 => Phase::Closing,
            0 | 3..=255 => return None,
        };
        let side = match byte(8) {
            1 => Side::Source,
            2 => Side::Sink,
            0 | 3..=255 => return None,
        };
        if !LAWS.contains(&law_code(words[0])) {
            return None;
        }
        let limit = usize::from(byte(24)).checked_sub(1)?;
        let peer_weight = f64::from_bits(words[6]);
        Some(Live {
            id: (words[0] >> 32) as u32,
            side,
            phase,
            limited_by: *LIMITS.get(limit)?,
            path: PostedPath { path: words[10], ecn: words[11] },
            peer_offer: Rate::from_bps(words[1]),
            demand: Rate::from_bps(words[2]),
            measured: Rate::from_bps(words[3]),
            firm: match words[4] >> 32 {
                COARSE_ALL => Rate::UNLIMITED,
                some => Rate::from_bps(some << COARSE_BITS),
            },
            rtt: Span::from_nanos(words[4] & 0xffff_ffff).min(RTT_MOST),
            echoed: words[5] as u32,
            peer_weight: if peer_weight >= PEER_WEIGHT_LEAST {
                peer_weight.min(WEIGHT_MOST)
            } else {
                PEER_WEIGHT_LEAST
            },
            lost: words[7],
            wire_bytes: words[8],
            packets: words[9],
        })
    }
}

/// Rates that need not be exact are posted in units of so many bits: 1,024 bit/s.
const COARSE_BITS: u32 = 10;
/// A rate that 32 bits do not hold is posted as this, and counts as unlimited.
const COARSE_ALL: u64 = 0xffff_ffff;
/// Sessions of one path are not counted beyond this.
const PATH_SESSIONS: u64 = 0x7f;
/// The queue code that means that the path does not bound the session.
const UNBOUNDED: u64 = 3;

/// Marks are not counted beyond this.
const MARKS_MOST: u64 = u64::MAX >> 8;

/// The session's datagrams go over TCP. Modes leave this bit free.
const OVER_TCP: u64 = 1 << 3;

/// How a path stands, in two words. Few look at them, so they are taken apart only for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PostedPath {
    path: u64,
    ecn: u64,
}

impl PostedPath {
    /// How the path of a session stands, if it sends.
    pub fn new(path: Option<Standing>) -> PostedPath {
        let Some(path) = path else { return PostedPath::default() };
        let ecn = ecn_word(path.ecn);
        let mode = match path.mode {
            Mode::Start => 1,
            Mode::Cruise => 2,
            Mode::Ask => 3,
            Mode::Compete => 4,
            Mode::Probe => 5,
            Mode::Guard => 6,
            Mode::Yield => 7,
            Mode::Unbounded => 1,
        };
        let queue = match path.queue {
            _ if path.mode == Mode::Unbounded => UNBOUNDED,
            Queue::None => 0,
            Queue::Own => 1,
            Queue::Another => 2,
        };
        let flows = u64::from(path.flows.get() - 1) & 7;
        let sessions = u64::from(path.sessions).min(PATH_SESSIONS);
        let carries = (path.carries.as_bps() >> COARSE_BITS).min(COARSE_ALL);
        let group = u64::from(path.group);
        let path = mode | queue << 4 | sessions << 6 | flows << 13 | group << 16 | carries << 32;
        PostedPath { path, ecn }
    }

    /// The same of a session whose datagrams its control connection carries.
    pub fn over_tcp(self) -> PostedPath {
        PostedPath { path: self.path | OVER_TCP, ..self }
    }

    /// Whether the session's control connection carries its datagrams.
    pub fn is_over_tcp(self) -> bool {
        self.path & OVER_TCP != 0
    }

    /// What it says of the path, if it says anything that an honest process could have meant.
    pub fn standing(self) -> Option<Standing> {
        let PostedPath { path: word, ecn } = self;
        let (mode, queue) = match word >> 4 & 3 {
            UNBOUNDED => (Mode::Unbounded, Queue::None),
            queue => {
                let mode = *Mode::ALL.get(((word & 0x7) as usize).checked_sub(1)?)?;
                (mode, *Queue::ALL.get(queue as usize)?)
            }
        };
        Some(Standing {
            group: (word >> 16) as u16,
            sessions: (word >> 6 & PATH_SESSIONS) as u32,
            mode,
            carries: match word >> 32 {
                COARSE_ALL => Rate::UNLIMITED,
                some => Rate::from_bps(some << COARSE_BITS),
            },
            queue,
            flows: NonZeroU8::MIN.saturating_add((word >> 13 & 7) as u8),
            ecn: ecn_of(ecn)?,
        })
    }
}

/// How ECN stands, in one word: the state in four bits, why a test has failed in four, and the
/// marks.
fn ecn_word(ecn: EcnStanding) -> u64 {
    let (state, why) = match ecn.state {
        EcnState::Off => (0, 0),
        EcnState::Testing => (1, 0),
        EcnState::On => (2, 0),
        EcnState::Failed(EcnFailure::Uncounted) => (3, 0),
        EcnState::Failed(EcnFailure::Bleached) => (3, 1),
        EcnState::Failed(EcnFailure::AllMarked) => (3, 2),
        EcnState::Failed(EcnFailure::Dropped) => (3, 3),
        EcnState::Failed(EcnFailure::Contradicted) => (3, 4),
    };
    state | why << 4 | ecn.marks.min(MARKS_MOST) << 8
}

/// What such a word says, if an honest process could have meant it.
fn ecn_of(word: u64) -> Option<EcnStanding> {
    let state = match word & 0xf {
        0 => EcnState::Off,
        1 => EcnState::Testing,
        2 => EcnState::On,
        3 => EcnState::Failed(*EcnFailure::ALL.get((word >> 4 & 0xf) as usize)?),
        _ => return None,
    };
    Some(EcnStanding { state, marks: word >> 8 })
}

/// Codes of laws.
const LAWS: core::ops::RangeInclusive<u8> = 1..=5;
/// Limits in the order of their codes, from 1.
const LIMITS: [LimitedBy; 6] = [
    LimitedBy::Source,
    LimitedBy::Sink,
    LimitedBy::Demand,
    LimitedBy::Path,
    LimitedBy::Disk,
    LimitedBy::Router,
];

#[inline]
fn law_code(word: u64) -> u8 {
    (word >> 16) as u8
}

impl Granted {
    #[inline]
    pub(crate) fn encode(&self) -> [u64; GRANTED_WORDS - 1] {
        let number = u64::from(self.grant.number);
        [
            u64::from(self.id) << 32 | 1,
            number,
            self.grant.rate.as_bps(),
            self.grant.offer.as_bps(),
            self.grant.interval.as_nanos(),
            self.grant.weight.to_bits(),
            0,
        ]
    }

    pub(crate) fn decode(words: &[u64; GRANTED_WORDS - 1]) -> Option<Granted> {
        (words[0] as u32 == 1).then(|| Granted {
            id: (words[0] >> 32) as u32,
            grant: Grant {
                number: words[1] as u32,
                rate: Rate::from_bps(words[2]),
                offer: Rate::from_bps(words[3]),
                interval: Span::from_nanos(words[4]),
                weight: f64::from_bits(words[5]),
            },
        })
    }
}

fn limit_code(limit: LimitedBy) -> u64 {
    match limit {
        LimitedBy::Source => 1,
        LimitedBy::Sink => 2,
        LimitedBy::Demand => 3,
        LimitedBy::Path => 4,
        LimitedBy::Disk => 5,
        LimitedBy::Router => 6,
    }
}

#[cfg(test)]
mod tests;
