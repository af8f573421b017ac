//! The short name of a public key: SHA-256 of its SubjectPublicKeyInfo, written as ssh does.
//!
//! People compare it, files pin it, and two keys with one fingerprint are not to be found. It says
//! nothing of whether its owner is trusted.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use ring::digest;

/// Fingerprint of a host's public key. Written `SHA256:` and 43 characters of base64.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint([u8; digest::SHA256_OUTPUT_LEN]);

const PREFIX: &str = "SHA256:";

impl Fingerprint {
    /// Fingerprint of a public key in SubjectPublicKeyInfo form (RFC 5280, DER).
    pub fn of_public_key(spki: &[u8]) -> Fingerprint {
        let digest = digest::digest(&digest::SHA256, spki);
        let bytes = digest.as_ref().try_into().expect("SHA-256 has 32 bytes");
        Fingerprint(bytes)
    }

    /// The fingerprint that has this hash.
    pub(crate) const fn of_bytes(hash: [u8; digest::SHA256_OUTPUT_LEN]) -> Fingerprint {
        Fingerprint(hash)
    }

    /// The hash itself.
    pub const fn as_bytes(&self) -> &[u8; digest::SHA256_OUTPUT_LEN] {
        &self.0
    }
}

/// The text is no fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a fingerprint is SHA256: followed by 43 characters of base64")]
pub struct BadFingerprint;

impl FromStr for Fingerprint {
    type Err = BadFingerprint;

    fn from_str(text: &str) -> Result<Fingerprint, BadFingerprint> {
        let base64 = text.strip_prefix(PREFIX).ok_or(BadFingerprint)?;
        if base64.len() != 43 {
            return Err(BadFingerprint);
        }
        let bytes = STANDARD_NO_PAD.decode(base64).map_err(|_| BadFingerprint)?;
        bytes.try_into().map(Fingerprint).map_err(|_| BadFingerprint)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{PREFIX}{}", STANDARD_NO_PAD.encode(self.0)))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
