//! A certificate with its key, looked at once.

use std::hash::{BuildHasher as _, Hasher as _};
use std::net::IpAddr;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

/// A certificate is renewed when this much of its life has passed, at the earliest and at the latest. What is left is a week of a
/// month; and proxiers that were started together do not ask together.
const RENEW_BETWEEN: (f64, f64) = (0.7, 0.9);

/// A certificate with its key. Without `Debug`, as it should be.
pub(super) struct Certified {
    pub(super) key: Arc<CertifiedKey>,
    pub(super) ends: Timestamp,
    pub(super) renew_at: Timestamp,
    addresses: Vec<IpAddr>,
}

/// Why a certificate cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unfit {
    #[error("the certificate cannot be read: it has to be PEM, the certificate of the server first")]
    Unreadable,
    #[error("the private key cannot be read: it has to be PEM of PKCS#8, PKCS#1 or SEC1")]
    UnreadableKey,
    #[error("the private key does not belong to the certificate: store both anew")]
    KeyMismatch,
    #[error("the certificate is good until {0} only")]
    Expired(Timestamp),
    #[error("the certificate is not good before {0}: check the clocks")]
    Early(Timestamp),
    #[error("the certificate is not for {0}")]
    Elsewhere(IpAddr),
}

impl Certified {
    /// Fits a chain, in PEM, to a key.
    pub(super) fn fit(chain: &[u8], key: PrivateKeyDer<'static>, now: Timestamp) -> Result<Self, Unfit> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
        let chain = chain.map_err(|_| Unfit::Unreadable)?;
        let first = chain.first().ok_or(Unfit::Unreadable)?.clone();
        let (begins, ends, addresses) = look_into(&first).ok_or(Unfit::Unreadable)?;
        if ends <= now {
            return Err(Unfit::Expired(ends));
        }
        if begins > now {
            return Err(Unfit::Early(begins));
        }
        let provider = aws_lc_rs::default_provider();
        let key = provider.key_provider.load_private_key(key).map_err(|_| Unfit::UnreadableKey)?;
        let key = CertifiedKey::new(chain, key);
        // Whether it is unknown is not good enough: we use keys of which it is known.
        key.keys_match().map_err(|_| Unfit::KeyMismatch)?;
        let renew_at = between(now, ends);
        Ok(Self { key: Arc::new(key), ends, renew_at, addresses })
    }

    /// A key as it was stored.
    pub(super) fn key_of(pem: &[u8]) -> Result<PrivateKeyDer<'static>, Unfit> {
        PrivateKeyDer::from_pem_slice(pem).map_err(|_| Unfit::UnreadableKey)
    }

    /// One that nobody renews.
    pub(super) fn given(key: CertifiedKey) -> Self {
        let seen = key.cert.first().and_then(look_into);
        let (ends, addresses) = seen.map_or((Timestamp::MAX, Vec::new()), |(_, ends, all)| (ends, all));
        Self { key: Arc::new(key), ends, renew_at: ends, addresses }
    }

    pub(super) fn has_ended(&self, now: Timestamp) -> bool {
        self.ends <= now
    }

    /// Whether callers that dial this address will believe it.
    pub(super) fn is_for(&self, address: IpAddr) -> bool {
        self.addresses.contains(&address.to_canonical())
    }
}

/// From when to when a certificate is good, and for which addresses.
fn look_into(der: &CertificateDer<'_>) -> Option<(Timestamp, Timestamp, Vec<IpAddr>)> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let validity = certificate.validity();
    let begins = Timestamp::from_second(validity.not_before.timestamp()).ok()?;
    let ends = Timestamp::from_second(validity.not_after.timestamp()).ok()?;
    let names = certificate.subject_alternative_name().ok()?;
    let names = names.map(|names| names.value.general_names.as_slice()).unwrap_or_default();
    Some((begins, ends, names.iter().filter_map(address).collect()))
}

fn address(name: &GeneralName<'_>) -> Option<IpAddr> {
    let GeneralName::IPAddress(bytes) = name else { return None };
    let four = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from))
        .ok()
        .map(|address| address.to_canonical())
}

/// A moment in the last part of a life.
fn between(now: Timestamp, ends: Timestamp) -> Timestamp {
    let (earliest, latest) = RENEW_BETWEEN;
    let part = earliest + (latest - earliest) * fraction();
    let left = ends.duration_since(now).as_secs_f64() * part;
    let left = SignedDuration::try_from_secs_f64(left).unwrap_or_default();
    now.checked_add(left).unwrap_or(ends)
}

/// Another number from 0 to 1 each time.
#[expect(clippy::cast_precision_loss, reason = "53 bits of it are kept, on purpose")]
pub(super) fn fraction() -> f64 {
    let number = std::hash::RandomState::new().build_hasher().finish();
    (number >> 11) as f64 / (1u64 << 53) as f64
}
