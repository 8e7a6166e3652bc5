//! Who we are to a cluster, and where it is.
//!
//! A kubeconfig that someone else hands over may do less than one's own: it may not run a command, read
//! a file of this machine, go through a proxy of its choosing, or trust any server. Those are refused
//! by name, before anything is dialled.

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Config;
use kube::client::ConfigExt as _;
use kube::config::{AuthInfo, Cluster, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kubeocean_api::keys::names::KUBECONFIG_KEY;
use kubeocean_model::object::Object;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_saphyr::granit_parser::{Event, Options, Parser};
use thiserror::Error;
use tower::util::option_layer;
use tower::{BoxError, Layer as _, ServiceExt as _};

use crate::dial;
use crate::guard::Guarded;

/// Some hundred bytes and three certificates make ten thousand. A parser that is given a megabyte of nested YAML is busy
/// for seconds.
const LONGEST: usize = 256 << 10;

/// Longer than between the questions of one look, shorter than between two looks.
const CLOSED_AFTER: Duration = Duration::from_secs(2);

/// As long as most servers and everything between keep one that is not used.
const KEPT_FOR: Duration = Duration::from_secs(90);

/// Where an API server is, and how to speak to it. Secrets in it are never printed.
#[derive(Clone)]
pub struct Credentials {
    config: Config,
}

/// Why credentials cannot be used. The message names the fix.
#[derive(Debug, Error)]
pub enum CredentialError {
    /// Not UTF-8.
    #[error("the kubeconfig is not text: store the file as it is, not encoded twice")]
    NotText,
    /// Not YAML, or not a kubeconfig.
    #[error(
        "the kubeconfig cannot be read: it is not YAML, or not a kubeconfig; look at it with `kubectl config view`"
    )]
    NotKubeconfig,
    /// The operator's own file.
    #[error("the kubeconfig cannot be read: {0}")]
    Unreadable(String),
    /// Longer than any kubeconfig.
    #[error(
        "the kubeconfig has {size} bytes, which no kubeconfig has: store one cluster, one user and one context"
    )]
    TooLong {
        /// How long it is.
        size: usize,
    },
    /// YAML that refers to itself, and may grow without end.
    #[error(
        "the kubeconfig has YAML anchors or aliases (& and *): write it out with `kubectl config view --flatten --minify`"
    )]
    Aliases,
    /// The authority's certificate is empty, or none.
    #[error(
        "the kubeconfig's certificate-authority-data is not a certificate: it must be the base64 of a PEM file, as \
         `kubectl config view --flatten --minify --raw` writes it"
    )]
    BadAuthority,
    /// No context, cluster or user.
    #[error("the kubeconfig is incomplete: {0}; name the context to use in `current-context`")]
    Incomplete(String),
    /// An exec plugin.
    #[error("the kubeconfig runs a command (users[].user.exec): use a token or a client certificate instead")]
    RunsCommand,
    /// An auth provider.
    #[error(
        "the kubeconfig asks an auth provider (users[].user.auth-provider): use a token or a client certificate instead"
    )]
    AuthProvider,
    /// A path.
    #[error(
        "the kubeconfig points at a file ({field}): embed the content with `kubectl config view --flatten --minify`"
    )]
    PointsAtFile {
        /// Which field.
        field: &'static str,
    },
    /// Someone else's name.
    #[error(
        "the kubeconfig acts as someone else (users[].user.as): use the token or client certificate of that identity"
    )]
    Impersonates,
    /// A proxy.
    #[error(
        "the kubeconfig names a proxy (clusters[].cluster.proxy-url): the components connect directly; remove it, or \
         unset HTTPS_PROXY where it is not the kubeconfig's"
    )]
    Proxy,
    /// No verification of the server.
    #[error(
        "the kubeconfig skips the verification of the server (insecure-skip-tls-verify): give \
         certificate-authority-data instead"
    )]
    SkipsVerification,
    /// Plain HTTP.
    #[error("the kubeconfig's server is an address of scheme {scheme}: it must be an https:// address")]
    NotHttps {
        /// What it says; not more of it, since there may be a password in it.
        scheme: String,
    },
    /// A user, a password or a query in the address.
    #[error(
        "the kubeconfig's server has a user or a query in its address: use a token or a client certificate instead"
    )]
    SecretInAddress,
    /// A token that cannot be sent.
    #[error(
        "the kubeconfig's token has a line break or other characters that cannot be sent: write it in one line"
    )]
    BadToken,
    /// User name and password.
    #[error("the kubeconfig uses a user name and password: use a token or a client certificate instead")]
    Password,
    /// Neither token nor certificate.
    #[error(
        "the kubeconfig has no token and no client certificate: the API server would not know who is asking"
    )]
    Anonymous,
    /// Not in a cluster.
    #[error("not running in a cluster, and no --kubeconfig given: name a file with --kubeconfig ({0})")]
    NotInCluster(String),
    /// TLS material that does not parse, and the like.
    #[error("the connection cannot be set up: {0}")]
    Setup(String),
}

