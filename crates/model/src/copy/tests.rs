use jiff::{SignedDuration, Timestamp};
use kubeocean_api::keys::annotations;
use proptest::prelude::*;

use super::*;
use crate::action::Verb;
use crate::naming::Origin;
use crate::object::Meta;
use crate::pretend::{Pretend, binding, nasty, object};

const SECRET: Copied = Copied::Secret;
const MAP: Copied = Copied::ConfigMap;

fn name() -> PhysicalName {
    Origin::Object { namespace: "web", name: "a" }.physical_name()
}

fn config(data: &Value) -> Value {
    json!({"metadata": {
        "namespace": "web", "name": "a", "uid": "v-a",
        "labels": {"team": "blue"}, "annotations": {"kubernetes.io/service-account.name": "admin"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y"}], "finalizers": ["x.io/y"],
    }, "data": data})
}

fn secret(kind: &str, data: &Value) -> Value {
    let mut secret = config(data);
    secret["type"] = kind.into();
    secret
}

fn plan(world: &Pretend, what: Copied, original: Option<&Value>, usage: Usage) -> Vec<Action> {
    let binding = binding("b-1");
    let stamp = Stamp { binding: &binding, virtual_cluster: "v-1" };
    let copy = world.get(&what.kind(), name().as_str());
    plan_copy(&stamp, what, original.map(object).as_ref(), copy.as_ref(), &name(), usage)
}

/// Plans, writes, and plans again: there is nothing left to write.
fn settle(world: &mut Pretend, what: Copied, original: Option<&Value>, usage: Usage) -> Vec<String> {
    let actions = plan(world, what, original, usage);
    let written = world.apply(&actions);
    assert_eq!(plan(world, what, original, usage), [], "after {written:?}");
    written.iter().map(|one| one.split(' ').next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn a_pod_finds_its_config_map_and_nothing_else_of_it_leaves_the_computing_cluster() {
    let mut world = Pretend::default();
    let mut original = config(&json!({"k": "1"}));
    original["binaryData"] = json!({"bin": "AAE="});
    original["immutable"] = true.into();
    assert_eq!(settle(&mut world, MAP, Some(&original), Usage::BY_PODS), ["create"]);
    let expected = json!({
        "metadata": {
            "namespace": "mount", "name": name().as_str(), "uid": "made-1",
            "labels": {
                labels::MANAGED_BY: "kubeocean", labels::BINDING_UID: "b-1", labels::VIRTUAL_CLUSTER_UID: "v-1",
            },
            "annotations": {
                annotations::VIRTUAL_NAME: "a", annotations::VIRTUAL_NAMESPACE: "web", annotations::VIRTUAL_UID: "v-a",
            },
        },
        "data": {"k": "1"}, "binaryData": {"bin": "AAE="},
    });
    assert_eq!(world.value(&kinds::CONFIG_MAP, name().as_str()), Some(&expected));
}

#[test]
fn a_change_in_the_computing_cluster_is_one_write_of_what_differs() {
    let mut world = Pretend::default();
    settle(
        &mut world,
        MAP,
        Some(&config(&json!({"kept": "1", "changed": "1", "gone": "1"}))),
        Usage::BY_PODS,
    );
    let original = config(&json!({"kept": "1", "changed": "2", "new": ""}));
    let actions = plan(&world, MAP, Some(&original), Usage::BY_PODS);
    let [Action { verb: Verb::Patch { body, .. }, .. }] = actions.as_slice() else { panic!("{actions:?}") };
    assert_eq!(*body, json!({"data": {"changed": "2", "new": "", "gone": null}}));
    assert_eq!(settle(&mut world, MAP, Some(&original), Usage::BY_PODS), ["patch"]);
}

#[test]
fn what_others_write_on_a_copy_stays_and_what_is_ours_is_repaired() {
    let mut world = Pretend::default();
    let original = config(&json!({"k": "1"}));
    settle(&mut world, MAP, Some(&original), Usage::BY_PODS);
    let copy = world.value_mut(&kinds::CONFIG_MAP, name().as_str());
    copy["metadata"]["labels"]["theirs"] = "x".into();
    copy["metadata"]["annotations"]["theirs"] = "x".into();
    assert_eq!(settle(&mut world, MAP, Some(&original), Usage::BY_PODS), [""; 0]);
    let copy = world.value_mut(&kinds::CONFIG_MAP, name().as_str());
    copy["metadata"]["labels"][labels::MANAGED_BY] = "someone".into();
    copy["metadata"]["annotations"][annotations::VIRTUAL_UID] = "another".into();
    copy["data"] = json!({"k": "2", "theirs": "x"});
    assert_eq!(settle(&mut world, MAP, Some(&original), Usage::BY_PODS), ["patch"]);
    let copy = world.value(&kinds::CONFIG_MAP, name().as_str()).unwrap();
    assert_eq!(copy["metadata"]["labels"]["theirs"], "x");
    assert_eq!(copy["metadata"]["annotations"]["theirs"], "x");
    assert_eq!(copy["data"], json!({"k": "1"}));
}

#[test]
fn an_original_that_was_made_anew_keeps_its_copy() {
    let mut world = Pretend::default();
    let mut original = config(&json!({"k": "1"}));
    settle(&mut world, MAP, Some(&original), Usage::BY_PODS);
    original["metadata"]["uid"] = "v-b".into();
    assert_eq!(settle(&mut world, MAP, Some(&original), Usage::BY_PODS), ["patch"]);
}

#[test]
fn a_copy_goes_with_its_last_user_and_with_its_original() {
    let mut world = Pretend::default();
    let original = secret("Opaque", &json!({"k": "MQ=="}));
    let by_volumes = Usage { by_pods: false, by_volumes: true };
    assert_eq!(settle(&mut world, SECRET, Some(&original), Usage::NONE), [""; 0], "nobody wants it");
    assert_eq!(settle(&mut world, SECRET, Some(&original), by_volumes), ["create"]);
    let label = |world: &Pretend| {
        world.value(&kinds::SECRET, name().as_str()).unwrap()["metadata"]["labels"][labels::USED_BY_PV]
            .clone()
    };
    assert_eq!(label(&world), TRUE);
    assert_eq!(settle(&mut world, SECRET, Some(&original), Usage::BY_PODS), ["patch"]);
    assert_eq!(label(&world), Value::Null);
    assert_eq!(settle(&mut world, SECRET, Some(&original), Usage::NONE), ["delete"]);
    settle(&mut world, SECRET, Some(&original), Usage::BY_PODS);
    assert_eq!(settle(&mut world, SECRET, None, Usage::BY_PODS), ["delete"]);
    assert_eq!(settle(&mut world, SECRET, None, Usage::BY_PODS), [""; 0]);
}

#[test]
fn no_type_of_secret_asks_the_worker_cluster_for_a_credential() {
    for (given, kept) in [
        ("Opaque", "Opaque"),
        ("", "Opaque"),
        ("kubernetes.io/dockercfg", "kubernetes.io/dockercfg"),
        ("kubernetes.io/dockerconfigjson", "kubernetes.io/dockerconfigjson"),
        ("kubernetes.io/basic-auth", "kubernetes.io/basic-auth"),
        ("kubernetes.io/ssh-auth", "kubernetes.io/ssh-auth"),
        ("kubernetes.io/tls", "kubernetes.io/tls"),
        ("kubernetes.io/service-account-token", "Opaque"),
        ("bootstrap.kubernetes.io/token", "Opaque"),
        ("example.com/anything", "Opaque"),
    ] {
        let mut world = Pretend::default();
        settle(&mut world, SECRET, Some(&secret(given, &json!({"token": "eA=="}))), Usage::BY_PODS);
        let copy = world.value(&kinds::SECRET, name().as_str()).unwrap();
        assert_eq!(copy["type"], kept, "{given}");
        assert!(!copy.to_string().contains("service-account.name"), "{copy}");
    }
}

#[test]
fn a_secret_of_another_type_is_made_anew_and_so_is_one_that_cannot_change() {
    let mut world = Pretend::default();
    settle(&mut world, SECRET, Some(&secret("Opaque", &json!({"k": "MQ=="}))), Usage::BY_PODS);
    let original = secret("kubernetes.io/basic-auth", &json!({"password": "MQ=="}));
    assert_eq!(settle(&mut world, SECRET, Some(&original), Usage::BY_PODS), ["delete", "create"]);
    world.value_mut(&kinds::SECRET, name().as_str())["immutable"] = true.into();
    assert_eq!(
        settle(&mut world, SECRET, Some(&original), Usage::BY_PODS),
        [""; 0],
        "it says what it has to"
    );
    let original = secret("kubernetes.io/basic-auth", &json!({"password": "Mg=="}));
    assert_eq!(settle(&mut world, SECRET, Some(&original), Usage::BY_PODS), ["delete", "create"]);
}

#[test]
fn what_is_not_ours_is_neither_changed_nor_removed() {
    let original = config(&json!({"k": "1"}));
    let ours = json!({
        labels::MANAGED_BY: "kubeocean", labels::BINDING_UID: "b-1", labels::VIRTUAL_CLUSTER_UID: "v-1",
    });
    for (key, value) in [
        (labels::BINDING_UID, json!("b-2")),
        (labels::VIRTUAL_CLUSTER_UID, json!("v-2")),
        (labels::BINDING_UID, Value::Null),
        (labels::VIRTUAL_CLUSTER_UID, Value::Null),
    ] {
        let mut foreign = config(&json!({"k": "other"}));
        foreign["metadata"]["labels"] = ours.clone();
        if value.is_null() {
            foreign["metadata"]["labels"].as_object_mut().unwrap().remove(key);
        } else {
            foreign["metadata"]["labels"][key] = value;
        }
        let mut world = Pretend::default();
        let place = ("configmaps".to_owned(), "mount".to_owned(), name().to_string());
        world.objects.insert(place, foreign);
        for original in [None, Some(&original)] {
            for usage in [Usage::NONE, Usage::BY_PODS] {
                assert_eq!(plan(&world, MAP, original, usage), [], "{key}");
            }
        }
    }
}

#[test]
fn a_copy_that_is_going_is_waited_for() {
    let mut world = Pretend::default();
    let original = config(&json!({"k": "1"}));
    settle(&mut world, MAP, Some(&original), Usage::BY_PODS);
    let copy = world.value_mut(&kinds::CONFIG_MAP, name().as_str());
    copy["metadata"]["deletionTimestamp"] = "2026-11-20T08:00:00Z".into();
    assert_eq!(plan(&world, MAP, Some(&config(&json!({}))), Usage::BY_PODS), []);
    assert_eq!(plan(&world, MAP, None, Usage::NONE), []);
}

#[test]
fn an_earlier_attempt_is_known_by_its_original_and_not_by_its_name() {
    let actions = plan(&Pretend::default(), MAP, Some(&config(&json!({}))), Usage::BY_PODS);
    let [Action { verb: Verb::Create { body, mark }, .. }] = actions.as_slice() else {
        panic!("{actions:?}")
    };
    let mut existing = body.clone();
    existing["metadata"]["annotations"][annotations::VIRTUAL_UID] = "of an earlier one".into();
    assert!(mark.is_on(&object(&existing).meta, body));
    existing["metadata"]["labels"][labels::BINDING_UID] = "b-2".into();
    assert!(!mark.is_on(&object(&existing).meta, body));
}

#[test]
fn odd_content_is_left_alone() {
    let mut world = Pretend::default();
    settle(&mut world, SECRET, Some(&secret("Opaque", &json!({"k": "MQ=="}))), Usage::BY_PODS);
    for shape in nasty() {
        for field in ["data", "binaryData", "type", "immutable"] {
            let mut odd = secret("Opaque", &json!({"k": "MQ=="}));
            odd[field] = shape.clone();
            for what in [MAP, SECRET] {
                let _ = plan(&world, what, Some(&odd), Usage::BY_PODS);
                let _ = plan(&Pretend::default(), what, Some(&odd), Usage::BY_PODS);
            }
        }
    }
    let unreadable = secret("Opaque", &json!(["k"]));
    assert_eq!(plan(&world, SECRET, Some(&unreadable), Usage::BY_PODS), [], "nothing is lost");
}

fn texts() -> impl Strategy<Value = BTreeMap<String, String>> {
    proptest::collection::btree_map("[a-d]", "[a-b]{0,2}", 0..4)
}

proptest! {
    #[test]
    fn a_plan_that_was_carried_out_leaves_nothing_to_do(
        steps in proptest::collection::vec((texts(), texts(), any::<bool>(), any::<bool>(), 0..3_usize), 1..6),
    ) {
        let mut world = Pretend::default();
        for (data, binary, is_there, is_used, kind) in steps {
            let kind = ["Opaque", "kubernetes.io/tls", "x/y"][kind];
            let mut original = secret(kind, &json!(data));
            original["binaryData"] = json!(binary);
            let usage = if is_used { Usage::BY_PODS } else { Usage::NONE };
            for what in [MAP, SECRET] {
                settle(&mut world, what, is_there.then_some(&original), usage);
                let copy = world.value(&what.kind(), name().as_str());
                prop_assert_eq!(copy.is_some(), is_there && is_used);
                if let Some(copy) = copy {
                    let is = copy.get("data").cloned().unwrap_or(json!({}));
                    prop_assert_eq!(is, json!(data));
                }
            }
        }
    }
}

/// A V pod, and the Secret with its tokens.
struct Pod {
    world: Pretend,
    meta: Meta,
    name: PhysicalName,
}

impl Pod {
    fn new() -> Self {
        let meta = object(&json!({"metadata": {"namespace": "web", "name": "p", "uid": "v-p"}})).meta;
        Self {
            world: Pretend::default(),
            meta,
            name: Origin::Tokens { pod: "p", uid: "v-p" }.physical_name(),
        }
    }

    fn settle(&mut self, tokens: Option<&Tokens>) -> Vec<String> {
        let actions = self.plan(tokens);
        let written = self.world.apply(&actions);
        assert_eq!(self.plan(tokens), [], "after {written:?}");
        written
    }

    fn plan(&self, tokens: Option<&Tokens>) -> Vec<Action> {
        let binding = binding("b-1");
        let stamp = Stamp { binding: &binding, virtual_cluster: "v-1" };
        let existing = self.world.get(&kinds::SECRET, self.name.as_str());
        plan_tokens(&stamp, &self.meta, existing.as_ref(), tokens, &self.name)
    }

    fn due(&self, keys: &[&str], now: Timestamp) -> Due {
        let binding = binding("b-1");
        let stamp = Stamp { binding: &binding, virtual_cluster: "v-1" };
        let existing = self.world.get(&kinds::SECRET, self.name.as_str());
        tokens_due(&stamp, &self.meta.uid, keys.iter().copied(), existing.as_ref(), now)
    }
}

fn now() -> Timestamp {
    "2026-11-20T12:00:00Z".parse().unwrap()
}

fn in_seconds(seconds: i64) -> Timestamp {
    now().checked_add(SignedDuration::from_secs(seconds)).unwrap()
}

#[test]
fn tokens_are_renewed_at_four_fifths_of_the_shortest_life_and_go_with_their_pod() {
    let mut pod = Pod::new();
    let keys = ["kube-api-access.0", "vault.1"];
    assert_eq!(pod.due(&[], now()), Due::Never);
    assert_eq!(pod.due(&keys, now()), Due::Now);
    let mut tokens = Tokens::default();
    tokens.add(keys[0], "one", now(), in_seconds(3600));
    tokens.add(keys[1], "two", now(), in_seconds(600));
    assert_eq!(tokens.renew_at(), Some(in_seconds(480)));
    assert!(!format!("{tokens:?}").contains("b25l"));
    pod.settle(Some(&tokens));
    assert_eq!(pod.due(&keys, now()), Due::At(in_seconds(480)));
    assert_eq!(pod.due(&keys, in_seconds(480)), Due::Now);
    assert_eq!(pod.due(&["another"], now()), Due::Now);
    let secret = pod.world.value(&kinds::SECRET, pod.name.as_str()).unwrap();
    assert_eq!(secret["data"], json!({keys[0]: "b25l", keys[1]: "dHdv"}));
    assert_eq!(secret["metadata"]["labels"][labels::SERVICE_ACCOUNT_TOKEN], TRUE);
    assert_eq!(secret["metadata"]["annotations"][annotations::VIRTUAL_POD_UID], "v-p");
    let mut renewed = Tokens::default();
    renewed.add(keys[0], "three", in_seconds(480), in_seconds(4080));
    assert!(pod.settle(Some(&renewed))[0].starts_with("patch"));
    let secret = pod.world.value_mut(&kinds::SECRET, pod.name.as_str());
    assert_eq!(secret["data"], json!({keys[0]: "dGhyZWU="}));
    secret["immutable"] = true.into();
    assert_eq!(pod.settle(Some(&tokens)).len(), 2, "made anew");
    assert!(pod.settle(None)[0].starts_with("delete"));
}

#[test]
fn the_tokens_of_one_pod_never_get_into_the_secret_of_another() {
    let mut pod = Pod::new();
    let mut tokens = Tokens::default();
    tokens.add("a.0", "one", now(), in_seconds(3600));
    pod.settle(Some(&tokens));
    for (map, key) in [
        ("annotations", annotations::VIRTUAL_POD_UID),
        ("labels", labels::SERVICE_ACCOUNT_TOKEN),
        ("labels", labels::BINDING_UID),
        ("labels", labels::VIRTUAL_CLUSTER_UID),
    ] {
        let mut other = Pod::new();
        other.world.objects = pod.world.objects.clone();
        other.world.value_mut(&kinds::SECRET, other.name.as_str())["metadata"][map][key] = "another".into();
        assert_eq!(other.due(&["a.0"], now()), Due::Now);
        let mut renewed = Tokens::default();
        renewed.add("a.0", "two", now(), in_seconds(3600));
        assert_eq!(other.plan(Some(&renewed)), [], "{key}");
        assert_eq!(other.plan(None), [], "{key}");
    }
    pod.meta.uid = "".into();
    pod.world.value_mut(&kinds::SECRET, pod.name.as_str())["metadata"]["annotations"]
        [annotations::VIRTUAL_POD_UID] = "".into();
    assert_eq!(pod.plan(None), [], "nobody's");
}
