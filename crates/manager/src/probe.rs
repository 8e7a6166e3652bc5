//! Looking at worker clusters, all the time.
//!
//! One look per binding: is its Secret there, can the kubeconfig be used, does the server answer, is it the one that was
//! bound, may we do what we need? What it found is kept as a [`Finding`], and the binding is planned again when that
//! changes. A good worker cluster is looked at every few seconds with one small question, and wholly every few minutes.
//!
//! A kubeconfig that is no good replaces nothing: the last good connection stays.
//!
//! Deliberately absent: what a finding means for the binding.

mod questions;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use kubeocean_api::keys::labels::BINDING_UID;
use kubeocean_cluster::client::{Cluster, LONGEST_PAGE, Settings};
use kubeocean_cluster::credentials::{CredentialError, Credentials, kubeconfig_of};
use kubeocean_cluster::error::CallError;
use kubeocean_cluster::metrics::Metrics;
use kubeocean_cluster::queue::Verdict;
use kubeocean_model::action::{Kind, kinds};
use kubeocean_model::bind::{BindingObject, Finding, MANAGER, Remains, Worker};
use kubeocean_model::binding::Binding;
use kubeocean_model::key::{Key, Physical, Virtual};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::world::{Queues, World};

pub use questions::missing;
use questions::{ask_all, identity, in_time};

/// How soon people hear of a lost worker cluster, at one question each: 200 of them cost 20 small reads a second, spread
/// over 200 servers.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Rights and the number of nodes seldom change; asking for all of them is some sixty questions.
const ASK_ALL_EVERY: Duration = Duration::from_secs(300);

/// A first failure may be a lost packet or a restart. It is told when it happens again.
const TELL_AFTER: u32 = 2;

/// How soon it is looked at again after a first failure.
const AGAIN_SOON: Duration = Duration::from_secs(2);

/// How often a worker cluster is looked at that was good and is lost.
const LOST_LOOK_EVERY: Duration = Duration::from_secs(30);

/// What never worked is looked at again after a second, and at last every five minutes.
pub(crate) const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// Longest time to a first answer.
const CONNECT_WITHIN: Duration = Duration::from_secs(30);

/// Longest time to all answers: some seventy questions, two at a time.
const ANSWER_WITHIN: Duration = Duration::from_secs(120);

/// Worker clusters that are asked for everything at a time: two hundred of them at once would cost more memory than all
/// that is known of them.
const WHOLE_LOOKS: usize = 12;

/// Who has not answered after so long leaves its place to another one, and is waited for without one: slow worker clusters must
/// not keep others waiting. (Those who wait are not let in without a place: they are many, and would come all at once.)
const PATIENCE: Duration = Duration::from_secs(5);

/// A namespace, a review, the kinds of an API group, one node, or the metadata of fifty objects: the longest of them has a tenth of it.
/// Whoever lends a worker cluster must not fill the manager's memory, which has 256 MiB.
const LONGEST_ANSWER: usize = 1 << 20;

/// What syncers make in worker clusters.
const LEFT: [Kind; 7] = [
    kinds::POD,
    kinds::CONFIG_MAP,
    kinds::SECRET,
    kinds::CLAIM,
    kinds::SERVICE,
    kinds::ENDPOINT_SLICE,
    kinds::VOLUME,
];

/// Where a kubeconfig leads.
pub struct Route {
    /// The connection, not dialled yet.
    pub client: kube::Client,
    /// What it was made of, where kubelets are to be asked, too.
    pub credentials: Option<Arc<Credentials>>,
    /// The address, for people.
    pub server: String,
}

/// Makes a connection of a kubeconfig.
pub type Connect = Arc<dyn Fn(Vec<u8>) -> BoxFuture<'static, Result<Route, CredentialError>> + Send + Sync>;

/// As kubeconfigs are used outside of simulations. `brief`: nobody else uses the connections, and they are closed after each
/// look.
pub fn connect(brief: bool) -> Connect {
    Arc::new(move |kubeconfig| {
        Box::pin(async move {
            let credentials = Credentials::from_kubeconfig(&kubeconfig).await?;
            let server = credentials.server();
            let kept = (!brief).then(|| Arc::new(credentials.clone()));
            let client = if brief { credentials.brief_client()? } else { credentials.client()? };
            Ok(Route { client, credentials: kept, server })
        })
    })
}

