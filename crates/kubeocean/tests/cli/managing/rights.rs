//! Rights that a lender does not give, and gives later.

use std::collections::BTreeMap;
use std::time::Instant;

use futures::StreamExt as _;
use kube::Client;
use kubeocean_api::keys::names::{INSTALL_NAMESPACE, WORKER_NAMESPACE};
use kubeocean_model::rights::{Right, Scope, WorkerWishes, in_worker};
use kubeocean_sandbox::{COMPUTING, Cluster};
use serde_json::{Value, json};

use super::place::{Place, apply, condition, namespace, text};
use super::vnodes::syncer_as;
use crate::access::{kubectl, until};
use crate::manager::Manager;
use crate::support::{answer, kubeocean};

/// Calls of the test itself at a time.
const AT_A_TIME: usize = 16;

/// One verb on one resource.
struct Taken {
    right: Right,
    verb: &'static str,
    /// Of the binding, its Secret, and the mount namespace.
    name: String,
}

impl Taken {
    fn is_cluster_wide(&self) -> bool {
        self.right.scope == Scope::Cluster
    }

    /// As the condition has to say it. What the whole cluster allows is allowed in a namespace too.
    fn missed(&self, rights: &[Right]) -> Vec<String> {
        let Self { right, verb, name } = self;
        if right.resource == "namespaces" {
            // Asked for first of all, and not as a question: who may not read it hears so.
            return vec![format!("{verb} namespaces {name} (or {name} does not exist)")];
        }
        let same = |other: &Right| {
            (other.group, other.resource, other.names) == (right.group, right.resource, right.names)
        };
        let everywhere = rights
            .iter()
            .any(|other| other.scope == Scope::Cluster && same(other) && other.verbs.contains(verb));
        if everywhere && !self.is_cluster_wide() {
            return Vec::new();
        }
        let asked = right.questions(name).into_iter().filter(|question| question.verb == *verb);
        asked.map(|question| question.to_string()).collect()
    }
}

/// What `kubeocean worker-manifest` prints for a mount namespace.
pub(super) fn manifest(name: &str) -> Vec<Value> {
    manifest_with(name, &[])
}

/// The same, with more flags.
pub(super) fn manifest_with(name: &str, flags: &[&str]) -> Vec<Value> {
    let identity = format!("{name}-id");
    let args = ["worker-manifest", "--namespace", name, "--identity-namespace", &identity, "-o", "json"];
    let printed = answer(kubeocean(args.iter().chain(flags)));
    assert_eq!(printed.code, Some(0), "{}", printed.err);
    let list: Value = serde_json::from_str(&printed.out).unwrap();
    list["items"].as_array().unwrap().clone()
}

/// The same roles without one verb on one resource.
fn without(objects: &[Value], taken: &Taken) -> Vec<Value> {
    let role = if taken.is_cluster_wide() { "ClusterRole" } else { "Role" };
    let mut objects = objects.to_vec();
    let mut found = 0;
    for object in objects.iter_mut().filter(|object| object["kind"] == role) {
        let mut rules = Vec::new();
        for rule in object["rules"].as_array().unwrap() {
            let names = if taken.right.names.is_empty() { Value::Null } else { json!(taken.right.names) };
            let concerns = rule["apiGroups"] == json!([taken.right.group]) && rule["resourceNames"] == names;
            for resource in rule["resources"].as_array().unwrap() {
                let mut one = rule.clone();
                one["resources"] = json!([resource]);
                if concerns && resource == taken.right.resource {
                    let verbs = one["verbs"].as_array_mut().unwrap();
                    found += verbs.iter().filter(|verb| *verb == taken.verb).count();
                    verbs.retain(|verb| verb != taken.verb);
                    if verbs.is_empty() {
                        continue;
                    }
                }
                rules.push(one);
            }
        }
        object["rules"] = rules.into();
    }
    assert_eq!(found, 1, "{} {} is given once", taken.verb, taken.right.resource);
    objects
}

/// A manager, and all that a lender and a borrower are asked to apply: nobody may do more than what is shipped allows.
pub(super) async fn with_shipped_rights(place: &Place, worker: &[Value]) -> Manager {
    let lender = place.worker("worker-1").client().await.unwrap();
    apply_all(&lender, worker).await;
    with_borrowers_rights(place).await
}

