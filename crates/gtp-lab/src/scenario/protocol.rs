//! What the two ends of a session speak, and what stands at links: rivals by name.
//!
//! A name binds a law to the ends that it is known with; a few keys tune them. What a protocol does
//! not know is refused beside it, so that no key stands in a file without effect. How the ends
//! are made is known elsewhere.

use std::ops::RangeInclusive;

use gtp_alloc::{Bytes, Rate, Span};
use gtp_link::managed;
use gtp_peers::Routed;
use gtp_peers::tcp::{CONNECTIONS_MAX, Flavour};

use super::read::Table;
use super::tree::{Complaint, Truth};

type Read<T> = Result<T, Complaint>;

/// What the two ends of a session speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Protocol {
    /// The project's own.
    #[default]
    Gtp,
    /// A window over the TCP engine.
    Window(Windowed),
    /// Packets at a rate.
    Rate(Paced),
    /// A stream whose rate the switches on its way advertise.
    Advertised,
    /// The same, which asks the links on its way by control packets.
    Perc,
}

impl Protocol {
    /// What it never sends above, whatever there is.
    pub fn most(self) -> Rate {
        match self {
            Protocol::Rate(Paced { mover, rate: Some(rate), .. }) if mover.keeps_rate() => rate,
            Protocol::Gtp
            | Protocol::Window(_)
            | Protocol::Rate(_)
            | Protocol::Advertised
            | Protocol::Perc => Rate::UNLIMITED,
        }
    }
}

/// A protocol over the TCP engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windowed {
    /// Its law.
    pub law: WindowLaw,
    /// Connections that share the session's data.
    pub connections: u16,
    /// The receiver's buffer; `None`: never what limits.
    pub window: Option<Bytes>,
    /// Whether two segments may share an acknowledgment.
    pub delayed: Delayed,
    /// Segments to begin with.
    pub initial_window: u16,
    /// Above this window slow start grows slowly (RFC 3742).
    pub slow_start_limit: Option<u32>,
    /// The slow-start threshold to begin with, in segments.
    pub threshold: Option<u32>,
}

/// Whether a receiver waits with its acknowledgments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delayed {
    /// As RFC 5681 allows.
    Yes,
    /// Every segment is acknowledged.
    No,
}

/// What decides a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowLaw {
    /// A TCP's own.
    Tcp(Flavour),
    /// Routers', XCP's at end nodes, too: endpointXCP.
    Routed(Routed),
}

/// A rate-based protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paced {
    /// Which.
    pub mover: Mover,
    /// The rate that its user gives, or at which it begins.
    pub rate: Option<Rate>,
    /// The capacity that it is told; `None`: of the slowest link on its way.
    pub link: Option<Rate>,
}

/// Which rate-based protocol, in which version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mover {
    /// RBUDP.
    Rbudp,
    /// Tsunami as released.
    Tsunami,
    /// Tsunami without its control.
    TsunamiFixed,
    /// NETBLT.
    Netblt,
    /// SABUL's law of the paper, default values.
    Sabul,
    /// The same, with the values of Lemma 7.
    SabulPr1,
    /// SABUL's release 2.
    Sabul2,
    /// UDT 4.
    Udt,
    /// UDT 1.
    Udt1,
    /// LambdaStream.
    LambdaStream,
    /// GTP of 2004.
    Gtp2004,
}

impl Mover {
    /// All, with their names in scenario files.
    pub const ALL: [(&str, Mover); 11] = [
        ("rbudp", Mover::Rbudp),
        ("tsunami", Mover::Tsunami),
        ("tsunami-fixed", Mover::TsunamiFixed),
        ("netblt", Mover::Netblt),
        ("sabul", Mover::Sabul),
        ("sabul-pr1", Mover::SabulPr1),
        ("sabul-2", Mover::Sabul2),
        ("udt", Mover::Udt),
        ("udt-1", Mover::Udt1),
        ("lambdastream", Mover::LambdaStream),
        ("gtp2004", Mover::Gtp2004),
    ];

    /// Whether it has no rate unless its user gives one.
    pub fn needs_rate(self) -> bool {
        match self {
            Mover::Rbudp | Mover::Tsunami | Mover::TsunamiFixed | Mover::Netblt => true,
            Mover::Sabul
            | Mover::SabulPr1
            | Mover::Sabul2
            | Mover::Udt
            | Mover::Udt1
            | Mover::LambdaStream
            | Mover::Gtp2004 => false,
        }
    }

    /// Whether its rate stays below what its user gives.
    pub fn keeps_rate(self) -> bool {
        self.needs_rate()
    }
}

/// What a name in `protocol` means.
#[derive(Clone, Copy)]
enum Word {
    Gtp,
    Window(WindowLaw),
    Mover(Mover),
    Advertised,
    Perc,
}