/// Looks at the worker clusters of all bindings. Clones are the same.
#[derive(Clone)]
pub struct Prober {
    virt: Cluster<Virtual>,
    world: World,
    queues: Queues,
    connect: Connect,
    metrics: Metrics,
    seed: Option<u64>,
    namespace: String,
    lines: Arc<Mutex<BTreeMap<String, Line>>>,
    /// The uids of those of whom what is left is to be counted: nobody works there any more.
    counting: Arc<Mutex<BTreeSet<String>>>,
    whole_looks: Arc<Semaphore>,
}

/// What is known of one worker cluster.
#[derive(Clone)]
struct Line {
    name: String,
    finding: Finding,
    remains: Remains,
    /// Whether what was found is of a kubeconfig that did not replace the connection.
    kept: bool,
    /// The connection, as good as it ever was.
    cluster: Option<Cluster<Physical>>,
    server: String,
    /// The version of the Secret that the connection was made of.
    made_of: String,
    asked_all: Option<Instant>,
    /// The generation of the binding that it was asked for.
    asked_for: i64,
    /// For which generation of the binding failures are counted.
    tried_for: i64,
    failures: u32,
}

impl Prober {
    /// Knows nothing yet. `seed`: for simulations.
    pub fn new(
        virt: &Cluster<Virtual>,
        world: &World,
        queues: &Queues,
        connect: Connect,
        metrics: &Metrics,
        namespace: &str,
        seed: Option<u64>,
    ) -> Self {
        Self {
            virt: virt.clone(),
            world: world.clone(),
            queues: queues.clone(),
            connect,
            metrics: metrics.clone(),
            seed,
            namespace: namespace.to_owned(),
            lines: Arc::default(),
            counting: Arc::default(),
            whole_looks: Arc::new(Semaphore::new(WHOLE_LOOKS)),
        }
    }

    /// What is known of a binding's worker cluster. Who is bound is bound for good: the first time, to what was found for what the binding says
    /// now, and not for what it said before someone repaired it.
    pub fn finding(&self, object: &BindingObject) -> Finding {
        let lines = self.lines.lock();
        let Some(line) = lines.get(&*object.meta.uid) else { return Finding::NotYet };
        let is_old = object.bound_to().is_none() && line.asked_for != object.meta.generation;
        if is_old && matches!(line.finding, Finding::Good(_)) {
            return Finding::NotYet;
        }
        line.finding.clone()
    }

    /// What there is of a binding in its worker cluster, where that was asked for.
    pub fn remains(&self, uid: &str) -> Remains {
        self.lines.lock().get(uid).map_or(Remains::NotAsked, |line| line.remains.clone())
    }

    /// Nothing is known any more, but how to reach them.
    pub fn look_anew(&self) {
        for line in self.lines.lock().values_mut() {
            line.finding = Finding::NotYet;
            line.asked_all = None;
            line.failures = 0;
        }
    }

    /// Has what is left in a worker cluster counted: to be asked for when nobody clears up there any more.
    pub fn count_soon(&self, object: &BindingObject) {
        // It is tried until it is done. To ask for another look would cut short the one that is under way.
        if self.counting.lock().insert(object.meta.uid.to_string()) {
            self.queues.probes.reset(object.key());
        }
    }

    /// Whether a kubeconfig that is no good has left the connection as it was.
    pub fn kept(&self, uid: &str) -> bool {
        self.lines.lock().get(uid).is_some_and(|line| line.kept)
    }

    /// The last good connection, for who works there: informers ask for more at a time than looks do.
    pub fn cluster(&self, uid: &str) -> Option<Cluster<Physical>> {
        let lines = self.lines.lock();
        Some(lines.get(uid)?.cluster.as_ref()?.with_longest_answer(LONGEST_PAGE))
    }

    /// One look at the worker cluster of a binding.
    pub async fn look(&self, key: &Key<Virtual>) -> Verdict {
        let Some(seen) = self.world.bindings.get(key) else {
            self.forget(key);
            return Verdict::Done;
        };
        let object = &seen.0;
        let Ok(binding) = &object.parsed else { return Verdict::Done };
        if self.world.rival(object).is_some() {
            return Verdict::Done;
        }
        self.forget(key);
        let uid = object.meta.uid.to_string();
        let mut line = self.lines.lock().get(&uid).cloned().unwrap_or_else(|| Line::of(&binding.name));
        let verdict = tokio::select! {
            biased;
            // A server that does not answer is not waited for when there is another one to ask.
            () = self.queues.probes.overtaken(key) => return Verdict::Done,
            verdict = self.examine(object, binding, &mut line) => verdict,
        };
        if line.remains == Remains::NotAsked && self.counting.lock().contains(&uid) {
            let counting = tokio::time::timeout(ANSWER_WITHIN, self.count_remains(binding, &line));
            line.remains = counting.await.unwrap_or_else(|_| {
                Remains::Unknown(format!("it was not counted within {} s", ANSWER_WITHIN.as_secs()))
            });
        }
        let changed = {
            let mut lines = self.lines.lock();
            let told = |line: &Line| (line.finding.clone(), line.kept, line.remains.clone(), line.asked_for);
            let changed = lines.get(&uid).map(told) != Some(told(&line));
            lines.insert(uid, line);
            changed
        };
        if changed {
            self.queues.bindings.reset(key.clone());
        }
        verdict
    }