impl Credentials {
    /// From a kubeconfig that was handed over by someone else.
    pub async fn from_kubeconfig(bytes: &[u8]) -> Result<Self, CredentialError> {
        let text = std::str::from_utf8(bytes).map_err(|_| CredentialError::NotText)?;
        if bytes.len() > LONGEST {
            return Err(CredentialError::TooLong { size: bytes.len() });
        }
        if has_alias(text)? {
            return Err(CredentialError::Aliases);
        }
        // A parser's complaint quotes the text, and the text has secrets.
        let kubeconfig = Kubeconfig::from_yaml(text).map_err(|_| CredentialError::NotKubeconfig)?;
        refuse_what_reaches_out(&kubeconfig)?;
        if !kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref()).all(has_good_authority) {
            return Err(CredentialError::BadAuthority);
        }
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .map_err(|error| CredentialError::Incomplete(one_line(&error)))?;
        // kube also looks at the environment for a proxy.
        config.proxy_url = None;
        if config.cluster_url.scheme_str() != Some("https") {
            let scheme = config.cluster_url.scheme_str().unwrap_or("without a scheme").to_owned();
            return Err(CredentialError::NotHttps { scheme });
        }
        let user_info =
            config.cluster_url.authority().is_some_and(|authority| authority.as_str().contains('@'));
        if user_info || config.cluster_url.query().is_some() {
            return Err(CredentialError::SecretInAddress);
        }
        if token_of(&config.auth_info).is_some_and(|token| !is_header(&token)) {
            return Err(CredentialError::BadToken);
        }
        if !has_identity(&config.auth_info) {
            return Err(CredentialError::Anonymous);
        }
        Ok(Self { config })
    }

    /// From the operator's own file, or from several as `KUBECONFIG` names them: it may do what kubectl may do.
    pub async fn from_file(path: &Path) -> Result<Self, CredentialError> {
        Self::of_operator(Some(path), None).await
    }

    /// From the operator's own files, found as kubectl finds them: this one, else those of `KUBECONFIG`, else
    /// `~/.kube/config`; in this context, else in the current one.
    pub async fn of_operator(path: Option<&Path>, context: Option<&str>) -> Result<Self, CredentialError> {
        let kubeconfig = match path {
            Some(path) => read_files(path)?,
            None => match std::env::var_os("KUBECONFIG").filter(|list| !list.is_empty()) {
                Some(list) => read_files(list.as_ref())?,
                None => Kubeconfig::read().map_err(|error| unreadable("~/.kube/config", &error))?,
            },
        };
        let options =
            KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
        Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .map(|config| Self { config })
            .map_err(|error| CredentialError::Incomplete(one_line(&error)))
    }

    /// From the service account of the pod that we run in.
    pub fn in_cluster() -> Result<Self, CredentialError> {
        Config::incluster()
            .map(|config| Self { config })
            .map_err(|error| CredentialError::NotInCluster(one_line(&error)))
    }

    /// The operator's file where one is given, else the pod's service account.
    pub async fn infer(kubeconfig: Option<&Path>) -> Result<Self, CredentialError> {
        match kubeconfig {
            Some(path) => Self::from_file(path).await,
            None => Self::in_cluster(),
        }
    }

    /// The address of the API server.
    pub fn server(&self) -> String {
        self.config.cluster_url.to_string()
    }

    /// The authorities that may have signed the server's certificate, as PEM. `None`: those that the machine trusts.
    pub fn authority(&self) -> Option<String> {
        let certificates = self.config.root_cert.as_ref()?;
        Some(certificates.iter().map(|der| pem(der)).collect())
    }

    /// The name that the server's certificate has, where that is not the one in its address.
    pub fn tls_server_name(&self) -> Option<&str> {
        self.config.tls_server_name.as_deref()
    }

    /// Whether the server has to prove who it is.
    pub const fn verifies_server(&self) -> bool {
        !self.config.accept_invalid_certs
    }

    /// A client for it, for [`Cluster::over`](crate::client::Cluster::over). Nothing is dialled yet.
    pub fn client(self) -> Result<kube::Client, CredentialError> {
        self.client_with(KEPT_FOR)
    }

    /// As [`Credentials::client`], with connections that are closed soon after use: for who asks many servers, each seldom. An open
    /// connection costs a hundred kilobytes.
    pub fn brief_client(self) -> Result<kube::Client, CredentialError> {
        self.client_with(CLOSED_AFTER)
    }

    /// Nothing in it repeats a call: repeating a write is the decision of the one who planned it.
    fn client_with(self, idle: Duration) -> Result<kube::Client, CredentialError> {
        let config = self.config;
        if config.proxy_url.is_some() {
            return Err(CredentialError::Proxy);
        }
        let setup = |error: &kube::Error| CredentialError::Setup(one_line(error));
        let connector = dial::connector(&config).map_err(|error| setup(&error))?;
        let client = legacy::Client::builder(TokioExecutor::new())
            .pool_idle_timeout(idle)
            .pool_timer(TokioTimer::new())
            .build(connector)
            .map_request(Guarded::request)
            .map_err(BoxError::from);
        let auth = config.auth_layer().map_err(|error| setup(&error))?;
        let headers = config.extra_headers_layer().map_err(|error| setup(&error))?;
        let service = config.base_uri_layer().layer(option_layer(auth).layer(headers.layer(client)));
        Ok(kube::Client::new(service, config.default_namespace))
    }
}

