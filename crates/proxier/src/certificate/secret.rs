//! A certificate that somebody else keeps in a Secret.
//!
//! A Secret that is half written, or wrong, changes nothing: the last good certificate stays until a better one comes.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use kubeocean_cluster::informer::Informer;
use kubeocean_cluster::store::Shape;
use kubeocean_model::action::kinds;
use kubeocean_model::key::{Key, Virtual};
use kubeocean_model::object::Object;
use serde_json::Value;
use tokio::sync::watch;

use super::certified::{Certified, Unfit};
use super::{LOOK_AT_THE_CLOCK, Parts, Serving};

/// Whoever keeps the Secret has a week to notice.
const WARN_BEFORE: SignedDuration = SignedDuration::from_hours(7 * 24);

/// How often the end is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(600);

/// The two keys of a Secret, as they came. Without `Debug`.
struct Pair {
    chain: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
}

impl Shape for Pair {
    fn of(object: Object) -> Self {
        let data: Value = object.field("data").ok().flatten().unwrap_or_default();
        let of = |key: &str| data[key].as_str().and_then(|text| STANDARD.decode(text).ok());
        Self { chain: of("tls.crt"), key: of("tls.key") }
    }
}

/// Follows a Secret, for ever.
pub(super) async fn follow(parts: &Parts, serving: &Serving, namespace: &str, name: &str) {
    let (news, mut heard) = watch::channel(());
    let (informer, _switch) = Informer::<Virtual, Pair>::of(&parts.virt, kinds::SECRET)
        .namespace(namespace)
        .fields(format!("metadata.name={name}"))
        .on_change(move |_| {
            news.send_replace(());
        })
        .build();
    let (store, key) = (informer.store(), Key::new(namespace, name));
    let take_in = async {
        store.progress().synced().await;
        let mut last = None;
        loop {
            heard.borrow_and_update();
            let found = store.get(&key);
            let mut is_early = false;
            let version = found.as_ref().map(|pair| pair.resource_version.to_string());
            match found.as_ref().map(|pair| read(pair, parts.clock.now())) {
                // A list repeats what is known.
                _ if last.as_ref() == Some(&version) => {}
                None => serving.lacks(format!(
                    "there is no Secret {namespace}/{name}, or this proxier may not read it: create it with tls.crt and tls.key, or leave --tls-secret-name out"
                )),
                Some(Err(why)) => {
                    serving.lacks(format!("Secret {namespace}/{name}: {why}"));
                    // It becomes good without being changed.
                    is_early = matches!(why, Unfit::Early(_));
                }
                Some(Ok(certified)) => {
                    let address = *parts.address.borrow();
                    if !certified.is_for(address) {
                        tracing::warn!(secret = %key, %address, "the certificate is not for the address of this proxier: API servers will refuse it");
                    }
                    serving.install(certified);
                }
            }
            last = Some(version).filter(|_| !is_early);
            let rest = if is_early { LOOK_AT_THE_CLOCK } else { LOOK_EVERY };
            tokio::select! {
                changed = heard.changed() => if changed.is_err() { std::future::pending::<()>().await },
                () = tokio::time::sleep(rest) => warn_of_end(serving, parts.clock.now(), &key),
            }
        }
    };
    let silence = async {
        // Until it is heard of at all, say what is waited for.
        serving.awaits(format!(
            "Secret {namespace}/{name} was not read yet: check that this proxier may get, list and watch it"
        ));
        informer.run().await;
    };
    tokio::join!(take_in, silence);
}

fn read(pair: &Pair, now: Timestamp) -> Result<Certified, Unfit> {
    let chain = pair.chain.as_deref().ok_or(Unfit::Unreadable)?;
    let key = Certified::key_of(pair.key.as_deref().ok_or(Unfit::UnreadableKey)?)?;
    Certified::fit(chain, key, now)
}

fn warn_of_end(serving: &Serving, now: Timestamp, secret: &Key<Virtual>) {
    if let Some(ends) = serving.ends().filter(|ends| ends.duration_since(now) < WARN_BEFORE) {
        tracing::warn!(%secret, %ends, "the serving certificate ends soon: renew it in its Secret");
    }
}
