//! The journal: which blocks of which files were good, so that a transfer can go on.
//!
//! One journal per object lies beside the destination. It starts with a header and then only
//! grows: a record names a file with the size and time that the source listed, and gets the next
//! number; a record names a block of a numbered file with its BLAKE3 value; a record names a
//! directory that the transfer makes; a record names a directory that may become writable for the
//! time of the transfer, with its own mode. Every record carries a checksum, and reading stops at
//! the first that is torn. A file named again starts anew.
//!
//! The journal is a hint and never believed: whoever resumes hashes every journaled block again.
//! So neither a power loss that kept the journal and lost the data, nor a hand that edited
//! either, can make a wrong byte count as right. Records bind each claim to one version of one
//! file, so a changed listing drops exactly the files that changed.
//!
//! Integers are little-endian.

use crate::hash::Value;
use crate::manifest::Mtime;
use crate::name::{MAX_PATH, RelPath};
use crate::row::{BLOCK, TRAILER};

/// What every journal begins with; the last byte is the version.
const MAGIC: [u8; 8] = *b"GTPJRNL\x01";

/// Bytes of the header: magic, block size, checksum.
pub const HEADER_LEN: usize = MAGIC.len() + 4 + CHECK;

/// Bytes of a record's checksum: the beginning of the BLAKE3 hash of what precedes it.
const CHECK: usize = 4;

const KIND_FILE: u8 = 1;
const KIND_BLOCK: u8 = 2;
const KIND_DIR: u8 = 3;
const KIND_LOAN: u8 = 4;

/// Kind, size, seconds, nanoseconds, length of the path.
const FILE_HEAD: usize = 1 + 8 + 8 + 4 + 2;

/// Kind, length of the path.
const DIR_HEAD: usize = 1 + 2;

/// Kind, mode, length of the path.
const LOAN_HEAD: usize = 1 + 4 + 2;

/// Kind, number of the file, block, value, checksum.
const BLOCK_LEN: usize = 1 + 4 + 8 + TRAILER + CHECK;

/// The longest record: a file with the longest path.
pub const MAX_RECORD: usize = FILE_HEAD + MAX_PATH + CHECK;

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// A file begins; its number is the count of such records before it.
    File {
        /// Its path in the object.
        path: RelPath,
        /// Its size in bytes as listed.
        size: u64,
        /// Its time of modification as listed.
        mtime: Mtime,
    },
    /// A block of a file was checked and written.
    Block {
        /// The file's number.
        number: u32,
        /// The block within the file.
        block: u64,
        /// Its value.
        value: Value,
    },
    /// The transfer makes a directory, which therefore gets its listed mode when all is there.
    Dir {
        /// Its path beneath the destination's handle; `None` is the handle's own directory.
        path: Option<RelPath>,
    },
    /// A directory that was there lacks permissions of its owner, and may be given them until the
    /// transfer ends.
    Loan {
        /// Its path, as that of a directory that is made.
        path: Option<RelPath>,
        /// The mode that it had, and gets back.
        mode: u32,
    },
}

/// What the beginning of a journal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// A whole header of this version.
    Ours,
    /// Nothing, or a header that was never completely written: an empty journal.
    Torn,
    /// Something else.
    Foreign,
}

/// A journal's records, as far as they are whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    /// What it begins with; without [`Header::Ours`] there are no records.
    pub header: Header,
    /// All whole records, in order.
    pub records: Vec<Record>,
    /// Bytes up to the end of the last whole record: where the next is written.
    pub whole: usize,
}

/// Reads a journal from memory. Any bytes may be given.
pub fn parse(bytes: &[u8]) -> Parsed {
    let header = parse_header(bytes);
    let mut parsed = Parsed { header, records: Vec::new(), whole: 0 };
    if header != Header::Ours {
        return parsed;
    }
    parsed.whole = HEADER_LEN;
    while let Some((record, len)) = decode(&bytes[parsed.whole..]) {
        parsed.records.push(record);
        parsed.whole += len;
    }
    parsed
}