/// For kubelets, which are other servers than the one in the kubeconfig, and know us by the same means.
impl Credentials {
    /// Verified against the authority of the API server, or against these.
    pub(crate) fn of_verified_kubelets(mut self, authorities: Option<Vec<Vec<u8>>>) -> Config {
        if let Some(authorities) = authorities {
            self.config.root_cert = Some(authorities);
            self.config.root_cert_file = None;
        }
        self.config.accept_invalid_certs = false;
        self.config.tls_server_name = None;
        self.config
    }

    /// Not verified, so nothing goes along that someone else could use: no token, no password. A client certificate proves who we are and
    /// gives nothing away. `None`: there is none.
    pub(crate) fn of_unverified_kubelets(mut self) -> Option<Config> {
        let user = &self.config.auth_info;
        if !has_text(user.client_certificate_data.as_ref()) && !has_text(user.client_certificate.as_ref()) {
            return None;
        }
        self.config.auth_info = AuthInfo {
            client_certificate: user.client_certificate.clone(),
            client_certificate_data: user.client_certificate_data.clone(),
            client_key: user.client_key.clone(),
            client_key_data: user.client_key_data.clone(),
            ..AuthInfo::default()
        };
        self.config.headers.clear();
        self.config.accept_invalid_certs = true;
        self.config.tls_server_name = None;
        Some(self.config)
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("server", &self.config.cluster_url).finish_non_exhaustive()
    }
}

/// The kubeconfig in a Secret; `None` where it has none.
pub fn kubeconfig_of(secret: &Object) -> Option<Vec<u8>> {
    let encoded = secret.text("data", &[KUBECONFIG_KEY])?;
    STANDARD.decode(encoded).ok().filter(|bytes| !bytes.is_empty())
}

/// Reads a file, or a list of them as in `KUBECONFIG`: then, as kubectl does it, what a file says first counts, and files that
/// are not there are passed over.
fn read_files(path: &Path) -> Result<Kubeconfig, CredentialError> {
    let unreadable = |path: &Path, error: &KubeconfigError| unreadable(path.display(), error);
    let read = |path: &Path| Kubeconfig::read_from(path).map_err(|error| unreadable(path, &error));
    let files: Vec<_> = std::env::split_paths(path).filter(|file| file.exists()).collect();
    let ([first, others @ ..], false) = (&*files, path.exists()) else { return read(path) };
    others.iter().try_fold(read(first)?, |merged, file| {
        merged.merge(read(file)?).map_err(|error| unreadable(file, &error))
    })
}

/// Where the operator's own file cannot be read. A parser's complaint quotes the text, and the text has secrets.
fn unreadable(path: impl std::fmt::Display, error: &KubeconfigError) -> CredentialError {
    let words = match error {
        KubeconfigError::Parse(cause) => {
            let line = cause.location().map_or(String::new(), |at| format!("line {}: ", at.line()));
            format!("{line}not YAML, or not what a kubeconfig has there")
        }
        other => one_line(other),
    };
    CredentialError::Unreadable(format!("{path}: {words}"))
}

