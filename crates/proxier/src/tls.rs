//! Handshakes: our certificate is shown, and theirs asked for.
//!
//! A caller proves in the handshake that the key of its certificate is its own. Whether that certificate is one of the computing cluster's is
//! asked at each call, as kubelets do it: the authorities may change while a connection lives, and a refusal is an answer that people can read.

use std::sync::Arc;

use parking_lot::RwLock;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme};

use crate::certificate::Serving;

/// The configuration of all listeners.
pub(crate) fn server(serving: &Serving) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(Arc::new(Possession(provider)))
        .with_cert_resolver(serving.resolver());
    // Streams are tunnelled on connections of their own.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // What is not kept cannot be resumed: each connection shows its certificate.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Asks for a certificate, and for the proof that its key is the caller's. No more: see [`Authorities`].
#[derive(Debug)]
struct Possession(Arc<CryptoProvider>);

impl ClientCertVerifier for Possession {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// The authorities whose certificates name callers. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Authorities(Arc<RwLock<Known>>);

#[derive(Default)]
struct Known {
    pem: Vec<u8>,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
}

impl Authorities {
    /// From now on these count, and no others. What cannot be read is told, and nobody is believed.
    pub(crate) fn replace(&self, pem: &[u8]) {
        if self.0.read().pem == pem && self.0.read().verifier.is_some() {
            return;
        }
        let verifier = verifier(pem);
        match &verifier {
            Ok(_) => tracing::info!("the authorities of callers are known"),
            Err(why) => tracing::warn!(
                why,
                "the authorities of callers cannot be read: their certificates are refused"
            ),
        }
        *self.0.write() = Known { pem: pem.to_vec(), verifier: verifier.ok() };
    }

    /// Whether any is known.
    pub(crate) fn are_known(&self) -> bool {
        self.0.read().verifier.is_some()
    }

    /// Whether one of them stands behind a certificate, now.
    pub(crate) fn vouch_for(&self, chain: &[CertificateDer<'_>]) -> Result<(), String> {
        let verifier = self.0.read().verifier.clone();
        let verifier = verifier.ok_or("the authorities of callers are not known yet")?;
        let (first, others) = chain.split_first().ok_or("there is no certificate")?;
        let answer = verifier.verify_client_cert(first, others, UnixTime::now());
        answer.map(|_| ()).map_err(|error| error.to_string())
    }
}

fn verifier(pem: &[u8]) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    builder.build().map_err(|error| error.to_string())
}
