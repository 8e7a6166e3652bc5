//! Approving the serving certificates of proxiers.
//!
//! A request is judged on what the API server says of who asks, and on the bindings and pods that are known here. What is approved
//! does not come back, and a store may be two minutes behind: before an approval the API server itself is asked whether the binding is
//! still there, and the pod that asks still has its addresses.
//!
//! Deliberately absent: what is right, which is [`serving`](kubeocean_model::serving)'s.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use kubeocean_api::keys::names::{PROXIER_PREFIX, SERVING_SIGNER};
use kubeocean_cluster::client::Cluster;
use kubeocean_cluster::error::CallError;
use kubeocean_cluster::events::{Recorder, Subject};
use kubeocean_cluster::informer::Informer;
use kubeocean_cluster::queue::{Queue, Verdict};
use kubeocean_cluster::reconcile::Reconciler;
use kubeocean_cluster::store::{Index, Shape, Store};
use kubeocean_model::action::kinds;
use kubeocean_model::bind::Telling;
use kubeocean_model::key::{Key, Virtual};
use kubeocean_model::object::Object;
use kubeocean_model::serving::{self, AskingPod, Grounds, Own, Request, cluster_id_of};
use parking_lot::{Mutex, RwLock};
use serde_json::json;

use crate::world::{Watching, World};

/// A request that waits is looked at again when a pod or a binding changes; and now and then, should that have been missed.
const AGAIN: Duration = Duration::from_secs(30);

/// A request, as it is kept.
#[derive(Debug)]
pub struct SeenRequest(pub Request);

impl Shape for SeenRequest {
    fn of(object: Object) -> Self {
        Self(Request::read(&object))
    }
}

/// A pod of the install namespace, as it is kept.
#[derive(Debug)]
pub struct SeenPod(pub AskingPod);

impl Shape for SeenPod {
    fn of(object: Object) -> Self {
        Self(AskingPod::read(&object))
    }
}

static BY_ACCOUNT: Index<SeenPod> = Index::new("account", |seen| vec![seen.0.account.clone()]);

/// The requests and pods that are known. Clones are the same.
#[derive(Clone)]
pub struct Asked {
    /// Requests to the signer of kubelets, from whoever may be ours.
    pub requests: Store<Virtual, SeenRequest>,
    /// Pods of proxiers.
    pub pods: Store<Virtual, SeenPod>,
    /// Who this process is, where it asks for itself.
    own: Arc<RwLock<Option<Own>>>,
}

