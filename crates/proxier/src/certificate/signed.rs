//! A certificate of the cluster's own signer: a new key, a request, and the wait for what becomes of it.
//!
//! Each request has a key of its own, which lives nowhere but in this process. A request that was not granted is not asked again as it was,
//! and none is removed: Kubernetes removes old ones itself, and the manager those of bindings that are gone.

use std::net::IpAddr;
use std::time::Duration;

use kubeocean_api::keys::names::{SERVING_ORGANIZATION, SERVING_SIGNER};
use kubeocean_cluster::apply::Outcome;
use kubeocean_cluster::informer::Informer;
use kubeocean_cluster::store::Shape;
use kubeocean_model::action::kinds;
use kubeocean_model::key::Virtual;
use kubeocean_model::object::Object;
use kubeocean_model::serving::{self, Answer, Asker};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P256_SHA256, SanType};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::sync::watch;

use super::certified::{Certified, Unfit, fraction};
use super::{Parts, Serving, until};

/// A manager that leads approves, and a control plane signs, within seconds. One that is being upgraded takes minutes; after that
/// another request is as good as this one, and tells anew what is wrong.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// The first attempts after a failure are quick, since a proxier without a certificate serves nobody; later ones leave a
/// request every five minutes at most for people to read.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(300));

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
enum NoCertificate {
    #[error("a key or a request cannot be made: {0}")]
    Making(#[from] rcgen::Error),
    #[error(
        "it cannot be asked for: {0}; check that this proxier may create certificatesigningrequests, or use --tls-secret-name"
    )]
    NotAsked(Box<Outcome>),
    #[error("request {name} was refused: {why}; fix that, or use --tls-secret-name")]
    Refused { name: String, why: String },
    #[error("request {name} was removed before it was signed")]
    Gone { name: String },
    #[error("request {name} got no answer within {} minutes: {waiting}", PATIENCE.as_secs() / 60)]
    Unanswered { name: String, waiting: String },
    #[error("what was signed for request {name} is of no use: {why}")]
    Unfit { name: String, why: Unfit },
}

/// What is heard of a request.
struct Heard(Answer);

impl Shape for Heard {
    fn of(object: Object) -> Self {
        Self(serving::answer(&object))
    }
}

/// Asks whenever one is due, for ever.
pub(super) async fn keep(parts: &Parts, serving: &Serving) {
    let mut address = parts.address.clone();
    let mut failures = 0;
    loop {
        let wanted = *address.borrow_and_update();
        if let Some(due) = serving.renew_at(wanted).filter(|due| *due > parts.clock.now()) {
            tokio::select! {
                () = changed(&mut address) => {}
                () = until(&parts.clock, due) => {}
            }
            continue;
        }
        let asked = tokio::select! {
            biased;
            () = changed(&mut address) => continue,
            asked = ask(parts, serving, wanted) => asked,
        };
        match asked {
            Ok(certified) => {
                failures = 0;
                serving.install(certified);
            }
            Err(error) => {
                failures += 1;
                serving.lacks(error.to_string());
                tokio::select! {
                    () = changed(&mut address) => {}
                    () = tokio::time::sleep(delay(failures)) => {}
                }
            }
        }
    }
}

/// Asks once, and waits for the answer.
async fn ask(parts: &Parts, serving: &Serving, address: IpAddr) -> Result<Certified, NoCertificate> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let pem = request(&parts.asker, address)?.serialize_request(&key)?.pem()?;
    let action = serving::ask(&parts.asker, &parts.virtual_cluster_uid, &pem, parts.life.as_secs());
    let outcome = parts.applier.apply(&action).await;
    if !matches!(outcome, Outcome::Done(_) | Outcome::ExistsOurs(_)) {
        return Err(NoCertificate::NotAsked(Box::new(outcome)));
    }
    let name = action.name;
    let chain = signed(parts, serving, &name).await?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let certified = Certified::fit(chain.as_bytes(), key, parts.clock.now());
    let for_us = |certified: Certified| {
        if certified.is_for(address) { Ok(certified) } else { Err(Unfit::Elsewhere(address)) }
    };
    certified.and_then(for_us).map_err(|why| NoCertificate::Unfit { name, why })
}

/// What is asked for: this address, and nothing else.
fn request(asker: &Asker, address: IpAddr) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    let mut subject = DistinguishedName::new();
    subject.push(DnType::OrganizationName, SERVING_ORGANIZATION);
    subject.push(DnType::CommonName, asker.common_name());
    params.distinguished_name = subject;
    params.subject_alt_names = vec![SanType::IpAddress(address.to_canonical())];
    Ok(params)
}

/// Waits until a request is signed.
async fn signed(parts: &Parts, serving: &Serving, name: &str) -> Result<String, NoCertificate> {
    let (news, mut heard) = watch::channel(Some(Answer::Undecided));
    let (informer, _switch) = Informer::<Virtual, Heard>::of(&parts.virt, kinds::SIGNING_REQUEST)
        .fields(format!("metadata.name={name}"))
        .on_change(move |change| {
            news.send_replace(change.new.map(|heard| heard.0.clone()));
        })
        .build();
    let mut waiting = String::new();
    let answered = async {
        loop {
            let answer = heard.borrow_and_update().clone();
            let name = name.to_owned();
            match answer {
                Some(Answer::Signed(chain)) => return Ok(chain),
                Some(Answer::Refused(why)) => return Err(NoCertificate::Refused { name, why }),
                None => return Err(NoCertificate::Gone { name }),
                Some(Answer::Undecided) => {
                    waiting = format!(
                        "request {name} is not approved yet: check that a manager leads, and `kubectl describe csr {name}`"
                    );
                }
                Some(Answer::Unsigned) => {
                    waiting = format!(
                        "request {name} is approved and not signed: check that the control plane signs for \
                         {SERVING_SIGNER}, or use --tls-secret-name"
                    );
                }
            }
            serving.awaits(waiting.clone());
            changed(&mut heard).await;
        }
    };
    let patiently = tokio::time::timeout(PATIENCE, answered);
    let answer = tokio::select! {
        answer = patiently => answer,
        // It does not end.
        () = informer.run() => return Err(NoCertificate::Gone { name: name.to_owned() }),
    };
    answer.unwrap_or_else(|_| Err(NoCertificate::Unanswered { name: name.to_owned(), waiting }))
}

/// Waits for another value; for ever, if nobody is left who could send one.
async fn changed<T>(receiver: &mut watch::Receiver<T>) {
    if receiver.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn delay(failures: u32) -> Duration {
    let (first, most) = ASK_AGAIN;
    let whole = first.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(most);
    whole.mul_f64(1.0 - fraction() / 2.0)
}