/// Every entry is looked at, not only those of the current context: a kubeconfig that carries a command
/// is not one to keep in a Secret.
fn refuse_what_reaches_out(kubeconfig: &Kubeconfig) -> Result<(), CredentialError> {
    for user in kubeconfig.auth_infos.iter().filter_map(|named| named.auth_info.as_ref()) {
        if user.exec.is_some() {
            return Err(CredentialError::RunsCommand);
        }
        if user.auth_provider.is_some() {
            return Err(CredentialError::AuthProvider);
        }
        let groups = user.impersonate_groups.as_ref().is_some_and(|groups| !groups.is_empty());
        if groups || user.impersonate.as_ref().is_some_and(|name| !name.is_empty()) {
            return Err(CredentialError::Impersonates);
        }
        if user.username.is_some() || user.password.is_some() {
            return Err(CredentialError::Password);
        }
        let files = [
            (&user.token_file, "users[].user.tokenFile"),
            (&user.client_certificate, "users[].user.client-certificate"),
            (&user.client_key, "users[].user.client-key"),
        ];
        refuse_files(&files)?;
    }
    for cluster in kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref()) {
        refuse_files(&[(&cluster.certificate_authority, "clusters[].cluster.certificate-authority")])?;
        if cluster.proxy_url.as_ref().is_some_and(|url| !url.is_empty()) {
            return Err(CredentialError::Proxy);
        }
        if cluster.insecure_skip_tls_verify == Some(true) {
            return Err(CredentialError::SkipsVerification);
        }
    }
    Ok(())
}

fn refuse_files(fields: &[(&Option<String>, &'static str)]) -> Result<(), CredentialError> {
    match fields.iter().find(|(path, _)| path.as_ref().is_some_and(|path| !path.is_empty())) {
        Some((_, field)) => Err(CredentialError::PointsAtFile { field }),
        None => Ok(()),
    }
}

/// A certificate as PEM: base64 in lines of 64, between two marks.
fn pem(der: &[u8]) -> String {
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    for (index, sign) in STANDARD.encode(der).chars().enumerate() {
        if index > 0 && index % 64 == 0 {
            text.push('\n');
        }
        text.push(sign);
    }
    text.push_str("\n-----END CERTIFICATE-----\n");
    text
}

/// No authority is one too: those that the machine trusts.
fn has_good_authority(cluster: &Cluster) -> bool {
    let Some(encoded) = &cluster.certificate_authority_data else { return true };
    let Ok(pem) = STANDARD.decode(encoded.trim()) else { return false };
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    certificates.is_ok_and(|certificates| !certificates.is_empty())
}

/// Whether a kubeconfig names an anchor or refers to one. Its parser is asked, which knows what is quoted and what is a comment; nothing
/// is made of the text yet.
fn has_alias(text: &str) -> Result<bool, CredentialError> {
    let mut options = Options::default();
    options.emit_anchor_events = true;
    options.emit_unresolved_aliases = true;
    for event in Parser::new_from_str_with_options(text, options) {
        match event.map_err(|_| CredentialError::NotKubeconfig)?.0 {
            Event::Anchor(..) | Event::Alias(_) | Event::UnresolvedAlias(_) => return Ok(true),
            _ => {}
        }
    }
    Ok(false)
}

fn has_identity(user: &AuthInfo) -> bool {
    token_of(user).is_some_and(|token| !token.is_empty())
        || (has_text(user.client_certificate_data.as_ref())
            && key_of(user).is_some_and(|key| !key.is_empty()))
}

fn has_text(text: Option<&String>) -> bool {
    text.is_some_and(|text| !text.is_empty())
}

fn token_of(user: &AuthInfo) -> Option<String> {
    hidden(user, "token")
}

fn key_of(user: &AuthInfo) -> Option<String> {
    hidden(user, "client-key-data")
}

/// The type that holds it shows it to a serialiser only.
fn hidden(user: &AuthInfo, field: &str) -> Option<String> {
    Some(serde_json::to_value(user).ok()?.get(field)?.as_str()?.to_owned())
}

fn is_header(token: &str) -> bool {
    http::HeaderValue::from_str(&format!("Bearer {token}")).is_ok()
}

/// The whole chain of causes in one line: conditions and logs have only one.
pub(crate) fn one_line(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        cause = inner.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
