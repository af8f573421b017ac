//! A client whose TLS is right, whose key is its own, and whose messages nobody has checked.

use std::net::SocketAddr;
use std::sync::Arc;

use gtp_net::messages::Message;
use gtp_net::tls::ALPN;
use ring::signature::Ed25519KeyPair;
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::{default_provider, sign::any_eddsa_type};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// Believes every server.
#[derive(Debug)]
struct Blind;

impl ServerCertVerifier for Blind {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

fn config() -> ClientConfig {
    let random = ring::rand::SystemRandom::new();
    let pkcs8 = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
    let key = any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8.as_ref())).unwrap();
    let public = CertificateDer::from(key.public_key().unwrap().as_ref().to_vec());
    let certified = Arc::new(CertifiedKey::new(vec![public], key));
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Blind))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(certified)));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config
}

/// A connection of a stranger.
pub struct RawClient {
    stream: TlsStream<TcpStream>,
}

impl RawClient {
    pub async fn connect(server: SocketAddr) -> RawClient {
        let stream = TcpStream::connect(server).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config()));
        let name = ServerName::IpAddress(server.ip().into());
        RawClient { stream: connector.connect(name, stream).await.unwrap() }
    }

    /// Sends bytes; the server may have gone away by then.
    pub async fn send(&mut self, bytes: &[u8]) {
        if self.stream.write_all(bytes).await.is_ok() {
            let _ = self.stream.flush().await;
        }
    }

    /// The server's next message but keepalives; `None` after its last.
    pub async fn hear(&mut self) -> Option<Message> {
        loop {
            let length = self.stream.read_u32().await.ok()?;
            let mut frame = vec![0; length as usize];
            self.stream.read_exact(&mut frame).await.ok()?;
            match Message::parse(&frame).unwrap() {
                Message::Keepalive => {}
                other => return Some(other),
            }
        }
    }
}