/// Reads `protocol` and the keys that belong to it.
///
/// # Errors
/// A name that is none, or a key that the protocol does not know.
pub fn protocol(table: &mut Table<'_>, weight: f64) -> Read<Protocol> {
    let mut words = vec![("gtp", Word::Gtp)];
    let tcp = |flavour: Flavour| (flavour.name(), Word::Window(WindowLaw::Tcp(flavour)));
    words.extend(Flavour::ALL.map(tcp));
    let laws = [("xcp", Routed::Xcp), ("vcp", Routed::Vcp), ("aecp", Routed::Aecp)];
    words.extend(laws.map(|(name, law)| (name, Word::Window(WindowLaw::Routed(law)))));
    words.extend(Mover::ALL.map(|(name, mover)| (name, Word::Mover(mover))));
    words.extend([("advertised", Word::Advertised), ("perc", Word::Perc)]);
    let word = table.choice("protocol", &words)?.unwrap_or(Word::Gtp);
    let windowed = windowed(table)?;
    let (rate, link): (Option<Rate>, Option<Rate>) =
        (table.quantity("rate")?, table.quantity("link")?);
    let is_window = matches!(word, Word::Window(_));
    if !is_window && let Some(key) = windowed.named {
        let message = format!("`{key}` is TCP's: name its law, as in protocol = \"cubic\"");
        return Err(Complaint::new(table.place(), message));
    }
    if !matches!(word, Word::Mover(_)) && (rate.is_some() || link.is_some()) {
        let message = "`rate` and `link` are of rate-based protocols such as \"rbudp\"";
        return Err(Complaint::new(table.place(), message));
    }
    if !matches!(word, Word::Gtp) && weight != 1.0 {
        return Err(Complaint::new(table.place(), "rivals know no `weight`: take it out"));
    }
    Ok(match word {
        Word::Gtp => Protocol::Gtp,
        Word::Advertised => Protocol::Advertised,
        Word::Perc => Protocol::Perc,
        Word::Window(law) => Protocol::Window(windowed.of(law)),
        Word::Mover(mover) if mover.needs_rate() && rate.is_none() => {
            return Err(table.lacks("rate", "the rate that the protocol's user gives it"));
        }
        Word::Mover(mover) => Protocol::Rate(Paced { mover, rate, link }),
    })
}

/// The keys of windows as they stand in the file.
struct Tuning {
    /// One of them that is there.
    named: Option<&'static str>,
    connections: Option<i64>,
    window: Option<Bytes>,
    delayed: Option<Truth>,
    initial_window: Option<i64>,
    slow_start_limit: Option<i64>,
    threshold: Option<i64>,
}

fn windowed(table: &mut Table<'_>) -> Read<Tuning> {
    let tuning = Tuning {
        named: None,
        connections: table.integer("connections", 1..=i64::from(CONNECTIONS_MAX))?,
        window: table.within("window", WINDOWS, "a size from 1B to 1TiB")?,
        delayed: table.truth("delayed_acks")?,
        initial_window: table.integer("initial_window", 1..=SEGMENTS_FIRST)?,
        slow_start_limit: table.integer("slow_start_limit", 1..=SEGMENTS_MAX)?,
        threshold: table.integer("threshold", 2..=SEGMENTS_MAX)?,
    };
    let named = [
        tuning.connections.map(|_| "connections"),
        tuning.window.map(|_| "window"),
        tuning.delayed.map(|_| "delayed_acks"),
        tuning.initial_window.map(|_| "initial_window"),
        tuning.slow_start_limit.map(|_| "slow_start_limit"),
        tuning.threshold.map(|_| "threshold"),
    ];
    Ok(Tuning { named: named.into_iter().flatten().next(), ..tuning })
}

/// Sizes of a receiver's buffer.
const WINDOWS: RangeInclusive<Bytes> = Bytes(1)..=Bytes(1 << 40);
/// Segments to begin with, at most.
const SEGMENTS_FIRST: i64 = 1_000;
/// Segments of a window in a file.
const SEGMENTS_MAX: i64 = 1 << 30;

impl Tuning {
    /// What the file does not say is as hosts of today have it for TCP; routers' laws begin with
    /// one segment and hear of every one.
    fn of(&self, law: WindowLaw) -> Windowed {
        let (delayed, first) = match law {
            WindowLaw::Tcp(_) => (Delayed::Yes, 10),
            WindowLaw::Routed(_) => (Delayed::No, 1),
        };
        let segments = |n: Option<i64>| n.and_then(|n| u32::try_from(n).ok());
        Windowed {
            law,
            connections: self.connections.unwrap_or(1) as u16,
            window: self.window,
            delayed: match self.delayed {
                None => delayed,
                Some(Truth::True) => Delayed::Yes,
                Some(Truth::False) => Delayed::No,
            },
            initial_window: self.initial_window.unwrap_or(first) as u16,
            slow_start_limit: segments(self.slow_start_limit),
            threshold: segments(self.threshold),
        }
    }
}