/// The borrower's half of it.
pub(super) async fn with_borrowers_rights(place: &Place) -> Manager {
    let computing = place.worker(COMPUTING);
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config");
    for part in ["rbac", "admission"] {
        kubectl(computing, &format!("apply --server-side -k {config}/{part}"), "");
    }
    let account = place.kubeconfig_of(INSTALL_NAMESPACE, "kubeocean-manager").await;
    place.manager_as(&account, "manager", &[])
}

/// Applies each of them.
pub(super) async fn apply_all(lender: &Client, objects: &[Value]) {
    for object in objects {
        let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let root = if version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{version}") };
        let within = object["metadata"]["namespace"].as_str();
        let within = within.map_or_else(String::new, |namespace| format!("/namespaces/{namespace}"));
        let plural = match kind.as_str() {
            "NetworkPolicy" => "networkpolicies".to_owned(),
            "PriorityClass" => "priorityclasses".to_owned(),
            kind => format!("{}s", kind.to_lowercase()),
        };
        apply(lender, &format!("{root}{within}/{plural}"), object).await;
    }
}

/// What `kubeocean worker-kubeconfig` prints.
pub(super) fn kubeconfig(worker: &Cluster, name: &str) -> String {
    let (path, identity) = (worker.kubeconfig_path().to_str().unwrap(), format!("{name}-id"));
    let args =
        ["worker-kubeconfig", "--kubeconfig", path, "--namespace", name, "--identity-namespace", &identity];
    let printed = answer(kubeocean(args));
    assert_eq!(printed.code, Some(0), "{}", printed.err);
    printed.out
}

/// The objects that the command in a message prints. Who follows it gives what is missing, and takes nothing.
fn advised(message: &str) -> Vec<Value> {
    let command = message.split('`').nth(1).unwrap();
    let (ours, apply) = command.split_once(" | ").unwrap();
    assert_eq!(apply, "kubectl apply --server-side -f -");
    let words = ours.strip_prefix("kubeocean ").unwrap().split(' ').chain(["-o", "json"]);
    let printed = answer(kubeocean(words));
    assert_eq!(printed.code, Some(0), "{}", printed.err);
    let list: Value = serde_json::from_str(&printed.out).unwrap();
    list["items"].as_array().unwrap().clone()
}

/// What the condition says is missing.
fn missing(binding: &Value) -> Vec<String> {
    let message = text(&condition(binding, "Connected")["message"]);
    let Some((fix, list)) = message.split_once(" may not ") else { return Vec::new() };
    assert!(fix.starts_with("the lender has to grant rights, with `kubeocean worker-manifest"), "{message}");
    list.split(", ").map(str::to_owned).collect()
}

