//! Who this host is: an Ed25519 key made at first start.
//!
//! The key lies in the user's configuration directory, readable by its owner alone, and never
//! leaves it. What others see and pin is its [`Fingerprint`]. This module knows no network: it
//! makes, keeps and names the key; `tls` proves that it is held.

mod fingerprint;
pub(crate) mod guard;
pub(crate) mod place;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{Ed25519KeyPair, KeyPair};
use rustls::crypto::ring::sign::any_eddsa_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::{CertifiedKey, SigningKey};
use zeroize::Zeroizing;

pub use fingerprint::{BadFingerprint, Fingerprint};
pub use guard::Exposed;
pub use place::{NoConfigDir, config_dir};

use crate::tls::ED25519_KEY_LEN;

/// Name of the key's file in the configuration directory.
pub const IDENTITY_FILE: &str = "identity";

/// An identity file holds about 170 bytes; what is longer than this is something else.
const FILE_MAX: u64 = 16 * 1024;

/// Others may not even read the key.
const OTHERS: u32 = 0o077;

/// This host's key pair. The private half is never printed.
#[derive(Clone)]
pub struct Identity {
    key: Arc<dyn SigningKey>,
    /// The same key, for what is signed outside of TLS.
    pair: Arc<Ed25519KeyPair>,
    public_key: Vec<u8>,
    raw_key: [u8; ED25519_KEY_LEN],
    fingerprint: Fingerprint,
}

/// Why there is no identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// Nothing names a place for configuration.
    #[error(transparent)]
    NoConfigDir(#[from] NoConfigDir),
    /// There is no file yet, and none can be made.
    #[error("cannot make the identity file {path}: {source}", path = path.display())]
    NotMade {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file cannot be read.
    #[error("cannot use the identity file {path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Group or world may read or change the key.
    #[error(
        "the identity file {path} is open to others (mode {mode:03o}); if nobody has taken the \
         key, run: chmod 600 '{path}'",
        path = path.display()
    )]
    OpenToOthers {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Somebody else may put another key there.
    #[error(transparent)]
    Exposed(#[from] Exposed),
    /// The file does not hold an Ed25519 key.
    #[error(
        "the identity file {path} holds no Ed25519 key in PKCS #8 form; move it away to get a \
         new one",
        path = path.display()
    )]
    NotAKey {
        /// The file.
        path: PathBuf,
    },
}

impl Identity {
    /// A new identity, kept nowhere.
    pub fn generate() -> Identity {
        let pkcs8 = generate_pkcs8();
        Identity::from_pkcs8(&pkcs8).expect("a key just made is a key")
    }

    /// The identity in directory `dir`, made now if there is none. Several processes may do so
    /// at once; all get the same key.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn load_or_create(dir: &Path) -> Result<Identity, IdentityError> {
        let path = dir.join(IDENTITY_FILE);
        let failed = |source| IdentityError::NotMade { path: path.clone(), source };
        match Identity::load(&path) {
            Err(IdentityError::File { source, .. }) if place::is_absent(&source) => {
                place::make_dir(dir).map_err(failed)?;
                let pem = to_pem(&generate_pkcs8());
                match place::write_new(&path, pem.as_bytes()) {
                    Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(failed(e)),
                    Ok(()) | Err(_) => Identity::load(&path),
                }
            }
            loaded_or_refused => loaded_or_refused,
        }
    }

    /// The identity in the file `path`.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn load(path: &Path) -> Result<Identity, IdentityError> {
        let failed = |source| IdentityError::File { path: path.to_owned(), source };
        let file = place::open_to_read(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(failed(io::Error::other("not a regular file")));
        }
        let mode = metadata.permissions().mode() & 0o7777;
        if mode & OTHERS != 0 {
            return Err(IdentityError::OpenToOthers { path: path.to_owned(), mode });
        }
        guard::check(path)?;
        let not_a_key = || IdentityError::NotAKey { path: path.to_owned() };
        if metadata.size() > FILE_MAX {
            return Err(not_a_key());
        }
        let mut pem = Zeroizing::new(Vec::with_capacity(FILE_MAX as usize));
        file.take(FILE_MAX).read_to_end(&mut pem).map_err(failed)?;
        let pkcs8 = PrivatePkcs8KeyDer::from_pem_slice(&pem).map_err(|_| not_a_key())?;
        let pkcs8 = Zeroizing::new(pkcs8.secret_pkcs8_der().to_vec());
        Identity::from_pkcs8(&pkcs8).ok_or_else(not_a_key)
    }

    /// What others know this host by.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The key as TLS wants it: a raw public key (RFC 7250) with its signer.
    pub(crate) fn certified_key(&self) -> Arc<CertifiedKey> {
        let raw = CertificateDer::from(self.public_key.clone());
        Arc::new(CertifiedKey::new(vec![raw], Arc::clone(&self.key)))
    }

    /// The public key without the head that says which kind it is.
    pub(crate) fn raw_key(&self) -> [u8; ED25519_KEY_LEN] {
        self.raw_key
    }

    /// The signature of a message. What TLS signs begins otherwise (RFC 8446, 4.4.3); whoever
    /// signs something else sees to it that it begins with words of its own.
    pub(crate) fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.pair.sign(message).as_ref().to_vec()
    }

    fn from_pkcs8(pkcs8: &[u8]) -> Option<Identity> {
        let key = any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8)).ok()?;
        let public_key = key.public_key()?.as_ref().to_vec();
        let fingerprint = Fingerprint::of_public_key(&public_key);
        let pair = Arc::new(Ed25519KeyPair::from_pkcs8_maybe_unchecked(pkcs8).ok()?);
        let raw_key = pair.public_key().as_ref().try_into().ok()?;
        Some(Identity { key, pair, public_key, raw_key, fingerprint })
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.fingerprint)
    }
}

fn generate_pkcs8() -> Zeroizing<Vec<u8>> {
    let random = ring::rand::SystemRandom::new();
    let pkcs8 = Ed25519KeyPair::generate_pkcs8(&random).expect("the system gives randomness");
    Zeroizing::new(pkcs8.as_ref().to_vec())
}

fn to_pem(pkcs8: &[u8]) -> Zeroizing<String> {
    let mut pem = Zeroizing::new(String::with_capacity(512));
    pem.push_str("-----BEGIN PRIVATE KEY-----\n");
    let base64 = Zeroizing::new(STANDARD.encode(pkcs8));
    for line in base64.as_bytes().chunks(64) {
        pem.push_str(std::str::from_utf8(line).expect("base64 is ASCII"));
        pem.push('\n');
    }
    pem.push_str("-----END PRIVATE KEY-----\n");
    pem
}
