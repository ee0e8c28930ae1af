//! Configurations of both ends: TLS 1.3, one suite, and the roster's certificates instead of authorities.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::UnbufferedClientConnection;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, UnbufferedServerConnection};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error,
    PeerIncompatible, ServerConfig, SignatureScheme, version,
};

/// Accepts the certificates of a list, byte for byte; a member proves that it has the key of its own.
#[derive(Debug)]
struct Pinned {
    certificates: Vec<CertificateDer<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Pinned {
    fn check(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        let known = self.certificates.iter().any(|one| one == shown);
        known
            .then_some(())
            .ok_or_else(|| CertificateError::UnknownIssuer.into())
    }

    fn check_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }
}

/// The part that both interfaces for verifiers share.
macro_rules! signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(PeerIncompatible::Tls12NotOffered.into())
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            self.check_signature(message, certificate, signature)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }
    };
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(shown).map(|()| ServerCertVerified::assertion())
    }

    signatures!();
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(shown).map(|()| ClientCertVerified::assertion())
    }

    signatures!();
}

/// What one member's connections share.
pub struct Context {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Context {
    /// Returns the configurations of the member that has this key and certificate.
    pub fn new(key_pem: &[u8], certificate: &[u8], trusted: Vec<Vec<u8>>) -> Result<Self, Error> {
        let key = PrivateKeyDer::from_pem_slice(key_pem)
            .map_err(|error| Error::General(format!("the private key: {error}")))?;
        let provider = Arc::new(CryptoProvider {
            cipher_suites: vec![ring::cipher_suite::TLS13_AES_128_GCM_SHA256],
            kx_groups: vec![ring::kx_group::X25519],
            ..ring::default_provider()
        });
        let own = vec![CertificateDer::from(certificate.to_vec())];
        let pinned = Arc::new(Pinned {
            certificates: trusted.into_iter().map(CertificateDer::from).collect(),
            algorithms: provider.signature_verification_algorithms,
        });
        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(pinned.clone())
            .with_client_auth_cert(own.clone(), key.clone_key())?;
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13])?
            .with_client_cert_verifier(pinned)
            .with_single_cert(own, key)?;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Ok(Self {
            client: Arc::new(client),
            server: Arc::new(server),
        })
    }

    /// Returns the end that calls.
    pub fn client(&self) -> Result<UnbufferedClientConnection, Error> {
        // Certificates name members, not hosts: no name is sent or compared.
        let unused = ServerName::IpAddress(std::net::Ipv4Addr::LOCALHOST.into());
        UnbufferedClientConnection::new(self.client.clone(), unused)
    }

    /// Returns the end that is called.
    pub fn server(&self) -> Result<UnbufferedServerConnection, Error> {
        UnbufferedServerConnection::new(self.server.clone())
    }
}