/// Judges the first [`HEADER_LEN`] bytes of a journal, or all it has.
pub fn parse_header(bytes: &[u8]) -> Header {
    let head = &bytes[..bytes.len().min(HEADER_LEN)];
    let ours = header();
    if head == ours {
        Header::Ours
    } else if ours.starts_with(head) || head.iter().all(|&b| b == 0) {
        Header::Torn
    } else {
        Header::Foreign
    }
}

/// The header of a new journal.
pub fn header() -> [u8; HEADER_LEN] {
    let mut out = [0; HEADER_LEN];
    out[..MAGIC.len()].copy_from_slice(&MAGIC);
    out[MAGIC.len()..MAGIC.len() + 4].copy_from_slice(&(BLOCK as u32).to_le_bytes());
    let check = check(&out[..MAGIC.len() + 4]);
    out[MAGIC.len() + 4..].copy_from_slice(&check);
    out
}

/// The first record of `bytes` and its length; `None` when it is torn, wrong or not there.
pub fn decode(bytes: &[u8]) -> Option<(Record, usize)> {
    match *bytes.first()? {
        KIND_FILE => decode_file(bytes),
        KIND_BLOCK => decode_block(bytes),
        KIND_DIR => decode_dir(bytes),
        KIND_LOAN => decode_loan(bytes),
        _ => None,
    }
}

/// Appends a record to `out`.
pub fn encode(record: &Record, out: &mut Vec<u8>) {
    let start = out.len();
    match record {
        Record::File { path, size, mtime } => {
            let path = path.as_str().as_bytes();
            out.push(KIND_FILE);
            out.extend_from_slice(&size.to_le_bytes());
            out.extend_from_slice(&mtime.secs().to_le_bytes());
            out.extend_from_slice(&mtime.nanos().to_le_bytes());
            out.extend_from_slice(&(path.len() as u16).to_le_bytes());
            out.extend_from_slice(path);
        }
        Record::Block { number, block, value } => {
            out.push(KIND_BLOCK);
            out.extend_from_slice(&number.to_le_bytes());
            out.extend_from_slice(&block.to_le_bytes());
            out.extend_from_slice(value);
        }
        Record::Dir { path } => {
            out.push(KIND_DIR);
            encode_dir_path(path.as_ref(), out);
        }
        Record::Loan { path, mode } => {
            out.push(KIND_LOAN);
            out.extend_from_slice(&mode.to_le_bytes());
            encode_dir_path(path.as_ref(), out);
        }
    }
    let check = check(&out[start..]);
    out.extend_from_slice(&check);
}

fn decode_file(bytes: &[u8]) -> Option<(Record, usize)> {
    let path_len = u16::from_le_bytes(field(bytes, FILE_HEAD - 2)?) as usize;
    let len = FILE_HEAD + path_len + CHECK;
    checked(bytes, len)?;
    let path = RelPath::from_bytes(&bytes[FILE_HEAD..FILE_HEAD + path_len]).ok()?;
    let size = u64::from_le_bytes(field(bytes, 1)?);
    let secs = i64::from_le_bytes(field(bytes, 9)?);
    let mtime = Mtime::new(secs, u32::from_le_bytes(field(bytes, 17)?)).ok()?;
    Some((Record::File { path, size, mtime }, len))
}

fn decode_block(bytes: &[u8]) -> Option<(Record, usize)> {
    checked(bytes, BLOCK_LEN)?;
    let number = u32::from_le_bytes(field(bytes, 1)?);
    let block = u64::from_le_bytes(field(bytes, 5)?);
    Some((Record::Block { number, block, value: field(bytes, 13)? }, BLOCK_LEN))
}

fn decode_dir(bytes: &[u8]) -> Option<(Record, usize)> {
    let (path, len) = decode_dir_path(bytes, DIR_HEAD)?;
    Some((Record::Dir { path }, len))
}