    /// Those of bindings that are gone.
    fn forget(&self, key: &Key<Virtual>) {
        let mut lines = self.lines.lock();
        lines.retain(|uid, line| *line.name != *key.name || self.world.by_uid(uid).is_some());
        drop(lines);
        self.counting.lock().retain(|uid| self.world.by_uid(uid).is_some());
    }

    async fn examine(&self, object: &BindingObject, binding: &Binding, line: &mut Line) -> Verdict {
        let secret = Key::new(binding.secret_namespace.as_str(), binding.secret_name.as_str());
        let watched = binding.secret_namespace == self.namespace;
        if watched && line.cluster.is_some() {
            let version = self.world.secrets.get(&secret).map(|seen| seen.resource_version.to_string());
            if version.as_deref() == Some(&line.made_of) {
                return self.look_again(object, binding, line).await;
            }
        }
        let found = match self.virt.get(&kinds::SECRET, &secret).await {
            Ok(Some(found)) => found,
            Ok(None) => return line.refuse(Finding::NoSecret),
            Err(CallError::Refused(status)) if status.code == 403 => {
                return line.refuse(Finding::SecretForbidden(status.message.clone()));
            }
            // V is in trouble, not the worker cluster: what is known stays.
            Err(_) => return Verdict::Failed("virtual-unreachable"),
        };
        if line.cluster.is_some() && *found.meta.resource_version == *line.made_of {
            return self.look_again(object, binding, line).await;
        }
        let Some(kubeconfig) = kubeconfig_of(&found) else {
            return line.refuse(Finding::NoKubeconfigKey);
        };
        let route = match (self.connect)(kubeconfig).await {
            Ok(route) => route,
            Err(error) => return line.refuse(Finding::BadKubeconfig(error.to_string())),
        };
        let made_of = found.meta.resource_version.to_string();
        match line.cluster.clone() {
            Some(cluster) => self.rotate(object, binding, line, &cluster, route, made_of).await,
            None => self.connect_first(object, binding, line, route, made_of).await,
        }
    }

    /// A first look at a worker cluster: everything has to be true of it.
    async fn connect_first(
        &self,
        object: &BindingObject,
        binding: &Binding,
        line: &mut Line,
        route: Route,
        made_of: String,
    ) -> Verdict {
        let candidate = self.cluster_over(route.client);
        if let Some(credentials) = &route.credentials {
            candidate.begin_with(credentials);
        }
        let finding = match self.ask_in_time(&candidate, &route.server, binding).await {
            Finding::Good(worker) => match self.is_ours(&worker.uid, &binding.mount_namespace).await {
                Ok(true) => leads_home(),
                Ok(false) => Finding::Good(worker),
                Err(verdict) => return verdict,
            },
            finding => finding,
        };
        let good = match &finding {
            Finding::Good(worker) => object.recognises(&worker.uid).is_ok(),
            _ => false,
        };
        if !good {
            // It is tried again with the same Secret: the server may come, or the rights.
            // It worked for another process, or for this one in an earlier life.
            let worked = object.bound_to().is_some() && finding.is_trouble();
            return if worked { line.lose(finding) } else { line.refuse(finding) };
        }
        line.cluster = Some(candidate);
        line.server = route.server;
        line.made_of = made_of;
        line.find(finding);
        line.asked_all = Some(Instant::now());
        line.asked_for = object.meta.generation;
        Verdict::Again(LOOK_EVERY)
    }