impl Asked {
    /// The stores, and the loops that keep them current.
    pub fn watch(
        virt: &Cluster<Virtual>,
        namespace: &str,
        queue: &Queue<Key<Virtual>>,
    ) -> (Self, Vec<Watching>) {
        // A big cluster has thousands of requests of its own kubelets. Those of other users are not even kept: of service accounts, only
        // proxiers of this namespace ask here; others may be this process itself, whoever that is.
        let installed = namespace.to_owned();
        let may_be_ours = move |object: &Object| {
            let user = object.text("spec", &["username"]).unwrap_or_default();
            cluster_id_of(&user, &installed).is_some() || !user.starts_with("system:node:")
        };
        let news = queue.clone();
        let (informer, _switch) = Informer::<Virtual, SeenRequest>::of(virt, kinds::SIGNING_REQUEST)
            .fields(format!("spec.signerName={SERVING_SIGNER}"))
            .keep(may_be_ours)
            .on_change(move |change| {
                if change.new.is_some_and(|seen| !seen.0.is_decided()) {
                    news.add(change.key.clone());
                }
            })
            .build();
        let requests = informer.store();
        let mut loops = vec![("requests".to_owned(), Box::pin(informer.run()) as BoxFuture<'static, ()>)];
        let (waiting, news) = (requests.clone(), queue.clone());
        let (informer, _switch) = Informer::<Virtual, SeenPod>::of(virt, kinds::POD)
            .namespace(namespace)
            .keep(|object| {
                let account = object.text("spec", &["serviceAccountName"]);
                account.is_some_and(|account| account.starts_with(PROXIER_PREFIX))
            })
            .indexed_by(&BY_ACCOUNT)
            .on_change(move |_| wake(&waiting, &news))
            .build();
        let pods = informer.store();
        loops.push(("proxier pods".to_owned(), Box::pin(informer.run())));
        (Self { requests, pods, own: Arc::default() }, loops)
    }

    /// Has every request that waits looked at again.
    pub fn wake(&self, queue: &Queue<Key<Virtual>>) {
        wake(&self.requests, queue);
    }
}

fn wake(requests: &Store<Virtual, SeenRequest>, queue: &Queue<Key<Virtual>>) {
    for (key, seen) in requests.all() {
        if !seen.0.is_decided() {
            queue.add(key);
        }
    }
}

/// Whether nothing becomes known by asking again: we may not ask, or nobody answers such questions. A server that is starting, or has too much to do, will.
fn is_final(error: &CallError) -> bool {
    error.status().is_some_and(|status| matches!(status.code, 401 | 403 | 404 | 405))
}

/// Who approves.
pub(crate) struct Approver {
    pub(crate) virt: Cluster<Virtual>,
    pub(crate) world: World,
    pub(crate) asked: Asked,
    pub(crate) namespace: String,
    pub(crate) reconciler: Reconciler<Key<Virtual>>,
    pub(crate) recorder: Recorder,
    /// Where this process is reached, where it runs proxiers itself.
    pub(crate) advertised: RwLock<Option<IpAddr>>,
    /// What was last said of each request that waits, by uid: once is enough.
    pub(crate) told: Mutex<std::collections::BTreeMap<String, String>>,
}

impl Approver {
    /// Finds out who this process is, where it asks for itself: asked until it is known.
    pub(crate) async fn introduce(&self) {
        let Some(address) = *self.advertised.read() else { return };
        let review =
            json!({"apiVersion": kinds::SELF_REVIEW.api_version(), "kind": &*kinds::SELF_REVIEW.kind});
        loop {
            match self.virt.review(&kinds::SELF_REVIEW, &review).await {
                Ok(answer) => {
                    let user =
                        answer["status"]["userInfo"]["username"].as_str().filter(|user| !user.is_empty());
                    *self.asked.own.write() = user.map(|user| Own { user: user.to_owned(), address });
                    return;
                }
                Err(error) if is_final(&error) => {
                    tracing::warn!(%error, "the computing cluster does not say who we are: our own serving certificate is not approved");
                    return;
                }
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
        }
    }

    /// One look at one request.
    pub(crate) async fn look(&self, key: &Key<Virtual>) -> Verdict {
        if !self.reconciler.fences.is_open(key) {
            return Verdict::Blocked;
        }
        let Some(seen) = self.asked.requests.get(key) else {
            self.forget();
            return Verdict::Done;
        };
        let known = |account: &str| {
            self.asked.pods.by(&BY_ACCOUNT, account).iter().map(|pod| pod.0.clone()).collect::<Vec<_>>()
        };
        let mut verdict = self.judge(&seen.0, &|id| self.world.is_bound(id), &known);
        if verdict == serving::Verdict::Approved {
            let user = seen.0.username();
            let (Ok(is_bound), Ok(fresh)) = (self.is_bound_now(user).await, self.pods_now(user).await) else {
                return Verdict::Failed("virtual-unreachable");
            };
            verdict = self.judge(&seen.0, &|_| is_bound, &|_| fresh.clone());
        }
        let subject = Subject::of(kinds::SIGNING_REQUEST, &seen.0.meta);
        let Some(action) = serving::decide(&seen.0, &verdict) else {
            return match serving::tell(&verdict) {
                None => Verdict::Done,
                Some(telling) => {
                    self.tell_once(&subject, telling);
                    Verdict::Again(AGAIN)
                }
            };
        };
        let outcome = self.reconciler.write(key, &action).await;
        if !outcome.fulfils(&action) {
            return outcome.verdict();
        }
        if let Some(telling) = serving::tell(&verdict) {
            tracing::info!(request = %key, user = seen.0.username(), reason = telling.reason, "{}", telling.message);
            self.recorder.tell_all(&subject, &[telling]);
        }
        Verdict::Done
    }

    fn judge(
        &self,
        request: &Request,
        is_bound: &dyn Fn(&str) -> bool,
        pods_of: &dyn Fn(&str) -> Vec<AskingPod>,
    ) -> serving::Verdict {
        let own = self.asked.own.read().clone();
        let grounds = Grounds { namespace: &self.namespace, is_bound, pods_of, own: own.as_ref() };
        serving::judge(request, &grounds)
    }

    /// Whether the binding of a proxier is there, as the API server knows it now. Who asks for himself has none.
    async fn is_bound_now(&self, user: &str) -> Result<bool, CallError> {
        let Some(id) = cluster_id_of(user, &self.namespace) else { return Ok(true) };
        for key in self.world.bound_as(id) {
            let found = self.virt.get(&kinds::BINDING, &key).await?;
            if found.is_some_and(|found| found.text("spec", &["clusterID"]).as_deref() == Some(id)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The pods of a proxier, as the API server knows them now.
    async fn pods_now(&self, user: &str) -> Result<Vec<AskingPod>, CallError> {
        let Some(id) = cluster_id_of(user, &self.namespace) else { return Ok(Vec::new()) };
        let fields = format!("spec.serviceAccountName={PROXIER_PREFIX}{id}");
        let all = self.virt.list_by_fields(&kinds::POD, Some(&self.namespace), &fields).await?;
        Ok(all.iter().map(AskingPod::read).collect())
    }

    fn tell_once(&self, subject: &Subject, telling: Telling) {
        let before = self.told.lock().insert(subject.uid.clone(), telling.message.clone());
        if before.as_ref() == Some(&telling.message) {
            return;
        }
        tracing::info!(request = subject.name, reason = telling.reason, "{}", telling.message);
        self.recorder.tell_all(subject, &[telling]);
    }

    /// What was said of requests that are gone.
    fn forget(&self) {
        let living: std::collections::BTreeSet<_> =
            self.asked.requests.all().iter().map(|(_, seen)| seen.uid.to_string()).collect();
        self.told.lock().retain(|uid, _| living.contains(uid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_busy_or_starting_is_asked_again_who_we_are() {
        let refused = |code: u16| CallError::Refused(serde_json::from_value(json!({"code": code})).unwrap());
        for code in [401, 403, 404, 405] {
            assert!(is_final(&refused(code)), "{code}");
        }
        for code in [408, 409, 429, 500, 502, 503, 504] {
            assert!(!is_final(&refused(code)), "{code}");
        }
        assert!(!is_final(&CallError::TimedOut { limit: AGAIN }));
    }
}
