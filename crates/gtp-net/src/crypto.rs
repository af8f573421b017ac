//! Sealing and opening of datagrams.
//!
//! The one idea: a packet's number says everything about its key. The TLS session exports one
//! 32-byte [`TrafficSecret`] per session and direction; the packet number's upper bits are the
//! **epoch**, and each epoch has its own key and IV, expanded from the secret. So keys change
//! continuously, without a message, and no AES-GCM key ever seals more than 2^22 packets.
//! The header that precedes the body is authenticated with it and stays readable.
//!
//! This module knows no sockets, no sessions and no replay windows: the core refuses a packet
//! number that it has seen, and it does so after opening, because only then is the number true.

use std::fmt;

use ring::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf;
use zeroize::{Zeroize, Zeroizing};

/// Length of an authentication tag in bytes, the same for every suite.
pub const TAG_LEN: usize = 16;

/// Length of a traffic secret in bytes: one SHA-256 output, as HKDF wants it.
pub const SECRET_LEN: usize = 32;

/// Label under which both ends export traffic secrets from the TLS session (RFC 8446, 7.5).
/// The name changes whenever the use of the secret changes.
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER-gtp data 1";

/// The packet number's bits below the epoch: one key seals at most 2^22 packets.
///
/// RFC 9001, B.1.1 allows 2^23 full-size packets per AES-GCM key at an attacker's advantage of
/// 2^-57; half of that leaves room for jumbo frames, whose blocks count too. At 10 Gbit/s of
/// 1,500-byte packets a key lives 5 s, and deriving one takes a few microseconds.
pub const EPOCH_BITS: u32 = 22;

/// Key epoch of a packet number.
pub const fn epoch_of(packet_number: u64) -> u64 {
    packet_number >> EPOCH_BITS
}

const KEY_LABEL: &[u8] = b"gtp data key";
const IV_LABEL: &[u8] = b"gtp data iv";
const IV_LEN: usize = aead::NONCE_LEN;

/// An AEAD algorithm for datagrams. The numbers are those on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Suite {
    /// AES-128 in Galois counter mode.
    Aes128Gcm = 1,
    /// AES-256 in Galois counter mode.
    Aes256Gcm = 2,
    /// ChaCha20 with Poly1305 (RFC 8439), the fast one where the CPU has no AES instructions.
    ChaCha20Poly1305 = 3,
}

impl Suite {
    /// The suite's number on the wire.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The suite of a number from the wire; `None` for one that this version does not know.
    pub const fn from_code(code: u8) -> Option<Suite> {
        match code {
            1 => Some(Suite::Aes128Gcm),
            2 => Some(Suite::Aes256Gcm),
            3 => Some(Suite::ChaCha20Poly1305),
            _ => None,
        }
    }

    /// Every suite, the one that this CPU does fastest first.
    pub fn by_preference() -> [Suite; 3] {
        if cpu_has_aes() {
            [Suite::Aes128Gcm, Suite::Aes256Gcm, Suite::ChaCha20Poly1305]
        } else {
            [Suite::ChaCha20Poly1305, Suite::Aes128Gcm, Suite::Aes256Gcm]
        }
    }

    /// The server's choice: the first suite of `offered` (codes in the client's order) that is
    /// known here, but ChaCha20-Poly1305 wherever either end prefers it, because the end without
    /// AES instructions is the slower one. `None` if the two have nothing in common.
    pub fn choose(offered: &[u8], own: &[Suite]) -> Option<Suite> {
        let known = || offered.iter().filter_map(|&c| Suite::from_code(c));
        let slow_end_here = own.first() == Some(&Suite::ChaCha20Poly1305);
        if slow_end_here && known().any(|s| s == Suite::ChaCha20Poly1305) {
            return Some(Suite::ChaCha20Poly1305);
        }
        known().find(|s| own.contains(s))
    }