fn decode_loan(bytes: &[u8]) -> Option<(Record, usize)> {
    let (path, len) = decode_dir_path(bytes, LOAN_HEAD)?;
    Some((Record::Loan { path, mode: u32::from_le_bytes(field(bytes, 1)?) }, len))
}

/// Appends the length of a directory's path and the path; `None` is the handle's own directory.
fn encode_dir_path(path: Option<&RelPath>, out: &mut Vec<u8>) {
    let path = path.map_or("", RelPath::as_str).as_bytes();
    out.extend_from_slice(&(path.len() as u16).to_le_bytes());
    out.extend_from_slice(path);
}

/// The path that ends a record with a head of this length, and the length of the record.
fn decode_dir_path(bytes: &[u8], head: usize) -> Option<(Option<RelPath>, usize)> {
    let path_len = u16::from_le_bytes(field(bytes, head - 2)?) as usize;
    let len = head + path_len + CHECK;
    checked(bytes, len)?;
    let path = match &bytes[head..head + path_len] {
        b"" => None,
        path => Some(RelPath::from_bytes(path).ok()?),
    };
    Some((path, len))
}

/// Whether the first `len` bytes are there and end in their checksum.
fn checked(bytes: &[u8], len: usize) -> Option<()> {
    let (body, sum) = bytes.get(..len)?.split_at(len - CHECK);
    (sum == check(body)).then_some(())
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn check(body: &[u8]) -> [u8; CHECK] {
    let digest = blake3::hash(body);
    let mut out = [0; CHECK];
    out.copy_from_slice(&digest.as_bytes()[..CHECK]);
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> (Vec<Record>, Vec<u8>) {
        let mtime = Mtime::new(-5, 999_999_999).unwrap();
        let records = vec![
            Record::File { path: RelPath::new("a/é").unwrap(), size: 600_000, mtime },
            Record::Block { number: 0, block: 2, value: [9; 32] },
            Record::Block { number: 0, block: u64::MAX, value: [8; 32] },
            Record::Dir { path: None },
            Record::Loan { path: Some(RelPath::new("a").unwrap()), mode: 0o1555 },
        ];
        let mut bytes = header().to_vec();
        for record in &records {
            encode(record, &mut bytes);
        }
        (records, bytes)
    }

    #[test]
    fn records_are_read_back_as_written() {
        let (records, bytes) = sample();
        let parsed = parse(&bytes);
        assert_eq!((parsed.header, parsed.whole), (Header::Ours, bytes.len()));
        assert_eq!(parsed.records, records);
    }

    #[test]
    fn a_torn_tail_costs_only_the_records_it_tore() {
        let (records, bytes) = sample();
        for cut in HEADER_LEN..bytes.len() {
            let parsed = parse(&bytes[..cut]);
            assert!(parsed.records.len() < records.len() && parsed.whole <= cut);
            assert_eq!(parsed.records[..], records[..parsed.records.len()]);
            assert_eq!(parse(&bytes[..parsed.whole]), parsed);
        }
    }

    #[test]
    fn a_header_is_ours_torn_or_foreign() {
        assert_eq!(parse_header(&[]), Header::Torn);
        assert_eq!(parse_header(&[0; 500]), Header::Torn);
        assert_eq!(parse_header(&header()[..5]), Header::Torn);
        assert_eq!(parse_header(b"#!/bin/sh\n"), Header::Foreign);
        let mut newer = header();
        newer[7] = 2;
        assert_eq!(parse_header(&newer), Header::Foreign);
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let parsed = parse(&bytes);
            prop_assert!(parsed.whole <= bytes.len());
            let mut ours = header().to_vec();
            ours.extend_from_slice(&bytes);
            prop_assert!(parse(&ours).whole <= ours.len());
        }

        #[test]
        fn a_flipped_bit_never_invents_a_record(at in 0usize..200, bit in 0u8..8) {
            let (records, mut bytes) = sample();
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            let parsed = parse(&bytes);
            prop_assert!(parsed.records.len() < records.len());
            prop_assert_eq!(&parsed.records[..], &records[..parsed.records.len()]);
        }
    }
}
