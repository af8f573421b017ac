//! Whether a program can be spoken for: what its file says about how it is linked.
//!
//! A library is put before the C library by the dynamic loader. A program without one, one that
//! the loader does not trust with it, and one that makes its system calls itself, go on as they
//! are, so they are refused in words. Only headers are read, with every place in them checked.

/// What is known of a program's file.
#[derive(Debug, PartialEq, Eq)]
pub enum Program {
    /// It is loaded with its C library.
    Loaded,
    /// It is a script for this interpreter.
    Script(String),
    /// It has no dynamic loader.
    Static,
    /// It is made by a compiler whose programs make system calls themselves.
    Bypasses,
    /// No program that is known here.
    Unknown,
}

/// Bytes of a file that are looked at.
pub const HEAD: usize = 64 << 10;

const LOADER: u32 = 3;
const NOTE: u32 = 4;

/// Judges a program by the beginning of its file.
pub fn judge(head: &[u8]) -> Program {
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        return match line.split_whitespace().next() {
            Some(interpreter) => Program::Script(interpreter.to_owned()),
            None => Program::Unknown,
        };
    }
    // ELF, 64 bits, in this machine's order of bytes, which is all that a library of ours can join.
    let order = if cfg!(target_endian = "little") { 1 } else { 2 };
    if !head.starts_with(&[0x7f, b'E', b'L', b'F', 2, order]) {
        return Program::Unknown;
    }
    let mut found = Program::Static;
    for (kind, contents) in segments(head) {
        match kind {
            LOADER if found == Program::Static => found = Program::Loaded,
            NOTE if contents.windows(4).any(|name| name == b"Go\0\0") => found = Program::Bypasses,
            _ => {}
        }
    }
    found
}

/// The parts that a loader looks at, with their kinds; what lies beyond the head is empty.
fn segments(head: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    let table = number::<8>(head, 32).unwrap_or(u64::MAX);
    let size = number::<2>(head, 54).unwrap_or(0);
    let count = number::<2>(head, 56).unwrap_or(0);
    (0..count).map_while(move |index| {
        let at = table.checked_add(index.checked_mul(size)?)?;
        let at = usize::try_from(at).ok()?;
        let kind = number::<4>(head, at)? as u32;
        let start = usize::try_from(number::<8>(head, at.checked_add(8)?)?).ok()?;
        let length = usize::try_from(number::<8>(head, at.checked_add(32)?)?).ok()?;
        let end = start.saturating_add(length).min(head.len());
        Some((kind, head.get(start..end).unwrap_or_default()))
    })
}

fn number<const WIDTH: usize>(head: &[u8], at: usize) -> Option<u64> {
    let bytes = head.get(at..at.checked_add(WIDTH)?)?;
    let fold = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
    Some(if cfg!(target_endian = "little") {
        bytes.iter().rev().fold(0, fold)
    } else {
        bytes.iter().fold(0, fold)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF head with these parts: kind, and what is in it.
    fn elf(parts: &[(u32, &[u8])]) -> Vec<u8> {
        let mut head = vec![0; 64];
        head[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
        head[32..40].copy_from_slice(&64_u64.to_le_bytes());
        head[54..56].copy_from_slice(&56_u16.to_le_bytes());
        head[56..58].copy_from_slice(&(parts.len() as u16).to_le_bytes());
        let mut at = 64 + 56 * parts.len();
        for (kind, contents) in parts {
            let mut entry = [0; 56];
            entry[..4].copy_from_slice(&kind.to_le_bytes());
            entry[8..16].copy_from_slice(&(at as u64).to_le_bytes());
            entry[32..40].copy_from_slice(&(contents.len() as u64).to_le_bytes());
            head.extend_from_slice(&entry);
            at += contents.len();
        }
        parts.iter().for_each(|(_, contents)| head.extend_from_slice(contents));
        head
    }

    #[test]
    fn programs_are_told_apart() {
        assert_eq!(judge(&elf(&[(1, b"code"), (3, b"/lib/ld.so")])), Program::Loaded);
        assert_eq!(judge(&elf(&[(1, b"code")])), Program::Static);
        let made = elf(&[(3, b"/lib/ld.so"), (4, b"\x04\0\0\0\x53\0\0\0\x04\0\0\0Go\0\0id")]);
        assert_eq!(judge(&made), Program::Bypasses);
        assert_eq!(judge(b"#! /usr/bin/env python3\n"), Program::Script("/usr/bin/env".into()));
        assert_eq!(judge(b"MZ"), Program::Unknown);
        assert_eq!(judge(&std::fs::read("/proc/self/exe").unwrap()), Program::Loaded);
    }

    #[test]
    fn headers_that_lie_are_read_to_their_end_and_no_further() {
        let mut head = elf(&[(3, b"x"), (4, b"y")]);
        for at in 0..head.len() {
            let kept = head[at];
            for byte in [0, 1, 0x7f, 0xff] {
                head[at] = byte;
                judge(&head);
            }
            head[at] = kept;
            judge(&head[..at]);
        }
    }
}
