//! What the comparison programs share: arguments, content, measuring, and the line they print.
//!
//! Each program is a sender or a receiver that moves `bytes` distinct bytes from memory to memory,
//! `times` times. Content is a function of the offset, so the receiver can check every byte after
//! the clock has stopped, and no two words are alike. Times and CPU begin at the first byte that
//! moves.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

pub mod tls;

/// Which end a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It listens and receives.
    Receive,
    /// It connects and sends.
    Send,
}

/// The command line: `receive|send ADDRESS [--name value]…`.
#[derive(Clone, Debug)]
pub struct Args {
    pub role: Role,
    /// Where to listen, or whither to send.
    pub address: SocketAddr,
    options: BTreeMap<String, String>,
}

impl Args {
    /// Reads the words of a command line, without the program's name.
    pub fn parse(words: impl IntoIterator<Item = String>) -> Result<Args> {
        let mut words = words.into_iter();
        let role = match words.next().as_deref() {
            Some("receive") => Role::Receive,
            Some("send") => Role::Send,
            other => bail!("expected `receive` or `send`, not {other:?}"),
        };
        let address = words.next().context("an address is missing")?;
        let address = address.parse().with_context(|| format!("{address}: not ADDRESS:PORT"))?;
        let mut options = BTreeMap::new();
        while let Some(word) = words.next() {
            let name = word.strip_prefix("--").with_context(|| format!("{word}: not an option"))?;
            let value = words.next().with_context(|| format!("--{name} needs a value"))?;
            ensure!(options.insert(name.to_owned(), value).is_none(), "--{name} is there twice");
        }
        Ok(Args { role, address, options })
    }

    /// The process's own command line.
    pub fn of_process() -> Result<Args> {
        Args::parse(std::env::args().skip(1))
    }

    /// A number, or what stands for it.
    pub fn number(&self, name: &str, default: u64) -> Result<u64> {
        match self.options.get(name) {
            Some(text) => text.parse().with_context(|| format!("--{name} {text}: not a number")),
            None => Ok(default),
        }
    }

    /// A word, or what stands for it.
    pub fn word<'a>(&'a self, name: &str, default: &'a str) -> &'a str {
        self.options.get(name).map_or(default, String::as_str)
    }

    /// Bytes that move in all: 1 GiB unless said otherwise.
    pub fn bytes(&self) -> Result<u64> {
        let bytes = self.number("bytes", 1 << 30)?;
        ensure!(bytes > 0 && bytes.is_multiple_of(8), "--bytes is a positive multiple of 8");
        Ok(bytes)
    }

    /// How often they move in one run.
    pub fn times(&self) -> Result<u64> {
        let times = self.number("times", 1)?;
        ensure!((1..=4_096).contains(&times), "--times is from 1 to 4096");
        Ok(times)
    }
}

/// The word of the content at this place, counted in words of 8 bytes. A bijection (the finaliser
/// of SplitMix64), so no two words of the content are equal.
pub fn word_at(place: u64) -> u64 {
    let x = place.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The whole content.
pub fn content(bytes: u64) -> Vec<u8> {
    let mut content = vec![0; bytes as usize];
    for (place, word) in content.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *word = word_at(place as u64).to_le_bytes();
    }
    content
}

/// Room for the content, touched, so that the kernel need not find memory while the clock runs.
pub fn room(bytes: u64) -> Vec<u8> {
    let mut room = vec![0; bytes as usize];
    for page in room.chunks_mut(4_096) {
        page[0] = 0xff;
    }
    room
}

/// Puts a piece of a stream in its place, which begins anew at the room's end.
pub fn place(arrived: &mut [u8], offset: u64, mut piece: &[u8]) {
    let mut at = (offset % arrived.len() as u64) as usize;
    while !piece.is_empty() {
        let (now, rest) = piece.split_at(piece.len().min(arrived.len() - at));
        arrived[at..at + now.len()].copy_from_slice(now);
        (piece, at) = (rest, 0);
    }
}

/// Whether all of `arrived` is the content.
pub fn verify(arrived: &[u8]) -> Result<()> {
    for (place, word) in arrived.as_chunks::<8>().0.iter().enumerate() {
        if u64::from_le_bytes(*word) != word_at(place as u64) {
            bail!("byte {} differs from what was sent", place * 8);
        }
    }
    Ok(())
}

/// The time.
pub fn now() -> Instant {
    Instant::now()
}

/// A running clock, of the wall and of this process's processors.
pub struct Meter {
    begun: Instant,
    cpu: f64,
}

impl Meter {
    /// Starts it.
    pub fn start() -> Meter {
        Meter { begun: now(), cpu: cpu_seconds() }
    }

    /// The line that tells how it went; `payload` is what one full packet carries.
    pub fn stop(&self, bytes: u64, payload: usize) -> Measured {
        let (seconds, cpu) = (self.begun.elapsed().as_secs_f64(), cpu_seconds() - self.cpu);
        Measured { bytes, payload, seconds, cpu }
    }
}

/// One end's figures.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    pub bytes: u64,
    pub payload: usize,
    pub seconds: f64,
    pub cpu: f64,
}

impl Measured {
    /// Prints it as one JSON object. A receiver says whether every byte was compared.
    pub fn print(&self, verified: Option<bool>) {
        let Measured { bytes, payload, seconds, cpu } = *self;
        println!(
            "{}",
            serde_json::json!({
                "bytes": bytes, "payload": payload, "seconds": seconds, "cpu_s": cpu,
                "verified": verified,
            })
        );
    }
}

/// Seconds of processor time that this process has used, of all its threads, in the kernel too, as
/// the system counts it: in hundredths.
pub fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name, which may hold anything, user and system time are the 12th and 13th field.
    let rest = text.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let ticks = rest.split(' ').skip(11).take(2);
    ticks.filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// Says on standard output that the receiver listens; whoever runs both waits for it.
pub fn say_ready() {
    println!("{{\"ready\":true}}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args> {
        Args::parse(line.split(' ').map(str::to_owned))
    }

    #[test]
    fn options_have_values_once_and_numbers_are_numbers() {
        let args = parse("send 10.0.0.1:5 --bytes 4096 --cipher none").unwrap();
        assert_eq!((args.role, args.bytes().unwrap()), (Role::Send, 4096));
        assert_eq!(args.word("cipher", "aes"), "none");
        for wrong in [
            "fly 10.0.0.1:5",
            "send 10.0.0.1",
            "send 10.0.0.1:5 bytes",
            "send 10.0.0.1:5 --bytes",
            "send 10.0.0.1:5 --bytes 8 --bytes 8",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        for wrong in ["0", "12", "x", "-8"] {
            assert!(parse(&format!("send 10.0.0.1:5 --bytes {wrong}")).unwrap().bytes().is_err());
        }
    }

    #[test]
    fn a_stream_goes_round_the_room() {
        let whole: Vec<u8> = content(64).repeat(3);
        let mut arrived = room(64);
        for at in (0..whole.len()).step_by(40) {
            place(&mut arrived, at as u64, &whole[at..whole.len().min(at + 40)]);
        }
        verify(&arrived).unwrap();
    }

    #[test]
    fn one_wrong_byte_anywhere_is_found() {
        let mut bytes = content(4096);
        verify(&bytes).unwrap();
        for at in [0, 7, 8, 2049, 4095] {
            bytes[at] ^= 1;
            assert!(verify(&bytes).is_err(), "{at}");
            bytes[at] ^= 1;
        }
        bytes.swap(0, 8);
        assert!(verify(&bytes).is_err());
        assert!(verify(&room(4096)).is_err());
    }
}
