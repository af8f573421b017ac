//! Bounds on what a control message may hold. The store and the core have bounds of their own;
//! these keep one message, and all messages of a session together, within known memory.
//! What lies beyond them is refused before memory is taken.

use std::ops::RangeInclusive;

/// Longest frame of an ordinary message, in bytes: type byte and body. The largest honest one,
/// [`super::Fault`] with path and text, has about 5 KiB.
pub const FRAME_MAX: usize = 64 * 1024;

/// Longest frame of a page, in bytes. Pages come from a peer that may use the service.
pub const PAGE_FRAME_MAX: usize = 1024 * 1024;

/// Longest page of a survey before it is packed, in bytes: a short frame must not stand for much.
/// It is twice what the longest node takes.
pub const PACKED_PAGE_MAX: usize = 256 * 1024;

/// Entries in one page: at 48 bytes and a path of 200 each, a page is nearly full.
pub const ENTRIES_PER_PAGE: usize = 4096;

/// Entries of a manifest or listing in all: a million, so that a manifest whose paths have 100
/// bytes takes about 200 MB at either end.
pub const ENTRIES_MAX: u64 = 1 << 20;

/// Bytes of all paths of a manifest or listing: a million paths of 256 bytes. Whoever gathers
/// pages counts them, and ends the session beyond.
pub const PATHS_MAX: usize = 256 * 1024 * 1024;

/// Memory that an entry takes at a host beside its path, in bytes: 48 for itself and 56 for the
/// stamp of its file, both up to three times while a listing grows and is put in order, and the
/// rest for the row, the index and the state of its file.
pub const ENTRY_MEMORY: u64 = 384;

/// Memory for all listings of a server at once, in bytes. A quarter, which one key may take, is
/// enough for the longest listing there may be ([`ENTRIES_MAX`] and [`PATHS_MAX`]), or for 3,700
/// trees of 400 files.
pub const LISTINGS_MEMORY: u64 = 3 << 30;

/// Bytes of content of an object: 2^48 units of 1,400 bytes are more, but sizes must stay far
/// from overflow in sums and signed file offsets.
pub const CONTENT_MAX: u64 = 1 << 58;

/// Hashes in one page of roots; 32 bytes each make half a page.
pub const ROOTS_PER_PAGE: usize = 16 * 1024;

/// Bytes of a path: Linux takes no longer one in a system call (PATH_MAX).
pub const PATH_MAX: usize = 4096;

/// Bytes of the name of what a stream leads to: [`PUT_SERVICE`] with the longest path.
pub const SERVICE_MAX: usize = 4100;

/// What the service of a stream begins with that a server of files writes to the file at the path
/// behind it.
pub const PUT_SERVICE: &[u8] = b"put:";
/// What the service of a probe begins with, at a server of files.
pub const PROBE_SERVICE: &[u8] = b"probe:";
const _: () = assert!(SERVICE_MAX == PATH_MAX + PUT_SERVICE.len());

/// Units that a stream's sink may ask for ahead of what it has, at least: what a session sends in
/// its first round.
pub const STREAM_WINDOW_LEAST: u32 = 64;
/// The same at most: 2^16 units of 1,400 bytes are 92 MB, 7 Gbit/s over 100 ms.
pub const STREAM_WINDOW_MOST: u32 = 65_536;
/// Both.
pub const STREAM_WINDOW: RangeInclusive<u32> = STREAM_WINDOW_LEAST..=STREAM_WINDOW_MOST;

/// Memory that a host promises to all its streams, in bytes, unless told otherwise: the windows
/// of 89 connections of 16,384 units. It is taken only as it is used.
pub const STREAMS_MEMORY: u64 = 4 << 30;

/// Units of a stream: their numbers have 48 bits.
pub const STREAM_UNITS_MOST: u64 = 1 << 48;

/// Bytes of a stream that may wait to be sent for the first time: what 8 Gbit/s carry in 2 ms.
pub const STREAM_UNSENT: usize = 2 * 1024 * 1024;

/// Bytes of a text for people; longer ones are cut.
pub const TEXT_MAX: usize = 1024;

/// AEAD suites that a client may offer.
pub const SUITES_MAX: usize = 8;

/// Weights in thousandths: from a thousandth of an ordinary session to a thousand of them.
pub const WEIGHT_MILLI: RangeInclusive<u32> = 1..=1_000_000;

/// The least rate in bit/s that a client may ask one end to decide by alone: a packet a second.
pub const ALONE_RATE_LEAST: u64 = 12_000;
/// The most of them.
pub const ALONE_RATE_MOST: u64 = 1_000_000_000_000;
/// Both.
pub const ALONE_RATE: RangeInclusive<u64> = ALONE_RATE_LEAST..=ALONE_RATE_MOST;

/// Payload of a unit in bytes: what IPv6's smallest MTU of 1,280 leaves, to a jumbo frame's.
pub const UNIT_PAYLOAD: RangeInclusive<u16> = 1_180..=8_900;

/// Control intervals in microseconds. The product uses 10 to 100 ms; experiments go further.
pub const INTERVAL_US: RangeInclusive<u32> = 1_000..=600_000_000;

/// Bytes of a symbolic link's target: Linux's PATH_MAX without the final zero.
pub const TARGET_MAX: usize = 4_095;

/// Extended attributes of one node.
pub const XATTRS_MAX: usize = 64;

/// Bytes of the value of an extended attribute: Linux takes no longer one (XATTR_SIZE_MAX).
pub const XATTR_MAX: usize = 64 << 10;

/// Bytes of a file that a step writes, or that is told as an answer.
pub const SMALL_MAX: usize = gtp_store::replica::SMALL_MAX;

/// Files whose contents are asked for together.
pub const CONTENTS_PER_PAGE: usize = 256;

/// Bytes of contents that are told together: with the rest of the message they fit into a page.
pub const CONTENTS_BYTES_MAX: usize = 512 << 10;

/// Steps of a change of a tree that are sent together.
pub const DEEDS_PER_PAGE: usize = 4_096;

/// Kinds of what old versions lack, in one answer: there are four.
pub const LACKS_MAX: usize = 16;

/// Directories of which a client may say what they hold: sums of 8 bytes that fit into a message.
pub const TREE_SUMS_MAX: usize = 7_500;

/// Bytes of link targets and extended attributes that one survey may hold, beside paths.
pub const TREE_EXTRAS_MAX: usize = 256 << 20;
