//! What each fuzz target does with its bytes: it decodes them, and checks what must hold of
//! whatever was decoded. The targets proper only call these functions, and so do the smoke tests
//! below, which throw random bytes at them without a fuzzer.
//!
//! `cargo +nightly fuzz run --features fuzzer TARGET -- -max_total_time=60` runs one.

mod frames;
mod pipe;
mod sequence;
mod stream;

use gtp_alloc::Time;
use gtp_emu::NetSpec;
use gtp_net::control::carriage::{Parted, Parting};
use gtp_net::crypto::{Opener, SECRET_LEN, Suite, TrafficSecret};
use gtp_net::identity::Fingerprint;
use gtp_net::in_step::Picture;
use gtp_net::messages::{Message, PROBE_SERVICE, printable};
use gtp_net::probe::{Plan, Word};
use gtp_net::ticket::{Purpose, Ticket};
use gtp_net::trust::{AuthorizedKeys, HostAddress, KnownHosts};
use gtp_proto::in_step;
use gtp_proto::wire::{Control, DataHead, HEADER_LEN, Header, Kind};
use gtp_store::{Entry, Manifest, Mode, Mtime, RelPath, RootKind, Row, escaped, journal};

pub use frames::stream_frames;
pub use pipe::ssh_pipe;
pub use sequence::session_sequence;
pub use stream::stream_units;

/// A datagram after opening: header, then the body of the kind that it names.
pub fn datagram(bytes: &[u8]) {
    let Ok(header) = Header::decode(bytes) else { return };
    let mut again = Vec::new();
    header.encode(&mut again);
    assert_eq!(again, bytes[..HEADER_LEN]);
    let body = &bytes[HEADER_LEN..];
    if header.kind == Kind::Data {
        if let Ok((head, unit)) = DataHead::decode(body) {
            let mut again = Vec::new();
            head.encode(&mut again);
            again.extend_from_slice(unit);
            assert_eq!(again, body);
        }
        return;
    }
    let Ok(Some(control)) = Control::decode(header.kind, body) else { return };
    let mut again = Vec::new();
    control.encode(&mut again);
    // Fields of later versions are left out, so bytes may differ, but never what they mean.
    assert!(again.len() <= body.len());
    assert_eq!(Control::decode(header.kind, &again), Ok(Some(control)));
}

/// A frame of the control channel without its length.
pub fn control_message(bytes: &[u8]) {
    assert!(!printable(bytes).chars().any(char::is_control));
    carried(bytes);
    let Ok(message) = Message::parse(bytes) else { return };
    let frame = message.to_frame().expect("what was taken in may be sent");
    let again = Message::parse(&frame[4..]).expect("what was sent is taken in");
    // A NaN would differ from itself; there is none in a valid message.
    assert_eq!(again, message);
}

/// What comes on a control connection that carries datagrams: all of it is in what it is parted
/// into, however it is cut, but for what is no whole frame yet.
fn carried(bytes: &[u8]) {
    let part = |pieces: &[&[u8]]| {
        let (mut parting, mut arrived, mut whole) =
            (Parting::default(), Vec::new(), Parted::default());
        for piece in pieces {
            arrived.extend_from_slice(piece);
            let Ok(Parted { messages, datagrams, ends }) = parting.part(&mut arrived) else {
                return None;
            };
            let before = whole.datagrams.len();
            whole.messages.extend(messages);
            whole.datagrams.extend(datagrams);
            whole.ends.extend(ends.into_iter().map(|end| before + end));
        }
        Some((whole, arrived))
    };
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let parted = part(&[bytes]);
    assert_eq!(parted, part(&[first, second]));
    if let Some((Parted { messages, datagrams, ends }, rest)) = parted {
        assert_eq!(bytes.len(), messages.len() + datagrams.len() + 5 * ends.len() + rest.len());
    }
}

/// A journal file, as it is and behind a good header.
pub fn journal(bytes: &[u8]) {
    let mut ours = journal::header().to_vec();
    ours.extend_from_slice(bytes);
    for file in [bytes, &ours] {
        let parsed = journal::parse(file);
        assert!(parsed.whole <= file.len());
        let mut again = journal::header().to_vec();
        parsed.records.iter().for_each(|record| journal::encode(record, &mut again));
        assert!(parsed.whole == 0 || again == file[..parsed.whole]);
    }
}

/// Names and paths.
pub fn names(bytes: &[u8]) {
    if let Ok(path) = RelPath::from_bytes(bytes) {
        assert_eq!(path.as_str().as_bytes(), bytes);
        let safe = |part: &str| !part.is_empty() && part != "." && part != "..";
        assert!(path.components().all(safe) && !path.as_str().starts_with('/'));
        assert!(!path.to_string().chars().any(char::is_control));
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        assert!(!escaped(text).chars().any(char::is_control));
        if let Ok(host) = text.parse::<HostAddress>() {
            assert_eq!(host.to_string().parse(), Ok(host));
        }
        if let Ok(key) = text.parse::<Fingerprint>() {
            assert_eq!(key.to_string().parse(), Ok(key));
        }
    }
}