    /// A kubeconfig that was replaced. Its connection is used as soon as it is known to lead to the same cluster: to ask for all
    /// rights first, over a long way, would take longer than the old one may live. What leads nowhere, or elsewhere, replaces nothing.
    async fn rotate(
        &self,
        object: &BindingObject,
        binding: &Binding,
        line: &mut Line,
        cluster: &Cluster<Physical>,
        route: Route,
        made_of: String,
    ) -> Verdict {
        let candidate = self.cluster_over(route.client.clone());
        let found =
            in_time(CONNECT_WITHIN, &route.server, identity(&candidate, &route.server, binding)).await;
        let home = match &found {
            Ok(uid) => match self.is_ours(uid, &binding.mount_namespace).await {
                Ok(home) => home,
                Err(verdict) => return verdict,
            },
            Err(_) => false,
        };
        let refused = match found {
            Err(finding) => finding,
            Ok(_) if home => leads_home(),
            // If it is accepted later, it is known what it is.
            Ok(uid) if object.recognises(&uid).is_err() => {
                self.ask_in_time(&candidate, &route.server, binding).await
            }
            Ok(_) => {
                cluster.replace_by(&route.client, route.credentials.as_ref());
                line.server = route.server;
                line.made_of = made_of;
                line.asked_all = None;
                line.failures = 0;
                // Also if this look is cut short: what is in use is known by where it comes from.
                self.lines.lock().insert(binding.uid.clone(), line.clone());
                return self.look_again(object, binding, line).await;
            }
        };
        line.refuse(refused)
    }

    /// A look over the connection that there is.
    async fn look_again(&self, object: &BindingObject, binding: &Binding, line: &mut Line) -> Verdict {
        let Some(cluster) = line.cluster.clone() else { return Verdict::Done };
        if std::mem::replace(&mut line.tried_for, object.meta.generation) != object.meta.generation {
            // Who has just changed something waits for what comes of it.
            line.failures = 0;
        }
        let due = line.asked_all.is_none_or(|at| at.elapsed() >= ASK_ALL_EVERY);
        // Who edits a binding wants to know whether all is well with it now.
        let all = line.finding.is_trouble() || due || line.asked_for != object.meta.generation;
        let finding = if all {
            self.ask_in_time(&cluster, &line.server, binding).await
        } else {
            let asked = in_time(LOOK_EVERY, &line.server, identity(&cluster, &line.server, binding)).await;
            match (asked, &line.finding) {
                (Ok(uid), Finding::Good(worker)) => Finding::Good(Worker { uid, ..worker.clone() }),
                (Ok(_), known) => known.clone(),
                (Err(finding), _) => finding,
            }
        };
        if finding.is_trouble() {
            return line.lose(finding);
        }
        if let Finding::Good(worker) = &finding
            && all
            && object.recognises(&worker.uid).is_ok()
        {
            line.asked_all = Some(Instant::now());
            line.asked_for = object.meta.generation;
        }
        line.find(finding);
        Verdict::Again(LOOK_EVERY)
    }

    /// Everything, in its turn, and within its time.
    async fn ask_in_time(&self, cluster: &Cluster<Physical>, server: &str, binding: &Binding) -> Finding {
        let place = self.whole_looks.acquire().await.ok();
        let mut asking = std::pin::pin!(async {
            let uid = in_time(CONNECT_WITHIN, server, identity(cluster, server, binding)).await?;
            in_time(ANSWER_WITHIN, server, ask_all(cluster, server, binding, uid)).await
        });
        let asked = if let Ok(asked) = tokio::time::timeout(PATIENCE, &mut asking).await {
            asked
        } else {
            drop(place);
            asking.await
        };
        asked.unwrap_or_else(|finding| finding)
    }

    /// A kubeconfig may lead to the computing cluster itself, whose virtual nodes would then be leased to itself. Where that cannot be
    /// known, nothing that was found is kept: V is in trouble, not the worker cluster.
    async fn is_ours(&self, uid: &str, namespace: &str) -> Result<bool, Verdict> {
        match self.virt.get(&kinds::NAMESPACE, &Key::cluster_scoped(namespace)).await {
            Ok(own) => Ok(own.is_some_and(|own| *own.meta.uid == *uid)),
            Err(_) => Err(Verdict::Failed("virtual-unreachable")),
        }
    }

    fn cluster_over(&self, client: kube::Client) -> Cluster<Physical> {
        // One name for all: two hundred worker clusters with a hundred series each are more than anyone scrapes.
        let mut settings = Settings::new("workers", MANAGER, &self.metrics);
        settings.deadline = CONNECT_WITHIN;
        settings.longest_answer = LONGEST_ANSWER;
        if let Some(seed) = self.seed {
            settings.seed = seed;
        }
        Cluster::over(client, settings)
    }

