//! What a certificate is asked for, read from PKCS#10.
//!
//! The signer reads the same bytes with another parser. Two parsers that do not agree are a way past the check of one of them, so
//! only the plainest form is read at all: one PEM block as everybody writes it, one common name and one organization, and one
//! requested extension. Whatever has more than that is refused, not skipped.
//!
//! Deliberately absent: the signature, which an API server checks before it takes a request, and who asks.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::{ExtensionRequest, ParsedCriAttribute};
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME};
use x509_parser::prelude::FromDer as _;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::{SubjectPublicKeyInfo, X509Name};

use super::Flaw;

const BEGIN: &str = "-----BEGIN CERTIFICATE REQUEST-----\n";
const END: &str = "-----END CERTIFICATE REQUEST-----";

/// A request with every extension there is fits ten times.
const LONGEST: usize = 16 << 10;

/// What browsers and API servers still take.
const SHORTEST_RSA_KEY: usize = 2048;
const LONGEST_RSA_KEY: usize = 8192;
/// P-256.
const SHORTEST_CURVE: usize = 256;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) common_name: String,
    pub(super) organization: String,
    pub(super) addresses: Vec<IpAddr>,
}

impl Form {
    /// Reads `spec.request`, which is PEM in base64.
    pub(super) fn read(request: &str) -> Result<Self, Flaw> {
        let der = der(request).ok_or(Flaw::Unreadable)?;
        let Ok((rest, parsed)) = X509CertificationRequest::from_der(&der) else {
            return Err(Flaw::Unreadable);
        };
        if !rest.is_empty() {
            return Err(Flaw::Unreadable);
        }
        let info = &parsed.certification_request_info;
        let (common_name, organization) = subject(&info.subject)?;
        if !is_strong(&info.subject_pki) {
            return Err(Flaw::WeakKey);
        }
        let [attribute] = info.attributes() else { return Err(Flaw::Extensions) };
        let ParsedCriAttribute::ExtensionRequest(requested) = attribute.parsed_attribute() else {
            return Err(Flaw::Extensions);
        };
        Ok(Self { common_name, organization, addresses: addresses(requested)? })
    }
}

/// The one block of a PEM text that has nothing else: no headers, no second block, nothing before or after.
fn der(request: &str) -> Option<Vec<u8>> {
    if request.len() > LONGEST {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(request).ok()?).ok()?.replace("\r\n", "\n");
    let inner = text.trim_end().strip_prefix(BEGIN)?.strip_suffix(END)?;
    STANDARD.decode(inner.replace('\n', "")).ok()
}

/// The common name and the organization, and nothing beside them.
fn subject(name: &X509Name<'_>) -> Result<(String, String), Flaw> {
    let all: Vec<_> = name.iter_attributes().collect();
    let one = |oid| {
        let mut found = all.iter().filter(|attribute| *attribute.attr_type() == oid);
        found.next().and_then(|attribute| attribute.as_str().ok()).map(str::to_owned)
    };
    match (all.len(), one(OID_X509_COMMON_NAME), one(OID_X509_ORGANIZATION_NAME)) {
        (2, Some(common_name), Some(organization)) => Ok((common_name, organization)),
        _ => Err(Flaw::Subject),
    }
}

fn is_strong(key: &SubjectPublicKeyInfo<'_>) -> bool {
    match key.parsed() {
        Ok(PublicKey::RSA(rsa)) => (SHORTEST_RSA_KEY..=LONGEST_RSA_KEY).contains(&rsa.key_size()),
        Ok(PublicKey::EC(point)) => point.key_size() >= SHORTEST_CURVE,
        _ => false,
    }
}

/// The addresses, which are all that is asked for.
fn addresses(requested: &ExtensionRequest<'_>) -> Result<Vec<IpAddr>, Flaw> {
    let [extension] = requested.extensions.as_slice() else { return Err(Flaw::Extensions) };
    let ParsedExtension::SubjectAlternativeName(names) = extension.parsed_extension() else {
        return Err(Flaw::Extensions);
    };
    let addresses: Option<Vec<_>> = names.general_names.iter().map(address).collect();
    addresses.filter(|addresses| !addresses.is_empty()).ok_or(Flaw::Names)
}

fn address(name: &GeneralName<'_>) -> Option<IpAddr> {
    let GeneralName::IPAddress(bytes) = name else { return None };
    let address = match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(*bytes).ok()?),
        16 => IpAddr::from(<[u8; 16]>::try_from(*bytes).ok()?),
        _ => return None,
    };
    Some(address.to_canonical())
}