/// A controller at a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouterEntry {
    /// XCP's queue.
    Xcp,
    /// An end node of endpointXCP, of the link's capacity or one of its own.
    XcpNode(Option<Rate>),
    /// VCP's queue.
    Vcp,
    /// AECP's queue.
    Aecp,
    /// RED between these average queues.
    Red {
        /// Nothing is dropped below it.
        min: Bytes,
        /// A tenth is dropped at it.
        max: Bytes,
    },
    /// PIE with the values of its RFC.
    Pie,
    /// A managed queue with the values of its RFC, in the place of the link's own.
    Managed(managed::Kind),
    /// A switch that advertises a rate.
    Advertised,
    /// A receiver's meter, with its interval.
    Meter(Span),
    /// Equal slices of a cap.
    Slice(Rate),
    /// A link that answers control packets.
    Perc,
}

/// A word for a controller.
#[derive(Clone, Copy)]
enum Kind {
    Xcp,
    XcpNode,
    Vcp,
    Aecp,
    Red,
    Pie,
    Managed(managed::Kind),
    Advertised,
    Meter,
    Slice,
    Perc,
}

/// Reads `router` of a link with room for `queue` bytes, and the keys that belong to it.
///
/// # Errors
/// A name that is none, or a key that the router does not know.
pub fn router(table: &mut Table<'_>, queue: Bytes) -> Read<Option<RouterEntry>> {
    let kinds = [
        ("xcp", Kind::Xcp),
        ("xcp-node", Kind::XcpNode),
        ("vcp", Kind::Vcp),
        ("aecp", Kind::Aecp),
        ("red", Kind::Red),
        ("pie", Kind::Pie),
        ("codel", Kind::Managed(managed::Kind::Codel)),
        ("fq-codel", Kind::Managed(managed::Kind::FqCodel)),
        ("dualpi2", Kind::Managed(managed::Kind::DualPi2)),
        ("advertised", Kind::Advertised),
        ("meter", Kind::Meter),
        ("slice", Kind::Slice),
        ("perc", Kind::Perc),
    ];
    let kind = table.choice("router", &kinds)?;
    let capacity: Option<Rate> = table.quantity("router_capacity")?;
    let (min, max) = (table.room("red_min")?, table.room("red_max")?);
    let interval = table.interval("meter_interval")?;
    if capacity.is_some() && !matches!(kind, Some(Kind::XcpNode | Kind::Slice)) {
        let message = "`router_capacity` is of router = \"xcp-node\" and \"slice\"";
        return Err(Complaint::new(table.place(), message));
    }
    if interval.is_some() && !matches!(kind, Some(Kind::Meter)) {
        return Err(Complaint::new(table.place(), "`meter_interval` is of router = \"meter\""));
    }
    if capacity.is_none() && matches!(kind, Some(Kind::Slice)) {
        return Err(table.lacks("router_capacity", "the cap that sessions have equal slices of"));
    }
    if (min.is_some() || max.is_some()) && !matches!(kind, Some(Kind::Red)) {
        return Err(Complaint::new(table.place(), "`red_min`, `red_max` are of router = \"red\""));
    }
    let (least, most) = (min.unwrap_or(Bytes(queue.0 / 6)), max.unwrap_or(Bytes(queue.0 / 2)));
    if (min.is_some() || max.is_some()) && least >= most {
        let message = format!(
            "`red_min` is {} bytes and `red_max` {}: the first is less than the second",
            least.0, most.0
        );
        let given = if max.is_some() { "red_max" } else { "red_min" };
        let place = table.node(given).map_or(table.place(), |node| &node.place);
        return Err(Complaint::new(place, message));
    }
    Ok(kind.map(|kind| match kind {
        Kind::Xcp => RouterEntry::Xcp,
        Kind::XcpNode => RouterEntry::XcpNode(capacity),
        Kind::Vcp => RouterEntry::Vcp,
        Kind::Aecp => RouterEntry::Aecp,
        Kind::Red => RouterEntry::Red { min: least, max: most },
        Kind::Pie => RouterEntry::Pie,
        Kind::Managed(kind) => RouterEntry::Managed(kind),
        Kind::Advertised => RouterEntry::Advertised,
        Kind::Meter => RouterEntry::Meter(interval.unwrap_or(METERED_EVERY)),
        Kind::Slice => RouterEntry::Slice(capacity.unwrap_or(Rate::ZERO)),
        Kind::Perc => RouterEntry::Perc,
    }))
}

/// A meter's interval is longer than round trips.
const METERED_EVERY: Span = Span::from_millis(200);
