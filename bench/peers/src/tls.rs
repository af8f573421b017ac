//! One certificate for a minute, and the cipher that all TLS peers use.
//!
//! The receiver makes the certificate and leaves it in a file, from which the sender trusts it, so
//! that no check is switched off.

use std::sync::Arc;

use anyhow::Result;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// The name in the certificate.
pub const NAME: &str = "bench.invalid";

/// AES-128-GCM, as GTP uses, by one of two libraries.
pub fn provider(library: &str) -> Arc<CryptoProvider> {
    let (mut provider, suite) = if library == "ring" {
        use rustls::crypto::ring;
        (ring::default_provider(), ring::cipher_suite::TLS13_AES_128_GCM_SHA256)
    } else {
        use rustls::crypto::aws_lc_rs as aws;
        (aws::default_provider(), aws::cipher_suite::TLS13_AES_128_GCM_SHA256)
    };
    provider.cipher_suites = vec![suite];
    Arc::new(provider)
}

/// The receiver's side; writes its certificate to a file, from which the sender trusts it.
pub fn server(library: &str, certificate: &str, alpn: &str) -> Result<ServerConfig> {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()])?;
    std::fs::write(certificate, made.cert.der())?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let mut config = ServerConfig::builder_with_provider(provider(library))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)?;
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    Ok(config)
}

/// The sender's side, which trusts the certificate in the file.
pub fn client(library: &str, certificate: &str, alpn: &str) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(std::fs::read(certificate)?))?;
    let mut config = ClientConfig::builder_with_provider(provider(library))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    Ok(config)
}