    /// Forged packets after which a session with this suite ends (RFC 9001, 6.6).
    pub const fn integrity_limit(self) -> u64 {
        match self {
            Suite::Aes128Gcm | Suite::Aes256Gcm => 1 << 52,
            Suite::ChaCha20Poly1305 => 1 << 36,
        }
    }

    fn algorithm(self) -> &'static aead::Algorithm {
        match self {
            Suite::Aes128Gcm => &aead::AES_128_GCM,
            Suite::Aes256Gcm => &aead::AES_256_GCM,
            Suite::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn cpu_has_aes() -> bool {
    std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq")
}

#[cfg(target_arch = "aarch64")]
fn cpu_has_aes() -> bool {
    std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull")
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn cpu_has_aes() -> bool {
    false
}

/// Which way a session's datagrams go. Each direction has keys of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the host that opened the control channel.
    ClientToServer,
    /// From the host that listened.
    ServerToClient,
}

/// Context of the TLS export for one session and direction: both ends' session ids and the
/// direction, so that no two sessions of a TLS connection, nor their directions, share a key.
///
/// A pair of ids must not come twice on one connection; the control channel refuses a second.
pub fn exporter_context(server_session: u32, client_session: u32, to: Direction) -> [u8; 9] {
    let mut context = [0; 9];
    context[..4].copy_from_slice(&server_session.to_be_bytes());
    context[4..8].copy_from_slice(&client_session.to_be_bytes());
    context[8] = match to {
        Direction::ClientToServer => 0,
        Direction::ServerToClient => 1,
    };
    context
}

/// The secret of one session and direction, from which every epoch's key is expanded.
/// It is wiped when dropped, and never printed.
#[derive(Clone)]
pub struct TrafficSecret(Zeroizing<[u8; SECRET_LEN]>);

impl TrafficSecret {
    /// Takes over exported bytes. Wiping any copy that the caller keeps is the caller's part.
    pub fn new(mut exported: [u8; SECRET_LEN]) -> TrafficSecret {
        let secret = TrafficSecret(Zeroizing::new(exported));
        exported.zeroize();
        secret
    }

    /// HKDF-Expand (RFC 5869) of the secret: `info` is label, suite code and epoch (big-endian).
    fn expand(&self, label: &[u8], suite: Suite, epoch: u64, out: &mut [u8]) {
        let prk = hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, &self.0[..]);
        let (suite, epoch) = ([suite.code()], epoch.to_be_bytes());
        let info: [&[u8]; 3] = [label, &suite, &epoch];
        prk.expand(&info, OutputLen(out.len()))
            .and_then(|okm| okm.fill(out))
            .expect("keys and IVs are far shorter than the 8,160 bytes that HKDF can give");
    }
}

impl fmt::Debug for TrafficSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TrafficSecret(…)")
    }
}

struct OutputLen(usize);

impl hkdf::KeyType for OutputLen {
    fn len(&self) -> usize {
        self.0
    }
}

/// Key and IV of one epoch.
struct EpochKey {
    key: LessSafeKey,
    iv: [u8; IV_LEN],
}

impl EpochKey {
    fn derive(suite: Suite, secret: &TrafficSecret, epoch: u64) -> EpochKey {
        let algorithm = suite.algorithm();
        let mut key = Zeroizing::new([0; 32]);
        let key = &mut key[..algorithm.key_len()];
        secret.expand(KEY_LABEL, suite, epoch, key);
        let mut iv = [0; IV_LEN];
        secret.expand(IV_LABEL, suite, epoch, &mut iv);
        let key = UnboundKey::new(algorithm, key).expect("the key has the algorithm's length");
        EpochKey { key: LessSafeKey::new(key), iv }
    }

    /// The epoch's IV with the packet number XORed into its last eight bytes (RFC 9001, 5.3).
    fn nonce(&self, packet_number: u64) -> Nonce {
        let mut nonce = self.iv;
        for (byte, pn) in nonce[IV_LEN - 8..].iter_mut().zip(packet_number.to_be_bytes()) {
            *byte ^= pn;
        }
        Nonce::assume_unique_for_key(nonce)
    }
}

