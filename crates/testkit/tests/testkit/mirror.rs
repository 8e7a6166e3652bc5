//! The sample controller: mirrors `ConfigMap`s that ask for it from V into one namespace of P.
//!
//! A copy has a name that follows from the original's, and a stamp: whose it is, and which uid it stands for.
//! What has no whole stamp is not ours. A copy is repaired when it drifts, and removed when its original goes,
//! is another one of that name, or no longer asks.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use kubeocean_cluster::apply::Applier;
use kubeocean_cluster::client::Cluster;
use kubeocean_cluster::clock::Clock;
use kubeocean_cluster::fence::Fences;
use kubeocean_cluster::informer::Informer;
use kubeocean_cluster::metrics::Metrics;
use kubeocean_cluster::queue::{Queue, Retry};
use kubeocean_cluster::reconcile::{Plan, Reconciler};
use kubeocean_cluster::store::{Entry, Index, Store};
use kubeocean_model::action::kinds::CONFIG_MAP;
use kubeocean_model::action::{Action, Dependents, Mark, PatchForm, Verb};
use kubeocean_model::key::{Key, Physical, Virtual};
use kubeocean_model::object::Object;
use serde_json::{Map, Value, json};

pub(crate) const ACTOR: &str = "mirror";
pub(crate) const WANTED: &str = "mirror=yes";
pub(crate) const BY: &str = "mirror.example/by";
pub(crate) const OF: &str = "mirror.example/of";
pub(crate) const UID: &str = "mirror.example/uid";
pub(crate) const NAMESPACE: &str = "mirrored";

pub(crate) static BY_ORIGINAL: Index<Object> =
    Index::new("original", |copy| copy.meta.annotations.get(OF).map(str::to_owned).into_iter().collect());

/// What a controller is given when it starts.
pub(crate) struct Wiring {
    pub(crate) virt: Cluster<Virtual>,
    pub(crate) phys: Cluster<Physical>,
    /// The same two clusters, for controllers that think they know better.
    pub(crate) raw: [kube::Client; 2],
    pub(crate) clock: Clock,
    pub(crate) seed: u64,
    pub(crate) metrics: Metrics,
}

pub(crate) type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What plans are made on.
#[derive(Clone)]
pub(crate) struct Stores {
    pub(crate) originals: Store<Virtual, Object>,
    pub(crate) copies: Store<Physical, Object>,
}

pub(crate) type Planner = fn(&Stores, &Key<Virtual>) -> Plan;

/// The sample.
pub(crate) fn mirror(wiring: Wiring) -> Running {
    mirror_by(wiring, plan, true)
}

/// The same loop around any planner, with its stores fenced or not.
pub(crate) fn mirror_by(wiring: Wiring, plan: Planner, with_fences: bool) -> Running {
    let Wiring { virt, phys, clock, seed, metrics, .. } = wiring;
    let queue = Queue::new("mirror", Retry { seed, ..Retry::default() }, &metrics);
    let (news, other_news) = (queue.clone(), queue.clone());
    let (originals, _switch) = Informer::<Virtual, Object>::of(&virt, CONFIG_MAP)
        .labels(WANTED)
        .on_change(move |change| news.add(change.key.clone()))
        .build();
    let (copies, _other_switch) = Informer::<Physical, Object>::of(&phys, CONFIG_MAP)
        .namespace(NAMESPACE)
        .labels(format!("{BY}={ACTOR}"))
        .indexed_by(&BY_ORIGINAL)
        .on_change(move |change| {
            for copy in change.old.into_iter().chain(change.new) {
                if let Some(key) = copy.meta.annotations.get(OF).and_then(original_of) {
                    other_news.add(key);
                }
            }
        })
        .build();
    let stores = Stores { originals: originals.store(), copies: copies.store() };
    let mut applier = Applier::new(ACTOR).virtually(&virt).physically(&phys);
    let fences = Fences::new();
    if with_fences {
        applier = applier.following(CONFIG_MAP, &stores.originals).following(CONFIG_MAP, &stores.copies);
        fences.open_into(&queue, stores.originals.progress());
        fences.open_into(&queue, stores.copies.progress());
    }
    let reconciler = Reconciler { queue, applier, fences, clock };
    Box::pin(async move {
        let work = async {
            stores.originals.progress().synced().await;
            stores.copies.progress().synced().await;
            reconciler.run(4, |key, _| plan(&stores, key)).await;
        };
        tokio::join!(originals.run(), copies.run(), work);
    })
}