    async fn count_remains(&self, binding: &Binding, line: &Line) -> Remains {
        let Some(cluster) = &line.cluster else { return unreached(&line.finding, binding) };
        let mut counts = Vec::new();
        for kind in LEFT {
            let labels = format!("{BINDING_UID}={}", binding.uid);
            let namespace = kind.namespaced.then_some(&*binding.mount_namespace);
            match cluster.how_many_labelled(&kind, namespace, &labels).await {
                Ok(count) => counts.push((kind.plural.to_string(), count)),
                // The verbs on volumes are the lender's to give or not. Who has none of them has made no volume.
                Err(CallError::Refused(status)) if status.code == 403 && kind == kinds::VOLUME => {}
                Err(error) => return Remains::Unknown(error.to_string()),
            }
        }
        Remains::Counted(counts)
    }
}

impl Line {
    fn of(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            finding: Finding::NotYet,
            remains: Remains::NotAsked,
            kept: false,
            cluster: None,
            server: String::new(),
            made_of: String::new(),
            asked_all: None,
            asked_for: 0,
            tried_for: 0,
            failures: 0,
        }
    }

    /// It is well.
    fn find(&mut self, finding: Finding) {
        self.finding = finding;
        self.kept = false;
        self.failures = 0;
    }

    /// What was good is in trouble. Someone waits for it to come back: it is looked at more often than what never worked.
    fn lose(&mut self, finding: Finding) -> Verdict {
        self.failures = self.failures.saturating_add(1);
        if !self.finding.is_trouble() && self.failures < TELL_AFTER {
            return Verdict::Again(AGAIN_SOON);
        }
        let passes = matches!(finding, Finding::Unreachable { .. });
        let most = if passes { LOST_LOOK_EVERY } else { RETRY.1 };
        self.finding = finding;
        self.kept = false;
        self.asked_all = None;
        Verdict::Again(self.pause(most))
    }

    /// How long to wait after so many failures.
    fn pause(&self, most: Duration) -> Duration {
        (AGAIN_SOON * 2_u32.saturating_pow(self.failures.min(8))).min(most)
    }

    /// A kubeconfig is no good. What there is stays.
    fn refuse(&mut self, finding: Finding) -> Verdict {
        let word = word(&finding);
        let passes = matches!(finding, Finding::Unreachable { .. });
        self.finding = finding;
        self.kept = self.cluster.is_some();
        if self.kept && passes {
            // It was good, and may be away for a moment, whatever the Secret says.
            self.failures = self.failures.saturating_add(1);
            return Verdict::Again(self.pause(LOST_LOOK_EVERY));
        }
        Verdict::Failed(word)
    }
}

/// What can be said of what is left in a worker cluster that this process never reached.
fn unreached(finding: &Finding, binding: &Binding) -> Remains {
    match finding {
        // It has not come to look, since V is in trouble or has just been: that says nothing about the worker cluster.
        Finding::NotYet => Remains::NotAsked,
        Finding::Good(_) => Remains::Unknown("the kubeconfig leads to another cluster".to_owned()),
        finding => {
            let cause = finding.trouble(binding).map(|trouble| trouble.message);
            Remains::Unknown(cause.unwrap_or_default())
        }
    }
}

fn leads_home() -> Finding {
    let words = "the kubeconfig leads to the computing cluster itself: store that of a worker cluster";
    Finding::BadKubeconfig(words.to_owned())
}

fn word(finding: &Finding) -> &'static str {
    match finding {
        Finding::NotYet => "not-yet",
        Finding::NoSecret => "no-secret",
        Finding::SecretForbidden(_) => "secret-forbidden",
        Finding::NoKubeconfigKey => "no-kubeconfig-key",
        Finding::BadKubeconfig(_) => "bad-kubeconfig",
        Finding::Unreachable { .. } => "worker-unreachable",
        Finding::Unauthorized { .. } => "worker-unauthorized",
        Finding::MountNamespaceMissing | Finding::MountNamespaceEnds => "mount-namespace-missing",
        Finding::Denied { .. } => "worker-denied",
        Finding::Good(_) => "worker-changed",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_nobody_came_to_ask_is_not_said_to_be_unknown() {
        let object = json!({
            "apiVersion": kinds::BINDING.api_version(), "kind": "ClusterBinding", "metadata": {"name": "w1", "uid": "b-1"},
            "spec": {"clusterID": "c1", "mountNamespace": "mount", "secretRef": {"name": "s", "namespace": "n"}},
        });
        let binding = Binding::parse(&serde_json::from_value(object).unwrap()).unwrap();
        assert_eq!(unreached(&Finding::NotYet, &binding), Remains::NotAsked, "it is asked again");
        let Remains::Unknown(cause) = unreached(&Finding::NoSecret, &binding) else {
            panic!("it cannot be asked")
        };
        assert!(cause.contains("Secret n/s does not exist"), "{cause}");
    }
}
