//! Keys and certificates of one cluster: made at its start, gone with it.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};

use crate::error::{Error, io_error};

/// The certificate authority of a cluster, and the directory where its files lie.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    certificate: PathBuf,
    key: PathBuf,
}

/// A certificate with its key: as text for kubeconfigs, as files for programs.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) certificate_pem: String,
    pub(crate) key_pem: String,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    pub(crate) fn create(directory: &Path, file: &str, common_name: &str) -> Result<Self, Error> {
        let failed = |source| Error::Certificate { subject: common_name.to_owned(), source };
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = params(common_name, None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let key_pem = key.serialize_pem();
        let issuer = CertifiedIssuer::self_signed(params, key).map_err(failed)?;
        let (certificate, key) =
            (directory.join(format!("{file}.crt")), directory.join(format!("{file}.key")));
        write_private(&certificate, &issuer.pem())?;
        write_private(&key, &key_pem)?;
        Ok(Self { issuer, certificate, key })
    }

    pub(crate) fn certificate(&self) -> &Path {
        &self.certificate
    }

    pub(crate) fn key(&self) -> &Path {
        &self.key
    }

    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A client certificate: who you are is the common name, your group is the organization.
    pub(crate) fn client(
        &self,
        file: &str,
        common_name: &str,
        group: Option<&str>,
    ) -> Result<Identity, Error> {
        let mut params = params(common_name, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(file, common_name, params)
    }

    /// A serving certificate for these addresses and names.
    pub(crate) fn server(
        &self,
        file: &str,
        common_name: &str,
        group: Option<&str>,
        addresses: &[IpAddr],
        names: &[&str],
    ) -> Result<Identity, Error> {
        let failed = |source| Error::Certificate { subject: common_name.to_owned(), source };
        let mut params = params(common_name, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.subject_alt_names = addresses.iter().copied().map(SanType::IpAddress).collect();
        for name in names {
            params.subject_alt_names.push(SanType::DnsName((*name).try_into().map_err(failed)?));
        }
        self.issue(file, common_name, params)
    }

    fn issue(&self, file: &str, common_name: &str, mut params: CertificateParams) -> Result<Identity, Error> {
        let failed = |source| Error::Certificate { subject: common_name.to_owned(), source };
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        let key = KeyPair::generate().map_err(failed)?;
        let certificate_pem = params.signed_by(&key, &self.issuer).map_err(failed)?.pem();
        let directory = self.certificate.parent().unwrap_or(Path::new("."));
        let identity = Identity {
            certificate_pem,
            key_pem: key.serialize_pem(),
            certificate: directory.join(format!("{file}.crt")),
            key: directory.join(format!("{file}.key")),
        };
        write_private(&identity.certificate, &identity.certificate_pem)?;
        write_private(&identity.key, &identity.key_pem)?;
        Ok(identity)
    }
}

/// The key pair that signs service account tokens: paths of the private and the public key.
pub(crate) fn service_account_keys(directory: &Path) -> Result<(PathBuf, PathBuf), Error> {
    let pair = KeyPair::generate()
        .map_err(|source| Error::Certificate { subject: "service accounts".to_owned(), source })?;
    let (private, public) = (directory.join("sa.key"), directory.join("sa.pub"));
    write_private(&private, &pair.serialize_pem())?;
    write_private(&public, &pair.public_key_pem())?;
    Ok((private, public))
}

fn params(common_name: &str, group: Option<&str>) -> CertificateParams {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    if let Some(group) = group {
        name.push(DnType::OrganizationName, group);
    }
    let mut params = CertificateParams::default();
    params.distinguished_name = name;
    // Wide enough for tests that move the clock; these keys never leave the sandbox's directory.
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2100, 1, 1);
    params
}

/// Writes a file that only its owner may read.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<(), Error> {
    use std::io::Write as _;
    fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(io_error("writing", path))
}