#[tokio::test]
async fn each_verb_that_a_lender_does_not_give_is_named_and_given_later_it_is_good() {
    let place = Place::new(1).await;
    let worker = place.worker("worker-1");
    let lender = worker.client().await.unwrap();
    // Where the lender has the definition of policies, the verbs on those are asked for too.
    place.define(&lender).await;
    let rights = in_worker(&WorkerWishes { storage: false, policies: true });
    let each = rights.iter().flat_map(|right| right.verbs.iter().map(|verb| (*right, *verb)));
    let all: Vec<Taken> = each
        .enumerate()
        .map(|(number, (right, verb))| Taken { right, verb, name: format!("right-{number}") })
        .collect();
    let prepared = futures::stream::iter(&all).for_each_concurrent(AT_A_TIME, async |taken: &Taken| {
        apply_all(&lender, &without(&manifest(&taken.name), taken)).await;
        place.secret(&taken.name, &kubeconfig(worker, &taken.name)).await;
    });
    prepared.await;

    let manager = place.manager("manager-a", &["--leader-elect"]);
    for taken in &all {
        place.bind(&taken.name, &taken.name, &taken.name).await;
    }
    let began = Instant::now();
    let expected: BTreeMap<&str, Vec<String>> =
        all.iter().map(|taken| (taken.name.as_str(), taken.missed(&rights))).collect();
    until("each binding names what it misses, and nothing else", async || {
        let bindings = place.bindings().await?;
        for (name, expected) in &expected {
            let binding = bindings.get(*name).ok_or("not there")?;
            let (connected, said) = (condition(binding, "Connected"), missing(binding));
            let reason = if expected.is_empty() { "ConnectivityPassed" } else { "PermissionDenied" };
            if connected["reason"] != reason || said != *expected {
                return Err(format!("{name} should miss {expected:?}: {connected:#}"));
            }
        }
        Ok(())
    })
    .await;
    let missed = expected.values().filter(|missed| !missed.is_empty()).count();
    println!(
        "{missed} of {} verbs are missed by name after {:.1?}; the others are given twice",
        all.len(),
        began.elapsed()
    );
    assert!(missed > 63, "{missed}");

    // The lender does as the messages say; where nothing is missed, there is nothing to do.
    let said: BTreeMap<String, String> = place
        .bindings()
        .await
        .unwrap()
        .into_iter()
        .map(|(name, binding)| (name, text(&condition(&binding, "Connected")["message"])))
        .collect();
    let given = futures::stream::iter(&all).for_each_concurrent(AT_A_TIME, async |taken: &Taken| {
        if !expected[taken.name.as_str()].is_empty() {
            apply_all(&lender, &advised(&said[&taken.name])).await;
        }
    });
    given.await;
    let began = Instant::now();
    until("all is well when everything is given", async || {
        let bindings = place.bindings().await?;
        let bad = bindings.iter().find(|(_, one)| condition(one, "Connected")["status"] != "True");
        bad.map_or(Ok(()), |(name, binding)| Err(format!("{name}: {:#}", binding["status"])))
    })
    .await;
    println!("all are connected {:.1?} after the last verb was given back", began.elapsed());
    drop(manager);
    place.stop().await;
}

/// The objects that a page of our documentation shows under a title.
fn shown_under(title: &str) -> &'static str {
    let page = include_str!("../../../../../docs/bind.md");
    let section = page.split_once(title).unwrap().1;
    section.split_once("```yaml\n").unwrap().1.split_once("```").unwrap().0
}

#[tokio::test]
async fn a_secret_of_another_namespace_is_read_as_soon_as_its_owner_shows_it_as_the_docs_say() {
    let place = Place::new(1).await;
    let manager = with_shipped_rights(&place, &manifest(WORKER_NAMESPACE)).await;
    apply(&place.virt, "/api/v1/namespaces", &namespace("lenders")).await;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "berlin"},
        "stringData": {"kubeconfig": kubeconfig(place.worker("worker-1"), WORKER_NAMESPACE)},
    });
    apply(&place.virt, "/api/v1/namespaces/lenders/secrets", &secret).await;
    let elsewhere = json!({"secretRef": {"name": "berlin", "namespace": "lenders"}});
    place.bind_with("berlin", "berlin", WORKER_NAMESPACE, &elsewhere, &json!({})).await;
    let refused = place
        .binding("berlin", "refused", |binding| {
            condition(binding, "Connected")["reason"] == "PermissionDenied"
        })
        .await;
    let message = text(&condition(&refused, "Connected")["message"]);
    assert!(message.contains("a RoleBinding in lenders"), "it names the fix: {message}");

    // Two of the three who are named there exist only once the manager could read it; a RoleBinding does not mind.
    kubectl(place.worker(COMPUTING), "apply -f -", shown_under("## A Secret in another namespace"));
    place.all_ready(["berlin"]).await;
    let account = place.kubeconfig_of(INSTALL_NAMESPACE, "kubeocean-syncer-berlin").await;
    let syncer = syncer_as(&place, &account, "berlin", "syncer");
    until("the syncer works with the Secret that it is shown", async || {
        let connected = |line: &Value| line["message"] == "connected to the worker cluster";
        if syncer.lines().iter().any(connected) {
            Ok(())
        } else {
            Err(format!("{:?}", syncer.lines().last()))
        }
    })
    .await;
    drop((syncer, manager));
    place.stop().await;
}