pub(crate) fn plan(stores: &Stores, key: &Key<Virtual>) -> Plan {
    let original = stores.originals.get(key).filter(|original| !original.meta.is_deleting());
    let claimed = stores.copies.by(&BY_ORIGINAL, &key.to_string());
    let serves = |copy: &Entry<Object>| {
        original.as_ref().is_some_and(|original| copy.meta.annotations.get(UID) == Some(&original.uid))
            && *copy.meta.name == *copy_name(key)
    };
    let (mine, strays): (Vec<_>, Vec<_>) = claimed
        .into_iter()
        .filter(|copy| copy.meta.annotations.get(UID).is_some())
        .partition(|copy| serves(copy));
    let mut actions: Vec<Action> =
        strays.iter().filter(|stray| !stray.meta.is_deleting()).map(|stray| remove(stray)).collect();
    match (original, mine.first()) {
        (Some(original), Some(copy)) if !copy.meta.is_deleting() => actions.extend(repair(&original, copy)),
        (Some(original), None) if strays.is_empty() => actions.push(create(key, &original)),
        _ => {}
    }
    Plan::of(actions)
}

pub(crate) fn create(key: &Key<Virtual>, original: &Entry<Object>) -> Action {
    let stamp = json!({OF: key.to_string(), UID: &*original.uid});
    let body = json!({
        "metadata": {"labels": {BY: ACTOR}, "annotations": stamp},
        "data": data(original),
    });
    let mark = Mark { labels: &[BY], annotations: &[OF, UID] };
    let copy = Key::<Physical>::new(NAMESPACE, copy_name(key));
    Action::new(CONFIG_MAP, &copy, Verb::Create { body, mark }, "it is wanted")
}

/// On the condition that it is the one that we know, as we know it: someone may have taken the stamp away.
pub(crate) fn remove(copy: &Entry<Object>) -> Action {
    let verb = Verb::Delete { grace: None, dependents: Dependents::Background };
    let action = Action::new(CONFIG_MAP, &copy.key::<Physical>(), verb, "its original does not want it");
    action.if_uid(&*copy.uid).if_version(&*copy.resource_version)
}

/// What differs, on the condition that it still does.
fn repair(original: &Entry<Object>, copy: &Entry<Object>) -> Option<Action> {
    let (wish, is) = (data(original), data(copy));
    if wish == is {
        return None;
    }
    let mut patch: Map<String, Value> = wish.clone();
    for key in is.keys().filter(|key| !wish.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    let body = json!({"data": patch});
    let verb = Verb::Patch { form: PatchForm::Merge, subresource: None, body };
    let action = Action::new(CONFIG_MAP, &copy.key::<Physical>(), verb, "it has drifted");
    Some(action.if_uid(&*copy.uid).if_version(&*copy.resource_version))
}

pub(crate) fn data(object: &Object) -> Map<String, Value> {
    object.field("data").ok().flatten().unwrap_or_default()
}

pub(crate) fn copy_name(key: &Key<Virtual>) -> String {
    copy_name_of(&key.to_string())
}

/// Names of 253 characters have copies too.
pub(crate) fn copy_name_of(original: &str) -> String {
    let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("m-{:016x}", original.bytes().fold(0xcbf2_9ce4_8422_2325, fnv))
}

fn original_of(text: &str) -> Option<Key<Virtual>> {
    let (namespace, name) = text.split_once('/')?;
    Some(Key::new(namespace, name))
}

/// Whether an object of P has our whole stamp.
pub(crate) fn stamp(object: &Value) -> Option<(&str, &str)> {
    let meta = &object["metadata"];
    let annotation = |name: &str| meta["annotations"][name].as_str();
    (meta["labels"][BY] == ACTOR).then_some(())?;
    Some((annotation(OF)?, annotation(UID)?))
}

pub(crate) fn is_wanted(original: &Value) -> bool {
    let meta = &original["metadata"];
    meta["labels"]["mirror"] == "yes" && meta["deletionTimestamp"].is_null()
}

/// A name for the set of everything that stands for the same thing in stories.
pub(crate) fn place(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    format!("{}/{}", text("namespace"), text("name"))
}

pub(crate) fn share<T>(value: T) -> Arc<parking_lot::Mutex<T>> {
    Arc::new(parking_lot::Mutex::new(value))
}
