//! Who calls: by certificate, or by token.
//!
//! Deliberately absent: anonymous callers, and headers in which someone in between says who calls.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use kubeocean_cluster::client::Cluster;
use kubeocean_model::action::kinds;
use kubeocean_model::key::Virtual;
use kubeocean_model::kubelet::Refusal;
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use x509_parser::prelude::{AttributeTypeAndValue, FromDer as _, X509Certificate};

use crate::remembered::Remembered;
use crate::tls::Authorities;

/// As kubelets have it: who is asked for every call of a scraper would be asked four times a minute for each node.
const KNOWN_FOR: Duration = Duration::from_secs(120);

/// A token that is refused may be one that the server does not know yet.
const REFUSED_FOR: Duration = Duration::from_secs(10);

/// Two hundred bytes each: half a megabyte.
const MOST_TOKENS: usize = 2048;

/// Tokens have a kilobyte or two.
const LONGEST_TOKEN: usize = 16 << 10;

/// Everyone who is known belongs to it.
const AUTHENTICATED: &str = "system:authenticated";

/// Who calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(default)]
pub(crate) struct Caller {
    #[serde(rename = "username")]
    pub(crate) user: String,
    pub(crate) uid: String,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

/// Finds out who calls.
pub(crate) struct Callers {
    virt: Cluster<Virtual>,
    pub(crate) authorities: Authorities,
    /// By the hash of the token: what is not kept cannot be read.
    tokens: Arc<Remembered<Hash, Option<Arc<Caller>>>>,
    /// What the computing cluster is being asked: many calls of one scraper are one question.
    asking: Mutex<BTreeMap<Hash, WeakShared<Asking>>>,
    /// How many questions there may be at a time.
    reviews: Arc<Semaphore>,
}

type Hash = [u8; 32];
type Asking = BoxFuture<'static, Result<Option<Arc<Caller>>, Refusal>>;

fn unauthorized(why: impl Into<String>) -> Refusal {
    Refusal::new(401, format!("Unauthorized: {}", why.into()))
}

impl Callers {
    pub(crate) fn new(virt: &Cluster<Virtual>, authorities: Authorities, reviews: &Arc<Semaphore>) -> Self {
        Self {
            virt: virt.clone(),
            authorities,
            tokens: Arc::new(Remembered::new(MOST_TOKENS)),
            asking: Mutex::default(),
            reviews: Arc::clone(reviews),
        }
    }

    /// Who sent these headers over a connection with these certificates.
    pub(crate) async fn who(
        &self,
        chain: &[CertificateDer<'_>],
        headers: &HeaderMap,
    ) -> Result<Arc<Caller>, Refusal> {
        if !chain.is_empty() {
            return self.by_certificate(chain).map(Arc::new);
        }
        match bearer(headers)? {
            Some(token) => self.by_token(token).await,
            None => {
                Err(unauthorized("show a client certificate of the computing cluster, or a bearer token"))
            }
        }
    }

    fn by_certificate(&self, chain: &[CertificateDer<'_>]) -> Result<Caller, Refusal> {
        self.authorities
            .vouch_for(chain)
            .map_err(|why| unauthorized(format!("the client certificate is not accepted: {why}")))?;
        chain.first().and_then(named_by).ok_or_else(|| unauthorized("the client certificate names nobody"))
    }

    async fn by_token(&self, token: &str) -> Result<Arc<Caller>, Refusal> {
        let hash: Hash = Sha256::digest(token.as_bytes()).into();
        let known = match self.tokens.get(&hash) {
            Some(known) => known,
            None => self.asked(hash, token)?.await?,
        };
        known.ok_or_else(|| unauthorized("the bearer token is not accepted"))
    }

    /// The question whose token this is. It waits for nobody: a place in the queue is what those who make tokens up would take.
    fn asked(&self, hash: Hash, token: &str) -> Result<Shared<Asking>, Refusal> {
        let mut asking = self.asking.lock();
        if let Some(asked) = asking.get(&hash).and_then(WeakShared::upgrade) {
            return Ok(asked);
        }
        asking.retain(|_, asked| asked.upgrade().is_some());
        let turn = Arc::clone(&self.reviews).try_acquire_owned().map_err(|_| {
            Refusal::new(
                503,
                "the computing cluster is being asked about too many tokens: try again in a while",
            )
        })?;
        let kind = &kinds::TOKEN_REVIEW;
        let review = json!({"apiVersion": kind.api_version(), "kind": &*kind.kind, "spec": {"token": token}});
        let (virt, tokens) = (self.virt.clone(), Arc::clone(&self.tokens));
        let ask = async move {
            // Nobody was found, and nobody was found out: it is not remembered.
            let answer = virt.review(&kinds::TOKEN_REVIEW, &review).await.map_err(|error| {
                Refusal::new(503, format!("the computing cluster cannot be asked who calls: {error}"))
            })?;
            let caller = reviewed(&answer).map(Arc::new);
            let good_for = if caller.is_some() { KNOWN_FOR } else { REFUSED_FOR };
            tokens.put(hash, caller.clone(), good_for);
            drop(turn);
            Ok(caller)
        };
        let asked = ask.boxed().shared();
        asking.extend(asked.downgrade().map(|weak| (hash, weak)));
        Ok(asked)
    }
}

/// The token of a call; two are none.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return if headers.contains_key(AUTHORIZATION) {
            Err(unauthorized("there is more than one Authorization header"))
        } else {
            Ok(None)
        };
    };
    let text = value.to_str().map_err(|_| unauthorized("the Authorization header is not text"))?;
    let token = text.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let token = token.map(|(_, token)| token.trim()).filter(|token| !token.is_empty());
    let token = token.ok_or_else(|| unauthorized("the Authorization header has no bearer token"))?;
    if token.len() > LONGEST_TOKEN {
        return Err(unauthorized("the bearer token is longer than any"));
    }
    Ok(Some(token))
}