impl Drop for EpochKey {
    fn drop(&mut self) {
        self.iv.zeroize();
    }
}

/// Seals the datagrams of one session and direction.
pub struct Sealer {
    suite: Suite,
    secret: TrafficSecret,
    epoch: u64,
    key: EpochKey,
    next_packet_number: u64,
}

impl Sealer {
    /// A sealer that has sealed nothing yet.
    pub fn new(suite: Suite, secret: TrafficSecret) -> Sealer {
        let key = EpochKey::derive(suite, &secret, 0);
        Sealer { suite, secret, epoch: 0, key, next_packet_number: 0 }
    }

    /// Encrypts `body` where it lies and returns the tag that goes behind it. `header` is
    /// authenticated and sent as it is; it must carry `packet_number`.
    ///
    /// The confidentiality limit holds by construction: a key seals one epoch's numbers at most.
    ///
    /// # Panics
    /// If `packet_number` does not rise from call to call. To seal two packets under one number
    /// would give away the authentication key, so this is checked in release builds too.
    #[inline]
    pub fn seal_in_place(
        &mut self,
        packet_number: u64,
        header: &[u8],
        body: &mut [u8],
    ) -> [u8; TAG_LEN] {
        assert!(
            packet_number >= self.next_packet_number && packet_number < u64::MAX,
            "a packet number is sealed once, and numbers rise"
        );
        self.next_packet_number = packet_number + 1;
        let epoch = epoch_of(packet_number);
        if epoch != self.epoch {
            self.key = EpochKey::derive(self.suite, &self.secret, epoch);
            self.epoch = epoch;
        }
        let nonce = self.key.nonce(packet_number);
        let sealed = self.key.key.seal_in_place_separate_tag(nonce, Aad::from(header), body);
        sealed
            .ok()
            .and_then(|tag| tag.as_ref().first_chunk().copied())
            .expect("a datagram is far shorter than an AEAD's longest message, and tags are alike")
    }

    /// The suite in use.
    pub fn suite(&self) -> Suite {
        self.suite
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sealer { suite, secret: _, epoch, key: _, next_packet_number } = self;
        write!(f, "Sealer({suite:?}, epoch {epoch}, next packet {next_packet_number})")
    }
}

/// Why a datagram was not opened. Nothing of its content may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Forged {
    /// Shorter than a tag; dropped without work.
    #[error("datagram too short to carry a tag")]
    Short,
    /// Its number lies in an epoch that is neither the current one nor a neighbour of it; dropped
    /// without work.
    #[error("packet number from a strange key epoch")]
    StrangeEpoch,
    /// The tag does not fit: forged, damaged, or of another session.
    #[error("datagram fails authentication")]
    BadTag,
    /// The integrity limit is reached: the session must end.
    #[error("too many forged datagrams, the session's keys are used up")]
    Exhausted,
}

/// Opens the datagrams of one session and direction.
///
/// It keeps keys for the epoch of the highest authentic packet and for its two neighbours, for
/// late packets and for the first ones of the next epoch. Anything else is refused before any
/// key is derived, so that a forger buys at most one derivation per epoch.
pub struct Opener {
    suite: Suite,
    secret: TrafficSecret,
    epoch: u64,
    previous: Option<EpochKey>,
    current: EpochKey,
    next: Option<EpochKey>,
    forgeries: u64,
}

impl Opener {
    /// An opener that has opened nothing yet; it expects the first epoch or the second.
    pub fn new(suite: Suite, secret: TrafficSecret) -> Opener {
        let current = EpochKey::derive(suite, &secret, 0);
        Opener { suite, secret, epoch: 0, previous: None, current, next: None, forgeries: 0 }
    }

