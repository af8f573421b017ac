//! TLS 1.3 as the control channel wants it, and nothing of TLS that it does not.
//!
//! Both ends show raw Ed25519 public keys (RFC 7250) and prove to hold them; there are no
//! certificates, no names and no authorities. There is no resumption and no early data, so every
//! connection has fresh secrets, and data keys exported from it are never used twice. ALPN
//! `gtp/1` is required. The client judges the server's key within the handshake, before it shows
//! its own; the server takes any key that is proved and lets its list decide afterwards, so that
//! a refusal can be said in words.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::time_provider::TimeProvider;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, CommonState, DigitallySignedStruct, DistinguishedName, Error,
    PeerIncompatible, ServerConfig, SignatureScheme,
};

use crate::identity::{Fingerprint, Identity};
use crate::trust::{HostAddress, HostRefused, HostTrust};

/// The protocol's name in TLS (RFC 7301). Its number changes when old and new cannot talk.
pub const ALPN: &[u8] = b"gtp/1";

/// DER of a SubjectPublicKeyInfo with an Ed25519 key, up to the key's 32 bytes (RFC 8410). No
/// other form is taken, so that a key has one fingerprint only.
pub(crate) const ED25519_SPKI_HEAD: [u8; 12] =
    [0x30, 0x2A, 0x30, 0x05, 0x06, 0x03, 0x2B, 0x65, 0x70, 0x03, 0x21, 0x00];
/// Bytes of an Ed25519 key.
pub(crate) const ED25519_KEY_LEN: usize = 32;

/// TLS of a server with this identity.
pub fn server_config(identity: &Identity) -> Arc<ServerConfig> {
    let mut config = ServerConfig::builder_with_details(provider(), Arc::new(WallClock))
        .with_protocol_versions(&[&TLS13])
        .expect("the provider has suites for TLS 1.3")
        .with_client_cert_verifier(Arc::new(AnyProvedKey))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(
            identity.certified_key(),
        )));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    Arc::new(config)
}

/// TLS of a client with this identity for one connection, and the verifier that keeps why the
/// server was refused.
pub(crate) fn client_config(
    identity: &Identity,
    host: &HostAddress,
    trust: &Arc<HostTrust>,
) -> (Arc<ClientConfig>, Arc<HostVerifier>) {
    let verifier = Arc::new(HostVerifier {
        host: host.clone(),
        trust: Arc::clone(trust),
        refused: Mutex::new(None),
    });
    let for_tls: Arc<dyn ServerCertVerifier> = Arc::<HostVerifier>::clone(&verifier);
    let mut config = ClientConfig::builder_with_details(provider(), Arc::new(WallClock))
        .with_protocol_versions(&[&TLS13])
        .expect("the provider has suites for TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(for_tls)
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(
            identity.certified_key(),
        )));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_early_data = false;
    config.enable_sni = false;
    (Arc::new(config), verifier)
}

/// Fingerprint of the key that the peer has proved to hold; `None` before the handshake's end.
pub(crate) fn peer_fingerprint(connection: &CommonState) -> Option<Fingerprint> {
    let raw = connection.peer_certificates()?.first()?;
    Some(Fingerprint::of_public_key(raw))
}

/// The wall clock for TLS. The library's own one panics on a machine whose clock is before 1970, as
/// that of a machine without a battery is until somebody sets it. Nothing here depends on the time:
/// raw keys do not expire.
#[derive(Debug)]
struct WallClock;

impl TimeProvider for WallClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(gtp_sys::clock::unix_time()))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Accepts an Ed25519 key and nothing else.
fn check_key(raw: &CertificateDer<'_>, more: &[CertificateDer<'_>]) -> Result<(), Error> {
    let key = raw.strip_prefix(&ED25519_SPKI_HEAD[..]);
    if key.is_some_and(|key| key.len() == ED25519_KEY_LEN) && more.is_empty() {
        Ok(())
    } else {
        Err(CertificateError::BadEncoding.into())
    }
}

fn check_signature(
    message: &[u8],
    raw: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    if signature.scheme != SignatureScheme::ED25519 {
        return Err(CertificateError::BadSignature.into());
    }
    let algorithms = ring::default_provider().signature_verification_algorithms;
    let key = SubjectPublicKeyInfoDer::from(raw.as_ref());
    verify_tls13_signature_with_raw_key(message, &key, signature, &algorithms)
}

/// What both ends' verifiers have in common, within the trait of either: raw Ed25519 keys, proved
/// in TLS 1.3 and then judged by `self.judge`.
macro_rules! proved_raw_keys_only {
    () => {
        /// TLS 1.2 is never negotiated; a signature of it is refused all the same.
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _cert: &CertificateDer<'_>,
            _dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(PeerIncompatible::Tls12NotOffered.into())
        }

        /// The key is judged here, once it is proved: what a user is told to trust is then at
        /// least the key of whoever answered.
        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let valid = check_signature(message, cert, dss)?;
            self.judge(Fingerprint::of_public_key(cert)).map(|()| valid)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

/// The client's view of the server's key.
pub(crate) struct HostVerifier {
    host: HostAddress,
    trust: Arc<HostTrust>,
    refused: Mutex<Option<HostRefused>>,
}

impl HostVerifier {
    /// Why the server was refused, if its key was the reason that the handshake failed.
    pub(crate) fn take_refused(&self) -> Option<HostRefused> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether the host may have this key.
    fn judge(&self, key: Fingerprint) -> Result<(), Error> {
        self.trust.judge(&self.host, key).map(|_standing| ()).map_err(|refused| {
            *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(refused);
            CertificateError::ApplicationVerificationFailure.into()
        })
    }
}

impl fmt::Debug for HostVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostVerifier({})", self.host)
    }
}

impl ServerCertVerifier for HostVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        check_key(end_entity, intermediates).map(|()| ServerCertVerified::assertion())
    }

    proved_raw_keys_only!();
}

/// The server's view of a client's key: any, if it is proved.
#[derive(Debug)]
struct AnyProvedKey;

impl AnyProvedKey {
    /// Every key that is proved will do here.
    fn judge(&self, _key: Fingerprint) -> Result<(), Error> {
        Ok(())
    }
}

impl ClientCertVerifier for AnyProvedKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        check_key(end_entity, intermediates).map(|()| ClientCertVerified::assertion())
    }

    proved_raw_keys_only!();
}