/// Whom a review found.
fn reviewed(answer: &Value) -> Option<Caller> {
    let status = &answer["status"];
    // An error beside it is no yes.
    let is_known = status["authenticated"] == true && status["error"].as_str().unwrap_or_default().is_empty();
    let mut caller: Caller = serde_json::from_value(status["user"].clone()).ok().filter(|_| is_known)?;
    caller.join(AUTHENTICATED);
    (!caller.user.is_empty()).then_some(caller)
}

/// Whom a certificate names: the common name is the user, the organizations are groups.
fn named_by(certificate: &CertificateDer<'_>) -> Option<Caller> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let subject = parsed.subject();
    let mut names = subject.iter_common_name().map(AttributeTypeAndValue::as_str);
    // Of two names, one reader takes the first and another the last.
    let (Some(Ok(user)), None) = (names.next(), names.next()) else { return None };
    let groups: Result<Vec<String>, _> =
        subject.iter_organization().map(|group| group.as_str().map(str::to_owned)).collect();
    let mut caller = Caller { user: user.to_owned(), groups: groups.ok()?, ..Caller::default() };
    caller.join(AUTHENTICATED);
    (!caller.user.is_empty()).then_some(caller)
}

impl Caller {
    fn join(&mut self, group: &str) {
        if !self.groups.iter().any(|one| one == group) {
            self.groups.push(group.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use rcgen::DnType::{CommonName, OrganizationName};

    use super::*;

    #[test]
    fn only_one_bearer_token_is_a_word() {
        let read = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
            }
            bearer(&headers).map(|token| token.map(str::to_owned)).map_err(|refusal| refusal.code)
        };
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&["Bearer abc"]), Ok(Some("abc".to_owned())));
        assert_eq!(read(&["bearer  abc "]), Ok(Some("abc".to_owned())));
        for bad in [
            &["Bearer "][..],
            &["Bearer"],
            &["Basic abc"],
            &["Bearer a", "Bearer b"],
            &["Bearer a", "Basic b"],
        ] {
            assert_eq!(read(bad), Err(401), "{bad:?}");
        }
        assert_eq!(read(&[&format!("Bearer {}", "a".repeat(20_000))]), Err(401));
    }

    #[test]
    fn a_review_that_does_not_say_yes_says_no() {
        let user = json!({"username": "jane", "uid": "1", "groups": ["devs"], "extra": {"scope": ["all"]}});
        let caller = reviewed(&json!({"status": {"authenticated": true, "user": user}})).unwrap();
        assert_eq!((caller.user.as_str(), caller.groups.len()), ("jane", 2));
        for no in [
            json!({}),
            json!({"status": {"authenticated": false, "user": user}}),
            json!({"status": {"authenticated": "true", "user": user}}),
            json!({"status": {"user": user}}),
            json!({"status": {"authenticated": true}}),
            json!({"status": {"authenticated": true, "user": {"username": ""}}}),
            json!({"status": {"authenticated": true, "user": user, "error": "audience"}}),
        ] {
            assert_eq!(reviewed(&no), None, "{no}");
        }
    }

    #[test]
    fn a_certificate_names_one_user_and_its_groups() {
        let named = |names: &[(rcgen::DnType, &str)]| {
            let mut params = rcgen::CertificateParams::default();
            params.distinguished_name = rcgen::DistinguishedName::new();
            for (kind, name) in names {
                params.distinguished_name.push(kind.clone(), *name);
            }
            let key = rcgen::KeyPair::generate().unwrap();
            named_by(params.self_signed(&key).unwrap().der())
        };
        let caller = named(&[(CommonName, "jane"), (OrganizationName, "devs")]).unwrap();
        assert_eq!(
            (caller.user.as_str(), &caller.groups[..]),
            ("jane", &["devs".to_owned(), AUTHENTICATED.to_owned()][..])
        );
        assert_eq!(named(&[(OrganizationName, "system:masters")]), None);
        assert_eq!(named(&[(CommonName, "")]), None);
    }
}