/// A manifest of entries separated by newlines: a byte for kind and size, then the path.
pub fn manifest(bytes: &[u8]) {
    let mut entries = Vec::new();
    for line in bytes.split(|b| *b == b'\n') {
        let Some((&first, path)) = line.split_first() else { continue };
        let Ok(path) = RelPath::from_bytes(path) else { continue };
        let kind = if first & 1 == 0 { gtp_store::Kind::File } else { gtp_store::Kind::Dir };
        let size =
            1_u64.checked_shl(u32::from(first >> 2)).unwrap_or(0) - u64::from(first >> 1 & 1);
        let mtime = Mtime::new(0, 0).expect("no nanoseconds");
        entries.push(Entry { path, kind, size, mode: Mode::new(0o644), mtime });
    }
    let root_kind = if bytes.len().is_multiple_of(2) { RootKind::Dir } else { RootKind::File };
    let manifest = Manifest { root_kind, own: None, entries };
    if manifest.validate().is_err() {
        return;
    }
    let Ok(row) = Row::of(&manifest, 1_400) else { return };
    assert_eq!(row.content_bytes(), manifest.content_bytes());
    for unit in [0, row.units() / 2, row.units().saturating_sub(1)] {
        if let Some(place) = row.locate(unit) {
            let block = row.block_units(place.file, place.block).expect("it is there");
            assert!(block.contains(&unit));
        }
    }
    assert_eq!(row.locate(row.units()), None);
}

/// The two lists of keys.
pub fn trust_lists(bytes: &[u8]) {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let path = dir.as_ref().expect("a directory").path().join("list");
    std::fs::write(&path, bytes).expect("a small file");
    let _ = KnownHosts::load(&path);
    if let Ok(keys) = AuthorizedKeys::load(&path) {
        let nobody = Fingerprint::of_public_key(b"nobody");
        assert!(!keys.access(&nobody).read && !keys.access(&nobody).write);
        assert!(keys.share(&nobody).is_none());
    }
}

/// A description of a network.
pub fn network_file(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(spec) = NetSpec::parse(text) {
        let known = |links: &[usize]| links.iter().all(|link| *link < spec.links.len());
        assert!(spec.paths.iter().all(|path| known(&path.up) && known(&path.down)));
        assert!(spec.routes.iter().all(|route| known(&route.links)));
    }
}

/// A ticket: none is valid that nobody signed.
pub fn ticket(bytes: &[u8]) {
    assert!(Ticket::read(bytes).is_err());
    assert!(Ticket::read_for(Purpose::Relay, bytes).is_err());
}

/// A frame of a probe, and the name of a service as one.
pub fn probe(bytes: &[u8]) {
    if let Some(word) = Word::read(bytes) {
        let mut again = Vec::new();
        word.write(0, &mut again);
        assert_eq!(Word::read(&again), Some(word));
    }
    for service in [bytes, &[PROBE_SERVICE, bytes].concat()] {
        if let Some((plan, place)) = Plan::read(service) {
            assert!(plan.is_sound() && plan.service(place) == service);
        }
    }
}

/// A word of frames in step, the name of their service, and what a peer says of its clock.
pub fn frames_in_step(bytes: &[u8]) {
    if let Ok(Some(word)) = in_step::Word::read(bytes) {
        let mut again = Vec::new();
        word.write(&mut again);
        assert_eq!(in_step::Word::read(&again), Ok(Some(word)));
        if let in_step::Word::Clock { said, heard: Some((asked, heard)), .. } = word {
            let (mut clock, now) = (in_step::PeerClock::new(), Time::from_nanos(1 << 40));
            clock.handle_echo(now, asked, heard, said);
            assert!(clock.own(said).is_some() == (clock.exchanges() == 1));
        }
    }
    for service in [bytes, &[b"frames:", bytes].concat()] {
        if let Some(picture) = Picture::read(service) {
            assert!(picture.service().as_bytes() == service);
        }
    }
}

/// Sealed datagrams: nothing that was not sealed may open.
pub fn opener(bytes: &[u8]) {
    let Some((head, body)) = bytes.split_at_checked(8) else { return };
    let mut number = [0; 8];
    number.copy_from_slice(head);
    for suite in [Suite::Aes128Gcm, Suite::ChaCha20Poly1305] {
        let mut opener = Opener::new(suite, TrafficSecret::new([7; SECRET_LEN]));
        let mut body = body.to_vec();
        let number = u64::from_be_bytes(number);
        assert!(opener.open_in_place(number, head, &mut body).is_err());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    /// Random bytes of which many are small, as in most formats here.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![2 => Just(0_u8), 1 => 0..20_u8, 1 => 32..127_u8, 1 => any::<u8>()];
        proptest::collection::vec(byte, 0..600)
    }

    macro_rules! smoke {
        ($($target:ident)*) => {
            proptest! {
                $(#[test]
                fn $target(bytes in bytes()) {
                    crate::$target(&bytes);
                })*
            }
        };
    }

    smoke! {
        datagram control_message journal names manifest trust_lists network_file opener
        session_sequence ssh_pipe stream_frames stream_units ticket probe
        frames_in_step
    }
}