    /// Decrypts `body_and_tag` where it lies and returns the plain body. `packet_number` and
    /// `header` come from the wire and are believed only when this succeeds.
    ///
    /// # Errors
    /// [`Forged`]; the buffer's content is then of no use.
    #[inline]
    pub fn open_in_place<'b>(
        &mut self,
        packet_number: u64,
        header: &[u8],
        body_and_tag: &'b mut [u8],
    ) -> Result<&'b mut [u8], Forged> {
        if self.forgeries >= self.suite.integrity_limit() {
            return Err(Forged::Exhausted);
        }
        if body_and_tag.len() < TAG_LEN {
            return Err(Forged::Short);
        }
        let epoch = epoch_of(packet_number);
        let key = self.key_for(epoch).ok_or(Forged::StrangeEpoch)?;
        let nonce = key.nonce(packet_number);
        match key.key.open_in_place(nonce, Aad::from(header), body_and_tag) {
            Ok(body) => {
                if epoch > self.epoch {
                    self.advance();
                }
                Ok(body)
            }
            Err(ring::error::Unspecified) => {
                self.forgeries += 1;
                Err(Forged::BadTag)
            }
        }
    }

    /// Datagrams that failed authentication so far.
    pub fn forgeries(&self) -> u64 {
        self.forgeries
    }

    /// The suite in use.
    pub fn suite(&self) -> Suite {
        self.suite
    }

    /// The key of an epoch, derived at first need; `None` beyond the neighbours of the current.
    fn key_for(&mut self, epoch: u64) -> Option<&EpochKey> {
        let (suite, secret) = (self.suite, &self.secret);
        let derive = || EpochKey::derive(suite, secret, epoch);
        if epoch == self.epoch {
            Some(&self.current)
        } else if epoch == self.epoch + 1 {
            Some(self.next.get_or_insert_with(derive))
        } else if epoch + 1 == self.epoch {
            Some(self.previous.get_or_insert_with(derive))
        } else {
            None
        }
    }

    /// Moves to the next epoch, after its first authentic packet.
    fn advance(&mut self) {
        let next = self.next.take().expect("the next epoch's key has just opened a packet");
        self.previous = Some(std::mem::replace(&mut self.current, next));
        self.epoch += 1;
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Opener { suite, epoch, forgeries, .. } = self;
        write!(f, "Opener({suite:?}, epoch {epoch}, {forgeries} forgeries)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUITES: [Suite; 3] = [Suite::Aes128Gcm, Suite::Aes256Gcm, Suite::ChaCha20Poly1305];
    const HEADER: &[u8] = b"header";

    fn secret(byte: u8) -> TrafficSecret {
        TrafficSecret::new([byte; SECRET_LEN])
    }

    fn pair(suite: Suite) -> (Sealer, Opener) {
        (Sealer::new(suite, secret(7)), Opener::new(suite, secret(7)))
    }

    fn sealed(sealer: &mut Sealer, pn: u64, body: &[u8]) -> Vec<u8> {
        let mut bytes = body.to_vec();
        let tag = sealer.seal_in_place(pn, HEADER, &mut bytes);
        bytes.extend_from_slice(&tag);
        bytes
    }

    fn open(opener: &mut Opener, pn: u64, header: &[u8], sealed: &[u8]) -> Result<Vec<u8>, Forged> {
        opener.open_in_place(pn, header, &mut sealed.to_vec()).map(|body| body.to_vec())
    }

    #[test]
    fn what_is_sealed_opens_to_the_same_bytes_with_every_suite() {
        for suite in SUITES {
            let (mut sealer, mut opener) = pair(suite);
            for (pn, len) in [0, 1, 15, 16, 17, 1400, 8972].into_iter().enumerate() {
                let body: Vec<u8> = (0..len).map(|i| i as u8).collect();
                let mut bytes = sealed(&mut sealer, pn as u64, &body);
                assert!(len < 16 || bytes[..len] != body[..]);
                assert_eq!(
                    opener.open_in_place(pn as u64, HEADER, &mut bytes),
                    Ok(&mut body.clone()[..])
                );
            }
            assert_eq!(opener.forgeries(), 0);
        }
    }

    #[test]
    fn a_change_of_any_bit_of_header_body_or_tag_is_forgery() {
        for suite in SUITES {
            let (mut sealer, mut opener) = pair(suite);
            let good = sealed(&mut sealer, 3, b"forty-two bytes of content, more or less..");
            for at in 0..good.len() * 8 {
                let mut bytes = good.clone();
                bytes[at / 8] ^= 1 << (at % 8);
                assert_eq!(opener.open_in_place(3, HEADER, &mut bytes), Err(Forged::BadTag));
            }
            for at in 0..HEADER.len() * 8 {
                let mut header = HEADER.to_vec();
                header[at / 8] ^= 1 << (at % 8);
                let refused = open(&mut opener, 3, &header, &good);
                assert_eq!(refused, Err(Forged::BadTag));
            }
            assert_eq!(opener.forgeries(), (good.len() + HEADER.len()) as u64 * 8);
            assert!(open(&mut opener, 3, HEADER, &good).is_ok());
        }
    }

    #[test]
    fn a_packet_opens_under_its_own_number_only() {
        let (mut sealer, mut opener) = pair(Suite::Aes128Gcm);
        let good = sealed(&mut sealer, 100, b"body");
        for pn in [0, 99, 101, 100 + (1 << EPOCH_BITS)] {
            assert_eq!(open(&mut opener, pn, HEADER, &good), Err(Forged::BadTag));
        }
        assert!(open(&mut opener, 100, HEADER, &good).is_ok());
    }

    #[test]
    fn truncation_to_any_length_is_forgery() {
        let (mut sealer, mut opener) = pair(Suite::ChaCha20Poly1305);
        let good = sealed(&mut sealer, 0, b"a body");
        for len in 0..good.len() {
            let refused = open(&mut opener, 0, HEADER, &good[..len]);
            let why = if len < TAG_LEN { Forged::Short } else { Forged::BadTag };
            assert_eq!(refused, Err(why));
        }
    }

    #[test]
    fn packets_around_an_epoch_boundary_open_in_any_order() {
        let edge = 1 << EPOCH_BITS;
        for suite in SUITES {
            let (mut sealer, mut opener) = pair(suite);
            let packets: Vec<(u64, Vec<u8>)> = [edge - 2, edge - 1, edge, edge + 1, 2 * edge]
                .map(|pn| (pn, sealed(&mut sealer, pn, b"body")))
                .to_vec();
            for at in [2, 0, 3, 1, 4, 2] {
                let (pn, bytes) = &packets[at];
                assert!(open(&mut opener, *pn, HEADER, bytes).is_ok(), "{pn}");
            }
            let (pn, bytes) = &packets[0];
            let late = open(&mut opener, *pn, HEADER, bytes);
            assert_eq!(late, Err(Forged::StrangeEpoch), "two epochs behind is too late");
        }
    }

    /// Values from an implementation of RFC 5869 and of AES-GCM that shares no code with this one.
    #[test]
    fn keys_and_sealed_bytes_are_those_of_an_independent_implementation() {
        let mut bytes = [0; SECRET_LEN];
        bytes.iter_mut().enumerate().for_each(|(i, b)| *b = i as u8);
        let mut sealer = Sealer::new(Suite::Aes256Gcm, TrafficSecret::new(bytes));
        let sealed = sealed(&mut sealer, (5 << EPOCH_BITS) + 9, b"body");
        let hex: String = sealed.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "e5148143bf5cbecb9c57746e5570b654a56dbff3");
    }

    #[test]
    fn each_epoch_has_its_own_key_and_iv() {
        let mut seen = std::collections::HashSet::new();
        for suite in SUITES {
            for epoch in 0..4 {
                let (mut key, mut iv) = ([0; 16], [0; IV_LEN]);
                secret(7).expand(KEY_LABEL, suite, epoch, &mut key);
                secret(7).expand(IV_LABEL, suite, epoch, &mut iv);
                assert!(seen.insert(key.to_vec()) && seen.insert(iv.to_vec()));
            }
        }
    }

    #[test]
    fn a_forged_number_in_a_far_epoch_costs_no_derivation_and_moves_nothing() {
        let (mut sealer, mut opener) = pair(Suite::Aes128Gcm);
        for pn in [2 << EPOCH_BITS, 1 << 40, u64::MAX - 1, u64::MAX] {
            let refused = open(&mut opener, pn, HEADER, &[0; 64]);
            assert_eq!(refused, Err(Forged::StrangeEpoch));
        }
        assert!(opener.next.is_none() && opener.previous.is_none());
        assert_eq!(open(&mut opener, 1 << EPOCH_BITS, HEADER, &[0; 64]), Err(Forged::BadTag));
        assert_eq!(opener.epoch, 0, "a forgery in the next epoch does not move the opener there");
        let good = sealed(&mut sealer, 0, b"body");
        assert!(open(&mut opener, 0, HEADER, &good).is_ok());
    }

    #[test]
    fn forgeries_up_to_the_integrity_limit_end_the_session() {
        for suite in SUITES {
            let (mut sealer, mut opener) = pair(suite);
            let good = sealed(&mut sealer, 0, b"body");
            opener.forgeries = suite.integrity_limit() - 1;
            assert!(open(&mut opener, 0, HEADER, &good).is_ok());
            assert_eq!(open(&mut opener, 0, HEADER, &[0; 40]), Err(Forged::BadTag));
            let refused = open(&mut opener, 0, HEADER, &good);
            assert_eq!(refused, Err(Forged::Exhausted));
        }
    }

    #[test]
    #[should_panic(expected = "sealed once")]
    fn the_same_packet_number_is_never_sealed_twice() {
        let (mut sealer, _) = pair(Suite::Aes128Gcm);
        sealer.seal_in_place(5, HEADER, &mut []);
        sealer.seal_in_place(5, HEADER, &mut []);
    }

    #[test]
    fn another_secret_or_suite_opens_nothing() {
        let (mut sealer, _) = pair(Suite::Aes256Gcm);
        let good = sealed(&mut sealer, 0, b"body");
        for mut opener in [
            Opener::new(Suite::Aes256Gcm, secret(8)),
            Opener::new(Suite::Aes128Gcm, secret(7)),
            Opener::new(Suite::ChaCha20Poly1305, secret(7)),
        ] {
            assert_eq!(open(&mut opener, 0, HEADER, &good), Err(Forged::BadTag));
        }
    }

    #[test]
    fn the_slower_end_decides_for_chacha() {
        let aes = [Suite::Aes128Gcm, Suite::Aes256Gcm, Suite::ChaCha20Poly1305];
        let slow = [Suite::ChaCha20Poly1305, Suite::Aes128Gcm, Suite::Aes256Gcm];
        assert_eq!(Suite::choose(&[1, 2, 3], &aes), Some(Suite::Aes128Gcm));
        assert_eq!(Suite::choose(&[2, 1, 3], &aes), Some(Suite::Aes256Gcm));
        assert_eq!(Suite::choose(&[3, 1, 2], &aes), Some(Suite::ChaCha20Poly1305));
        assert_eq!(Suite::choose(&[1, 2, 3], &slow), Some(Suite::ChaCha20Poly1305));
        assert_eq!(Suite::choose(&[99, 1], &slow), Some(Suite::Aes128Gcm));
        assert_eq!(Suite::choose(&[0, 99], &aes), None);
        assert_eq!(Suite::choose(&[], &aes), None);
    }

    #[test]
    fn no_secret_is_ever_printed() {
        let (sealer, opener) = pair(Suite::Aes128Gcm);
        assert_eq!(format!("{:?}", secret(0xAB)), "TrafficSecret(…)");
        assert_eq!(format!("{sealer:?}"), "Sealer(Aes128Gcm, epoch 0, next packet 0)");
        assert_eq!(format!("{opener:?}"), "Opener(Aes128Gcm, epoch 0, 0 forgeries)");
    }
}
